"""Where learning starts: directions that follow the label, within strata, from labelled distributions alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from groundmetric import Distributions
from groundmetric.learning.labels import ClassTarget, DistanceTarget, OrderedTarget, Supervision
from groundmetric.learning.objective import discriminants, discriminating_start

N, POINTS, FEATURES = 30, 20, 6
LABEL = np.arange(N) % 3
BATCH = (np.arange(N) // 3) % 2
ONE = np.ones(FEATURES)


def cohort(*effects):
    points = np.random.default_rng(0).normal(size=(N, POINTS, FEATURES))
    for feature, effect in enumerate(effects):
        points[:, :, feature] += np.asarray(effect)[:, None]
    return Distributions(points.reshape(-1, FEATURES), np.repeat(np.arange(N), POINTS))


TARGETS = {
    "classes": ClassTarget(LABEL),
    "ordered": OrderedTarget.of(LABEL.astype(float)),
    "continuous": OrderedTarget.of(LABEL + np.linspace(0.0, 0.1, N)),
    "distances": DistanceTarget.of(np.abs(LABEL[:, None] - LABEL).astype(float)),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("strata", [None, BATCH])
def test_the_first_direction_is_that_of_the_label(target, strata):
    row = discriminants(cohort(LABEL), target, ONE, np.random.RandomState(0), strata=strata)[0]
    assert abs(row[0]) / np.linalg.norm(row) > 0.95


def test_strata_that_follow_the_label_are_looked_within():
    batch = np.where(np.arange(N) % 10 == 0, 1, LABEL > 0).astype(int)
    D = cohort(LABEL, 5.0 * batch)
    plain, within = (
        discriminants(D, ClassTarget(LABEL), ONE, np.random.RandomState(0), strata=strata)[0]
        for strata in (None, batch)
    )
    assert abs(within[1] / within[0]) < 0.1 < abs(plain[1] / plain[0])


def test_of_several_labels_the_heavier_comes_first_and_each_sees_its_own():
    D = cohort(LABEL, 2.0 * BATCH)
    half = np.where(np.arange(N) < N // 2, BATCH, -1)
    for shares, first in (([9.0, 1.0], 0), ([1.0, 9.0], 1)):
        supervision = Supervision((OrderedTarget.of(LABEL.astype(float)), ClassTarget(half)), np.array(shares))
        start = discriminating_start(D, supervision, ONE, 4, np.random.RandomState(0))
        assert np.argmax(np.abs(start[0])) == first
        assert_allclose(np.linalg.norm(start[0]), np.sqrt(FEATURES) / 16)
