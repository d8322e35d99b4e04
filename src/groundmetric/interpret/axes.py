"""Axes of a metric that can be read one by one; positions and orders of distributions for figures and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import cdist, squareform
from sklearn.utils import check_random_state

from .._internal.types import DistributionsLike, LabelsLike, MetricLike, RandomState
from ..distributions import as_distributions
from ..metrics.base import Cost, GroundMetric
from .flows import Bag, Shipments, Tabular, annotation_of, by_kind, classes_of, feature_names, metric_of, pair_costs

_MOST_ORDERED = 300  # leaves of a tree that are ordered optimally; the time is cubic in their number


@dataclass(frozen=True)
class Axes(Tabular):
    """Axes of a metric, sorted by their share of the transport between classes.

    Parameters
    ----------
    metric : GroundMetric
        The metric with these axes as its components; its distances are those of the original.
    features, loadings : list of str, array of shape (n_axes, n_features)
        Names of the features, and comparable weights of the standardised features.
    variance : array of shape (n_axes,)
        Share of each axis in the variance of the projected points.
    classes, positions : array of shape (n_classes,) and (n_classes, n_axes)
        Labels, and the mean of each class along each axis less that of all distributions, in standard deviations of
        the points.
    values : list
        Kinds of points.
    between, within : array of shape (n_values, n_axes)
        Mean cost of transport to distributions of other classes, and of the own, by kind of points and axis.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> gm.interpret.canonical_axes(gm.GroundMetric([[1.0, 0.0], [0.0, 0.01]], D.features), D, y).positions.shape
    (3, 2)
    """

    metric: GroundMetric
    features: list[str]
    loadings: np.ndarray
    variance: np.ndarray
    classes: np.ndarray
    positions: np.ndarray
    values: list[Any]
    between: np.ndarray
    within: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Share of each axis in the transport between classes; sums to 1."""
        return self.between.sum(axis=0) / self.between.sum()

    @property
    def activity(self) -> np.ndarray:
        """Distance to other classes minus that to the own, by kind of points and axis, (n_values, n_axes).

        In units of the mean distance between classes.
        """
        return (self.between - self.within) / self.between.sum()

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        activity = self.activity
        columns: dict[str, Any] = {
            "axis": np.arange(1, self.share.size + 1),
            "between": self.share,
            "separation": activity.sum(axis=0),
            "variance": self.variance,
        }
        columns |= {f"position of {label}": self.positions[c] for c, label in enumerate(self.classes)}
        if len(self.values) > 1:
            columns |= {f"activity in {value}": activity[v] for v, value in enumerate(self.values)}
            columns["most active"] = np.array(self.values, dtype=object)[activity.argmax(axis=0)]
        signs = np.where(self.loadings >= 0, "+", "-")
        leading = np.argsort(-np.abs(self.loadings), axis=1, kind="stable")[:, :5]
        columns["leading features"] = [
            ", ".join(f"{signs[a, f]}{self.features[f]}" for f in features) for a, features in enumerate(leading)
        ]
        return columns, np.arange(self.share.size)


def canonical_axes(
    metric: MetricLike,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    annotation: str | LabelsLike | None = None,
    max_partners: int = 10,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Axes:
    """Rotate the components of a metric to uncorrelated axes, sorted by their share of the transport.

    W and RW are the same metric for every rotation R, so single rows of a learned W have no meaning. The axes are the
    principal axes of the projected points, which are uncorrelated, sorted by their share of the transport between
    classes. The largest loading of each is positive. With Manhattan costs a rotation is another metric: the axes are
    the learned components in this order.

    Parameters
    ----------
    metric : GroundMetric or fitted learner
        The ground metric.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels.
    annotation : str, array of shape (n_points,) or None, default=None
        Kind of each point, with which points are compared as in `annotation_relevance`.
    max_partners : int, default=10
        Largest number of distributions of each class with which a distribution is compared, drawn at random.
    random_state : int, RandomState or None, default=0
        Seed of the draw of partners.
    n_jobs : int or None, default=None
        Threads; None means one.
    verbose : int, default=0
        1 shows a progress bar of the transport plans on a terminal.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> axes = gm.interpret.canonical_axes(gm.GroundMetric([[0.0, 1.0], [1.0, 0.0]], D.features), D, y)
    >>> bool(axes.share[0] >= axes.share[1])
    True
    """
    D = as_distributions(D)
    metric = metric_of(metric, D)
    classes, codes = classes_of(y, D)
    values, kinds = annotation_of(D, annotation)
    # Every distribution has the same weight in the variances, and labels are not used for the rotation.
    z, weights = metric.project(D), D.weights / len(D)
    centred = z - weights @ z
    if metric.cost is Cost.MANHATTAN:
        variance = weights @ centred**2
        order = np.argsort(-variance, kind="stable")
        components, variance = metric.components[order], variance[order]
    else:
        variance, axes = np.linalg.eigh((centred * weights[:, None]).T @ centred)
        variance, components = np.maximum(variance[::-1], 0.0), axes[:, ::-1].T @ metric.components
    loadings = components * np.sqrt(D.moments(weighted=False)[1] if metric.variances is None else metric.variances)
    sign = np.where(loadings[np.arange(len(loadings)), np.abs(loadings).argmax(axis=1)] < 0, -1.0, 1.0)

    def with_components(components: np.ndarray) -> GroundMetric:
        return GroundMetric(components, metric.features, variances=metric.variances, cost=metric.cost)

    turned = with_components(components * sign[:, None])
    z = turned.project(D)

    def digest(bag: Bag, plan: Shipments) -> np.ndarray:
        """Divide the cost of mass m over the step s: m|s| = Σ m s_a² / |s| (Manhattan Σ m |s_a|, squared Σ m s_a²)."""
        step = z[plan.rows] - z[plan.cols]
        parts = step * turned.cost.slopes(step) * plan.mass[:, None]
        return np.stack([by_kind(kinds[ends], parts, len(values)) for ends in (plan.rows, plan.cols)])

    bag = Bag(D, kinds, turned, np.zeros(len(D), dtype=bool))
    costs = pair_costs(
        [bag], codes, digest, max_partners=max_partners, random=check_random_state(random_state), n_jobs=n_jobs,
        verbose=verbose,
    )  # fmt: skip
    between, within = costs.means()
    order = np.argsort(-between.sum(axis=0), kind="stable")
    means = D.means() @ turned.components.T  # (n_distributions, n_axes)
    deviation = np.sqrt(np.where(variance > 0, variance, 1.0))
    positions = np.stack([means[codes == c].mean(axis=0) for c in range(classes.size)]) - means.mean(axis=0)
    return Axes(
        with_components(turned.components[order]), feature_names(D, metric), loadings=(loadings * sign[:, None])[order],
        variance=variance[order] / (variance.sum() or 1.0), classes=classes,
        positions=(positions / deviation)[:, order], values=values, between=between[:, order], within=within[:, order],
    )  # fmt: skip


def classical_scaling(distances: np.ndarray, n_components: int = 2) -> np.ndarray:
    """Return positions by classical multidimensional scaling, (n, n_components), sorted by variance."""
    squares = np.asarray(distances, dtype=np.float64) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.25 * (centred + centred.T))
    last = slice(None, -n_components - 1, -1)
    positions = fix_signs(vectors[:, last]) * np.sqrt(np.maximum(values[last], 0.0))
    return np.pad(positions, ((0, 0), (0, n_components - positions.shape[1])))


def metric_scaling(distances: np.ndarray, n_steps: int = 500) -> np.ndarray:
    """Return positions in the plane by metric multidimensional scaling (SMACOF), started from classical scaling."""
    # It minimises the sum of squared differences between the distances and the distances in the plane. Classical
    # scaling exaggerates the largest differences: two samples that differ in further dimensions may lie on one spot.
    distances = np.asarray(distances, dtype=np.float64)
    positions = classical_scaling(distances)
    # Coinciding positions have no direction in which the update could separate them.
    positions = positions + 1e-6 * distances.max() * np.random.default_rng(0).normal(size=positions.shape)
    stress = np.inf
    for _ in range(n_steps):
        drawn = cdist(positions, positions)
        ratio = distances / np.maximum(drawn + np.eye(len(drawn)), 1e-12)
        np.fill_diagonal(ratio, 0.0)
        positions = (ratio.sum(axis=1)[:, None] * positions - ratio @ positions) / len(drawn)  # Guttman transform
        previous, stress = stress, float(np.sum((distances - drawn) ** 2))
        if previous - stress <= 1e-7 * stress:
            break
    return positions - positions.mean(axis=0)


def stress_of(positions: np.ndarray, distances: np.ndarray) -> float:
    """Return Kruskal's stress-1 of positions: 0 if all distances are drawn exactly."""
    squares = (distances - cdist(positions, positions)) ** 2
    return float(np.sqrt(np.sum(squares) / (np.sum(np.square(distances)) or 1.0)))


def order_by_class(distances: np.ndarray, y: Any) -> np.ndarray:
    """Return an order of rows that keeps each class together, and within it similar rows (average linkage)."""
    distances = np.asarray(distances)
    codes = np.unique(np.asarray(y), return_inverse=True)[1]
    order: list[np.ndarray] = []
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        if members.size > 2:
            members = members[leaves_list(average_linkage(distances[np.ix_(members, members)]))]
        # The direction of a tree is arbitrary: begin at the end that is nearer to the first row of the first class.
        start = order[0][0] if order else members[0]
        order.append(members[:: -1 if distances[start, members[-1]] < distances[start, members[0]] else 1])
    return np.concatenate(order)


def average_linkage(distances: np.ndarray) -> np.ndarray:
    """Return the tree of average linkage (as SciPy has it), with optimal leaf order for at most 300 leaves."""
    condensed = squareform(np.asarray(distances), checks=False)
    return linkage(condensed, "average", optimal_ordering=len(distances) <= _MOST_ORDERED)


def principal_axes(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points rotated onto their principal axes, and the share of the variance of each axis."""
    z = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z)
    values, vectors = np.maximum(values[::-1], 0.0), fix_signs(vectors[:, ::-1])
    return z @ vectors, values / (values.sum() or 1.0)


def ellipse_axes(matrix: np.ndarray) -> tuple[float, float, float]:
    """Return the half axes of the ellipse of a 2 x 2 matrix, relative to the longer one, and its angle in degrees."""
    values, vectors = np.linalg.eigh(matrix)
    minor, major = np.sqrt(np.maximum(values, 0.0) / (values[-1] or 1.0))
    return float(major), float(minor), float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))


def fix_signs(vectors: np.ndarray) -> np.ndarray:
    """Return columns with their largest entry positive, because the sign of an eigenvector is arbitrary."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)
