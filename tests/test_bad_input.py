"""Bad input gives an error that names the culprit; odd but fine input works."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import groundmetric as gm
from groundmetric import Distributions, GroundMetric, GroundMetricLearner, TransportKNeighborsClassifier
from groundmetric._internal.validation import ParameterError
from groundmetric.learning import Checkpoint, Classes, EarlyStopping, Lasso, Nearest, Ordered

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.normal(size=(60, 3))
SAMPLES = np.repeat(list("abcdef"), 10)
D = Distributions(POINTS, SAMPLES)
LABELS = np.array(["u", "u", "u", "v", "v", "v"])
ROW_LABELS = np.repeat(LABELS, 10)


def learner(**options):
    return GroundMetricLearner(**{"max_epochs": 2, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (POINTS[0], "shape (3,): expected two dimensions"),
        (POINTS[None], "shape (1, 60, 3): expected two dimensions"),
        (np.empty((60, 0)), "0 features"),
        (POINTS + 0j, "Complex data not supported"),
        (sparse.csr_matrix(POINTS + 0j), "Complex data not supported"),
        (np.full((60, 3), "x"), "points must be numbers"),
        (POINTS.astype(str), "points must be numbers"),
        (np.full((60, 3), {}), "points must be numbers"),
        (pd.DataFrame({"a": ["x"] * 60, "b": 1.0}), "points must be numbers"),
    ],
)
def test_points_that_are_no_table_of_numbers(points, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Distributions(points, SAMPLES)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (SAMPLES[:-1], "samples has 59 entries for 60 points"),
        (SAMPLES.reshape(30, 2), "samples has shape (30, 2)"),
        ([None, *SAMPLES[1:]], "samples contain a missing value"),
        (np.where(SAMPLES == "a", np.nan, 1.0), "samples contain a missing value"),
        (pd.Categorical([None, *SAMPLES[1:]]), "samples contain a missing value"),
        (pd.Series([pd.NA, *SAMPLES[1:]], dtype="string"), "samples contain a missing value"),
        ([pd.NaT, *SAMPLES[1:]], "samples contain a missing value"),
    ],
)
def test_samples_that_do_not_say_where_every_point_belongs(samples, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Distributions(POINTS, samples)


def changed(value, row=25):
    weights = np.ones(60)
    weights[row] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(59), "weights has shape (59,) for 60 points"),
        (np.ones((60, 1)), "weights has shape (60, 1)"),
        (changed(-0.5), "not negative: -0.5 at row 25 of distribution 'c'"),
        (changed(np.nan), "nan at row 25 of distribution 'c'"),
        (changed(np.inf), "inf at row 25 of distribution 'c'"),
        (np.where(SAMPLES == "d", 0.0, 1.0), "distribution 'd' has zero total weight"),
        (["heavy"] * 60, "weights"),
    ],
)
def test_weights_that_are_no_masses(weights, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Distributions(POINTS, SAMPLES, weights=weights)


def test_names_and_annotations_of_the_wrong_length():
    with pytest.raises(ValueError, match="2 feature names for 3 features"):
        Distributions(POINTS, SAMPLES, features=["a", "b"])
    with pytest.raises(ValueError, match=r"kind has shape \(2,\) for 60 points"):
        Distributions(POINTS, SAMPLES, annotations={"kind": [1, 2]})


@pytest.mark.parametrize(
    ("arrays", "names", "message"),
    [
        ([POINTS, POINTS[:0]], ["p", "q"], "distribution 'q' is empty"),
        ([POINTS, POINTS[:, :2]], None, "[2, 3] features"),
        ([POINTS, POINTS], ["p"], "1 names for 2 arrays"),
        ([POINTS, POINTS], ["p", "p"], "names are not unique"),
        ([], None, "no arrays"),
    ],
)
def test_arrays_that_make_no_cohort(arrays, names, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Distributions.from_arrays(arrays, names)


def test_no_points_at_all():
    with pytest.raises(ValueError, match="no points"):
        Distributions(np.empty((0, 3)), [])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["u"] * 6, "one class ('u')"),
        (list("uvwxyz"), "every class has a single distribution"),
        (LABELS[:-1], "y has shape (5,), but a label is needed for each of 6"),
        (LABELS[:, None], "y has shape (6, 1)"),
        ([None] * 6, "y contains no label"),
        (["u", "u", 1, 1, "u", 2], "y mixes text and numbers ('u' and 1)"),
        (np.array(["u", "u", 1, 1, "u", 2], dtype=object), "y mixes text and numbers ('u' and 1)"),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "continuous"),
        (None, "requires y"),
    ],
)
def test_labels_that_teach_nothing(labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        learner().fit(D, labels)


def test_labels_that_differ_within_a_sample_are_named():
    labels = ROW_LABELS.copy()
    labels[37] = "u"
    with pytest.raises(ValueError, match=r"sample 'd' has labels \['u', 'v'\]: a distribution needs exactly one"):
        learner().fit(POINTS, labels, samples=SAMPLES)


def test_samples_and_labels_of_the_wrong_length_for_points():
    with pytest.raises(ValueError, match="samples has 59 entries for 60 points"):
        learner().fit(POINTS, ROW_LABELS, samples=SAMPLES[:-1])
    with pytest.raises(ValueError, match=r"\[60, 59\]"):
        learner().fit(POINTS, ROW_LABELS[:-1], samples=SAMPLES)
    with pytest.raises(ValueError, match="samples are given, but X are Distributions"):
        learner().fit(D, LABELS, samples=SAMPLES)


def test_groups_are_not_samples():
    with pytest.raises(TypeError, match=r"Distributions takes no groups .* is `samples`"):
        Distributions(POINTS, groups=SAMPLES)
    with pytest.raises(TypeError, match=r"groups are given for points .* is `samples`"):
        learner().fit(POINTS, ROW_LABELS, groups=SAMPLES)
    with pytest.raises(TypeError, match="samples are missing"):
        Distributions(POINTS)
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        Distributions(POINTS, SAMPLES, weight=1.0)


def test_a_class_with_a_single_distribution_is_allowed_but_told():
    with pytest.warns(UserWarning, match=r"class 'rare' has a single distribution"):
        learned = learner().fit(D, ["u", "u", "u", "v", "v", "rare"])
    assert learned.classes_.tolist() == ["rare", "u", "v"]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_components", 4), ("n_components", 0), ("n_components", "two"), ("n_components", True), ("margin", 0.0),
        ("margin", np.inf), ("strength", -1.0), ("strength", np.inf), ("learning_rate", "fast"), ("n_neighbors", 1.5),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_named(parameter, value):
    with pytest.raises(ParameterError) as caught:
        learner(**{parameter: value}).fit(D, LABELS)
    assert (caught.value.parameter, caught.value.value) == (parameter, value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbors": "best"}, "neighbors is 'best'"),
        ({"form": "curved"}, "form is 'curved'"),
        ({"penalty": "l3"}, "penalty is 'l3'"),
        ({"penalty": ["l2"]}, "penalty is ['l2']"),
        ({"penalty": Lasso}, "penalty is <class"),
        ({"init": "best"}, "init is 'best'"),
        ({"init": np.ones((2, 2))}, "init has shape (2, 2): expected finite numbers of shape (3, 3)"),
        ({"init": np.full((3, 3), np.nan)}, "init"),
        ({"init": np.full((3, 3), "x")}, "init"),
        ({"init": np.zeros((3, 3))}, "coincide under the starting metric"),
    ],
)
def test_impossible_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        learner(**options).fit(D, LABELS)


@pytest.mark.parametrize(
    ("make", "parameter", "value"),
    [
        (lambda: EarlyStopping(tol=-1.0), "tol", -1.0),
        (lambda: EarlyStopping(patience=0), "patience", 0),
        (lambda: Nearest(refresh=0), "refresh", 0),
        (lambda: Checkpoint("c", every=-1.0), "every", -1.0),
        (lambda: Ordered(gap=-1.0), "gap", -1.0),
        (lambda: Classes(weight=0.0), "weight", 0.0),
        (lambda: gm.transport.Exact(memory=-1.0), "memory of solver 'exact'", -1.0),
        (lambda: learner(solver=gm.transport.Exact(max_pivots=0)).fit(D, LABELS), "max_pivots", 0),
    ],
)
def test_impossible_options_are_refused(make, parameter, value):
    with pytest.raises(ParameterError) as caught:
        make()
    assert (caught.value.parameter, caught.value.value) == (parameter, value)


def test_a_validation_fraction_is_a_share():
    with pytest.raises(ValueError, match=r"validation_fraction is 1\.0: expected a share below 1"):
        EarlyStopping(validation_fraction=1.0)


@pytest.mark.parametrize(
    "options", [{"stopping": 5}, {"solver": "coarse"}, {"solver": gm.transport.Coarse()}, {"checkpoint": 3}]
)
def test_options_of_another_kind_are_named(options):
    with pytest.raises(TypeError, match=next(iter(options))):
        learner(**options).fit(D, LABELS)


@pytest.mark.parametrize("neighbors", ["random", "nearest"])
def test_holding_out_from_small_classes_leaves_triplets_or_says_that_it_does_not(neighbors):
    for seed in range(30):
        options = {"stopping": EarlyStopping(validation_fraction=0.5), "n_neighbors": 1, "random_state": seed}
        options["neighbors"] = neighbors
        try:
            learned = learner(**options).fit(D, LABELS)
        except ValueError as error:
            assert "validation_fraction" in str(error)  # noqa: PT017
        else:
            assert np.isfinite(learned.history_["loss"]).all()


METRIC = GroundMetric(np.eye(3), features=["p", "q", "r"])
OTHERS = Distributions(POINTS, SAMPLES, features=["p", "r", "q"])
DOORS = {
    "project": lambda X: METRIC.project(X),
    "distances": lambda X: METRIC.distances(X),
    "distances to": lambda X: METRIC.distances(POINTS, X),
    "blend": lambda X: METRIC.blend(GroundMetric(np.eye(3), ["p", "q", "r"])).distances(X),
    "euclidean": lambda X: GroundMetric.euclidean(3, ["p", "q", "r"]).project(X),
    "pairwise among": lambda X: gm.pairwise_distances(X, metric=METRIC),
    "pairwise from": lambda X: gm.pairwise_distances(X, D, metric=METRIC),
    "pairwise to": lambda X: gm.pairwise_distances(D, X, metric=METRIC),
    "kneighbors to": lambda X: gm.kneighbors(D, X, 2, metric=METRIC),
    "classifier": lambda X: TransportKNeighborsClassifier(2, metric=METRIC).fit(X, LABELS).predict(D),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_a_metric_refuses_other_features_by_name_and_by_number(door):
    with pytest.raises(ValueError, match=r"feature 1 is 'r', the metric has 'q'"):
        door(OTHERS)
    with pytest.raises(ValueError, match=r"2 (features|dimensions)|has 2"):
        door(Distributions(POINTS[:, :2], SAMPLES))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GroundMetric(np.ones(3)), "components have shape (3,)"),
        (lambda: GroundMetric([[np.nan]]), "components contain NaN"),
        (lambda: GroundMetric([["x"]]), "components"),
        (lambda: GroundMetric(np.eye(3), features=["p", "q"]), "2 feature names"),
        (lambda: GroundMetric.euclidean(3, features=["p", "q"]), "2 feature names"),
        (lambda: METRIC.blend(GroundMetric(np.eye(3), features=["x", "y", "z"])), "feature"),
    ],
)
def test_metrics_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_a_pivot_limit_is_a_warning_with_its_remedy():
    for call in (
        lambda: learner(solver=gm.transport.Exact(max_pivots=1)).fit(D, LABELS),
        lambda: gm.pairwise_distances(D, max_pivots=1),
        lambda: gm.pairwise_distances(D, metric="cityblock", max_pivots=1),
        lambda: gm.kneighbors(D, n_neighbors=2, max_pivots=1),
    ):
        with pytest.warns(ConvergenceWarning, match=r"\d+ solves stopped at the pivot limit.*raise `max_pivots`"):
            call()


def test_thousands_of_distributions_of_one_point_are_learned_from():
    points, labels = RANDOM.normal(size=(2000, 4)), np.arange(2000) % 2
    points[:, 0] += 6 * labels
    assert learner().fit(Distributions(points, range(2000)), labels).metric_.importance()[0] > 0.9
