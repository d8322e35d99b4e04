"""Validation of what comes from outside: arrays, numbers, labels, and values that carry names.

``obs.groupby("patient")["disease"].first()`` is sorted by patient, `Distributions` are in the order in which patients
first appear: taken by position, patients would get each other's labels. So whatever has names (pandas, xarray, a dict)
goes by its names:

- The names must be those of the distributions, in any order; with more or fewer it is an error. Numbers match text that
  reads the same (101 and "101").
- What has no names (arrays, lists) goes by position. So does a plain numbering of rows: the index 0, 1, 2, … that
  pandas gives where there is none, also after both sides were sliced alike, as scikit-learn's cross-validation does.
- Where distributions are named 0, 1, 2, … themselves but in another order, such an index could mean either: an error.
"""

from __future__ import annotations

import importlib.util
import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..distributions import Distributions


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
    give : mapping or None, default=None
        Parameters and values that would be right, added to the problem: ": give target='ordered'".

    Examples
    --------
    >>> error = ParameterError("label_key", "age", ", which holds numbers", {"target": "ordered"})
    >>> str(error)
    "label_key is 'age', which holds numbers: give target='ordered'"
    >>> error.naming({"label_key": "--label", "target": "--target"})
    "--label is 'age', which holds numbers: give --target ordered"
    """

    def __init__(self, parameter: str, value: Any, problem: str, give: Mapping[str, Any] | None = None) -> None:
        super().__init__(parameter, value, problem, give)  # what it is pickled by, on its way from a worker
        self.parameter, self.value, self.problem, self.give = parameter, value, problem, dict(give or {})

    def naming(self, options: Mapping[str, str]) -> str:
        """The message with options of a command line in place of parameters."""
        right = [
            f"{options[name]} {','.join(value) if isinstance(value, list) else value}"
            if name in options
            else f"{name}={value!r}"
            for name, value in self.give.items()
        ]
        how = ", or give" if ":" in self.problem else ": give"  # after another remedy, or the first one
        advice = f"{how} {', '.join(right)}" if right else ""
        return f"{options.get(self.parameter, self.parameter)} is {self.value!r}{self.problem}{advice}"

    def __str__(self) -> str:
        return self.naming({})


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
        first = tuple(masked[0].tolist())
        raise ValueError(
            f"{name} has {len(masked)} of {values.size} entries masked, e.g. at {first}: give them a value "
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
    from scipy import sparse  # slow to import

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


def need(name: str, purpose: str = "this", extra: str = "single-cell") -> None:
    """Raise with what to type unless the package is installed."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ModuleNotFoundError(f'{name} is needed for {purpose}: pip install "groundmetric[{extra}]"', name=name)


# Names that an error shows.
_FEW = 3


@dataclass(frozen=True)
class NameIndex:
    """The names of some items in their order, which values with names are brought into.

    Attributes
    ----------
    names : one per item; None where they have none, so that all goes by position
    n : how many they are, where they have no names
    numberings : rows that the items had in the cohorts that they were sliced from: an index of these means position.
        None: they may have been sliced by others, so that any whole numbers that are no names do.
    items : what they are called in errors
    """

    names: Sequence[Hashable] | None
    numberings: Sequence[np.ndarray] | None = ()
    items: str = "distributions"
    n: int = 0

    @classmethod
    def of(cls, *values: Any, items: str = "distributions") -> NameIndex:
        """The names that the first of these values carries that has any; or how many there are."""
        for value in values:
            index = _index_of(value)
            if index is not None:
                return cls(index.names, None, items)
        shape = getattr(values[0], "shape", ())
        return cls(None, None, items, shape[0] if shape else len(values[0]) if hasattr(values[0], "__len__") else 0)

    @property
    def size(self) -> int:
        return self.n if self.names is None else len(self.names)

    @property
    def are_numbers(self) -> bool:
        return all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in self.names or [])


@dataclass(frozen=True)
class _Index:
    """The names that values carry, whether these are unnamed whole numbers, and whether they are plainly 0, 1, 2, …"""

    names: list[Hashable]
    is_numbers: bool
    is_default: bool


def align_by_name(values: Any, name_index: NameIndex, what: str) -> Any:
    """Values in the order of the name index, of the type that they had (of a dict: a list).

    >>> align_by_name({"bob": "well", "ann": "ill"}, NameIndex(["ann", "bob"]), "y")
    ['ill', 'well']
    >>> align_by_name({"bob": "well"}, NameIndex(["ann", "bob"]), "y")
    Traceback (most recent call last):
    ...
    ValueError: y has names other than the 2 distributions: 'ann' is missing; it has 'bob' (1), they are ...
    """
    index = _index_of(values)
    if index is None:
        return values
    if name_index.names is None:
        if isinstance(values, Mapping):
            raise ValueError(
                f"{what} is a mapping by name, but the {name_index.items} have no names: give a list in order"
            )
        return values
    positions = _positions(index, name_index, what)
    if isinstance(values, Mapping):
        given = list(values.values())
        return given if positions is None else [given[position] for position in positions]
    if positions is None:
        return values
    return values.iloc[positions] if hasattr(values, "iloc") else values.isel({values.dims[0]: positions})


def align_square_by_name(values: Any, name_index: NameIndex, what: str) -> Any:
    """A matrix between the items, rows and columns by name."""
    rows = _index_of(values)
    if rows is None or getattr(values, "ndim", 0) != 2:
        return values
    columns = _index_of(values.T)
    if columns is None or set(rows.names) != set(columns.names):
        there = "none" if columns is None else _some(columns.names)
        raise ValueError(
            f"{what} has rows and columns of different names (rows: {_some(rows.names)}; columns: {there}): name both "
            f"by the {name_index.items}, or give an array"
        )
    return align_by_name(align_by_name(values, name_index, what).T, name_index, what).T


def carries_names(values: Any) -> bool:
    """Whether values have names, other than plain numbers of rows."""
    index = _index_of(values)
    return index is not None and not index.is_default


def numbered(values: Any) -> Any:
    """The positions 0, 1, 2, … of values, with the names that these carry."""
    positions = np.arange(len(values))
    if isinstance(values, Mapping):
        return dict(zip(values, positions.tolist(), strict=True))
    if hasattr(values, "iloc") and hasattr(values, "index"):
        return type(values)(positions, index=values.index)
    return values.copy(data=positions) if _index_of(values) is not None else positions


def _index_of(values: Any) -> _Index | None:
    """The names that values carry along their first axis; None where they carry none."""
    if isinstance(values, Mapping):
        return _Index(list(values), False, False)
    if hasattr(values, "iloc") and hasattr(values, "index"):  # a Series or DataFrame
        return _pandas_index(values.index)
    if hasattr(values, "isel") and hasattr(values, "indexes") and bool(getattr(values, "dims", None)):  # a DataArray
        return _pandas_index(values.indexes[values.dims[0]]) if values.dims[0] in values.indexes else None
    return None


def _pandas_index(index: Any) -> _Index:
    array = index.to_numpy()
    names = list(array) if array.dtype.kind in "mM" else array.tolist()  # dates stay dates
    numbers = array.dtype.kind in "iu" and index.name is None
    return _Index(names, numbers, numbers and type(index).__name__ == "RangeIndex" and names == list(range(len(names))))


def _positions(index: _Index, name_index: NameIndex, what: str) -> np.ndarray | None:
    """Where each item's value stands among those given; None where they are in order already."""
    assert name_index.names is not None
    given: list[Any] = list(map(_key, index.names))
    wanted: list[Any] = list(map(_key, name_index.names))
    if given == wanted:
        return None
    if set(given) != set(wanted):
        as_text = [str(name) for name in index.names], [str(name) for name in name_index.names]
        if not _same_names(*as_text):
            if _by_position(index, name_index):
                return None
            raise ValueError(_mismatch(index, name_index, what))
        given, wanted = as_text[0], as_text[1]
    if given == wanted:
        return None
    if index.is_default:
        raise ValueError(
            f"{what} is numbered 0, 1, 2, …, and so are the {name_index.items}, but in another order "
            f"({_some(name_index.names)}): give {what}.to_numpy() if it is in their order, or name the index "
            "if these are their names"
        )
    position = {name: at for at, name in enumerate(given)}
    if len(position) < len(given):
        twice = next(name for at, name in enumerate(given) if position[name] != at)
        raise ValueError(
            f"{what} has {_shown(twice)} more than once, in another order than the {name_index.items}: which is "
            "which is not known; give each name once"
        )
    return np.array([position[name] for name in wanted], dtype=np.intp)


def _key(name: Hashable) -> Hashable:
    """Python takes True for 1."""
    return (bool, bool(name)) if isinstance(name, bool | np.bool_) else name


def _same_names(given: list[str], wanted: list[str]) -> bool:
    return len(set(given)) == len(given) and len(set(wanted)) == len(wanted) and set(given) == set(wanted)


def _by_position(index: _Index, name_index: NameIndex) -> bool:
    """Are the names that values carry, or those of the items, plain numbers of rows?"""
    assert name_index.names is not None
    if name_index.numberings is None and index.is_numbers != name_index.are_numbers:
        return len(index.names) == len(name_index.names)
    if not index.is_numbers:
        return False
    rows = [np.arange(len(name_index.names)), *(name_index.numberings or ())]
    return index.is_default or any(np.array_equal(np.asarray(index.names), one) for one in rows)


def _mismatch(index: _Index, name_index: NameIndex, what: str) -> str:
    assert name_index.names is not None
    here, there = set(map(_key, index.names)), set(map(_key, name_index.names))
    missing = [name for name in dict.fromkeys(name_index.names) if _key(name) not in here]
    unknown = [name for name in dict.fromkeys(index.names) if _key(name) not in there]
    differences = []
    if missing:
        differences.append(f"{_some(missing)} {'are' if len(missing) > 1 else 'is'} missing")
    if unknown:
        differences.append(f"{_some(unknown)} {'are' if len(unknown) > 1 else 'is'} none of them")
    return (
        f"{what} has names other than the {len(name_index.names)} {name_index.items}: {'; '.join(differences)}; it has "
        f"{_some(index.names)} ({len(index.names)}), they are {_some(name_index.names)} ({len(name_index.names)}). "
        f"Give exactly theirs, in any order (e.g. {what}.loc[names]), or an array without names in their "
        "order (.to_numpy())"
    )


def _some(names: Sequence[Any]) -> str:
    more = len(names) - _FEW
    return ", ".join(map(_shown, names[:_FEW])) + (f" and {more} more" if more > 0 else "")


def _shown(name: Any) -> str:
    return repr(name.item() if isinstance(name, np.generic) and name.dtype.kind not in "mM" else name)


def check_labels(y: Any, name_index: NameIndex) -> np.ndarray:
    """A class for each distribution."""
    labels = label_array(y, name_index)
    if missing_values(labels).any():
        raise ValueError("y contains a missing label: drop the distribution or label it")
    check_classes(labels)
    return labels


def label_array(y: Any, name_index: NameIndex, name: str = "y") -> np.ndarray:
    """An array with an entry for each distribution, whatever it holds: the door that all labels come in by.

    Where `y` carries names, it is brought into the order of the name_index.
    """
    y = align_by_name(y, name_index, name)
    labels = np.asarray(y)
    if np.ma.is_masked(y) and not isinstance(y, list | tuple):  # what is masked is missing
        labels = labels.astype(object)
        labels[np.ma.getmaskarray(y)] = None
    if labels.ndim != 1 or labels.size != name_index.size:
        several = " (several labels need a target each: target=['classes', 'ordered'])" if labels.ndim == 2 else ""
        raise ValueError(
            f"{name} has shape {labels.shape}, but a label is needed for each of {name_index.size}{several}"
        )
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
    from sklearn.utils.multiclass import check_classification_targets  # slow to import

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
