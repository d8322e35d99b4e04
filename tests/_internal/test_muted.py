"""Filters of warnings that threads set are gone when all threads have left."""

import threading
import warnings

import pytest

from groundmetric._internal.parallel import muted


def test_filters_of_interleaved_threads_are_restored():
    before = list(warnings.filters)
    inner, leave = threading.Barrier(2), [threading.Event(), threading.Event()]

    def run(k):
        with muted(UserWarning):
            inner.wait()
            warnings.warn(f"number {k}", UserWarning, stacklevel=2)
            leave[k].wait()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for k in (0, 1):  # the first to enter leaves first, which catch_warnings does not survive
        leave[k].set()
        threads[k].join()
    assert list(warnings.filters) == before


def test_other_warnings_and_errors_pass():
    def both():
        with muted(UserWarning):
            for category in (UserWarning, RuntimeWarning):
                warnings.warn("text", category, stacklevel=2)

    with pytest.warns(RuntimeWarning) as caught:
        both()
    assert len(caught) == 1
    before = list(warnings.filters)
    with pytest.raises(KeyError), muted():
        raise KeyError
    assert list(warnings.filters) == before
