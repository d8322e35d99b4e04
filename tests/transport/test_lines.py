"""Many pairs on a line, in threads."""

import numpy as np
from numpy.testing import assert_array_equal

from groundmetric.transport import pairs

from .cohorts import cohort, everything, transport


def test_batches_on_threads_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(pairs, "_LINE_BATCH", 50.0)  # several batches
    D = cohort(np.random.default_rng(0), [25, 30, 1, 32, 29, 31, 27, 33], 1, "both")
    serial, threaded = (transport(D, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert_array_equal(serial.solve(everything(serial)), threaded.solve(everything(threaded)))
    selected = everything(serial)[::3]
    assert_array_equal(serial.pull(selected, np.ones(selected.size)), threaded.pull(selected, np.ones(selected.size)))
