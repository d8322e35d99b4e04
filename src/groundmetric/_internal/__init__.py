"""Helpers of the package, and the lazy import of public names."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection: imports create many objects that stay, and scanning them takes a sixth of the time.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def find(name: str, homes: Mapping[str, str], package: str) -> Any:
    """Return a public name of a package from the module that defines it.

    >>> find("Cache", {"Cache": "cache"}, "groundmetric._internal").__name__
    'Cache'
    >>> find("Cahce", {"Cache": "cache"}, "groundmetric._internal")
    Traceback (most recent call last):
    ...
    AttributeError: module 'groundmetric._internal' has no attribute 'Cahce'
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    with uncollected():
        return getattr(importlib.import_module(f".{homes[name]}", package), name)
