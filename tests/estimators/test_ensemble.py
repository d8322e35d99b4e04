"""GroundMetricEnsemble: parts of the cohort, distances out of bag, held-out predictions that do not see the label."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from groundmetric import Distributions, GroundMetric, GroundMetricEnsemble, pairwise_distances
from groundmetric.datasets import make_modes
from groundmetric.estimators._members import KINDS, Geometry, Labels, Member, out_of_bag, parts

from .cohorts import FEATURES, PLANTED, cohort, few_regressions

D, y = cohort()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    few_regressions(monkeypatch)


def small(**options):
    return GroundMetricEnsemble(
        **{"n_members": 2, "kinds": ["univariate"], "max_epochs": 2, "random_state": 0, **options}
    )


@pytest.fixture(scope="module")
def fitted():
    """One ensemble with all kinds; do not write to it."""
    with pytest.MonkeyPatch.context() as patch:
        few_regressions(patch)
        return small(kinds=KINDS).fit(D, y)


def results(found):
    return [found.metric_.matrix(), found.distances_, found.held_out_, found.importances_]


# Parts of the cohort


def masks(codes, groups=None, n_parts=6, seed=0):
    codes = np.asarray(codes)
    groups = np.arange(codes.size) if groups is None else np.asarray(groups)
    return parts(Labels(np.asarray(codes), np.asarray(groups)), n_parts, np.random.RandomState(seed))


def test_parts_are_halves_and_their_complements_with_every_class_on_both_sides():
    codes = np.repeat([0, 1, 2], [4, 5, 9])
    found = masks(codes)
    assert len(found) == 6
    for one, other in zip(found[::2], found[1::2], strict=True):
        assert_array_equal(one, ~other)
        for side in (one, other):
            assert np.all(np.bincount(codes[side]) >= 2)
            assert np.all(np.abs(np.bincount(codes[side]) - np.array([2.0, 2.5, 4.5])) <= 0.5)
    assert not all(np.array_equal(found[0], one) for one in found[2::2])


@pytest.mark.parametrize("seed", range(5))
def test_parts_never_divide_a_group(seed):
    random = np.random.default_rng(seed)
    groups = random.integers(8, size=24)
    for codes in (groups % 2, random.integers(2, size=24), random.normal(size=24)):
        for inside in masks(codes, groups, seed=seed):
            assert np.intersect1d(groups[inside], groups[~inside]).size == 0
            assert inside.any()
            assert not inside.all()


def test_an_odd_number_of_parts_is_what_is_asked_for():
    assert len(masks(np.arange(12) % 2, n_parts=5)) == 5


def test_of_small_classes_one_distribution_is_left_out():
    for inside in masks([0, 0, 0, 1, 1, 1]):
        assert np.bincount(np.array([0, 0, 0, 1, 1, 1])[inside]).tolist() == [2, 2]


def test_a_class_of_two_is_always_learned_from():
    codes = np.array([0, 0, 1, 1, 1, 1, 1])
    for inside in masks(codes):
        assert inside[:2].all()
        assert inside[2:].sum() == 4


def test_parts_of_numbers_have_at_least_three_values():
    for inside in masks(np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0])):
        assert np.unique(np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0])[inside]).size >= 3


# Distances out of bag


def member(inside, distances):
    return Member("univariate", GroundMetric.euclidean(1), np.array(inside, bool), np.array(distances, float))


def test_distances_out_of_bag_by_hand():
    near = [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    far = [[0, 5, 6], [5, 0, 7], [6, 7, 0]]
    found = out_of_bag([member([1, 1, 0], near), member([0, 1, 1], far)], np.ones((3, 3)))
    # 0 and 1: of the second only; 1 has never been left out, so that its pairs have unlabelled distances
    assert_allclose(found, [[0, 1, 4], [1, 0, 1], [4, 1, 0]])
    found = out_of_bag([member([1, 1, 0], near), member([0, 0, 1], far)], np.ones((3, 3)))
    assert_allclose(found, [[0, 5, 4], [5, 0, 5], [4, 5, 0]])


def test_what_was_always_learned_from_has_unlabelled_distances_in_units_of_their_mean():
    near = [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    unlabelled = np.array([[0, 2, 4], [2, 0, 6], [4, 6, 0]], float)
    assert_allclose(out_of_bag([member([1, 1, 1], near)], unlabelled), unlabelled / 4.0)


def test_permuted_distributions_have_permuted_distances_out_of_bag():
    random, order = np.random.default_rng(0), np.random.default_rng(1).permutation(8)
    members, moved = [], []
    for _ in range(3):
        inside, distances = random.random(8) < 0.5, random.random((8, 8))
        members.append(member(inside, distances))
        moved.append(member(inside[order], distances[np.ix_(order, order)]))
    unlabelled = random.random((8, 8))
    found = out_of_bag(moved, unlabelled[np.ix_(order, order)])
    assert_allclose(found, out_of_bag(members, unlabelled)[np.ix_(order, order)])


def test_members_are_as_they_say(fitted):
    assert [m.kind for m in fitted.members_] == [kind for kind in KINDS for _ in range(2)]
    for one in fitted.members_:
        outside = ~(one.inside[:, None] & one.inside) & ~np.eye(len(D), dtype=bool)
        assert_allclose(one.distances[outside], pairwise_distances(D, metric=one.metric)[outside], rtol=1e-9)
        assert_array_equal(np.isnan(one.distances), ~outside & ~np.eye(len(D), dtype=bool))
        assert_allclose(one.distances[outside].mean(), 1.0)


# What is found


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_finds_the_planted_feature(kind):
    found = small(kinds=[kind]).fit(D, y)
    assert (found.importances_.argmax(axis=1) == PLANTED).all()
    assert found.metric_.importance().argmax() == PLANTED
    assert (found.held_out_.argmax(axis=1) == y).mean() > 0.8


def test_the_modes_of_the_paper_are_told_apart_by_their_signal():
    modes, classes = make_modes(8, points_per_mode=6, offsets=(1.5, 10.5, 19.5, 28.5), random_state=0)
    found = small(kinds=["univariate", "anova"]).fit(modes, classes)
    assert found.metric_.importance().argmax() == 0
    assert (found.held_out_.argmax(axis=1) == classes).mean() > 0.8


def test_genes_of_the_programme_are_found_in_a_simulated_cohort(original):
    cells = Distributions(original.X, original.obs["sample"], features=original.var_names)
    labels = original.obs.groupby("sample", observed=True)["condition"].first()
    found = small(kinds=["univariate", "anova"], max_points=30).fit(cells, labels)
    best = np.array(cells.features)[np.argsort(-found.metric_.importance())[:5]]
    assert all(gene.startswith("PROG") for gene in best)
    assert found.classes_.tolist() == ["control", "disease"]


def test_weights_are_shares_and_a_kind_without_use_has_none(fitted):
    assert set(fitted.weights_) == {*KINDS, "euclidean"}
    assert_allclose(sum(fitted.weights_.values()), 1.0)
    assert min(fitted.weights_.values()) >= 0.0
    assert fitted.components_ is fitted.metric_.components
    assert fitted.score_ > np.log(0.5) + 0.1
    assert_allclose(fitted.distances_, fitted.distances_.T)


@pytest.mark.parametrize(("n", "twins"), [(16, 1), (4, 1), (12, 2)])
def test_labels_of_pure_noise_are_predicted_at_chance(n, twins, monkeypatch):
    """A label that leaks into its own prediction shows as a difference between classes; of 4, each class has two."""
    few_regressions(monkeypatch, (12.0,))  # the best of several strengths would be above chance by itself
    groups = np.repeat(np.arange(n), twins)
    labels = groups % 2
    gains = []
    for seed in range(16):
        noise = cohort(n, seed, shift=0.0, points=3, n_features=40)[0][groups]
        found = small(kinds=["univariate", "anova"], random_state=seed).fit(noise, labels, groups=groups)
        for view in found._views:
            if view.name in KINDS:
                predicted = view.reading.held_out[:, 1]
                gains.append(predicted[labels == 1].mean() - predicted[labels == 0].mean())
    assert np.mean(gains) < 3.0 * np.std(gains) / np.sqrt(16)


def test_numbers_are_learned_and_predicted_in_their_own_units():
    ages = np.linspace(20.3, 80.9, 16)
    aged, _ = cohort(16, values=ages, shift=0.1)
    found = small(target="ordered", kinds=KINDS).fit(aged, ages)
    assert found.metric_.importance().argmax() == PLANTED
    assert found.classes_.size == 0
    assert found.held_out_.shape == (16,)
    assert np.corrcoef(found.held_out_, ages)[0, 1] > 0.8
    assert abs(found.held_out_.mean() - ages.mean()) < 10.0


def test_units_of_the_numbers_change_no_metric():
    ages = np.linspace(20.0, 80.0, 12)
    aged, _ = cohort(12, values=ages, shift=0.1)
    one, other = (small(target="ordered").fit(aged, labels) for labels in (ages, 1e-3 * ages + 5.0))
    assert_allclose(other.metric_.matrix(), one.metric_.matrix(), atol=1e-9)
    assert_allclose(other.held_out_, 1e-3 * one.held_out_ + 5.0, rtol=1e-6)


def test_few_numbers_are_enough():
    few, _ = cohort(6, values=np.arange(6.0))
    assert np.isfinite(small(target="ordered").fit(few, np.arange(6.0)).held_out_).all()


# The same result


def test_processes_change_no_bit():
    one, two = (small(kinds=["learned"], n_jobs=jobs).fit(D, y) for jobs in (1, 2))
    for a, b in zip(results(one), results(two), strict=True):
        assert_array_equal(a, b)


def test_another_seed_gives_other_parts():
    one, other = (small(random_state=seed).fit(D, y) for seed in (0, 1))
    assert not np.array_equal(one.distances_, other.distances_)


def test_labels_go_by_name_and_keep_their_own_type():
    names = np.array(["well", "ill"])[y]
    series = pd.Series(names, index=D.names).sample(frac=1.0, random_state=0)
    groups = pd.Series(np.arange(14) // 2, index=D.names).sample(frac=1.0, random_state=1)
    one = small().fit(D, names, groups=np.arange(14) // 2)
    other = small().fit(D, series, groups=groups)
    assert one.classes_.tolist() == ["ill", "well"]
    for a, b in zip(results(one), results(other), strict=True):
        assert_array_equal(a, b)


def test_groups_are_never_divided_between_a_member_and_the_rest():
    groups = np.arange(14) // 2
    for one in small(n_members=4).fit(D, y, groups=groups).members_:
        assert np.intersect1d(groups[one.inside], groups[~one.inside]).size == 0


def test_groups_of_several_classes_have_folds():
    codes, groups = np.array([0, 1, 1, 1, 1, 2, 0, 2, 0]), np.array([1, 2, 3, 2, 3, 3, 3, 0, 3])
    some, _ = cohort(9)
    found = small().fit(some, codes, groups=groups)
    assert np.isfinite(found.held_out_).all()


def test_units_of_a_feature_change_nothing():
    scale = np.ones(10)
    scale[[0, PLANTED]] = 1e6, 1e-6
    one = small(kinds=KINDS).fit(D, y)
    other = small(kinds=KINDS).fit(D.with_points(D.points * scale, FEATURES), y)
    assert_allclose(other.held_out_, one.held_out_, atol=1e-6)
    assert_allclose(other.distances_, one.distances_, rtol=1e-6)
    assert_allclose(other.metric_.importance(), one.metric_.importance(), atol=1e-6)


def test_sparse_and_single_precision_points_give_the_dense_result():
    one = small().fit(D, y)
    for points, close in ((sparse.csr_matrix(D.points), 1e-6), (D.points.astype(np.float32), 1e-3)):
        other = small().fit(D.with_points(points, FEATURES), y)
        assert_allclose(other.distances_, one.distances_, rtol=close)
        assert_allclose(other.held_out_, one.held_out_, atol=max(close, 1e-4))


def test_equal_weights_are_no_weights():
    weighted = Distributions(D.points, np.repeat(D.names, D.sizes), weights=np.full(84, 7.0), features=FEATURES)
    for a, b in zip(results(small().fit(weighted, y)), results(small().fit(D, y)), strict=True):
        assert_allclose(a, b, rtol=1e-9)


def test_points_without_mass_change_nothing():
    masses = np.random.default_rng(0).uniform(1.0, 3.0, size=84)
    names = [*np.repeat(D.names, D.sizes), *D.names]
    points = np.vstack([D.points, np.full((14, 10), 1e3)])
    less = Distributions(D.points, names[:84], weights=masses, features=FEATURES)
    more = Distributions(points, names, weights=[*masses, *np.zeros(14)], features=FEATURES)
    for a, b in zip(results(small().fit(more, y)), results(small().fit(less, y)), strict=True):
        assert_allclose(a, b, rtol=1e-9)


def test_rows_of_an_array_are_distributions_of_one_point():
    X = D.means()
    one = small().fit(X, y)
    other = small().fit(Distributions(X, range(14)), y)
    assert one.n_features_in_ == 10
    for a, b in zip(results(one), results(other), strict=True):
        assert_array_equal(a, b)


def test_a_data_frame_gives_its_names_to_the_metric():
    frame = pd.DataFrame(D.means(), index=D.names, columns=FEATURES)
    found = small().fit(frame, pd.Series(y, index=D.names)[::-1])
    assert found.metric_.features == FEATURES
    assert found.feature_names_in_.tolist() == FEATURES
    assert_array_equal(found.held_out_, small().fit(frame.to_numpy(), y).held_out_)


def test_a_second_fit_forgets_the_names_of_the_first():
    found = small().fit(D, y)
    assert found.feature_names_in_.tolist() == FEATURES
    assert not hasattr(found.fit(D.with_points(D.points), y), "feature_names_in_")


@pytest.mark.parametrize("kinds", [[kind] for kind in KINDS])
def test_constant_features_have_no_weight(kinds):
    points = D.points.copy()
    points[:, [0, 5]] = 4.0, 0.0
    found = small(kinds=kinds).fit(D.with_points(points), y)
    assert_array_equal(found.metric_.importance()[[0, 5]], 0.0)
    assert np.isfinite(found.distances_).all()


def test_distributions_that_coincide_are_no_obstacle():
    twice = D[[0, 1, 0, 1, 0, 1, 0, 1]]
    found = small(kinds=["univariate", "anova"]).fit(twice, np.arange(8) % 2)
    assert (found.held_out_.argmax(axis=1) == np.arange(8) % 2).all()
    alike = small(kinds=["univariate", "anova"]).fit(D[[0] * 8], np.arange(8) % 2)
    assert_allclose(alike.held_out_, 0.5, atol=0.05)


def test_members_draw_different_points():
    geometry = Geometry(D, 3, 2, np.random.RandomState(0))
    assert [draw.sizes.max() for draw in geometry.draws] == [3, 3]
    assert not np.array_equal(geometry.draws[0].points, geometry.draws[1].points)
    assert all(draw is D for draw in Geometry(D, 6, 2, np.random.RandomState(0)).draws)


# scikit-learn


@pytest.mark.filterwarnings("ignore")  # some of these labels are noise
@parametrize_with_checks([GroundMetricEnsemble(1, kinds=["univariate"])])
def test_scikit_learns_own_checks(estimator, check, monkeypatch):
    few_regressions(monkeypatch, (12.0,), 2)
    check(estimator)


def test_it_can_be_cloned_and_pickled(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    for a, b in zip(results(again), results(fitted), strict=True):
        assert_array_equal(a, b)
    assert_array_equal(again.distances(D[:3]), fitted.distances(D[:3]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_members": 0}, "n_members is 0"),
        ({"n_members": 2.5}, r"n_members is 2\.5"),
        ({"max_points": 0}, "max_points is 0"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"kinds": ["anova", "best"]}, r"kinds is \['anova', 'best'\]: expected a list of some of"),
        ({"kinds": []}, r"kinds is \[\]"),
        ({"kinds": "anova"}, "kinds is 'anova': expected a list"),
        ({"kinds": ["anova", "anova"]}, "expected each kind once"),
        ({"target": "numbers"}, "target is 'numbers'"),
    ],
)
def test_impossible_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit(D, y)


@pytest.mark.parametrize(
    ("labels", "groups", "message"),
    [
        (np.zeros(14, int), None, "all distributions have one class"),
        ([0] * 13 + [1], None, "class 1 has 1 distributions, but 2 are needed"),
        (y, ["ann" if k % 2 else str(k) for k in range(14)], r"class 1 has 1 groups \('ann'\), but 2 are needed"),
        (np.where(np.arange(14) == 3, np.nan, y), None, "y contains a missing label"),
        (y[:-1], None, r"y has shape \(13,\), but a label is needed for each of 14"),
        (y, np.arange(13), "groups has 13 entries for 14 distributions"),
        (np.linspace(0.0, 1.1, 14), None, "need target='ordered'"),
        (None, None, "the target y is None"),
    ],
)
def test_labels_that_cannot_be_learned_from_are_refused(labels, groups, message):
    with pytest.raises(ValueError, match=message):
        small().fit(D, labels, groups=groups)


@pytest.mark.parametrize(
    ("labels", "groups", "message"),
    [
        (np.ones(14), None, "y holds only the value 1"),
        (np.where(np.arange(14) == 3, np.nan, y), None, "y contains a missing label"),
        (np.where(np.arange(14) == 3, np.inf, y), None, "y holds an infinite value"),
        (["low"] * 7 + ["high"] * 7, None, "y holds text"),
        (np.arange(14.0), np.repeat([0, 1], 7), "14 distributions in 2 groups: low and high values"),
    ],
)
def test_numbers_that_cannot_be_learned_from_are_refused(labels, groups, message):
    with pytest.raises(ValueError, match=message):
        small(target="ordered").fit(D, labels, groups=groups)


def test_distributions_of_nothing_are_refused():
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        small().fit(np.empty((0, 3)), [])


# Strata


BATCH = np.random.default_rng(0).permutation(len(D)) % 2


def test_one_stratum_is_none(fitted):
    for one, other in zip(results(small(kinds=KINDS).fit(D, y, strata=["a"] * len(D))), results(fitted), strict=True):
        assert_array_equal(one, other)


def test_strata_go_by_name_and_their_names_do_not_matter():
    named = pd.Series(np.where(BATCH, "x", "y"), index=D.names)
    one, other = small().fit(D, y, strata=BATCH), small().fit(D, y, strata=named[::-1])
    for a, b in zip(results(one), results(other), strict=True):
        assert_array_equal(a, b)


def confounded(seed=0):
    """Two classes in two batches, six against two and two against six; the batch shifts one feature, and far."""
    random = np.random.default_rng(seed)
    codes, batch = np.repeat([0, 1], 8), np.repeat([0, 1, 0, 1], [6, 2, 2, 6])
    points = random.normal(size=(16, 15, 6)) + 0.3 * random.normal(size=(16, 1, 6))
    points[:, :, 2] += codes[:, None]
    points[:, :, 4] += 4.0 * batch[:, None]
    return Distributions(points.reshape(-1, 6), np.repeat(np.arange(16), 15)), codes, batch


@pytest.mark.parametrize("kind", KINDS)
def test_with_strata_the_label_is_learned_and_not_the_batch(kind):
    plain, within = np.zeros(6), np.zeros(6)
    for seed in range(4):
        cells, codes, batch = confounded(seed)
        ensemble = small(n_members=4, kinds=[kind])
        plain += ensemble.fit(cells, codes).importances_.mean(axis=0) / 4
        within += ensemble.fit(cells, codes, strata=batch).importances_.mean(axis=0) / 4
    noise = [0, 1, 3, 5]
    assert plain[4] / plain[noise].mean() > 2.0
    assert within[4] / within[noise].mean() < 1.5
    assert np.argmax(within) == 2


def test_parts_have_every_class_of_every_stratum_on_both_sides():
    codes, batch = np.tile([0, 1], 16), np.repeat([0, 1], 16)
    for inside in parts(Labels(codes, np.arange(32), batch), 6, np.random.RandomState(0)):
        counts = np.bincount(2 * batch[inside] + codes[inside], minlength=4)
        assert_array_equal(counts, 4)


def test_batches_that_have_one_class_each_are_an_error():
    with pytest.raises(ValueError, match="every stratum has labels of one kind only"):
        small().fit(D, y, strata=y)


def test_a_missing_stratum_is_an_error():
    with pytest.raises(ValueError, match="strata contain a missing value"):
        small().fit(D, y, strata=[None, *BATCH[1:]])


def test_numbers_are_taken_within_strata():
    """A batch that adds a constant to the numbers changes nothing but the mean."""
    random = np.random.default_rng(0)
    values = random.normal(size=len(D))
    one, other = (
        small(target="ordered").fit(D, values + shift * BATCH, strata=BATCH).importances_ for shift in (0.0, 10.0)
    )
    assert_allclose(one, other, rtol=1e-6)


def test_labels_without_meaning_score_at_chance():
    """Strengths and weights are not chosen by the labels that are scored."""
    scores = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        noise = random.normal(size=(16, 10, 8)) + 0.5 * random.normal(size=(16, 1, 8))
        cells = Distributions(noise.reshape(-1, 8), np.repeat(np.arange(16), 10))
        scores.append(small(n_members=4).fit(cells, random.permutation(16) % 2).score_)
    assert abs(np.mean(scores) - np.log(0.5)) < 0.05
