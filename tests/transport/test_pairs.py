"""Values of many pairs with moving points do not depend on the moves, the memory and the threads."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import wasserstein_distance

import groundmetric as gm
from groundmetric._internal.parallel import Threads
from groundmetric.metrics.base import Cost
from groundmetric.transport import pairs as module
from groundmetric.transport import problem
from groundmetric.transport.pairs import LineTransport, PairTransport
from groundmetric.transport.problem import Masses

from .cohorts import ALL_WEIGHTS, all_pairs, block, cohort, everything, one_by_one, placed, transport, walk

SIZES = [1, 9, 4, 12, 7, 1, 6]


@pytest.fixture(params=[(k, weights) for k in (1, 2, 5) for weights in ALL_WEIGHTS], ids=lambda p: f"{p[1]}-{p[0]}d")
def D(request):
    k, weights = request.param
    return cohort(np.random.default_rng(k), SIZES, k, weights)


def test_values_are_those_of_single_solves(D):
    pairs = transport(D)
    assert_allclose(pairs.solve(everything(pairs)), one_by_one(D), rtol=1e-12)
    assert pairs.answers.optimal.all()


def test_only_the_pairs_asked_for_are_solved_and_in_that_order(D):
    pairs, selected = transport(D), np.array([13, 2, 7])
    assert_allclose(pairs.solve(selected), one_by_one(D)[selected], rtol=1e-12)
    assert_array_equal(np.flatnonzero(np.isfinite(pairs.answers.value)), np.sort(selected))


def test_warm_values_are_those_of_fresh_transport(D):
    pairs = transport(D)
    for points in walk(np.random.default_rng(1), D, 8):
        pairs.move_all(points)
        assert_allclose(pairs.solve(everything(pairs)), one_by_one(D, points), rtol=1e-12)


@pytest.mark.parametrize("order", [np.asfortranarray, lambda z: np.repeat(z, 2, axis=0)[::2], np.float32])
def test_points_may_lie_in_any_order_and_precision(D, order):
    points = np.round(D.points, 2).astype(np.float32).astype(np.float64)
    values = []
    for z in (points, order(points)):
        pairs = transport(D)
        pairs.move_all(z)
        values.append(pairs.solve(everything(pairs)))
    assert_array_equal(*values)


def test_moving_one_distribution_moves_only_its_own_pairs(D):
    pairs = transport(D)
    before = pairs.solve(everything(pairs)).copy()
    pairs.move(3, block(D, 3)[0] + 5.0)
    after = pairs.solve(everything(pairs))
    concerned = (pairs.first == 3) | (pairs.second == 3)
    assert_allclose(after[~concerned], before[~concerned], rtol=1e-14)
    assert (np.abs(after - before)[concerned] > 1e-3).all()


def test_asking_for_no_pairs_gives_nothing(D):
    pairs, none = transport(D), np.empty(0, np.int64)
    assert pairs.solve(none).size == pairs.lower(none).size == pairs.upper(none).size == 0
    assert_array_equal(pairs.pull(none, np.empty(0)), np.zeros(D.points.shape))


def test_solving_again_without_a_move_takes_no_pivots(D):
    pairs = transport(D)
    first = pairs.solve(everything(pairs)).copy()
    assert_array_equal(pairs.solve(everything(pairs)), first)
    assert not pairs.answers.pivots.any()


def test_scaling_all_points_scales_the_values(D):
    pairs = transport(D)
    values = pairs.solve(everything(pairs)).copy()
    pairs.move_all(3.0 * D.points)
    assert_allclose(pairs.solve(everything(pairs)), 3.0 * values, rtol=1e-12)


def test_values_do_not_depend_on_memory(D):
    bytes_for_some = 20 * 60
    by_memory = [transport(D, memory=memory) for memory in (0.0, bytes_for_some, 2e9)]
    rng = np.random.default_rng(2)
    for points in walk(rng, D, 6):
        selected = rng.permutation(everything(by_memory[0]))[: rng.integers(1, 21)]
        for pairs in by_memory:
            pairs.move_all(points)
        without_memory, little_memory, large_memory = (pairs.solve(selected) for pairs in by_memory)
        assert_allclose(without_memory, large_memory, rtol=1e-12)
        assert_allclose(little_memory, large_memory, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2])
def test_threads_give_the_serial_values_bit_for_bit(k):
    rng = np.random.default_rng(0)
    D = cohort(rng, rng.integers(250, 400, 9), k, "both")  # more than one batch of work
    serial, threaded = transport(D), transport(D, n_jobs=3)
    for points in walk(rng, D, 2):
        for pairs in (serial, threaded):
            pairs.move_all(points)
            pairs.solve(everything(pairs))
        assert_array_equal(threaded.answers.value, serial.answers.value)
        assert_array_equal(threaded.answers.pivots, serial.answers.pivots)


def test_line_transport_is_scipy_s():
    D = cohort(np.random.default_rng(0), SIZES, 1, "both")
    pairs = transport(D)
    for value, d, e in zip(pairs.solve(everything(pairs)), *all_pairs(D), strict=True):
        (x, a), (y, b) = block(D, d), block(D, e)
        assert_allclose(value, wasserstein_distance(x[:, 0], y[:, 0], a, b), rtol=1e-12)


def test_line_transport_is_pair_transport_in_one_dimension():
    D = cohort(np.random.default_rng(0), SIZES, 1, "both")
    line = transport(D)
    pairs = PairTransport(Masses.of(D), *all_pairs(D), 1, threads=Threads(1))
    pairs.move_all(D.points)
    assert isinstance(line, LineTransport)
    assert_allclose(line.solve(everything(line)), pairs.solve(everything(line)), rtol=1e-12)


def test_pivot_limit_is_noted_and_the_value_bounds_from_above():
    D = cohort(np.random.default_rng(0), [20, 30, 25], 2)
    stopped = transport(D, max_pivots=1)
    values = stopped.solve(everything(stopped))
    assert not stopped.answers.optimal.any()
    assert (values > one_by_one(D)).all()


def test_large_pairs_need_no_matrix_and_have_the_same_values(monkeypatch):
    random = np.random.RandomState(0)
    D = gm.Distributions(random.normal(size=(130, 3)), np.repeat([0, 1, 2], [50, 40, 40]), weights=random.rand(130))
    usual = gm.pairwise_distances(D)
    monkeypatch.setattr(module, "DENSE_LIMIT", 45 * 40)  # the pairs with the first distribution
    monkeypatch.setattr(
        module.PairTransport, "_solve_dense", lambda self, *arguments: _count_small(self, *arguments, usual)
    )
    np.testing.assert_allclose(gm.pairwise_distances(D), usual, rtol=1e-12)


def _count_small(transport, selected, enough, usual):
    assert selected.tolist() == ([2] if selected.size else [])
    for pair in selected:
        transport.answers.value[pair] = usual[transport.first[pair], transport.second[pair]]


@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_pairs_of_very_many_points_and_few_are_turned(weights, monkeypatch):
    D = cohort(np.random.default_rng(0), [90, 4, 5, 80], 2, weights)
    plain = transport(D)
    values = plain.solve(everything(plain)).copy()
    coefficient = np.linspace(-1.0, 1.0, values.size)
    monkeypatch.setattr(problem, "_MANY", 20)
    turned = transport(D)
    assert (turned.first != plain.first).any()
    assert_allclose(turned.solve(everything(turned)), values, rtol=1e-12)
    pulls = [pairs.pull(everything(pairs), coefficient) for pairs in (plain, turned)]
    assert_allclose(*pulls, atol=1e-12)


def test_learning_from_very_many_points_is_refused_but_distances_are_not(monkeypatch):
    monkeypatch.setattr(module, "_MOST_POINTS", 20)
    D = cohort(np.random.default_rng(0), [30, 5, 3], 2)
    with pytest.raises(
        ValueError, match=r"distribution 0 has 30 points, and learning takes up to 20; .*subsample\(1000\)"
    ):
        transport(D)
    assert gm.pairwise_distances(D).shape == (3, 3)
    assert transport(D, pairs=(np.array([1]), np.array([2]))).solve(np.array([0])).size == 1


def test_pairs_that_no_memory_holds_are_refused_before_the_work_begins(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 100)
    D = cohort(np.random.default_rng(0), [30, 5, 3], 2)
    with pytest.raises(ValueError, match=r"distributions 0 and 1 have 30 and 5 points: .*subsample\(1000\)"):
        transport(D)
    assert transport(D, pairs=(np.array([1]), np.array([2]))).solve(np.array([0])).size == 1


def walk_together(D, first, second, n_steps=6):
    """Move and solve two transports in the same way; after each step, all their results must have the same bits."""
    rng = np.random.default_rng(1)
    for points in walk(rng, D, n_steps):
        selected = np.sort(rng.permutation(everything(first))[: rng.integers(1, first.first.size)])
        coefficient = rng.normal(size=selected.size)
        for pairs in (first, second):
            pairs.move_all(points)
        assert_array_equal(second.upper(everything(first)), first.upper(everything(first)))
        assert_array_equal(second.lower(everything(first)), first.lower(everything(first)))
        assert_array_equal(second.solve(selected), first.solve(selected))
        assert_array_equal(second.answers.pivots, first.answers.pivots)
        assert_array_equal(second.pull(selected, coefficient), first.pull(selected, coefficient))


@pytest.mark.parametrize("weights", ALL_WEIGHTS)
@pytest.mark.parametrize("memory", [2e9, 20 * 60, 0.0])
def test_a_restored_state_brings_back_all_that_answers_depend_on(weights, memory):
    D = cohort(np.random.default_rng(0), SIZES, 2, weights)
    unbroken, restored = transport(D, memory=memory), transport(D, memory=memory)
    walk_together(D, unbroken, transport(D, memory=memory))
    restored.restore({name: array.copy() for name, array in unbroken.state().items()})
    walk_together(D, unbroken, restored)


def test_bases_beyond_the_memory_start_cold_and_the_others_warm():
    D = cohort(np.random.default_rng(0), SIZES, 2)
    pairs = transport(D, memory=20 * 60)  # 20 bytes for each node of a basis
    sizes = np.diff(D.bounds)
    fits = np.cumsum(sizes[pairs.first] + sizes[pairs.second] + 1) <= 60
    assert 0 < fits.sum() < fits.size
    cold = transport(D, memory=0.0)
    for _ in range(2):
        for solved in (pairs, cold):
            solved.move_all(D.points)
            solved.solve(everything(solved))
    assert not pairs.answers.pivots[fits].any()
    assert_array_equal(pairs.answers.pivots[~fits], cold.answers.pivots[~fits])
    assert cold.answers.pivots[~fits].any()


def test_bases_beyond_the_memory_last_until_points_move():
    D = cohort(np.random.default_rng(0), SIZES, 2)
    stored, unstored = transport(D), transport(D, memory=0.0)
    stored.solve(everything(stored))
    for selected in (everything(unstored)[::2], everything(unstored)[1::2]):
        unstored.solve(selected)
    coefficient = np.linspace(-1.0, 1.0, everything(stored).size)
    assert_array_equal(unstored.pull(everything(unstored), coefficient), stored.pull(everything(stored), coefficient))


@pytest.mark.parametrize("cost", list(Cost))
@pytest.mark.parametrize("k", [2, 40])
def test_values_are_left_out_only_where_they_are_certainly_enough(cost, k):
    random = np.random.default_rng(k)
    D = cohort(random, [30, 25, 40, 30], k, "both")
    pairs, left_out = transport(D, cost=cost), 0
    pairs.solve(everything(pairs))
    for points in walk(random, D, 12):
        values = placed(D, points, cost=cost).solve(everything(pairs))
        pairs.move_all(points)
        enough = values * random.uniform(0.5, 1.0 + 1e-6, values.size)
        results = pairs.solve(everything(pairs), enough)
        certain = np.isinf(results)
        assert (values[certain] >= enough[certain] * (1 - 1e-12)).all()
        assert_allclose(results[~certain], values[~certain], rtol=1e-12)
        assert_array_equal(pairs.answers.bound, certain)
        assert (pairs.lower(everything(pairs)) <= values * (1 + 1e-12)).all()
        left_out += certain.sum()
    assert left_out > 20


@pytest.mark.parametrize("cost", list(Cost))
@pytest.mark.parametrize("size", [150, 420])  # float32 and int16 rough costs
def test_a_solve_stops_between_rounds_and_continues_from_its_basis(cost, size):
    D = cohort(np.random.default_rng(size), [size, size], 3)
    whole, pairs = transport(D, cost=cost), transport(D, cost=cost)
    values = whole.solve(everything(whole))
    assert np.isinf(pairs.solve(everything(pairs), 0.9 * values)).all()
    assert (pairs.lower(everything(pairs)) >= 0.9 * values).all()
    assert (pairs.lower(everything(pairs)) <= values).all()
    assert (pairs.upper(everything(pairs)) >= values * (1 - 1e-12)).all()
    assert_allclose(pairs.solve(everything(pairs)), values, rtol=1e-12)
    assert (pairs.answers.pivots < whole.answers.pivots).all()


@pytest.mark.parametrize("scale", [1e-130, 1e-6, 1e6, 1e140])
def test_what_is_certain_does_not_depend_on_the_units(scale):
    D = cohort(np.random.default_rng(0), [12, 15, 9], 3)
    skipped = []
    for unit in (1.0, scale):
        pairs = transport(D)
        pairs.move_all(D.points * unit)
        values = pairs.solve(everything(pairs)).copy()
        pairs.move_all(D.points * unit * 1.01)
        skipped.append(np.isinf(pairs.solve(everything(pairs), values * np.array([0.9, 1.0, 1.2]))))
    assert_array_equal(*skipped)
    assert skipped[0].tolist() == [True, True, False]
