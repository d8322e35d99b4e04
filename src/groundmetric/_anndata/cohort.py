"""Cells of an .h5ad file as Distributions with a label, and where there is one an outer group, for each sample."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._internal.validation import ParameterError
from ..distributions import Distributions
from .annotations import (  # fmt: skip
    Samples,
    check_classes,
    check_draw,
    default_rule,
    draw,
    groups_of,
    labels_of,
    resolve,
    samples_of,
)
from .scale import Moments, moments, warn_of_counts
from .source import Source, read

# Rules by which genes are chosen from the training samples of every split, rather than once.
INSIDE = ("variance",)


class Labelled(NamedTuple):
    """What an evaluation needs; `rule` is how features are to be chosen inside each split, or None where all count."""

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
        samples = samples_of(source.obs, sample_key)
        labels = labels_of(source.obs, label_key, samples, sample_key)
        if not ordered:
            check_classes(labels, label_key, ": methods are compared on classes; make them some, e.g. with pandas.cut")
        groups = None if group_key is None else groups_of(source.obs, group_key, samples, sample_key)
        rows = draw(samples, n_cells, random_state)
        usable, notes = _usable_samples(samples, labels, min_cells, sample_key, label_key)
        rows = rows[usable[samples.codes[rows]]]
        matrix, names, columns, rule, more = _features(source, layer, use_rep, genes)
        points = read(matrix, rows, columns)
    if use_rep is None:
        found = moments(points, np.arange(points.shape[0]))
        warn_of_counts(found.looks_raw, layer, stacklevel=3)
        if genes is None:
            rule, more = _default(found)
    D = Distributions(points, samples.names[samples.codes[rows]], features=names)
    of = None if groups is None else [groups[name] for name in D.names]
    return Labelled(D, labels.loc[D.names].to_numpy(), of, rule, notes + more)


def _default(found: Moments) -> tuple[str | None, list[str]]:
    """The rule to apply in each split where none is asked for, and what should be known."""
    rule, reason = default_rule(found)
    n_features = found.mean.size
    if rule == "all":
        return None, [f"all {n_features:,} features are used: {reason}"]
    kept = int(np.count_nonzero(found.variance > found.variance.mean()))
    return rule, [
        f"features are chosen by their variance, {reason}; of all samples {kept:,} of {n_features:,} would be"
    ]


def _usable_samples(
    samples: Samples, labels: pd.Series, min_cells: int, sample_key: str, label_key: str
) -> tuple[np.ndarray, list[str]]:
    """Which samples have a label and enough cells, and notes on the others."""
    labelled, large = np.isin(samples.names, labels.index), samples.sizes >= min_cells
    notes = []
    if not labelled.all():
        notes.append(
            f"{int((~labelled).sum())} of {len(samples)} samples have no label in {label_key!r} and are left out"
        )
    if not large[labelled].all():
        notes.append(f"{int((~large & labelled).sum())} samples have fewer than {min_cells} cells and are left out")
    usable = labelled & large
    classes = labels.reindex(samples.names[usable]).unique()
    if classes.size < 2:
        raise ValueError(
            f"{int(usable.sum())} samples of {sample_key!r} can be used, with the labels {classes.tolist()} of "
            f"{label_key!r}: at least two labels are needed"
        )
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
    return usable, notes


def _features(
    source: Source, layer: str | None, use_rep: str | None, genes: Any
) -> tuple[Any, list[str], np.ndarray | None, Any, list[str]]:
    """The matrix, names and positions of its columns, the rule to apply in each split, and what should be known."""
    if use_rep is not None:
        if layer is not None or genes is not None:
            raise ParameterError("use_rep", use_rep, ": then there is no choice of layer or genes, leave them out")
        matrix = source.representation(use_rep)
        note = f"{use_rep!r} was made from all cells, those of the tested samples among them"
        return matrix, [f"{use_rep}_{k}" for k in range(matrix.shape[1])], None, None, [note]
    matrix, names = source.matrix(layer), list(source.genes)
    rule = genes
    if rule is None or rule in INSIDE or isinstance(rule, int):
        return matrix, names, None, rule, []
    mask = resolve(rule, source).mask
    assert mask is not None  # of a rule that is no choice inside splits
    chosen = np.flatnonzero(mask)
    if not chosen.size:
        raise ParameterError("genes", rule, ", which marks none: choose another rule")
    chosen_before = [] if rule == "all" else [f"genes were chosen beforehand (var[{rule!r}]), perhaps from all samples"]
    return matrix, [names[column] for column in chosen], chosen, None, chosen_before
