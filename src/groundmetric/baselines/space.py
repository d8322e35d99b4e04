"""The space in which a baseline learns: the features themselves, or their principal components where they are many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, svds

from ..metric import GroundMetric

# Up to so many points or features, principal axes come from a full decomposition of the smaller covariance.
_SMALL = 2000
# Points that the axes of a working space are found from, at most.
_POINTS_FOR_AXES = 2000
# Sparse points with more entries than this are never made dense.
_DENSE_ENTRIES = 20_000_000


class WorkingSpace(NamedTuple):
    """Coordinates z = axes (x - centre) / scale, in which a metric is learned; without axes, all the features."""

    centre: np.ndarray  # (n_features,)
    scale: np.ndarray  # (n_features,)
    axes: np.ndarray | None  # (n_axes, n_features)

    def coordinates(self, points: Any) -> np.ndarray:
        """Points as a dense array of their coordinates in this space."""
        if self.axes is not None:
            rows = self.axes / self.scale
            return GroundMetric(rows).project(points) - rows @ self.centre
        points = points.toarray() if sparse.issparse(points) else points
        return (points.astype(np.float64) - self.centre) / self.scale

    def components(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a linear map of the coordinates as rows for the features as given."""
        return (rows if self.axes is None else rows @ self.axes) / self.scale


def working_space(
    points: Any,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
    max_features: int,
    random: np.random.RandomState,
) -> WorkingSpace:
    """All features where they are at most `max_features`, otherwise as many leading principal components.

    Fewer points than that span fewer dimensions: then nothing of the training points is lost.
    """
    if centre.size <= max_features:
        return WorkingSpace(centre, scale, None)
    if points.shape[0] > _POINTS_FOR_AXES:
        rows = np.sort(random.choice(points.shape[0], _POINTS_FOR_AXES, replace=False))
        points, weights = points[rows], weights[rows]
    return WorkingSpace(centre, scale, principal_axes(points, weights, centre, scale, max_features, random))


def principal_axes(
    points: Any, weights: np.ndarray, centre: np.ndarray, scale: np.ndarray, n_axes: int, random: np.random.RandomState
) -> np.ndarray:
    """Leading principal axes of weighted, scaled points, strongest first; fewer where the points span less."""
    n_points, n_features = points.shape
    roots = np.sqrt(weights)
    n_axes = min(n_axes, n_points, n_features)
    few = n_axes <= min(n_points, n_features) // 2
    if few and sparse.issparse(points) and n_points * n_features > _DENSE_ENTRIES:
        return _by_iteration(_centred_operator(points, roots, centre, scale), n_axes, random)
    dense = points.toarray() if sparse.issparse(points) else points
    centred = (dense.astype(np.float64) - centre) / scale * roots[:, None]
    if few and min(centred.shape) > _SMALL:
        return _by_iteration(centred, n_axes, random)
    return _by_covariance(centred, n_axes)


def _by_covariance(centred: np.ndarray, n_axes: int) -> np.ndarray:
    tall = centred.shape[0] >= centred.shape[1]
    gram = centred.T @ centred if tall else centred @ centred.T
    size = gram.shape[0]
    strength, vectors = eigh(gram, subset_by_index=(size - n_axes, size - 1))
    strength, vectors = strength[::-1], vectors[:, ::-1]
    useful = strength > 1e-12 * max(strength[0], 0.0)
    if not useful.any():  # all points coincide: any axis is as good as another
        return np.eye(1, centred.shape[1])
    vectors = vectors[:, useful]
    return _signed(vectors.T if tall else (vectors / np.sqrt(strength[useful])).T @ centred)


def _by_iteration(centred: Any, n_axes: int, random: np.random.RandomState) -> np.ndarray:
    _, strength, axes = svds(centred, n_axes, v0=random.normal(size=min(centred.shape)))
    useful = strength > 1e-6 * strength.max()
    return _signed(axes[useful][np.argsort(-strength[useful])])


def _signed(axes: np.ndarray) -> np.ndarray:
    """An axis has no direction of its own: its largest entry is made positive."""
    largest = np.abs(axes).argmax(axis=1)
    return axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]


def _centred_operator(points: Any, roots: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> LinearOperator:
    """diag(roots) (points - centre) / scale as products only: sparse points stay sparse."""

    def forward(x: np.ndarray) -> np.ndarray:
        x = x.ravel() / scale
        return roots * (points @ x - centre @ x)

    def backward(x: np.ndarray) -> np.ndarray:
        x = x.ravel() * roots
        return (points.T @ x - centre * x.sum()) / scale

    return LinearOperator(points.shape, matvec=forward, rmatvec=backward, dtype=np.float64)
