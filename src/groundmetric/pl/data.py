"""What figures read from an AnnData: labels, colours, bases, names of genes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics.base import GroundMetric
from .style import Classes, Numbers, Palette, name_classes


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
