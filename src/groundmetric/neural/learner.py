"""The learner for torch modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from ..distributions import Distributions
from ..estimators.learner import GroundMetricLearner
from ..learning.models import Model
from ..learning.training import Settings
from ..point_distances import Cost
from .distance import DistanceModel
from .embedding import EmbeddingModel
from .modules import StandardisedModule

# Of GroundMetricLearner, what has no meaning for a module.
_LINEAR_ONLY = ("n_components", "init", "metric", "nuisance", "n_restarts", "checkpoint", "checkpoint_every")


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
        batch_size, cost, feature_map, target, random_state, …

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
        self, X: Any, y: Any, groups: Any = None, strata: Any = None, *, fresh: Any = None
    ) -> NeuralGroundMetricLearner:
        """Learn from Distributions with a label each, or from points; as in GroundMetricLearner."""
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
            torch.manual_seed(check_random_state(self.random_state).randint(2**31))
            super().fit(X, y, groups, strata, fresh=fresh)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Points (or the points of Distributions) as the module embeds them, (n_points, n_components)."""
        if self.pairwise:
            raise TypeError("a module that measures distances embeds no points: use `metric_.distances`")
        return super().transform(X)

    def _model(self, settings: Settings, centre: np.ndarray, scale: np.ndarray) -> Model:
        cost = Cost.named(self.cost)
        if self.pairwise and self.feature_map is not None:
            raise ValueError("feature_map and pairwise=True are both given: let the module map the points itself")
        if self.pairwise and cost is not Cost.EUCLIDEAN:
            raise ValueError(
                f"cost is {self.cost!r}, but with pairwise=True the module itself is the cost: leave it out"
            )
        kind = DistanceModel if self.pairwise else EmbeddingModel
        return kind(StandardisedModule(self.module, centre, scale), self.optimiser, cost)

    def _keep_metric(self, metric: Any, raw: Distributions) -> None:
        self.module_ = metric.module
        self.metric_ = self._behind_map(metric, raw)
