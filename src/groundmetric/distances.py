"""Distances between distributions, and exact nearest neighbours without all of them."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances as sklearn_distances
from tqdm import tqdm

from .distributions import Distributions, as_distributions
from .metric import BlendedMetric, GroundMetric
from .parallel import Threads
from .transport import Status, solve
from .transport.masses import Masses
from .transport.pairs import PairTransport, pair_transport
from .transport.search import Finder, nearest

# Up to so many components, costs are filled from projected points inside the solver; beyond, matrix products win.
_FEW_COMPONENTS = 32


def pairwise_distances(
    A: Any,
    B: Any = None,
    metric: GroundMetric | str = "euclidean",
    *,
    solver: str = "exact",
    n_jobs: int | None = None,
    max_pivots: int | None = None,
    verbose: int = 0,
) -> np.ndarray:
    """Exact Wasserstein distances between all distributions of A and of B (or among those of A).

    Parameters
    ----------
    A, B : Distributions, or arrays whose rows are distributions of one point each
    metric : GroundMetric, or the name of a distance between points that scikit-learn knows ("euclidean", "cityblock",
        "cosine", …)
    solver : "exact"
    n_jobs : threads; None means one, -1 one per core. The result is the same for any number.
    max_pivots : limit per pair; a warning says if it was reached
    verbose : 1 shows a progress bar where there is a terminal

    Returns
    -------
    array of shape (len(A), len(B)); symmetric with zeros on the diagonal where B is None

    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [5.0], [6.0]], groups=["a", "a", "b", "b"])
    >>> gm.pairwise_distances(D).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    if solver != "exact":
        raise ValueError(f"solver is {solver!r}: expected 'exact'")
    A, B = _check_cohorts(A, B)
    rows, cols = np.triu_indices(len(A), 1) if B is None else (grid.ravel() for grid in np.indices((len(A), len(B))))
    cohorts = (A,) if B is None else (A, B)
    shift = 0 if B is None else len(A)
    with Threads(n_jobs) as threads:
        values, stopped = _solve_all(A, B, rows, cols + shift, _resolve(metric, *cohorts), threads, max_pivots, verbose)
    warn_of_pivot_limit(stopped)
    distances = np.zeros((len(A), len(A if B is None else B)))
    distances[rows, cols] = values
    if B is None:
        distances[cols, rows] = values
    return distances


def kneighbors(
    A: Any,
    B: Any = None,
    n_neighbors: int = 5,
    metric: GroundMetric | str = "euclidean",
    *,
    return_solves: bool = False,
    n_jobs: int | None = None,
    max_pivots: int | None = None,
) -> tuple:
    """Nearest neighbours of every distribution of A among those of B (or among the others of A), exactly.

    Lower bounds (the distance between means, and transport along a few lines) rule most pairs out without a solve.

    Returns
    -------
    distances, indices : arrays of shape (len(A), n_neighbors), nearest first; equal distances by index
    solves : number of pairs that were solved exactly, with ``return_solves=True``

    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [9.0]], groups=["a", "b", "c"])
    >>> gm.kneighbors(D, n_neighbors=1)[1].tolist()
    [[1], [0], [1]]
    """
    A, B = _check_cohorts(A, B)
    others = len(A) - 1 if B is None else len(B)
    if not isinstance(n_neighbors, numbers.Integral) or not 1 <= n_neighbors <= others:
        raise ValueError(f"n_neighbors is {n_neighbors}, but there are {others} distributions to choose from")
    cohorts = (A,) if B is None else (A, B)
    ground = _resolve(metric, *cohorts)
    shift = 0 if B is None else len(A)
    shape = (len(A), len(cohorts[-1]))
    with Threads(n_jobs) as threads:
        if not _is_projection(ground):
            exact = pairwise_distances(A, B, ground, n_jobs=n_jobs, max_pivots=max_pivots)
            solves = others * len(A) // (2 if B is None else 1)
        else:
            z = np.vstack([ground.project(cohort.points) for cohort in cohorts])
            finder = Finder(Masses.of(*cohorts), z - z.mean(axis=0), threads, max_pivots)
            rows, cols = (grid.ravel() for grid in np.indices(shape))
            lower = finder.lower(rows, cols + shift).reshape(shape)
            if B is None:
                np.fill_diagonal(lower, np.inf)
            exact = nearest(lower, n_neighbors, lambda rows, cols: finder.solve(rows, cols + shift))
            solves = finder.solves
            warn_of_pivot_limit(finder.stopped_pivoting)
    if B is None:
        np.fill_diagonal(exact, np.inf)
    indices = np.argsort(exact, axis=1, kind="stable")[:, :n_neighbors]
    answer = np.take_along_axis(exact, indices, axis=1), indices
    return (*answer, solves) if return_solves else answer


def warn_of_pivot_limit(stopped: int) -> None:
    _warn_of(Status.PIVOT_LIMIT, stopped)


def _warn_of(status: Status, count: int) -> None:
    if count:
        warnings.warn(f"{count} solves {status.value}", ConvergenceWarning, stacklevel=4)


def _check_cohorts(A: Any, B: Any) -> tuple[Distributions, Distributions | None]:
    A = as_distributions(A).with_mass()
    B = None if B is None else as_distributions(B).with_mass()
    if len(A) == 0 or (B is not None and len(B) == 0):
        raise ValueError("no distributions: at least one is needed on each side")
    if B is None:
        return A, None
    if A.shape[1] != B.shape[1]:
        raise ValueError(f"A has {A.shape[1]} features, B has {B.shape[1]}: both need the same")
    if A.features is not None and B.features is not None and A.features != B.features:
        raise ValueError("A and B have features of other names or in another order: bring them into the same order")
    return A, B


class NamedDistance:
    """A distance between points that scikit-learn knows by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        return sklearn_distances(x, y, metric=self.name)


def _resolve(metric: Any, *cohorts: Distributions) -> Any:
    """A metric object from its name; objects are checked against the features of the cohorts."""
    if isinstance(metric, str) and metric == "euclidean":
        return GroundMetric.euclidean(cohorts[0].shape[1])
    if isinstance(metric, str):
        return NamedDistance(metric)
    if not hasattr(metric, "distances"):
        raise TypeError(f"metric is {metric!r}: expected a GroundMetric or a name")
    if isinstance(metric, GroundMetric):
        for cohort in cohorts:
            metric.check_fit(cohort)
    return metric


def _is_projection(metric: Any) -> bool:
    """Is the distance Euclidean between projected points of few components?"""
    if not isinstance(metric, GroundMetric) or isinstance(metric, BlendedMetric):
        return False
    return metric.n_components <= _FEW_COMPONENTS


def _solve_all(
    A: Distributions,
    B: Distributions | None,
    first: np.ndarray,
    second: np.ndarray,
    metric: Any,
    threads: Threads,
    max_pivots: int | None,
    verbose: int,
) -> tuple[np.ndarray, int]:
    """Exact values of all pairs, and how many solves ended at the pivot limit."""
    cohorts = (A,) if B is None else (A, B)
    bar = tqdm(total=first.size, desc="distances", unit="pair", disable=None if verbose else True, leave=False)
    if _is_projection(metric):
        z = np.vstack([metric.project(cohort.points) for cohort in cohorts])
        options: dict[str, Any] = {"threads": threads, "memory": 0.0, "max_pivots": max_pivots}
        transport = pair_transport(Masses.of(*cohorts), first, second, z.shape[1], **options)
        transport.move_all(z - z.mean(axis=0))
        return _solve_in_rounds(transport, bar)
    if all(np.all(cohort.sizes == 1) for cohort in cohorts):  # between single points there is nothing to transport
        return metric.distances(A.points, cohorts[-1].points)[first, second - (0 if B is None else len(A))], 0
    blocks = [(cohort, d) for cohort in cohorts for d in range(len(cohort))]

    def one(pair: int) -> tuple[float, Status]:
        (x, a), (y, b) = (_block(*blocks[side[pair]]) for side in (first, second))
        plan = solve(metric.distances(x, y), a, b, max_pivots=max_pivots)
        bar.update()
        return plan.value, plan.status

    results = threads.map(one, range(first.size))
    bar.close()
    statuses = [status for _, status in results]
    _warn_of(Status.IMPRECISE, statuses.count(Status.IMPRECISE))
    return np.array([value for value, _ in results]), statuses.count(Status.PIVOT_LIMIT)


def _block(cohort: Distributions, d: int) -> tuple[Any, np.ndarray]:
    low, high = cohort.bounds[d], cohort.bounds[d + 1]
    return cohort.points[low:high], cohort.weights[low:high]


def _solve_in_rounds(transport: PairTransport, bar: tqdm) -> tuple[np.ndarray, int]:
    """Solve all pairs, a few hundred at a time: bases are not kept, so that memory stays small."""
    n_pairs = transport.first.size
    for low in range(0, n_pairs, 512):
        pairs = np.arange(low, min(low + 512, n_pairs))
        transport.solve(pairs)
        bar.update(pairs.size)
    bar.close()
    return transport.answers.value, int(np.sum(~transport.answers.optimal))
