"""Learning curves: bands, number of patients, pilots that are too small."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.evaluation.planning import LearningCurve


@pytest.fixture(autouse=True)
def fewer_permutations(monkeypatch):
    """Permute labels 999 instead of 4,999 times: the largest z-score is 3.1."""
    monkeypatch.setattr(gm.evaluation.planning, "_N_PERMUTATIONS", 999)


def cohort(seed, y, effect, n_features=15, n_points=8):
    random = np.random.default_rng(seed)
    means = random.normal(size=(len(y), n_features))
    means[:, :4] += effect * np.asarray(y)[:, None]
    points = np.repeat(means, n_points, axis=0) + random.normal(size=(len(y) * n_points, n_features))
    return gm.Distributions(points, np.repeat([f"s{i:02d}" for i in range(len(y))], n_points))


def curve(effect, seed=0, n=8, **options):
    y = np.repeat([0, 1], n)
    ensemble = gm.GroundMetricEnsemble(4, kinds=("anova",), random_state=seed)
    return gm.evaluation.learning_curve(ensemble, cohort(seed, y, effect), y, n_subsamples=1, **options)


def test_power_of_a_z_test_is_recovered():
    """A p-value of .0228 is a z-score of 2: with four times the patients and growth √n, a z-score of 4."""
    result = LearningCurve(20, 2, np.array([20.0]), np.array([0.7]), (0.5, 0.85), 0.25, 0.02275, 0.05)
    value, low, high = result.power(80)
    assert low < value < high
    assert high == pytest.approx(1.0)
    n, smallest, largest = result.patients_for(0.8)
    assert smallest < n < largest == np.inf
    assert "too small" in result.describe()


def test_bands_contain_their_estimate_and_widen():
    result = curve(1.2)
    widths = []
    for n in (16, 32, 64):
        for value, low, high in (result.accuracy(n), result.power(n)):
            assert 0.0 <= low <= value <= high <= 1.0
        widths.append(np.subtract(*result.accuracy(n)[:0:-1]))
    assert widths[0] <= widths[1] <= widths[2]
    assert result.table().shape == (7, 7)


def test_strong_effect_has_an_upper_limit_and_noise_has_none():
    assert np.isfinite(curve(3.0).patients_for(0.8)[2])
    assert sum(np.isfinite(curve(0.0, seed).patients_for(0.8)[2]) for seed in range(3)) <= 1


def test_patients_are_units():
    y, patients = np.repeat([0, 1], 8), [f"p{i // 2}" for i in range(16)]
    ensemble = gm.GroundMetricEnsemble(4, kinds=("anova",), random_state=0)
    result = gm.evaluation.learning_curve(ensemble, cohort(0, y, 2.0), y, groups=patients, n_subsamples=1)
    assert result.n_patients == 8
    assert result.sizes[-1] == 8


def test_invalid_input():
    result = LearningCurve(20, 2, np.array([20.0]), np.array([0.7]), (0.5, 0.85), 0.25, 0.02, 0.05)
    with pytest.raises(ParameterError):
        result.accuracy(10)
    with pytest.raises(ParameterError):
        result.patients_for(1.0)
    with pytest.raises(ParameterError) as error:
        gm.evaluation.learning_curve(gm.GroundMetricEnsemble(target="ordered"), cohort(0, [0, 1] * 4, 0.0), [0, 1] * 4)
    assert error.value.parameter == "target"
