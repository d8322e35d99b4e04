"""Validation at public entry points: arrays, numbers, labels, points, and alignment of values by name.

Values with names (pandas, xarray, a dict) are aligned by name, because ``obs.groupby("patient")["disease"].first()`` is
sorted by patient, and `Distributions` are in order of first appearance. Numbers match text that reads the same (101 and
"101"). Values without names (arrays, lists) are taken by position. So are values whose index only numbers the rows: the
index 0, 1, 2, … that pandas gives by default, also after both sides were sliced alike, as in cross-validation. If
distributions are themselves named 0, 1, 2, … in another order, such an index is ambiguous: an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import numbers
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .tables import listed

if TYPE_CHECKING:
    from ..distributions import Distributions


class ParameterError(ValueError):
    """A parameter has an invalid value.

    `problem` continues the sentence "parameter is value": ": expected …" or ", but …: …". `remedy` has parameters and
    values that would be valid. A program with other names for the parameters can word its own message.
    """

    def __init__(self, parameter: str, value: Any, problem: str, remedy: Mapping[str, Any] | None = None) -> None:
        super().__init__(parameter, value, problem, remedy)  # the arguments of a pickled error
        self.parameter, self.value, self.problem, self.remedy = parameter, value, problem, dict(remedy or {})

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.remedy.items())
        start = ", or give" if ":" in self.problem else ": give"  # the problem may end with another remedy
        return f"{self.parameter} is {self.value!r}{self.problem}{f'{start} {settings}' if settings else ''}"


class AlignmentError(ValueError):
    """Names of values do not match the names of the items; `missing` and `unknown` list the differing names."""

    def __init__(
        self, message: str, parameter: str, missing: Sequence[Hashable] = (), unknown: Sequence[Hashable] = ()
    ) -> None:
        super().__init__(message, parameter, missing, unknown)  # the arguments of a pickled error
        self.parameter, self.missing, self.unknown = parameter, list(missing), list(unknown)

    def __str__(self) -> str:
        return str(self.args[0])


def need(name: str, purpose: str = "this", extra: str = "single-cell") -> None:
    """Raise with the command that installs a package unless it is installed."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ModuleNotFoundError(f'{name} is needed for {purpose}: pip install "groundmetric[{extra}]"', name=name)


def check_number(
    name: str, value: Any, *, low: float, high: float = np.inf, above: bool = False, whole: bool = False
) -> None:
    """Raise unless a parameter is a finite number from `low` to `high` (`above`: greater than `low`)."""
    kind: type = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high  # type: ignore[operator]
    if not fits or abs(value) == np.inf or (above and value == low):
        if low == -np.inf:
            raise ParameterError(name, value, ": expected a finite number")
        expected = f"{'a whole number' if whole else 'a number'} {'above' if above else 'of at least'} {low:g}"
        raise ParameterError(name, value, f": expected {expected}{f' and at most {high:g}' if high < np.inf else ''}")


def check_class_weight(class_weight: str | None) -> None:
    if class_weight not in (None, "balanced"):
        raise ParameterError("class_weight", class_weight, ": expected None or 'balanced'")


def real_array(values: Any, name: str) -> np.ndarray:
    """Return a float32 array (if it was one) or a float64 array; copy only if necessary.

    Missing values (None, NaT, pandas' NA) become NaN. Dates become whole numbers in their unit.
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
        if array.dtype.kind in "mM":  # as an integer, NaT would be the lowest int64
            return np.where(np.isnat(array), np.nan, array.astype(np.int64))
        if array.dtype == object:
            array = np.where(missing_values(array), np.nan, array)
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def refuse_mask(values: Any, name: str) -> None:
    """Raise if entries of a masked array are masked: numpy would use the values under the mask."""
    if isinstance(values, list | tuple):  # an array of masked arrays would lose the masks as well
        values = next((part for part in values if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part)), None)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = np.argwhere(np.ma.getmaskarray(values))
        problem = f"{len(masked)} of {values.size} entries masked, e.g. at {tuple(masked[0].tolist())}"
        raise ValueError(f"{name} has {problem}: give them a value (`.filled(…)`) or drop them")


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


@dataclass(frozen=True)
class NameIndex:
    """Names of items in order, to which values with names are aligned."""

    names: Sequence[Hashable] | None  # None: items without names, values are taken by position
    # Rows of the items in the cohorts from which they were sliced: an index of these rows means position. None: the
    # caller may have sliced the items, so any whole numbers that are not names mean position.
    numberings: Sequence[np.ndarray] | None = ()
    items: str = "distributions"  # noun for the items in errors
    n: int = 0  # number of items without names

    @classmethod
    def of(cls, *values: Any, items: str = "distributions") -> NameIndex:
        """Return the names of the first argument with names; without names, the length of the first argument."""
        for value in values:
            index = _index_of(value)
            if index is not None:
                return cls(index.names, None, items)
        shape = getattr(values[0], "shape", ())
        return cls(None, None, items, shape[0] if shape else len(values[0]) if hasattr(values[0], "__len__") else 0)

    @property
    def size(self) -> int:
        return self.n if self.names is None else len(self.names)


class _Index(NamedTuple):
    """Names of values, whether they are whole numbers, and whether they are the default index 0, 1, 2, …"""

    names: list[Hashable]
    is_numbers: bool
    is_default: bool


def align_by_name(values: Any, name_index: NameIndex, parameter: str) -> Any:
    """Return values in the order of the name index, of the same type (of a dict: a list)."""
    index = _index_of(values)
    if index is None:
        return values
    positions = None
    if name_index.names is not None:
        positions = _positions(index, name_index, list(name_index.names), parameter)
    if isinstance(values, Mapping):
        if name_index.names is None:
            problem = f"is a mapping by name, but the {name_index.items} have no names: give a list in order"
            raise AlignmentError(f"{parameter} {problem}", parameter)
        entries = list(values.values())
        return entries if positions is None else [entries[position] for position in positions]
    if positions is None:
        return values
    return values.iloc[positions] if hasattr(values, "iloc") else values.isel({values.dims[0]: positions})


def align_square_by_name(values: Any, name_index: NameIndex, parameter: str) -> Any:
    """Align rows and columns of a matrix between the items."""
    rows = _index_of(values)
    if rows is None or getattr(values, "ndim", 0) != 2:
        return values
    columns = _index_of(values.T)
    if columns is None or set(rows.names) != set(columns.names):
        names = "none" if columns is None else _shown(columns.names)
        raise AlignmentError(
            f"{parameter} has rows and columns of different names (rows: {_shown(rows.names)}; columns: {names}): name "
            f"both by the {name_index.items}, or give an array",
            parameter,
        )
    return align_by_name(align_by_name(values, name_index, parameter).T, name_index, parameter).T


def square_distances(distances: Any, name_index: NameIndex) -> np.ndarray:
    """Return a validated copy, aligned by name, with zeros on the diagonal."""
    aligned = align_square_by_name(distances, name_index, "distances")
    distances = np.array(real_array(aligned, "distances"), dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise ValueError(f"distances have shape {distances.shape}: expected a square matrix")
    if not np.isfinite(distances).all():
        raise ValueError("distances contain NaN or infinity: only finite ones can be compared")
    np.fill_diagonal(distances, 0.0)
    return distances


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
    """Return the names along the first axis of a mapping, pandas object or DataArray; None for other values."""
    if isinstance(values, Mapping):
        return _Index(list(values), False, False)
    # Recognised by attributes rather than by type: pandas and xarray are not imported for users who do not use them.
    if hasattr(values, "iloc") and hasattr(values, "index"):
        index = values.index
    elif hasattr(values, "isel") and hasattr(values, "indexes") and bool(getattr(values, "dims", None)):
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


def _positions(index: _Index, name_index: NameIndex, item_names: list[Hashable], parameter: str) -> np.ndarray | None:
    """Return the position of each item's value; None if values are in order or taken by position."""
    value_keys, item_keys = ([_key(name) for name in names] for names in (index.names, item_names))
    if set(value_keys) != set(item_keys):
        value_text, item_text = ([str(name) for name in names] for names in (index.names, item_names))
        is_unique = len({*value_text}) == len(value_text) and len({*item_text}) == len(item_text)
        if not is_unique or {*value_text} != {*item_text}:
            # Names of the values, or of the items, that only number rows.
            items_are_numbers = all(isinstance(x, int | np.integer) and not isinstance(x, bool) for x in item_names)
            if name_index.numberings is None and index.is_numbers != items_are_numbers:
                is_numbering = len(index.names) == len(item_names)
            else:
                numberings = [np.arange(len(item_names)), *(name_index.numberings or ())] if index.is_numbers else []
                is_numbering = index.is_default or any(np.array_equal(np.asarray(index.names), x) for x in numberings)
            if is_numbering:
                return None
            missing = [name for name in dict.fromkeys(item_names) if _key(name) not in set(value_keys)]
            unknown = [name for name in dict.fromkeys(index.names) if _key(name) not in set(item_keys)]
            parts = (("missing", missing), ("unknown", unknown))
            differences = "; ".join(f"{kind} {_shown(names)}" for kind, names in parts if names)
            raise AlignmentError(
                f"{parameter} has names other than the {len(item_names)} {name_index.items}: {differences}; "
                f"{parameter} has {_shown(index.names)} ({len(index.names)}), the {name_index.items} are "
                f"{_shown(item_names)} ({len(item_names)}). Give exactly these names, in any order (e.g. "
                f"{parameter}.loc[names]), or an array without names in their order (.to_numpy())",
                parameter,
                missing,
                unknown,
            )
        value_keys, item_keys = value_text, item_text
    if value_keys == item_keys:
        return None
    if index.is_default:
        raise AlignmentError(
            f"{parameter} is numbered 0, 1, 2, …, and so are the {name_index.items}, but in another order "
            f"({_shown(item_names)}): give {parameter}.to_numpy() if it is in their order, or name the index if these "
            "are their names",
            parameter,
        )
    position = {name: k for k, name in enumerate(value_keys)}
    if len(position) < len(value_keys):
        repeated = next(name for k, name in enumerate(value_keys) if position[name] != k)
        raise AlignmentError(
            f"{parameter} has {_shown([repeated])} more than once, in another order than the {name_index.items}: give "
            "each name once",
            parameter,
        )
    return np.array([position[name] for name in item_keys], dtype=np.intp)


def _key(name: Hashable) -> Any:
    """Return a key that distinguishes True from 1, which are equal in Python."""
    return (bool, bool(name)) if isinstance(name, bool | np.bool_) else name


def _shown(names: Sequence[Any]) -> str:
    """Return the first names for a message."""
    return listed([repr(x.item() if isinstance(x, np.generic) and x.dtype.kind not in "mM" else x) for x in names], 3)


def check_labels(y: Any, name_index: NameIndex) -> np.ndarray:
    """Return the class of each distribution, aligned by name; raise unless all are classes."""
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
        n = name_index.size
        raise ValueError(f"{name} has shape {labels.shape}, but a label is needed for each of {n}{several}")
    if isinstance(y, list | tuple) and labels.dtype.kind in "US":  # numpy converts numbers to text in a mixed list
        return np.array(y, dtype=object) if not all(isinstance(label, str | bytes) for label in y) else labels
    return labels


def check_classes(labels: np.ndarray, name: str = "y") -> None:
    """Raise unless labels are classes: text, whole numbers or truth values, all of one type."""
    if labels.dtype == object:
        first: dict[str, Any] = {}
        for label in labels:
            is_truth = isinstance(label, bool | np.bool_)
            first.setdefault("text" if isinstance(label, str) else "truth values" if is_truth else "numbers", label)
        kinds = [kind for kind in ("text", "truth values", "numbers") if kind in first]
        if len(kinds) > 1:
            why = "True and 1 would be one class; " if kinds[0] == "truth values" else ""
            examples = " and ".join(repr(first[kind]) for kind in kinds[:2])
            raise ValueError(f"{name} mixes {' and '.join(kinds[:2])} ({examples}): {why}make all of them text")
        if kinds == ["text"]:
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


def check_features(features: Sequence[str] | None, n_features: int) -> list[str] | None:
    """Return the names of the features as text; raise unless they are unique and one per column."""
    if features is None:
        return None
    features = [str(feature) for feature in features]
    if len(features) != n_features:
        raise ValueError(f"{len(features)} feature names for {n_features} features: one is needed per column")
    repeated = [name for name, count in Counter(features).items() if count > 1]
    if repeated:
        raise ValueError(f"feature names are repeated ({len(repeated)}, e.g. {repeated[0]!r}): make them unique")
    return features


def group_list(groups: Any, name_index: NameIndex, name: str = "groups") -> list[Hashable] | None:
    """Return the group (or stratum) of each distribution, aligned by name."""
    if groups is None:
        return None
    refuse_mask(groups, name)
    groups = align_by_name(groups, name_index, name)
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"{name} has shape {groups.shape}: expected one entry per distribution, e.g. a single column")
    return list(groups)


def number_groups(groups: Any, size: int, name: str = "groups") -> np.ndarray | None:
    """Return groups (or strata) as numbers in order of first appearance."""
    values = group_list(groups, NameIndex(None, n=size), name)
    if values is None:
        return None
    if len(values) != size:
        raise ValueError(f"{name} has {len(values)} entries for {size} distributions: one is needed for each")
    for value in values:
        if is_missing(value):
            raise ValueError(f"{name} contain a missing value ({value!r}): every distribution needs one of its own")
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return np.array([codes[value] for value in values], dtype=np.intp)


def unit_codes(groups: Any, size: int) -> np.ndarray:
    """Return the number of the independent unit of each distribution: its group, or itself without groups."""
    numbers = number_groups(groups, size)
    return np.arange(size) if numbers is None else numbers


def check_groups_per_class(labels: np.ndarray, groups: Any, least: int, why: str) -> None:
    """Raise unless at least two classes exist, each with at least `least` distributions (or groups, if given)."""
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()}): at least two are needed")
    for label in classes.tolist():
        count, kind = int(np.sum(labels == label)), "distributions"
        if groups is not None:
            members = dict.fromkeys(group for group, other in zip(groups, labels, strict=True) if other == label)
            count, kind = len(members), f"groups ({', '.join(map(repr, list(members)[:3]))})"
        if count < least:
            raise ValueError(f"class {label!r} has {count} {kind}, but {least} are needed: {why}")


def resolve_seed(random_state: Any) -> int:
    """Return an integer seed: `random_state` itself, or a number drawn from it (from the system if None)."""
    from sklearn.utils import check_random_state  # imported here: a transport solve does not need scikit-learn

    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)  # the same range, and the same error, as everywhere in scikit-learn
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def keyed_generator(*key: Any) -> np.random.Generator:
    """Return a random generator that depends on the key only."""
    return np.random.default_rng(int.from_bytes(_digest(key), "little"))


def keyed_uniform(keys: Sequence[Any], *key: Any) -> np.ndarray:
    """Return a uniform number in [0, 1) for each entry of `keys`, a function of that entry and of `key`."""
    digests = [int.from_bytes(_digest((*key, entry)), "little") for entry in keys]
    return np.array(digests, dtype=np.uint64).astype(np.float64) / 2.0**64


def _digest(key: Sequence[Any]) -> bytes:
    text = "\x1f".join(str(part) for part in key)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def refuse_points_of_learner(X: Any, y: Any, remedy: str) -> None:
    """Raise if an array X has more rows than labels: after a learner in a pipeline, X are points, not Distributions."""
    shape: Any = () if hasattr(X, "bounds") else getattr(X, "shape", ())
    if len(shape) == 2 and hasattr(y, "__len__") and len(y) < shape[0]:
        raise ValueError(
            f"y has {len(y)} labels, but X has {shape[0]} rows, each of them a distribution of one point: give "
            f"Distributions. In a pipeline, a learner before this step returns points, not Distributions: {remedy}"
        )
