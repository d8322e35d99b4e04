"""Can these splits be learned from and tested? Said before the long work, naming the class or group in the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..alignment import Roll, aligned
from ..arrays import is_missing, refuse_mask

Split = tuple[np.ndarray, np.ndarray]


def check_splits(splits: list[Split], labels: np.ndarray, groups: Any = None) -> None:
    """Raise where a split is empty, tests what was learned from, divides a group, or has no example of a class."""
    if not splits:
        raise ValueError("there are no splits: at least one is needed")
    members = number_groups(groups, labels.size)
    for place, (train, test) in enumerate(splits):
        if not train.size or not test.size:
            raise ValueError(
                f"split {place} has {train.size} distributions to learn from and {test.size} to test: both are needed; "
                "take fewer splits"
            )
        both = np.intersect1d(train, test)
        if both.size:
            raise ValueError(f"split {place} tests what it learned from: distribution {both[0]} is on both sides")
        if members is not None:
            _check_not_divided(place, members[train], members[test], groups)
        absent = np.setdiff1d(labels, labels[train])
        if absent.size:
            _raise_absent_class(place, absent[0], labels, members, groups)


def check_class_sizes(labels: np.ndarray, groups: Any, least: int, why: str) -> None:
    """Every class needs so many distributions; where groups stay together, so many groups."""
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()}): at least two are needed")
    members = number_groups(groups, labels.size)
    for label in classes:
        own = labels == label
        found = int(own.sum()) if members is None else np.unique(members[own]).size
        if found < least:
            where = "distributions" if members is None else f"groups ({_some_names(groups, own)})"
            raise ValueError(f"class {_plain(label)!r} has {found} {where}, but {least} are needed: {why}")


def number_groups(groups: Any, size: int) -> np.ndarray | None:
    """Groups as numbers, in the order in which they first appear; None where there are none."""
    values = group_list(groups, Roll(None, n=size))
    if values is None:
        return None
    if len(values) != size:
        raise ValueError(f"groups has {len(values)} entries for {size} distributions: one is needed for each")
    for value in values:
        if is_missing(value):
            raise ValueError(f"groups contain a missing value ({value!r}): every distribution needs a group")
    place = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return np.array([place[value] for value in values], dtype=np.intp)


def group_list(groups: Any, roll: Roll, name: str = "groups") -> list | None:
    """The group (or stratum) of each distribution, in the order of the roll where they carry names."""
    if groups is None:
        return None
    refuse_mask(groups, name)
    groups = aligned(groups, roll, name)
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"{name} has shape {groups.shape}: expected one entry per distribution, e.g. a single column")
    return list(groups)


def check_places(indices: Any, n: int) -> np.ndarray:
    """Places among n distributions, from integers or a mask."""
    refuse_mask(indices, "splits")
    places = np.asarray(indices)
    if places.dtype == bool and places.shape == (n,):
        return np.flatnonzero(places)
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
        raise ValueError(f"found {indices!r}")
    outside = places[(places < 0) | (places >= n)]
    if outside.size:
        raise ValueError(f"{outside[0]} is none of them")
    return places.astype(np.intp)


def _check_not_divided(place: int, learned: np.ndarray, tested: np.ndarray, groups: Any) -> None:
    both = np.intersect1d(learned, tested)
    if both.size:
        name = list(dict.fromkeys(groups))[both[0]]
        raise ValueError(f"split {place} divides group {name!r}: it is learned from and tested; keep it on one side")


def _raise_absent_class(place: int, label: Any, labels: np.ndarray, members: np.ndarray | None, groups: Any) -> None:
    own = labels == label
    why = f"it has {int(own.sum())} of {labels.size} in all"
    if members is not None and np.unique(members[own]).size == 1:
        why = f"it occurs in one group only ({_some_names(groups, own)}), which is tested here"
    raise ValueError(
        f"split {place} has no distribution of class {_plain(label)!r} to learn from: {why}; drop or merge the class, "
        "or split otherwise"
    )


def _some_names(groups: Any, own: np.ndarray) -> str:
    names = dict.fromkeys(group for group, is_own in zip(groups, own, strict=True) if is_own)
    return ", ".join(map(repr, list(names)[:3]))


def _plain(label: Any) -> Any:
    """A label as the user wrote it: 'a' rather than np.str_('a')."""
    return label.item() if hasattr(label, "item") else label
