"""Networks as ground metrics, trained through exact transport plans. Needs torch: the extra `neural`."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from ._internal.validation import check_features, need
from .distributions import Distributions
from .estimators.learner import GroundMetricLearner
from .learning.objective import EmbeddedPairs
from .learning.training import Settings, resolve_form
from .metrics.base import Cost, GroundMetric
from .metrics.forms import read_parts, write_parts
from .transport import solve
from .transport.pairs import pair_transport
from .transport.problem import Masses, no_answers

need("torch", "networks as metrics", "neural")

import torch  # noqa: E402

__all__ = ["NeuralDistance", "NeuralGroundMetricLearner", "NeuralMetric", "load"]

# Points or pairs per forward pass without gradients.
BLOCK = 8192


class StandardisedModule:
    """A copy of a torch module whose input is standardised by the mean and standard deviation of each feature."""

    def __init__(self, module: Any, centre: np.ndarray, scale: np.ndarray) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is {module!r}: expected a torch.nn.Module (an object, not a class)")
        self.module = copy.deepcopy(module)
        self.centre, self.scale = np.asarray(centre, np.float64), np.asarray(scale, np.float64)
        self.learned = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        first = next(self.module.parameters(), torch.empty(0))
        self._options: dict[str, Any] = {"dtype": first.dtype, "device": first.device}

    def tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values, **self._options)

    def inputs(self, points: Any) -> torch.Tensor:
        """Return standardised points as a tensor of shape (n, n_features)."""
        points = points.toarray() if sparse.issparse(points) else points
        return self.tensor((points - self.centre) / self.scale)

    @property
    def parameters(self) -> np.ndarray:
        """All learned parameters as an array of shape (1, n_parameters)."""
        return as_array(torch.nn.utils.parameters_to_vector(self.learned))[None]

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        torch.nn.utils.vector_to_parameters(self.tensor(values[0]), self.learned)

    def gradient(self) -> np.ndarray:
        """Return the gradient accumulated since `module.zero_grad()`, of shape (1, n_parameters)."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.learned]
        flat = as_array(torch.cat([part.reshape(-1) for part in parts]))[None]
        if not np.isfinite(flat).all():
            raise ValueError("the gradient of the module is NaN or infinite: check its layers, or lower learning_rate")
        return flat

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's embedding of points; raise unless it is a row of finite numbers per point."""
        z = self.module(x)
        if not isinstance(z, torch.Tensor) or z.ndim != 2 or z.shape[0] != x.shape[0]:
            expected = "two dimensions, (n_points, n_components)"
            raise ValueError(f"module made {_shown(z)} of {x.shape[0]} points: expected {expected}")
        return _finite(z)

    def measure(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the module's distance of each pair; raise unless it is a finite number of at least 0."""
        d = self.module(x, y)
        if isinstance(d, torch.Tensor) and d.shape == (x.shape[0], 1):
            d = d[:, 0]
        if not isinstance(d, torch.Tensor) or d.shape != (x.shape[0],):
            raise ValueError(f"module made {_shown(d)} of {x.shape[0]} pairs of points: expected a number for each")
        if torch.any(d < 0):
            raise ValueError("module gave a negative distance: end it with an absolute value, a square or a softplus")
        return _finite(d)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float64)


def _shown(output: Any) -> str:
    return f"shape {tuple(output.shape)}" if isinstance(output, torch.Tensor) else f"a {type(output).__name__}"


def _finite(output: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(output).all():
        raise ValueError("module gave NaN or infinity: check its layers, or lower learning_rate")
    return output


class _NetworkMetric:
    """What metrics of an embedding and of a module of distances have in common."""

    kind: str
    cost = Cost.EUCLIDEAN

    def __init__(self, module: Any, centre: Any, scale: Any, features: Sequence[str] | None = None) -> None:
        self._network = StandardisedModule(module, centre, scale)
        self.module = self._network.module.eval()
        self.n_features = self._network.centre.size
        self.features = check_features(features, self.n_features)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameters of the network to `path`, which `groundmetric.neural.load` reads, without pickle."""
        state = {f"state.{name}": value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}
        arrays = {"centre": self._network.centre, "scale": self._network.scale, **state}
        description = {"kind": self.kind, "features": self.features, "cost": self.cost.name.lower()}
        write_parts(description, arrays, path)


class NeuralMetric(_NetworkMetric, GroundMetric):
    """Metric d(x, y) = |f(x) - f(y)| with a torch module f.

    Parameters
    ----------
    module : torch.nn.Module
        Maps points (n, n_features) to (n, n_components); a copy is kept.
    centre, scale : array of shape (n_features,)
        Mean and standard deviation by which points are standardised first.
    features : sequence of str or None, default=None
        Names of the features.
    cost : {"euclidean", "manhattan", "squared"}, default="euclidean"
        Cost of a step between embedded points, as in GroundMetric.

    Examples
    --------
    >>> import torch
    >>> from groundmetric.neural import NeuralMetric
    >>> NeuralMetric(torch.nn.Linear(3, 2), centre=[0, 0, 0], scale=[1, 1, 1]).project([[1.0, 2.0, 3.0]]).shape
    (1, 2)
    """

    kind = "neural embedding"

    def __init__(
        self,
        module: Any,
        centre: Any,
        scale: Any,
        features: Sequence[str] | None = None,
        *,
        cost: Cost | str = Cost.EUCLIDEAN,
    ) -> None:
        super().__init__(module, centre, scale, features)
        self.variances, self.cost = None, Cost.named(cost)
        with torch.no_grad():
            self.n_components = self._network.embed(self._network.inputs(self._network.centre[None])).shape[1]

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError("a network metric has no components, unlike a Mahalanobis distance: see `metric.module`")

    def project(self, points: Any) -> np.ndarray:
        points = self._check_points(points)
        z = np.empty((points.shape[0], self.n_components))
        with torch.no_grad():
            for low in range(0, z.shape[0], BLOCK):
                z[low : low + BLOCK] = as_array(self._network.embed(self._network.inputs(points[low : low + BLOCK])))
        return z


class NeuralDistance(_NetworkMetric):
    """Distance d(x, y) computed by a torch module, for `pairwise_distances` and the classifier.

    Parameters
    ----------
    module : torch.nn.Module
        Maps two tensors (n, n_features) to n distances; a copy is kept.
    centre, scale, features : as in `NeuralMetric`
        Mean, standard deviation and name of each feature.

    Examples
    --------
    >>> import torch
    >>> from groundmetric.neural import NeuralDistance
    >>> class Manhattan(torch.nn.Module):
    ...     def forward(self, x, y):
    ...         return (x - y).abs().sum(dim=1)
    >>> NeuralDistance(Manhattan(), centre=[0, 0], scale=[1, 1]).distances([[1.0, 2.0]], [[0.0, 0.0]])
    array([[3.]])
    """

    kind = "neural distance"

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        """Return distances between all points of `x` and of `y` (or within `x`)."""
        inputs = []
        for points in (x, x if y is None else y):
            array: Any = points.points if isinstance(points, Distributions) else points
            array = array if sparse.issparse(array) else np.asarray(array)
            if array.ndim != 2 or array.shape[1] != self.n_features:
                problem = f"but the metric was made for {self.n_features} features"
                raise ValueError(f"points have shape {array.shape}, {problem}")
            inputs.append(self._network.inputs(array))
        return distance_matrix(self._network, *inputs)

    def __repr__(self) -> str:
        return f"NeuralDistance({self.n_features} features)"


def distance_matrix(network: StandardisedModule, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Return all distances between two sets of inputs, computed in blocks of pairs."""
    n, m = len(x), len(y)
    rows = torch.arange(n, device=x.device).repeat_interleave(m)
    cols = torch.arange(m, device=x.device).repeat(n)
    out = np.empty(n * m)
    with torch.no_grad():
        for low in range(0, n * m, BLOCK):
            i, j = rows[low : low + BLOCK], cols[low : low + BLOCK]
            out[low : low + BLOCK] = as_array(network.measure(x[i], y[j]))
    return out.reshape(n, m)


def load(path: str | os.PathLike[str], module: Any) -> NeuralMetric | NeuralDistance:
    """Load a network metric.

    Parameters
    ----------
    path : path-like
        File that `save` wrote. It has parameters only.
    module : torch.nn.Module
        Module with the architecture of the saved one; a copy gets the parameters.

    Returns
    -------
    NeuralMetric or NeuralDistance
        The metric.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import torch
    >>> from groundmetric import neural
    >>> metric = neural.NeuralMetric(torch.nn.Linear(3, 2), centre=[0, 0, 0], scale=[1, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metric.save(Path(folder) / "metric.gm")
    ...     same = neural.load(Path(folder) / "metric.gm", torch.nn.Linear(3, 2))
    >>> bool((same.project([[1.0, 2.0, 3.0]]) == metric.project([[1.0, 2.0, 3.0]])).all())
    True
    """
    description, arrays = read_parts(path)
    if description["kind"] not in (NeuralMetric.kind, NeuralDistance.kind):
        raise ValueError(f"{os.fspath(path)!r} is not the file of a network: read it with `GroundMetric.load`")
    arguments = (module, arrays["centre"], arrays["scale"], description["features"])
    is_embedding = description["kind"] == NeuralMetric.kind
    metric = NeuralMetric(*arguments, cost=description["cost"]) if is_embedding else NeuralDistance(*arguments)
    state = {name[6:]: torch.as_tensor(value) for name, value in arrays.items() if name.startswith("state.")}
    try:
        metric.module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"module is not built like the one that was saved: {error}") from None
    return metric


class ModuleEmbedding:
    """Embedding z = f(x), with one forward and one backward pass for all points of a batch."""

    def __init__(self, D: Distributions, network: StandardisedModule) -> None:
        self._D, self._network = D, network
        with torch.no_grad():
            network.module.eval()
            self.n_components = network.embed(network.inputs(D.points[:1])).shape[1]

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        network, bounds = self._network, self._D.bounds
        network.parameters = parameters
        self._rows = np.concatenate([np.arange(bounds[d], bounds[d + 1]) for d in distributions])
        network.module.train(learning)
        with torch.set_grad_enabled(learning):
            self._z = network.embed(network.inputs(self._D.points[self._rows]))
        z, ends = as_array(self._z), np.cumsum(self._D.sizes[distributions])
        for d, end in zip(distributions, ends, strict=True):
            yield d, z[end - self._D.sizes[d] : end]

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        self._network.module.zero_grad(set_to_none=True)
        self._z.backward(self._network.tensor(pull[self._rows]))
        return self._network.gradient()


class TorchOptimiser:
    """A torch optimiser with external gradients; its rates are scaled by the decay of `learning_rate`."""

    def __init__(self, network: StandardisedModule, make: Any, learning_rate: float) -> None:
        self._network, self._inner = network, make(network.learned)
        self._rates = [group["lr"] for group in self._inner.param_groups]
        self.learning_rate = self._first = learning_rate

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        network = self._network
        network.parameters = W
        for group, rate in zip(self._inner.param_groups, self._rates, strict=True):
            group["lr"] = rate * self.learning_rate / self._first
        parts = torch.split(network.tensor(gradient[0]), [parameter.numel() for parameter in network.learned])
        for parameter, part in zip(network.learned, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        self._inner.step()
        return network.parameters


class EmbeddingModel:
    """Model of a module f with d(x, y) = |f(x) - f(y)|."""

    def __init__(self, network: StandardisedModule, optimiser: Any, cost: Cost = Cost.EUCLIDEAN) -> None:
        if not network.learned:
            raise ValueError("module has no parameters that could be learned")
        self.network, self.cost, self._make = network, cost, optimiser
        self._first = copy.deepcopy(network.module.state_dict())

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        self.network.module.load_state_dict(self._first)
        return self.network.parameters

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> Any:
        embedding = ModuleEmbedding(D, self.network)
        k = embedding.n_components
        return EmbeddedPairs(embedding, pair_transport(Masses.of(D), first, second, k, cost=self.cost, **options))

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        self.network.parameters = parameters
        return NeuralMetric(self.network.module, self.network.centre, self.network.scale).project(D.points)

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        raise TypeError("nuisance needs the rows of W of a linear or diagonal metric, not a network")

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return gradient

    def optimiser(self, learning_rate: float) -> TorchOptimiser:
        make = self._make or (lambda learned: torch.optim.Adam(learned, lr=learning_rate))
        return TorchOptimiser(self.network, make, learning_rate)

    def keep(self, parameters: np.ndarray) -> dict[str, Any]:
        """Return the state of the module, including buffers such as running averages, which are not parameters."""
        self.network.parameters = parameters
        return copy.deepcopy(self.network.module.state_dict())

    def metric(self, state: dict[str, Any], features: Sequence[str] | None, variances: np.ndarray) -> Any:
        self.network.module.load_state_dict(state)
        return NeuralMetric(self.network.module, self.network.centre, self.network.scale, features, cost=self.cost)


class MeasuredPairs:
    """Pairs with costs computed by a module, without gradients. The only bound is 0.

    An optimal plan is held fixed in the derivative (Danskin's theorem): the gradient needs only its n + m - 1 arcs.
    """

    def __init__(
        self,
        D: Distributions,
        network: StandardisedModule,
        first: np.ndarray,
        second: np.ndarray,
        *,
        max_pivots: int | None = None,
        **unused: Any,
    ) -> None:
        self._D, self._network, self._max_pivots = D, network, max_pivots
        self.first, self.second = first, second
        self._inputs = network.inputs(D.points)
        self._plans: list[Any] = [None] * first.size
        self.answers = no_answers(first.size)
        # The distances between about 8 points show whether the module is symmetric.
        network.module.eval()
        subset = self._inputs[:: max(1, len(self._inputs) // 8)]
        matrix = distance_matrix(network, subset, subset)
        if np.abs(matrix - matrix.T).max() > 1e-4 * np.abs(matrix).max():
            raise ValueError("module(x, y) differs from module(y, x): a distance must be symmetric; average the two")

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        """Set the parameters. Dropout stays off, because costs and gradient must belong to the same function."""
        self._network.parameters = parameters
        self._network.module.eval()

    def upper(self, selected: np.ndarray) -> np.ndarray:
        return np.full(selected.size, np.inf)

    def lower(self, selected: np.ndarray) -> np.ndarray:
        return np.zeros(selected.size)

    def solve(self, selected: np.ndarray, enough: np.ndarray | None = None) -> np.ndarray:
        answers, bounds = self.answers, self._D.bounds
        for p in selected:
            last = self._plans[p]
            x, y = (slice(bounds[side[p]], bounds[side[p] + 1]) for side in (self.first, self.second))
            cost = distance_matrix(self._network, self._inputs[x], self._inputs[y])
            start = None if last is None else last.basis
            plan = solve(cost, self._D.weights[x], self._D.weights[y], start=start, max_pivots=self._max_pivots)
            self._plans[p] = plan
            answers.value[p], answers.pivots[p], answers.optimal[p] = plan.value, plan.pivots, plan.optimal
        return answers.value[selected]

    def gradient(self, selected: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        self._network.module.zero_grad(set_to_none=True)
        if selected.size:
            bounds, rows, cols, weights = self._D.bounds, [], [], []
            for p, factor in zip(selected, coefficient, strict=True):
                plan = self._plans[p]
                rows.append(bounds[self.first[p]] + plan.rows)
                cols.append(bounds[self.second[p]] + plan.cols)
                weights.append(factor * plan.mass)
            measured = self._network.measure(self._inputs[np.concatenate(rows)], self._inputs[np.concatenate(cols)])
            torch.sum(measured * self._network.tensor(np.concatenate(weights))).backward()
        return self._network.gradient()


class DistanceModel(EmbeddingModel):
    """Model of a module that computes d(x, y) itself."""

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> Any:
        return MeasuredPairs(D, self.network, first, second, **options)

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        raise ValueError("neighbors='nearest' needs an embedding, but the module measures distances: use 'random'")

    def metric(self, state: dict[str, Any], features: Sequence[str] | None, variances: np.ndarray) -> Any:
        self.network.module.load_state_dict(state)
        return NeuralDistance(self.network.module, self.network.centre, self.network.scale, features)


class NeuralGroundMetricLearner(GroundMetricLearner):
    """Learn a network as the ground metric: `GroundMetricLearner` with a torch module instead of W.

    Parameters
    ----------
    module : torch.nn.Module
        Maps points (n, n_features) to embedded points (n, n_components): d(x, y) = |f(x) - f(y)|. With
        ``pairwise=True`` it maps two tensors (n, n_features) to n symmetric distances d(x, y) of at least 0. The
        learner trains a copy.
    pairwise : bool, default=False
        Whether the module returns distances.
    optimiser : callable or None, default=None
        Makes a torch optimiser from parameters, e.g. ``lambda p: torch.optim.SGD(p, lr=0.1)``. None: Adam with
        `learning_rate`. The rate falls to 0 over `max_epochs` either way.
    penalty : str, penalty or None, default=None
        As in GroundMetricLearner, on all parameters of the module as one row.
    **options : Any
        Parameters of GroundMetricLearner by name: margin, strength, n_neighbors, neighbors, learning_rate, max_epochs,
        batch_size, cost, form (``Mapped(transformer)`` maps the points first), target, random_state, …

    Attributes
    ----------
    metric_ : NeuralMetric or NeuralDistance
        The learned metric.
    module_ : torch.nn.Module
        The learned module.
    history_, n_iter_, converged_, loss_, classes_ : Any
        As in GroundMetricLearner.

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
        """Return the parameter names, which scikit-learn would otherwise read from the signature."""
        linear_only = {"n_components", "init", "nuisance", "checkpoint"}
        return sorted({"module", "pairwise", "optimiser", *GroundMetricLearner._get_param_names()} - linear_only)

    def fit(
        self, X: Any, y: Any, *, samples: Any = None, groups: Any = None, strata: Any = None, fresh: Any = None
    ) -> NeuralGroundMetricLearner:
        """Learn from labelled Distributions or points.

        `X`, `y`, `samples`, `groups`, `strata` and `fresh` are those of GroundMetricLearner. Return the learner itself.
        """
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's generator
            torch.manual_seed(check_random_state(self.random_state).randint(2**31))
            super().fit(X, y, samples=samples, groups=groups, strata=strata, fresh=fresh)
        return self

    def transform(self, X: Any) -> np.ndarray:
        if self.pairwise:
            raise TypeError("a module of distances does not embed points: use `metric_.distances`")
        return super().transform(X)

    def _model(self, settings: Settings, centre: np.ndarray, scale: np.ndarray) -> Any:
        cost = Cost.named(self.cost)
        form = resolve_form(self.form)
        if form.form != "linear":
            expected = "expected Mapped(transformer) or the default"
            raise ValueError(f"form is {self.form!r}, but a module replaces W: {expected}")
        if self.pairwise and form.transformer is not None:
            raise ValueError("form is mapped and pairwise=True: let the module map the points itself")
        if self.pairwise and cost is not Cost.EUCLIDEAN:
            problem = "but with pairwise=True the module itself is the cost: leave it out"
            raise ValueError(f"cost is {self.cost!r}, {problem}")
        kind = DistanceModel if self.pairwise else EmbeddingModel
        return kind(StandardisedModule(self.module, centre, scale), self.optimiser, cost)

    def _keep_metric(self, metric: Any, raw: Distributions) -> None:
        self.module_ = metric.module
        self.metric_ = self._with_map(metric, raw)
