"""Which genes to learn from: by a rule that is applied to the training cells, or as given."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from .._internal.validation import Roll, aligned, need, refuse_mask
from .chunks import pieces, read
from .obs import find_column, listed
from .source import Source

# Where pp.select_genes puts its mask, and tl.learn looks for it.
SELECTED = "selected_genes"
RULES = ("variance", "highly_variable", "all")


@dataclass
class Moments:
    """Mean and variance of every gene over some cells."""

    mean: np.ndarray
    variance: np.ndarray
    looks_raw: bool  # all values that were seen are whole numbers


def moments(matrix: Any, rows: np.ndarray) -> Moments:
    """Mean and variance of every column over these rows, in one pass.

    Pieces are pooled by their deviations from their own means, so that no digits are lost where a mean is large.
    """
    n_columns = matrix.shape[1]
    count, mean, squares = np.zeros(n_columns), np.zeros(n_columns), np.zeros(n_columns)
    whole, anything = True, False
    for piece in pieces(matrix, rows):
        at = piece.columns
        with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite are named by whoever asked
            n, m, s = piece.values.shape[0], *_deviations(piece.values)
            total = count[at] + n
            step = m - mean[at]
            squares[at] += s + step**2 * count[at] * n / total
            mean[at] += step * n / total
            count[at] = total
        whole = whole and looks_raw(piece.values)
        anything = anything or bool(np.any(m != 0))
    return Moments(mean, squares / max(1, rows.size), whole and anything)


def _deviations(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every column and the sum of squared deviations from it."""
    n, n_columns = values.shape
    if not sparse.issparse(values):
        mean = values.mean(axis=0, dtype=np.float64)
        return mean, np.square(values - mean).sum(axis=0)
    coo = values.tocoo()
    column, data = coo.col, coo.data.astype(np.float64)
    mean = np.bincount(column, data, n_columns) / n
    zeros = n - np.bincount(column, minlength=n_columns)
    return mean, np.bincount(column, (data - mean[column]) ** 2, n_columns) + zeros * mean**2


def looks_raw(values: Any) -> bool:
    """Are all values whole numbers?"""
    stored = values.data if sparse.issparse(values) else values
    return bool(np.all(stored == np.rint(stored)))


def warn_of_counts(raw: bool, layer: str | None, stacklevel: int) -> None:
    """Raw counts are dominated by how deep each cell was sequenced."""
    if raw:
        where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
        more = "" if layer is None else f", layer={layer!r}"
        warnings.warn(
            f"{where} holds whole numbers, which look like raw counts; run these two lines first:\n"
            f"    sc.pp.normalize_total(adata, target_sum=1e4{more})\n"
            f"    sc.pp.log1p(adata{more})",
            UserWarning,
            stacklevel=stacklevel,
        )


@dataclass(frozen=True)
class Selection:
    """Which genes to learn from.

    Attributes
    ----------
    rule : "variance", "highly_variable", "all", another column of `var`, or "given"
    mask : of the genes; None where the rule is applied to the cells that are learned from
    n_genes : how many are highly variable; None: as scanpy thinks fit
    """

    rule: str
    mask: np.ndarray | None = None
    n_genes: int | None = None

    def places(self, matrix: Any, rows: np.ndarray, names: pd.Index) -> np.ndarray:
        """The selected columns: some, and each with a name of its own, because others find them by it."""
        chosen = np.flatnonzero(self._apply(matrix, rows, names) if self.mask is None else self.mask)
        if not chosen.size:
            raise ValueError(f"no gene is selected (genes={self.rule!r}): choose another rule, e.g. genes='all'")
        repeated = names[chosen][names[chosen].duplicated()]
        if len(repeated):
            raise ValueError(
                f"{len(repeated)} selected genes have the name of another, e.g. {repeated[0]!r}: run "
                "adata.var_names_make_unique() first"
            )
        return chosen

    def _apply(self, matrix: Any, rows: np.ndarray, names: pd.Index) -> np.ndarray:
        if self.rule == "variance":
            return above_average(moments(matrix, rows).variance, names)
        return highly_variable(matrix, rows, self.n_genes)


def above_average(variance: np.ndarray, names: pd.Index) -> np.ndarray:
    """The paper's rule: genes whose variance is above the average variance."""
    bad = np.flatnonzero(~np.isfinite(variance))
    if bad.size:
        raise ValueError(f"{bad.size} genes have values that are NaN or infinite, e.g. {names[bad[0]]!r}: fill or drop")
    return variance > variance.mean()


def highly_variable(matrix: Any, rows: np.ndarray, n_genes: int | None) -> np.ndarray:
    """Genes that scanpy finds highly variable in these cells."""
    need("scanpy")
    import anndata as ad
    import scanpy as sc

    return sc.pp.highly_variable_genes(ad.AnnData(read(matrix, rows)), n_top_genes=n_genes, inplace=False)[
        "highly_variable"
    ].to_numpy(dtype=bool)


def resolve(genes: Any, source: Source) -> Selection:
    """What `genes` means, decided in one place."""
    if genes is None and SELECTED in source.var.columns:
        method = source.uns_entry(SELECTED).get("method", SELECTED)
        return Selection(str(method), source.var[SELECTED].to_numpy(dtype=bool))
    if genes is None or isinstance(genes, str):
        return _named(genes or "variance", source.var)
    return Selection("given", _mask_of(genes, source.var))


def _named(name: str, var: pd.DataFrame) -> Selection:
    if name == "all":
        return Selection(name, np.ones(len(var), bool))
    if name == "variance":
        return Selection(name)
    if name not in var.columns:
        known = listed(name, [*RULES, *var.columns])
        advice = "; run sc.pp.highly_variable_genes(adata) first" if name == "highly_variable" else ""
        raise ValueError(f"genes is {name!r}, which is neither a rule nor a column of var: {known}{advice}")
    column = find_column(var, name, "genes", "var")
    if column.dtype != bool:
        raise ValueError(f"genes is {name!r}, but var[{name!r}] holds {column.dtype}: expected True and False")
    return Selection(name, column.to_numpy())


def afresh(genes: Any, rule: str, n_genes: int, var: pd.DataFrame) -> Selection:
    """A selection that has not seen any cell yet, to be made anew from those that are learned from.

    `rule` and `n_genes` are what was done before; a mark in `var` cannot be used again, because the cells that are held
    out now were there when it was made.
    """
    if genes is not None and not isinstance(genes, str):
        return Selection("given", _mask_of(genes, var))
    rule = rule if genes is None else genes
    if rule == "all":
        return Selection(rule, np.ones(len(var), bool))
    if rule not in RULES:
        raise ValueError(
            f"genes were selected by {rule!r}, which cannot be done again without the samples that are held out: give "
            "genes='variance', 'highly_variable' or 'all', or a list of names chosen beforehand"
        )
    return Selection(rule, None, n_genes if genes is None else None)


def _mask_of(genes: Sequence[Any], var: pd.DataFrame) -> np.ndarray:
    """A mask as given (by its own names where it carries them), or of the genes with these names."""
    refuse_mask(genes, "genes")
    if str(getattr(genes, "dtype", "")) in ("bool", "boolean") or isinstance(genes, Mapping):
        genes = aligned(genes, Roll(list(var.index), items="genes"), "genes")
    given = np.asarray(genes)
    if given.dtype == bool:
        if given.shape != (len(var),):
            raise ValueError(f"genes is a mask of shape {given.shape}: expected an entry for each of {len(var)} genes")
        return given
    unknown = [name for name in given.tolist() if name not in var.index]
    if unknown:
        near = listed(unknown[0], var.index[:10_000]).split(", ")[:5]
        raise ValueError(
            f"genes holds {len(unknown)} names that are not in var_names, e.g. {unknown[0]!r}: {', '.join(near)}, …"
        )
    return var.index.isin(given)
