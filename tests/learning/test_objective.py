"""The loss: its gradient, the two theorems of the paper, and what its penalties are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from groundmetric import Distributions, GroundMetric, pairwise_distances
from groundmetric._internal.parallel import Threads
from groundmetric.learning import Lasso
from groundmetric.learning.labels import OrderedTarget
from groundmetric.learning.objective import Adam, LinearModel, Objective, resolve_penalty
from groundmetric.learning.triplets import random_triplets

N_FEATURES = 6
LABELS = np.array([0, 1, 0, 1, 2, 2, 0, 1, 2])
SCALE = np.array([1.0, 10.0, 0.1, 1.0, 3.0, 1.0])


def cohort(*, offset=0.3, weighted=False, sizes=range(5, 14), seed=0):
    """Distributions of unequal sizes whose class means differ by `offset` along every feature."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(LABELS.size), list(sizes))
    points = (random.normal(size=(groups.size, N_FEATURES)) + offset * LABELS[groups][:, None]) * SCALE
    return Distributions(points, groups, weights=random.random(groups.size) if weighted else None)


def objective_of(D, k, *, margin=0.5, memory=1e8, t=2):
    centre = np.asarray(D.points.mean(axis=0)).ravel()
    return objective_for(LinearModel(k, SCALE, centre), D, margin=margin, memory=memory, t=t)


def objective_for(model, D, *, margin=0.5, memory=1e8, t=2):
    triplets = random_triplets(LABELS, t, np.random.RandomState(0))
    pairs = model.pairs(D, triplets.first, triplets.second, threads=Threads(1), memory=memory)
    return Objective(triplets, pairs, margin=margin)


def components(k, seed=0):
    return np.random.default_rng(seed).normal(size=(k, N_FEATURES))


def everything(objective):
    return np.arange(len(objective.triplets))


def finite_differences(function, W, step=1e-6):
    slope = np.empty_like(W)
    for entry in np.ndindex(W.shape):
        change = np.zeros_like(W)
        change[entry] = step
        slope[entry] = (function(W + change) - function(W - change)) / (2 * step)
    return slope


def as_sparse(D):
    return Distributions(sparse.csr_matrix(D.points), np.repeat(D.names, D.sizes), weights=D.weights)


def as_float32(D):
    return Distributions(D.points.astype(np.float32), np.repeat(D.names, D.sizes))


COHORTS = {
    "unequal sizes": cohort(),
    "equal sizes": cohort(sizes=[8] * 9),
    "one point against many": cohort(sizes=[1, 9, 5, 1, 12, 7, 1, 1, 6]),
    "weighted": cohort(weighted=True),
    "sparse": as_sparse(cohort(weighted=True)),
    "float32": as_float32(cohort()),
}
each_cohort = pytest.mark.parametrize("D", COHORTS.values(), ids=COHORTS.keys())


@each_cohort
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_gradient_is_the_slope_of_the_loss(D, k):
    objective, W = objective_of(D, k), components(k)
    batch = everything(objective)
    result = objective.evaluate(W, batch)
    assert 0 < result.active < batch.size
    slope = finite_differences(lambda V: objective.evaluate(V, batch, gradient=False).loss, W)
    assert_allclose(result.gradient, slope, atol=1e-7 * np.abs(slope).max(), rtol=1e-6)


@each_cohort
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_loss_is_the_mean_hinge_over_exact_distances(D, k):
    objective, W = objective_of(D, k), components(k)
    batch = everything(objective)[::3]
    distances = pairwise_distances(D, metric=GroundMetric(W / SCALE))
    i, j, far_id = (index[batch] for index in (objective.triplets.i, objective.triplets.j, objective.triplets.k))
    hinge = np.maximum(distances[i, j] - distances[j, far_id] + 0.5, 0.0)
    result = objective.evaluate(W, batch)
    assert result.loss == pytest.approx(hinge.mean(), rel=1e-10)
    assert result.active == np.sum(hinge > 0)


def test_sparse_points_give_the_gradient_of_dense_ones():
    single, second = (objective_of(D, 3) for D in (cohort(weighted=True), as_sparse(cohort(weighted=True))))
    results = [objective.evaluate(components(3), everything(single)) for objective in (single, second)]
    assert results[0].loss == pytest.approx(results[1].loss, rel=1e-12)
    assert_allclose(results[0].gradient, results[1].gradient, rtol=1e-9, atol=1e-12)


def test_the_unit_divides_loss_and_gradient_and_multiplies_the_margin():
    single, second = objective_of(cohort(), 2, margin=0.5), objective_of(cohort(), 2, margin=0.25)
    second.unit = 2.0
    results = [objective.evaluate(components(2), everything(single)) for objective in (single, second)]
    assert results[1].loss == pytest.approx(results[0].loss / 2.0)
    assert_allclose(results[1].gradient, results[0].gradient / 2.0)


def critical_factor(objective, W):
    """W times this number is the smallest metric under which all triplets hold with the margin."""
    distances = pairwise_distances(cohort(offset=9.0), metric=GroundMetric(W / SCALE))
    triplets = objective.triplets
    room = distances[triplets.j, triplets.k] - distances[triplets.i, triplets.j]
    assert room.min() > 0
    return objective.margin / room.min()


@pytest.mark.parametrize("k", [1, 3])
def test_theorem_1_the_loss_is_zero_iff_all_triplets_hold_with_the_margin(k):
    objective = objective_of(cohort(offset=9.0), k)
    W = np.abs(components(k))
    enough = critical_factor(objective, W)
    held = objective.evaluate(W * enough * (1 + 1e-9), everything(objective))
    assert (held.loss, held.active) == (0.0, 0)
    assert_array_equal(held.gradient, 0.0)
    violated = objective.evaluate(W * enough * (1 - 1e-9), everything(objective))
    assert violated.active == 1
    assert 0.0 < violated.loss < 1e-8


@pytest.mark.parametrize("k", [1, 2, 5])
def test_theorem_2_at_zero_every_triplet_costs_exactly_the_margin(k):
    objective = objective_of(cohort(), k, margin=0.375)
    result = objective.evaluate(np.zeros((k, N_FEATURES)), everything(objective))
    assert result.loss == 0.375
    assert result.active == len(objective.triplets)
    assert_array_equal(result.gradient, 0.0)


@pytest.mark.parametrize("memory", [1e8, 4e3, 0.0])
@pytest.mark.parametrize("k", [1, 2])
def test_bounds_and_warm_starts_never_change_loss_or_gradient(k, memory):
    D = cohort(offset=1.5, weighted=True)
    objective, W, adam = objective_of(D, k, memory=memory), np.abs(components(k)), Adam(0.02)
    random, saved = np.random.RandomState(0), 0
    for _ in range(12):
        batch = random.permutation(everything(objective))[:20]
        result, fresh = (selected.evaluate(W, batch) for selected in (objective, objective_of(D, k)))
        assert result.loss == pytest.approx(fresh.loss, rel=1e-11, abs=1e-13)
        assert result.active == fresh.active
        assert_allclose(result.gradient, fresh.gradient, rtol=1e-8, atol=1e-11)
        W = adam.step(W, result.gradient)
        saved += result.saved
    assert saved > 0 or memory == 0.0 or k == 1


def test_easy_triplets_save_solves():
    objective, W = objective_of(cohort(offset=3.0), 2), np.abs(components(2))
    first = objective.evaluate(W, everything(objective))
    assert (first.saved, first.solved) == (0, objective.triplets.first.size)
    repeated = objective.evaluate(W * 1.001, everything(objective))
    assert repeated.saved > 0
    assert repeated.saved + repeated.solved == objective.triplets.first.size
    assert repeated.pairs.size == repeated.solved


def test_potentials_rule_out_far_pairs_that_the_other_bounds_do_not():
    """Classes differ in spread, not in means, and steps are too large for bounds by the movement of points."""
    D = cohort(offset=0.0, sizes=[30] * 9)
    D = D.with_points(D.points * (1.0 + 2.0 * np.repeat(LABELS, 30))[:, None])
    objective, W, random = objective_of(D, 3, margin=0.1), components(3), np.random.default_rng(1)
    objective.evaluate(W, everything(objective))
    ruled_out = 0
    for _ in range(6):
        W = W * random.uniform(0.9, 1.1, W.shape)
        pair = objective, objective_of(D, 3, margin=0.1)
        result, fresh = (selected.evaluate(W, everything(objective)) for selected in pair)
        assert result.loss == pytest.approx(fresh.loss, rel=1e-11)
        assert result.active == fresh.active
        ruled_out += int(objective.pairs.answers.bound.sum())
    assert ruled_out > 10


def test_a_pair_that_is_near_for_one_anchor_and_far_for_another():
    """With ordered labels, a pair may be ruled out as far pair of one triplet and be the near pair of another."""
    D, values, random = cohort(offset=0.0, sizes=[30] * 9), np.arange(9.0), np.random.default_rng(2)
    D = D.with_points(D.points * (1.0 + np.repeat(values, 30))[:, None])
    triplets = random_triplets(OrderedTarget.of(values), 2, np.random.RandomState(0))
    assert np.intersect1d(triplets.near, triplets.far).size
    model = LinearModel(3, SCALE, D.points.mean(axis=0))
    pairs = [model.pairs(D, triplets.first, triplets.second, threads=Threads(1), memory=1e8) for _ in range(9)]
    walking, W, ruled_out = Objective(triplets, pairs[0], margin=0.3), components(3), 0
    for fresh in pairs[1:]:
        W = W * random.uniform(0.9, 1.1, W.shape)
        results = [
            selected.evaluate(W, everything(walking)) for selected in (walking, Objective(triplets, fresh, margin=0.3))
        ]
        assert results[0].loss == pytest.approx(results[1].loss, rel=1e-11)
        assert results[0].active == results[1].active
        assert_allclose(results[0].gradient, results[1].gradient, rtol=1e-8, atol=1e-11)
        ruled_out += int(pairs[0].answers.bound.sum())
    assert ruled_out > 0


def plain_triplet_learning(points, W, triplets, margin):
    """Loss and gradient of metric learning on points, one triplet at a time."""
    loss, gradient = 0.0, np.zeros_like(W)
    for i, j, k in zip(triplets.i, triplets.j, triplets.k, strict=True):
        near_id, far_id = points[i] - points[j], points[j] - points[k]
        hinge = np.linalg.norm(W @ near_id) - np.linalg.norm(W @ far_id) + margin
        if hinge > 0:
            loss += hinge
            gradient += np.outer(W @ near_id, near_id) / np.linalg.norm(W @ near_id)
            gradient -= np.outer(W @ far_id, far_id) / np.linalg.norm(W @ far_id)
    return loss / len(triplets), gradient / len(triplets)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_one_point_per_distribution_is_triplet_metric_learning(k):
    D = cohort(sizes=[1] * 9)
    objective, W = objective_of(D, k), components(k)
    result = objective.evaluate(W, everything(objective))
    loss, gradient = plain_triplet_learning(D.points / SCALE, W, objective.triplets, 0.5)
    assert result.loss == pytest.approx(loss, rel=1e-12)
    assert_allclose(result.gradient, gradient, rtol=1e-9, atol=1e-12)


PENALTIES = [resolve_penalty(name) for name in ("l2", "l2_squared", "l1", "group", "nuclear")]
each_penalty = pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)


@each_penalty
@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_gradient_of_a_penalty_is_its_slope(penalty, k):
    W = components(k)
    assert_allclose(penalty.gradient(W), finite_differences(penalty.value, W), rtol=1e-6, atol=1e-8)


@each_penalty
def test_at_a_kink_a_penalty_has_a_finite_gradient_of_least_norm(penalty):
    assert_array_equal(penalty.gradient(np.zeros((2, N_FEATURES))), 0.0)
    poor = np.outer([1.0, 0.0, 2.0], [3.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    assert penalty.value(poor) > penalty.value(0.0 * poor) == 0.0
    assert np.isfinite(penalty.gradient(poor)).all()
    assert_allclose(penalty.gradient(poor)[:, 1], 0.0, atol=1e-15)


def test_penalties_have_their_known_values():
    W = np.array([[3.0, 0.0, 0.0], [4.0, 0.0, -12.0]])
    assert resolve_penalty("l2").value(W) == 13.0
    assert resolve_penalty("l2_squared").value(W) == 169.0
    assert Lasso().value(W) == 19.0
    assert resolve_penalty("group").value(W) == 17.0
    assert resolve_penalty("nuclear").value(W) == pytest.approx(np.sqrt(np.linalg.eigvalsh(W @ W.T)).sum())
