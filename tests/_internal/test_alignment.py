"""Values with names are aligned by name: labels, groups, weights and distances."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score, train_test_split

import groundmetric as gm
from groundmetric import baselines, evaluation, interpret
from groundmetric._internal.validation import AlignmentError, NameIndex, align_by_name, align_square_by_name, numbered

N = 12
NAMES = [f"p{k}" for k in np.random.RandomState(3).permutation(N)]  # not sorted, as patients appear in a table of cells


def make_cohort():
    """Two classes that differ in the first of three features, four points each."""
    random = np.random.RandomState(0)
    labels = np.array(["ill", "well"])[np.arange(N) % 2]
    points = random.normal(size=(N, 4, 3)) + 4.0 * (labels == "ill")[:, None, None] * [1.0, 0.0, 0.0]
    return gm.Distributions.from_arrays(list(points), NAMES, features=["a", "b", "c"]), labels


D, LABELS = make_cohort()
GROUPS = np.array([f"g{k // 2}" for k in range(N)])
STRATA = np.array(["s0", "s0", "s1", "s1"] * 3)
NUMBERS = np.random.RandomState(1).normal(size=N)
Y = pd.Series(LABELS, NAMES)


def by_name(values, names=NAMES):
    """As `groupby` gives them: sorted by name."""
    return pd.Series(values, names).sort_index()


def learner(**options):
    return gm.GroundMetricLearner(max_epochs=2, n_neighbors=1, random_state=0, **options)


def fitted_components(wrap):
    return learner(nuisance=0.5).fit(D, wrap(LABELS), strata=wrap(STRATA)).components_


def ordered_components(wrap):
    return learner(target="ordered").fit(D, wrap(NUMBERS)).components_


def several_components(wrap):
    return learner(target=["classes", "ordered"]).fit(D, [wrap(LABELS), wrap(NUMBERS)]).components_


def classified(wrap):
    classifier = gm.TransportKNeighborsClassifier(2).fit(D, wrap(STRATA))
    return [classifier.score(D, wrap(STRATA), sample_weight=wrap(NUMBERS**2)), *classifier.predict_proba(D).ravel()]


def regressed(wrap):
    return gm.TransportKNeighborsRegressor(2).fit(D, wrap(NUMBERS)).predict(D)


def regression_score(wrap):
    regressor = gm.TransportKNeighborsRegressor(2).fit(D, NUMBERS)
    return [regressor.score(D, wrap(NUMBERS), sample_weight=wrap(NUMBERS**2))]


def compared(wrap):
    result = evaluation.compare(
        {"e": baselines.Euclidean()}, D, wrap(LABELS), groups=wrap(GROUPS), points=False,
        cv=[(np.arange(6), np.arange(6, 12))],
    )  # fmt: skip
    return [result.results["e"][0].scores["distributions"]["accuracy"], *result.labels, *result.groups]


def permuted(wrap):
    test = evaluation.permutation_test(
        baselines.Euclidean(), D, wrap(LABELS), groups=wrap(GROUPS), strata=wrap(STRATA), cv=2, n_permutations=5,
        random_state=0,
    )  # fmt: skip
    return [test.statistic, *test.null]


def stable(wrap):
    result = interpret.stability(LDA, D, wrap(LABELS), groups=wrap(GROUPS), n_refits=2, n_top=1)
    return np.concatenate([result.importance, result.refits.ravel()])


def relevant(wrap):
    kinds = np.arange(D.points.shape[0]) % 2
    metric = gm.GroundMetric.euclidean(3, ["a", "b", "c"])
    result = interpret.annotation_relevance(metric, D, wrap(LABELS), kinds, groups=wrap(GROUPS), n_draws=5)
    return np.concatenate([result.share, result.draws.ravel()])


LDA = baselines.PointTransport(LinearDiscriminantAnalysis())


def discriminant(wrap):
    return clone(LDA).fit(D, wrap(LABELS)).distances(D)


def logistic(wrap):
    return baselines.SummaryModel().fit(D, wrap(LABELS)).predict_proba(D)


DOORS = {
    "learner": fitted_components, "ordered": ordered_components, "several": several_components,
    "classifier": classified, "regressor": regressed, "regression score": regression_score, "compare": compared,
    "permutation": permuted, "stability": stable, "relevance": relevant,
    "lda": discriminant, "logistic": logistic,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS)
def test_at_every_door_values_with_names_give_what_values_in_order_give(door):
    assert np.array_equal(DOORS[door](np.array), DOORS[door](by_name))


@pytest.mark.parametrize(
    "wrap", [by_name, lambda values: dict(by_name(values)), lambda v: by_name(v).astype("category")]
)
def test_a_label_goes_to_the_distribution_of_its_name(wrap):
    classifier = gm.TransportKNeighborsClassifier(1).fit(D, wrap(LABELS))
    assert classifier.predict(D).tolist() == LABELS.tolist()
    assert classifier.score(D, wrap(LABELS)) == 1.0


def test_an_array_of_xarray_goes_by_its_coordinate():
    xarray = pytest.importorskip("xarray")
    y = by_name(LABELS)
    labels = xarray.DataArray(y.to_numpy(), dims="patient", coords={"patient": y.index.to_numpy()})
    assert np.asarray(align_by_name(labels, D.name_index, "y")).tolist() == LABELS.tolist()
    assert (
        align_by_name(xarray.DataArray(LABELS, dims="patient"), D.name_index, "y").to_numpy().tolist()
        == LABELS.tolist()
    )


def test_target_distances_go_by_name_on_both_sides():
    targets = np.abs(NUMBERS[:, None] - NUMBERS)
    frame = pd.DataFrame(targets, NAMES, NAMES)
    shuffled = frame.sort_index().sort_index(axis=1, ascending=False)
    expected = learner(target="distances").fit(D, targets).components_
    assert np.array_equal(learner(target="distances").fit(D, shuffled).components_, expected)
    with pytest.raises(AlignmentError):
        align_square_by_name(pd.DataFrame(targets, NAMES), D.name_index, "y")


def test_other_names_are_an_error_that_shows_both():
    with pytest.raises(AlignmentError, match=r"missing 'p4'; unknown 'q4'; y has .*\(12\), .*\.to_numpy\(\)") as error:
        learner().fit(D, Y.rename({"p4": "q4"}))
    assert (error.value.parameter, error.value.missing, error.value.unknown) == ("y", ["p4"], ["q4"])
    assert pickle.loads(pickle.dumps(error.value)).missing == ["p4"]
    with pytest.raises(AlignmentError) as error:
        learner().fit(D, Y.iloc[1:])
    assert error.value.missing == [NAMES[0]]
    with pytest.raises(AlignmentError) as error:
        baselines.SummaryModel().fit(D, {**dict(Y), "x": "ill"})
    assert (error.value.missing, error.value.unknown) == ([], ["x"])
    with pytest.raises(AlignmentError) as error:
        evaluation.compare({"e": baselines.Euclidean()}, D, Y, groups=pd.Series(GROUPS, [f"q{k}" for k in range(N)]))
    assert error.value.parameter == "groups"


def test_a_name_that_repeats_is_known_only_in_order():
    twice = D[[0, 0, 1]]
    assert align_by_name(Y.iloc[[0, 0, 1]], twice.name_index, "y").tolist() == LABELS[[0, 0, 1]].tolist()
    assert (
        align_by_name(Y.iloc[[1, 0]], twice.name_index, "y").tolist() == LABELS[[0, 0, 1]].tolist()
    )  # each name once says it too
    with pytest.raises(AlignmentError, match="more than once"):
        align_by_name(Y.iloc[[1, 0, 0]], twice.name_index, "y")


class TestNumbers:
    """Whole numbers may be names, or the default index of pandas."""

    def test_a_plain_numbering_means_position(self):
        assert align_by_name(pd.Series(LABELS), D.name_index, "y").tolist() == LABELS.tolist()

    def test_a_plain_numbering_that_was_sliced_like_the_distributions_means_position(self):
        y = pd.Series(LABELS)
        train, test, y_train, y_test = train_test_split(D, y, random_state=0)
        assert y_train.index.tolist() != list(range(len(y_train)))
        for part, labels in ((train, y_train), (test, y_test), (train[[2, 0]], y_train.iloc[[2, 0]])):
            assert align_by_name(labels, part.name_index, "y").tolist() == [Y[name] for name in part.names]

    def test_other_numbers_are_names_that_do_not_fit(self):
        with pytest.raises(AlignmentError):
            align_by_name(pd.Series(LABELS, np.arange(N)[::-1]), D.name_index, "y")

    def test_numbers_that_are_names_go_by_name(self):
        numbered_cohort = gm.Distributions(np.zeros((3, 1)), [2, 0, 1])
        obs = pd.DataFrame({"patient": [2, 0, 1], "label": ["c", "a", "b"]})
        y = obs.groupby("patient")["label"].first()
        assert align_by_name(y, numbered_cohort.name_index, "y").tolist() == ["c", "a", "b"]

    def test_a_numbering_that_could_be_names_or_rows_is_refused(self):
        with pytest.raises(AlignmentError, match=r"give y.to_numpy"):
            align_by_name(pd.Series(["c", "a", "b"]), gm.Distributions(np.zeros((3, 1)), [2, 0, 1]).name_index, "y")

    def test_numbers_match_text_that_reads_the_same(self):
        name_index = gm.Distributions(np.zeros((3, 1)), ["103", "101", "102"]).name_index
        assert align_by_name(pd.Series(["a", "b", "c"], [101, 102, 103]), name_index, "y").tolist() == ["c", "a", "b"]

    def test_true_is_not_one(self):
        with pytest.raises(AlignmentError) as error:
            align_by_name({True: "a", False: "b"}, NameIndex([0, 1]), "y")
        assert error.value.unknown == [True, False]


@pytest.mark.parametrize("y", [Y, pd.Series(LABELS), LABELS])
def test_cross_validation_of_scikit_learn_keeps_names_and_labels_together(y):
    classifier = gm.TransportKNeighborsClassifier(1)
    folds = KFold(3, shuffle=True, random_state=0)
    assert cross_val_score(classifier, D, y, cv=folds).tolist() == [1.0] * 3
    assert cross_val_predict(classifier, D, y, cv=folds).tolist() == LABELS.tolist()


def test_splits_of_sorted_labels_are_places_among_the_distributions():
    splits = evaluation.folds(by_name(LABELS), n_splits=3, random_state=0)
    result = evaluation.compare({"e": baselines.Euclidean()}, D, Y, cv=splits, points=False)
    ours = by_name(LABELS).index
    for (train, test), (local, there) in zip(splits, result.splits, strict=True):
        assert [D.names[k] for k in local] == ours[train].tolist()
        assert [D.names[k] for k in there] == ours[test].tolist()
        assert sorted(LABELS[there]) == ["ill", "ill", "well", "well"]  # stratified, as was asked for
    assert isinstance(splits, list)
    assert splits[:1].numbers is splits.numbers


def test_folds_bring_groups_into_the_order_of_the_labels():
    expected = evaluation.folds(Y, groups=GROUPS, n_splits=3, random_state=0)
    result = evaluation.folds(Y, groups=by_name(GROUPS), n_splits=3, random_state=0)
    assert all(
        np.array_equal(a, b)
        for first, second in zip(expected, result, strict=True)
        for a, b in zip(first, second, strict=True)
    )
    left_out = evaluation.leave_one_group_out(by_name(GROUPS))
    assert all(len({by_name(GROUPS).iloc[position] for position in test}) == 1 for _, test in left_out)


def test_a_mask_with_names_selects_by_name():
    assert D[by_name(LABELS) == "ill"].names == D[LABELS == "ill"].names


class TestPoints:
    """Values per point are aligned by the index of the points, or of the samples."""

    frame = pd.DataFrame(D.points, [f"c{k}" for k in range(len(D.points))], ["a", "b", "c"])
    owner = pd.Series(np.repeat(NAMES, D.sizes), frame.index)
    weight = pd.Series(np.arange(1.0, len(frame) + 1.0), frame.index)

    def test_samples_weights_and_annotations(self):
        shuffled = self.frame.sample(frac=1, random_state=0).index
        expected = gm.Distributions(
            self.frame, self.owner, weights=self.weight.to_numpy(), annotations={"w": self.weight.to_numpy()}
        )
        more = {"weights": self.weight[shuffled], "annotations": {"w": dict(self.weight[shuffled])}}
        for points, owner in ((self.frame, self.owner[shuffled]), (self.frame.to_numpy(), self.owner)):
            result = gm.Distributions(points, owner, **more)
            assert result.names == expected.names
            assert np.array_equal(result.points, expected.points)
            assert np.array_equal(result.weights, expected.weights)
            assert np.array_equal(result.annotations["w"], expected.annotations["w"])

    def test_a_learner_of_points(self):
        y = self.owner.map(Y)
        expected = learner().fit(self.frame, y.to_numpy(), samples=self.owner.to_numpy()).components_
        shuffled = self.frame.sample(frac=1, random_state=0).index
        assert np.array_equal(
            learner().fit(self.frame, y[shuffled], samples=self.owner[shuffled]).components_, expected
        )
        with pytest.raises(AlignmentError, match="the 48 points"):
            learner().fit(self.frame, y.rename(lambda name: f"x{name}"), samples=self.owner)

    def test_points_that_are_distributions_themselves(self):
        y, shuffled = self.owner.map(Y), self.frame.sample(frac=1, random_state=0).index
        expected = learner().fit(self.frame, y.to_numpy()).components_
        assert np.array_equal(learner().fit(self.frame, y[shuffled]).components_, expected)
        assert gm.TransportKNeighborsClassifier(1).fit(self.frame, y[shuffled]).score(self.frame, y) == 1.0

    @pytest.mark.parametrize("index", ["frame", "labels", "both", "neither"])
    def test_cross_validation_of_data_frames(self, index):
        frame, y = self.frame, self.owner.map(Y)
        frame = frame if index in ("frame", "both") else frame.reset_index(drop=True)
        y = y if index in ("labels", "both") else y.reset_index(drop=True)
        folds = KFold(3, shuffle=True, random_state=0)
        assert min(cross_val_score(gm.TransportKNeighborsClassifier(3), frame, y, cv=folds)) > 0.8

    def test_a_mapping_needs_points_with_names(self):
        with pytest.raises(AlignmentError):
            align_by_name({"c0": 1}, NameIndex.of(np.zeros((1, 2)), items="points"), "samples")


def test_a_feature_map_keeps_copies_of_a_distribution_apart():
    from sklearn.preprocessing import StandardScaler

    positions = [0, 0, 1, 2, 3]
    method = learner(form=gm.learning.Mapped(StandardScaler()))
    assert method.fit(D[positions], LABELS[positions]).n_iter_ > 0


def test_places_with_names():
    assert numbered(Y).index.tolist() == NAMES
    assert numbered({"a": 9}) == {"a": 0}
    assert numbered([7, 8]).tolist() == [0, 1]
