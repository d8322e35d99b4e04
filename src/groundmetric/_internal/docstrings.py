"""Docstrings of functions that share parameters: one text, filled in where a line `{name}` stands for it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def documented(texts: Mapping[str, str]) -> Callable[[Function], Function]:
    """Decorator that fills in the docstring every line that is `{name}` alone.

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
        if function.__doc__ is not None:  # with -OO there is none
            text = inspect.cleandoc(function.__doc__)
            function.__doc__ = re.sub(r"(?m)^\{(\w+)\}$", lambda found: texts[found[1]], text)
        return function

    return fill


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring of a function says of each parameter, to document another that takes it.

    >>> parameter_texts(documented)
    {}
    """
    text = inspect.cleandoc(function.__doc__ or "")
    return {found[1]: found[0] for found in re.finditer(r"(?m)^(\w+) : .*(?:\n +\S.*)*", text)}
