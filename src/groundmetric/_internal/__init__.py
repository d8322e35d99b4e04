"""Helpers of the package. This module: lazy import of public names, and docstrings with shared parameters."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection during imports, which otherwise takes a sixth of the import time.

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


def documented(texts: Mapping[str, str]) -> Callable[[Function], Function]:
    """Return a decorator that replaces lines `{name}` of a docstring by shared texts.

    >>> @documented({"n": "n : int\\n    Number of points."})
    ... def draw(n):
    ...     \"\"\"Draw points.
    ...
    ...     Parameters
    ...     ----------
    ...     {n}
    ...     \"\"\"
    >>> draw.__doc__.splitlines()[-2:]
    ['n : int', '    Number of points.']
    """

    def fill(function: Function) -> Function:
        if function.__doc__ is not None:  # python -OO removes docstrings
            text = inspect.cleandoc(function.__doc__)
            function.__doc__ = re.sub(r"(?m)^\{(\w+)\}$", lambda match: texts[match[1]], text)
        return function

    return fill
