"""Leave-one-out likelihood: values by hand, exact derivatives, and metrics that predict better than their start."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric import Distributions, pairwise_distances
from groundmetric.ensemble import Classes, Numbers
from groundmetric.ensemble.members import maximise_likelihood

from ..estimators.cohorts import PLANTED, cohort

STRATA = np.arange(12) % 2
CODES = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2])
VALUES = np.random.default_rng(1).normal(size=12)
TARGETS = {
    "classes": Classes(CODES, 3),
    "classes in strata": Classes(CODES, 3, STRATA),
    "numbers": Numbers.of(VALUES),
    "numbers in strata": Numbers.of(VALUES, STRATA),
}


def kernel_of(distances):
    kernel = np.exp(-distances)
    np.fill_diagonal(kernel, 0.0)
    return kernel


def random_distances(seed=0):
    distances = np.random.default_rng(seed).uniform(0.5, 3.0, (12, 12))
    return np.triu(distances, 1) + np.triu(distances, 1).T


def test_the_loss_of_classes_by_hand():
    distances = np.array([[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 2.0, 2.0], [2.0, 2.0, 0.0, 1.0], [3.0, 2.0, 1.0, 0.0]])
    kernel = kernel_of(distances)
    loss, _ = Classes(np.array([0, 0, 1, 1]), 2).leave_one_out(kernel)
    own = np.array([kernel[0, 1], kernel[1, 0], kernel[2, 3], kernel[3, 2]])
    assert loss == pytest.approx(-np.mean(np.log(own / kernel.sum(axis=1) + 1e-3)))


def test_the_loss_of_numbers_is_that_of_kernel_regression():
    kernel, target = kernel_of(random_distances()), TARGETS["numbers"]
    predicted = kernel @ target.labels / kernel.sum(axis=1)
    expected = 0.5 * np.mean((predicted - target.labels) ** 2) / np.var(target.labels)
    assert target.leave_one_out(kernel)[0] == pytest.approx(expected)


@pytest.mark.parametrize("name", TARGETS)
def test_derivatives_equal_finite_differences(name):
    target, distances, step = TARGETS[name], random_distances(), 1e-6
    slopes = target.leave_one_out(kernel_of(distances))[1]
    for i, j in ((0, 1), (0, 2), (3, 4), (5, 11), (7, 9)):
        shift = np.zeros((12, 12))
        shift[i, j] = shift[j, i] = step
        rise = [target.leave_one_out(kernel_of(distances + sign * shift))[0] for sign in (1, -1)]
        assert slopes[i, j] + slopes[j, i] == pytest.approx((rise[0] - rise[1]) / (2 * step), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["classes in strata", "numbers in strata"])
def test_distributions_of_other_strata_have_no_effect(name):
    distances = random_distances()
    different = STRATA[:, None] != STRATA
    loss, slopes = TARGETS[name].leave_one_out(kernel_of(distances))
    assert_array_equal(slopes[different], 0.0)
    assert TARGETS[name].leave_one_out(kernel_of(np.where(different, 0.1, distances)))[0] == loss


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_learned_components_predict_better_and_weight_the_planted_feature(kind):
    D, y = cohort(16, points=8)
    target = Classes(y, 2) if kind == "classes" else Numbers.of(y + 0.01 * np.arange(16.0))
    components = maximise_likelihood(D, target, np.eye(10))
    losses = []
    for W in (np.eye(10), components):
        distances = pairwise_distances(D.with_points(D.points @ W.T))
        losses.append(target.leave_one_out(kernel_of(2.0 * distances / np.median(distances)))[0])
    assert losses[1] < 0.9 * losses[0]
    assert np.square(components).sum(axis=0).argmax() == PLANTED


def test_the_result_depends_neither_on_units_nor_on_a_shift():
    D, y = cohort(12, points=6)
    first = maximise_likelihood(D, Classes(y, 2), np.eye(10))
    moved = D.with_points(1024.0 * D.points + 3.0)
    assert_allclose(maximise_likelihood(moved, Classes(y, 2), np.eye(10)) * 1024.0, first, atol=1e-6)


def test_coinciding_distributions_return_the_start():
    D = Distributions(np.ones((12, 2)), np.arange(12))
    assert_array_equal(maximise_likelihood(D, Classes(np.arange(12) % 2, 2), np.eye(2)), np.eye(2))
