"""Validation of arrays, numbers and labels from outside: what the package takes, or an error that names the culprit."""

from __future__ import annotations

import importlib.util
import numbers
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from .alignment import Roll, aligned

if TYPE_CHECKING:
    from ..distributions import Distributions


# Unicode's control and format characters (bidirectional overrides, zero-width spaces), line separators, surrogates.
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Cs"}


class ParameterError(ValueError):
    """A value that a parameter does not take.

    The parameter is an attribute, so that a program with names of its own (the command line) can name its option.

    Parameters
    ----------
    parameter : str
        Name of the parameter.
    value : object
        Its value.
    problem : str
        What is wrong and the remedy, as it follows on the value: ": expected …" or ", but …: …".

    Examples
    --------
    >>> error = ParameterError("n_cells", 0, ": expected at least 1")
    >>> str(error), error.naming("--cells-per-sample")
    ('n_cells is 0: expected at least 1', '--cells-per-sample is 0: expected at least 1')
    """

    def __init__(self, parameter: str, value: Any, problem: str) -> None:
        super().__init__(parameter, value, problem)  # what it is pickled by, on its way from a worker
        self.parameter, self.value, self.problem = parameter, value, problem

    def naming(self, name: str) -> str:
        """The message with another name of the parameter."""
        return f"{name} is {self.value!r}{self.problem}"

    def __str__(self) -> str:
        return self.naming(self.parameter)


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


def refuse_groups(other: Mapping[str, Any], function: str) -> None:
    """Raise for keywords that a function does not take; `groups` once was the name of `samples`.

    >>> refuse_groups({"groups": ["a", "b"]}, "Distributions")
    Traceback (most recent call last):
    ...
    TypeError: Distributions takes no groups (patients that a split keeps together): ...
    """
    if "groups" in other:
        raise TypeError(
            f"{function} takes no groups (patients that a split keeps together): which distribution each row belongs "
            "to is `samples`"
        )
    if other:
        raise TypeError(f"{function} got an unexpected keyword argument {next(iter(other))!r}")


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


def need(name: str, purpose: str = "this", extra: str = "single-cell") -> None:
    """Raise with what to type unless the package is installed."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ModuleNotFoundError(f'{name} is needed for {purpose}: pip install "groundmetric[{extra}]"', name=name)


def check_labels(y: Any, roll: Roll) -> np.ndarray:
    """A class for each distribution."""
    labels = label_array(y, roll)
    if missing_values(labels).any():
        raise ValueError("y contains a missing label: drop the distribution or label it")
    check_classes(labels)
    return labels


def label_array(y: Any, roll: Roll, name: str = "y") -> np.ndarray:
    """An array with an entry for each distribution, whatever it holds: the door that all labels come in by.

    Where `y` carries names, it is brought into the order of the roll.
    """
    y = aligned(y, roll, name)
    labels = np.asarray(y)
    if np.ma.is_masked(y) and not isinstance(y, list | tuple):  # what is masked is missing
        labels = labels.astype(object)
        labels[np.ma.getmaskarray(y)] = None
    if labels.ndim != 1 or labels.size != roll.size:
        several = " (several labels need a target each: target=['classes', 'ordered'])" if labels.ndim == 2 else ""
        raise ValueError(f"{name} has shape {labels.shape}, but a label is needed for each of {roll.size}{several}")
    if isinstance(y, list | tuple) and labels.dtype.kind in "US":  # numpy has made text of the numbers among them
        return np.array(y, dtype=object) if not all(isinstance(label, str | bytes) for label in y) else labels
    return labels


def check_classes(labels: np.ndarray, name: str = "y") -> None:
    """Labels without missing ones must be classes: text, whole numbers or truth values, of one kind."""
    if labels.dtype == object:
        text = [label for label in labels if isinstance(label, str)]
        other = [label for label in labels if not isinstance(label, str)]
        if text and other:
            raise ValueError(f"{name} mixes text and numbers ({text[0]!r} and {other[0]!r}): make all of them text")
        truth = [label for label in other if isinstance(label, bool | np.bool_)]
        if truth and len(truth) < len(other):
            number = next(label for label in other if not isinstance(label, bool | np.bool_))
            raise ValueError(
                f"{name} mixes truth values and numbers ({truth[0]!r} and {number!r}): True and 1 would be one class; "
                "make all of them text"
            )
        if text:
            return
        labels = np.array(labels.tolist())  # scikit-learn knows numbers only as arrays of numbers
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ValueError(f"{error} Continuous or ordered labels need target='ordered'.") from None


def labels_of_samples(D: Distributions, labels: np.ndarray, shown: np.ndarray | None = None) -> np.ndarray:
    """One label per distribution from one per row; they must agree. `shown` are the labels as an error names them."""
    by_point = labels[D.order]
    first = by_point[D.bounds[:-1]]
    expected = np.repeat(first, D.sizes)
    agree = by_point == expected
    if labels.dtype.kind == "f":
        agree |= np.isnan(by_point) & np.isnan(expected)
    differs = np.flatnonzero(~agree)
    if differs.size:
        d = int(np.searchsorted(D.bounds, differs[0], side="right")) - 1
        members = (labels if shown is None else shown)[D.order][D.bounds[d] : D.bounds[d + 1]]
        found = sorted(set(members.tolist()), key=lambda label: (str(type(label)), label))
        raise ValueError(f"sample {D.names[d]!r} has labels {found}: a distribution needs exactly one")
    return first


def check_number(name: str, value: Any, *, low: float, above: bool = False, whole: bool = False) -> None:
    kind: type = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool) and low <= value < np.inf  # type: ignore[operator]
    if not fits or (above and value == low):
        what = "a whole number" if whole else "a number"
        raise ParameterError(name, value, f": expected {what} {'above' if above else 'of at least'} {low:g}")


CLASS_WEIGHTS = (None, "balanced")


def check_class_weight(class_weight: str | None) -> None:
    if class_weight not in CLASS_WEIGHTS:
        raise ValueError(f"class_weight is {class_weight!r}: expected None or 'balanced'")
