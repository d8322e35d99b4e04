"""SPARE's measures: known answers where everything, nothing, or the batch alone is told, and out-of-fold distances."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import groundmetric as gm
from groundmetric.evaluation import folds, leave_one_out, out_of_fold_distances, shuffled, spare
from groundmetric.evaluation.spare import pseudotime


def between(places):
    places = np.asarray(places, dtype=float).reshape(len(places), -1)
    return np.linalg.norm(places[:, None] - places, axis=2)


def clusters(codes, spread=0.01, seed=0):
    """Distances between samples that lie where their class is."""
    return between(np.asarray(codes) + spread * np.random.default_rng(seed).uniform(size=len(codes)))


LABEL, BATCH = np.repeat(["ill", "well"], 10), np.tile(["a", "b"], 10)


def test_perfect_separation_retains_all_and_removes_a_balanced_batch():
    found = spare(clusters(LABEL == "ill"), relevant={"label": LABEL}, technical={"batch": BATCH})
    assert found.information == 1.0
    assert found.batch_removed > 0.5
    assert found.total == pytest.approx((2 + found.batch_removed) / 3)


def test_distances_that_tell_the_batch_alone_score_nothing():
    found = spare(clusters(BATCH == "a"), relevant={"label": LABEL}, technical={"batch": BATCH})
    assert found.batch_removed == 0.0
    assert found.information < 0.5


def test_a_batch_that_is_the_label_costs_what_the_label_gains():
    found = spare(clusters(LABEL == "ill", 1.0), relevant={"label": LABEL}, technical={"batch": LABEL})
    assert found.batch_removed == pytest.approx(1.0 - found.information)


def test_random_distances_score_at_chance():
    random = np.random.default_rng(0)
    found = [
        spare(between(random.normal(size=(60, 5))), relevant={"label": np.tile(["a", "b", "c"], 20), "age": age})
        for age in random.normal(size=(40, 60))
    ]
    for at in (0, 1):
        scores, chances = np.array([(one.scores[at].score, one.scores[at].chance) for one in found]).T
        assert 0.0 < chances.mean() < 0.15  # what is negative counts 0, so that chance is above 0
        assert abs(scores.mean() - chances.mean()) < 3 * scores.std() / np.sqrt(40)


def test_votes_are_those_of_scikit_learn():
    random = np.random.default_rng(1)
    distances = between(random.normal(size=(30, 3)))
    label, age = random.choice(["a", "b", "c"], 30), random.normal(size=30)
    far = distances + np.diag(np.full(30, 1e9))
    voted = KNeighborsClassifier(3, metric="precomputed", weights="distance").fit(far, label).predict(far)
    guessed = KNeighborsRegressor(3, metric="precomputed", weights="distance").fit(far, age).predict(far)
    found = spare(distances + np.eye(30), relevant={"label": label, "age": age}).scores  # the diagonal does not matter
    assert found[0].score == pytest.approx(max(0.0, 1.5 * f1_score(label, voted, average="macro") - 0.5))
    assert found[1].score == pytest.approx(max(0.0, spearmanr(guessed, age).statistic))
    assert [one.statistic for one in found] == ["macro F1", "Spearman"]


def test_units_of_rows_and_order_of_samples_do_not_matter():
    random = np.random.default_rng(2)
    distances, label = between(random.normal(size=(20, 2)) + (LABEL == "ill")[:, None]), LABEL
    expected = spare(distances, relevant={"label": label}, replicates=np.arange(20) // 2)
    order = random.permutation(20)
    scaled = (distances * random.uniform(0.1, 10, 20)[:, None])[np.ix_(order, order)]
    found = spare(scaled, relevant={"label": label[order]}, replicates=order // 2)
    assert found.information == pytest.approx(expected.information)
    assert found.replicates == pytest.approx(expected.replicates)


def test_covariates_go_by_name():
    names = [f"s{at}" for at in range(20)]
    distances = pd.DataFrame(clusters(LABEL == "ill"), index=names, columns=names)
    relevant = pd.DataFrame({"label": LABEL}, index=names).iloc[::-1]
    assert spare(distances, relevant=relevant).information == 1.0
    assert spare(distances.to_numpy()[::-1, ::-1], relevant=relevant).information == 1.0  # in the order of the names
    with pytest.raises(ValueError, match="label has names other than the 20 samples"):
        spare(distances, relevant=relevant.iloc[:-1])


def test_samples_of_one_patient_do_not_vote_for_each_other():
    patient = np.repeat(np.arange(10), 2)
    label = np.repeat(np.random.default_rng(0).permutation(["ill", "well"] * 5), 2)
    distances = between(patient + 0.01 * np.tile([0, 1], 10))  # only the patient shows
    assert spare(distances, relevant={"label": label}, n_neighbors=1).information == 1.0
    assert spare(distances, relevant={"label": label}, n_neighbors=1, groups=patient).information < 0.5


def test_ordered_categories_and_missing_values():
    stage = pd.Series(pd.Categorical(["low", "mid", "high", None] * 5, ["low", "mid", "high"], ordered=True))
    place = np.array([0.0, 1.0, 2.0, 50.0] * 5) + 0.01 * np.arange(20)
    found = spare(between(place), relevant={"stage": stage}, trajectory=stage)
    assert [one.n_samples for one in found.scores] == [15, 15]
    assert found.information == pytest.approx(1.0, abs=0.05)
    assert found.trajectory == pytest.approx(1.0, abs=0.1)


def test_trajectory_is_1_along_a_line_and_minus_1_from_its_end():
    place = np.sort(np.random.default_rng(0).uniform(0, 10, 30))
    assert spare(between(place), trajectory=place).trajectory == pytest.approx(1.0, abs=1e-3)
    assert spare(between(place), trajectory=place, root=29).trajectory == pytest.approx(-1.0, abs=1e-3)


def test_replicates():
    pair = np.repeat(np.arange(8), 2)
    near = between(pair + 0.01 * np.tile([0, 1], 8))
    assert spare(near, replicates=pair).replicates == 1.0
    assert spare(near.max() - near, replicates=pair).replicates == 0.0
    assert spare(np.ones((16, 16)), replicates=pair).replicates == 0.5  # ties count half
    three = np.repeat(np.arange(3), 3)
    assert spare(between(three), replicates=three).replicates == 1.0
    # Of samples at 0, 1, 3: the replicate of 0 is at 3, and 1 is nearer; to 3, 1 is nearer as well.
    assert spare(between([0, 1, 3]), replicates=["a", "b", "a"]).replicates == 0.0


def test_table_has_a_row_for_each_covariate():
    found = spare(
        clusters(LABEL == "ill"), relevant={"label": LABEL}, technical={"batch": BATCH}, trajectory=np.arange(20.0),
        replicates=np.arange(20) // 2,
    )  # fmt: skip
    table = found.table()
    assert table["measure"].tolist() == ["information retained", "batch removed", "trajectory", "replicates"]
    assert table.loc[0, "score"] == found.information
    assert np.isnan(spare(clusters(LABEL == "ill"), relevant={"label": LABEL}).trajectory)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing to measure by"),
        ({"relevant": {"label": ["ill"] * 20}}, "label has the value \\['ill'\\] in all 20 samples"),
        ({"relevant": {"name": [f"s{at}" for at in range(20)]}}, "name is different in all 20 samples"),
        ({"relevant": LABEL}, "relevant is ndarray: expected a data frame, or a dict"),
        ({"relevant": {"label": LABEL[:5]}}, "label has shape \\(5,\\)"),
        ({"relevant": {"label": LABEL}, "groups": ["p"] * 20}, "all samples that have a value are of one group"),
        ({"trajectory": LABEL}, "trajectory has no order"),
        ({"trajectory": np.arange(20.0), "root": "s99"}, "root is 's99', which is none of the 20 samples"),
        ({"trajectory": np.r_[np.nan, np.arange(19.0)], "root": 0}, "root is 0, which has no value"),
        ({"replicates": np.arange(20)}, "no two are replicates"),
        ({"replicates": ["a"] * 20}, "all 20 samples are replicates"),
        ({"relevant": {"label": LABEL}, "n_neighbors": 0}, "n_neighbors is 0"),
    ],
)
def test_input_that_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        spare(clusters(LABEL == "ill"), **given)


def test_distances_that_cannot_be():
    with pytest.raises(ValueError, match="shape"):
        spare(np.ones((20, 19)), relevant={"label": LABEL})
    with pytest.raises(ValueError, match="nan"):
        spare(np.full((20, 20), np.nan), relevant={"label": LABEL})


class Memory(BaseEstimator):
    """Knows the labels of what it was fitted on by heart, and nothing of others."""

    def fit(self, D, y):
        self.known_ = dict(zip(D.names, y, strict=True))
        return self

    def distances(self, A, B=None):
        codes = [[self.known_.get(name, name) for name in D.names] for D in (A, A if B is None else B)]
        return np.array([[float(a != b) for b in codes[1]] for a in codes[0]])


def test_a_metric_that_learns_by_heart_is_found_out_out_of_fold():
    D = gm.Distributions(np.zeros((20, 1)), [f"s{at}" for at in range(20)])
    in_bag = Memory().fit(D, LABEL).distances(D)
    assert spare(in_bag, relevant={"label": LABEL}).information == 1.0
    held_out = out_of_fold_distances(Memory(), D, LABEL)
    assert spare(held_out, relevant={"label": LABEL}).information < 0.6


def test_out_of_fold_rows_are_those_of_the_metric_that_was_fitted_without_them():
    D, y = gm.datasets.make_modes(points_per_mode=4, random_state=0)
    learner = gm.GroundMetricLearner(max_epochs=2, random_state=0)
    cv = folds(y, n_splits=3, random_state=0)
    found = out_of_fold_distances(learner, D, y, cv=cv)
    train, test = cv[0]
    expected = learner.fit(D[train], y[train]).distances(D[test], D)
    np.testing.assert_allclose(found[test], expected / expected[:, train].mean(), atol=1e-9)
    assert (np.diag(found) == 0).all()


def test_out_of_fold_needs_every_distribution_tested_once():
    D, y = gm.datasets.make_modes(points_per_mode=4, random_state=0)
    euclid = gm.baselines.Euclidean()
    assert out_of_fold_distances(euclid, D, y, cv=leave_one_out(y)).shape == (30, 30)
    with pytest.raises(ValueError, match="times: every one must be tested once"):
        out_of_fold_distances(euclid, D, y, cv=shuffled(y, n_splits=2, random_state=0))
    with pytest.raises(ValueError, match="2 times"):
        out_of_fold_distances(euclid, D, y, cv=folds(y, n_repeats=2, random_state=0))
    with pytest.raises(ValueError, match="expected an estimator with fit and distances"):
        out_of_fold_distances("euclidean", D, y)


def test_pseudotime_along_a_line_is_the_order_on_it():
    place = np.sort(np.random.default_rng(0).uniform(0, 10, 40))
    time = pseudotime(np.abs(place[:, None] - place), 0, 5)
    assert time[0] == 0.0
    assert time.max() == 1.0
    assert spearmanr(time, place).statistic > 0.999


def test_pseudotime_follows_a_bend_rather_than_the_straight_way():
    angle = np.linspace(0, 1.8 * np.pi, 60)  # nearly a circle: the end is near the start
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    time = pseudotime(np.linalg.norm(z[:, None] - z, axis=2), 0, 3)
    assert spearmanr(time, angle).statistic > 0.99


def test_pseudotime_bridges_any_gap():
    place = np.concatenate([np.linspace(0, 1, 10), np.linspace(1e4, 1e4 + 1, 10)])
    time = pseudotime(np.abs(place[:, None] - place), 0, 3)
    assert np.isfinite(time).all()
    assert time[:10].max() < time[10:].min()
