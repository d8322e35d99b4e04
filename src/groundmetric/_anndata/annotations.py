"""Samples, labels, groups and batches of cells from columns of `obs`, and the selection of genes to learn from."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from .._internal.validation import NameIndex, ParameterError, align_by_name, check_number, need, refuse_mask
from ..learning.labels import Ordered, resolve_target
from .source import PANEL, Moments, list_names, moments, read

if TYPE_CHECKING:
    from .source import Source

# Column of `var` in which pp.select_genes stores its mask.
SELECTED = "selected_genes"
RULES = ("variance", "highly_variable", "all")
# Usual names of columns with the patient and with the batch.
_PATIENTS = re.compile(r"patient|donor|subject|individual|participant", re.IGNORECASE)
_BATCHES = re.compile(r"batch|site|cent(er|re)$|plate|chip|lane|pool$|run$|library|assay|platform", re.IGNORECASE)
# A label is rare if it has fewer patients than the first, or less than the second as a share of all patients.
_RARE_COUNT, _RARE_SHARE = 3, 0.1


class CohortWarning(UserWarning):
    """The design of a cohort makes results unreliable.

    `tl.learn` warns about labels with few patients, samples with few cells, patients with several samples if
    `group_key` is not set, and batches or cell numbers that are associated with the label.

    Examples
    --------
    >>> import warnings
    >>> import groundmetric as gm
    >>> warnings.simplefilter("ignore", gm.tl.CohortWarning)
    """


@dataclass(frozen=True)
class Samples:
    """The sample of each cell."""

    names: np.ndarray  # names of the samples as text, in order of first appearance
    codes: np.ndarray  # position of each cell's sample in `names`

    def __len__(self) -> int:
        return self.names.size

    @property
    def first(self) -> np.ndarray:
        """Row of the first cell of each sample."""
        return np.unique(self.codes, return_index=True)[1]

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.codes, minlength=len(self))

    @property
    def rows(self) -> list[np.ndarray]:
        """Rows of the cells of each sample."""
        return np.split(np.argsort(self.codes, kind="stable"), np.cumsum(self.sizes)[:-1])

    def contains(self, names: Iterable[str], rows: np.ndarray | None = None) -> np.ndarray:
        """Return a mask of the cells (or rows) that belong to the samples with these names."""
        return np.isin(self.names, list(names))[self.codes if rows is None else self.codes[rows]]


def samples_of(obs: pd.DataFrame, sample_key: str) -> Samples:
    """Return the sample of each cell, from a column of text, numbers or categories."""
    column = find_column(obs, sample_key, "sample_key")
    n_missing = int(column.isna().sum())
    if n_missing:
        raise ParameterError(
            "sample_key", sample_key, f", but obs[{sample_key!r}] is missing for {n_missing} of {len(column)} cells: "
            f"drop them with adata[adata.obs[{sample_key!r}].notna()]",
        )  # fmt: skip
    if not len(column):
        raise ValueError("adata is empty: at least one sample with one cell is needed")
    codes, values = pd.factorize(column)
    return Samples(np.array(_as_text(values, sample_key), dtype=object), codes)


def _as_text(values: Any, key: str) -> list[str]:
    """Return distinct values as text; raise if two of them become equal."""
    texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        repeated = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(
            f"obs[{key!r}] holds both text and numbers that read the same (e.g. {repeated!r}): convert all to text"
        )
    return texts


def per_sample(obs: pd.DataFrame, key: str, argument: str, samples: Samples, sample_key: str) -> pd.Series:
    """Return the value of each sample in a column, by sample name; raise if the cells of a sample differ."""
    column = find_column(obs, key, argument)
    codes = pd.factorize(column)[0]  # -1 for missing values
    differs = np.flatnonzero(codes != codes[samples.first][samples.codes])
    if differs.size:
        sample = samples.codes[differs[0]]
        values = column[samples.codes == sample].drop_duplicates().tolist()
        raise ParameterError(
            argument, key, f", but sample {samples.names[sample]!r} has the values {values}: a sample needs exactly "
            f"one; correct it, drop the sample, or check that {sample_key!r} is the column of samples",
        )  # fmt: skip
    return pd.Series(column.iloc[samples.first].astype(object).to_numpy(), index=samples.names)


def labels_of(obs: pd.DataFrame, label_key: str, samples: Samples, sample_key: str) -> pd.Series:
    """Return the labels (numbers or text) of the samples that have one, by sample name."""
    labels = per_sample(obs, label_key, "label_key", samples, sample_key).dropna()
    _as_text(labels.unique(), label_key)
    labels = labels.infer_objects()
    return labels if labels.dtype.kind in "biuf" else labels.map(str).astype(object)


@dataclass(frozen=True)
class Annotations:
    """Samples of the cells, and the label, group and batch of each sample (by sample name)."""

    samples: Samples
    labels: pd.Series  # of the samples that have one; ordered categories if text has an order
    groups: pd.Series | None = None  # patients
    strata: pd.Series | None = None  # batches
    keys: Mapping[str, str | None] = field(default_factory=dict)  # columns of `obs` by the name of the parameter

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
        columns: dict[str, pd.Series | None] = {}
        for argument, key in (("group_key", group_key), ("batch_key", batch_key)):
            values = None if key is None else per_sample(obs, key, argument, samples, sample_key)
            if values is not None and values.loc[labels.index].isna().any():
                name = values.index[values.isna() & values.index.isin(labels.index)][0]
                raise ParameterError(argument, key, f", but sample {name!r} has no value: every sample needs one")
            columns[argument] = None if values is None else values.map(str)
        keys = {"sample_key": sample_key, "label_key": label_key, "group_key": group_key, "batch_key": batch_key}
        return cls(samples, labels, columns["group_key"], columns["batch_key"], keys)

    @property
    def is_ordered(self) -> bool:
        return isinstance(self.labels.dtype, pd.CategoricalDtype)

    @property
    def numbers(self) -> pd.Series:
        """Labels as numbers: ranks of ordered categories."""
        return pd.Series(self.labels.cat.codes if self.is_ordered else self.labels, index=self.labels.index)

    @property
    def patients(self) -> pd.Series:
        """The group of each labelled sample; the sample itself without groups."""
        names = self.labels.index
        return names.to_series() if self.groups is None else self.groups.loc[names]

    def check(self, method: str, target: Any) -> None:
        """Raise unless a metric can be learned from the labels; warn about samples without a label."""
        names, labels, key = self.samples.names, self.labels, self.keys["label_key"]
        if labels.empty:
            raise ParameterError("label_key", key, f", but obs[{key!r}] is missing for all cells")
        unlabelled = names[~np.isin(names, labels.index)]
        if unlabelled.size:
            warnings.warn(
                f"samples without a label in obs[{key!r}]: {unlabelled.size} of {names.size} (e.g. {unlabelled[0]!r}); "
                "they are not used for training, but their cells are projected",
                UserWarning,
                stacklevel=3,
            )
        if target == "classes":
            check_classes(labels, str(key), remedies={"target": "ordered"})
        if labels.nunique() < 2:
            problem = f", but all samples have the label {labels.iloc[0]!r}: at least two labels are needed"
            raise ParameterError("label_key", key, problem)
        if target == "classes" and method == "ensemble":
            counts = self.patients.groupby(labels.to_numpy()).nunique()
            if counts.min() < 2:
                unit = "sample" if self.groups is None else "group"
                problem = (
                    f", but label {str(counts.idxmin())!r} has a single {unit}, and an ensemble needs one to train on "
                    "and another to hold out: drop the label"
                )
                raise ParameterError("label_key", key, problem, {"method": "ggml"})
        if self.strata is not None and labels.groupby(self.strata.loc[labels.index]).nunique().max() < 2:
            problem = (
                f", but obs[{key!r}] does not differ within any batch, which confounds batch and label: give a column "
                "in which batches contain several labels, or leave it out"
            )
            raise ParameterError("batch_key", self.keys["batch_key"], problem)

    def warn(self, obs: pd.DataFrame, target: Any) -> None:
        """Warn about rare labels, patients with several samples, and batches associated with the label."""
        is_class = not isinstance(resolve_target(target), Ordered)
        patients, keys, label_key = self.patients, self.keys, self.keys["label_key"]
        if is_class:
            counts = patients.groupby(self.labels.to_numpy()).nunique().sort_values()
            if counts.iloc[-1] > 1 and counts.iloc[0] < max(_RARE_COUNT, _RARE_SHARE * counts.sum()):
                units = "samples" if self.groups is None else "groups"
                _warn(
                    f"label {str(counts.index[0])!r} of obs[{label_key!r}] has {counts.iloc[0]} of {counts.sum()} "
                    f"{units}: predictions and scores of a rare label are unreliable; add samples, or merge or drop "
                    "the label"
                )
        excluded = (label_key, keys["sample_key"], keys["group_key"])
        candidates = [
            name for name in dict.fromkeys(obs.columns) if name not in excluded
            and (name == keys["batch_key"] or _PATIENTS.search(str(name)) or _BATCHES.search(str(name)))
        ]  # fmt: skip
        for name, column in constant_columns(obs[candidates], self.samples).loc[self.labels.index].items():
            n_values = column.nunique()
            if not 1 < n_values < len(column):
                continue
            is_batch = name == keys["batch_key"]
            if keys["group_key"] is None and not is_batch and _PATIENTS.search(str(name)):
                _warn(
                    f"obs[{name!r}] has {n_values} values for {len(column)} samples: if patients have several samples, "
                    f"give group_key={name!r}; otherwise held-out scores are too high for new patients"
                )
            elif is_batch or _BATCHES.search(str(name)):
                p = _association(column, self.labels if is_class else self.numbers, patients, is_class)
                if p <= 0.05:
                    remedy = (
                        "labels are compared within batches, and few batches contain several labels" if is_batch
                        else f"differences between batches can predict the label; give batch_key={name!r}"
                    )  # fmt: skip
                    _warn(f"obs[{name!r}] is associated with obs[{label_key!r}] (p = {p:.2g}): {remedy}")


def _warn(message: str) -> None:
    warnings.warn(message, CohortWarning, stacklevel=4)


def _association(batches: pd.Series, labels: pd.Series, patients: pd.Series, is_class: bool) -> float:
    """Return the p-value of the association of batch and label (χ², or Kruskal-Wallis test for numbers)."""
    # A patient is counted once per combination of batch and label: repeated samples are not independent.
    rows = ~(patients + "\x1f" + batches.astype(str).to_numpy() + "\x1f" + labels.astype(str).to_numpy()).duplicated()
    batches, labels = batches.astype(str)[rows.to_numpy()], labels[rows.to_numpy()]
    if batches.nunique() < 2 or labels.nunique() < 2:
        return 1.0
    if is_class:
        table = pd.crosstab(batches.to_numpy(), labels.astype(str).to_numpy()).to_numpy()
        return float(stats.chi2_contingency(table, correction=False).pvalue)
    return float(stats.kruskal(*(numbers for _, numbers in labels.groupby(batches.to_numpy()))).pvalue)


def check_classes(
    labels: pd.Series, label_key: str, remedy: str = "", remedies: Mapping[str, Any] | None = None
) -> None:
    """Raise if labels are numbers with fractions, which would make each number a class."""
    if labels.dtype.kind == "f" and np.any(np.mod(labels, 1) != 0):
        values = np.unique(labels)
        shown = ", ".join(f"{value:.4g}" for value in values[:3])
        problem = f", which holds {values.size} numbers with fractions ({shown}, …) rather than classes{remedy}"
        raise ParameterError("label_key", label_key, problem, remedies)


def _with_order(labels: pd.Series, column: pd.Series, order: Any) -> pd.Series:
    """Return text labels as ordered categories, in the order of `order` or of the column's categories."""
    if order is not None:
        names, present = [str(name) for name in order], sorted(set(labels.astype(str)))
        missing = [label for label in present if label not in names]
        if len(set(names)) < len(names) or missing:
            mistake = f"lacks {missing[0]!r}" if missing else "has a label twice"
            expected = f"expected the labels of obs[{str(column.name)!r}], {present}"
            raise ParameterError("order", names, f", which {mistake}: {expected}")
        return labels.astype(str).astype(pd.CategoricalDtype(names, ordered=True))
    if labels.dtype.kind in "biuf":
        return labels
    if not getattr(column.dtype, "ordered", False):
        problem = ", which holds text without an order from low to high: make it ordered categories"
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


def cell_types_of(obs: pd.DataFrame, cell_type_key: str) -> np.ndarray:
    """Return the type of each cell as text, "unknown" if it is missing."""
    column = find_column(obs, cell_type_key, "cell_type_key")
    return column.astype(object).where(column.notna(), "unknown").astype(str).to_numpy()


def constant_columns(obs: pd.DataFrame, samples: Samples) -> pd.DataFrame:
    """Return the columns that are constant within every sample, with a row per sample."""
    constant = {}
    for name, column in obs.items():
        codes = pd.factorize(column)[0]  # -1 for missing values
        if np.array_equal(codes, codes[samples.first][samples.codes]):
            constant[name] = column.iloc[samples.first].array
    return pd.DataFrame(constant, index=samples.names.astype(str))


def draw(samples: Samples, n: int | None, seed: int, epoch: int = 0) -> np.ndarray:
    """Return the ascending rows of at most n random cells of every sample; None: all rows.

    The draw of a sample depends on the seed, the epoch, its name and its cells only, not on other samples.
    """
    if n is None:
        return np.arange(samples.codes.size)
    drawn = []
    for name, rows in zip(samples.names, samples.rows, strict=True):
        # Bytes of a name are at most 255: the seed of an epoch never equals that of another name.
        random = np.random.default_rng([seed, *str(name).encode(), *([255 + epoch] if epoch else [])])
        drawn.append(random.choice(rows, n, replace=False) if rows.size > n else rows)
    return np.sort(np.concatenate(drawn))


def check_draw(n: Any, seed: Any, name: str = "n_cells") -> None:
    """Raise unless n is a number of cells or None, and the seed is a whole number."""
    if n is not None and (not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1):
        raise ParameterError(name, n, ": expected a whole number of at least 1, or None for all cells")
    check_number("random_state", seed, low=0, whole=True)


def find_column(frame: pd.DataFrame, name: Any, argument: str, where: str = "obs") -> pd.Series:
    """Return a column, or raise with the existing columns, the most similar first."""
    if name not in frame.columns:
        raise ParameterError(argument, name, f", but {where} has no such column: {list_names(name, frame.columns)}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"{where} has {column.shape[1]} columns named {name!r}: rename all but one")
    return column


@dataclass(frozen=True)
class Selected:
    """Selected features."""

    rule: str  # the rule of `Features`, except "default"
    columns: np.ndarray  # ascending columns of the selected features
    n_features: int  # number of all features
    reason: str = ""  # why a default rule was applied; empty for other rules

    @property
    def text(self) -> str:
        """Numbers of selected and of excluded features, and the rule, in words."""
        reason = f": {self.reason}" if self.reason else ""
        if self.columns.size == self.n_features:
            return f"all {self.n_features:,} features{reason}"
        rules = {"variance": "variance above the average", "most_variable": "the most variable", "given": "as given"}
        return (
            f"{self.columns.size:,} of {self.n_features:,} features ({rules.get(self.rule, self.rule)}); "
            f"{self.n_features - self.columns.size:,} were left out{reason}"
        )

    def entry(self) -> dict[str, Any]:
        """Return the entry of `uns` and of run.json."""
        return {
            "rule": self.rule, "n_selected": int(self.columns.size), "n_features": self.n_features, "text": self.text,
        }  # fmt: skip


@dataclass(frozen=True)
class Features:
    """Values of all cells (genes of X or of a layer, or a representation), and the rule that selects features."""

    matrix: Any  # (n_cells, n_features), in memory or in a file
    names: pd.Index
    rule: str = "all"  # "default", "most_variable", one of `RULES`, another column of `var`, or "given"
    mask: np.ndarray | None = None  # mask of the selected features; None: the rule is applied to the training cells
    n_genes: int | None = None  # number of the most or highly variable genes; None: scanpy's default
    layer: str | None = None
    is_expression: bool = True  # whether the features are genes

    @classmethod
    def read(cls, source: Source, layer: str | None, use_rep: str | None, genes: Any = None) -> Features:
        """Return the matrix that `layer` and `use_rep` name, with the rule that `genes` means."""
        if use_rep is not None:
            if layer is not None or genes is not None:
                raise ParameterError("use_rep", use_rep, ", which excludes layer and genes: leave them out")
            matrix = source.representation(use_rep)
            names = pd.Index([f"{use_rep}_{k}" for k in range(matrix.shape[1])])
            return cls(matrix, names, is_expression=False)
        var, features = source.var, cls(source.matrix(layer), source.genes, "default", layer=layer)
        if genes is None:
            if SELECTED not in var.columns:
                return features
            method = str(source.uns_entry(SELECTED).get("method", SELECTED))
            return replace(features, rule=method, mask=var[SELECTED].to_numpy(dtype=bool))
        if not isinstance(genes, str) or genes in ("all", "variance"):
            return features.with_genes(genes)
        if genes not in var.columns:
            advice = "; run sc.pp.highly_variable_genes(adata) first" if genes == "highly_variable" else ""
            names = list_names(genes, [*RULES, *var.columns])
            raise ParameterError("genes", genes, f", which is neither a rule nor a column of var: {names}{advice}")
        column = find_column(var, genes, "genes", "var")
        if column.dtype != bool:
            raise ParameterError("genes", genes, f", but var[{genes!r}] holds {column.dtype}: expected True and False")
        return replace(features, rule=genes, mask=column.to_numpy())

    def with_genes(self, genes: Any, n_genes: int | None = None) -> Features:
        """Return the features with another rule, a number of genes, names or a mask.

        A column of `var` is not accepted: held-out cells may have influenced it, and it cannot be computed again.
        """
        if isinstance(genes, int | np.integer) and not isinstance(genes, bool):
            check_number("genes", genes, low=1, whole=True)
            return replace(self, rule="most_variable", mask=None, n_genes=int(genes))
        if not isinstance(genes, str):
            return replace(self, rule="given", mask=self._mask(genes))
        if genes not in (*RULES, "most_variable"):
            problem = (
                ", a selection that cannot be repeated without the held-out samples: give 'variance', "
                "'highly_variable' or 'all', or names of genes selected beforehand"
            )
            raise ParameterError("genes", genes, problem)
        return replace(self, rule=genes, mask=None, n_genes=n_genes)

    def _mask(self, genes: Any) -> np.ndarray:
        """Return the mask of names of genes, or a mask (aligned by name if it has names)."""
        refuse_mask(genes, "genes")
        if str(getattr(genes, "dtype", "")) in ("bool", "boolean") or isinstance(genes, Mapping):
            genes = align_by_name(genes, NameIndex(list(self.names), items="genes"), "genes")
        values = np.asarray(genes)
        if values.dtype == bool:
            if values.shape != (len(self.names),):
                raise ValueError(
                    f"genes is a mask of shape {values.shape}: expected an entry for each of {len(self.names)} genes"
                )
            return values
        unknown = [name for name in values.tolist() if name not in self.names]
        if unknown:
            similar = list_names(unknown[0], self.names[:10_000]).split(", ")[:5]
            raise ValueError(
                f"genes holds names that are not in var_names ({len(unknown)}, e.g. {unknown[0]!r}): "
                f"{', '.join(similar)}, …"
            )
        return self.names.isin(values)

    def select(self, rows: np.ndarray) -> Selected:
        """Return the selected features; a rule is applied to these rows."""
        rule, mask, reason = self.rule, self.mask, ""
        if mask is None and rule == "highly_variable":
            need("scanpy")
            import anndata as ad
            import scanpy as sc

            cells = ad.AnnData(read(self.matrix, rows))
            table = sc.pp.highly_variable_genes(cells, n_top_genes=self.n_genes, inplace=False)
            mask = table["highly_variable"].to_numpy(dtype=bool)
        elif mask is None and rule != "all":
            statistics = moments(self.matrix, rows)
            if rule == "default":
                rule, reason = default_rule(statistics)
            if rule == "most_variable":
                _check_finite(statistics.variance, self.names)
                order = np.argsort(-statistics.variance, kind="stable")
                mask = np.isin(np.arange(len(self.names)), order[: self.n_genes])
            elif rule == "variance":
                mask = above_average(statistics.variance, self.names)
        columns = np.arange(len(self.names)) if mask is None else np.flatnonzero(mask)
        if not columns.size:
            raise ParameterError("genes", rule, ", which selects no gene: choose another rule, e.g. 'all'")
        # Stored results find genes by name.
        repeated = self.names[columns][self.names[columns].duplicated()]
        if len(repeated):
            raise ValueError(
                f"selected genes have equal names, e.g. {repeated[0]!r}: run adata.var_names_make_unique() first"
            )
        return Selected(rule, columns, len(self.names), reason)


def default_rule(statistics: Moments) -> tuple[str, str]:
    """Return the rule that is applied by default, and the reason.

    On a log scale, the variance of a gene shows how informative it is; the variance of a marker or measurement depends
    on its unit.
    """
    if statistics.looks_like_genes:
        return "variance", "the default for genes"
    if statistics.mean.size <= PANEL:
        return "all", f"the default for {PANEL} or fewer"
    return "all", "the default for values other than counts of genes or their logarithms"


def above_average(variance: np.ndarray, names: pd.Index) -> np.ndarray:
    """Return the mask of the paper's rule: genes with a variance above the average variance."""
    _check_finite(variance, names)
    return variance > variance.mean()


def _check_finite(variance: np.ndarray, names: pd.Index) -> None:
    bad = np.flatnonzero(~np.isfinite(variance))
    if bad.size:
        raise ValueError(
            f"values are NaN or infinite in {bad.size} of {len(names)} features, e.g. {names[bad[0]]!r}: fill them, or "
            "drop the features"
        )
