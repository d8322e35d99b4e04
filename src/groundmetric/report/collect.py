"""Content of a report from a run: facts, maps of samples and cells, tables of genes, axes and cell types."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.annotations import find_column
from .._anndata.store import EnsembleResults
from ..interpret import over_representation, read_gmt
from ..interpret.axes import Layout
from ..interpret.course import nothing_left
from . import summary
from .content import (  # fmt: skip
    Axis,
    Caution,
    CellMap,
    Column,
    Content,
    Evaluation,
    Field,
    Part,
    SampleMap,
    Table,
    column_of,
    columns_of,
)
from .run import (  # fmt: skip
    Directions,
    Log,
    Run,
    by_members,
    directions,
    evaluate,
    has_values,
    refit,
    relevance,
    type_relevance,
)

MOST_CELLS, MOST_GENES, PER_AXIS = 3000, 300, 12
TOP, MOST_SETS, SURE = 50, 8, 0.05  # genes of an axis that are tested, sets that are shown, q below which they are
TYPES = ("cell_type", "celltype", "cell_types", "cell type", "annotation")  # columns taken for cell types
KINDS = {
    "univariate": "weights of single features, by how much farther unlike samples are than like ones",
    "anova": "weights of single features, by the variance between samples that labels explain",
    "learned": "the first, moved by triplets of samples under optimal transport",
    "euclidean": "nothing: standardised features, all alike",
}
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "anndata")


def collect(
    run: Run,
    *,
    title: str | None = None,
    group_key: str | None = None,
    cell_type_key: str | None = None,
    gene_sets: str | os.PathLike | None = None,
    refits: int = 20,
    permutations: int = 0,
    evaluation: bool = True,
    parts: Sequence[Part] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
    log: Log = lambda line: None,
) -> Content:
    """Content of the report on a run; what is missing is computed.

    Parameters
    ----------
    run : Run
        The run.
    title : str or None, default=None
        Title of the page; None: what tells the labels apart.
    group_key : str or None, default=None
        Column of `obs`, e.g. the patient: samples with the same value are held out and drawn together. None: that of
        `tl.learn`, where it had one.
    cell_type_key : str or None, default=None
        Column of `obs` with the cell types; None: "cell_type" or the like, where there is one.
    gene_sets : str, path or None, default=None
        GMT file, to name the processes of the axes.
    refits : int, default=20
        Fits on samples drawn anew, for the stability of genes; 0: none. An ensemble needs none: its members tell.
    permutations : int, default=0
        Permutations of labels, to test scores and genes against chance; each costs a whole evaluation.
    evaluation : bool, default=True
        Whether to score the metric on held-out samples, against quick baselines.
    parts : sequence of Part, default=()
        Sections to add.
    n_jobs : int or None, default=None
        Threads or processes; None: one.
    verbose : int, default=0
        1 shows progress bars where there is a terminal.
    log : function of str
        Called with a line about each step that begins; the default does nothing.

    Returns
    -------
    Content
        Content of the page, which `save` writes.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> gm.tl.learn(adata, "sample", "condition", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), None, {})
    >>> gm.report.collect(run, refits=0, evaluation=False).title
    'What tells control and disease apart'
    """
    type_key = _type_key(run, cell_type_key)
    left_out: list[str] = []
    group_key = run.group_key if group_key is None else group_key
    working: dict[str, Any] = {"group_key": group_key, "n_jobs": n_jobs, "verbose": verbose, "log": log}
    axes = directions(run, n_jobs, log)
    processes: list[Table | None] = [None] * len(axes.share)
    if gene_sets is not None and run.is_expression:
        processes = processes_of_axes(axes, run.stored.features, gene_sets)
        left_out += _without_process(processes)
    else:
        left_out.append("Processes of the axes: give a GMT file with --gene-sets.")
    scores = _optional(left_out, "Scores on held-out samples", run, evaluation, "leave out --no-evaluate",
                  lambda: evaluate(run, permutations=permutations, **working))  # fmt: skip
    if run.results is not None:
        testable = permutations if has_values(run) and run.results.numbers is None else 0
        stable = by_members(run, group_key=group_key, permutations=testable, log=log)
    else:
        stable = _optional(left_out, "Stability of the genes", run, refits > 0, "give --refits 20",
                      lambda: refit(run, refits=refits, permutations=permutations, **working))  # fmt: skip
    if not permutations:
        left_out.append("Test against chance and q-values of genes: give --permutations 199.")
    types = None
    if type_key is None:
        left_out.append("Cell types: no column of obs is known to hold them; name it with --cell-type.")
    else:
        types = type_table(run, type_key, type_relevance(run, type_key, n_jobs, log))
    samples, hidden = sample_map(run)
    cells, more = cell_map(run, axes, type_key, relevance(run, n_jobs, log))
    unused = list(dict.fromkeys([*hidden, *more]))
    if unused:
        left_out.append(f"Columns that cannot be coloured by, for their many values: {', '.join(unused)}.")
    left_out += [] if stable is None else stable["notes"]
    feature = "gene" if run.is_expression else "dimension"
    return Content(
        title=title or _title(run),
        subtitle=f"{run.samples.n_obs} samples, a learned ground metric and the optimal transport between them",
        label=run.label_key,
        facts=facts_of(run),
        summary=_summary(run, scores, stable, types, feature),
        cautions=[
            *summary.cautions_of(_without_results(run), run.label_key, run.sample_key, group_key),
            *_cautions_of_training(run),
        ],
        samples=samples,
        cells=cells,
        genes=gene_table(run, axes, stable),
        feature=feature,
        axes=axis_list(run, axes, processes),
        types=types,
        history={name: np.asarray(values) for name, values in run.entry.get("history", {}).items()},
        evaluation=scores,
        left_out=left_out,
        parts=parts,
        kinds=None if run.results is None else kind_table(run.results),
    )


def _without_results(run: Run) -> pd.DataFrame:
    """What was known of the samples before: what is predicted goes with the label, and is no batch."""
    own = [name for name in run.samples.obs.columns if str(name).startswith(f"{run.key}_")]
    return run.samples.obs.drop(columns=own)


def _cautions_of_training(run: Run) -> list[Caution]:
    if run.results is not None:
        return [*summary.cautions_of_training(run.stored.params, True, 0), *summary.cautions_of_ensemble(run.results)]
    history = run.entry["history"]
    done = bool(run.entry["converged"]) or nothing_left(history)  # more epochs would learn nothing
    return summary.cautions_of_training(
        run.stored.params, done, len(history["loss"]), bool(run.findings.get("interrupted"))
    )


def kind_table(results: EnsembleResults) -> Table:
    """A row per kind of member, by its weight in the metric."""
    fields = [Field("Kind"), Field("What it learns"), Field("Weight in the metric", ".0%", bar=True)]
    weights = sorted(results.weights.items(), key=lambda item: -item[1])
    rows: list[list[Any]] = [[kind, KINDS.get(kind, ""), weight] for kind, weight in weights]
    return Table("kinds", f"Kinds of the {results.n_members} members, and what does not look at labels", fields, rows)


def _title(run: Run) -> str:
    names = list(label_counts(run))
    labels = " and ".join(names) if len(names) < 4 else f"{len(names)} values of {run.label_key}"
    return f"What tells {labels} apart"


def _optional(left_out: list[str], what: str, run: Run, wanted: bool, remedy: str, compute: Any) -> Any:
    """A part that needs the values, or None and a note why it is not there."""
    if not wanted:
        left_out.append(f"{what}: {remedy}.")
    elif not has_values(run):
        left_out.append(f"{what}: the values are needed, but {run.findings.get('cells')!r} is no longer there.")
    else:
        try:
            return compute()
        except ValueError as error:
            left_out.append(f"{what}: {error}.")
    return None


def _without_process(processes: list[Table | None]) -> list[str]:
    none = [str(a) for a, table in enumerate(processes, 1) if table is None]
    return [f"Processes of axis {', '.join(none)}: no set stands out (q < 0.05)."] if none else []


def _type_key(run: Run, key: str | None) -> str | None:
    columns = run.cells.obs.columns
    if key is not None:
        find_column(run.cells.obs, key, "cell_type_key")
        return key
    return next((str(name) for name in columns if str(name).lower() in TYPES), None)


def _summary(run: Run, scores: Evaluation | None, stable: Any, types: Table | None, feature: str) -> list[str]:
    shares = run.stored.metric.importance()
    order = np.argsort(-shares, kind="stable")
    names = [run.stored.features[g] for g in order]
    drawn = int(run.cells.obs[f"{run.key}_sampled"].sum())
    sentences = [
        summary.describe_data(drawn, label_counts(run), run.label_key, len(names), feature),
        *summary.describe_scores(scores, None if run.results is None else run.results.scores),
        summary.describe_genes(names, shares[order].tolist(), feature),
        summary.describe_stability(stable, names, feature),
        summary.describe_types(types),
    ]
    return [sentence for sentence in sentences if sentence is not None]


def label_counts(run: Run) -> dict[str, int]:
    return dict(sorted(Counter(map(str, run.stored.labels.tolist())).items()))


def facts_of(run: Run) -> dict[str, dict[str, str]]:
    """What was learned from what: groups of names and values."""
    params, learner, findings = run.stored.params, run.learner, run.findings
    values = f"obsm[{params['use_rep']!r}]" if params.get("use_rep") else (
        f"layer {params['layer']!r}" if params.get("layer") else "X"
    )  # fmt: skip
    drawn = int(run.cells.obs[f"{run.key}_sampled"].sum())
    data = {
        "File": str(findings.get("cells", "in memory")),
        "Samples": f"{run.samples.n_obs} (column {run.sample_key!r})",
        "Labels": ", ".join(f"{count} {name}" for name, count in label_counts(run).items())
        + f" (column {run.label_key!r})",
        "Cells learned from": f"{drawn:,}, at most {params.get('n_cells', 'all')} per sample",
        "Values": f"{values}, {len(run.stored.features):,} {'genes' if run.is_expression else 'dimensions'}"
        + (f" chosen by {params['genes']!r}" if run.is_expression else ""),
    }
    shown = {name: str(value) for name, value in learner.items() if name not in ("verbose", "n_jobs")}
    course = {
        **_course(run),
        "Time": f"{findings['seconds']:.1f} s" if findings.get("seconds") is not None else "not noted",
        "Seed": str(params.get("random_state", 0)),
    }
    versions = {"groundmetric": str(run.entry["version"]), "Python": platform.python_version(), **_versions()}
    return {"Data": data, "Training": course, "Parameters": shown, "Versions": versions}


def _course(run: Run) -> dict[str, str]:
    if run.results is not None:
        return {"Learner": "ensemble", "Members": str(run.results.n_members)}
    stopped = "interrupted" if run.findings.get("interrupted") else "stopped at the last"
    epochs = len(run.entry["history"]["loss"])
    return {"Learner": "single", "Epochs": f"{epochs} ({'converged' if run.entry['converged'] else stopped})"}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # installed without its metadata
            found[name] = "unknown"
    return found


def sample_map(run: Run) -> tuple[SampleMap, list[str]]:
    """The samples in the plane, by distances out of bag where there are some: these hold for new samples too."""
    out_of_bag = f"{run.key}_out_of_bag" in run.samples.obsp
    obs = run.samples.obs
    distances = np.asarray(run.samples.obsp[f"{run.key}_{'out_of_bag' if out_of_bag else 'distances'}"])
    names = [str(name) for name in run.samples.obs_names]
    columns, unused = columns_of(obs.drop(columns=run.sample_key, errors="ignore"), [run.label_key])
    layout = Layout(distances, columns[0].groups)
    quality = _squared_correlation(distances, layout.positions)
    return SampleMap(names, layout.positions, columns, distances, layout.by_class, quality, out_of_bag), unused


def _squared_correlation(distances: np.ndarray, places: np.ndarray) -> float:
    """Correlation of the distances in the plane with those given, squared."""
    far = np.linalg.norm(places[:, None] - places[None], axis=2)
    pairs = np.triu_indices(len(distances), 1)
    one, other = distances[pairs], far[pairs]
    if one.size < 2 or one.std() == 0 or other.std() == 0:
        return 1.0
    return float(np.corrcoef(one, other)[0, 1] ** 2)


def cell_map(run: Run, axes: Directions, type_key: str | None, relevance: np.ndarray) -> tuple[CellMap, list[str]]:
    """An even draw of cells from all samples, along the first two axes."""
    obs = run.cells.obs
    rows = _even_draw(obs[run.sample_key].astype(str).to_numpy(), MOST_CELLS)
    z = np.asarray(run.cells.obsm[f"X_{run.key}"])
    turned = (z - z.mean(axis=0)) @ axes.rotation[:2].T
    if turned.shape[1] < 2:  # one component: spread over the height, for the eye only
        turned = np.column_stack([turned[:, 0], np.random.default_rng(0).uniform(-1, 1, len(turned)) * turned.std()])
    hidden = [name for name in obs.columns if str(name).startswith(f"{run.key}_")]
    shown = obs.drop(columns=[*hidden, run.sample_key]).iloc[rows]
    columns, unused = columns_of(shown, [run.label_key, *([type_key] if type_key else [])])
    sample = column_of(run.sample_key, obs[run.sample_key].astype(str).iloc[rows], None)
    assert sample is not None
    columns += [Column("relevance", relevance[rows]), sample]
    return CellMap(turned[rows], columns, axes.share[:2].tolist(), run.cells.n_obs), unused


def _even_draw(owner: np.ndarray, most: int) -> np.ndarray:
    if owner.size <= most:
        return np.arange(owner.size)
    random = np.random.default_rng(0)
    turn = pd.Series(random.permutation(owner.size)).groupby(owner).rank().to_numpy()
    # Every sample gives its first, then every one its second, until there are enough; in random order, so that none
    # is drawn over all others.
    return random.permutation(np.argsort(turn + random.uniform(0, 0.5, owner.size), kind="stable")[:most])


def gene_table(run: Run, axes: Directions, stability: dict[str, Any] | None) -> Table:
    """The most important genes, in which label they are higher, on which axis they weigh, and how stable that is."""
    metric, names = run.stored.metric, run.stored.features
    shares = metric.importance()
    order = np.argsort(-shares, kind="stable")[:MOST_GENES]
    main = np.abs(axes.loadings).argmax(axis=0)
    higher = _higher(run)
    what = "Gene" if run.is_expression else "Dimension"
    fields = [Field("Rank", "d"), Field(what), Field("Importance", ".2%", bar=True, note="share of the distance"),
              Field("Axis"), Field("Weight on axis", "+.3f")]  # fmt: skip
    if higher is not None:
        fields += [Field("Higher in"), Field("Difference", ".2f", note="of label means, in standard deviations")]
    if stability is not None:
        fields += [Field(*field) for field in stability["fields"]]
    rows: list[list[Any]] = []
    for rank, g in enumerate(order, 1):
        row = [rank, names[g], float(shares[g]), f"Axis {main[g] + 1}", float(axes.loadings[main[g], g])]
        row += list(higher(names[g])) if higher is not None else []
        row += stability["rows"].get(names[g], [None] * len(stability["fields"])) if stability is not None else []
        rows.append(row)
    kind = "genes" if run.is_expression else "dimensions"
    caption = f"The {len(rows)} most important of {len(names):,} {kind}"
    return Table("genes", caption, fields, rows, choice=3)


def _higher(run: Run) -> Any:
    """A function of a gene: the label with the highest mean over its samples, and its lead over the lowest."""
    samples, metric = run.samples, run.stored.metric
    if samples.X is None or not run.is_expression or metric.variances is None:
        return None
    X = np.asarray(samples.X)
    labels = run.stored.labels.reindex(samples.obs_names)
    known = labels.notna().to_numpy()
    means = pd.DataFrame(X[known], columns=samples.var_names).groupby(labels[known].astype(str).to_numpy()).mean()
    spread = pd.Series(np.sqrt(metric.variances), index=run.stored.features)

    def look(gene: str) -> tuple[str | None, float | None]:
        if gene not in means.columns:
            return None, None
        column = means[gene]
        return str(column.idxmax()), float((column.max() - column.min()) / (spread[gene] or 1.0))

    return look


def axis_list(run: Run, axes: Directions, processes: list[Table | None]) -> list[Axis]:
    found = []
    for a, loadings in enumerate(axes.loadings):
        top = np.argsort(-np.abs(loadings), kind="stable")[:PER_AXIS]
        genes = [(run.stored.features[g], float(loadings[g])) for g in top]
        low, high = axes.labels[int(axes.positions[:, a].argmin())], axes.labels[int(axes.positions[:, a].argmax())]
        found.append(Axis(f"Axis {a + 1}", float(axes.share[a]), (low, high), genes, processes[a]))
    return found


def type_table(run: Run, type_key: str, found: dict[str, list]) -> Table:
    """A row per cell type, those first that carry most of the difference; then its share of the cells by label."""
    obs = run.cells.obs
    kinds = obs[type_key].astype(object).where(obs[type_key].notna(), "unknown").astype(str)
    counts = pd.crosstab(obs[run.sample_key].astype(str), kinds)
    shares = counts.div(counts.sum(axis=1), axis=0)
    labels = run.stored.labels.astype(str).reindex(shares.index)
    by_label = shares.groupby(labels.to_numpy()).mean()
    fields = [Field("Cell type"), Field("Share of difference", ".1%", bar=True), Field("Low", ".1%"),
              Field("High", ".1%"), Field("Relevance", "+.3f", note="mean of its cells")]  # fmt: skip
    fields += [Field(f"Cells in {label}", ".1%") for label in by_label.index]
    rows = [
        [name, *(found[part][k] for part in ("share", "low", "high", "relevance")),
         *(float(value) for value in by_label[name])]
        for k, name in enumerate(found["values"])
    ]  # fmt: skip
    rows.sort(key=lambda row: -(row[1] if row[1] is not None else -np.inf))
    return Table("types", f"Cell types (column {type_key!r}), with 95% intervals over samples", fields, rows)


def sample_table(found: SampleMap) -> Table:
    """Every sample with what is known of it: the map for those who do not see it."""
    near = found.distances + np.diag(np.full(len(found.names), np.inf))
    fields = [Field("Sample")]
    fields += [Field(column.name, None if column.is_class else ".4g") for column in found.columns]
    fields += [Field("Nearest sample"), Field("Its distance", ".3f")]
    rows = []
    for s, name in enumerate(found.names):
        values = [_value(column, s) for column in found.columns]
        last = [found.names[int(near[s].argmin())], float(near[s].min())] if len(found.names) > 1 else [None, None]
        rows.append([name, *values, *last])
    return Table("samples", "All samples", fields, rows)


def _value(column: Column, row: int) -> Any:
    if column.values is not None:
        return column.values[column.codes[row]] if column.codes[row] >= 0 else None
    value = float(column.codes[row])
    return value if np.isfinite(value) else None


def processes_of_axes(axes: Directions, features: list[str], gene_sets: str | os.PathLike) -> list[Table | None]:
    """For each axis, the sets in which its strongest genes are over-represented; None where there are none."""
    sets = read_gmt(gene_sets)
    found: list[Table | None] = []
    for a, loadings in enumerate(axes.loadings, 1):
        n = min(TOP, max(1, len(features) // 5))
        top = [features[g] for g in np.argsort(-np.abs(loadings), kind="stable")[:n]]
        tested = over_representation(top, features, sets)
        rows = [
            [name.replace("_", " "), float(tested.q[s]), float(tested.effect[s]), ", ".join(tested.overlap[s])]
            for s, name in enumerate(tested.sets[:MOST_SETS])
            if tested.q[s] < SURE
        ]
        fields = [Field("Process"), Field("q", ".1e"), Field("Fold", ".1f"), Field("Genes")]
        caption = f"Processes of the {n} strongest genes of axis {a}" + ("" if rows else f": none with q < {SURE}")
        found.append(Table(f"processes-{a}", caption, fields, rows) if rows else None)
    return found
