"""Enrichment: sets of features (pathways, from GMT files) to which the important ones belong."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse, stats

from ._inputs import frame

if TYPE_CHECKING:
    from pandas import DataFrame

Sets = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class Enrichment:
    """Enrichment of sets of features, those with the smallest p-value first.

    Parameters
    ----------
    sets : list of str
        Names of the sets.
    size : array of shape (n_sets,)
        Number of members of each set among the features of the background.
    overlap : list of list of str
        Members of each set among the features that are tested for enrichment.
    effect : array of shape (n_sets,)
        Fold enrichment: size of the overlap over its expected size.
    p : array of shape (n_sets,)
        p-values of the sets.
    q : array of shape (n_sets,)
        p-values adjusted for the number of sets (Benjamini & Hochberg 1995).
    test : str
        Description of the test.

    Examples
    --------
    >>> from groundmetric.interpret import over_representation
    >>> background = [f"g{k}" for k in range(20)]
    >>> sets = {"first": background[:5], "last": background[-5:]}
    >>> found = over_representation(["g0", "g1"], background, sets)
    >>> found.sets, found.size.tolist(), found.overlap, found.effect.tolist()
    (['first', 'last'], [5, 5], [['g0', 'g1'], []], [4.0, 0.0])
    """

    sets: list[str]
    size: np.ndarray
    overlap: list[list[str]]
    effect: np.ndarray
    p: np.ndarray
    q: np.ndarray
    test: str

    def table(self) -> DataFrame:
        """The sets as a table.

        Returns
        -------
        pandas.DataFrame
            A row per set.
        """
        columns = {
            "set": self.sets, "size": self.size, "overlap": [len(names) for names in self.overlap],
            "effect": self.effect, "p": self.p, "q": self.q, "features": [", ".join(names) for names in self.overlap],
        }  # fmt: skip
        return frame(columns)


def over_representation(
    features: Iterable[str], background: Iterable[str], sets: Sets, *, min_size: int = 5, max_size: int | None = 500
) -> Enrichment:
    """Test whether more of these features are in a set than if they had been drawn from the background at random.

    The hypergeometric test, one-sided (Fisher's exact test). The background is what was tested (the features that the
    metric was learned from), not all genes of the genome, else every set of expressed genes looks enriched.

    Parameters
    ----------
    features : iterable of str
        Names of the features, all of them in the background.
    background : iterable of str
        Names of all features that could have been among `features`, each once.
    sets : mapping of str to iterable of str
        Name of a set to its members, as from `read_gmt`.
    min_size : int, default=5
        Smallest set that is tested, by its members in the background.
    max_size : int or None, default=500
        Largest set that is tested, by its members in the background; None: any.

    Returns
    -------
    Enrichment
        Fold enrichment, p- and q-value of every set that is tested.

    Examples
    --------
    >>> from groundmetric.interpret import over_representation
    >>> background = [f"g{k}" for k in range(100)]
    >>> found = over_representation(background[:5], background, {"first": background[:10]})
    >>> found.sets, found.effect.tolist(), f"{found.p[0]:.1e}"
    (['first'], [10.0], '3.3e-06')
    """
    known = membership(background, sets, min_size, max_size)
    asked = {str(name) for name in features}
    chosen = np.array([name in asked for name in known.background])
    if chosen.sum() < len(asked):
        strange = sorted(asked - set(known.background))
        raise ValueError(f"{len(strange)} features are not in the background, e.g. {strange[0]!r}: give both alike")
    if not chosen.any():
        raise ValueError("no features are given: at least one is needed")
    hits = known.matrix @ chosen.astype(float)
    p = stats.hypergeom.sf(hits - 1, chosen.size, known.sizes, int(chosen.sum()))
    fold = hits / (known.sizes * chosen.mean())
    order = np.lexsort((-fold, p))
    return Enrichment(
        sets=[known.names[s] for s in order],
        size=known.sizes[order],
        overlap=[known.members(s, chosen) for s in order],
        effect=fold[order],
        p=p[order],
        q=stats.false_discovery_control(p)[order],
        test=f"over-representation of {int(chosen.sum())} in {chosen.size} features",
    )


def read_gmt(path: str | os.PathLike[str], *, prefix: str = "") -> dict[str, list[str]]:
    """Read the sets of a GMT file (also .gz): a line has a name, a description and the members, with tabs between.

    Parameters
    ----------
    path : path-like
        The file, compressed if its name ends in ".gz".
    prefix : str, default=""
        Only sets whose name begins with it are read, e.g. ``"HALLMARK_"``.

    Returns
    -------
    dict of str to list of str
        Name of a set to its members.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from groundmetric.interpret import read_gmt
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sets.gmt"
    ...     _ = path.write_text("first\\tthree genes\\tA\\tB\\tC\\nsecond\\ttwo genes\\tC\\tD\\n")
    ...     read_gmt(path)
    {'first': ['A', 'B', 'C'], 'second': ['C', 'D']}
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
    index = {name: f for f, name in enumerate(background)}
    if len(index) < len(background):
        twice = next(name for f, name in enumerate(background) if index[name] != f)
        raise ValueError(f"background has {twice!r} more than once: every feature counts once")
    found = {name: sorted({index[m] for m in members if m in index}) for name, members in sets.items()}
    most = len(background) if max_size is None else max_size
    eligible = {name: members for name, members in found.items() if max(1, min_size) <= len(members) <= most}
    if not eligible:
        largest = max(map(len, found.values()), default=0)
        raise ValueError(
            f"none of {len(found)} sets has {min_size} to {most} members among the {len(background)} features of the "
            f"background (the largest has {largest}): do both use the same kind of names?"
        )
    bounds = np.concatenate([[0], np.cumsum([len(members) for members in eligible.values()])])
    indices = np.concatenate([np.array(members, dtype=np.intp) for members in eligible.values()])
    matrix = sparse.csr_matrix((np.ones(indices.size), indices, bounds), (len(eligible), len(background)))
    return Membership(list(eligible), background, matrix)
