"""Masks, missing values and hidden characters are seen wherever they come in."""

import numpy as np
import pandas as pd
import pytest

import groundmetric as gm
from groundmetric import baselines, evaluation
from groundmetric._internal.tables import visible
from groundmetric._internal.validation import AlignmentError, is_missing, missing_values, real_array, refuse_mask
from groundmetric.transport import solve, solve_points

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.normal(size=(40, 2)) + np.repeat([0.0, 3.0], 20)[:, None]
OWNER = np.repeat(np.arange(8), 5)
D = gm.Distributions(POINTS, OWNER)
LABELS = np.repeat(["u", "v"], 4)


def masked(values, position=0):
    """The values with one masked, under which lies something that would be seen."""
    values = np.array(values)
    mask = np.zeros(values.shape, bool)
    mask.flat[position] = True
    if values.dtype.kind == "f":
        values.flat[position] = 1e9
    return np.ma.array(values, mask=mask)


def learner(**options):
    return gm.GroundMetricLearner(max_epochs=2, n_neighbors=1, random_state=0, **options)


def classifier():
    return gm.TransportKNeighborsClassifier(1)


ONES, SQUARE = np.ones(3), np.ones((3, 3))
MASKED = {
    "points": lambda: gm.Distributions(masked(POINTS), OWNER),
    "weights": lambda: gm.Distributions(POINTS, OWNER, weights=masked(np.ones(40))),
    "samples": lambda: gm.Distributions(POINTS, masked(OWNER)),
    "w": lambda: gm.Distributions(POINTS, OWNER, annotations={"w": masked(np.ones(40))}),
    "points, arrays": lambda: gm.Distributions.from_arrays([masked(np.ones((3, 2))), np.ones((2, 2))]),
    "indices": lambda: D[masked(LABELS == "u")],
    "X": lambda: learner().fit(masked(POINTS), OWNER < 4),
    "X, classifier": lambda: classifier().fit(D, LABELS).predict(masked(POINTS)),
    "y, classifier": lambda: classifier().fit(D, masked(LABELS)),
    "y, regressor": lambda: gm.TransportKNeighborsRegressor(1).fit(D, masked(np.arange(8.0))),
    "y, baseline": lambda: baselines.SummaryModel().fit(D, masked(LABELS)),
    "y, distances": lambda: learner(target="distances").fit(D, masked(np.ones((8, 8)))),
    "init": lambda: learner(init=masked(np.ones((2, 2)))).fit(D, LABELS),
    "strata": lambda: learner().fit(D, LABELS, strata=masked(LABELS)),
    "groups, compare": lambda: evaluation.compare({"e": baselines.Euclidean()}, D, LABELS, groups=masked(LABELS)),
    "groups, folds": lambda: evaluation.folds(LABELS, groups=masked(LABELS)),
    "y, vote": lambda: evaluation.vote(np.eye(2), masked(["a", "b"]), ["a", "b"]),
    "distances": lambda: gm.interpret.batch_effects(masked(SQUARE), ["a", "a", "b"], {}),
    "cost": lambda: solve(masked(SQUARE)),
    "a": lambda: solve(SQUARE, masked(ONES), ONES),
    "x": lambda: solve_points(masked(POINTS), POINTS),
    "components": lambda: gm.GroundMetric(masked(np.eye(2))),
    "variances": lambda: gm.GroundMetric(np.eye(2), variances=masked(np.ones(2))),
    "points, metric": lambda: gm.GroundMetric(np.eye(2)).project(masked(POINTS)),
}


@pytest.mark.parametrize("door", MASKED)
def test_what_lies_under_a_mask_is_used_nowhere(door):
    with pytest.raises(ValueError, match=r"masked, e\.g\. at|missing (label|value)|strata contain a missing"):
        MASKED[door]()


def test_a_mask_that_masks_nothing_changes_nothing():
    bare = np.ma.array(POINTS, mask=False)
    assert np.array_equal(gm.Distributions(bare, OWNER).points, D.points)
    refuse_mask([1.0, 2.0], "x")


@pytest.mark.parametrize("nothing", [np.ma.masked, None, np.nan, pd.NA, pd.NaT])
def test_a_label_that_is_not_there_leaves_its_distribution_out(nothing):
    assert is_missing(nothing)
    labels = [nothing, *LABELS[1:]]
    expected = learner().fit(D[1:], LABELS[1:]).components_
    assert np.array_equal(learner().fit(D, labels).components_, expected)
    with pytest.raises(ValueError, match="y contains a missing label"):
        classifier().fit(D, labels)


@pytest.mark.parametrize("kind", ["masked", "Int64", "datetime64[ns]", "timedelta64[ns]"])
def test_an_ordered_label_that_is_not_there_leaves_its_distribution_out(kind):
    numbers = np.arange(8)
    if kind == "masked":
        labels = masked(numbers)
    else:
        labels = pd.Series(numbers, dtype="Int64").astype(kind)
        labels[0] = None
    expected = learner(target="ordered").fit(D[1:], numbers[1:])
    result = learner(target="ordered").fit(D, labels)
    assert np.array_equal(result.components_, expected.components_)
    assert result.classes_.tolist() == numbers[1:].tolist()


def test_missing_numbers_are_nan_and_not_the_lowest_whole_number():
    dates = np.array(["2020-01-01", "NaT"], "M8[D]")
    assert np.isnan(real_array(dates, "y")).tolist() == [False, True]
    assert np.isnan(real_array(pd.Series([1.5, pd.NA], dtype="Float64"), "y")).tolist() == [False, True]
    assert missing_values(np.array([["a", None]], object)).tolist() == [[False, True]]
    table = pd.DataFrame({"a": pd.array([1.0, *[2.0] * 39], "Float64"), "b": 1.0})
    assert gm.Distributions(table, OWNER).points.dtype == np.float64
    table.iloc[7, 0] = pd.NA
    with pytest.raises(ValueError, match="NaN or infinity: nan at row 7, feature 'a', of distribution 1"):
        gm.Distributions(table, OWNER)
    with pytest.raises(ValueError, match="y contains a missing or infinite value"):
        gm.TransportKNeighborsRegressor(1).fit(D, np.array(["2020-01-01", *["NaT"] * 7], "M8[D]"))


def test_truth_values_and_numbers_are_no_classes_together():
    with pytest.raises(ValueError, match=r"y mixes truth values and numbers \(True and 0\)"):
        learner().fit(D, np.array([True, 0, 0, 0, 1, 1, 1, 1], object))
    assert learner().fit(D, LABELS == "u").classes_.tolist() == [False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: gm.Distributions(POINTS, OWNER, features=["a", "a"]),
        lambda: gm.Distributions(pd.DataFrame(POINTS, columns=[1, "1"]), OWNER),
        lambda: gm.GroundMetric(np.eye(2), ["a", "a"]),
        lambda: gm.GroundMetric.euclidean(2, ["1", 1]),
    ],
)
def test_repeated_feature_names_are_refused(make):
    with pytest.raises(ValueError, match=r"feature names are repeated \(1, "):
        make()


HIDDEN = "ann\u202ebob\u200b\x07"


def test_hidden_characters_of_names_are_shown():
    assert visible(HIDDEN) == r"ann\u202ebob\u200b\x07"
    assert visible("naïve β-cell\n") == "naïve β-cell\n"
    cohort = gm.Distributions(POINTS[:2], [HIDDEN, "b"])
    with pytest.raises(AlignmentError) as error:
        classifier().fit(cohort, pd.Series(["u", "v"], ["x\u202e", "b"]))
    assert r"ann\u202ebob\u200b\x07" in str(error.value)
    assert r"x\u202e" in str(error.value)
