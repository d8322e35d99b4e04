"""LFDA: its scatters by their definition, its eigenproblem, and what it can that LDA cannot."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import groundmetric as gm
from paper import lfda
from paper.lfda import LFDA, embed, local_scatter
from paper.points import LinearDiscriminant, directions

from .examples import labelled_points

X, codes = labelled_points()


def scatters_by_definition(points, codes, k):
    """Sugiyama's double sums over all pairs."""
    n = len(points)
    scales = np.empty(n)
    for i in range(n):
        mates = np.flatnonzero(codes == codes[i])
        scales[i] = np.sort(np.linalg.norm(points[mates] - points[i], axis=1))[min(k, mates.size - 1)]
    between, within = np.zeros((2, points.shape[1], points.shape[1]))
    for i in range(n):
        for j in range(n):
            step = points[i] - points[j]
            outer = 0.5 * np.outer(step, step)
            if codes[i] == codes[j]:
                size = np.sum(codes == codes[i])
                affinity = np.exp(-(step @ step) / (scales[i] * scales[j]))
                within += affinity / size * outer
                between += affinity * (1.0 / n - 1.0 / size) * outer
            else:
                between += outer / n
    return between, within


@pytest.mark.parametrize("k", [1, 3, 100])
def test_scatters_are_the_double_sums(k):
    for ours, defined in zip(local_scatter(X, codes, k), scatters_by_definition(X, codes, k), strict=True):
        assert_allclose(ours, defined, rtol=1e-9, atol=1e-9)


def test_blocks_of_rows_change_nothing(monkeypatch):
    expected = local_scatter(X, codes, 3)
    monkeypatch.setattr(lfda, "_BLOCK_ENTRIES", 50)
    assert_allclose(local_scatter(X, codes, 3), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("units", [1.0, np.array([1.0, 1e6, 1e-3, 1.0])])
def test_directions_solve_the_eigenproblem(units):
    between, within = (matrix * np.outer(units, units * np.ones(4)) for matrix in local_scatter(X, codes, 3))
    values, vectors = directions(between, within)
    assert np.all(np.diff(values) <= 0.0)
    assert_allclose(vectors.T @ within @ vectors, np.eye(4), atol=1e-9)
    assert_allclose(vectors.T @ between @ vectors, np.diag(values), atol=1e-8)


def test_embeddings():
    values, vectors = np.array([4.0, -1.0]), np.array([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    assert_allclose(embed(values, vectors, "plain"), vectors.T)
    assert_allclose(embed(values, vectors, "weighted"), [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    rows = embed(values, vectors, "orthonormalized")
    assert_allclose(rows @ rows.T, np.eye(2), atol=1e-12)


def fitted(points, codes, **options):
    return LFDA(**options).fit(gm.Distributions(points, range(len(points))), codes)


def test_shifts_and_turns_of_all_points_change_no_distance():
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    moved = X @ turn + 100.0
    assert_allclose(fitted(moved, codes).point_distances(moved), fitted(X, codes).point_distances(X), atol=1e-6)


def test_the_unit_of_all_points_does_not_matter():
    assert_allclose(fitted(1e4 * X, codes).point_distances(1e4 * X), fitted(X, codes).point_distances(X), rtol=1e-6)


def test_it_separates_a_class_of_two_modes_where_lda_cannot():
    random = np.random.default_rng(0)
    modes = np.repeat([-4.0, 4.0, 0.0, 0.0], 25)
    points = np.column_stack([modes + 0.3 * random.normal(size=100), 3.0 * random.normal(size=100)])
    labels = np.repeat([0, 0, 1, 1], 25)
    D = gm.Distributions(points, range(100))
    local = LFDA(1).fit(D, labels).metric_.importance()
    plain = LinearDiscriminant(1, shrinkage=0.0).fit(D, labels).metric_.importance()
    assert local[0] > 0.95 > 0.9 > plain[0]


def test_fewer_points_than_features():
    points, labels = labelled_points(8, 12, 2)
    method = fitted(points, labels)
    assert np.isfinite(method.components_).all()
    distances = method.point_distances(points)
    same = labels[:, None] == labels
    assert distances[same].max() < 0.1 * distances[~same].min()


def test_fewer_components():
    full, leading = fitted(X, codes), fitted(X, codes, n_components=2)
    assert leading.components_.shape == (2, 4)
    assert_allclose(np.abs(leading.components_), np.abs(full.components_[:2]), rtol=1e-6)
