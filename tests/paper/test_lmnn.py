"""LMNN: objective by its definition, gradient by finite differences, a descent that never rises."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from paper import lmnn
from paper.lmnn import LMNN, descend, margin_problem, starting_map

from .examples import labelled_points

X, codes = labelled_points()
L = np.random.default_rng(5).normal(size=(3, 4))
RANDOM = np.random.RandomState(0)


def objective_by_definition(problem, L):
    z = problem.points @ L.T
    squared = ((z[:, None] - z) ** 2).sum(axis=-1)
    total = 0.0
    for i, targets in enumerate(problem.targets):
        for j in targets[targets >= 0]:
            total += problem.pull * squared[i, j]
            other_class = squared[i, problem.codes != problem.codes[i]]
            total += (1.0 - problem.pull) * np.maximum(1.0 + squared[i, j] - other_class, 0.0).sum()
    return total


@pytest.mark.parametrize("pull", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_neighbors", [1, 5, 40])
def test_the_objective_is_the_sum_over_all_triples(pull, n_neighbors):
    problem = margin_problem(X, codes, n_neighbors, pull)
    assert_allclose(problem.value_and_gradient(L)[0], objective_by_definition(problem, L), rtol=1e-10)


@pytest.mark.parametrize("n_neighbors", [1, 5, 40])
def test_the_gradient_is_that_of_finite_differences(n_neighbors):
    problem = margin_problem(X, codes, n_neighbors, 0.4)
    gradient, step = problem.value_and_gradient(L)[1], 1e-7
    for index in np.ndindex(L.shape):
        change = np.zeros_like(L)
        change[index] = step
        rise = objective_by_definition(problem, L + change) - objective_by_definition(problem, L - change)
        assert_allclose(rise / (2 * step), gradient[index], rtol=1e-4, atol=1e-4 * np.abs(gradient).max())


def test_blocks_of_rows_change_nothing(monkeypatch):
    problem = margin_problem(X, codes, 4, 0.5)
    value, gradient = problem.value_and_gradient(L)
    monkeypatch.setattr(lmnn, "_BLOCK", 7)
    block_value, block_gradient = problem.value_and_gradient(L)
    assert_allclose(block_value, value, rtol=1e-12)
    assert_allclose(block_gradient, gradient, rtol=1e-9, atol=1e-9)


def test_the_objective_never_rises():
    problem = margin_problem(X, codes, 3, 0.5)
    values = [descend(problem, np.eye(4), 1.0, steps, 0, 0.0)[1] for steps in range(1, 12)]
    assert np.all(np.diff(values) <= 0.0)
    assert values[-1] < 0.9 * values[0]


def test_targets_are_the_nearest_of_the_class_and_a_small_class_gives_what_it_has():
    points = np.array([[0.0], [1.0], [3.0], [10.0], [20.0]])
    problem = margin_problem(points, np.array([0, 0, 0, 1, 2]), 3, 0.5)
    assert problem.targets.tolist() == [[1, 2, -1], [0, 2, -1], [1, 0, -1], [-1, -1, -1], [-1, -1, -1]]


def test_where_no_other_class_is_near_and_nothing_pulls_the_start_stays():
    points, labels = labelled_points(30, 4, 2)
    points[:, 0] += 100.0 * labels
    learned = LMNN(n_neighbors=3, regularization=0.0, max_iter=20).fit(gm.Distributions(points, range(30)), labels)
    assert_array_equal(learned.components_, np.eye(4))
    assert learned.objective_ == 0.0


def test_learning_makes_room_between_classes():
    D = gm.Distributions(X, range(len(X)))
    learned = LMNN(n_neighbors=3, learning_rate=1e-3, max_iter=60).fit(D, codes)
    assert learned.objective_ < margin_problem(X, codes, 3, 0.5).value_and_gradient(np.eye(4))[0]
    assert learned.metric_.importance().argmax() == 0
    assert 1 < learned.n_iter_ < 60


def test_a_step_that_is_far_too_long_is_shortened():
    D = gm.Distributions(1e3 * X, range(len(X)))
    learned = LMNN(n_neighbors=3, learning_rate=1e300, max_iter=1).fit(D, codes)
    assert np.isfinite(learned.components_).all()


def test_the_start_is_the_identity_a_discriminant_or_the_principal_axes():
    assert_array_equal(starting_map(X, codes, None, RANDOM), np.eye(4))
    axes = starting_map(X, codes, 3, RANDOM)
    assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
    spread = (X @ axes.T).var(axis=0)
    assert_allclose(spread, np.linalg.eigvalsh(np.cov(X.T, bias=True))[:0:-1])
    discriminant = starting_map(X, codes, 2, RANDOM)
    within = sum(np.cov(X[codes == c].T, bias=True) for c in range(3)) / 3
    assert_allclose(discriminant @ within @ discriminant.T, np.eye(2), atol=1e-9)
