"""What figures read from an AnnData: colours, positions, names of genes, importances, samples with their distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._internal.validation import NameIndex, align_by_name
from ..metrics.base import GroundMetric
from .style import Classes, Numbers, Palette, name_classes


def is_anndata(source: Any) -> bool:
    """Whether it has the parts of AnnData; the package itself is not needed for a figure."""
    return all(hasattr(source, part) for part in ("obs", "var", "obsm", "uns"))


def metric_of(source: Any, key: str = "groundmetric") -> GroundMetric:
    """A ground metric, that of a learner, or that of an AnnData after `tl.learn`."""
    if is_anndata(source):
        from .. import get  # needs anndata, which other sources do not

        entry(source, "uns", key)
        return get.metric(source, key=key)
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


def learned_entry(adata: Any, key: str) -> Mapping[str, Any]:
    """What `tl.learn` or `tl.samples` has left in `uns`; empty where neither was run."""
    found = adata.uns.get(key)
    return found if isinstance(found, Mapping) else {}


def learned_label(adata: Any, key: str) -> str | None:
    """The column of labels that was learned from, where it is known and there."""
    name = learned_entry(adata, key).get("params", {}).get("label_key")
    return None if name is None or str(name) not in adata.obs else str(name)


def colouring(adata: Any, color: Any, palette: Palette = None, first: int = 0) -> Classes | Numbers:
    """A column of `obs`, as classes or numbers, or the values of a gene.

    Classes have the colours that scanpy keeps in `uns["<color>_colors"]`, unless there is a palette.
    """
    if not isinstance(color, str) or not color:
        raise ValueError(
            f"color is missing: name a column of adata.obs, which has {list(adata.obs.columns)}, or a gene"
        )
    if color not in adata.obs and color in adata.var_names:
        values = adata[:, [adata.var_names.tolist().index(color)]].X
        return Numbers(np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=float).ravel())
    column = entry(adata, "obs", color)
    if getattr(column, "cat", None) is not None:
        values, codes = column.cat.categories.tolist(), column.cat.codes.to_numpy()
    elif column.dtype.kind in "iuf":
        return Numbers(column.astype(float).to_numpy())
    else:
        codes = np.full(len(column), -1)
        known = ~column.isna().to_numpy()
        found, codes[known] = np.unique(column.to_numpy()[known].astype(str), return_inverse=True)
        values = found.tolist()
    if palette is None and len(adata.uns.get(f"{color}_colors", ())) >= len(values):
        palette = [str(colour) for colour in adata.uns[f"{color}_colors"]]
    return name_classes(values, codes, palette, first)


def labels(adata: Any, color: Any, palette: Palette = None, first: int = 0) -> Classes:
    """A column of `obs` as classes."""
    found = colouring(adata, color, palette, first)
    if isinstance(found, Numbers):
        raise ValueError(f"adata.obs[{color!r}] holds numbers, but classes are needed: make it categorical")
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


def feature_names(metric: GroundMetric) -> list[str]:
    return metric.features or [f"feature {k}" for k in range(metric.n_features)]


def two_features(names: list[str], features: Sequence[str | int]) -> tuple[int, int]:
    """Positions of two features that are given by name or number."""
    if isinstance(features, str) or len(features) != 2:
        raise ValueError(f"features is {features!r}: expected two of them, by name or number")
    for feature in features:
        if feature not in names if isinstance(feature, str) else not 0 <= feature < len(names):
            raise ValueError(f"features holds {feature!r}: there are {len(names)} features, e.g. {names[:3]}")
    first, second = (names.index(one) if isinstance(one, str) else int(one) for one in features)
    return first, second


class Shares(NamedTuple):
    """Importance of each feature of a metric, the features' names, and the ends of intervals or None."""

    values: np.ndarray
    names: list[str]
    ends: np.ndarray | None


def shares_of(source: Any, intervals: Any, gene_symbols: str | None, key: str) -> Shares:
    """Importances, from a metric, a learner, a mapping or `var`: of the features of the metric, and no others."""
    if is_anndata(source):
        return _shares_of_genes(source, intervals, gene_symbols, key)
    if hasattr(source, "items") and not isinstance(source, GroundMetric):
        found = dict(source.items())
        values, names = np.array(list(found.values()), dtype=float), [str(name) for name in found]
    else:
        metric = metric_of(source)
        values, names = metric.importance(), feature_names(metric)
    return Shares(values, names, None if intervals is None or intervals is False else _ends(intervals, names))


def _shares_of_genes(adata: Any, intervals: Any, gene_symbols: str | None, key: str) -> Shares:
    column = f"{key}_importance"
    if column not in adata.var and "metric" in learned_entry(adata, key):  # learned on an entry of obsm
        return shares_of(metric_of(adata, key), intervals, None, key)
    values, names = np.asarray(entry(adata, "var", column), dtype=float), gene_names(adata, gene_symbols)
    learned = _learned_genes(adata, key)
    ends = None
    own = (f"{column}_low", f"{column}_high")  # of the members of an ensemble
    if intervals is None and all(name in adata.var for name in own):
        intervals = own
    if intervals is not None and intervals is not False:
        if all(isinstance(name, str) for name in intervals):
            intervals = [entry(adata, "var", name) for name in intervals]
        ends = _ends(intervals, list(adata.var_names))[:, learned]
    return Shares(values[learned], [names[k] for k in learned], ends)


def _learned_genes(adata: Any, key: str) -> np.ndarray:
    """Positions of the genes that the metric was learned from; all where `uns` does not say."""
    features = learned_entry(adata, key).get("metric", {}).get("features")
    if features is None:
        return np.arange(adata.n_vars)
    return np.flatnonzero(adata.var_names.isin([str(name) for name in features]))


def _ends(intervals: Any, names: list[str]) -> np.ndarray:
    """Return lower and upper ends, (2, n_features), matched to the features by name where they carry names."""
    name_index, size = NameIndex(names, None, items="features"), len(names)
    if hasattr(intervals, "columns"):  # a data frame with a column for each feature
        intervals = align_by_name(intervals.T, name_index, "intervals").T
    elif not isinstance(intervals, np.ndarray):
        intervals = [align_by_name(end, name_index, "intervals") for end in intervals]
    ends = np.asarray(intervals, dtype=float)
    if ends.shape != (2, size):
        raise ValueError(f"intervals have shape {ends.shape}: expected lower and upper ends of {size}, (2, {size})")
    return ends


def gene_names(adata: Any, gene_symbols: str | None) -> list[str]:
    """Names of the genes: the index of `var`, or a column of it."""
    names = adata.var_names if gene_symbols is None else entry(adata, "var", gene_symbols)
    return [str(name) for name in names]


def as_samples(adata: Any, key: str) -> Any:
    """An AnnData with a row per sample: as given, or from what an ensemble has kept of its training samples."""
    if f"X_{key}" not in adata.obsm or f"{key}_distances" in adata.obsp:
        return adata
    found = learned_entry(adata, key)
    if "ensemble" not in found:
        raise ValueError(
            "adata has a row per cell, and no distances between samples were kept: draw gm.tl.samples(adata)"
        )
    import anndata as ad  # not needed where samples are given
    import pandas as pd

    kept, label = found["ensemble"], str(found["params"]["label_key"])
    names = [str(name) for name in kept["samples"]]
    columns = {label: pd.Series(kept["labels"], names), f"{key}_held_out": pd.Series(kept["predicted"], names)}
    categories = getattr(getattr(adata.obs.get(label), "cat", None), "categories", None)
    if categories is not None and not pd.api.types.is_numeric_dtype(columns[label]):
        columns = {name: column.astype(pd.CategoricalDtype(categories.astype(str))) for name, column in columns.items()}
    colours = {name: adata.uns[name] for name in (f"{label}_colors",) if name in adata.uns}
    return ad.AnnData(
        obs=pd.DataFrame(columns, index=names),
        obsp={f"{key}_distances": np.asarray(kept["out_of_bag"])},
        uns={key: {"params": {"label_key": label}, "out_of_bag": True}, **colours},
    )


def distances_of(samples: Any, key: str, obsp: str | None) -> tuple[np.ndarray, str]:
    """Return distances between samples, and their name for axes and colour bars."""
    if obsp is None:
        obsp = f"{key}_distances"
    elif obsp not in samples.obsp and f"{key}_{obsp}" in samples.obsp:
        obsp = f"{key}_{obsp}"
    out_of_bag = obsp == f"{key}_distances" and samples.uns.get(key, {}).get("out_of_bag", False)
    name = "out-of-bag distance" if out_of_bag else "distance"
    return np.asarray(entry(samples, "obsp", obsp)), name
