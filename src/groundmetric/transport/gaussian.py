"""Distributions as Gaussians or mixtures of them: closed forms in place of transport between points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from .coarse import Groups, spread_over_points
from .exact import solve_exact
from .grouping import group_points
from .plan import Plan, Status
from .solver import Cloud, Distances, Solver, check_number


class Gaussians(NamedTuple):
    """Weighted Gaussians: means, square roots of the covariances, and total variances."""

    weights: np.ndarray  # (n_gaussians,)
    means: np.ndarray  # (n_gaussians, n_components)
    roots: np.ndarray  # (n_gaussians, n_components, n_components)
    variances: np.ndarray  # (n_gaussians,) traces of the covariances


class Fitted(NamedTuple):
    """A distribution as a mixture, and as a single Gaussian for bounds."""

    mixture: Gaussians
    whole: Gaussians
    groups: Groups


@dataclass(frozen=True)
class Gaussian(Solver):
    """The Bures-Wasserstein distance (W₂) between the Gaussians of the same means and covariances.

    It is a lower bound of the W₂ distance between the distributions (Gelbrich). The exact distance (W₁) lies between
    the distance of the means and the root mean square distance of independent points, which are the `bounds`.
    """

    name: ClassVar[str] = "gaussian"
    on_points: ClassVar[bool] = True

    def prepare(self, cloud: Cloud, distances: Distances) -> Gaussians:
        points = np.asarray(cloud.points, dtype=np.float64)
        return fit_gaussians(points, cloud.masses, np.zeros(len(points), np.int64))

    def compare(self, x: Gaussians, y: Gaussians, distances: Distances) -> Plan:
        nothing = np.empty(0, np.int64)
        return Plan(
            value=float(np.sqrt(bures_squared(x, y)[0, 0])),
            rows=nothing,
            cols=nothing,
            mass=np.empty(0),
            potentials=None,
            basis=None,
            status=Status.APPROXIMATE,
            pivots=0,
            solver=self.name,
            bounds=moment_bounds(x, y),
        )


@dataclass(frozen=True)
class Mixture(Solver):
    """Transport between the components of Gaussian mixtures at their squared Bures distances; the root of its value.

    Components are groups of nearby points. One component is `Gaussian`; a component per point is the W₂ distance.
    (Delon & Desolneux 2020.)

    Parameters
    ----------
    n_components : int
    max_pivots : int, optional
    """

    n_components: int = 10
    max_pivots: int | None = None

    name: ClassVar[str] = "mixture"
    on_points: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number(self, "n_components", low=1, whole=True)
        check_number(self, "max_pivots", low=0, whole=True)

    def prepare(self, cloud: Cloud, distances: Distances) -> Fitted:
        points = np.asarray(cloud.points, dtype=np.float64)
        centres, groups = group_points(points, cloud.masses, self.n_components)
        whole = fit_gaussians(points, cloud.masses, np.zeros(len(points), np.int64))
        mixture = fit_gaussians(points, cloud.masses, groups)
        away = np.linalg.norm(points - centres[groups], axis=1)
        return Fitted(mixture, whole, Groups(points, cloud.masses, centres, mixture.weights, groups, away))

    def compare(self, x: Fitted, y: Fitted, distances: Distances) -> Plan:
        squared = bures_squared(x.mixture, y.mixture)
        between = solve_exact(squared, x.mixture.weights, y.mixture.weights, max_pivots=self.max_pivots)
        rows, cols, mass = spread_over_points(between, x.groups, y.groups)
        apart = np.linalg.norm(x.groups.points[rows] - y.groups.points[cols], axis=1)
        low, high = moment_bounds(x.whole, y.whole)
        return Plan(
            value=float(np.sqrt(max(between.value, 0.0))),
            rows=rows,
            cols=cols,
            mass=mass,
            potentials=None,
            basis=None,
            status=between.status if not between.optimal else Status.APPROXIMATE,
            pivots=between.pivots,
            solver=self.name,
            bounds=(low, max(low, min(high, float(mass @ apart)))),
        )


def fit_gaussians(points: np.ndarray, masses: np.ndarray, groups: np.ndarray) -> Gaussians:
    """A Gaussian for each group of points."""
    n_groups, k = int(groups.max()) + 1, points.shape[1]
    weights = np.bincount(groups, masses, n_groups)
    means, roots, variances = np.empty((n_groups, k)), np.zeros((n_groups, k, k)), np.zeros(n_groups)
    for g in range(n_groups):
        inside = groups == g
        shares = masses[inside] / weights[g]
        anchor = points[inside][0]  # so that one point, or many at one place, have no variance at all
        steps = points[inside] - anchor
        shift = shares @ steps
        means[g] = anchor + shift
        if len(steps) > 1:
            steps = (steps - shift) * np.sqrt(shares)[:, None]
            values, axes = np.linalg.eigh(steps.T @ steps)
            roots[g] = (axes * np.sqrt(np.maximum(values, 0.0))) @ axes.T
            variances[g] = np.sum(steps**2)
    return Gaussians(weights, means, roots, variances)


def bures_squared(x: Gaussians, y: Gaussians) -> np.ndarray:
    """Squared W₂ distances between Gaussians: |m - m'|² + tr(S + S' - 2 (S^½ S' S^½)^½).

    The trace of the root is the sum of the singular values of S^½ S'^½.
    """
    shift = np.sum((x.means[:, None] - y.means) ** 2, axis=2)
    shared = np.linalg.svd(np.einsum("gij,hjk->ghik", x.roots, y.roots), compute_uv=False).sum(axis=2)
    spread = x.variances[:, None] + y.variances - 2.0 * shared
    # Between equal covariances the terms cancel: what is below their rounding is 0.
    spread[spread < 1e-13 * (x.variances[:, None] + y.variances)] = 0.0
    return shift + spread


def moment_bounds(x: Gaussians, y: Gaussians) -> tuple[float, float]:
    """Bounds of the exact distance from means and variances: Jensen, and the plan that couples independently."""
    shift = float(np.linalg.norm(x.means[0] - y.means[0]))
    return shift, float(np.sqrt(shift**2 + x.variances[0] + y.variances[0]))
