"""Held-out prediction: scores of the learned model and of baselines, and a permutation test.

The learned model has one score. An ensemble has held-out predictions from its nested cross-validation; a single metric
is fitted again in cross-validation folds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from scipy import sparse

from .. import baselines
from .._anndata.cohort import Labelled, read_cohort
from .._anndata.store import EnsembleResults
from ..distributions import Distributions
from ..estimators import GroundMetricEnsemble, GroundMetricLearner
from ..estimators.preprocessing import SelectedFeatures, with_features
from ..evaluation import Comparison, Voting, compare, folds
from ..evaluation._run import Result, recorded_warnings
from ..evaluation.permutation import PreparedTest, prepare_test
from ..evaluation.scores import encode, score_codes
from ..learning.splits import Split
from ..learning.training import read_parameters
from .run import BudgetError, Run, Steps, duration

# Every class counts the same, in the score and in the votes of neighbours.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
LEARNED = "groundmetric"
QUICK = {
    "Pseudobulk, logistic regression": baselines.PseudobulkLogistic,
    "Pseudobulk, nearest neighbours": baselines.PseudobulkNeighbors,
    "Cluster composition, nearest neighbours": baselines.Composition,
}
EUCLIDEAN = "Euclidean transport, nearest neighbours"
FOLDS, NEIGHBORS = 5, 5
TRANSPORT_CELLS = 100  # cells per sample for Euclidean transport, as many as an ensemble member compares
CLUSTERED_CELLS = 3000  # cells that the clusters of the composition baseline are fitted to
MAX_DENSE = 5e7  # values of a dense array: 200 MB
TEST_CELLS = 50  # cells per sample in the permutation test: a quarter of the time with hardly less power
TRIAL = 2  # permutations that are timed to plan the others
MIN_PERMUTATIONS = 19  # needed for p = 0.05


@dataclass
class Cohort:
    """Values and labels of a run, read at first use."""

    run: Run
    group_key: str | None

    @cached_property
    def read(self) -> Labelled:
        run, params = self.run, self.run.stored.params
        rule = params["genes"] if params.get("use_rep") is None else None
        if rule == "given":
            raise ValueError("the genes were given as a list, which the run does not store")
        read = read_cohort(
            run.source, run.sample_key, run.label_key, group_key=self.group_key, layer=params.get("layer"),
            use_rep=params.get("use_rep"), genes=rule, n_cells=params.get("n_cells"), ordered=run.is_ordered,
            random_state=params.get("random_state", 0),
        )  # fmt: skip
        return read._replace(D=_compact(read.D))

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
        results = self.run.results
        assert results is not None
        assert results.numbers is not None
        place = dict(zip(results.labels.tolist(), results.numbers, strict=True))
        return np.array([place[label] for label in np.asarray(self.read.y).tolist()])

    def learner(self, **changes: Any) -> GroundMetricEnsemble | GroundMetricLearner:
        """Return an unfitted learner with the parameters of the run."""
        kind = GroundMetricLearner if self.run.results is None else GroundMetricEnsemble
        names = kind().get_params()
        params = {name: value for name, value in read_parameters(self.run.learner).items() if name in names}
        return kind(**{**params, "verbose": 0, "n_jobs": None, **changes})


def _compact(D: Distributions) -> Distributions:
    """Return a dense cohort if it takes no more memory than the sparse one: it is several times as fast."""
    if not sparse.issparse(D.points):
        return D
    dense = np.prod(D.points.shape, dtype=float) * D.points.dtype.itemsize
    if dense > D.points.data.nbytes + D.points.indices.nbytes:
        return D
    return D.with_points(D.points.toarray(), D.features)


@dataclass(frozen=True)
class Predictions:
    """Held-out predictions of samples.

    Attributes
    ----------
    names : list of str
        Samples.
    truth, predicted : list
        True and predicted label: text, or numbers.
    probability : list of float or None
        Probability of the predicted class; None for numbers.
    classes : list of str
        Classes; empty for numbers.
    """

    names: list[str]
    truth: list[Any]
    predicted: list[Any]
    probability: list[float] | None
    classes: list[str]

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

    @property
    def errors(self) -> list[str]:
        """Samples with a wrong class."""
        triples = zip(self.names, self.truth, self.predicted, strict=True)
        return [name for name, y, z in triples if y != z] if self.classes else []


@dataclass(frozen=True)
class Evaluation:
    """Held-out scores, the learned model first.

    Attributes
    ----------
    score : str
        "balanced_accuracy" or "r2".
    chance : float
        Score of guessing.
    rows : list of dict
        By method: "method", "status", "value", "low", "high", "seconds", and the lead of the learned model over it
        ("lead", "lead_low", "lead_high", "p").
    protocol : str
        How samples were held out.
    predictions : Predictions or None
        Of the learned model.
    test : dict or None
        Permutation test.
    notes : list of str
        Remarks on the scores.
    """

    score: str
    chance: float
    rows: list[dict[str, Any]]
    protocol: str
    predictions: Predictions | None
    test: dict[str, Any] | None
    notes: list[str]

    @property
    def name(self) -> str:
        return {"r2": "R²"}.get(self.score, self.score.replace("_", " "))

    @property
    def learned(self) -> dict[str, Any]:
        return self.rows[0]

    @property
    def best_baseline(self) -> dict[str, Any] | None:
        scored = [row for row in self.rows[1:] if row["value"] is not None]
        return max(scored, key=lambda row: row["value"], default=None)


def evaluate(cohort: Cohort, steps: Steps) -> Evaluation:
    """Score the learned model and the baselines on held-out samples."""
    run = cohort.run
    scores = _score_numbers if run.is_ordered and run.results is not None else _score_classes
    key = [cohort.group_key, FOLDS, list(QUICK), TRANSPORT_CELLS]
    found = run.cached("scores", key, lambda: scores(cohort, steps))
    predictions = found.pop("predictions")
    return Evaluation(**found, predictions=None if predictions is None else Predictions(**predictions), test=None)


def _score_numbers(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """Score predicted numbers by R². The baselines predict classes only."""
    results = _held_out_results(cohort, steps)
    value = float(results.scores["r2"])
    return {
        "score": "r2",
        "chance": 0.0,
        "rows": [{"method": LEARNED, "status": "ok", "value": value, "low": None, "high": None, "seconds": None}],
        "protocol": f"{_ensemble_protocol(cohort)} R² is the predicted share of the variance of the label. There are "
        "no baselines for numbers.",
        "predictions": dataclasses.asdict(Predictions.of_ensemble(results)),
        "notes": cohort.read.notes,
    }


def _score_classes(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    run, D = cohort.run, cohort.read.D
    with steps.step(f"comparing with baselines in {len(cohort.splits)} folds"):
        quick = {name: make() for name, make in QUICK.items()}
        quick["Cluster composition, nearest neighbours"].set_params(max_points=CLUSTERED_CELLS)
        # Starting other processes takes seconds, which only refits of a learner are worth.
        learner = {} if run.results is not None else {LEARNED: cohort.learner()}
        found = _compare(cohort, D, {**learner, **quick}, steps.n_jobs if learner else None, steps.verbose)
        few = D.subsample(TRANSPORT_CELLS, random_state=0)
        if sparse.issparse(few.points) and np.prod(few.points.shape, dtype=float) <= MAX_DENSE:
            few = few.with_points(few.points.toarray())
        transport = _compare(cohort, few, {EUCLIDEAN: baselines.Euclidean()}, None, steps.verbose)
    results = dict(found.results) | transport.results
    if run.results is not None:
        results[LEARNED] = _results_of_folds(found, cohort, _held_out_results(cohort, steps))
    found = dataclasses.replace(found, results={LEARNED: results.pop(LEARNED), **results})
    votes = (
        f"Nearest neighbours: votes of the {cohort.voting.n_neighbors} nearest training samples, balanced by label; "
        f"Euclidean transport compares {TRANSPORT_CELLS} cells per sample."
    )
    in_folds = f"{len(cohort.splits)}-fold cross-validation{_together(cohort)}; all steps are fitted on training folds."
    ensemble = "" if run.results is None else f"{_ensemble_protocol(cohort)} Baselines: "
    return {
        "score": SCORE,
        "chance": 1 / len(found.classes),
        "rows": [_row(found, method) for method in found.methods],
        "protocol": f"{ensemble}{in_folds} {votes}",
        "predictions": _pooled_predictions(found, cohort),
        "notes": [*cohort.read.notes, *found.notes],
    }


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
        learner: Any = cohort.learner()
        y = cohort.read.y if numbers is None else numbers
        learner.fit(cohort.metric_features, y, groups=cohort.read.groups, strata=cohort.strata)
    return EnsembleResults.of(learner, cohort.read.D.names, np.asarray(cohort.read.y), numbers)


def _results_of_folds(found: Comparison, cohort: Cohort, results: EnsembleResults) -> list[Result]:
    """Return the held-out predictions of an ensemble as results of the folds of a comparison."""
    place = {name: k for k, name in enumerate(results.samples)}
    rows = [place[str(name)] for name in cohort.read.D.names]
    probabilities = results.probabilities(np.unique(cohort.read.y))[rows]
    codes = encode(np.asarray(found.labels), np.asarray(found.classes))
    answers = []
    for _, test in found.splits:
        scores = {name: float(value) for name, value in score_codes(codes[test], probabilities[test]).items()}
        answers.append(Result(scores={"distributions": scores}, probabilities=probabilities[test].tolist()))
    return answers


def _pooled_predictions(found: Comparison, cohort: Cohort) -> dict[str, Any] | None:
    """Return the predictions of the learned model over all folds; None if it failed in one."""
    results = found.results[LEARNED]
    if any(result.status != "ok" for result in results):
        return None
    probabilities = np.zeros((len(found.labels), len(found.classes)))
    for (_, test), result in zip(found.splits, results, strict=True):
        probabilities[test] = result.probabilities
    predictions = Predictions.of_probabilities(cohort.read.D.names, found.labels, probabilities, found.classes)
    return dataclasses.asdict(predictions)


def _row(found: Comparison, method: str) -> dict[str, Any]:
    estimate = found.estimate(method, SCORE)
    row: dict[str, Any] = {
        "method": method, "status": found.status(method), "value": estimate.value, "low": estimate.low,
        "high": estimate.high, "seconds": found.seconds(method) if found.results[method][0].seconds else None,
    }  # fmt: skip
    if method != LEARNED:
        lead, p = found.against(LEARNED, SCORE)[method]
        row |= {"lead": lead.value, "lead_low": lead.low, "lead_high": lead.high, "p": p}
    return row


def permutation_test(cohort: Cohort, permutations: int, steps: Steps) -> dict[str, Any]:
    """Run the permutation test with as many permutations as the budget allows.

    Returns {"test": dict, "notes": list of str}.
    """

    def compute() -> dict[str, Any]:
        with steps.step(f"permuting labels, at most {permutations} times"), recorded_warnings() as messages:
            test = _prepare_test(cohort)
            trial = test.run(min(TRIAL, permutations))  # in this process: others take seconds to start
            each = trial.seconds / max(1, joblib.effective_n_jobs(steps.n_jobs))
            number = steps.affordable(permutations, each)
            needed = f"{permutations} permutations take about {duration(permutations * each)}"
            if number < min(MIN_PERMUTATIONS, permutations):
                raise BudgetError(f"{needed}, and {duration(max(0.0, steps.remaining))} remained of the budget")
            result = test.run(number, n_jobs=steps.n_jobs, verbose=steps.verbose).to_dict()
        notes = [] if number == permutations else [f"{number} of {permutations} permutations fit the budget: {needed}"]
        return {"test": result, "notes": [*notes, *dict.fromkeys(messages)]}

    return cohort.run.cached("permutations", [cohort.group_key, FOLDS, permutations, steps.budget], compute)


def _prepare_test(cohort: Cohort) -> PreparedTest:
    run, read = cohort.run, cohort.read
    if run.results is not None:
        ensemble, y = cohort.learner(max_points=TEST_CELLS), cohort.numbers if run.is_ordered else read.y
        return prepare_test(
            ensemble, cohort.metric_features, y, groups=read.groups, strata=cohort.strata, random_state=0
        )
    return prepare_test(
        _in_folds(cohort.learner(), cohort), read.D, read.y, cv=len(cohort.splits), groups=read.groups, score=SCORE,
        voting=cohort.voting, random_state=0,
    )  # fmt: skip
