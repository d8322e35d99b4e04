"""Whole cohorts with their points grouped: smaller distributions with weights, for any code that takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ..metrics.cost import Cost
from .cohort import is_projection
from .solvers.coarse import Coarse, group_points

# Groups are looked for in so many dimensions at most: which they are, is free to choose; what it costs, is measured.
_MOST_AXES = 20


@dataclass(frozen=True)
class Coarsened:
    """A cohort whose points were grouped; the result of `coarsen`.

    Parameters
    ----------
    distributions : Distributions
        The centres of the groups, weighted by their masses.
    source : Distributions
        The distributions that were coarsened, without points of no mass.
    groups : array of shape (n_points,)
        For every row of `source.points`, the row of `distributions.points` that is the centre of its group.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [8.0], [5.0]], samples=["a", "a", "a", "b"])
    >>> coarse = gm.transport.coarsen(D, 2)
    >>> coarse.distributions.points.ravel().tolist(), coarse.groups.tolist()
    ([0.5, 8.0, 5.0], [0, 0, 1, 2])
    >>> coarse.radii().round(3).tolist()
    [0.333, 0.0]
    """

    distributions: Distributions
    source: Distributions
    groups: np.ndarray

    def radii(self, metric: GroundMetric | None = None) -> np.ndarray:
        """How far each distribution is from its coarsened one, at most: the mean distance of its mass from the centres.

        For any two distributions, |W(X, Y) - W(X', Y')| is at most the sum of their radii.

        Parameters
        ----------
        metric : GroundMetric or None, default=None
            Ground metric of the distances; None: Euclidean between the features as they are. Squared costs and
            metrics other than a cost of the step between projected points raise ValueError.

        Returns
        -------
        array of shape (n_distributions,)
            Radii.
        """
        metric = GroundMetric.euclidean(self.source.shape[1]) if metric is None else metric
        if not is_projection(metric) or metric.cost is Cost.SQUARED:
            raise ValueError(f"metric is {metric!r}: radii need a distance between projected points, not squared")
        steps = metric.project(self.source.points) - metric.project(self.distributions.points)[self.groups]
        return np.add.reduceat(self.source.weights * metric.cost.norm(steps), self.source.bounds[:-1])


def coarsen(D: Distributions, n_groups: int, *, metric: GroundMetric | None = None) -> Coarsened:
    """Every distribution with its points in at most so many groups, their masses summed at their means.

    Learning and comparing then take a fraction of the time; `radii` bound what that changes. The means of the
    distributions do not change. Nothing is drawn at random.

    Parameters
    ----------
    D : Distributions
        The cohort.
    n_groups : int
        Number of groups per distribution, at most; distributions with no more points keep them all.
    metric : GroundMetric or None, default=None
        Metric under which the points of a group are close. None: Euclidean between standardised features, reduced
        to 20 dimensions by a truncated singular value decomposition where there are more.

    Returns
    -------
    Coarsened
        The coarsened distributions, and which point went into which group.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> coarse = gm.transport.coarsen(D, 20)
    >>> int(coarse.distributions.sizes.max()), coarse.radii().shape == y.shape
    (20, True)
    """
    Coarse(n_groups)  # checks the number
    D = D.with_mass()
    places = metric.project(D.points) if metric is not None else _standardised(D.points)
    groups = np.empty(D.weights.size, np.int64)
    counts = np.empty(len(D), np.int64)
    for d, (low, high) in enumerate(zip(D.bounds[:-1], D.bounds[1:], strict=True)):
        here = np.arange(high - low)
        if here.size > n_groups:
            here = group_points(places[low:high], D.weights[low:high], n_groups)[1]
        counts[d] = here.max() + 1
        groups[low:high] = counts[:d].sum() + here
    masses = np.bincount(groups, D.weights)
    averaging = sparse.csr_matrix((D.weights / masses[groups], (groups, np.arange(groups.size))))
    centres = (averaging @ D.points).astype(D.points.dtype, copy=False)
    owners = np.repeat(np.arange(len(D)), counts)
    coarse = Distributions(centres, owners, weights=masses, features=D.features)
    coarse.names = list(D.names)
    return Coarsened(coarse, D, groups)


def _standardised(points: Any) -> np.ndarray:
    """Features in units of their spread, or the leading principal axes of them."""
    if sparse.issparse(points):
        mean = np.asarray(points.mean(axis=0)).ravel()
        variance = np.asarray(points.multiply(points).mean(axis=0)).ravel() - mean**2
    else:
        mean, variance = points.mean(axis=0, dtype=np.float64), points.var(axis=0, dtype=np.float64)
    spread = np.sqrt(np.maximum(variance, 0.0))
    factor = 1.0 / np.where(spread > 0, spread, 1.0)
    if sparse.issparse(points):
        scaled = (points @ sparse.diags(factor)).tocsr()
    else:
        scaled = (points - mean) * factor
    if points.shape[1] > _MOST_AXES:
        from sklearn.decomposition import TruncatedSVD  # 10 MB that others do without

        return TruncatedSVD(_MOST_AXES, random_state=0).fit_transform(scaled)
    return np.asarray(scaled.toarray() if sparse.issparse(scaled) else scaled, dtype=np.float64)
