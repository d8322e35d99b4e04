"""Cells as a cohort: samples, labels, patients and batches from `obs`, selected genes, problems of the design."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from .._internal.validation import NameIndex, ParameterError, align_by_name, check_number, need, refuse_mask
from ..distributions import Distributions
from ..evaluation import SizeAssociation, size_association
from ..interpret import batch_effects
from ..learning.labels import Ordered, resolve_target
from ..modalities import CELL
from .source import MIN_ZEROS, PANEL, Moments, Source, list_names, moments, read, warn_of_counts

# Column of `var` in which pp.select_genes stores its mask, and the column of `obs` that has cell types by default.
SELECTED, CELL_TYPE = "selected_genes", "cell_type"
# Usual names of columns with the patient and with the batch.
_PATIENTS = re.compile(r"(patient|donor|subject|individual|participant)(_id)?", re.IGNORECASE)
_BATCHES = re.compile(r"batch|site|cent(er|re)$|plate|chip|lane|pool$|run$|library|assay|platform", re.IGNORECASE)
# A label is rare if it has fewer patients than the first, or less than the second as a share of all patients.
_RARE_COUNT, _RARE_SHARE = 3, 0.1
LEVEL = 0.05  # significance level
# Limits: samples per label, ratio of the numbers of samples of two labels, cells per sample (the second: serious).
_FEW_SAMPLES, _UNEQUAL, _FEW_CELLS, _TOO_FEW_CELLS = 8, 3.0, 50, 10


class CohortWarning(UserWarning):
    """Warning that the design of a cohort makes results unreliable.

    `tl.learn` warns about samples without a label, labels with few patients, samples with few cells, patients with
    several samples if `group_key` is not set, and batches or cell numbers that are associated with the label.

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

    def contains(self, names: Iterable[str]) -> np.ndarray:
        """Return a mask of the cells that belong to the samples with these names."""
        return np.isin(self.names, list(names))[self.codes]


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
    texts = pd.Index([str(value) for value in values])
    if repeated := texts[texts.duplicated()].tolist():
        raise ValueError(
            f"obs[{key!r}] holds both text and numbers that read the same (e.g. {repeated[0]!r}): convert all to text"
        )
    return texts.tolist()


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

    @classmethod
    def read(
        cls, obs: pd.DataFrame, sample_key: str, label_key: str, *, group_key: str | None = None,
        batch_key: str | None = None, target: Any = "classes", order: Any = None,
    ) -> Annotations:  # fmt: skip
        samples = samples_of(obs, sample_key)
        labels = labels_of(obs, label_key, samples, sample_key)
        if isinstance(resolve_target(target), Ordered):
            labels = _with_order(labels, obs[label_key], order)
        columns: dict[str, pd.Series | None] = {}
        for argument, key in (("group_key", group_key), ("batch_key", batch_key)):
            values = None if key is None else per_sample(obs, key, argument, samples, sample_key)
            if values is not None and values.loc[labels.index].isna().any():
                name = values.index[values.isna() & values.index.isin(labels.index)][0]
                problem = f", but sample {name!r} has no value: fill obs[{key!r}], drop the sample, or leave it out"
                raise ParameterError(argument, key, problem)
            columns[argument] = None if values is None else values.map(str)
        return cls(samples, labels, columns["group_key"], columns["batch_key"])

    @property
    def is_ordered(self) -> bool:
        return isinstance(self.labels.dtype, pd.CategoricalDtype)

    @property
    def numbers(self) -> pd.Series:
        """Labels as numbers: ranks of ordered categories."""
        return pd.Series(self.labels.cat.codes if self.is_ordered else self.labels, index=self.labels.index)

    def check(self, label_key: str, batch_key: str | None, method: str, target: Any) -> None:
        """Raise unless a metric can be learned from the labels."""
        labels = self.labels
        if labels.empty:
            problem = f", but obs[{label_key!r}] is missing for all cells: give a column with the label of each sample"
            raise ParameterError("label_key", label_key, problem)
        if target == "classes":
            check_classes(labels, label_key, remedies={"target": "ordered"})
        if labels.nunique() < 2:
            problem = f", but all samples have the label {labels.iloc[0]!r}: at least two labels are needed"
            raise ParameterError("label_key", label_key, problem)
        numeric = labels.dtype.kind in "iuf"
        if target == "classes" and labels.is_unique:
            problem = f", but each sample has its own label, e.g. {str(labels.iloc[0])!r}: a label needs two samples"
            raise ParameterError("label_key", label_key, problem, {"target": "ordered"} if numeric else None)
        if target == "classes" and method == "ensemble":
            patients = labels.index.to_series() if self.groups is None else self.groups.loc[labels.index]
            counts = patients.groupby(labels.to_numpy()).nunique()
            if counts.min() < 2:
                unit = "sample" if self.groups is None else "group"
                problem = (
                    f", but label {str(counts.idxmin())!r} has a single {unit}, and an ensemble needs two: drop it"
                )
                remedy = {"target": "ordered"} if numeric else {"method": "ggml"}
                raise ParameterError("label_key", label_key, problem, remedy)
        if self.strata is not None and labels.groupby(self.strata.loc[labels.index]).nunique().max() < 2:
            problem = (
                f", but obs[{label_key!r}] does not differ within any batch, which confounds batch and label: give a "
                "column in which batches contain several labels, or leave it out"
            )
            raise ParameterError("batch_key", batch_key, problem)


@dataclass(frozen=True)
class Note:
    """Problem of a cohort or run, or the reason why a report lacks a result."""

    title: str
    text: str
    remedy: Mapping[str, Any] = field(default_factory=dict)  # parameters of `tl.learn` or `report.write`
    serious: bool = False  # whether `tl.learn` warns

    def __str__(self) -> str:
        parameters = ", ".join(f"{name}={value!r}" for name, value in self.remedy.items())
        return f"{self.text} ({parameters})." if parameters else f"{self.text}."

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "text": self.text, "remedy": dict(self.remedy)}


def cohort_problems(
    obs: pd.DataFrame, label_key: str, sample_key: str, group_key: str | None = None, batch_key: str | None = None, *,
    numbers: pd.Series | None = None, distances: np.ndarray | None = None,
) -> tuple[list[Note], SizeAssociation]:  # fmt: skip
    """Return problems of the design of a cohort, and the association of the number of cells with the label.

    `obs` has a row per sample, with its number of cells ("n_cells"). `numbers` are ordered labels by sample. With
    `distances` between samples, all columns are tested for batch effects; without, only columns that are named like
    a batch are tested against the label.
    """
    labelled = obs[label_key].notna().to_numpy()
    used, notes = obs[labelled], []
    classes = used[label_key].astype(str)
    patients = used[group_key].astype(str) if group_key in used else used.index.to_series().astype(str)
    if not labelled.all():
        text = f"samples without a label in obs[{label_key!r}]: {np.sum(~labelled)} of {len(obs)} (e.g. "
        text += f"{str(obs.index[~labelled][0])!r}), which are not used for training"
        notes.append(Note("Samples without a label", text, serious=True))
    if numbers is None:
        counts = patients.groupby(classes.to_numpy()).nunique().sort_values()
        unit, least, most = "samples" if group_key is None else "groups", counts.iloc[0], counts.iloc[-1]
        rare = least < max(_RARE_COUNT, _RARE_SHARE * counts.sum())
        if rare or least < _FEW_SAMPLES:
            text = f"label {str(counts.index[0])!r} of obs[{label_key!r}] has {least} of {counts.sum()} {unit}: its "
            text += "predictions and scores are uncertain, and the ranking of genes is unstable; add samples, or merge "
            text += "or drop the label"
            notes.append(Note("Few samples", text, serious=bool(rare and most > 1)))
        if most >= _UNEQUAL * least:
            text = f"{counts.index[-1]} has {most} {unit}, {counts.index[0]} has {least}; balanced accuracy weights "
            notes.append(Note("Unequal class sizes", text + "all labels equally"))
    sizes = obs["n_cells"]
    serious = bool(sizes.min() < _TOO_FEW_CELLS)
    limit = _TOO_FEW_CELLS if serious else _FEW_CELLS
    if n_small := int((sizes < limit).sum()):
        text = f"samples with fewer than {limit} cells: {n_small} of {len(obs)} ({str(sizes.idxmin())!r} has "
        text += f"{sizes.min()}); their distances to other samples are too large"
        text += ": drop samples with few cells" if serious else ""
        notes.append(Note("Samples with few cells", text, serious=serious))
    association = size_association(
        used["n_cells"].to_numpy(), classes.to_numpy() if numbers is None else numbers.loc[used.index].to_numpy(),
        patients.to_numpy(), target="classes" if numbers is None else "ordered",
    )  # fmt: skip
    if association.p <= LEVEL:
        text = association.sentence(label_key, "sample", "cell").rstrip(".")
        notes.append(Note("Number of cells", text, serious=True))
    columns = [name for name in obs.columns if name not in (label_key, sample_key, group_key, "n_cells")]
    repeated = [name for name in columns if _PATIENTS.fullmatch(str(name)) and 1 < obs[name].nunique() < len(obs)]
    if distances is None:
        notes += _batches_of_labels(used, label_key, batch_key, columns, patients, numbers)
    else:
        among = np.asarray(distances)[np.ix_(labelled, labelled)]
        notes += _batches_in_distances(used, label_key, columns, used.get(group_key), among)
    if repeated and group_key is None:
        text = f"obs[{repeated[0]!r}] has {obs[repeated[0]].nunique()} values for {len(obs)} samples; if samples of a "
        text += "patient are in both training and test set, held-out scores are too high: keep them together"
        notes.append(Note("Several samples per patient", text, {"group_key": str(repeated[0])}, serious=True))
    return notes, association


def _batches_of_labels(
    obs: pd.DataFrame, label_key: str, batch_key: str | None, columns: list[Any], patients: pd.Series,
    numbers: pd.Series | None,
) -> list[Note]:  # fmt: skip
    """Return notes about columns that are named like a batch and associated with the label (χ², Kruskal-Wallis)."""
    notes, labels = [], obs[label_key].astype(str) if numbers is None else numbers.loc[obs.index]
    for name in columns:
        if (name != batch_key and not _BATCHES.search(str(name))) or not 1 < obs[name].nunique() < len(obs):
            continue
        # A patient is counted once per combination of batch and label: repeated samples are not independent.
        table = pd.DataFrame({"batch": obs[name].astype(str), "label": labels, "patient": patients}).drop_duplicates()
        if table["batch"].nunique() < 2 or table["label"].nunique() < 2:
            continue
        if labels.dtype.kind in "biuf":
            p = stats.kruskal(*(ranks for _, ranks in table.groupby("batch")["label"])).pvalue
        else:
            p = stats.chi2_contingency(pd.crosstab(table["batch"], table["label"]), correction=False).pvalue
        if p <= LEVEL:
            text = f"obs[{name!r}] is associated with obs[{label_key!r}] (p = {p:.2g}): "
            known = "labels are compared within batches, and few batches contain several labels"
            advice = "differences between batches can predict the label: if they are technical, learn within batches"
            text += known if name == batch_key else advice
            remedy = {} if name == batch_key else {"batch_key": str(name)}
            notes.append(Note("Possible batch effect", text, remedy, serious=True))
    return notes


def _batches_in_distances(
    obs: pd.DataFrame, label_key: str, columns: list[Any], groups: Any, distances: np.ndarray
) -> list[Note]:
    """Return notes about columns that explain the distances or are associated with the label."""
    tested, notes = batch_effects(distances, obs[label_key].astype(str), obs[columns], groups=groups), []
    for k, name in enumerate(tested.covariates):
        explains, associated = tested.in_distances(LEVEL)[k], tested.with_labels(LEVEL)[k]
        if _PATIENTS.fullmatch(name):  # a patient has one label in most studies: that is not a batch effect
            explains = explains and obs.groupby(name, observed=True)[label_key].nunique().max() > 1
            associated = False
        texts = []
        if explains:
            texts.append(
                f"{name} explains {tested.r2[k]:.0%} of the squared distances ({tested.r2_expected[k]:.0%} expected by "
                f"chance, p = {tested.p[k]:.2g}; {label_key} explains {tested.label_r2[k]:.0%})"
            )
        if explains and tested.neighbors[k] > tested.neighbors_expected[k]:
            texts.append(
                f"the nearest sample has the same {name} for {tested.neighbors[k]:.0%} of the samples "
                f"({tested.neighbors_expected[k]:.0%} expected by chance)"
            )
        if associated:
            texts.append(
                f"{name} is associated with {label_key} (Cramér's V {tested.association[k]:.2f}, "
                f"p = {tested.association_p[k]:.2g}), so the metric may describe {name} instead"
            )
        if texts:
            remedy = f"if {name} is technical, learn again within batches"
            notes.append(Note("Possible batch effect", "; ".join([*texts, remedy]), {"batch_key": name}))
    return notes


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
    if isinstance(order, str):
        raise ParameterError("order", order, ": expected a list of labels from low to high")
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


def _by_number(label: str) -> tuple[float, str, str]:
    """Return a key that sorts text labels by their first number.

    >>> sorted(["30-60", "<30", ">60"], key=_by_number), sorted(["severe", "mild"], key=_by_number)
    (['<30', '30-60', '>60'], ['mild', 'severe'])
    """
    number = re.search(r"\d+(\.\d+)?", label)
    # "<30" precedes "30-60": other signs than "<" are sorted after digits.
    sign = label[:1].replace("<", "").replace("≤", "")
    return (float(number[0]) if number else float("inf"), sign, label)


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
    """Return the ascending rows of at most n random cells of every sample, independent of other samples; None: all."""
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
    if n is not None:
        check_number(name, n, low=1, whole=True)
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
class Features:
    """Values of all cells (genes of X or of a layer, or a representation), and the rule that selects features."""

    matrix: Any  # (n_cells, n_features), in memory or in a file
    names: pd.Index
    rule: str = "all"  # "default", "variance", "all", "most_variable", a column of `var`, or "given"
    mask: np.ndarray | None = None  # mask of the selected features; None: the rule is applied to the training cells
    n_genes: int | None = None  # number of the most variable genes
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
        matrix, var = source.matrix(layer), source.var
        if genes is None and SELECTED not in var.columns:
            return cls(matrix, var.index, "default")
        if isinstance(genes, int | float | np.integer | np.floating):
            check_number("genes", genes, low=1, whole=True)
            return cls(matrix, var.index, "most_variable", n_genes=int(genes))
        if genes is not None and not isinstance(genes, str):
            return cls(matrix, var.index, "given", _gene_mask(genes, var.index))
        if genes in ("all", "variance"):
            return cls(matrix, var.index, genes)
        name = SELECTED if genes is None else genes
        if name not in var.columns:
            advice = "; run sc.pp.highly_variable_genes(adata) first" if genes == "highly_variable" else ""
            names = list_names(genes, ["variance", "all", *var.columns])
            raise ParameterError("genes", genes, f", which is neither a rule nor a column of var: {names}{advice}")
        column = find_column(var, name, "genes", "var")
        if column.dtype != bool:
            raise ParameterError("genes", genes, f", but var[{name!r}] holds {column.dtype}: expected True and False")
        rule = str(source.uns_entry(SELECTED).get("method", SELECTED)) if genes is None else name
        return cls(matrix, var.index, rule, column.to_numpy())

    def select(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the ascending columns of the selected features, and a description; a rule is applied to these rows."""
        rule, mask, reason = self.rule, self.mask, ""
        if mask is None and rule != "all":
            statistics = moments(self.matrix, rows)
            if rule == "default":
                rule, reason = default_rule(statistics)
            if rule == "most_variable":
                order = np.argsort(-finite_variance(statistics, self.names), kind="stable")
                mask = np.isin(np.arange(len(self.names)), order[: self.n_genes])
            elif rule == "variance":
                mask = above_average(statistics, self.names)
        columns = np.arange(len(self.names)) if mask is None else np.flatnonzero(mask)
        if not columns.size:
            raise ParameterError("genes", rule, ", which selects no gene: choose another rule, e.g. 'all'")
        # Stored results find genes by name.
        repeated = self.names[columns][self.names[columns].duplicated()]
        if len(repeated):
            problem = f"selected genes have equal names, e.g. {repeated[0]!r}"
            raise ValueError(f"{problem}: run adata.var_names_make_unique() first")
        n, n_all = int(columns.size), len(self.names)
        rules = {"variance": "variance above the average", "most_variable": "the most variable", "given": "as given"}
        text = f"{n:,} of {n_all:,} features ({rules.get(rule, rule)}); {n_all - n:,} were left out"
        text = (f"all {n:,} features" if n == n_all else text) + (f": {reason}" if reason else "")
        return columns, {"rule": rule, "n_selected": n, "n_features": n_all, "text": text}


def _gene_mask(genes: Any, names: pd.Index) -> np.ndarray:
    """Return the mask of names of genes, or a mask (aligned by name if it has names)."""
    refuse_mask(genes, "genes")
    if str(getattr(genes, "dtype", "")) in ("bool", "boolean") or isinstance(genes, Mapping):
        genes = align_by_name(genes, NameIndex(list(names), items="genes"), "genes")
    values = np.asarray(genes)
    if not values.size:
        raise ParameterError("genes", list(genes), ": expected names of genes, a mask, a number, or a rule, e.g. 'all'")
    if values.dtype == bool:
        if values.shape != (len(names),):
            raise ValueError(f"genes is a mask of shape {values.shape}: expected ({len(names)},), an entry per gene")
        return values
    unknown = [name for name in values.tolist() if name not in names]
    if unknown:
        similar = ", ".join(list_names(unknown[0], names[:10_000]).split(", ")[:5])
        raise ValueError(f"genes holds names that var_names lacks ({len(unknown)}, e.g. {unknown[0]!r}): {similar}, …")
    return names.isin(values)


def default_rule(statistics: Moments) -> tuple[str, str]:
    """Return the rule that is applied by default, and the reason."""
    if statistics.mean.size <= PANEL:
        return "all", f"the default for {PANEL} or fewer"
    # On a log scale, the variance of a gene shows how informative it is; that of a marker depends on its unit.
    if statistics.negative == 0.0 and statistics.zeros >= MIN_ZEROS:
        return "variance", "the default for genes"
    return "all", "the default for values other than counts of genes or their logarithms"


def above_average(statistics: Moments, names: pd.Index) -> np.ndarray:
    """Return the mask of the paper's rule: genes with a variance above the average variance."""
    variance = finite_variance(statistics, names)
    return variance > variance.mean()


def finite_variance(statistics: Moments, names: pd.Index) -> np.ndarray:
    bad = np.flatnonzero(~np.isfinite(statistics.variance))
    if bad.size:
        problem = f"NaN or infinite in {bad.size} of {len(names)} features, e.g. {names[bad[0]]!r}"
        raise ValueError(f"values are {problem}: fill them, or drop the features")
    return statistics.variance


class Labelled(NamedTuple):
    """A cohort for an evaluation; `rule` selects features within each split (None: all features)."""

    D: Distributions
    y: np.ndarray
    groups: list[Hashable] | None
    rule: Any
    notes: list[str]


def read_cohort(
    cells: Any, sample_key: str, label_key: str, *, group_key: str | None = None, layer: str | None = None,
    use_rep: str | None = None, genes: Any = None, n_cells: int | None = 1000, min_cells: int = 1,
    ordered: bool = False, cell_type_key: str | None = None, random_state: int = 0,
) -> Labelled:  # fmt: skip
    """Read the samples that have a label and at least `min_cells` cells, with at most `n_cells` random cells each.

    `genes` is a rule applied within each split ("variance", or a number of the most variable genes), "all", or a column
    of `var`. None: "variance" for genes, "all" otherwise. Cell types, from `cell_type_key` or "cell_type" if it exists,
    become the annotation `CELL_TYPE` of the cells.
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
            problem = f"with the labels {classes.tolist()} of {label_key!r}: at least two labels are needed"
            raise ValueError(f"{usable.size} samples of {sample_key!r} are usable, {problem}")
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        rows = draw(samples, n_cells, random_state)
        rows = rows[samples.contains(usable)[rows]]
        types = {}
        if cell_type_key is not None or CELL_TYPE in source.obs.columns:
            types[CELL_TYPE] = cell_types_of(source.obs, cell_type_key or CELL_TYPE)[rows]
        features = Features.read(source, layer, use_rep, genes)
        rule, columns = genes, np.arange(len(features.names))
        if use_rep is not None:
            notes.append(f"{use_rep!r} was computed from all cells, including those of test samples")
        elif not (genes is None or genes == "variance" or isinstance(genes, int)):
            rule, columns = None, features.select(rows)[0]
            if genes != "all":
                notes.append(f"genes were selected beforehand (var[{genes!r}]), possibly from all samples")
        points = read(features.matrix, rows, columns)
    if use_rep is None:
        statistics = moments(points, np.arange(points.shape[0]))
        warn_of_counts(statistics.looks_raw, layer, stacklevel=3)
        if genes is None:
            rule, reason = default_rule(statistics)
            n_selected = np.count_nonzero(statistics.variance > statistics.variance.mean())
            notes.append(
                f"all {columns.size:,} features are used: {reason}" if rule == "all" else
                f"features are selected by their variance, {reason}; all samples together select {n_selected:,} of "
                f"{columns.size:,}"
            )  # fmt: skip
            rule = None if rule == "all" else rule
    names = list(features.names[columns])
    D = Distributions(points, samples.names[samples.codes[rows]], features=names, annotations=types)
    groups_of_samples = None if groups is None else [groups[name] for name in D.names]
    return Labelled(D, labels.loc[D.names].to_numpy(), groups_of_samples, rule, notes)


def read_modalities(
    mdata: Any, sample_key: str, *, modalities: Sequence[str] | None, layer: Mapping[str, str] | None,
    use_rep: Mapping[str, str] | None, genes: Mapping[str, Any] | None, n_cells: int | None, random_state: int,
) -> dict[str, Distributions]:  # fmt: skip
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
    by_modality = {"layer": layer, "use_rep": use_rep, "genes": genes}
    for argument, mapping in by_modality.items():
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
    common = getattr(mdata, "obs", pd.DataFrame())
    for name, adata in parts.items():
        obs = adata.obs
        if sample_key not in obs.columns:
            if sample_key not in common.columns:
                existing = dict.fromkeys([*obs.columns, *(key for key in common.columns if ":" not in str(key))])
                problem = f", but neither obs of modality {name!r} nor that of the MuData has such a column: "
                raise ParameterError("sample_key", sample_key, problem + list_names(sample_key, existing))
            obs = common.loc[adata.obs_names, [sample_key]]
        samples = samples_of(obs, sample_key)
        rows = np.arange(samples.codes.size)
        if n_cells is not None:
            rank = ranks.loc[adata.obs_names].to_numpy()
            rows = np.sort(np.concatenate([cells[np.argsort(rank[cells])[:n_cells]] for cells in samples.rows]))
        options = {key: (mapping or {}).get(name) for key, mapping in by_modality.items()}
        with Source(adata) as source:
            features = Features.read(source, **options)
            columns = features.select(rows)[0]
            points = read(features.matrix, rows, columns)
        if options["use_rep"] is None:
            warn_of_counts(moments(points, np.arange(rows.size)).looks_raw, options["layer"], stacklevel=4)
        distributions[name] = Distributions(
            points, samples.names[samples.codes[rows]], features=list(features.names[columns]),
            annotations={CELL: adata.obs_names.to_numpy()[rows]},
        )  # fmt: skip
    return distributions
