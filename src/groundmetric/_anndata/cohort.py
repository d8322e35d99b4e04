"""Cells of files as Distributions: a labelled cohort of an .h5ad file, and the modalities of a MuData."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._internal.validation import ParameterError, need
from ..distributions import Distributions
from ..modalities import CELL
from .annotations import Annotations, Samples, Values, check_classes, check_draw, default_rule, draw, samples_of
from .source import Source, listed, moments, read, warn_of_counts

# Rules by which genes are chosen from the training samples of every split, rather than once.
INSIDE = ("variance",)


class Labelled(NamedTuple):
    """A cohort for an evaluation; `rule` is how features are to be chosen inside each split, or None for all."""

    D: Distributions
    y: np.ndarray
    groups: list[Hashable] | None
    rule: Any
    notes: list[str]


def read_cohort(
    cells: Any,
    sample_key: str,
    label_key: str,
    *,
    group_key: str | None = None,
    layer: str | None = None,
    use_rep: str | None = None,
    genes: Any = None,
    n_cells: int | None = 1000,
    min_cells: int = 1,
    ordered: bool = False,
    random_state: int = 0,
) -> Labelled:
    """Samples that have a label, at least `min_cells` cells, and of these at most `n_cells`, drawn at random.

    `genes` is "variance" or a number (of the most variable): chosen inside each split, so that nothing is cut here;
    "all"; or a column of `var` that marks them, which is taken as it is. None: "variance" for genes, "all" otherwise.
    Labels are classes, or with `ordered` numbers as well.
    """
    check_draw(n_cells, random_state)
    with Source(cells) as source:
        annotations = Annotations.read(source.obs, sample_key, label_key, group_key=group_key)
        samples, labels, groups = annotations.samples, annotations.labels, annotations.groups
        if not ordered:
            check_classes(labels, label_key, ": methods are compared on classes; make them some, e.g. with pandas.cut")
        usable, notes = _usable_samples(samples, labels, min_cells, sample_key, label_key)
        rows = draw(samples, n_cells, random_state)
        rows = rows[samples.cells_of(usable, rows)]
        values = Values.of(source, layer, use_rep, genes)
        rule, columns = genes, None
        if use_rep is not None:
            notes.append(f"{use_rep!r} was made from all cells, those of the tested samples among them")
        elif not (genes is None or genes in INSIDE or isinstance(genes, int)):
            rule, columns = None, values.selection(genes, source).choose(values.matrix, rows, values.names).places
            if genes != "all":
                notes.append(f"genes were chosen beforehand (var[{genes!r}]), perhaps from all samples")
        points = read(values.matrix, rows, columns)
    if use_rep is None:
        found = moments(points, np.arange(points.shape[0]))
        warn_of_counts(found.looks_raw, layer, stacklevel=3)
        if genes is None:
            rule, reason = default_rule(found)
            n_features = found.mean.size
            if rule == "all":
                rule = None
                notes.append(f"all {n_features:,} features are used: {reason}")
            else:
                kept = int(np.count_nonzero(found.variance > found.variance.mean()))
                notes.append(
                    f"features are chosen by their variance, {reason}; of all samples {kept:,} of {n_features:,} would "
                    "be"
                )
    names = list(values.names if columns is None else values.names[columns])
    D = Distributions(points, samples.names[samples.codes[rows]], features=names)
    of = None if groups is None else [groups[name] for name in D.names]
    return Labelled(D, labels.loc[D.names].to_numpy(), of, rule, notes)


def _usable_samples(
    samples: Samples, labels: pd.Series, min_cells: int, sample_key: str, label_key: str
) -> tuple[np.ndarray, list[str]]:
    """Names of the samples that have a label and enough cells, and notes on the others."""
    labelled, large = np.isin(samples.names, labels.index), samples.sizes >= min_cells
    notes = []
    if not labelled.all():
        notes.append(
            f"{int((~labelled).sum())} of {len(samples)} samples have no label in {label_key!r} and are left out"
        )
    if not large[labelled].all():
        notes.append(f"{int((~large & labelled).sum())} samples have fewer than {min_cells} cells and are left out")
    usable = samples.names[labelled & large]
    classes = labels.reindex(usable).unique()
    if classes.size < 2:
        raise ValueError(
            f"{usable.size} samples of {sample_key!r} can be used, with the labels {classes.tolist()} of "
            f"{label_key!r}: at least two labels are needed"
        )
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
    return usable, notes


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
    if isinstance(mdata, str | os.PathLike):
        need("mudata", "reading .h5mu files", extra="mudata")
        import mudata

        mdata = mudata.read_h5mu(mdata)
    parts = _modalities_of(mdata, modalities)
    for argument, given in (("layer", layer), ("use_rep", use_rep), ("genes", genes)):
        if not isinstance(given, Mapping | None):
            expected = f": expected a dict by modality, {{{next(iter(parts))!r}: {given!r}}}"
            raise ParameterError(argument, given, expected)
        for name in given or ():
            if name not in parts:
                raise ParameterError(argument, name, f", which is not a modality: {listed(name, parts)}")
    # A random number for every cell, so that modalities of the same cells draw the same ones.
    cells = pd.Index(sorted(set().union(*(adata.obs_names for adata in parts.values()))))
    order = pd.Series(np.random.default_rng(random_state).permutation(len(cells)), index=cells)
    distributions = {}
    for name, adata in parts.items():
        samples = samples_of(_obs_with(adata, name, sample_key, mdata), sample_key)
        rows = np.arange(samples.codes.size)
        if n_cells is not None:
            rank = order.loc[adata.obs_names].to_numpy()
            rows = np.sort(np.concatenate([cells[np.argsort(rank[cells])[:n_cells]] for cells in samples.rows]))
        options = [(given or {}).get(name) for given in (layer, use_rep, genes)]
        distributions[name] = _read_modality(adata, samples, rows, *options)
    return distributions


def _modalities_of(mdata: Any, modalities: Sequence[str] | None) -> dict[str, Any]:
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
            raise ParameterError("modalities", name, f", which does not exist: {listed(name, parts)}")
    wanted = {name: parts[name] for name in (parts if modalities is None else modalities)}
    for name, adata in wanted.items():
        if not adata.obs_names.is_unique:
            raise ValueError(f"cells of modality {name!r} have names that repeat: run obs_names_make_unique() first")
    return wanted


def _obs_with(adata: Any, modality: str, sample_key: str, mdata: Any) -> pd.DataFrame:
    """Annotations of a modality's cells that have the column of samples: its own `obs`, or that of all."""
    if sample_key in adata.obs.columns:
        return adata.obs
    common = getattr(mdata, "obs", pd.DataFrame())
    if sample_key not in common.columns:
        known = [*adata.obs.columns, *(column for column in common.columns if ":" not in str(column))]
        raise ParameterError(
            "sample_key", sample_key, f", but neither obs of modality {modality!r} nor that of all has such a column: "
            f"{listed(sample_key, dict.fromkeys(known))}",
        )  # fmt: skip
    return common.loc[adata.obs_names, [sample_key]]


def _read_modality(
    adata: Any, samples: Samples, rows: np.ndarray, layer: str | None, use_rep: str | None, genes: Any
) -> Distributions:
    with Source(adata) as source:
        values = Values.of(source, layer, use_rep, genes)
        columns = values.selection(genes, source).choose(values.matrix, rows, values.names).places
        points = read(values.matrix, rows, columns)
    if use_rep is None:
        warn_of_counts(moments(points, np.arange(rows.size)).looks_raw, layer, stacklevel=5)
    names, cells = samples.names[samples.codes[rows]], adata.obs_names.to_numpy()[rows]
    return Distributions(points, names, features=list(values.names[columns]), annotations={CELL: cells})
