"""Content of a report from a run: what is known at once, then what takes long, and the facts."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.annotations import find_column
from .._anndata.store import EnsembleResults
from .._internal.tables import counted
from . import summary
from .content import Axis, Caution, CellMap, Content, Evaluation, Field, Part, SampleMap, Table
from .genes import by_members, gene_table, most_important, processes_of_axes, refit, types_of, with_q_values
from .plans import Directions, axis_list, cell_map, directions, draw_cells, relevance, type_relevance, type_table
from .run import Log, Run, Steps, check_values, has_values, with_order
from .samples import Predictions, sample_map
from .scores import Cohort, evaluate

PERMUTATIONS = 99  # of an ensemble, unless another number is asked for
TYPES = ("cell_type", "celltype", "cell_types", "cell type", "annotation")  # columns taken for cell types
KINDS = {
    "univariate": "weights of features: t statistic of the distance to unlike minus like samples",
    "anova": "weights of features: F statistic between labels",
    "learned": "weights of features: triplet loss under optimal transport, from the first",
    "euclidean": "no labels: equal weights of standardised features",
}
PACKAGES = ("numpy", "scipy", "scikit-learn", "anndata")


def collect(
    run: Run,
    *,
    title: str | None = None,
    group_key: str | None = None,
    cell_type_key: str | None = None,
    gene_sets: str | os.PathLike[str] | None = None,
    refits: int = 20,
    permutations: int | None = None,
    evaluation: bool = True,
    budget: float | None = None,
    parts: Sequence[Part] = (),
    first: Callable[[Content], Any] | None = None,
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
    permutations : int or None, default=None
        Permutations of labels, to test scores and genes against chance; 0: no test. None: 99 of an ensemble, which
        shares most of the work among them, and none of a single learner, each of which costs a whole evaluation.
    evaluation : bool, default=True
        Whether to score the metric on held-out samples, against quick baselines, and to test it.
    budget : float or None, default=None
        Seconds for all of this: permutations and refits are as many as fit. None: no limit.
    parts : sequence of Part, default=()
        Sections to add.
    first : function of Content or None, default=None
        Called before the first step that takes long, with what is known at once.
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
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), None, {})
    >>> gm.report.collect(run, refits=0, evaluation=False).title
    'What tells control and disease apart'
    """
    if evaluation:
        check_values(run)
    type_key = _type_key(run, cell_type_key)
    group_key = run.group_key if group_key is None else group_key
    if permutations is None:
        permutations = PERMUTATIONS if run.results is not None else 0
    page = _Page(run, title or _title(run), type_key, group_key, parts)
    steps = Steps(n_jobs, verbose, log, budget, None if first is None else lambda: first(page.at_once()))
    cells = draw_cells(run)
    axes = directions(run, cells, type_key, steps)
    processes: list[Table | None] = [None] * len(axes.share)
    if gene_sets is not None and run.is_expression:
        processes = processes_of_axes(axes, run.stored.features, gene_sets)
        page.left_out += _without_process(processes, axes.telling)
    else:
        page.left_out.append("Processes of the axes: give a GMT file with --gene-sets.")
    page.axes, page.listed = axes, axis_list(run, axes, processes)
    if type_key is None:
        page.left_out.append("Cell types: no column of obs is known to hold them; name it with --cell-type.")
    else:
        page.types = type_table(run, type_key, type_relevance(run, cells, type_key, steps))
    page.cells, hidden = cell_map(run, cells, axes, type_key, relevance(run, cells, type_key, steps))
    _scored(page, permutations if evaluation else 0, refits, evaluation, steps)
    return page.content(hidden)


def _scored(page: _Page, permutations: int, refits: int, evaluation: bool, steps: Steps) -> None:
    """Stability of the genes, scores and tests: what needs the values."""
    run, cohort, key = page.run, Cohort(page.run, page.group_key), page.type_key
    if evaluation and key is not None and run.is_expression:
        page.gene_types = page.optional("Cell types in which genes differ", True, "",
                                        lambda: types_of(cohort, key, most_important(run), steps))  # fmt: skip
    if run.results is not None:
        if permutations:
            found = page.optional("q-values of genes", True, "", lambda: with_q_values(by_members(run), cohort, steps))
            page.stable = page.stable if found is None else found
    else:
        page.stable = page.optional("Stability of the genes", refits > 0, "give --refits 20",
                                    lambda: refit(cohort, refits, permutations > 0, steps))  # fmt: skip
    found = page.optional("Scores on held-out samples", evaluation, "leave out --no-evaluate",
                          lambda: evaluate(cohort, permutations, steps))  # fmt: skip
    if found is not None:
        page.scores, predictions, notes = found
        page.predictions = page.predictions if predictions is None else predictions
        page.left_out += notes
    if not permutations:
        page.left_out.append(f"Test against chance and q-values of genes: give --permutations {PERMUTATIONS}.")


class _Page:
    """What is known of a page so far: parts are filled in as they are computed."""

    def __init__(
        self, run: Run, title: str, type_key: str | None, group_key: str | None, parts: Sequence[Part]
    ) -> None:
        self.run, self.title, self.type_key, self.group_key, self.parts = run, title, type_key, group_key, parts
        self.left_out: list[str] = []
        self.axes: Directions | None = None
        self.listed: list[Axis] = []
        self.types: Table | None = None
        self.cells: CellMap | None = None
        self.gene_types: dict[str, str] | None = None
        self.scores: Evaluation | None = None
        self.stable = None if run.results is None else by_members(run)
        self.predictions = None if run.results is None else Predictions.of_ensemble(run.results)

    def optional(self, what: str, wanted: bool, remedy: str, compute: Callable[[], Any]) -> Any:
        """A part that needs the values, or None and a note why it is not there."""
        if not wanted:
            self.left_out.append(f"{what}: {remedy}.")
        elif not has_values(self.run):
            self.left_out.append(f"{what}: the values are needed, and the run does not have them.")
        else:
            try:
                return compute()
            except ValueError as error:
                self.left_out.append(f"{what}: {error}.")
        return None

    @cached_property
    def cautions(self) -> list[Caution]:
        """Warnings of what is known of the samples and of training; batches are tested once for both pages."""
        run, samples = self.run, sample_map(self.run, None)[0]
        known = _without_results(run)
        return [
            *summary.cautions_of(known, run.label_key, run.sample_key, self.group_key, samples.distances),
            *_cautions_of_training(run),
        ]

    def at_once(self) -> Content:
        """Samples and genes, which take no time; the page says that more follows."""
        pending = ["axes of the learned space", "cells", "cell types", "scores and tests"]
        return self.content([], pending if self.type_key is not None else [p for p in pending if p != "cell types"])

    def content(self, hidden: Sequence[str], pending: Sequence[str] = ()) -> Content:
        run = self.run
        samples, more = sample_map(run, self.predictions)
        unused = list(dict.fromkeys([*more, *hidden]))
        left_out = [*self.left_out]
        if unused and not pending:
            left_out.append(f"Columns that cannot be coloured by, for their many values: {', '.join(unused)}.")
        left_out += [] if self.stable is None else self.stable["notes"]
        cautions = self.cautions
        genes = gene_table(run, self.axes, self.stable, self.gene_types)
        feature = run.feature
        return Content(
            title=self.title,
            subtitle=f"{run.samples.n_obs} samples, a learned ground metric and the optimal transport between them",
            label=run.label_key,
            facts=facts_of(run),
            summary=self._answers(samples, genes, cautions, bool(pending)),
            cautions=cautions,
            samples=samples,
            cells=self.cells,
            genes=genes,
            feature=feature,
            axes=self.listed,
            types=self.types,
            history={name: np.asarray(values) for name, values in run.entry.get("history", {}).items()},
            evaluation=self.scores,
            left_out=left_out,
            parts=self.parts,
            kinds=None if run.results is None else kind_table(run.results),
            confusion=None if self.predictions is None else self.predictions.confusion(run.label_key),
            n_axes=0 if self.axes is None else self.axes.n_all,
            pending=list(pending),
        )

    def _answers(self, samples: SampleMap, genes: Table, cautions: Sequence[Caution], pending: bool) -> dict[str, str]:
        """A few sentences for each question that a report is about."""
        run, feature = self.run, self.run.feature
        drawn = int(run.cells.obs[f"{run.key}_sampled"].sum())
        held_out = None if run.results is None else run.results.scores
        found: dict[str, Sequence[str | None]] = {
            "samples": [
                summary.describe_data(drawn, len(run.classes), _labels(run), len(run.stored.features), feature),
                summary.describe_aim(run.label_key, run.is_ordered),
                summary.describe_neighbours(samples, run.label_key, _numbers(run, samples.names)),
                summary.describe_errors(self.predictions),
            ],
            "label": summary.describe_scores(self.scores, held_out, pending),
            "genes": [
                summary.describe_genes(genes, feature), summary.describe_stability(self.stable, genes, feature)
            ],
            "cells": [summary.describe_types(self.types), summary.describe_axis(self.listed, self.types)],
            "care": [
                summary.describe_cautions(cautions),
                summary.describe_cell_numbers(_without_results(run), run.label_key, self.group_key),
            ],
        }  # fmt: skip
        return summary.answers(found, feature)


def _numbers(run: Run, names: list[str]) -> np.ndarray | None:
    """Labels of samples that are numbers in an order; NaN where there is none."""
    if not run.is_ordered or run.stored.labels.dtype.kind not in "biuf":
        return None
    return run.stored.labels.reindex(names).to_numpy(dtype=np.float64)


def _without_process(processes: list[Table | None], telling: list[bool]) -> list[str]:
    none = [str(a) for a, table in enumerate(processes, 1) if table is None and telling[a - 1]]
    return [f"Processes of axis {', '.join(none)}: no set stands out (q < 0.05)."] if none else []


def _without_results(run: Run) -> pd.DataFrame:
    """What was known of the samples before: what is predicted goes with the label, and is no batch.

    Labels that are many numbers are thirds of them.
    """
    own = [name for name in run.samples.obs.columns if str(name).startswith(f"{run.key}_")]
    found = run.samples.obs.drop(columns=own)
    return found.assign(**{run.label_key: run.classes.reindex(found.index)}) if run.is_ordered else found


def _cautions_of_training(run: Run) -> list[Caution]:
    if run.results is not None:
        return [*summary.cautions_of_training(run.stored.params, True, 0), *summary.cautions_of_ensemble(run.results)]
    history = run.entry["history"]
    done = bool(run.entry["converged"]) or not any(history["active"][-1:])  # no active triplet is left
    return summary.cautions_of_training(
        run.stored.params, done, len(history["loss"]), bool(run.findings.get("interrupted"))
    )


def kind_table(results: EnsembleResults) -> Table:
    """A row per kind of member, by its weight in the metric."""
    fields = [Field("Kind"), Field("What it learns"), Field("Weight in the metric", ".0%", bar=True)]
    weights = sorted(results.weights.items(), key=lambda item: -item[1])
    rows: list[list[Any]] = [[kind, KINDS.get(kind, ""), weight] for kind, weight in weights]
    return Table("kinds", f"Kinds of the {results.n_members} members, and the Euclidean metric", fields, rows)


def _title(run: Run) -> str:
    names = sorted(set(run.classes.astype(str)))
    if run.is_ordered:
        return f"What goes with {run.label_key}"
    labels = summary.enumerated(names) if len(names) < 4 else f"{len(names)} values of {run.label_key}"
    return f"What tells {labels} apart"


def _type_key(run: Run, key: str | None) -> str | None:
    columns = run.cells.obs.columns
    if key is not None:
        find_column(run.cells.obs, key, "cell_type_key")
        return key
    return next((str(name) for name in columns if str(name).lower() in TYPES), None)


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
        "Labels": f"{_labels(run)} (column {run.label_key!r})",
        "Cells learned from": f"{drawn:,}, at most {params.get('n_cells', 'all')} per sample",
        "Values": f"{values}, {len(run.stored.features):,} {run.feature}s"
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


def _labels(run: Run) -> str:
    """How many samples have which label; of numbers, from which to which."""
    labels = run.stored.labels
    if run.is_ordered and labels.dtype.kind in "biuf":
        return f"{run.label_key} from {labels.min():.4g} to {labels.max():.4g}"
    counts = with_order(run, labels.to_frame(run.label_key))[run.label_key].value_counts().sort_index()
    return summary.enumerated(counted({str(name): int(count) for name, count in counts.items()}))


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
