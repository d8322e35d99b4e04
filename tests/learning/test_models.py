"""Models with other costs and diagonal metrics: exact gradients and losses."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from groundmetric import Distributions, pairwise_distances
from groundmetric._internal.parallel import Threads
from groundmetric.learning.objective import Adam, DiagonalModel, LinearEmbedding, LinearModel, Objective
from groundmetric.learning.triplets import random_triplets
from groundmetric.metrics.base import Cost

LABELS = np.array([0, 1, 0, 1, 2, 2, 0, 1, 2])


def cohort(n_features, *, as_sparse=False):
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(LABELS.size), range(4, 13))
    points = random.normal(size=(groups.size, n_features)) + 0.3 * LABELS[groups][:, None]
    points *= np.linspace(0.5, 2.0, n_features)
    return Distributions(sparse.csr_matrix(points) if as_sparse else points, groups, weights=random.random(groups.size))


def model_of(kind, D, cost):
    n_features = D.shape[1]
    scale, centre = np.linspace(0.5, 2.0, n_features), np.linspace(-1.0, 1.0, n_features)
    return DiagonalModel(scale, centre, cost) if kind == "diagonal" else LinearModel(kind, scale, centre, cost)


def first_parameters(model):
    random = np.random.default_rng(1)
    return model.start(lambda k: random.normal(size=(k, model.scale.size)))


def objective_of(model, D, *, margin=0.5):
    triplets = random_triplets(LABELS, 2, np.random.RandomState(0))
    pairs = model.pairs(D, triplets.first, triplets.second, threads=Threads(1))
    objective = Objective(triplets, pairs, margin=margin)
    objective.unit = objective.typical_distance(first_parameters(model), np.arange(len(triplets)))
    return objective, np.arange(len(triplets))


def slope(function, W, entries, step=1e-6):
    for entry in entries:
        change = np.zeros_like(W)
        change[entry] = step
        yield (function(W + change) - function(W - change)) / (2 * step)


each_cost = pytest.mark.parametrize("cost", list(Cost), ids=lambda cost: cost.name.lower())
KINDS = [(1, 6), (3, 6), (6, 6), (36, 36), ("diagonal", 1), ("diagonal", 6), ("diagonal", 40)]
each_kind = pytest.mark.parametrize(("kind", "n_features"), KINDS)


@each_cost
@each_kind
@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_gradient_is_the_slope_of_the_loss(cost, kind, n_features, as_sparse):
    D = cohort(n_features, as_sparse=as_sparse)
    model = model_of(kind, D, cost)
    (objective, batch), W = objective_of(model, D, margin=0.02), first_parameters(model)
    result = objective.evaluate(W, batch)
    assert 0 < result.active < batch.size
    entries = list(np.ndindex(W.shape))[:: max(1, W.size // 5)]
    expected = list(slope(lambda V: objective.evaluate(V, batch, gradient=False).loss, W, entries))
    assert_allclose([result.gradient[entry] for entry in entries], expected, atol=2e-6)


@each_cost
@each_kind
def test_the_loss_is_that_of_the_metric_which_comes_out(cost, kind, n_features):
    D = cohort(n_features)
    model = model_of(kind, D, cost)
    (objective, batch), W = objective_of(model, D), first_parameters(model)
    metric = model.metric(model.keep(W), None, np.ones(n_features))
    assert metric.cost is cost
    distances = pairwise_distances(D, metric=metric) / objective.unit
    i, j, k = objective.triplets.i, objective.triplets.j, objective.triplets.k
    assert objective.evaluate(W, batch).loss == pytest.approx(
        np.maximum(distances[i, j] - distances[j, k] + 0.5, 0).mean()
    )


@each_cost
@pytest.mark.parametrize("kind", [2, "diagonal"])
def test_bounds_and_warm_starts_never_change_loss_or_gradient(cost, kind):
    D = cohort(6)
    model = model_of(kind, D, cost)
    (objective, batch), W, adam = objective_of(model, D, margin=0.2), first_parameters(model), Adam(0.02)
    saved = 0
    for _ in range(10):
        result, fresh = (selected.evaluate(W, batch) for selected in (objective, objective_of(model, D, margin=0.2)[0]))
        assert result.loss == pytest.approx(fresh.loss, rel=1e-11)
        assert_allclose(result.gradient, fresh.gradient, rtol=1e-8, atol=1e-11)
        W, saved = adam.step(W, result.gradient), saved + result.saved
    assert saved > 0


def test_a_diagonal_metric_is_the_linear_one_of_a_diagonal_matrix():
    D = cohort(6)
    diagonal, full = model_of("diagonal", D, Cost.EUCLIDEAN), model_of(6, D, Cost.EUCLIDEAN)
    w = np.random.default_rng(0).random((1, 6))
    first, second = (objective_of(model, D)[0] for model in (diagonal, full))
    first.unit = second.unit = 1.0
    batch = np.arange(len(first.triplets))
    results = [first.evaluate(w, batch), second.evaluate(np.diag(w[0]), batch)]
    assert results[0].loss == pytest.approx(results[1].loss)
    assert_allclose(results[0].gradient[0], np.diag(results[1].gradient), rtol=1e-8)
    assert_array_equal(diagonal.chain(np.outer(w, w)), w**2)
    assert_array_equal(diagonal.rows(w), np.diag(w[0]))


@pytest.mark.parametrize("kind", [3, "diagonal"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_projected_points_lie_where_pairs_place_them(kind, as_sparse):
    D = cohort(6, as_sparse=as_sparse)
    model = model_of(kind, D, Cost.EUCLIDEAN)
    W, embedding = first_parameters(model), LinearEmbedding(D, model)
    placed = np.vstack([z for _, z in embedding.place(W, np.arange(len(D)), learning=False)])
    assert_allclose(placed, model.project(D, W), atol=1e-12)
    projected = model.metric(W, None, np.ones(6)).project(D)
    assert_allclose(np.ptp(projected, axis=0), np.ptp(placed, axis=0), rtol=1e-9)
