"""One method on one split: only the training part is fitted, classifiers speak for themselves, failures are results."""

import json
import warnings
from dataclasses import asdict

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from groundmetric import TransportKNeighborsClassifier
from groundmetric._internal.parallel import InterruptedWarning
from groundmetric.evaluation.compare import Cohort, Task, attempt
from groundmetric.evaluation.results import Protocol, Result
from groundmetric.evaluation.scores import SCORES, encode, score_codes, vote

from .methods import euclidean, failing, knowing, oracle, tiny_cohort

D, y = tiny_cohort()
NAMES = np.array(["low", "mid", "top"])[y]
COHORT = Cohort(D, NAMES, np.unique(NAMES))
TEST = np.array([0, 3, 6, 9, 12, 17])
TRAIN = np.setdiff1d(np.arange(18), TEST)


def run(method, **protocol):
    return attempt(COHORT, Protocol(**protocol), Task("method", 0, method, TRAIN, TEST))


def test_distributions_are_voted_on_by_their_nearest():
    result = run(euclidean(), points=False, n_neighbors=3)
    classifier = TransportKNeighborsClassifier(3).fit(D[TRAIN], NAMES[TRAIN])
    assert result.status == "ok"
    assert_allclose(result.probabilities, classifier.predict_proba(D[TEST]))
    assert result.scores["distributions"] == score_codes(COHORT.codes[TEST], np.array(result.probabilities))
    assert result.scores.keys() == {"distributions"}


def test_points_are_voted_on_and_counted_by_distribution():
    result = run(knowing(), n_point_neighbors=20)
    fitted = knowing().fit(D[TRAIN], NAMES[TRAIN])
    truth = np.repeat(NAMES[TEST], D[TEST].sizes)
    distances = fitted.point_distances(D[TEST].points, D[TRAIN].points)
    expected = vote(distances, np.repeat(NAMES[TRAIN], D[TRAIN].sizes), COHORT.classes, n_neighbors=20)
    assert result.scores["points"] == pytest.approx(score_codes(encode(truth, COHORT.classes), expected))
    counts = np.array(result.point_counts)
    assert counts.sum(axis=1).tolist() == D[TEST].sizes.tolist()
    right = counts[np.arange(6), np.searchsorted(COHORT.classes, NAMES[TEST])].sum()
    assert right / counts.sum() == pytest.approx(result.scores["points"]["accuracy"])


def test_of_many_points_some_are_drawn():
    assert np.sum(run(knowing(), max_points=25, n_point_neighbors=20).point_counts) == 25


def test_nothing_of_the_test_part_is_fitted():
    seen = []

    class Watching(type(knowing())):
        def fit(self, D, y):
            seen.append((list(D.names), list(y)))
            return super().fit(D, y)

    run(Watching())
    assert seen == [([D.names[position] for position in TRAIN], NAMES[TRAIN].tolist())]


def test_a_classifier_is_asked_for_its_own_probabilities_whatever_the_order_of_its_classes():
    truth = dict(zip(D.names, NAMES.tolist(), strict=True))
    result = run(oracle(["top", "low", "mid"], truth))
    assert result.scores["distributions"]["accuracy"] == 1.0
    assert np.array(result.probabilities).argmax(axis=1).tolist() == y[TEST].tolist()
    assert "points" not in result.scores  # it has no distances between points
    subset = run(oracle(["top", "low"], truth))  # a class it did not see gets nothing
    assert np.array(subset.probabilities)[:, 1].tolist() == [0.0] * 6


def test_a_method_that_takes_groups_is_given_those_of_its_training_part():
    seen = []

    class Nested(type(knowing())):
        takes_groups = True

        def fit(self, D, y, groups=None):
            seen.append(groups)
            return super().fit(D, y)

    donors = [f"donor {position // 2}" for position in range(18)]
    cohort = Cohort(D, NAMES, COHORT.classes, donors)
    attempt(cohort, Protocol(points=False), Task("nested", 0, Nested(), TRAIN, TEST))
    assert run(Nested(), points=False).status == "ok"
    assert seen == [[donors[position] for position in TRAIN], None]


def test_a_failure_is_a_result():
    result = run(failing())
    assert result.status == "error: RuntimeError: no good"
    assert "methods.py" in result.notes[0]
    assert result.scores == {}


def test_a_lack_of_memory_is_a_result():
    class Greedy(BaseEstimator):
        def fit(self, D, y):
            raise MemoryError

    assert run(Greedy()).status == "OOM"


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_distances_that_make_no_sense_are_an_error(value):
    class Odd(BaseEstimator):
        def fit(self, D, y):
            return self

        def distances(self, A, B=None, *, n_jobs=None):
            return np.full((len(A), len(B)), value)

    assert run(Odd()).status.startswith("error: ValueError: distances contain")


def test_what_a_method_warns_of_is_noted_once():
    class Warning_(type(knowing())):
        def fit(self, D, y):
            for _ in range(3):
                warnings.warn("did not converge", ConvergenceWarning, stacklevel=2)
            return super().fit(D, y)

    assert run(Warning_(), points=False).notes == ["did not converge"]


def test_an_interrupted_learner_interrupts_the_run():
    class Interrupted(type(knowing())):
        def fit(self, D, y):
            warnings.warn("stopped by the user", InterruptedWarning, stacklevel=2)
            return super().fit(D, y)

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted())


def test_results_are_plain_data():
    result = run(knowing())
    assert Result(**json.loads(json.dumps(asdict(result)))) == result
    assert tuple(result.scores["distributions"]) == SCORES
    assert result.seconds > 0.0
