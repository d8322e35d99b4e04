"""Held-out prediction: scores of the learned model and of baselines, and a permutation test.

The learned model has one score. An ensemble has held-out predictions from its nested cross-validation; a single metric
is fitted again in cross-validation folds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import joblib
import numpy as np
from scipy import sparse

from .. import baselines
from .._anndata.cohort import CELL_TYPE, Labelled, read_cohort
from .._anndata.store import EnsembleResults, stored_learner
from .._internal.parallel import muted
from .._internal.validation import number_groups
from ..baselines.models import inner_folds
from ..distributions import Distributions
from ..ensemble.stacking import Numbers
from ..estimators import GroundMetricEnsemble, GroundMetricLearner
from ..estimators.preprocessing import SelectedFeatures, with_features
from ..evaluation import Comparison, Voting, compare, folds
from ..evaluation.compare import Cohort as Folds
from ..evaluation.compare import fit, recorded_warnings
from ..evaluation.results import Result
from ..evaluation.intervals import Difference, Estimate, holm, r2_difference, r2_estimate
from ..evaluation.permutation import prepare_test
from ..evaluation.scores import encode, score_codes
from ..learning.splits import Split
from .run import BudgetError, Run, Steps, duration

# Every class counts the same, in the score and in the votes of neighbours.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
LEARNED = "groundmetric"
FOLDS, NEIGHBORS = 5, 5
TRANSPORT_CELLS = 100  # cells per sample for Euclidean transport, as many as an ensemble member compares
TRANSPORT = "transport-5-nn"  # key of the baseline that would compare all cells
LEVEL = 0.05
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
    names: ClassVar[dict[str, str]] = {
        "r2": "R²", "balanced_accuracy": "balanced accuracy", "log_probability": "log-probability",
    }  # fmt: skip

    @property
    def name(self) -> str:
        return self.names[self.score]

    @property
    def learned(self) -> dict[str, Any]:
        return self.rows[0]

    @property
    def best_baseline(self) -> dict[str, Any] | None:
        scored = [row for row in self.rows[1:] if row["value"] is not None]
        return max(scored, key=lambda row: row["value"], default=None)

    @property
    def verdict(self) -> str | None:
        """Comparison of the learned model with the best baseline, in a sentence; None without baselines.

        "Better" needs an interval over patients that excludes 0. The best of several baselines is worse on new samples
        than on these, so the comparison favours the baseline; "worse" is therefore corrected for their number (Holm).
        """
        best = self.best_baseline
        if best is None:
            return None
        start = f"Best baseline {best['value']:.2f} ({best['method']})"
        lead, low, high, p = (best.get(key) for key in ("lead", "lead_low", "lead_high", "p"))
        if lead is None or low is None or high is None:
            return f"{start}."
        worse = high < 0 and p is not None and p < LEVEL
        verdict = f"{LEARNED} is better" if low > 0 else f"{LEARNED} is worse" if worse else "no significant difference"
        return f"{start}: {verdict} (difference {lead:+.2f}, 95% interval {low:+.2f} to {high:+.2f})."


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
                fitted = fit(_in_folds(method, cohort), data.D[train], data, train)
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
                test = prepare_test(
                    ensemble, cohort.metric_features, y, groups=read.groups, strata=cohort.strata, random_state=0
                )
            else:
                test = prepare_test(
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
