"""Networks as metrics: a torch module between arrays, and metrics that project, measure, and are saved and loaded."""

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

# Points that go through a module at a time where no gradient is needed.
BLOCK = 8192


class StandardisedModule:
    """A torch module that sees standardised points.

    Parameters
    ----------
    module : torch.nn.Module; a copy is kept
    centre, scale : arrays (n_features,), mean and standard deviation of each feature
    """

    def __init__(self, module: Any, centre: np.ndarray, scale: np.ndarray) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is {module!r}: expected a torch.nn.Module (an object, not a class)")
        self.module = copy.deepcopy(module)
        self.centre, self.scale = np.asarray(centre, np.float64), np.asarray(scale, np.float64)
        self._learned = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        first = next(self.module.parameters(), torch.empty(0))
        self._place: dict[str, Any] = {"dtype": first.dtype, "device": first.device}

    @property
    def learned(self) -> list[torch.nn.Parameter]:
        """The parameters that are learned."""
        if not self._learned:
            raise ValueError("module has no parameters that could be learned")
        return self._learned

    def tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values, **self._place)

    def inputs(self, points: Any) -> torch.Tensor:
        """Points (n, n_features) as the module sees them."""
        points = points.toarray() if sparse.issparse(points) else points
        return self.tensor((points - self.centre) / self.scale)

    @property
    def parameters(self) -> np.ndarray:
        """All that is learned as one row, (1, n_parameters)."""
        flat = torch.nn.utils.parameters_to_vector(self.learned)
        return flat.detach().cpu().numpy().astype(np.float64)[None]

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        torch.nn.utils.vector_to_parameters(self.tensor(values[0]), self.learned)

    def gradient(self) -> np.ndarray:
        """What the backward passes since `forget_gradient` have left, (1, n_parameters)."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.learned]
        flat = torch.cat([part.reshape(-1) for part in parts]).cpu().numpy().astype(np.float64)[None]
        if not np.isfinite(flat).all():
            raise ValueError("the gradient of the module is NaN or infinite: check its layers, or lower learning_rate")
        return flat

    def forget_gradient(self) -> None:
        self.module.zero_grad(set_to_none=True)

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """What the module makes of points, checked: a row of finite numbers for each."""
        z = self.module(x)
        if not isinstance(z, torch.Tensor) or z.ndim != 2 or z.shape[0] != x.shape[0]:
            raise ValueError(
                f"module made {_shown(z)} of {x.shape[0]} points: expected two dimensions, (n_points, n_components)"
            )
        return _finite(z)

    def measure(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """What the module says of pairs of points, checked: one finite number for each that is not negative."""
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
    """d(x, y) = |f(x) - f(y)|, f a torch module.

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
        self._inside = StandardisedModule(module, centre, scale)
        self._inside.module.eval()
        self.variances, self.cost = None, Cost.named(cost)
        self.features = check_features(features, self.n_features)
        with torch.no_grad():
            self._n_components = self._inside.embed(self._inside.inputs(self._inside.centre[None])).shape[1]

    @property
    def module(self) -> torch.nn.Module:
        return self._inside.module

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError("a network is no Mahalanobis distance: it has no components; see `metric.module`")

    @property
    def n_features(self) -> int:
        return self._inside.centre.size

    @property
    def n_components(self) -> int:
        return self._n_components

    def project(self, points: Any) -> np.ndarray:
        """Points as the network embeds them, (n_points, n_components)."""
        points = self._check_points(points)
        z = np.empty((points.shape[0], self.n_components))
        with torch.no_grad():
            for low in range(0, z.shape[0], BLOCK):
                z[low : low + BLOCK] = as_array(self._inside.embed(self._inside.inputs(points[low : low + BLOCK])))
        return z

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network's numbers to one file, without pickle; `groundmetric.neural.load` reads it."""
        _save(self, "neural embedding", self._inside, self.features, path)


class NeuralDistance:
    """d(x, y) as a torch module computes it, for `pairwise_distances` and the classifier.

    Parameters
    ----------
    module : torch.nn.Module that maps two tensors (n, n_features) to n distances; a copy is kept
    centre, scale : arrays (n_features,): points are standardised by these first
    features : sequence of str, optional
    """

    cost = Cost.EUCLIDEAN  # only so that files are described alike

    def __init__(self, module: Any, centre: Any, scale: Any, features: Sequence[str] | None = None) -> None:
        self._inside = StandardisedModule(module, centre, scale)
        self._inside.module.eval()
        self.features = check_features(features, self._inside.centre.size)

    @property
    def module(self) -> torch.nn.Module:
        return self._inside.module

    @property
    def n_features(self) -> int:
        return self._inside.centre.size

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        """Distances between points: all of `x` against all of `y` (or against themselves)."""
        x = self._points(x)
        return distance_matrix(
            self._inside, self._inside.inputs(x), self._inside.inputs(x if y is None else self._points(y))
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
        """Write the network's numbers to one file, without pickle; `groundmetric.neural.load` reads it."""
        _save(self, "neural distance", self._inside, self.features, path)

    def __repr__(self) -> str:
        return f"NeuralDistance({self.n_features} features)"


def distance_matrix(inside: StandardisedModule, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """All distances between two sets of inputs, a block of pairs at a time."""
    n, m = len(x), len(y)
    rows = torch.arange(n, device=x.device).repeat_interleave(m)
    cols = torch.arange(m, device=x.device).repeat(n)
    out = np.empty(n * m)
    with torch.no_grad():
        for low in range(0, n * m, BLOCK):
            i, j = rows[low : low + BLOCK], cols[low : low + BLOCK]
            out[low : low + BLOCK] = as_array(inside.measure(x[i], y[j]))
    return out.reshape(n, m)


def _save(metric: Any, kind: str, inside: StandardisedModule, features: Any, path: str | os.PathLike[str]) -> None:
    state = {f"state.{name}": value.detach().cpu().numpy() for name, value in inside.module.state_dict().items()}
    arrays = {"centre": inside.centre, "scale": inside.scale, **state}
    cost = metric.cost.name.lower()
    write_parts({"kind": kind, "features": features, "cost": cost}, arrays, path)


def load(path: str | os.PathLike[str], module: Any) -> Any:
    """A network metric that `save` wrote. A file holds numbers only: `module` must be built like the one learned.

    Returns
    -------
    NeuralMetric or NeuralDistance; `module` itself is not changed
    """
    description, arrays = read_parts(path)
    if description["kind"] not in ("neural embedding", "neural distance"):
        raise ValueError(f"{os.fspath(path)!r} holds no network: read it with `GroundMetric.load`")
    inside = StandardisedModule(module, arrays["centre"], arrays["scale"])
    state = {name[6:]: torch.as_tensor(value) for name, value in arrays.items() if name.startswith("state.")}
    try:
        inside.module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"module is not built like the one that was saved: {error}") from None
    known = (inside.module, inside.centre, inside.scale, description["features"])
    if description["kind"] == "neural distance":
        return NeuralDistance(*known)
    return NeuralMetric(*known, cost=description["cost"])
