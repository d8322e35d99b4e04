"""Cohorts of distributions for the tests of many pairs."""

from unittest import mock

import numpy as np
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric import distances as distances_module
from groundmetric._internal.parallel import Threads
from groundmetric.transport.pairs import pair_transport
from groundmetric.transport.problem import Masses

ALL_WEIGHTS = ("equal", "random", "both")


def cohort(rng, sizes, k, weights="equal", spread=1.0):
    """Gaussian points about a centre per distribution; weights "both" makes every other distribution uniform."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    points = rng.normal(size=(owner.size, k)) + spread * rng.normal(size=(len(sizes), k))[owner]
    masses = rng.uniform(0.1, 1.0, owner.size)
    if weights == "equal":
        masses[:] = 1.0
    elif weights == "both":
        masses[owner % 2 == 0] = 1.0
    return gm.Distributions(points, owner, weights=masses)


def all_pairs(D):
    return np.triu_indices(len(D), 1)


def transport(D, n_jobs=1, pairs=None, **options):
    """Transport between all pairs of D, with the points in their places."""
    first, second = all_pairs(D) if pairs is None else pairs
    result = pair_transport(Masses.of(D), first, second, D.shape[1], threads=Threads(n_jobs), **options)
    result.move_all(D.points)
    return result


def everything(pairs):
    return np.arange(pairs.first.size)


def block(D, d, points=None):
    rows = slice(D.bounds[d], D.bounds[d + 1])
    return (D.points if points is None else points)[rows], D.weights[rows]


def one_by_one(D, points=None):
    """Return values of all pairs, each solved by the public function."""
    values = []
    for d, e in zip(*all_pairs(D), strict=True):
        (x, a), (y, b) = block(D, d, points), block(D, e, points)
        values.append(gm.transport.solve(cdist(x, y), a, b).value)
    return np.array(values)


def placed(D, points, **options):
    """Fresh transport with the points at other places."""
    pairs = transport(D, **options)
    pairs.move_all(points)
    return pairs


def walk(rng, D, n_steps):
    """Places along a random walk with steps of every size."""
    points = D.points.copy()
    for step in range(n_steps):
        points = points + 10.0 ** -(step % 4) * rng.normal(size=points.shape)
        yield points


def search_neighbors(*arguments, **options):
    """Return distances, indices and the number of solves of `kneighbors`."""
    searches, search = [], distances_module.pruned_distances

    def recorded(*arguments, **options):
        searches.append(search(*arguments, **options))
        return searches[-1]

    with mock.patch.object(distances_module, "pruned_distances", recorded):
        return *gm.kneighbors(*arguments, **options), searches[0][1]
