"""Results that a report shows, as data: held-out scores, warnings, genes, axes, cell types and cells of a run.

Axes, cells and cell types are computed from one subsample of cells, which the map of cells shows: transport plans
between all cells would take most of the time of a report.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import joblib
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import spearmanr

from .. import __version__, baselines
from .._anndata import store
from .._anndata.cohort import (
    CELL_TYPE,
    LEVEL,
    Labelled,
    Note,
    cell_types_of,
    cohort_problems,
    find_column,
    read_cohort,
    samples_of,
)
from .._anndata.source import PANEL, Source
from .._anndata.store import EnsembleResults
from .._internal.cache import Cache
from .._internal.tables import listed, plain, score_name
from .._internal.types import CellsLike
from .._internal.validation import ParameterError, unit_codes
from ..baselines import inner_folds
from ..distributions import Distributions, SmallSampleWarning
from ..ensemble import Predictor as ViewPredictor
from ..ensemble.members import TransportView
from ..ensemble.stacking import Numbers
from ..estimators.predictor import load_predictor
from ..estimators.preprocessing import SelectedFeatures, with_features
from ..evaluation import Comparison, SizeAssociation, Voting, compare, folds, learning_curve
from ..evaluation.compare import Cohort as Folds
from ..evaluation.compare import fit, recorded_warnings
from ..evaluation.permutation import PreparedTest
from ..evaluation.results import Result, lead_in_words
from ..evaluation.scores import Difference, Estimate, encode, holm, r2_difference, r2_estimate, score_codes
from ..interpret import counterfactual, feature_significance, influence, over_representation, read_gmt, stability
from ..interpret.axes import canonical_axes
from ..interpret.flows import Bag, partners, relevance_in_bags, travel_of_cells
from ..learning.splits import Split
from ..metrics.base import GroundMetric

FINDINGS, SAMPLES = "run.json", "samples.h5ad"
CACHE = "report.cache"  # file in the folder of a run
CACHE_FORMAT = 10  # entries of other formats are computed again
MAX_VALUES = 5  # ordered labels with more different values are compared by thirds
TYPE_COLUMNS = ("cell_type", "celltype", "cell_types", "cell type", "annotation")  # recognised as cell types

# Every class counts the same, in the score and in the votes of neighbours.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
LEARNED = "groundmetric"
FOLDS, NEIGHBORS = 5, 5
TRANSPORT_CELLS = 100  # cells per sample for Euclidean transport, as many as an ensemble member compares
TRANSPORT = "transport-5-nn"  # key of the baseline that would compare all cells
MAX_DENSE = 5e7  # values of a dense array: 200 MB

PERMUTATIONS = 99  # default for an ensemble
TEST_CELLS = 50  # cells per sample in the permutation test: a quarter of the time with hardly less power
TRIAL = 2  # permutations that are timed to plan the others
MIN_PERMUTATIONS = 19  # needed for p = 0.05
TOLERANCE = 1.2  # the page names the longest steps if the report takes more than this multiple of the budget
FEATURE_PERMUTATIONS = 1999  # testing one feature is a sort: many permutations are cheap
REFIT_CELLS = 60  # cells per sample in refits without a patient, of parts of the cohort, and for changes of a patient
REFITS = 20  # of a single metric, for the stability of its genes
MAX_GENES = 300  # rows of the table of genes
MAX_CHANGED, MAX_CHANGES = 4, 8  # patients whose changes are shown, and rows for each
MAX_DECISIVE = 3  # with more patients that change the conclusion, the p-value is merely close to the level

PARTNERS = 5  # samples of every label that a sample is compared with
MAX_CELLS, MIN_CELLS = 3000, 100  # subsampled cells of all samples, and of each sample if there are many
MIN_SHARE, MAX_AXES = 0.05, 6  # an axis is shown from this share of the difference between labels on
DRAWS = 500  # bootstrap samples for the intervals of cell types
AXIS_GENES, AXIS_TYPES = 12, 3  # listed genes and cell types of an axis
ENRICHED_GENES, MAX_SETS, SET_GENES = 50, 8, 10  # tested genes of an axis, listed gene sets, listed genes of a set


# The run


@dataclass
class Run:
    """Results of learning, and the file or AnnData with the values of the cells."""

    cells: ad.AnnData  # after `tl.learn`, with or without values
    samples: ad.AnnData  # from `tl.samples`
    source: CellsLike | None  # values of the cells; None: the report omits results that need them
    findings: dict[str, Any]  # of `groundmetric learn`, each optional: "cells" (file), "seconds", "interrupted"
    folder: Path | None = None  # of the cache; None: nothing is cached
    key: str = "groundmetric"  # the `key_added` of `tl.learn`

    def __post_init__(self) -> None:
        self.stored = store.read_entry(self.cells.uns.get(self.key), self.key, "the run")
        self.entry: dict[str, Any] = self.cells.uns[self.key]
        self.results = EnsembleResults.read(self.entry)  # of an ensemble; None for a single metric
        self.learner = store.plain_parameters(self.entry["learner"])
        params = self.stored.params
        self.sample_key, self.label_key = str(params["sample_key"]), str(params["label_key"])
        self.group_key: str | None = params.get("group_key")
        self.is_ordered = str(self.learner.get("target", "classes")) == "ordered"  # numbers or ordered categories
        self.has_numbers = self.is_ordered and self.stored.labels.dtype.kind in "biuf"
        self.is_expression = params.get("use_rep") is None
        # Name of a feature in texts; a small panel may hold other features than genes.
        n_features = int(self.entry.get("features", {}).get("n_features", PANEL + 1))
        self.feature = "dimension" if not self.is_expression else "gene" if n_features > PANEL else "feature"
        self.drawn = self.cells.obs[f"{self.key}_sampled"].to_numpy(dtype=bool)  # cells that were learned from
        # Columns of `samples.obs` that learning added.
        self.own_columns = [name for name in self.samples.obs.columns if str(name).startswith(f"{self.key}_")]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], cells: str | os.PathLike[str] | None = None) -> Run:
        """Read the folder of a run; `cells` is the file that was learned from (None: the one that run.json names)."""
        path = Path(folder)
        for part in (FINDINGS, store.RUN_CELLS, SAMPLES):
            if not (path / part).is_file():
                raise ParameterError("run", os.fspath(folder), f", which is not a run of groundmetric learn: no {part}")
        title = repr(str(path / FINDINGS))
        try:
            findings = json.loads((path / FINDINGS).read_text())
        except ValueError as error:
            raise ValueError(f"{title} is damaged ({error}): run groundmetric learn again") from error
        findings = findings if isinstance(findings, dict) else {}
        if findings.get("command", "learn") != "learn":
            raise ValueError(f"{title} was written by groundmetric {findings['command']}: expected a run of learn")
        if lacking := [name for name in ("groundmetric", "command", "cells") if name not in findings]:
            version = findings.get("groundmetric", "(unknown version)")
            raise ValueError(f"{title} of groundmetric {version} lacks {lacking[0]!r}: run groundmetric learn again")
        source = None if cells is None else Path(cells)
        if source is None:
            name, root = Path(findings["cells"]), path.resolve()  # `learn` may have been given in another folder
            files = [name, *(parent / name for parent in root.parents), root / name.name, root.parent / name.name]
            # The run's own file of cells has no values.
            files = [file for file in files if file.exists() and file.resolve() != root / store.RUN_CELLS]
            source = files[0] if files else None
        learned = ad.read_h5ad(path / store.RUN_CELLS)
        entry = learned.uns.get(cls.key, {})
        store.check_parts(entry, ("metric", "learner", "ensemble" if "ensemble" in entry else "history"), cls.key)
        if source is not None:
            with Source(source) as values:
                missing = ~learned.obs_names.isin(values.obs.index)
            if missing.any():
                first = str(learned.obs_names[missing][0])
                problem = f", which lacks {int(missing.sum())} of the {missing.size} cells of the run, e.g. {first!r}"
                raise ParameterError("cells", str(source), problem)
        return cls(learned, ad.read_h5ad(path / SAMPLES), source, findings, path)

    @cached_property
    def predictor(self) -> ViewPredictor | None:
        """Views of an ensemble with the cells that its members compare; None for a single metric."""
        file = None if self.folder is None else self.folder / store.RUN_PREDICTOR
        if file is not None and file.exists():
            return load_predictor(file).predictor_
        predictor = store.predictor_of(self.entry, f"uns[{self.key!r}]['predictor']")
        return None if predictor is None else predictor.predictor_

    @cached_property
    def classes(self) -> pd.Series:
        """Class of each training sample: its label, or the third of the labels for more than `MAX_VALUES` numbers."""
        labels = self.stored.labels
        if not self.has_numbers or labels.nunique() <= MAX_VALUES:
            return labels.astype(str)
        numbers = labels.to_numpy(dtype=np.float64)
        low, high = np.quantile(numbers, [1 / 3, 2 / 3])
        ranges = [f"up to {low:.3g}", f"{low:.3g} to {high:.3g}", f"above {high:.3g}"]
        names = np.array([f"{self.label_key} {text}" for text in ranges], dtype=object)
        return pd.Series(names[np.searchsorted([low, high], numbers)], labels.index)

    @property
    def numbers(self) -> pd.Series | None:
        """Ordered labels of the training samples as numbers; None for classes."""
        if not self.is_ordered:
            return None
        if self.results is not None:
            return pd.Series(self.results.numbers, self.results.samples)
        labels = self.with_order(self.stored.labels.to_frame(self.label_key))[self.label_key]
        return labels if self.has_numbers else labels.cat.codes

    def with_order(self, obs: pd.DataFrame) -> pd.DataFrame:
        """Return `obs` with ordered text labels as categories from low to high."""
        if not self.is_ordered or self.has_numbers:
            return obs
        order = self.stored.params.get("order")
        if order is None and self.results is not None:
            order = self.results.ordered_categories[0]
        if order is None:
            return obs
        labels = obs[self.label_key].astype(object).map(str, na_action="ignore")
        return obs.assign(**{self.label_key: pd.Categorical(labels, list(map(str, order)), ordered=True)})


# Steps


@dataclass
class Steps:
    """Long steps of a report, their output, and the time that remains for them."""

    n_jobs: int | None = None  # threads or processes; None: one
    verbose: int = 0  # 1 prints a line per step, and shows progress bars on a terminal
    budget: float = float("inf")  # seconds for all steps
    seconds: dict[str, float] = field(default_factory=dict)  # duration of each computed step
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        return self.budget - self.elapsed

    def overrun(self) -> list[Note]:
        """Return a note that names the longest steps if the budget is exceeded by more than 20 %."""
        if self.elapsed <= TOLERANCE * self.budget:
            return []
        longest = sorted(self.seconds.items(), key=lambda item: -item[1])[:3]
        steps = listed([f"{title} ({duration(seconds)})" for title, seconds in longest], 3)
        text = f"the report took {duration(self.elapsed)} instead of {duration(self.budget)}; longest steps: {steps}"
        return [Note("Time budget exceeded", text)]

    def affordable(self, n: int, seconds: float) -> int:
        """Return how many of `n` tasks of this duration fit into the remaining budget."""
        return max(0, int(min(n, self.remaining / max(seconds, 1e-9))))


def duration(seconds: float) -> str:
    """Return a duration as text, rounded up.

    >>> duration(4.2), duration(75), duration(4000)
    ('5 s', '1 min 15 s', '1 h 7 min')
    """
    whole = max(1, int(np.ceil(seconds)))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h {round(whole % 3600 / 60)} min"


def step(
    name: str, title: str, *, required: bool = False, limited: bool = False, into: Any = None
) -> Callable[..., Any]:
    """Return a decorator of functions of a cohort, whose results become plain data, are cached, and fill `into`.

    Only `required` steps run if no time remains of the budget. Results of `limited` steps depend on the budget.
    """

    def decorate(compute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compute)
        def run_step(cohort: Cohort, *arguments: Any) -> Any:
            run, steps = cohort.run, cohort.steps
            parameters = [cohort.type_key, *arguments, steps.budget if limited else None]
            learned = [run.stored.metric.components, run.stored.params, list(map(str, run.stored.labels))]
            key = f"{name}-{joblib.hash([__version__, CACHE_FORMAT, learned, parameters])}"
            cache = None if run.folder is None else Cache(run.folder / CACHE)
            result = None if cache is None else cache.get_json(key)
            if result is None:
                if steps.remaining <= 0 and not required:
                    raise ValueError(f"no time remained of the budget of {duration(steps.budget)}")
                if steps.verbose:
                    print(title, file=sys.stderr, flush=True)
                started = time.monotonic()
                # The page has its own warning of samples with few cells.
                with warnings.catch_warnings(action="ignore", category=SmallSampleWarning):
                    result = plain(compute(cohort, *arguments))
                steps.seconds[title] = time.monotonic() - started
                if cache is not None:
                    cache.put_json(key, result)
            if into is None:
                return result
            types = {entry.name: entry.type for entry in fields(into)}  # as text: annotations are postponed
            return into(**{k: np.array(v, float) if types[k] == "np.ndarray" else v for k, v in result.items()})

        return run_step

    return decorate


# The cohort


class DrawnCells(NamedTuple):
    rows: np.ndarray  # rows of `run.cells` in random order: on a map, no sample covers the others
    D: Distributions  # cells of labelled samples in the learned space
    places: np.ndarray  # row of `run.cells` of each point of D
    y: np.ndarray  # classes of the samples of D


@dataclass
class Cohort:
    """Values, labels and subsampled cells of a run, read at first use, with the columns that a report uses."""

    run: Run
    type_key: str | None = None  # column of cell types
    steps: Steps = field(default_factory=Steps)

    @cached_property
    def read(self) -> Labelled:
        run, params = self.run, self.run.stored.params
        rule = params["genes"] if params.get("use_rep") is None else None
        if rule == "given":
            raise ValueError("the genes were given as a list, which the run does not store")
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # the page has warnings of its own
            read = read_cohort(
                run.source, run.sample_key, run.label_key, group_key=self.run.group_key, layer=params.get("layer"),
                use_rep=params.get("use_rep"), genes=rule, n_cells=params.get("n_cells"), ordered=run.is_ordered,
                cell_type_key=self.type_key, random_state=params.get("random_state", 0),
            )  # fmt: skip
        points = read.D.points
        if sparse.issparse(points):
            # Dense points are several times as fast; they are used if they take no more memory.
            n_bytes = np.prod(points.shape, dtype=float) * points.dtype.itemsize
            if n_bytes <= points.data.nbytes + points.indices.nbytes:
                return read._replace(D=read.D.with_points(points.toarray(), read.D.features))
        return read

    @cached_property
    def metric_features(self) -> Distributions:
        """The cohort restricted to the features of the learned metric."""
        assert self.read.D.features is not None
        position = {name: f for f, name in enumerate(self.read.D.features)}
        return with_features(self.read.D, np.array([position[name] for name in self.run.stored.features]))

    @cached_property
    def splits(self) -> list[Split]:
        labels, units = np.asarray(self.read.y), unit_codes(self.read.groups, len(self.read.y))
        smallest = min(np.unique(units[labels == label]).size for label in np.unique(labels))
        if smallest < 2:
            raise ValueError("a label has a single sample (or group), so it cannot be both learned and held out")
        return folds(self.read.y, groups=self.read.groups, n_splits=min(FOLDS, smallest), random_state=0)

    @property
    def annotation(self) -> str | None:
        return CELL_TYPE if CELL_TYPE in self.read.D.annotations else None

    @property
    def voting(self) -> Voting:
        return Voting(min(NEIGHBORS, *(train.size for train, _ in self.splits)), class_weight=CLASS_WEIGHT)

    @property
    def design(self) -> dict[str, Any]:
        """Patient of each sample, and its batch if an ensemble compared labels within batches."""
        key, strata = self.run.stored.params.get("batch_key"), None
        if key is not None and self.run.results is not None:
            strata = self.run.samples.obs[key].loc[list(map(str, self.read.D.names))].tolist()
        return {"groups": self.read.groups, "strata": strata}

    @property
    def target(self) -> np.ndarray:
        """Labels of the samples, or the numbers that an ensemble learned ordered labels as."""
        results = self.run.results
        if results is None or results.numbers is None:
            return self.read.y
        numbers = dict(zip(results.labels.tolist(), results.numbers, strict=True))
        return np.array([numbers[label] for label in np.asarray(self.read.y).tolist()])

    def learner(self, **changes: Any) -> Any:
        return store.stored_learner(self.run.entry, **changes)

    @cached_property
    def cells(self) -> DrawnCells:
        """Subsample of the cells that were learned from, the same number from every sample."""
        run = self.run
        samples = samples_of(run.cells.obs, run.sample_key)
        shuffled = np.random.default_rng(0).permutation(np.flatnonzero(run.drawn))
        n_cells = max(MIN_CELLS, MAX_CELLS // max(len(samples.names), 1))
        turn = pd.Series(shuffled).groupby(samples.codes[shuffled]).cumcount().to_numpy()
        rows = shuffled[turn < n_cells]
        labelled = np.sort(rows[samples.contains(run.stored.labels.index)[rows]])
        D = Distributions(np.asarray(run.cells.obsm[f"X_{run.key}"])[labelled], samples.names[samples.codes[labelled]])
        return DrawnCells(rows, D, labelled[D.order], run.classes.loc[D.names].to_numpy())

    def types(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cell types of these rows of `run.cells`, and the number of each cell's type."""
        assert self.type_key is not None
        return np.unique(cell_types_of(self.run.cells.obs, self.type_key)[rows], return_inverse=True)


# All results


@dataclass
class Results:
    """Results of a run. A result is None if it was not computed; `omitted` says why."""

    cohort: Cohort
    axes: Axes
    relevance: np.ndarray  # of all cells; NaN if not subsampled
    genes: pd.DataFrame  # most important features, with their direction and cell type ("cell_type")
    cell_numbers: SizeAssociation
    warnings: list[Note]
    types: dict[str, Any] | None = None  # shares of cell types in the difference between labels
    gene_sets: list[list[list[Any]]] | None = None  # enriched gene sets of each axis
    predictions: dict[str, Any] | None = None  # held-out, as `held_out_predictions` returns them
    evaluation: Evaluation | None = None  # held-out scores of all methods, and the permutation test
    stability: Stability | None = None
    influence: dict[str, Any] | None = None  # results without each patient
    plan: dict[str, Any] | None = None  # accuracy and power for larger numbers of patients
    changes: list[dict[str, Any]] | None = None  # of single patients on the way to another label
    omitted: list[Note] = field(default_factory=list)

    @property
    def run(self) -> Run:
        return self.cohort.run

    def optional(self, title: str, compute: Callable[..., Any], *arguments: Any) -> Any:
        """Return a result that needs the values of the cells, or None with a note."""
        try:
            if self.run.source is None:
                raise ValueError("needs the values of the cells, which the run does not have")
            return compute(self.cohort, *arguments)
        except ValueError as error:
            self.omitted.append(Note(title, str(error)))
            return None


def collect(
    run: Run, *, cell_type_key: str | None = None, gene_sets: str | os.PathLike[str] | None = None,
    permutations: int | None = None, evaluation: bool = True, steps: Steps | None = None,
) -> Results:  # fmt: skip
    """Compute all results of a run; parameters as in `write`."""
    if permutations and not evaluation:
        raise ParameterError("permutations", permutations, ", but nothing is evaluated", {"evaluation": True})
    if evaluation and run.folder is not None and run.source is None:
        problem = f", and the file {run.findings.get('cells')!r} of the run does not exist: give the file of the cells"
        raise ParameterError("cells", None, problem, {"evaluation": False})
    if permutations is None:  # every permutation of a single metric costs a whole cross-validation
        permutations = PERMUTATIONS if run.results is not None and evaluation else 0
    if cell_type_key is not None:
        find_column(run.cells.obs, cell_type_key, "cell_type_key")
    columns = [str(name) for name in run.cells.obs.columns]
    type_key = cell_type_key or next((name for name in columns if name.lower() in TYPE_COLUMNS), None)
    cohort = Cohort(run, type_key, steps or Steps())
    obs = run.samples.obs.drop(columns=run.own_columns)
    if run.is_ordered:  # many numbers are compared by thirds
        obs = obs.assign(**{run.label_key: run.classes.reindex(obs.index)})
    distances = run.samples.obsp[f"{run.key}_distances"]
    problems, association = cohort_problems(
        obs, run.label_key, run.sample_key, run.group_key, numbers=run.numbers, distances=distances
    )
    # A report has the groups of the run.
    problems = [replace(n, text=f"{n.text}, and learn again") if "group_key" in n.remedy else n for n in problems]
    results = Results(
        cohort, find_axes(cohort), cell_relevance(cohort), gene_importance(run), association,
        warnings=[*problems, *training_warnings(run)],
    )  # fmt: skip
    if run.results is not None:
        n_top, repeats = min(store.N_TOP, len(run.stored.features)), f"{run.results.n_members} ensemble members"
        low, high = run.results.interval
        results.stability = Stability(low, high, run.results.selected, n_top, repeats)
        results.predictions = held_out_predictions(run.results)
    if type_key is None:
        results.omitted.append(Note("Cell types", "no column of obs is recognised", {"cell_type_key": "COLUMN"}))
    else:
        results.types = type_relevance(cohort)
    if gene_sets is None or not run.is_expression:
        results.omitted.append(Note("Gene sets of the axes", "no gene sets were given", {"gene_sets": "FILE.gmt"}))
    else:
        results.gene_sets = gene_sets_of_axes(results.axes, run.stored.features, gene_sets)
        tested = zip(results.gene_sets, results.axes.separating, strict=True)
        if empty := [str(a) for a, (rows, separating) in enumerate(tested, 1) if separating and not rows]:
            title = f"Gene sets of axis {', '.join(empty)}"
            results.omitted.append(Note(title, f"no set is enriched (q < {LEVEL})"))
    if not evaluation:
        results.omitted.append(Note("Baselines, tests and q-values", "not computed", {"evaluation": True}))
        return results
    # Results that need the values of the cells: scores, stability, q-values and the permutation test.
    is_ensemble = run.results is not None
    if type_key is not None and run.is_expression:
        types = results.optional("Cell types of genes", gene_cell_types, list(results.genes.index))
        results.genes["cell_type"] = None if types is None else pd.Series(types)
    if not is_ensemble:
        results.stability = results.optional("Stability of genes", refit_stability)
    if permutations and results.stability is not None:
        tested = results.optional("q-values of genes", q_values)
        if tested is not None:
            q = np.array(tested["q"], dtype=float)
            results.stability = replace(results.stability, q=q, smallest_p=tested["smallest_p"])
    scores = results.optional("Baselines", held_out_scores)
    if scores is not None:
        results.evaluation = Evaluation(**scores)
        results.predictions = results.evaluation.predictions or results.predictions
    title = "Permutation test"
    if run.is_ordered and not is_ensemble:
        results.omitted.append(Note(title, "for ordered labels it needs an ensemble", {"method": "ensemble"}))
    elif not permutations:
        results.omitted.append(Note(f"{title} and q-values", "not computed", {"permutations": PERMUTATIONS}))
    elif results.evaluation is not None:
        answer = results.optional(title, permutation_test, permutations)
        if answer is not None:
            results.evaluation = replace(results.evaluation, test=answer["test"])
            results.omitted += [Note(title, note) for note in answer["notes"]]
    if is_ensemble and not run.is_ordered:
        title = "Changes of single patients"
        results.changes = results.optional(title, patient_changes)
        if results.changes == []:
            results.omitted.append(Note(title, "a label has too few patients to leave out pairs of them"))
    if permutations and is_ensemble:
        if not run.is_ordered:
            results.plan = results.optional("Planning", study_plan)
        results.influence = results.optional("Influence of patients", patient_influence)
    if results.influence is not None:
        names = [row["patient"] for row in results.influence["rows"] if row["changes conclusion"]]
        if 0 < len(names) <= MAX_DECISIVE:
            text = f"without {listed(names, MAX_DECISIVE)} the p-value of association crosses {LEVEL}"
            results.warnings.append(Note("Single patients decide the conclusion", text))
    return results


def training_warnings(run: Run) -> list[Note]:
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
    name = "log_probability" if "log_probability" in scores else "r2"
    score, chance = scores.get(name, 0.0), -np.log(run.results.classes.size) if name == "log_probability" else 0.0
    if score <= chance:
        text = f"held-out {score_name(name)} {score:.2f}, guessing {chance:.2f}: these samples do not show that the "
        text += "label can be predicted from the cells, and the metric is close to the Euclidean one"
        notes.append(Note("Not better than guessing", text))
    return notes


# Held-out scores


def held_out_classes(names: Sequence[Any], truth: Any, probabilities: np.ndarray, classes: Any) -> dict[str, Any]:
    """Return the predictions of samples by probabilities of shape (n_samples, n_classes)."""
    classes = list(map(str, classes))
    return {
        "names": list(map(str, names)), "truth": list(map(str, truth)), "classes": classes,
        "predicted": [classes[k] for k in probabilities.argmax(axis=1)],
        "probability": probabilities.max(axis=1).tolist(),  # of the predicted class
    }  # fmt: skip


def held_out_predictions(results: EnsembleResults) -> dict[str, Any]:
    """Return the predictions of an ensemble; numbers have neither classes nor probabilities."""
    if results.numbers is None:
        return held_out_classes(results.samples, results.labels, results.held_out, results.classes)
    is_number = results.labels.dtype.kind in "biuf"
    convert: Any = float if is_number else str
    return {
        "names": results.samples, "truth": list(map(convert, results.labels)), "probability": None,
        "predicted": list(map(convert, results.predicted)),
        "classes": [] if is_number else list(map(str, results.ordered_categories[0])),
    }  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """Held-out scores, the learned model first."""

    score: str  # "balanced_accuracy" or "r2"
    chance: float  # score of guessing
    # By method: "method", "status", "value", "low", "high", "seconds", and the lead of the learned model over it
    # ("lead", "lead_low", "lead_high", "p").
    rows: list[dict[str, Any]]
    protocol: str  # how samples were held out
    predictions: dict[str, Any] | None  # of the learned model
    notes: list[str]  # remarks on the scores
    test: dict[str, Any] | None = None  # permutation test

    @property
    def name(self) -> str:
        return score_name(self.score)

    @property
    def learned(self) -> dict[str, Any]:
        return self.rows[0]

    @property
    def best_baseline(self) -> dict[str, Any] | None:
        scored = [row for row in self.rows[1:] if row["value"] is not None]
        return max(scored, key=lambda row: row["value"], default=None)

    @property
    def verdict(self) -> str | None:
        """Comparison of the learned model with the best baseline, in a sentence; None without baselines."""
        best = self.best_baseline
        if best is None:
            return None
        start = f"Best baseline {best['value']:.2f} ({best['method']})"
        lead, low, high, p = (best.get(key) for key in ("lead", "lead_low", "lead_high", "p"))
        if lead is None or low is None or high is None:
            return f"{start}."
        return f"{start}: {lead_in_words(LEARNED, lead, low, high, p)}."


@step("scores", "comparing with baselines in cross-validation folds")
def held_out_scores(cohort: Cohort) -> dict[str, Any]:
    """Return the fields of an `Evaluation` without the test, for the learned model and the baselines."""
    run = cohort.run
    together = f" with all samples of one {run.group_key} in the same fold" if run.group_key else ""
    if run.results is None:
        return _score_classes(cohort, None, together)
    scores = (_score_numbers if run.is_ordered else _score_classes)(cohort, run.results, together)
    scores["protocol"] = (
        f"{LEARNED} is the {run.results.scored} of the run, scored by nested cross-validation{together}: the labels of "
        "a held-out fold enter no step of its prediction (members, kernels, penalties, weights). "
        f"{scores['protocol']}"
    )
    return scores


def _score_numbers(cohort: Cohort, results: EnsembleResults, together: str) -> dict[str, Any]:
    """Score numbers predicted by the ensemble and by baselines in cross-validation, by R²."""
    D, numbers, units = cohort.read.D, cohort.target, unit_codes(cohort.read.groups, len(cohort.read.D))
    predicted = {LEARNED: results.held_out[_rows_of(results, D)]}
    fold = inner_folds(Numbers.of(numbers), units, D.names)
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]
    seconds: dict[str, float | None] = {LEARNED: None}
    with recorded_warnings():
        data = Folds(D, numbers, np.empty(0), cohort.read.groups)
        titles = baselines.titles("ordered", annotation=cohort.annotation)
        for name, method in baselines.standard("ordered", annotation=cohort.annotation).items():
            started, predicted[titles[name]] = time.monotonic(), np.empty(len(numbers))
            for train, test in splits:
                fitted = fit(_in_folds(method, cohort), data, train)
                predicted[titles[name]][test] = fitted.predict(D[test])
            seconds[titles[name]] = (time.monotonic() - started) / len(splits)
    leads = {name: r2_difference(numbers, predicted[LEARNED], values, units) for name, values in predicted.items()}
    adjusted = dict(zip(list(leads)[1:], holm([leads[name].p for name in list(leads)[1:]]), strict=True))
    rows = [
        _row(name, "ok", r2_estimate(numbers, values, units), seconds[name], leads[name], adjusted.get(name))
        for name, values in predicted.items()
    ]
    return {
        "score": "r2", "chance": 0.0, "rows": rows, "notes": cohort.read.notes,
        "protocol": f"R² is the predicted share of the variance of the label. Baselines: {len(splits)}-fold "
        f"cross-validation{together}; all steps are fitted on training folds.",
        "predictions": held_out_predictions(results),
    }  # fmt: skip


def _score_classes(cohort: Cohort, results: EnsembleResults | None, together: str) -> dict[str, Any]:
    """Score predicted classes, and those of baselines in cross-validation folds."""
    D, steps = cohort.read.D, cohort.steps
    titles = baselines.titles(annotation=cohort.annotation)
    methods = {titles[name]: method for name, method in baselines.standard(annotation=cohort.annotation).items()}
    transport = {titles[TRANSPORT]: methods.pop(titles[TRANSPORT])}
    # Starting other processes takes seconds: only refits of a learner are longer.
    learner = {} if results is not None else {LEARNED: cohort.learner()}
    comparison = _compare(cohort, D, {**learner, **methods}, steps.n_jobs if learner else None)
    drawn = D.subsample(TRANSPORT_CELLS, random_state=0)
    if sparse.issparse(drawn.points) and np.prod(drawn.points.shape, dtype=float) <= MAX_DENSE:
        drawn = drawn.with_points(drawn.points.toarray(), drawn.features)
    by_method = comparison.results | _compare(cohort, drawn, transport, None).results
    if results is not None:  # held-out predictions of the ensemble as results of the folds
        probabilities = results.probabilities(np.unique(cohort.read.y))[_rows_of(results, D)]
        codes = encode(np.asarray(comparison.labels), np.asarray(comparison.classes))
        by_method[LEARNED] = [
            Result(scores={"distributions": score_codes(codes[test], probabilities[test])},
                   probabilities=probabilities[test].tolist())
            for _, test in comparison.splits
        ]  # fmt: skip
    comparison = replace(comparison, results={LEARNED: by_method.pop(LEARNED), **by_method})
    predictions = None
    if comparison.status(LEARNED) == "ok":
        probabilities = comparison.predictions(LEARNED)["probabilities"]
        predictions = held_out_classes(D.names, comparison.labels, probabilities, comparison.classes)
    against = comparison.against(LEARNED, SCORE)
    rows = []
    for method in comparison.methods:
        seconds = comparison.seconds(method) if comparison.results[method][0].seconds else None
        lead, p = against.get(method, (None, None))
        rows.append(_row(method, comparison.status(method), comparison.estimate(method, SCORE), seconds, lead, p))
    protocol = (
        f"{'' if results is None else 'Baselines: '}{len(cohort.splits)}-fold cross-validation{together}; all steps "
        "(gene selection, clusters, penalties) are fitted on training folds. 5-NN: votes of the "
        f"{cohort.voting.n_neighbors} nearest training samples, balanced by label. Transport compares "
        f"{TRANSPORT_CELLS} cells per sample."
    )
    return {
        "score": SCORE, "chance": 1 / len(comparison.classes), "rows": rows, "protocol": protocol,
        "predictions": predictions, "notes": [*cohort.read.notes, *comparison.notes],
    }  # fmt: skip


def _rows_of(results: EnsembleResults, D: Distributions) -> np.ndarray:
    """Return the rows of the results of an ensemble that belong to the distributions."""
    return pd.Index(results.samples).get_indexer(list(map(str, D.names)))


def _row(
    method: str, status: str, estimate: Estimate, seconds: float | None, lead: Difference | None, p: float | None
) -> dict[str, Any]:
    row = {"method": method, "status": status, "value": estimate.value, "low": estimate.low, "high": estimate.high}
    if method == LEARNED or lead is None:
        return {**row, "seconds": seconds}
    return {**row, "seconds": seconds, "lead": lead.value, "lead_low": lead.low, "lead_high": lead.high, "p": p}


def _compare(cohort: Cohort, D: Distributions, methods: dict[str, Any], n_jobs: int | None) -> Comparison:
    return compare(
        {name: _in_folds(method, cohort) for name, method in methods.items()}, D, cohort.read.y, cv=cohort.splits,
        groups=cohort.read.groups, voting=cohort.voting, points=False, n_jobs=n_jobs, verbose=cohort.steps.verbose,
    )  # fmt: skip


def _in_folds(method: Any, cohort: Cohort) -> Any:
    """Return a seeded method that selects genes within each training set, if the run selected genes by a rule."""
    if "random_state" in (params := method.get_params()) and params["random_state"] is None:
        method.set_params(random_state=0)
    return method if cohort.read.rule is None else SelectedFeatures(method, cohort.read.rule)


@step("permutations", "permuting labels", limited=True)
def permutation_test(cohort: Cohort, permutations: int) -> dict[str, Any]:
    """Return the permutation test ("test") with as many permutations as the budget allows, and remarks ("notes")."""
    read, steps = cohort.read, cohort.steps
    with recorded_warnings() as messages:
        if cohort.run.results is not None:
            ensemble = cohort.learner(max_points=TEST_CELLS)
            test = PreparedTest(ensemble, cohort.metric_features, cohort.target, **cohort.design, random_state=0)
        else:
            test = PreparedTest(
                _in_folds(cohort.learner(), cohort), read.D, read.y, cv=len(cohort.splits), groups=read.groups,
                voting=cohort.voting, random_state=0,
            )  # fmt: skip
        trial = test.run(min(TRIAL, permutations))  # in this process: others take seconds to start
        seconds = trial.seconds / max(1, joblib.effective_n_jobs(steps.n_jobs))  # of one permutation
        number = steps.affordable(permutations, seconds)
        needed = f"{permutations} permutations take about {duration(permutations * seconds)}"
        if number < min(MIN_PERMUTATIONS, permutations):
            raise ValueError(f"{needed}, and {duration(max(0.0, steps.remaining))} remained of the budget")
        result = test.run(number, n_jobs=steps.n_jobs, verbose=steps.verbose).to_dict()
    notes = [] if number == permutations else [f"{number} of {permutations} permutations fit the budget: {needed}"]
    return {"test": result, "notes": [*notes, *dict.fromkeys(messages)]}


# Patients


@step("influence", "leaving out each patient")
def patient_influence(cohort: Cohort) -> dict[str, Any]:
    """Return p-value and score of the whole cohort, and the table of `interpret.influence`."""
    learner = cohort.learner(max_points=REFIT_CELLS)
    result = influence(learner, cohort.metric_features, cohort.target, **cohort.design, verbose=cohort.steps.verbose)
    rows = result.table().astype({"patient": str}).to_dict("records")
    return {"p": result.p, "score": result.score, "n_patients": result.n_patients, "rows": rows}


@step("changes", "comparing single patients with other labels")
def patient_changes(cohort: Cohort) -> list[dict[str, Any]]:
    """Return the largest changes of the clearest patient of each label on the way to the nearest other label."""
    D, labels = cohort.metric_features.equalize(REFIT_CELLS), np.asarray(cohort.read.y)
    ensemble = cohort.learner(max_points=REFIT_CELLS, verbose=cohort.steps.verbose)
    ensemble.fit(D, cohort.read.y, **cohort.design)
    if not ensemble.fitted_.design:
        return []  # no members that were trained without a given pair of patients
    changes = []
    for k, label in enumerate(ensemble.classes_[:MAX_CHANGED]):  # clearest: the highest held-out probability
        clearest = int(np.argmax(np.where(labels == label, ensemble.held_out_[:, k], -1.0)))
        result = counterfactual(
            ensemble, D, cohort.read.y, D.names[clearest], annotation=cohort.annotation, groups=cohort.read.groups
        )
        table = result.table().head(MAX_CHANGES)[["kind", "feature", "change", "low", "high", "p"]]
        rows = [[str(kind), str(feature), *numbers] for kind, feature, *numbers in table.to_numpy().tolist()]
        names = {"patient": str(result.name), "label": str(result.label), "other": str(result.other)}
        changes.append({**names, "rows": rows})
    return changes


@step("plan", "extrapolating to more patients")
def study_plan(cohort: Cohort) -> dict[str, Any]:
    curve = learning_curve(
        cohort.learner(max_points=REFIT_CELLS), cohort.metric_features, cohort.read.y, **cohort.design,
        n_subsamples=1, verbose=cohort.steps.verbose,
    )  # fmt: skip
    return {"rows": curve.table().to_numpy(dtype=float), "text": curve.describe()}


# Genes


def gene_importance(run: Run) -> pd.DataFrame:
    """Return importance and direction of the most important features, a row each.

    By means of samples: the labels "highest" and "lowest" with their difference in standard deviations of the cells
    ("effect"); for ordered labels, "effect" is Spearman's correlation with the label.
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


@step("gene types", "comparing genes within cell types")
def gene_cell_types(cohort: Cohort, genes: list[str]) -> dict[str, str]:
    """Return, by gene, the cell type in which the means of the labels (over means of samples) are farthest apart."""
    run, D = cohort.run, cohort.metric_features
    samples = samples_of(run.cells.obs, run.sample_key)
    sample = samples.names[samples.codes]
    rows = np.concatenate([np.flatnonzero(run.drawn & (sample == name)) for name in D.names])
    types, codes = cohort.types(rows)
    cell = codes + len(types) * np.repeat(np.arange(len(D)), D.sizes)  # type and sample of each cell
    counts = np.bincount(cell, minlength=len(types) * len(D))
    sums = sparse.csr_array((np.ones(cell.size), (cell, np.arange(cell.size))), (counts.size, cell.size))
    values = sums @ D.points[:, pd.Index(run.stored.features).get_indexer(genes)]
    means = (values.toarray() if sparse.issparse(values) else values) / np.maximum(counts, 1)[:, None]
    keys = [np.tile(types, len(D)), np.repeat(run.classes.loc[D.names].to_numpy(), len(types))]
    by_label = pd.DataFrame(means, pd.MultiIndex.from_arrays(keys), genes)[counts > 0].groupby(level=[0, 1]).mean()
    by_type = by_label.groupby(level=0)
    return (by_type.max() - by_type.min()).idxmax().to_dict()


@dataclass(frozen=True)
class Stability:
    """Variation of importances over ensemble members or refits, and q-values; arrays are by feature of the metric."""

    low: np.ndarray
    high: np.ndarray
    selected: np.ndarray
    n_top: int
    repeats: str
    q: np.ndarray | None = None
    smallest_p: float = 0.0  # smallest p-value of a feature that the permutations and the design allow

    def significant(self) -> int | None:
        return None if self.q is None else int(np.sum(self.q < LEVEL))


@step("q", "testing single features")
def q_values(cohort: Cohort) -> dict[str, Any]:
    """Return the q-values of the features against permuted labels ("q"), and the smallest possible p-value."""
    y = cohort.run.classes.loc[list(map(str, cohort.read.D.names))].to_numpy()
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of samples with few cells
        tested = feature_significance(
            cohort.metric_features, y, **cohort.design, n_permutations=FEATURE_PERMUTATIONS, random_state=0
        )
    return {"q": tested.discoveries.q, "smallest_p": tested.smallest_p}


@step("stability", "refitting to bootstrap samples", limited=True, into=Stability)
def refit_stability(cohort: Cohort) -> dict[str, Any]:
    """Return the variation of a single metric over refits to bootstrap samples, as many as the budget allows."""
    run, steps = cohort.run, cohort.steps
    seconds = max(float(run.findings.get("seconds") or 0.0), 0.1)  # of one refit, as long as learning took
    number = steps.affordable(REFITS, seconds)
    if number < 2:
        needed = f"{REFITS} refits take about {duration(REFITS * seconds)}"
        raise ValueError(f"{needed}, more than remained of the budget")
    learner = cohort.learner()
    learner.metric_ = run.stored.metric
    result = stability(
        learner, cohort.metric_features, cohort.read.y, groups=cohort.read.groups, n_refits=number,
        n_jobs=steps.n_jobs, verbose=steps.verbose,
    )  # fmt: skip
    low, high = result.interval
    return {"low": low, "high": high, "selected": result.selected, "n_top": result.n_top,
            "repeats": f"{len(result.refits)} refits"}  # fmt: skip


# Axes and gene sets


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


@step("axes", "computing the axes of the learned space", required=True, into=Axes)
def find_axes(cohort: Cohort) -> dict[str, Any]:
    """Return the axes along which other labels are farther, and at least two for the map of cells."""
    cells, steps, metric = cohort.cells, cohort.steps, cohort.run.stored.metric
    types = None if cohort.type_key is None else cell_types_of(cohort.run.cells.obs, cohort.type_key)[cells.places]
    axes = canonical_axes(
        GroundMetric(np.eye(cells.D.shape[1])), cells.D, cells.y, annotation=types, max_partners=PARTNERS,
        n_jobs=steps.n_jobs, verbose=steps.verbose,
    )  # fmt: skip
    activity = axes.activity.sum(axis=0)
    total = float(np.maximum(activity, 0.0).sum())
    separating = (activity >= MIN_SHARE * total) & (total > 0)
    shown = shown_axes(separating)
    spread = np.ones(metric.n_features) if metric.variances is None else np.sqrt(metric.variances)
    loadings = axes.metric.components[shown] @ metric.components * spread
    # The sign of an axis is arbitrary: its largest loading is made positive.
    sign = np.where(loadings[np.arange(len(loadings)), np.abs(loadings).argmax(axis=1)] < 0, -1.0, 1.0)
    return {
        "rotation": axes.metric.components[shown] * sign[:, None], "share": axes.share[shown],
        "loadings": loadings * sign[:, None], "labels": list(map(str, axes.classes)),
        "positions": axes.positions[:, shown] * sign, "activity": axes.activity[:, shown],
        "types": ["all"] if types is None else list(map(str, axes.values)), "separating": separating[shown],
        "n_all": axes.share.size,
    }  # fmt: skip


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


# Cells and cell types


def cell_relevance(cohort: Cohort) -> np.ndarray:
    """Return how much farther each cell's mass travels to other labels than to its own; NaN if it was not drawn."""
    cells, column = cohort.run.cells, f"{cohort.run.key}_relevance"
    if column in cells.obs:
        return cells.obs[column].to_numpy(dtype=np.float64)
    relevance = np.full(cells.n_obs, np.nan)
    relevance[cohort.cells.places] = relevance_of_drawn_cells(cohort)
    return relevance


@step("relevance", "computing the relevance of cells", required=True)
def relevance_of_drawn_cells(cohort: Cohort) -> np.ndarray:
    cells, steps = cohort.cells, cohort.steps
    codes = np.unique(cells.y, return_inverse=True)[1]
    pairs = partners(codes, PARTNERS, np.random.default_rng(0))
    types = None if cohort.type_key is None else cohort.types(cells.places)[1]
    travel = travel_of_cells(cells.D, codes, pairs, types, steps.n_jobs, steps.verbose)
    return np.round((travel.between - travel.within) / travel.unit, 6)


@step("types", "computing the shares of cell types", required=True)
def type_relevance(cohort: Cohort) -> dict[str, Any]:
    """Return the share of each cell type in the difference between labels; "certain" if this is above 0."""
    run, steps = cohort.run, cohort.steps
    types, names, bags = type_bags(cohort)
    groups = run.samples.obs[run.group_key].loc[names].to_numpy() if run.group_key in run.samples.obs else None
    relevance = relevance_in_bags(
        bags, np.unique(run.classes.loc[names].to_numpy(), return_inverse=True)[1], types,
        out_of_bag=len(bags) > 1, groups=groups, n_draws=DRAWS, max_partners=PARTNERS,
        random=np.random.RandomState(0), n_jobs=steps.n_jobs, verbose=steps.verbose,
    )  # fmt: skip
    low, high = relevance.interval
    return {
        "types": types, "share": relevance.share, "low": low, "high": high, "relevance": relevance.relevance,
        "out_of_bag": relevance.out_of_bag, "certain": relevance.total_interval[0] > 0,
    }  # fmt: skip


def type_bags(cohort: Cohort) -> tuple[list[str], list[str], list[Bag]]:
    """Return cell types, samples, and the members of an ensemble, or a single metric, with the cells they compare."""
    run, cells = cohort.run, cohort.cells
    views = [] if run.predictor is None else [view for _, view in run.predictor.views]
    members = [(view, member) for view in views if isinstance(view, TransportView) for member in view.members]
    if not members:
        types, codes = cohort.types(cells.places)
        untrained = np.zeros(len(cells.D), dtype=bool)
        bag = Bag(cells.D, codes, GroundMetric(np.eye(cells.D.shape[1])), untrained)
        return types.tolist(), list(map(str, cells.D.names)), [bag]
    assert run.predictor is not None
    names = run.predictor.names
    samples = samples_of(run.cells.obs, run.sample_key)
    # Points of the predictor are numbered through all training samples, of which it may hold the landmarks only.
    training = names if run.results is None else run.results.samples
    types, codes = cohort.types(np.flatnonzero(run.drawn & samples.contains(training)))
    bags = []
    for view, member in members:
        D = member.project(view.description, np.arange(len(view.description)))
        if D.order.max() >= codes.size:
            raise ValueError("the predictor of the run belongs to other cells: learn again")
        bags.append(Bag(D, codes[D.order], GroundMetric.euclidean(D.shape[1]), member.trained_on))
    return types.tolist(), names, bags
