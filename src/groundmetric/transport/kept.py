"""Distances kept pair by pair in a file, recognised by digests of the data, so that only missing ones are computed.

The file is a header and then records of one size, each with a checksum of its own. It is only ever appended to: a
record that was torn or changed by an accident is recognised, left out, and its pair computed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy import sparse

from .._internal.files import Foreign
from ..distributions import Distributions
from ..metrics.base import EuclideanMetric, GroundMetric
from . import Exact
from .solvers.base import Solver

_DIGEST_BYTES = 16


def digest(*parts: Any) -> bytes:
    """16 bytes that stand for arrays, bytes and text in this order.

    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(3.0))
    (True, False)
    """
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype.str}{part.shape}".encode())
            state.update(np.ascontiguousarray(part).data)
        else:
            content = part if isinstance(part, bytes) else str(part).encode()
            state.update(f"{len(content)}:".encode())
            state.update(content)
    return state.digest()


def of_each_distribution(D: Distributions) -> list[bytes]:
    """A digest per distribution: of its points and masses, not of its name or its place in the cohort."""
    found = []
    for low, high in zip(D.bounds[:-1], D.bounds[1:], strict=True):
        points = D.points[low:high]
        if sparse.issparse(points):
            parts = [points.data, points.indices.astype(np.int64), points.indptr.astype(np.int64), str(points.shape)]
        else:
            parts = [np.asarray(points)]
        found.append(digest(*parts, D.weights[low:high]))
    return found


def of_cohort(D: Distributions) -> bytes:
    """A digest of all distributions in their order, and of the names of their features."""
    return digest(*of_each_distribution(D), str(D.features))


def of_metric(metric: Any) -> bytes:
    """A digest of all that distances depend on."""
    kind = type(metric).__name__
    if isinstance(metric, EuclideanMetric):
        return digest(kind, metric.n_features)
    if type(metric) is GroundMetric:
        return digest(kind, metric.components, metric.cost.name)
    return digest(kind, joblib.hash(metric))


try:
    import fcntl
except ImportError:  # not on Windows; there one process at a time must do
    fcntl = None  # type: ignore[assignment]

_HEADER = b"groundmetric distances format 1\n"  # as long as a record
_RECORD = struct.Struct("<16sd4xI")  # key, value, nothing, checksum of these
_SIZE = _RECORD.size


class KeptDistances:
    """A file of distances between distributions, recognised by their content and by that of the metric.

    Parameters
    ----------
    path : file; made if there is none
    solver : which must be exact, where given
    """

    def __init__(self, path: str | os.PathLike, solver: Solver | None = None) -> None:
        if solver is not None and not isinstance(solver, Exact):
            raise ValueError(
                f"keep is given, but solver is {solver.name!r}: only exact distances are kept; leave `keep` out"
            )
        self.path = Path(path)
        if self.path.is_dir():
            raise ValueError(f"keep is the folder {str(self.path)!r}: expected the name of a file")
        self._values: dict[bytes, float] = {}
        self._can_write = True
        if self.path.exists():
            self._read()

    def __len__(self) -> int:
        return len(self._values)

    def of(self, metric: Any, *cohorts: Distributions) -> CohortDistances:
        """The distances between the distributions of these cohorts, one behind the other."""
        found = [name for cohort in cohorts for name in of_each_distribution(cohort)]
        return CohortDistances(self, of_metric(metric), found)

    def get(self, keys: list[bytes]) -> np.ndarray:
        """Values, NaN where there is none."""
        return np.array([self._values.get(key, np.nan) for key in keys])

    def put(self, keys: list[bytes], values: np.ndarray) -> None:
        """Keep values, on the disk when this returns. A full disk loses them, but no others, and ends nothing."""
        self._values.update(zip(keys, values.tolist(), strict=True))
        if not keys or not self._can_write:
            return
        try:
            self._append(_records(keys, values))
        except (OSError, Foreign) as error:
            self._can_write = False
            warnings.warn(
                f"distances can no longer be kept in {str(self.path)!r} ({error}): they are computed all the same, and "
                "what was kept before is intact",
                RuntimeWarning,
                stacklevel=3,
            )

    def _append(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Without a buffer: what does not fit on the disk would stay there, and hinder the way back.
        with open(self.path, "a+b", buffering=0) as file, _locked(file):
            self._check_header(_beginning(file))  # somebody may have written there meanwhile
            end = file.seek(0, os.SEEK_END)
            whole = end - end % _SIZE  # what a killed process left half written is cut off
            file.truncate(whole)
            left = memoryview(content if whole else _HEADER + content)
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(whole)
                raise

    def _check_header(self, found: bytes) -> None:
        if not _HEADER.startswith(found):
            raise Foreign(f"{str(self.path)!r} is no file of kept distances: it does not begin as one; use another")

    def _read(self) -> None:
        content = self.path.read_bytes()
        self._check_header(content[:_SIZE])
        torn, damaged = len(content) % _SIZE, 0
        for key, value, checksum in _RECORD.iter_unpack(content[_SIZE : len(content) - torn]):
            if _checksum(key, value) == checksum and 0.0 <= value < np.inf:
                self._values[key] = value
            else:
                damaged += 1
        if damaged or torn:
            what = [f"{damaged} damaged distances"] * bool(damaged) + ["one that was half written"] * bool(torn)
            warnings.warn(
                f"{str(self.path)!r} held {' and '.join(what)}: left out, and computed anew where needed",
                RuntimeWarning,
                stacklevel=4,
            )


class CohortDistances:
    """Kept distances of one cohort under one metric, by the places of its distributions."""

    def __init__(self, kept: KeptDistances, metric: bytes, found: list[bytes]) -> None:
        self._kept, self._metric, self._found = kept, metric, found

    def get(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return self._kept.get(self._keys(first, second))

    def put(self, first: np.ndarray, second: np.ndarray, values: np.ndarray) -> None:
        self._kept.put(self._keys(first, second), values)

    def _keys(self, first: np.ndarray, second: np.ndarray) -> list[bytes]:
        """A distance is the same in both directions."""
        sides = ((self._found[d], self._found[e]) for d, e in zip(first.tolist(), second.tolist(), strict=True))
        return [digest(self._metric, *sorted(side)) for side in sides]


def _beginning(file: FileIO) -> bytes:
    file.seek(0)
    return file.read(_SIZE) or b""


def _records(keys: list[bytes], values: np.ndarray) -> bytes:
    pairs = zip(keys, values.tolist(), strict=True)
    return b"".join(_RECORD.pack(key, value, _checksum(key, value)) for key, value in pairs)


def _checksum(key: bytes, value: float) -> int:
    return zlib.crc32(key + struct.pack("<d", value))


@contextlib.contextmanager
def _locked(file: FileIO) -> Iterator[None]:
    """One process appends at a time."""
    if fcntl is None:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
