"""Cached results: resuming equals an unbroken run."""

import numpy as np
import pytest

from groundmetric import GroundMetricLearner, TransportKNeighborsClassifier
from groundmetric._internal.cache import Cache, CacheWarning
from groundmetric.evaluation import Voting, compare, shuffled
from groundmetric.evaluation.compare import Cohort, ResultCache, Task, fingerprint, task_key
from groundmetric.evaluation.results import Protocol, Result

from .methods import euclidean, knowing, tiny_cohort

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
    stopping, _ = counting(stop_after=2)  # after two splits
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
    assert len(fits) == 3
    repeated, fits = counting()
    compare({"another name": repeated}, D, y, cv=SPLITS, points=False, resume=tmp_path / "kept")
    assert fits == []
    compare({"one": repeated}, D, y, cv=SPLITS, points=False, voting=Voting(3), resume=tmp_path / "kept")
    assert len(fits) == 3


def test_the_key_changes_with_everything_that_matters_and_with_nothing_else():
    train, test = SPLITS[0]

    def key(method=None, cohort=COHORT, protocol=None, train=train):
        method = GroundMetricLearner(random_state=0) if method is None else method
        return task_key(Task("", 0, method, train, test), fingerprint(cohort, protocol or Protocol()))

    moved = D[:]
    moved.points = moved.points + 1e-9
    remaining = [
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
    assert len({key(), *remaining}) == 11
    assert key(GroundMetricLearner(random_state=0, n_jobs=2, verbose=1)) == key()
    nested = [TransportKNeighborsClassifier(metric=GroundMetricLearner(n_jobs=jobs)) for jobs in (1, 2)]
    assert key(nested[0]) == key(nested[1])


def test_keys_of_sparse_points_and_of_equal_copies_agree():
    from scipy import sparse

    from groundmetric import Distributions

    cohorts = [Distributions(sparse.csr_matrix(D.points), np.repeat(np.arange(18), D.sizes)) for _ in range(2)]
    keys = [fingerprint(Cohort(subset, y, COHORT.classes), Protocol()) for subset in cohorts]
    assert keys[0] == keys[1] != fingerprint(COHORT, Protocol())


TASK = Task("method", 0, knowing(), *SPLITS[0])


def cached(path, method):
    """The cache, and its result of a method on the first split."""
    cache = ResultCache(path, COHORT, Protocol(), {"method": method})
    return cache, cache.get(TASK)


def test_a_damaged_result_counts_as_none(tmp_path):
    path = tmp_path / "deep" / "folder" / "kept"
    cache, _ = cached(path, knowing())
    cache.put(TASK, Result())
    assert cached(path, knowing())[1] == Result()
    path.write_bytes(path.read_bytes().replace(b'"ok"', b'"OK"'))
    with pytest.warns(CacheWarning, match="1 damaged entry"):
        assert cached(path, knowing())[1] is None


def test_failures_are_run_again(tmp_path):
    cache, _ = cached(tmp_path / "kept", knowing())
    cache.put(TASK, Result("error: mistake"))
    assert cached(tmp_path / "kept", knowing())[1] is None


def test_a_folder_is_refused_before_the_work(tmp_path):
    with pytest.raises(ValueError, match="resume is the folder"):
        compare({"one": euclidean()}, D, y, cv=SPLITS, resume=tmp_path)


def test_a_method_that_cannot_be_recognised_again_is_refused_at_once(tmp_path):
    learner = GroundMetricLearner(penalty=lambda W: 0.0)
    with pytest.raises(ValueError, match="method 'odd' cannot be recognised in another run"):
        compare({"odd": learner}, D, y, cv=SPLITS, resume=tmp_path / "kept")
