"""What comes in from the outside: numbers, missing values and names, or an error that says what is wrong with them."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from scipy import sparse

# Unicode's control and format characters (bidirectional overrides, zero-width spaces), line separators, surrogates.
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Cs"}


def real_array(values: Any, name: str) -> np.ndarray:
    """An array of float32 (where it was) or float64; copied only where it has to be.

    What stands for a missing value (None, NaT, pandas' NA) becomes NaN. Dates become whole numbers in their unit.

    >>> real_array([1, 2], "cost").dtype
    dtype('float64')
    >>> real_array(["high"], "cost")
    Traceback (most recent call last):
    ...
    ValueError: cost must be numbers: found text, e.g. ...'high'...
    """
    refuse_mask(values, name)
    try:
        array = np.asarray(values)
        if array.dtype in (np.float32, np.float64):
            return array
        if np.issubdtype(array.dtype, np.complexfloating):
            raise ValueError("Complex data not supported")
        text = array.dtype.kind in "US" or (array.dtype == object and any(isinstance(x, str) for x in array.flat))
        if text:  # numpy would read "1.5" as a number, and a column of names may happen to look like numbers
            raise ValueError(f"found text, e.g. {next(x for x in array.flat if isinstance(x, str | bytes))!r}")
        if array.dtype.kind in "mM":  # NaT is the lowest whole number there is
            return np.where(np.isnat(array), np.nan, array.astype(np.int64))
        if array.dtype == object:
            array = np.where(missing_values(array), np.nan, array)
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def refuse_mask(values: Any, name: str) -> None:
    """Raise where entries of a masked array are masked: numpy would use what lies under the mask.

    >>> refuse_mask(np.ma.array([1.0, 1e9], mask=[False, True]), "weights")
    Traceback (most recent call last):
    ...
    ValueError: weights has 1 of 2 entries masked, e.g. at (1,): give them a value (`.filled(…)`) or drop them
    """
    if isinstance(values, list | tuple):  # an array of masked arrays would lose the masks as well
        values = next((one for one in values if isinstance(one, np.ma.MaskedArray) and np.ma.is_masked(one)), None)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = np.argwhere(np.ma.getmaskarray(values))
        place = tuple(masked[0].tolist())
        raise ValueError(
            f"{name} has {len(masked)} of {values.size} entries masked, e.g. at {place}: give them a value "
            "(`.filled(…)`) or drop them"
        )


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, pandas' NA and a masked entry stand for something that is not there."""
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA refuses to be true or false; so does an array, which is there
        return not isinstance(value, np.ndarray)


def missing_values(array: np.ndarray) -> np.ndarray:
    """Mask of the entries that are missing, in the array's shape."""
    if array.dtype.kind not in "fOmM":
        return np.zeros(array.shape, bool)
    return np.fromiter(map(is_missing, array.flat), bool, array.size).reshape(array.shape)


def first_not_finite(points: Any) -> tuple[int, int] | None:
    """Row and column of the first NaN or infinity, looking at blocks of rows so that no large mask is made."""
    stored = points.data if sparse.issparse(points) else points
    # A sum is finite unless an entry is not, or the sum overflows: only then is it worth looking closer.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(stored, dtype=np.float64)):
            return None
    for low in range(0, points.shape[0], 4096):
        block = points[low : low + 4096]
        block = block.toarray() if sparse.issparse(block) else block
        if not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0]
            return low + int(row), int(column)
    return None


def visible(text: Any) -> str:
    """Text with its invisible characters written out, as `repr` does: a name cannot pass for another, or turn a line.

    >>> print(visible("ann\\u202ebob"))
    ann\\u202ebob
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    hidden = {sign for sign in text if sign not in "\n\t" and unicodedata.category(sign) in _INVISIBLE}
    return "".join(repr(sign)[1:-1] if sign in hidden else sign for sign in text)
