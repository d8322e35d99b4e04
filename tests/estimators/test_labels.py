"""The learner on every kind of label: results, invariances and errors."""

import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from groundmetric import Distributions, GroundMetricLearner, TransportKNeighborsClassifier
from groundmetric.datasets import make_modes
from groundmetric.learning import Classes, Distances, Ordered

RANDOM = np.random.default_rng(0)
N, POINTS = 24, 8
SEVERITY = np.tile([0.0, 1.0, 2.0, 3.0], N // 4)
SEX = np.repeat([0, 1], N // 2)
BATCH = RANDOM.permutation(np.arange(N) % 3)


def cohort(n_features=6, **effects):
    """Distributions whose mean in feature k follows the k-th effect."""
    points = np.random.default_rng(1).normal(size=(N, POINTS, n_features))
    for feature, effect in enumerate(effects.values()):
        points[:, :, feature] += 2.0 * np.asarray(effect)[:, None]
    return Distributions(points.reshape(-1, n_features), np.repeat(np.arange(N), POINTS))


D = cohort(severity=SEVERITY, sex=SEX)
MATRIX = np.abs(SEVERITY[:, None] - SEVERITY)


def learner(**options):
    return GroundMetricLearner(**{"max_epochs": 5, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("target", "y"),
    [
        ("ordered", SEVERITY),
        ("ordered", SEVERITY + np.linspace(0, 0.1, N)),
        ("ordered", pd.Categorical(np.array(list("abcd"))[SEVERITY.astype(int)], ordered=True)),
        ("ordered", pd.Series(pd.Categorical(np.array(list("abcd"))[SEVERITY.astype(int)], ordered=True))),
        ("distances", MATRIX),
    ],
)
@pytest.mark.parametrize("neighbors", ["random", "nearest"])
def test_ordered_labels_and_distances_find_the_feature_that_follows_them(target, y, neighbors):
    learned = learner(target=target, neighbors=neighbors).fit(D, y)
    assert learned.metric_.importance()[0] > 0.8
    assert learned.history_["loss"][-1] < learned.history_["loss"][0]


def test_ordered_categories_are_their_places():
    names = pd.Categorical.from_codes(SEVERITY.astype(int), ["none", "mild", "bad", "worst"], ordered=True)
    by_name, by_place = (learner(target="ordered").fit(D, y) for y in (names, SEVERITY))
    assert_array_equal(by_name.components_, by_place.components_)
    assert by_name.classes_.tolist() == ["none", "mild", "bad", "worst"]
    assert by_place.classes_.tolist() == [0, 1, 2, 3]


def test_units_of_an_ordered_label_do_not_matter():
    first, second = (learner(target="ordered").fit(D, y).components_ for y in (SEVERITY, 8.0 * SEVERITY - 64.0))
    assert_allclose(first, second, rtol=1e-6, atol=1e-9)


def test_two_ordered_classes_teach_what_classes_teach():
    first, second = learner().fit(D, SEX), learner(target="ordered").fit(D, SEX)
    assert_allclose(first.components_, second.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_the_unlabelled_change_nothing(missing):
    subset = np.arange(N) % 5 != 0
    y = np.array(["f", "m"], dtype=object)[SEX]
    y[~subset] = missing
    assert_array_equal(learner().fit(D, y).components_, learner().fit(D[subset], y[subset]).components_)
    values = np.where(subset, SEVERITY, np.nan)
    ordered = learner(target="ordered")
    assert_array_equal(ordered.fit(D, values).components_, ordered.fit(D[subset], values[subset]).components_)


def test_unlabelled_points_and_groups():
    rows, y = np.repeat(np.arange(N), POINTS), SEX.astype(float)
    y[3] = np.nan
    by_row = learner().fit(D.points, y[rows], samples=rows)
    assert_array_equal(by_row.components_, learner().fit(D, y).components_)
    points = learner(target="ordered", max_epochs=1).fit(D.points, y[rows])
    assert points.components_.shape == (5, 6)


def test_several_labels_are_learned_at_once_by_their_weights():
    table = pd.DataFrame({"severity": SEVERITY, "sex": np.array(["f", "m"])[SEX]})
    result = {}
    for weights in ([1.0, 1.0], [20.0, 1.0], [1.0, 20.0]):
        several = learner(target=[Ordered(weight=weights[0]), Classes(weight=weights[1])]).fit(D, table)
        result[tuple(weights)] = several.metric_.importance()[:2]
    assert min(result[1.0, 1.0]) > 0.1
    assert result[20.0, 1.0][0] > result[1.0, 1.0][0] > result[1.0, 20.0][0]
    assert [values.tolist() for values in several.classes_] == [[0, 1, 2, 3], ["f", "m"]]


@pytest.mark.parametrize("neighbors", ["random", "nearest"])
def test_balanced_classes_are_told_apart_however_few_their_distributions(neighbors):
    """A large class differs from two small ones in the first feature, and these from each other in the second."""
    y = np.r_[np.zeros(N - 6), np.ones(3), np.full(3, 2.0)].astype(int)
    lopsided = cohort(large=y > 0, small=y == 2)
    plain, balanced = (
        learner(class_weight=weight, neighbors=neighbors, max_epochs=20).fit(lopsided, y).metric_.importance()
        for weight in (None, "balanced")
    )
    assert balanced[1] > 1.2 * plain[1]
    assert balanced[:2].sum() > 0.8


def test_balancing_classes_of_one_size_changes_nothing():
    assert_array_equal(learner(class_weight="balanced").fit(D, SEX).components_, learner().fit(D, SEX).components_)
    several = learner(target=["ordered", "classes"], max_epochs=2)
    first, second = (clone(several).set_params(class_weight=w).fit(D, [SEVERITY, SEX]) for w in (None, "balanced"))
    assert_array_equal(first.components_, second.components_)


def test_several_labels_may_be_a_table_an_array_or_a_list():
    several = learner(target=["ordered", "classes"], max_epochs=2)
    forms = [pd.DataFrame({"a": SEVERITY, "b": SEX}), np.column_stack([SEVERITY, SEX]), [SEVERITY, SEX]]
    first, *remaining = (clone(several).fit(D, y).components_ for y in forms)
    for second in remaining:
        assert_array_equal(first, second)
    learner(target=["distances", "classes"], max_epochs=1).fit(D, [MATRIX, SEX])


def test_a_distribution_with_one_label_of_two_is_learned_from():
    sex = SEX.astype(object)
    sex[:6] = None
    learned = learner(target=["ordered", "classes"]).fit(D, [SEVERITY, sex])
    assert_allclose(learned.metric_.variances, D.points.var(axis=0))


@pytest.mark.parametrize("options", [{}, {"neighbors": "nearest"}, {"target": "ordered"}])
def test_one_stratum_is_no_stratum(options):
    first, second = learner(**options).fit(D, SEX), learner(**options).fit(D, SEX, strata=["here"] * N)
    assert_array_equal(first.components_, second.components_)


@pytest.mark.parametrize("options", [{}, {"neighbors": "nearest"}, {"target": "ordered"}, {"nuisance": 0.0}])
def test_strata_are_not_learned(options):
    """The batch effect is ten times the class effect, and the batch equals the class except for a few samples."""
    batch = np.where(np.arange(N) % 6 == 0, 1 - SEX, SEX)
    confounded = cohort(sex=0.3 * SEX, batch=3.0 * batch)
    plain = learner(**options).fit(confounded, SEX).metric_.importance()
    across = learner(**options).fit(confounded, SEX, strata=batch).metric_.importance()
    assert across[0] > 0.6 > plain[0]
    assert across[1] < 0.05 < 0.2 < plain[1]


def test_strata_of_rows_with_groups():
    shuffle = np.random.default_rng(0).permutation(N * POINTS)
    rows = np.repeat(np.arange(N), POINTS)[shuffle]
    grouped = Distributions(D.points[shuffle], rows)
    by_row = learner().fit(D.points[shuffle], SEX[rows], samples=rows, strata=BATCH[rows])
    positions = np.array(grouped.names)
    assert_array_equal(by_row.components_, learner().fit(grouped, SEX[positions], strata=BATCH[positions]).components_)


def test_distributions_that_cannot_be_compared_across_strata_are_counted():
    strata = np.where(np.arange(N) == 0, 9, BATCH)
    with pytest.warns(
        UserWarning, match="1 of 24 distributions lack a distribution of the same label in another stratum"
    ):
        learner().fit(D, SEX, strata=strata)


def test_strata_pass_through_the_classifier_and_scikit_learns_cross_validation():
    classifier = TransportKNeighborsClassifier(3, metric=learner(max_epochs=2))
    assert classifier.fit(D, SEX, strata=BATCH).score(D, SEX) > 0.9
    assert np.mean(cross_val_score(classifier, D, SEX, cv=3, params={"strata": BATCH})) > 0.6
    with pytest.raises(ValueError, match="strata are given, but metric is 'euclidean', which is not a learner"):
        TransportKNeighborsClassifier().fit(D, SEX, strata=BATCH)


UNEVEN = MATRIX + np.triu(np.ones((N, N)), 1)
TEXT = np.array(["low", "high"])[SEX]


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"target": "rank"}, SEVERITY, "target is 'rank': expected one of"),
        ({"target": ["classes", "rank"]}, [SEX, SEX], "target is 'rank': expected one of"),
        ({"target": []}, SEX, "target is []"),
        ({"target": None}, SEX, "target is None"),
        ({"target": Ordered(gap=3.0)}, SEVERITY, "gap is 3, but the values of y differ by at most 3"),
        ({"target": "ordered"}, np.ones(N), "y holds only the value 1 for 24 distributions"),
        ({"target": "ordered"}, np.full(N, np.nan), "y holds no value for"),
        ({"target": "ordered"}, TEXT, "y holds text (e.g. 'low'), whose order is unknown"),
        ({"target": "ordered"}, pd.Series(TEXT), "whose order is unknown"),
        ({"target": "ordered"}, pd.Categorical(TEXT), "categories without an order (['high', 'low'], …)"),
        ({"target": "ordered"}, np.where(SEX, np.inf, 0.0), "infinite"),
        ({"target": "ordered"}, SEVERITY[:-1], "y has shape (23,)"),
        ({"target": "distances"}, MATRIX[:-1], "y has shape (23, 24): target distances between 24 need (24, 24)"),
        ({"target": "distances"}, -MATRIX, "y holds -1: expected distances of at least 0"),
        ({"target": "distances"}, UNEVEN, "y has 2 at (0, 1) and 1 at (1, 0): target distances must be symmetric"),
        ({"target": "distances"}, MATRIX + np.eye(N), "y has 1 on its diagonal"),
        ({"target": "distances"}, 1.0 - np.eye(N), "y holds only the value 1"),
        ({"target": Distances(gap=9.0)}, MATRIX, "gap is 9, but the values of y differ by at most 3"),
        ({"target": ["classes", "classes"]}, SEX, "y has 1 dimensions: for several labels"),
        ({"target": ["classes", "classes"]}, [SEX], "y has 1 labels, but there are 2 targets"),
        ({"class_weight": "even"}, SEX, "class_weight is 'even': expected None or 'balanced'"),
        ({"class_weight": "balanced", "target": "ordered"}, SEVERITY, "`target` contains no classes"),
        (
            {"class_weight": "balanced", "target": ["ordered", "distances"]},
            [SEX, MATRIX],
            "`target` contains no classes",
        ),
        ({"target": "ordered"}, np.r_[0.0, 1.0, [np.nan] * (N - 2)], "no triplet to learn from"),
        ({"nuisance": -1.0}, SEX, "nuisance is -1.0"),
        ({}, np.column_stack([SEX, SEX]), "several labels need a target each"),
        ({}, SEVERITY + 0.5, "target='ordered'"),
    ],
)
def test_labels_and_targets_that_do_not_fit_are_named(options, y, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        learner(**options).fit(D, y)


@pytest.mark.parametrize(
    ("strata", "message"),
    [
        (BATCH[:-1], "strata has shape (23,)"),
        ([None, *BATCH[1:]], "strata contain a missing value"),
    ],
)
def test_strata_that_do_not_fit_are_named(strata, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        learner().fit(D, SEX, strata=strata)


def test_strata_that_differ_within_a_sample_are_named():
    rows = np.repeat(np.arange(N), POINTS)
    strata = BATCH[rows].copy()
    strata[0] = 7
    with pytest.raises(ValueError, match=r"sample 0 has labels \[\d, 7\]"):
        learner().fit(D.points, SEX[rows], samples=rows, strata=strata)


def test_labels_of_one_distribution_must_agree_and_missing_is_a_label_of_its_own():
    rows = np.repeat(np.arange(N), POINTS)
    y = SEVERITY[rows].copy()
    y[1] = np.nan
    with pytest.raises(ValueError, match="sample 0 has labels"):
        learner(target="ordered").fit(D.points, y, samples=rows)


def test_classes_teach_what_they_always_taught():
    """Losses of the learner before it supported other kinds of labels."""
    modes, y = make_modes(6, 1.0, points_per_mode=5, offsets=(1.5, 10.5, 19.5), random_state=0)
    learned = learner(max_epochs=6).fit(modes, y)
    expected = [1.04947067, 0.9944051, 0.78797764, 0.62787379, 0.60019657, 0.58390618]
    assert_allclose(learned.history_["loss"], expected, rtol=1e-6)
