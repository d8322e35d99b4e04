"""Distances between distributions, and exact nearest neighbours with a part of the distances."""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._internal.parallel import Threads
from ._internal.types import DistributionsLike, PointsLike
from .metrics.base import GroundMetric
from .transport.cohort import check_cohorts, has_few_components, pairwise, resolve_metric, scaled_points
from .transport.neighbors import pruned_distances
from .transport.plan import Status
from .transport.problem import Masses
from .transport.solvers.exact import Solver, warn_of_status

__all__ = ["kneighbors", "pairwise_distances"]


def pairwise_distances(
    A: DistributionsLike,
    B: DistributionsLike | None = None,
    metric: GroundMetric | str = "euclidean",
    *,
    solver: str | Solver = "exact",
    n_jobs: int | None = None,
    max_pivots: int | None = None,
    verbose: int = 0,
    keep: str | os.PathLike[str] | None = None,
    **options: Any,
) -> np.ndarray:
    """Compute Wasserstein distances between all distributions of A and of B (or within A).

    `transport.pairwise` returns the same values with lower and upper bounds and the status of each solve.

    Distances are exact for the given points. As estimates for the distributions from which the points are drawn, they
    are too large, by a bias that falls with the number of points. If numbers of points differ between distributions,
    compare equal numbers: ``pairwise_distances(D.equalize())``.

    Parameters
    ----------
    A : Distributions or array of shape (n_points, n_features)
        First cohort. The rows of an array are distributions of one point each.
    B : Distributions, array of shape (n_points, n_features) or None, default=None
        Second cohort, of the same features. None compares the distributions of `A` with each other.
    metric : GroundMetric or str, default="euclidean"
        Distance between points, or the name of a distance in scikit-learn ("euclidean", "cityblock", "cosine", …).
    solver : str or Solver, default="exact"
        "exact", "partial", "unbalanced", "coarse", "auto", or an object from `groundmetric.transport`.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core. The result is the same for any number, and on a cluster.
    max_pivots : int or None, default=None
        Largest number of simplex pivots per pair; reaching it is a warning. None: not reached in practice.
    verbose : int, default=0
        1 shows a progress bar on a terminal, and prints the choice of "auto" and the error bound of a variant.
    keep : path-like or None, default=None
        File in which exact distances are cached: pairs with the same points, masses and metric are not computed again.
    **options : Any
        Options of a solver that is given by name; see the classes in `groundmetric.transport`.

    Returns
    -------
    array of shape (len(A), len(B))
        Distances; symmetric with zeros on the diagonal if B is None.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [5.0], [6.0]], samples=["a", "a", "b", "b"])
    >>> gm.pairwise_distances(D).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    >>> gm.pairwise_distances(D, solver="partial", share=0.5).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    limits: dict[str, Any] = {"n_jobs": n_jobs, "max_pivots": max_pivots, "verbose": verbose, "keep": keep}
    return pairwise(A, B, metric, solver=solver, **limits, **options).distances


def kneighbors(
    A: DistributionsLike,
    B: DistributionsLike | None = None,
    n_neighbors: int = 5,
    metric: GroundMetric | str = "euclidean",
    *,
    n_jobs: int | None = None,
    max_pivots: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the exact nearest neighbours in B (or in A) of every distribution of A.

    For metrics that project to at most 100 components (the Euclidean metric has one per feature), lower bounds exclude
    most pairs without a solve.

    If numbers of points differ, distributions with many points are the nearest neighbours of most others. Search with
    equal numbers: ``n = B.common_size()``, ``kneighbors(A.equalize(n), B.equalize(n))``.

    Parameters
    ----------
    A, B : as in `pairwise_distances`
        Distributions whose neighbours are searched, and distributions to search among; None: the others of `A`.
    n_neighbors : int, default=5
        Number of neighbours of each distribution.
    metric, n_jobs, max_pivots : as in `pairwise_distances`
        Distance between points, number of threads, and limit of simplex pivots.

    Returns
    -------
    distances : array of shape (len(A), n_neighbors)
        Distances to the neighbours, the nearest first.
    indices : array of shape (len(A), n_neighbors)
        Positions of the neighbours in `B` (or in `A`); equal distances are ordered by position.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [9.0]], samples=["a", "b", "c"])
    >>> gm.kneighbors(D, n_neighbors=1)[1].tolist()
    [[1], [0], [1]]
    """
    A, B = check_cohorts(A, B)
    n_candidates = len(A) - 1 if B is None else len(B)
    if not isinstance(n_neighbors, numbers.Integral) or not 1 <= n_neighbors <= n_candidates:
        raise ValueError(f"n_neighbors is {n_neighbors}, but there are {n_candidates} distributions to choose from")
    cohorts = (A,) if B is None else (A, B)
    ground = resolve_metric(metric, *cohorts)
    if has_few_components(ground):
        z, exponent = scaled_points(ground, cohorts)
        with Threads(n_jobs) as threads:
            options = {"threads": threads, "max_pivots": max_pivots, "cost": ground.cost}
            exact, _, stopped = pruned_distances(Masses.of(*cohorts), z, len(A), n_neighbors, **options)
        warn_of_status(Status.PIVOT_LIMIT, stopped)
        exact = np.ldexp(exact, exponent)
    else:
        exact = pairwise_distances(A, B, ground, n_jobs=n_jobs, max_pivots=max_pivots)
    if B is None:
        np.fill_diagonal(exact, np.inf)
    indices = np.argsort(exact, axis=1, kind="stable")[:, :n_neighbors]
    return np.take_along_axis(exact, indices, axis=1), indices


class GroundMetricMethod:
    """Distances between distributions and between points under the fitted `metric_`."""

    metric_: GroundMetric

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return exact distances between the distributions of `A` and of `B` (None: of `A`), shape (len(A), len(B)).

        All points are used. If their numbers differ, give ``A.equalize()``. The result does not depend on `n_jobs`, the
        number of threads (None: one; -1: one per core).
        """
        check_is_fitted(self, "metric_")
        return pairwise_distances(A, B, self.metric_, n_jobs=n_jobs)

    def point_distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Return distances between the points (rows) of `x` and of `y` (None: of `x`), shape (n_x, n_y).

        Points are an array, a sparse matrix, a data frame, or the `points` of Distributions.
        """
        check_is_fitted(self, "metric_")
        return self.metric_.distances(x, y)
