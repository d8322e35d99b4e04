"""Validation at public entry points: arrays, numbers, labels, points, and alignment of values by name.

``obs.groupby("patient")["disease"].first()`` is sorted by patient, whereas `Distributions` are in order of first
appearance. By position, patients would get each other's labels. Values that have names (pandas, xarray, a dict) are
therefore aligned by name:

- The names must be those of the distributions, in any order. Numbers match text that reads the same (101 and "101").
- Values without names (arrays, lists) are taken by position. So are values whose index only numbers the rows: the index
  0, 1, 2, … that pandas gives by default, also after both sides were sliced alike, as in scikit-learn's
  cross-validation.
- If distributions are themselves named 0, 1, 2, … in another order, such an index is ambiguous, which is an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import numbers
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..distributions import Distributions

# Entries of points whose squares are summed at a time: 2 MB.
_BLOCK_ENTRIES = 2**18
# Smaller numbers have squares that are 0 or have lost digits.
_LEAST_DIFFERENCE = 1e-150
# Names that an error shows.
_SHOWN_NAMES = 3


class ParameterError(ValueError):
    """A parameter has a value that it does not take.

    Everything that the message is made of is an attribute, so that a program with other names for the parameters (the
    command line) can word it for its users.

    Parameters
    ----------
    parameter : str
        Name of the parameter.
    value : object
        Value of the parameter.
    problem : str
        Continuation of the sentence "parameter is value": ": expected …" or ", but …: …".
    remedy : mapping or None, default=None
        Parameters and values that would be valid.

    Examples
    --------
    >>> error = ParameterError("label_key", "age", ", which holds numbers", {"target": "ordered"})
    >>> str(error)
    "label_key is 'age', which holds numbers: give target='ordered'"
    >>> error.naming({"label_key": "--label", "target": "--target"})
    "--label is 'age', which holds numbers: give --target ordered"
    """

    def __init__(self, parameter: str, value: Any, problem: str, remedy: Mapping[str, Any] | None = None) -> None:
        super().__init__(parameter, value, problem, remedy)  # the arguments of a pickled error
        self.parameter, self.value, self.problem, self.remedy = parameter, value, problem, dict(remedy or {})

    def naming(self, options: Mapping[str, str]) -> str:
        """Return the message with other names of parameters, such as options of a command line."""
        settings = []
        for name, value in self.remedy.items():
            if name not in options:
                settings.append(f"{name}={value!r}")
            elif value is True:  # a flag
                settings.append(options[name])
            else:
                settings.append(f"{options[name]} {','.join(value) if isinstance(value, list) else value}")
        start = ", or give" if ":" in self.problem else ": give"  # the problem may end with another remedy
        advice = f"{start} {', '.join(settings)}" if settings else ""
        return f"{options.get(self.parameter, self.parameter)} is {self.value!r}{self.problem}{advice}"

    def __str__(self) -> str:
        return self.naming({})


def need(name: str, purpose: str = "this", extra: str = "single-cell") -> None:
    """Raise with the command that installs a package unless it is installed."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ModuleNotFoundError(f'{name} is needed for {purpose}: pip install "groundmetric[{extra}]"', name=name)


def check_number(name: str, value: Any, *, low: float, above: bool = False, whole: bool = False) -> None:
    """Raise unless a parameter is a finite number of at least `low` (or above it), whole if asked for."""
    kind: type = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool) and low <= value < np.inf  # type: ignore[operator]
    if not fits or (above and value == low):
        what = "a whole number" if whole else "a number"
        raise ParameterError(name, value, f": expected {what} {'above' if above else 'of at least'} {low:g}")


def check_class_weight(class_weight: str | None) -> None:
    if class_weight not in (None, "balanced"):
        raise ParameterError("class_weight", class_weight, ": expected None or 'balanced'")


def real_array(values: Any, name: str) -> np.ndarray:
    """Return a float32 array (if it was one) or a float64 array; copy only if necessary.

    Missing values (None, NaT, pandas' NA) become NaN. Dates become whole numbers in their unit.

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
        if array.dtype.kind in "mM":  # as an integer, NaT is the lowest there is
            return np.where(np.isnat(array), np.nan, array.astype(np.int64))
        if array.dtype == object:
            array = np.where(missing_values(array), np.nan, array)
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def refuse_mask(values: Any, name: str) -> None:
    """Raise if entries of a masked array are masked: numpy would use the values under the mask.

    >>> refuse_mask(np.ma.array([1.0, 1e9], mask=[False, True]), "weights")
    Traceback (most recent call last):
    ...
    ValueError: weights has 1 of 2 entries masked, e.g. at (1,): give them a value (`.filled(…)`) or drop them
    """
    if isinstance(values, list | tuple):  # an array of masked arrays would lose the masks as well
        values = next((one for one in values if isinstance(one, np.ma.MaskedArray) and np.ma.is_masked(one)), None)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = np.argwhere(np.ma.getmaskarray(values))
        raise ValueError(
            f"{name} has {len(masked)} of {values.size} entries masked, e.g. at {tuple(masked[0].tolist())}: give them "
            "a value (`.filled(…)`) or drop them"
        )


def refuse_groups(other: Mapping[str, Any], function: str) -> None:
    """Raise for unknown keywords; `groups` is easily confused with `samples`.

    >>> refuse_groups({"groups": ["a", "b"]}, "Distributions")
    Traceback (most recent call last):
    ...
    TypeError: Distributions takes no groups (patients that a split keeps together): ...
    """
    if "groups" in other:
        raise TypeError(
            f"{function} takes no groups (patients that a split keeps together): the distribution of each row is "
            "`samples`"
        )
    if other:
        raise TypeError(f"{function} got an unexpected keyword argument {next(iter(other))!r}")


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT, pandas' NA or masked."""
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # comparing pandas' NA gives no truth value, nor does comparing an array
        return not isinstance(value, np.ndarray)


def missing_values(array: np.ndarray) -> np.ndarray:
    """Return the mask of missing entries."""
    if array.dtype.kind not in "fOmM":
        return np.zeros(array.shape, bool)
    return np.fromiter(map(is_missing, array.flat), bool, array.size).reshape(array.shape)


def first_not_finite(points: Any) -> tuple[int, int] | None:
    """Return row and column of the first NaN or infinity, searching in blocks of rows to save memory."""
    from scipy import sparse  # slow to import

    stored = points.data if sparse.issparse(points) else points
    # A finite sum proves that all entries are finite; a sum may also overflow.
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


@dataclass(frozen=True)
class NameIndex:
    """Names of items in their order, to which values with names are aligned.

    Attributes
    ----------
    names : sequence or None
        One name per item; None: items have no names, so that values are taken by position.
    numberings : sequence of arrays or None
        Rows that the items had in the cohorts from which they were sliced: an index of these rows means position.
        None: items may have been sliced elsewhere, so that any whole numbers that are not names mean position.
    items : str
        What errors call the items.
    n : int
        Number of items without names.
    """

    names: Sequence[Hashable] | None
    numberings: Sequence[np.ndarray] | None = ()
    items: str = "distributions"
    n: int = 0

    @classmethod
    def of(cls, *values: Any, items: str = "distributions") -> NameIndex:
        """Return the names of the first of these values that has names, or else their number."""
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
    """Names that values carry, whether they are whole numbers, and whether they are the default index 0, 1, 2, …"""

    names: list[Hashable]
    is_numbers: bool
    is_default: bool


def align_by_name(values: Any, name_index: NameIndex, what: str) -> Any:
    """Return values in the order of the name index, of the same type (of a dict: a list).

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
    is_mapping = isinstance(values, Mapping)
    if name_index.names is None:
        if is_mapping:
            raise ValueError(
                f"{what} is a mapping by name, but the {name_index.items} have no names: give a list in order"
            )
        return values
    positions = _positions(index, name_index.names, name_index, what)
    if is_mapping:
        entries = list(values.values())
        return entries if positions is None else [entries[position] for position in positions]
    if positions is None:
        return values
    return values.iloc[positions] if hasattr(values, "iloc") else values.isel({values.dims[0]: positions})


def align_square_by_name(values: Any, name_index: NameIndex, what: str) -> Any:
    """Align rows and columns of a matrix between the items."""
    rows = _index_of(values)
    if rows is None or getattr(values, "ndim", 0) != 2:
        return values
    columns = _index_of(values.T)
    if columns is None or set(rows.names) != set(columns.names):
        names = "none" if columns is None else _shown(columns.names)
        raise ValueError(
            f"{what} has rows and columns of different names (rows: {_shown(rows.names)}; columns: {names}): name both "
            f"by the {name_index.items}, or give an array"
        )
    return align_by_name(align_by_name(values, name_index, what).T, name_index, what).T


def carries_names(values: Any) -> bool:
    """Return whether values have names other than the default index 0, 1, 2, …"""
    index = _index_of(values)
    return index is not None and not index.is_default


def numbered(values: Any) -> Any:
    """Return the positions 0, 1, 2, … of values, with the names of the values."""
    positions = np.arange(len(values))
    if isinstance(values, Mapping):
        return dict(zip(values, positions.tolist(), strict=True))
    if hasattr(values, "iloc") and hasattr(values, "index"):
        return type(values)(positions, index=values.index)
    return values.copy(data=positions) if _index_of(values) is not None else positions


def _index_of(values: Any) -> _Index | None:
    """Return the names along the first axis; None if there are none."""
    if isinstance(values, Mapping):
        return _Index(list(values), False, False)
    if hasattr(values, "iloc") and hasattr(values, "index"):  # a Series or DataFrame
        index = values.index
    elif hasattr(values, "isel") and hasattr(values, "indexes") and bool(getattr(values, "dims", None)):  # a DataArray
        if values.dims[0] not in values.indexes:
            return None
        index = values.indexes[values.dims[0]]
    else:
        return None
    array = index.to_numpy()
    names = list(array) if array.dtype.kind in "mM" else array.tolist()  # tolist would turn dates into numbers
    is_numbers = array.dtype.kind in "iu" and index.name is None
    is_default = is_numbers and type(index).__name__ == "RangeIndex" and names == list(range(len(names)))
    return _Index(names, is_numbers, is_default)


def _positions(index: _Index, names: Sequence[Hashable], name_index: NameIndex, what: str) -> np.ndarray | None:
    """Return the position of each item's value; None if values are in order or taken by position."""
    given: list[Any] = list(map(_key, index.names))
    wanted: list[Any] = list(map(_key, names))
    if given == wanted:
        return None
    if set(given) != set(wanted):
        given_text, wanted_text = [str(name) for name in index.names], [str(name) for name in names]
        if len({*given_text}) < len(given) or len({*wanted_text}) < len(wanted) or {*given_text} != {*wanted_text}:
            if _is_numbering(index, names, name_index):
                return None
            raise ValueError(_mismatch(index, names, name_index.items, what))
        given, wanted = given_text, wanted_text
    if given == wanted:
        return None
    if index.is_default:
        raise ValueError(
            f"{what} is numbered 0, 1, 2, …, and so are the {name_index.items}, but in another order "
            f"({_shown(names)}): give {what}.to_numpy() if it is in their order, or name the index if these are their "
            "names"
        )
    position = {name: at for at, name in enumerate(given)}
    if len(position) < len(given):
        twice = next(name for at, name in enumerate(given) if position[name] != at)
        raise ValueError(
            f"{what} has {_shown([twice])} more than once, in another order than the {name_index.items}: give each "
            "name once"
        )
    return np.array([position[name] for name in wanted], dtype=np.intp)


def _key(name: Hashable) -> Hashable:
    """Return a key that tells True from 1, which are equal in Python."""
    return (bool, bool(name)) if isinstance(name, bool | np.bool_) else name


def _is_numbering(index: _Index, names: Sequence[Hashable], name_index: NameIndex) -> bool:
    """Return whether the names of the values, or of the items, only number rows."""
    if name_index.numberings is None and index.is_numbers != name_index.are_numbers:
        return len(index.names) == len(names)
    if not index.is_numbers:
        return False
    rows = [np.arange(len(names)), *(name_index.numberings or ())]
    return index.is_default or any(np.array_equal(np.asarray(index.names), one) for one in rows)


def _mismatch(index: _Index, names: Sequence[Hashable], items: str, what: str) -> str:
    given, wanted = set(map(_key, index.names)), set(map(_key, names))
    missing = [name for name in dict.fromkeys(names) if _key(name) not in given]
    unknown = [name for name in dict.fromkeys(index.names) if _key(name) not in wanted]
    differences = [f"{_shown(missing)} {'are' if len(missing) > 1 else 'is'} missing"] if missing else []
    differences += [f"{_shown(unknown)} {'are' if len(unknown) > 1 else 'is'} none of them"] if unknown else []
    return (
        f"{what} has names other than the {len(names)} {items}: {'; '.join(differences)}; it has "
        f"{_shown(index.names)} ({len(index.names)}), they are {_shown(names)} ({len(names)}). Give exactly these "
        f"names, in any order (e.g. {what}.loc[names]), or an array without names in their order (.to_numpy())"
    )


def _shown(names: Sequence[Any]) -> str:
    plain = [x.item() if isinstance(x, np.generic) and x.dtype.kind not in "mM" else x for x in names[:_SHOWN_NAMES]]
    more = len(names) - _SHOWN_NAMES
    return ", ".join(map(repr, plain)) + (f" and {more} more" if more > 0 else "")


def check_labels(y: Any, name_index: NameIndex) -> np.ndarray:
    """Return the class of each distribution."""
    labels = label_array(y, name_index)
    if missing_values(labels).any():
        raise ValueError("y contains a missing label: drop the distribution or label it")
    check_classes(labels)
    return labels


def label_array(y: Any, name_index: NameIndex, name: str = "y") -> np.ndarray:
    """Return labels of any kind, one per distribution, aligned by name."""
    y = align_by_name(y, name_index, name)
    labels = np.asarray(y)
    if np.ma.is_masked(y) and not isinstance(y, list | tuple):  # masked labels are missing
        labels = labels.astype(object)
        labels[np.ma.getmaskarray(y)] = None
    if labels.ndim != 1 or labels.size != name_index.size:
        several = " (several labels need a target each: target=['classes', 'ordered'])" if labels.ndim == 2 else ""
        raise ValueError(
            f"{name} has shape {labels.shape}, but a label is needed for each of {name_index.size}{several}"
        )
    if isinstance(y, list | tuple) and labels.dtype.kind in "US":  # numpy turns numbers beside text into text
        return np.array(y, dtype=object) if not all(isinstance(label, str | bytes) for label in y) else labels
    return labels


def check_classes(labels: np.ndarray, name: str = "y") -> None:
    """Raise unless labels are classes: text, whole numbers or truth values, all of one type."""
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
        labels = np.array(labels.tolist())  # scikit-learn expects numbers in arrays of a number type
    from sklearn.utils.multiclass import check_classification_targets  # slow to import

    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ValueError(f"{error} Continuous or ordered labels need target='ordered'.") from None


def labels_of_samples(D: Distributions, labels: np.ndarray, shown: np.ndarray | None = None) -> np.ndarray:
    """Return one label per distribution from one label per row; `shown` are the labels that errors name."""
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
        several = sorted(set(members.tolist()), key=lambda label: (str(type(label)), label))
        raise ValueError(f"sample {D.names[d]!r} has labels {several}: a distribution needs exactly one")
    return first


def as_points(points: Any, what: str = "points") -> Any:
    """Return a 2-D array or CSR matrix of float32 or float64; copy only if necessary."""
    from scipy import sparse

    if sparse.issparse(points):
        points = points.tocsr()
        points = sparse.csr_matrix((real_array(points.data, what), points.indices, points.indptr), points.shape)
    else:
        points = np.ascontiguousarray(real_array(points, what))
    if points.ndim != 2:
        raise ValueError(f"{what} have shape {points.shape}: expected two dimensions, (n_points, n_features)")
    if points.shape[1] == 0:
        raise ValueError(f"{what} have 0 features: at least one is needed")
    return points


def are_sets(X: Any) -> bool:
    """Return whether X holds several sets of points rather than the rows of one."""
    if getattr(X, "ndim", None) == 3:
        return True
    if not isinstance(X, list | tuple) and str(getattr(X, "dtype", "")) != "object":
        return False
    if not len(X) or getattr(X, "ndim", 1) != 1 or hasattr(X, "iloc"):
        return False
    first = X[0]
    nested = isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], list | tuple | np.ndarray)
    return getattr(first, "ndim", None) == 2 or nested


def stack(
    arrays: list[Any], names: list[Hashable] | None, features: Sequence[str] | None
) -> tuple[Any, list[Hashable], Any]:
    """Return the points of several arrays, the name of the array of each point, and the names of the features."""
    from scipy import sparse

    names = list(range(len(arrays))) if names is None else names
    columns = [list(map(str, array.columns)) for array in arrays if hasattr(array, "columns")]
    if any(one != columns[0] for one in columns):
        raise ValueError("the data frames have different columns: give each the same, in the same order")
    sets = []
    for name, array in zip(names, arrays, strict=True):
        points = as_points(array, f"the points of distribution {name!r}")
        if points.shape[0] == 0:
            raise ValueError(f"distribution {name!r} is empty: drop it or give it at least one point")
        sets.append(points)
    widths = {points.shape[1] for points in sets}
    if len(widths) > 1:
        raise ValueError(f"arrays have {sorted(widths)} features: all need the same")
    points = sparse.vstack(sets, format="csr") if any(map(sparse.issparse, sets)) else np.vstack(sets)
    samples = [name for name, points in zip(names, sets, strict=True) for _ in range(points.shape[0])]
    return points, samples, columns[0] if features is None and columns else features


def number_samples(samples: Iterable[Hashable]) -> tuple[list[Hashable], np.ndarray]:
    """Return names in order of first appearance, and for each entry the position of its name among them."""
    refuse_mask(samples, "samples")
    array = np.asarray(samples) if isinstance(samples, np.ndarray) else None
    if array is None and hasattr(samples, "to_numpy"):  # pandas
        array = samples.to_numpy()
    if array is not None and array.ndim != 1:
        raise ValueError(f"samples has shape {array.shape}: expected one entry per point, e.g. a single column")
    if array is not None and array.dtype != object:
        values, first, codes = np.unique(array, return_index=True, return_inverse=True)
        rank = np.empty(values.size, np.intp)
        rank[np.argsort(first)] = np.arange(values.size)
        values = values[np.argsort(first)]
        names, codes = list(values) if values.dtype.kind in "mM" else values.tolist(), rank[codes]  # dates stay dates
    else:
        number_of: dict[Hashable, int] = {}
        codes = np.fromiter((number_of.setdefault(sample, len(number_of)) for sample in samples), np.intp)
        names = list(number_of)
    for name in names:
        if is_missing(name):
            raise ValueError(f"samples contain a missing value ({name!r}): every point needs a distribution")
    return names, codes


def check_features(features: Sequence[str] | None, n_features: int) -> list[str] | None:
    """Return the names of the features as text; raise unless they are unique and one per column."""
    if features is None:
        return None
    features = [str(feature) for feature in features]
    if len(features) != n_features:
        raise ValueError(f"{len(features)} feature names for {n_features} features: one is needed per column")
    if len(set(features)) < n_features:
        repeated = [name for name, count in Counter(features).items() if count > 1]
        raise ValueError(f"{len(repeated)} feature names occur more than once, e.g. {repeated[0]!r}: make them unique")
    return features


def moments(points: Any, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of every feature, in double precision and without a copy of the points."""
    from scipy import sparse

    if sparse.issparse(points):
        from sklearn.utils.sparsefuncs import mean_variance_axis

        weights = None if weights is None else weights.astype(points.dtype)
        mean, variance = mean_variance_axis(points, axis=0, weights=weights)
        return mean.astype(np.float64), variance.astype(np.float64)
    # Deviations from the first point rather than from zero: the variance of a constant feature is exactly 0.
    origin = points[0].astype(np.float64)
    total, squares = np.zeros(points.shape[1]), np.zeros(points.shape[1])
    rows = max(1, _BLOCK_ENTRIES // points.shape[1])
    for low in range(0, points.shape[0], rows):
        deviation = points[low : low + rows] - origin
        if weights is None:
            total += deviation.sum(axis=0)
            squares += np.einsum("pf,pf->f", deviation, deviation)
        else:
            total += weights[low : low + rows] @ deviation
            squares += weights[low : low + rows] @ deviation**2
    mass = points.shape[0] if weights is None else weights.sum()
    shift = total / mass
    return origin + shift, np.maximum(squares / mass - shift**2, 0.0)


def lost_variance(points: Any, variances: np.ndarray) -> np.ndarray:
    """Return which features have a computed variance of 0 only because their squared differences underflow."""
    from scipy import sparse

    lost, candidates = np.zeros(variances.size, bool), np.flatnonzero(variances == 0)
    if candidates.size:
        columns = points[:, candidates]
        lowest, highest = columns.min(axis=0), columns.max(axis=0)
        extent = (highest - lowest).toarray().ravel() if sparse.issparse(columns) else highest - lowest
        lost[candidates] = (extent > 0) & (extent < _LEAST_DIFFERENCE)
    return lost


def group_list(groups: Any, name_index: NameIndex, name: str = "groups") -> list[Hashable] | None:
    """The group (or stratum) of each distribution, in the order of the name index where they carry names."""
    if groups is None:
        return None
    refuse_mask(groups, name)
    groups = align_by_name(groups, name_index, name)
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"{name} has shape {groups.shape}: expected one entry per distribution, e.g. a single column")
    return list(groups)


def number_groups(groups: Any, size: int, name: str = "groups") -> np.ndarray | None:
    """Groups (or strata) as numbers, in the order in which they first appear; None where there are none."""
    values = group_list(groups, NameIndex(None, n=size), name)
    if values is None:
        return None
    if len(values) != size:
        raise ValueError(f"{name} has {len(values)} entries for {size} distributions: one is needed for each")
    for value in values:
        if is_missing(value):
            raise ValueError(f"{name} contain a missing value ({value!r}): every distribution needs one of its own")
    place = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return np.array([place[value] for value in values], dtype=np.intp)


def check_groups_per_class(labels: np.ndarray, groups: Any, least: int, why: str) -> None:
    """Raise unless there are two classes, each with at least `least` distributions, or groups where they are given."""
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()}): at least two are needed")
    members = number_groups(groups, labels.size)
    for label in classes.tolist():
        own = labels == label
        count = int(own.sum()) if members is None else np.unique(members[own]).size
        if count < least:
            what = "distributions"
            if members is not None:
                names = dict.fromkeys(group for group, is_own in zip(groups, own, strict=True) if is_own)
                what = f"groups ({', '.join(map(repr, list(names)[:3]))})"
            raise ValueError(f"class {label!r} has {count} {what}, but {least} are needed: {why}")


def resolve_seed(random_state: Any) -> int:
    """Return an integer seed: `random_state` itself, or a number drawn from it (from the system if None).

    >>> resolve_seed(7)
    7
    """
    from sklearn.utils import check_random_state  # imported here: a transport solve does not need scikit-learn

    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)  # the same range, and the same error, as everywhere in scikit-learn
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def keyed_generator(*key: Any) -> np.random.Generator:
    """Return a random generator that depends on the key only.

    >>> float(keyed_generator(0, "ann").random()) == float(keyed_generator(0, "ann").random())
    True
    """
    return np.random.default_rng(int.from_bytes(_digest(key), "little"))


def keyed_uniform(keys: Sequence[Any], *key: Any) -> np.ndarray:
    """Return one uniform number in [0, 1) for each of `keys`, which depends on that entry and on `key` only."""
    digests = [int.from_bytes(_digest((*key, entry)), "little") for entry in keys]
    return np.array(digests, dtype=np.uint64).astype(np.float64) / 2.0**64


def _digest(key: Sequence[Any]) -> bytes:
    text = "\x1f".join(str(part) for part in key)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
