"""The part of a fitted ensemble that predicts new distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..distributions import Distributions
from .fit import FittedEnsemble
from .geometry import Description, Scaling
from .stacking import Stack, combine
from .targets import Target
from .views import EuclideanView, View


@dataclass(frozen=True)
class Predictor:
    """Views, models and stacking weights for new distributions.

    Attributes
    ----------
    names : list of str
        Names of the training distributions, in sorted order.
    scalings : dict of str to Scaling
        Transformation of the points of each modality; a single one has the name "".
    views : list of (str, View)
        Modality and view.
    stack : Stack
        Kernel models of the views and their stacking weights.
    target : Target
        Kind of the labels, without the labels themselves.
    """

    names: list[str]
    scalings: Mapping[str, Scaling]
    views: Sequence[tuple[str, View]]
    stack: Stack
    target: Target

    @classmethod
    def of(cls, fitted: FittedEnsemble) -> Predictor:
        """Return the predictor of a fitted ensemble."""
        scalings = {name: geometry.scaling for name, geometry in fitted.geometries.items()}
        names = [str(name) for name in next(iter(fitted.geometries.values())).names]
        return cls(names, scalings, fitted.views, fitted.stack, fitted.target.without_labels())

    def describe(self, modalities: Mapping[str, Distributions]) -> dict[str, Description]:
        """Return the descriptions of new distributions by modality."""
        return {name: scaling.describe(modalities[name]) for name, scaling in self.scalings.items()}

    def predict(self, descriptions: Mapping[str, Description], euclidean: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return predictions in the units of the labels; `euclidean` are the results of `euclidean_distances`."""
        kernels = [
            np.exp(-euclidean[name]) if isinstance(view, EuclideanView) else view.kernel_to(descriptions[name])
            for name, view in self.views
        ]
        return self.target.decode(combine(self.stack.weights, self.stack.predict_views(kernels, self.target)))

    def euclidean_distances(self, descriptions: Mapping[str, Description]) -> dict[str, np.ndarray]:
        """Return Euclidean transport distances from new to training distributions, in units of their median."""
        return {
            name: view.distances_to(descriptions[name]) for name, view in self.views if isinstance(view, EuclideanView)
        }

    def remoteness(self, euclidean: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the distance of new and of training distributions to the nearest (other) training distribution.

        Of several modalities, the mean.
        """
        nearest = [
            (euclidean[name].min(axis=1), view.nearest) for name, view in self.views if isinstance(view, EuclideanView)
        ]
        new, training = zip(*nearest, strict=True)
        return np.mean(new, axis=0), np.mean(training, axis=0)
