"""A smooth score of how well neighbours tell the class: what settings are chosen by."""

from __future__ import annotations

import numpy as np

# About so many neighbours have a say.
_NEIGHBOURS = 5
# Nobody is surer than this, so that a single distribution at a wrong place does not decide.
_FLOOR = 0.01


def neighbourhood_scores(distances: np.ndarray, codes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Log-probability of each held-out distribution's true class when neighbours vote by e^(-distance / τ).

    A vote counts the less, the more of the known ones share its class, so that a rare class can be found. τ is how much
    farther the fifth neighbour is than the first, on average, so about five neighbours have a say and the scale of the
    metric does not matter. Accuracy has only as many values as there are held-out distributions; this
    also tells a narrow miss from a wide one.

    Parameters
    ----------
    distances : array (n_held_out, n_known)
    codes, known : classes of the rows and of the columns

    >>> (neighbourhood_scores(np.array([[0.1, 5.0], [5.0, 0.1]]), np.array([0, 1]), np.array([0, 1])) > -0.4).all()
    np.True_
    """
    ordered = np.sort(distances, axis=1)
    reach = ordered[:, min(_NEIGHBOURS, ordered.shape[1]) - 1] - ordered[:, 0]
    temperature = float(reach.mean())
    if temperature == 0.0:
        temperature = 1.0
    votes = np.exp(-(distances - ordered[:, :1]) / temperature)
    votes /= np.bincount(known)[known]
    probability = (votes * (known == codes[:, None])).sum(axis=1) / votes.sum(axis=1)
    return np.log(_FLOOR + (1.0 - _FLOOR) * probability)


def balanced_mean(scores: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    """Mean over classes of the mean within each, and its standard error (infinite where a class has one member)."""
    members = [scores[codes == c] for c in np.unique(codes)]
    errors = [one.var(ddof=1) / one.size if one.size > 1 else np.inf for one in members]
    return float(np.mean([one.mean() for one in members])), float(np.sqrt(np.sum(errors)) / len(members))
