"""Cached results: resuming equals an unbroken run. Workers: what goes over a limit is ended and reported."""

import os
import sys
import time

import numpy as np
import pytest

from groundmetric import GroundMetricLearner, TransportKNeighborsClassifier
from groundmetric._internal.cache import Cache, CacheWarning
from groundmetric.evaluation import compare, shuffled
from groundmetric.evaluation._run import Cohort, Protocol, Result
from groundmetric.evaluation._tasks import (
    ResultCache,
    Worker,
    _status_of_exit,
    check_limits,
    fingerprint,
    key_of,
    run_cached,
)

from .methods import euclidean, greedy, knowing, means, slow, tiny_cohort

D, y = tiny_cohort()
SPLITS = shuffled(y, n_splits=3, test_size=1 / 3, random_state=0)
COHORT = Cohort(D, y, np.unique(y))


def without_times(comparison):
    content = comparison.to_dict()
    for results in content["results"].values():
        for result in results:
            del result["seconds"]
    return content


def counting(stop_after=None):
    """A method that counts its fits, and is interrupted at one of them."""
    fits = []

    class Counting(type(knowing())):
        def fit(self, D, y):
            if len(fits) == stop_after:
                raise KeyboardInterrupt
            fits.append(len(D))
            return super().fit(D, y)

    return Counting(), fits


def test_a_resumed_run_equals_an_unbroken_one(tmp_path):
    learner = GroundMetricLearner(max_epochs=3, random_state=0)
    stopping, _ = counting(stop_after=3)  # its rehearsal and two splits
    with pytest.raises(KeyboardInterrupt):
        compare({"learned": learner, "counting": stopping}, D, y, cv=SPLITS, resume=tmp_path / "kept")
    assert len(Cache(tmp_path / "kept")) == 5  # of both on two splits, and of the learner on the third
    going_on, fits = counting()
    resumed = compare({"learned": learner, "counting": going_on}, D, y, cv=SPLITS, resume=tmp_path / "kept")
    assert len(fits) == 1
    unbroken = compare({"learned": learner, "counting": counting()[0]}, D, y, cv=SPLITS)
    assert without_times(resumed) == without_times(unbroken)


def test_what_is_done_is_not_done_again(tmp_path):
    first, fits = counting()
    compare({"one": first}, D, y, cv=SPLITS, points=False, resume=tmp_path / "kept")
    assert len(fits) == 4  # with the rehearsal
    again, fits = counting()
    compare({"another name": again}, D, y, cv=SPLITS, points=False, resume=tmp_path / "kept")
    assert fits == []
    compare({"one": again}, D, y, cv=SPLITS, points=False, n_neighbors=3, resume=tmp_path / "kept")  # another question
    assert len(fits) == 4


def test_the_key_changes_with_everything_that_matters_and_with_nothing_else():
    train, test = SPLITS[0]

    def key(method=None, cohort=COHORT, protocol=None, train=train):
        method = GroundMetricLearner(random_state=0) if method is None else method
        return key_of(method, train, test, fingerprint(cohort, protocol or Protocol()))

    moved = D[:]
    moved.points = moved.points + 1e-9
    others = [
        key(GroundMetricLearner(random_state=0, margin=2.0)),
        key(GroundMetricLearner(random_state=1)),
        key(euclidean()),
        key(TransportKNeighborsClassifier(metric=GroundMetricLearner(margin=2.0))),
        key(TransportKNeighborsClassifier(metric=GroundMetricLearner())),
        key(cohort=Cohort(moved, y, COHORT.classes)),
        key(cohort=Cohort(D, y[::-1], COHORT.classes)),
        key(cohort=Cohort(D, y, COHORT.classes, list("abc" * 6))),
        key(protocol=Protocol(weights="uniform")),
        key(train=train[1:]),
    ]
    assert len({key(), *others}) == 11
    assert key(GroundMetricLearner(random_state=0, n_jobs=2, verbose=1)) == key()
    nested = [TransportKNeighborsClassifier(metric=GroundMetricLearner(n_jobs=jobs)) for jobs in (1, 2)]
    assert key(nested[0]) == key(nested[1])


def test_keys_of_sparse_points_and_of_equal_copies_agree():
    from scipy import sparse

    from groundmetric import Distributions

    cohorts = [Distributions(sparse.csr_matrix(D.points), np.repeat(np.arange(18), D.sizes)) for _ in range(2)]
    keys = [fingerprint(Cohort(some, y, COHORT.classes), Protocol()) for some in cohorts]
    assert keys[0] == keys[1] != fingerprint(COHORT, Protocol())


def cached(path, method, time_limit=None, memory_limit=None):
    """The cached result of a method on the first split, with the cache itself."""
    cache = ResultCache(path, COHORT, Protocol(), {"method": method}, time_limit, memory_limit)
    return cache, cache.get(method, *SPLITS[0])


def test_a_damaged_result_counts_as_none(tmp_path):
    path = tmp_path / "deep" / "folder" / "kept"
    cache, _ = cached(path, knowing())
    cache.put(knowing(), *SPLITS[0], Result())
    assert cached(path, knowing())[1] == Result()
    path.write_bytes(path.read_bytes().replace(b'"ok"', b'"OK"'))
    with pytest.warns(CacheWarning, match="1 damaged entry"):
        assert cached(path, knowing())[1] is None


def test_without_a_path_nothing_is_cached():
    cache, _ = cached(None, knowing())
    cache.put(knowing(), *SPLITS[0], Result())
    assert cache.get(knowing(), *SPLITS[0]) is None


@pytest.mark.parametrize(
    ("status", "limits", "tight", "loose"),
    [
        ("OOT", (10.0, None), [(10.0, None), (5.0, None)], [(20.0, None), (None, None)]),
        ("OOM", (None, 100.0), [(None, 50.0)], [(None, 200.0)]),
        ("error: mistake", (None, None), [], [(None, None)]),
    ],
)
def test_failures_are_run_again_where_they_might_succeed(tmp_path, status, limits, tight, loose):
    cache, _ = cached(tmp_path / "kept", knowing(), *limits)
    cache.put(knowing(), *SPLITS[0], Result(status))
    assert [cached(tmp_path / "kept", knowing(), *other)[1].status for other in tight] == [status] * len(tight)
    assert all(cached(tmp_path / "kept", knowing(), *other)[1] is None for other in loose)


def test_a_folder_is_refused_before_the_work(tmp_path):
    with pytest.raises(ValueError, match="resume is the folder"):
        compare({"one": euclidean()}, D, y, cv=SPLITS, resume=tmp_path)


def test_a_method_that_cannot_be_recognised_again_is_refused_at_once(tmp_path):
    learner = GroundMetricLearner(penalty=lambda W: 0.0)
    with pytest.raises(ValueError, match="method 'odd' cannot be recognised in another run"):
        compare({"odd": learner}, D, y, cv=SPLITS, resume=tmp_path / "kept")


ASKED = []


def square(x):
    ASKED.append(x)
    if x < 0:
        raise KeyboardInterrupt
    return {"square": x * x} if x else None


def ask(path, *numbers):
    ASKED.clear()
    tasks = {str(x): (square, (x,)) for x in numbers}
    return run_cached(tasks, path, n_jobs=1, title="squares", verbose=0)


def test_interrupted_tasks_go_on_where_they_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "kept", 1, 0, -1, 3)
    assert ask(tmp_path / "kept", 1, 0, 3) == {"1": {"square": 1}, "0": None, "3": {"square": 9}}
    assert ASKED == [3]


def test_answers_come_in_the_order_of_the_tasks(tmp_path):
    ask(tmp_path / "kept", 3)
    assert list(ask(tmp_path / "kept", 1, 3, 2)) == ["1", "3", "2"]


def test_a_damaged_answer_is_asked_again(tmp_path):
    ask(tmp_path / "kept", 1)
    content = (tmp_path / "kept").read_bytes()
    (tmp_path / "kept").write_bytes(content.replace(b'"square"', b'"sQuare"'))
    with pytest.warns(CacheWarning):
        assert ask(tmp_path / "kept", 1) == {"1": {"square": 1}}
    assert ASKED == [1]


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
