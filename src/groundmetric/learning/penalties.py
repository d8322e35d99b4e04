"""Penalties on the components: any object with a value and a gradient, and optionally a proximal map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .labels import Supervision


class Penalty(Protocol):
    """Penalty on the components W: any object with ``value(W)`` and ``gradient(W)``.

    The learner applies it to W for standardised features (for a diagonal metric, to the weights as one row), multiplied
    by `strength` and divided by its value at the start. To set entries to exactly 0, add a method ``proximal(W, step)``
    that returns the V which minimises step · value(V) + |V - W|² / 2, and ``tied``, the axes of W over which `step` is
    constant: () none, (0, 1) all.

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
        """Return the value of the penalty.

        Parameters
        ----------
        W : array of shape (n_components, n_features)
            Components for standardised features.

        Returns
        -------
        float
            Non-negative number.
        """
        ...

    def gradient(self, W: np.ndarray) -> np.ndarray:
        """Return the gradient of the value; at a kink, the subgradient of least norm.

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


class _Frobenius(Penalty):
    """Frobenius norm |W|: the paper's L2."""

    axis: int | None = None

    def value(self, W: np.ndarray) -> float:
        return float(np.sum(np.linalg.norm(W, axis=self.axis)))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(W, axis=self.axis)
        return W / np.where(norm > 0, norm, 1.0)


class _SquaredFrobenius(Penalty):
    """Square of the Frobenius norm, |W|², which is the trace of M = WᵀW."""

    def value(self, W: np.ndarray) -> float:
        return float(np.sum(W * W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return 2.0 * W


class Lasso(Penalty):
    """Lasso, the sum of absolute entries, whose proximal map sets single entries of W to 0: ``penalty="l1"``.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import Lasso
    >>> Lasso().value(np.array([[3.0, -4.0]]))
    7.0
    """

    tied = ()

    def __init__(self) -> None:
        """Take no parameters, unlike a protocol, which takes any."""

    def value(self, W: np.ndarray) -> float:
        return float(np.abs(W).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return np.sign(W)

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Move every entry towards 0 by its step, and set smaller entries to 0.

        Parameters
        ----------
        W : array of shape (n_components, n_features)
            Components for standardised features.
        step : array that broadcasts to the shape of W
            Step sizes.

        Returns
        -------
        array of shape (n_components, n_features)
            The V that minimises step · value(V) + |V - W|² / 2.
        """
        return np.sign(W) * np.maximum(np.abs(W) - step, 0.0)


class _GroupLasso(_Frobenius):
    """Group lasso, the sum of the norms of the columns of W, whose proximal map sets whole features to 0."""

    tied = (0,)
    axis = 0

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(W, axis=0, keepdims=True)
        return W * np.maximum(1.0 - step / np.where(norm > 0, norm, 1.0), 0.0)


class _Nuclear(Penalty):
    """Nuclear norm, the sum of singular values of W, which favours a low rank."""

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.svd(W, compute_uv=False).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        left, singular, right = np.linalg.svd(W, full_matrices=False)
        present = singular > singular.max(initial=0.0) * 1e-12
        return left[:, present] @ right[present]


_BY_NAME: dict[str, type] = {
    "l2": _Frobenius, "l2_squared": _SquaredFrobenius, "l1": Lasso, "group": _GroupLasso, "nuclear": _Nuclear,
}  # fmt: skip


def resolve_penalty(penalty: Any) -> Penalty | None:
    """Return a penalty object from its name; None and objects are returned unchanged."""
    if isinstance(penalty, str) and penalty in _BY_NAME:
        return _BY_NAME[penalty]()
    has_methods = hasattr(penalty, "value") and hasattr(penalty, "gradient")
    if penalty is None or (has_methods and not isinstance(penalty, type)):
        return penalty
    raise ValueError(
        f"penalty is {penalty!r}: expected one of {sorted(_BY_NAME)}, None, or an object with value and gradient"
    )


class StrataVariance:
    """Share of the variance between distributions that their strata explain beyond the labels, from 0 to 1.

    Under W, the variance of the means m of the distributions (in standardised features) is |W mᵀ|², and the part
    explained by the effects b of the strata is |W bᵀ|². Their ratio does not depend on the scale of W.
    """

    def __init__(self, means: np.ndarray, labels: Supervision) -> None:
        assert labels.strata is not None
        self._all = means - means.mean(axis=0)
        strata = (labels.strata[:, None] == np.unique(labels.strata)).astype(np.float64)
        responses = [target.response() for target in labels.targets]
        # Missing labels are replaced by the mean response.
        responses = [np.where(np.isnan(response), np.nanmean(response, axis=0), response) for response in responses]
        explained = _orthonormal(np.hstack([np.ones((len(means), 1)), *responses]))
        beyond = _orthonormal(strata - explained @ (explained.T @ strata))
        # Effects of the strata in coordinates of this basis, which keep their norms.
        self._strata = beyond.T @ self._all

    def value(self, W: np.ndarray) -> float:
        part, total = self._sums(W)
        return part / total if total > 0 else 0.0

    def gradient(self, W: np.ndarray) -> np.ndarray:
        part, total = self._sums(W)
        if total == 0:
            return np.zeros_like(W)
        difference = (W @ self._strata.T) @ self._strata - (part / total) * ((W @ self._all.T) @ self._all)
        return 2.0 * difference / total

    def _sums(self, W: np.ndarray) -> tuple[float, float]:
        return float(np.sum((W @ self._strata.T) ** 2)), float(np.sum((W @ self._all.T) ** 2))


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the column space."""
    basis, singular, _ = np.linalg.svd(columns, full_matrices=False)
    return basis[:, singular > 1e-9 * max(singular.max(initial=0.0), 1.0)]


# A metric has vanished if the penalty is below this share of its first value, and the loss above this share of the
# margin, which is the loss at W = 0.
_PENALTY, _HINGE = 0.01, 0.98


def has_vanished(history: Mapping[str, Any], margin: float, strength: float) -> bool:
    """Return whether W has shrunk to nearly 0: distances no longer affect any triplet, and its direction is random.

    >>> has_vanished({"loss": [0.6, 0.995], "active": [0.7, 1.0], "penalty": [0.6, 0.003]}, margin=1.0, strength=1.0)
    True
    """
    if strength == 0.0 or not len(history["loss"]):
        return False
    loss, active, penalty = (history[name][-1] for name in ("loss", "active", "penalty"))
    return bool(active == 1.0 and loss > _HINGE * margin and penalty < _PENALTY * strength)
