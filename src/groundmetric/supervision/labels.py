"""From what users call labels to what learning asks for: classes, numbers, survival times, distances, several."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._internal.validation import (
    NameIndex,
    align_by_name,
    align_square_by_name,
    check_class_weight,
    check_classes,
    check_number,
    label_array,
    labels_of_samples,
    missing_values,
    real_array,
)
from ..distributions import Distributions
from . import ClassTarget, DistanceTarget, OrderedTarget, Supervision, Target
from .survival import SurvivalTarget, SurvivalTimes, check_comparable, read_survival


@dataclass(frozen=True)
class Classes:
    """Labels that are classes: distributions of one class belong together.

    Parameters
    ----------
    weight : float, default=1.0
        Share of the loss that this label makes up among several labels, relative to the weights of the others.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.GroundMetricLearner(target=[gm.learning.Classes(weight=2.0), "ordered"]).target[0]
    Classes(weight=2.0)
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_number("weight", self.weight, low=0.0, above=True)


@dataclass(frozen=True)
class Ordered:
    """Labels that are numbers, or ordered categories: the farther apart two values, the farther their distributions.

    Parameters
    ----------
    gap : float or None, default=None
        Difference that two distances between labels must exceed to form a triplet. None: a quarter of the label's
        standard deviation.
    weight : float, default=1.0
        Share of the loss that this label makes up among several labels, relative to the weights of the others.

    Examples
    --------
    >>> Ordered(gap=0.5)
    Ordered(gap=0.5, weight=1.0)
    """

    gap: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.gap is not None:
            check_number("gap", self.gap, low=0.0)
        check_number("weight", self.weight, low=0.0, above=True)


@dataclass(frozen=True)
class Distances(Ordered):
    """A matrix of target distances between the distributions (the paper's W*), NaN where one is not known.

    Parameters
    ----------
    gap : float or None, default=None
        Difference that two target distances must exceed to form a triplet. None: a quarter of their standard deviation.
    weight : float, default=1.0
        Share of the loss that this label makes up among several labels, relative to the weights of the others.

    Examples
    --------
    >>> Distances(gap=0.5)
    Distances(gap=0.5, weight=1.0)
    """


@dataclass(frozen=True)
class Survival:
    """Right-censored survival times, learned from only where their order is certain.

    Times are compared as percentiles of survival (the share of patients who die earlier, by Kaplan–Meier), so that
    their unit does not matter. A triplet (i, j, k) is learned from where k is farther from j than i is, whenever those
    who were censored die.

    Parameters
    ----------
    gap : float or None, default=None
        Difference that two distances between percentiles (0 to 1) must exceed to form a triplet. None: a quarter of
        the standard deviation of the percentiles.
    weight : float, default=1.0
        Share of the loss that this label makes up among several labels, relative to the weights of the others.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> y = np.array([(True, 3.0), (False, 8.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
    >>> D = gm.Distributions([[0.0], [5.0], [2.0]], ["ann", "bob", "cid"])
    >>> gm.GroundMetricLearner(target=gm.learning.Survival(gap=0.1), max_epochs=2).fit(D, y).classes_.tolist()
    [3.0, 5.0]
    """

    gap: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.gap is not None:
            check_number("gap", self.gap, low=0.0)
        check_number("weight", self.weight, low=0.0, above=True)


_BY_NAME: dict[str, type] = {
    "classes": Classes, "ordered": Ordered, "survival": Survival, "distances": Distances,
}  # fmt: skip
Kind = Classes | Ordered | Survival  # what a label is; Distances are Ordered


def resolve_target(target: Any) -> Kind:
    """The kind of a label from its name; objects pass through."""
    if isinstance(target, Kind):
        return target
    if isinstance(target, str) and target in _BY_NAME:
        return _BY_NAME[target]()
    raise ValueError(
        f"target is {target!r}: expected one of {tuple(_BY_NAME)}, an object such as Ordered(gap=…), or a list for "
        "several labels"
    )


def resolve_targets(target: Any) -> list[Kind]:
    """The kinds of all labels."""
    if not isinstance(target, list | tuple):
        return [resolve_target(target)]
    if not target:
        raise ValueError(f"target is {target!r}: expected a kind for each label")
    return [resolve_target(one) for one in target]


@dataclass(frozen=True)
class Label:
    """One label of all distributions: a target, the values that there are (none of distances), its share."""

    target: Target
    values: np.ndarray
    share: float


def read_labels(
    y: Any, target: Any, name_index: NameIndex, D: Distributions, *, by_row: bool, class_weight: Any = None
) -> list[Label]:
    """One or several labels of D.

    Parameters
    ----------
    y : Any
        Labels as the user passed them.
    target : str, Classes, Ordered, Survival, Distances or a list of these
        Kind of the label; a list for several labels.
    name_index : NameIndex
        Names of the items that have a label each, in order.
    D : Distributions
        The distributions.
    by_row : bool
        Whether the items are points rather than distributions.
    class_weight : {None, "balanced"}, default=None
        "balanced": each class makes up the same share of the loss.

    Returns
    -------
    list of Label
        One for each target.
    """
    check_class_weight(class_weight)
    kinds = resolve_targets(target)
    columns = _columns(y, len(kinds)) if isinstance(target, list | tuple) else {"y": y}
    labels = [
        _read(column, kind, name_index, D, by_row, name)
        for (name, column), kind in zip(columns.items(), kinds, strict=True)
    ]
    return _weighted(labels, class_weight)


def read_strata(strata: Any, name_index: NameIndex, D: Distributions, *, by_row: bool) -> np.ndarray | None:
    """The stratum of each distribution as a number."""
    if strata is None:
        return None
    given = label_array(strata, name_index, "strata")
    if missing_values(given).any():
        raise ValueError("strata contain a missing value: every distribution needs a stratum")
    place: dict[Hashable, int] = {}
    codes = np.array([place.setdefault(value, len(place)) for value in given.tolist()])
    return labels_of_samples(D, codes, given) if by_row else codes


def supervision(labels: list[Label], strata: np.ndarray | None) -> tuple[np.ndarray, Supervision]:
    """The places of the distributions that have any label, and what is known about them."""
    shares = np.array([label.share for label in labels], dtype=np.float64)
    known = Supervision(tuple(label.target for label in labels), shares, strata)
    seen = np.flatnonzero(np.any([target.labelled for target in known.targets], axis=0))
    known = known.at(seen)
    return seen, replace(known, strata=None) if known.strata is not None and np.ptp(known.strata) == 0 else known


def check_class_sizes(D: Distributions, known: Supervision, values: Iterable[np.ndarray]) -> None:
    """Look at every label that is a class; `values` has the values of each label."""
    for target, classes in zip(known.targets, values, strict=True):
        if isinstance(target, ClassTarget):
            _check_sizes(D, target.levels, classes.tolist())


def _check_sizes(D: Distributions, codes: np.ndarray, classes: list[Any]) -> None:
    """There must be something to tell apart, and somebody to be near to."""
    counts = np.bincount(codes[codes >= 0])
    if counts.size < 2:
        raise ValueError(f"all distributions have one class ({classes[0]!r}): at least two are needed")
    if counts.max() < 2:
        raise ValueError(
            "every class has a single distribution: no triplet can be formed; at least one class needs two"
        )
    for place in np.flatnonzero(counts == 1):
        name = D.names[int(np.flatnonzero(codes == place)[0])]
        warnings.warn(
            f"class {classes[place]!r} has a single distribution ({name!r}): others are kept away from it, "
            "but it is not an anchor itself",
            UserWarning,
            stacklevel=4,
        )


def hold_out(codes: np.ndarray, fraction: float, random: np.random.RandomState) -> np.ndarray:
    """Marks a share of every class, at most all but two of its distributions."""
    held_out = np.zeros(codes.size, bool)
    if fraction > 0.0:
        for c in np.unique(codes):
            members = random.permutation(np.flatnonzero(codes == c))
            held_out[members[: min(int(np.ceil(fraction * members.size)), max(members.size - 2, 0))]] = True
        if not held_out.any():
            raise ValueError("validation_fraction leaves nothing to hold out: no class has three distributions")
    return held_out


def _weighted(labels: list[Label], class_weight: str | None) -> list[Label]:
    """The labels with their classes balanced, where that is asked for."""
    if class_weight is None:
        return labels
    if not any(isinstance(label.target, ClassTarget) for label in labels):
        raise ValueError(f"class_weight is {class_weight!r}, but no label is of classes: leave it out")
    return [
        replace(label, target=replace(label.target, balanced=True)) if isinstance(label.target, ClassTarget) else label
        for label in labels
    ]


def _columns(y: Any, n_labels: int) -> dict[str, Any]:
    """Several labels by name: the columns of a table, or the entries of a list."""
    if hasattr(y, "columns") and hasattr(y, "iloc"):
        columns = {f"y[{name!r}]": y.iloc[:, place] for place, name in enumerate(y.columns)}
    elif isinstance(y, list | tuple):
        columns = {f"y[{place}]": label for place, label in enumerate(y)}
    elif hasattr(y, "isel") and np.ndim(y) == 2:  # xarray
        columns = {f"y[:, {place}]": y[:, place] for place in range(y.shape[1])}
    elif np.ndim(y) == 2:
        columns = {f"y[:, {place}]": _as_is(label) for place, label in enumerate(np.asanyarray(y).T)}
    else:
        raise ValueError(f"y has {np.ndim(y)} dimensions: for several labels, give a table with a column for each")
    if len(columns) != n_labels:
        raise ValueError(f"y has {len(columns)} labels, but there are {n_labels} targets: give one target per label")
    return columns


def _as_is(column: np.ndarray) -> Any:
    """A column of a table of mixed types, as numbers where it holds only numbers."""
    if isinstance(column, np.ma.MaskedArray):
        return column
    return np.array(column.tolist()) if column.dtype == object and not missing_values(column).any() else column


def _read(y: Any, kind: Kind, name_index: NameIndex, D: Distributions, by_row: bool, name: str) -> Label:
    if isinstance(kind, Distances):
        return Label(_distances(y, kind.gap, D.name_index if by_row else name_index, name), np.empty(0), kind.weight)
    if isinstance(kind, Ordered):
        numbers, levels = _ordered_values(y, name_index, name)
        numbers = labels_of_samples(D, numbers) if by_row else numbers
        present = np.unique(numbers[~np.isnan(numbers)])
        _check_spread(present, kind.gap, len(D), name)
        values = present if levels is None else levels[present.astype(int)]
        return Label(OrderedTarget.of(numbers, kind.gap), values, kind.weight)
    if isinstance(kind, Survival):
        times = read_survival(y, name_index, name)
        if by_row:
            times = SurvivalTimes(labels_of_samples(D, times.time), labels_of_samples(D, times.event))
        check_comparable(times, name)
        return Label(SurvivalTarget.of(times, kind.gap), np.unique(times.time[times.event]), kind.weight)
    given = label_array(y, name_index, name)
    classes, codes = _class_codes(given, name)
    codes = labels_of_samples(D, codes, given) if by_row else codes
    return Label(ClassTarget(codes), classes, kind.weight)


def _class_codes(labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order, and the place of each label among them (-1: missing)."""
    missing = missing_values(labels)
    if missing.all():
        raise ValueError(f"{name} holds no label at all: at least two classes are needed")
    check_classes(labels[~missing], name)
    classes, places = np.unique(labels[~missing], return_inverse=True)
    codes = np.full(labels.size, -1)
    codes[~missing] = places
    return classes, codes


def _ordered_values(y: Any, name_index: NameIndex, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels as numbers, NaN where missing; of ordered categories (pandas), their places, and the categories."""
    y = align_by_name(y, name_index, name)
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    if categories is None:
        return _numbers(label_array(y, name_index, name), name), None
    if not y.dtype.ordered:
        raise ValueError(
            f"{name} has categories without an order ({list(categories)[:3]}, …): order them, e.g. "
            "pandas.Categorical(y, categories=[…], ordered=True), or give numbers"
        )
    places = np.asarray(y.cat.codes if hasattr(y, "cat") else y.codes, dtype=np.float64)
    label_array(places, name_index, name)
    return np.where(places < 0, np.nan, places), np.asarray(categories)


def _numbers(labels: np.ndarray, name: str) -> np.ndarray:
    if labels.dtype.kind in "US" or any(isinstance(label, str) for label in labels[:1]):
        raise ValueError(
            f"{name} holds text (e.g. {str(labels[0])!r}), whose order is not known: give numbers, or ordered "
            "categories, e.g. pandas.Categorical(y, categories=[…], ordered=True)"
        )
    values = np.array(real_array(labels, name), dtype=np.float64)
    if np.isinf(values).any():
        raise ValueError(f"{name} holds an infinite value: give a finite one, or NaN where there is no label")
    return values


def _distances(y: Any, gap: float | None, name_index: NameIndex, name: str) -> DistanceTarget:
    matrix, size = (
        np.array(real_array(align_square_by_name(y, name_index, name), name), dtype=np.float64),
        name_index.size,
    )
    if matrix.shape != (size, size):
        raise ValueError(f"{name} has shape {matrix.shape}: target distances between {size} need {(size, size)}")
    if np.isinf(matrix).any() or np.any(matrix < 0):
        raise ValueError(
            f"{name} holds {matrix[np.isinf(matrix) | (matrix < 0)][0]:g}: expected distances of at least 0"
        )
    diagonal = np.diag(matrix)
    if np.any(diagonal > 0):
        raise ValueError(f"{name} has {diagonal.max():g} on its diagonal: a distribution is at distance 0 from itself")
    rounding = 1e-8 * np.nanmax(matrix, initial=0.0)
    uneven = ~(np.abs(matrix - matrix.T) <= rounding) & ~(np.isnan(matrix) & np.isnan(matrix.T))
    if uneven.any():
        a, b = np.argwhere(uneven)[0]
        found = f"{matrix[a, b]:g} at ({a}, {b}) and {matrix[b, a]:g} at ({b}, {a})"
        raise ValueError(f"{name} has {found}: target distances must be symmetric")
    others = matrix[np.triu_indices(size, 1)]
    _check_spread(np.unique(others[~np.isnan(others)]), gap, size, name)
    np.fill_diagonal(matrix, 0.0)
    return DistanceTarget.of((matrix + matrix.T) / 2, gap)


def _check_spread(present: np.ndarray, gap: float | None, size: int, name: str) -> None:
    """There must be something to tell apart, by more than the gap."""
    if present.size < 2:
        found = f"only the value {present[0]:g}" if present.size else "no value at all"
        raise ValueError(f"{name} holds {found} for {size} distributions: at least two values are needed")
    if gap is not None and gap >= np.ptp(present):
        raise ValueError(f"gap is {gap:g}, but the values of {name} differ by at most {np.ptp(present):g}: lower it")
