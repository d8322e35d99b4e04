"""Everything that reads a metric agrees with the direct computation: costs by a loop, and an exact solve.

Every option of the learner is combined with every reader of its result.
"""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import PolynomialFeatures

import groundmetric as gm
from groundmetric import interpret
from groundmetric.estimators.neighbors import class_shares, mean_values
from groundmetric.evaluation.scores import vote_points
from groundmetric.interpret.flows import shipping
from groundmetric.metrics.base import Cost

N = 12
CLASSES = np.arange(N) % 2
VALUES = np.arange(N) / 3.0 + CLASSES
BATCHES = np.arange(N) // 2 % 3
KINDS = np.array(["T", "B", "NK"])


def make_cohort():
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 7, N)
    owner = np.repeat(np.arange(N), sizes)
    points = rng.normal(size=(owner.size, 3)) + np.array([1.5, 0.3, 0.0]) * CLASSES[owner][:, None]
    names = [f"p{d:02}" for d in owner]
    return gm.Distributions(points, names, weights=rng.uniform(0.5, 2.0, owner.size), features=["a", "b", "c"])


D = make_cohort()
ANNOTATION = KINDS[np.arange(D.weights.size) % 3]
TARGETS = np.abs(VALUES[:, None] - VALUES)
QUADRATIC = PolynomialFeatures(2, include_bias=False)

# Options of the learner, its labels, and what else `fit` takes.
OPTIONS = {
    "plain": ({}, CLASSES, {}),
    "manhattan": ({"cost": "manhattan"}, CLASSES, {}),
    "squared": ({"cost": "squared"}, CLASSES, {}),
    "diagonal": ({"form": "diagonal"}, CLASSES, {}),
    "diagonal manhattan": ({"form": "diagonal", "cost": "manhattan"}, CLASSES, {}),
    "diagonal squared": ({"form": "diagonal", "cost": "squared"}, CLASSES, {}),
    "mapped": ({"form": gm.learning.Mapped(QUADRATIC)}, CLASSES, {}),
    "mapped manhattan": ({"form": gm.learning.Mapped(QUADRATIC), "cost": "manhattan"}, CLASSES, {}),
    "mapped diagonal squared": ({"form": gm.learning.Mapped(QUADRATIC, "diagonal"), "cost": "squared"}, CLASSES, {}),
    "one component": ({"n_components": 1, "cost": "squared"}, CLASSES, {}),
    "no penalty": ({"penalty": None}, CLASSES, {}),
    "l1": ({"penalty": "l1", "cost": "manhattan"}, CLASSES, {}),
    "group": ({"penalty": "group"}, CLASSES, {}),
    "nuclear": ({"penalty": "nuclear", "cost": "squared"}, CLASSES, {}),
    "ordered": ({"target": "ordered", "cost": "manhattan"}, VALUES, {}),
    "distances": ({"target": "distances"}, TARGETS, {}),
    "several": ({"target": ["classes", "ordered"], "cost": "manhattan"}, [CLASSES, VALUES], {}),
    "strata": ({"nuisance": 2.0, "cost": "manhattan"}, CLASSES, {"strata": BATCHES}),
    "balanced": ({"class_weight": "balanced"}, np.arange(N) % 4 == 0, {}),
    "nearest": ({"neighbors": gm.learning.Nearest(refresh=1), "cost": "manhattan"}, CLASSES, {}),
}


@pytest.fixture(scope="module", params=list(OPTIONS))
def learner(request):
    options, y, more = OPTIONS[request.param]
    settings = {"max_epochs": 2, "strength": 1e-3, "random_state": 0} | options
    if "diagonal" not in str(options.get("form")):
        settings.setdefault("n_components", 2)
    return gm.GroundMetricLearner(**settings).fit(D, y, **more)


def points_of(d):
    return D.points[D.bounds[d] : D.bounds[d + 1]]


def costs(metric, x, y):
    """Compute costs by a loop over pairs of points, from the definition of the learned parameters."""
    if hasattr(metric, "inner"):
        return costs(metric.inner, metric.feature_map.transform(x), metric.feature_map.transform(y))
    steps = np.array([[metric.components @ (p - q) for q in y] for p in x])
    if metric.cost is Cost.MANHATTAN:
        return np.abs(steps).sum(axis=2)
    squares = (steps**2).sum(axis=2)
    return squares if metric.cost is Cost.SQUARED else np.sqrt(squares)


def all_distances(between):
    """Between all distributions, by POT, of costs between points."""
    table = np.zeros((N, N))
    for d in range(N):
        for e in range(d):
            masses = (D.weights[D.bounds[k] : D.bounds[k + 1]] for k in (d, e))
            table[d, e] = table[e, d] = ot.emd2(*masses, between(points_of(d), points_of(e)))
    return table


@pytest.fixture(scope="module")
def expected(learner):
    return all_distances(lambda x, y: costs(learner.metric_, x, y))


def test_costs_between_points(learner):
    metric, x, y = learner.metric_, points_of(0), points_of(1)
    naive = costs(metric, x, y)
    assert_allclose(metric.distances(x, y), naive, rtol=1e-9, atol=1e-12)
    assert_allclose(learner.point_distances(x, y), naive, rtol=1e-9, atol=1e-12)
    z = learner.transform(D)
    assert_allclose(metric.cost.between(z[: len(x)], z[len(x) :][: len(y)]), naive, rtol=1e-9, atol=1e-12)


def test_distances(learner, expected):
    close = {"rtol": 1e-9, "atol": 1e-12}
    assert_allclose(gm.pairwise_distances(D, metric=learner.metric_), expected, **close)
    assert_allclose(gm.pairwise_distances(D[:4], D[4:], learner.metric_), expected[:4, 4:], **close)
    assert_allclose(learner.distances(D), expected, **close)


@pytest.mark.parametrize("solver", ["partial", "coarse"])
def test_variants_bound_the_distances_or_say_that_they_cannot(learner, expected, solver):
    if solver == "coarse" and learner.metric_.cost is not Cost.EUCLIDEAN:
        with pytest.raises(ValueError, match="needs a Euclidean distance"):
            gm.pairwise_distances(D, metric=learner.metric_, solver=solver)
        return
    options = {"share": 1.0} if solver == "partial" else {}
    result = gm.transport.pairwise(D, metric=learner.metric_, solver=solver, **options)
    slack = 1e-9 * expected.max()
    assert (result.lower <= expected + slack).all()
    assert (result.upper >= expected - slack).all()


def test_neighbours_and_their_votes(learner, expected):
    metric, k = learner.metric_, 3
    positions = np.argsort(expected[:5, 5:], axis=1, kind="stable")[:, :k]
    close = np.take_along_axis(expected[:5, 5:], positions, axis=1)
    result, indices = gm.kneighbors(D[:5], D[5:], k, metric)
    assert_allclose(result, close, rtol=1e-9)
    assert_array_equal(indices, positions)
    classifier = gm.TransportKNeighborsClassifier(k, metric=metric, n_points=None).fit(D[5:], CLASSES[5:])
    votes = class_shares(close, CLASSES[5:][positions], 2, "distance")
    assert_allclose(classifier.predict_proba(D[:5]), votes, rtol=1e-9)
    regressor = gm.TransportKNeighborsRegressor(k, metric=metric, n_points=None).fit(D[5:], VALUES[5:])
    assert_allclose(regressor.predict(D[:5]), mean_values(close, VALUES[5:][positions], "distance"), rtol=1e-9)


def test_votes_of_points(learner):
    train, test = D.points[:30], D.points[30:40]
    codes = np.arange(30) % 2
    naive = costs(learner.metric_, test, train)
    positions = np.argsort(naive, axis=1, kind="stable")[:, :7]
    votes = class_shares(np.take_along_axis(naive, positions, axis=1), codes[positions], 2, "distance")
    assert_allclose(vote_points(learner, train, codes, test, 2, 7, "distance"), votes, rtol=1e-8)


def test_a_file_and_a_blend(learner, expected, tmp_path):
    metric = learner.metric_
    metric.save(tmp_path / "metric")
    loaded = gm.GroundMetric.load(tmp_path / "metric", feature_map=getattr(learner, "feature_map_", None))
    assert loaded.cost is metric.cost
    assert_array_equal(gm.pairwise_distances(D, metric=loaded), gm.pairwise_distances(D, metric=metric))
    plain = gm.GroundMetric.euclidean(3)
    blend = metric.blend(plain, 0.3)
    naive = all_distances(lambda x, y: 0.7 * costs(metric, x, y) + 0.3 * costs(plain, x, y))
    assert_allclose(gm.pairwise_distances(D, metric=blend), naive, rtol=1e-9, atol=1e-12)
    assert interpret.flow(D, "p00", "p01", blend, ANNOTATION).value == pytest.approx(naive[0, 1], rel=1e-9)


def test_importance_adds_up_or_is_refused(learner):
    if hasattr(learner.metric_, "inner"):
        with pytest.raises(TypeError, match="linear in mapped features"):
            learner.metric_.importance()
        return
    importance = learner.metric_.importance()
    naive = (learner.components_**2).sum(axis=0) * learner.metric_.variances
    assert_allclose(importance, naive / naive.sum(), rtol=1e-12)


def test_flows_cost_what_the_distances_are(learner, expected):
    first = interpret.flow(D, "p00", "p01", learner, ANNOTATION)
    assert first.value == pytest.approx(expected[0, 1], rel=1e-9)
    assert first.mass.sum() == pytest.approx(1.0)
    pair = interpret.flow(D, 0, 1, learner, ANNOTATION, y=CLASSES, max_pairs=None)
    assert pair.value == pytest.approx(expected[CLASSES == 0][:, CLASSES == 1].mean(), rel=1e-9)


def mean_costs(expected):
    """Mean distances to other classes and to the own, as relevance and axes take them."""
    second = CLASSES[:, None] != CLASSES
    members = ~second & ~np.eye(N, dtype=bool)
    return tuple(np.mean([expected[d][mask[d]].mean() for d in range(N)]) for mask in (second, members))


def test_axes_share_out_the_distances(learner, expected):
    if hasattr(learner.metric_, "inner"):
        with pytest.raises(TypeError, match="linear in mapped features"):
            interpret.canonical_axes(learner, D, CLASSES)
        return
    axes = interpret.canonical_axes(learner, D, CLASSES, max_partners=N)
    between, within = mean_costs(expected)
    assert axes.between.sum() == pytest.approx(between, rel=1e-9)
    assert axes.within.sum() == pytest.approx(within, rel=1e-9)
    assert_allclose(gm.pairwise_distances(D, metric=axes.metric), expected, rtol=1e-8, atol=1e-12)


def test_axes_of_kinds_share_out_the_costs_within_kinds(learner, expected):
    if hasattr(learner.metric_, "inner"):
        pytest.skip("a map of features has no axes")
    axes = interpret.canonical_axes(learner, D, CLASSES, annotation=ANNOTATION, max_partners=N)
    ship = shipping(D, learner.metric_, np.unique(ANNOTATION, return_inverse=True)[1])
    costs = np.array([[ship(d, e).cost.sum() if d != e else 0.0 for e in range(N)] for d in range(N)])
    assert np.all(costs >= expected * (1 - 1e-9))
    between, within = mean_costs(costs)
    assert axes.between.sum() == pytest.approx(between, rel=1e-9)
    assert axes.within.sum() == pytest.approx(within, rel=1e-9)


def test_relevance_shares_out_the_difference(learner):
    first = np.zeros(D.points.shape[0])
    result = interpret.annotation_relevance(learner, D, CLASSES, first, max_partners=N, n_draws=2)
    # Relevance compares distributions by equal numbers of points.
    between, within = mean_costs(gm.pairwise_distances(D.equalize(), metric=learner.metric_))
    assert np.sum(result.relevance * result.mass) == pytest.approx((between - within) / between, rel=1e-6)
    assert result.composition == 0.0


def test_as_much_mass_as_possible_stays_with_its_kind(learner):
    kinds = np.unique(ANNOTATION, return_inverse=True)[1]
    way = shipping(D, learner.metric_, kinds)(0, 1)
    sent, received = (
        np.bincount(kinds[D.bounds[k] : D.bounds[k + 1]], D.weights[D.bounds[k] : D.bounds[k + 1]], kinds.max() + 1)
        for k in (0, 1)
    )
    stored = kinds[way.rows] == kinds[way.cols]
    result = np.bincount(kinds[way.rows[stored]], way.mass[stored], kinds.max() + 1)
    assert_allclose(result, np.minimum(sent, received), rtol=1e-9, atol=1e-12)


def test_shipments_are_an_optimal_plan(learner, expected):
    """There may be several optimal plans, of Manhattan costs above all: any will do."""
    way = shipping(D, learner.metric_)(0, 1)
    rows, cols = way.rows - D.bounds[0], way.cols - D.bounds[1]
    assert_allclose(way.distance, costs(learner.metric_, points_of(0), points_of(1))[rows, cols], rtol=1e-9, atol=1e-12)
    assert way.cost.sum() == pytest.approx(expected[0, 1], rel=1e-9)
    plan = np.zeros((D.sizes[0], D.sizes[1]))
    plan[rows, cols] = way.mass
    sent, received = (D.weights[D.bounds[k] : D.bounds[k + 1]] for k in (0, 1))
    assert_allclose(plan.sum(axis=1), sent, rtol=1e-12)
    assert_allclose(plan.sum(axis=0), received, rtol=1e-12)
