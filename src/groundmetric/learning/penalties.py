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

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .labels import Supervision


class Penalty(Protocol):
    """Penalty on the components W: any object with ``value(W)`` and ``gradient(W)``.

    Passed as `penalty` to the learner, it is applied to W for standardised features (of a diagonal metric, the weights
    as one row), multiplied by `strength` and divided by its value at the start.

    Parameters
    ----------
    *args, **kwargs : Any
        Not used: a protocol is not instantiated.

    Examples
    --------
    >>> import numpy as np
    >>> class FirstFeature:
    ...     def value(self, W):
    ...         return float(np.sum(W[:, 0] ** 2))
    ...
    ...     def gradient(self, W):
    ...         gradient = np.zeros_like(W)
    ...         gradient[:, 0] = 2.0 * W[:, 0]
    ...         return gradient
    >>> FirstFeature().value(np.array([[3.0, 1.0]]))
    9.0
    """

    def value(self, W: np.ndarray) -> float:
        """Value of the penalty.

        Parameters
        ----------
        W : array of shape (n_components, n_features)
            Components for standardised features.

        Returns
        -------
        float
            A number that is not negative.
        """
        ...

    def gradient(self, W: np.ndarray) -> np.ndarray:
        """Gradient of the value; where it has a kink, the subgradient of least norm.

        Parameters
        ----------
        W : array of shape (n_components, n_features)
            Components for standardised features.

        Returns
        -------
        array of shape (n_components, n_features)
            Derivative of the value by each entry of W.
        """
        ...


@runtime_checkable
class ProximalPenalty(Penalty, Protocol):
    """Penalty with a proximal map, whose steps can set entries of W to exactly 0.

    Attributes
    ----------
    tied : tuple of int
        Axes of W over which `step` must be one number: () none, (0, 1) all.
    """

    tied: tuple[int, ...]

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Proximal map of the penalty: the V that minimises step · value(V) + |V - W|² / 2.

        Parameters
        ----------
        W : array of shape (n_components, n_features)
            Components for standardised features.
        step : array that broadcasts to the shape of W
            Step size, of length 1 along the axes `tied`.

        Returns
        -------
        array of shape (n_components, n_features)
            The minimiser V.
        """
        ...


class _Documented:
    """Base of the penalties below: a method without a docstring has that of the protocol."""

    def __init_subclass__(cls) -> None:
        for name in ("value", "gradient", "proximal"):
            if name in vars(cls) and not vars(cls)[name].__doc__:
                vars(cls)[name].__doc__ = getattr(ProximalPenalty, name).__doc__


class Frobenius(_Documented):
    """Frobenius norm |W|, the root of the sum of squared entries: the paper's L2, ``penalty="l2"``.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import Frobenius
    >>> Frobenius().value(np.array([[3.0, 4.0]]))
    5.0
    """

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.norm(W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return _unit(W, np.linalg.norm(W))


class SquaredFrobenius(_Documented):
    """Square of the Frobenius norm, |W|², which is the trace of M = WᵀW: ``penalty="l2_squared"``.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import SquaredFrobenius
    >>> SquaredFrobenius().value(np.array([[3.0, 4.0]]))
    25.0
    """

    def value(self, W: np.ndarray) -> float:
        return float(np.sum(W * W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return 2.0 * W


class Lasso(_Documented):
    """Lasso, the sum of absolute entries, which sets single entries of W to 0: ``penalty="l1"``.

    The proximal map moves every entry towards 0 by its step, and to 0 where it is smaller (soft thresholding).

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import Lasso
    >>> Lasso().value(np.array([[3.0, -4.0]]))
    7.0
    """

    tied = ()

    def value(self, W: np.ndarray) -> float:
        return float(np.abs(W).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return np.sign(W)

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.sign(W) * np.maximum(np.abs(W) - step, 0.0)


class GroupLasso(_Documented):
    """Group lasso, the sum of the norms of the columns of W, which sets whole features to 0: ``penalty="group"``.

    The proximal map shortens every column by its step, and sets it to 0 where its norm is smaller.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import GroupLasso
    >>> GroupLasso().value(np.array([[3.0, 1.0], [4.0, 0.0]]))
    6.0
    """

    tied = (0,)

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.norm(W, axis=0).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return _unit(W, np.linalg.norm(W, axis=0))

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(W, axis=0, keepdims=True)
        return W * np.maximum(1.0 - step / np.where(norm > 0, norm, 1.0), 0.0)


class Nuclear(_Documented):
    """Nuclear norm, the sum of singular values of W, which favours a low rank: ``penalty="nuclear"``.

    Its gradient is UVᵀ of the singular value decomposition, over singular values that are not 0.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import Nuclear
    >>> Nuclear().value(np.array([[3.0, 0.0], [0.0, 4.0]]))
    7.0
    """

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


class StrataVariance:
    """Share of the variance between distributions that their strata explain beyond the labels, from 0 to 1.

    Under W, the means m of the distributions vary by |W mᵀ|² in all, of which the effects b of the strata make up
    |W bᵀ|². The share does not depend on the scale of W.

    Parameters
    ----------
    means : array of shape (n_distributions, n_features)
        Means of the distributions in standardised features.
    known : Supervision
        Labels and strata of the distributions.
    """

    def __init__(self, means: np.ndarray, known: Supervision) -> None:
        assert known.strata is not None
        centred = means - means.mean(axis=0)
        strata = (known.strata[:, None] == np.unique(known.strata)).astype(np.float64)
        labels = np.hstack([np.ones((len(means), 1)), *(_filled(target.response()) for target in known.targets)])
        beyond = _orthonormal(strata - _fitted(_orthonormal(labels), strata))
        # In coordinates of the strata's few dimensions, which have the same norms.
        self._strata, self._all = beyond.T @ centred, centred

    def value(self, W: np.ndarray) -> float:
        part, whole = self._sums(W)
        return part / whole if whole > 0 else 0.0

    def gradient(self, W: np.ndarray) -> np.ndarray:
        part, whole = self._sums(W)
        if whole == 0:
            return np.zeros_like(W)
        pull = (W @ self._strata.T) @ self._strata - (part / whole) * ((W @ self._all.T) @ self._all)
        return 2.0 * pull / whole

    def _sums(self, W: np.ndarray) -> tuple[float, float]:
        return float(np.sum((W @ self._strata.T) ** 2)), float(np.sum((W @ self._all.T) ** 2))


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the space that columns span."""
    left, singular, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, singular > 1e-9 * max(singular.max(initial=0.0), 1.0)]


def _fitted(basis: np.ndarray, values: np.ndarray) -> np.ndarray:
    return basis @ (basis.T @ values)


def _filled(response: np.ndarray) -> np.ndarray:
    """Missing labels count as the average, which says nothing."""
    return np.where(np.isnan(response), np.nanmean(response, axis=0), response)


# Where the penalty is below this share of what it was, and the mean hinge above this share of the margin.
_PENALTY, _HINGE = 0.01, 0.98


def has_vanished(history: Mapping[str, Any], margin: float, strength: float) -> bool:
    """Whether W has shrunk to nearly 0, so that its direction is chance: distances no longer matter to any triplet.

    >>> has_vanished({"loss": [0.6, 0.995], "active": [0.7, 1.0], "penalty": [0.6, 0.003]}, margin=1.0, strength=1.0)
    True
    """
    if strength == 0.0 or not len(history["loss"]):
        return False
    loss, active, penalty = (history[name][-1] for name in ("loss", "active", "penalty"))
    return bool(active == 1.0 and loss > _HINGE * margin and penalty < _PENALTY * strength)
