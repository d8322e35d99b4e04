"""Cells in space: invariance to the slide, neighbours by brute force, and shares of the distance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from groundmetric._anndata.cohort import Samples
from groundmetric.pp import neighborhood_means, side_by_side, standardised_coordinates

RANDOM = np.random.default_rng(0)
CODES = RANDOM.integers(0, 3, 60)
SAMPLES = Samples(np.array(["a", "b", "c"]), CODES)
COORDINATES = RANDOM.uniform(0.0, 9.0, (60, 2))
VALUES = RANDOM.normal(size=(60, 4))


def test_origin_and_unit_of_a_slide_do_not_matter():
    moved = (
        COORDINATES * np.array([1.0, 10.0, 0.1])[CODES, None] + np.array([[0.0, 5.0], [1e4, 0.0], [3.0, -7.0]])[CODES]
    )
    assert_allclose(
        standardised_coordinates(moved, SAMPLES, "spatial"), standardised_coordinates(COORDINATES, SAMPLES, "spatial"),
        atol=1e-9,
    )  # fmt: skip


def test_coordinates_have_mean_0_and_total_variance_1_in_every_sample():
    result = standardised_coordinates(COORDINATES, SAMPLES, "spatial")
    for code in range(3):
        assert_allclose(result[code == CODES].mean(axis=0), 0.0, atol=1e-12)
        assert result[code == CODES].var(axis=0).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("k", [1, 4, 500])
def test_neighbours_are_those_of_brute_force_within_the_sample(k):
    result = neighborhood_means(VALUES, COORDINATES, SAMPLES, k)
    for cell in range(60):
        candidates = np.flatnonzero((CODES[cell] == CODES) & (np.arange(60) != cell))
        nearest = candidates[np.argsort(np.linalg.norm(COORDINATES[candidates] - COORDINATES[cell], axis=1))[:k]]
        assert_allclose(result[cell], VALUES[nearest].mean(axis=0))


def test_neighbourhoods_do_not_depend_on_how_a_slide_is_turned():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    assert_allclose(
        neighborhood_means(VALUES, COORDINATES @ turn.T, SAMPLES, 3),
        neighborhood_means(VALUES, COORDINATES, SAMPLES, 3),
    )


def test_a_cell_is_never_its_own_neighbour_even_if_coordinates_coincide():
    samples = Samples(np.array(["a"]), np.zeros(4, int))
    coordinates = np.zeros((4, 2))
    values = np.eye(4)
    result = neighborhood_means(values, coordinates, samples, 2)
    assert_allclose(np.diag(result), 0.0)
    assert_allclose(result.sum(axis=1), 1.0)


def test_a_lone_cell_has_its_own_values_and_the_middle_of_its_slide():
    samples = Samples(np.array(["a", "b"]), np.array([0, 0, 1]))
    assert_allclose(neighborhood_means(VALUES[:3], COORDINATES[:3], samples, 2)[2], VALUES[2])
    assert_allclose(standardised_coordinates(COORDINATES[:3], samples, "spatial")[2], 0.0)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_weight_is_the_share_of_space_in_squared_distances(weight):
    joint = side_by_side(1000.0 * VALUES, COORDINATES, weight)
    squares = np.square(joint[:, None] - joint[None])
    assert squares[..., 4:].sum() / squares.sum() == pytest.approx(weight, abs=1e-12)


def test_cells_with_equal_coordinates_are_refused():
    with pytest.raises(ValueError, match="cells of sample 'b' have the same coordinates in obsm"):
        standardised_coordinates(np.where(CODES[:, None] == 1, 5.0, COORDINATES), SAMPLES, "spatial")
