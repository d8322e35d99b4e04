"""Geometry: equal numbers of points, keyed by name, without labels; the same for dense and sparse points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import wasserstein_distance

from groundmetric import Distributions, pairwise_distances
from groundmetric.ensemble import Geometry, geometry

from ..estimators.cohorts import cohort

D, y = cohort(8, points=12)
FEATURES_READ = ("means", "deviations", "moments", "embedding", "quantiles")


def described(cells, **options):
    return Geometry(cells, **{"seed": 0, "max_points": 100, **options}).description


def test_distributions_have_equal_numbers_of_points():
    uneven = Distributions(np.random.default_rng(0).normal(size=(200, 2)), np.repeat(range(4), [20, 40, 60, 80]))
    result = Geometry(uneven, 0, 15)
    assert result.description.transported.sizes.tolist() == [15] * 4
    assert result.description.drawn.sizes.tolist() == [20] * 4
    assert result.description.sizes.tolist() == [20, 40, 60, 80]
    assert result.description.small.size == 0


def test_distributions_of_too_few_points_are_named_and_do_not_decide_for_all():
    uneven = Distributions(np.random.default_rng(0).normal(size=(124, 2)), np.repeat(range(5), [4, 30, 30, 30, 30]))
    result = Geometry(uneven, 0, 100)
    assert result.scaling.n_points == 10
    assert result.description.transported.sizes.tolist() == [4, 10, 10, 10, 10]
    assert result.description.small.tolist() == [0]


def test_points_for_transport_are_some_of_those_for_single_features():
    description = described(D, max_points=5)
    for d in range(len(D)):
        drawn = {tuple(row) for row in description.drawn[[d]].points}
        subset = {tuple(row) for row in description.transported[[d]].points}
        assert len(subset) == 5
        assert subset < drawn


def test_a_description_depends_on_the_seed_and_the_name():
    scaling = Geometry(D, 0, 5).scaling
    assert_array_equal(scaling.describe(D).transported.points, scaling.describe(D).transported.points)
    assert not np.array_equal(
        Geometry(D, 1, 5).description.transported.points, Geometry(D, 0, 5).description.transported.points
    )
    renamed = Distributions(D.points, np.repeat([f"t{k}" for k in range(8)], 12))
    assert not np.array_equal(
        Geometry(renamed, 0, 5).description.transported.points, Geometry(D, 0, 5).description.transported.points
    )


@pytest.mark.parametrize("name", FEATURES_READ)
def test_the_description_of_a_distribution_alone_or_in_company_is_the_same(name):
    scaling = Geometry(D, 0, 5).scaling
    batch = getattr(scaling.describe(D), name)
    for d in (0, 5):
        assert_allclose(getattr(scaling.describe(D[[d]]), name)[0], batch[d], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FEATURES_READ)
def test_row_order_changes_nothing(name):
    order = np.random.default_rng(0).permutation(96)
    shuffled = Distributions(D.points[order], np.repeat(D.names, 12)[order], features=D.features)
    first, second = described(D, max_points=5), described(shuffled[np.argsort(shuffled.names)], max_points=5)
    assert_allclose(getattr(second, name), getattr(first, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FEATURES_READ)
def test_sparse_points_give_the_dense_features(name):
    points = np.where(D.points > 0.5, D.points, 0.0)
    first, second = (described(D.with_points(form(points)), max_points=5) for form in (np.asarray, sparse.csr_matrix))
    assert_allclose(getattr(second, name), getattr(first, name), atol=1e-6)


def test_means_and_deviations_are_standardised():
    description = described(D)
    points = (D.points - description.scaling.centre) / description.scaling.scale
    assert_allclose(points.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(points.std(axis=0), 1.0)
    assert_allclose(description.means, points.reshape(8, 12, -1).mean(axis=1), atol=1e-12)
    assert_allclose(description.deviations, points.reshape(8, 12, -1).std(axis=1), atol=1e-12)


def test_weighted_points_count_by_their_mass():
    """Compare masses 2 and 1 with duplicated points."""
    random = np.random.default_rng(0)
    points, masses = random.normal(size=(24, 3)), np.tile([2.0, 1.0, 1.0], 8)
    weighted = Distributions(points, np.repeat(range(4), 6), weights=masses)
    doubled = Distributions(np.repeat(points, masses.astype(int), axis=0), np.repeat(range(4), 8))
    scaling = Geometry(doubled, 0, 100).scaling
    first, second = scaling.describe(weighted), scaling.describe(doubled)
    assert_allclose(first.means, second.means, atol=1e-12)
    assert_allclose(first.deviations, second.deviations, atol=1e-12)
    assert_allclose(first.embedding, second.embedding, atol=1e-12)
    assert_allclose(pairwise_distances(first.euclidean), pairwise_distances(second.euclidean), atol=1e-9)


def test_constant_features_become_zero():
    points = D.points.copy()
    points[:, [0, 5]] = 4.0, 0.0
    description = described(D.with_points(points))
    assert_array_equal(description.means[:, [0, 5]], 0.0)
    assert_array_equal(description.deviations[:, [0, 5]], 0.0)
    assert np.isfinite(description.embedding).all()
    assert np.isfinite(description.quantiles).all()


def test_distances_of_quantile_functions_are_one_dimensional_transport_distances():
    """Compare the mean gap of 20 quantiles of 20 points with the exact distance."""
    cells, _ = cohort(5, points=20)
    result = Geometry(cells, 0, 100)
    points = (cells.points - result.scaling.centre) / result.scaling.scale
    blocks = points.reshape(5, 20, -1)
    for i in range(5):
        for partner, values in zip(result.marginals.partners[i], result.marginals.values[i], strict=True):
            exact = [wasserstein_distance(blocks[i, :, k], blocks[partner, :, k]) for k in range(10)]
            assert_allclose(values, exact, rtol=1e-5)


def test_with_strata_quantiles_are_relative_to_the_stratum():
    strata = np.arange(8) % 2
    shifted = D.with_points(D.points + 7.0 * np.repeat(strata, 12)[:, None])
    result = Geometry(shifted, 0, 100, strata)
    for stratum in (0, 1):
        assert_allclose(result.quantiles[strata == stratum].mean(axis=0), 0.0, atol=1e-6)


def test_large_cohorts_compare_with_partners_by_name(monkeypatch):
    monkeypatch.setattr(geometry, "_MAX_MARGINAL_ENTRIES", 8 * 10 * 3)
    part = Geometry(D, 0, 100).marginals
    monkeypatch.undo()
    everyone = Geometry(D, 0, 100).marginals
    assert part.partners.shape == (8, 3)
    for i in range(8):
        assert i not in part.partners[i]
        rows = np.searchsorted(everyone.partners[i], part.partners[i])
        assert_array_equal(part.values[i], everyone.values[i][rows])


def test_many_features_are_projected_to_principal_axes():
    cells, _ = cohort(6, points=20, n_features=70)
    result = Geometry(cells, 0, 100)
    assert result.scaling.axes.shape == (50, 70)
    assert_allclose(result.scaling.axes @ result.scaling.axes.T, np.eye(50), atol=1e-9)
    assert result.description.euclidean.shape[1] == 50
    assert result.euclidean_distances.shape == (6, 6)
