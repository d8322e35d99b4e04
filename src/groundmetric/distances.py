"""Distances between distributions, and exact nearest neighbours without all of them."""

from __future__ import annotations

import numbers
import os
from collections import Counter
from typing import Any

import numpy as np

from ._internal.parallel import Threads, configured_backend, progress_bar, write_line
from ._internal.types import DistributionsLike
from .distributions import Distributions, as_distributions
from .metrics.base import GroundMetric
from .metrics.cost import BadDistances, checked_distances
from .metrics.forms import NamedDistance
from .transport import Auto, BoundedDistances, Exact, Status
from .transport.cache import CohortDistances, DistanceCache
from .transport.cohort import (
    Found,
    PairResults,
    SolverPairs,
    has_few_components,
    is_euclidean,
    name_bad_distances,
    pairs_of,
    scaled_points,
    solve_pairs,
)
from .transport.neighbors import NeighborSearch, pruned_distances
from .transport.problem import Masses
from .transport.solvers.exact import Solver, resolve_solver, warn_of_pivot_limit, warn_of_status

__all__ = [
    "BoundedDistances",
    "NeighborSearch",
    "bounded_distances",
    "kneighbors",
    "pairwise_distances",
    "search_neighbors",
]


def __dir__() -> list[str]:
    return sorted(__all__)


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
    """Wasserstein distances between all distributions of A and of B (or among those of A): exact, or by a variant.

    `bounded_distances` returns the same values with bounds of the optimal ones and the status of the solves.

    Distances are exact for the points given. As estimates of the distance between the distributions that the points are
    drawn from, they are too large, the more so the fewer the points: two samples of the same distribution are at a
    distance above 0, which falls as their numbers of points grow. Where numbers of points differ between distributions,
    compare equal numbers: ``pairwise_distances(D.equalize())``.

    Parameters
    ----------
    A : Distributions or array of shape (n_points, n_features)
        First cohort. The rows of an array are distributions of one point each.
    B : Distributions, array of shape (n_points, n_features) or None, default=None
        Second cohort, of the same features. None compares the distributions of `A` with each other.
    metric : GroundMetric or str, default="euclidean"
        Distance between points. A name is that of a distance of scikit-learn ("euclidean", "cityblock", "cosine", …).
    solver : str or Solver, default="exact"
        "exact", "partial", "unbalanced", "entropic", "sliced", "gaussian", "mixture", "coarse", "auto", or an object
        from `groundmetric.transport`.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core. The result is the same for any number, and on a cluster.
    max_pivots : int or None, default=None
        Pivots of the simplex per pair at most, for solvers that have this option; a warning says if the limit was
        reached. None is a limit that is not reached in practice.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal, and prints which solver "auto" has chosen and the possible
        error of a variant.
    keep : path-like or None, default=None
        File to which exact distances are written pair by pair, as they are found. Pairs in the file, of the same
        points, masses and metric, are not computed again. Only for the exact solver.
    **options : Any
        Options of a solver that is given by name, e.g. ``n_groups`` of "coarse"; see the classes in
        `groundmetric.transport`.

    Returns
    -------
    array of shape (len(A), len(B))
        Symmetric with zeros on the diagonal where B is None.

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
    return bounded_distances(A, B, metric, solver=solver, **limits, **options).values


def bounded_distances(
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
) -> BoundedDistances:
    """Wasserstein distances as in `pairwise_distances`, with bounds of the optimal values and the status of the solves.

    Parameters
    ----------
    A : Distributions or array of shape (n_points, n_features)
        First cohort. The rows of an array are distributions of one point each.
    B : Distributions, array of shape (n_points, n_features) or None, default=None
        Second cohort, of the same features. None compares the distributions of `A` with each other.
    metric : GroundMetric or str, default="euclidean"
        Distance between points, as in `pairwise_distances`.
    solver : str or Solver, default="exact"
        Solver of all pairs, as in `pairwise_distances`.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core.
    max_pivots : int or None, default=None
        Pivots of the simplex per pair at most, as in `pairwise_distances`.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal, as in `pairwise_distances`.
    keep : path-like or None, default=None
        File of exact distances that are not computed again, as in `pairwise_distances`.
    **options : Any
        Options of a solver that is given by name.

    Returns
    -------
    transport.BoundedDistances
        Distances, lower and upper bounds, the solver with its options, and the number of solves by status.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> found = gm.bounded_distances(D[:4], solver="coarse", n_groups=20)
    >>> bool((found.lower <= gm.pairwise_distances(D[:4]) + 1e-9).all())
    True
    """
    chosen, reason = resolve_solver(solver, {**options, "max_pivots": max_pivots}), ""
    A, B = _check_cohorts(A, B)
    rows, cols = np.triu_indices(len(A), 1) if B is None else (grid.ravel() for grid in np.indices((len(A), len(B))))
    cohorts = (A,) if B is None else (A, B)
    ground = _resolve_metric(metric, *cohorts)
    first, second = rows, cols + (0 if B is None else len(A))
    if isinstance(chosen, Auto):
        sizes = np.concatenate([cohort.sizes for cohort in cohorts])
        chosen, reason = chosen.pick(sizes[first], sizes[second], on_points=is_euclidean(ground))
    _check_solver(chosen, ground)
    cached = None if keep is None else DistanceCache(keep, chosen).of(ground, *cohorts)
    used, results = _solve_missing(chosen, cohorts, first, second, ground, n_jobs, verbose, cached)
    shape, statuses = (len(A), len(cohorts[-1])), Counter(results.status.tolist())
    _warn_of_limits(statuses)
    if verbose and (reason or not isinstance(chosen, Exact)):
        write_line(f"distances: {BoundedDistances(used, reason, *results[:3], statuses)}")
    values, lower, upper = (_as_matrix(each, rows, cols, shape, symmetric=B is None) for each in results[:3])
    return BoundedDistances(used, reason, values, lower, upper, statuses)


def distances_of_pairs(D: Distributions, which: np.ndarray) -> np.ndarray:
    """Wasserstein distances between some distributions of a cohort, of Euclidean ground distance.

    `which` is a symmetric matrix of bool; what it leaves out is NaN, but for zeros on the diagonal.

    >>> D = Distributions([[0.0], [1.0], [9.0]], ["a", "b", "c"])
    >>> distances_of_pairs(D, np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)).tolist()
    [[0.0, 1.0, nan], [1.0, 0.0, 8.0], [nan, 8.0, 0.0]]
    """
    rows, cols = np.nonzero(np.triu(which, 1))
    _, results = _solve_missing(Exact(), (D,), rows, cols, _resolve_metric("euclidean", D), None, 0, None)
    _warn_of_limits(Counter(results.status.tolist()))
    found = np.full((len(D), len(D)), np.nan)
    found[rows, cols] = found[cols, rows] = results.values
    np.fill_diagonal(found, 0.0)
    return found


def _solve_missing(
    solver: Solver,
    cohorts: tuple[Distributions, ...],
    first: np.ndarray,
    second: np.ndarray,
    metric: Any,
    n_jobs: int | None,
    verbose: int,
    cached: CohortDistances | None,
) -> tuple[Solver, PairResults]:
    """All pairs: those in the cache, and the others by the solver, which go into the cache as they are found."""
    results = PairResults.known(np.full(first.size, np.nan) if cached is None else cached.get(first, second))
    missing = np.flatnonzero(np.isnan(results.values))
    pairs = cohorts, first[missing], second[missing]

    def found(which: np.ndarray, part: PairResults) -> None:
        if cached is not None:
            proved = part.status == Status.OPTIMAL
            chosen = missing[which[proved]]
            cached.put(first[chosen], second[chosen], part.values[proved])

    try:
        solver, solved = _solve_all(solver, *pairs, metric, n_jobs, verbose, found)
    except BadDistances as bad:
        raise name_bad_distances(bad, metric, *pairs) from None
    results.put(missing, solved)
    return solver, results


def _solve_all(
    solver: Solver,
    cohorts: tuple[Distributions, ...],
    first: np.ndarray,
    second: np.ndarray,
    metric: Any,
    n_jobs: int | None,
    verbose: int,
    found: Found,
) -> tuple[Solver, PairResults]:
    """All pairs, and the solver as it was used; `first` and `second` count through all cohorts."""
    single = all(np.all(cohort.sizes == 1) for cohort in cohorts)
    bar = progress_bar(first.size, "distances", "pair", show=bool(verbose))
    with Threads(n_jobs) as threads, bar:
        if isinstance(solver, Exact) and single and not has_few_components(metric):
            return solver, _between_single_points(cohorts, first, second, metric)
        pairs = pairs_of(solver, cohorts, first, second, metric, threads)
        results = solve_pairs(pairs, threads, configured_backend(n_jobs), done=bar.update, found=found)
    return pairs.solver if isinstance(pairs, SolverPairs) else solver, results


def _between_single_points(
    cohorts: tuple[Distributions, ...], first: np.ndarray, second: np.ndarray, metric: Any
) -> PairResults:
    """Between single points there is nothing to transport."""
    shift = 0 if len(cohorts) == 1 else len(cohorts[0])
    return PairResults.known(checked_distances(metric, cohorts[0].points, cohorts[-1].points)[first, second - shift])


def _as_matrix(
    entries: np.ndarray, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int], *, symmetric: bool
) -> np.ndarray:
    matrix = np.zeros(shape)
    matrix[rows, cols] = entries
    if symmetric:
        matrix[cols, rows] = entries
    return matrix


def kneighbors(
    A: DistributionsLike,
    B: DistributionsLike | None = None,
    n_neighbors: int = 5,
    metric: GroundMetric | str = "euclidean",
    *,
    n_jobs: int | None = None,
    max_pivots: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Nearest neighbours of every distribution of A among those of B (or among the others of A), exactly.

    Where the metric is a projection to at most 100 components (the Euclidean metric has one per feature), lower bounds
    rule most pairs out without a solve: the distance between means, transport along a few lines, and potentials that
    the costs allow. `search_neighbors` counts the pairs that were solved. Under any other metric all pairs are solved.

    Distances grow as distributions have fewer points (see `pairwise_distances`), so that distributions of many points
    are among the nearest of all others. Where numbers of points differ, search among equal numbers:
    ``n = B.common_size()``, ``kneighbors(A.equalize(n), B.equalize(n))``.

    Parameters
    ----------
    A : Distributions or array of shape (n_points, n_features)
        Distributions whose neighbours are searched. The rows of an array are distributions of one point each.
    B : Distributions, array of shape (n_points, n_features) or None, default=None
        Distributions to search among. None searches among the other distributions of `A`.
    n_neighbors : int, default=5
        Number of neighbours of each distribution.
    metric : GroundMetric or str, default="euclidean"
        Distance between points, as in `pairwise_distances`.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core.
    max_pivots : int or None, default=None
        Pivots of the simplex per pair at most; a warning says if the limit was reached.

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
    found = search_neighbors(A, B, n_neighbors, metric, n_jobs=n_jobs, max_pivots=max_pivots)
    return found.distances, found.indices


def search_neighbors(
    A: DistributionsLike,
    B: DistributionsLike | None = None,
    n_neighbors: int = 5,
    metric: GroundMetric | str = "euclidean",
    *,
    n_jobs: int | None = None,
    max_pivots: int | None = None,
) -> NeighborSearch:
    """Nearest neighbours as in `kneighbors`, with the number of pairs that had to be solved.

    Parameters
    ----------
    A : Distributions or array of shape (n_points, n_features)
        Distributions whose neighbours are searched. The rows of an array are distributions of one point each.
    B : Distributions, array of shape (n_points, n_features) or None, default=None
        Distributions to search among. None searches among the other distributions of `A`.
    n_neighbors : int, default=5
        Number of neighbours of each distribution.
    metric : GroundMetric or str, default="euclidean"
        Distance between points, as in `pairwise_distances`.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core.
    max_pivots : int or None, default=None
        Pivots of the simplex per pair at most; a warning says if the limit was reached.

    Returns
    -------
    NeighborSearch
        Distances and positions of the neighbours, and the number of solves.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [9.0]], samples=["a", "b", "c"])
    >>> gm.search_neighbors(D, n_neighbors=1).n_solves
    2
    """
    A, B = _check_cohorts(A, B)
    others = len(A) - 1 if B is None else len(B)
    if not isinstance(n_neighbors, numbers.Integral) or not 1 <= n_neighbors <= others:
        raise ValueError(f"n_neighbors is {n_neighbors}, but there are {others} distributions to choose from")
    cohorts = (A,) if B is None else (A, B)
    ground = _resolve_metric(metric, *cohorts)
    if has_few_components(ground):
        z, exponent = scaled_points(ground, cohorts)
        with Threads(n_jobs) as threads:
            options = {"threads": threads, "max_pivots": max_pivots, "cost": ground.cost}
            exact, n_solves, stopped = pruned_distances(Masses.of(*cohorts), z, len(A), n_neighbors, **options)
        warn_of_pivot_limit(stopped)
        exact = np.ldexp(exact, exponent)
    else:
        exact = pairwise_distances(A, B, ground, n_jobs=n_jobs, max_pivots=max_pivots)
        n_solves = others * len(A) // (2 if B is None else 1)
    if B is None:
        np.fill_diagonal(exact, np.inf)
    indices = np.argsort(exact, axis=1, kind="stable")[:, :n_neighbors]
    return NeighborSearch(np.take_along_axis(exact, indices, axis=1), indices, n_solves)


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


def _check_solver(solver: Solver, ground: Any) -> None:
    if solver.on_points and not is_euclidean(ground):
        raise ValueError(
            f"solver {solver.name!r} needs a Euclidean distance between projected points, but metric is {ground!r}: "
            "use solver='exact' or 'entropic', or a blend of matrices in place of one of distances"
        )


def _warn_of_limits(statuses: Counter[Status]) -> None:
    for status in (Status.PIVOT_LIMIT, Status.ITERATION_LIMIT, Status.IMPRECISE):
        warn_of_status(status, statuses[status])


def _resolve_metric(metric: Any, *cohorts: Distributions) -> Any:
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
