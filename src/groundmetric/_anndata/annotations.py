"""Annotations: samples, labels, groups and batches of cells from columns of `obs`; genes to learn from, by a rule."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from .._internal.validation import NameIndex, ParameterError, align_by_name, need, refuse_mask
from ..learning.labels import Ordered, resolve_target
from .source import PANEL, Moments, listed, moments, read

if TYPE_CHECKING:
    from .source import Source

# Where pp.select_genes puts its mask, and tl.learn looks for it.
SELECTED = "selected_genes"
RULES = ("variance", "highly_variable", "all")
# Names of columns that are likely to say whose sample it is, and how it was processed.
_PATIENTS = re.compile(r"patient|donor|subject|individual|participant", re.IGNORECASE)
_BATCHES = re.compile(r"batch|site|cent(er|re)$|plate|chip|lane|pool$|run$|library|assay|platform", re.IGNORECASE)
# A label of fewer patients, or of a smaller share of them, is rare.
_FEW_PATIENTS, _RARE = 3, 0.1


class CohortWarning(UserWarning):
    """The design of a cohort makes results unreliable.

    `tl.learn` warns of labels with few patients, samples with few cells, patients with several samples that no
    `group_key` tells of, and batches or cell numbers that are associated with the label.

    Examples
    --------
    >>> import warnings
    >>> import groundmetric as gm
    >>> warnings.simplefilter("ignore", gm.tl.CohortWarning)  # of a cohort whose design is known
    """


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

    @property
    def rows(self) -> list[np.ndarray]:
        """The cells of each sample."""
        return np.split(np.argsort(self.codes, kind="stable"), np.cumsum(self.sizes)[:-1])

    def cells_of(self, names: Iterable[str], rows: np.ndarray | None = None) -> np.ndarray:
        """Return which cells (of these rows) belong to the samples with these names, as a mask."""
        return np.isin(self.names, list(names))[self.codes if rows is None else self.codes[rows]]


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
    return Samples(np.array(_texts(values, sample_key), dtype=object), codes)


def _texts(values: Any, key: str) -> list[str]:
    """Different values as text, which must differ too."""
    texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(
            f"obs[{key!r}] holds both text and numbers that read the same (e.g. {twice!r}): make all of it text"
        )
    return texts


def per_sample(obs: pd.DataFrame, key: str, argument: str, samples: Samples, sample_key: str) -> pd.Series:
    """A column with one value per sample, by the names of the samples; missing values stay missing."""
    column = find_column(obs, key, argument)
    codes = pd.factorize(column)[0]  # -1 where a value is missing
    differs = np.flatnonzero(codes != codes[samples.first][samples.codes])
    if differs.size:
        sample = samples.codes[differs[0]]
        values = column[samples.codes == sample].drop_duplicates().tolist()
        problem = (
            f", but sample {samples.names[sample]!r} has the values {values}: a sample needs exactly one; fix it, drop "
            f"the sample, or check that {sample_key!r} is the column of samples"
        )
        raise ParameterError(argument, key, problem)
    return pd.Series(column.iloc[samples.first].astype(object).to_numpy(), index=samples.names)


def labels_of(obs: pd.DataFrame, label_key: str, samples: Samples, sample_key: str) -> pd.Series:
    """The labels, numbers or text, by the names of the samples that have one."""
    labels = per_sample(obs, label_key, "label_key", samples, sample_key).dropna()
    _texts(labels.unique(), label_key)
    labels = labels.infer_objects()
    return labels if labels.dtype.kind in "biuf" else labels.map(str).astype(object)


def groups_of(obs: pd.DataFrame, group_key: str, samples: Samples, sample_key: str) -> pd.Series:
    """The outer group (patient) of each sample, as text."""
    groups = per_sample(obs, group_key, "group_key", samples, sample_key)
    if groups.isna().any():
        name = groups.index[groups.isna()][0]
        raise ParameterError("group_key", group_key, f", but sample {name!r} has no value: every sample needs one")
    return groups.map(str)


@dataclass(frozen=True)
class Annotations:
    """Samples of the cells, with the label, group and batch of each.

    Attributes
    ----------
    samples : Samples
        The sample of each cell.
    labels : Series
        Labels by the names of the samples that have one; ordered categories where text has an order.
    groups, strata : Series or None
        Patient and batch by the names of all samples.
    """

    samples: Samples
    labels: pd.Series
    groups: pd.Series | None = None
    strata: pd.Series | None = None

    @classmethod
    def read(
        cls,
        obs: pd.DataFrame,
        sample_key: str,
        label_key: str,
        *,
        group_key: str | None = None,
        batch_key: str | None = None,
        target: Any = "classes",
        order: Any = None,
    ) -> Annotations:
        samples = samples_of(obs, sample_key)
        labels = labels_of(obs, label_key, samples, sample_key)
        if isinstance(resolve_target(target), Ordered):
            labels = _with_order(labels, obs[label_key], order)
        groups = None if group_key is None else groups_of(obs, group_key, samples, sample_key)
        strata = None if batch_key is None else per_sample(obs, batch_key, "batch_key", samples, sample_key)
        return cls(samples, labels, groups, strata)

    @property
    def is_ordered(self) -> bool:
        return isinstance(self.labels.dtype, pd.CategoricalDtype)

    @property
    def numbers(self) -> pd.Series:
        """Labels as numbers: ranks of ordered categories."""
        return pd.Series(self.labels.cat.codes if self.is_ordered else self.labels, index=self.labels.index)

    @property
    def owners(self) -> pd.Series:
        """The group of each sample that has a label; the sample itself where there are no groups."""
        names = self.labels.index
        return names.to_series() if self.groups is None else self.groups.loc[names]

    def check(self, label_key: str, method: str, target: Any) -> None:
        """Raise unless a metric can be learned from the labels; warn of samples without one."""
        names, labels = self.samples.names, self.labels
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
        if target == "classes":
            check_classes(labels, label_key, remedies={"target": "ordered"})
        if labels.nunique() < 2:
            raise ValueError(
                f"all samples have the label {labels.iloc[0]!r} in obs[{label_key!r}]: at least two are needed"
            )
        if target == "classes" and method == "ensemble":
            counts = self.owners.groupby(labels.to_numpy()).nunique()
            if counts.min() < 2:
                what = "sample" if self.groups is None else "group"
                problem = (
                    f", whose label {str(counts.idxmin())!r} has a single {what}, and an ensemble needs two, one to "
                    "learn from and one that is left out: drop the label"
                )
                raise ParameterError("label_key", label_key, problem, {"method": "ggml"})

    def warn(self, obs: pd.DataFrame, label_key: str, keys: Mapping[str, str | None], target: Any) -> None:
        """Warn of rare labels, patients with several samples and batches that are associated with the label.

        `keys` are the columns that were given, by the name of the argument.
        """
        is_class = not isinstance(resolve_target(target), Ordered)
        owners = self.owners
        if is_class:
            counts = owners.groupby(self.labels.to_numpy()).nunique().sort_values()
            if counts.iloc[-1] > 1 and counts.iloc[0] < max(_FEW_PATIENTS, _RARE * counts.sum()):
                what = "samples" if self.groups is None else "groups"
                label, n = counts.index[0], counts.iloc[0]
                _warn(
                    f"label {str(label)!r} of obs[{label_key!r}] has {n} of {counts.sum()} {what}: "
                    "predictions and scores of a rare label are unreliable; add samples, or merge or drop the label"
                )
        others = [name for name in obs.columns if name not in (label_key, keys["sample_key"], keys["group_key"])]
        known = [n for n in others if n == keys["batch_key"] or _PATIENTS.search(str(n)) or _BATCHES.search(str(n))]
        columns = constant_columns(obs[list(dict.fromkeys(known))], self.samples).loc[self.labels.index]
        for name, column in columns.items():
            n_values = column.nunique()
            if not 1 < n_values < len(column):
                continue
            if keys["group_key"] is None and name != keys["batch_key"] and _PATIENTS.search(str(name)):
                _warn(
                    f"obs[{name!r}] has {n_values} values for {len(column)} samples: if patients have several samples, "
                    f"give group_key={name!r}, otherwise held-out scores are those of known patients"
                )
            elif name == keys["batch_key"] or _BATCHES.search(str(name)):
                p = _association(column, self.labels if is_class else self.numbers, owners, is_class)
                if p <= 0.05:
                    remedy = (
                        "labels are compared within batches, where few differ"
                        if name == keys["batch_key"]
                        else f"what differs between batches predicts the label; give batch_key={name!r}"
                    )
                    _warn(f"obs[{name!r}] is associated with obs[{label_key!r}] (p = {p:.2g}): {remedy}")


def _warn(message: str) -> None:
    warnings.warn(message, CohortWarning, stacklevel=4)


def _association(batches: pd.Series, labels: pd.Series, owners: pd.Series, is_class: bool) -> float:
    """P-value of the association of batch and label over patients (χ², or Kruskal-Wallis for numbers)."""
    rows = ~(owners + "\x1f" + batches.astype(str).to_numpy() + "\x1f" + labels.astype(str).to_numpy()).duplicated()
    batches, labels = batches.astype(str)[rows.to_numpy()], labels[rows.to_numpy()]
    if batches.nunique() < 2 or labels.nunique() < 2:
        return 1.0
    if is_class:
        table = pd.crosstab(batches.to_numpy(), labels.astype(str).to_numpy()).to_numpy()
        return float(stats.chi2_contingency(table, correction=False).pvalue)
    return float(stats.kruskal(*(part for _, part in labels.groupby(batches.to_numpy()))).pvalue)


def check_classes(
    labels: pd.Series, label_key: str, remedy: str = "", remedies: Mapping[str, Any] | None = None
) -> None:
    """Raise where labels are numbers with fractions: each would be a class of its own."""
    if labels.dtype.kind == "f" and np.any(np.mod(labels, 1) != 0):
        values = np.unique(labels)
        shown = ", ".join(f"{value:.4g}" for value in values[:3])
        problem = f", which holds {values.size} numbers with fractions ({shown}, …) rather than classes{remedy}"
        raise ParameterError("label_key", label_key, problem, remedies)


def _with_order(labels: pd.Series, column: pd.Series, order: Any) -> pd.Series:
    """Labels that are text as ordered categories: in the order that is given, or that of the column's categories."""
    if order is not None:
        names, present = [str(name) for name in order], sorted(set(labels.astype(str)))
        lacking = [label for label in present if label not in names]
        if len(set(names)) < len(names) or lacking:
            what = f"lacks {lacking[0]!r}" if lacking else "has a label twice"
            expected = f"expected the labels of obs[{str(column.name)!r}], {present}"
            raise ParameterError("order", names, f", which {what}: {expected}")
        return labels.astype(str).astype(pd.CategoricalDtype(names, ordered=True))
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
    chosen = []
    for name, rows in zip(samples.names, samples.rows, strict=True):
        # No byte of a name is above 255, so that no turn is the first one of another name.
        random = np.random.default_rng([seed, *str(name).encode(), *([255 + turn] if turn else [])])
        chosen.append(random.choice(rows, n, replace=False) if rows.size > n else rows)
    return np.sort(np.concatenate(chosen))


def check_draw(n: Any, seed: Any, name: str = "n_cells") -> None:
    """Raise unless n is a number of cells per sample (None: all of them), and the seed is one."""
    if n is not None and (not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1):
        raise ParameterError(name, n, ": expected a whole number of at least 1, or None for all cells")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise ParameterError("random_state", seed, ": expected a whole number of at least 0")


def find_column(frame: pd.DataFrame, name: Any, argument: str, where: str = "obs") -> pd.Series:
    """A column, or an error that lists the existing ones, the most similar first."""
    if name not in frame.columns:
        raise ParameterError(argument, name, f", but {where} has no such column: {listed(name, frame.columns)}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"{where} has {column.shape[1]} columns named {name!r}: rename all but one")
    return column


@dataclass(frozen=True)
class Values:
    """What describes a cell: the genes of X or of a layer, or a representation.

    Attributes
    ----------
    matrix : of all cells, in memory or in a file
    names : of its columns
    layer : which one the genes are from
    is_expression : whether columns are genes
    """

    matrix: Any
    names: pd.Index
    layer: str | None
    is_expression: bool

    @classmethod
    def of(cls, source: Source, layer: str | None, use_rep: str | None, genes: Any = None) -> Values:
        if use_rep is None:
            return cls(source.matrix(layer), source.genes, layer, True)
        if layer is not None or genes is not None:
            raise ParameterError("use_rep", use_rep, ": then there is no choice of layer or genes, leave them out")
        matrix = source.representation(use_rep)
        return cls(matrix, pd.Index([f"{use_rep}_{k}" for k in range(matrix.shape[1])]), None, False)

    def selection(self, genes: Any, source: Source) -> Selection:
        """Return what `genes` means: all columns of a representation."""
        return resolve(genes, source) if self.is_expression else Selection("all")


@dataclass(frozen=True)
class Chosen:
    """Features to learn from, and by which rule they were chosen.

    Attributes
    ----------
    rule : as in Selection, but never "default"
    places : columns of the chosen features, ascending
    n_features : number of features to choose from
    reason : of a default rule, why it is this one
    """

    rule: str
    places: np.ndarray
    n_features: int
    reason: str = ""

    @property
    def text(self) -> str:
        """The chosen features, and how many were left out."""
        reason = f": {self.reason}" if self.reason else ""
        if self.places.size == self.n_features:
            return f"all {self.n_features:,} features{reason}"
        rules = {"variance": "variance above the average", "most_variable": "the most variable", "given": "as given"}
        return (
            f"{self.places.size:,} of {self.n_features:,} features ({rules.get(self.rule, self.rule)}); "
            f"{self.n_features - self.places.size:,} were left out{reason}"
        )

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
    n_genes : how many of the most or highly variable; None: as many as scanpy's default
    """

    rule: str
    mask: np.ndarray | None = None
    n_genes: int | None = None

    def choose(self, matrix: Any, rows: np.ndarray, names: pd.Index) -> Chosen:
        """The selected columns: at least one, and each with a unique name, because others find them by it."""
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
        if self.rule == "all":
            return self.rule, np.ones(len(names), bool), ""
        if self.rule == "highly_variable":
            return self.rule, highly_variable(matrix, rows, self.n_genes), ""
        found = moments(matrix, rows)
        if self.rule == "most_variable":
            _check_finite(found.variance, names)
            most = np.argsort(-found.variance, kind="stable")[: self.n_genes]
            return self.rule, np.isin(np.arange(len(names)), most), ""
        rule, reason = default_rule(found) if self.rule == "default" else (self.rule, "")
        mask = np.ones(len(names), bool) if rule == "all" else above_average(found.variance, names)
        return rule, mask, reason


def default_rule(found: Moments) -> tuple[str, str]:
    """The rule for features where none is given, and the reason.

    The variance of a gene on a log scale says how informative it is; that of a measurement depends on its unit.
    """
    if found.looks_like_genes:
        return "variance", "the default for genes"
    if found.mean.size <= PANEL:
        return "all", f"the default for {PANEL} or fewer"
    return "all", "the default where values are not counts of genes or their logarithms"


def above_average(variance: np.ndarray, names: pd.Index) -> np.ndarray:
    """The paper's rule: genes whose variance is above the average variance."""
    _check_finite(variance, names)
    return variance > variance.mean()


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
    """The selection that the parameter `genes` means."""
    var = source.var
    if genes is None:
        if SELECTED not in var.columns:
            return Selection("default")
        method = source.uns_entry(SELECTED).get("method", SELECTED)
        return Selection(str(method), var[SELECTED].to_numpy(dtype=bool))
    if isinstance(genes, int | np.integer) and not isinstance(genes, bool):
        if genes < 1:
            raise ParameterError("genes", genes, ": expected a number of at least 1, a rule or names")
        return Selection("most_variable", n_genes=int(genes))
    if not isinstance(genes, str):
        return Selection("given", _mask_of(genes, var))
    if genes in ("all", "variance"):
        return Selection(genes)
    if genes not in var.columns:
        known = listed(genes, [*RULES, *var.columns])
        advice = "; run sc.pp.highly_variable_genes(adata) first" if genes == "highly_variable" else ""
        raise ParameterError("genes", genes, f", which is neither a rule nor a column of var: {known}{advice}")
    column = find_column(var, genes, "genes", "var")
    if column.dtype != bool:
        raise ParameterError("genes", genes, f", but var[{genes!r}] holds {column.dtype}: expected True and False")
    return Selection(genes, column.to_numpy())


def reselect(genes: Any, rule: str, n_genes: int, var: pd.DataFrame) -> Selection:
    """A selection that is made anew from the cells that are learned from.

    `rule` and `n_genes` are those of an earlier selection. A mark in `var` cannot be used again, because the cells that
    are held out now were there when it was made.
    """
    if isinstance(genes, int | np.integer) and not isinstance(genes, bool):
        return Selection("most_variable", n_genes=int(genes))
    if genes is not None and not isinstance(genes, str):
        return Selection("given", _mask_of(genes, var))
    rule = rule if genes is None else genes
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
