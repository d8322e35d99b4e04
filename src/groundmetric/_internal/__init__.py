"""Helpers of the package. This module: lazy import of public names, and docstrings with shared parameters."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def find(name: str, homes: Mapping[str, str], package: str) -> Any:
    """Return a public name of a package from the module that defines it."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{homes[name]}", package), name)


def documented(texts: Mapping[str, str]) -> Callable[[Function], Function]:
    """Return a decorator that replaces lines `{name}` of a docstring by shared texts."""

    def fill(function: Function) -> Function:
        if function.__doc__ is not None:  # python -OO removes docstrings
            text = inspect.cleandoc(function.__doc__)
            function.__doc__ = re.sub(r"(?m)^\{(\w+)\}$", lambda match: texts[match[1]], text)
        return function

    return fill
