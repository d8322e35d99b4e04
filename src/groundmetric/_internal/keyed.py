"""Random numbers keyed by names, so that results do not depend on the order or the company of samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def resolve_seed(random_state: Any) -> int:
    """Return an integer seed: `random_state` itself, or a number drawn from it (from the system if None).

    >>> resolve_seed(7)
    7
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)  # the same range, and the same error, as everywhere in scikit-learn
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def keyed_generator(*key: Any) -> np.random.Generator:
    """Return a random generator that depends on the key only.

    >>> float(keyed_generator(0, "ann").random()) == float(keyed_generator(0, "ann").random())
    True
    """
    return np.random.default_rng(int.from_bytes(_digest(key), "little"))


def keyed_uniform(keys: Sequence[Any], *key: Any) -> np.ndarray:
    """Return one uniform number in [0, 1) for each of `keys`, which depends on that entry and on `key` only."""
    digests = [int.from_bytes(_digest((*key, entry)), "little") for entry in keys]
    return np.array(digests, dtype=np.uint64).astype(np.float64) / 2.0**64


def _digest(key: Sequence[Any]) -> bytes:
    text = "\x1f".join(str(part) for part in key)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
