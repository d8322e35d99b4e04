"""Small cohorts whose answer is known, for ensembles and predictions from them."""

import numpy as np

from groundmetric import Distributions
from groundmetric.estimators import _kernel, ensemble

FEATURES = [f"f{k}" for k in range(10)]
PLANTED = 3


def cohort(n=14, seed=0, *, shift=2.0, points=6, n_features=10, values=None):
    """Distributions that differ from each other by chance, and in one feature by their class (0, 1, 0, 1, …)."""
    random = np.random.default_rng(seed)
    values = np.arange(n) % 2 if values is None else np.asarray(values)
    found = 0.5 * random.normal(size=(n, 1, n_features)) + random.normal(size=(n, points, n_features))
    found[:, :, PLANTED] += shift * values[:, None]
    names = np.repeat([f"s{k:02d}" for k in range(n)], points)
    return Distributions(found.reshape(-1, n_features), names, features=FEATURES[:n_features]), values


def few_regressions(patch, strengths=(0.1, 12.0), folds=3):
    """Most of the time of a small ensemble goes into logistic regressions: one for every kernel, strength and fold."""
    patch.setattr(_kernel, "STRENGTHS", strengths)
    patch.setattr(ensemble, "_N_FOLDS", folds)
