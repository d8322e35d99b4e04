"""Choosing parameters on held-out distributions: the score, the averages, the search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import groundmetric as gm
from paper.search import (
    NestedSearch,
    Setting,
    average_metric,
    balanced_mean,
    chosen,
    clear_gain,
    components_of,
    distinct,
    fit_and_vote,
    fit_in,
    nearest,
    neighbourhood_probabilities,
    of_unit_spread,
    reference_metric,
    softened_scores,
)


def neighbourhood_score(distances, codes, labels):
    probabilities = neighbourhood_probabilities(distances, labels, labels.max() + 1)
    return balanced_mean(np.log(probabilities[np.arange(codes.size), codes]), codes)[0]


def cohort(n_offsets=4, seed=0):
    return gm.datasets.make_modes(offsets=3.0 * np.arange(n_offsets), points_per_mode=8, random_state=seed)


def quick_search(max_epochs=5, **options):
    options = {"margins": [0.5, 1.0], "strengths": [0.1, 1.0], "validation": 2, "random_state": 0} | options
    return NestedSearch(gm.GroundMetricLearner(max_epochs=max_epochs), **options)


@given(st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_the_score_does_not_depend_on_the_scale_of_the_metric(seed, factor):
    random = np.random.default_rng(seed)
    distances, codes, labels = random.uniform(1, 2, (6, 9)), np.arange(6) % 2, np.arange(9) % 2
    score = neighbourhood_score(distances, codes, labels)
    assert_allclose(neighbourhood_score(factor * distances, codes, labels), score, rtol=1e-9)


def test_the_score_tells_a_narrow_miss_from_a_wide_one():
    labels = np.array([0, 1])
    wide = neighbourhood_score(np.array([[2.0, 1.0], [2.0, 1.0]]), np.array([0, 1]), labels)
    narrow = neighbourhood_score(np.array([[1.1, 1.0], [2.0, 1.0]]), np.array([0, 1]), labels)
    right = neighbourhood_score(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([0, 1]), labels)
    assert wide < narrow < right


def test_each_class_counts_the_same_in_the_score():
    labels = np.array([0, 1])
    right, wrong = [1.0, 2.0], [2.0, 1.0]
    balanced = neighbourhood_score(np.array([right, right]), np.array([0, 1]), labels)
    unbalanced = neighbourhood_score(np.array([right] * 9 + [right]), np.array([0] * 9 + [1]), labels)
    assert_allclose(balanced, unbalanced)
    assert neighbourhood_score(np.array([right, wrong]), np.array([0, 1]), labels) > balanced


def test_coinciding_distributions_have_a_score():
    assert np.isfinite(neighbourhood_score(np.zeros((2, 3)), np.array([0, 1]), np.array([0, 1, 1])))


def test_an_average_adds_squared_distances():
    D, _ = cohort()
    random = np.random.default_rng(0)
    first, second = (gm.GroundMetric(random.normal(size=(2, D.shape[1]))) for _ in range(2))
    squares = 0.3 * first.distances(D.points) ** 2 + 0.7 * second.distances(D.points) ** 2
    average = average_metric([first, second], [0.3, 0.7], D)
    assert_allclose(average.distances(D.points) ** 2, squares, rtol=0.02, atol=2e-3 * squares.max())


def test_unit_spread_is_one():
    D, _ = cohort()
    metric = of_unit_spread(gm.GroundMetric(np.random.default_rng(0).normal(size=(2, D.shape[1]))), D)
    assert_allclose(metric.project(D.points).var(axis=0).sum(), 1.0)


def test_the_reference_is_the_euclidean_metric_up_to_its_unit():
    D, _ = cohort()
    ratio = reference_metric(D, "given").distances(D.points[:5], D.points[5:9]) / gm.GroundMetric.euclidean(
        D.shape[1]
    ).distances(D.points[:5], D.points[5:9])
    assert_allclose(ratio, ratio[0, 0])


def test_the_search_finds_a_metric_that_classifies():
    D, y = cohort()
    fresh, truth = cohort(seed=1)
    search = quick_search().fit(D, y)
    classifier = gm.TransportKNeighborsClassifier(3, metric=search.metric_).fit(D, y)
    assert classifier.score(fresh, truth) == 1.0
    assert set(search.best_params_) == {"space", "margin", "strength", "epochs", "shrinkage", "reference"}
    epochs = {row["epochs"] for row in search.scores_ if row["epochs"] is not None}
    assert epochs == {1, 2, 5}  # all, then the better ones


def test_same_seed_same_metric():
    D, y = cohort()
    assert np.array_equal(quick_search().fit(D, y).metric_.components, quick_search().fit(D, y).metric_.components)


def test_full_shrinkage_ignores_the_labels():
    D, y = cohort()
    metric = quick_search(shrinkages=[1.0]).fit(D, y).metric_
    permuted = quick_search(shrinkages=[1.0]).fit(D, np.roll(y, 1)).metric_
    ratio = metric.distances(D.points[:4], D.points[4:7]) / permuted.distances(D.points[:4], D.points[4:7])
    assert_allclose(ratio, ratio[0, 0], rtol=1e-6)


def test_groups_are_not_divided_between_folds():
    D, y = cohort(6)
    groups = np.array([f"patient {i // 2}" for i in range(len(D))])
    search = quick_search(validation=3)
    search.classes_ = np.unique(y)
    for train, test in search._splits(np.asarray(y), groups, seed=0):
        assert not set(groups[train]) & set(groups[test])


def test_a_share_is_held_out_once():
    D, y = cohort(6)
    search = quick_search(validation=0.2, margins=[1.0], strengths=[0.1]).fit(D, y)
    assert search.metric_.n_features == D.shape[1]


def test_a_class_within_one_group_cannot_be_held_out():
    D, y = cohort()
    with pytest.raises(ValueError, match="nothing can be held out"):
        quick_search().fit(D, y, groups=np.asarray(y))


def test_settings_whose_penalty_outweighs_the_labels_are_abandoned():
    D, y = cohort()
    search = quick_search(40, margins=[1.0], strengths=[0.1, 1000.0]).fit(D, y)
    assert search.best_params_["strength"] == 0.1
    lost = [row["score"] for row in search.scores_ if row["strength"] == 1000.0]
    assert lost == [-np.inf] * len(lost)


def test_where_every_penalty_outweighs_the_labels_the_metric_ignores_them():
    D, y = cohort()
    with pytest.warns(ConvergenceWarning, match="every strength from 1000 on outweighs the labels"):
        search = quick_search(40, margins=[1.0], strengths=[1000.0, 2000.0]).fit(D, y)
    assert search.best_params_ == {
        "space": None,
        "margin": None,
        "strength": None,
        "epochs": None,
        "shrinkage": 1.0,
        "reference": "standardised",
    }
    assert_allclose(search.metric_.distances(D.points), reference_metric(D, "standardised").distances(D.points))


def test_a_rare_class_is_found_in_the_score():
    labels = np.array([0] * 9 + [1])
    near_both = np.r_[np.full(9, 1.0), 1.0][None]
    assert_allclose(neighbourhood_probabilities(near_both, labels, 2), [[0.5, 0.5]])


def wide_cohort(n_features=60, seed=0):
    """Ten samples whose labels are along the direction of largest variance, among many features."""
    random = np.random.default_rng(seed)
    y = np.arange(10) % 2
    along = random.normal(size=n_features)
    arrays = [
        random.normal(size=(15, n_features)) + np.outer(random.normal(3.0 * label, 2.0, 15), along) for label in y
    ]
    return gm.Distributions.from_arrays(arrays), y


def test_a_metric_from_components_is_one_of_the_features():
    D, y = wide_cohort()
    search = quick_search(spaces=["components"]).fit(D, y)
    assert search.best_params_["space"] == "components"
    assert search.metric_.components.shape[1] == 60
    assert gm.TransportKNeighborsClassifier(3, metric=search.metric_).fit(D[:6], y[:6]).score(D[6:], y[6:]) == 1.0


def test_both_spaces_are_tried_where_there_are_many_features():
    D, y = wide_cohort()
    assert {row["space"] for row in quick_search().fit(D, y).scores_} == {"features", "components"}
    narrow, labels = cohort()
    assert {row["space"] for row in quick_search().fit(narrow, labels).scores_} == {"features"}
    search = quick_search(spaces=["components"]).set_params(
        learner=gm.GroundMetricLearner(form="diagonal", max_epochs=5)
    )
    assert {row["space"] for row in search.fit(D, y).scores_} == {"features"}  # a diagonal metric needs the features


def test_learning_among_components_is_learning_from_projected_points():
    D, y = wide_cohort()
    projection = components_of(D)
    learner = gm.GroundMetricLearner(max_epochs=5, random_state=0)
    metric = fit_in(projection, learner, D, y)
    z = gm.Distributions(projection.project(D.points), np.repeat(np.arange(10), D.sizes))
    assert_allclose(
        gm.pairwise_distances(D, metric=metric), gm.pairwise_distances(z, metric=learner.metric_), rtol=1e-9
    )


def test_where_none_lasts_to_the_end_the_best_are_kept_as_they_were_before():
    D, y = cohort()
    search = quick_search(40, margins=[0.5, 1.0], strengths=[500.0, 1000.0]).fit(D, y)
    last = [row["score"] for row in search.scores_ if row["epochs"] == 40]
    assert last == [-np.inf] * len(last)
    assert search.best_params_["strength"] in (500.0, 1000.0)
    assert search.best_params_["shrinkage"] < 1.0


@given(st.integers(0, 1000), st.floats(1.0, 20.0))
def test_how_sure_votes_are_does_not_decide(seed, sharpness):
    """Votes that know nothing score like chance however sure they are; votes that know something, better."""
    random = np.random.default_rng(seed)
    codes = np.arange(30) % 3
    logs = random.normal(size=(30, 3))

    def score(logs):
        probabilities = np.exp(sharpness * logs)
        return balanced_mean(softened_scores(probabilities / probabilities.sum(axis=1, keepdims=True), codes), codes)[0]

    assert score(logs - logs[np.arange(30), codes, None] * (np.arange(3) == codes[:, None])) >= np.log(1 / 3) - 1e-12
    assert score(0.1 * logs + (np.arange(3) == codes[:, None])) > np.log(1 / 3)


def test_a_class_that_no_known_distribution_has_is_improbable():
    probabilities = neighbourhood_probabilities(np.array([[1.0, 2.0]]), np.array([0, 2]), 3)
    assert_allclose(probabilities.sum(), 1.0)
    assert probabilities[0, 1] == probabilities.min() > 0.0


LABELS = np.arange(12) % 3


def judged_setting(margin, epochs, scores):
    return Setting("features", margin, 0.1, epochs, None if scores is None else (np.asarray(scores, float), LABELS))


def noise(seed, spread=1.0):
    return np.random.default_rng(seed).normal(scale=spread, size=12)


BEGIN = judged_setting(1.0, 50, noise(0))


def test_settings_that_are_better_by_luck_are_not_chosen():
    tried = [BEGIN, *(judged_setting(float(seed), 50, BEGIN.judged[0] + noise(seed)) for seed in range(2, 8))]
    assert max(setting.score for setting in tried) > BEGIN.score
    assert chosen(tried, BEGIN, 3) == [BEGIN]


def test_settings_that_are_clearly_better_are_chosen_with_their_best_epochs():
    better = [
        judged_setting(10.0, epochs, BEGIN.judged[0] + gain + noise(1, 0.1)) for epochs, gain in ((5, 2), (15, 1))
    ]
    lucky = judged_setting(2.0, 50, BEGIN.judged[0] + noise(3))
    assert chosen([*better, lucky, BEGIN], BEGIN, 3) == [better[0]]


def test_of_many_that_are_clearly_better_the_best_are_chosen():
    better = [judged_setting(10.0 + gain, 50, BEGIN.judged[0] + gain) for gain in range(1, 6)]
    assert chosen([BEGIN, *better], BEGIN, 3) == better[:1:-1]


def test_of_settings_that_did_the_same_the_first_is_followed():
    same = [judged_setting(margin, 50, noise(1)) for margin in (10.0, 100.0, 1000.0)]
    different = judged_setting(0.1, 50, noise(2))
    assert distinct([same[0], different, *same[1:]]) == [same[0], different]


def test_margins_at_which_every_triplet_is_active_are_followed_once():
    D, y = cohort()
    search = quick_search(margins=[10.0, 100.0, 1000.0], strengths=[0.1, 1.0]).fit(D, y)
    later = {row["margin"] for row in search.scores_ if row["epochs"] == 5}
    assert later == {10.0}


def test_where_the_begin_learns_nothing_the_best_are_chosen():
    settings = [judged_setting(2.0, 50, noise(1)), judged_setting(3.0, 50, noise(1) + 1.0)]
    assert chosen([*settings, judged_setting(1.0, 50, None)], None, 3) == settings[::-1]
    assert chosen([judged_setting(1.0, 50, None)], None, 3) == []


def test_a_class_of_one_held_out_distribution_cannot_show_a_gain():
    codes = np.array([0, 0, 0, 1])
    assert clear_gain((np.zeros(4), codes), (np.full(4, -1.0), codes)) == 0.0


@pytest.mark.parametrize(
    ("margin", "strength", "expected"), [(1.0, 0.1, (1.0, 0.1)), (40.0, 0.0, (10.0, 0.0)), (2.0, 9.0, (1.0, 10.0))]
)
def test_the_begin_is_the_point_of_the_grid_nearest_to_the_learner(margin, strength, expected):
    grid = [Setting("features", m, s) for m in (1.0, 10.0) for s in (0.0, 0.1, 10.0)]
    assert nearest(grid, margin, strength).name == ("features", *expected)


def test_classes_count_the_same_unless_a_learner_is_given():
    D, y = cohort()
    options = {"margins": [1.0], "strengths": [0.1], "validation": 2, "random_state": 0}
    assert NestedSearch(**options).fit(D, y).learner_.class_weight == "balanced"
    learner = gm.GroundMetricLearner(max_epochs=2)
    search = NestedSearch(learner, **options).fit(D, y)
    assert search.learner_.class_weight is None
    assert search.learner_.max_epochs == 2
    assert not hasattr(learner, "metric_")  # the user's learner is not fitted


@pytest.mark.parametrize("better", ["features", "components"])
def test_the_begin_is_in_the_better_space(better, monkeypatch):
    D, y = wide_cohort()

    def partial(learner, setting, *arguments):
        metric, (probabilities, codes) = fit_and_vote(learner, setting, *arguments)
        sharper = np.where(np.arange(2) == codes[:, None], 0.6, 0.4) if setting.space == better else 0.5
        return metric, (sharper * np.ones_like(probabilities), codes)

    monkeypatch.setattr("paper.search.fit_and_vote", partial)
    chosen_params = quick_search().fit(D, y).best_params_
    assert (chosen_params["space"], chosen_params["margin"], chosen_params["strength"]) == (better, 1.0, 0.1)


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_say_nothing_leave_the_learner_as_it_is(seed):
    D, y = cohort(6)
    search = quick_search(10, random_state=seed).fit(D, np.random.default_rng(seed).permutation(y))
    assert {name: search.best_params_[name] for name in ("margin", "strength", "epochs")} == {
        "margin": 1.0,
        "strength": 0.1,
        "epochs": 10,
    }


def test_a_learner_that_is_clearly_worse_than_others_is_left(monkeypatch):
    D, y = cohort(6)

    def misled(learner, setting, *arguments):
        metric, (probabilities, codes) = fit_and_vote(learner, setting, *arguments)
        return metric, (np.roll(probabilities, int(setting.strength == 0.1), axis=1), codes)

    monkeypatch.setattr("paper.search.fit_and_vote", misled)
    assert quick_search().fit(D, y).best_params_["strength"] == 1.0
