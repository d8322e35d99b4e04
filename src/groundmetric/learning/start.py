"""Where learning starts: the first rows of W tell the class means apart, the others are small and random.

The problem is not convex. From a random W alone, learning often ends at chance on data with many noise features.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from ..distributions import Distributions

# Root mean square of the entries of the leading row. It sets how large a step of `learning_rate` is beside W; margin
# and strength are relative, so it has no other effect.
_ENTRY = 1.0 / 16.0
# The random rows beside the leading one: small, so that noise features start with little weight.
_REST = 0.1
# Points that the covariance is estimated from at most; more do not change the start visibly, but cost passes over them.
_MOST_POINTS = 4000


def discriminating_start(
    D: Distributions, labels: np.ndarray, scale: np.ndarray, n_components: int, random: np.random.RandomState
) -> np.ndarray:
    """Components for standardised features: discriminants by their strength, then random rows."""
    directions = discriminants(D, labels, scale, random)[:n_components]
    leading = np.linalg.norm(directions[0]) if len(directions) else 0.0
    if leading == 0.0:  # the class means coincide: there is no direction to begin with
        return random_start(scale, n_components, random)
    rest = _REST * random_start(scale, n_components - len(directions), random)
    return np.vstack([directions * (_ENTRY * np.sqrt(scale.size) / leading), rest])


def random_start(scale: np.ndarray, n_components: int, random: np.random.RandomState) -> np.ndarray:
    """Uniform entries, as in the paper."""
    return random.uniform(-1.0, 1.0, (n_components, scale.size)) * (_ENTRY * np.sqrt(3.0))


def discriminants(D: Distributions, labels: np.ndarray, scale: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Directions along which the means of the classes differ most, against the spread of points within classes.

    A linear discriminant of the distributions' means, with a covariance that is shrunk half way to the identity: there
    are more features than distributions. Strongest first, each as long as the class means lie apart along it; at most
    one direction less than there are classes.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    means = D.means() / scale
    class_means = np.stack([means[codes == c].mean(axis=0) for c in range(classes.size)])
    between = class_means - class_means.mean(axis=0)  # (n_classes, n_features)
    within = _shrunk_covariance(D, codes, class_means, scale, random)
    solved = np.stack([cg(within, row, rtol=1e-6, maxiter=200)[0] for row in between])
    strength, mixing = np.linalg.eigh(between @ solved.T)
    useful = strength > strength.max() * 1e-8
    rows = mixing[:, useful].T @ solved
    rows *= (np.sqrt(strength[useful]) / np.linalg.norm(rows, axis=1))[:, None]
    return rows[::-1]


def _shrunk_covariance(
    D: Distributions, codes: np.ndarray, class_means: np.ndarray, scale: np.ndarray, random: np.random.RandomState
) -> LinearOperator:
    """(covariance of standardised points around their class mean + identity) / 2, as products only."""
    rows = np.arange(D.points.shape[0])
    if rows.size > _MOST_POINTS:
        rows = np.sort(random.choice(rows, _MOST_POINTS, replace=False))
    owner = codes[np.searchsorted(D.bounds, rows, side="right") - 1]
    points = D.points[rows].astype(np.float64)
    points = points.multiply(1.0 / scale).tocsr() if sparse.issparse(points) else points / scale
    members = sparse.csr_matrix((np.ones(rows.size), (np.arange(rows.size), owner)), (rows.size, len(class_means)))

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        centred = points @ x - members @ (class_means @ x)
        spread = points.T @ centred - class_means.T @ (members.T @ centred)
        return 0.5 * (spread / rows.size + x)

    return LinearOperator((scale.size, scale.size), matvec=product, dtype=np.float64)
