"""Summary and cautions: sentences with numbers for someone who reads nothing else, honest where nothing was shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.store import EnsembleResults
from ..interpret import batch_effects
from .content import Caution, Evaluation, Table

FEW_SAMPLES, UNEQUAL, FEW_CELLS = 8, 3.0, 50
SURE = 0.05  # p and q below which something counts as shown
PATIENTS = ("patient", "donor", "subject", "individual", "participant")


def describe_data(n_cells: int, counts: dict[str, int], label: str, n_features: int, feature: str) -> str:
    groups = _list([f"{count} {name}" for name, count in counts.items()])
    return (
        f"From {n_cells:,} cells of {sum(counts.values())} samples ({groups}), described by {n_features:,} {feature}s, "
        f"a distance between cells was learned that brings samples of the same {label} near to each other."
    )


def describe_scores(found: Evaluation | None, held_out: dict[str, float] | None = None) -> list[str]:
    """How well the label of unseen samples is found, against the best other method and against chance.

    `held_out` are the scores of an ensemble, which it has without an evaluation.
    """
    if found is None and held_out is not None:
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in held_out.items())
        return [f"On samples while they were left out, by members that had not learned from them: {shown}."]
    if found is None:
        return [
            "Whether this carries over to samples that were not learned from was not tested here. The maps below show "
            "training samples, which always look better than new ones."
        ]
    first, others = found.rows[0], [row for row in found.rows[1:] if row["value"] is not None]
    if first["value"] is None:
        return [f"The held-out evaluation failed: {first['status']}."]
    text = (
        f"On samples held out from learning, it finds the right label with a balanced accuracy of {first['value']:.2f}"
        f"{_interval(first)}; guessing gives {found.chance:.2f}."
    )
    sentences = [text]
    if others:
        best = max(others, key=lambda row: row["value"])
        sentences.append(_against(best))
    sentences.append(_chance(found))
    return sentences


def _against(best: dict) -> str:
    start = f"The best of the other methods, {best['method']}, reaches {best['value']:.2f}{_interval(best)}: "
    lead, p = best.get("lead"), best.get("p")
    if lead is None:
        return start + "the two could not be compared."
    sure = p is not None and p < SURE
    amount = f"{abs(lead):.2f}"
    if best.get("lead_low") is not None:
        amount += f"; 95% interval of the lead {best['lead_low']:+.2f} to {best['lead_high']:+.2f}"
    if p is not None:
        amount += f"; p = {p:.2g}"
    if lead > 0 and sure:
        return f"{start}the learned metric is better (by {amount})."
    if lead < 0 and sure:
        return f"{start}the learned metric is worse (by {amount})."
    if lead == 0:
        return f"{start}no better and no worse, on these samples."
    return f"{start}these samples do not show which is better ({'ahead' if lead > 0 else 'behind'} by {amount})."


def _chance(found: Evaluation) -> str:
    test = found.test
    if test is None:
        return "Whether that is more than chance was not tested by permuting the labels."
    n = len(test["null"])
    if test["p"] < SURE:
        return f"With labels permuted, scores that high are rare (p = {test['p']:.2g}, {n} permutations)."
    return (
        f"Scores that high also come up with permuted labels (p = {test['p']:.2g}, {n} permutations): these data do "
        "not show that the label can be told from the cells; read what follows as noise until shown otherwise."
    )


def describe_genes(names: Sequence[str], shares: Sequence[float], feature: str) -> str:
    half, total = 0, 0.0
    for share in shares:
        half, total = half + 1, total + share
        if total >= 0.5:
            break
    top = _list([f"{name} ({share:.1%})" for name, share in list(zip(names, shares, strict=True))[:5]])
    spread = f"Half of the importance lies on {half:,} of {len(names):,} {feature}s."
    return f"What counts most in the distance: {top}. {spread}"


def describe_stability(found: dict | None, top: Sequence[str], feature: str) -> str | None:
    """How many of the most important ones come up again, and how many are more than chance gives."""
    if found is None:
        return None
    column, n = found["selected"], found["n_top"]
    shares = [found["rows"][name][column] for name in top[:n] if name in found["rows"]]
    often = sum(share >= 0.9 for share in shares)
    text = (
        f"{found['how']}, {often} of the top {n} {feature}s are among the top {n} in at least 90% of the {found['of']}."
    )
    if not found["permutations"]:
        return text
    sure = sum(row[-1] < SURE for row in found["rows"].values())
    many = f"{sure or 'No'} {feature}{' stands' if sure == 1 else 's stand'}"
    return f"{text} {many} out from what permuted labels give (q < {SURE})."


def describe_types(types: Table | None) -> str | None:
    """The type that carries most of the difference; columns are type, share, low, high, …"""
    if types is None or not types.rows or types.rows[0][1] is None:
        return None
    name, share, low, high = types.rows[0][:4]
    interval = "" if low is None else f" (95% interval {low:.0%} to {high:.0%})"
    return f"Of the cell types, {name} carries most of the difference: {share:.0%} of it{interval}."


def _interval(row: dict) -> str:
    if row.get("low") is None:
        return ""
    if row["low"] == row["high"]:  # all right, or all wrong: drawing samples anew cannot show how uncertain that is
        return " (the same in every draw of samples, so that there is no interval)"
    return f" (95% interval {row['low']:.2f} to {row['high']:.2f})"


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def cautions_of(
    obs: pd.DataFrame,
    label_key: str,
    sample_key: str,
    group_key: str | None,
    distances: np.ndarray | None = None,
) -> list[Caution]:
    """All that can be seen from a table with a row per sample and its column `n_cells`, and distances of the rows."""
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
    known = obs[label_key].notna().to_numpy()
    among = None if distances is None else distances[np.ix_(known, known)]
    batches = _batches(obs[known], label_key, sample_key, group_key, among)
    return [*found, *batches, *_patients(obs, sample_key, group_key)]


def _batches(
    obs: pd.DataFrame, label_key: str, sample_key: str, group_key: str | None, distances: np.ndarray | None
) -> list[Caution]:
    """Columns that show in the distances or go with the label; `distances` are those of the rows of `obs`."""
    patients = [name for name in obs.columns if str(name).lower().removesuffix("_id") in PATIENTS]
    candidates = obs.drop(columns=[label_key, sample_key, "n_cells"], errors="ignore")
    labels, groups = obs[label_key].astype(str), obs.get(group_key)
    tested = batch_effects(distances, labels, candidates, groups=groups)
    found = []
    for k, name in enumerate(tested.covariates):
        shown, tied = tested.in_distances(SURE)[k], tested.with_labels(SURE)[k]
        if name in patients:  # a patient has the same label in most studies: that is no batch effect
            shown, tied = shown and obs.groupby(name, observed=True)[label_key].nunique().max() > 1, False
        texts = []
        if shown:
            texts.append(
                f"{name} shows in the distances: of {tested.neighbors[k]:.0%} of the samples the nearest has the same "
                f"{name} (by chance {tested.neighbors_expected[k]:.0%}; p = {tested.p[k]:.2g}), and it explains "
                f"{tested.r2[k]:.0%} of the squared distances (by chance {tested.r2_expected[k]:.0%}), {label_key} "
                f"{tested.label_r2[k]:.0%}."
            )
        if tied:
            texts.append(
                f"{name} goes with {label_key} (Cramér's V {tested.association[k]:.2f}, p = "
                f"{tested.association_p[k]:.2g}): what was learned may be {name}."
            )
        if texts:
            remedy = f"If {name} is technical, learn again with --batch {name}, which compares samples within it."
            found.append(Caution("Suspected batch effect", " ".join([*texts, remedy])))
    return found


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


def cautions_of_ensemble(results: EnsembleResults) -> list[Caution]:
    """What the held-out predictions of an ensemble give rise to."""
    scores = results.scores
    guessing = -np.log(results.classes.size) if "log_probability" in scores else 0.0
    if scores.get("log_probability", scores.get("r2", 0.0)) > guessing:
        return []
    return [
        Caution(
            "No better than guessing",
            "What members predict for samples that were left out is no better than a guess: these samples do not show "
            "that the label can be told from the cells, and the metric is mostly or wholly the Euclidean one.",
        )
    ]


def _some(names: Any) -> str:
    shown = ", ".join(map(str, names[:3]))
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
