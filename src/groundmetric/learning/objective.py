"""One training step: triplet loss of a mini-batch, its exact gradient, penalties, Adam, and parametrised metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ..transport.problem import Masses
from .labels import Supervision, Target
from .triplets import Triplets


@dataclass
class Evaluation:  # loss of a mini-batch, and its gradient
    loss: float
    active: int  # triplets with a positive hinge
    solved: int
    saved: int  # pairs whose solve the bounds made unnecessary
    pivots: int
    pairs: np.ndarray  # solved pairs
    gradient: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Objective:
    """Mean hinge loss over triplets as a function of the metric's parameters, in units of a typical distance."""

    def __init__(self, triplets: Triplets, pairs: EmbeddedPairs, *, margin: float) -> None:
        self.triplets, self.pairs, self.margin = triplets, pairs, margin
        self.unit = 1.0  # of the loss and of the margin

    def typical_distance(self, parameters: np.ndarray, batch: np.ndarray) -> float:
        """Return the mean distance over the pairs of the triplets `batch`."""
        pairs = np.unique([self.triplets.near[batch], self.triplets.far[batch]])
        self.pairs.place(parameters, np.unique([self.pairs.first[pairs], self.pairs.second[pairs]]), learning=False)
        return float(self.pairs.solve(pairs).mean())

    def evaluate(self, parameters: np.ndarray, batch: np.ndarray, *, gradient: bool = True) -> Evaluation:
        laps = [time.perf_counter()]
        pairs, positions = np.unique(
            np.concatenate([self.triplets.near[batch], self.triplets.far[batch]]), return_inverse=True
        )
        near_pair, far_pair = positions[: batch.size], positions[batch.size :]
        distributions = np.unique([self.pairs.first[pairs], self.pairs.second[pairs]])
        self.pairs.place(parameters, distributions, learning=gradient)
        laps.append(time.perf_counter())

        margin = self.margin * self.unit
        values, undecided = self._values(pairs, near_pair, far_pair, margin)
        solved = np.flatnonzero(np.isfinite(values))
        laps.append(time.perf_counter())

        hinge = np.zeros(batch.size)
        # An infinite far value or a NaN near value proves that the hinge is 0; `fmax` ignores NaN.
        hinge[undecided] = np.fmax(values[near_pair[undecided]] - values[far_pair[undecided]] + margin, 0.0)
        active = hinge > 0
        weight = None if self.triplets.weight is None else self.triplets.weight[batch]
        result = Evaluation(
            loss=float((hinge if weight is None else weight * hinge).mean()) / self.unit,
            active=int(active.sum()),
            solved=solved.size,
            saved=pairs.size - solved.size,
            pivots=int(self.pairs.answers.pivots[pairs[solved]].sum()),
            pairs=pairs[solved],
        )
        if gradient:
            # d loss / d value: plus one for every active triplet with this near pair, minus one with this far pair.
            active_weight = None if weight is None else weight[active]
            coefficient = np.bincount(near_pair[active], active_weight, pairs.size)
            coefficient = coefficient - np.bincount(far_pair[active], active_weight, pairs.size)
            nonzero = np.flatnonzero(coefficient)
            result.gradient = self.pairs.gradient(pairs[nonzero], coefficient[nonzero] / (batch.size * self.unit))
            laps.append(time.perf_counter())
        result.seconds = dict(zip(("project", "transport", "gradient"), np.diff(laps).tolist(), strict=False))
        return result

    def _values(
        self, pairs: np.ndarray, near_pair: np.ndarray, far_pair: np.ndarray, margin: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of the pairs that the loss needs, and a mask of the triplets that bounds do not decide.

        Only triplets with a positive hinge max(near - far + margin, 0) need exact values and optimal plans. Later in
        training most triplets are satisfied, and bounds prove this without a solve:

        0. A triplet with ``upper(near) - lower(far) + margin <= 0`` is satisfied, and is not looked at again.
        1. Solve the near pairs of triplets that are violated even if both values are at their upper bounds: most of
           these are active.
        2. Solve the far pairs, which may stop early and return infinity: ``enough[pair]`` is the value from which on
           all triplets with this far pair are satisfied. It is infinite, and the solve exact, if a triplet is violated
           by the upper bounds (its gradient needs the plan of the far pair), or if the pair is the near pair of another
           triplet (which needs its finite value).
        3. Solve the remaining near pairs of triplets that the far values of step 2 do not prove satisfied.

        NaN means that the pair was not solved, infinity that its solve stopped at `enough`. Bounds change neither loss
        nor gradient, only the solves that are skipped.
        """
        upper, values = self.pairs.upper(pairs), np.full(pairs.size, np.nan)
        undecided = upper[near_pair] - self.pairs.lower(pairs)[far_pair] + margin > 0
        near_pair, far_pair = near_pair[undecided], far_pair[undecided]

        def violated(near_values: np.ndarray, far_values: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # inf - inf (no plan for either pair yet) is NaN: not violated
                return near_values - far_values + margin > 0

        def solve(selected: np.ndarray, enough: np.ndarray | None = None) -> None:
            selected = np.unique(selected[np.isnan(values[selected])])
            values[selected] = self.pairs.solve(pairs[selected], None if enough is None else enough[selected])
            upper[selected] = np.fmin(values[selected], upper[selected])

        solve(near_pair[violated(upper[near_pair], upper[far_pair])])
        enough = np.full(pairs.size, -np.inf)
        np.maximum.at(enough, far_pair, upper[near_pair] + margin)
        enough[far_pair[violated(upper[near_pair], upper[far_pair])]] = np.inf
        enough[near_pair] = np.inf
        solve(far_pair, enough)
        solve(near_pair[violated(upper[near_pair], values[far_pair])])
        return values, undecided


def nearest_agreement(
    masses: Masses, z: np.ndarray, codes: np.ndarray, threads: Threads, *, cost: Cost = Cost.EUCLIDEAN
) -> float:
    """Return the share of distributions whose nearest distribution is of their class, in classes of two or more."""
    finder = Finder(masses, z, threads, cost=cost)
    closest = np.argmin(nearest(finder.lower_bounds(), 1, finder.solve, finder.sharpen), axis=1)
    repeated = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=1)[codes] > 1)
    return float(np.mean(codes[closest[repeated]] == codes[repeated]))


def grouped(triplets: Triplets, selected: np.ndarray) -> list[np.ndarray]:  # by mini-batch, or else by anchor
    group = (triplets.j if triplets.batch is None else triplets.batch)[selected]
    order = np.argsort(group, kind="stable")
    return np.split(selected[order], np.flatnonzero(np.diff(group[order])) + 1)


def mini_batches(groups: list[np.ndarray], size: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Return mini-batches of about `size` triplets: undivided groups in random order."""
    order = [groups[number] for number in random.permutation(len(groups))]
    ends = np.cumsum([group.size for group in order])
    n_batches = max(1, int(np.ceil(ends[-1] / size)))
    middles = (ends[:-1] + ends[1:]) / 2.0  # a batch ends with the group whose end is nearest
    cuts = 1 + np.searchsorted(middles, ends[-1] * np.arange(1, n_batches) / n_batches)
    parts = np.split(np.arange(len(order)), np.unique(cuts))
    return [np.concatenate([order[number] for number in part]) for part in parts if part.size]


# Decay of Adam's running averages of the gradient and of its square, and the smallest root of the latter.
_DECAY, _EPSILON = (0.9, 0.999), 1e-8


class Penalty(Protocol):
    """Penalty on the components W, shape (n_components, n_features): any object with ``value(W)`` and ``gradient(W)``.

    The learner applies it to W for standardised features (for a diagonal metric, to the weights as one row), multiplied
    by `strength` and divided by its value at the start. To set entries to exactly 0, add a method ``proximal(W, step)``
    that returns the V which minimises step · value(V) + |V - W|² / 2, and ``tied``, the axes of W over which `step` is
    constant: () none, (0, 1) all.

    Parameters
    ----------
    *args, **kwargs : Any
        Not used: a protocol is not instantiated.

    Examples
    --------
    >>> import numpy as np
    >>> class FirstFeature:
    ...     def value(self, W):
    ...         return float(np.sum(W[:, 0] ** 2))
    ...
    ...     def gradient(self, W):
    ...         gradient = np.zeros_like(W)
    ...         gradient[:, 0] = 2.0 * W[:, 0]
    ...         return gradient
    >>> FirstFeature().value(np.array([[3.0, 1.0]]))
    9.0
    """

    def value(self, W: np.ndarray) -> float:
        """Return the value of the penalty at the components `W`, a non-negative number."""
        ...

    def gradient(self, W: np.ndarray) -> np.ndarray:
        """Return the gradient of the value with the shape of `W`; at a kink, the subgradient of least norm."""
        ...


class _Frobenius(Penalty):  # |W|, the paper's L2
    axis: int | None = None

    def value(self, W: np.ndarray) -> float:
        return float(np.sum(np.linalg.norm(W, axis=self.axis)))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(W, axis=self.axis)
        return W / np.where(norm > 0, norm, 1.0)


class _SquaredFrobenius(Penalty):  # |W|², the trace of M = WᵀW
    def value(self, W: np.ndarray) -> float:
        return float(np.sum(W * W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return 2.0 * W


class Lasso(Penalty):
    """Lasso, the sum of absolute entries, whose proximal map sets single entries of W to 0: ``penalty="l1"``.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.learning import Lasso
    >>> Lasso().value(np.array([[3.0, -4.0]]))
    7.0
    """

    tied = ()

    def __init__(self) -> None:
        """Take no parameters, unlike a protocol, which takes any."""

    def value(self, W: np.ndarray) -> float:
        return float(np.abs(W).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        return np.sign(W)

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Return `W` with every entry moved towards 0 by its `step`, and smaller entries set to 0."""
        return np.sign(W) * np.maximum(np.abs(W) - step, 0.0)


class _GroupLasso(_Frobenius):  # the sum of the norms of the columns of W; sets whole features to 0
    tied = (0,)
    axis = 0

    def proximal(self, W: np.ndarray, step: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(W, axis=0, keepdims=True)
        return W * np.maximum(1.0 - step / np.where(norm > 0, norm, 1.0), 0.0)


class _Nuclear(Penalty):  # the sum of singular values of W, which favours a low rank
    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.svd(W, compute_uv=False).sum())

    def gradient(self, W: np.ndarray) -> np.ndarray:
        left, singular, right = np.linalg.svd(W, full_matrices=False)
        present = singular > singular.max(initial=0.0) * 1e-12
        return left[:, present] @ right[present]


_BY_NAME: dict[str, type] = {
    "l2": _Frobenius, "l2_squared": _SquaredFrobenius, "l1": Lasso, "group": _GroupLasso, "nuclear": _Nuclear,
}  # fmt: skip


def resolve_penalty(penalty: Any) -> Penalty | None:
    if isinstance(penalty, str) and penalty in _BY_NAME:
        return _BY_NAME[penalty]()
    has_methods = hasattr(penalty, "value") and hasattr(penalty, "gradient")
    if penalty is None or (has_methods and not isinstance(penalty, type)):
        return penalty
    raise ValueError(
        f"penalty is {penalty!r}: expected one of {sorted(_BY_NAME)}, None, or an object with value and gradient"
    )


class StrataVariance:
    """Share of the variance between distributions that their strata explain beyond the labels: |W bᵀ|² / |W mᵀ|².

    m are the means of the distributions (in standardised features), b the effects of the strata.
    """

    def __init__(self, means: np.ndarray, labels: Supervision) -> None:
        assert labels.strata is not None
        self._all = means - means.mean(axis=0)
        strata = (labels.strata[:, None] == np.unique(labels.strata)).astype(np.float64)
        responses = [target.response() for target in labels.targets]
        # Missing labels are replaced by the mean response.
        responses = [np.where(np.isnan(response), np.nanmean(response, axis=0), response) for response in responses]
        explained = _orthonormal(np.hstack([np.ones((len(means), 1)), *responses]))
        beyond = _orthonormal(strata - explained @ (explained.T @ strata))
        # Effects of the strata in coordinates of this basis, which keep their norms.
        self._strata = beyond.T @ self._all

    def value(self, W: np.ndarray) -> float:
        part, total = self._sums(W)
        return part / total if total > 0 else 0.0

    def gradient(self, W: np.ndarray) -> np.ndarray:
        part, total = self._sums(W)
        if total == 0:
            return np.zeros_like(W)
        difference = (W @ self._strata.T) @ self._strata - (part / total) * ((W @ self._all.T) @ self._all)
        return 2.0 * difference / total

    def _sums(self, W: np.ndarray) -> tuple[float, float]:
        return float(np.sum((W @ self._strata.T) ** 2)), float(np.sum((W @ self._all.T) ** 2))


def _orthonormal(columns: np.ndarray) -> np.ndarray:  # basis of the column space
    basis, singular, _ = np.linalg.svd(columns, full_matrices=False)
    return basis[:, singular > 1e-9 * max(singular.max(initial=0.0), 1.0)]


# A metric has vanished if the penalty is below this share of its first value, and the loss above this share of the
# margin, which is the loss at W = 0.
_PENALTY, _HINGE = 0.01, 0.98


def has_vanished(history: Mapping[str, Any], margin: float, strength: float) -> bool:
    """Return whether W has shrunk to nearly 0: distances no longer affect any triplet, and its direction is random.

    >>> has_vanished({"loss": [0.6, 0.995], "active": [0.7, 1.0], "penalty": [0.6, 0.003]}, margin=1.0, strength=1.0)
    True
    """
    if strength == 0.0 or not len(history["loss"]):
        return False
    loss, active, penalty = (history[name][-1] for name in ("loss", "active", "penalty"))
    return bool(active == 1.0 and loss > _HINGE * margin and penalty < _PENALTY * strength)


class Adam:
    """Adam (Kingma & Ba 2015), the optimiser of the paper, and its proximal form for penalties with a kink."""

    def __init__(self, learning_rate: float) -> None:
        # The next steps depend on these attributes only, and checkpoints save them.
        self.learning_rate, self.steps = learning_rate, 0
        self.mean: np.ndarray | float = 0.0
        self.square: np.ndarray | float = 0.0

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        mean, square = self._moments(gradient, gradient)
        return W - self.learning_rate * mean / (np.sqrt(square) + _EPSILON)

    def proximal_step(self, W: np.ndarray, gradient: np.ndarray, penalty: Any, weight: float) -> np.ndarray:
        """Return W after one step on the loss, whose gradient is given, and one on ``weight`` times the penalty."""
        # Both steps use the same step size for an entry (or for entries of `penalty.tied`): W is a fixed point exactly
        # if the penalty balances the gradient. The gradient of the sum bounds step sizes if no triplet is active.
        total = gradient + weight * penalty.gradient(W)
        mean, square = self._moments(gradient, total)
        size = self.learning_rate / (np.sqrt(np.mean(square, axis=penalty.tied, keepdims=True)) + _EPSILON)
        return penalty.proximal(W - size * mean, size * weight)

    def _moments(self, gradient: np.ndarray, scaling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second = _DECAY
        self.steps += 1
        self.mean = first * self.mean + (1.0 - first) * gradient
        self.square = second * self.square + (1.0 - second) * scaling**2
        return self.mean / (1.0 - first**self.steps), self.square / (1.0 - second**self.steps)


# Distributions with fewer points are projected in blocks of this many: one product instead of many small ones.
_SMALL = 64


class LinearEmbedding:
    """Projection of points by a linear or diagonal model, shifted by the projected mean, which changes no distance.

    The standardisation is folded into the product, which avoids a copy of the points.
    """

    def __init__(self, D: Distributions, model: LinearModel) -> None:
        self._D, self._model = D, model

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each distribution with its embedded points; `learning`: `pull_back` may follow."""
        self._shape, components = parameters.shape, parameters / self._model.scale
        shift = self._model.shift(components)
        for members, rows in self._blocks(distributions):
            z = self._model.product(self._D.points[rows], components) - shift
            ends = np.cumsum(self._D.sizes[members])
            for d, end in zip(members, ends, strict=True):
                yield d, z[end - self._D.sizes[d] : end]

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        """Return the gradient of the parameters of the last `place` from the gradient of the embedded points."""
        total = np.zeros(self._shape)
        for _, rows in self._blocks(distributions):
            # Only these rows are copied if the cohort is float32.
            total += self._model.pull_back(self._D.points[rows].astype(np.float64, copy=False), pull[rows])
        return total / self._model.scale

    def _blocks(self, distributions: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield distributions with their rows: a large one alone, as a slice without a copy, small ones in blocks."""
        bounds, small = self._D.bounds, self._D.sizes[distributions] < _SMALL
        for d in distributions[~small]:
            yield np.array([d]), slice(bounds[d], bounds[d + 1])
        for low in range(0, int(small.sum()), _SMALL):
            members = distributions[small][low : low + _SMALL]
            yield members, np.concatenate([np.arange(bounds[d], bounds[d + 1]) for d in members])


class EmbeddedPairs:
    """Transport between points that a `LinearEmbedding`, or an object with its methods, has placed.

    Transport never uses the features: the embedding projects points, and converts gradients of projected points into
    those of the parameters.
    """

    def __init__(self, embedding: Any, transport: PairTransport) -> None:
        self.embedding, self.transport = embedding, transport
        self.first, self.second, self.answers = transport.first, transport.second, transport.answers
        self.upper, self.lower, self.solve = transport.upper, transport.lower, transport.solve
        self.state, self.restore = transport.state, transport.restore

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        for d, z in self.embedding.place(parameters, distributions, learning=learning):
            self.transport.move(d, z)

    def gradient(self, pairs: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        """Return the gradient of ``coefficient @ solve(pairs)`` with respect to the parameters."""
        pull = self.transport.pull(pairs, coefficient)
        return self.embedding.pull_back(pull, np.unique([self.first[pairs], self.second[pairs]]))


class LinearModel:
    """d(x, y) = |W(x - y)| for standardised features. `neural` has models with the same methods."""

    def __init__(self, n_components: int, scale: np.ndarray, centre: np.ndarray, cost: Cost = Cost.EUCLIDEAN) -> None:
        self.n_components, self.scale, self.centre, self.cost = n_components, scale, centre, cost

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the first parameters; ``components(k)`` returns a linear metric of k rows to start from."""
        return components(self.n_components)

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> EmbeddedPairs:
        """Return pairs of distributions as a function of the parameters; `options` as in PairTransport."""
        transport = pair_transport(Masses.of(D), first, second, self.n_components, cost=self.cost, **options)
        return EmbeddedPairs(LinearEmbedding(D, self), transport)

    def shift(self, components: np.ndarray) -> np.ndarray:
        """Return the projected mean of the points; here and below, `components` are for the original features."""
        return components @ self.centre

    def product(self, points: Any, components: np.ndarray) -> np.ndarray:
        return points @ components.T if sparse.issparse(points) else project(points, components)

    def pull_back(self, points: Any, pull: np.ndarray) -> np.ndarray:
        """Return the gradient Fᵀ X of the components from the gradient F of the projected points."""
        return (points.T @ pull).T if sparse.issparse(points) else pull.T @ points

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        components = parameters / self.scale
        return GroundMetric(components).project(D.points) - self.shift(components)

    def rows(self, parameters: np.ndarray) -> np.ndarray:  # of W, for penalties on linear metrics
        return parameters

    def chain(self, gradient: np.ndarray) -> np.ndarray:  # of the parameters, from the gradient of `rows`
        return gradient

    def optimiser(self, learning_rate: float) -> Adam:
        return Adam(learning_rate)

    def keep(self, parameters: np.ndarray) -> np.ndarray:
        return parameters  # for `metric`; later steps return new arrays

    def metric(self, state: np.ndarray, features: Sequence[str] | None, variances: np.ndarray) -> GroundMetric:
        return GroundMetric(state / self.scale, features, variances=variances, cost=self.cost)


class DiagonalModel(LinearModel):
    """Weights w of shape (1, n_features), W = diag(w). The metric depends on w² alone: a weight that is 0 stays 0."""

    def __init__(self, scale: np.ndarray, centre: np.ndarray, cost: Cost = Cost.EUCLIDEAN) -> None:
        super().__init__(scale.size, scale, centre, cost)

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the norms of the columns of a linear start, of as many rows as a linear metric has by default."""
        return np.linalg.norm(components(min(5, self.scale.size)), axis=0, keepdims=True)

    def shift(self, components: np.ndarray) -> np.ndarray:
        return components[0] * self.centre

    def product(self, points: Any, components: np.ndarray) -> np.ndarray:
        return points.multiply(components).toarray() if sparse.issparse(points) else points * components

    def pull_back(self, points: Any, pull: np.ndarray) -> np.ndarray:
        weighted = points.multiply(pull) if sparse.issparse(points) else points * pull
        return np.asarray(weighted.sum(axis=0)).reshape(1, -1)

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        points = D.points.toarray() if sparse.issparse(D.points) else D.points
        return (points - self.centre) * (parameters[0] / self.scale)

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        return np.diag(parameters[0])

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return np.diagonal(gradient)[None]

    def metric(self, state: np.ndarray, features: Sequence[str] | None, variances: np.ndarray) -> GroundMetric:
        return DiagonalMetric(np.abs(state[0]) / self.scale, features, variances=variances, cost=self.cost)


# The start of learning: the first rows of W separate the labels, the remaining rows are small and random. The loss is
# not convex: from a random W alone, learning often ends at chance on data with many noise features.

# Root mean square of the entries of the leading row, which only sets the size of a step of `learning_rate` relative to
# W, because margin and strength are relative.
_ENTRY = 1.0 / 16.0
# Size of the random rows relative to the leading row: small, to give noise features little weight at the start.
_RANDOM_ROWS = 0.1
# Points from which the covariance is estimated, at most; more points do not change the start visibly.
_MOST_POINTS = 4000
# Entries of the points that are copied at a time: 1 MB of float64.
_BLOCK = 2**17


def discriminating_start(
    D: Distributions, labels: Supervision, scale: np.ndarray, n_components: int, random: np.random.RandomState
) -> np.ndarray:
    """Return components for standardised features: discriminants in order of strength, then random rows."""
    if len(labels.targets) == 1:
        directions = discriminants(D, labels.targets[0], scale, random, strata=labels.strata)
    else:
        # Discriminants of each label from the distributions that have it, weighted by the label's share of the loss.
        rows = []
        for target, share in zip(labels.targets, labels.shares, strict=True):
            labelled = np.flatnonzero(target.labelled)
            strata = None if labels.strata is None else labels.strata[labelled]
            rows.append(share * discriminants(D[labelled], target.at(labelled), scale, random, strata=strata))
        directions = np.vstack(rows)
        directions = directions[np.argsort(-np.linalg.norm(directions, axis=1), kind="stable")]
    directions = directions[:n_components]
    leading = np.linalg.norm(directions[0]) if len(directions) else 0.0
    if leading == 0.0:  # the class means coincide
        return random_start(scale, n_components, random)
    remaining = _RANDOM_ROWS * random_start(scale, n_components - len(directions), random)
    return np.vstack([directions * (_ENTRY * np.sqrt(scale.size) / leading), remaining])


def random_start(scale: np.ndarray, n_components: int, random: np.random.RandomState) -> np.ndarray:  # as in the paper
    return random.uniform(-1.0, 1.0, (n_components, scale.size)) * (_ENTRY * np.sqrt(3.0))


def discriminants(
    D: Distributions,
    target: Target,
    scale: np.ndarray,
    random: np.random.RandomState,
    *,
    strata: np.ndarray | None = None,
) -> np.ndarray:
    """Return directions along which the means of distributions follow the label, the strongest first.

    For classes, or at most `MOST_LEVELS` values, these are linear discriminants of the means; for more values, the
    regression of the means on them. The norm of a direction is the distance of the class means along it (of values one
    standard deviation apart). There are fewer directions than classes. With strata, means are compared within strata.
    """
    # `design` times `effects` predicts the means; `between` are the effects without the overall mean.
    means, response = D.means() / scale, target.response()
    if strata is None and target.few_levels:
        design, effects = response, np.stack([means[column > 0].mean(axis=0) for column in response.T])
        between = effects - effects.mean(axis=0)
    else:
        x, y = response - response.mean(axis=0), means - means.mean(axis=0)
        if strata is not None:  # regress deviations from the mean of the stratum
            in_stratum = (strata[:, None] == np.unique(strata)).astype(np.float64)
            x, y = (v - in_stratum @ ((in_stratum.T @ v) / in_stratum.sum(axis=0)[:, None]) for v in (x, y))
        between = np.linalg.lstsq(x, y, rcond=1e-8)[0]
        if target.few_levels:
            between = between - between.mean(axis=0)
        design = np.hstack([response, np.ones((len(means), 1))])
        effects = np.vstack([between, means.mean(axis=0) - response.mean(axis=0) @ between])
    # (Covariance of standardised points around the prediction from their label + identity) / 2, shrunk because cohorts
    # often have more features than distributions. The matrix is not formed: a product makes one pass over the points,
    # in blocks of rows that bound the memory. Sparse rows are copied once, because selecting them takes longer than
    # multiplying.
    rows = np.arange(D.points.shape[0])
    if rows.size > _MOST_POINTS:
        rows = np.sort(random.choice(rows, _MOST_POINTS, replace=False))
    owner = np.searchsorted(D.bounds, rows, side="right") - 1
    members = sparse.csr_matrix(design)[owner]
    copied = D.points[rows].astype(np.float64, copy=False) if sparse.issparse(D.points) else None
    size = rows.size if copied is not None else max(1, _BLOCK // D.points.shape[1])

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        expected, weights = members @ (effects @ x), x / scale
        spread, centred = np.zeros(scale.size), np.empty(rows.size)
        for low in range(0, rows.size, size):
            block = slice(low, min(low + size, rows.size))
            points = D.points[rows[block]].astype(np.float64, copy=False) if copied is None else copied
            centred[block] = points @ weights - expected[block]
            spread += points.T @ centred[block]
        spread = spread / scale - effects.T @ (members.T @ centred)
        return 0.5 * (spread / rows.size + x)

    within = LinearOperator((scale.size, scale.size), matvec=product, dtype=np.float64)
    solved = np.stack([cg(within, row, rtol=1e-6, maxiter=200)[0] for row in between])
    strength, mixing = np.linalg.eigh(between @ solved.T)
    useful = strength > strength.max() * 1e-8
    directions = mixing[:, useful].T @ solved
    directions *= (np.sqrt(strength[useful]) / np.linalg.norm(directions, axis=1))[:, None]
    return directions[::-1]
