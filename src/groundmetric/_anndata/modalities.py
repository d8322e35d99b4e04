"""Cells of a MuData: the modalities as Distributions of the same samples, and cells that are drawn from all alike."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._internal.validation import ParameterError, need
from ..distributions import Distributions
from ..modalities import CELL
from .annotations import Samples, check_draw, resolve, samples_of
from .scale import moments, warn_of_counts
from .source import Source, listed, read


def read_modalities(
    mdata: Any,
    sample_key: str,
    *,
    modalities: Sequence[str] | None,
    layer: Mapping[str, str] | None,
    use_rep: Mapping[str, str] | None,
    genes: Mapping[str, Any] | None,
    n_cells: int | None,
    random_state: int,
) -> dict[str, Distributions]:
    """Distributions by modality; see `Modalities.from_mudata`."""
    check_draw(n_cells, random_state)
    mdata = _opened(mdata)
    parts = _parts(mdata, modalities)
    for argument, given in (("layer", layer), ("use_rep", use_rep), ("genes", genes)):
        _check_by_modality(argument, given, parts)
    samples = {name: _samples(adata, name, sample_key, mdata) for name, adata in parts.items()}
    order = _random_order(parts, random_state)
    return {
        name: _read(
            adata,
            samples[name],
            _drawn(adata, samples[name], n_cells, order),
            (layer or {}).get(name),
            (use_rep or {}).get(name),
            (genes or {}).get(name),
        )
        for name, adata in parts.items()
    }


def _opened(mdata: Any) -> Any:
    if not isinstance(mdata, str | os.PathLike):
        return mdata
    need("mudata", "reading .h5mu files", extra="mudata")
    import mudata

    return mudata.read_h5mu(mdata)


def _parts(mdata: Any, modalities: Sequence[str] | None) -> dict[str, Any]:
    """The AnnData of the wanted modalities."""
    parts = mdata if isinstance(mdata, Mapping) else getattr(mdata, "mod", None)
    if not isinstance(parts, Mapping) or not parts:
        raise TypeError(
            f"mdata is a {type(mdata).__name__}: expected a MuData, the path of one, or AnnData by modality"
        )
    if isinstance(modalities, str):
        raise ParameterError("modalities", modalities, f": expected a list, [{modalities!r}]")
    for name in modalities or ():
        if name not in parts:
            raise ParameterError("modalities", name, f", which there is none of: {listed(name, parts)}")
    found = {name: parts[name] for name in (parts if modalities is None else modalities)}
    for name, adata in found.items():
        if not adata.obs_names.is_unique:
            raise ValueError(f"cells of modality {name!r} have names that repeat: run obs_names_make_unique() first")
    return found


def _check_by_modality(argument: str, given: Any, parts: Mapping[str, Any]) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise ParameterError(argument, given, f": expected a dict by modality, {{{next(iter(parts))!r}: {given!r}}}")
    for name in given:
        if name not in parts:
            raise ParameterError(argument, name, f", which is no modality: {listed(name, parts)}")


def _samples(adata: Any, modality: str, sample_key: str, mdata: Any) -> Samples:
    """The sample of each cell of a modality, from its own `obs` or from that of all."""
    if sample_key in adata.obs.columns:
        return samples_of(adata.obs, sample_key)
    common = getattr(mdata, "obs", pd.DataFrame())
    if sample_key not in common.columns:
        known = [*adata.obs.columns, *(column for column in common.columns if ":" not in str(column))]
        raise ParameterError(
            "sample_key", sample_key, f", but neither obs of modality {modality!r} nor that of all has such a column: "
            f"{listed(sample_key, dict.fromkeys(known))}",
        )  # fmt: skip
    return samples_of(common.loc[adata.obs_names, [sample_key]], sample_key)


def _random_order(parts: Mapping[str, Any], seed: int) -> pd.Series:
    """A random number for every cell, the same in all modalities."""
    names = pd.Index(sorted(set().union(*(adata.obs_names for adata in parts.values()))))
    return pd.Series(np.random.default_rng(seed).permutation(len(names)), index=names)


def _drawn(adata: Any, samples: Samples, n_cells: int | None, order: pd.Series) -> np.ndarray:
    """Rows of at most so many cells of each sample: the first in the random order."""
    if n_cells is None:
        return np.arange(samples.codes.size)
    rank = order.loc[adata.obs_names].to_numpy()
    by_sample = np.lexsort((rank, samples.codes))
    first = np.concatenate([[0], np.cumsum(samples.sizes)])[samples.codes[by_sample]]
    return np.sort(by_sample[np.arange(by_sample.size) - first < n_cells])


def _read(
    adata: Any, samples: Samples, rows: np.ndarray, layer: str | None, use_rep: str | None, genes: Any
) -> Distributions:
    with Source(adata) as source:
        if use_rep is not None:
            if layer is not None or genes is not None:
                raise ParameterError("use_rep", use_rep, ": then there is no choice of layer or genes, leave them out")
            points = read(source.representation(use_rep), rows)
            features = [f"{use_rep}_{k}" for k in range(points.shape[1])]
        else:
            matrix = source.matrix(layer)
            columns = resolve(genes, source).choose(matrix, rows, source.genes).places
            points = read(matrix, rows, columns)
            features = list(source.genes[columns])
            warn_of_counts(moments(points, np.arange(rows.size)).looks_raw, layer, stacklevel=5)
    cells = adata.obs_names.to_numpy()[rows]
    return Distributions(points, samples.names[samples.codes[rows]], features=features, annotations={CELL: cells})
