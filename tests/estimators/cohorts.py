"""Small cohorts whose answer is known, for ensembles and predictions from them."""

import numpy as np

from groundmetric import Distributions

FEATURES = [f"f{k}" for k in range(10)]
PLANTED = 3


def cohort(n=14, seed=0, *, shift=2.0, points=6, n_features=10, values=None):
    """Distributions that differ from each other by chance, and in one feature by their class (0, 1, 0, 1, …)."""
    random = np.random.default_rng(seed)
    values = np.arange(n) % 2 if values is None else np.asarray(values)
    cells = 0.5 * random.normal(size=(n, 1, n_features)) + random.normal(size=(n, points, n_features))
    cells[:, :, PLANTED] += shift * values[:, None]
    names = np.repeat([f"s{k:02d}" for k in range(n)], points)
    return Distributions(cells.reshape(-1, n_features), names, features=[f"f{k}" for k in range(n_features)]), values
