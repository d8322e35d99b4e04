"""What a reader should know before believing the rest: few samples, unequal classes, a suspected batch effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from .content import Caution

FEW_SAMPLES, UNEQUAL, FEW_CELLS = 8, 3.0, 50
STRONG, SURE = 0.5, 0.05  # Cramér's V and p from which a column is said to go with the label
PATIENTS = ("patient", "donor", "subject", "individual", "participant")
_DRAWS = 1999


def cautions_of(obs: pd.DataFrame, label_key: str, sample_key: str, group_key: str | None) -> list[Caution]:
    """All that can be seen from a table with a row per sample and its column `n_cells`."""
    labels = obs[label_key].dropna()
    counts = labels.astype(str).value_counts()
    found = []
    if counts.min() < FEW_SAMPLES:
        found.append(
            Caution(
                "Few samples",
                f"{counts.idxmin()} has {counts.min()} samples. With fewer than {FEW_SAMPLES} per class, scores are "
                "uncertain and genes change with every sample: read intervals, not single numbers.",
            )
        )
    if counts.max() >= UNEQUAL * counts.min():
        found.append(
            Caution(
                "Classes of unequal size",
                f"{counts.idxmax()} has {counts.max()} samples, {counts.idxmin()} {counts.min()}. Balanced accuracy "
                "counts classes alike; plain accuracy would flatter.",
            )
        )
    missing = int(obs[label_key].isna().sum())
    if missing:
        found.append(Caution("Samples without a label", f"{missing} of {len(obs)} were not learned from."))
    small = obs.index[obs["n_cells"] < FEW_CELLS]
    if len(small):
        found.append(
            Caution(
                "Samples of few cells",
                f"{_some(small)} {'has' if len(small) == 1 else 'have'} fewer than {FEW_CELLS}: distances to them are "
                "larger than they should be.",
            )
        )
    return [*found, *_batches(obs.loc[labels.index], label_key, sample_key), *_patients(obs, sample_key, group_key)]


def _batches(obs: pd.DataFrame, label_key: str, sample_key: str) -> list[Caution]:
    found = []
    for name in obs.columns:
        if name in (label_key, sample_key, "n_cells") or str(name).lower() in PATIENTS:
            continue
        values = obs[name].dropna()
        if not 2 <= values.nunique() < len(obs) / 2:
            continue
        strength, p = association(values.astype(str), obs.loc[values.index, label_key].astype(str))
        if strength >= STRONG and p < SURE:
            found.append(
                Caution(
                    "Suspected batch effect",
                    f"{name} goes with {label_key} (Cramér's V {strength:.2f}, p = {p:.2g}). If {name} is technical, a "
                    "batch, what was learned may be the batch: compare within it, or correct for it and learn again.",
                )
            )
    return found


def association(one: pd.Series, other: pd.Series) -> tuple[float, float]:
    """Cramér's V of two columns of classes, and a p-value: Fisher's for two by two, else by permutation.

    >>> association(pd.Series(list("aabb" * 3)), pd.Series(list("xxyy" * 3)))[0]
    1.0
    """
    table = pd.crosstab(one.to_numpy(), other.to_numpy()).to_numpy()
    if min(table.shape) < 2:
        return 0.0, 1.0
    strength = _cramer(table)
    if table.shape == (2, 2):
        return strength, float(stats.fisher_exact(table).pvalue)
    codes, shuffled = pd.factorize(one)[0], pd.factorize(other)[0]
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(_DRAWS):
        drawn = np.zeros(table.shape, dtype=int)
        np.add.at(drawn, (codes, random.permutation(shuffled)), 1)
        hits += _cramer(drawn) >= strength - 1e-9
    return strength, (1 + hits) / (1 + _DRAWS)


def _cramer(table: np.ndarray) -> float:
    total = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    square = ((table - expected) ** 2 / expected).sum()
    return round(float(np.sqrt(square / total / (min(table.shape) - 1))), 12)


def _patients(obs: pd.DataFrame, sample_key: str, group_key: str | None) -> list[Caution]:
    for name in obs.columns:
        if str(name).lower().removesuffix("_id") not in PATIENTS or name in (sample_key, group_key):
            continue
        if obs[name].nunique() < len(obs):
            return [
                Caution(
                    "Several samples of a patient",
                    f"{len(obs)} samples are from {obs[name].nunique()} values of {name}. Held-out scores are too good "
                    f"where a patient is on both sides: keep them together with --group {name}.",
                )
            ]
    return []


def cautions_of_training(
    params: dict[str, Any], converged: bool, epochs: int, interrupted: bool = False
) -> list[Caution]:
    """What the training itself gives rise to."""
    found = []
    if params.get("raw_counts"):
        found.append(
            Caution("Raw counts", "The values look like raw counts: normalise them, take logarithms, and learn again.")
        )
    if interrupted:
        found.append(
            Caution("Training was interrupted", f"Somebody ended it after {epochs} epochs: let it run to its end.")
        )
    elif not converged:
        found.append(
            Caution("Training was stopped", f"It had not converged after {epochs} epochs: allow more with --epochs.")
        )
    return found


def _some(names: Any) -> str:
    shown = ", ".join(map(str, names[:3]))
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
