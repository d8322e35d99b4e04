"""Cross-validation folds keyed by name, and the sets of folds that ensemble members leave out.

The folds of an ensemble serve three purposes at once. For the prediction of fold f, a kernel entry between samples i
and j may only use members that were trained on none of the folds f, F(i) and F(j), where F(i) is the fold of i. So
the design of an ensemble is a list of sets of folds, one per member, such that any three folds are left out together
by at least one member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from .._internal.keyed import keyed_uniform
from .targets import Classes, Target

Design = list[tuple[int, ...]]
# Blocks of the Steiner systems S(3, 4, 8) and S(3, 4, 10): sets of four folds such that any three folds are in exactly
# one set. Members train on half (four of eight) or 60 % (six of ten) of the folds.
_STEINER_8: Design = [s for s in combinations(range(8), 4) if s[0] ^ s[1] ^ s[2] ^ s[3] == 0]
_STEINER_10: Design = sorted(
    tuple(sorted((entry + shift) % 10 for entry in block))
    for block in ((0, 1, 2, 6), (0, 1, 3, 4), (0, 2, 4, 7))
    for shift in range(10)
)
# Folds where no Steiner system applies (few or rare groups): members leave out three folds each.
_N_FOLDS = 8


def _triples(n_folds: int) -> Design:
    return list(combinations(range(n_folds), 3))


def designs(n_members: int) -> Iterator[tuple[int, Design]]:
    """Yield numbers of folds and designs, from the smallest that has `n_members` members on.

    The last ones leave out as little as possible, for classes of few groups.

    >>> [(n_folds, len(design)) for n_folds, design in designs(14)]
    [(8, 14), (10, 30), (8, 56)]
    """
    candidates = [(4, _triples(4)), (5, _triples(5)), (8, _STEINER_8), (10, _STEINER_10)]
    large_enough = [(n_folds, design) for n_folds, design in candidates if len(design) >= n_members]
    yield from large_enough or candidates[-1:]
    yield _N_FOLDS, _triples(_N_FOLDS)


def assign_folds(target: Target, groups: np.ndarray, names: Sequence[Any], n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each distribution: groups undivided, balanced by label, in an order given by (seed, name).

    Parameters
    ----------
    target : Target
        Labels, by which folds are balanced.
    groups : array of int of shape (n_distributions,)
        Group of each distribution, 0, 1, 2, ….
    names : sequence of length n_groups
        Name of each group.
    n_folds : int
        Number of folds; at most the number of groups are used.
    seed : int
        Seed of the order.
    """
    n_groups = int(groups.max()) + 1
    n_folds, order = min(n_folds, n_groups), keyed_uniform(names, seed, "fold")
    keys = target.fold_keys(groups)
    fold_of_group = np.empty(n_groups, dtype=np.intp)
    if isinstance(target, Classes):
        dealt = sorted(range(n_groups), key=lambda g: (keys[g], order[g]))
        fold_of_group[dealt] = np.arange(n_groups) % n_folds
    else:
        # Groups of similar labels are dealt to different folds: each run of n_folds groups has one in every fold.
        ranked = sorted(range(n_groups), key=lambda g: (keys[g], order[g]))
        for start in range(0, n_groups, n_folds):
            run = sorted(ranked[start : start + n_folds], key=lambda g: order[g])
            fold_of_group[run] = np.arange(len(run))
    return fold_of_group[groups]


def choose_design(
    target: Target, groups: np.ndarray, names: Sequence[Any], n_members: int, seed: int, folds: np.ndarray | None = None
) -> tuple[np.ndarray, Design]:
    """Return folds and the design of the members; the design is empty where no member could be trained.

    A member needs two groups of each class (or enough different numbers). Whether all members of a design have them is
    decided for the cohort as a whole: a kernel that lacks members for some samples would reveal their labels.
    """
    n_groups = int(groups.max()) + 1
    if folds is not None:
        n_folds = int(folds.max()) + 1
        given = [design for size, design in designs(n_members) if size == n_folds] + [_triples(n_folds)]
        return folds, next((design for design in given if _trainable(design, folds, target, groups)), [])
    for n_folds, design in designs(n_members):
        if n_folds > n_groups:
            continue
        folds = assign_folds(target, groups, names, n_folds, seed)
        if _trainable(design, folds, target, groups):
            return folds, design
    folds = assign_folds(target, groups, names, _N_FOLDS, seed)
    design = _triples(int(folds.max()) + 1)
    return folds, design if _trainable(design, folds, target, groups) else []


def fallback_design(folds: np.ndarray, target: Target, groups: np.ndarray) -> Design:
    """Return what members leave out where no nested design exists: one fold each or, if a class is too small, nothing.

    Such members give the cohort a metric. They measure samples that they were trained on, so no view uses them.
    """
    single: Design = [(fold,) for fold in range(int(folds.max()) + 1)]
    trainable = all(target.can_train(folds != fold, groups) for fold in range(len(single)))
    return single if trainable and len(single) > 2 else [()]


def _trainable(design: Design, folds: np.ndarray, target: Target, groups: np.ndarray) -> bool:
    if not design or int(folds.max()) < 3:
        return False
    return all(target.can_train(~np.isin(folds, left_out), groups) for left_out in design)
