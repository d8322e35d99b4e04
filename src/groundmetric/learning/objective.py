"""A step of learning: the GGML loss of a mini-batch of triplets, its exact gradient, Adam, and the models of metrics.

The loss depends on the metric only through the transport of pairs (`GroundPairs`). Mini-batches consist of all triplets
of some anchors. `nearest_candidates` searches neighbours for triplets of nearest neighbours.

A model has the parameters of a metric and their start. Its embedding projects the points of distributions and turns
the gradient with respect to every projected point into the gradient of the parameters; transport never sees a feature.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from .._internal.parallel import Threads
from ..distributions import Distributions
from ..metrics.base import Cost, DiagonalMetric, GroundMetric
from ..transport.neighbors import Finder, nearest
from ..transport.pairs import PairTransport, pair_transport, project
from ..transport.problem import Answers, Masses
from .labels import Supervision, Target
from .penalties import ProximalPenalty
from .triplets import Triplets, candidates

# Distributions with fewer points are placed together: one product for many instead of many small ones.
_SMALL = 64


class GroundPairs(Protocol):
    """A fixed list of pairs of distributions whose transport values depend on parameters."""

    first: np.ndarray  # (n_pairs,) the distributions of each pair
    second: np.ndarray
    answers: Answers

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        """Bring these distributions up to the parameters. `learning` says that `gradient` may follow."""
        ...

    def upper(self, which: np.ndarray) -> np.ndarray:
        """Upper bounds of the present values."""
        ...

    def lower(self, which: np.ndarray) -> np.ndarray:
        """Lower bounds of the present values."""
        ...

    def solve(self, which: np.ndarray, enough: np.ndarray | None = None) -> np.ndarray:
        """Exact values; may be infinite where the value is certainly at least `enough`."""
        ...

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        """Gradient of ``coefficient @ solve(which)`` with respect to the parameters of the last `place`."""
        ...


@dataclass
class Evaluation:
    """Loss of a batch of triplets, its gradient, and the number and time of the solves."""

    loss: float
    active: int
    solved: int
    saved: int
    pivots: int
    pairs: np.ndarray  # those that were solved
    gradient: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Objective:
    """Mean hinge loss over triplets, in units of a typical distance, as a function of the metric's parameters.

    A triplet whose hinge is certainly 0, by bounds, needs no solve.

    Parameters
    ----------
    triplets : Triplets
        Triplets over which the loss is averaged.
    pairs : GroundPairs
        Pairs of distributions of the triplets.
    margin : float
        Margin of the hinge, in units of the attribute `unit`.
    """

    def __init__(self, triplets: Triplets, pairs: GroundPairs, *, margin: float) -> None:
        self.triplets, self.pairs, self.margin = triplets, pairs, margin
        self.unit = 1.0

    def typical_distance(self, parameters: np.ndarray, batch: np.ndarray) -> float:
        """Mean distance over the pairs of some triplets."""
        pairs = np.unique([self.triplets.near[batch], self.triplets.far[batch]])
        self.pairs.place(parameters, np.unique([self.pairs.first[pairs], self.pairs.second[pairs]]), learning=False)
        return float(self.pairs.solve(pairs).mean())

    def evaluate(self, parameters: np.ndarray, batch: np.ndarray, *, gradient: bool = True) -> Evaluation:
        """Loss of the triplets `batch`, and its gradient."""
        clock = _Clock()
        near, far = self.triplets.near[batch], self.triplets.far[batch]
        pairs, places = np.unique(np.concatenate([near, far]), return_inverse=True)
        near, far = places[: near.size], places[near.size :]
        distributions = np.unique([self.pairs.first[pairs], self.pairs.second[pairs]])
        self.pairs.place(parameters, distributions, learning=gradient)
        clock.lap("project")

        margin = self.margin * self.unit
        values, open_ = self._values(pairs, near, far, margin)
        solved = np.flatnonzero(np.isfinite(values))
        clock.lap("transport")

        hinge = np.zeros(batch.size)
        # A far value of infinity, or a near value of NaN, means that the hinge is certainly 0: `fmax` ignores NaN.
        hinge[open_] = np.fmax(values[near[open_]] - values[far[open_]] + margin, 0.0)
        active = hinge > 0
        weight = None if self.triplets.weight is None else self.triplets.weight[batch]
        heavy = None if weight is None else weight[active]
        result = Evaluation(
            loss=float((hinge if weight is None else weight * hinge).mean()) / self.unit,
            active=int(active.sum()),
            solved=solved.size,
            saved=pairs.size - solved.size,
            pivots=int(self.pairs.answers.pivots[pairs[solved]].sum()),
            pairs=pairs[solved],
        )
        if gradient:
            # A pair counts once for every active triplet that wants it near, and against every one that wants it far.
            coefficient = np.bincount(near[active], heavy, pairs.size) - np.bincount(far[active], heavy, pairs.size)
            pulling = np.flatnonzero(coefficient)
            share = coefficient[pulling] / (batch.size * self.unit)
            result.gradient = self.pairs.gradient(pairs[pulling], share)
            clock.lap("gradient")
        result.seconds = clock.laps
        return result

    def _values(
        self, pairs: np.ndarray, near: np.ndarray, far: np.ndarray, margin: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact values of the pairs that the loss of these triplets depends on, and which triplets may have a loss.

        The hinge of a triplet is max(near - far + margin, 0). Its gradient needs exact plans, but only if it is
        positive, and most triplets are satisfied later in training. Solves are avoided in three steps:

        1. Bounds without a solve. A triplet with ``upper(near) - lower(far) + margin <= 0`` is satisfied and not looked
           at again (`open_` marks the others).
        2. Near pairs of open triplets that violate the margin even if the far pair is as far as its upper bound allows.
           These triplets are violated for certain, or nearly so, and their near pairs are needed in any case.
        3. Far pairs. ``enough[pair]`` is the value from which on all its triplets are satisfied, so that the solver may
           stop as soon as the old potentials, made feasible, prove that the value is at least this (result: infinity).
           It is infinite, so that the solve is exact, for pairs of triplets that are violated by the upper bounds,
           whose gradient needs the plan, and for pairs that are the near pair of another triplet.
        4. The near pairs that are still missing, of triplets that the far values did not rule out.

        A value is NaN if the pair was not solved, and infinite if the solve stopped at `enough`. The exact values and
        gradients do not depend on the bounds: they only decide which solves are skipped.
        """
        upper, values = self.pairs.upper(pairs), np.full(pairs.size, np.nan)
        open_ = upper[near] - self.pairs.lower(pairs)[far] + margin > 0
        near, far = near[open_], far[open_]

        def violated(near_values: np.ndarray, far_values: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # inf - inf: neither pair has a plan yet, so nothing is known
                return near_values - far_values + margin > 0

        def solve(some: np.ndarray, enough: np.ndarray | None = None) -> None:
            some = np.unique(some[np.isnan(values[some])])
            values[some] = self.pairs.solve(pairs[some], None if enough is None else enough[some])
            upper[some] = np.fmin(values[some], upper[some])

        solve(near[violated(upper[near], upper[far])])
        enough = np.full(pairs.size, -np.inf)
        np.maximum.at(enough, far, upper[near] + margin)
        enough[far[violated(upper[near], upper[far])]] = np.inf
        enough[near] = np.inf
        solve(far, enough)
        solve(near[violated(upper[near], values[far])])
        return values, open_


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now


def nearest_candidates(
    masses: Masses,
    z: np.ndarray,
    known: Supervision,
    held_out: np.ndarray,
    n_neighbors: int,
    threads: Threads,
    *,
    cost: Cost = Cost.EUCLIDEAN,
) -> np.ndarray:
    """Distances of every distribution to its nearest candidates of each level, infinite where they were not needed.

    Lower bounds rule most pairs out without a solve. Distributions that are held out are not looked for.
    """
    finder = Finder(masses, z, threads, cost=cost)
    n = len(masses)
    rows, cols = np.triu_indices(n, 1)
    lower = np.full((n, n), np.inf)
    lower[rows, cols] = lower[cols, rows] = finder.lower(rows, cols)
    distances = np.full((n, n), np.inf)
    for wanted in _by_place(known, held_out, n):
        exact = nearest(np.where(wanted, lower, np.inf), min(n_neighbors, n), finder.solve, finder.sharpen)
        np.minimum(distances, exact, out=distances)
    return distances


def _by_place(known: Supervision, held_out: np.ndarray, n: int) -> list[np.ndarray]:
    """Masks (anchor, candidate): the first levels of all anchors, the second ones, and so on."""
    masks: dict[tuple[Any, ...], np.ndarray] = {}
    for label, target in enumerate(known.targets):
        for some in candidates(target, held_out, known.strata):
            sides = {"near": some.near} if some.far is some.near else {"near": some.near, "far": some.far}
            for side, pools in sides.items():
                for place, pool in enumerate(pools):
                    mask = masks.setdefault((label, side, place), np.zeros((n, n), bool))
                    mask[some.anchor, pool.all()] = True
    return list(masks.values())


def grouped(triplets: Triplets, chosen: np.ndarray) -> list[np.ndarray]:
    """The chosen triplets that are learned from together: of a mini-batch, or at least of an anchor.

    They share distributions and pairs, so that a step needs few projections and solves.
    """
    group = (triplets.j if triplets.batch is None else triplets.batch)[chosen]
    order = np.argsort(group, kind="stable")
    return np.split(chosen[order], np.flatnonzero(np.diff(group[order])) + 1)


def mini_batches(groups: list[np.ndarray], size: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Mini-batches of about `size` triplets: whole groups in random order."""
    order = [groups[place] for place in random.permutation(len(groups))]
    ends = np.cumsum([group.size for group in order])
    n_batches = max(1, int(np.ceil(ends[-1] / size)))
    middles = (ends[:-1] + ends[1:]) / 2.0  # a batch ends with the group whose end is nearest
    cuts = 1 + np.searchsorted(middles, ends[-1] * np.arange(1, n_batches) / n_batches)
    parts = np.split(np.arange(len(order)), np.unique(cuts))
    return [np.concatenate([order[place] for place in part]) for part in parts if part.size]


class Optimiser(Protocol):
    learning_rate: float

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray: ...


class Adam:
    """Adam (Kingma & Ba 2015), the optimiser of the paper, and its proximal form for penalties with a kink.

    Steps are of about `learning_rate` per entry, whatever the gradient's scale.
    """

    def __init__(self, learning_rate: float, decay: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        self.learning_rate = learning_rate
        self._decay = decay
        self._epsilon = epsilon
        self._steps = 0
        self._mean: np.ndarray | float = 0.0
        self._square: np.ndarray | float = 0.0

    def state(self) -> dict[str, Any]:
        """What the next steps depend on, for `restore`."""
        return {"steps": self._steps, "mean": self._mean, "square": self._square}

    def restore(self, state: dict[str, Any]) -> None:
        self._steps, self._mean, self._square = state["steps"], state["mean"], state["square"]

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """W after one step against the gradient."""
        mean, square = self._moments(gradient, gradient)
        return W - self.learning_rate * mean / (np.sqrt(square) + self._epsilon)

    def proximal_step(self, W: np.ndarray, gradient: np.ndarray, penalty: ProximalPenalty, weight: float) -> np.ndarray:
        """W after one step on the loss, whose gradient is given, and one on ``weight`` times the penalty.

        Both use the same step sizes, entry by entry: W stays where it is exactly if the penalty balances the gradient,
        which a proximal step of one size behind Adam's of many would miss. Entries that the penalty ties together
        (`penalty.tied`) share theirs. The sizes follow the gradient of the sum, so they are bounded when no triplet
        pulls.
        """
        total = gradient + weight * penalty.gradient(W)
        mean, square = self._moments(gradient, total)
        size = self.learning_rate / (np.sqrt(np.mean(square, axis=penalty.tied, keepdims=True)) + self._epsilon)
        return penalty.proximal(W - size * mean, size * weight)

    def _moments(self, gradient: np.ndarray, scaling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Averages of the gradient, and of the square of what the steps are scaled by, without their first bias."""
        first, second = self._decay
        self._steps += 1
        self._mean = first * self._mean + (1.0 - first) * gradient
        self._square = second * self._square + (1.0 - second) * scaling**2
        return self._mean / (1.0 - first**self._steps), self._square / (1.0 - second**self._steps)


class Embedding(Protocol):
    """A map of points that depends on parameters, an array."""

    n_components: int

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Each of these distributions with its points' places, (its size, n_components).

        `learning` says that `pull_back` may follow.
        """
        ...

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        """Gradient of the parameters of the last `place`.

        `pull` (n_points, n_components) is the gradient with respect to every place; it is 0 outside `distributions`.
        """
        ...


class LinearEmbedding:
    """Linear projection of points, Z = X Wᵀ, where the parameters W apply to standardised features.

    The standardisation is folded into the product, so that no copy of the points is made. The gradient F with respect
    to the projected points becomes the gradient Fᵀ X with respect to W.

    Parameters
    ----------
    D : Distributions
        The cohort.
    n_components : int
        Number of rows of W.
    scale : array of shape (n_features,)
        Standard deviation of each feature.
    centre : array of shape (n_features,)
        Mean of each feature.
    """

    def __init__(self, D: Distributions, n_components: int, scale: np.ndarray, centre: np.ndarray) -> None:
        self.n_components = n_components
        self._D, self._scale, self._centre = D, scale, centre

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Places less a common shift, which changes no distance."""
        components = parameters / self._scale
        shift = self._shift(components)
        for some, rows in self._blocks(distributions):
            z = self._product(self._D.points[rows], components) - shift
            ends = np.cumsum(self._D.sizes[some])
            for d, end in zip(some, ends, strict=True):
                yield d, z[end - self._D.sizes[d] : end]

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        total = np.zeros(self._shape)
        for _, rows in self._blocks(distributions):
            total += self._gradient(self._points(rows), pull[rows])
        return total / self._scale

    @property
    def _shape(self) -> tuple[int, int]:
        return self.n_components, self._scale.size

    def _shift(self, components: np.ndarray) -> np.ndarray:
        return components @ self._centre

    def _product(self, points: Any, components: np.ndarray) -> np.ndarray:
        return points @ components.T if sparse.issparse(points) else project(points, components)

    def _gradient(self, points: Any, pull: np.ndarray) -> np.ndarray:
        return (points.T @ pull).T if sparse.issparse(points) else pull.T @ points

    def _blocks(self, distributions: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Distributions with their rows: a large one by itself, as a slice without a copy, small ones together."""
        small = self._D.sizes[distributions] < _SMALL
        for d in distributions[~small]:
            yield np.array([d]), slice(self._D.bounds[d], self._D.bounds[d + 1])
        for low in range(0, int(small.sum()), _SMALL):
            some = distributions[small][low : low + _SMALL]
            yield some, np.concatenate([np.arange(self._D.bounds[d], self._D.bounds[d + 1]) for d in some])

    def _points(self, rows: Any) -> Any:
        """Points in float64: only these rows are copied where the cohort is float32."""
        return self._D.points[rows].astype(np.float64, copy=False)


class DiagonalEmbedding(LinearEmbedding):
    """Z = X diag(w): every feature is a component of its own. The parameters are w, (1, n_features)."""

    def __init__(self, D: Distributions, scale: np.ndarray, centre: np.ndarray) -> None:
        super().__init__(D, scale.size, scale, centre)

    @property
    def _shape(self) -> tuple[int, int]:
        return 1, self._scale.size

    def _shift(self, components: np.ndarray) -> np.ndarray:
        return components[0] * self._centre

    def _product(self, points: Any, components: np.ndarray) -> np.ndarray:
        weighted = points.multiply(components) if sparse.issparse(points) else points * components
        return weighted.toarray() if sparse.issparse(weighted) else weighted

    def _gradient(self, points: Any, pull: np.ndarray) -> np.ndarray:
        weighted = points.multiply(pull) if sparse.issparse(points) else points * pull
        return np.asarray(weighted.sum(axis=0)).reshape(1, -1)


class EmbeddedPairs:
    """Pairs whose points an embedding places: transport sees only the places, and hands back the pull on each."""

    def __init__(self, embedding: Embedding, transport: PairTransport) -> None:
        self.embedding, self.transport = embedding, transport
        self.first, self.second, self.answers = transport.first, transport.second, transport.answers
        self.upper, self.lower, self.solve = transport.upper, transport.lower, transport.solve

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        for d, z in self.embedding.place(parameters, distributions, learning=learning):
            self.transport.move(d, z)

    def state(self) -> dict[str, np.ndarray]:
        return self.transport.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.transport.restore(state)

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        pull = self.transport.pull(which, coefficient)
        return self.embedding.pull_back(pull, np.unique([self.first[which], self.second[which]]))


# Rows of the linear start that the weights of a diagonal metric are taken from.
_FEW = 5


class Model(Protocol):
    """A family of metrics with parameters, an array."""

    cost: Cost

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """First parameters; ``components(k)`` gives a linear metric of k rows to begin with."""
        ...

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        """Pairs of distributions as a function of the parameters; `options` as in PairTransport."""
        ...

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        """Places of all points."""
        ...

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        """The parameters as rows of W, for penalties on linear metrics."""
        ...

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        """Gradient of the parameters from that of `rows`."""
        ...

    def optimiser(self, learning_rate: float) -> Optimiser: ...

    def keep(self, parameters: np.ndarray) -> Any:
        """Everything that `metric` needs later, when the parameters have moved on."""
        ...

    def metric(self, kept: Any, features: Sequence[str] | None, variances: np.ndarray) -> Any: ...


class LinearModel:
    """d(x, y) = |W(x - y)|, W of shape (n_components, n_features) for standardised features."""

    def __init__(self, n_components: int, scale: np.ndarray, centre: np.ndarray, cost: Cost = Cost.EUCLIDEAN) -> None:
        self.n_components, self.scale, self.centre, self.cost = n_components, scale, centre, cost

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        return components(self.n_components)

    def embedding(self, D: Distributions) -> LinearEmbedding:
        return LinearEmbedding(D, self.n_components, self.scale, self.centre)

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        embedding = self.embedding(D)
        k = embedding.n_components
        return EmbeddedPairs(embedding, pair_transport(Masses.of(D), first, second, k, cost=self.cost, **options))

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        components = parameters / self.scale
        return GroundMetric(components).project(D.points) - components @ self.centre

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        return parameters

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return gradient

    def optimiser(self, learning_rate: float) -> Optimiser:
        return Adam(learning_rate)

    def keep(self, parameters: np.ndarray) -> np.ndarray:
        return parameters

    def metric(self, kept: np.ndarray, features: Sequence[str] | None, variances: np.ndarray) -> GroundMetric:
        return GroundMetric(kept / self.scale, features, variances=variances, cost=self.cost)


class DiagonalModel(LinearModel):
    """A weight for every feature: W = diag(w). The parameters are w, (1, n_features), for standardised features.

    The metric depends on w² alone, so a weight that has become 0 stays 0.
    """

    def __init__(self, scale: np.ndarray, centre: np.ndarray, cost: Cost = Cost.EUCLIDEAN) -> None:
        super().__init__(scale.size, scale, centre, cost)

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """As much weight for a feature as a linear metric of few rows gives it."""
        return np.linalg.norm(components(min(_FEW, self.scale.size)), axis=0, keepdims=True)

    def embedding(self, D: Distributions) -> DiagonalEmbedding:
        return DiagonalEmbedding(D, self.scale, self.centre)

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        weights = parameters[0] / self.scale
        points = D.points.toarray() if sparse.issparse(D.points) else D.points
        return (points - self.centre) * weights

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        return np.diag(parameters[0])

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return np.diagonal(gradient)[None]

    def metric(self, kept: np.ndarray, features: Sequence[str] | None, variances: np.ndarray) -> GroundMetric:
        return DiagonalMetric(np.abs(kept[0]) / self.scale, features, variances=variances, cost=self.cost)


# Where learning starts: the first rows of W tell the labels apart, the others are small and random. The problem is not
# convex: from a random W alone, learning often ends at chance on data with many noise features.

# Root mean square of the entries of the leading row. It sets how large a step of `learning_rate` is beside W; margin
# and strength are relative, so it has no other effect.
_ENTRY = 1.0 / 16.0
# The random rows beside the leading one: small, so that noise features start with little weight.
_REST = 0.1
# Points that the covariance is estimated from at most; more do not change the start visibly, but cost passes over them.
_MOST_POINTS = 4000
# Entries of those that are copied at a time: 1 MB.
_BLOCK = 2**17


def discriminating_start(
    D: Distributions, known: Supervision, scale: np.ndarray, n_components: int, random: np.random.RandomState
) -> np.ndarray:
    """Components for standardised features: discriminants by their strength, then random rows."""
    directions = _strongest(D, known, scale, random)[:n_components]
    leading = np.linalg.norm(directions[0]) if len(directions) else 0.0
    if leading == 0.0:  # the class means coincide: there is no direction to begin with
        return random_start(scale, n_components, random)
    rest = _REST * random_start(scale, n_components - len(directions), random)
    return np.vstack([directions * (_ENTRY * np.sqrt(scale.size) / leading), rest])


def random_start(scale: np.ndarray, n_components: int, random: np.random.RandomState) -> np.ndarray:
    """Uniform entries, as in the paper."""
    return random.uniform(-1.0, 1.0, (n_components, scale.size)) * (_ENTRY * np.sqrt(3.0))


def _strongest(D: Distributions, known: Supervision, scale: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """The discriminants of all labels, each from the distributions that have it, as strong as its share of the loss."""
    if len(known.targets) == 1:
        return discriminants(D, known.targets[0], scale, random, strata=known.strata)
    rows = []
    for target, share in zip(known.targets, known.shares, strict=True):
        seen = np.flatnonzero(target.labelled)
        strata = None if known.strata is None else known.strata[seen]
        rows.append(share * discriminants(D[seen], target.at(seen), scale, random, strata=strata))
    directions = np.vstack(rows)
    return directions[np.argsort(-np.linalg.norm(directions, axis=1), kind="stable")]


def discriminants(
    D: Distributions,
    target: Target,
    scale: np.ndarray,
    random: np.random.RandomState,
    *,
    strata: np.ndarray | None = None,
) -> np.ndarray:
    """Directions along which the means of distributions follow the label, against the spread of points around it.

    Of classes or a few values, a linear discriminant of their means; of many values, the regression of the means on
    them. The covariance is shrunk half way to the identity: there are more features than distributions. Strongest
    first, each as long as the class means (or those of values a standard deviation apart) lie apart along it; at most
    one direction less than there are classes. With strata, all this within strata.
    """
    means = D.means() / scale
    design, effects, between = _label_effects(target, means, strata)
    within = _shrunk_covariance(D, design, effects, scale, random)
    solved = np.stack([cg(within, row, rtol=1e-6, maxiter=200)[0] for row in between])
    strength, mixing = np.linalg.eigh(between @ solved.T)
    useful = strength > strength.max() * 1e-8
    rows = mixing[:, useful].T @ solved
    rows *= (np.sqrt(strength[useful]) / np.linalg.norm(rows, axis=1))[:, None]
    return rows[::-1]


def _label_effects(
    target: Target, means: np.ndarray, strata: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A design and effects whose product follows the means, and the effects that tell labels apart."""
    response = target.response()
    if strata is None and target.few_levels:
        level_means = np.stack([means[column > 0].mean(axis=0) for column in response.T])
        return response, level_means, level_means - level_means.mean(axis=0)
    centred, rest = response - response.mean(axis=0), means - means.mean(axis=0)
    if strata is not None:  # compare within strata: what sets them apart is no effect of the label
        centred, rest = _within(centred, strata), _within(rest, strata)
    effects = np.linalg.lstsq(centred, rest, rcond=1e-8)[0]
    if target.few_levels:
        effects = effects - effects.mean(axis=0)
    offset = means.mean(axis=0) - response.mean(axis=0) @ effects
    design = np.hstack([response, np.ones((len(means), 1))])
    return design, np.vstack([effects, offset]), effects


def _within(values: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the stratum."""
    members = (strata[:, None] == np.unique(strata)).astype(np.float64)
    return values - members @ ((members.T @ values) / members.sum(axis=0)[:, None])


def _shrunk_covariance(
    D: Distributions, design: np.ndarray, effects: np.ndarray, scale: np.ndarray, random: np.random.RandomState
) -> LinearOperator:
    """(covariance of standardised points around what their label lets expect + identity) / 2, as products only."""
    rows = np.arange(D.points.shape[0])
    if rows.size > _MOST_POINTS:
        rows = np.sort(random.choice(rows, _MOST_POINTS, replace=False))
    owner = np.searchsorted(D.bounds, rows, side="right") - 1
    members = sparse.csr_matrix(design)[owner]
    blocks = _row_blocks(D.points, rows)

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        expected, weights = members @ (effects @ x), x / scale
        spread, centred = np.zeros(scale.size), np.empty(rows.size)
        for here, points in blocks():
            centred[here] = points @ weights - expected[here]
            spread += points.T @ centred[here]
        spread = spread / scale - effects.T @ (members.T @ centred)
        return 0.5 * (spread / rows.size + x)

    return LinearOperator((scale.size, scale.size), matvec=product, dtype=np.float64)


def _row_blocks(points: Any, rows: np.ndarray) -> Callable[[], Iterator[tuple[slice, Any]]]:
    """Some rows of the points, again and again: a few at a time, so that memory holds no copy of them all.

    Of sparse points a copy is small, and to choose rows takes longer than to use them: they are copied once.
    """
    if sparse.issparse(points):
        chosen = points[rows].astype(np.float64, copy=False)
        return lambda: iter([(slice(0, rows.size), chosen)])
    size = max(1, _BLOCK // points.shape[1])

    def blocks() -> Iterator[tuple[slice, Any]]:
        for low in range(0, rows.size, size):
            here = slice(low, min(low + size, rows.size))
            yield here, points[rows[here]].astype(np.float64, copy=False)

    return blocks
