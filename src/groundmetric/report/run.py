"""The run that a report is about, the steps of the report, held-out scores of the learned model and of baselines.

A run is read from the folder of `groundmetric learn` or taken from memory. An ensemble has held-out predictions of its
nested cross-validation; a single metric is fitted again in cross-validation folds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import anndata as ad
import joblib
import numpy as np
import pandas as pd
from scipy import sparse

from .. import __version__, baselines
from .._anndata.cohort import CELL_TYPE, Labelled, read_cohort
from .._anndata.source import PANEL, Source
from .._anndata.store import (  # fmt: skip
    RUN_CELLS,
    RUN_PREDICTOR,
    EnsembleResults,
    Stored,
    check_parts,
    plain_parameters,
    predictor_of,
    read_entry,
    stored_learner,
)
from .._internal.cache import Cache
from .._internal.parallel import muted
from .._internal.tables import plain, score_name
from .._internal.types import CellsLike
from .._internal.validation import ParameterError, number_groups
from ..baselines.models import inner_folds
from ..distributions import Distributions
from ..ensemble import Predictor as ViewPredictor
from ..ensemble.stacking import Numbers
from ..estimators import GroundMetricEnsemble, GroundMetricLearner
from ..estimators.predictor import load_predictor
from ..estimators.preprocessing import SelectedFeatures, with_features
from ..evaluation import Comparison, Voting, compare, folds
from ..evaluation.compare import Cohort as Folds
from ..evaluation.compare import fit, recorded_warnings
from ..evaluation.intervals import Difference, Estimate, holm, r2_difference, r2_estimate
from ..evaluation.permutation import PreparedTest
from ..evaluation.results import Result, lead_in_words
from ..evaluation.scores import encode, score_codes
from ..learning.splits import Split

FINDINGS, SAMPLES = "run.json", "samples.h5ad"
CACHE = "report.cache"  # file in the folder of a run
CACHE_FORMAT = 8  # entries of other formats are computed again
MAX_VALUES = 5  # ordered labels with more different values are compared by thirds
TOLERANCE = 1.2  # a budget is kept if the report takes at most this multiple of it


class BudgetError(ValueError):
    """A step that exceeds the remaining budget."""


@dataclass
class Steps:
    """Long steps of a report: a line before each, their duration, and the remaining budget."""

    n_jobs: int | None = None  # threads or processes; None: one
    verbose: int = 0  # 1 prints a line per step, and shows progress bars on a terminal
    budget: float | None = None  # seconds for all steps; None: no limit
    seconds: dict[str, float] = field(default_factory=dict)  # duration of each finished step
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def step(self, name: str, *, required: bool = False) -> Iterator[None]:
        """Time a step. Raise `BudgetError` if no time remains, unless the page requires the step."""
        if self.remaining <= 0 and not required:
            raise BudgetError(f"no time remained of the budget of {duration(self.budget or 0.0)}")
        if self.verbose:
            print(name, file=sys.stderr, flush=True)
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        """Seconds that remain of the budget."""
        return float("inf") if self.budget is None else self.budget - self.elapsed

    def affordable(self, n: int, seconds: float) -> int:
        """Return how many of `n` tasks of this duration fit into the remaining budget."""
        return n if self.budget is None or seconds <= 0 else max(0, min(n, int(self.remaining / seconds)))

    def overrun(self) -> str | None:
        """Return a sentence that names the longest steps if the budget was exceeded by more than 20 %."""
        if self.budget is None or self.elapsed <= TOLERANCE * self.budget:
            return None
        longest = sorted(self.seconds.items(), key=lambda item: -item[1])[:3]
        steps = ", ".join(f"{name} ({duration(seconds)})" for name, seconds in longest)
        return f"the report took {duration(self.elapsed)} instead of {duration(self.budget)}; longest steps: {steps}"


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


@dataclass(frozen=True)
class Run:
    """Results of learning, and the file or AnnData with the values of the cells."""

    cells: ad.AnnData  # after `tl.learn`, with or without values
    samples: ad.AnnData  # from `tl.samples`
    source: CellsLike | None  # values of the cells; None: the report omits results that need them
    findings: dict[str, Any]  # of `groundmetric learn`, each optional: "cells" (file), "seconds", "interrupted"
    folder: Path | None = None  # of the cache; None: nothing is cached
    key: str = "groundmetric"  # the `key_added` of `tl.learn`

    @classmethod
    def open(cls, folder: str | os.PathLike[str], cells: str | os.PathLike[str] | None = None) -> Run:
        """Read the folder of a run; `cells` is the file that was learned from.

        By default the file is searched under the name in run.json, relative to the working directory and to the
        parents of the run's folder. `source` is None if no such file exists.
        """
        path = Path(folder)
        for name in (FINDINGS, RUN_CELLS, SAMPLES):
            if not (path / name).is_file():
                raise ParameterError("run", os.fspath(folder), f", which is not a run of groundmetric learn: no {name}")
        findings = _read_findings(path / FINDINGS)
        source = _find_cells(findings["cells"], path.resolve()) if cells is None else Path(cells)
        run = cls(ad.read_h5ad(path / RUN_CELLS), ad.read_h5ad(path / SAMPLES), source, findings, path)
        entry = run.cells.uns.get(run.key, {})
        check_parts(entry, ("metric", "learner", *(("ensemble",) if "ensemble" in entry else ("history",))), run.key)
        if source is not None:
            with Source(source) as values:
                missing = ~run.cells.obs_names.isin(values.obs.index)
            if missing.any():
                name = str(run.cells.obs_names[missing][0])
                problem = f", which lacks {int(missing.sum())} of the {missing.size} cells of the run, e.g. {name!r}"
                raise ParameterError("cells", str(source), problem)
        return run

    @cached_property
    def entry(self) -> dict[str, Any]:
        return self.cells.uns[self.key]

    @cached_property
    def stored(self) -> Stored:
        return read_entry(self.cells.uns.get(self.key), self.key, "the run")

    @cached_property
    def results(self) -> EnsembleResults | None:
        """Held-out results of an ensemble; None for a single metric."""
        return EnsembleResults.read(self.entry)

    @cached_property
    def predictor(self) -> ViewPredictor | None:
        """Views of an ensemble with the cells that its members compare; None for a single metric."""
        file = None if self.folder is None else self.folder / RUN_PREDICTOR
        if file is not None and file.exists():
            return load_predictor(file).predictor_
        predictor = predictor_of(self.entry, f"uns[{self.key!r}]['predictor']")
        return None if predictor is None else predictor.predictor_

    @property
    def learner(self) -> dict[str, Any]:
        """Parameters of the learner."""
        return plain_parameters(self.entry["learner"])

    @property
    def group_key(self) -> str | None:
        return self.stored.params.get("group_key")

    @property
    def sample_key(self) -> str:
        return self.stored.params["sample_key"]

    @property
    def label_key(self) -> str:
        return self.stored.params["label_key"]

    @property
    def is_ordered(self) -> bool:
        """Whether labels are numbers or ordered categories."""
        return str(self.learner.get("target", "classes")) == "ordered"

    @property
    def has_numbers(self) -> bool:
        """Whether labels are numbers that were learned in their order."""
        return self.is_ordered and self.stored.labels.dtype.kind in "biuf"

    @property
    def is_expression(self) -> bool:
        return self.stored.params.get("use_rep") is None

    @property
    def feature(self) -> str:
        """Name of a feature in texts; a small panel may hold other features than genes."""
        if not self.is_expression:
            return "dimension"
        return "gene" if int(self.entry.get("features", {}).get("n_features", PANEL + 1)) > PANEL else "feature"

    @property
    def has_values(self) -> bool:
        return self.source is not None and (not isinstance(self.source, Path) or self.source.exists())

    @property
    def own_columns(self) -> list[str]:
        """Columns of `samples.obs` that learning added."""
        return [name for name in self.samples.obs.columns if str(name).startswith(f"{self.key}_")]

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

    def cached(self, name: str, parameters: Any, compute: Callable[[], Any]) -> Any:
        """Return the plain data of `compute`, from the cache if it has them for these parameters."""
        if self.folder is None:
            return compute()
        stored, labels = self.stored, list(map(str, self.stored.labels))
        state = [__version__, CACHE_FORMAT, stored.metric.components, stored.params, labels, parameters]
        cache, key = Cache(self.folder / CACHE), f"{name}-{joblib.hash(state)}"
        answer = cache.get_json(key)
        if answer is None:
            answer = plain(compute())
            cache.put_json(key, answer)
        return answer


def _find_cells(name: str, folder: Path) -> Path | None:
    """Return the file that was learned from, or None.

    The command may have been given in another working directory: the parents of the run's folder and the folder itself
    are searched as well. The run's own file of cells has no values.
    """
    paths = [Path(name), *(parent / name for parent in folder.parents)]
    paths += [folder / Path(name).name, folder.parent / Path(name).name]
    return next((path for path in paths if path.exists() and path.resolve() != folder / RUN_CELLS), None)


def _read_findings(path: Path) -> dict[str, Any]:
    try:
        findings = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}): run groundmetric learn again") from error
    findings = findings if isinstance(findings, dict) else {}
    if findings.get("command", "learn") != "learn":
        raise ValueError(f"{str(path)!r} was written by groundmetric {findings['command']}: expected a run of learn")
    if lacking := [name for name in ("groundmetric", "command", "cells") if name not in findings]:
        version = findings.get("groundmetric", "(unknown version)")
        raise ValueError(f"{str(path)!r} of groundmetric {version} lacks {lacking[0]!r}: run groundmetric learn again")
    return findings


# Every class counts the same, in the score and in the votes of neighbours.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
LEARNED = "groundmetric"
FOLDS, NEIGHBORS = 5, 5
TRANSPORT_CELLS = 100  # cells per sample for Euclidean transport, as many as an ensemble member compares
TRANSPORT = "transport-5-nn"  # key of the baseline that would compare all cells
MAX_DENSE = 5e7  # values of a dense array: 200 MB
TEST_CELLS = 50  # cells per sample in the permutation test: a quarter of the time with hardly less power
TRIAL = 2  # permutations that are timed to plan the others
MIN_PERMUTATIONS = 19  # needed for p = 0.05


@dataclass
class Cohort:
    """Values and labels of a run, read at first use."""

    run: Run
    group_key: str | None
    type_key: str | None = None

    @cached_property
    def read(self) -> Labelled:
        run, params = self.run, self.run.stored.params
        rule = params["genes"] if params.get("use_rep") is None else None
        if rule == "given":
            raise ValueError("the genes were given as a list, which the run does not store")
        with muted():  # the page has warnings of its own
            read = read_cohort(
                run.source, run.sample_key, run.label_key, group_key=self.group_key, layer=params.get("layer"),
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
        labels, units = np.asarray(self.read.y), self.read.groups or list(range(len(self.read.y)))
        smallest = min(len({unit for unit, y in zip(units, labels, strict=True) if y == c}) for c in np.unique(labels))
        if smallest < 2:
            raise ValueError("a label has a single sample (or group), so it cannot be both learned and held out")
        return folds(self.read.y, groups=self.read.groups, n_splits=min(FOLDS, smallest), random_state=0)

    @property
    def annotation(self) -> str | None:
        """Name of the annotation with the cell types, or None."""
        return CELL_TYPE if CELL_TYPE in self.read.D.annotations else None

    @property
    def units(self) -> np.ndarray:
        """Patient of each sample, as numbers from 0."""
        units = number_groups(self.read.groups, len(self.read.D))
        return np.arange(len(self.read.D)) if units is None else units

    @property
    def voting(self) -> Voting:
        return Voting(min(NEIGHBORS, *(train.size for train, _ in self.splits)), class_weight=CLASS_WEIGHT)

    @property
    def strata(self) -> list[Any] | None:
        """Batch of each sample, if an ensemble compared labels within batches."""
        key = self.run.stored.params.get("batch_key")
        if key is None or self.run.results is None:
            return None
        return self.run.samples.obs[key].loc[[str(name) for name in self.read.D.names]].tolist()

    @property
    def numbers(self) -> np.ndarray:
        """Numbers that ordered labels were learned as."""
        results: Any = self.run.results
        numbers = dict(zip(results.labels.tolist(), results.numbers, strict=True))
        return np.array([numbers[label] for label in np.asarray(self.read.y).tolist()])

    def learner(self, **changes: Any) -> GroundMetricEnsemble | GroundMetricLearner:
        """Return an unfitted learner with the parameters of the run."""
        return stored_learner(self.run.entry, **changes)


@dataclass(frozen=True)
class Predictions:
    """Held-out predictions of samples."""

    names: list[str]
    truth: list[Any]  # text, or numbers
    predicted: list[Any]
    probability: list[float] | None  # of the predicted class; None for numbers
    classes: list[str]  # empty for numbers

    @classmethod
    def of_ensemble(cls, results: EnsembleResults) -> Predictions:
        if results.numbers is None:
            return cls.of_probabilities(results.samples, results.labels, results.held_out, results.classes)
        convert: Any = float if results.labels.dtype.kind in "biuf" else str
        order = dict.fromkeys(results.labels[np.argsort(results.numbers, kind="stable")].tolist())
        return cls(
            results.samples,
            [convert(label) for label in results.labels],
            [convert(label) for label in results.predicted],
            None,
            [] if convert is float else [str(name) for name in order],
        )

    @classmethod
    def of_probabilities(cls, names: Sequence[Any], truth: Any, probabilities: np.ndarray, classes: Any) -> Predictions:
        """From probabilities of shape (n_samples, n_classes)."""
        return cls(
            [str(name) for name in names],
            [str(label) for label in truth],
            [str(np.asarray(classes)[k]) for k in probabilities.argmax(axis=1)],
            [float(p) for p in probabilities.max(axis=1)],
            [str(label) for label in classes],
        )


@dataclass(frozen=True)
class Evaluation:
    """Held-out scores, the learned model first."""

    score: str  # "balanced_accuracy" or "r2"
    chance: float  # score of guessing
    # By method: "method", "status", "value", "low", "high", "seconds", and the lead of the learned model over it
    # ("lead", "lead_low", "lead_high", "p").
    rows: list[dict[str, Any]]
    protocol: str  # how samples were held out
    predictions: Predictions | None  # of the learned model
    test: dict[str, Any] | None  # permutation test
    notes: list[str]  # remarks on the scores

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


def evaluate(cohort: Cohort, steps: Steps) -> Evaluation:
    """Score the learned model and the baselines on held-out samples."""
    run = cohort.run
    scores = _score_numbers if run.is_ordered and run.results is not None else _score_classes
    key = [cohort.group_key, cohort.type_key, FOLDS, TRANSPORT_CELLS]
    data = run.cached("scores", key, lambda: scores(cohort, steps))
    predictions = data.pop("predictions")
    return Evaluation(**data, predictions=None if predictions is None else Predictions(**predictions), test=None)


def _score_numbers(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """Score numbers predicted by the ensemble and by baselines in cross-validation, by R²."""
    results, numbers, units = _held_out_results(cohort, steps), cohort.numbers, cohort.units
    row_of = {name: k for k, name in enumerate(results.samples)}
    predicted = {LEARNED: results.held_out[[row_of[str(name)] for name in cohort.read.D.names]]}
    folds = inner_folds(Numbers.of(numbers), units, cohort.read.D.names)
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in np.unique(folds)]
    seconds: dict[str, float | None] = {LEARNED: None}
    with steps.step(f"comparing with baselines in {len(splits)} folds"), recorded_warnings():
        data = Folds(cohort.read.D, numbers, np.empty(0), cohort.read.groups)
        titles = baselines.titles("ordered", annotation=cohort.annotation)
        for name, method in baselines.standard("ordered", annotation=cohort.annotation).items():
            started, predicted[titles[name]] = time.monotonic(), np.empty(len(numbers))
            for train, test in splits:
                fitted = fit(_in_folds(method, cohort), data, train)
                predicted[titles[name]][test] = fitted.predict(data.D[test])
            seconds[titles[name]] = (time.monotonic() - started) / len(splits)
    leads = {name: r2_difference(numbers, predicted[LEARNED], values, units) for name, values in predicted.items()}
    adjusted = dict(zip(list(leads)[1:], holm([leads[name].p for name in list(leads)[1:]]), strict=True))
    rows = [
        _row(name, "ok", r2_estimate(numbers, values, units), seconds[name], leads[name], adjusted.get(name))
        for name, values in predicted.items()
    ]
    return {
        "score": "r2",
        "chance": 0.0,
        "rows": rows,
        "protocol": f"{_ensemble_protocol(cohort)} R² is the predicted share of the variance of the label. Baselines: "
        f"{len(splits)}-fold cross-validation{_together(cohort)}; all steps are fitted on training folds.",
        "predictions": dataclasses.asdict(Predictions.of_ensemble(results)),
        "notes": cohort.read.notes,
    }


def _score_classes(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """Score predicted classes, and those of baselines in cross-validation folds."""
    run, D = cohort.run, cohort.read.D
    titles = baselines.titles(annotation=cohort.annotation)
    methods = {titles[name]: method for name, method in baselines.standard(annotation=cohort.annotation).items()}
    with steps.step(f"comparing with baselines in {len(cohort.splits)} folds"):
        transport = {titles[TRANSPORT]: methods.pop(titles[TRANSPORT])}
        # Starting other processes takes seconds: only refits of a learner are longer.
        learner = {} if run.results is not None else {LEARNED: cohort.learner()}
        comparison = _compare(cohort, D, {**learner, **methods}, steps.n_jobs if learner else None, steps.verbose)
        drawn = D.subsample(TRANSPORT_CELLS, random_state=0)
        if sparse.issparse(drawn.points) and np.prod(drawn.points.shape, dtype=float) <= MAX_DENSE:
            drawn = drawn.with_points(drawn.points.toarray(), drawn.features)
        results = dict(comparison.results) | _compare(cohort, drawn, transport, None, steps.verbose).results
    if run.results is not None:
        results[LEARNED] = _results_of_folds(comparison, cohort, _held_out_results(cohort, steps))
    comparison = dataclasses.replace(comparison, results={LEARNED: results.pop(LEARNED), **results})
    predictions = None
    if all(result.status == "ok" for result in comparison.results[LEARNED]):
        probabilities = np.zeros((len(comparison.labels), len(comparison.classes)))
        for (_, test), result in zip(comparison.splits, comparison.results[LEARNED], strict=True):
            probabilities[test] = result.probabilities
        predictions = Predictions.of_probabilities(D.names, comparison.labels, probabilities, comparison.classes)
    against = comparison.against(LEARNED, SCORE)
    rows = []
    for method in comparison.methods:
        seconds = comparison.seconds(method) if comparison.results[method][0].seconds else None
        lead, p = against.get(method, (None, None))
        rows.append(_row(method, comparison.status(method), comparison.estimate(method, SCORE), seconds, lead, p))
    ensemble = "" if run.results is None else f"{_ensemble_protocol(cohort)} Baselines: "
    protocol = (
        f"{ensemble}{len(cohort.splits)}-fold cross-validation{_together(cohort)}; all steps (gene selection, "
        f"clusters, penalties) are fitted on training folds. 5-NN: votes of the {cohort.voting.n_neighbors} nearest "
        f"training samples, balanced by label. Transport compares {TRANSPORT_CELLS} cells per sample."
    )
    return {
        "score": SCORE, "chance": 1 / len(comparison.classes), "rows": rows, "protocol": protocol,
        "predictions": None if predictions is None else dataclasses.asdict(predictions),
        "notes": [*cohort.read.notes, *comparison.notes],
    }  # fmt: skip


def _row(
    method: str, status: str, estimate: Estimate, seconds: float | None, lead: Difference | None, p: float | None
) -> dict[str, Any]:
    row = {"method": method, "status": status, "value": estimate.value, "low": estimate.low, "high": estimate.high}
    row["seconds"] = seconds
    if method != LEARNED and lead is not None:
        row |= {"lead": lead.value, "lead_low": lead.low, "lead_high": lead.high, "p": p}
    return row


def _together(cohort: Cohort) -> str:
    return f" with all samples of one {cohort.group_key} in the same fold" if cohort.group_key else ""


def _ensemble_protocol(cohort: Cohort) -> str:
    assert cohort.run.results is not None
    return (
        f"{LEARNED} is the {cohort.run.results.scored} of the run, scored by nested cross-validation"
        f"{_together(cohort)}: the labels of a held-out fold enter no step of its prediction (members, kernels, "
        "penalties, weights)."
    )


def _compare(cohort: Cohort, D: Distributions, methods: dict[str, Any], n_jobs: int | None, verbose: int) -> Comparison:
    return compare(
        {name: _in_folds(method, cohort) for name, method in methods.items()}, D, cohort.read.y, cv=cohort.splits,
        groups=cohort.read.groups, voting=cohort.voting, points=False, n_jobs=n_jobs, verbose=verbose,
    )  # fmt: skip


def _in_folds(method: Any, cohort: Cohort) -> Any:
    """Return a seeded method that selects genes within each training set, if the run selected genes by a rule."""
    if "random_state" in (params := method.get_params()) and params["random_state"] is None:
        method.set_params(random_state=0)
    return method if cohort.read.rule is None else SelectedFeatures(method, cohort.read.rule)


def _held_out_results(cohort: Cohort, steps: Steps) -> EnsembleResults:
    """Return the held-out results of the run; learn again only if the report has other groups than the run."""
    run = cohort.run
    assert run.results is not None
    if cohort.group_key == run.group_key:
        return run.results
    with steps.step(f"learning again with undivided groups of {cohort.group_key}"):
        numbers = cohort.numbers if run.is_ordered else None
        learner: Any = cohort.learner(verbose=steps.verbose)
        y = cohort.read.y if numbers is None else numbers
        learner.fit(cohort.metric_features, y, groups=cohort.read.groups, strata=cohort.strata)
    return EnsembleResults.of(learner, cohort.read.D.names, np.asarray(cohort.read.y), numbers)


def _results_of_folds(comparison: Comparison, cohort: Cohort, results: EnsembleResults) -> list[Result]:
    """Return the held-out predictions of an ensemble as results of the folds of a comparison."""
    row_of = {name: k for k, name in enumerate(results.samples)}
    rows = [row_of[str(name)] for name in cohort.read.D.names]
    probabilities = results.probabilities(np.unique(cohort.read.y))[rows]
    codes = encode(np.asarray(comparison.labels), np.asarray(comparison.classes))
    folds_results = []
    for _, test in comparison.splits:
        scores = {name: float(value) for name, value in score_codes(codes[test], probabilities[test]).items()}
        folds_results.append(Result(scores={"distributions": scores}, probabilities=probabilities[test].tolist()))
    return folds_results


def permutation_test(cohort: Cohort, permutations: int, steps: Steps) -> dict[str, Any]:
    """Run the permutation test with as many permutations as the budget allows.

    Returns {"test": dict, "notes": list of str}.
    """

    def compute() -> dict[str, Any]:
        with steps.step(f"permuting labels, at most {permutations} times"), recorded_warnings() as messages:
            run, read = cohort.run, cohort.read
            if run.results is not None:
                ensemble, y = cohort.learner(max_points=TEST_CELLS), cohort.numbers if run.is_ordered else read.y
                test = PreparedTest(
                    ensemble, cohort.metric_features, y, groups=read.groups, strata=cohort.strata, random_state=0
                )
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
                raise BudgetError(f"{needed}, and {duration(max(0.0, steps.remaining))} remained of the budget")
            result = test.run(number, n_jobs=steps.n_jobs, verbose=steps.verbose).to_dict()
        notes = [] if number == permutations else [f"{number} of {permutations} permutations fit the budget: {needed}"]
        return {"test": result, "notes": [*notes, *dict.fromkeys(messages)]}

    return cohort.run.cached("permutations", [cohort.group_key, FOLDS, permutations, steps.budget], compute)
