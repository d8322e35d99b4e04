"""Reading of AnnData for figures: colours, positions, metrics, samples with their distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics.base import GroundMetric
from .style import Classes, Numbers, Palette, name_classes


def is_anndata(source: Any) -> bool:
    """Return whether an object has the parts of AnnData; the package itself is not needed for a figure."""
    return all(hasattr(source, part) for part in ("obs", "var", "obsm", "uns"))


def metric_of(source: Any, key: str = "groundmetric") -> GroundMetric:
    """Return a ground metric: as given, of a fitted learner, or of AnnData after `tl.learn`."""
    if is_anndata(source):
        from .. import get  # needs anndata

        entry(source, "uns", key)
        return get.metric(source, key=key)
    metric = getattr(source, "metric_", source)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"expected a GroundMetric, a fitted learner or AnnData, not {type(source).__name__}")
    return metric


def entry(adata: Any, part: str, key: str) -> Any:
    """Return `adata.<part>[key]`, or raise an error that lists the keys."""
    table = getattr(adata, part)
    if key not in table:
        raise ValueError(f"adata.{part} has no {key!r}: it has {sorted(map(str, table.keys()))}")
    return table[key]


def learned_entry(adata: Any, key: str) -> Mapping[str, Any]:
    """Return the results of `tl.learn` or `tl.samples` in `uns`; empty if neither was run."""
    results = adata.uns.get(key)
    return results if isinstance(results, Mapping) else {}


def learned_label(adata: Any, key: str) -> str | None:
    """Return the column of `obs` with the labels that were learned from, if `uns` names it and it is present."""
    name = learned_entry(adata, key).get("params", {}).get("label_key")
    return None if name is None or str(name) not in adata.obs else str(name)


def colourings(adata: Any, colors: Any, palette: Palette = None) -> dict[str, Classes | Numbers]:
    """Return the colouring of each of one or several columns of `obs` or genes, by name."""
    names = [colors] if isinstance(colors, str) or not colors else colors
    return {name: colouring(adata, name, palette) for name in names}


def colouring(adata: Any, color: Any, palette: Palette = None, first: int = 0) -> Classes | Numbers:
    """Return a column of `obs`, as classes or numbers, or the values of a gene.

    Classes have the colours that scanpy keeps in `uns["<color>_colors"]`, unless a palette is given.
    """
    if not isinstance(color, str) or not color:
        columns = list(adata.obs.columns)
        raise ValueError(f"color is missing: name a column of adata.obs, which has {columns}, or a gene")
    if color not in adata.obs and color in adata.var_names:
        values = adata[:, [adata.var_names.tolist().index(color)]].X
        return Numbers(np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=float).ravel())
    column = entry(adata, "obs", color)
    if getattr(column, "cat", None) is None:
        if column.dtype.kind in "iuf":
            return Numbers(column.astype(float).to_numpy())
        column = column.where(column.isna(), column.astype(str)).astype("category")
    categories = column.cat.categories.tolist()
    if palette is None and len(adata.uns.get(f"{color}_colors", ())) >= len(categories):
        palette = [str(colour) for colour in adata.uns[f"{color}_colors"]]
    return name_classes(categories, column.cat.codes.to_numpy(), palette, first)


def basis_of(adata: Any, basis: str | None, defaults: tuple[str, ...]) -> str | None:
    """Return the key in `obsm` of a basis as scanpy names it ("umap" is "X_umap"), or the first default present."""
    if basis is None:
        return next((name for name in defaults if name in adata.obsm), None)
    return f"X_{basis}" if basis not in adata.obsm and f"X_{basis}" in adata.obsm else basis


def axis_names(basis: str) -> tuple[str, str]:
    """Return the names of the two axes of a basis.

    >>> axis_names("X_umap"), axis_names("X_pca")
    (('UMAP 1', 'UMAP 2'), ('PCA 1', 'PCA 2'))
    """
    name = basis.removeprefix("X_")
    name = {"tsne": "t-SNE", "groundmetric": "learned axis"}.get(name, name.upper() if len(name) <= 4 else name)
    return f"{name} 1", f"{name} 2"


def feature_names(metric: GroundMetric) -> list[str]:
    return metric.features or [f"feature {k}" for k in range(metric.n_features)]


def two_features(names: list[str], features: Sequence[str | int]) -> list[int]:
    """Return the positions of two features that are given by name or number."""
    if isinstance(features, str) or len(features) != 2:
        raise ValueError(f"features is {features!r}: expected two of them, by name or number")
    for feature in features:
        if feature not in names if isinstance(feature, str) else not 0 <= feature < len(names):
            raise ValueError(f"features holds {feature!r}: there are {len(names)} features, e.g. {names[:3]}")
    return [names.index(feature) if isinstance(feature, str) else int(feature) for feature in features]


def check_samples(adata: Any, key: str) -> None:
    """Raise if AnnData has a row per cell."""
    if f"X_{key}" in adata.obsm and f"{key}_distances" not in adata.obsp:
        raise ValueError("adata has a row per cell: draw gm.tl.samples(adata), which has a row per sample")


def distances_of(samples: Any, key: str) -> tuple[np.ndarray, str]:
    """Return distances between samples, and their name for axes and colour bars."""
    out_of_bag = learned_entry(samples, key).get("out_of_bag", False)
    return np.asarray(entry(samples, "obsp", f"{key}_distances")), "out-of-bag distance" if out_of_bag else "distance"
