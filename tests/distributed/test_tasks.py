"""Tasks on processes equal those of one process, also if workers are killed, fail, are missing or differ in version."""

import os
import signal
import sys
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric._internal import parallel
from groundmetric._internal.parallel import (
    ClusterWarning,
    DaskBackend,
    JoblibBackend,
    OtherVersionError,
    Threads,
    configured_backend,
    run_tasks,
)
from groundmetric.transport import cohort as cohorts


def test_a_process_that_dies_or_errs_is_replaced(tmp_path):
    parent_pid = os.getpid()

    def unlucky(task):
        outcome, number = task
        flag = tmp_path / outcome
        if outcome != "fine" and os.getpid() != parent_pid and not flag.exists():
            flag.touch()
            if outcome == "dies":
                os._exit(9)
            raise OSError("out of luck")
        return number

    tasks = [("fine", 0), ("errs", 1), ("dies", 2), ("fine", 3)]
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.warns(ClusterWarning, match="computed again"):
        answers = dict(JoblibBackend(2).run(unlucky, tasks))
    assert answers == {number: number for number in range(4)}


def test_what_fails_in_every_process_is_raised():
    with (
        joblib.parallel_config(backend="loky", n_jobs=2),
        pytest.warns(ClusterWarning, match="ZeroDivisionError"),
        pytest.raises(ZeroDivisionError),
    ):
        dict(JoblibBackend(2).run(lambda task: 1 // task, [0]))


def test_tasks_run_here_or_in_processes():
    assert list(run_tasks(abs, [-1, 2], 1)) == [(0, 1), (1, 2)]
    pids = dict(run_tasks(lambda task: os.getpid(), [0, 1], 2))
    assert os.getpid() not in pids.values()


def test_a_backend_is_used_where_processes_were_asked_for():
    assert configured_backend(2) is None
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert configured_backend() is None
        assert Threads().n_jobs == 2
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert configured_backend() == JoblibBackend(2)
        assert configured_backend(1) is None
        assert Threads().n_jobs == 1


distributed = pytest.importorskip("distributed")
noisy = pytest.mark.filterwarnings("ignore")  # a cluster whose workers are killed logs many warnings


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(silence_logs=50, **options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def serial(cohort):
    return gm.pairwise_distances(cohort, n_jobs=1)


def wait_for_both(client):
    """Wait until the nanny has replaced a killed worker; if that fails, start two new workers."""
    try:
        client.wait_for_workers(2, timeout=60)
    except TimeoutError:
        client.cluster.scale(0)
        time.sleep(1.0)
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=240)


@pytest.fixture
def on_dask(client, eager, monkeypatch):
    """Yield the tasks sent to two workers, and functions to call after a given number of tasks."""
    monkeypatch.setattr(cohorts, "_SECONDS", 5e-4)
    wait_for_both(client)
    sent, actions, inner = [], {}, DaskBackend._submit

    def submit(self, function, task):
        sent.append(task)
        actions.pop(len(sent), lambda: None)()
        return inner(self, function, task)

    monkeypatch.setattr(DaskBackend, "_submit", submit)
    with joblib.parallel_config(backend="dask", client=client):
        yield sent, actions


def kill_a_worker(client):
    """Kill a worker (kill -9); its nanny replaces it.

    Nannies of this process have the process ids: a worker that was killed before could lose a question for its id.
    """
    while not (alive := [nanny for nanny in client.cluster.workers.values() if nanny.is_alive()]):
        time.sleep(0.1)
    os.kill(alive[0].pid, signal.SIGKILL)


def test_a_cluster_gives_the_serial_bits(on_dask, cohort, serial):
    assert_array_equal(gm.pairwise_distances(cohort), serial)  # a task that fails on the workers would give a warning
    assert len(on_dask[0]) > 8


@noisy
def test_workers_are_killed_during_a_distance_matrix(client, on_dask, cohort, serial, tmp_path):
    sent, actions = on_dask
    actions[2] = actions[9] = lambda: kill_a_worker(client)
    assert_array_equal(gm.pairwise_distances(cohort, keep=tmp_path / "d"), serial)
    assert not actions
    assert len(sent) > 8


@noisy
def test_metrics_without_a_projection_and_large_pairs_too(on_dask, cohort, monkeypatch):
    cohort = cohort[:8]
    for metric in ("cityblock", gm.GroundMetric([[1.0, 0.0, 0.0]]).blend(gm.GroundMetric.euclidean(3), 0.5)):
        remote, local = (gm.pairwise_distances(cohort, metric=metric, n_jobs=n) for n in (None, 1))
        assert_array_equal(remote, local)
    n_sent = len(on_dask[0])
    assert n_sent
    monkeypatch.setattr(gm.transport.pairs, "DENSE_LIMIT", 40 * 40 - 1)
    assert_array_equal(gm.pairwise_distances(cohort), gm.pairwise_distances(cohort, n_jobs=1))
    assert len(on_dask[0]) > n_sent


@noisy
def test_one_job_stays_here(on_dask, cohort, serial):
    assert_array_equal(gm.pairwise_distances(cohort, n_jobs=1), serial)
    assert not on_dask[0]


@noisy
def test_few_tasks_are_sent_ahead(client):
    taken = []

    class Slow:
        def __len__(self):
            return 100

        def __getitem__(self, number):
            taken.append(number)
            return number

    answers = DaskBackend(client).run(abs, Slow())
    next(answers)
    assert len(taken) < 20
    answers.close()


@noisy
def test_work_that_is_on_a_worker_already_stays_there(client):
    def backend_inside():
        with joblib.parallel_config(backend="dask"):
            return configured_backend() is None

    assert client.submit(backend_inside).result()


def only_in(pid):
    def function(task):
        if os.getpid() != pid:
            raise OSError("this worker fails")
        return task + 1

    return function


@noisy
def test_what_fails_on_every_worker_is_computed_here(client):
    with pytest.warns(ClusterWarning, match="this worker fails"):
        assert dict(DaskBackend(client).run(only_in(os.getpid()), [1, 2])) == {0: 2, 1: 3}


@noisy
def test_an_error_that_is_everywhere_is_raised(client):
    with pytest.raises(ZeroDivisionError):
        dict(DaskBackend(client).run(lambda task: 1 // task, [0]))


@noisy
def test_tasks_that_end_every_worker_are_an_error(client, monkeypatch):
    """Even if workers restart slowly, a task must not be computed in this process while workers are missing."""
    parent_pid = os.getpid()

    def end_the_worker(task):
        assert os.getpid() != parent_pid  # killing this process would end the other tests
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(parallel, "_NO_WORKERS", 600.0)
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)  # two workers end instead of four
    wait_for_both(client)
    with pytest.raises(RuntimeError, match="want of memory"):
        dict(DaskBackend(client).run(end_the_worker, [0]))


ONE_THREAD = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "silence_logs": 50}


@noisy
def test_without_a_scheduler_it_goes_on_here():
    with distributed.LocalCluster(n_workers=1, **ONE_THREAD) as cluster:
        client = distributed.Client(cluster, set_as_default=False)
        client.close()
        with pytest.warns(ClusterWarning, match="cannot be reached"):
            assert dict(DaskBackend(client).run(abs, [-3])) == {0: 3}


@noisy
def test_without_workers_it_goes_on_here_after_one_wait_and_one_warning(cohort, eager, serial, monkeypatch):
    monkeypatch.setattr(parallel, "_NO_WORKERS", 1.0)
    waits, wait = [], distributed.wait

    def counted_wait(futures, **options):
        waits.append(len(futures))
        return wait(futures, **options)

    monkeypatch.setattr(distributed, "wait", counted_wait)
    with (
        distributed.LocalCluster(n_workers=0, **ONE_THREAD) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask", client=client),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        assert_array_equal(gm.pairwise_distances(cohort), serial)
    assert len(waits) == 1
    assert [
        "no workers for 1 s" in str(warning.message) for warning in caught if warning.category is ClusterWarning
    ] == [True]


@noisy
def test_workers_that_are_all_lost_are_waited_for_once(monkeypatch):
    monkeypatch.setattr(parallel, "_NO_WORKERS", 1.0)
    this_thread = threading.get_ident()
    with (
        distributed.LocalCluster(n_workers=1, **ONE_THREAD) as cluster,
        distributed.Client(cluster) as client,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        answers = DaskBackend(client).run(lambda task: threading.get_ident(), list(range(20)))
        assert next(answers)[1] != this_thread
        monkeypatch.setattr(parallel, "_FETCH", 1.0)  # answers are lost with their worker
        cluster.scale(0)
        threads = [thread for _, thread in answers]
    assert len(threads) == 19
    assert threads[-1] == this_thread
    assert (
        sum("no workers for 1 s" in str(warning.message) for warning in caught if warning.category is ClusterWarning)
        == 1
    )


@noisy
def test_workers_of_another_version_are_refused(client, on_dask, cohort):
    def set_version(version):
        import groundmetric

        groundmetric.__version__ = version

    worker = sorted(client.nthreads())[:1]
    try:
        client.run(set_version, "0.0.9", workers=worker)
        message = rf"groundmetric {gm.__version__}, as this process.*has groundmetric 0\.0\.9 \(1 of 2"
        with pytest.raises(OtherVersionError, match=message):
            gm.pairwise_distances(cohort)
    finally:
        client.run(set_version, gm.__version__, workers=worker)


def test_a_worker_without_the_package_is_refused(monkeypatch):
    query = parallel._version_query()
    monkeypatch.setitem(sys.modules, "groundmetric", None)
    with pytest.raises(OtherVersionError, match="has no groundmetric"):
        parallel._check_versions({"a worker": query()})


def test_a_worker_of_another_version_that_joins_later_is_refused(monkeypatch):
    assert parallel._on_worker(abs, -3, "9.9") == (gm.__version__, None)
    with pytest.raises(OtherVersionError, match=r"one that has joined has groundmetric 9\.9"):
        parallel._check_versions({"one that has joined": "9.9"})


@noisy
def test_an_ensemble_has_the_same_results_on_a_cluster(on_dask, cohort):
    y = np.arange(len(cohort)) % 2
    options = {"n_members": 4, "kinds": ["univariate", "learned"], "max_epochs": 2, "random_state": 0}
    ensemble = gm.GroundMetricEnsemble(**options).fit(cohort, y)
    assert len(on_dask[0]) >= 4 + 2 * 4 + 5  # learned members, distances of all members, folds and all samples
    local = gm.GroundMetricEnsemble(**options, n_jobs=1).fit(cohort, y)
    assert_allclose(ensemble.held_out_, local.held_out_, atol=1e-9)
    assert_allclose(ensemble.distances_, local.distances_, atol=1e-9)
