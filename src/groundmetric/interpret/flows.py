"""What the transport says: which kinds of points are matched to which, what moves, and where a point would go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ..distributions import as_distributions
from ._inputs import annotation_of, choose_pairs, feature_names, frame, metric_of, places
from .shipments import Shipments, for_each_pair, shipping

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Flow:
    """Mass that is moved between kinds of points, as a mean over pairs of distributions.

    Attributes
    ----------
    source, target : what is turned into what
    values : kinds of points
    mass : (n_values, n_values) mass from each kind (rows) to each kind (columns); sums to 1
    cost : (n_values, n_values) mass × distance (what `metric.distances` gives); sums to the mean distance between the
        distributions
    n_pairs : pairs of distributions behind it
    """

    source: str
    target: str
    values: list
    mass: np.ndarray
    cost: np.ndarray
    n_pairs: int

    @property
    def value(self) -> float:
        """Mean distance of the pairs."""
        return float(self.cost.sum())

    @property
    def distance(self) -> np.ndarray:
        """Mean way of the mass from each kind to each; NaN where none is moved."""
        return np.divide(self.cost, self.mass, out=np.full_like(self.cost, np.nan), where=self.mass > 0)

    @property
    def kept(self) -> float:
        """Share of the mass that stays with its kind."""
        return float(np.trace(self.mass))

    def table(self) -> DataFrame:
        """A row for every two kinds between which mass is moved, the costliest first."""
        rows, cols = np.nonzero(self.mass)
        columns = {
            "from": [self.values[r] for r in rows],
            "to": [self.values[c] for c in cols],
            "mass": self.mass[rows, cols],
            "distance": self.distance[rows, cols],
            "share of cost": self.cost[rows, cols] / (self.value or 1.0),
        }
        return frame(columns, np.argsort(-self.cost[rows, cols], kind="stable"))


@dataclass(frozen=True)
class Movement:
    """What changes on the way, feature by feature, as a mean over pairs of distributions.

    Attributes
    ----------
    source, target : what is turned into what
    features : names
    change : (n_features,) mean of target less source over the mass
    contribution : (n_features,) share in the cost of transport: m|s| = Σ_f m (x - x')_f (Wᵀs)_f / |s|, and for other
        costs likewise. Sums to 1; negative where a feature's change makes the way shorter.
    mass : that is looked at: 1, or that of the kind that was asked for
    """

    source: str
    target: str
    features: list[str]
    change: np.ndarray
    contribution: np.ndarray
    mass: float

    def table(self) -> DataFrame:
        """A row per feature, the largest contribution first."""
        columns = {"feature": self.features, "change": self.change, "contribution": self.contribution}
        return frame(columns, np.argsort(-self.contribution, kind="stable"))


def flow(
    D: Any,
    i: Any,
    j: Any,
    metric: Any,
    annotation: Any,
    *,
    y: Any = None,
    max_pairs: int | None = 100,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> Flow:
    """Which kinds of points are matched to which when i is turned into j.

    Parameters
    ----------
    D : Distributions
    i, j : a distribution by its name (text) or its place, or several of them; with `y`, the label of a class each
        (of one class, its distributions among each other). Of several, the mean over all pairs.
    metric : GroundMetric or fitted learner
    annotation : what kind each point is of: name of an annotation of D, or an array in the order of `D.points`
    y : labels, one per distribution
    max_pairs : of more pairs, so many are drawn at random; None: all
    n_jobs : threads

    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> found = flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> found.values, found.mass.tolist(), found.value
    (['B', 'T'], [[0.5, 0.0], [0.0, 0.5]], 0.75)
    """
    D = as_distributions(D)
    metric, kinds = metric_of(metric, D), annotation_of(D, annotation)
    chosen = choose_pairs(D, i, j, y, max_pairs, random_state)
    n = len(kinds.values)

    def digest(way: Shipments) -> tuple[np.ndarray, np.ndarray]:
        cell = kinds.codes[way.rows] * n + kinds.codes[way.cols]
        return np.bincount(cell, way.mass, n * n), np.bincount(cell, way.cost, n * n)

    mass, cost = np.mean(for_each_pair(D, chosen.pairs, metric, digest, n_jobs), axis=0)
    sides = chosen.source, chosen.target
    return Flow(*sides, kinds.values, mass.reshape(n, n), cost.reshape(n, n), len(chosen.pairs))


def movement(
    D: Any,
    i: Any,
    j: Any,
    metric: Any,
    *,
    annotation: Any = None,
    value: Any = None,
    y: Any = None,
    max_pairs: int | None = 100,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> Movement:
    """What changes when i is turned into j: for every feature its change, and its part in the cost.

    Parameters
    ----------
    D, i, j, metric, y, max_pairs, n_jobs : as in `flow`
    annotation, value : look only at mass that leaves points of this kind

    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 5.0], [3.0, 7.0]], ["ann", "bob"], features=["weight", "noise"])
    >>> found = movement(D, "ann", "bob", gm.GroundMetric([[1.0, 0.0]], ["weight", "noise"]))
    >>> found.change.tolist(), found.contribution.tolist()
    ([3.0, 2.0], [1.0, 0.0])
    """
    D = as_distributions(D)
    metric, kinds = metric_of(metric, D), annotation_of(D, annotation)
    if annotation is not None and value not in kinds.values:
        raise ValueError(f"value is {value!r}: expected one of {kinds.values}")
    wanted = 0 if annotation is None else kinds.values.index(value)
    z, components = metric.project(D), metric.components

    def digest(way: Shipments) -> tuple[np.ndarray, np.ndarray, float]:
        leaving = np.flatnonzero(kinds.codes[way.rows] == wanted)
        rows, cols, mass = (part[leaving] for part in (way.rows, way.cols, way.mass))
        pull = metric.cost.slopes(z[cols] - z[rows]) * mass[:, None]
        step = D.points[cols] - D.points[rows]  # (shipments, n_features)
        carried = np.sum(components * np.asarray((step.T @ pull).T, dtype=np.float64), axis=0)
        return np.asarray(step.T @ mass, dtype=np.float64).ravel(), carried, float(mass.sum())

    chosen = choose_pairs(D, i, j, y, max_pairs, random_state)
    found = for_each_pair(D, chosen.pairs, metric, digest, n_jobs)
    change, carried, total = (np.mean(part, axis=0) for part in zip(*found, strict=True))
    if not total > 0:
        raise ValueError(f"no mass leaves points of {value!r}: {chosen.source} has none of them")
    sides, names = (chosen.source, chosen.target), feature_names(metric, D)
    return Movement(*sides, names, change / total, carried / (carried.sum() or 1.0), float(total))


def barycentric(D: Any, i: Any, j: Any, metric: Any) -> Any:
    """Where each point of i would be among the points of j: the mean of what it is matched to, mass by mass.

    An array (or CSR matrix, where the points are sparse) of the points of i, in their order: (size of i, n_features).
    Points without mass are matched to nothing and stay where they are.

    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [4.0], [6.0]], ["ann", "bob", "bob"])
    >>> barycentric(D, "ann", "bob", gm.GroundMetric([[1.0]])).tolist()
    [[5.0]]
    """
    D = as_distributions(D)
    metric = metric_of(metric, D)
    one, other = places(D, i), places(D, j)
    if one.size > 1 or other.size > 1:
        raise ValueError(f"i and j are {one.size} and {other.size} distributions: expected one each")
    d, e = int(one[0]), int(other[0])
    way = shipping(D, metric)(d, e)
    size = int(D.sizes[d])
    rows, cols = way.rows - D.bounds[d], way.cols - D.bounds[e]
    sent = np.bincount(rows, way.mass, size)
    share = way.mass / sent[rows]
    matching = sparse.csr_matrix((share, (rows, cols)), (size, int(D.sizes[e])))
    here = D.points[D.bounds[d] : D.bounds[d + 1]]
    staying = sparse.diags((sent == 0).astype(float), format="csr")
    return matching @ D.points[D.bounds[e] : D.bounds[e + 1]] + staying @ here
