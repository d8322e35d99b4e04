"""The fitted ensemble: held-out means held out, order and company change nothing, noise is at chance."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import binom

from groundmetric import Distributions, GroundMetricEnsemble, TransportClassifier, TransportRegressor, TransportSurvival
from groundmetric._internal.validation import ParameterError
from groundmetric.distributions import SmallSampleWarning
from groundmetric.ensemble import KINDS

from ..estimators.cohorts import PLANTED, cohort

D, y = cohort(24, points=5, n_features=6, shift=1.0)
FOLDS = np.arange(24) // 2 % 8
GROUPS = np.arange(24) // 2
STRATA = np.arange(24) // 4 % 2
RANDOM = np.random.default_rng(0)
VALUES = y + RANDOM.normal(size=24)
TIMES = np.array(
    list(zip(np.arange(24) % 5 > 0, np.exp(VALUES), strict=True)), dtype=[("event", bool), ("time", float)]
)


def small(**options):
    return GroundMetricEnsemble(**{"n_members": 4, "kinds": ["univariate"], "random_state": 0, **options})


def results(ensemble):
    return [ensemble.held_out_, ensemble.distances_, ensemble.metric_.matrix(), ensemble.importances_]


def assert_same(first, second, rtol=1e-12):
    for a, b in zip(results(first), results(second), strict=True):
        assert_allclose(a, b, rtol=rtol, atol=rtol)


# Held out


def exchanged(target, in_fold):
    """Return labels, and labels that are exchanged within the fold, and replaced by others."""
    if target == "classes":
        return y, [np.where(in_fold, 1 - y, y), np.where(in_fold, 0, y)]
    if target == "ordered":
        swapped, replaced = VALUES.copy(), VALUES.copy()
        swapped[in_fold], replaced[in_fold] = VALUES[in_fold][::-1], [1e3, -7.0, 0.0][: in_fold.sum()] + VALUES[in_fold]
        return VALUES, [swapped, replaced]
    swapped, replaced = TIMES.copy(), TIMES.copy()
    swapped[in_fold] = TIMES[in_fold][::-1]
    replaced["time"][in_fold], replaced["event"][in_fold] = np.array([1e-3, 50.0, 2.0])[: in_fold.sum()], True
    return TIMES, [swapped, replaced]


@pytest.mark.parametrize(
    ("target", "design"),
    [
        ("classes", {}),
        ("classes", {"groups": GROUPS, "strata": STRATA}),
        ("ordered", {"groups": GROUPS, "strata": STRATA}),
        ("survival", {}),
    ],
)
def test_held_out_predictions_of_a_fold_do_not_depend_on_its_labels(target, design):
    """Exchange and replace labels inside a fold: with fixed folds, its predictions keep every bit, for all kinds.

    Members, kernels, penalties and stacking weights of the fold must come from the other folds.
    """
    ensemble = GroundMetricEnsemble(cv=FOLDS, target=target, max_epochs=2, random_state=0)
    fold = 5
    in_fold = fold == FOLDS
    labels, changes = exchanged(target, in_fold)
    first = ensemble.fit(D, labels, **design)
    assert len(first.members_) == 4 * 14
    held_out, by_view = first.held_out_, first.view_held_out_
    for changed in changes:
        second = ensemble.fit(D, changed, **design)
        assert_array_equal(second.held_out_[in_fold], held_out[in_fold])
        for name, predictions in by_view.items():
            assert_array_equal(second.view_held_out_[name][in_fold], predictions[in_fold])
        assert np.any(second.held_out_[~in_fold] != held_out[~in_fold])


def test_no_fold_sees_its_labels():
    ensemble, folds = small(cv=FOLDS % 4), FOLDS % 4
    first = ensemble.fit(D, y).held_out_
    assert len(ensemble.members_) == 4
    for fold in range(4):
        second = ensemble.fit(D, np.where(folds == fold, 1 - y, y)).held_out_
        assert_array_equal(first[folds == fold], second[folds == fold])


def test_cohorts_too_small_for_members_are_held_out_as_well():
    codes = np.array([0, 0] + [1] * 14)
    ensemble, in_fold = small(cv=np.arange(16) % 4), np.arange(16) % 4 == 3
    first = ensemble.fit(D[:16], codes)
    assert first.fitted_.design == []
    assert set(first.weights_) == {"euclidean", "means", "moments", "embedding", "composition"}
    assert first.metric_weights_ == {"euclidean": 0.5, "univariate": 0.5}
    held_out = first.held_out_
    second = ensemble.fit(D[:16], np.where(in_fold & (np.arange(16) < 8), 0, codes))
    assert_array_equal(second.held_out_[in_fold], held_out[in_fold])


def test_members_are_trained_on_the_folds_that_they_do_not_leave_out():
    ensemble = small(n_members=14).fit(D, y, groups=GROUPS)
    for member in ensemble.members_:
        assert_array_equal(member.trained_on, ~np.isin(ensemble.folds_, member.left_out))
        assert np.intersect1d(GROUPS[member.trained_on], GROUPS[~member.trained_on]).size == 0


def test_folds_that_divide_a_group_are_an_error():
    with pytest.raises(ValueError, match="cv divides group"):
        small(cv=np.arange(24) % 4).fit(D, y, groups=GROUPS)
    for folds in (np.zeros(24), np.arange(24)):
        with pytest.raises(ParameterError) as caught:
            small(cv=folds).fit(D, y)
        assert caught.value.parameter == "cv"


# Order and company


def ensembles_by_order(labels, target, order):
    moved = D[order]
    rows = np.random.default_rng(2).permutation(moved.points.shape[0])
    names = np.repeat(moved.names, moved.sizes)
    cells = Distributions(moved.points[rows], names[rows], features=D.features)
    position = [list(D.names).index(name) for name in cells.names]
    options = {"kinds": KINDS, "max_epochs": 2, "target": target, "max_points": 3}
    first = small(**options).fit(D, labels, groups=GROUPS, strata=STRATA)
    second = small(**options).fit(cells, labels[position], groups=GROUPS[position], strata=STRATA[position])
    return first, second, position


@pytest.mark.parametrize(
    ("target", "labels"),
    [("classes", y), ("ordered", VALUES), ("survival", TIMES)],
    ids=["classes", "numbers", "times"],
)
def test_order_of_samples_and_rows_changes_nothing(target, labels):
    first, second, position = ensembles_by_order(labels, target, np.random.default_rng(1).permutation(24))
    assert_allclose(second.held_out_, first.held_out_[position], atol=1e-12)
    assert_allclose(second.distances_, first.distances_[np.ix_(position, position)], atol=1e-12)
    assert_allclose(second.metric_.matrix(), first.metric_.matrix(), atol=1e-12)
    assert_array_equal(second.folds_, first.folds_[position])
    assert second.score_ == pytest.approx(first.score_, abs=1e-12)


@pytest.mark.parametrize(
    ("predictor", "labels"),
    [(TransportClassifier, y), (TransportRegressor, VALUES), (TransportSurvival, TIMES)],
    ids=["classes", "numbers", "times"],
)
def test_a_sample_predicted_alone_or_in_company_is_the_same(predictor, labels):
    new, _ = cohort(5, seed=3, points=9, n_features=6)
    model = predictor(small(max_points=4)).fit(D, labels)
    jointly = model.predict_all(new).values
    alone = np.concatenate([model.predict_all(new[[d]]).values for d in range(5)])
    assert_allclose(alone, jointly, atol=1e-12)
    assert_allclose(model.predict_all(new[::-1]).values, jointly[::-1], atol=1e-12)


def test_order_of_kinds_and_number_of_threads_change_no_bit():
    kinds = list(KINDS)
    first = small(kinds=kinds, max_epochs=2).fit(D, y)
    for options in ({"kinds": kinds[::-1]}, {"kinds": kinds, "n_jobs": 2}):
        second = small(max_epochs=2, **options).fit(D, y)
        assert list(second.weights_) == list(first.weights_)
        assert second.weights_ == first.weights_
        for a, b in zip(results(first), results(second), strict=True):
            assert_array_equal(a, b)


def test_the_seed_decides_folds_and_subsamples():
    first, same, second = (small(max_points=3, random_state=seed).fit(D, y) for seed in (0, 0, 1))
    for a, b in zip(results(first), results(same), strict=True):
        assert_array_equal(a, b)
    assert np.any(first.folds_ != second.folds_)
    assert np.any(first.distances_ != second.distances_)


# Numbers of points


def test_numbers_of_points_do_not_predict_classes():
    """Give one class three times as many points, without an effect: held-out accuracy is within binomial limits."""
    correct, total = 0, 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        codes = np.arange(16) % 2
        sizes = np.where(codes == 0, 30, 90)
        points = random.normal(size=(sizes.sum(), 5)) + 0.3 * np.repeat(random.normal(size=(16, 5)), sizes, axis=0)
        cells = Distributions(points, np.repeat(np.arange(16), sizes))
        ensemble = small(kinds=["univariate", "anova"], random_state=seed).fit(cells, codes)
        correct += int(np.sum(ensemble.held_out_.argmax(axis=1) == codes))
        total += 16
    assert correct <= binom.ppf(0.999, total, 0.5)


def test_small_samples_are_named_and_warned_of():
    sizes = np.where(np.arange(24) == 7, 4, 20)
    random = np.random.default_rng(0)
    points = random.normal(size=(sizes.sum(), 3)) + np.repeat(y, sizes)[:, None]
    cells = Distributions(points, np.repeat([f"s{k:02d}" for k in range(24)], sizes))
    with pytest.warns(SmallSampleWarning) as caught:
        model = TransportClassifier(small(), random_state=0).fit(cells, y)
    assert [(warning.message.names, warning.message.n) for warning in caught] == [(["s07"], 10)]
    assert model.ensemble_.small_ == ["s07"]
    assert_array_equal(model.predict_all(cells).small, np.arange(24) == 7)
    with pytest.warns(SmallSampleWarning) as caught:
        model.predict_proba(cells[[6, 7]])
    assert caught[0].message.names == ["s07"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(cells[[5, 6]])


# Chance


def noise(n, seed, n_features=20, points=8):
    random = np.random.default_rng(seed)
    cells = random.normal(size=(n, points, n_features)) + 0.5 * random.normal(size=(n, 1, n_features))
    return Distributions(cells.reshape(-1, n_features), np.repeat(np.arange(n), points))


@pytest.mark.parametrize("design", ["plain", "groups", "strata"])
def test_noise_scores_at_chance_or_below(design):
    gains, n = [], 16
    for seed in range(12):
        random = np.random.default_rng(100 + seed)
        codes = random.permutation(np.arange(n) % 2)
        cells, options = noise(n, seed), {}
        if design == "groups":
            options = {"groups": np.arange(2 * n) // 2}
            # Two samples per group share the mean of the group and the label.
            cells = Distributions(noise(n, seed, points=16).points, np.repeat(np.arange(2 * n), 8))
            codes = np.repeat(codes, 2)
        elif design == "strata":
            options = {"strata": random.permutation(np.arange(n) % 2)}
        ensemble = small(random_state=seed).fit(cells, codes, **options)
        gains.append(ensemble.score_ - ensemble.chance_)
    assert np.mean(gains) <= np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_noise_numbers_score_at_chance_or_below():
    gains = []
    for seed in range(12):
        values = np.random.default_rng(200 + seed).normal(size=16)
        ensemble = small(target="ordered", random_state=seed).fit(noise(16, seed), values)
        gains.append(ensemble.score_ - ensemble.chance_)
    assert np.mean(gains) <= 2.0 * np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_noise_with_a_class_of_two_is_at_chance():
    """Compare mean held-out probabilities of the true class of both classes with one half."""
    accuracies = []
    for seed in range(16):
        codes = np.array([0, 0] + [1] * 6)
        ensemble = small(random_state=seed).fit(noise(8, seed), codes)
        assert ensemble.fitted_.design == []
        right = ensemble.held_out_.argmax(axis=1) == codes
        accuracies.append((right[:2].mean() + right[2:].mean()) / 2.0)
    assert np.mean(accuracies) <= 0.5 + 2.0 * np.std(accuracies, ddof=1) / np.sqrt(len(accuracies))


def test_a_class_of_one_is_an_error():
    with pytest.raises(ValueError, match="class 1 has 1 distributions, but 2 are needed"):
        small().fit(D[:6], [0, 0, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="class 1 has 1 groups"):
        small().fit(D[:6], [0, 0, 0, 0, 1, 1], groups=[0, 1, 2, 3, 4, 4])


# Numeric edge cases


def test_numbers_of_any_size_give_scaled_predictions():
    options = {"kinds": KINDS, "max_epochs": 2, "cv": FOLDS % 4, "n_members": 2}
    first = TransportRegressor(small(**options)).fit(D, VALUES)
    for factor in (1e300, 1e-300, 3e3):
        second = TransportRegressor(small(**options)).fit(D, VALUES * factor)
        assert_allclose(second.ensemble_.held_out_ / factor, first.ensemble_.held_out_, rtol=1e-6)
        assert second.ensemble_.score_ == pytest.approx(first.ensemble_.score_, abs=1e-6)
        assert_allclose(second.predict(D[:3]) / factor, first.predict(D[:3]), rtol=1e-6)


def test_units_and_offsets_of_features_change_nothing():
    scale, offset = np.ones(6), np.zeros(6)
    scale[[0, PLANTED]], offset[[1, PLANTED]] = (1e6, 1e-6), (1e4, -30.0)
    options = {"kinds": ["univariate", "anova"]}
    assert_allclose(
        small(**options).fit(D.with_points(D.points * scale + offset), y).held_out_,
        small(**options).fit(D, y).held_out_,
        atol=1e-6,
    )


def test_sparse_single_precision_and_read_only_points_give_the_dense_result():
    points = np.where(D.points > 0.3, D.points, 0.0)
    first = small().fit(D.with_points(points), y)
    frozen = points.copy()
    frozen.flags.writeable = False
    for form, close in ((sparse.csr_matrix(points), 1e-6), (points.astype(np.float32), 1e-4), (frozen, 1e-12)):
        second = small().fit(D.with_points(form), y)
        assert_allclose(second.distances_, first.distances_, atol=close)
        assert_allclose(second.held_out_, first.held_out_, atol=close)


def test_constant_features_and_duplicated_samples():
    points = D.points.copy()
    points[:, [0, 5]] = 4.0, 0.0
    ensemble = small(kinds=["univariate", "anova"]).fit(D.with_points(points), y)
    assert_array_equal(ensemble.metric_.importance()[[0, 5]], 0.0)
    assert all(np.isfinite(result).all() for result in results(ensemble))
    twice = Distributions(np.tile(D.points[:10], (6, 1)), np.repeat(np.arange(12), 5))
    separated = small().fit(twice, np.arange(12) % 2)
    assert (separated.held_out_.argmax(axis=1) == np.arange(12) % 2).all()
    alike = small().fit(Distributions(np.tile(D.points[:5], (12, 1)), np.repeat(np.arange(12), 5)), np.arange(12) % 2)
    assert_allclose(alike.held_out_, 0.5, atol=0.05)


def test_all_points_equal():
    ensemble = small(kinds=KINDS).fit(np.ones((12, 2)), np.arange(12) % 2)
    assert_allclose(ensemble.held_out_, 0.5, atol=0.05)


def test_one_point_per_sample():
    X = D.means()
    first, second = small().fit(X, y), small().fit(Distributions(X, range(24)), y)
    assert_same(first, second)
    assert (first.held_out_.argmax(axis=1) == y).mean() > 0.7


def test_masses_of_points():
    names, masses = np.repeat(D.names, D.sizes), np.random.default_rng(0).uniform(1.0, 3.0, size=120)
    equal = Distributions(D.points, names, weights=np.full(120, 7.0), features=D.features)
    assert_same(small().fit(equal, y), small().fit(D, y), rtol=1e-9)
    # Points without mass do not count, wherever they are.
    weighted = Distributions(D.points, names, weights=masses)
    more = Distributions(
        np.vstack([D.points, np.full((24, 6), 1e3)]), [*names, *D.names], weights=[*masses, *np.zeros(24)]
    )
    assert_same(small().fit(more, y), small().fit(weighted, y), rtol=1e-9)


# Strata and results


@pytest.mark.parametrize("design", ["strata", "groups", "both"])
def test_matched_pairs(design):
    """Fit a cohort in which each stratum or group has one sample of either class."""
    pairs = np.arange(24) // 2
    options = {name: pairs for name in ("strata", "groups") if design in (name, "both")}
    ensemble = small(kinds=KINDS, max_epochs=2).fit(*cohort(24, points=6, n_features=6, shift=2.0), **options)
    assert np.isfinite(ensemble.held_out_).all()
    assert ensemble.score_ > ensemble.chance_


def test_strata_are_not_predicted_as_labels():
    """Confound batch and class, six against two: with strata, features of the batch have no excess weight."""
    plain, within = np.zeros(6), np.zeros(6)
    for seed in range(4):
        random = np.random.default_rng(seed)
        codes, batch = np.repeat([0, 1], 8), np.repeat([0, 1, 0, 1], [6, 2, 2, 6])
        points = random.normal(size=(16, 15, 6)) + 0.3 * random.normal(size=(16, 1, 6))
        points[:, :, 2] += codes[:, None]
        points[:, :, 4] += 4.0 * batch[:, None]
        cells = Distributions(points.reshape(-1, 6), np.repeat(np.arange(16), 15))
        ensemble = small(kinds=["univariate", "anova"])
        plain += ensemble.fit(cells, codes).importances_.mean(axis=0) / 4
        within += ensemble.fit(cells, codes, strata=batch).importances_.mean(axis=0) / 4
    assert plain[4] / plain[[0, 1, 3, 5]].mean() > 2.0
    assert within[4] / within[[0, 1, 3, 5]].mean() < 1.5
    assert np.argmax(within) == 2


def test_weights_are_shares_and_views_are_named():
    ensemble = small(kinds=["univariate", "anova"]).fit(D, y)
    assert list(ensemble.weights_) == [
        "euclidean", "means", "moments", "embedding", "composition", "univariate", "anova", "marginal"
    ]  # fmt: skip
    assert sum(ensemble.weights_.values()) == pytest.approx(1.0)
    assert min(ensemble.weights_.values()) > 0.0
    assert set(ensemble.metric_weights_) == {"euclidean", "univariate", "anova"}
    assert sum(ensemble.metric_weights_.values()) == pytest.approx(1.0)
    assert ensemble.components_ is ensemble.metric_.components
    assert_allclose(ensemble.distances_, ensemble.distances_.T)
    assert_array_equal(np.diag(ensemble.distances_), 0.0)


def test_one_unstable_member_does_not_decide_importances():
    """Check that the mean over members ignores the extreme quarters."""
    ensemble = small(n_members=14).fit(*cohort(32, points=6, shift=2.0))
    fitted = ensemble.fitted_
    squares = np.array([member.squares(fitted.geometries[""].scaling) for member in fitted.members[""]])
    trimmed = np.sort(squares, axis=0)[3:-3].mean(axis=0)
    assert_allclose(fitted.importances("univariate"), trimmed / trimmed.sum())
    assert np.argmax(ensemble.metric_.importance()) == PLANTED
