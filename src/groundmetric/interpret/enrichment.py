"""Enrichment: sets of features (pathways, from GMT files) to which the important ones belong."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from ._inputs import frame

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Enrichment:
    """Enrichment of sets of features, sorted by p-value.

    Parameters
    ----------
    sets : list of str
        Names of the sets.
    size : array of shape (n_sets,)
        Number of members of each set in the background.
    overlap : list of list of str
        Members of each set among the features that are tested for enrichment.
    effect : array of shape (n_sets,)
        Fold enrichment: size of the overlap over its expected size.
    p : array of shape (n_sets,)
        p-values of the sets.
    q : array of shape (n_sets,)
        p-values adjusted for the number of sets (Benjamini & Hochberg 1995).

    Examples
    --------
    >>> from groundmetric.interpret import over_representation
    >>> background = [f"g{k}" for k in range(20)]
    >>> sets = {"first": background[:5], "last": background[-5:]}
    >>> result = over_representation(["g0", "g1"], background, sets)
    >>> result.sets, result.size.tolist(), result.overlap, result.effect.tolist()
    (['first', 'last'], [5, 5], [['g0', 'g1'], []], [4.0, 0.0])
    """

    sets: list[str]
    size: np.ndarray
    overlap: list[list[str]]
    effect: np.ndarray
    p: np.ndarray
    q: np.ndarray

    def table(self) -> DataFrame:
        """Return a row per set.

        Returns
        -------
        pandas.DataFrame
            Columns set, size, overlap, effect, p, q and features.
        """
        columns = {
            "set": self.sets, "size": self.size, "overlap": [len(names) for names in self.overlap],
            "effect": self.effect, "p": self.p, "q": self.q, "features": [", ".join(names) for names in self.overlap],
        }  # fmt: skip
        return frame(columns)


def over_representation(
    features: Iterable[str],
    background: Iterable[str],
    sets: Mapping[str, Iterable[str]],
    *,
    min_size: int = 5,
    max_size: int | None = 500,
) -> Enrichment:
    """Test whether a set has more of the given features than expected of a random draw from the background.

    The test is the one-sided hypergeometric test (Fisher's exact test). The background is the set of tested features
    (those that the metric was learned from), not all genes of the genome; otherwise every set of expressed genes is
    enriched.

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
    >>> result = over_representation(background[:5], background, {"first": background[:10]})
    >>> result.sets, result.effect.tolist(), f"{result.p[0]:.1e}"
    (['first'], [10.0], '3.3e-06')
    """
    names = [str(name) for name in background]
    position = {name: k for k, name in enumerate(names)}
    if len(position) < len(names):
        raise ValueError("background has a feature more than once: every feature counts once")
    chosen = {str(name) for name in features}
    if not chosen <= position.keys():
        unknown = sorted(chosen - position.keys())
        raise ValueError(f"{len(unknown)} features are not in the background, e.g. {unknown[0]!r}")
    if not chosen:
        raise ValueError("no features are given: at least one is needed")
    members = {name: sorted({position[m] for m in genes if m in position}) for name, genes in sets.items()}
    largest = len(names) if max_size is None else max_size
    tested = {name: rows for name, rows in members.items() if max(1, min_size) <= len(rows) <= largest}
    if not tested:
        raise ValueError(
            f"none of {len(members)} sets has {min_size} to {largest} members among the {len(names)} features of the "
            f"background (the largest has {max(map(len, members.values()), default=0)}): do both use the same names?"
        )
    overlap = [[names[k] for k in rows if names[k] in chosen] for rows in tested.values()]
    size, hits = np.array([len(rows) for rows in tested.values()]), np.array([len(shared) for shared in overlap])
    p = stats.hypergeom.sf(hits - 1, len(names), size, len(chosen))
    fold = hits / (size * (len(chosen) / len(names)))
    order = np.lexsort((-fold, p))
    set_names = list(tested)
    return Enrichment(
        sets=[set_names[k] for k in order],
        size=size[order],
        overlap=[overlap[k] for k in order],
        effect=fold[order],
        p=p[order],
        q=stats.false_discovery_control(p)[order],
    )


def read_gmt(path: str | os.PathLike[str], *, prefix: str = "") -> dict[str, list[str]]:
    """Read the sets of a GMT file: a line has a name, a description and the members, separated by tabs.

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
            name, *columns = line.rstrip("\r\n").split("\t")
            if len(columns) < 2:
                raise ValueError(f"{path.name}, line {number}: expected a name, a description and members, with tabs")
            if not name.startswith(prefix):
                continue
            if name in sets:
                raise ValueError(f"{path.name}, line {number}: a set {name!r} was defined before")
            sets[name] = list(dict.fromkeys(member for member in columns[1:] if member))
    if not sets:
        raise ValueError(f"{path.name} has no sets" + (f" whose name begins with {prefix!r}" if prefix else ""))
    return sets
