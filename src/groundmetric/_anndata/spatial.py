"""Cells in space: coordinates that do not depend on the slide, and what the neighbours of a cell are like."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from .annotations import Samples


def check_coordinates(coordinates: np.ndarray, spatial_key: str) -> np.ndarray:
    """Finite numbers in two or three dimensions."""
    found = np.asarray(coordinates, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] not in (2, 3):
        raise ValueError(f"obsm[{spatial_key!r}] has shape {found.shape}: expected two or three coordinates per cell")
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise ValueError(
            f"obsm[{spatial_key!r}] holds NaN or infinity for {bad.size} of {len(found)} cells, e.g. that at row "
            f"{bad[0]}: drop these cells"
        )
    return found


def _rows_by_sample(samples: Samples) -> list[np.ndarray]:
    return np.split(np.argsort(samples.codes, kind="stable"), np.cumsum(samples.sizes)[:-1])


def standardised_coordinates(coordinates: np.ndarray, samples: Samples, spatial_key: str) -> np.ndarray:
    """Coordinates from the centre of their sample, in units of the root mean square distance from it.

    So neither where a slide begins nor the unit of its coordinates matters; how it is turned does.

    >>> samples = Samples(np.array(["a"]), np.zeros(2, int))
    >>> standardised_coordinates(np.array([[100.0, 7.0], [300.0, 7.0]]), samples, "spatial").tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    found = np.empty_like(coordinates)
    for name, rows in zip(samples.names, _rows_by_sample(samples), strict=True):
        centred = coordinates[rows] - coordinates[rows].mean(axis=0)
        size = float(np.sqrt(np.mean(np.sum(centred**2, axis=1))))
        if rows.size > 1 and size <= 1e-12 * max(float(np.abs(coordinates[rows]).max()), 1e-300):
            raise ValueError(
                f"all {rows.size} cells of sample {str(name)!r} have the same place in obsm[{spatial_key!r}]: drop the "
                "sample, or give its coordinates"
            )
        found[rows] = centred / (size if rows.size > 1 else 1.0)
    return found


def neighborhood_means(values: np.ndarray, coordinates: np.ndarray, samples: Samples, n_neighbors: int) -> np.ndarray:
    """Mean values of the nearest other cells of the same sample; of a lone cell, its own.

    >>> samples = Samples(np.array(["a"]), np.zeros(3, int))
    >>> places = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    >>> neighborhood_means(np.array([[1.0], [2.0], [9.0]]), places, samples, 1).ravel().tolist()
    [2.0, 1.0, 2.0]
    """
    found = np.empty(values.shape)
    for rows in _rows_by_sample(samples):
        count = min(n_neighbors, rows.size - 1)
        if count == 0:
            found[rows] = values[rows]
            continue
        tree = cKDTree(coordinates[rows])
        _, nearest = tree.query(coordinates[rows], count + 1)
        # A cell is its own nearest, unless others are at the same place.
        own = nearest == np.arange(rows.size)[:, None]
        own[~own.any(axis=1), -1] = True
        others = nearest[~own].reshape(rows.size, count)
        steps = np.arange(0, others.size + 1, count)
        mean = sparse.csr_matrix((np.full(others.size, 1.0 / count), others.ravel(), steps), (rows.size, rows.size))
        found[rows] = mean @ values[rows]
    return found


def side_by_side(values: np.ndarray, space: np.ndarray, weight: float) -> np.ndarray:
    """Both in one table, so that space makes up the share `weight` of the mean squared distance between two cells."""
    return np.hstack([np.sqrt(1.0 - weight) * _of_unit_spread(values), np.sqrt(weight) * _of_unit_spread(space)])


def _of_unit_spread(values: np.ndarray) -> np.ndarray:
    return values / (float(np.sqrt(values.var(axis=0).sum())) or 1.0)
