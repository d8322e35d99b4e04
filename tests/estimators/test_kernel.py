"""Kernel models: the space of a kernel, what a linear kernel must give, and held-out predictions that see no label."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, Ridge

from groundmetric.estimators import _kernel
from groundmetric.estimators._kernel import (
    KernelModel,
    KernelSpace,
    balanced_weights,
    log_likelihood,
    read_kernel,
    similarities,
    unit_of,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(24, 3))
NEW = RANDOM.normal(size=(10, 3))
CODES = (X[:, 0] + 0.3 * RANDOM.normal(size=24) > 0).astype(int)
VALUES = X[:, 0] + 0.3 * RANDOM.normal(size=24)
CENTRE = X.mean(axis=0)
SCALE = np.sqrt(np.mean(np.sum((X - CENTRE) ** 2, axis=1)))
FOLDS = [np.arange(24) % 4 == fold for fold in range(4)]


def distances(a, b):
    return np.linalg.norm(a[:, None] - b[None], axis=2)


def test_the_space_of_a_kernel_has_its_centred_inner_products():
    kernel = similarities(distances(X, X), 2.0)
    middle = np.eye(24) - 1 / 24
    centred = middle @ kernel @ middle
    space, found = KernelSpace.of(kernel)
    assert_allclose(found @ found.T, centred * 24 / np.trace(centred), atol=1e-9)
    assert_allclose(space.coordinates(kernel), found, atol=1e-9)


def test_new_ones_have_the_inner_products_of_their_kernel_with_the_known():
    kernel, new = X @ X.T, NEW @ X.T
    space, known = KernelSpace.of(kernel)
    assert_allclose(space.coordinates(new) @ known.T, (NEW - CENTRE) @ (X - CENTRE).T / SCALE**2, atol=1e-9)


def test_a_kernel_that_is_not_positive_keeps_what_is():
    kernel = np.diag([3.0, 2.0, 1.0, -1.0])
    space, found = KernelSpace.of(kernel)
    assert np.isfinite(found).all()
    assert 0 < found.shape[1] < 4
    assert_allclose(space.coordinates(kernel), found, atol=1e-9)


@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_distributions_that_all_coincide_have_coordinates_of_zero(noise):
    space, found = KernelSpace.of(7.0 + noise * X @ X.T)
    assert_array_equal(found, np.zeros((24, 1)))
    assert_array_equal(space.coordinates(7.0 + NEW @ X.T), np.zeros((10, 1)))


@pytest.mark.parametrize("strength", [0.5, 12.0])
def test_a_linear_kernel_is_logistic_regression_on_centred_features(strength):
    model = KernelModel(X @ X.T, CODES, strength, 2)
    plain = LogisticRegression(C=strength, class_weight="balanced", tol=1e-10, max_iter=5000)
    plain.fit((X - CENTRE) / SCALE, CODES)
    assert_allclose(model.predict(NEW @ X.T), plain.predict_proba((NEW - CENTRE) / SCALE), atol=2e-3)


def test_a_linear_kernel_is_ridge_regression_on_centred_features():
    model = KernelModel(X @ X.T, VALUES, 2.5, 0)
    plain = Ridge(alpha=0.4).fit((X - CENTRE) / SCALE, VALUES)
    assert_allclose(model.predict(NEW @ X.T), plain.predict((NEW - CENTRE) / SCALE), atol=1e-9)


def test_a_class_that_is_absent_from_a_part_has_probability_zero():
    found = KernelModel(X @ X.T, np.where(CODES == 1, 2, 0), 1.0, 4).predict(NEW @ X.T)
    assert found.shape == (10, 4)
    assert_array_equal(found[:, [1, 3]], 0.0)
    assert_allclose(found.sum(axis=1), 1.0)


def test_classes_count_the_same_whatever_their_size():
    often = np.concatenate([np.arange(24), np.repeat(np.flatnonzero(CODES == 1), 5)])
    even = KernelModel(np.ones((24, 24)), CODES, 1.0, 2).predict(np.ones((1, 24)))
    uneven = KernelModel(np.ones((often.size,) * 2), CODES[often], 1.0, 2).predict(np.ones((1, often.size)))
    assert_allclose(even, [[0.5, 0.5]], atol=1e-3)
    assert_allclose(uneven, [[0.5, 0.5]], atol=1e-3)


@pytest.mark.parametrize(("codes", "n_classes"), [(CODES, 2), (VALUES, 0)])
def test_predictions_for_a_fold_do_not_depend_on_its_labels(codes, n_classes, monkeypatch):
    monkeypatch.setattr(_kernel, "STRENGTHS", (12.0,))  # which strength is best, does
    kernel, changed = similarities(distances(X, X), 2.0), codes.copy()
    changed[FOLDS[1]] = 1 - changed[FOLDS[1]]
    one, other = (read_kernel(kernel, labels, FOLDS, n_classes).held_out for labels in (codes, changed))
    assert_array_equal(one[FOLDS[1]], other[FOLDS[1]])
    assert np.abs(one[FOLDS[0]] - other[FOLDS[0]]).max() > 0.01


def test_predictions_do_not_depend_on_the_order():
    kernel, order = similarities(distances(X, X), 2.0), np.random.default_rng(1).permutation(24)
    one = read_kernel(kernel, CODES, FOLDS, 2)
    other = read_kernel(kernel[np.ix_(order, order)], CODES[order], [fold[order] for fold in FOLDS], 2)
    assert_allclose(other.held_out, one.held_out[order], atol=2e-3)


def test_a_kernel_that_shows_the_classes_is_read_and_one_that_does_not_is_not():
    own = np.array([[0.0, 0.0], [3.0, 0.0]])[CODES] + np.random.default_rng(1).normal(size=(24, 2))
    reading = read_kernel(similarities(distances(own, own), 2.0), CODES, FOLDS, 2)
    assert (reading.held_out.argmax(axis=1) == CODES).mean() > 0.8
    assert log_likelihood(reading.held_out, CODES) / 24 > np.log(0.5) + 0.2
    chance = []
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=(24, 2))
        held_out = read_kernel(similarities(distances(noise, noise), 2.0), CODES, FOLDS, 2).held_out
        chance.append(log_likelihood(held_out, CODES) / 24)
    assert abs(np.mean(chance) - np.log(0.5)) < 0.08


def test_the_weakest_of_equally_good_strengths_is_taken():
    assert read_kernel(np.ones((24, 24)), VALUES, FOLDS, 0).strength == _kernel.STRENGTHS[0]


def test_log_likelihoods_by_hand():
    predicted = np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6]])
    expected = 3 * np.mean([np.mean(np.log([0.8, 0.5])), np.log(0.6)])
    assert_allclose(log_likelihood(predicted, np.array([0, 0, 1])), expected)
    assert_allclose(log_likelihood(np.array([1.0, 2.0]), np.array([1.5, 2.5])), -np.log(0.25), rtol=1e-9)


def test_one_surprise_costs_a_bounded_amount():
    sure = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert_allclose(log_likelihood(sure, np.array([0, 1])), np.log(1e-3))


def test_the_unit_is_the_median_distance_between_different_ones():
    assert unit_of(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 9.0], [2.0, 9.0, 0.0]])) == 2.0
    assert unit_of(np.zeros((3, 3))) == 1.0


def test_with_strata_classes_count_the_same_in_each():
    codes, strata = np.repeat([0, 1], 8), np.repeat([0, 1, 0, 1], [6, 2, 2, 6])
    weights = balanced_weights(codes, strata)
    assert_allclose(np.bincount(2 * strata + codes, weights), 4.0)
    assert_allclose(balanced_weights(codes[:, None].ravel()), 1.0)


def test_a_class_that_a_stratum_lacks_counts_elsewhere():
    codes, strata = np.array([0, 0, 1, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 1])
    assert_allclose(np.bincount(codes, balanced_weights(codes, strata)), 3.0)
    assert_allclose(balanced_weights(np.array([0, 0, 1]), np.array([0, 0, 1])), [0.75, 0.75, 1.5])


def test_a_fold_is_predicted_with_the_strength_that_serves_the_others():
    tried = {0: np.array([[0.9, 0.1], [0.2, 0.8]]), 3: np.array([[0.4, 0.6], [0.1, 0.9]])}
    folds = [np.array([True, False]), np.array([False, True])]
    found = _kernel._chosen_by_others(tried, np.array([0, 1]), np.ones(2), folds)
    assert_array_equal(found, [tried[3][0], tried[0][1]])
