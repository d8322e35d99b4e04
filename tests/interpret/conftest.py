"""A small cohort in which it is known what tells the conditions apart, and a metric learned from it."""

from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pytest

import groundmetric as gm

mpl.use("Agg")


@dataclass(frozen=True)
class Case:
    D: gm.Distributions
    y: np.ndarray
    learner: gm.GroundMetricLearner
    programme: set
    acts_in: str


def simulate(n_per_class=6, n_points=40, n_features=120, effect=2.0, seed=0):
    """Distributions of three kinds of points; in class "disease", kind "B" is higher in the features p0, p1, p2, p3.

    Kinds differ in the last features, distributions a little in all, and have different shares of the kinds.
    """
    random = np.random.RandomState(seed)
    points, groups, kinds = [], [], []
    for d in range(2 * n_per_class):
        kind = random.choice(3, n_points, p=random.dirichlet([20.0, 20.0, 20.0]))
        x = random.normal(size=(n_points, n_features)) + 0.1 * random.normal(size=n_features)
        x[np.arange(n_points), n_features - 1 - kind] += 5.0
        x[np.ix_(kind == 1, range(4))] += effect * (d >= n_per_class)
        points.append(x)
        groups += [f"S{d + 1:02d}"] * n_points
        kinds += [("A", "B", "C")[k] for k in kind]
    features = [f"p{f}" if f < 4 else f"g{f}" for f in range(n_features)]
    D = gm.Distributions(np.vstack(points), groups, features=features, annotations={"cell_type": kinds})
    return D, np.repeat(["control", "disease"], n_per_class)


@pytest.fixture(scope="session")
def case():
    D, y = simulate()
    learner = gm.GroundMetricLearner(max_epochs=10, random_state=0).fit(D, y)
    return Case(D, y, learner, {"p0", "p1", "p2", "p3"}, "B")


@pytest.fixture(scope="session")
def modes():
    """Distributions that differ along "signal" in one of three modes only."""
    D, y = gm.datasets.make_modes(2, 1.0, points_per_mode=8, offsets=(1.5, 7.5, 13.5), random_state=0)
    return D, y, gm.GroundMetric([[2.0, 0.1, 0.0], [0.3, 0.2, 0.1]], D.features)
