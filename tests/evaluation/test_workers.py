"""Limits of time and memory: what goes over is ended and reported, and the run goes on."""

import os
import sys
import time

import numpy as np
import pytest

from groundmetric.evaluation import compare, shuffled
from groundmetric.evaluation._workers import Worker, _status_of_exit, check_limits

from .methods import greedy, means, slow, tiny_cohort

D, y = tiny_cohort()
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory limits are kept by Linux only")


def local(function):
    """A function that reaches the child by value, because a test module cannot be imported there."""
    return lambda *arguments: function(*arguments)


@linux
def test_a_child_answers_or_says_what_went_wrong():
    worker = Worker(time_limit=100.0, memory_limit=500.0)
    try:
        assert worker.call(local(pow), 2, 10) == ("ok", 1024)
        process = worker.call(local(os.getpid))[1]
        assert worker.call(lambda: np.ones(10**9 // 8).size) == ("OOM", None)
        assert worker.call(lambda: np.ones(10**8 // 8).size) == ("ok", 10**8 // 8)
        assert worker.call(lambda: 1 // 0) == ("error: ZeroDivisionError: integer division or modulo by zero", None)
        assert worker.call(local(os.getpid))[1] == process  # none of this was a reason to replace it
        assert worker.call(lambda: os._exit(3)) == ("error: the process died (exit code 3)", None)
    finally:
        worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_process_that_the_system_ended_was_out_of_memory():
    assert _status_of_exit([-9]) == "OOM"
    assert _status_of_exit([None, -11]) == "error: the process died (SIGSEGV)"


@linux
def test_a_method_out_of_time_or_memory_is_reported_and_the_others_go_on():
    methods = {"first": means(), "slow": slow(), "greedy": greedy(), "last": means(0)}
    splits = shuffled(y, n_splits=2, test_size=1 / 3, random_state=0)
    start = time.monotonic()
    found = compare(methods, D, y, cv=splits, time_limit=3.0, memory_limit=1500.0, n_jobs=2)
    assert time.monotonic() - start < 300
    assert [found.status(name) for name in methods] == ["ok", "OOT", "OOM", "ok"]
    free = compare({name: methods[name] for name in ("first", "last")}, D, y, cv=splits)
    for name in ("first", "last"):
        assert found.scores()[name].tolist() == free.scores()[name].tolist()
    assert found.results["slow"][1].notes == ["not tried, because split 0 was OOT"]
    text = found.to_markdown()
    assert "| slow | OOT |" in text
    assert "| greedy | OOM |" in text
    assert np.isnan(found.difference("last", "slow").value)
    assert found.difference("last", "first").value > 0.3


@pytest.mark.parametrize("limits", [{"time_limit": 0.0}, {"time_limit": -1.0}, {"memory_limit": 0.0}])
def test_limits_that_nobody_can_keep_are_refused(limits):
    name, value = next(iter(limits.items()))
    with pytest.raises(ValueError, match=f"{name} is {value}: expected a number above 0"):
        check_limits(**{"time_limit": None, "memory_limit": None, **limits})


def test_memory_limits_are_refused_where_they_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ValueError, match="darwin does not keep such limits"):
        check_limits(None, 100.0)
