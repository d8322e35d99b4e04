"""Adapters for patpy and pertpy: subclasses of their base classes. Each is imported at its first use."""

from __future__ import annotations

import importlib
from typing import Any

_ADAPTERS = ("patpy", "pertpy")


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(_ADAPTERS)
