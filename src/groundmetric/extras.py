"""Packages that come with an extra: advice where one is missing."""

from __future__ import annotations

import importlib.util


def need(name: str, purpose: str = "this", extra: str = "single-cell") -> None:
    """Raise with what to type unless the package is installed."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ModuleNotFoundError(f'{name} is needed for {purpose}: pip install "groundmetric[{extra}]"', name=name)
