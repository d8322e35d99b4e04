"""Euclidean, Manhattan, cosine: known distances, and what standardising means."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric.baselines import Cosine, Euclidean, Manhattan

from .examples import cohort

D, y = cohort()
KINDS = [(Euclidean, "euclidean"), (Manhattan, "cityblock"), (Cosine, "cosine")]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_they_are_the_named_distances(kind, name):
    method = kind().fit(D)
    assert_allclose(method.distances(D), gm.pairwise_distances(D, metric=name), atol=1e-12)
    assert_allclose(method.point_distances(D.points[:9], D.points), cdist(D.points[:9], D.points, name), atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_standardised_they_are_those_of_standardised_points(kind, name):
    z = (D.points - D.points.mean(axis=0)) / D.points.std(axis=0)
    standard = gm.Distributions(z, np.repeat(D.names, D.sizes))
    method = kind(standardise=True).fit(D)
    assert_allclose(method.distances(D), gm.pairwise_distances(standard, metric=name), atol=1e-12)
    assert_allclose(method.point_distances(D), cdist(z, z, name), atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_standardised_they_do_not_depend_on_units(kind, name):
    units = np.array([1.0, 1e6, 1e-3, 7.0])
    scaled = gm.Distributions(D.points * units, np.repeat(D.names, D.sizes))
    distances = [kind(standardise=True).fit(X).distances(X) for X in (D, scaled)]
    assert_allclose(*distances)


def test_standardising_weighs_points_by_their_mass():
    masses = np.random.default_rng(0).integers(1, 4, len(D.points))
    owner = np.repeat(np.arange(len(D)), D.sizes)
    totals = np.bincount(owner, masses)
    weighted = gm.Distributions(D.points, owner, weights=masses)
    scale = Euclidean(standardise=True).fit(weighted).metric_.scale
    shares = masses / totals[owner] * D.sizes[owner]
    mean = np.average(D.points, axis=0, weights=shares)
    assert_allclose(scale**2, np.average((D.points - mean) ** 2, axis=0, weights=shares))
