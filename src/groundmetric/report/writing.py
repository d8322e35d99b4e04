"""A report of a run: compute what is missing, collect, and write one page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..safe_files import write_whole
from . import summary
from .cautions import cautions_of, cautions_of_training
from .collecting import axis_list, cell_map, facts_of, gene_table, label_counts, sample_map, type_table
from .computing import Log, evaluate, has_values, refit, relevance
from .content import Content, Evaluation, Part, Table
from .figures import figures_of, save_figures
from .page import page
from .processes import processes_of_axes
from .reading import directions, type_relevance
from .run import Run

REPORT = "report.html"
TYPES = ("cell_type", "celltype", "cell_types", "cell type", "annotation")


def write(
    run: Run | str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    title: str | None = None,
    group_key: str | None = None,
    cell_type_key: str | None = None,
    gene_sets: str | os.PathLike | None = None,
    refits: int = 20,
    permutations: int = 0,
    evaluation: bool = True,
    figures: str | os.PathLike | None = None,
    parts: Sequence[Part] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Write one HTML page about what was learned, and return what it says first.

    What takes long is kept in the folder of the run, so that a second report is quick.

    Parameters
    ----------
    run : folder that `groundmetric learn` wrote, or a Run
    output : file to write; None: report.html in the folder of the run. An older report is replaced, no other file is.
    title : of the page
    group_key : column of `obs`, the patient: whose samples are held out and drawn together
    cell_type_key : column of `obs`; None: "cell_type" or the like, where there is one
    gene_sets : GMT file, to name the processes of the axes
    refits : fits on samples drawn anew, for the stability of genes; 0: none
    permutations : of labels, to test scores and genes against chance; each costs a whole evaluation
    evaluation : whether to score the metric on held-out samples, against quick baselines
    figures : folder for every figure as PNG and SVG, over older ones of the same names; None: none
    parts : sections to add
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if output is None and run.folder is None:
        raise ValueError("output is None: for a run that has no folder, say which file to write")
    path = Path(output) if output is not None else run.folder / REPORT  # type: ignore[operator]
    check_place(path)
    content = collect(
        run, title=title, group_key=group_key, cell_type_key=cell_type_key, gene_sets=gene_sets, refits=refits,
        permutations=permutations, evaluation=evaluation, parts=parts, n_jobs=n_jobs, verbose=verbose, log=log,
    )  # fmt: skip
    drawn = []
    if figures is not None:
        log("drawing")
        drawn = save_figures(figures_of(run, content), Path(figures))
    return {**save(content, path), "figures": drawn}


def save(content: Content, path: Path) -> dict[str, Any]:
    """Write the page, whole or not at all, over an older page only, and return what it says first."""
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(content).encode()
    write_whole(path, [text])
    return {
        "report": str(path),
        "bytes": len(text),
        "summary": content.summary,
        "warnings": [f"{caution.title}: {caution.text}" for caution in content.cautions],
        "left_out": content.left_out,
        "scores": None if content.evaluation is None else content.evaluation.rows,
        "against_chance": None if content.evaluation is None else content.evaluation.test,
    }


def check_place(path: Path) -> None:
    """Raise if a page would replace something else."""
    if path.is_dir():
        raise ValueError(f"output {str(path)!r} is a folder: give a file")
    if os.path.lexists(path) and not is_page(path):
        raise ValueError(f"output {str(path)!r} exists and is no earlier report: it would be lost; give another file")


def is_page(path: Path) -> bool:
    """Whether a file is a page that `save` wrote, or empty."""
    if not path.is_file():
        return False
    content = path.read_bytes()
    return not content or (content.startswith(b"<!doctype html>") and b"<footer>Made by groundmetric " in content)


def collect(
    run: Run,
    *,
    title: str | None,
    group_key: str | None,
    cell_type_key: str | None,
    gene_sets: str | os.PathLike | None,
    refits: int,
    permutations: int,
    evaluation: bool,
    parts: Sequence[Part],
    n_jobs: int | None,
    verbose: int,
    log: Log,
) -> Content:
    """All that the page shows; parameters as in `write`."""
    type_key = _type_key(run, cell_type_key)
    left_out: list[str] = []
    working: dict[str, Any] = {"group_key": group_key, "n_jobs": n_jobs, "verbose": verbose, "log": log}
    axes = directions(run, n_jobs, log)
    processes: list[Table | None] = [None] * len(axes.share)
    if gene_sets is not None and run.is_expression:
        processes = processes_of_axes(axes, run.stored.features, gene_sets)
        left_out += _without_process(processes)
    else:
        left_out.append("Processes of the axes: give a GMT file with --gene-sets.")
    scores = _try(left_out, "Scores on held-out samples", run, evaluation, "leave out --no-evaluate",
                  lambda: evaluate(run, permutations=permutations, **working))  # fmt: skip
    stable = _try(left_out, "Stability of the genes", run, refits > 0, "give --refits 20",
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
        summary=_say(run, scores, stable, types, feature),
        cautions=[
            *cautions_of(run.samples.obs, run.label_key, run.sample_key, group_key),
            *cautions_of_training(
                run.stored.params,
                bool(run.entry["converged"]),
                len(run.entry["history"]["loss"]),
                bool(run.findings.get("interrupted")),
            ),
        ],
        samples=samples,
        cells=cells,
        genes=gene_table(run, axes, stable),
        feature=feature,
        axes=axis_list(run, axes, processes),
        types=types,
        history={name: np.asarray(values) for name, values in run.entry["history"].items()},
        evaluation=scores,
        left_out=left_out,
        parts=parts,
    )


def _title(run: Run) -> str:
    names = list(label_counts(run))
    told = " and ".join(names) if len(names) < 4 else f"{len(names)} values of {run.label_key}"
    return f"What tells {told} apart"


def _try(left_out: list[str], what: str, run: Run, wanted: bool, remedy: str, compute: Any) -> Any:
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


def _type_key(run: Run, asked: str | None) -> str | None:
    columns = run.cells.obs.columns
    if asked is not None:
        if asked not in columns:
            raise ValueError(
                f"cell_type_key is {asked!r}, but obs has no such column: there are {', '.join(map(repr, columns))}"
            )
        return asked
    return next((str(name) for name in columns if str(name).lower() in TYPES), None)


def _say(run: Run, scores: Evaluation | None, stable: Any, types: Table | None, feature: str) -> list[str]:
    shares = run.stored.metric.importance()
    order = np.argsort(-shares, kind="stable")
    names = [run.stored.features[g] for g in order]
    drawn = int(run.cells.obs[f"{run.key}_sampled"].sum())
    said = [
        summary.say_data(drawn, label_counts(run), run.label_key, len(names), feature),
        *summary.say_scores(scores),
        summary.say_genes(names, shares[order].tolist(), feature),
        summary.say_stability(stable, names, feature),
        summary.say_types(types),
    ]
    return [sentence for sentence in said if sentence is not None]
