"""The linear map that the scripts of the paper's experiments apply in place of W, and NCA with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from groundmetric import baselines

# Up to so many features the paper's experiments applied M itself; beyond, a factor of this rank.
_PAPER_FEATURES, _PAPER_RANK = 100, 5


class PaperMap:
    """Mixin of a `PointLearner` with the parameter `as_in_paper`: apply `paper_map` in place of W."""

    as_in_paper: bool

    def _final_map(self, components: np.ndarray) -> np.ndarray:
        return paper_map(components) if self.as_in_paper else components


class NCA(PaperMap, baselines.NCA):
    """`groundmetric.baselines.NCA` with the parameter `as_in_paper`."""

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_iter: int = 100,
        tol: float = 1e-7,
        max_points: int | None = 1500,
        max_features: int = 300,
        standardise: bool = False,
        as_in_paper: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_components, max_iter=max_iter, tol=tol, max_points=max_points, max_features=max_features,
            standardise=standardise, random_state=random_state,
        )  # fmt: skip
        self.as_in_paper = as_in_paper


def paper_map(components: np.ndarray) -> np.ndarray:
    """The linear map that the code of the paper's experiments has in place of W, to see what difference it makes.

    Up to 100 features it applies M = WᵀW itself to the points, so that the distance is that of M²; beyond, five rows of
    a pivoted Cholesky factor of M, which keeps the distance along the five features that add most to it. It does not by
    itself give the published figures: with LMNN on the synthetic data it gives far better ones.
    """
    if components.shape[1] <= _PAPER_FEATURES:
        return components.T @ components
    return pivoted_cholesky(components, _PAPER_RANK)


def pivoted_cholesky(components: np.ndarray, rank: int) -> np.ndarray:
    """At most `rank` rows F such that FᵀF approximates M = WᵀW, each chosen at the largest diagonal entry left.

    >>> F = pivoted_cholesky(np.array([[1.0, 0.0], [2.0, 3.0]]), rank=2)
    >>> (F.T @ F).round(12).tolist()
    [[5.0, 6.0], [6.0, 9.0]]
    """
    left = np.einsum("cf,cf->f", components, components)  # diagonal of M - FᵀF
    smallest = 1e-12 * left.max()
    rows: list[np.ndarray] = []
    while len(rows) < rank and left.max() > smallest:
        pivot = int(left.argmax())
        row = components.T @ components[:, pivot] - sum(done * done[pivot] for done in rows)
        rows.append(row / np.sqrt(left[pivot]))
        left = np.maximum(left - rows[-1] ** 2, 0.0)
    return np.array(rows) if rows else np.zeros((1, components.shape[1]))
