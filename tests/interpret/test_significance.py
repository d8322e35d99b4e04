"""Features that differ between labels: planted ones are found, and nothing is where labels say nothing."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.interpret import feature_significance


def cohort(seed, n=16, n_points=25, n_features=40, planted=4, shift=1.6, spread=0.4):
    """Distributions of n_points points; planted features are shifted in the second half of the distributions."""
    random = np.random.RandomState(seed)
    y = np.arange(n) % 2
    centres = spread * random.normal(size=(n, n_features))
    centres[:, :planted] += shift * y[:, None]
    points = random.normal(size=(n * n_points, n_features)) + np.repeat(centres, n_points, axis=0)
    return gm.Distributions(points, np.repeat(np.arange(n), n_points)), y


def test_planted_features_are_found_and_have_their_direction():
    D, y = cohort(0)
    found = feature_significance(D, y, n_permutations=499, random_state=0)
    assert np.all(found.discoveries.q[:4] < 0.05)
    assert np.all(found.shift[:4] > 0.3)
    assert np.count_nonzero(found.discoveries.q[4:] < 0.1) <= 1


def test_a_feature_that_differs_in_spread_alone_is_found():
    random = np.random.RandomState(0)
    y = np.arange(20) % 2
    points = random.normal(size=(20, 30, 10))
    points[y == 1, :, 3] *= 2.5
    D = gm.Distributions(points.reshape(-1, 10), np.repeat(np.arange(20), 30))
    found = feature_significance(D, y, n_permutations=499, random_state=0)
    assert found.discoveries.q[3] < 0.05
    assert abs(found.shift[3]) < 0.2


def test_labels_that_say_nothing_find_nothing_but_as_often_as_promised():
    found = []
    for seed in range(40):
        D, y = cohort(seed, n=12, n_points=8, n_features=20, shift=0.0)
        found.append(feature_significance(D, y, n_permutations=99, random_state=seed).discoveries.q.min() < 0.1)
    assert np.mean(found) <= 0.2  # 0.1 is promised; 8 of 40 have a chance of about 0.04


def test_decoys_are_no_discoveries():
    """Features of other distributions, drawn at random, look like features but follow no label."""
    wrong, right = 0, 0
    for seed in range(10):
        D, y = cohort(seed)
        points = D.points.reshape(len(D), -1, D.shape[1])
        decoys = points[np.random.RandomState(seed).permutation(len(D))].reshape(D.points.shape)
        both = gm.Distributions(np.hstack([D.points, decoys]), np.repeat(np.arange(len(D)), 25))
        q = feature_significance(both, y, n_permutations=499, random_state=seed).discoveries.q
        wrong, right = wrong + np.count_nonzero(q[40:] < 0.1), right + np.count_nonzero(q[:4] < 0.1)
    assert right >= 30
    assert wrong <= 0.1 * (right + wrong) + 3


def test_the_order_of_features_and_of_distributions_does_not_matter():
    D, y = cohort(1)
    straight = feature_significance(D, y, n_permutations=49, random_state=0)
    order = np.random.RandomState(0).permutation(D.shape[1])
    turned = feature_significance(D.with_points(D.points[:, order]), y, n_permutations=49, random_state=0)
    np.testing.assert_allclose(turned.statistic, straight.statistic[order], rtol=1e-6)
    shuffled = np.random.RandomState(1).permutation(len(D))
    other = feature_significance(D[shuffled], y[shuffled], n_permutations=49, random_state=0)
    np.testing.assert_allclose(other.statistic, straight.statistic, rtol=1e-4)


def test_units_do_not_matter_and_constant_features_are_no_discovery():
    D, y = cohort(2)
    points = D.points * np.r_[1e6, np.full(39, 1e-6)]
    points = np.column_stack([points, np.full(len(points), 7.0)])
    scaled = feature_significance(D.with_points(points), y, n_permutations=49, random_state=0)
    plain = feature_significance(D, y, n_permutations=49, random_state=0)
    np.testing.assert_allclose(scaled.statistic[:40], plain.statistic, rtol=1e-3)
    assert scaled.discoveries.q[40] > 0.5


def test_samples_of_one_patient_are_not_independent():
    """Ten samples of each of four patients: exchanging patients, nothing can be significant."""
    random = np.random.RandomState(0)
    patient = np.repeat(np.arange(4), 10)
    y = patient % 2
    centres = 2.0 * random.normal(size=(4, 6))[patient]
    points = (random.normal(size=(40, 10, 6)) + centres[:, None]).reshape(-1, 6)
    D = gm.Distributions(points, np.repeat(np.arange(40), 10))
    blind = feature_significance(D, y, n_permutations=99, random_state=0)
    by_patient = feature_significance(D, y, groups=patient, n_permutations=99, random_state=0)
    assert blind.discoveries.q.min() < 0.05
    assert by_patient.discoveries.q.min() > 0.1


def test_table_has_the_strongest_first():
    pytest.importorskip("pandas")
    D, y = cohort(0)
    table = feature_significance(D, y, n_permutations=49, random_state=0).table()
    columns = ["feature", "statistic", "shift", "p", "q", "family_p", "parametric_p", "parametric_q"]
    assert list(table.columns) == columns
    assert table["statistic"].is_monotonic_decreasing
    assert set(table["feature"][:4]) == {f"feature {k}" for k in range(4)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_permutations": 0}, "n_permutations"),
        ({"y": [0] * 16}, "class"),
        ({"y": [0, 1, None] + [0, 1] * 6 + [0]}, "missing"),
        ({"y": [0, 1]}, "shape"),
    ],
)
def test_bad_input_is_named(change, message):
    D, y = cohort(0)
    arguments = {"y": y, "n_permutations": 9} | change
    with pytest.raises(ValueError, match=message):
        feature_significance(D, arguments.pop("y"), **arguments)
