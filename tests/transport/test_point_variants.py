"""Variants between points and between cohorts: bounds that hold, limits that are reached, the same for any threads."""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning

import groundmetric as gm
from groundmetric.transport import Status
from groundmetric.transport.solvers.coarse import group_points

from .cohorts import ALL_WEIGHTS, cohort

VARIANTS = {
    "entropic": {"epsilon": 0.3},
    "debiased": {"solver": "entropic", "epsilon": 0.3, "debiased": True},
    "sliced": {"n_projections": 20},
    "gaussian": {},
    "mixture": {"n_components": 4},
    "coarse": {"n_groups": 5},
    "auto": {"seconds": 1e-9},
}
OTHER_PROBLEMS = {"partial": {"share": 0.7}, "unbalanced": {"price": 0.8}}
ALL = {name: {"solver": name, **options} for name, options in {**VARIANTS, **OTHER_PROBLEMS}.items()}
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
    details = gm.bounded_distances(D, **options)
    distances = details.values
    assert (details.lower <= exact + 1e-9).all()
    assert (exact <= details.upper + 1e-9).all()
    assert np.abs(distances - exact).max() <= details.gap + 1e-9
    assert_array_equal(details.values, distances)


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


@pytest.mark.parametrize("name", ["entropic", "debiased", "gaussian", "mixture", "coarse", "auto"])
def test_single_points_are_at_their_distance(name):
    x, y = points(n=3, m=4)
    assert_allclose(gm.pairwise_distances(x, y, **ALL[name]), cdist(x, y), rtol=1e-9)


@pytest.mark.parametrize("name", ["debiased", "sliced", "gaussian", "mixture", "coarse"])
def test_equal_distributions_are_at_no_distance(name):
    x, _ = points()
    assert gm.transport.solve_points(x, x, **ALL[name]).value <= 1e-4


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", ["sliced", "gaussian", "mixture", "coarse"])
def test_units_do_not_matter(name, scale):
    x, y = points()
    plain, scaled = (gm.transport.solve_points(s * x, s * y, **ALL[name]) for s in (1.0, scale))
    assert_allclose(scaled.value, scale * plain.value, rtol=1e-7)
    assert_allclose(scaled.bounds, scale * np.array(plain.bounds), rtol=1e-7)


@pytest.mark.parametrize("name", ["mixture", "coarse", "debiased"])
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


def test_sliced_is_at_most_exact_and_exact_on_a_line():
    x, y = points(k=1)
    assert_allclose(
        gm.transport.solve_points(x, y, solver="sliced").value, gm.transport.solve(cdist(x, y)).value, rtol=1e-12
    )
    x, y = points(k=4)
    plan = gm.transport.solve_points(x, y, solver="sliced", n_projections=200)
    assert plan.value <= plan.bounds[0] <= gm.transport.solve(cdist(x, y)).value


def test_sliced_takes_the_directions_of_its_random_state():
    x, y = points()
    values = [gm.transport.solve_points(x, y, solver="sliced", random_state=seed).value for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert_allclose(values[0], ot.sliced_wasserstein_distance(x, y, p=1, seed=np.random.RandomState(0)), rtol=1e-12)


def test_gaussian_is_the_bures_distance_of_pot():
    x, y = points()
    x = x * [1.0, 3.0, 0.2]
    moments = x.mean(0), y.mean(0), np.cov(x.T, bias=True), np.cov(y.T, bias=True)
    expected = ot.gaussian.bures_wasserstein_distance(*moments)
    assert_allclose(gm.transport.solve_points(x, y, solver="gaussian").value, expected, rtol=1e-9)


def test_gaussian_of_shifted_and_stretched_points_is_the_closed_form():
    x, _ = points()
    x = x - x.mean(axis=0)
    spread = np.cov(x.T, bias=True).trace()
    plan = gm.transport.solve_points(x, 3.0 * x + [2.0, 0.0, 1.0], solver="gaussian")
    assert_allclose(plan.value, np.sqrt(5.0 + 2.0**2 * spread), rtol=1e-9)


@pytest.mark.parametrize("n_points", [1, 2, 3])
def test_gaussians_of_few_points_have_covariances_without_full_rank(n_points):
    x, y = points(n=n_points, m=40, k=5)
    steps = (x - x.mean(axis=0)) / np.sqrt(n_points), (y - y.mean(axis=0)) / np.sqrt(40)
    # tr (S^½ S' S^½)^½ is the sum of the singular values of the product of any factors of S and S'.
    shared = np.linalg.svd(steps[0] @ steps[1].T, compute_uv=False).sum()
    squared = np.sum((x.mean(0) - y.mean(0)) ** 2) + np.sum(steps[0] ** 2) + np.sum(steps[1] ** 2) - 2.0 * shared
    assert_allclose(gm.transport.solve_points(x, y, solver="gaussian").value, np.sqrt(squared), rtol=1e-3)


def test_one_component_is_a_gaussian_and_one_per_point_the_second_order_distance():
    x, y = points()
    one = gm.transport.solve_points(x, y, solver="mixture", n_components=1).value
    assert_allclose(one, gm.transport.solve_points(x, y, solver="gaussian").value, rtol=1e-9)
    all_of_them = gm.transport.solve_points(x, y, solver="mixture", n_components=40).value
    assert_allclose(all_of_them, np.sqrt(gm.transport.solve(cdist(x, y) ** 2).value), rtol=1e-9)


def test_gaussian_bounds_the_second_order_distance_from_below():
    x, y = points()
    second = np.sqrt(gm.transport.solve(cdist(x, y) ** 2).value)
    assert gm.transport.solve_points(x, y, solver="gaussian").value <= second


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


def test_debiased_divergence_tends_to_exact_and_is_that_of_pot():
    x, y = points()
    exact = gm.transport.solve(cdist(x, y)).value
    values = [
        gm.transport.solve_points(x, y, solver="entropic", debiased=True, epsilon=epsilon, tol=1e-7).value
        for epsilon in (1.0, 0.1, 0.01)
    ]
    assert_allclose(values[-1], exact, rtol=0.01)
    a, b = np.full(40, 1 / 40), np.full(33, 1 / 33)

    def entropic(p, q, cost):
        plan = ot.sinkhorn(p, q, cost, 0.1, method="sinkhorn_log", stopThr=1e-7, numItermax=2000, warn=False)
        return np.sum(plan * cost) + 0.1 * np.sum(plan * np.log(plan / np.outer(p, q)))

    own = entropic(a, a, cdist(x, x)) + entropic(b, b, cdist(y, y))
    assert_allclose(values[1], entropic(a, b, cdist(x, y)) - own / 2, rtol=1e-4)


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


@pytest.mark.parametrize("name", ["sliced", "gaussian", "mixture", "coarse"])
def test_solvers_on_points_refuse_other_distances(name):
    D = cohort(np.random.default_rng(0), [9, 14], 6)
    blend = gm.GroundMetric(np.eye(6)).blend(gm.GroundMetric.euclidean(6))
    for metric in ("cityblock", blend):
        with pytest.raises(ValueError, match=f"solver '{name}' needs a Euclidean distance"):
            gm.pairwise_distances(D, metric=metric, solver=name)


@pytest.mark.parametrize("options", [ALL["partial"], ALL["unbalanced"], ALL["entropic"], ALL["debiased"]])
def test_solvers_on_costs_take_any_distance(options):
    D = cohort(np.random.default_rng(0), [9, 14], 6)
    blend = gm.GroundMetric(np.eye(6)).blend(gm.GroundMetric.euclidean(6))
    plain = gm.pairwise_distances(D, **options)
    assert_allclose(gm.pairwise_distances(D, metric=blend, **options), plain, rtol=1e-9)
    assert gm.pairwise_distances(D, metric="cityblock", **options)[0, 1] > 0


def test_auto_says_what_it_picked(capsys):
    D = cohort(np.random.default_rng(0), [60, 70], 2)
    details = gm.bounded_distances(D, solver="auto")
    assert details.solver == gm.transport.Exact()
    assert details.gap == 0.0
    details = gm.bounded_distances(D, solver="auto", seconds=1e-9, verbose=1)
    distances = details.values
    assert isinstance(details.solver, gm.transport.Coarse)
    assert "would take" in details.reason
    said = capsys.readouterr().err
    assert "coarse(n_groups=30" in said
    assert f"error at most {details.gap:.3g}" in said
    assert np.abs(distances - gm.pairwise_distances(D)).max() <= details.gap


def test_auto_is_exact_where_points_cannot_be_grouped():
    D = cohort(np.random.default_rng(0), [20, 30], 2)
    details = gm.bounded_distances(D, None, "cityblock", solver="auto", seconds=1e-9)
    distances = details.values
    assert details.solver == gm.transport.Exact()
    assert "no groups" in details.reason
    assert_array_equal(distances, gm.pairwise_distances(D, metric="cityblock"))


def test_unfinished_iterations_warn():
    D = cohort(np.random.default_rng(0), [20, 30], 2)
    with pytest.warns(ConvergenceWarning, match="1 solves stopped before the masses fitted"):
        gm.pairwise_distances(D, solver="entropic", epsilon=1e-3, max_iter=2)


def test_exact_details_are_tight():
    D = cohort(np.random.default_rng(0), [9, 14, 12], 40, "both")
    for metric in ("euclidean", "cityblock", gm.GroundMetric(np.eye(40)[:2])):
        details = gm.bounded_distances(D, metric=metric)
        distances = details.values
        assert details.statuses == {Status.OPTIMAL: 3}
        assert_allclose(details.lower, distances, rtol=1e-9)


@pytest.mark.parametrize("make", [lambda x: x, sparse.csr_matrix], ids=["dense", "sparse"])
def test_coarsened_cohorts_keep_means_and_their_radii_bound_the_change(make):
    rng = np.random.default_rng(0)
    whole = cohort(rng, [50, 5, 80], 30, "both")
    D = gm.Distributions(make(whole.points), np.repeat(["a", "b", "c"], whole.sizes), weights=whole.weights)
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
    with pytest.raises(ValueError, match=r"n_groups of solver 'coarse' is 0\.5"):
        gm.transport.coarsen(D, 0.5)
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
        ({"solver": "sliced", "n_projections": 1.5}, "a whole number"),
        ({"solver": "sliced", "tolerance": 0.1}, "tolerance is for the exact solver"),
        ({"solver": "gaussian", "a": [1.0, 1.0]}, "do not balance"),
        ({"solver": "mixture", "x": [[1.0, 2.0, 3.0]]}, "x has 3 columns, y has 2"),
    ],
)
def test_bad_points_and_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gm.transport.solve_points(**{"x": np.zeros((2, 2)), "y": np.ones((3, 2)), **arguments})
