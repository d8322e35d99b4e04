"""How work is handed to threads."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_array_equal

from groundmetric._internal.parallel import Threads, in_batches

works = arrays.arrays(np.float64, st.integers(0, 60), elements=st.integers(0, 20).map(float))


@given(works, st.integers(1, 4), st.floats(0.5, 50))
def test_batches_hold_every_place_once_and_the_largest_first(work, n_jobs, batch):
    batches = in_batches(work, n_jobs, batch)
    order = np.concatenate([*batches, np.empty(0, int)])
    assert_array_equal(np.sort(order), np.arange(work.size))
    assert (np.diff(work[order]) <= 0).all()
    assert all(indices.size for indices in batches)


@given(works, st.floats(0.5, 50))
def test_a_batch_is_closed_once_it_is_full(work, batch):
    for indices in in_batches(work, 2, batch):
        assert work[indices[:-1]].sum() <= batch


@given(works.filter(len), st.floats(0.5, 50))
def test_one_thread_gets_one_batch(work, batch):
    assert len(in_batches(work, 1, batch)) == 1


def test_equal_work_is_cut_into_equal_batches():
    assert [indices.tolist() for indices in in_batches(np.ones(6), 2, 2.0)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5])
def test_results_keep_the_order_of_the_items(n_jobs):
    with Threads(n_jobs) as threads:
        assert threads.map(lambda item: item**2, range(100)) == [item**2 for item in range(100)]
        assert threads.map(str, []) == []


def test_order_is_kept_where_the_first_item_ends_last():
    second_is_done = threading.Event()

    def work(item):
        if item == "first":
            assert second_is_done.wait(timeout=60)
        else:
            second_is_done.set()
        return item

    with Threads(2) as threads:
        assert threads.map(work, ["first", "second"]) == ["first", "second"]


def test_one_job_runs_in_the_caller_s_thread():
    with Threads(1) as threads:
        assert threads.map(lambda _: threading.get_ident(), [0, 1]) == 2 * [threading.get_ident()]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_reaches_the_caller(n_jobs):
    with Threads(n_jobs) as threads, pytest.raises(ZeroDivisionError):
        threads.map(lambda item: 1 / item, [1, 0, 2])


def test_threads_end_with_the_pool():
    with Threads(3) as threads:
        workers = set(threads.map(lambda _: threading.current_thread(), range(50)))
    assert workers
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("n_jobs", [0, -(10**6)])
def test_numbers_of_jobs_are_counted_as_joblib_counts_them(n_jobs):
    if n_jobs == 0:
        with pytest.raises(ValueError, match="n_jobs"):
            Threads(n_jobs)
    else:
        assert Threads(n_jobs).n_jobs == 1
