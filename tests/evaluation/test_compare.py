"""Scores, estimates and differences of `compare`, and errors before the first fit."""

import csv
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.model_selection import GroupKFold

from groundmetric import Distributions, GroundMetricLearner
from groundmetric.evaluation import (
    Comparison,
    Voting,
    compare,
    folds,
    leave_one_group_out,
    leave_one_out,
    shuffled,
)
from groundmetric.evaluation.scores import corrected_t, score_codes, wilson_ends

from .methods import euclidean, failing, knowing, means, oracle, tiny_cohort

D, y = tiny_cohort()
NAMES = np.array(["low", "mid", "top"])[y]
DONORS = [f"donor {position % 6}" for position in range(18)]  # each has a distribution of every class
TWO = {"knowing": knowing(), "Euclid": euclidean()}


def quick(methods=TWO, **options):
    return compare(methods, D, NAMES, **{"points": False, **options})


@pytest.fixture(scope="module")
def on_shuffled():
    return compare(TWO, D, NAMES, cv=shuffled(NAMES, n_splits=5, test_size=1 / 3, random_state=0))


@pytest.fixture(scope="module")
def on_folds():
    return compare(TWO, D, NAMES, cv=folds(NAMES, n_splits=3, n_repeats=2, random_state=0))


def test_the_right_metric_wins_by_a_margin_that_is_sure(on_shuffled, on_folds):
    for outcome in (on_shuffled, on_folds):
        for level in ("distributions", "points"):
            difference = outcome.difference("knowing", "Euclid", level=level)
            assert difference.value > 0.1
            if outcome is on_folds or level == "distributions":  # 5 splits of 18 leave points of few patients to count
                assert difference.low > 0.0
                assert difference.p < 0.05


def test_shuffled_splits_are_averaged(on_shuffled):
    per_split = on_shuffled.scores("accuracy")["Euclid"]
    assert per_split.shape == (5,)
    outcome, expected = on_shuffled.estimate("Euclid", "accuracy"), corrected_t(per_split, 6 / 12)
    assert (outcome.value, outcome.sd, outcome.how) == (expected.value, expected.sd, "Wilson")
    assert 0.0 <= outcome.low < outcome.value < outcome.high <= 1.0
    first, second = (on_shuffled.scores("roc_auc")[method] for method in ("knowing", "Euclid"))
    outcome = on_shuffled.difference("knowing", "Euclid", "roc_auc")
    assert outcome.value == pytest.approx(first.mean() - second.mean())
    area, expected = (
        on_shuffled.estimate("Euclid", "roc_auc", "points"),
        on_shuffled.scores("roc_auc", "points")["Euclid"],
    )
    assert (area.low, area.how) == (corrected_t(expected, 6 / 12).low, "corrected t")  # points have no probabilities


def all_right(n_patients, n_samples):
    """Compare an oracle on patients of two classes with `n` samples each."""
    y = np.repeat(np.arange(n_patients) % 2, n_samples)
    points = y[:, None] + np.linspace(0.0, 0.1, y.size)[:, None]
    patients = np.repeat(np.arange(n_patients), n_samples)
    return Distributions(points, np.arange(y.size)), y, patients


@pytest.mark.parametrize(
    "cv", [leave_one_group_out, lambda groups: shuffled(groups % 2, groups=groups, n_splits=40, random_state=0)]
)
@pytest.mark.parametrize("score", ["accuracy", "balanced_accuracy", "macro_f1", "roc_auc"])
def test_all_right_is_not_certain_and_patients_count_not_samples(cv, score):
    lows = []
    for n_samples in (1, 3):
        E, y, patients = all_right(12, n_samples)
        methods = {"one": means(0), "other": means()}
        outcome = compare(methods, E, y, cv=cv(patients), groups=patients, points=False, voting=Voting(1))
        estimate = outcome.estimate("one", score)
        assert (estimate.value, estimate.high, estimate.how) == (1.0, 1.0, "Wilson")
        assert 0.3 < estimate.low < wilson_ends(1.0, 12, 1.96)[0]  # which knows nothing of the training sets
        difference = outcome.difference("one", "other", score)
        assert (difference.value, difference.p) == (0.0, 1.0)
        assert difference.high == -difference.low > 0.0
        lows.append(estimate.low)
    assert lows[0] == pytest.approx(lows[1])


def test_no_difference_is_surer_than_its_patients_allow():
    """All of five patients agree: that happens once in sixteen times by chance."""
    patients, y = np.repeat(np.arange(5), 2), np.tile([0, 1], 5)
    E = Distributions(y[:, None] + 0.0, np.arange(10))
    truth, half = dict(enumerate(y)), {d: label if d % 4 < 2 else 1 - label for d, label in enumerate(y)}
    methods = {"right": oracle([0, 1], truth), "wrong": oracle([0, 1], {d: 1 - label for d, label in truth.items()})}
    methods["half"] = oracle([0, 1], half)
    outcome = compare(methods, E, y, cv=leave_one_group_out(patients), groups=patients, points=False)
    assert outcome.difference("right", "half").value == pytest.approx(0.4)
    assert outcome.difference("right", "half").p >= 2.0**-4
    difference = outcome.difference("right", "wrong")
    assert difference.value == 1.0
    assert difference.p >= 2.0**-4


def test_the_estimator_that_was_scored_is_named(on_folds):
    text = on_folds.to_markdown()
    for name, method in TWO.items():
        assert on_folds.estimators[name].startswith(type(method).__name__)
        assert f"- {name} is {on_folds.estimators[name]}" in text
    assert Comparison.from_dict(on_folds.to_dict()).estimators == on_folds.estimators


def test_folds_are_pooled_in_each_round(on_folds):
    assert on_folds.rounds.tolist() == [0, 0, 0, 1, 1, 1]
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "roc_auc"):
        pooled = []
        for at in (0, 3):
            table = np.zeros((18, 3))
            for split in range(at, at + 3):
                table[on_folds.splits[split][1]] = on_folds.results["Euclid"][split].probabilities
            pooled.append(score_codes(y, table)[name])
        outcome = on_folds.estimate("Euclid", name)
        assert outcome.value == pytest.approx(np.mean(pooled))
        assert outcome.how == "Wilson"
        assert 0.0 <= outcome.low <= outcome.value <= outcome.high <= 1.0


def test_points_of_folds_are_pooled_by_their_counts(on_folds):
    counts = np.sum([result.point_counts for result in on_folds.results["knowing"][:3]], axis=(0, 1))
    assert counts.sum() == D.sizes.sum()
    outcome = on_folds.estimate("knowing", "accuracy", "points")
    per_split = on_folds.scores("accuracy", "points")["knowing"]
    assert outcome.value == pytest.approx(per_split.mean())  # folds are of equal size
    assert outcome.low < outcome.value < outcome.high
    area = on_folds.estimate("knowing", "roc_auc", "points")  # not pooled, but the mean is known
    assert area.value == pytest.approx(on_folds.scores("roc_auc", "points")["knowing"].mean())
    assert np.isnan(area.low)


def test_leave_one_out_has_scores_that_no_single_split_has():
    outcome = quick({"means": means(0)}, cv=leave_one_out(NAMES))
    assert np.isnan(outcome.scores("roc_auc")["means"]).all()
    area = outcome.estimate("means", "roc_auc")
    assert 0.3 < area.low < area.value < area.high <= 1.0
    assert outcome.estimate("means", "accuracy").value == np.mean(outcome.predictions("means")["predicted"] == NAMES)


def test_groups_are_the_units_of_the_intervals():
    splits = leave_one_group_out(DONORS)
    separate, joint = (quick(cv=splits, groups=groups) for groups in (None, DONORS))
    assert separate.estimate("Euclid").value == joint.estimate("Euclid").value
    widths = [outcome.estimate("Euclid").high - outcome.estimate("Euclid").low for outcome in (separate, joint)]
    assert widths[1] > widths[0]  # three distributions of each donor
    assert "outer groups" in joint.to_markdown()


def test_predictions_are_averaged_over_the_splits_that_tested_a_distribution(on_shuffled):
    outcome = on_shuffled.predictions("knowing")
    tested = np.bincount(np.concatenate([test for _, test in on_shuffled.splits]), minlength=18)
    assert_array_equal(outcome["tested"], tested)
    position = int(np.argmax(tested))
    rows = [
        result.probabilities[test.tolist().index(position)]
        for (_, test), result in zip(on_shuffled.splits, on_shuffled.results["knowing"], strict=True)
        if position in test
    ]
    assert_allclose(outcome["probabilities"][position], np.mean(rows, axis=0))
    never = tested == 0
    assert np.isnan(outcome["probabilities"][never]).all()
    assert set(outcome["predicted"][never]) <= {None}


def test_every_other_method_is_compared_with_the_reference():
    outcome = quick({**TWO, "means": means()}, cv=folds(NAMES, n_splits=3, random_state=0))
    table = outcome.against()
    assert list(table) == ["Euclid", "means"]
    assert all(adjusted >= difference.p for difference, adjusted in table.values())
    assert_allclose(outcome.against("Euclid")["knowing"][0].value, -table["Euclid"][0].value)


def test_tables(on_shuffled, on_folds, tmp_path):
    text = on_shuffled.to_markdown()
    for title in ("## Distributions", "## Points"):
        assert title in text
    assert "new distributions from the same population" in text
    assert "### knowing against each, balanced accuracy of distributions" in text
    estimate = on_shuffled.estimate("Euclid", "accuracy")
    assert f"{estimate.value:.2f} ± {estimate.sd:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]" in text
    assert "pooled predictions" in on_folds.to_markdown()
    (tmp_path / "mine.csv").write_text("age,weight\n1,2\n")
    with pytest.raises(ValueError, match=r"mine\.csv' exists and is not a table that begins with"):
        on_shuffled.to_csv(tmp_path / "mine.csv")
    on_shuffled.to_csv(tmp_path / "scores.csv")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["method"], row["split"]) for row in rows] == [(m, str(s)) for m in TWO for s in range(5)]
    column = [float(row["distributions: macro_f1"]) for row in rows if row["method"] == "Euclid"]
    assert column == on_shuffled.scores("macro_f1")["Euclid"].tolist()


def test_a_comparison_goes_through_json(on_shuffled, on_folds):
    for outcome in (on_shuffled, on_folds, quick(cv=leave_one_out(NAMES))):
        text = json.dumps(outcome.to_dict(), allow_nan=False)
        repeated = Comparison.from_dict(json.loads(text))
        assert repeated.to_markdown() == outcome.to_markdown()
        assert json.dumps(repeated.to_dict(), allow_nan=False) == text


def test_a_child_gives_the_same():
    splits = [
        *leave_one_out(NAMES)[:2],
        *folds(NAMES, n_splits=3, random_state=0),
    ]  # training parts in one piece, and not
    current, there = (compare(TWO, D, NAMES, cv=splits, n_jobs=n) for n in (1, 2))
    assert current.levels == there.levels
    assert [result.probabilities for result in current.results["knowing"]] == [
        result.probabilities for result in there.results["knowing"]
    ]
    for level in current.levels:
        for method in TWO:
            assert_array_equal(current.scores("accuracy", level)[method], there.scores("accuracy", level)[method])


def test_the_default_is_ten_shuffled_splits_with_a_fifth_tested():
    cohort, labels = tiny_cohort(offsets=tuple(range(10)))
    outcome = compare({"means": means()}, cohort, labels)
    assert [test.size for _, test in outcome.splits] == [6] * 10


def test_splits_of_scikit_learn_know_the_groups():
    outcome = quick(cv=GroupKFold(3), groups=DONORS)
    assert len(outcome.splits) == 3


def test_a_method_that_fails_later_is_reported_and_the_others_go_on():
    class Fussy(type(means())):
        def fit(self, D, y):
            if len(D) == 12 and "class 0, offset 1.5" in D.names and D.sizes.max() == 9:
                raise RuntimeError("not him")
            return self

    splits = shuffled(NAMES, n_splits=4, test_size=1 / 3, random_state=1)
    hit = [0 in train for train, _ in splits]
    assert not hit[0] or 0 < sum(hit) < 4
    splits.sort(key=lambda split: 0 in split[0])  # the first split is one that goes well
    outcome = quick({"fussy": Fussy(), "means": means()}, cv=splits)
    assert outcome.status("means") == "ok"
    assert outcome.status("fussy") == f"error: RuntimeError: not him in {sum(hit)} of 4 splits"
    assert np.isnan(outcome.scores()["fussy"]).tolist() == sorted(hit)
    pair = outcome.difference("means", "fussy")
    assert pair.value == 0.0  # on the splits where both ran they are the same
    assert f"fussy: {outcome.status('fussy')}" in outcome.to_markdown()


def test_a_method_that_fails_on_the_first_split_only_goes_on():
    class Fussy(type(means())):
        def fit(self, D, y):
            if "class 0, offset 1.5" not in D.names:
                raise RuntimeError("not without him")
            return self

    splits = sorted(folds(NAMES, n_splits=3, random_state=0), key=lambda split: 0 in split[0])
    outcome = quick({"fussy": Fussy()}, cv=splits)
    assert outcome.status("fussy") == "error: RuntimeError: not without him in 1 of 3 splits"
    with pytest.raises(ValueError, match="'fussy': error: RuntimeError: not without him"):
        quick({"fussy": Fussy()}, cv=splits[:1])


def test_a_method_that_cannot_run_is_said_before_the_long_work():
    fits = []

    class Counting(type(means())):
        def fit(self, D, y):
            fits.append(D.sizes.max())
            return self

    cohort, labels = tiny_cohort(points_per_mode=20)
    methods = {"counting": Counting(), "broken": failing(), "worse": failing(message="even less")}
    with pytest.raises(
        ValueError, match="'broken': error: RuntimeError: no good; 'worse': error: RuntimeError: even less"
    ):
        compare(methods, cohort, labels, cv=folds(labels, n_splits=3, random_state=0))
    assert len(fits) == 1  # the first split, and no more


def test_all_methods_may_run_out(monkeypatch):
    class Greedy(type(means())):
        def fit(self, D, y):
            raise MemoryError

    outcome = quick({"greedy": Greedy()}, cv=folds(NAMES, n_splits=3, random_state=0))
    assert outcome.status("greedy") == "OOM"
    assert "| greedy | OOM |" in outcome.to_markdown()
    assert np.isnan(outcome.estimate("greedy").value)


def test_classifiers_and_distances_are_compared_alike():
    truth = dict(zip(D.names, NAMES.tolist(), strict=True))
    splits = folds(NAMES, n_splits=3, random_state=0)
    outcome = compare({"oracle": oracle(["low", "mid", "top"], truth), "knowing": knowing()}, D, NAMES, cv=splits)
    assert outcome.estimate("oracle").value == 1.0
    assert np.isnan(outcome.estimate("oracle", level="points").value)
    assert "| oracle | – |" in outcome.to_markdown().split("## Points")[1]


def test_too_few_voters_are_said_so():
    splits = shuffled(NAMES, n_splits=2, test_size=1 / 3, random_state=0)
    with pytest.warns(
        UserWarning, match="n_neighbors is 20, but a training part has only 12 distributions: all of them vote"
    ):
        outcome = quick({"means": means()}, cv=splits, voting=Voting(20))
    assert "n_neighbors is 20, but" in outcome.to_markdown()
    with pytest.warns(UserWarning, match="n_point_neighbors is 200, but a training part has only 108 points"):
        compare({"knowing": knowing()}, D, NAMES, cv=splits, voting=Voting(n_point_neighbors=200))


def test_the_learner_itself_is_a_method():
    outcome = compare(
        {"learned": GroundMetricLearner(max_epochs=8, random_state=0), "Euclid": euclidean()},
        D,
        NAMES,
        cv=folds(NAMES, groups=DONORS, n_splits=3, random_state=0),
        groups=DONORS,
    )
    assert outcome.estimate("learned").value > 0.8
    assert outcome.difference("learned", "Euclid").low > 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": {}}, "expected a dict of names to estimators"),
        ({"methods": [knowing()]}, "expected a dict of names to estimators"),
        ({"methods": {"x": 3}}, "method 'x' is 3: expected a scikit-learn estimator"),
        ({"methods": {"x": BaseEstimator()}}, "method 'x' is BaseEstimator"),
        ({"y": NAMES[:4]}, "y has shape"),
        ({"voting": Voting(0)}, "n_neighbors is 0"),
        ({"voting": Voting(n_point_neighbors=1.5)}, "n_point_neighbors is 1.5"),
        ({"voting": Voting(weights="cubic")}, "weights is 'cubic'"),
        ({"voting": Voting(max_points=0)}, "max_points is 0"),
        ({"groups": DONORS[:4]}, "groups has 4 entries for 18 distributions"),
        ({"groups": DONORS, "cv": leave_one_out(NAMES)}, "split 0 divides group 'donor 0'"),
        ({"groups": ["a"] * 6 + ["b"] * 6 + ["c"] * 6}, "class 'low' has 1 groups"),
        ({"cv": [([0, 1], [2])]}, "has no distribution of class 'mid' to learn from"),
    ],
)
def test_bad_input_is_refused_at_once(options, message):
    class Never(type(means())):
        def fit(self, D, y):
            raise AssertionError("the long work has begun")

    arguments = {"methods": {"never": Never()}, "D": D, "y": NAMES, **options}
    with pytest.raises(ValueError, match=message):
        compare(**arguments)


def test_questions_about_what_is_not_there_are_refused(on_folds):
    for call, message in (
        (lambda: on_folds.estimate("nobody"), "no method is called 'nobody'"),
        (lambda: on_folds.estimate("knowing", "elegance"), "score is 'elegance'"),
        (lambda: on_folds.scores("accuracy", "genes"), "level is 'genes'"),
        (lambda: on_folds.against("nobody"), "no method is called 'nobody'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
