"""Which genes: their importance, in which label and cell type they differ, how stable that is, and their processes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import spearmanr

from .._anndata.store import N_TOP
from ..interpret import feature_significance, over_representation, read_gmt, stability
from .content import Field, Table
from .plans import Directions, drawn_kinds
from .run import Run, Steps, cached, duration, learner_of
from .scores import Cohort

MOST_GENES = 300
TOP, MOST_SETS, SURE = 50, 8, 0.05  # genes of an axis that are tested, sets that are shown, q below which they are
MOST_NAMED = 10  # genes of a process
EXCHANGES = 1999  # of labels, for the q-values of features of an ensemble
Look = Callable[[str], list[Any]]  # from the name of a gene to what is known of it


def most_important(run: Run, n: int = MOST_GENES) -> list[str]:
    """Names of the most important features."""
    return [run.stored.features[g] for g in np.argsort(-run.stored.metric.importance(), kind="stable")[:n]]


def gene_table(
    run: Run, axes: Directions | None, found: dict[str, Any] | None, types: dict[str, str] | None = None
) -> Table:
    """The most important genes: where they are higher, in which cells they differ, their axis, and how stable they are.

    Axes are those that are shown; what is None is not known.
    """
    names, shares = most_important(run), dict(zip(run.stored.features, run.stored.metric.importance(), strict=True))
    fields = [
        Field("Rank", "d"),
        Field(run.feature.capitalize()),
        Field("Importance", ".2%", bar=True, note="share of the distance"),
    ]
    parts: list[tuple[list[Field], Look]] = [direction_of(run)]
    if types is not None:
        note = "cell type in which means of the labels are farthest apart"
        parts.append(([Field("Differs most in", note=note)], lambda name: [types.get(name)]))
    if axes is not None:
        parts.append(_axis_of(run, axes))
    if found is not None:
        missing = [None] * len(found["fields"])
        parts.append(([Field(*field) for field in found["fields"]], lambda name: found["rows"].get(name, missing)))
    for more, _ in parts:
        fields += more
    rows = [
        [rank, name, float(shares[name]), *(value for _, look in parts for value in look(name))]
        for rank, name in enumerate(names, 1)
    ]
    few = len(rows) == len(shares)
    caption = "All" if few else f"The {len(rows)} most important of"
    choice = next((k for k, field in enumerate(fields) if field.name == "Axis"), None)
    return Table("genes", f"{caption} {len(shares):,} {run.feature}s", fields, rows, choice=choice)


def direction_of(run: Run) -> tuple[list[Field], Look]:
    """In which label a gene is higher; of ordered labels, whether it rises or falls with them."""
    samples, metric = run.samples, run.stored.metric
    if samples.X is None or not run.is_expression or metric.variances is None:
        return [], lambda name: []
    labels = run.stored.labels.reindex(samples.obs_names)
    known = labels.notna().to_numpy()
    X = pd.DataFrame(np.asarray(samples.X)[known], columns=samples.var_names)
    if run.is_ordered and run.results is not None:
        return _rise_of(run, X, list(samples.obs_names[known]))
    means = X.groupby(labels[known].astype(str).to_numpy()).mean()
    spread = pd.Series(np.sqrt(metric.variances), index=run.stored.features)
    several = len(means) > 2

    def look(gene: str) -> list[Any]:
        if gene not in means.columns:
            return [None] * (3 if several else 2)
        column = means[gene]
        lead = float((column.max() - column.min()) / (spread[gene] or 1.0))
        return [str(column.idxmax()), *([str(column.idxmin())] if several else []), lead]

    lowest = [Field("Lowest in")] if several else []
    difference = Field("Difference", ".2f", note="of label means, in standard deviations of the cells")
    return [Field("Highest in" if several else "Higher in"), *lowest, difference], look


def _rise_of(run: Run, X: pd.DataFrame, samples: list[str]) -> tuple[list[Field], Look]:
    assert run.results is not None
    assert run.results.numbers is not None
    place = {name: k for k, name in enumerate(run.results.samples)}
    numbers = run.results.numbers[[place[str(name)] for name in samples]]

    def look(gene: str) -> list[Any]:
        if gene not in X.columns or X[gene].nunique() < 2:
            return [None, None]
        rise = float(spearmanr(X[gene], numbers).statistic)
        return ["rises" if rise > 0 else "falls", rise]

    return [Field(f"With {run.label_key}"), Field("Correlation", "+.2f", note="of sample means, by ranks")], look


def types_of(cohort: Cohort, type_key: str, genes: list[str], steps: Steps) -> dict[str, str]:
    """By gene, the cell type in which means of the labels are farthest apart.

    Means are first over the cells of a sample, then over samples: a sample counts once, however many cells it has.
    """

    def compute() -> dict[str, str]:
        steps.begin("asking in which cells genes differ")
        run, D = cohort.run, cohort.of_the_metric
        place = {name: g for g, name in enumerate(run.stored.features)}
        types, kinds, _ = drawn_kinds(run, type_key, D.names)
        owner = np.repeat(np.arange(len(D)), D.sizes)
        which = kinds + len(types) * owner  # type and sample of each cell
        counts = np.bincount(which, minlength=len(types) * len(D))
        sums = sparse.csr_array((np.ones(which.size), (which, np.arange(which.size))), (counts.size, which.size))
        values = sums @ D.points[:, [place[gene] for gene in genes]]
        means = (values.toarray() if sparse.issparse(values) else values) / np.maximum(counts, 1)[:, None]
        means[counts == 0] = np.nan
        span = _span_of_labels(means.reshape(len(D), len(types), -1), run.classes.loc[D.names].to_numpy())
        return {gene: str(types[k]) for gene, k in zip(genes, span.argmax(axis=0), strict=True)}

    return cached(cohort.run, "gene types", [type_key, genes], compute)


def _span_of_labels(means: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Largest less smallest mean of a label, (types, genes), from means of samples, (samples, types, genes)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a type that no sample of a label has
        by_label = np.stack([np.nanmean(means[labels == label], axis=0) for label in np.unique(labels)])
        return np.nan_to_num(np.nanmax(by_label, axis=0) - np.nanmin(by_label, axis=0))


def _axis_of(run: Run, axes: Directions) -> tuple[list[Field], Look]:
    main = np.abs(axes.loadings).argmax(axis=0)
    place = {name: g for g, name in enumerate(run.stored.features)}

    def look(gene: str) -> list[Any]:
        g = place[gene]
        return [f"Axis {main[g] + 1}", float(axes.loadings[main[g], g])]

    return [Field("Axis", link="axis"), Field("Weight on axis", "+.3f")], look


def processes_of_axes(axes: Directions, features: list[str], gene_sets: str | os.PathLike[str]) -> list[Table | None]:
    """For each axis, the sets in which its strongest genes are over-represented; None where there are none."""
    sets = read_gmt(gene_sets)
    found: list[Table | None] = []
    for a, loadings in enumerate(axes.loadings, 1):
        if not axes.telling[a - 1]:
            found.append(None)
            continue
        n = min(TOP, max(1, len(features) // 5))
        top = [features[g] for g in np.argsort(-np.abs(loadings), kind="stable")[:n]]
        tested = over_representation(top, features, sets)
        rows = [
            [name.replace("_", " "), float(tested.q[s]), float(tested.effect[s]), _some(tested.overlap[s])]
            for s, name in enumerate(tested.sets[:MOST_SETS])
            if tested.q[s] < SURE
        ]
        fields = [Field("Process"), Field("q", ".1e"), Field("Fold", ".1f"), Field("Genes")]
        caption = f"Processes of the {n} strongest genes of axis {a}"
        found.append(Table(f"processes-{a}", caption, fields, rows) if rows else None)
    return found


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"


def by_members(run: Run) -> dict[str, Any]:
    """How much of each feature's importance is found in members of an ensemble, each trained on a part of the samples:
    columns for the table of features.
    """
    results = run.results
    assert results is not None
    n_top = min(N_TOP, len(run.stored.features))
    between = "95% of the members lie between low and high, and so does the importance"
    fields = [["Members, low", ".2%", False, between], ["Members, high", ".2%", False, between]]
    columns = [*results.interval]
    if n_top < len(run.stored.features):  # of few features all are at the top
        fields.append([f"In top {n_top}", ".0%", False, "share of the members, each trained on a part of the samples"])
        columns.append(results.selected)
    table = np.column_stack(columns)
    rows = {name: [float(value) for value in row] for name, row in zip(run.stored.features, table, strict=True)}
    return {
        "fields": fields, "rows": rows, "n_top": n_top, "selected": 2 if len(columns) > 2 else None, "q": None,
        "notes": [], "of": "members",
        "how": f"In the {results.n_members} members of the ensemble, each trained on a part of the samples",
    }  # fmt: skip


def with_q_values(found: dict[str, Any], cohort: Cohort, steps: Steps) -> dict[str, Any]:
    """The columns of `by_members`, and q-values: each feature is transported alone, labels are permuted.

    That is a sort, so that many permutations take little time.
    """

    def compute() -> list[float]:
        steps.begin(f"asking which features differ, with labels permuted {EXCHANGES} times")
        y = cohort.run.classes.loc[[str(name) for name in cohort.read.D.names]].to_numpy()
        tested = feature_significance(
            cohort.of_the_metric, y, groups=cohort.read.groups, strata=cohort.strata, n_permutations=EXCHANGES,
            random_state=0,
        )  # fmt: skip
        return [float(value) for value in tested.discoveries.q]

    q = cached(cohort.run, "q", [cohort.group_key, EXCHANGES], compute)
    field = ["q", ".2g", False, "estimated share of false ones among genes as good, by permuted labels"]
    rows = {name: [*row, value] for (name, row), value in zip(found["rows"].items(), q, strict=True)}
    return {**found, "fields": [*found["fields"], field], "rows": rows, "q": len(found["fields"])}


def refit(cohort: Cohort, refits: int, tested: bool, steps: Steps) -> dict[str, Any]:
    """Refit a single learner on bootstrap samples: columns for the table of features; q-values if `tested`."""
    run = cohort.run

    def compute() -> dict[str, Any]:
        each = max(float(run.findings.get("seconds") or 0.0), 0.1)  # as long as learning took
        number = steps.affordable(refits, each)
        if number < 2:
            raise ValueError(f"a refit takes about {duration(each)}, and none fits into the budget: give a longer one")
        steps.begin(f"learning again {number} times from samples drawn anew", number * each)
        learner = learner_of(run)
        learner.metric_ = run.stored.metric
        result = stability(
            learner, cohort.of_the_metric, cohort.read.y, groups=cohort.read.groups, n_refits=number,
            n_jobs=steps.n_jobs, verbose=steps.verbose,
        )  # fmt: skip
        notes = [] if number == refits else [f"Stability of the genes: {number} refits fit the budget."]
        return _stability_columns(result) | {"notes": notes}

    columns = cached(run, "stability", [cohort.group_key, refits, steps.budget], compute)
    return with_q_values(columns, cohort, steps) if tested else columns


def _stability_columns(found: Any) -> dict[str, Any]:
    low, high = found.interval
    columns = {"low": low, "high": high, "selected": found.selected}
    between = "95% of the refits lie between low and high"
    fields = [["Refits, low", ".2%", False, between], ["Refits, high", ".2%", False, between]]
    fields.append([f"In top {found.n_top}", ".0%", False, f"share of {len(found.refits)} refits"])
    table = np.column_stack(list(columns.values()))
    return {
        "fields": fields,
        "rows": {name: [float(value) for value in row] for name, row in zip(found.features, table, strict=True)},
        "n_top": found.n_top,
        "selected": 2,  # its column
        "q": None,
        "how": f"Learned again {len(found.refits)} times from samples drawn anew",
        "of": "refits",
    }
