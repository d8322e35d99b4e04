import numpy as np
import pytest

import groundmetric as gm
from groundmetric.transport import cohort as cohorts


@pytest.fixture
def eager(monkeypatch):
    """Every distance matrix is worth sending away, in many tasks."""
    monkeypatch.setattr(cohorts, "_SECONDS", 2e-4)


@pytest.fixture(scope="session")
def cohort():
    rng = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(16), 40), np.arange(16) % 2
    weights = np.where(owner % 3 == 0, rng.uniform(0.1, 1.0, owner.size), 1.0)
    points = rng.normal(size=(640, 3)) + 0.7 * y[owner][:, None] * [1.0, 0.0, 0.0]
    return gm.Distributions(points, owner, weights=weights)
