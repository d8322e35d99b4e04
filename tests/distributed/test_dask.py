"""A Dask cluster of two processes gives the bits of one process, also when its workers are killed, err or hang."""

import os
import signal
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric._internal.executor import Threads
from groundmetric.distributed import Cluster, workers
from groundmetric.distributed import dask as dask_place
from groundmetric.distributed.dask import DaskPlace
from groundmetric.distributed.protocol import Errand
from groundmetric.transport import pairs
from groundmetric.transport import remote as comparing_elsewhere
from groundmetric.transport import remote as elsewhere

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore")  # a cluster whose workers are killed has much to say


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(silence_logs=50, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def wait_for_both(client):
    """After a worker was killed, its nanny starts another; where that fails, begin with two fresh ones."""
    try:
        client.wait_for_workers(2, timeout=20)
    except TimeoutError:
        client.cluster.scale(0)
        time.sleep(1.0)
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=60)


@pytest.fixture
def on_dask(client, eager, monkeypatch):
    """The two workers, with messages that are small, and a count of them."""
    monkeypatch.setattr(elsewhere, "BATCH", 2e-3)
    wait_for_both(client)
    sent, inner = [], dask_place._Run.send

    def send(self, number, workers):
        inner(self, number, workers)
        sent.append(number)
        for moment, action in list(sent_actions.items()):
            if len(sent) >= moment:
                sent_actions.pop(moment)
                action()

    sent_actions = {}
    monkeypatch.setattr(dask_place._Run, "send", send)
    with joblib.parallel_config(backend="dask", client=client):
        yield sent, sent_actions


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(16), 40), np.arange(16) % 2
    return gm.Distributions(rng.normal(size=(640, 3)) + 0.7 * y[owner][:, None] * [1.0, 0.0, 0.0], owner), y


def learner():
    return gm.GroundMetricLearner(max_epochs=4, batch_size=48, n_neighbors=2, random_state=0)


@pytest.fixture(scope="module")
def serial(data):
    return gm.pairwise_distances(data[0], n_jobs=1), learner().set_params(n_jobs=1).fit(*data)


def kill_a_worker(client):
    """kill -9; the nanny starts another one in its place."""
    pids = client.run(os.getpid)
    os.kill(sorted(pids.items())[0][1], signal.SIGKILL)


def assert_learned(one, other):
    assert_array_equal(one.components_, other.components_)
    for name, values in one.history_.items():
        if not name.startswith("seconds"):
            assert_array_equal(values, other.history_[name])


def test_learning_gives_the_serial_bits(on_dask, data, serial):
    assert_learned(learner().fit(*data), serial[1])
    assert len(on_dask[0]) > 8


def test_workers_are_killed_during_learning(client, on_dask, data, serial):
    _, actions = on_dask
    actions[3] = actions[12] = lambda: kill_a_worker(client)
    assert_learned(learner().fit(*data), serial[1])
    assert not actions


def test_a_worker_is_killed_during_a_distance_matrix(client, on_dask, data, serial, tmp_path):
    sent, actions = on_dask
    actions[2] = lambda: kill_a_worker(client)
    assert_array_equal(gm.pairwise_distances(data[0], keep=tmp_path / "d"), serial[0])
    assert not actions
    assert len(sent) > 2


def test_metrics_without_a_projection_and_neighbours_too(on_dask, data, monkeypatch):
    monkeypatch.setattr(comparing_elsewhere, "BATCH", 1e-3)
    for metric in ("cityblock", gm.GroundMetric([[1.0, 0.0, 0.0]]).blend(gm.GroundMetric.euclidean(3), 0.5)):
        there, here = (gm.pairwise_distances(data[0], metric=metric, n_jobs=n) for n in (None, 1))
        assert_array_equal(there, here)
    assert on_dask[0]
    there, here = (gm.kneighbors(data[0], n_neighbors=2, n_jobs=n) for n in (None, 1))
    assert_array_equal(there[0], here[0])


def test_large_pairs_give_the_serial_bits(on_dask, data, monkeypatch):
    monkeypatch.setattr(pairs, "_LARGE", 40 * 40 - 1)
    assert_array_equal(gm.pairwise_distances(data[0]), gm.pairwise_distances(data[0], n_jobs=1))
    assert on_dask[0]


def test_one_job_stays_here(on_dask, data, serial):
    assert_array_equal(gm.pairwise_distances(data[0], n_jobs=1), serial[0])
    assert not on_dask[0]


def test_work_that_is_on_a_worker_already_stays_there(client):
    def place_inside():
        with joblib.parallel_config(backend="dask"):
            return type(workers()).__name__

    assert client.submit(place_inside).result() == "Threads"


def test_workers_forget_when_all_is_done(client, on_dask, data):
    def kept():
        from groundmetric.transport import messages as batches

        return len(batches.kept_here)

    learner().fit(*data)
    for _ in range(100):
        if not any(client.run(kept).values()):
            break
        time.sleep(0.05)
    assert not any(client.run(kept).values())


def here_is(pid):
    def function(message):
        if os.getpid() != pid:
            raise OSError("this worker has no luck")
        return message + 1

    return function


def test_what_fails_on_every_worker_is_done_here(client):
    place = DaskPlace(client)
    with pytest.warns(RuntimeWarning, match="no luck"):
        answers = dict(place.run(here_is(os.getpid()), [Errand(1), Errand(2)]))
    assert answers == {0: 2, 1: 3}


def test_an_error_that_is_everywhere_is_raised(client):
    with pytest.raises(ZeroDivisionError):
        dict(DaskPlace(client).run(lambda message: 1 // message, [Errand(0)]))


def test_a_worker_that_hangs_is_replaced(client, monkeypatch, tmp_path):
    monkeypatch.setattr(dask_place, "_PATIENCE", 0.5)
    monkeypatch.setattr(dask_place, "_FIRST_PATIENCE", 0.5)
    flag = str(tmp_path / "one hangs")

    def once_slow(message):
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return message
        time.sleep(12.0)
        return message

    wait_for_both(client)
    place, started = DaskPlace(client), time.monotonic()
    with pytest.warns(RuntimeWarning, match="do not answer"):
        answers = dict(place.run(once_slow, [Errand(k, seconds=0.01) for k in range(4)]))
    assert answers == {k: k for k in range(4)}
    assert time.monotonic() - started < 12.0
    assert len(place.slots()) == 1


def test_without_a_cluster_it_goes_on_here(data, eager, serial):
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(silence_logs=50, **options) as cluster:
        client = distributed.Client(cluster, set_as_default=False)
        place = DaskPlace(client)
        assert list(place.slots().values()) == [1]
        client.close()
        with pytest.warns(RuntimeWarning, match="cannot be reached"):
            assert dict(place.run(abs, [Errand(-3)])) == {0: 3}


@pytest.fixture
def deserted():
    """A cluster without workers."""
    options = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(silence_logs=50, **options) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask", client=client),
    ):
        yield client


def test_without_workers_it_goes_on_here_after_one_wait_and_one_warning(deserted, data, eager, serial, monkeypatch):
    monkeypatch.setattr(dask_place, "_DESERTED", 1.0)
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert_learned(learner().fit(*data), serial[1])
    seconds = time.monotonic() - started
    assert ["no workers for 1 s" in str(warning.message) for warning in told] == [True]
    assert seconds < 10.0  # the fit itself takes less than a second; 300 s would be the wait for workers that are there


def test_workers_that_come_later_are_used(deserted, monkeypatch):
    monkeypatch.setattr(dask_place, "_DESERTED", 0.2)
    monkeypatch.setattr(dask_place, "_FRESH", 0.0)
    place, here = DaskPlace(deserted), threading.get_ident()
    with pytest.warns(RuntimeWarning, match="until it has some"):
        assert dict(place.run(thread_of, [Errand(0), Errand(1)])) == {0: here, 1: here}
    deserted.cluster.scale(1)
    deserted.wait_for_workers(1, timeout=30)
    assert here not in dict(place.run(thread_of, [Errand(0), Errand(1)])).values()


def thread_of(message):
    return threading.get_ident()


def test_workers_that_are_all_lost_are_waited_for_once(data, eager, serial, monkeypatch):
    monkeypatch.setattr(dask_place, "_DESERTED", 1.0)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(silence_logs=50, **options) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask", client=client),
    ):
        sent, inner = [], dask_place._Run.send

        def send(self, number, workers):
            sent.append(number)
            if len(sent) == 3:
                cluster.scale(0)
            inner(self, number, workers)

        monkeypatch.setattr(dask_place._Run, "send", send)
        started = time.monotonic()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert_learned(learner().fit(*data), serial[1])
    assert sum("no workers for 1 s" in str(warning.message) for warning in told) == 1
    assert time.monotonic() - started < 20.0


@pytest.mark.parametrize("version", ["0.0.9", None])
def test_workers_of_another_version_are_refused(client, on_dask, data, version):
    def pretend(version):
        import sys

        module = sys.modules.pop("groundmetric", None) or sys.modules["hidden"]
        module.__version__ = version
        sys.modules["hidden"], sys.modules["groundmetric"] = module, module if version else None

    def warm_up():
        import groundmetric  # noqa: F401

    worker = sorted(client.nthreads())[:1]
    client.run(warm_up, workers=worker)
    try:
        client.run(pretend, version, workers=worker)
        has = f"has groundmetric {version}" if version else "has no groundmetric"
        with pytest.raises(RuntimeError, match=rf"groundmetric {gm.__version__}, as this process.*{has} \(1 of 2"):
            gm.pairwise_distances(data[0])
    finally:
        client.run(pretend, gm.__version__, workers=worker)


def test_a_worker_of_another_version_that_joins_later_is_refused():
    with pytest.raises(dask_place.OtherVersion, match=r"9\.9, as this process has: one that has joined has"):
        dask_place.do_errand(abs, -3, "9.9")


def test_threads_are_used_where_nothing_else_was_asked_for():
    assert type(workers(2)) is Threads
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert type(workers()) is Threads
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert type(workers()) is Cluster
        assert type(workers(1)) is Threads
