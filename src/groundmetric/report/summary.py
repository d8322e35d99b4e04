"""Summary and cautions: sentences with numbers for someone who reads nothing else, honest where nothing was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.store import EnsembleResults
from ..evaluation import SizeAssociation, size_association
from ..interpret import batch_effects
from .content import Axis, Caution, Evaluation, SampleMap, Table
from .samples import Predictions

FEW_SAMPLES, UNEQUAL, FEW_CELLS = 8, 3.0, 50
SURE = 0.05  # p and q below which something counts as shown
PATIENTS = ("patient", "donor", "subject", "individual", "participant")


QUESTIONS = {
    "samples": "Which samples are alike?",
    "label": "Can the label be told beyond chance?",
    "genes": "Which {}s?",
    "cells": "Which cells?",
    "care": "What to beware of?",
}


def answers(found: Mapping[str, Sequence[str | None]], feature: str) -> dict[str, str]:
    """Question to answer, from sentences by the short names of questions; where there are none, nothing is said."""
    told = {name: " ".join(sentence for sentence in sentences if sentence) for name, sentences in found.items()}
    return {QUESTIONS[name].format(feature): answer for name, answer in told.items() if answer}


def describe_data(n_cells: int, n_samples: int, labels: str, n_features: int, feature: str) -> str:
    return f"{n_cells:,} cells of {n_samples} samples ({labels}) are described by {n_features:,} {feature}s."


def describe_aim(label: str, ordered: bool) -> str:
    alike = f"of similar {label}" if ordered else f"of the same {label}"
    return f"A distance between cells was learned that brings samples {alike} near to each other."


def describe_neighbours(samples: SampleMap, label: str, numbers: np.ndarray | None = None) -> str | None:
    """How many samples have a nearest one of their own label, and how many would by chance.

    Of labels that are numbers: how far the nearest sample is from theirs, and how far any other.
    """
    column = samples.columns[0]
    if numbers is not None:
        return _near_numbers(samples.distances, numbers, label)
    known = np.flatnonzero(column.codes >= 0) if column.is_class else np.empty(0, dtype=int)
    if known.size < 3:
        return None
    codes = column.codes[known]
    far = samples.distances[np.ix_(known, known)] + np.diag(np.full(known.size, np.inf))
    like = int(np.sum(codes[far.argmin(axis=1)] == codes))
    counts = np.bincount(codes)
    chance = float(np.sum(counts * (counts - 1)) / (known.size - 1))
    return f"The nearest sample has the same {label} for {like} of {known.size} samples; by chance {chance:.0f} would."


def _near_numbers(distances: np.ndarray, numbers: np.ndarray, label: str) -> str | None:
    known = np.flatnonzero(np.isfinite(numbers))
    if known.size < 3:
        return None
    values = numbers[known]
    apart = np.abs(values[:, None] - values[None])
    far = distances[np.ix_(known, known)] + np.diag(np.full(known.size, np.inf))
    near = float(np.mean(apart[np.arange(known.size), far.argmin(axis=1)]))
    chance = float(apart.sum() / (known.size * (known.size - 1)))
    return (
        f"The {label} of a sample and of its nearest differ by {near:.3g} on average; by chance they would by "
        f"{chance:.3g}."
    )


def describe_errors(found: Predictions | None) -> str | None:
    """The samples that are more like those of another label."""
    if found is None or not found.classes:
        return None
    wrong = found.wrong
    if not wrong:
        return "While it was left out, every sample was given its own label."
    place = {name: k for k, name in enumerate(found.names)}
    named = [f"{name} ({found.truth[k]}, taken for {found.predicted[k]})" for name in wrong[:4] for k in [place[name]]]
    more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    text = enumerated(named) if not more else ", ".join(named)
    many = "one was" if len(wrong) == 1 else f"{len(wrong)} were"
    return f"While they were left out, {many} given another label: {text}{more}."


def describe_scores(
    found: Evaluation | None, held_out: dict[str, float] | None = None, pending: bool = False
) -> list[str]:
    """How well the label of unseen samples is found, against the best other method and against chance.

    `held_out` are the scores of an ensemble, which it has without an evaluation.
    """
    if found is None and held_out is not None:
        name, value = next(iter(held_out.items()))
        name = {"r2": "R²"}.get(name, name.replace("_", " "))
        later = " Whether that is more than chance is being tested." if pending else ""
        return [f"On samples while they were left out, by members that had not seen them: {name} {value:.2f}.{later}"]
    if found is None:
        return [
            "Whether this carries over to samples that were not learned from was not tested here. The maps below show "
            "training samples, which always look better than new ones."
        ]
    first, others = found.rows[0], [row for row in found.rows[1:] if row["value"] is not None]
    if first["value"] is None:
        return [f"The held-out evaluation failed: {first['status']}."]
    what = "the label is predicted with an R² of" if found.score == "r2" else (
        "the right label is found with a balanced accuracy of"
    )  # fmt: skip
    text = (
        f"On samples held out from learning, {what} {first['value']:.2f}{_interval(first)}; guessing gives "
        f"{found.chance:.2f}."
    )
    sentences = [text, _chance(found)]
    if others:
        best = max(others, key=lambda row: row["value"])
        sentences.append(_against(best))
    return sentences


def _against(best: dict[str, Any]) -> str:
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
    counts = f"p = {test['p']:.2g}, {len(test['null'])} permutations of the labels"
    if test["p"] <= SURE:  # the smallest p of 19 permutations
        text = f"The cells are associated with the label ({counts})."
    else:
        text = (
            f"No association between cells and label is shown ({counts}): read the rest of this page as noise until "
            "more samples show otherwise."
        )
    separation = test.get("p_values", {}).get("map separation")
    if separation is not None:
        text += (
            f" Separation of the labels in the map of samples: p = {separation:.2g}, from refits with permuted labels."
        )
    return text


def describe_genes(genes: Table, feature: str) -> str:
    """The most important ones, with their direction where that is known."""
    names = [field.name for field in genes.fields]
    where = next((k for k, name in enumerate(names) if name in ("Higher in", "Highest in")), None)
    rises = next((k for k, name in enumerate(names) if name.startswith("With ")), None)

    def said(row: list[Any]) -> str:
        parts = [f"{row[2]:.1%}"]
        if where is not None and row[where] is not None:
            parts.append(f"{names[where].lower()} {row[where]}")
        if rises is not None and row[rises] is not None:
            parts.append(f"{row[rises]} with {names[rises].removeprefix('With ')}")
        return f"{row[1]} ({', '.join(parts)})"

    half = int(np.searchsorted(np.cumsum([row[2] for row in genes.rows]), 0.5)) + 1
    spread = f"Half of the importance lies on {half:,} {feature}{'s' if half > 1 else ''}."
    most = enumerated([said(row) for row in genes.rows[:5]])
    return f"What counts most in the distance: {most}. {spread if half <= len(genes.rows) else ''}".strip()


def describe_stability(found: dict[str, Any] | None, genes: Table, feature: str) -> str | None:
    """How many of the most important ones come up again, and how many are more than chance gives."""
    if found is None:
        return None
    column, n, text = found["selected"], found["n_top"], ""
    if column is not None:
        top = [str(row[1]) for row in genes.rows[:n]]
        often = sum(found["rows"][name][column] >= 0.9 for name in top if name in found["rows"])
        text = (
            f"{found['how']}, {often or 'none'} of the top {n} {feature}s {'is' if often == 1 else 'are'} among the "
            f"top {n} in at least 90% of the {found['of']}."
        )
    if found["q"] is None:
        return text or None
    sure = sum(row[found["q"]] < SURE for row in found["rows"].values())
    many = f"{sure or 'No'} {feature}{' stands' if sure == 1 else 's stand'}"
    return f"{text} {many} out from what permuted labels give (q < {SURE}).".strip()


def describe_types(types: Table | None) -> str | None:
    """The type that carries most of the difference; columns are type, share, low, high, …"""
    if types is None or not types.rows:
        return None
    if types.rows[0][1] is None:
        return (
            "Compared with cells of their own type, cells of other labels are not surely farther: no cell type can be "
            "said to carry the difference."
        )
    name, share, low, high = types.rows[0][:4]
    interval = "" if low is None else f" (95% interval {low:.0%} to {high:.0%})"
    return f"Of the difference between labels, {share:.0%}{interval} lies in {name}, more than in any other cell type."


def describe_axis(axes: Sequence[Axis], types: Table | None) -> str | None:
    """The first axis: its genes, its process, and its cells where a cell type carries the difference."""
    first = next((axis for axis in axes if axis.ends is not None), None)
    if first is None or first.ends is None:
        return None
    low, high = first.ends
    text = f"{first.share:.0%} of the transport between labels runs along one axis, from {low} to {high}"
    text += f", of {enumerated([name for name, _ in first.genes[:3]])}"
    if first.types and types is not None and types.rows[0][1] is not None:
        text += f", in {first.types[0][0]}"
    if first.processes is not None:
        text += f" (process: {first.processes.rows[0][0]})"
    return f"{text}."


def describe_cautions(cautions: Sequence[Caution]) -> str:
    if not cautions:
        return "Nothing stood out: classes are large enough and alike in size, and no column goes with the label."
    return f"{'; '.join(dict.fromkeys(caution.title for caution in cautions))}: see “Read with care”."


def _interval(row: dict[str, Any]) -> str:
    if row.get("low") is None:
        return ""
    return f" (95% interval {row['low']:.2f} to {row['high']:.2f})"


def enumerated(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def describe_cell_numbers(obs: pd.DataFrame, label_key: str, group_key: str | None) -> str:
    """Whether the number of cells per sample is associated with the label."""
    return _cell_numbers(obs, label_key, group_key).sentence(label_key, "sample", "cell")


def _cell_numbers(obs: pd.DataFrame, label_key: str, group_key: str | None) -> SizeAssociation:
    obs = obs[obs[label_key].notna()]
    groups = None if group_key not in obs else obs[group_key].astype(str).to_numpy()
    return size_association(obs["n_cells"].to_numpy(), obs[label_key].astype(str).to_numpy(), groups)


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
    numbers = _cell_numbers(obs, label_key, group_key)
    if numbers.p <= SURE:
        found.append(Caution("Cells per sample", numbers.sentence(label_key, "sample", "cell")))
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
