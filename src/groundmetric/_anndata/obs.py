"""Columns of `obs`: which sample a cell is from, and the label of each sample."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Samples:
    """Which sample each cell is from.

    Attributes
    ----------
    names : names of the samples as text, in the order in which they first appear
    codes : array of shape (n_cells,), the place of each cell's sample in `names`
    """

    names: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return self.names.size

    @property
    def first(self) -> np.ndarray:
        """The first cell of each sample."""
        return np.unique(self.codes, return_index=True)[1]

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.codes, minlength=len(self))


def samples_of(obs: pd.DataFrame, sample_key: str) -> Samples:
    """The sample of each cell, from a column of text, numbers or categories."""
    column = find_column(obs, sample_key, "sample_key")
    missing = int(column.isna().sum())
    if missing:
        raise ValueError(
            f"obs[{sample_key!r}] is missing for {missing} of {len(column)} cells: every cell needs a sample; drop "
            f"them with adata[adata.obs[{sample_key!r}].notna()]"
        )
    if not len(column):
        raise ValueError("there are no cells: at least one sample with one cell is needed")
    codes, values = pd.factorize(column)
    names = np.array([str(value) for value in values], dtype=object)
    if len(set(names)) < names.size:
        raise ValueError(f"obs[{sample_key!r}] holds both text and numbers that read the same: make all of it text")
    return Samples(names, codes)


def labels_of(obs: pd.DataFrame, label_key: str, samples: Samples, sample_key: str) -> pd.Series:
    """The labels, by the names of the samples that have one: a sample whose cells all lack a label has none."""
    column = find_column(obs, label_key, "label_key")
    codes, values = pd.factorize(column)  # -1 where a label is missing
    label = codes[samples.first]
    differs = np.flatnonzero(codes != label[samples.codes])
    if differs.size:
        sample = samples.codes[differs[0]]
        found = column[samples.codes == sample].drop_duplicates().tolist()
        raise ValueError(
            f"sample {samples.names[sample]!r} has labels {found} in obs[{label_key!r}]: a sample needs exactly one; "
            f"fix it, drop the sample, or check that {sample_key!r} is the column of samples"
        )
    texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(
            f"obs[{label_key!r}] holds both text and numbers that read the same (e.g. {twice!r}): make all of it text"
        )
    labelled = label >= 0
    known = np.asarray(values)[label[labelled]]
    known = known if known.dtype.kind in "biuf" else known.astype(str)
    return pd.Series(known, index=samples.names[labelled])


def constant_columns(obs: pd.DataFrame, samples: Samples) -> pd.DataFrame:
    """The columns that say the same of all cells of a sample, with a row per sample."""
    kept = {}
    for name, column in obs.items():
        codes = pd.factorize(column)[0]  # -1 where a value is missing
        if np.array_equal(codes, codes[samples.first][samples.codes]):
            kept[name] = column.iloc[samples.first].array
    return pd.DataFrame(kept, index=samples.names.astype(str))


def draw(samples: Samples, n: int | None, seed: int, turn: int = 0) -> np.ndarray:
    """Rows of at most n cells of every sample, in order; all of them where n is None.

    The draw of a sample depends on the seed, the turn and its own cells alone, not on which other samples there are.
    """
    if n is None:
        return np.arange(samples.codes.size)
    by_sample = np.split(np.argsort(samples.codes, kind="stable"), np.cumsum(samples.sizes)[:-1])
    chosen = []
    for name, rows in zip(samples.names, by_sample, strict=True):
        # No byte of a name is above 255, so that no turn is the first one of another name.
        random = np.random.default_rng([seed, *str(name).encode(), *([255 + turn] if turn else [])])
        chosen.append(random.choice(rows, n, replace=False) if rows.size > n else rows)
    return np.sort(np.concatenate(chosen))


def check_draw(n: Any, seed: Any, name: str = "n_cells") -> None:
    """At most so many cells per sample (None: all of them), and a seed."""
    if n is not None and (not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1):
        raise ValueError(f"{name} is {n!r}: expected a whole number of at least 1, or None for all cells")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"random_state is {seed!r}: expected a whole number of at least 0")


def find_column(frame: pd.DataFrame, name: Any, argument: str, where: str = "obs") -> pd.Series:
    """A column, or an error that lists those that there are, the likeliest first."""
    if name not in frame.columns:
        raise ValueError(f"{argument} is {name!r}, but {where} has no such column: {listed(name, frame.columns)}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"{where} has {column.shape[1]} columns named {name!r}: rename all but one")
    return column


def listed(name: Any, names: Iterable[Any]) -> str:
    """What there is, nearest to the name first.

    >>> listed("paitent", ["disease", "patient"])
    "there are 'patient', 'disease'"
    """

    def nearness(other: Any) -> float:
        return difflib.SequenceMatcher(None, str(name).lower(), str(other).lower()).ratio()

    ordered = sorted(names, key=nearness, reverse=True)
    return f"there are {', '.join(map(repr, ordered))}" if ordered else "there are none"
