"""Where learning starts: the first rows of W tell the labels apart, the others are small and random.

The problem is not convex. From a random W alone, learning often ends at chance on data with many noise features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from ..distributions import Distributions
from ..supervision import Supervision, Target

# Root mean square of the entries of the leading row. It sets how large a step of `learning_rate` is beside W; margin
# and strength are relative, so it has no other effect.
_ENTRY = 1.0 / 16.0
# The random rows beside the leading one: small, so that noise features start with little weight.
_REST = 0.1
# Points that the covariance is estimated from at most; more do not change the start visibly, but cost passes over them.
_MOST_POINTS = 4000
# Entries of those that are copied at a time: 1 MB.
_BLOCK = 2**17


def discriminating_start(
    D: Distributions, known: Supervision, scale: np.ndarray, n_components: int, random: np.random.RandomState
) -> np.ndarray:
    """Components for standardised features: discriminants by their strength, then random rows."""
    directions = _strongest(D, known, scale, random)[:n_components]
    leading = np.linalg.norm(directions[0]) if len(directions) else 0.0
    if leading == 0.0:  # the class means coincide: there is no direction to begin with
        return random_start(scale, n_components, random)
    rest = _REST * random_start(scale, n_components - len(directions), random)
    return np.vstack([directions * (_ENTRY * np.sqrt(scale.size) / leading), rest])


def random_start(scale: np.ndarray, n_components: int, random: np.random.RandomState) -> np.ndarray:
    """Uniform entries, as in the paper."""
    return random.uniform(-1.0, 1.0, (n_components, scale.size)) * (_ENTRY * np.sqrt(3.0))


def _strongest(D: Distributions, known: Supervision, scale: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """The discriminants of all labels, each from the distributions that have it, as strong as its share of the loss."""
    if len(known.targets) == 1:
        return discriminants(D, known.targets[0], scale, random, strata=known.strata)
    rows = []
    for target, share in zip(known.targets, known.shares, strict=True):
        seen = np.flatnonzero(target.labelled)
        strata = None if known.strata is None else known.strata[seen]
        rows.append(share * discriminants(D[seen], target.at(seen), scale, random, strata=strata))
    directions = np.vstack(rows)
    return directions[np.argsort(-np.linalg.norm(directions, axis=1), kind="stable")]


def discriminants(
    D: Distributions,
    target: Target,
    scale: np.ndarray,
    random: np.random.RandomState,
    *,
    strata: np.ndarray | None = None,
) -> np.ndarray:
    """Directions along which the means of distributions follow the label, against the spread of points around it.

    Of classes or a few values, a linear discriminant of their means; of many values, the regression of the means on
    them. The covariance is shrunk half way to the identity: there are more features than distributions. Strongest
    first, each as long as the class means (or those of values a standard deviation apart) lie apart along it; at most
    one direction less than there are classes. With strata, all this within strata.
    """
    means = D.means() / scale
    design, effects, between = _label_effects(target, means, strata)
    within = _shrunk_covariance(D, design, effects, scale, random)
    solved = np.stack([cg(within, row, rtol=1e-6, maxiter=200)[0] for row in between])
    strength, mixing = np.linalg.eigh(between @ solved.T)
    useful = strength > strength.max() * 1e-8
    rows = mixing[:, useful].T @ solved
    rows *= (np.sqrt(strength[useful]) / np.linalg.norm(rows, axis=1))[:, None]
    return rows[::-1]


def _label_effects(
    target: Target, means: np.ndarray, strata: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A design and effects whose product follows the means, and the effects that tell labels apart."""
    response = target.response()
    if strata is None and target.few_levels:
        level_means = np.stack([means[column > 0].mean(axis=0) for column in response.T])
        return response, level_means, level_means - level_means.mean(axis=0)
    centred, rest = response - response.mean(axis=0), means - means.mean(axis=0)
    if strata is not None:  # compare within strata: what sets them apart is no effect of the label
        centred, rest = _within(centred, strata), _within(rest, strata)
    effects = np.linalg.lstsq(centred, rest, rcond=1e-8)[0]
    if target.few_levels:
        effects = effects - effects.mean(axis=0)
    offset = means.mean(axis=0) - response.mean(axis=0) @ effects
    design = np.hstack([response, np.ones((len(means), 1))])
    return design, np.vstack([effects, offset]), effects


def _within(values: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the stratum."""
    members = (strata[:, None] == np.unique(strata)).astype(np.float64)
    return values - members @ ((members.T @ values) / members.sum(axis=0)[:, None])


def _shrunk_covariance(
    D: Distributions, design: np.ndarray, effects: np.ndarray, scale: np.ndarray, random: np.random.RandomState
) -> LinearOperator:
    """(covariance of standardised points around what their label lets expect + identity) / 2, as products only."""
    rows = np.arange(D.points.shape[0])
    if rows.size > _MOST_POINTS:
        rows = np.sort(random.choice(rows, _MOST_POINTS, replace=False))
    owner = np.searchsorted(D.bounds, rows, side="right") - 1
    members = sparse.csr_matrix(design)[owner]
    blocks = _row_blocks(D.points, rows)

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        expected, weights = members @ (effects @ x), x / scale
        spread, centred = np.zeros(scale.size), np.empty(rows.size)
        for here, points in blocks():
            centred[here] = points @ weights - expected[here]
            spread += points.T @ centred[here]
        spread = spread / scale - effects.T @ (members.T @ centred)
        return 0.5 * (spread / rows.size + x)

    return LinearOperator((scale.size, scale.size), matvec=product, dtype=np.float64)


def _row_blocks(points: Any, rows: np.ndarray) -> Callable[[], Iterator[tuple[slice, Any]]]:
    """Some rows of the points, again and again: a few at a time, so that memory holds no copy of them all.

    Of sparse points a copy is small, and to choose rows takes longer than to use them: they are copied once.
    """
    if sparse.issparse(points):
        chosen = points[rows].astype(np.float64, copy=False)
        return lambda: iter([(slice(0, rows.size), chosen)])
    size = max(1, _BLOCK // points.shape[1])

    def blocks() -> Iterator[tuple[slice, Any]]:
        for low in range(0, rows.size, size):
            here = slice(low, min(low + size, rows.size))
            yield here, points[rows[here]].astype(np.float64, copy=False)

    return blocks
