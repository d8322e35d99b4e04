"""The data that the benchmarks run on, made on the spot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import groundmetric as gm

WORK = Path(__file__).resolve().parent / "work"


def modes_2000d(n_distributions: int = 40, n_points: int = 1000, n_features: int = 2000, seed: int = 0):
    """Two classes, ten shared Gaussian modes; one mode is shifted along five features in class two."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, n_features)) * 2.0
    shifted = centres.copy()
    shifted[0, :5] += 4.0
    y = np.arange(n_distributions) % 2
    points = np.empty((n_distributions * n_points, n_features))
    for d, label in enumerate(y):
        rows = slice(d * n_points, (d + 1) * n_points)
        points[rows] = (shifted if label else centres)[random.integers(0, 10, n_points)]
        for row in points[rows]:  # by and by, so that making them takes no more memory than having them
            row += random.normal(size=n_features)
    return gm.Distributions(points, np.repeat(np.arange(n_distributions), n_points)), y


def save_for_rival(name: str, D: gm.Distributions, y: np.ndarray) -> Path:
    """The file that rival_ggml_ot.py reads."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"{name}.npz"
    np.savez(path, points=D.points, groups=np.repeat(np.arange(len(D)), D.sizes), labels=y)
    return path
