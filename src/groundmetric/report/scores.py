"""Can the label be told beyond chance: scores of samples that were left out, other methods beside, labels permuted.

There is one score of what was learned, that of samples while they were left out: of an ensemble it is known from
learning; a single learner is fitted again in folds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.base import clone

from .. import baselines
from .._anndata.cohort import INSIDE, Labelled
from .._anndata.store import EnsembleResults
from ..distributions import Distributions
from ..estimators import GroundMetricEnsemble
from ..estimators.preprocessing import SelectedFeatures
from ..evaluation import Comparison, Voting, compare, folds
from ..evaluation._run import Result, recorded_warnings
from ..evaluation.permutation import PreparedTest, prepare_test
from ..evaluation.scores import encode, score_codes
from ..learning.splits import Split
from .content import Evaluation
from .run import Run, Steps, as_budget, cached, cohort_of, learner_of, of_the_metric
from .samples import Predictions

# Each class counts the same in the score, and so it does in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
LEARNED = "learned metric"
# Transport under a fixed metric takes long: it gets as many cells of a sample as a member of an ensemble does.
TRANSPORT = {"Euclidean": baselines.Euclidean}
QUICK = {"pseudobulk": baselines.PseudobulkNeighbors, "composition": baselines.Composition}
FOLDS, NEIGHBORS = 5, 5
CELLS = 100
MOST_DENSE = 5e7  # values: 200 MB
CLUSTERED = 3000  # cells that cell types are found in, for their shares in all cells
TEST_CELLS = 50  # of each sample in a permutation test: a quarter of the time, and hardly less power
TRIAL = 2  # permutations that are timed before the others
TRIAL_SHARE = 0.5  # of the time of learning, that they take at most: without it, there is no test
FEWEST = 20  # permutations with which p can be below 0.05


@dataclass
class Cohort:
    """Values of a run and the columns that an evaluation needs, read when they are first asked for."""

    run: Run
    group_key: str | None

    @cached_property
    def read(self) -> Labelled:
        read = cohort_of(self.run, self.group_key)
        return read._replace(D=_compact(read.D))

    @cached_property
    def of_the_metric(self) -> Distributions:
        """With the features that the metric has."""
        return of_the_metric(self.run, self.read)

    @cached_property
    def splits(self) -> list[Split]:
        return folds(self.read.y, groups=self.read.groups, n_splits=self.n_folds, random_state=0)

    @property
    def n_folds(self) -> int:
        labels, units = np.asarray(self.read.y), self.read.groups or list(range(len(self.read.y)))
        smallest = min(len({unit for unit, y in zip(units, labels, strict=True) if y == c}) for c in np.unique(labels))
        if smallest < 2:
            raise ValueError("a label has one sample (or group) only, which cannot be both learned from and held out")
        return min(FOLDS, smallest)

    @property
    def voters(self) -> int:
        return min(NEIGHBORS, *(train.size for train, _ in self.splits))

    @property
    def strata(self) -> list[Any] | None:
        """Of an ensemble, the batch of each sample, within which labels were compared."""
        key = self.run.stored.params.get("batch_key")
        if key is None or self.run.results is None:
            return None
        return self.run.samples.obs[key].loc[[str(name) for name in self.read.D.names]].tolist()

    @property
    def numbers(self) -> np.ndarray:
        """Of ordered labels, the numbers that were learned, in the order of the cohort."""
        results = self.run.results
        assert results is not None
        assert results.numbers is not None
        place = dict(zip(results.labels.tolist(), results.numbers, strict=True))
        return np.array([place[label] for label in np.asarray(self.read.y).tolist()])


def evaluate(cohort: Cohort, permutations: int, steps: Steps) -> tuple[Evaluation, Predictions | None, list[str]]:
    """Held-out score of what was learned, of quick baselines, and a test against chance; and what was left out.

    Also what was predicted for each sample while it was left out.
    """
    run, key = cohort.run, [cohort.group_key, FOLDS, QUICK, TRANSPORT, CELLS]
    of_numbers = run.results is not None and run.is_ordered
    found = cached(run, "scores", key, lambda: (_score_of_numbers if of_numbers else _scores)(cohort, steps))
    predictions = None if found["predictions"] is None else Predictions(**found.pop("predictions"))
    found.pop("predictions", None)
    test, notes = None, []
    if run.is_ordered and run.results is None:
        notes.append("Test against chance: of ordered labels it needs an ensemble (leave out --method ggml).")
    elif permutations:
        options = [cohort.group_key, FOLDS, permutations, steps.budget]
        answer = cached(run, "permutations", options, lambda: _test_against_chance(cohort, permutations, steps))
        test, notes = answer["test"], answer["notes"]
    return Evaluation(**found, test=test), predictions, notes


def _score_of_numbers(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """Of ordered labels: the share of their variance that was predicted. The other methods predict classes only."""
    results = held_out_results(cohort, steps)
    value = float(results.scores["r2"])
    return {
        "score": "r2",
        "chance": 0.0,
        "rows": [{"method": LEARNED, "status": "ok", "value": value, "low": None, "high": None, "seconds": None}],
        "how": f"{_by_members(cohort)}. R² is the share of the variance of the label that is predicted so; 0 is "
        "what its mean gives. Other methods are not shown: they predict classes",
        "predictions": dataclasses.asdict(Predictions.of_ensemble(results)),
        "notes": cohort.read.notes,
    }


def _scores(cohort: Cohort, steps: Steps) -> dict[str, Any]:
    run = cohort.run
    names = ", ".join([*TRANSPORT, *QUICK])
    steps.begin(f"comparing the learned metric with {names} on held-out samples ({cohort.n_folds} folds)")
    quick = {name: make() for name, make in QUICK.items()}
    quick["composition"].set_params(max_points=CLUSTERED)
    transport = {name: make() for name, make in TRANSPORT.items()}
    learner = {} if run.results is not None else {LEARNED: learner_of(run)}
    # Another process takes seconds to start, which only the learner is worth.
    found = _compare(cohort, cohort.read.D, {**learner, **quick}, steps.n_jobs if learner else None, steps.verbose)
    others = _compare(cohort, _few_cells(cohort.read.D), transport, None, steps.verbose)
    if run.results is not None:
        found = with_held_out(found, _in_order(held_out_results(cohort, steps), cohort))
    learned = {LEARNED: found.results[LEARNED]}
    found = dataclasses.replace(found, results=learned | others.results | found.results)
    return {
        "score": SCORE,
        "chance": 1 / len(found.classes),
        "rows": [_row(found, method) for method in found.methods],
        "how": _how(cohort),
        "predictions": _predictions(found, cohort),
        "notes": [*cohort.read.notes, *found.notes],
    }


def _compact(D: Distributions) -> Distributions:
    """As a plain array where that takes no more memory than a sparse one: it is several times as fast."""
    if not sparse.issparse(D.points):
        return D
    taken = D.points.data.nbytes + D.points.indices.nbytes
    plain = np.prod(D.points.shape, dtype=float) * D.points.dtype.itemsize
    return D.with_points(D.points.toarray(), D.features) if plain <= taken else D


def _few_cells(D: Distributions) -> Distributions:
    """At most `CELLS` of each sample, dense where there is room: costs are then found several times as fast."""
    few = D.subsample(CELLS, random_state=0)
    small = np.prod(few.points.shape, dtype=float) <= MOST_DENSE
    return few.with_points(few.points.toarray()) if small and sparse.issparse(few.points) else few


def _compare(cohort: Cohort, D: Distributions, methods: dict[str, Any], n_jobs: int | None, verbose: int) -> Comparison:
    return compare(
        _ready(methods, cohort), D, cohort.read.y, cv=cohort.splits, groups=cohort.read.groups,
        voting=Voting(cohort.voters, class_weight=CLASS_WEIGHT), points=False, n_jobs=n_jobs, verbose=verbose,
    )  # fmt: skip


def _ready(methods: dict[str, Any], cohort: Cohort) -> dict[str, Any]:
    """Methods with a seed, which choose genes within each split where a rule can be."""
    for method in methods.values():
        if "random_state" in method.get_params() and method.get_params()["random_state"] is None:
            method.set_params(random_state=0)
    rule = cohort.read.rule
    assert rule is None or rule in INSIDE
    return methods if rule is None else {n: SelectedFeatures(m, rule) for n, m in methods.items()}


def _held(cohort: Cohort) -> str:
    return f"the samples, those of one {cohort.group_key} together," if cohort.group_key else "the samples"


def _by_members(cohort: Cohort) -> str:
    assert cohort.run.results is not None
    return (
        f"The learned metric is that of an ensemble: a part of {_held(cohort)} is held out in each cross-validation "
        "fold, and its labels are used at no step of its prediction (members, kernels, penalties, weights). The model "
        f"is the {cohort.run.results.scored} that `groundmetric predict` uses"
    )


def _how(cohort: Cohort) -> str:
    held, number = _held(cohort), cohort.n_folds
    votes = (
        f"each held-out sample is given the label of the {cohort.voters} samples nearest to it, where each label "
        f"counts the same, however many samples have it (Euclidean transport: of {CELLS} cells of each)"
    )
    if cohort.run.results is None:
        return (
            f"In each of {number} folds, a part of {held} is held out, everything is learned from the others, and "
            f"{votes}"
        )
    return (
        f"{_by_members(cohort)}. For the other methods, a part of {held} is held out in each of {number} folds, and "
        f"{votes}"
    )


def held_out_results(cohort: Cohort, steps: Steps) -> EnsembleResults:
    """What an ensemble predicted while samples were left out.

    It is that of the run, so that there is one score everywhere; learned again only where other groups are kept
    together than in the run.
    """
    run = cohort.run
    assert run.results is not None
    if cohort.group_key == run.group_key:
        return run.results
    steps.begin(f"learning again, samples of one {cohort.group_key} kept together")
    numbers = cohort.numbers if run.is_ordered else None
    learner = learner_of(run)
    assert isinstance(learner, GroundMetricEnsemble)
    y = cohort.read.y if numbers is None else numbers
    learner.fit(cohort.of_the_metric, y, groups=cohort.read.groups, strata=cohort.strata)
    return EnsembleResults.of(learner, cohort.read.D.names, np.asarray(cohort.read.y), numbers)


def _in_order(results: EnsembleResults, cohort: Cohort) -> np.ndarray:
    """Probabilities of the classes in the order of the cohort."""
    places = {name: k for k, name in enumerate(results.samples)}
    order = [places[str(name)] for name in cohort.read.D.names]
    return results.probabilities(np.unique(cohort.read.y))[order]


def with_held_out(found: Comparison, probabilities: np.ndarray) -> Comparison:
    """The comparison with the learned metric as its first method, by predictions that are known already."""
    codes = encode(np.asarray(found.labels), np.asarray(found.classes))
    own = []
    for _, test in found.splits:
        scores = {name: float(value) for name, value in score_codes(codes[test], probabilities[test]).items()}
        own.append(Result(scores={"distributions": scores}, probabilities=probabilities[test].tolist()))
    return dataclasses.replace(found, results={LEARNED: own, **found.results})


def _predictions(found: Comparison, cohort: Cohort) -> dict[str, Any] | None:
    """Of the learned metric; None where it failed."""
    own = found.results[LEARNED]
    if any(result.status != "ok" for result in own):
        return None
    probabilities = np.zeros((len(found.labels), len(found.classes)))
    for (_, test), result in zip(found.splits, own, strict=True):
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


def _test_against_chance(cohort: Cohort, permutations: int, steps: Steps) -> dict[str, Any]:
    """The permutation test with as many permutations as the budget allows, or a note why there is none."""
    if steps.left < TRIAL_SHARE * float(cohort.run.findings.get("seconds") or 0.0):
        more = as_budget((steps.budget or 0.0) + permutations)
        return {
            "test": None,
            "notes": [f"Test against chance: no time is left for it; give e.g. --budget {more}."],
        }
    steps.begin("measuring how long a permutation of the labels takes", needed=True)
    with recorded_warnings() as messages:
        test = _prepared_test(cohort)
        trial = test.run(TRIAL)  # in this process: others take seconds to start
    each = trial.seconds / max(1, joblib.effective_n_jobs(steps.n_jobs))
    number = steps.affordable(permutations, each)
    notes = []
    if number < permutations:
        need = as_budget((steps.budget or 0.0) - steps.left + permutations * each)
        few = "" if number >= FEWEST else f", too few for a p below 0.05 ({FEWEST} are needed)"
        notes.append(
            f"Test against chance: {number} of {permutations} permutations fit into the budget, at {each:.2g} s "
            f"each{few}; all need --budget {need}."
        )
        if number < min(FEWEST, permutations):
            return {"test": None, "notes": notes}
    steps.begin(f"permuting labels {number} times", number * each)
    with recorded_warnings() as later:
        found = test.run(number, n_jobs=steps.n_jobs, verbose=steps.verbose).to_dict()
    said = dict.fromkeys([*messages, *later])
    return {"test": found, "notes": [*notes, *(f"Test against chance: {message}." for message in said)]}


def _prepared_test(cohort: Cohort) -> PreparedTest:
    """The test of this run, for any number of permutations."""
    run, read = cohort.run, cohort.read
    if run.results is not None:
        y = cohort.numbers if run.is_ordered else read.y
        return prepare_test(
            _small(run), cohort.of_the_metric, y, groups=read.groups, strata=cohort.strata, random_state=0
        )
    return prepare_test(
        _ready({LEARNED: learner_of(run)}, cohort)[LEARNED], read.D, read.y, cv=cohort.n_folds, groups=read.groups,
        score=SCORE, voting=Voting(cohort.voters, class_weight=CLASS_WEIGHT), random_state=0,
    )  # fmt: skip


def _small(run: Run) -> GroundMetricEnsemble:
    """The ensemble of the run with few cells."""
    return clone(learner_of(run)).set_params(max_points=TEST_CELLS)
