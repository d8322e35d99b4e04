"""Learn and compute distances while the disk is full, and print the outcome; run by test_full_disk.py.

python full_disk.py FOLDER limit    files cannot grow beyond a limit
python full_disk.py FOLDER disk     FOLDER is a small disk, which is filled
"""

import contextlib
import json
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import groundmetric as gm
from groundmetric.learning.checkpoint import Checkpoints

ROOM = 8192  # bytes that are left: a state and the missing distances need more


def main(folder, way):
    random = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(30), 20), np.arange(30) % 3
    D = gm.Distributions(random.normal(size=(600, 3)) + 0.5 * np.eye(3)[y][owner], owner)
    options = {"max_epochs": 6, "stopping": gm.learning.EarlyStopping(tol=0.0), "random_state": 0}

    def learn(path):
        checkpoint = None if path is None else gm.learning.Checkpoint(path, every=0.0)
        return gm.GroundMetricLearner(**options, checkpoint=checkpoint).fit(D, y).components_

    def measure(path):
        return gm.pairwise_distances(D, keep=path)

    expected = {learn: learn(None), measure: measure(None)}
    with tempfile.TemporaryDirectory() as second:  # warm-up
        with stopping_after(1):
            learn(Path(second) / "state")
        learn(Path(second) / "state")

    def report(task, path):
        before = contents(folder)
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            right = bool(np.array_equal(task(path), expected[task]))
        return {
            "told": [str(warning.message) for warning in messages],
            "right": right,
            "same": contents(folder) == before,
        }

    with stopping_after(3):
        learn(folder / "state")
    gm.pairwise_distances(D[:15], keep=folder / "kept")  # 105 of 435 distances
    result = {}
    with room_for(ROOM, folder, way):
        result["learn on a full disk"] = report(learn, folder / "state")
    with room_for(ROOM, folder, way, beyond=(folder / "kept").stat().st_size):
        result["measure on a full disk"] = report(measure, folder / "kept")
    result["learn later"] = report(learn, folder / "state")
    result["measure later"] = report(measure, folder / "kept")
    print(json.dumps({**result, "files": sorted(contents(folder))}))


@contextlib.contextmanager
def room_for(size, folder, way, beyond=0):
    """Limit the growth of a file, or of all files on a nearly full disk, to `size` bytes."""
    if way == "limit":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (beyond + size, hard))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    os.truncate(filler, filler.stat().st_size - size)
    yield
    filler.unlink()


@contextlib.contextmanager
def stopping_after(n_states):
    """Stop learning after `n_states` checkpoints."""
    inner, count = Checkpoints.write, [0]

    def write(self, state):
        inner(self, state)
        count[0] += 1
        if count[0] == n_states:
            raise SystemError

    Checkpoints.write = write
    with contextlib.suppress(SystemError):
        yield
    Checkpoints.write = inner


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "filler"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
