"""A torch module from the outside: points in as arrays, parameters as one array, outputs checked."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from scipy import sparse

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
