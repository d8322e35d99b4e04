"""Labels that users give (classes, numbers, survival times, distances), validated and converted to `Target`s."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

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
    number_groups,
    real_array,
)
from ..distributions import Distributions
from .survival import SurvivalTimes, check_comparable, expected, expected_percentiles, read_survival, survival_ranges


@dataclass(frozen=True)
class Classes:
    """Labels that are classes: distributions of one class should be near each other.

    Parameters
    ----------
    weight : float, default=1.0
        Share of the loss among several labels, relative to their weights.

    Examples
    --------
    >>> Classes(weight=2.0)
    Classes(weight=2.0)
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_number("weight", self.weight, low=0.0, above=True)


@dataclass(frozen=True)
class _LabelWithGap:
    gap: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.gap is not None:
            check_number("gap", self.gap, low=0.0)
        check_number("weight", self.weight, low=0.0, above=True)


@dataclass(frozen=True)
class Ordered(_LabelWithGap):
    """Labels that are numbers or ordered categories: distances should increase with the difference of two values.

    Parameters
    ----------
    gap : float or None, default=None
        Difference that two distances between labels must exceed to form a triplet. None: a quarter of the label's
        standard deviation.
    weight : float, default=1.0
        Share of the loss among several labels, relative to their weights.

    Examples
    --------
    >>> Ordered(gap=0.5)
    Ordered(gap=0.5, weight=1.0)
    """


@dataclass(frozen=True)
class Distances(Ordered):
    """Matrix of target distances between the distributions (the paper's W*), NaN for unknown distances.

    Parameters
    ----------
    gap : float or None, default=None
        Difference that two target distances must exceed to form a triplet. None: a quarter of their standard deviation.
    weight : float, default=1.0
        Share of the loss among several labels, relative to their weights.

    Examples
    --------
    >>> Distances(gap=0.5)
    Distances(gap=0.5, weight=1.0)
    """


@dataclass(frozen=True)
class Survival(_LabelWithGap):
    """Right-censored survival times; only triplets of known order are used.

    Times are converted to percentiles of survival (`survival_percentiles`). A triplet (i, j, k) is used if k is farther
    from j than i is for every possible death time of the censored patients.

    Parameters
    ----------
    gap : float or None, default=None
        Difference that two distances between percentiles (0 to 1) must exceed to form a triplet. None: a quarter of
        the standard deviation of the percentiles.
    weight : float, default=1.0
        Share of the loss among several labels, relative to their weights.

    Examples
    --------
    >>> Survival(gap=0.1)
    Survival(gap=0.1, weight=1.0)
    """


_BY_NAME: dict[str, type] = {
    "classes": Classes, "ordered": Ordered, "survival": Survival, "distances": Distances,
}  # fmt: skip
Kind = Classes | Ordered | Survival  # kind of a label; Distances are Ordered


def resolve_target(target: Any) -> Kind:
    if isinstance(target, Kind):
        return target
    if isinstance(target, str) and target in _BY_NAME:
        return _BY_NAME[target]()
    raise ValueError(
        f"target is {target!r}: expected one of {tuple(_BY_NAME)}, an object such as Ordered(gap=…), or a list for "
        "several labels"
    )


@dataclass(frozen=True)
class Pool:
    """Distributions to draw from: the sorted members without the one at position `hole` (-1: all), the anchor.

    Copying the class of every anchor without it would take quadratic time.

    >>> pool = Pool(np.array([2, 5, 7]), hole=1)
    >>> len(pool), pool.all().tolist(), pool.at(np.array([1])).tolist()
    (2, [2, 7], [7])
    """

    members: np.ndarray
    hole: int = -1

    def __len__(self) -> int:
        return self.members.size - (self.hole >= 0)

    def all(self) -> np.ndarray:
        return self.members if self.hole < 0 else np.delete(self.members, self.hole)

    def at(self, positions: np.ndarray) -> np.ndarray:
        return self.members[positions if self.hole < 0 else positions + (positions >= self.hole)]

    def among(self, distributions: np.ndarray) -> np.ndarray:  # the given distributions that are in the pool
        if not self.members.size:
            return distributions[:0]
        positions = np.minimum(np.searchsorted(self.members, distributions), self.members.size - 1)
        return distributions[(self.members[positions] == distributions) & (positions != self.hole)]


# Neighbours are drawn from every level of a label, including rare values. Labels with more distinct values are divided
# into this number of levels, at quantiles.
MOST_LEVELS = 5
# Default gap, in standard deviations of the label.
GAP = 0.25


class Target:
    """A label of n distributions as distances between labels.

    A triplet (i, j, k) holds if the label of k is farther from that of the anchor j than the label of i is, by more
    than the gap.
    """

    gap: float  # difference that two label distances must exceed to form a triplet
    labelled: Any  # mask of the distributions that have the label
    levels: Any  # level of each distribution, -1 without a label: equal or similar labels have the same level
    few_levels: Any = False  # whether all labels of a level are equal
    # True: the weight of a drawn triplet is the number of triplets of its levels per drawn one, times the difference of
    # its label distances; the loss then estimates the loss over all triplets. False: all weights are 1.
    counts_all = True
    balanced: bool = False  # whether each level of anchors makes up the same share of the loss

    label_distances: Any  # method: label distances of an array of distributions from an anchor

    def cases(self, anchor: int, near_ids: np.ndarray, far_ids: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return label distances from an anchor to near and far candidates, for each possible label of the anchor.

        A triplet holds if it holds in every case. A certain label has one case.
        """
        return [(self.label_distances(anchor, near_ids), self.label_distances(anchor, far_ids))]

    def pools(self, free: np.ndarray) -> Iterator[tuple[int, list[Pool]]]:
        """Yield each labelled distribution with its pools of `free` distributions (a mask), its own level first."""
        levels = self.levels
        members = {level: np.flatnonzero((levels == level) & free) for level in np.unique(levels[levels >= 0])}
        for anchor in np.flatnonzero(self.labelled).tolist():
            own = members[levels[anchor]]
            position = int(np.searchsorted(own, anchor))
            hole = position if position < own.size and own[position] == anchor else -1
            yield anchor, [Pool(own, hole), *(Pool(members[level]) for level in members if level != levels[anchor])]

    @property
    def n_levels(self) -> int:
        return np.unique(self.levels[self.levels >= 0]).size

    def response(self) -> np.ndarray:
        """Return regressors of the means of distributions, shape (n, q): indicators of levels, or values."""
        return (self.levels[:, None] == np.unique(self.levels[self.levels >= 0])).astype(np.float64)

    def at(self, positions: np.ndarray) -> Target:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        arrays = {name: value[positions] for name, value in values.items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)  # type: ignore[type-var]


@dataclass(frozen=True)
class ClassTarget(Target):
    levels: np.ndarray  # class codes; -1 without a label
    balanced: bool = False
    gap: float = 0.0
    few_levels = True
    counts_all = False

    @property
    def labelled(self) -> np.ndarray:
        return self.levels >= 0

    def label_distances(self, anchor: int, distributions: np.ndarray) -> np.ndarray:
        return (self.levels[distributions] != self.levels[anchor]).astype(np.float64)


@dataclass(frozen=True)
class OrderedTarget(Target):
    values: np.ndarray  # NaN without a label
    gap: float

    @classmethod
    def of(cls, values: np.ndarray, gap: float | None = None) -> OrderedTarget:
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

    def label_distances(self, anchor: int, distributions: np.ndarray) -> np.ndarray:
        return np.abs(self.values[distributions] - self.values[anchor])

    def response(self) -> np.ndarray:
        return super().response() if self.few_levels else (self.values / _deviation(self.values))[:, None]


@dataclass(frozen=True)
class DistanceTarget(Target):
    matrix: np.ndarray  # symmetric; NaN for unknown distances
    gap: float

    @classmethod
    def of(cls, matrix: np.ndarray, gap: float | None = None) -> DistanceTarget:
        off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
        return cls(matrix, GAP * _deviation(off_diagonal) if gap is None else gap)

    @cached_property
    def labelled(self) -> np.ndarray:
        observed = ~np.isnan(self.matrix)
        np.fill_diagonal(observed, False)
        return observed.any(axis=1)

    @property
    def levels(self) -> np.ndarray:
        return np.where(self.labelled, 0, -1)

    @property
    def n_levels(self) -> int:
        return MOST_LEVELS

    def label_distances(self, anchor: int, distributions: np.ndarray) -> np.ndarray:
        return self.matrix[anchor, distributions]

    def pools(self, free: np.ndarray) -> Iterator[tuple[int, list[Pool]]]:
        for anchor in np.flatnonzero(self.labelled).tolist():
            candidates = free.copy()
            candidates[anchor] = False
            levels = cut(np.where(candidates, self.matrix[anchor], np.nan))
            yield anchor, [Pool(np.flatnonzero(levels == level)) for level in range(max(levels.max(), 0) + 1)]

    def response(self) -> np.ndarray:
        """Return coordinates that approximate the target distances (classical multidimensional scaling)."""
        squares = self.matrix**2
        np.fill_diagonal(squares, 0.0)
        squares = np.where(np.isnan(squares), np.nanmean(squares), squares)
        centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
        strength, axes = np.linalg.eigh(-0.5 * centred)
        widest = np.argsort(-strength)[:MOST_LEVELS]
        widest = widest[strength[widest] > strength.max() * 1e-8]
        return axes[:, widest] * np.sqrt(strength[widest])

    def at(self, positions: np.ndarray) -> DistanceTarget:
        return DistanceTarget(self.matrix[np.ix_(positions, positions)], self.gap)


@dataclass(frozen=True)
class SurvivalTarget(Target):
    low: np.ndarray  # range of the percentile of each patient; low equals high after an observed event
    high: np.ndarray
    gap: float

    @classmethod
    def of(cls, times: SurvivalTimes, gap: float | None = None) -> SurvivalTarget:
        gap = GAP * float(np.std(expected_percentiles(times))) if gap is None else gap
        return cls(*survival_ranges(times), gap)

    @property
    def labelled(self) -> np.ndarray:  # the Kaplan–Meier estimate needs every time
        return np.ones(self.low.size, dtype=bool)

    @cached_property
    def levels(self) -> np.ndarray:
        """Levels of certain percentiles, and one more level for all patients who were censored early."""
        certain = self.low == self.high
        levels = cut(np.where(certain, self.low, np.nan))
        return np.where(certain, levels, levels.max() + 1)

    def cases(self, anchor: int, near_ids: np.ndarray, far_ids: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return label distances at both ends of the anchor's range: largest of near, smallest of far candidates."""
        # Between the ends, the difference of the two is a concave function, whose minimum is at an end. If the range of
        # a far candidate overlaps with that of the anchor, its distance may be 0.
        ends = (self.low[anchor], self.high[anchor])
        overlap = (self.low[far_ids] <= ends[1]) & (self.high[far_ids] >= ends[0])
        cases = []
        for end in ends[: 1 if ends[0] == ends[1] else 2]:
            nearer = np.maximum(self.high[near_ids] - end, end - self.low[near_ids])
            farther = np.maximum(self.low[far_ids] - end, end - self.high[far_ids])
            cases.append((nearer, np.where(overlap, 0.0, farther)))
        return cases

    def response(self) -> np.ndarray:
        percentiles = expected(self.low, self.high)
        return (percentiles / np.std(percentiles))[:, None]


def cut(values: np.ndarray) -> np.ndarray:
    """Return the levels of values: distinct values, or fifths if there are more than `MOST_LEVELS`; -1 for NaN.

    >>> cut(np.array([7.0, 3.0, np.nan, 7.0])).tolist()
    [1, 0, -1, 1]
    """
    levels, present = np.full(values.size, -1), ~np.isnan(values)
    distinct, codes = np.unique(values[present], return_inverse=True)
    if distinct.size > MOST_LEVELS:
        edges = np.unique(np.quantile(values[present], np.arange(1, MOST_LEVELS) / MOST_LEVELS))
        codes = np.unique(np.searchsorted(edges, values[present], side="right"), return_inverse=True)[1]
    levels[present] = codes
    return levels


def binary_unit(values: np.ndarray) -> float:
    """Return the power of two in whose units the largest absolute value is in [1, 2); 1 if all are 0 or missing.

    Squares of values in this unit do not overflow, and scaling by a power of two is exact.

    >>> binary_unit(np.array([3.0, -20.0])), binary_unit(np.array([1e300])) > 5e299
    (16.0, True)
    """
    largest = float(np.max(np.abs(values), where=~np.isnan(values), initial=0.0))
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if largest > 0 else 1.0


def _deviation(values: np.ndarray) -> float:  # without missing values
    unit = binary_unit(values)
    return unit * float(np.nanstd(values / unit))


@dataclass(frozen=True)
class Supervision:
    targets: tuple[Target, ...]
    shares: np.ndarray  # share of the loss of each label, up to a common factor
    strata: np.ndarray | None = None  # codes of the strata (batches)

    @classmethod
    def of(cls, target: Target | np.ndarray | Supervision, strata: np.ndarray | None = None) -> Supervision:
        # An array is taken for classes.
        if isinstance(target, Supervision):
            return target
        return cls((ClassTarget(target) if isinstance(target, np.ndarray) else target,), np.ones(1), strata)

    def at(self, positions: np.ndarray) -> Supervision:
        strata = None if self.strata is None else self.strata[positions]
        return Supervision(tuple(target.at(positions) for target in self.targets), self.shares, strata)


class Label(NamedTuple):  # one label of all distributions
    target: Target
    values: np.ndarray  # distinct values; empty for distances
    share: float  # of the loss


def read_labels(
    y: Any, target: Any, name_index: NameIndex, D: Distributions, *, by_row: bool, class_weight: Any = None
) -> list[Label]:
    """Validate the labels y of D, one `Label` for each target; `by_row`: y has labels of points."""
    check_class_weight(class_weight)
    kinds = [resolve_target(kind) for kind in (target if isinstance(target, list | tuple) else [target])]
    if not kinds:
        raise ValueError(f"target is {target!r}: expected a kind for each label")
    columns = _columns(y, len(kinds)) if isinstance(target, list | tuple) else {"y": y}
    labels: list[Label] = []
    for (name, column), kind in zip(columns.items(), kinds, strict=True):
        if isinstance(kind, Distances):
            matrix = _distances(column, kind.gap, D.name_index if by_row else name_index, name)
            labels.append(Label(DistanceTarget.of(matrix, kind.gap), np.empty(0), kind.weight))
        elif isinstance(kind, Survival):
            times = read_survival(column, name_index, name)
            if by_row:
                times = SurvivalTimes(labels_of_samples(D, times.time), labels_of_samples(D, times.event))
            check_comparable(times, name)
            labels.append(Label(SurvivalTarget.of(times, kind.gap), np.unique(times.time[times.event]), kind.weight))
        elif isinstance(kind, Ordered):
            numbers, levels = _ordered_values(column, name_index, name)
            numbers = labels_of_samples(D, numbers) if by_row else numbers
            present = np.unique(numbers[~np.isnan(numbers)])
            _check_spread(present, kind.gap, len(D), name)
            values = present if levels is None else levels[present.astype(int)]
            labels.append(Label(OrderedTarget.of(numbers, kind.gap), values, kind.weight))
        else:
            names = label_array(column, name_index, name)
            missing = missing_values(names)
            if missing.all():
                raise ValueError(f"{name} contains no label: at least two classes are needed")
            check_classes(names[~missing], name)
            codes = np.full(names.size, -1)
            classes, codes[~missing] = np.unique(names[~missing], return_inverse=True)
            codes = labels_of_samples(D, codes, names) if by_row else codes
            labels.append(Label(ClassTarget(codes, class_weight is not None), classes, kind.weight))
    if class_weight is not None and not any(isinstance(kind, Classes) for kind in kinds):
        raise ValueError(f"class_weight is {class_weight!r}, but `target` contains no classes: leave it out")
    return labels


def read_strata(strata: Any, name_index: NameIndex, D: Distributions, *, by_row: bool) -> np.ndarray | None:
    if strata is None:
        return None
    names = label_array(strata, name_index, "strata")
    codes = number_groups(names, names.size, "strata")
    return codes if codes is None or not by_row else labels_of_samples(D, codes, names)


def supervision(labels: list[Label], strata: np.ndarray | None) -> tuple[np.ndarray, Supervision]:
    """Return the positions of distributions with at least one label, and their supervision."""
    targets, _, shares = zip(*labels, strict=True)
    labelled = np.flatnonzero(np.any([target.labelled for target in targets], axis=0))
    if strata is not None and np.ptp(strata[labelled]) == 0:
        strata = None
    return labelled, Supervision(targets, np.array(shares, dtype=np.float64), strata).at(labelled)


def check_class_sizes(D: Distributions, labels: Supervision, values: Iterable[np.ndarray]) -> None:
    """Raise if a label has fewer than two classes or no class of two members; warn of classes with one member."""
    for target, distinct in zip(labels.targets, values, strict=True):
        if not isinstance(target, ClassTarget):
            continue
        classes, counts = distinct.tolist(), np.bincount(target.levels[target.labelled])
        if counts.size < 2:
            raise ValueError(f"all distributions have one class ({classes[0]!r}): at least two are needed")
        if counts.max() < 2:
            raise ValueError(
                "every class has a single distribution: no triplet can be formed; at least one class needs two"
            )
        for code in np.flatnonzero(counts == 1):
            name = D.names[np.argmax(target.levels == code)]
            warnings.warn(
                f"class {classes[code]!r} has a single distribution ({name!r}), which is never an anchor: other "
                "classes are only kept away from it",
                UserWarning,
                stacklevel=4,
            )


def hold_out(
    codes: np.ndarray, fraction: float, random: np.random.RandomState, groups: np.ndarray | None = None
) -> np.ndarray:
    """Mark a random share of every class, leaving at least two distributions of it, with undivided groups."""
    held_out = np.zeros(codes.size, bool)
    if fraction == 0.0:
        return held_out
    _, levels, counts = np.unique(codes, return_inverse=True, return_counts=True)
    free = np.minimum(np.ceil(fraction * counts), np.maximum(counts - 2, 0)).astype(int)  # that may still be held out
    if groups is None:
        for level, n_free in enumerate(free):
            held_out[random.permutation(np.flatnonzero(levels == level))[:n_free]] = True
    else:
        for group in random.permutation(np.unique(groups)):
            members = groups == group
            needed = np.bincount(levels[members], minlength=counts.size)
            if np.all(needed <= free):
                held_out[members], free = True, free - needed
    if not held_out.any():
        raise ValueError(
            "validation_fraction is positive, but no class has three distributions to hold one out, or every group is "
            "larger than this share of a class"
        )
    return held_out


def _columns(y: Any, n_labels: int) -> dict[str, Any]:
    if hasattr(y, "columns") and hasattr(y, "iloc"):
        columns = {f"y[{name!r}]": y.iloc[:, number] for number, name in enumerate(y.columns)}
    elif isinstance(y, list | tuple):
        columns = {f"y[{number}]": label for number, label in enumerate(y)}
    elif hasattr(y, "isel") and np.ndim(y) == 2:  # xarray
        columns = {f"y[:, {number}]": y[:, number] for number in range(y.shape[1])}
    elif np.ndim(y) == 2:
        columns = {}
        for number, column in enumerate(np.asanyarray(y).T):
            # A column of a table of mixed types becomes an array of numbers if all its values are numbers.
            mixed = column.dtype == object and not isinstance(column, np.ma.MaskedArray)
            whole = mixed and not missing_values(column).any()
            columns[f"y[:, {number}]"] = np.array(column.tolist()) if whole else column
    else:
        raise ValueError(f"y has {np.ndim(y)} dimensions: for several labels, give a table with a column for each")
    if len(columns) != n_labels:
        raise ValueError(f"y has {len(columns)} labels, but there are {n_labels} targets: give one target per label")
    return columns


def _ordered_values(y: Any, name_index: NameIndex, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return labels as numbers, NaN if missing; for ordered categories of pandas, their codes and the categories."""
    y = align_by_name(y, name_index, name)
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    if categories is not None:
        if not y.dtype.ordered:
            raise ValueError(
                f"{name} has categories without an order ({list(categories)[:3]}, …): order them, e.g. "
                "pandas.Categorical(y, categories=[…], ordered=True), or give numbers"
            )
        codes = np.asarray(y.cat.codes if hasattr(y, "cat") else y.codes, dtype=np.float64)
        label_array(codes, name_index, name)
        return np.where(codes < 0, np.nan, codes), np.asarray(categories)
    labels = label_array(y, name_index, name)
    if labels.dtype.kind in "US" or any(isinstance(label, str) for label in labels[:1]):
        raise ValueError(
            f"{name} holds text (e.g. {str(labels[0])!r}), whose order is unknown: give numbers, or ordered "
            "categories, e.g. pandas.Categorical(y, categories=[…], ordered=True)"
        )
    values = np.array(real_array(labels, name), dtype=np.float64)
    if np.isinf(values).any():
        raise ValueError(f"{name} holds an infinite value: give a finite number, or NaN for a missing label")
    return values, None


def _distances(y: Any, gap: float | None, name_index: NameIndex, name: str) -> np.ndarray:
    size = name_index.size
    matrix = np.array(real_array(align_square_by_name(y, name_index, name), name), dtype=np.float64)
    if matrix.shape != (size, size):
        raise ValueError(f"{name} has shape {matrix.shape}: target distances between {size} need {(size, size)}")
    invalid = matrix[np.isinf(matrix) | (matrix < 0)]
    if invalid.size:
        raise ValueError(f"{name} holds {invalid[0]:g}: expected distances of at least 0")
    diagonal = np.diag(matrix)
    if np.any(diagonal > 0):
        raise ValueError(f"{name} has {diagonal.max():g} on its diagonal: a distribution is at distance 0 from itself")
    rounding = 1e-8 * np.nanmax(matrix, initial=0.0)
    uneven = ~(np.abs(matrix - matrix.T) <= rounding) & ~(np.isnan(matrix) & np.isnan(matrix.T))
    if uneven.any():
        a, b = np.argwhere(uneven)[0]
        entries = f"{matrix[a, b]:g} at ({a}, {b}) and {matrix[b, a]:g} at ({b}, {a})"
        raise ValueError(f"{name} has {entries}: target distances must be symmetric")
    upper = matrix[np.triu_indices(size, 1)]
    _check_spread(np.unique(upper[~np.isnan(upper)]), gap, size, name)
    np.fill_diagonal(matrix, 0.0)
    return (matrix + matrix.T) / 2


def _check_spread(present: np.ndarray, gap: float | None, size: int, name: str) -> None:
    if present.size < 2:
        content = f"only the value {present[0]:g}" if present.size else "no value"
        raise ValueError(f"{name} holds {content} for {size} distributions: at least two values are needed")
    if gap is not None and gap >= np.ptp(present):
        raise ValueError(f"gap is {gap:g}, but the values of {name} differ by at most {np.ptp(present):g}: lower it")
