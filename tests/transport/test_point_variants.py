"""Variants between points and between cohorts: bounds that hold, limits that are reached, the same for any threads."""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.transport import POT, Status
from groundmetric.transport.solvers.coarse import group_points

from .cohorts import ALL_WEIGHTS, cohort

VARIANTS = {
    "entropic": {"solver": POT(ot.sinkhorn, reg=0.3)},
    "debiased": {"solver": POT(ot.bregman.empirical_sinkhorn_divergence, reg=2.0, metric="euclidean")},
    "sliced": {"solver": POT(ot.sliced_wasserstein_distance, p=1, n_projections=20, seed=0)},
    "gaussian": {"solver": POT(ot.gaussian.empirical_bures_wasserstein_distance)},
    "factored": {"solver": POT(ot.solve_sample, metric="euclidean", reg=0.3)},
    "coarse": {"n_groups": 5},
    "auto": {"seconds": 1e-9},
}
OTHER_PROBLEMS = {"partial": {"share": 0.7}, "unbalanced": {"price": 0.8}}
ALL = {name: {"solver": name} | options for name, options in {**VARIANTS, **OTHER_PROBLEMS}.items()}
APPROXIMATIONS = {name: ALL[name] for name in VARIANTS}


@pytest.fixture(params=ALL_WEIGHTS)
def D(request):
    return cohort(np.random.default_rng(0), [1, 9, 40, 33, 12], 3, request.param)


def points(seed=0, n=40, m=33, k=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)), rng.normal(size=(m, k)) + 0.5


@pytest.mark.parametrize("options", APPROXIMATIONS.values(), ids=APPROXIMATIONS)
def test_bounds_hold_the_exact_distance(D, options):
    exact = gm.pairwise_distances(D)
    details = gm.transport.pairwise(D, **options)
    distances = details.distances
    assert (details.lower <= exact + 1e-9).all()
    assert (exact <= details.upper + 1e-9).all()
    assert np.abs(distances - exact).max() <= details.gap + 1e-9
    assert_array_equal(details.distances, distances)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_distances_are_symmetric_not_negative_and_zero_on_the_diagonal(D, options):
    distances = gm.pairwise_distances(D, **options)
    assert (distances >= 0.0).all()
    assert_array_equal(distances, distances.T)
    assert_array_equal(np.diag(distances), 0.0)
    assert_allclose(gm.pairwise_distances(D[::-1], **options)[::-1, ::-1], distances, rtol=1e-3)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_two_threads_give_the_same_bits_as_one(D, options):
    one, two = (gm.pairwise_distances(D[:3], D, n_jobs=n_jobs, **options) for n_jobs in (1, 2))
    assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["entropic", "debiased", "coarse", "auto"])
def test_single_points_are_at_their_distance(name):
    x, y = points(n=3, m=4)
    assert_allclose(gm.pairwise_distances(x, y, **ALL[name]), cdist(x, y), rtol=1e-9)


@pytest.mark.parametrize("name", ["debiased", "sliced", "gaussian", "coarse"])
def test_equal_distributions_are_at_no_distance(name):
    x, _ = points()
    assert gm.transport.solve_points(x, x, **ALL[name]).value <= 1e-4


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", ["sliced", "coarse"])
def test_units_do_not_matter(name, scale):
    x, y = points()
    plain, scaled = (gm.transport.solve_points(s * x, s * y, **ALL[name]) for s in (1.0, scale))
    assert_allclose(scaled.value, scale * plain.value, rtol=1e-7)
    assert_allclose(scaled.bounds, scale * np.array(plain.bounds), rtol=1e-7)


@pytest.mark.parametrize("name", ["coarse"])
def test_plans_fit_the_masses_and_cost_the_upper_bound_at_least(name):
    x, y = points()
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.1, 1.0, 40), rng.uniform(0.1, 1.0, 33)
    a[3] = b[7] = 0.0
    a, b = 2.0 * a / a.sum(), 2.0 * b / b.sum()
    plan = gm.transport.solve_points(x, y, a, b, **ALL[name])
    matrix = np.zeros((40, 33))
    np.add.at(matrix, (plan.rows, plan.cols), plan.mass)
    assert_allclose(matrix.sum(axis=1), a, atol=1e-12)
    assert_allclose(matrix.sum(axis=0), b, atol=1e-12)
    assert np.sum(matrix * cdist(x, y)) >= plan.bounds[1] - 1e-9
    exact = gm.transport.solve(cdist(x, y), a, b).value
    assert plan.bounds[0] - 1e-9 <= exact <= plan.bounds[1] + 1e-9


def test_functions_of_points_get_points_and_masses():
    x, y = points(n=12, m=9)
    a, b = np.arange(1.0, 13.0) / 78.0, np.arange(1.0, 10.0) / 45.0
    sliced = gm.transport.solve_points(x, y, a, b, **ALL["sliced"])
    expected = ot.sliced_wasserstein_distance(x, y, a, b, p=1, n_projections=20, seed=np.random.RandomState(0))
    assert_allclose(sliced.value, expected, rtol=1e-12)
    assert sliced.rows.size == 0
    gaussian = gm.transport.solve_points(x, y, a, b, **ALL["gaussian"])
    columns = {"ws": a[:, None], "wt": b[:, None]}
    assert_allclose(gaussian.value, ot.gaussian.empirical_bures_wasserstein_distance(x, y, **columns), rtol=1e-12)


def test_a_user_function_is_called_like_those_of_pot():
    x, y = points()
    means = gm.transport.POT(lambda x, y: np.linalg.norm(x.mean(axis=0) - y.mean(axis=0)))
    plan = gm.transport.solve_points(x, y, solver=means)
    assert_allclose(plan.value, plan.bounds[0], rtol=1e-12)
    with pytest.raises(ValueError, match="does not accept masses"):
        gm.transport.solve_points(x[:2], y[:2], [0.3, 0.7], [0.5, 0.5], solver=means)


def test_coarse_tends_to_exact_as_groups_to_points():
    x, y = points()
    plans = [gm.transport.solve_points(x, y, solver="coarse", n_groups=n) for n in (1, 5, 20, 40)]
    gaps = [plan.gap for plan in plans]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3]
    exact = gm.transport.solve(cdist(x, y))
    assert_allclose(plans[-1].value, exact.value, rtol=1e-12)
    assert plans[-1].status is Status.OPTIMAL
    assert_allclose(plans[0].value, np.linalg.norm(x.mean(0) - y.mean(0)), rtol=1e-12)
    for plan in plans:
        u, v = plan.potentials
        assert (u[:, None] + v <= cdist(x, y) + 1e-12).all()


def test_groups_of_coinciding_points():
    x = np.repeat([[0.0, 0.0], [1.0, 1.0], [5.0, 0.0]], 10, axis=0)
    centres, groups = group_points(x, np.ones(30), 8)
    assert_array_equal(np.sort(centres, axis=0), np.sort(np.unique(x, axis=0), axis=0))
    assert_array_equal(centres[groups], x)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
@pytest.mark.parametrize("kind", [np.float32, sparse.csr_matrix], ids=["float32", "sparse"])
def test_float32_and_sparse_points_are_taken(options, kind):
    D = cohort(np.random.default_rng(0), [9, 14, 12], 6)
    other = gm.Distributions(kind(D.points), np.repeat(D.names, D.sizes))
    assert_allclose(gm.pairwise_distances(other, **options), gm.pairwise_distances(D, **options), rtol=1e-3)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_a_learned_metric_is_that_of_projected_points(options):
    D = cohort(np.random.default_rng(0), [9, 14, 12], 6)
    metric = gm.GroundMetric(np.random.default_rng(1).normal(size=(2, 6)))
    projected = gm.Distributions(metric.project(D.points), np.repeat(D.names, D.sizes))
    assert_allclose(
        gm.pairwise_distances(D, metric=metric, **options), gm.pairwise_distances(projected, **options), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["sliced", "gaussian", "coarse"])
def test_solvers_on_points_refuse_other_distances(name):
    D = cohort(np.random.default_rng(0), [9, 14], 6)
    blend = gm.GroundMetric(np.eye(6)).blend(gm.GroundMetric.euclidean(6))
    for metric in ("cityblock", blend):
        with pytest.raises(ValueError, match="needs a Euclidean distance"):
            gm.pairwise_distances(D, metric=metric, **ALL[name])


@pytest.mark.parametrize("options", [ALL["partial"], ALL["unbalanced"], ALL["entropic"]])
def test_solvers_on_costs_take_any_distance(options):
    D = cohort(np.random.default_rng(0), [9, 14], 6)
    blend = gm.GroundMetric(np.eye(6)).blend(gm.GroundMetric.euclidean(6))
    plain = gm.pairwise_distances(D, **options)
    assert_allclose(gm.pairwise_distances(D, metric=blend, **options), plain, rtol=1e-9)
    assert gm.pairwise_distances(D, metric="cityblock", **options)[0, 1] > 0


def test_auto_says_what_it_picked(capsys):
    D = cohort(np.random.default_rng(0), [60, 70], 2)
    details = gm.transport.pairwise(D, solver="auto")
    assert details.solver == gm.transport.Exact()
    assert details.gap == 0.0
    details = gm.transport.pairwise(D, solver="auto", seconds=1e-9, verbose=1)
    distances = details.distances
    assert isinstance(details.solver, gm.transport.Coarse)
    assert "would take" in details.reason
    message = capsys.readouterr().err
    assert "coarse(n_groups=30" in message
    assert f"error at most {details.gap:.3g}" in message
    assert np.abs(distances - gm.pairwise_distances(D)).max() <= details.gap


def test_auto_is_exact_where_points_cannot_be_grouped():
    D = cohort(np.random.default_rng(0), [20, 30], 2)
    details = gm.transport.pairwise(D, None, "cityblock", solver="auto", seconds=1e-9)
    distances = details.distances
    assert details.solver == gm.transport.Exact()
    assert "can be grouped" in details.reason
    assert_array_equal(distances, gm.pairwise_distances(D, metric="cityblock"))


def test_exact_details_are_tight():
    D = cohort(np.random.default_rng(0), [9, 14, 12], 40, "both")
    for metric in ("euclidean", "cityblock", gm.GroundMetric(np.eye(40)[:2])):
        details = gm.transport.pairwise(D, metric=metric)
        distances = details.distances
        assert details.statuses == {Status.OPTIMAL: 3}
        assert_allclose(details.lower, distances, rtol=1e-9)


@pytest.mark.parametrize("make", [lambda x: x, sparse.csr_matrix], ids=["dense", "sparse"])
def test_coarsened_cohorts_keep_means_and_their_radii_bound_the_change(make):
    rng = np.random.default_rng(0)
    complete = cohort(rng, [50, 5, 80], 30, "both")
    D = gm.Distributions(make(complete.points), np.repeat(["a", "b", "c"], complete.sizes), weights=complete.weights)
    coarse = gm.transport.coarsen(D, 10)
    small = coarse.distributions
    assert small.names == ["a", "b", "c"]
    assert (small.sizes <= 10).all()
    assert_allclose(small.means(), D.means(), rtol=1e-9, atol=1e-12)
    metric = gm.GroundMetric(rng.normal(size=(2, 30)))
    radii = coarse.radii(metric)
    assert_allclose(radii[1], 0.0, atol=1e-12)
    change = np.abs(gm.pairwise_distances(small, metric=metric) - gm.pairwise_distances(D, metric=metric))
    assert (change <= radii[:, None] + radii + 1e-9).all()
    assert_allclose(gm.transport.coarsen(D, 100).distributions.means(), D.means())


def test_coarsening_is_for_whole_numbers_of_groups_and_real_metrics():
    D = cohort(np.random.default_rng(0), [20, 30], 2)
    with pytest.raises(ParameterError) as caught:
        gm.transport.coarsen(D, 0.5)
    assert (caught.value.parameter, caught.value.value) == ("n_groups of solver 'coarse'", 0.5)
    with pytest.raises(ValueError, match="not squared"):
        gm.transport.coarsen(D, 5).radii(gm.GroundMetric(np.eye(2), cost="squared"))


def test_a_learner_takes_a_coarsened_cohort():
    D, y = gm.datasets.synth_2d(random_state=0)
    small = gm.transport.coarsen(D, 20).distributions
    metric = gm.GroundMetricLearner(max_epochs=10, random_state=0).fit(small, y).metric_
    assert metric.importance()[0] > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "coarse", "cost": "manhattan"}, "cost is 'manhattan'"),
        ({"solver": "coarse", "n_groups": 0}, "n_groups of solver 'coarse' is 0"),
        ({"solver": "coarse", "tolerance": 0.1}, "tolerance is for the exact solver"),
        ({"solver": "coarse", "a": [1.0, 1.0]}, "do not balance"),
        ({"solver": POT(ot.solve_sample), "x": [[1.0, 2.0, 3.0]]}, "x has 3 columns, y has 2"),
    ],
)
def test_bad_points_and_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gm.transport.solve_points(**{"x": np.zeros((2, 2)), "y": np.ones((3, 2)), **arguments})
