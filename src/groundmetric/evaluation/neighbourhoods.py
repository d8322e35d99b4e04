"""A smooth score of how well neighbours tell the class: what settings are chosen by."""

from __future__ import annotations

import numpy as np

# About so many neighbours have a say.
_NEIGHBOURS = 5
# Nobody is surer than this, so that a single distribution at a wrong place does not decide.
_FLOOR = 0.01
# By how much votes are made less sure: not at all, ..., so much that nothing is left of them.
_SOFTENINGS = (1.0, 1.4, 2.0, 3.0, 5.0, 10.0, np.inf)


def neighbourhood_probabilities(distances: np.ndarray, known: np.ndarray, n_classes: int) -> np.ndarray:
    """Probability of each class for each held-out distribution when neighbours vote by e^(-distance / τ).

    A vote counts the less, the more of the known ones share its class, so that a rare class can be found. τ is how much
    farther the fifth neighbour is than the first, on average, so about five neighbours have a say and the scale of the
    metric does not matter. Accuracy has only as many values as there are held-out distributions; this also tells a
    narrow miss from a wide one.

    Parameters
    ----------
    distances : array (n_held_out, n_known)
    known : classes of the columns

    >>> neighbourhood_probabilities(np.array([[0.1, 5.0], [5.0, 0.1]]), np.array([0, 1]), 2).argmax(axis=1).tolist()
    [0, 1]
    """
    ordered = np.sort(distances, axis=1)
    reach = ordered[:, min(_NEIGHBOURS, ordered.shape[1]) - 1] - ordered[:, 0]
    temperature = float(reach.mean())
    if temperature == 0.0:
        temperature = 1.0
    votes = np.exp(-(distances - ordered[:, :1]) / temperature)
    members = known[:, None] == np.arange(n_classes)
    shares = votes @ (members / np.maximum(members.sum(axis=0), 1))
    shares /= shares.sum(axis=1, keepdims=True)
    return _FLOOR / n_classes + (1.0 - _FLOOR) * shares


def softened_scores(probabilities: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Log-probability of each distribution's true class, with all votes made less sure by as much as is best for all.

    Which class has most votes does not depend on how sure they are. A metric that has been learned from few
    distributions is too sure of itself on others; without this, one that knows nothing would pass for better.

    >>> softened_scores(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1])).round(3).tolist()  # right as often as not
    [-0.693, -0.693]
    """
    logs = np.log(probabilities)

    def at(softening: float) -> np.ndarray:
        soft = logs / softening
        return soft[np.arange(codes.size), codes] - np.logaddexp.reduce(soft, axis=1)

    return max(map(at, _SOFTENINGS), key=lambda scores: balanced_mean(scores, codes)[0])


def balanced_mean(scores: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    """Mean over classes of the mean within each, and its standard error (infinite where a class has one member)."""
    members = [scores[codes == c] for c in np.unique(codes)]
    errors = [one.var(ddof=1) / one.size if one.size > 1 else np.inf for one in members]
    return float(np.mean([one.mean() for one in members])), float(np.sqrt(np.sum(errors)) / len(members))
