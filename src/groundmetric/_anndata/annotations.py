"""Annotations: samples and labels of cells, from columns of `obs`; genes to learn from, by a rule or by `var`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._internal.validation import NameIndex, ParameterError, align_by_name, need, refuse_mask
from ..learning.labels import Ordered, resolve_target
from .scale import PANEL, Moments, moments
from .source import listed, read

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


def per_sample(obs: pd.DataFrame, key: str, argument: str, samples: Samples) -> pd.Series:
    """A column that says the same of all cells of a sample, by the names of the samples."""
    column = find_column(obs, key, argument)
    if key not in constant_columns(obs[[key]], samples):
        raise ParameterError(argument, key, ", which differs within a sample: expected one value per sample")
    return pd.Series(column.iloc[samples.first].astype(object).to_numpy(), index=samples.names)


def with_category_order(labels: pd.Series, column: pd.Series, target: Any, order: Any = None) -> pd.Series:
    """The labels with the order that is given, or that of the column's categories, where the target needs one."""
    if not isinstance(resolve_target(target), Ordered):
        return labels
    if order is not None:
        return labels.astype(str).astype(pd.CategoricalDtype(_checked_order(labels, order, column.name), ordered=True))
    if labels.dtype.kind in "biuf":
        return labels
    if not getattr(column.dtype, "ordered", False):
        problem = ", which holds text whose order from low to high is not known: make it ordered categories"
        raise ParameterError("label_key", str(column.name), problem, {"order": sorted(set(labels), key=_by_number)})
    return labels.astype(pd.CategoricalDtype([str(name) for name in column.cat.categories], ordered=True))


def _by_number(label: str) -> tuple[float, int, str]:
    """Return a key that sorts labels by their first number, "<30" before "30-60" before ">30".

    >>> sorted([">60", "<30", "30-60"], key=_by_number)
    ['<30', '30-60', '>60']
    """
    number = re.search(r"\d+(?:\.\d+)?", label)
    sign = label.strip()[:1]
    return float(number[0]) if number else float("inf"), (sign in ">≥") - (sign in "<≤"), label


def _checked_order(labels: pd.Series, order: Any, label_key: Any) -> list[str]:
    """The names of an order, which must have each label once."""
    names, found = [str(name) for name in order], sorted(set(labels.astype(str)))
    lacking = [label for label in found if label not in names]
    if len(set(names)) < len(names) or lacking:
        what = f"lacks {lacking[0]!r}" if lacking else "has a label twice"
        raise ParameterError("order", names, f", which {what}: expected the labels of obs[{label_key!r}], {found}")
    return names


def check_parts_of(labels: pd.Series, groups: pd.Series | None, label_key: str, target: str) -> None:
    """Raise where a label has a single sample (or group), which cannot be both learned from and left out."""
    if target != "classes":
        return
    owners = labels.index.to_series() if groups is None else groups.loc[labels.index]
    counts = owners.groupby(labels.to_numpy()).nunique()
    if counts.min() < 2:
        what = "sample" if groups is None else "group"
        problem = (
            f", whose label {str(counts.idxmin())!r} has a single {what}, and an ensemble needs two, one to learn from "
            "and one that is left out: drop the label"
        )
        raise ParameterError("label_key", label_key, problem, {"learner": "single"})


def check_labels_of(labels: pd.Series, names: np.ndarray, label_key: str, target: Any) -> None:
    """Raise unless there are two labels, no fractions among classes, and warn of samples without one."""
    if labels.empty:
        raise ValueError(f"obs[{label_key!r}] is missing for all cells: at least two labels are needed")
    missing = names[~np.isin(names, labels.index)]
    if missing.size:
        warnings.warn(
            f"{missing.size} of {names.size} samples have no label in obs[{label_key!r}] (e.g. {missing[0]!r}): "
            "nothing is learned from them, but they are projected too",
            UserWarning,
            stacklevel=3,
        )
    classes = labels.unique()
    if target == "classes":
        check_classes(labels, label_key, give={"target": "ordered"})
    if classes.size < 2:
        raise ValueError(f"all samples have the label {classes[0]!r} in obs[{label_key!r}]: at least two are needed")


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


@dataclass(frozen=True)
class Chosen:
    """Features to learn from, and by which rule they were chosen.

    Attributes
    ----------
    rule : as in Selection, but never "default"
    places : columns of the chosen features, ascending
    n_features : how many there were to choose from
    reason : of a rule that was not asked for, why it is this one
    """

    rule: str
    places: np.ndarray
    n_features: int
    reason: str = ""

    @property
    def text(self) -> str:
        """What is learned from, and what was left out."""
        if self.places.size == self.n_features:
            found = f"all {self.n_features:,} features"
        else:
            how = {
                "variance": "variance above the average",
                "most_variable": "the most variable",
                "given": "as given",
            }.get(self.rule, self.rule)
            found = (
                f"{self.places.size:,} of {self.n_features:,} features ({how}); "
                f"{self.n_features - self.places.size:,} were left out"
            )
        return found + (f": {self.reason}" if self.reason else "")

    def entry(self) -> dict[str, Any]:
        """As `uns` and files of findings hold it."""
        return {
            "rule": self.rule, "n_selected": int(self.places.size), "n_features": self.n_features, "text": self.text,
        }  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Which genes to learn from.

    Attributes
    ----------
    rule : "default", "variance", "most_variable", "highly_variable", "all", another column of `var`, or "given"
    mask : of the genes; None where the rule is applied to the cells that are learned from
    n_genes : how many of the most or highly variable; None: as scanpy thinks fit
    """

    rule: str
    mask: np.ndarray | None = None
    n_genes: int | None = None

    def choose(self, matrix: Any, rows: np.ndarray, names: pd.Index) -> Chosen:
        """The selected columns: some, and each with a name of its own, because others find them by it."""
        rule, mask, reason = self._apply(matrix, rows, names) if self.mask is None else (self.rule, self.mask, "")
        places = np.flatnonzero(mask)
        if not places.size:
            raise ParameterError("genes", rule, ": no gene is selected; choose another rule, e.g. 'all'")
        repeated = names[places][names[places].duplicated()]
        if len(repeated):
            raise ValueError(
                f"{len(repeated)} selected genes have the name of another, e.g. {repeated[0]!r}: run "
                "adata.var_names_make_unique() first"
            )
        return Chosen(rule, places, len(names), reason)

    def _apply(self, matrix: Any, rows: np.ndarray, names: pd.Index) -> tuple[str, np.ndarray, str]:
        if self.rule == "highly_variable":
            return self.rule, highly_variable(matrix, rows, self.n_genes), ""
        found = moments(matrix, rows)
        if self.rule == "most_variable":
            return self.rule, most_variable(found.variance, names, self.n_genes or 0), ""
        rule, reason = default_rule(found) if self.rule == "default" else (self.rule, "")
        mask = np.ones(len(names), bool) if rule == "all" else above_average(found.variance, names)
        return rule, mask, reason


def default_rule(found: Moments) -> tuple[str, str]:
    """The rule for features where none is asked for, and why.

    The variance of a gene on a log scale says how much it has to tell; that of a measurement depends on its unit.
    """
    if found.looks_like_genes:
        return "variance", "the default for genes"
    if found.mean.size <= PANEL:
        return "all", f"the default for {PANEL} or fewer"
    return "all", "the default where values are no counts of genes or their logarithms"


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
    if genes is None:
        return Selection("default")
    if isinstance(genes, int | np.integer) and not isinstance(genes, bool):
        if genes < 1:
            raise ParameterError("genes", genes, ": expected a number of at least 1, a rule or names")
        return Selection("most_variable", n_genes=int(genes))
    if isinstance(genes, str):
        return _named(genes, source.var)
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
        genes = align_by_name(genes, NameIndex(list(var.index), items="genes"), "genes")
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
