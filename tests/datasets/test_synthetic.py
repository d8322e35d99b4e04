"""Synthetic data have the numbers of the paper, or of their stated model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric._internal.validation import ParameterError
from groundmetric.datasets import make_modes, make_rings, make_survival, synth_2d, synth_200d

OFFSETS = np.arange(1.5, 30.0, 3.0)
FAMILIES = pytest.mark.parametrize(("make", "n_noise", "noise_scale"), [(synth_2d, 1, 1000.0), (synth_200d, 199, 1.0)])


def by_distribution(D, mode):
    """Points of one mode, (distributions, points, features)."""
    return np.stack([part.points[part.annotations["mode"] == mode] for part in D])


def normal(values, mean, deviation, n_errors=5.0):
    """Have the values, within a few standard errors, this mean and standard deviation?"""
    error = deviation / np.sqrt(values.size)
    return abs(values.mean() - mean) < n_errors * error and abs(values.std() - deviation) < n_errors * error


@FAMILIES
def test_three_classes_of_ten_distributions_of_three_modes_of_a_hundred_points(make, n_noise, noise_scale):
    D, y = make(random_state=0)
    assert D.shape == (30, 1 + n_noise)
    assert_array_equal(D.sizes, 300)
    assert_allclose(D.weights, 1 / 300)
    assert_array_equal(y, np.repeat([0, 1, 2], 10))
    assert len(set(D.names)) == 30
    assert len(D.features) == 1 + n_noise
    for mode in ("centre", "low", "high"):
        assert by_distribution(D, mode).shape == (30, 100, 1 + n_noise)


@FAMILIES
def test_the_informative_feature_shows_the_class_in_the_centre_mode_only(make, n_noise, noise_scale):
    D, y = make(random_state=1)
    centre = by_distribution(D, "centre")[:, :, 0] / 1.25
    for label, class_mean in enumerate([5.0, 10.0, 15.0]):
        assert normal(centre[y == label], 10.0 + class_mean, 1.5)
    for mode, mean in (("low", 0.0), ("high", 40.0)):
        assert normal(by_distribution(D, mode)[:, :, 0] / 1.25, mean, 1.5)


@FAMILIES
def test_noise_features_show_the_offset_and_every_class_has_the_same_ten(make, n_noise, noise_scale):
    D, y = make(random_state=2)
    centre = by_distribution(D, "centre")[:, :, 1:] / noise_scale
    for label in range(3):
        for values, offset in zip(centre[y == label], OFFSETS, strict=True):
            assert np.all((values >= 7.5 + offset) & (values <= 12.5 + offset))
            assert normal(values, 10.0 + offset, 5.0 / np.sqrt(12.0))
    for mode, mean in (("low", 0.0), ("high", 50.0)):
        assert normal(by_distribution(D, mode)[:, :, 1:] / noise_scale, mean, 1.5)


def test_noise_features_are_independent_of_each_other():
    D, _ = synth_200d(random_state=0)
    low = by_distribution(D, "low").reshape(-1, 200)
    correlation = np.corrcoef(low.T) - np.eye(200)
    assert np.abs(correlation).max() < 6.0 / np.sqrt(len(low))


@pytest.mark.parametrize("make", [synth_2d, synth_200d])
def test_the_same_seed_gives_the_same_data_and_another_seed_other_data(make):
    first, repeated, second = make(random_state=3), make(random_state=np.random.RandomState(3)), make(random_state=4)
    assert_array_equal(first[0].points, repeated[0].points)
    assert_array_equal(first[1], repeated[1])
    assert first[0].names == repeated[0].names
    assert not np.any(first[0].points == second[0].points)


def test_offsets_and_numbers_of_points_are_parameters():
    D, y = make_modes(2, 7.0, offsets=[0.0, 5.0, 9.0], points_per_mode=4, random_state=0)
    assert D.shape == (9, 3)
    assert D.sizes.tolist() == [12] * 9
    assert y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    noise = by_distribution(D, "centre")[:, :, 1:] / 7.0
    assert np.all(np.abs(noise.mean(axis=(1, 2)) - [10.0, 15.0, 19.0] * 3) < 2.5)


def test_rings_differ_in_radius_only():
    D, y = make_rings(40, random_state=0)
    assert (len(D), D.shape[1]) == (80, 4)
    radius = np.linalg.norm(D.points, axis=1)
    expected = np.repeat(np.array([1.0, 1.12])[y], D.sizes)
    assert_allclose(radius, expected, rtol=0.1)
    assert_allclose(np.std(radius / expected), 0.02, rtol=0.1)
    directions = D.means() / np.linalg.norm(D.means(), axis=1, keepdims=True)
    assert all(np.linalg.norm(directions[y == c].mean(axis=0)) < 0.4 for c in range(2))


def test_planted_genes_follow_the_hazard_in_the_cells_of_the_programme_only():
    D, y = make_survival(400, 20, 8, n_planted=2, share=0.5, censored=0.0, random_state=0)
    points, has = D.points.reshape(400, 20, 8), D.annotations["programme"].reshape(400, 20)[0]
    rank = np.argsort(np.argsort(y["time"]))
    with_programme = [abs(np.corrcoef(points[:, has, g].mean(axis=1), rank)[0, 1]) for g in range(8)]
    without = [abs(np.corrcoef(points[:, ~has, g].mean(axis=1), rank)[0, 1]) for g in range(8)]
    assert min(with_programme[:2]) > 0.5
    assert max(with_programme[2:]) < 0.2
    assert max(without) < 0.2
    assert has.sum() == 10


@pytest.mark.parametrize("censored", [0.0, 0.3, 0.7])
def test_so_many_are_censored(censored):
    _, y = make_survival(3000, 1, 1, n_planted=1, censored=censored, random_state=0)
    assert abs(np.mean(~y["event"]) - censored) < 0.04


def test_the_hazard_ratio_is_that_of_the_times():
    # Of exponential times, deaths per time at risk are the hazard: that of activity above 0 over that below.
    D, y = make_survival(20000, 1, 1, n_planted=1, share=1.0, effect=50.0, hazard_ratio=3.0, random_state=0)
    active = D.points[:, 0] > 0
    a = D.points[:, 0] / 50.0
    bins = [np.abs(a - centre) < 0.1 for centre in (-0.5, 0.5)]
    low, high = (y["event"][subset].sum() / y["time"][subset].sum() for subset in bins)
    assert active.mean() == pytest.approx(0.5, abs=0.05)
    assert high / low == pytest.approx(3.0, rel=0.2)


def test_the_same_seed_gives_the_same_patients_and_bad_shares_are_refused():
    (first, y), (second, z) = (make_survival(5, 3, 6, random_state=3) for _ in range(2))
    assert np.array_equal(first.points, second.points)
    assert np.array_equal(y, z)
    with pytest.raises(ParameterError) as caught:
        make_survival(censored=1.0)
    assert (caught.value.parameter, caught.value.value) == ("censored", 1.0)
    with pytest.raises(ParameterError) as caught:
        make_survival(0)
    assert (caught.value.parameter, caught.value.value) == ("n_patients", 0)
