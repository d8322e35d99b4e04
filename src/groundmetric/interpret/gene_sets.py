"""Sets of features, as they come in GMT files."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse


def read_gmt(path: str | os.PathLike, *, prefix: str = "") -> dict[str, list[str]]:
    """The sets of a GMT file (also .gz): a line has a name, a description and the members, with tabs between.

    Parameters
    ----------
    prefix : only sets whose name begins with it, e.g. "HALLMARK_"
    """
    path = Path(path)
    sets: dict[str, list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, *rest = line.rstrip("\r\n").split("\t")
            if len(rest) < 2:
                raise ValueError(f"{path.name}, line {number}: expected a name, a description and members, with tabs")
            if name.startswith(prefix):
                if name in sets:
                    raise ValueError(f"{path.name}, line {number}: there is a set {name!r} before")
                sets[name] = list(dict.fromkeys(member for member in rest[1:] if member))
    if not sets:
        raise ValueError(f"{path.name} has no sets" + (f" whose name begins with {prefix!r}" if prefix else ""))
    return sets


@dataclass(frozen=True)
class Membership:
    """Which of the background's features are in which set: a sparse matrix (n_sets, n_features) of ones."""

    names: list[str]
    background: list[str]
    matrix: sparse.csr_matrix

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.matrix.indptr)

    def members(self, s: int, of: np.ndarray) -> list[str]:
        """Names of the members of a set among those of a mask."""
        inside = self.matrix.indices[self.matrix.indptr[s] : self.matrix.indptr[s + 1]]
        return [self.background[f] for f in inside if of[f]]


def membership(
    background: Iterable[str], sets: Mapping[str, Iterable[str]], min_size: int, max_size: int | None
) -> Membership:
    """Sets with at least `min_size` and at most `max_size` members in the background; other members do not count."""
    background = [str(name) for name in background]
    place = {name: f for f, name in enumerate(background)}
    if len(place) < len(background):
        twice = next(name for f, name in enumerate(background) if place[name] != f)
        raise ValueError(f"background has {twice!r} more than once: every feature counts once")
    found = {name: sorted({place[m] for m in members if m in place}) for name, members in sets.items()}
    most = len(background) if max_size is None else max_size
    kept = {name: members for name, members in found.items() if max(1, min_size) <= len(members) <= most}
    if not kept:
        largest = max(map(len, found.values()), default=0)
        raise ValueError(
            f"none of {len(found)} sets has {min_size} to {most} members among the {len(background)} features of the "
            f"background (the largest has {largest}): do both use the same kind of names?"
        )
    bounds = np.concatenate([[0], np.cumsum([len(members) for members in kept.values()])])
    indices = np.concatenate([np.array(members, dtype=np.intp) for members in kept.values()])
    matrix = sparse.csr_matrix((np.ones(indices.size), indices, bounds), (len(kept), len(background)))
    return Membership(list(kept), background, matrix)
