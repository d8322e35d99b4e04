"""Penalties on the components: objects with a value and a gradient, so that a user's own takes a few lines.

    class MyPenalty:
        def value(self, W): ...        # a number
        def gradient(self, W): ...     # an array of W's shape

Pass an instance as `penalty`; `strength` multiplies it. Where a penalty has a kink, `gradient` gives the subgradient of
least norm. Steps along a gradient never land on a kink: for zeros that are exactly 0, add

        tied = (0,)                        # axes of W over which `step` must be one number: () none, (0, 1) all
        def proximal(self, W, step): ...   # the V that minimises step · value(V) + |V - W|² / 2
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np


class Penalty(Protocol):
    def value(self, W: np.ndarray) -> float: ...

    def gradient(self, W: np.ndarray) -> np.ndarray: ...


@runtime_checkable
class ProximalPenalty(Penalty, Protocol):
    tied: tuple[int, ...]

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray: ...


class Frobenius:
    """The norm of all entries, |W|: the paper's L2."""

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.norm(W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return _unit(W, np.linalg.norm(W))


class SquaredFrobenius:
    """|W|², which is the trace of M."""

    def value(self, W: np.ndarray) -> float:
        return float(np.sum(W * W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return 2.0 * W


class Lasso:
    """The sum of absolute entries: few weights that are not 0."""

    tied = ()

    def value(self, W: np.ndarray) -> float:
        return float(np.abs(W).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return np.sign(W)

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.sign(W) * np.maximum(np.abs(W) - step, 0.0)


class GroupLasso:
    """The sum over features of the norm of their column: few features, whichever component uses them."""

    tied = (0,)

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.norm(W, axis=0).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return _unit(W, np.linalg.norm(W, axis=0))

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(W, axis=0, keepdims=True)
        return W * np.maximum(1.0 - step / np.where(norm > 0, norm, 1.0), 0.0)


class Nuclear:
    """The sum of singular values: few components."""

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.svd(W, compute_uv=False).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        left, singular, right = np.linalg.svd(W, full_matrices=False)
        present = singular > singular.max(initial=0.0) * 1e-12
        return left[:, present] @ right[present]


_BY_NAME: dict[str, type] = {
    "l2": Frobenius,
    "l2_squared": SquaredFrobenius,
    "l1": Lasso,
    "group": GroupLasso,
    "nuclear": Nuclear,
}


def resolve_penalty(penalty: Any) -> Penalty | None:
    """A penalty object from its name; None and objects pass through."""
    if isinstance(penalty, str) and penalty in _BY_NAME:
        return _BY_NAME[penalty]()
    if penalty is None or (
        not isinstance(penalty, type) and hasattr(penalty, "value") and hasattr(penalty, "gradient")
    ):
        return penalty
    raise ValueError(
        f"penalty is {penalty!r}: expected one of {sorted(_BY_NAME)}, None, or an object with value and gradient"
    )


def _unit(W: np.ndarray, norm: Any) -> np.ndarray:
    return W / np.where(norm > 0, norm, 1.0)
