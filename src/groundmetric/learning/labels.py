"""Labels: what users give (classes, numbers, survival times, distances), read and checked, and what learning asks for.

Every kind of label is a distance between labels (`Target`). A triplet (i, j, k) holds if the label of k is farther from
that of the anchor j than the label of i is, by more than a gap; `triplets` draws them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
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
from .survival import SurvivalTimes, check_comparable, expected, expected_percentiles, read_survival, survival_ranges


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
    """Return the kind of a label from its name; objects are returned unchanged."""
    if isinstance(target, Kind):
        return target
    if isinstance(target, str) and target in _BY_NAME:
        return _BY_NAME[target]()
    raise ValueError(
        f"target is {target!r}: expected one of {tuple(_BY_NAME)}, an object such as Ordered(gap=…), or a list for "
        "several labels"
    )


def resolve_targets(target: Any) -> list[Kind]:
    """Return the kinds of all labels."""
    if not isinstance(target, list | tuple):
        return [resolve_target(target)]
    if not target:
        raise ValueError(f"target is {target!r}: expected a kind for each label")
    return [resolve_target(one) for one in target]


@dataclass(frozen=True)
class Pool:
    """Distributions to draw from: the sorted members without the one at position `hole` (-1: all members).

    An anchor is not its own neighbour. Copying its class without it for every anchor would take quadratic time.

    >>> pool = Pool(np.array([2, 5, 7]), hole=1)
    >>> len(pool), pool.all().tolist(), pool.at(np.array([1])).tolist()
    (2, [2, 7], [7])
    """

    members: np.ndarray
    hole: int = -1

    @classmethod
    def without(cls, members: np.ndarray, anchor: int) -> Pool:
        place = int(np.searchsorted(members, anchor))
        return cls(members, place if place < members.size and members[place] == anchor else -1)

    def __len__(self) -> int:
        return self.members.size - (self.hole >= 0)

    def all(self) -> np.ndarray:
        return self.members if self.hole < 0 else np.delete(self.members, self.hole)

    def at(self, places: np.ndarray) -> np.ndarray:
        return self.members[places if self.hole < 0 else places + (places >= self.hole)]

    def among(self, some: np.ndarray) -> np.ndarray:
        """Return the given distributions that are in the pool."""
        if not self.members.size:
            return some[:0]
        places = np.minimum(np.searchsorted(self.members, some), self.members.size - 1)
        return some[(self.members[places] == some) & (places != self.hole)]


# Neighbours are drawn from every level of a label, which includes rare values. Labels with more distinct values are cut
# into this number of levels, at quantiles.
MOST_LEVELS = 5
# Default gap, in standard deviations of the label.
GAP = 0.25
# Differences of labels that may be due to rounding, relative to the largest.
_ROUNDING = 1e-9

Pools = Callable[[int], list[Pool]]


class Target:
    """A label of n distributions as distances between labels, from which triplets are formed.

    Attributes
    ----------
    gap : float
        Difference that two label distances must exceed to form a triplet.
    labelled : array of bool of shape (n,)
        Distributions that have the label.
    levels : array of int of shape (n,)
        Level of each distribution: equal or similar labels have the same level; -1 without a label.
    few_levels : bool
        Whether all labels of a level are equal.
    counts_all : bool
        True: a drawn triplet counts for all those of its levels, times the difference of its label distances, so that
        the loss estimates that of all triplets. False: each counts as one, so that neighbours from small classes count
        as much as those from large ones.
    balanced : bool
        Whether each level of anchors makes up the same share of the loss, however many distributions it has.
    """

    gap: float
    labelled: Any
    levels: Any
    few_levels: Any = False
    counts_all = True
    balanced: bool = False

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        """Return the label distances of other distributions from an anchor."""
        raise NotImplementedError

    def cases(self, anchor: int, near: np.ndarray, far: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return label distances from an anchor to near and far candidates, for each possible label of the anchor.

        A triplet holds if it holds in every case. A known label has one case.
        """
        return [(self.apart(anchor, near), self.apart(anchor, far))]

    def pools(self, free: np.ndarray) -> Pools:
        """Return a function from an anchor to its pools of `free` distributions (a mask), the nearest level first."""
        return _pools_by_level(self.levels, free)

    @property
    def n_levels(self) -> int:
        """Number of pools of an anchor."""
        return np.unique(self.levels[self.levels >= 0]).size

    def response(self) -> np.ndarray:
        """Return regressors of the means of distributions, shape (n, q): indicators of levels, or values."""
        return _indicators(self.levels)

    def at(self, places: np.ndarray) -> Target:
        """Return the target of the distributions at these positions."""
        raise NotImplementedError


@dataclass(frozen=True)
class ClassTarget(Target):
    """Distributions of one class should be nearer to each other than to those of any other class."""

    levels: np.ndarray  # classes as numbers; -1 where there is no label
    balanced: bool = False
    gap: float = 0.0
    few_levels = True
    counts_all = False

    @property
    def labelled(self) -> np.ndarray:
        return self.levels >= 0

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        return (self.levels[others] != self.levels[anchor]).astype(np.float64)

    def at(self, places: np.ndarray) -> ClassTarget:
        return ClassTarget(self.levels[places], self.balanced)


@dataclass(frozen=True)
class OrderedTarget(Target):
    """The farther apart two values are, the farther apart should their distributions be."""

    values: np.ndarray  # NaN where there is no label
    gap: float

    @classmethod
    def of(cls, values: np.ndarray, gap: float | None = None) -> OrderedTarget:
        """Without a gap, a quarter of the standard deviation of the values."""
        return cls(values, GAP * _deviation(values) if gap is None else gap)

    @property
    def labelled(self) -> np.ndarray:
        return ~np.isnan(self.values)

    @cached_property
    def levels(self) -> np.ndarray:
        return cut(self.values)

    @property
    def few_levels(self) -> bool:
        return np.unique(self.values[self.labelled]).size <= MOST_LEVELS

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        return np.abs(self.values[others] - self.values[anchor])

    def response(self) -> np.ndarray:
        return _indicators(self.levels) if self.few_levels else (self.values / _deviation(self.values))[:, None]

    def at(self, places: np.ndarray) -> OrderedTarget:
        return OrderedTarget(self.values[places], self.gap)


@dataclass(frozen=True)
class DistanceTarget(Target):
    """The larger the target distance of two distributions (the paper's W*), the farther apart should they be."""

    matrix: np.ndarray  # symmetric; NaN where a distance is not known
    gap: float

    @classmethod
    def of(cls, matrix: np.ndarray, gap: float | None = None) -> DistanceTarget:
        """Without a gap, a quarter of the standard deviation of the distances."""
        others = matrix[~np.eye(len(matrix), dtype=bool)]
        return cls(matrix, GAP * _deviation(others) if gap is None else gap)

    @cached_property
    def labelled(self) -> np.ndarray:
        """Distributions with at least one known distance to another."""
        known = ~np.isnan(self.matrix)
        np.fill_diagonal(known, False)
        return known.any(axis=1)

    @property
    def levels(self) -> np.ndarray:
        return np.where(self.labelled, 0, -1)

    @property
    def n_levels(self) -> int:
        return MOST_LEVELS

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        return self.matrix[anchor, others]

    def pools(self, free: np.ndarray) -> Pools:
        def by_distance(anchor: int) -> list[Pool]:
            others = free.copy()
            others[anchor] = False
            levels = cut(np.where(others, self.matrix[anchor], np.nan))
            return [Pool(np.flatnonzero(levels == level)) for level in range(max(levels.max(), 0) + 1)]

        return by_distance

    def response(self) -> np.ndarray:
        """Return coordinates with about the target distances (classical multidimensional scaling)."""
        squares = self.matrix**2
        np.fill_diagonal(squares, 0.0)
        squares = np.where(np.isnan(squares), np.nanmean(squares), squares)
        centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
        strength, axes = np.linalg.eigh(-0.5 * centred)
        widest = np.argsort(-strength)[:MOST_LEVELS]
        widest = widest[strength[widest] > strength.max() * 1e-8]
        return axes[:, widest] * np.sqrt(strength[widest])

    def at(self, places: np.ndarray) -> DistanceTarget:
        return DistanceTarget(self.matrix[np.ix_(places, places)], self.gap)


@dataclass(frozen=True)
class SurvivalTarget(Target):
    """Distributions should be the farther apart, the farther apart their survival times are for every censored time."""

    low: np.ndarray  # range of the percentile of each patient; low equals high after an observed event
    high: np.ndarray
    gap: float

    @classmethod
    def of(cls, times: SurvivalTimes, gap: float | None = None) -> SurvivalTarget:
        """Without a gap, a quarter of the standard deviation of the percentiles."""
        own = GAP * float(np.std(expected_percentiles(times))) if gap is None else gap
        return cls(*survival_ranges(times), own)

    @property
    def labelled(self) -> np.ndarray:
        """All: a patient without a label cannot be part of the Kaplan–Meier estimate."""
        return np.ones(self.low.size, dtype=bool)

    @cached_property
    def levels(self) -> np.ndarray:
        """Levels of known percentiles, and one more level for all patients who were censored early."""
        known = self.low == self.high
        levels = cut(np.where(known, self.low, np.nan))
        return np.where(known, levels, levels.max() + 1)

    def cases(self, anchor: int, near: np.ndarray, far: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return label distances at both ends of the anchor's range: largest of near, smallest of far candidates.

        Between the ends, the difference of the two is a concave function, whose minimum is at an end. If the range of a
        far candidate overlaps with that of the anchor, its distance may be 0.
        """
        ends = (self.low[anchor], self.high[anchor])
        overlap = (self.low[far] <= ends[1]) & (self.high[far] >= ends[0])
        found = []
        for end in ends[: 1 if ends[0] == ends[1] else 2]:
            nearer = np.maximum(self.high[near] - end, end - self.low[near])
            farther = np.maximum(self.low[far] - end, end - self.high[far])
            found.append((nearer, np.where(overlap, 0.0, farther)))
        return found

    def response(self) -> np.ndarray:
        """Expected percentiles, in standard deviations."""
        percentiles = expected(self.low, self.high)
        return (percentiles / np.std(percentiles))[:, None]

    def at(self, places: np.ndarray) -> SurvivalTarget:
        return SurvivalTarget(self.low[places], self.high[places], self.gap)


def holds(nearer: np.ndarray, farther: np.ndarray, gap: float) -> np.ndarray:
    """Return which distances `farther` exceed which distances `nearer` by more than the gap, (n_nearer, n_farther).

    >>> holds(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.5).tolist()
    [[True, True], [False, True]]
    """
    largest = np.nanmax(np.concatenate([nearer, farther, [0.0]]))
    return farther[None, :] - nearer[:, None] > gap + _ROUNDING * largest


def _indicators(levels: np.ndarray) -> np.ndarray:
    """Return an indicator column for each level."""
    return (levels[:, None] == np.unique(levels[levels >= 0])).astype(np.float64)


def _pools_by_level(levels: np.ndarray, free: np.ndarray) -> Pools:
    members = {level: np.flatnonzero((levels == level) & free) for level in np.unique(levels[levels >= 0])}

    def own_level_first(anchor: int) -> list[Pool]:
        own = levels[anchor]
        return [Pool.without(members[own], anchor), *(Pool(members[level]) for level in members if level != own)]

    return own_level_first


def cut(values: np.ndarray) -> np.ndarray:
    """Return the levels of values: distinct values, or fifths if there are more than `MOST_LEVELS`; -1 for NaN.

    >>> cut(np.array([7.0, 3.0, np.nan, 7.0])).tolist()
    [1, 0, -1, 1]
    """
    levels, known = np.full(values.size, -1), ~np.isnan(values)
    distinct, places = np.unique(values[known], return_inverse=True)
    if distinct.size > MOST_LEVELS:
        edges = np.unique(np.quantile(values[known], np.arange(1, MOST_LEVELS) / MOST_LEVELS))
        places = np.unique(np.searchsorted(edges, values[known], side="right"), return_inverse=True)[1]
    levels[known] = places
    return levels


def binary_unit(values: np.ndarray) -> float:
    """Return the power of two in whose units the largest absolute value is in [1, 2); 1 if all are 0 or missing.

    Squares of values in this unit do not overflow, and scaling by a power of two is exact.

    >>> binary_unit(np.array([3.0, -20.0])), binary_unit(np.array([1e300])) > 5e299
    (16.0, True)
    """
    largest = float(np.max(np.abs(values), where=~np.isnan(values), initial=0.0))
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if largest > 0 else 1.0


def _deviation(values: np.ndarray) -> float:
    """Return the standard deviation of the values that are not missing."""
    unit = binary_unit(values)
    return unit * float(np.nanstd(values / unit))


@dataclass(frozen=True)
class Supervision:
    """Labels of n distributions, their shares of the loss, and strata.

    Attributes
    ----------
    targets : tuple of Target
        One for each label.
    shares : array of shape (n_labels,)
        Share of the loss of each label, up to a common factor.
    strata : array of shape (n,) or None
        Batches as numbers, where there are any.
    """

    targets: tuple[Target, ...]
    shares: np.ndarray
    strata: np.ndarray | None = None

    @classmethod
    def of(cls, target: Target | np.ndarray, strata: np.ndarray | None = None) -> Supervision:
        """Return the supervision of one label; an array is taken for classes."""
        return cls((ClassTarget(target) if isinstance(target, np.ndarray) else target,), np.ones(1), strata)

    def at(self, places: np.ndarray) -> Supervision:
        """Return the supervision of the distributions at these positions."""
        strata = None if self.strata is None else self.strata[places]
        return Supervision(tuple(target.at(places) for target in self.targets), self.shares, strata)


@dataclass(frozen=True)
class Label:
    """One label of all distributions: target, distinct values (none for distances) and share of the loss."""

    target: Target
    values: np.ndarray
    share: float


def read_labels(
    y: Any, target: Any, name_index: NameIndex, D: Distributions, *, by_row: bool, class_weight: Any = None
) -> list[Label]:
    """Read one or several labels of D.

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
    """Return the stratum of each distribution as a number."""
    if strata is None:
        return None
    given = label_array(strata, name_index, "strata")
    if missing_values(given).any():
        raise ValueError("strata contain a missing value: every distribution needs a stratum")
    place: dict[Hashable, int] = {}
    codes = np.array([place.setdefault(value, len(place)) for value in given.tolist()])
    return labels_of_samples(D, codes, given) if by_row else codes


def supervision(labels: list[Label], strata: np.ndarray | None) -> tuple[np.ndarray, Supervision]:
    """Return the positions of distributions with at least one label, and their supervision."""
    shares = np.array([label.share for label in labels], dtype=np.float64)
    known = Supervision(tuple(label.target for label in labels), shares, strata)
    seen = np.flatnonzero(np.any([target.labelled for target in known.targets], axis=0))
    known = known.at(seen)
    return seen, replace(known, strata=None) if known.strata is not None and np.ptp(known.strata) == 0 else known


def check_class_sizes(D: Distributions, known: Supervision, values: Iterable[np.ndarray]) -> None:
    """Check the classes of every label; `values` has the distinct values of each label."""
    for target, classes in zip(known.targets, values, strict=True):
        if isinstance(target, ClassTarget):
            _check_sizes(D, target.levels, classes.tolist())


def _check_sizes(D: Distributions, codes: np.ndarray, classes: list[Any]) -> None:
    """Raise if there are fewer than two classes, or if no class has two members; warn of classes with one."""
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
    """Mark a random share of every class, leaving at least two distributions of it."""
    held_out = np.zeros(codes.size, bool)
    if fraction > 0.0:
        for c in np.unique(codes):
            members = random.permutation(np.flatnonzero(codes == c))
            held_out[members[: min(int(np.ceil(fraction * members.size)), max(members.size - 2, 0))]] = True
        if not held_out.any():
            raise ValueError("validation_fraction is positive, but no class has three distributions to hold one out")
    return held_out


def _weighted(labels: list[Label], class_weight: str | None) -> list[Label]:
    """Return the labels, with balanced classes if `class_weight` asks for it."""
    if class_weight is None:
        return labels
    if not any(isinstance(label.target, ClassTarget) for label in labels):
        raise ValueError(f"class_weight is {class_weight!r}, but no label is of classes: leave it out")
    return [
        replace(label, target=replace(label.target, balanced=True)) if isinstance(label.target, ClassTarget) else label
        for label in labels
    ]


def _columns(y: Any, n_labels: int) -> dict[str, Any]:
    """Return several labels by name, from the columns of a table or the entries of a list."""
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
    """Return a column of a table of mixed types, converted to numbers if all its values are numbers."""
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
    """Return the sorted classes, and the index of each label among them (-1: missing)."""
    missing = missing_values(labels)
    if missing.all():
        raise ValueError(f"{name} holds no label at all: at least two classes are needed")
    check_classes(labels[~missing], name)
    classes, places = np.unique(labels[~missing], return_inverse=True)
    codes = np.full(labels.size, -1)
    codes[~missing] = places
    return classes, codes


def _ordered_values(y: Any, name_index: NameIndex, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return labels as numbers, NaN if missing; for ordered categories of pandas, their codes and the categories."""
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
    """Raise unless there are two different values that differ by more than the gap."""
    if present.size < 2:
        found = f"only the value {present[0]:g}" if present.size else "no value at all"
        raise ValueError(f"{name} holds {found} for {size} distributions: at least two values are needed")
    if gap is not None and gap >= np.ptp(present):
        raise ValueError(f"gap is {gap:g}, but the values of {name} differ by at most {np.ptp(present):g}: lower it")
