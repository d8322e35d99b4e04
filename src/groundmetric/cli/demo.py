"""`groundmetric demo`: learn on built-in data, say what was found, and write figures, metrics and a report."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import add_command, add_jobs, add_output, add_seed, log, print_findings, wrapped

# Modules that are heavy are imported by the functions that need them: `--help` does not.
if TYPE_CHECKING:
    import numpy as np

    from ..distributions import Distributions
    from ..report.content import Content, Part, Table

Log = Callable[[str], None]
Loader = Callable[[int], "tuple[Distributions, np.ndarray]"]
PAGE, FINDINGS = "index.html", "results.json"
# The simulation as it is by default; few cells and members are for time alone.
COHORT: Mapping[str, Any] = {}
LEARNING: Mapping[str, Any] = {"n_cells": 100}
STEM = "cohort"
TITLE = "A simulated cohort: what was put in, and what was found"


def add(commands: Any) -> None:
    command = add_command(
        commands,
        run,
        "demo",
        "learn on built-in data; write figures and a report",
        "groundmetric demo -o demo --jobs -1",
    )
    add_output(command, "folder to write (%(default)s)", default="groundmetric-demo")
    add_seed(command, "of data, split and learner")
    add_jobs(command)


def run(options: argparse.Namespace) -> None:
    findings = make_demo(options.output, seed=options.seed, n_jobs=options.jobs, verbose=1, log=log)
    print_findings(findings, summary(findings), as_json=options.json)
    log(f"wrote results.json, figures and metrics to {options.output}")
    log(f"the report: {os.path.join(options.output, PAGE)}")


def built_in() -> dict[str, Loader]:
    """The paper's synthetic data, by name."""
    from .. import datasets

    return {"Synth 2D": datasets.synth_2d, "Synth 200D": datasets.synth_200d}


def make_demo(
    output: str | os.PathLike[str],
    *,
    seed: int = 0,
    loaders: Mapping[str, Loader] | None = None,
    cohort: Mapping[str, Any] = COHORT,
    max_epochs: int | None = None,
    refits: int = 10,
    permutations: int = 199,
    n_jobs: int | None = None,
    verbose: int = 0,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Learn on each data set, write everything into the folder `output`, and return the findings.

    Parameters
    ----------
    output : str or path
        Folder; made if need be. One with files is refused, unless these are of an earlier demo, which are replaced.
    seed : int
        Seed of the data, the split and the learner.
    loaders : dict of str to function, or None
        By the name of the data set, functions of the seed that return Distributions and labels; None: `built_in`.
    cohort : dict
        Parameters of the simulated cohort that the report is about, see `datasets.make_cohort`.
    max_epochs : int or None
        Epochs of learning; None is the learner's default.
    refits, permutations : int
        For the stability of genes (of an ensemble, its members tell) and the test against chance.
    n_jobs : int or None
        Threads or processes.
    verbose : int
        1 shows progress bars where there is a terminal.
    log : function of str
        Called with a line about each step that begins.

    Returns
    -------
    dict
        What results.json holds: the version, the seed, a dict for each data set, and one for the cohort.
    """
    from .._internal.files import new_folder

    loaders = built_in() if loaders is None else loaders
    options: dict[str, Any] = {"refits": refits, "permutations": permutations, "n_jobs": n_jobs, "verbose": verbose}
    with new_folder(output, earlier=_earlier_demo, last=FINDINGS, replace=True) as folder:
        return _write_demo(folder, seed, loaders, max_epochs, cohort=cohort, log=log, **options)


def _earlier_demo(folder: Path) -> list[str] | None:
    """The files of an earlier demo, by its own list."""
    try:
        found = json.loads((folder / FINDINGS).read_text(encoding="utf-8"))
        parts = [*found["datasets"], *([found["cohort"]] if "cohort" in found else [])]
        files = [name for part in parts for name in part["files"] if os.path.basename(name) == name]
        return [*dict.fromkeys([*files, PAGE, FINDINGS])] if "groundmetric" in found else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_demo(
    folder: Path,
    seed: int,
    loaders: Mapping[str, Loader],
    max_epochs: int | None,
    *,
    cohort: Mapping[str, Any],
    refits: int,
    permutations: int,
    n_jobs: int | None,
    verbose: int,
    log: Log,
) -> dict[str, Any]:
    from .. import __version__
    from .._internal.files import write_whole
    from ..estimators import GroundMetricLearner
    from ._studies import examine, warm_up, write_study

    warm_up()
    learner = GroundMetricLearner(random_state=seed, verbose=verbose)
    if max_epochs is not None:
        learner.set_params(max_epochs=max_epochs)
    findings: dict[str, Any] = {"groundmetric": __version__, "seed": seed, "datasets": []}
    parts = []
    for name, load in loaders.items():
        study = examine(name, *load(seed), learner, seed, log)
        log(f"{name}: drawing")
        files, part = write_study(folder, study)
        parts.append(part)
        findings["datasets"].append({**study.found, "files": files})
    findings["cohort"] = report_on_cohort(
        folder, folder / PAGE, seed=seed, parameters=cohort, max_epochs=max_epochs, refits=refits,
        permutations=permutations, parts=parts, n_jobs=n_jobs, verbose=verbose, log=log,
    )  # fmt: skip
    write_whole(folder / FINDINGS, [json.dumps(findings, indent=2).encode()])
    return findings


def summary(findings: Mapping[str, Any]) -> str:
    """What was found, for people: the answers of the report, what was put in, and a few lines per data set."""
    from ._studies import facts, size

    lines = []
    if "cohort" in findings:
        lines.append("Simulated cohort")
        lines += [wrapped(f"{question} {answer}", 2, 2) for question, answer in findings["cohort"]["summary"].items()]
        lines.append("Simulated cohort: put in → found")
        lines += [
            wrapped(f"{row['what']:<32}{row['put_in']} → {row['found']}", 2, 32)
            for row in findings["cohort"]["put_in_and_found"]
        ]
    for found in findings["datasets"]:
        lines.append(f"{found['name']}: {size(found)}")
        lines += [f"  {label:<28}{text}" for label, text in facts(found).items()]
    return "\n".join(lines)


def report_on_cohort(
    folder: Path,
    page: Path,
    *,
    seed: int,
    parameters: Mapping[str, Any],
    max_epochs: int | None,
    refits: int,
    permutations: int,
    parts: list[Part],
    n_jobs: int | None,
    verbose: int,
    log: Log,
) -> dict[str, Any]:
    """Simulate, learn, write the report as `page` and everything else into the folder; return what was found."""
    from .. import datasets, get, report, tl
    from ..report.write import figures_of, save_figures

    log("simulated cohort: making it and learning from it")
    cells = datasets.make_cohort(**{**parameters, "random_state": seed})
    cells.write_h5ad(folder / f"{STEM}.h5ad")
    learning = {**LEARNING, **({} if max_epochs is None else {"max_epochs": max_epochs})}
    started = time.perf_counter()
    tl.learn(cells, "sample", "condition", random_state=seed, verbose=verbose, **learning)
    seconds = time.perf_counter() - started
    get.metric(cells).save(folder / f"{STEM}.gm")
    notes = {"cells": f"{STEM}.h5ad (gm.datasets.make_cohort)", "seconds": seconds}
    learned = report.Run(cells, tl.samples(cells, verbose=verbose), cells, notes)
    content = report.collect(
        learned, title=TITLE, cell_type_key="cell_type", refits=refits, permutations=permutations, n_jobs=n_jobs,
        verbose=verbose, log=log,
    )  # fmt: skip
    rows = compare_with_truth(cells.uns["truth"], content, learned.stored.features)
    content = dataclasses.replace(content, parts=[_truth_part(rows), *parts])
    log("simulated cohort: drawing")
    files = [f"{STEM}.h5ad", f"{STEM}.gm", *save_figures(figures_of(learned, content), folder, STEM)]
    found = report.save(content, page)
    return {
        "summary": found["summary"],
        "warnings": found["warnings"],
        "scores": found["scores"],
        "p": None if found["against_chance"] is None else found["against_chance"]["p"],
        "put_in_and_found": [dict(zip(("what", "put_in", "found"), row, strict=True)) for row in rows],
        "seconds": round(seconds, 3),
        "files": files,
    }


def compare_with_truth(truth: Mapping[str, Any], content: Content, features: list[str]) -> list[list[str]]:
    """Rows of what it is about, what was put in, and what was found, whether the two agree or not."""
    genes = {str(name) for name in truth["programme_genes"]}
    top = [str(row[1]) for row in content.genes.rows[: len(genes)]]
    right = sum(name in genes for name in top)
    rows = [
        [
            "Genes that differ",
            f"{len(genes)}: {_range(genes)}",
            f"{right} of the {len(top)} most important are among them",
        ],
        ["Of these, varying enough", "–", f"{len(genes & set(features))} were learned from (variance rule)"],
        ["First gene that was not put in", "–", _first_wrong(content, genes)],
    ]
    if content.types is not None:
        acting = str(truth["programme_type"])
        rows.append(["Cell type in which they differ", acting, _found_in(content.types, acting)])
    rows.append(
        ["Conditions", ", ".join(f"{name}: fold {math.exp(strength):.1f}" for name, strength in
                                 zip(truth["conditions"], truth["condition_strengths"], strict=True)),
         "not scored" if content.evaluation is None else
         f"balanced accuracy {content.evaluation.rows[0]['value']:.2f} on held-out samples"]
    )  # fmt: skip
    batches = [caution.text for caution in content.cautions if caution.title == "Suspected batch effect"]
    tied = float(truth["parameters"]["confounding"])
    how = "not tied" if tied == 0 else f"{tied:.0%} tied"
    rows.append(["Batches", f"{len(truth['batches'])}, {how} to the condition",
                 "no batch effect is suspected" if not batches else batches[0]])  # fmt: skip
    return rows


def _range(genes: set[str]) -> str:
    names = sorted(genes)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _found_in(types: Table, acting: str) -> str:
    """The cell type with most of the difference, and the share of the one that it was put into."""
    first, share = types.rows[0][:2]
    if share is None:
        return "no cell type can be said to carry the difference"
    own = next(row[1] for row in types.rows if row[0] == acting)
    return f"most of the difference lies in {first} ({share:.0%})" + (
        "" if first == acting else f"; {acting} {own:.0%}"
    )


def _first_wrong(content: Content, genes: set[str]) -> str:
    for row in content.genes.rows:
        if str(row[1]) not in genes:
            return f"{row[1]}, at rank {row[0]} with {row[2]:.1%} of the importance"
    return "none"


def _truth_part(rows: list[list[str]]) -> Part:
    from ..report.content import Field, Part, Table

    text = (
        "These cells were simulated (gm.datasets.make_cohort), so it is known what tells the conditions apart: one "
        "programme of genes in one cell type. The learner was not told; it saw samples and their conditions only."
    )
    fields = [Field("What"), Field("Put in"), Field("Found")]
    table = Table("put-in-and-found", "What was put in, and what was found", fields, [list(row) for row in rows])
    return Part("truth", "Put in and found", text, table=table, first=True)
