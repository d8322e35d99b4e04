"""Cells as Distributions: a labelled cohort for an evaluation, and the modalities of a MuData."""

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
from .annotations import Annotations, Features, cell_types_of, check_classes, check_draw, default_rule, draw, samples_of
from .source import Source, list_names, moments, read, warn_of_counts

CELL_TYPE = "cell_type"


class Labelled(NamedTuple):
    """A cohort for an evaluation; `rule` selects features within each split (None: all features)."""

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
    cell_type_key: str | None = None,
    random_state: int = 0,
) -> Labelled:
    """Read the samples that have a label and at least `min_cells` cells, with at most `n_cells` random cells each.

    `genes` is a rule applied within each split ("variance", or a number of the most variable genes), "all", or a column
    of `var`. None: "variance" for genes, "all" otherwise. With `ordered`, labels may be numbers. Cell types,
    from the column `cell_type_key` or "cell_type" if it exists, become the annotation `CELL_TYPE` of the cells.
    """
    check_draw(n_cells, random_state)
    notes = []
    with Source(cells) as source:
        annotations = Annotations.read(source.obs, sample_key, label_key, group_key=group_key)
        samples, labels, groups = annotations.samples, annotations.labels, annotations.groups
        if not ordered:
            check_classes(labels, label_key, ": an evaluation needs classes; bin the numbers, e.g. with pandas.cut")
        labelled, large = np.isin(samples.names, labels.index), samples.sizes >= min_cells
        if not labelled.all():
            notes.append(f"samples without a label in {label_key!r}: {(~labelled).sum()} of {len(samples)}, excluded")
        if not large[labelled].all():
            notes.append(f"samples with fewer than {min_cells} cells: {(~large & labelled).sum()}, excluded")
        usable = samples.names[labelled & large]
        classes = labels.reindex(usable).unique()
        if classes.size < 2:
            raise ValueError(
                f"{usable.size} samples of {sample_key!r} are usable, with the labels {classes.tolist()} of "
                f"{label_key!r}: at least two labels are needed"
            )
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        rows = draw(samples, n_cells, random_state)
        rows = rows[samples.contains(usable, rows)]
        types = {}
        if cell_type_key is not None or CELL_TYPE in source.obs.columns:
            types[CELL_TYPE] = cell_types_of(source.obs, cell_type_key or CELL_TYPE)[rows]
        features = Features.read(source, layer, use_rep, genes)
        rule, columns = genes, None
        if use_rep is not None:
            notes.append(f"{use_rep!r} was computed from all cells, including those of test samples")
        elif not (genes is None or genes == "variance" or isinstance(genes, int)):
            rule, columns = None, features.select(rows).columns
            if genes != "all":
                notes.append(f"genes were selected beforehand (var[{genes!r}]), possibly from all samples")
        points = read(features.matrix, rows, columns)
    if use_rep is None:
        statistics = moments(points, np.arange(points.shape[0]))
        warn_of_counts(statistics.looks_raw, layer, stacklevel=3)
        if genes is None:
            rule, reason = default_rule(statistics)
            n_features = statistics.mean.size
            if rule == "all":
                rule = None
                notes.append(f"all {n_features:,} features are used: {reason}")
            else:
                n_selected = int(np.count_nonzero(statistics.variance > statistics.variance.mean()))
                notes.append(
                    f"features are selected by their variance, {reason}; all samples together select {n_selected:,} of "
                    f"{n_features:,}"
                )
    names = list(features.names if columns is None else features.names[columns])
    D = Distributions(points, samples.names[samples.codes[rows]], features=names, annotations=types)
    groups_of_samples = None if groups is None else [groups[name] for name in D.names]
    return Labelled(D, labels.loc[D.names].to_numpy(), groups_of_samples, rule, notes)


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
    """Return Distributions by modality; see `Modalities.from_mudata`."""
    check_draw(n_cells, random_state)
    if isinstance(mdata, str | os.PathLike):
        need("mudata", "reading .h5mu files", extra="mudata")
        import mudata

        mdata = mudata.read_h5mu(mdata)
    parts = mdata if isinstance(mdata, Mapping) else getattr(mdata, "mod", None)
    if not isinstance(parts, Mapping) or not parts:
        raise TypeError(f"mdata is a {type(mdata).__name__}: expected a MuData, its path, or a dict of AnnData")
    if isinstance(modalities, str):
        raise ParameterError("modalities", modalities, f": expected a list, [{modalities!r}]")
    for name in modalities or ():
        if name not in parts:
            raise ParameterError("modalities", name, f", which does not exist: {list_names(name, parts)}")
    parts = {name: parts[name] for name in (parts if modalities is None else modalities)}
    for argument, mapping in (("layer", layer), ("use_rep", use_rep), ("genes", genes)):
        if not isinstance(mapping, Mapping | None):
            example = {next(iter(parts)): mapping}
            raise ParameterError(argument, mapping, f": expected a dict by modality, {example!r}")
        for name in mapping or ():
            if name not in parts:
                raise ParameterError(argument, name, f", which is not a modality: {list_names(name, parts)}")
    for name, adata in parts.items():
        if not adata.obs_names.is_unique:
            raise ValueError(f"cells of modality {name!r} have repeated names: run obs_names_make_unique() first")
    # One random rank per cell name: modalities measured in the same cells draw the same cells.
    cells = pd.Index(sorted(set().union(*(adata.obs_names for adata in parts.values()))))
    ranks = pd.Series(np.random.default_rng(random_state).permutation(len(cells)), index=cells)
    distributions = {}
    for name, adata in parts.items():
        samples = samples_of(_obs_with(adata, name, sample_key, mdata), sample_key)
        rows = np.arange(samples.codes.size)
        if n_cells is not None:
            rank = ranks.loc[adata.obs_names].to_numpy()
            rows = np.sort(np.concatenate([cells[np.argsort(rank[cells])[:n_cells]] for cells in samples.rows]))
        options = {
            key: (mapping or {}).get(name)
            for key, mapping in (("layer", layer), ("use_rep", use_rep), ("genes", genes))
        }
        with Source(adata) as source:
            features = Features.read(source, **options)
            columns = features.select(rows).columns
            points = read(features.matrix, rows, columns)
        if options["use_rep"] is None:
            warn_of_counts(moments(points, np.arange(rows.size)).looks_raw, options["layer"], stacklevel=4)
        distributions[name] = Distributions(
            points, samples.names[samples.codes[rows]], features=list(features.names[columns]),
            annotations={CELL: adata.obs_names.to_numpy()[rows]},
        )  # fmt: skip
    return distributions


def _obs_with(adata: Any, modality: str, sample_key: str, mdata: Any) -> pd.DataFrame:
    """Return the `obs` of a modality, or of the MuData if only that has the column of samples."""
    if sample_key in adata.obs.columns:
        return adata.obs
    common = getattr(mdata, "obs", pd.DataFrame())
    if sample_key not in common.columns:
        names = [*adata.obs.columns, *(column for column in common.columns if ":" not in str(column))]
        raise ParameterError(
            "sample_key", sample_key, f", but neither obs of modality {modality!r} nor that of the MuData has such a "
            f"column: {list_names(sample_key, dict.fromkeys(names))}",
        )  # fmt: skip
    return common.loc[adata.obs_names, [sample_key]]
