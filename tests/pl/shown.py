"""Input of the tests: a small cohort, metrics on its two features, distances, a history."""

from types import SimpleNamespace

import numpy as np
from scipy.spatial.distance import cdist

import groundmetric as gm

D, y = gm.datasets.make_modes(1, 1.0, offsets=(1.5, 4.5, 7.5, 10.5), points_per_mode=5, random_state=0)
FLAT = gm.GroundMetric([[2.0, 0.0], [0.0, 1.0]], ["signal", "noise 1"])
BROAD = gm.GroundMetric([[1.0, -0.8], [0.2, 0.2]], ["signal", "noise 1"])
LINE = gm.GroundMetric([[2.0, 0.0]], ["signal", "noise 1"])
POSITIONS = np.random.RandomState(1).normal(size=(len(D), 2))
DISTANCES = cdist(POSITIONS, POSITIONS)
HISTORY = {
    "loss": np.array([0.5, 0.25, 0.1]),
    "active": np.array([0.9, 0.5, 0.2]),
    "solved": np.array([10, 5, 0]),
    "saved": np.array([0, 5, 0]),
    "validation_loss": np.full(3, np.nan),
}
VIEWS = SimpleNamespace(  # public attributes of a fitted ensemble
    fitted_=SimpleNamespace(view_scores={"means": -0.6, "learned": -0.2}),
    score_=-0.1,
    chance_=-0.69,
    classes_=np.arange(2),
)
