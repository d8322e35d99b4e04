"""GroundMetricEnsemble as an estimator: planted features, labels by name, scikit-learn's contract, refused input.

The laws of the ensemble (held-out predictions, order, chance) are in tests/ensemble.
"""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from groundmetric import Distributions, GroundMetricEnsemble, pairwise_distances
from groundmetric.datasets import make_modes
from groundmetric.ensemble import KINDS

from .cohorts import FEATURES, PLANTED, cohort

D, y = cohort()


def small(**options):
    return GroundMetricEnsemble(
        **{"n_members": 4, "kinds": ["univariate"], "max_epochs": 2, "random_state": 0, **options}
    )


@pytest.fixture(scope="module")
def fitted():
    """One ensemble with all kinds; do not write to it."""
    return small(kinds=KINDS).fit(D, y)


def results(result):
    return [result.metric_.matrix(), result.distances_, result.held_out_, result.importances_]


def test_members_give_their_metrics(fitted):
    """Check the kinds in their order, and distances under the metrics of members against those of the view."""
    n_members = len(fitted.fitted_.design)
    assert [m.kind for m in fitted.members_] == [kind for kind in KINDS for _ in range(n_members)]
    member = fitted.members_[0]
    out = np.flatnonzero(~member.trained_on)
    view = next(view for _, view in fitted.fitted_.views if view.name == "univariate")
    distances = pairwise_distances(D[out], metric=member.metric(fitted.fitted_.geometries[""]))
    assert_allclose(view.blocks[0][np.ix_(out, out)] * view.units[0], distances, rtol=1e-9)


# Results


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_finds_the_planted_feature(kind):
    cells, codes = cohort(32)
    result = small(n_members=14, kinds=[kind]).fit(cells, codes)
    assert (result.importances_.argmax(axis=1) == PLANTED).all()
    assert result.metric_.importance().argmax() == PLANTED
    assert (result.held_out_.argmax(axis=1) == codes).mean() > 0.8


def test_the_modes_of_the_paper_are_told_apart_by_their_signal():
    modes, classes = make_modes(8, points_per_mode=6, offsets=(1.5, 10.5, 19.5, 28.5), random_state=0)
    result = small(kinds=["univariate", "anova"]).fit(modes, classes)
    assert result.metric_.importance().argmax() == 0
    assert (result.held_out_.argmax(axis=1) == classes).mean() > 0.8


def test_genes_of_the_programme_are_found_in_a_simulated_cohort(original):
    cells = Distributions(original.X, original.obs["sample"], features=original.var_names)
    labels = original.obs.groupby("sample", observed=True)["condition"].first()
    result = small(kinds=["univariate", "anova"], max_points=30).fit(cells, labels)
    best = np.array(cells.features)[np.argsort(-result.metric_.importance())[:5]]
    assert all(gene.startswith("PROG") for gene in best)
    assert result.classes_.tolist() == ["control", "disease"]


def test_numbers_are_learned_and_predicted_in_their_own_units():
    ages = np.linspace(20.3, 80.9, 16)
    aged, _ = cohort(16, values=ages, shift=0.1)
    result = small(target="ordered", kinds=KINDS).fit(aged, ages)
    assert result.metric_.importance().argmax() == PLANTED
    assert result.classes_.size == 0
    assert result.held_out_.shape == (16,)
    assert np.corrcoef(result.held_out_, ages)[0, 1] > 0.8
    assert abs(result.held_out_.mean() - ages.mean()) < 10.0


def test_units_of_the_numbers_change_no_metric():
    ages = np.linspace(20.0, 80.0, 12)
    aged, _ = cohort(12, values=ages, shift=0.1)
    first, second = (small(target="ordered").fit(aged, labels) for labels in (ages, 1e-3 * ages + 5.0))
    assert_allclose(second.metric_.matrix(), first.metric_.matrix(), atol=1e-9)
    assert_allclose(second.held_out_, 1e-3 * first.held_out_ + 5.0, rtol=1e-6)


def test_few_numbers_are_enough():
    small_cohort, _ = cohort(6, values=np.arange(6.0))
    assert np.isfinite(small(target="ordered").fit(small_cohort, np.arange(6.0)).held_out_).all()


# The same result


def test_labels_go_by_name_and_keep_their_own_type():
    names = np.array(["well", "ill"])[y]
    series = pd.Series(names, index=D.names).sample(frac=1.0, random_state=0)
    groups = pd.Series(np.arange(14) // 2, index=D.names).sample(frac=1.0, random_state=1)
    first = small().fit(D, names, groups=np.arange(14) // 2)
    second = small().fit(D, series, groups=groups)
    assert first.classes_.tolist() == ["ill", "well"]
    for a, b in zip(results(first), results(second), strict=True):
        assert_array_equal(a, b)


def test_groups_are_never_divided_between_a_member_and_the_rest():
    groups = np.arange(14) // 2
    for first in small(n_members=4).fit(D, y, groups=groups).members_:
        assert np.intersect1d(groups[first.trained_on], groups[~first.trained_on]).size == 0


def test_groups_of_several_classes_have_folds():
    codes, groups = np.array([0, 1, 1, 1, 1, 2, 0, 2, 0]), np.array([1, 2, 3, 2, 3, 3, 3, 0, 3])
    subset, _ = cohort(9)
    result = small().fit(subset, codes, groups=groups)
    assert np.isfinite(result.held_out_).all()


def test_units_of_a_feature_change_nothing():
    scale = np.ones(10)
    scale[[0, PLANTED]] = 1e6, 1e-6
    first = small(kinds=KINDS).fit(D, y)
    second = small(kinds=KINDS).fit(D.with_points(D.points * scale, FEATURES), y)
    assert_allclose(second.held_out_, first.held_out_, atol=1e-6)
    assert_allclose(second.distances_, first.distances_, rtol=1e-6)
    assert_allclose(second.metric_.importance(), first.metric_.importance(), atol=1e-6)


def test_a_data_frame_gives_its_names_to_the_metric():
    frame = pd.DataFrame(D.means(), index=D.names, columns=FEATURES)
    result = small().fit(frame, pd.Series(y, index=D.names)[::-1])
    assert result.metric_.features == FEATURES
    assert result.feature_names_in_.tolist() == FEATURES
    assert_array_equal(result.held_out_, small().fit(Distributions(D.means(), D.names, features=FEATURES), y).held_out_)


def test_a_second_fit_forgets_the_names_of_the_first():
    result = small().fit(D, y)
    assert result.feature_names_in_.tolist() == FEATURES
    assert not hasattr(result.fit(D.with_points(D.points), y), "feature_names_in_")


# scikit-learn


# On hundreds of rows; sparse points are tested in ensemble/test_fit.py on small cohorts.
SLOW = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}


@pytest.mark.filterwarnings("ignore")  # a part of the labels is noise
@parametrize_with_checks([GroundMetricEnsemble(1, kinds=["univariate"])])
def test_scikit_learns_own_checks(estimator, check):
    if getattr(check, "func", check).__name__ not in SLOW:
        check(estimator)


def test_it_can_be_cloned_and_pickled(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    repeated = pickle.loads(pickle.dumps(fitted))
    for a, b in zip(results(repeated), results(fitted), strict=True):
        assert_array_equal(a, b)
    assert_array_equal(repeated.distances(D[:3]), fitted.distances(D[:3]))


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
        (np.arange(14.0), np.repeat([0, 1], 7), r"2 independent distributions \(groups\) are there, but 4 are needed"),
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
    for first, second in zip(
        results(small(kinds=KINDS).fit(D, y, strata=["a"] * len(D))), results(fitted), strict=True
    ):
        assert_array_equal(first, second)


def test_strata_go_by_name_and_their_names_do_not_matter():
    named = pd.Series(np.where(BATCH, "x", "y"), index=D.names)
    first, second = small().fit(D, y, strata=BATCH), small().fit(D, y, strata=named[::-1])
    for a, b in zip(results(first), results(second), strict=True):
        assert_array_equal(a, b)


def test_batches_that_have_one_class_each_are_an_error():
    with pytest.raises(ValueError, match="labels do not differ within any stratum"):
        small().fit(D, y, strata=y)


def test_a_missing_stratum_is_an_error():
    with pytest.raises(ValueError, match="strata contain a missing value"):
        small().fit(D, y, strata=[None, *BATCH[1:]])


def test_numbers_are_taken_within_strata():
    """Add a constant to the numbers of a batch: with fixed folds, no weight of a member changes."""
    random = np.random.default_rng(0)
    values = random.normal(size=len(D))
    ensemble = small(target="ordered", kinds=KINDS, cv=np.arange(len(D)) % 5)
    first, second = (ensemble.fit(D, values + shift * BATCH, strata=BATCH).importances_ for shift in (0.0, 8.0))
    assert_allclose(second, first, atol=1e-6)
