"""Values that carry names (pandas, xarray, a dict), brought into the order of the distributions or points they are of.

``obs.groupby("patient")["disease"].first()`` is sorted by patient, `Distributions` are in the order in which patients
first appear: taken by position, patients would get each other's labels. So whatever has names goes by its names:

- The names must be those of the distributions, in any order; with more or fewer it is an error. Numbers match text that
  reads the same (101 and "101").
- What has no names (arrays, lists) goes by position. So does a plain numbering of rows: the index 0, 1, 2, … that
  pandas gives where there is none, also after both sides were sliced alike, as scikit-learn's cross-validation does.
- Where distributions are named 0, 1, 2, … themselves but in another order, such an index could mean either: an error.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Names that an error shows.
_FEW = 3


@dataclass(frozen=True)
class Roll:
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
    def of(cls, *values: Any, items: str = "distributions") -> Roll:
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

    names: list
    is_numbers: bool
    is_default: bool


def aligned(values: Any, roll: Roll, what: str) -> Any:
    """Values in the order of the roll, of the type that they had (of a dict: a list).

    >>> aligned({"bob": "well", "ann": "ill"}, Roll(["ann", "bob"]), "y")
    ['ill', 'well']
    >>> aligned({"bob": "well"}, Roll(["ann", "bob"]), "y")
    Traceback (most recent call last):
    ...
    ValueError: y has names other than the 2 distributions: 'ann' is missing; it has 'bob' (1), they are ...
    """
    index = _index_of(values)
    if index is None:
        return values
    if roll.names is None:
        if isinstance(values, Mapping):
            raise ValueError(f"{what} is a mapping by name, but the {roll.items} have no names: give a list in order")
        return values
    places = _places(index, roll, what)
    if isinstance(values, Mapping):
        given = list(values.values())
        return given if places is None else [given[place] for place in places]
    if places is None:
        return values
    return values.iloc[places] if hasattr(values, "iloc") else values.isel({values.dims[0]: places})


def aligned_square(values: Any, roll: Roll, what: str) -> Any:
    """A matrix between the items, rows and columns by name."""
    rows = _index_of(values)
    if rows is None or getattr(values, "ndim", 0) != 2:
        return values
    columns = _index_of(values.T)
    if columns is None or set(rows.names) != set(columns.names):
        there = "none" if columns is None else _some(columns.names)
        raise ValueError(
            f"{what} has rows and columns of different names (rows: {_some(rows.names)}; columns: {there}): name both "
            f"by the {roll.items}, or give an array"
        )
    return aligned(aligned(values, roll, what).T, roll, what).T


def carries_names(values: Any) -> bool:
    """Whether values have names, other than plain numbers of rows."""
    index = _index_of(values)
    return index is not None and not index.is_default


def numbered(values: Any) -> Any:
    """The places 0, 1, 2, … of values with the names that these carry, which say whose place each is."""
    places = np.arange(len(values))
    if isinstance(values, Mapping):
        return dict(zip(values, places.tolist(), strict=True))
    if hasattr(values, "iloc") and hasattr(values, "index"):
        return type(values)(places, index=values.index)
    return values.copy(data=places) if _index_of(values) is not None else places


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


def _places(index: _Index, roll: Roll, what: str) -> np.ndarray | None:
    """Where each item's value stands among those given; None where they are in order already."""
    assert roll.names is not None
    given: list[Any] = list(map(_key, index.names))
    wanted: list[Any] = list(map(_key, roll.names))
    if given == wanted:
        return None
    if set(given) != set(wanted):
        as_text = [str(name) for name in index.names], [str(name) for name in roll.names]
        if not _same_names(*as_text):
            if _by_position(index, roll):
                return None
            raise ValueError(_mismatch(index, roll, what))
        given, wanted = as_text[0], as_text[1]
    if given == wanted:
        return None
    if index.is_default:
        raise ValueError(
            f"{what} is numbered 0, 1, 2, …, and so are the {roll.items}, but in another order "
            f"({_some(roll.names)}): give {what}.to_numpy() if it is in their order, or name the index if these are "
            "their names"
        )
    place = {name: at for at, name in enumerate(given)}
    if len(place) < len(given):
        twice = next(name for at, name in enumerate(given) if place[name] != at)
        raise ValueError(
            f"{what} has {_shown(twice)} more than once, in another order than the {roll.items}: which is which is not "
            "known; give each name once"
        )
    return np.array([place[name] for name in wanted], dtype=np.intp)


def _key(name: Hashable) -> Hashable:
    """Python takes True for 1."""
    return (bool, bool(name)) if isinstance(name, bool | np.bool_) else name


def _same_names(given: list[str], wanted: list[str]) -> bool:
    return len(set(given)) == len(given) and len(set(wanted)) == len(wanted) and set(given) == set(wanted)


def _by_position(index: _Index, roll: Roll) -> bool:
    """Are the names that values carry, or those of the items, plain numbers of rows?"""
    assert roll.names is not None
    if roll.numberings is None and index.is_numbers != roll.are_numbers:
        return len(index.names) == len(roll.names)
    if not index.is_numbers:
        return False
    rows = [np.arange(len(roll.names)), *(roll.numberings or ())]
    return index.is_default or any(np.array_equal(index.names, one) for one in rows)


def _mismatch(index: _Index, roll: Roll, what: str) -> str:
    assert roll.names is not None
    here, there = set(map(_key, index.names)), set(map(_key, roll.names))
    missing = [name for name in dict.fromkeys(roll.names) if _key(name) not in here]
    unknown = [name for name in dict.fromkeys(index.names) if _key(name) not in there]
    told = []
    if missing:
        told.append(f"{_some(missing)} {'are' if len(missing) > 1 else 'is'} missing")
    if unknown:
        told.append(f"{_some(unknown)} {'are' if len(unknown) > 1 else 'is'} none of them")
    return (
        f"{what} has names other than the {len(roll.names)} {roll.items}: {'; '.join(told)}; it has "
        f"{_some(index.names)} ({len(index.names)}), they are {_some(roll.names)} ({len(roll.names)}). Give exactly "
        f"theirs, in any order (e.g. {what}.loc[names]), or an array without names in their order (.to_numpy())"
    )


def _some(names: Sequence[Any]) -> str:
    more = len(names) - _FEW
    return ", ".join(map(_shown, names[:_FEW])) + (f" and {more} more" if more > 0 else "")


def _shown(name: Any) -> str:
    return repr(name.item() if isinstance(name, np.generic) and name.dtype.kind not in "mM" else name)
