"""Scores: scikit-learn's where it has them, and sensible where classes are absent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, roc_auc_score

from groundmetric.evaluation import scores
from groundmetric.evaluation.scores import score_codes, score_counts


@given(st.integers(2, 4), st.integers(0, 10_000))
def test_scores_are_those_of_scikit_learn(n_classes, seed):
    random = np.random.default_rng(seed)
    classes = ["a", "b", "c", "d"][:n_classes]
    y = random.permutation(classes * 2 + list(random.choice(classes, 20)))
    chances = random.integers(1, 4, (y.size, n_classes)) / 1.0  # many ties
    chances /= chances.sum(axis=1, keepdims=True)
    guess = np.array(classes)[chances.argmax(axis=1)]
    auc = {"y_score": chances[:, 1]} if n_classes == 2 else {"y_score": chances, "multi_class": "ovr"}
    expected = {
        "accuracy": accuracy_score(y, guess),
        "balanced_accuracy": balanced_accuracy_score(y, guess),
        "macro_f1": f1_score(y, guess, average="macro"),
        "roc_auc": roc_auc_score(y, **auc),
    }
    found = scores(y, chances, classes)
    assert found.keys() == expected.keys()
    assert_allclose([found[name] for name in expected], list(expected.values()))


def test_by_hand():
    chances = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]]
    found = scores(["a", "b", "b", "a"], chances, ["a", "b"])
    assert found == {
        "accuracy": 0.75,
        "balanced_accuracy": 0.75,
        "macro_f1": pytest.approx((4 / 5 + 2 / 3) / 2),
        "roc_auc": 1.0,
    }


def test_a_test_part_without_a_class_is_scored_on_the_others():
    chances = [[0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.3, 0.6, 0.1]]
    found = scores(["a", "b", "b"], chances, ["a", "b", "c"])
    assert found["balanced_accuracy"] == 0.75
    assert found["macro_f1"] == pytest.approx((1.0 + 2 / 3 + 0.0) / 3)  # "c" is predicted once, wrongly
    assert found["roc_auc"] == 1.0  # of "a" and of "b"; "c" has no area


def test_a_single_test_distribution_has_no_area_but_can_be_right():
    found = scores(["b"], [[0.2, 0.8]], ["a", "b"])
    assert (found["accuracy"], found["balanced_accuracy"], found["macro_f1"]) == (1.0, 1.0, 1.0)
    assert np.isnan(found["roc_auc"])


def test_all_alike_probabilities_have_an_area_of_one_half():
    assert scores(["a", "b", "b"], np.full((3, 2), 0.5), ["a", "b"])["roc_auc"] == 0.5


@given(st.integers(0, 10_000))
def test_a_weight_is_how_often_an_item_counts(seed):
    random = np.random.default_rng(seed)
    y, chances = random.integers(0, 3, 15), random.dirichlet(np.ones(3), 15)
    weights = random.integers(0, 3, (4, 15))
    together = score_codes(y, chances, weights)
    for draw, times in enumerate(weights):
        alone = score_codes(np.repeat(y, times), np.repeat(chances, times, axis=0))
        for name, values in together.items():
            assert_allclose(values[draw], alone[name])


def test_counts_of_points_score_like_the_points_themselves():
    random = np.random.default_rng(0)
    y = np.array([0, 1, 2, 1])
    counts = random.integers(0, 9, (4, 3))
    truth = np.repeat(y, counts.sum(axis=1))
    guess = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    found = score_counts(y, counts.astype(float), np.ones(4))
    assert_allclose(found["accuracy"], accuracy_score(truth, guess))
    assert_allclose(found["balanced_accuracy"], balanced_accuracy_score(truth, guess))
    assert_allclose(found["macro_f1"], f1_score(truth, guess, average="macro"))


@pytest.mark.parametrize(
    ("y", "chances", "message"),
    [
        (["z"], [[0.5, 0.5]], r"label 'z' is none of the classes \['a', 'b'\]"),
        (["a"], [[0.5, 0.2, 0.3]], r"shape \(1, 3\) for 1 items and 2 classes"),
    ],
)
def test_what_does_not_fit_is_refused(y, chances, message):
    with pytest.raises(ValueError, match=message):
        scores(y, chances, ["a", "b"])
