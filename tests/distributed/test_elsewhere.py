"""Pairs solved by workers: the bits of one process, whatever the workers forget."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric._internal.executor import Threads
from groundmetric.metrics.cost import Cost
from groundmetric.transport import messages as batches
from groundmetric.transport import pairs as pairs_module
from groundmetric.transport.messages import KeptBases, PackedBases
from groundmetric.transport.pairs import PairTransport
from groundmetric.transport.problem import Masses

from .places import pretended

SIZES = [1, 9, 4, 12, 7, 1, 6, 20]


def cohort(weights="equal", k=2, sizes=SIZES):
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    masses = np.ones(owner.size) if weights == "equal" else rng.uniform(0.1, 1.0, owner.size)
    if weights == "both":
        masses[owner % 2 == 0] = 1.0
    return gm.Distributions(rng.normal(size=(owner.size, k)) + owner[:, None] % 3, owner, weights=masses)


def transport(D, threads, **options):
    return PairTransport(Masses.of(D), *np.triu_indices(len(D), 1), D.shape[1], threads=threads, **options)


def walk_together(D, here, there, n_steps=6):
    """Move and solve both in the same way; after each step all that can be asked must be the same."""
    rng = np.random.default_rng(1)
    points = D.points.copy()
    for step in range(n_steps):
        points = points + 10.0 ** -(step % 4) * rng.normal(size=points.shape)
        which = np.sort(rng.permutation(here.first.size)[: rng.integers(1, here.first.size)])
        coefficient = rng.normal(size=which.size)
        for pairs in (here, there):
            pairs.move_all(points)
        everything = np.arange(here.first.size)
        assert_array_equal(there.upper(everything), here.upper(everything))
        assert_array_equal(there.lower(everything), here.lower(everything))
        assert_array_equal(there.solve(which), here.solve(which))
        assert_array_equal(there.answers.pivots, here.answers.pivots)
        assert_array_equal(there.pull(which, coefficient), here.pull(which, coefficient))


@pytest.mark.parametrize("weights", ["equal", "both", "random"])
@pytest.mark.parametrize("forgetful", [0.0, 0.4])
@pytest.mark.parametrize("remembers", [True, False])
def test_workers_give_the_bits_of_one_process(eager, weights, forgetful, remembers):
    D = cohort(weights)
    there = transport(D, pretended(forgetful=forgetful, remembers=remembers))
    walk_together(D, transport(D, Threads(1)), there)
    assert there.elsewhere.messages > 6


@pytest.mark.parametrize("cost", list(Cost))
def test_any_cost_and_pivot_limit(eager, cost):
    D = cohort()
    for options in ({"cost": cost}, {"cost": cost, "max_pivots": 3}):
        walk_together(D, transport(D, Threads(1), **options), transport(D, pretended(), **options))


def test_bases_beyond_the_memory_start_cold_here_and_there(eager):
    D = cohort()
    walk_together(D, transport(D, Threads(1), memory=2000.0), transport(D, pretended(), memory=2000.0))


def test_workers_keep_bases_so_that_they_need_not_be_sent(eager):
    D, everything = cohort(), np.arange(28)
    there = transport(D, pretended())
    there.move_all(D.points)
    there.solve(everything)
    first = there.elsewhere.sent
    there.move_all(D.points + 0.01)
    there.solve(everything)
    place = there._threads.place
    assert not any(answer.missing.size for answer in place.answers)
    assert there.elsewhere.sent - first <= first  # nothing but points, as when there was nothing else to send


def test_a_worker_that_was_replaced_is_sent_the_bases(eager):
    D, everything = cohort(), np.arange(28)
    there = transport(D, pretended())
    there.move_all(D.points)
    there.solve(everything)
    place = there._threads.place
    for worker in place.memories:
        place.memories[worker] = KeptBases(1e9)
    there.solve(everything)
    assert sum(answer.missing.size for answer in place.answers) > 0
    assert not there.answers.pivots.any()  # the bases were right: nothing is left to improve


def test_values_alone_come_back_without_plans(eager):
    D, everything = cohort(), np.arange(28)
    here = transport(D, Threads(1), memory=0.0)
    there = transport(D, pretended(), memory=0.0, values_only=True)
    for pairs in (here, there):
        pairs.move_all(D.points)
    assert_array_equal(there.solve(everything), here.solve(everything))
    assert all(answer.bases is None for answer in there._threads.place.answers)


@pytest.fixture
def matrices(monkeypatch):
    """Pairs with more than 45 costs count as large; the numbers of costs for which a worker made room."""
    monkeypatch.setattr(pairs_module, "_LARGE", 45)
    made, inner = [], batches.kernels.solve_pairs

    def solve_pairs(which, first, second, points, bases, max_pivots, buffer, answers):
        made.append(buffer.size)
        inner(which, first, second, points, bases, max_pivots, buffer, answers)

    monkeypatch.setattr(batches.kernels, "solve_pairs", solve_pairs)
    return made


@pytest.mark.parametrize("weights", ["equal", "both", "random"])
@pytest.mark.parametrize("cost", list(Cost))
def test_workers_make_no_matrix_for_large_pairs(eager, matrices, weights, cost):
    D, everything = cohort(weights, k=3), np.arange(28)
    options = {"memory": 0.0, "values_only": True, "cost": cost}
    usual = transport(D, Threads(1), memory=0.0, cost=cost)
    here, there = transport(D, Threads(1), **options), transport(D, pretended(), **options)
    for pairs in (usual, here, there):
        pairs.move_all(D.points)
    expected, usually = here.solve(everything), usual.solve(everything)
    matrices.clear()
    assert_array_equal(there.solve(everything), expected)
    assert there.elsewhere.messages > 6
    assert matrices
    assert max(matrices) <= 45
    assert_array_equal(there.answers.pivots, here.answers.pivots)
    np.testing.assert_allclose(expected, usually, rtol=1e-12)


def test_large_pairs_that_are_not_worth_the_way_need_no_matrix_here_either(matrices):
    D = cohort("both")
    expected = gm.pairwise_distances(D)
    there = transport(D, pretended(), memory=0.0, values_only=True)
    there.move_all(D.points - D.points.mean(axis=0))
    assert_array_equal(there.solve(np.arange(28)), expected[there.first, there.second])
    assert there.elsewhere.messages == 0
    assert max(matrices) <= 45


def test_in_learning_large_pairs_keep_their_bases(eager, matrices):
    D = cohort()
    walk_together(D, transport(D, Threads(1)), transport(D, pretended()))
    assert max(matrices) > 45


def test_little_work_stays_here():
    D = cohort()
    there = transport(D, pretended())
    walk_together(D, transport(D, Threads(1)), there)
    assert there.elsewhere.messages == 0


def test_steps_here_and_steps_there_may_alternate(eager, monkeypatch):
    D = cohort()
    there = transport(D, pretended())
    turns = iter([True, False] * 20)
    monkeypatch.setattr(there.elsewhere, "is_worth", lambda which, warm: next(turns))
    walk_together(D, transport(D, Threads(1)), there, n_steps=10)


def test_a_full_memory_drops_what_was_kept_longest():
    basis = PackedBases(np.zeros(10, np.int32), np.zeros(1))
    kept = KeptBases(3 * basis.n_bytes)
    for pair in range(5):
        kept.put("s", pair, 1, basis)
    assert [pair for pair in range(5) if kept.get("s", pair, 1) is not None] == [2, 3, 4]
    assert kept.get("s", 4, 2) is None  # another step's
    kept.forget("s")
    assert len(kept) == 0


def test_a_state_brings_back_everything_that_answers_depend_on():
    for options in ({}, {"memory": 2000.0}):
        D = cohort("both")
        here, later = transport(D, Threads(1), **options), transport(D, Threads(1), **options)
        walk_together(D, here, transport(D, Threads(1), **options))
        later.restore({name: array.copy() for name, array in here.state().items()})
        walk_together(D, here, later)
