"""Distances between the distributions of cohorts: points are projected once, then a solver compares each pair."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise as pairwise_items
from typing import Any

import joblib
import numpy as np
from scipy import sparse

from .._internal.cache import Cache, digest
from .._internal.parallel import Backend, Tasks, Threads, configured_backend, in_rounds, progress_bar, write_line
from .._internal.types import DistributionsLike
from ..distributions import Distributions, as_distributions
from ..metrics.base import BadDistances, Cost, EuclideanMetric, GroundMetric, checked_distances
from ..metrics.forms import BlendedMetric, NamedDistance
from . import pairs as pairs_module
from .pairs import pair_transport
from .plan import BoundedDistances, Status
from .problem import Masses, points_in_range
from .solvers.exact import Cloud, Distances, Exact, Solver, resolve_solver, warn_of_status

# With more components, matrix products compute costs faster than the C++ solver.
_FEW_COMPONENTS = 100
# Entries of cost matrices (about 15 seconds) per thread between two calls of `on_results`.
_ROUND = 2.5e8
# Largest number of pairs in a round, or in a task of a cluster.
_MOST_PAIRS = 512
# Seconds per entry of a cost matrix (approximate), and seconds that a task of a cluster should take.
_RATE, _SECONDS = 4e-8, 2.0
# Squares of larger coordinates may overflow.
_LARGEST = 1e151


def is_projection(metric: Any) -> bool:  # distances are the cost of the step between projected points
    implementations = (GroundMetric.distances, EuclideanMetric.distances)
    return isinstance(metric, GroundMetric) and type(metric).distances in implementations


def has_few_components(metric: Any) -> bool:
    return is_projection(metric) and metric.n_components <= _FEW_COMPONENTS


def projected(metric: GroundMetric, cohorts: Sequence[Distributions]) -> list[np.ndarray]:
    # Not centred: a single distant point would move the centre so far that all others round to the same point.
    projections = [metric.project(cohort) for cohort in cohorts]
    for z, cohort in zip(projections, cohorts, strict=True):
        extent = float(max(z.max(), -z.min()))  # a Python float, because the limit exceeds float32
        if not extent <= _LARGEST:
            row = int(np.argmax(~(np.abs(z) <= _LARGEST).all(axis=1)))
            owner = cohort.names[int(np.searchsorted(cohort.bounds, row, side="right")) - 1]
            raise ValueError(
                f"under this metric, coordinates of points of distribution {owner!r} reach "
                f"{extent:.1e}, and the squares of such numbers are out of range: divide the points by a constant, or "
                "remove points with codes for missing values"
            )
    return projections


def clouds_of(metric: Any, cohorts: Sequence[Distributions], *, dense: bool) -> tuple[list[Cloud], Distances]:
    """Return all distributions and the function of distances between their points; `dense`: project sparse points."""
    weights, points, functions = [], [], []
    for weight, part in _parts(metric):
        is_sparse = isinstance(part, EuclideanMetric) and any(sparse.issparse(cohort.points) for cohort in cohorts)
        projects = is_projection(part)
        keep_points = not projects or (is_sparse and not dense)
        weights.append(weight)
        points.append([cohort.points for cohort in cohorts] if keep_points else projected(part, cohorts))
        functions.append(part.projected_distances if projects else partial(checked_distances, part))
    clouds = []
    for c, cohort in enumerate(cohorts):
        for low, high in pairwise_items(cohort.bounds):
            clouds.append(Cloud([of_part[c][low:high] for of_part in points], cohort.weights[low:high]))
    if len(weights) == 1:
        return [Cloud(cloud.points[0], cloud.masses) for cloud in clouds], functions[0]

    def distances(x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return np.add.reduce([w * f(p, q) for w, f, p, q in zip(weights, functions, x, y, strict=True)])

    return clouds, distances


def _parts(metric: Any, weight: float = 1.0) -> list[tuple[float, Any]]:
    if not isinstance(metric, BlendedMetric):
        return [(weight, metric)]
    return _parts(metric.first, weight * (1.0 - metric.weight)) + _parts(metric.second, weight * metric.weight)


# Results by pair: value, bounds of the optimal value, and a Status.
_RESULT = np.dtype([("values", float), ("lower", float), ("upper", float), ("status", object)])
Results = np.recarray[Any, Any]


def exact_results(values: np.ndarray) -> Results:
    results = np.recarray(values.size, _RESULT)
    results.values = results.lower = results.upper = values
    results.status[:] = Status.OPTIMAL
    return results


class _Pairs:  # pairs with fixed points, which can be sent to another process
    sizes: np.ndarray  # number of points of each distribution
    first: np.ndarray
    second: np.ndarray

    @property
    def work(self) -> np.ndarray:  # entries of each pair's cost matrix
        return self.sizes[self.first].astype(np.float64) * self.sizes[self.second]

    def _needed(self, selected: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # Distributions that occur in the selected pairs, and these pairs as indices into them.
        owners, indices = np.unique([self.first[selected], self.second[selected]], return_inverse=True)
        return owners, *indices.reshape(2, -1)


@dataclass(frozen=True)
class ExactPairs(_Pairs):
    """Pairs whose costs depend on projected points of few components, for the exact solver."""

    masses: Masses
    z: np.ndarray  # (n_points, n_components)
    first: np.ndarray
    second: np.ndarray
    cost: Cost
    max_pivots: int | None
    exponent: int  # values are the transport values between z times 2**exponent
    dense_limit: float  # see PairTransport

    @property
    def sizes(self) -> np.ndarray:  # type: ignore[override]
        return np.diff(self.masses.bounds)

    def part(self, selected: np.ndarray) -> ExactPairs:
        owners, first, second = self._needed(selected)
        bounds = self.masses.bounds
        rows = np.concatenate([np.arange(bounds[d], bounds[d + 1]) for d in owners])
        ends = np.concatenate([[0], np.cumsum(self.sizes[owners])])
        masses = Masses(ends, self.masses.weights[rows], self.masses.uniform[owners])
        return replace(self, masses=masses, z=self.z[rows], first=first, second=second)

    def start(self, threads: Threads, done: Callable[[int], Any]) -> Callable[[np.ndarray], Results]:
        """Return a function that solves the selected pairs and calls `done` with the number of solved pairs."""
        # Bases are not stored, because each pair is solved once.
        options = {"memory": 0.0, "max_pivots": self.max_pivots, "dense_limit": self.dense_limit}
        transport = pair_transport(
            self.masses, self.first, self.second, self.z.shape[1], threads=threads, cost=self.cost, **options
        )
        transport.move_all(np.require(self.z, np.float64, ["C", "W"]))  # arrays sent to a worker may be read-only

        def solve(selected: np.ndarray) -> Results:
            results = exact_results(np.ldexp(transport.solve(selected), self.exponent))
            stopped = ~transport.answers.optimal[selected]
            results.lower[stopped], results.status[stopped] = 0.0, Status.PIVOT_LIMIT
            transport.discard_bases()  # kept, the bases of all pairs would grow with their number
            done(selected.size)
            return results

        return solve


@dataclass(frozen=True)
class SolverPairs(_Pairs):  # for any solver; methods as in `ExactPairs`
    solver: Solver
    distances: Distances
    prepared: list[Any]  # result of `Solver.prepare` for each distribution
    sizes: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def part(self, selected: np.ndarray) -> SolverPairs:
        owners, first, second = self._needed(selected)
        prepared = [self.prepared[d] for d in owners]
        return replace(self, prepared=prepared, sizes=self.sizes[owners], first=first, second=second)

    def start(self, threads: Threads, done: Callable[[int], Any]) -> Callable[[np.ndarray], Results]:
        def solve_pair(pair: int) -> tuple[float, float, float, Status]:
            x, y = self.prepared[self.first[pair]], self.prepared[self.second[pair]]
            plan = self.solver.compare(x, y, self.distances)
            done(1)
            return plan.value, *plan.bounds, plan.status

        return lambda selected: np.array(threads.map(solve_pair, selected.tolist()), _RESULT).view(np.recarray)


def scaled_points(metric: GroundMetric, cohorts: Sequence[Distributions]) -> tuple[np.ndarray, int]:
    """Return projected points of all cohorts, scaled by `points_in_range`, and the exponent that scales values back."""
    points = np.vstack(projected(metric, cohorts))
    z, _, up = points_in_range(points, points)
    return z, 2 * up if metric.cost is Cost.SQUARED else up


OnResults = Callable[[np.ndarray, Results], Any]


def solve_pairs(
    pairs: ExactPairs | SolverPairs,
    threads: Threads,
    backend: Backend | None,
    *,
    done: Callable[[int], Any],
    on_results: OnResults,
) -> Results:
    """Solve all pairs in threads, or on workers in tasks of `_SECONDS` unless all pairs are too small to send.

    `done` is called with the number of newly solved pairs, `on_results` with their indices and results.
    """
    results = np.recarray(pairs.work.size, _RESULT)
    if backend is not None and _RATE * float(pairs.work.sum()) >= 2 * _SECONDS:
        rounds = in_rounds(pairs.work, _SECONDS / _RATE, _MOST_PAIRS)
        tasks = Tasks(len(rounds), lambda number: pairs.part(rounds[number]))
        for number, part in backend.run(_solve_task, tasks):
            selected = rounds[number]
            results[selected] = part
            on_results(selected, part)
            done(selected.size)
        return results
    solve = pairs.start(threads, done)
    for selected in in_rounds(pairs.work, _ROUND * threads.n_jobs, _MOST_PAIRS * threads.n_jobs):
        part = results[selected] = solve(selected)
        on_results(selected, part)
    return results


def _solve_task(pairs: ExactPairs | SolverPairs) -> Results:
    with Threads(1) as threads:
        return pairs.start(threads, lambda count: None)(np.arange(pairs.work.size))


def pairwise(
    A: DistributionsLike,
    B: DistributionsLike | None = None,
    metric: GroundMetric | str = "euclidean",
    *,
    solver: str | Solver = "exact",
    n_jobs: int | None = None,
    verbose: int = 0,
    keep: str | os.PathLike[str] | None = None,
    **options: Any,
) -> BoundedDistances:
    """Compute distances like `groundmetric.pairwise_distances`, with bounds of the optimal values and status counts.

    Parameters
    ----------
    A : Distributions or array of shape (n_points, n_features)
        First cohort. The rows of an array are distributions of one point each.
    B : Distributions, array of shape (n_points, n_features) or None, default=None
        Second cohort, of the same features. None compares the distributions of `A` with each other.
    metric : GroundMetric or str, default="euclidean"
        Distance between points.
    solver : str or Solver, default="exact"
        Solver of all pairs.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core.
    verbose : int, default=0
        1 shows a progress bar in a terminal.
    keep : path-like or None, default=None
        Cache file of exact distances.
    **options : Any
        Options of a solver that is given by name, e.g. ``max_pivots`` of "exact".

    Returns
    -------
    BoundedDistances
        Distances, lower and upper bounds, the solver with its options, and the number of solves by status.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> result = gm.transport.pairwise(D[:4], solver="coarse", n_groups=20)
    >>> bool((result.lower <= gm.pairwise_distances(D[:4]) + 1e-9).all())
    True
    """
    from .solve import Auto, pick_solver

    chosen, reason = resolve_solver(solver, options), ""
    A, B = check_cohorts(A, B)
    rows, cols = np.triu_indices(len(A), 1) if B is None else (grid.ravel() for grid in np.indices((len(A), len(B))))
    cohorts = (A,) if B is None else (A, B)
    ground = resolve_metric(metric, *cohorts)
    first, second = rows, cols + (0 if B is None else len(A))
    is_euclidean = is_projection(ground) and ground.cost is Cost.EUCLIDEAN
    if isinstance(chosen, Auto):
        sizes = np.concatenate([cohort.sizes for cohort in cohorts])
        chosen, reason = pick_solver(chosen, sizes[first], sizes[second], on_points=is_euclidean)
    if chosen.on_points and not is_euclidean:
        raise ValueError(
            f"solver {chosen.name!r} needs a Euclidean distance between projected points, but metric is {ground!r}: "
            "use solver='exact'"
        )
    # Pairs in the cache are read, the missing pairs are solved, and each is written when it is solved.
    cache = None if keep is None else DistanceCache(keep, chosen)
    keys = [] if cache is None else pair_keys(ground, cohorts, first, second)
    results = exact_results(np.full(first.size, np.nan) if cache is None else cache.get(keys))
    missing = np.flatnonzero(np.isnan(results.values))
    first, second = first[missing], second[missing]

    def on_results(selected: np.ndarray, part: Results) -> None:
        if cache is not None:
            proved = part.status == Status.OPTIMAL
            cache.put([keys[pair] for pair in missing[selected[proved]]], part.values[proved])

    try:
        results[missing] = solve_all(chosen, cohorts, first, second, ground, n_jobs, verbose, on_results)
    except BadDistances:
        # Compute distances again to name the affected distributions: the error may come from another machine.
        clouds, point_distances = clouds_of(ground, cohorts, dense=False)
        names = [name for cohort in cohorts for name in cohort.names]
        alone = np.unique(np.concatenate([first, second]))
        for d, e in [*zip(alone, alone, strict=True), *zip(first, second, strict=True)]:
            try:
                point_distances(clouds[d].points, clouds[e].points)
            except BadDistances as error:
                affected = f"distribution {names[d]!r}" if d == e else f"distributions {names[d]!r} and {names[e]!r}"
                raise BadDistances(f"{affected}: {error}") from None
        raise
    statuses = Counter(results.status.tolist())
    for status in (Status.PIVOT_LIMIT, Status.IMPRECISE):
        warn_of_status(status, statuses[status])
    if verbose and (reason or not isinstance(chosen, Exact)):
        numbers = results.values, results.lower, results.upper
        write_line(f"distances: {BoundedDistances(chosen, reason, *numbers, statuses)}")
    matrices = np.zeros((3, len(A), len(cohorts[-1])))
    for matrix, name in zip(matrices, ("values", "lower", "upper"), strict=True):
        matrix[rows, cols] = results[name]
        if B is None:
            matrix[cols, rows] = results[name]
    distances, lower, upper = matrices
    return BoundedDistances(chosen, reason, distances, lower, upper, statuses)


def solve_all(
    solver: Solver,
    cohorts: tuple[Distributions, ...],
    first: np.ndarray,
    second: np.ndarray,
    metric: Any,
    n_jobs: int | None,
    verbose: int,
    on_results: OnResults,
) -> Results:
    """Solve all pairs in threads or on a cluster; `first` and `second` are indices over all cohorts."""
    single = all(np.all(cohort.sizes == 1) for cohort in cohorts)
    bar = progress_bar(first.size, "distances", "pair", show=bool(verbose))
    with Threads(n_jobs) as threads, bar:
        if isinstance(solver, Exact) and single and not has_few_components(metric):
            # The transport value between two single points is their distance.
            shift = 0 if len(cohorts) == 1 else len(cohorts[0])
            costs = checked_distances(metric, cohorts[0].points, cohorts[-1].points)
            return exact_results(costs[first, second - shift])
        if isinstance(solver, Exact) and has_few_components(metric):
            z, exponent = scaled_points(metric, cohorts)
            limits = solver.max_pivots, exponent, pairs_module.DENSE_LIMIT
            pairs: Any = ExactPairs(Masses.of(*cohorts), z, first, second, metric.cost, *limits)
        else:
            clouds, distances = clouds_of(metric, cohorts, dense=solver.on_points)
            prepared = threads.map(lambda cloud: solver.prepare(cloud, distances), clouds)
            sizes = np.array([cloud.masses.size for cloud in clouds])
            pairs = SolverPairs(solver, distances, prepared, sizes, first, second)
        return solve_pairs(pairs, threads, configured_backend(n_jobs), done=bar.update, on_results=on_results)


_VALUE = struct.Struct("<d")


class DistanceCache:
    """File of exact distances between pairs of distributions (`keep=`), created when the first distance is written.

    Keys are digests of the points and masses of both distributions and of the metric; names and order are ignored.
    """

    def __init__(self, path: str | os.PathLike[str], solver: Solver | None = None) -> None:
        if solver is not None and not isinstance(solver, Exact):
            raise ValueError(
                f"keep is given, but solver is {solver.name!r}: only exact distances are kept; leave `keep` out"
            )
        self._cache = Cache(path, "keep")

    def __len__(self) -> int:
        return len(self._cache)

    def get(self, keys: list[bytes]) -> np.ndarray:
        """Return the value of each key, NaN for keys that are not in the file or have a damaged record."""
        values = {}
        for key, content in self._cache.get(keys).items():
            value = _VALUE.unpack(content)[0] if len(content) == _VALUE.size else np.nan
            values[key] = value if 0.0 <= value < np.inf else np.nan
        damaged = sum(np.isnan(value) for value in values.values())
        if damaged:
            self._cache.warn_damaged(int(damaged))
        return np.array([values.get(key, np.nan) for key in keys])

    def put(self, keys: list[bytes], values: np.ndarray) -> None:
        self._cache.put({key: _VALUE.pack(value) for key, value in zip(keys, values.tolist(), strict=True)})


def pair_keys(metric: Any, cohorts: Sequence[Distributions], first: np.ndarray, second: np.ndarray) -> list[bytes]:
    parts: tuple[Any, ...]
    if isinstance(metric, EuclideanMetric):
        parts = (metric.n_features,)
    elif type(metric) is GroundMetric:
        parts = metric.components, metric.cost.name
    else:
        parts = (joblib.hash(metric),)
    name = digest(type(metric).__name__, *parts)
    distributions = [key for cohort in cohorts for key in distribution_digests(cohort)]
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return [digest(name, *sorted((distributions[d], distributions[e]))) for d, e in pairs]


def distribution_digests(D: Distributions) -> list[bytes]:
    """Return a digest of the points and masses of each distribution, independent of its name and position."""
    digests = []
    for low, high in pairwise_items(D.bounds):
        points = D.points[low:high]
        parts = [points]
        if sparse.issparse(points):
            parts = [points.data, points.indices.astype(np.int64), points.indptr.astype(np.int64), str(points.shape)]
        digests.append(digest(*parts, D.weights[low:high]))
    return digests


def check_cohorts(A: Any, B: Any) -> tuple[Distributions, Distributions | None]:
    A = as_distributions(A).with_mass()
    B = None if B is None else as_distributions(B).with_mass()
    if len(A) == 0 or (B is not None and len(B) == 0):
        raise ValueError("no distributions: at least one is needed on each side")
    if B is not None and A.shape[1] != B.shape[1]:
        raise ValueError(f"A has {A.shape[1]} features, B has {B.shape[1]}: both need the same")
    if B is not None and None not in (A.features, B.features) and A.features != B.features:
        raise ValueError("A and B have different feature names or orders: bring them into the same order")
    return A, B


def resolve_metric(metric: Any, *cohorts: Distributions) -> Any:
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
