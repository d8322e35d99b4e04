"""Through joblib's processes: the same bits, also when one of them dies or errs."""

import os

import joblib
import numpy as np
import pytest
from joblib._parallel_backends import LokyBackend
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric.distributed.joblib import JoblibPlace
from groundmetric.distributed.protocol import Errand


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(10), 20), np.arange(10) % 2
    return gm.Distributions(rng.normal(size=(200, 3)) + y[owner][:, None], owner), y


def test_distances_and_learning_give_the_serial_bits(eager, data):
    def learner(n_jobs):
        return gm.GroundMetricLearner(max_epochs=2, n_neighbors=2, random_state=0, n_jobs=n_jobs).fit(*data)

    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert_array_equal(gm.pairwise_distances(data[0]), gm.pairwise_distances(data[0], n_jobs=1))
        assert_array_equal(learner(None).components_, learner(1).components_)


class Registered(LokyBackend):
    """A backend that somebody else registers with joblib; like that of Ray, it gives all answers at the end."""

    supports_return_generator = False
    configured = submitted = 0

    def configure(self, *given, **options):
        Registered.configured += 1
        return super().configure(*given, **options)

    def submit(self, *given, **options):
        Registered.submitted += 1
        return super().submit(*given, **options)


def test_a_registered_backend_is_used_by_the_same_calls(eager, data):
    joblib.register_parallel_backend("registered", Registered)
    options = {"max_epochs": 3, "n_neighbors": 2, "batch_size": 10, "random_state": 0}
    with joblib.parallel_config(backend="registered", n_jobs=2):
        there = gm.pairwise_distances(data[0])
        assert Registered.submitted > 1
        assert Registered.configured == 1
        learner = gm.GroundMetricLearner(**options).fit(*data)
    assert Registered.submitted > 3 * options["max_epochs"]
    assert Registered.configured == 2  # workers are called together once, not for every step
    assert_array_equal(there, gm.pairwise_distances(data[0], n_jobs=1))
    assert_array_equal(learner.components_, gm.GroundMetricLearner(**options).fit(*data).components_)


def test_a_process_that_dies_or_errs_is_replaced(tmp_path):
    here = os.getpid()

    def unlucky(message):
        what, number = message
        flag = tmp_path / what
        if what != "fine" and os.getpid() != here and not flag.exists():
            flag.touch()
            if what == "dies":
                os._exit(9)
            raise OSError("out of luck")
        return number

    messages = [("fine", 0), ("errs", 1), ("dies", 2), ("fine", 3)]
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.warns(RuntimeWarning, match="done again elsewhere"):
        answers = dict(JoblibPlace(2).run(unlucky, [Errand(message) for message in messages]))
    assert answers == {number: number for number in range(4)}


def test_what_fails_everywhere_is_raised():
    with (
        joblib.parallel_config(backend="loky", n_jobs=2),
        pytest.warns(RuntimeWarning, match="ZeroDivisionError"),
        pytest.raises(ZeroDivisionError),
    ):
        dict(JoblibPlace(2).run(lambda message: 1 // message, [Errand(0)]))
