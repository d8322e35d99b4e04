"""Results that a report shows, as data: scores, warnings, genes, axes, cell types and cells.

`collect` computes them step by step; `page` makes cards, figures and tables of them. Axes, cells and cell types are
computed from one subsample of cells, which the map of cells shows: transport plans between all cells would take most of
the time of a report.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import spearmanr

from .._anndata.cohort import LEVEL, Note, cell_types_of, cohort_problems, find_column, samples_of
from .._anndata.store import N_TOP
from .._internal.tables import listed
from .._internal.validation import ParameterError
from ..distributions import Distributions
from ..ensemble.members import TransportView
from ..evaluation import SizeAssociation, learning_curve
from ..interpret import (
    counterfactual,
    feature_significance,
    influence,
    over_representation,
    read_gmt,
    stability,
)  # fmt: skip
from ..interpret.axes import canonical_axes
from ..interpret.flows import Bag, partners, relevance_in_bags, travel_of_cells
from ..metrics.base import GroundMetric
from .run import BudgetError, Cohort, Evaluation, Predictions, Run, Steps, duration, evaluate, permutation_test

PERMUTATIONS = 99  # default for an ensemble
TYPE_COLUMNS = ("cell_type", "celltype", "cell_types", "cell type", "annotation")  # recognised as cell types
MAX_GENES = 300  # rows of the table of genes
FEATURE_PERMUTATIONS = 1999  # testing one feature is a sort: many permutations are cheap
REFIT_CELLS = 60  # cells per sample in refits without a patient, of parts of the cohort, and for changes of a patient
MAX_CHANGED, MAX_CHANGES = 4, 8  # patients whose changes are shown, and rows for each
MAX_DECISIVE = 3  # with more patients that change the conclusion, the p-value is merely close to the level
REFITS = 20  # of a single metric, for the stability of its genes
PARTNERS = 5  # samples of every label that a sample is compared with
MAX_CELLS, MIN_CELLS = 3000, 100  # subsampled cells of all samples, and of each sample if there are many
MIN_SHARE, MAX_AXES = 0.05, 6  # an axis is shown from this share of the difference between labels on
DRAWS = 500  # bootstrap samples for the intervals of cell types
AXIS_GENES, AXIS_TYPES = 12, 3  # listed genes and cell types of an axis
ENRICHED_GENES, MAX_SETS, SET_GENES = 50, 8, 10  # tested genes of an axis, listed gene sets, listed genes of a set


@dataclass
class Results:
    """Results of a run. A result is None if it was not computed; `omitted` says why."""

    run: Run
    group_key: str | None  # column of patients
    type_key: str | None  # column of cell types
    cells: DrawnCells
    axes: Axes
    relevance: np.ndarray  # of all cells; NaN if not subsampled
    genes: pd.DataFrame  # most important features, with their direction and cell type ("cell_type")
    cell_numbers: SizeAssociation
    warnings: list[Note]
    types: dict[str, Any] | None = None  # shares of cell types in the difference between labels
    gene_sets: list[list[list[Any]]] | None = None  # enriched gene sets of each axis
    predictions: Predictions | None = None  # held-out
    evaluation: Evaluation | None = None  # held-out scores of all methods, and the permutation test
    stability: Stability | None = None
    influence: dict[str, Any] | None = None  # results without each patient
    plan: dict[str, Any] | None = None  # accuracy and power for larger numbers of patients
    changes: list[dict[str, Any]] | None = None  # of single patients on the way to another label
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
    if cell_type_key is not None:
        find_column(run.cells.obs, cell_type_key, "cell_type_key")
    columns = [str(name) for name in run.cells.obs.columns]
    type_key = cell_type_key or next((name for name in columns if name.lower() in TYPE_COLUMNS), None)
    group_key = run.group_key if group_key is None else group_key
    cells = draw_cells(run)
    obs = run.samples.obs.drop(columns=run.own_columns)
    if run.is_ordered:  # many numbers are compared by thirds
        obs = obs.assign(**{run.label_key: run.classes.reindex(obs.index)})
    distances = run.samples.obsp[f"{run.key}_distances"]
    problems, association = cohort_problems(obs, run.label_key, run.sample_key, group_key, distances=distances)
    results = Results(
        run, group_key, type_key, cells,
        axes=find_axes(run, cells, type_key, steps),
        relevance=cell_relevance(run, cells, type_key, steps),
        genes=gene_importance(run),
        cell_numbers=association,
        warnings=[*problems, *training_warnings(run)],
    )  # fmt: skip
    if run.results is not None:
        low, high = run.results.interval
        n_top, repeats = min(N_TOP, len(run.stored.features)), f"{run.results.n_members} ensemble members"
        results.stability = Stability(low, high, run.results.selected, n_top, repeats)
        results.predictions = Predictions.of_ensemble(run.results)
    if type_key is None:
        results.omitted.append(Note("Cell types", "no column of obs is recognised", {"cell_type_key": "COLUMN"}))
    else:
        results.types = type_relevance(run, cells, type_key, steps)
    if gene_sets is None or not run.is_expression:
        results.omitted.append(Note("Gene sets of the axes", "no gene sets were given", {"gene_sets": "FILE.gmt"}))
    else:
        results.gene_sets = gene_sets_of_axes(results.axes, run.stored.features, gene_sets)
        tested = zip(results.gene_sets, results.axes.separating, strict=True)
        if empty := [str(a) for a, (rows, separating) in enumerate(tested, 1) if separating and not rows]:
            note = Note(f"Gene sets of axis {', '.join(empty)}", f"no set is enriched (q < {LEVEL})")
            results.omitted.append(note)
    if evaluation:
        _collect_tests(results, permutations, steps)
    else:
        results.omitted.append(Note("Baselines, tests and q-values", "not computed", {"evaluation": True}))
    if (overrun := steps.overrun()) is not None:
        results.warnings.append(Note("Time budget exceeded", overrun))
    return results


def _collect_tests(results: Results, permutations: int, steps: Steps) -> None:
    """Add results that need the values of the cells: scores, stability, q-values and the permutation test."""
    run, type_key, cohort = results.run, results.type_key, Cohort(results.run, results.group_key, results.type_key)
    if type_key is not None and run.is_expression:
        genes = list(results.genes.index)
        types = results.optional("Cell types of genes", lambda: gene_cell_types(cohort, type_key, genes, steps))
        results.genes["cell_type"] = None if types is None else pd.Series(types)
    if run.results is None:
        results.stability = results.optional("Stability of genes", lambda: refit_stability(cohort, steps))
    if permutations and results.stability is not None:
        q = results.optional("q-values of genes", lambda: q_values(cohort, steps))
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
    if run.results is not None and not run.is_ordered:
        title = "Changes of single patients"
        results.changes = results.optional(title, lambda: patient_changes(cohort, steps))
        if results.changes == []:
            results.omitted.append(Note(title, "a label has too few patients to leave out pairs of them"))
    if permutations and run.results is not None:
        if not run.is_ordered:
            results.plan = results.optional("Planning", lambda: study_plan(cohort, steps))
        results.influence = results.optional("Influence of patients", lambda: patient_influence(cohort, steps))
    if results.influence is not None:
        names = [row["patient"] for row in results.influence["rows"] if row["changes conclusion"]]
        if 0 < len(names) <= MAX_DECISIVE:
            text = f"without {listed(names, MAX_DECISIVE)} the p-value of association crosses {LEVEL}"
            results.warnings.append(Note("Single patients decide the conclusion", text))


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
        elif not run.entry["converged"] and any(history["active"][-1:]):
            text = f"training stopped after {epochs} epochs with active triplets; allow more"
            notes.append(Note("Training did not converge", text, {"max_epochs": 2 * epochs}))
        return notes
    scores = run.results.scores
    chance = -np.log(run.results.classes.size) if "log_probability" in scores else 0.0
    if scores.get("log_probability", scores.get("r2", 0.0)) <= chance:
        text = "held-out predictions are not better than guessing: these samples do not show that the label can be "
        text += "predicted from the cells, and the metric is close to the Euclidean one"
        notes.append(Note("Not better than guessing", text))
    return notes


# Genes


def gene_importance(run: Run) -> pd.DataFrame:
    """Return importance and direction of the most important features, a row each.

    The direction compares means of samples: the columns "highest" and "lowest" (labels) with the difference in standard
    deviations of the cells ("effect"); for ordered labels, Spearman's correlation with the label ("effect").
    """
    metric, samples = run.stored.metric, run.samples
    table = pd.DataFrame({"importance": metric.importance()}, index=run.stored.features)
    table = table.sort_values("importance", ascending=False, kind="stable").head(MAX_GENES)
    if samples.X is None or not run.is_expression or metric.variances is None:
        return table
    labels = run.stored.labels.reindex(samples.obs_names)
    labelled = labels.notna().to_numpy()
    means = pd.DataFrame(np.asarray(samples.X)[labelled], columns=samples.var_names).reindex(columns=table.index)
    if run.is_ordered and run.results is not None:
        numbers = pd.Series(run.results.numbers, run.results.samples).loc[list(samples.obs_names[labelled])]
        varies = means.nunique() > 1
        effect = [spearmanr(means[g], numbers).statistic if varies[g] else np.nan for g in table.index]
        return table.assign(effect=effect)
    by_label = means.groupby(labels[labelled].astype(str).to_numpy()).mean()
    by_label = by_label.loc[:, by_label.notna().all()]  # features that were measured in all labels
    spread = pd.Series(np.sqrt(metric.variances), run.stored.features)[by_label.columns].replace(0.0, 1.0)
    table["highest"], table["lowest"] = by_label.idxmax(), by_label.idxmin()
    table["effect"] = (by_label.max() - by_label.min()) / spread
    return table


def gene_cell_types(cohort: Cohort, type_key: str, genes: list[str], steps: Steps) -> dict[str, str]:
    """Return, by gene, the cell type in which the means of the labels are farthest apart.

    Means are first over the cells of a sample, then over samples: all samples have the same weight.
    """

    def compute() -> dict[str, str]:
        with steps.step("comparing genes within cell types"):
            run, D = cohort.run, cohort.metric_features
            column = {name: f for f, name in enumerate(run.stored.features)}
            drawn, sample = _drawn_samples(run)
            rows = np.concatenate([np.flatnonzero(drawn & (sample == name)) for name in D.names])
            types, codes = _type_codes(run, type_key, rows)
            cell = codes + len(types) * np.repeat(np.arange(len(D)), D.sizes)  # type and sample of each cell
            counts = np.bincount(cell, minlength=len(types) * len(D))
            sums = sparse.csr_array((np.ones(cell.size), (cell, np.arange(cell.size))), (counts.size, cell.size))
            values = sums @ D.points[:, [column[gene] for gene in genes]]
            means = (values.toarray() if sparse.issparse(values) else values) / np.maximum(counts, 1)[:, None]
            means[counts == 0] = np.nan
            means = means.reshape(len(D), len(types), -1)
            labels = run.classes.loc[D.names].to_numpy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a type that is absent from all samples of a label
                by_label = np.stack([np.nanmean(means[labels == label], axis=0) for label in np.unique(labels)])
                span = np.nan_to_num(np.nanmax(by_label, axis=0) - np.nanmin(by_label, axis=0))
        return {gene: str(types[k]) for gene, k in zip(genes, span.argmax(axis=0), strict=True)}

    return cohort.run.cached("gene types", [type_key, genes], compute)


@dataclass(frozen=True)
class Stability:
    """Variation of importances over ensemble members or refits, and q-values; arrays are by feature of the metric."""

    low: np.ndarray
    high: np.ndarray
    selected: np.ndarray
    n_top: int
    repeats: str
    q: np.ndarray | None = None

    def significant(self) -> int | None:
        """Return the number of features with a q-value below `LEVEL`."""
        return None if self.q is None else int(np.sum(self.q < LEVEL))


def q_values(cohort: Cohort, steps: Steps) -> np.ndarray:
    """Return the q-value of each feature: one-dimensional transport between labels against permuted labels."""

    def compute() -> list[float]:
        with steps.step(f"testing single features with {FEATURE_PERMUTATIONS} permutations"):
            y = cohort.run.classes.loc[[str(name) for name in cohort.read.D.names]].to_numpy()
            tested = feature_significance(
                cohort.metric_features, y, groups=cohort.read.groups, strata=cohort.strata,
                n_permutations=FEATURE_PERMUTATIONS, random_state=0,
            )  # fmt: skip
        return [float(value) for value in tested.discoveries.q]

    return np.array(cohort.run.cached("q", [cohort.group_key, FEATURE_PERMUTATIONS], compute), dtype=float)


def patient_influence(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """Return p-value and score of the whole cohort, and the table of `interpret.influence`."""

    def compute() -> dict[str, Any]:
        with steps.step("leaving out each patient"):
            y = cohort.numbers if cohort.run.is_ordered else cohort.read.y
            result = influence(
                cohort.learner(max_points=REFIT_CELLS), cohort.metric_features, y, groups=cohort.read.groups,
                strata=cohort.strata, verbose=steps.verbose,
            )  # fmt: skip
        rows = result.table().to_dict("records")
        plain = [
            {**row, "patient": str(row["patient"]), "changes conclusion": bool(row["changes conclusion"])}
            for row in rows
        ]
        return {"p": result.p, "score": result.score, "n_patients": result.n_patients, "rows": plain}

    return cohort.run.cached("influence", [cohort.group_key, REFIT_CELLS], compute)


def patient_changes(cohort: Cohort, steps: Steps) -> list[dict[str, Any]]:
    """Return the largest changes of the clearest patient of each label on the way to the nearest other label.

    The clearest patient of a label has the highest held-out probability of the label. Small cohorts have no changes.
    """

    def compute() -> list[dict[str, Any]]:
        with steps.step("comparing single patients with other labels"):
            D, y = cohort.metric_features.equalize(REFIT_CELLS), cohort.read.y
            ensemble: Any = cohort.learner(max_points=REFIT_CELLS, verbose=steps.verbose)
            ensemble.fit(D, y, groups=cohort.read.groups, strata=cohort.strata)
            if not ensemble.fitted_.design:
                return []  # no members that were trained without a given pair of patients
            labels = np.asarray(y)
            changes = []
            for k, label in enumerate(ensemble.classes_[:MAX_CHANGED]):
                clearest = int(np.argmax(np.where(labels == label, ensemble.held_out_[:, k], -1.0)))
                result = counterfactual(
                    ensemble, D, y, D.names[clearest], annotation=cohort.annotation, groups=cohort.read.groups
                )
                table = result.table().head(MAX_CHANGES)
                columns = ("kind", "feature", "change", "low", "high", "p")
                rows = [
                    [str(row[0]), str(row[1]), *map(float, row[2:])]
                    for row in table[list(columns)].itertuples(index=False, name=None)
                ]
                changes.append({
                    "patient": str(result.name), "label": str(result.label), "other": str(result.other),
                    "neighbors": len(result.neighbors), "rows": rows,
                })  # fmt: skip
        return changes

    return cohort.run.cached("changes", [cohort.group_key, cohort.type_key, REFIT_CELLS], compute)


def study_plan(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """Return accuracy and power of larger cohorts, extrapolated from this one."""

    def compute() -> dict[str, Any]:
        with steps.step("extrapolating to more patients"):
            curve = learning_curve(
                cohort.learner(max_points=REFIT_CELLS), cohort.metric_features, cohort.read.y,
                groups=cohort.read.groups, strata=cohort.strata, n_subsamples=1, verbose=steps.verbose,
            )  # fmt: skip
        return {"rows": curve.table().to_numpy(dtype=float).tolist(), "text": curve.describe()}

    return cohort.run.cached("plan", [cohort.group_key, REFIT_CELLS], compute)


def refit_stability(cohort: Cohort, steps: Steps) -> Stability:
    """Return the variation of a single metric over refits to bootstrap samples, as many as the budget allows."""
    run = cohort.run

    def compute() -> dict[str, Any]:
        seconds = max(float(run.findings.get("seconds") or 0.0), 0.1)  # of one refit, as long as learning took
        number = steps.affordable(REFITS, seconds)
        if number < 2:
            needed = f"{REFITS} refits take about {duration(REFITS * seconds)}"
            raise BudgetError(f"{needed}, more than remained of the budget")
        with steps.step(f"refitting {number} times"):
            learner: Any = cohort.learner()
            learner.metric_ = run.stored.metric
            refits = stability(
                learner, cohort.metric_features, cohort.read.y, groups=cohort.read.groups, n_refits=number,
                n_jobs=steps.n_jobs, verbose=steps.verbose,
            )  # fmt: skip
        low, high = refits.interval
        return {"low": low.tolist(), "high": high.tolist(), "selected": refits.selected.tolist(),
                "n_top": refits.n_top, "repeats": f"{len(refits.refits)} refits"}  # fmt: skip

    data = run.cached("stability", [cohort.group_key, REFITS, steps.budget], compute)
    return Stability(**{**data, **{name: np.array(data[name], float) for name in ("low", "high", "selected")}})


# Cells


@dataclass(frozen=True)
class DrawnCells:
    """Subsampled cells."""

    rows: np.ndarray  # rows of `run.cells` in random order: on a map, no sample covers the others
    D: Distributions  # cells of labelled samples in the learned space
    places: np.ndarray  # row of `run.cells` of each point of D
    y: np.ndarray  # classes of the samples of D


def draw_cells(run: Run) -> DrawnCells:
    """Subsample the cells that were learned from, the same number from every sample."""
    samples = samples_of(run.cells.obs, run.sample_key)
    learned = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    shuffled = np.random.default_rng(0).permutation(np.flatnonzero(learned))
    n_cells = max(MIN_CELLS, MAX_CELLS // max(len(samples.names), 1))
    turn = pd.Series(shuffled).groupby(samples.codes[shuffled]).cumcount().to_numpy()
    rows = shuffled[turn < n_cells]
    labelled = np.sort(rows[np.isin(samples.names, run.stored.labels.index)[samples.codes[rows]]])
    D = Distributions(np.asarray(run.cells.obsm[f"X_{run.key}"])[labelled], samples.names[samples.codes[labelled]])
    return DrawnCells(rows, D, labelled[D.order], run.classes.loc[D.names].to_numpy())


def _drawn_samples(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each cell was learned from, and its sample."""
    samples = samples_of(run.cells.obs, run.sample_key)
    return run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool), samples.names[samples.codes]


def _type_codes(run: Run, type_key: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.unique(cell_types_of(run.cells.obs, type_key)[rows], return_inverse=True)


def cell_relevance(run: Run, cells: DrawnCells, type_key: str | None, steps: Steps) -> np.ndarray:
    """Return how much farther each cell's mass travels to other labels than to its own; NaN if it was not drawn."""
    column = f"{run.key}_relevance"
    if column in run.cells.obs:
        return run.cells.obs[column].to_numpy(dtype=np.float64)

    def compute() -> list[float]:
        with steps.step("computing the relevance of cells", required=True):
            codes = np.unique(cells.y, return_inverse=True)[1]
            pairs = partners(codes, PARTNERS, np.random.default_rng(0))
            types = None if type_key is None else _type_codes(run, type_key, cells.places)[1]
            travel = travel_of_cells(cells.D, codes, pairs, types, steps.n_jobs, steps.verbose)
        return [round(float(value), 6) for value in (travel.between - travel.within) / travel.unit]

    relevance = np.full(run.cells.n_obs, np.nan)
    relevance[cells.places] = run.cached("relevance", [PARTNERS, MAX_CELLS, type_key], compute)
    return relevance


# Axes


@dataclass(frozen=True)
class Axes:
    """Axes of the learned space, in the order of their share of the transport between labels."""

    rotation: np.ndarray  # (n_axes, n_components), of the learned space onto the axes
    share: np.ndarray  # (n_axes,), of the transport between labels
    loadings: np.ndarray  # (n_axes, n_features), of standardised features; the largest is positive
    labels: list[str]
    positions: np.ndarray  # (n_labels, n_axes), mean of each label, in standard deviations
    types: list[str]  # ["all"] without cell types
    # (n_types, n_axes), contribution of each cell type to how much farther other labels are along an axis
    activity: np.ndarray
    # Whether labels differ along the axis. The map of cells may need a second axis along which they do not.
    separating: list[bool]
    n_all: int  # number of axes, including those that are not shown

    def ends(self, a: int) -> tuple[str, str] | None:
        """Return the labels at the low and the high end of an axis; None if labels do not differ along it."""
        if not self.separating[a]:
            return None
        return self.labels[int(self.positions[:, a].argmin())], self.labels[int(self.positions[:, a].argmax())]

    def genes(self, a: int, features: list[str]) -> list[tuple[str, float]]:
        """Return the features with the largest loadings."""
        top = np.argsort(-np.abs(self.loadings[a]), kind="stable")[:AXIS_GENES]
        return [(features[f], float(self.loadings[a, f])) for f in top]

    def active_types(self, a: int) -> list[tuple[str, float]]:
        """Return the cell types with the largest shares in how much farther other labels are along an axis."""
        activity = self.activity[:, a]
        if len(self.types) < 2 or not self.separating[a]:
            return []
        shares = activity / activity.sum()
        order = np.argsort(-activity, kind="stable")[:AXIS_TYPES]
        return [(self.types[t], float(shares[t])) for t in order if shares[t] > MIN_SHARE]


def find_axes(run: Run, cells: DrawnCells, type_key: str | None, steps: Steps) -> Axes:
    """Return the axes along which other labels are farther, and at least two for the map of cells."""

    def compute() -> dict[str, Any]:
        with steps.step("computing the axes of the learned space", required=True):
            types = None if type_key is None else cell_types_of(run.cells.obs, type_key)[cells.places]
            identity = GroundMetric(np.eye(cells.D.shape[1]))
            axes = canonical_axes(
                identity, cells.D, cells.y, annotation=types, max_partners=PARTNERS, n_jobs=steps.n_jobs,
                verbose=steps.verbose,
            )  # fmt: skip
        activity = axes.activity.sum(axis=0)
        total = float(np.maximum(activity, 0.0).sum())
        separating = (activity >= MIN_SHARE * total) & (total > 0)
        shown = shown_axes(separating)
        return {
            "rotation": axes.metric.components[shown].tolist(), "share": axes.share[shown].tolist(),
            "labels": [str(label) for label in axes.classes], "positions": axes.positions[:, shown].tolist(),
            "types": ["all"] if types is None else [str(value) for value in axes.values],
            "activity": axes.activity[:, shown].tolist(), "separating": separating[shown].tolist(),
            "n_all": int(axes.share.size),
        }  # fmt: skip

    data = run.cached("axes", [PARTNERS, MAX_CELLS, type_key], compute)
    metric = run.stored.metric
    data |= {name: np.array(data[name]) for name in ("rotation", "share", "positions", "activity")}
    spread = np.ones(metric.n_features) if metric.variances is None else np.sqrt(metric.variances)
    loadings = data["rotation"] @ metric.components * spread
    # The sign of an axis is arbitrary: its largest loading is made positive.
    sign = np.where(loadings[np.arange(len(loadings)), np.abs(loadings).argmax(axis=1)] < 0, -1.0, 1.0)
    data |= {"rotation": data["rotation"] * sign[:, None], "positions": data["positions"] * sign}
    return Axes(**data, loadings=loadings * sign[:, None])


def shown_axes(separating: np.ndarray) -> list[int]:
    """Return the axes along which labels differ, and at least two axes.

    >>> shown_axes(np.array([True, False, True, False])), shown_axes(np.array([False, True, False]))
    ([0, 2], [0, 1])
    """
    chosen, added = np.flatnonzero(separating), np.flatnonzero(~separating)
    return sorted([*chosen.tolist(), *added[: max(0, 2 - chosen.size)].tolist()])[:MAX_AXES]


def gene_sets_of_axes(axes: Axes, features: list[str], gene_sets: str | os.PathLike[str]) -> list[list[list[Any]]]:
    """Return, for each axis, rows of (gene set, q-value, fold enrichment, genes) of its strongest genes."""
    sets, n = read_gmt(gene_sets), min(ENRICHED_GENES, max(1, len(features) // 5))
    rows: list[list[list[Any]]] = []
    for loadings, separating in zip(axes.loadings, axes.separating, strict=True):
        if not separating:
            rows.append([])
            continue
        top = [features[f] for f in np.argsort(-np.abs(loadings), kind="stable")[:n]]
        tested = over_representation(top, features, sets)
        rows.append([
            [name.replace("_", " "), float(tested.q[s]), float(tested.effect[s]), listed(tested.overlap[s], SET_GENES)]
            for s, name in enumerate(tested.sets[:MAX_SETS]) if tested.q[s] < LEVEL
        ])  # fmt: skip
    return rows


# Cell types


def type_relevance(run: Run, cells: DrawnCells, type_key: str, steps: Steps) -> dict[str, Any]:
    """Return the share of each cell type in the difference between labels, with intervals.

    Shares of an ensemble are out-of-bag. "certain" is False if other labels may not be farther.
    """

    def compute() -> dict[str, Any]:
        with steps.step("computing the shares of cell types", required=True):
            types, names, bags = type_bags(run, cells, type_key)
            groups = run.samples.obs[run.group_key].loc[names].to_numpy() if run.group_key in run.samples.obs else None
            relevance = relevance_in_bags(
                bags, np.unique(run.classes.loc[names].to_numpy(), return_inverse=True)[1], types,
                out_of_bag=len(bags) > 1, groups=groups, n_draws=DRAWS, max_partners=PARTNERS,
                random=np.random.RandomState(0), n_jobs=steps.n_jobs, verbose=steps.verbose,
            )  # fmt: skip
        low, high = relevance.interval
        return {
            "types": types, "share": relevance.share.tolist(), "low": low.tolist(), "high": high.tolist(),
            "relevance": relevance.relevance.tolist(), "out_of_bag": relevance.out_of_bag,
            "certain": bool(relevance.total_interval[0] > 0),
        }  # fmt: skip

    return run.cached("types", [type_key, PARTNERS, MAX_CELLS], compute)


def type_composition(run: Run, type_key: str) -> pd.DataFrame:
    """Return the mean share of each cell type in the samples of each label, a row per label."""
    counts = pd.crosstab(run.cells.obs[run.sample_key].astype(str), cell_types_of(run.cells.obs, type_key))
    shares = counts.div(counts.sum(axis=1), axis=0)
    return shares.groupby(run.classes.reindex(shares.index).to_numpy()).mean()


def type_bags(run: Run, cells: DrawnCells, type_key: str) -> tuple[list[str], list[str], list[Bag]]:
    """Return cell types, samples, and the ensemble members with the cells that they compare.

    A single metric, and an ensemble without members, have one bag: the metric with the drawn cells.
    """
    views = [] if run.predictor is None else [view for _, view in run.predictor.views]
    members = [(view, member) for view in views if isinstance(view, TransportView) for member in view.members]
    if not members:
        types, codes = _type_codes(run, type_key, cells.places)
        untrained = np.zeros(len(cells.D), dtype=bool)
        bag = Bag(cells.D, codes, GroundMetric(np.eye(cells.D.shape[1])), untrained)
        return types.tolist(), [str(name) for name in cells.D.names], [bag]
    assert run.predictor is not None
    names = run.predictor.names
    drawn, sample = _drawn_samples(run)
    # Points of the predictor are numbered through all training samples, of which it may hold the landmarks only.
    training = names if run.results is None else run.results.samples
    types, codes = _type_codes(run, type_key, np.flatnonzero(drawn & np.isin(sample.astype(str), training)))
    bags = []
    for view, member in members:
        D = member.project(view.description, np.arange(len(view.description)))
        if D.order.max() >= codes.size:
            raise ValueError("the predictor of the run belongs to other cells: learn again")
        bags.append(Bag(D, codes[D.order], GroundMetric.euclidean(D.shape[1]), member.trained_on))
    return types.tolist(), names, bags
