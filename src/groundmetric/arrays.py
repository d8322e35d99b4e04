"""Numbers from the outside: arrays of real numbers, or an error that names what is not."""

from __future__ import annotations

from typing import Any

import numpy as np


def real_array(values: Any, name: str) -> np.ndarray:
    """An array of float32 (where it was) or float64; copied only where it has to be.

    >>> real_array([1, 2], "cost").dtype
    dtype('float64')
    >>> real_array(["high"], "cost")
    Traceback (most recent call last):
    ...
    ValueError: cost must be numbers: found text, e.g. ...'high'...
    """
    try:
        array = np.asarray(values)
        if array.dtype in (np.float32, np.float64):
            return array
        if np.issubdtype(array.dtype, np.complexfloating):
            raise ValueError("Complex data not supported")
        text = array.dtype.kind in "US" or (array.dtype == object and any(isinstance(x, str) for x in array.flat))
        if text:  # numpy would read "1.5" as a number, and a column of names may happen to look like numbers
            raise ValueError(f"found text, e.g. {next(x for x in array.flat if isinstance(x, str | bytes))!r}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA stand for something that is not there."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA refuses to be true or false
        return True
