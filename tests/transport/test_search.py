"""Nearest neighbours: those of all distances, with fewer solves."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric.transport.neighbors import nearest

from ..laws.strategies import cohorts
from .cohorts import ALL_WEIGHTS, cohort, search_neighbors

IGAN = Path(__file__).parents[2].parent / "shared" / "data" / "pilot_igan_glomeruli_634patients.h5ad"


def brute_force(A, B, n_neighbors, metric="euclidean"):
    distances = gm.pairwise_distances(A, B, metric)
    if B is None:
        np.fill_diagonal(distances, np.inf)
    indices = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    return np.take_along_axis(distances, indices, axis=1), indices


def assert_nearest(A, B, n_neighbors, metric="euclidean"):
    result, expected = gm.kneighbors(A, B, n_neighbors, metric), brute_force(A, B, n_neighbors, metric)
    assert_array_equal(result[0], expected[0])
    assert_array_equal(result[1], expected[1])


def clusters(n_clusters, per_cluster, k=2, seed=0):
    """Distributions of 1 to 30 points about centres that are far from each other, in turn."""
    rng = np.random.default_rng(seed)
    centres = 100.0 * np.column_stack([np.arange(n_clusters), *np.zeros((k - 1, n_clusters))])
    sizes = rng.integers(1, 31, n_clusters * per_cluster)
    owner = np.repeat(np.arange(sizes.size), sizes)
    return gm.Distributions(rng.normal(size=(owner.size, k)) + centres[owner % n_clusters], owner)


@pytest.mark.parametrize("n_neighbors", [1, 3, 11])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_neighbours_within_one_cohort(n_neighbors, k, weights):
    rng = np.random.default_rng(k)
    D = cohort(rng, rng.integers(1, 31, 12), k, weights)
    assert_nearest(D, None, n_neighbors)
    assert not (gm.kneighbors(D, n_neighbors=n_neighbors)[1] == np.arange(12)[:, None]).any()


@pytest.mark.parametrize("n_neighbors", [1, 4, 15])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_neighbours_of_queries_in_a_cohort(n_neighbors, k, weights):
    rng = np.random.default_rng(k)
    A, B = (cohort(rng, rng.integers(1, 31, n), k, weights) for n in (6, 15))
    assert_nearest(A, B, n_neighbors)


@pytest.mark.parametrize("seed", range(10))
def test_neighbours_among_single_points_on_a_lattice(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.integers(0, 3, (8, 2)), rng.integers(0, 3, (20, 2))
    assert_nearest(A, B, 4)
    assert_nearest(B, None, 4)


@pytest.mark.parametrize("seed", range(20))
def test_equal_distances_go_by_index(seed):
    """Every distribution occurs several times, with permuted points: distances tie."""
    rng = np.random.default_rng(seed)
    shapes = [rng.normal(size=(rng.integers(1, 6), 2)) for _ in range(4)]
    D = gm.Distributions.from_arrays([rng.permutation(shapes[d]) for d in rng.integers(0, 4, 16)])
    assert_nearest(D, None, 3)
    assert_nearest(D[:5], D[5:], 3)


def test_a_copy_with_its_points_in_another_order_is_the_nearest():
    x = np.array([[0.1, 0.3], [0.7, 0.2], [0.4, 0.9]])
    distances, indices = gm.kneighbors(
        gm.Distributions.from_arrays([x]), gm.Distributions.from_arrays([x[[2, 0, 1]], x]), 1
    )
    assert distances.tolist() == [[0.0]]
    assert indices.tolist() == [[0]]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spread", [1.0, 1e-6, 1e-9])
def test_rounding_in_the_bounds_rules_no_neighbour_out(seed, spread):
    """Shifted copies of one shape have tight bounds; the coordinates are much larger than the shifts."""
    rng = np.random.default_rng(seed)
    shape = rng.normal(size=(7, 2))
    copies = [shape + spread * rng.normal(size=2) + 1e6 * (d % 2) for d in range(16)]
    assert_nearest(gm.Distributions.from_arrays(copies), None, 3)


def test_a_distribution_among_its_own_cohort_given_twice_is_its_own_nearest():
    D = cohort(np.random.default_rng(0), [4, 7, 1, 9], 3, "random")
    assert gm.kneighbors(D, D, 1)[1].ravel().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("metric", ["cityblock", gm.GroundMetric([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])], ids=str)
def test_neighbours_under_other_metrics(metric):
    rng = np.random.default_rng(0)
    A, B = (cohort(rng, rng.integers(1, 9, n), 2, "both") for n in (5, 9))
    assert_nearest(A, B, 2, metric)
    assert_nearest(B, None, 2, metric)


def test_neighbours_among_many_features():
    rng = np.random.default_rng(0)
    A, B = (cohort(rng, rng.integers(1, 9, n), 50, "both") for n in (5, 9))
    assert_nearest(A, B, 2)


def test_separated_clusters_need_few_solves():
    D = clusters(4, 8)
    n, within = len(D), 4 * 8 * 7 // 2
    distances, indices, solves = search_neighbors(D, n_neighbors=3)
    assert_nearest(D, None, 3)
    assert (indices % 4 == np.arange(n)[:, None] % 4).all()
    assert solves <= within < n * (n - 1) // 2
    assert (distances < 50).all()


def test_separated_queries_need_few_solves():
    A, B = clusters(4, 3, seed=1), clusters(4, 8)
    solves = search_neighbors(A, B, 3)[2]
    assert_nearest(A, B, 3)
    assert solves <= len(A) * 8


def test_solves_are_counted_where_nothing_can_be_pruned():
    B = clusters(2, 3)
    assert search_neighbors(B, None, 5)[2] == 6 * 5 // 2


def test_threads_find_the_same_neighbours():
    D = clusters(3, 5)
    for serial, threaded in zip(
        gm.kneighbors(D, n_neighbors=4), gm.kneighbors(D, n_neighbors=4, n_jobs=2), strict=True
    ):
        assert_array_equal(serial, threaded)


@pytest.mark.parametrize("n_neighbors", [0, -1, 4])
def test_number_of_neighbours_out_of_range_is_refused(n_neighbors):
    D = cohort(np.random.default_rng(0), [2, 3, 4, 1], 2)
    with pytest.raises(ValueError, match=f"n_neighbors is {n_neighbors}, but there are 3"):
        gm.kneighbors(D, n_neighbors=n_neighbors)


def test_more_neighbours_than_candidates_are_refused():
    D = cohort(np.random.default_rng(0), [2, 3, 4, 1], 2)
    with pytest.raises(ValueError, match="n_neighbors is 3, but there are 2"):
        gm.kneighbors(D, D[:2], 3)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9), st.floats(0.0, 1.0), st.data())
def test_nearest_needs_only_that_bounds_are_below(seed, n_queries, n_candidates, tightness, data):
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 4, (n_queries, n_candidates)).astype(float)
    n_neighbors = data.draw(st.integers(1, n_candidates))
    solved = []

    def solve(rows, cols):
        solved.extend(zip(rows.tolist(), cols.tolist(), strict=True))
        return exact[rows, cols]

    lower = exact * np.where(rng.random(exact.shape) < tightness, 1.0, rng.random(exact.shape))
    result = nearest(lower, n_neighbors, solve)
    indices, expected = (np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors] for distances in (result, exact))
    assert_array_equal(indices, expected)
    assert len(set(solved)) == len(solved)


@given(cohorts(n_distributions=9), st.integers(1, 8))
def test_neighbours_of_any_distributions(D, n_neighbors):
    """Points that coincide, distances that tie, masses of 0."""
    assert_nearest(D, None, n_neighbors)
    assert_nearest(D[:3], D[3:], min(n_neighbors, 6))


def test_sharper_bounds_save_solves_and_change_nothing():
    rng = np.random.default_rng(0)
    exact = rng.uniform(1.0, 2.0, (30, 40))
    rough, sharp = exact * rng.uniform(0.0, 0.5, exact.shape), exact * 0.99
    solved, sharpened = [], []

    def solve(rows, cols):
        solved.append(rows.size)
        return exact[rows, cols]

    def sharpen(rows, cols):
        sharpened.extend(zip(rows.tolist(), cols.tolist(), strict=True))
        return sharp[rows, cols]

    result = nearest(rough, 3, solve, sharpen)
    with_sharp, solved[:] = sum(solved), []
    expected = nearest(rough, 3, solve)
    assert_array_equal(np.sort(result, axis=1)[:, :3], np.sort(expected, axis=1)[:, :3])
    assert len(set(sharpened)) == len(sharpened)
    assert with_sharp < 0.25 * sum(solved)


@pytest.mark.skipif(not IGAN.exists(), reason="the cohort is not at hand")
def test_few_pairs_of_real_patients_are_solved():
    """634 patients of 14 features would be 200,661 pairs; here the first 120 of them."""
    import anndata as ad

    adata = ad.read_h5ad(IGAN)
    values = np.asarray(adata.X, np.float64)
    D = gm.Distributions((values - values.mean(axis=0)) / values.std(axis=0), adata.obs["sample"].to_numpy())[:120]
    solves = search_neighbors(D, n_neighbors=5)[2]
    assert_nearest(D, None, 5)
    assert 3 * solves < 120 * 119 // 2
