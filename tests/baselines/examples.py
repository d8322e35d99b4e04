"""A small cohort."""

import numpy as np

import groundmetric as gm


def cohort(n_distributions=9, n_points=8, n_features=4, n_classes=3, seed=0, **options):
    """Gaussian points; the class shifts the first feature, every distribution is shifted along the others."""
    random = np.random.default_rng(seed)
    labels = np.arange(n_distributions) % n_classes
    centres = random.normal(size=(n_distributions, n_features))
    centres[:, 0] = 3.0 * labels
    owner = np.repeat(np.arange(n_distributions), n_points)
    points = 5.0 + centres[owner] + 0.5 * random.normal(size=(owner.size, n_features))
    return gm.Distributions(points, owner, **options), labels
