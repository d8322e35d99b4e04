"""Features that differ between labels: power, error rates by simulation, and invariance to order and offset."""

import numpy as np
import pytest
from scipy import sparse, special, stats

import groundmetric as gm
from groundmetric.interpret import feature_significance
from groundmetric.interpret.significance import _bin_means, _discoveries, _inverse_trigamma, _Prior


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
    outcome = feature_significance(D, y, n_permutations=499, random_state=0)
    assert np.all(outcome.discoveries.q[:4] < 0.05)
    assert np.all(outcome.shift[:4] > 0.3)
    assert np.count_nonzero(outcome.discoveries.q[4:] < 0.1) <= 1


def test_a_feature_that_differs_in_spread_alone_is_found():
    random = np.random.RandomState(0)
    y = np.arange(20) % 2
    points = random.normal(size=(20, 30, 10))
    points[y == 1, :, 3] *= 2.5
    D = gm.Distributions(points.reshape(-1, 10), np.repeat(np.arange(20), 30))
    outcome = feature_significance(D, y, n_permutations=499, random_state=0)
    assert outcome.discoveries.q[3] < 0.05
    assert abs(outcome.shift[3]) < 0.2


def test_labels_that_say_nothing_find_nothing_but_as_often_as_promised():
    outcome = []
    for seed in range(40):
        D, y = cohort(seed, n=12, n_points=8, n_features=20, shift=0.0)
        outcome.append(feature_significance(D, y, n_permutations=99, random_state=seed).discoveries.q.min() < 0.1)
    assert np.mean(outcome) <= 0.2  # 0.1 is promised; 8 of 40 have a chance of about 0.04


def test_decoys_are_no_discoveries():
    """Features of other distributions, drawn at random, look like features but follow no label."""
    wrong, right = 0, 0
    for seed in range(10):
        D, y = cohort(seed)
        points = D.points.reshape(len(D), -1, D.shape[1])
        decoys = points[np.random.RandomState(seed).permutation(len(D))].reshape(D.points.shape)
        pair = gm.Distributions(np.hstack([D.points, decoys]), np.repeat(np.arange(len(D)), 25))
        q = feature_significance(pair, y, n_permutations=499, random_state=seed).discoveries.q
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
    second = feature_significance(D[shuffled], y[shuffled], n_permutations=49, random_state=0)
    np.testing.assert_allclose(second.statistic, straight.statistic, rtol=1e-4)


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


def simulated(random, labels, patients=None, batches=None, n_features=50, cells=12, effect=0.0, sample_sd=0.5):
    """One sample per label; patient means have standard deviation 1, effects are in the first five features."""
    patients = np.arange(len(labels)) if patients is None else patients
    means = random.normal(size=(max(patients) + 1, n_features))[patients]
    means += sample_sd * random.normal(size=means.shape)
    if batches is not None:
        means += 3.0 * random.normal(size=(max(batches) + 1, n_features))[batches]
    means[:, :5] += effect * np.asarray(labels)[:, None]
    sizes = np.broadcast_to(cells, len(labels))
    points = [random.normal(size=(size, n_features)) + mean for size, mean in zip(sizes, means, strict=True)]
    return gm.Distributions(np.vstack(points), np.repeat([f"s{k:02d}" for k in range(len(labels))], sizes))


def upper_limit(n, rate=0.05):
    """Largest number of n independent events that has a probability above 0.001."""
    return stats.binom.isf(0.001, n, rate) / n


Y = np.repeat([0, 1], 8)
UNEVEN = np.repeat(np.arange(12), np.repeat([4, 1], 6))
NULL_DESIGNS = {
    "10 v 100 cells": (Y, None, None, np.where(Y == 0, 10, 100)),
    "10 v 100 cells, 4 v 12": (np.repeat([0, 1], [4, 12]), None, None, np.repeat([10, 100], [4, 12])),
    "4 v 1 samples": (np.repeat(np.repeat([0, 1], 6), np.repeat([4, 1], 6)), UNEVEN, None, 12),
    "strata, confounded": (Y, None, np.r_[np.repeat([0, 1], [6, 2]), np.repeat([0, 1], [2, 6])], 12),
    "pairs": (np.tile([0, 1], 8), np.repeat(np.arange(8), 2), None, 12),
    "pairs and single patients": (np.arange(14) % 2, np.r_[0, 0, 1, 1, 2:12], None, 12),
    "patients in two batches": (np.repeat(np.arange(12) % 2, 2), np.repeat(np.arange(12), 2), np.tile([0, 1], 12), 12),
    "three classes": (np.arange(15) % 3, None, None, 12),
    "class of two": (np.repeat([0, 1], [2, 9]), None, None, 12),
    "numbers": (np.linspace(0.0, 1.0, 16) ** 2, None, None, 12),
}


@pytest.mark.parametrize("design", NULL_DESIGNS)
def test_p_values_have_their_level_without_effects(design):
    """Features are independent: the number of p-values of at most 0.05 is binomial."""
    labels, patients, batches, cells = NULL_DESIGNS[design]
    permuted, parametric = [], []
    for seed in range(16):
        D = simulated(np.random.default_rng(seed), labels, patients, batches, cells=cells)
        target = "ordered" if labels.dtype.kind == "f" else "classes"
        result = feature_significance(
            D, labels, target=target, groups=patients, strata=batches, n_permutations=199, random_state=seed
        )
        permuted.append(np.mean(result.discoveries.p <= 0.05))
        parametric.append(np.mean(result.parametric_p <= 0.05))
    assert np.mean(permuted) <= upper_limit(16 * 50)
    assert np.mean(parametric) <= upper_limit(16 * 50)


@pytest.mark.parametrize("design", ["strata, confounded", "pairs", "patients in two batches"])
def test_power_is_at_least_that_of_a_linear_model_of_patient_means(design):
    labels, patients, batches, cells = NULL_DESIGNS[design]
    wins = {"permuted": 0, "linear": 0}
    for seed in range(8):
        D = simulated(np.random.default_rng(seed), labels, patients, batches, cells=cells, effect=1.8)
        q = feature_significance(
            D, labels, groups=patients, strata=batches, n_permutations=999, random_state=seed
        ).discoveries.q
        wins["permuted"] += np.sum(q[:5] < 0.1)
        wins["linear"] += np.sum(linear_model(D.means(), labels, patients, batches)[:5] < 0.1)
        assert np.sum(q[5:] < 0.1) <= 3
    assert wins["permuted"] >= wins["linear"] - 2


def linear_model(means, labels, patients, batches):
    """q-values of the label in a least-squares fit with batches, and with patients if these have two labels."""
    nuisance = np.ones((len(labels), 1)) if batches is None else np.eye(2)[batches]
    if patients is not None:
        blocks = np.eye(patients.max() + 1)[patients]
        if np.unique(np.stack([patients, labels]), axis=1).shape[1] == patients.max() + 1:
            blocks /= blocks.sum(axis=0)
            means, nuisance, labels = blocks.T @ means, blocks.T @ nuisance, (blocks.T @ labels).round()
        else:
            nuisance = np.hstack([nuisance, blocks])
    full = np.column_stack([nuisance, labels])
    squares = [np.square(means - x @ np.linalg.lstsq(x, means)[0]).sum(axis=0) for x in (nuisance, full)]
    df = len(means) - np.linalg.matrix_rank(full)
    return stats.false_discovery_control(stats.f.sf((squares[0] - squares[1]) / (squares[1] / df), 1, df))


def test_one_sample_with_another_label_keeps_patients_as_units():
    """12 patients with 4 samples each, one of which has the other label."""
    labels, patients = np.repeat(np.arange(12) % 2, 4), np.repeat(np.arange(12), 4)
    labels[0] = 1
    shares, outcome = [], 0
    for seed in range(12):
        D = simulated(np.random.default_rng(seed), labels, patients)
        result = feature_significance(D, labels, groups=patients, n_permutations=199, random_state=seed)
        shares.append(np.mean(result.discoveries.p <= 0.05))
        strong = simulated(np.random.default_rng(seed), labels, patients, effect=3.0)
        q = feature_significance(strong, labels, groups=patients, random_state=seed).discoveries.q
        outcome += np.sum(q[:5] < 0.1)
    assert np.mean(shares) <= upper_limit(12 * 50)
    assert outcome >= 48  # of 60


def test_six_pairs_state_what_they_allow():
    labels, donors = np.tile([0, 1], 6), np.repeat(np.arange(6), 2)
    D = simulated(np.random.default_rng(0), labels, donors, effect=3.0)
    result = feature_significance(D, labels, groups=donors, random_state=0)
    assert (result.arrangements, result.exact, result.exchanged) == (64, True, "distributions within groups")
    assert result.smallest_p == 1 / 32
    assert result.discoveries.p.min() == 1 / 32
    assert result.discoveries.q.min() >= 1 / 32
    assert np.all(result.parametric_q[:5] < 0.001)
    assert "smallest p 0.031" in repr(result)


def test_an_offset_changes_nothing():
    D, y = cohort(0)
    plain, moved = (
        feature_significance(D.with_points(D.points + offset), y, n_permutations=99, random_state=0)
        for offset in (0.0, 1e8)
    )
    np.testing.assert_allclose(moved.discoveries.q, plain.discoveries.q)
    np.testing.assert_allclose(moved.parametric_p, plain.parametric_p, rtol=1e-4)


def test_the_order_of_samples_of_different_sizes_does_not_matter():
    labels, patients, _, _ = NULL_DESIGNS["4 v 1 samples"]
    D = simulated(np.random.default_rng(0), labels, patients, cells=20 + np.arange(30), effect=1.0)
    order = np.random.default_rng(1).permutation(len(D))
    first = feature_significance(D, labels, groups=patients, n_permutations=99, random_state=0)
    second = feature_significance(D[order], labels[order], groups=patients[order], n_permutations=99, random_state=0)
    np.testing.assert_allclose(second.statistic, first.statistic, rtol=1e-9)
    np.testing.assert_array_equal(second.discoveries.p, first.discoveries.p)
    np.testing.assert_allclose(second.parametric_p, first.parametric_p, rtol=1e-9)


def test_numbers_and_survival_percentiles_are_tested_for_a_trend():
    D, y = gm.datasets.make_survival(40, 12, 10, n_planted=2, share=1.0, donor_effect=0.5, random_state=0)
    result = feature_significance(D, gm.learning.survival_percentiles(y), target="ordered", random_state=0)
    assert set(np.argsort(-result.statistic)[:2]) == {0, 1}
    values = np.arange(16) * 1e300
    D = simulated(np.random.default_rng(0), np.arange(16) / 15.0, effect=5.0)
    result = feature_significance(D, values, target="ordered", n_permutations=499, random_state=0)
    assert np.all(result.discoveries.q[:5] < 0.05)
    assert np.all(result.shift[:5] > 0)


def test_sparse_points_give_the_same_as_dense_ones():
    random = np.random.default_rng(0)
    points = random.poisson(0.5, size=(16 * 20, 12)).astype(float)
    names = np.repeat(np.arange(16), 20)
    dense, thin = (
        feature_significance(gm.Distributions(values, names), Y, n_permutations=49, random_state=0)
        for values in (points, sparse.csr_matrix(points))
    )
    np.testing.assert_allclose(thin.statistic, dense.statistic)


def test_weights_count_as_repeated_points():
    random = np.random.default_rng(0)
    values, counts = random.normal(size=(30, 4)), random.integers(1, 5, 30)
    repeated = _bin_means(np.repeat(values, counts, axis=0), None)
    np.testing.assert_allclose(_bin_means(values, counts / counts.sum()), repeated, atol=1e-12)
    np.testing.assert_allclose(repeated.mean(axis=0), np.average(values, axis=0, weights=counts))


def test_the_prior_of_variances_is_recovered():
    random = np.random.default_rng(0)
    true = 3.0 * 8 / random.chisquare(8, 20000)  # scaled inverse chi-squared with 8 degrees of freedom
    squares = true * random.chisquare(5, 20000)
    prior = _Prior.fit(squares, np.full(20000, 5.0), np.ones(20000, bool))
    assert prior.df == pytest.approx(8, rel=0.1)
    assert prior.variance == pytest.approx(3, rel=0.03)


def test_small_distributions_are_named():
    D = simulated(np.random.default_rng(0), Y, cells=np.r_[3, np.full(15, 30)])
    with pytest.warns(UserWarning, match=r"1 distributions have fewer than 10 points \(s00\)"):
        feature_significance(D, Y, n_permutations=9, random_state=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_permutations": 0}, "n_permutations"),
        ({"y": [0] * 16}, "class"),
        ({"y": [0, 1, None] + [0, 1] * 6 + [0]}, "missing"),
        ({"y": [0, 1]}, "shape"),
        ({"target": "survival"}, "target"),
        ({"y": np.linspace(0, 1, 16)}, "target='ordered'"),
        ({"y": [np.nan] * 16, "target": "ordered"}, "missing"),
        ({"y": [2.0] * 16, "target": "ordered"}, "same label"),
        ({"groups": np.repeat([0, 1], 8), "y": [0, 1] * 8, "strata": np.arange(16)}, "nothing to exchange"),
    ],
)
def test_bad_input_is_named(change, message):
    D, y = cohort(0)
    arguments = {"y": y, "n_permutations": 9} | change
    with pytest.raises(ValueError, match=message):
        feature_significance(D, arguments.pop("y"), **arguments)


def test_if_no_feature_differs_small_q_values_are_as_rare_as_promised():
    """Rows of the table are exchangeable; features are heavy-tailed and dependent."""
    random, n_runs = np.random.RandomState(0), 400
    n_called, n_family, overall = 0, 0, []
    for _ in range(n_runs):
        table = random.normal(size=(40, 60)) + random.normal(size=(40, 5)) @ random.normal(size=(5, 60))
        result = _discoveries(np.abs(table) ** 3, None)
        n_called += bool((result.q < 0.05).any())
        n_family += bool((result.family_p <= 0.05).any())
        overall.append(result.overall)
    # Both are 20 or fewer in expectation, and above 34 with a probability below 0.002.
    assert n_called <= 34
    assert n_family <= 34
    assert 0.4 < np.mean(overall) < 0.65  # uniform, up to ties


@pytest.mark.parametrize("x", [0.3, 2.0, 50.0])
def test_the_inverse_of_trigamma(x):
    assert _inverse_trigamma(float(special.polygamma(1, x))) == pytest.approx(x)
    assert _inverse_trigamma(0.0) == np.inf


def test_discoveries_of_three_arrangements_by_hand():
    result = _discoveries(np.array([[4.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), None)
    np.testing.assert_allclose(result.p, [1 / 3, 1.0])
    np.testing.assert_allclose(result.family_p, [1 / 3, 1.0])
    # Above 4: 1 value in three rows, 1 in the first row; the other rows have no ratio below 1.
    assert result.overall == pytest.approx(1 / 3)
    np.testing.assert_allclose(result.q, [2 / 3, 1.0])  # Benjamini and Hochberg
