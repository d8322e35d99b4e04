"""Metrics of maximal leave-one-out likelihood: a training objective close to prediction.

Each distribution is predicted by all others with the weights exp(-distance), as in neighbourhood components analysis
(Goldberger et al. 2005) and the supervised word mover's distance (Huang et al. 2016), but with exact transport. The
derivative holds the optimal plans fixed (Danskin's theorem), and every step starts warm from the plans of the last.
"""

from __future__ import annotations

import numpy as np

from .._internal.parallel import Threads
from ..distributions import Distributions
from ..learning.objective import Adam
from ..transport.pairs import pair_transport
from ..transport.problem import Masses
from .stacking import Target

# A longer optimisation, or larger steps, fits the training distributions better and new ones worse.
_N_STEPS, _LEARNING_RATE = 30, 0.1
# Weight of the squared norm of the components, relative to its value at the start.
_STRENGTH = 0.1
# Median distance at the start: distributions at the median distance have the weight exp(-2).
_MEDIAN_DISTANCE = 2.0


def maximise_likelihood(D: Distributions, target: Target, start: np.ndarray, seed: int = 0) -> np.ndarray:
    """Learn components from `start` that maximise the leave-one-out likelihood, minus a penalty on their norm.

    Parameters
    ----------
    D : Distributions
        Distributions to learn from; all pairs are compared.
    target : Target
        Their labels.
    start : array of shape (n_components, n_features)
        First components.
    seed : int
        Has no effect: the result is not random.

    Returns
    -------
    array of shape (n_components, n_features)
        Components.
    """
    n, points = len(D), D.points
    transport = pair_transport(Masses.of(D), *np.triu_indices(n, 1), len(start), threads=Threads(1))
    first, second, pairs = transport.first, transport.second, np.arange(transport.first.size)

    def distances(components: np.ndarray) -> np.ndarray:
        transport.move_all(points @ components.T)
        return transport.solve(pairs)

    median = float(np.median(distances(start)))
    if median <= 0.0:  # most distributions coincide
        return start
    components = start * (_MEDIAN_DISTANCE / median)
    squared_norm = float(np.square(components).sum())
    size = _LEARNING_RATE * float(np.sqrt(squared_norm / components.size))
    optimiser = Adam(size)
    for step in range(_N_STEPS):
        d = distances(components)
        kernel = np.zeros((n, n))
        kernel[first, second] = kernel[second, first] = np.exp(d.min() - d)
        slopes = target.leave_one_out(kernel)[1]
        gradient = transport.pull(pairs, (slopes + slopes.T)[first, second]).T @ points
        optimiser.learning_rate = size * 0.5 * (1.0 + np.cos(np.pi * step / _N_STEPS))
        components = optimiser.step(components, gradient + 2.0 * _STRENGTH / squared_norm * components)
    return components
