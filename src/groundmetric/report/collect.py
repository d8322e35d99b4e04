"""Compute the results that a report shows, as data: `content` makes cards, figures and tables of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.annotations import find_column
from .._internal.validation import ParameterError
from ..evaluation import SizeAssociation, size_association
from ..interpret import batch_effects
from . import interpretation
from .interpretation import Axes, DrawnCells, Stability, listed
from .prediction import Cohort, Evaluation, Predictions, evaluate, permutation_test
from .run import Run, Steps

PERMUTATIONS = 99  # default for an ensemble
LEVEL = 0.05  # significance level of p- and q-values
TYPE_COLUMNS = ("cell_type", "celltype", "cell_types", "cell type", "annotation")  # recognised as cell types
PATIENT_COLUMNS = ("patient", "donor", "subject", "individual", "participant")  # with or without the suffix "_id"
FEW_SAMPLES, UNEQUAL, FEW_CELLS = 8, 3.0, 50


@dataclass(frozen=True)
class Note:
    """Warning, or the reason why the page lacks a result.

    Attributes
    ----------
    title, text : str
        Subject, and what is known about it.
    remedy : dict
        Parameters of `tl.learn` or `report.write` that would change it, with their values.
    """

    title: str
    text: str
    remedy: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.remedy.items())
        return f"{self.text} ({given})." if given else f"{self.text}."


def notes_data(notes: Sequence[Note]) -> list[dict[str, Any]]:
    """Return notes as plain data."""
    return [{"title": note.title, "text": note.text, "remedy": dict(note.remedy)} for note in notes]


@dataclass
class Results:
    """Results of a run. A result is None if it was not computed; `omitted` says why.

    Attributes
    ----------
    run : Run
        The run.
    group_key, type_key : str or None
        Columns of patients and of cell types.
    predictions : Predictions or None
        Held-out predictions.
    evaluation : Evaluation or None
        Held-out scores of all methods, and the permutation test.
    genes : DataFrame
        Most important features, with their direction and, if known, their cell type ("cell_type").
    stability : Stability or None
        Variation of importances, and q-values.
    cells, positions, relevance
        Subsampled cells, their positions along the first two axes, and the relevance of all cells.
    axes : Axes
        Axes of the learned space.
    gene_sets : list or None
        Enriched gene sets of each axis.
    types : dict or None
        Shares of cell types in the difference between labels.
    cell_numbers : SizeAssociation
        Association of the number of cells with the label.
    warnings, omitted : list of Note
        Warnings; results that were not computed.
    """

    run: Run
    group_key: str | None
    type_key: str | None
    cells: DrawnCells
    axes: Axes
    positions: np.ndarray
    relevance: np.ndarray
    genes: pd.DataFrame
    cell_numbers: SizeAssociation
    warnings: list[Note]
    types: dict[str, Any] | None = None
    gene_sets: list[list[list[Any]]] | None = None
    predictions: Predictions | None = None
    evaluation: Evaluation | None = None
    stability: Stability | None = None
    omitted: list[Note] = field(default_factory=list)

    def optional(self, title: str, compute: Callable[[], Any]) -> Any:
        """Return a result that needs the values of the cells, or None with a note."""
        if not self.run.has_values:
            self.omitted.append(Note(title, "needs the values of the cells, which the run does not have"))
            return None
        try:
            return compute()
        except ValueError as error:
            self.omitted.append(Note(title, str(error)))
            return None


def collect(
    run: Run,
    *,
    group_key: str | None = None,
    cell_type_key: str | None = None,
    gene_sets: str | os.PathLike[str] | None = None,
    permutations: int | None = None,
    evaluation: bool = True,
    steps: Steps | None = None,
) -> Results:
    """Compute all results of a run; parameters as in `write`."""
    steps = Steps() if steps is None else steps
    if permutations and not evaluation:
        raise ParameterError("permutations", permutations, ", but nothing is evaluated", {"evaluation": True})
    if evaluation and run.folder is not None and not run.has_values:
        problem = f", and the file {run.findings.get('cells')!r} of the run does not exist: give the file of the cells"
        raise ParameterError("cells", None, problem, {"evaluation": False})
    if permutations is None:  # every permutation of a single metric costs a whole cross-validation
        permutations = PERMUTATIONS if run.results is not None and evaluation else 0
    type_key = _type_key(run, cell_type_key)
    group_key = run.group_key if group_key is None else group_key
    cells = interpretation.draw_cells(run)
    axes = interpretation.find_axes(run, cells, type_key, steps)
    obs = sample_table(run)
    results = Results(
        run, group_key, type_key, cells, axes,
        positions=interpretation.cell_positions(run, cells, axes),
        relevance=interpretation.cell_relevance(run, cells, type_key, steps),
        genes=interpretation.gene_importance(run),
        cell_numbers=cell_number_association(obs, run.label_key, group_key),
        warnings=[
            *sample_warnings(obs, run.label_key, run.sample_key, group_key, run.samples.obsp[f"{run.key}_distances"]),
            *training_warnings(run),
        ],
    )  # fmt: skip
    if run.results is not None:
        results.stability = interpretation.member_stability(run)
        results.predictions = Predictions.of_ensemble(run.results)
    _collect_annotations(results, gene_sets, steps)
    if evaluation:
        _collect_tests(results, permutations, steps)
    else:
        results.omitted.append(Note("Baselines, tests and q-values", "not computed", {"evaluation": True}))
    if (overrun := steps.overrun()) is not None:
        results.warnings.append(Note("Time budget exceeded", overrun))
    return results


def _collect_annotations(results: Results, gene_sets: str | os.PathLike[str] | None, steps: Steps) -> None:
    """Add results that need cell types or gene sets."""
    run, type_key, omitted = results.run, results.type_key, results.omitted
    if type_key is None:
        omitted.append(Note("Cell types", "obs has no known column of cell types", {"cell_type_key": "COLUMN"}))
    else:
        results.types = interpretation.type_relevance(run, results.cells, type_key, steps)
    if gene_sets is None or not run.is_expression:
        omitted.append(Note("Gene sets of the axes", "no gene sets were given", {"gene_sets": "FILE.gmt"}))
        return
    features = run.stored.features
    results.gene_sets = interpretation.gene_sets_of_axes(results.axes, features, gene_sets)
    tested = zip(results.gene_sets, results.axes.separating, strict=True)
    if empty := [str(a) for a, (rows, separating) in enumerate(tested, 1) if separating and not rows]:
        omitted.append(Note(f"Gene sets of axis {', '.join(empty)}", f"no set is enriched (q < {LEVEL})"))


def _collect_tests(results: Results, permutations: int, steps: Steps) -> None:
    """Add results that need the values of the cells: scores, stability, q-values and the permutation test."""
    run, type_key, cohort = results.run, results.type_key, Cohort(results.run, results.group_key)
    if type_key is not None and run.is_expression:
        genes = list(results.genes.index)
        compared = interpretation.gene_cell_types
        types = results.optional("Cell types of genes", lambda: compared(cohort, type_key, genes, steps))
        results.genes["cell_type"] = None if types is None else pd.Series(types)
    if run.results is None:
        refits = interpretation.refit_stability
        results.stability = results.optional("Stability of genes", lambda: refits(cohort, steps))
    if permutations and results.stability is not None:
        q = results.optional("q-values of genes", lambda: interpretation.q_values(cohort, steps))
        results.stability = replace(results.stability, q=q)
    scores = results.optional("Baselines", lambda: evaluate(cohort, steps))
    if scores is not None:
        results.evaluation = scores
        results.predictions = scores.predictions or results.predictions
    title = "Permutation test"
    if run.is_ordered and run.results is None:
        results.omitted.append(Note(title, "for ordered labels it needs an ensemble", {"method": "ensemble"}))
    elif not permutations:
        results.omitted.append(Note(f"{title} and q-values", "not computed", {"permutations": PERMUTATIONS}))
    elif scores is not None:
        answer = results.optional(title, lambda: permutation_test(cohort, permutations, steps))
        if answer is not None:
            results.evaluation = replace(scores, test=answer["test"])
            results.omitted += [Note(title, note) for note in answer["notes"]]


def _type_key(run: Run, key: str | None) -> str | None:
    if key is None:
        return next((str(name) for name in run.cells.obs.columns if str(name).lower() in TYPE_COLUMNS), None)
    find_column(run.cells.obs, key, "cell_type_key")
    return key


def sample_table(run: Run) -> pd.DataFrame:
    """Return the known columns of the samples, without predictions; many ordered numbers as thirds."""
    obs = run.samples.obs.drop(columns=run.own_columns)
    return obs.assign(**{run.label_key: run.classes.reindex(obs.index)}) if run.is_ordered else obs


def cell_number_association(obs: pd.DataFrame, label_key: str, group_key: str | None) -> SizeAssociation:
    """Test whether the number of cells per sample is associated with the label."""
    obs = obs[obs[label_key].notna()]
    groups = None if group_key not in obs else obs[group_key].astype(str).to_numpy()
    return size_association(obs["n_cells"].to_numpy(), obs[label_key].astype(str).to_numpy(), groups)


def sample_warnings(
    obs: pd.DataFrame, label_key: str, sample_key: str, group_key: str | None, distances: Any = None
) -> list[Note]:
    """Return warnings about a cohort, from a row per sample with its number of cells ("n_cells") and distances."""
    labelled = obs[label_key].notna().to_numpy()
    counts = obs[label_key].dropna().astype(str).value_counts()
    small = list(obs.index[obs["n_cells"] < FEW_CELLS])
    notes = []
    if counts.min() < FEW_SAMPLES:
        text = f"{counts.idxmin()} has {counts.min()} samples; with fewer than {FEW_SAMPLES} per label, scores are "
        notes.append(Note("Few samples", f"{text}uncertain and the ranking of genes is unstable"))
    if counts.max() >= UNEQUAL * counts.min():
        text = f"{counts.idxmax()} has {counts.max()} samples, {counts.idxmin()} has {counts.min()}"
        notes.append(Note("Unequal class sizes", f"{text}; balanced accuracy weights all labels equally"))
    if not labelled.all():
        notes.append(Note("Samples without a label", f"{int(np.sum(~labelled))} of {len(obs)} were not used"))
    if small:
        text = f"{listed(small, 3)} {'has' if len(small) == 1 else 'have'} fewer than {FEW_CELLS} cells"
        notes.append(Note("Samples with few cells", f"{text}, which increases their distances to other samples"))
    numbers = cell_number_association(obs, label_key, group_key)
    if numbers.p <= LEVEL:
        notes.append(Note("Number of cells", numbers.sentence(label_key, "sample", "cell").rstrip(".")))
    among = None if distances is None else np.asarray(distances)[np.ix_(labelled, labelled)]
    notes += _batch_warnings(obs[labelled], label_key, sample_key, group_key, among)
    for name in obs.columns:
        repeated = _is_patient(name) and name not in (sample_key, group_key) and obs[name].nunique() < len(obs)
        if repeated:
            text = f"the {len(obs)} samples come from {obs[name].nunique()} values of {name}; held-out scores are too "
            text += "high if samples of one patient are in both training and test set: keep them together"
            return [*notes, Note("Several samples per patient", text, {"group_key": str(name)})]
    return notes


def _is_patient(name: Any) -> bool:
    return str(name).lower().removesuffix("_id") in PATIENT_COLUMNS


def _batch_warnings(
    obs: pd.DataFrame, label_key: str, sample_key: str, group_key: str | None, distances: np.ndarray | None
) -> list[Note]:
    """Return warnings about columns that explain the distances or are associated with the label."""
    candidates = obs.drop(columns=[label_key, sample_key, "n_cells"], errors="ignore")
    tested = batch_effects(distances, obs[label_key].astype(str), candidates, groups=obs.get(group_key))
    notes = []
    for k, name in enumerate(tested.covariates):
        explains, associated = tested.in_distances(LEVEL)[k], tested.with_labels(LEVEL)[k]
        if _is_patient(name):  # a patient has one label in most studies: that is not a batch effect
            explains = explains and obs.groupby(name, observed=True)[label_key].nunique().max() > 1
            associated = False
        texts = []
        if explains:
            texts.append(
                f"the nearest sample has the same {name} for {tested.neighbors[k]:.0%} of the samples "
                f"({tested.neighbors_expected[k]:.0%} expected by chance, p = {tested.p[k]:.2g}), and {name} explains "
                f"{tested.r2[k]:.0%} of the squared distances ({tested.r2_expected[k]:.0%} expected by chance; "
                f"{label_key} {tested.label_r2[k]:.0%})"
            )
        if associated:
            texts.append(
                f"{name} is associated with {label_key} (Cramér's V {tested.association[k]:.2f}, "
                f"p = {tested.association_p[k]:.2g}), so the metric may describe {name} instead"
            )
        if texts:
            remedy = f"if {name} is technical, learn again within batches"
            notes.append(Note("Possible batch effect", "; ".join([*texts, remedy]), {"batch_key": str(name)}))
    return notes


def training_warnings(run: Run) -> list[Note]:
    """Return warnings about the training."""
    notes = []
    if run.stored.params.get("raw_counts"):
        notes.append(Note("Raw counts", "the values look like raw counts: normalise, take logarithms and learn again"))
    if run.results is None:
        history = run.entry["history"]
        epochs = len(history["loss"])
        if run.findings.get("interrupted"):
            notes.append(Note("Training was interrupted", f"it ended after {epochs} epochs"))
        elif not run.entry["converged"] and any(history["active"][-1:]):  # active triplets are left
            text = f"training stopped after {epochs} epochs; allow more"
            notes.append(Note("Training did not converge", text, {"max_epochs": 2 * epochs}))
        return notes
    scores = run.results.scores
    chance = -np.log(run.results.classes.size) if "log_probability" in scores else 0.0
    if scores.get("log_probability", scores.get("r2", 0.0)) <= chance:
        text = "held-out predictions are not better than guessing: these samples do not show that the label can be "
        text += "predicted from the cells, and the metric is close to the Euclidean one"
        notes.append(Note("Not better than guessing", text))
    return notes
