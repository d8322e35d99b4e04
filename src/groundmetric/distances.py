"""Distances between distributions, and exact nearest neighbours without all of them."""

from __future__ import annotations

import numbers
import os
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ._internal.executor import Threads, in_rounds
from ._internal.progress import Bar, progress_bar, write_line
from .distributed import workers
from .distributions import Distributions, as_distributions
from .metrics.base import GroundMetric
from .metrics.cost import BadDistances, Cost, checked_distances
from .transport import Auto, Details, Exact, Status
from .transport.cache import DistanceCache, OnSolved, compute_in_rounds, compute_missing
from .transport.cohort import clouds_of, compare_all, is_euclidean, is_projection, name_the_bad, projected
from .transport.neighbors import Finder, nearest
from .transport.pairs import PairTransport, pair_transport
from .transport.problem import Masses, points_in_range
from .transport.solve import resolve_solver
from .transport.solvers.base import Solver

# Up to so many components, costs are filled from projected points inside the solver; beyond, matrix products win.
_FEW_COMPONENTS = 32


def pairwise_distances(
    A: Any,
    B: Any = None,
    metric: GroundMetric | str = "euclidean",
    *,
    solver: str | Solver = "exact",
    n_jobs: int | None = None,
    max_pivots: int | None = None,
    verbose: int = 0,
    return_details: bool = False,
    keep: str | os.PathLike | None = None,
    **options: Any,
) -> Any:
    """Wasserstein distances between all distributions of A and of B (or among those of A): exact, or by a variant.

    Parameters
    ----------
    A, B : Distributions, or arrays whose rows are distributions of one point each
    metric : GroundMetric, or the name of a distance between points that scikit-learn knows ("euclidean", "cityblock",
        "cosine", …)
    solver : {"exact", "partial", "unbalanced", "entropic", "sliced", "gaussian", "mixture", "coarse", "auto"}, or an
        object from `groundmetric.transport`
    n_jobs : threads; None means one, -1 one per core. The result is the same for any number, and on a cluster.
    max_pivots : limit per pair; a warning says if it was reached
    verbose : 1 shows a progress bar where there is a terminal, and says which variant was used and
        what error is possible
    return_details : return what is known of every pair, too
    keep : file where exact distances are kept pair by pair, as they are found. Pairs that are there already, of the
        same points, masses and metric, are not computed again.
    **options : of the solver, e.g. ``n_groups`` of "coarse"; see the classes in `groundmetric.transport`

    Returns
    -------
    distances : array of shape (len(A), len(B)); symmetric with zeros on the diagonal where B is None
    details : `transport.Details` with arrays of that shape, with ``return_details=True``

    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [5.0], [6.0]], groups=["a", "a", "b", "b"])
    >>> gm.pairwise_distances(D).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    >>> gm.pairwise_distances(D, solver="partial", share=0.5).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    chosen, reason = resolve_solver(solver, {**options, "max_pivots": max_pivots}), ""
    A, B = _check_cohorts(A, B)
    rows, cols = np.triu_indices(len(A), 1) if B is None else (grid.ravel() for grid in np.indices((len(A), len(B))))
    cohorts = (A,) if B is None else (A, B)
    ground = _resolve(metric, *cohorts)
    shift = 0 if B is None else len(A)
    if isinstance(chosen, Auto):
        sizes = np.concatenate([cohort.sizes for cohort in cohorts])
        chosen, reason = chosen.pick(sizes[rows], sizes[cols + shift], on_points=is_euclidean(ground))
    _check_solver(chosen, ground)
    cache = None if keep is None else DistanceCache(keep, chosen).of(ground, *cohorts)
    with workers(n_jobs) as threads:

        def compute(first: np.ndarray, second: np.ndarray, found: OnSolved) -> Details:
            try:
                return _solve_all(chosen, reason, cohorts, first, second, ground, threads, verbose, found)
            except BadDistances as bad:
                raise name_the_bad(bad, ground, cohorts, first, second) from None

        details = compute_missing(cache, rows, cols + shift, compute)
    _warn_of_all(details)
    if verbose and (reason or not isinstance(chosen, Exact)):
        write_line(f"distances: {details}")
    values, lower, upper = (
        _as_matrix(entries, rows, cols, (len(A), len(cohorts[-1])), symmetric=B is None)
        for entries in (details.values, details.lower, details.upper)
    )
    return (values, replace(details, values=values, lower=lower, upper=upper)) if return_details else values


def _as_matrix(
    entries: np.ndarray, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int], *, symmetric: bool
) -> np.ndarray:
    matrix = np.zeros(shape)
    matrix[rows, cols] = entries
    if symmetric:
        matrix[cols, rows] = entries
    return matrix


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

    Lower bounds (the distance between means, transport along a few lines, and potentials that the costs allow) rule
    most pairs out without a solve.

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
    with workers(n_jobs) as threads:
        if not _is_projection(ground):
            exact = pairwise_distances(A, B, ground, n_jobs=n_jobs, max_pivots=max_pivots)
            solves = others * len(A) // (2 if B is None else 1)
        else:
            z, _, up = points_in_range(*2 * (np.vstack(projected(ground, cohorts)),))
            finder = Finder(Masses.of(*cohorts), z, threads, max_pivots, ground.cost)
            rows, cols = (grid.ravel() for grid in np.indices(shape))
            lower = finder.lower(rows, cols + shift).reshape(shape)
            if B is None:
                np.fill_diagonal(lower, np.inf)
            exact = nearest(
                lower,
                n_neighbors,
                lambda rows, cols: finder.solve(rows, cols + shift),
                lambda rows, cols: finder.sharpen(rows, cols + shift),
            )
            exact = np.ldexp(exact, _on_values(up, ground.cost))
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


def _check_solver(solver: Solver, ground: Any) -> None:
    if solver.on_points and not is_euclidean(ground):
        raise ValueError(
            f"solver {solver.name!r} needs a Euclidean distance between projected points, but metric is {ground!r}: "
            "use solver='exact' or 'entropic', or a blend of matrices in place of one of distances"
        )


def _warn_of_all(details: Details) -> None:
    for status in (Status.PIVOT_LIMIT, Status.ITERATION_LIMIT, Status.IMPRECISE):
        _warn_of(status, details.statuses[status])


class NamedDistance:
    """A distance between points that scikit-learn knows by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        from sklearn.metrics import pairwise_distances as sklearn_distances  # 10 MB that learning does without

        return sklearn_distances(x, y, metric=self.name)

    def __repr__(self) -> str:
        return repr(self.name)


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
    """Is the distance one between projected points of few components?"""
    return is_projection(metric) and metric.n_components <= _FEW_COMPONENTS


def _solve_all(
    solver: Solver,
    reason: str,
    cohorts: tuple[Distributions, ...],
    first: np.ndarray,
    second: np.ndarray,
    metric: Any,
    threads: Threads,
    verbose: int,
    found: OnSolved,
) -> Details:
    """All pairs by the solver; `first` and `second` count through all cohorts."""
    with progress_bar(first.size, "distances", "pair", show=bool(verbose)) as bar:
        sizes = np.concatenate([cohort.sizes for cohort in cohorts]).astype(np.float64)
        rounds = in_rounds(sizes[first] * sizes[second], threads)
        if isinstance(solver, Exact) and _is_projection(metric):
            z, _, up = points_in_range(*2 * (np.vstack(projected(metric, cohorts)),))
            options: dict[str, Any] = {"threads": threads, "memory": 0.0, "cost": metric.cost, "values_only": True}
            options["max_pivots"] = solver.max_pivots
            transport = pair_transport(Masses.of(*cohorts), first, second, z.shape[1], **options)
            transport.move_all(z)
            return _solve_in_rounds(solver, reason, transport, rounds, found, bar, _on_values(up, metric.cost))
        if isinstance(solver, Exact) and all(np.all(cohort.sizes == 1) for cohort in cohorts):
            return _between_single_points(solver, reason, cohorts, first, second, metric)
        clouds, distances = clouds_of(metric, cohorts, dense=solver.on_points)

        def some(chosen: np.ndarray) -> Details:
            return compare_all(solver, reason, clouds, distances, first[chosen], second[chosen], threads, bar.update)

        return some(np.arange(first.size)) if found is None else compute_in_rounds(some, rounds, found)


def _between_single_points(
    solver: Solver,
    reason: str,
    cohorts: tuple[Distributions, ...],
    first: np.ndarray,
    second: np.ndarray,
    metric: Any,
) -> Details:
    """Between single points there is nothing to transport."""
    shift = 0 if len(cohorts) == 1 else len(cohorts[0])
    values = checked_distances(metric, cohorts[0].points, cohorts[-1].points)[first, second - shift]
    return Details(solver, reason, values, values, values, Counter({Status.OPTIMAL: first.size}))


def _on_values(up: int, cost: Cost) -> int:
    """What an exponent that points were scaled by means for values."""
    return 2 * up if cost is Cost.SQUARED else up


def _solve_in_rounds(
    solver: Solver, reason: str, transport: PairTransport, rounds: list[np.ndarray], found: OnSolved, bar: Bar, up: int
) -> Details:
    """Solve all pairs, a few hundred at a time: bases are not kept, so that memory stays small.

    Values are those of the transport times 2**up.
    """
    values, optimal = np.empty_like(transport.answers.value), transport.answers.optimal
    for pairs in rounds:
        values[pairs] = np.ldexp(transport.solve(pairs), up)
        if found is not None:
            found(pairs, values[pairs], optimal[pairs])
        bar.update(pairs.size)
    statuses = Counter(Status.OPTIMAL if done else Status.PIVOT_LIMIT for done in optimal)
    return Details(solver, reason, values, np.where(optimal, values, 0.0), values, statuses)
