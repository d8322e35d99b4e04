"""Annotations: samples and labels of cells, from columns of `obs`; genes to learn from, by a rule or by `var`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from .._internal.validation import ParameterError, Roll, aligned, need, refuse_mask
from .source import listed, pieces, read

if TYPE_CHECKING:
    from .source import Source

# Where pp.select_genes puts its mask, and tl.learn looks for it.
SELECTED = "selected_genes"
RULES = ("variance", "highly_variable", "all")


@dataclass(frozen=True)
class Samples:
    """Which sample each cell is from.

    Attributes
    ----------
    names : names of the samples as text, in the order in which they first appear
    codes : array of shape (n_cells,), the position of each cell's sample in `names`
    """

    names: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return self.names.size

    @property
    def first(self) -> np.ndarray:
        """The first cell of each sample."""
        return np.unique(self.codes, return_index=True)[1]

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.codes, minlength=len(self))


def samples_of(obs: pd.DataFrame, sample_key: str) -> Samples:
    """The sample of each cell, from a column of text, numbers or categories."""
    column = find_column(obs, sample_key, "sample_key")
    missing = int(column.isna().sum())
    if missing:
        raise ValueError(
            f"obs[{sample_key!r}] is missing for {missing} of {len(column)} cells: every cell needs a sample; drop "
            f"them with adata[adata.obs[{sample_key!r}].notna()]"
        )
    if not len(column):
        raise ValueError("there are no cells: at least one sample with one cell is needed")
    codes, values = pd.factorize(column)
    names = np.array([str(value) for value in values], dtype=object)
    if len(set(names)) < names.size:
        raise ValueError(f"obs[{sample_key!r}] holds both text and numbers that read the same: make all of it text")
    return Samples(names, codes)


def labels_of(obs: pd.DataFrame, label_key: str, samples: Samples, sample_key: str) -> pd.Series:
    """The labels, by the names of the samples that have one: a sample whose cells all lack a label has none."""
    column = find_column(obs, label_key, "label_key")
    codes, values = pd.factorize(column)  # -1 where a label is missing
    label = codes[samples.first]
    differs = np.flatnonzero(codes != label[samples.codes])
    if differs.size:
        sample = samples.codes[differs[0]]
        found = column[samples.codes == sample].drop_duplicates().tolist()
        raise ValueError(
            f"sample {samples.names[sample]!r} has labels {found} in obs[{label_key!r}]: a sample needs exactly one; "
            f"fix it, drop the sample, or check that {sample_key!r} is the column of samples"
        )
    texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(
            f"obs[{label_key!r}] holds both text and numbers that read the same (e.g. {twice!r}): make all of it text"
        )
    labelled = label >= 0
    known = np.asarray(values)[label[labelled]]
    known = known if known.dtype.kind in "biuf" else known.astype(str)
    return pd.Series(known, index=samples.names[labelled])


def check_classes(labels: pd.Series, label_key: str, remedy: str = "", give: Mapping[str, Any] | None = None) -> None:
    """Raise where labels are numbers with fractions: each would be a class of its own."""
    if labels.dtype.kind == "f" and np.any(np.mod(labels, 1) != 0):
        values = np.unique(labels)
        some = ", ".join(f"{value:.4g}" for value in values[:3])
        problem = f", which holds {values.size} numbers with fractions ({some}, …) rather than classes{remedy}"
        raise ParameterError("label_key", label_key, problem, give)


def groups_of(obs: pd.DataFrame, group_key: str, samples: Samples, sample_key: str) -> pd.Series:
    """The outer group of each sample: exactly one."""
    column = find_column(obs, group_key, "group_key")
    codes, values = pd.factorize(column)
    first = codes[samples.first]
    if (first < 0).any():
        name = samples.names[int(np.argmax(first < 0))]
        raise ValueError(f"sample {name!r} has no group in obs[{group_key!r}]: every sample needs one")
    differs = np.flatnonzero(codes != first[samples.codes])
    if differs.size:
        name = samples.names[samples.codes[differs[0]]]
        raise ValueError(
            f"sample {name!r} is in several groups of obs[{group_key!r}]: a sample needs exactly one; check that "
            f"{sample_key!r} is the column of samples"
        )
    return pd.Series([str(value) for value in np.asarray(values)[first]], index=samples.names)


def constant_columns(obs: pd.DataFrame, samples: Samples) -> pd.DataFrame:
    """The columns that say the same of all cells of a sample, with a row per sample."""
    constant = {}
    for name, column in obs.items():
        codes = pd.factorize(column)[0]  # -1 where a value is missing
        if np.array_equal(codes, codes[samples.first][samples.codes]):
            constant[name] = column.iloc[samples.first].array
    return pd.DataFrame(constant, index=samples.names.astype(str))


def draw(samples: Samples, n: int | None, seed: int, turn: int = 0) -> np.ndarray:
    """Rows of at most n cells of every sample, in order; all of them where n is None.

    The draw of a sample depends on the seed, the turn and its own cells alone, not on which other samples there are.
    """
    if n is None:
        return np.arange(samples.codes.size)
    by_sample = np.split(np.argsort(samples.codes, kind="stable"), np.cumsum(samples.sizes)[:-1])
    chosen = []
    for name, rows in zip(samples.names, by_sample, strict=True):
        # No byte of a name is above 255, so that no turn is the first one of another name.
        random = np.random.default_rng([seed, *str(name).encode(), *([255 + turn] if turn else [])])
        chosen.append(random.choice(rows, n, replace=False) if rows.size > n else rows)
    return np.sort(np.concatenate(chosen))


def check_draw(n: Any, seed: Any, name: str = "n_cells") -> None:
    """At most so many cells per sample (None: all of them), and a seed."""
    if n is not None and (not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1):
        raise ParameterError(name, n, ": expected a whole number of at least 1, or None for all cells")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise ParameterError("random_state", seed, ": expected a whole number of at least 0")


def find_column(frame: pd.DataFrame, name: Any, argument: str, where: str = "obs") -> pd.Series:
    """A column, or an error that lists those that there are, the likeliest first."""
    if name not in frame.columns:
        raise ParameterError(argument, name, f", but {where} has no such column: {listed(name, frame.columns)}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"{where} has {column.shape[1]} columns named {name!r}: rename all but one")
    return column


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
    rule : "variance", "most_variable", "highly_variable", "all", another column of `var`, or "given"
    mask : of the genes; None where the rule is applied to the cells that are learned from
    n_genes : how many of the most or highly variable; None: as scanpy thinks fit
    """

    rule: str
    mask: np.ndarray | None = None
    n_genes: int | None = None

    def places(self, matrix: Any, rows: np.ndarray, names: pd.Index) -> np.ndarray:
        """The selected columns: some, and each with a name of its own, because others find them by it."""
        chosen = np.flatnonzero(self._apply(matrix, rows, names) if self.mask is None else self.mask)
        if not chosen.size:
            raise ParameterError("genes", self.rule, ": no gene is selected; choose another rule, e.g. 'all'")
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
        if self.rule == "most_variable":
            return most_variable(moments(matrix, rows).variance, names, self.n_genes or 0)
        return highly_variable(matrix, rows, self.n_genes)


def above_average(variance: np.ndarray, names: pd.Index) -> np.ndarray:
    """The paper's rule: genes whose variance is above the average variance."""
    _check_finite(variance, names)
    return variance > variance.mean()


def most_variable(variance: np.ndarray, names: pd.Index, n_genes: int) -> np.ndarray:
    """So many genes of the largest variance; all where there are not more."""
    _check_finite(variance, names)
    return np.isin(np.arange(variance.size), np.argsort(-variance, kind="stable")[:n_genes])


def _check_finite(variance: np.ndarray, names: pd.Index) -> None:
    bad = np.flatnonzero(~np.isfinite(variance))
    if bad.size:
        raise ValueError(f"{bad.size} genes have values that are NaN or infinite, e.g. {names[bad[0]]!r}: fill or drop")


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
    if isinstance(genes, int | np.integer) and not isinstance(genes, bool):
        if genes < 1:
            raise ParameterError("genes", genes, ": expected a number of at least 1, a rule or names")
        return Selection("most_variable", n_genes=int(genes))
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
        raise ParameterError("genes", name, f", which is neither a rule nor a column of var: {known}{advice}")
    column = find_column(var, name, "genes", "var")
    if column.dtype != bool:
        raise ParameterError("genes", name, f", but var[{name!r}] holds {column.dtype}: expected True and False")
    return Selection(name, column.to_numpy())


def reselect(genes: Any, rule: str, n_genes: int, var: pd.DataFrame) -> Selection:
    """A selection that has not seen any cell yet, to be made anew from those that are learned from.

    `rule` and `n_genes` are what was done before; a mark in `var` cannot be used again, because the cells that are held
    out now were there when it was made.
    """
    if isinstance(genes, int | np.integer) and not isinstance(genes, bool):
        return Selection("most_variable", n_genes=int(genes))
    if genes is not None and not isinstance(genes, str):
        return Selection("given", _mask_of(genes, var))
    rule = rule if genes is None else genes
    if rule == "all":
        return Selection(rule, np.ones(len(var), bool))
    if rule not in (*RULES, "most_variable"):
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
