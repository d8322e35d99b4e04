"""Damaged files: flipped bits, cut ends, blocks of zeros. Reading gives the written values or a clear error."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
from tally import Tally, check, random_of, silence

import groundmetric as gm

SHARE = 0.15
ROWS = ("damaged metrics (.gm)", "damaged checkpoints", "damaged cached distances")
DAMAGES_PER_FILE = 12


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "files")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        row, loaded, expected = rng.choice(np.array([_metric, _metric, _kept, _checkpoint], object))(path)
        complete = {name: name.read_bytes() for name in Path(folder).iterdir()}
        for _ in range(DAMAGES_PER_FILE if row != ROWS[1] else 3):
            for name, content in complete.items():
                name.write_bytes(content)
            kind = _damage(rng, path)
            _read_again(loaded, expected, f"{row}: {kind}", row, tally)


def _read_again(loaded, expected, kind: str, row: str, tally: Tally) -> None:
    try:
        with silence():
            result = loaded()
    except (ValueError, OSError) as error:
        check(bool(str(error)), f"{kind}: an error without words")
        tally.note(row, ended="rejected")
        return
    same = len(result) == len(expected) and all(map(np.array_equal, result, expected))
    check(same, f"{kind}: something else was read, without an error")
    tally.note(row)


def _damage(rng, path: Path) -> str:
    content = bytearray(path.read_bytes())
    # The beginning is where formats and versions stand: half of the damage goes there.
    at = int(rng.integers(len(content) if rng.random() < 0.5 else min(len(content), 120)))
    way = rng.choice(["flip", "cut", "zeros", "doubled", "byte"])
    if way == "flip":
        content[at] ^= 1 << int(rng.integers(8))
    elif way == "cut":
        del content[at:]
    elif way == "zeros":
        content[at : at + 32] = bytes(len(content[at : at + 32]))
    elif way == "doubled":
        content[at:at] = content[at : at + 32]
    else:
        content[at] = int(rng.integers(256))
    path.write_bytes(content)
    return f"{way} at byte {at} of {len(content)}"


def _metric(path: Path):
    """Components, variances and features; a linear metric, a diagonal one or a blend of both."""
    rng = np.random.default_rng(0)
    names = [f"gene {k}" for k in range(6)]
    metric = gm.GroundMetric(rng.normal(size=(2, 6)), names, variances=rng.uniform(1, 2, 6))
    metric.save(path)
    points = rng.normal(size=(5, 6))

    def read():
        result = gm.GroundMetric.load(path)
        return [result.distances(points, points), result.importance(), np.array(result.features)]

    return ROWS[0], read, read()


@functools.cache
def _cohort():
    rng = np.random.default_rng(1)
    owner, y = np.repeat(np.arange(8), 6), np.arange(8) % 2
    return gm.Distributions(rng.normal(size=(48, 3)) + y[owner][:, None], owner), y


def _checkpoint(path: Path):
    """The state of learning after its last step, and the one before; both may be needed."""
    D, y = _cohort()

    def read():
        learner = gm.GroundMetricLearner(
            max_epochs=3,
            stopping=gm.learning.EarlyStopping(tol=0.0),
            random_state=0,
            checkpoint=gm.learning.Checkpoint(path, every=0.0),
        )
        return [learner.fit(D, y).components_]

    with silence():
        return ROWS[1], read, read()


def _kept(path: Path):
    D, _ = _cohort()

    def read():
        return [gm.pairwise_distances(D, keep=path)]

    return ROWS[2], read, read()
