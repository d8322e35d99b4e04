"""Places for errands in this process that do what real ones may do: forget, err, answer in any order."""

import pickle
from contextlib import contextmanager

import numpy as np

from groundmetric.distributed import Cluster
from groundmetric.transport import messages as batches
from groundmetric.transport.messages import KeptBases


class PretendedPlace:
    """Workers a, b, c in this process; messages are pickled, and each worker has bases of its own.

    `forgetful` is the share of messages before which the worker has died: another one takes its place and its name.
    """

    remembers = True

    def __init__(self, forgetful=0.0, names="abc", remembers=True):
        self.random = np.random.default_rng(0)
        self.forgetful, self.remembers = forgetful, remembers
        self.memories = {name: KeptBases(1e9) for name in names}
        self.answers = []
        self.closed = False

    def slots(self):
        return dict.fromkeys(self.memories, 1)

    def run(self, function, errands):
        for number in self.random.permutation(len(errands)):
            errand = errands[number]
            worker = errand.worker or str(self.random.choice(list(self.memories)))
            if self.random.random() < self.forgetful:
                self.memories[worker] = KeptBases(1e9)
            with remembering(self.memories[worker]):
                answer = function(pickle.loads(pickle.dumps(errand.message)))
            self.answers.append(answer)
            yield number, pickle.loads(pickle.dumps(answer))

    def at_the_end(self, function, message):
        pass

    def close(self):
        self.closed = True


@contextmanager
def remembering(memory):
    """Pretend that this process is the worker with this memory."""
    before, batches.kept_here = batches.kept_here, memory
    try:
        yield
    finally:
        batches.kept_here = before


def pretended(**options):
    return Cluster(PretendedPlace(**options))
