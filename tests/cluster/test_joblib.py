"""Through joblib's processes: the same bits, also when one of them dies or errs."""

import os

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric.cluster.errands import Errand
from groundmetric.cluster.jobs import JoblibPlace


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
