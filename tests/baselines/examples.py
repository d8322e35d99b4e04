"""Small cohorts, and every baseline with parameters that make it quick."""

import numpy as np

import groundmetric as gm
from groundmetric import baselines

QUICK = {
    "nca": {"max_iter": 10, "random_state": 0},
    "pca": {"random_state": 0},
    "lda": {"random_state": 0},
    "logistic": {"C": 10.0},
    "composition": {"n_clusters": 4, "random_state": 0},
}
BASELINES = {
    "euclidean": baselines.Euclidean, "manhattan": baselines.Manhattan, "cosine": baselines.Cosine,
    "nca": baselines.NCA, "pca": baselines.PCAEuclidean, "lda": baselines.LinearDiscriminant,
    "pseudobulk": baselines.PseudobulkNeighbors, "logistic": baselines.PseudobulkLogistic,
    "composition": baselines.Composition,
}  # fmt: skip
ALL = list(BASELINES)
LEARNED = ["nca"]
SUPERVISED = [*LEARNED, "lda", "logistic"]
WITH_METRIC = [*LEARNED, "euclidean", "manhattan", "cosine", "pca", "lda", "logistic"]


def quick(name, **params):
    return BASELINES[name](**{**QUICK.get(name, {}), **params})


def cohort(n_distributions=9, n_points=8, n_features=4, n_classes=3, seed=0, **options):
    """Gaussian points; the class shifts the first feature, every distribution is shifted along the others."""
    random = np.random.default_rng(seed)
    labels = np.arange(n_distributions) % n_classes
    centres = random.normal(size=(n_distributions, n_features))
    centres[:, 0] = 3.0 * labels
    owner = np.repeat(np.arange(n_distributions), n_points)
    points = 5.0 + centres[owner] + 0.5 * random.normal(size=(owner.size, n_features))
    return gm.Distributions(points, owner, **options), labels


def labelled_points(n_points=60, n_features=4, n_classes=3, seed=0):
    """Points that are centred, with a class each."""
    random = np.random.default_rng(seed)
    codes = np.arange(n_points) % n_classes
    points = random.normal(size=(n_points, n_features))
    points[:, 0] += codes
    return points - points.mean(axis=0), codes
