"""Imports of what is heavy, when it is first used."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected: imports make many objects that stay, and looking through them takes a sixth of the time.

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
    """A public name from the module of a package that is its home.

    >>> find("find", {"find": "imports"}, "groundmetric._internal") is find
    True
    >>> find("fnid", {"find": "imports"}, "groundmetric._internal")
    Traceback (most recent call last):
    ...
    AttributeError: module 'groundmetric._internal' has no attribute 'fnid'
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    with uncollected():
        return getattr(importlib.import_module(f".{homes[name]}", package), name)
