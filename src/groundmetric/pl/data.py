"""What figures read: labels, places and distances of an AnnData, and places in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from ..metrics.base import GroundMetric
from .style import Classes, Numbers, Palette, name_classes

ONE_AXIS = 0.95  # share of the variance at which the first principal axis is shown alone


def embed(distances: np.ndarray, n_components: int = 2) -> np.ndarray:
    """Places whose distances are close to those given: classical multidimensional scaling.

    >>> embed(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]), 1).round(3).ravel().tolist()
    [-1.333, -0.333, 1.667]
    """
    squares = np.asarray(distances, dtype=np.float64) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.25 * (centred + centred.T))
    last = slice(None, -n_components - 1, -1)
    places = with_sign(vectors[:, last]) * np.sqrt(np.maximum(values[last], 0.0))
    return np.pad(places, ((0, 0), (0, n_components - places.shape[1])))


def arrange(distances: np.ndarray, y: Any) -> np.ndarray:
    """An order that keeps each class together, and within it near ones beside each other (average linkage).

    >>> arrange(np.abs(np.subtract.outer([0, 9, 1, 8], [0, 9, 1, 8])), ["a", "b", "a", "b"]).tolist()
    [0, 2, 3, 1]
    """
    distances = np.asarray(distances)
    codes = np.unique(np.asarray(y), return_inverse=True)[1]
    order: list[np.ndarray] = []
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        if members.size > 2:
            members = members[leaves_list(tree(distances[np.ix_(members, members)]))]
        # A tree has no direction: begin at the end that is nearer to where the first class began.
        start = order[0][0] if order else members[0]
        order.append(members[:: -1 if distances[start, members[-1]] < distances[start, members[0]] else 1])
    return np.concatenate(order)


def tree(distances: np.ndarray) -> np.ndarray:
    """Average linkage, with near leaves beside each other (for many leaves, that would take too long)."""
    condensed = squareform(np.asarray(distances), checks=False)
    return linkage(condensed, "average", optimal_ordering=len(distances) <= 300)


def principal_axes(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points turned onto their principal axes, and each axis's share of the variance."""
    z = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z)
    values, vectors = np.maximum(values[::-1], 0.0), with_sign(vectors[:, ::-1])
    return z @ vectors, values / (values.sum() or 1.0)


def with_sign(vectors: np.ndarray) -> np.ndarray:
    """Columns with their largest entry positive: an eigenvector's sign is arbitrary, a figure should not be."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)


def is_anndata(source: Any) -> bool:
    """Whether it has the parts of AnnData; the package itself is not needed for a figure."""
    return all(hasattr(source, part) for part in ("obs", "var", "obsm", "uns"))


def metric_of(source: Any) -> GroundMetric:
    """A ground metric, or that of a learner."""
    metric = getattr(source, "metric_", source)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"expected a GroundMetric, a fitted learner or AnnData, not {type(source).__name__}")
    return metric


def entry(adata: Any, part: str, key: str) -> Any:
    """`adata.<part>[key]`, or an error that says what there is."""
    table = getattr(adata, part)
    if key not in table:
        raise ValueError(f"adata.{part} has no {key!r}: it has {sorted(map(str, table.keys()))}")
    return table[key]


def colouring(adata: Any, key: str | None, palette: Palette = None, first: int = 0) -> Classes | Numbers:
    """A column of `obs`, as classes or numbers, or the values of a gene.

    Classes have the colours that scanpy keeps in `uns["<key>_colors"]`, unless there is a palette.
    """
    if key is None:
        raise ValueError(
            f"color is missing: name a column of adata.obs, which has {list(adata.obs.columns)}, or a gene"
        )
    if key not in adata.obs and key in adata.var_names:
        return Numbers(np.asarray(adata.obs_vector(key), dtype=float))
    column = entry(adata, "obs", key)
    if getattr(column, "cat", None) is not None:
        values, codes = column.cat.categories.tolist(), column.cat.codes.to_numpy()
    elif column.dtype.kind in "iuf":
        return Numbers(column.astype(float).to_numpy())
    else:
        codes = np.full(len(column), -1)
        known = ~column.isna().to_numpy()
        found, codes[known] = np.unique(column.to_numpy()[known].astype(str), return_inverse=True)
        values = found.tolist()
    if palette is None and len(adata.uns.get(f"{key}_colors", ())) >= len(values):
        palette = [str(colour) for colour in adata.uns[f"{key}_colors"]]
    return name_classes(values, codes, palette, first)


def labels(adata: Any, key: str | None, palette: Palette = None, first: int = 0) -> Classes:
    """A column of `obs` as classes."""
    found = colouring(adata, key, palette, first)
    if isinstance(found, Numbers):
        raise ValueError(f"adata.obs[{key!r}] holds numbers, but classes are needed: make it categorical")
    return found


def basis_of(adata: Any, basis: str | None, defaults: tuple[str, ...]) -> str | None:
    """The key in `obsm` of a basis given as scanpy does ("umap" is "X_umap"), or the first default that is there."""
    if basis is None:
        return next((name for name in defaults if name in adata.obsm), None)
    full = f"X_{basis}"
    return full if basis not in adata.obsm and full in adata.obsm else basis


def axis_names(basis: str) -> tuple[str, str]:
    """Names of the two axes of a basis.

    >>> axis_names("X_umap"), axis_names("X_pca")
    (('UMAP 1', 'UMAP 2'), ('PCA 1', 'PCA 2'))
    """
    name = basis.removeprefix("X_")
    name = {"tsne": "t-SNE", "groundmetric": "learned axis"}.get(name, name.upper() if len(name) <= 4 else name)
    return f"{name} 1", f"{name} 2"


def gene_names(adata: Any, gene_symbols: str | None) -> list[str]:
    """Names of the genes: the index of `var`, or a column of it."""
    names = adata.var_names if gene_symbols is None else entry(adata, "var", gene_symbols)
    return [str(name) for name in names]
