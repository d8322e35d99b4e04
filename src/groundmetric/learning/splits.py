"""Splits into training and test sets, and restricted permutations of labels, which respect groups and strata."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import LabelsLike, RandomState
from .._internal.validation import (
    NameIndex,
    align_by_name,
    check_groups_per_class,
    check_labels,
    check_number,
    group_list,
    number_groups,
    numbered,
    refuse_mask,
    unit_codes,
)

# scikit-learn's splitters load slowly, and predictions do not use them: each is imported in its function.
Split = tuple[np.ndarray, np.ndarray]


def check_splits(splits: list[Split], labels: np.ndarray, groups: Any = None) -> None:
    """Raise if a side of a split is empty, both sides share a distribution or group, or training lacks a class."""
    if not splits:
        raise ValueError("there are no splits: at least one is needed")
    members = number_groups(groups, labels.size)
    for number, (train, test) in enumerate(splits):
        if not train.size or not test.size:
            raise ValueError(
                f"split {number} has {train.size} distributions to learn from and {test.size} to test: both are "
                "needed; take fewer splits"
            )
        shared = np.intersect1d(train, test)
        if shared.size:
            raise ValueError(f"split {number} tests what it learned from: distribution {shared[0]} is on both sides")
        divided = np.empty(0) if members is None else np.intersect1d(members[train], members[test])
        if divided.size:
            name = list(dict.fromkeys(groups))[divided[0]]
            raise ValueError(f"split {number} divides group {name!r}: it is learned from and tested; keep it undivided")
        absent = np.setdiff1d(labels, labels[train])
        if absent.size:
            in_class = labels == absent[0]
            reason = f"it has {int(in_class.sum())} of {labels.size} in all"
            if members is not None and np.unique(members[in_class]).size == 1:
                reason = f"it occurs in one group only ({groups[int(np.argmax(in_class))]!r}), which is tested here"
            label = absent.tolist()[0]  # 'a' rather than np.str_('a')
            raise ValueError(
                f"split {number} has no distribution of class {label!r} to learn from: {reason}; drop or merge the "
                "class, or split otherwise"
            )


# Random divisions of the groups, out of which the best is taken for every split.
_CANDIDATES = 50


def shuffled(
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    n_splits: int = 10,
    test_size: float = 0.2,
    random_state: RandomState = None,
) -> list[Split]:
    """Return repeated random splits that keep the class shares, with every class in every training set.

    Parameters
    ----------
    y : array-like of shape (n_distributions,)
        Labels.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample), never divided. Each split is the division, out of 50
        random ones, with the best class shares and test size; all splits differ.
    n_splits : int, default=10
        Number of splits.
    test_size : float, default=0.2
        Share of the distributions in the test set, above 0 and below 1.
    random_state : int, RandomState or None, default=None
        Seed of the splits.

    Returns
    -------
    list of (train, test)
        Indices of the training and of the test distributions of each split.

    Examples
    --------
    >>> from groundmetric.evaluation import shuffled
    >>> [test.size for train, test in shuffled(["ill"] * 5 + ["well"] * 5, n_splits=3, random_state=0)]
    [2, 2, 2]
    """
    name_index = NameIndex.of(y)
    labels, groups = check_labels(y, name_index), group_list(groups, name_index)
    check_number("n_splits", n_splits, low=1, whole=True)
    if not 0.0 < test_size < 1.0:
        raise ValueError(f"test_size is {test_size}: expected a share between 0 and 1")
    random = check_random_state(random_state)
    members = number_groups(groups, labels.size)
    check_groups_per_class(labels, groups, 2, "one to learn from and one to test; drop or merge the class")
    if members is not None:
        _, codes = np.unique(labels, return_inverse=True)
        counts = np.zeros((members.max() + 1, codes.max() + 1))
        np.add.at(counts, (members, codes), 1)  # distributions of each group and class
        total = counts.sum(axis=0)
        taken: dict[frozenset[int], None] = {}
        for _ in range(n_splits):
            # Choose the best new division by badness: classes without training or test distributions, wrong shares.
            fresh = []
            for _ in range(_CANDIDATES):
                order = random.permutation(len(counts))
                filled = np.cumsum(counts[order].sum(axis=1))
                chosen = order[: 1 + int(np.argmin(np.abs(filled[:-1] - test_size * filled[-1])))]
                test = counts[chosen].sum(axis=0)
                absent = int(np.sum(test == total)), int(np.sum(test == 0))
                division = frozenset(chosen.tolist())
                if division not in taken:
                    fresh.append(((*absent, float(np.abs(test - test_size * total).sum())), division))
            if not fresh:
                raise ValueError(
                    f"only {len(taken)} different splits of {len(counts)} groups were found for test_size {test_size}, "
                    f"but n_splits is {n_splits}: take fewer, or use leave_one_group_out"
                )
            taken[min(fresh, key=lambda candidate: candidate[0])[1]] = None
        sides = (np.isin(members, list(division)) for division in taken)
        splits = [(np.flatnonzero(~tested), np.flatnonzero(tested)) for tested in sides]
    else:
        n_test, n_classes = int(np.ceil(test_size * labels.size)), np.unique(labels).size
        if min(n_test, labels.size - n_test) < n_classes:
            raise ValueError(
                f"test_size is {test_size}: {n_test} of {labels.size} distributions are tested, but there are "
                f"{n_classes} classes, and each is needed on both sides; give a share nearer to one half"
            )
        from sklearn.model_selection import StratifiedShuffleSplit

        splitter = StratifiedShuffleSplit(n_splits, test_size=test_size, random_state=random)
        splits = list(splitter.split(labels, labels))
    check_splits(splits, labels, groups)
    return Splits(splits, numbered(y))


def folds(
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    n_splits: int = 5,
    n_repeats: int = 1,
    random_state: RandomState = None,
) -> list[Split]:
    """Return cross-validation folds that keep the class shares: every distribution is tested once in each repeat.

    Parameters
    ----------
    y : array-like of shape (n_distributions,)
        Labels; every class needs a distribution, or a group, for each fold.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample), never divided.
    n_splits : int, default=5
        Number of folds.
    n_repeats : int, default=1
        Number of times that the distributions are divided into folds.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Returns
    -------
    list of (train, test)
        Indices of the training and of the test distributions of each of the ``n_splits * n_repeats`` splits.

    Examples
    --------
    >>> from groundmetric.evaluation import folds
    >>> [test.size for train, test in folds(["ill"] * 4 + ["well"] * 4, n_splits=2, random_state=0)]
    [4, 4]
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    name_index = NameIndex.of(y)
    labels, groups = check_labels(y, name_index), group_list(groups, name_index)
    check_number("n_splits", n_splits, low=2, whole=True)
    check_number("n_repeats", n_repeats, low=1, whole=True)
    random = check_random_state(random_state)
    members = number_groups(groups, labels.size)
    check_groups_per_class(labels, groups, n_splits, "one for every fold; take fewer folds, or drop or merge the class")
    splits: list[Split] = []
    for _ in range(n_repeats):
        seed = random.randint(2**31)
        if members is None:
            splits += StratifiedKFold(n_splits, shuffle=True, random_state=seed).split(labels, labels)
        else:
            # Shuffle groups here: before scikit-learn 1.8, StratifiedGroupKFold shuffles the class counts of groups
            # without the groups, and a class may be missing from a training set.
            numbers = np.arange(members.max() + 1)
            np.random.RandomState(seed).shuffle(numbers)
            splits += StratifiedGroupKFold(n_splits).split(labels, labels, np.argsort(numbers)[members])
    check_splits(splits, labels, groups)
    return Splits(splits, numbered(y))


def leave_one_group_out(groups: LabelsLike) -> list[Split]:
    """Return splits in which every outer group (patient, donor, batch) is the test set once.

    Parameters
    ----------
    groups : array-like of shape (n_distributions,)
        Outer group of each distribution; at least two different ones.

    Returns
    -------
    list of (train, test)
        Indices of the training and of the test distributions of each split, groups in order of first appearance.

    Examples
    --------
    >>> from groundmetric.evaluation import leave_one_group_out
    >>> [test.tolist() for train, test in leave_one_group_out(["ann", "bob", "ann"])]
    [[0, 2], [1]]
    """
    name_index = NameIndex.of(groups)
    named = group_list(groups, name_index) or []
    members = unit_codes(named, name_index.size)
    if members.max() == 0:
        raise ValueError(f"all distributions are in one group ({named[0]!r}): at least two are needed")
    from sklearn.model_selection import LeaveOneGroupOut

    return Splits(LeaveOneGroupOut().split(members, groups=members), numbered(groups))


def leave_one_out(y: LabelsLike) -> list[Split]:
    """Return splits in which every distribution is the test set once.

    Parameters
    ----------
    y : array-like of shape (n_distributions,)
        Labels; only their number and names are used.

    Returns
    -------
    list of (train, test)
        Indices of the training distributions and of the test distribution of each split.

    Examples
    --------
    >>> from groundmetric.evaluation import leave_one_out
    >>> [test.tolist() for train, test in leave_one_out(["ill", "well", "ill"])]
    [[0], [1], [2]]
    """
    n = NameIndex.of(y).size
    if n < 2:
        raise ValueError(f"{n} distributions: at least two are needed to leave one out")
    return Splits(leave_one_group_out(np.arange(n)), numbered(y))


class Splits(list[Split]):
    """List of (train, test) indices into labels with names: `numbers` holds 0, 1, 2, … with these names.

    Functions of splits and distributions translate the indices to the order of their distributions.
    """

    def __init__(self, splits: Iterable[Split], numbers: Any) -> None:
        super().__init__(splits)
        self.numbers = numbers

    def __getitem__(self, key: Any) -> Any:
        selected = super().__getitem__(key)
        return Splits(selected, self.numbers) if isinstance(key, slice) else selected

    def among(self, name_index: NameIndex) -> list[Split]:
        order = np.asarray(align_by_name(self.numbers, name_index, "splits"))
        position = np.argsort(order, kind="stable")
        return [(position[train], position[test]) for train, test in self] if order.size == name_index.size else [*self]


def as_splits(splits: Any, labels: np.ndarray, groups: Any = None, name_index: NameIndex | None = None) -> list[Split]:
    """Return a list of (train, test) from such a list, a splitter of scikit-learn, or a function of the labels."""
    n = labels.size

    def indices(side: Any) -> np.ndarray:
        refuse_mask(side, "splits")
        array = np.asarray(side)
        if array.dtype == bool and array.shape == (n,):
            return np.flatnonzero(array)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"got {side!r}")
        invalid = array[(array < 0) | (array >= n)]
        if invalid.size:
            raise ValueError(f"{invalid[0]} is out of range")
        return array.astype(np.intp)

    if isinstance(splits, Splits) and name_index is not None:
        splits = splits.among(name_index)
    if hasattr(splits, "split"):
        splits = splits.split(np.zeros(n), labels, number_groups(groups, n))
    elif callable(splits):
        splits = splits(labels)
    try:
        return [(indices(train), indices(test)) for train, test in splits]
    except (TypeError, ValueError) as error:
        raise ValueError(f"splits must be pairs (train, test) of indices below {n}: {error}") from None


def rounds_of(splits: list[Split], n: int) -> np.ndarray | None:
    """Return the repeat of each split if the test sets divide the cohort (folds), else None (shuffled splits).

    >>> rounds_of(leave_one_out("abc"), 3).tolist()
    [0, 0, 0]
    """
    rounds: list[int] = []
    times_tested = np.zeros(n, np.intp)
    for _, test in splits:
        rounds.append(int(times_tested.min()))
        times_tested[test] += 1
        if np.ptp(times_tested) > 1:
            return None
    return None if np.ptp(times_tested) else np.array(rounds)


# Restricted permutations of labels: patients with several samples, paired designs, strata, and mixtures.
#
# A permutation test is valid if, under the null hypothesis, every arrangement of the labels that it draws is as
# probable as the observed one:
#
# - Without groups, labels are permuted among samples of a stratum.
# - If every group (patient) has one label, labels are permuted among groups that occur in the same strata.
# - If labels differ within some groups, labels are permuted among samples of the same group and stratum, and all labels
#   of a group are exchanged with those of another group that has the same number of samples in each stratum.

# A block is the units of a group (or all units of a stratum), as one array of units per stratum.
Block = tuple[np.ndarray, ...]
# Number of classes up to which all renamings of the classes are tried (720).
_MAX_CLASSES = 6


@dataclass(frozen=True)
class RestrictedPermutations:
    """Arrangements of labels that have the same probability under the null hypothesis.

    The blocks of a list have the same number of units in each stratum, and exchange their labels stratum by stratum;
    labels are also permuted among the units of a block and stratum.
    """

    units: np.ndarray  # (n_distributions,) unit of each distribution; a unit has one label
    labels: np.ndarray  # (n_units,) class codes or numbers
    blocks: list[list[Block]]
    among: str  # description of the units that exchange labels, e.g. "groups within strata"

    def draw(self, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
        return self.draws(1, random)[0]

    def draws(self, count: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
        """Return `count` random arrangements of the labels, shape (count, n_distributions)."""
        drawn = np.tile(self.labels, (count, 1))
        for blocks in self.blocks:
            source = np.argsort(random.random((count, len(blocks))), axis=1)
            for parts in zip(*blocks, strict=True):
                members = np.stack(parts)  # (blocks, units of a block in this stratum)
                contents = self.labels[members][source]
                order = np.argsort(random.random(contents.shape), axis=2)
                drawn[:, members] = np.take_along_axis(contents, order, axis=2)
        return drawn[:, self.units]

    def sample(self, count: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
        """Return the observed arrangement, then all others (an exact test) or, if more than `count`, random ones."""
        if self.arrangements > count + 1:
            return np.vstack([self.labels[self.units][None], self.draws(count, random)])
        choices = []  # for each list of blocks: their units, and the different orders of their labels
        for blocks in self.blocks:
            contents = [_content(self.labels, block) for block in blocks]
            inner = {values: list(_distinct_orders(values)) for content in contents for values in content}
            orders = [
                list(itertools.chain.from_iterable(choice))
                for exchanged in _distinct_orders(contents)
                for choice in itertools.product(*(inner[values] for content in exchanged for values in content))
            ]
            choices.append((np.concatenate([members for block in blocks for members in block]), np.array(orders)))
        rows = np.indices([len(orders) for _, orders in choices]).reshape(len(choices), -1)
        every = np.tile(self.labels, (rows.shape[1], 1))
        for (members, order_of), row in zip(choices, rows, strict=True):
            every[:, members] = order_of[row]
        observed = np.all(every == self.labels, axis=1)
        return np.vstack([every[observed], every[~observed]])[:, self.units]

    @property
    def arrangements(self) -> int:
        total = 1
        for blocks in self.blocks:
            contents = [_content(self.labels, block) for block in blocks]
            total *= _count_orders(contents)
            total *= math.prod(_count_orders(values) for content in contents for values in content)
        return total

    @property
    def partitions(self) -> int:
        """Number of arrangements of classes that differ by more than the names of the classes.

        If a statistic treats all classes alike, the smallest p-value of 6 pairs is 2 / 64. Of more than six classes, an
        upper bound.
        """
        classes, codes = np.unique(self.labels, return_inverse=True)
        if classes.size > _MAX_CLASSES:
            return self.arrangements
        renamings = (np.array(names)[codes] for names in itertools.permutations(range(classes.size)))
        contents = [
            [Counter(_content(renamed, block) for block in blocks) for blocks in self.blocks] for renamed in renamings
        ]
        return self.arrangements // contents.count(contents[0])  # the first renaming changes no name


def restricted_permutations(
    labels: np.ndarray,
    groups: Any = None,
    strata: Any = None,
    *,
    names: Sequence[Hashable] | None = None,
    equal_sizes: bool = False,
) -> RestrictedPermutations:
    """Return the arrangements of labels (codes or numbers) that groups and strata allow; see the description above.

    With `names`, the same distributions in another order have the same arrangements in that order. With `equal_sizes`,
    groups with one label each exchange it only with groups of the same number of distributions, which is needed if the
    statistic treats distributions as units, and their number may depend on the label.

    >>> pairs = restricted_permutations(np.array([0, 1, 0, 1]), groups=["ann", "ann", "bob", "bob"])
    >>> pairs.among, pairs.arrangements, pairs.partitions
    ('distributions within groups', 4, 2)
    """
    # All arrays below are in the order of names, in which groups and strata are also numbered.
    n, order = labels.size, canonical_order(names, labels.size)
    stratum, group = number_groups(strata, n, "strata"), number_groups(groups, n)
    stratum = np.zeros(n, np.intp) if stratum is None else unit_codes(stratum[order], n)
    labels, units, among = labels[order], np.arange(n), "distributions"
    members = [] if group is None else _members(unit_codes(group[order], n))
    by_profile: dict[Any, list[Any]] = {}
    if group is None:
        blocks: list[list[Block]] = [[(block,)] for block in _members(stratum)]
    elif all(np.all(labels[rows] == labels[rows[0]]) for rows in members):
        units, labels = unit_codes(group[order], n), np.array([labels[rows[0]] for rows in members])
        for unit, rows in enumerate(members):
            profile = _counts(stratum[rows]) if equal_sizes else tuple(np.unique(stratum[rows]).tolist())
            by_profile.setdefault(profile, []).append(unit)
        blocks = [[(np.array(part),)] for part in by_profile.values()]
        among = "groups of one size" if equal_sizes else "groups"
    else:
        units[np.concatenate(members)] = np.arange(n)
        for rows in members:
            block = tuple(units[rows[stratum[rows] == s]] for s in np.unique(stratum[rows]))
            by_profile.setdefault(_counts(stratum[rows]), []).append(block)
        labels, blocks = labels[np.concatenate(members)], list(by_profile.values())
        differ = any(len({_content(labels, block) for block in part}) > 1 for part in blocks)
        among = "distributions within groups" + (" and groups of one size" if differ else "")
    among += "" if strata is None else " within strata"
    exchange = RestrictedPermutations(units[np.argsort(order)], labels, blocks, among)
    if exchange.arrangements < 2:
        raise ValueError(
            f"there is nothing to exchange: labels would be permuted among {exchange.among}, and each of these sets "
            "has one label; leave out or coarsen the strata or groups"
        )
    return exchange


def canonical_order(names: Sequence[Hashable] | None, n: int) -> np.ndarray:
    """Return the order of distributions by their names (as text), or by position without names.

    >>> canonical_order(["b", "c", "a"], 3).tolist()
    [2, 0, 1]
    """
    return np.arange(n) if names is None else np.argsort([str(name) for name in names], kind="stable")


def profiles(codes: np.ndarray, units: np.ndarray) -> list[tuple[tuple[int, Fraction], ...]]:
    """Return for each unit the values of its distributions and their shares, which do not depend on its size.

    >>> profiles(np.array([0, 1, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 1, 2]))[0]
    ((0, Fraction(1, 2)), (1, Fraction(1, 2)))
    """
    members = (codes[units == unit] for unit in range(int(units.max()) + 1))
    return [tuple((value, Fraction(count, part.size)) for value, count in _counts(part)) for part in members]


def _members(numbers: np.ndarray) -> list[np.ndarray]:  # positions of each number, from 0 to the largest
    return [np.flatnonzero(numbers == number) for number in range(int(numbers.max(initial=-1)) + 1)]


def _content(labels: np.ndarray, block: Block) -> tuple[tuple[Any, ...], ...]:  # sorted labels of each stratum
    return tuple(tuple(np.sort(labels[members]).tolist()) for members in block)


def _counts(values: np.ndarray) -> tuple[tuple[int, int], ...]:
    distinct, counts = np.unique(values, return_counts=True)
    return tuple(zip(distinct.tolist(), counts.tolist(), strict=True))


def _count_orders(items: Iterable[Hashable]) -> int:
    counts = Counter(items)
    return math.factorial(counts.total()) // math.prod(map(math.factorial, counts.values()))


def _distinct_orders(items: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield every different order of the items once.

    >>> list(_distinct_orders("aab"))
    [('a', 'a', 'b'), ('a', 'b', 'a'), ('b', 'a', 'a')]
    """
    counts = Counter(items)
    if not counts.total():
        yield ()
    for item in counts:
        yield from ((item, *rest) for rest in _distinct_orders((counts - Counter([item])).elements()))
