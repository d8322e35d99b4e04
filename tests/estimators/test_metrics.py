"""The learner's metrics: diagonal ones, other costs, feature maps; learned, used, saved and refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, SplineTransformer, StandardScaler

from groundmetric import (
    Distributions,
    GroundMetric,
    GroundMetricLearner,
    TransportKNeighborsClassifier,
    kneighbors,
    pairwise_distances,
)
from groundmetric.datasets import make_modes, make_rings
from groundmetric.learning import Mapped, Nearest
from groundmetric.metrics import DiagonalMetric, MappedMetric

D, y = make_modes(6, 1.0, points_per_mode=5, offsets=(1.5, 10.5, 19.5), random_state=0)
RINGS, CLASSES = make_rings(random_state=0)
FRESH, FRESH_CLASSES = make_rings(random_state=1)
COSTS = ["euclidean", "manhattan", "squared"]


def learner(**options):
    return GroundMetricLearner(**{"max_epochs": 4, "random_state": 0, **options})


def accuracy(metric):
    return TransportKNeighborsClassifier(metric=metric).fit(RINGS, CLASSES).score(FRESH, FRESH_CLASSES)


def saved_and_loaded(metric, tmp_path, **options):
    metric.save(tmp_path / "metric")
    return GroundMetric.load(tmp_path / "metric", **options)


@pytest.mark.parametrize("metric", ["linear", "diagonal"])
@pytest.mark.parametrize("cost", COSTS)
def test_every_metric_with_every_cost_learns_and_is_kept_in_files(metric, cost, tmp_path):
    learned = learner(form=metric, cost=cost, max_epochs=20).fit(D, y)
    assert learned.history_["loss"][-1] < 0.7 * learned.history_["loss"][0]
    assert learned.metric_.importance()[0] > 0.5
    repeated = saved_and_loaded(learned.metric_, tmp_path)
    assert type(repeated) is type(learned.metric_)
    assert (repeated.cost, repeated.features) == (learned.metric_.cost, D.features)
    distances = pairwise_distances(D, metric=repeated)
    assert_array_equal(distances, pairwise_distances(D, metric=learned.metric_))
    np.fill_diagonal(distances, np.inf)
    assert_array_equal(kneighbors(D, n_neighbors=1, metric=repeated)[1][:, 0], distances.argmin(axis=1))
    assert learned.transform(D).shape[1] == learned.components_.shape[0] == len(learned.get_feature_names_out())


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("metric", ["linear", "diagonal"])
def test_nearest_neighbours_are_mined_under_the_cost(metric, cost):
    learned = learner(form=metric, cost=cost, neighbors=Nearest(refresh=2)).fit(D, y)
    assert np.isfinite(learned.components_).all()


def test_a_diagonal_metric_weights_features_and_leaves_out_those_without():
    metric = DiagonalMetric([2.0, 0.0, 1.0], ["a", "b", "c"], variances=[1.0, 9.0, 4.0])
    points = np.random.default_rng(0).normal(size=(5, 3))
    full = GroundMetric(np.diag([2.0, 0.0, 1.0]))
    assert_allclose(metric.distances(points), full.distances(points))
    assert_allclose(metric.project(sparse.csr_matrix(points)), metric.project(points))
    assert_array_equal(metric.matrix(), full.matrix())
    assert_allclose(metric.importance(), [0.5, 0.0, 0.5])
    assert DiagonalMetric([0.0, 0.0]).project([[1.0, 2.0]]).tolist() == [[0.0]]


@pytest.mark.parametrize("weights", [[1.0, -1.0], [np.nan, 1.0], [[1.0]], []])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        DiagonalMetric(weights)


def test_a_diagonal_start_may_be_given():
    weights = np.linspace(0.1, 1.0, 7)
    stays = learner(form="diagonal", init=weights, learning_rate=1e-12, max_epochs=1).fit(D, y)
    assert_allclose(stays.metric_.weights, weights, rtol=1e-6)


def test_full_rank_with_more_components_than_the_kernels_few():
    wide, labels = make_modes(39, 1.0, points_per_mode=4, offsets=(1.5, 10.5, 19.5), random_state=0)
    learned = learner(n_components=40, max_epochs=3).fit(wide, labels)
    assert learned.components_.shape == (40, 40)
    assert_allclose(pairwise_distances(wide, metric=learned.metric_), learned_by_hand(wide, learned), rtol=1e-9)


def learned_by_hand(cohort, learned):
    moved = Distributions(learned.transform(cohort), np.repeat(cohort.names, cohort.sizes))
    return pairwise_distances(moved)


MAPS = {
    "splines": SplineTransformer(5),
    "kernel": Nystroem(gamma=0.3, n_components=60, random_state=0),
    "polynomials": make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False)),
    "sparse splines": SplineTransformer(5, sparse_output=True),
}


@pytest.mark.parametrize("feature_map", MAPS.values(), ids=MAPS.keys())
def test_a_feature_map_tells_rings_apart_and_a_linear_metric_does_not(feature_map, tmp_path):
    learned = learner(form=Mapped(feature_map), max_epochs=30).fit(RINGS, CLASSES)
    assert accuracy(learned.metric_) >= 0.9
    assert accuracy(learner(max_epochs=30).fit(RINGS, CLASSES).metric_) <= 0.7
    assert_allclose(learned.transform(RINGS.points), learned.metric_.project(RINGS))
    repeated = saved_and_loaded(learned.metric_, tmp_path, feature_map=learned.feature_map_)
    assert_array_equal(repeated.project(FRESH), learned.metric_.project(FRESH))


def test_a_feature_map_is_neither_changed_nor_fitted_itself():
    provided = SplineTransformer(5)
    learned = learner(form=Mapped(provided))
    learned.fit(RINGS, CLASSES)
    assert not hasattr(provided, "bsplines_")
    assert learned.form.transformer is provided
    assert clone(learned).get_params()["form"].transformer.n_knots == 5


def test_a_metric_behind_a_map_has_the_given_features_and_no_components():
    metric = learner(form=Mapped(SplineTransformer(4))).fit(D, y).metric_
    assert isinstance(metric, MappedMetric)
    assert metric.features == D.features
    with pytest.raises(TypeError, match=r"metric\.inner\.components"):
        metric.importance()
    with pytest.raises(ValueError, match="3 features, but the metric was made for 7"):
        metric.project(np.zeros((2, 3)))


def test_a_file_of_a_mapped_metric_asks_for_its_map_and_knows_another(tmp_path):
    metric = learner(form=Mapped(SplineTransformer(4))).fit(D, y).metric_
    with pytest.raises(ValueError, match=r"feature map \(SplineTransformer\), which is not in the file"):
        saved_and_loaded(metric, tmp_path)
    second = SplineTransformer(4).fit(D.points[::2] * 1.1)
    with pytest.raises(ValueError, match="differs from the map that the metric was learned with"):
        saved_and_loaded(metric, tmp_path, feature_map=second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "curved"}, "form is 'curved': expected 'linear', 'diagonal'"),
        ({"form": "diagonal", "n_components": 2}, "leave n_components out"),
        ({"form": "diagonal", "init": np.ones((2, 7))}, r"init has shape \(2, 7\)"),
        ({"cost": "cubic"}, "cost is 'cubic': expected one of"),
        ({"form": Mapped(FunctionTransformer(lambda x: np.where(x > 0, x, np.nan)))}, "gave NaN or infinity"),
        ({"form": Mapped(FunctionTransformer(lambda x: x[:3]))}, r"made shape \(3, 7\) of 135 points"),
        ({"form": Mapped(FunctionTransformer(lambda x: x[:, 0]))}, r"made shape \(135,\)"),
    ],
)
def test_bad_choices_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        learner(**options).fit(D, y)


@pytest.mark.parametrize("feature_map", ["spline", SplineTransformer, object()])
def test_what_is_no_transformer_is_no_feature_map(feature_map):
    with pytest.raises(TypeError, match="expected a scikit-learn transformer"):
        learner(form=Mapped(feature_map)).fit(D, y)


def test_metrics_of_different_costs_are_blended():
    first, second = GroundMetric(np.eye(2), cost="manhattan"), GroundMetric.euclidean(2)
    assert_allclose(first.blend(second).distances([[0.0, 0.0]], [[3.0, 4.0]]), [[6.0]])
