"""Counts and failures of the subjects of `make fuzz`."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np


class Wrong(AssertionError):
    """A wrong number, a lost result, or an error that is not one of ours."""


@dataclass
class Tally:
    """How often each row of the table was tried, and the worst that was seen there."""

    tried: Counter = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)
    ended: dict[str, Counter] = field(default_factory=dict)  # outcomes of attempts, e.g. "rejected"

    def note(self, row: str, error: float = 0.0, ended: str = "correct") -> None:
        self.tried[row] += 1
        self.worst[row] = max(error, self.worst.get(row, 0.0))
        self.ended.setdefault(row, Counter())[ended] += 1

    def add(self, second: Tally) -> None:
        self.tried += second.tried
        for row, error in second.worst.items():
            self.worst[row] = max(error, self.worst.get(row, 0.0))
        for row, ends in second.ended.items():
            self.ended.setdefault(row, Counter()).update(ends)


def check(right: bool, message: str) -> None:
    if not right:
        raise Wrong(message)


def random_of(seed: int, subject: str) -> np.random.Generator:
    return np.random.default_rng([seed, *subject.encode()])


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Allow warnings, which are correct for damaged files and unusual cohorts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """What this process and its children print goes nowhere."""
    stored = [os.dup(1), os.dup(2)]
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            for at, handle in enumerate(stored, start=1):
                os.dup2(handle, at)
                os.close(handle)
