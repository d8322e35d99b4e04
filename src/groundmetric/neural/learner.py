"""The learner for torch modules: networks that embed points, or that measure distances."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from .._internal.parallel import Threads
from ..distributions import Distributions
from ..estimators.learner import GroundMetricLearner
from ..learning.objective import EmbeddedPairs, GroundPairs, Model
from ..learning.training import Settings, resolve_form
from ..metrics.base import Cost
from ..transport import solve
from ..transport.pairs import pair_transport
from ..transport.plan import Plan
from ..transport.problem import Masses, no_answers
from .metric import NeuralDistance, NeuralMetric, StandardisedModule, as_array, distance_matrix


class ModuleEmbedding:
    """z = f(x). All points of a batch go through the module together, forward once and backward once."""

    def __init__(self, D: Distributions, inside: StandardisedModule) -> None:
        self._D, self._inside = D, inside
        with torch.no_grad():
            inside.module.eval()
            self.n_components = inside.embed(inside.inputs(D.points[:1])).shape[1]

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        inside, bounds = self._inside, self._D.bounds
        inside.parameters = parameters
        self._rows = np.concatenate([np.arange(bounds[d], bounds[d + 1]) for d in distributions])
        inside.module.train(learning)
        with torch.set_grad_enabled(learning):
            self._z = inside.embed(inside.inputs(self._D.points[self._rows]))
        z, ends = as_array(self._z), np.cumsum(self._D.sizes[distributions])
        for d, end in zip(distributions, ends, strict=True):
            yield d, z[end - self._D.sizes[d] : end]

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        self._inside.forget_gradient()
        self._z.backward(self._inside.tensor(pull[self._rows]))
        return self._inside.gradient()


class TorchOptimiser:
    """A torch optimiser that is handed its gradients. Its rates fall as `learning_rate` does from its first value."""

    def __init__(
        self, inside: StandardisedModule, make: Callable[[Any], torch.optim.Optimizer], learning_rate: float
    ) -> None:
        self._inside, self._inner = inside, make(inside.learned)
        self._rates = [group["lr"] for group in self._inner.param_groups]
        self.learning_rate = self._first = learning_rate

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        inside = self._inside
        inside.parameters = W
        for group, rate in zip(self._inner.param_groups, self._rates, strict=True):
            group["lr"] = rate * self.learning_rate / self._first
        flat, place = inside.tensor(gradient[0]), 0
        for parameter in inside.learned:
            parameter.grad = flat[place : place + parameter.numel()].view_as(parameter).clone()
            place += parameter.numel()
        self._inner.step()
        return inside.parameters


class EmbeddingModel:
    """What is learned is a module f with d(x, y) = |f(x) - f(y)|."""

    def __init__(
        self,
        inside: StandardisedModule,
        optimiser: Callable[[Any], torch.optim.Optimizer] | None,
        cost: Cost = Cost.EUCLIDEAN,
    ) -> None:
        self.inside, self.cost = inside, cost
        self._make = optimiser
        self._first = copy.deepcopy(inside.module.state_dict())

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """The module as it was given."""
        self.inside.module.load_state_dict(self._first)
        return self.inside.parameters

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        embedding = ModuleEmbedding(D, self.inside)
        k = embedding.n_components
        return EmbeddedPairs(embedding, pair_transport(Masses.of(D), first, second, k, cost=self.cost, **options))

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        self.inside.parameters = parameters
        return NeuralMetric(self.inside.module, self.inside.centre, self.inside.scale).project(D.points)

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        raise TypeError("a network has no rows of W: nuisance is for linear and diagonal metrics")

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return gradient

    def optimiser(self, learning_rate: float) -> TorchOptimiser:
        make = self._make or (lambda learned: torch.optim.Adam(learned, lr=learning_rate))
        return TorchOptimiser(self.inside, make, learning_rate)

    def keep(self, parameters: np.ndarray) -> dict[str, Any]:
        """The module's whole state: running averages of its layers are no parameters, but part of what was learned."""
        self.inside.parameters = parameters
        return copy.deepcopy(self.inside.module.state_dict())

    def metric(self, kept: dict[str, Any], features: Sequence[str] | None, variances: np.ndarray) -> Any:
        self.inside.module.load_state_dict(kept)
        return NeuralMetric(self.inside.module, self.inside.centre, self.inside.scale, features, cost=self.cost)


class MeasuredPairs:
    """Pairs whose costs a module measures, point by point.

    Costs are computed without a gradient. The plan is optimal, so it may be held fixed (Danskin), and the gradient
    needs only its at most n + m - 1 arcs. Pairs restart from their last basis. There are no bounds but 0 from below.
    """

    def __init__(
        self,
        D: Distributions,
        inside: StandardisedModule,
        first: np.ndarray,
        second: np.ndarray,
        *,
        threads: Threads,
        memory: float = 0.0,
        max_pivots: int | None = None,
    ) -> None:
        self._D, self._inside, self._max_pivots = D, inside, max_pivots
        self.first, self.second = first, second
        self._inputs = inside.inputs(D.points)
        self._plans: list[Plan | None] = [None] * first.size
        self.answers = no_answers(first.size)
        self._check_symmetry()

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        """Dropout and the like stay off: costs and gradient must be of the same function."""
        self._inside.parameters = parameters
        self._inside.module.eval()

    def upper(self, which: np.ndarray) -> np.ndarray:
        return np.full(which.size, np.inf)

    def lower(self, which: np.ndarray) -> np.ndarray:
        return np.zeros(which.size)

    def solve(self, which: np.ndarray, enough: np.ndarray | None = None) -> np.ndarray:
        for p in which:
            last = self._plans[p]
            x, y = (self._rows(side[p]) for side in (self.first, self.second))
            cost = distance_matrix(self._inside, self._inputs[x], self._inputs[y])
            start = None if last is None else last.basis
            plan = solve(cost, self._D.weights[x], self._D.weights[y], start=start, max_pivots=self._max_pivots)
            self._plans[p] = plan
            self.answers.value[p], self.answers.pivots[p], self.answers.optimal[p] = (
                plan.value,
                plan.pivots,
                plan.optimal,
            )
        return self.answers.value[which]

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        self._inside.forget_gradient()
        if which.size:
            x, y, weight = (np.concatenate(part) for part in zip(*map(self._arcs, which, coefficient), strict=True))
            measured = self._inside.measure(self._inputs[x], self._inputs[y])
            torch.sum(measured * self._inside.tensor(weight)).backward()
        return self._inside.gradient()

    def _arcs(self, p: int, coefficient: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of the senders and receivers of a pair's plan, and how much each arc counts."""
        plan = self._plans[p]
        assert plan is not None
        start, end = self._D.bounds[self.first[p]], self._D.bounds[self.second[p]]
        return start + plan.rows, end + plan.cols, coefficient * plan.mass

    def _rows(self, d: int) -> slice:
        return slice(self._D.bounds[d], self._D.bounds[d + 1])

    def _check_symmetry(self) -> None:
        """A distance is the same there and back; look at a few points."""
        some = self._inputs[:: max(1, len(self._inputs) // 8)]
        self._inside.module.eval()
        matrix = distance_matrix(self._inside, some, some)
        if np.abs(matrix - matrix.T).max() > 1e-4 * np.abs(matrix).max():
            raise ValueError("module(x, y) differs from module(y, x): a distance must be symmetric; average the two")


class DistanceModel(EmbeddingModel):
    """What is learned is a module that computes d(x, y) itself."""

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        return MeasuredPairs(D, self.inside, first, second, **options)

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        raise ValueError("neighbors='nearest' needs an embedding, but the module measures distances: use 'random'")

    def metric(self, kept: dict[str, Any], features: Sequence[str] | None, variances: np.ndarray) -> Any:
        self.inside.module.load_state_dict(kept)
        return NeuralDistance(self.inside.module, self.inside.centre, self.inside.scale, features)


# Of GroundMetricLearner, what has no meaning for a module.
_LINEAR_ONLY = ("n_components", "init", "nuisance", "checkpoint")


class NeuralGroundMetricLearner(GroundMetricLearner):
    """Learn a network as the ground metric: `GroundMetricLearner` with a torch module in place of W.

    Points go through the module, transport between them is solved exactly, and the pull on every embedded point goes
    back through the module: one forward and one backward pass per step. Points are standardised first.

    Parameters
    ----------
    module : torch.nn.Module
        Maps points (n, n_features) to places (n, n_components): d(x, y) = |f(x) - f(y)|. With ``pairwise=True`` it maps
        two tensors (n, n_features) to n distances d(x, y) that are not negative and symmetric. It is not changed.
    pairwise : bool
    optimiser : callable or None
        Makes a torch optimiser from parameters, e.g. ``lambda p: torch.optim.SGD(p, lr=0.1)``. None: Adam with
        `learning_rate`. The rate falls to 0 over `max_epochs` either way.
    penalty : as in GroundMetricLearner, on all parameters of the module as one row; None by default
    **options : of GroundMetricLearner, by name: margin, strength, n_neighbors, neighbors, learning_rate, max_epochs,
        batch_size, cost, form (``Mapped(transformer)`` maps the points first), target, random_state, …

    Attributes
    ----------
    metric_ : NeuralMetric (or NeuralDistance), which `pairwise_distances` and the classifier take
    module_ : the learned module
    history_, n_iter_, converged_, loss_, classes_ : as in GroundMetricLearner

    Examples
    --------
    >>> import groundmetric as gm, torch
    >>> D, y = gm.datasets.make_rings(random_state=0)
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> learner = gm.neural.NeuralGroundMetricLearner(network, max_epochs=2, random_state=0).fit(D, y)
    >>> learner.transform(D).shape
    (800, 2)
    """

    def __init__(
        self, module: Any, *, pairwise: bool = False, optimiser: Any = None, penalty: Any = None, **options: Any
    ) -> None:
        unknown = set(options) - set(self._get_param_names())
        if unknown:
            raise TypeError(f"unexpected parameters {sorted(unknown)}: expected some of {self._get_param_names()}")
        super().__init__(penalty=penalty, nuisance=0.0, **options)
        self.module, self.pairwise, self.optimiser = module, pairwise, optimiser

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """scikit-learn reads the names from the signature, which here is that of the linear learner and more."""
        linear = set(GroundMetricLearner._get_param_names()) - set(_LINEAR_ONLY)
        return sorted(linear | {"module", "pairwise", "optimiser"})

    def fit(
        self, X: Any, y: Any, samples: Any = None, strata: Any = None, *, fresh: Any = None, **other: Any
    ) -> NeuralGroundMetricLearner:
        """Learn from Distributions with a label each, or from points; as in GroundMetricLearner."""
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
            torch.manual_seed(check_random_state(self.random_state).randint(2**31))
            super().fit(X, y, samples, strata, fresh=fresh, **other)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Points (or the points of Distributions) as the module embeds them, (n_points, n_components)."""
        if self.pairwise:
            raise TypeError("a module that measures distances embeds no points: use `metric_.distances`")
        return super().transform(X)

    def _model(self, settings: Settings, centre: np.ndarray, scale: np.ndarray) -> Model:
        cost = Cost.named(self.cost)
        form = resolve_form(self.form)
        if form.form != "linear":
            raise ValueError(
                f"form is {self.form!r}, but a module takes the place of W: expected Mapped(transformer) or nothing"
            )
        if self.pairwise and form.transformer is not None:
            raise ValueError("form is mapped and pairwise=True: let the module map the points itself")
        if self.pairwise and cost is not Cost.EUCLIDEAN:
            raise ValueError(
                f"cost is {self.cost!r}, but with pairwise=True the module itself is the cost: leave it out"
            )
        kind = DistanceModel if self.pairwise else EmbeddingModel
        return kind(StandardisedModule(self.module, centre, scale), self.optimiser, cost)

    def _keep_metric(self, metric: Any, raw: Distributions) -> None:
        self.module_ = metric.module
        self.metric_ = self._behind_map(metric, raw)
