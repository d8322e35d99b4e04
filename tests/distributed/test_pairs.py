"""Parts of a distance matrix equal the complete matrix bit by bit, in any process, for every solver and cost."""

import pickle

import joblib
import numpy as np
import pytest
from joblib._parallel_backends import LokyBackend
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric._internal.parallel import JoblibBackend, Threads
from groundmetric.metrics.base import Cost
from groundmetric.transport import Coarse, Partial, Status, pairs
from groundmetric.transport import cohort as cohorts
from groundmetric.transport.cohort import ExactPairs, SolverPairs, clouds_of, solve_pairs
from groundmetric.transport.problem import Masses


class ShuffledBackend:
    """Backend that pickles tasks, as a cluster does, and runs them in another order."""

    def __init__(self):
        self.n_tasks = 0

    def run(self, function, tasks):
        for number in np.random.default_rng(0).permutation(len(tasks)):
            self.n_tasks += 1
            yield number, pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(tasks[number])))))


def solved_locally_and_by_backend(task):
    """Solve in this process and by a backend, require equal results, and return them."""
    backend, results, seen = ShuffledBackend(), [], []
    with Threads(1) as threads:
        for where in (None, backend):
            seen.append([])

            def record(selected, part, seen=seen[-1]):
                seen.extend(zip(selected, part.values, strict=True))

            results.append(solve_pairs(task, threads, where, done=lambda count: None, on_results=record))
    assert backend.n_tasks > 4
    for name in results[0].dtype.names:
        assert_array_equal(results[0][name], results[1][name])
    assert sorted(seen[0]) == sorted(seen[1]) == list(enumerate(results[0].values))
    return results[0]


def exact_pairs(D, *, cost=Cost.EUCLIDEAN, max_pivots=None, dense_limit=np.inf):
    first, second = np.triu_indices(len(D), 1)
    return ExactPairs(Masses.of(D), D.points, first, second, cost, max_pivots, 0, dense_limit)


@pytest.mark.parametrize("cost", list(Cost))
@pytest.mark.parametrize("max_pivots", [None, 3])
def test_parts_give_the_bits_of_the_whole(eager, cohort, cost, max_pivots):
    results = solved_locally_and_by_backend(exact_pairs(cohort, cost=cost, max_pivots=max_pivots))
    assert set(results.status) == {Status.OPTIMAL if max_pivots is None else Status.PIVOT_LIMIT}


def test_large_pairs_need_no_matrix_of_costs_on_workers_either(eager, cohort, monkeypatch):
    usual = solved_locally_and_by_backend(exact_pairs(cohort))

    def refuse(self, selected, enough):
        assert not selected.size, "a matrix of costs was made"

    monkeypatch.setattr(pairs.PairTransport, "_solve_dense", refuse)
    large = solved_locally_and_by_backend(exact_pairs(cohort, dense_limit=40 * 40 - 1))
    np.testing.assert_allclose(large.values, usual.values, rtol=1e-12)


@pytest.mark.parametrize("solver", [Partial(share=0.7), Coarse(5)])
def test_any_solver_gives_the_bits_of_the_whole(eager, cohort, solver):
    clouds, distances = clouds_of(gm.GroundMetric.euclidean(3), (cohort,), dense=True)
    prepared = [solver.prepare(cloud, distances) for cloud in clouds]
    pairs_of_solver = SolverPairs(solver, distances, prepared, cohort.sizes, *np.triu_indices(len(cohort), 1))
    results = solved_locally_and_by_backend(pairs_of_solver)
    assert (results.lower <= results.upper).all()


def test_little_work_stays_here(cohort):
    backend = ShuffledBackend()
    with Threads(1) as threads:
        solve_pairs(exact_pairs(cohort), threads, backend, done=lambda n: None, on_results=lambda selected, part: None)
    assert backend.n_tasks == 0
    assert cohorts._SECONDS >= 1.0


def test_every_pair_is_counted_once(eager, cohort):
    for backend in (None, ShuffledBackend()):
        counts = []
        with Threads(1) as threads:
            solve_pairs(
                exact_pairs(cohort), threads, backend, done=counts.append, on_results=lambda selected, part: None
            )
        assert sum(counts) == 16 * 15 // 2


class Registered(LokyBackend):
    """Third-party backend registered with joblib; like the backend of Ray, it returns all answers at the end."""

    supports_return_generator = False
    submitted = 0

    def submit(self, *arguments, **options):
        Registered.submitted += 1
        return super().submit(*arguments, **options)


def test_processes_and_registered_backends_give_the_serial_bits(eager, cohort):
    joblib.register_parallel_backend("registered", Registered)
    serial = gm.pairwise_distances(cohort, n_jobs=1)
    for backend in ("loky", "registered"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            assert_array_equal(gm.pairwise_distances(cohort), serial)
    assert Registered.submitted > 1


def test_learning_stays_in_this_process(cohort, monkeypatch):
    monkeypatch.setattr(JoblibBackend, "run", None)
    options = {"max_epochs": 1, "n_neighbors": 2, "random_state": 0}
    with joblib.parallel_config(backend="loky", n_jobs=2):
        learner = gm.GroundMetricLearner(**options).fit(cohort, np.arange(16) % 2)
    assert_array_equal(
        learner.components_, gm.GroundMetricLearner(**options).fit(cohort, np.arange(16) % 2).components_
    )
