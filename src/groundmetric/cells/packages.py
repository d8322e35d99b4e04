"""The packages of the single-cell world: advice where one is missing."""

from __future__ import annotations

import importlib.util


def need(name: str) -> None:
    """Raise with what to type unless the package is installed."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ModuleNotFoundError(f'{name} is needed for this: pip install "groundmetric[single-cell]"', name=name)
