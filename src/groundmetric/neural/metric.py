"""Networks as metrics: a torch module that takes and returns arrays, and metrics with files."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse

from .._internal.validation import check_features
from ..distributions import Distributions
from ..metrics.base import Cost, GroundMetric
from ..metrics.io import read_parts, write_parts

# Points or pairs per forward pass without gradients.
BLOCK = 8192


class StandardisedModule:
    """A copy of a torch module whose input is standardised by the mean and standard deviation of each feature."""

    def __init__(self, module: Any, centre: np.ndarray, scale: np.ndarray) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is {module!r}: expected a torch.nn.Module (an object, not a class)")
        self.module = copy.deepcopy(module)
        self.centre, self.scale = np.asarray(centre, np.float64), np.asarray(scale, np.float64)
        self._learned = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        first = next(self.module.parameters(), torch.empty(0))
        self._options: dict[str, Any] = {"dtype": first.dtype, "device": first.device}

    @property
    def learned(self) -> list[torch.nn.Parameter]:
        """The parameters that are learned."""
        if not self._learned:
            raise ValueError("module has no parameters that could be learned")
        return self._learned

    def tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values, **self._options)

    def inputs(self, points: Any) -> torch.Tensor:
        """Return standardised points as a tensor of shape (n, n_features)."""
        points = points.toarray() if sparse.issparse(points) else points
        return self.tensor((points - self.centre) / self.scale)

    @property
    def parameters(self) -> np.ndarray:
        """All learned parameters as an array of shape (1, n_parameters)."""
        flat = torch.nn.utils.parameters_to_vector(self.learned)
        return flat.detach().cpu().numpy().astype(np.float64)[None]

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        torch.nn.utils.vector_to_parameters(self.tensor(values[0]), self.learned)

    def gradient(self) -> np.ndarray:
        """Return the gradient accumulated since `forget_gradient`, of shape (1, n_parameters)."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.learned]
        flat = torch.cat([part.reshape(-1) for part in parts]).cpu().numpy().astype(np.float64)[None]
        if not np.isfinite(flat).all():
            raise ValueError("the gradient of the module is NaN or infinite: check its layers, or lower learning_rate")
        return flat

    def forget_gradient(self) -> None:
        self.module.zero_grad(set_to_none=True)

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's embedding of points; raise unless it is a row of finite numbers per point."""
        z = self.module(x)
        if not isinstance(z, torch.Tensor) or z.ndim != 2 or z.shape[0] != x.shape[0]:
            raise ValueError(
                f"module made {_shown(z)} of {x.shape[0]} points: expected two dimensions, (n_points, n_components)"
            )
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


class NeuralMetric(GroundMetric):
    """Metric d(x, y) = |f(x) - f(y)| with a torch module f.

    Parameters
    ----------
    module : torch.nn.Module that maps (n, n_features) to (n, n_components); a copy is kept
    centre, scale : arrays (n_features,): points are standardised by these first
    features : sequence of str, optional
    cost : {"euclidean", "manhattan", "squared"}
    """

    def __init__(
        self,
        module: Any,
        centre: Any,
        scale: Any,
        features: Sequence[str] | None = None,
        *,
        cost: Cost | str = Cost.EUCLIDEAN,
    ) -> None:
        self._network = StandardisedModule(module, centre, scale)
        self._network.module.eval()
        self.variances, self.cost = None, Cost.named(cost)
        self.features = check_features(features, self.n_features)
        with torch.no_grad():
            self._n_components = self._network.embed(self._network.inputs(self._network.centre[None])).shape[1]

    @property
    def module(self) -> torch.nn.Module:
        return self._network.module

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError("a network metric has no components, unlike a Mahalanobis distance: see `metric.module`")

    @property
    def n_features(self) -> int:
        return self._network.centre.size

    @property
    def n_components(self) -> int:
        return self._n_components

    def project(self, points: Any) -> np.ndarray:
        """Return the network's embedding of points, of shape (n_points, n_components)."""
        points = self._check_points(points)
        z = np.empty((points.shape[0], self.n_components))
        with torch.no_grad():
            for low in range(0, z.shape[0], BLOCK):
                z[low : low + BLOCK] = as_array(self._network.embed(self._network.inputs(points[low : low + BLOCK])))
        return z

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameters of the network to one file, without pickle; `groundmetric.neural.load` reads it."""
        _save(self, "neural embedding", self._network, self.features, path)


class NeuralDistance:
    """Distance d(x, y) computed by a torch module, for `pairwise_distances` and the classifier.

    Parameters
    ----------
    module : torch.nn.Module that maps two tensors (n, n_features) to n distances; a copy is kept
    centre, scale : arrays (n_features,): points are standardised by these first
    features : sequence of str, optional
    """

    cost = Cost.EUCLIDEAN  # unused, but part of the description in files

    def __init__(self, module: Any, centre: Any, scale: Any, features: Sequence[str] | None = None) -> None:
        self._network = StandardisedModule(module, centre, scale)
        self._network.module.eval()
        self.features = check_features(features, self._network.centre.size)

    @property
    def module(self) -> torch.nn.Module:
        return self._network.module

    @property
    def n_features(self) -> int:
        return self._network.centre.size

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        """Return distances between all points of `x` and of `y` (or within `x`)."""
        x = self._points(x)
        return distance_matrix(
            self._network, self._network.inputs(x), self._network.inputs(x if y is None else self._points(y))
        )

    def _points(self, points: Any) -> Any:
        points = points.points if isinstance(points, Distributions) else points
        points = points if sparse.issparse(points) else np.asarray(points)
        if points.ndim != 2 or points.shape[1] != self.n_features:
            raise ValueError(
                f"points have shape {points.shape}, but the metric was made for {self.n_features} features"
            )
        return points

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameters of the network to one file, without pickle; `groundmetric.neural.load` reads it."""
        _save(self, "neural distance", self._network, self.features, path)

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


def _save(metric: Any, kind: str, network: StandardisedModule, features: Any, path: str | os.PathLike[str]) -> None:
    state = {f"state.{name}": value.detach().cpu().numpy() for name, value in network.module.state_dict().items()}
    arrays = {"centre": network.centre, "scale": network.scale, **state}
    cost = metric.cost.name.lower()
    write_parts({"kind": kind, "features": features, "cost": cost}, arrays, path)


def load(path: str | os.PathLike[str], module: Any) -> Any:
    """Load a network metric; files hold parameters only, so `module` must have the architecture of the saved module.

    Returns
    -------
    NeuralMetric or NeuralDistance with a copy of `module`
    """
    description, arrays = read_parts(path)
    if description["kind"] not in ("neural embedding", "neural distance"):
        raise ValueError(f"{os.fspath(path)!r} is not the file of a network: read it with `GroundMetric.load`")
    network = StandardisedModule(module, arrays["centre"], arrays["scale"])
    state = {name[6:]: torch.as_tensor(value) for name, value in arrays.items() if name.startswith("state.")}
    try:
        network.module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"module is not built like the one that was saved: {error}") from None
    arguments = (network.module, network.centre, network.scale, description["features"])
    if description["kind"] == "neural distance":
        return NeuralDistance(*arguments)
    return NeuralMetric(*arguments, cost=description["cost"])
