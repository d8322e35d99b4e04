"""`groundmetric learn`: from an .h5ad file to a metric, the distances between samples, and the genes that count."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .._internal.tables import without_nan
from .options import (
    add_cell_type,
    add_cells,
    add_command,
    add_jobs,
    add_replace,
    add_seed,
    add_values,
    count,
    label_counts,
    labels,
    log,
    new_folder,
    number,
    plain,
    print_findings,
    write_findings,
    write_frame,
)

OPTION_OF = {
    "sample_key": "--sample", "label_key": "--label", "group_key": "--group", "batch_key": "--batch",
    "cell_type_key": "--cell-type", "learner": "--learner", "strength": "--strength", "checkpoint": "--checkpoint",
    "n_cells": "--cells-per-sample", "resample": "--resample", "layer": "--layer", "use_rep": "--rep",
    "genes": "--genes", "n_components": "--components", "target": "--target", "order": "--order",
}  # fmt: skip
TOP = 10
# Scores of samples while they were left out, as they are called in lines for people.
SCORES = {
    "balanced_accuracy": "balanced accuracy", "log_probability": "log-probability", "r2": "R²",
    "log_likelihood": "log-likelihood",
}  # fmt: skip


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "learn", "learn from an .h5ad file under which metric samples of one label are near each other",
        "groundmetric learn cells.h5ad --sample sample --label disease --group patient -o run",
    )  # fmt: skip
    add_cells(command)
    command.add_argument("--target", choices=("classes", "ordered"),
                         help="ordered: labels are numbers or ordered categories (classes)")  # fmt: skip
    command.add_argument("--order", metavar="A,B,…", type=labels,
                         help="labels that are text, from low to high, e.g. mild,moderate,severe; they are then "
                         "ordered")  # fmt: skip
    command.add_argument("--learner", choices=("ensemble", "single"),
                         help="ensemble: members trained on parts of the patients; single: the "
                         "published method on all samples (ensemble, or single where --components, --strength, "
                         "--checkpoint or --resample ask for it)")  # fmt: skip
    command.add_argument("--batch", metavar="COLUMN", help="column of obs: the batch or donor of its sample, to ignore")
    add_values(
        command,
        "those that pp.select_genes has marked, else variance for genes on a log scale, and all of 100 or fewer "
        "features or of other values",
    )
    command.add_argument("--resample", action="store_true", help="draw other cells for every epoch; takes longer")
    add_cell_type(command)
    command.add_argument("--components", metavar="N", type=count,
                         help="dimensions of the learned space of a single learner (5)")  # fmt: skip
    command.add_argument("--strength", metavar="X", type=number, help="of the penalty of a single learner (0.1)")
    command.add_argument("--epochs", metavar="N", type=count,
                         help="of learning, at most (10 of a member, 50 of a single learner)")  # fmt: skip
    command.add_argument("--checkpoint", metavar="FILE",
                         help="keep the state of learning here, and go on from it if there is one; Ctrl-C then ends "
                         "learning after the present step, a second one at once")  # fmt: skip
    add_seed(command, "of the draw and the learner")
    add_jobs(command)
    add_replace(command)
    command.set_defaults(option_of=OPTION_OF)


def run(options: argparse.Namespace) -> None:
    beside = _check_checkpoint(options.checkpoint, options.output)
    with new_folder(options.output, replace=options.replace, inputs=[options.cells], beside=beside) as folder:
        findings = _learn(options, folder)
        write_findings(folder, findings)
    print_findings(findings, summary(findings), as_json=options.json)
    log(f"wrote {', '.join(findings['files'])} to {options.output}")
    if findings["interrupted"]:
        more = "" if options.checkpoint is None else "; the same command with --replace goes on from there"
        raise KeyboardInterrupt(f"after {findings['epochs']} of {findings['learner']['max_epochs']} epochs{more}")


def _check_checkpoint(checkpoint: str | None, output: str) -> list[str]:
    """Raise before anything is read if a checkpoint would replace something; the names it has in the output folder."""
    if checkpoint is None:
        return []
    from ..learning.checkpoint import check_place

    before = check_place(checkpoint)
    inside = os.path.realpath(os.path.dirname(os.path.abspath(checkpoint))) == os.path.realpath(output)
    return [os.path.basename(checkpoint), before.name] if inside else []


def _learn(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from .. import __version__, get, tl
    from .._anndata.annotations import find_column
    from .._anndata.source import Source

    if options.cell_type is not None:  # before the long work rather than after it
        with Source(options.cells) as source:
            find_column(source.obs, options.cell_type, "cell_type_key")
    log(f"reading {options.cells}, learning")
    started = time.perf_counter()
    given = {"n_components": options.components, "strength": options.strength, "max_epochs": options.epochs,
             "checkpoint": options.checkpoint, "target": options.target}  # fmt: skip
    cells = tl.learn(
        options.cells, options.sample, options.label, learner=options.learner, group_key=options.group,
        batch_key=options.batch, order=options.order, layer=options.layer, use_rep=options.rep, genes=options.genes,
        n_cells=options.cells_per_sample, resample=options.resample, random_state=options.seed, n_jobs=options.jobs,
        verbose=1, **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    assert cells is not None  # of a file, an AnnData is returned
    learned = time.perf_counter() - started
    entry = cells.uns["groundmetric"]
    course = _course(entry)
    log(f"learned in {learned:.1f} s; measuring the distances between {cells.obs[options.sample].nunique()} samples")
    samples = tl.samples(cells, cell_type_key=options.cell_type, n_jobs=options.jobs, verbose=1)
    log("writing")
    files = _write(folder, cells, samples)
    return {
        "groundmetric": __version__,
        "command": "learn",
        "cells": str(options.cells),
        "params": {name: plain(value) for name, value in entry["params"].items()},
        "learner": {name: plain(value) for name, value in entry["learner"].items()},
        "n_cells": cells.n_obs,
        "n_cells_in_file": int(entry["n_cells"]["n_cells"].sum()),
        "n_features": len(entry["metric"]["features"]),
        "features": entry["features"],
        "n_samples": samples.n_obs,
        "labels": _label_counts(entry),
        "cell_numbers": without_nan({name: plain(value) for name, value in entry["cell_numbers"].items()}),
        **course,
        "importance": get.importance(cells)["importance"].head(TOP).to_dict(),
        "seconds": round(learned, 3),
        "files": files,
    }  # fmt: skip


def _label_counts(entry: dict[str, Any]) -> dict[str, int]:
    """Number of samples by label, from low to high where labels have an order."""
    counts = Counter(map(str, entry["labels"]["labels"].tolist()))
    return {name: counts[name] for name in [*map(str, entry["params"].get("order", ())), *counts] if name in counts}


def _course(entry: dict[str, Any]) -> dict[str, Any]:
    """How learning went: what an ensemble says of samples that were left out, or the epochs of a single learner."""
    if "ensemble" in entry:
        found = entry["ensemble"]
        return {"scored": found["scored"], "held_out": found["scores"], "weights": found["weights"],
                "members": found["n_members"], "interrupted": False}  # fmt: skip
    from ..interpret.importance import training_summary

    loss, most = entry["history"]["loss"], entry["learner"]["max_epochs"]
    if len(loss) == 0:
        raise KeyboardInterrupt("before the first epoch was done")
    return {"epochs": len(loss), "converged": entry["converged"],
            "interrupted": len(loss) < most and not entry["converged"],
            "loss": [float(loss[k]) for k in (0, -1)], "course": training_summary(entry["history"])}  # fmt: skip


def _write(folder: Path, cells: Any, samples: Any) -> list[str]:
    """All files but the findings, small ones that people open among them."""
    import anndata as ad

    from .. import get
    from .._anndata.store import RUN_PREDICTOR, predictor_of

    entry = cells.uns["groundmetric"]
    predictor = predictor_of(entry, RUN_PREDICTOR)
    if predictor is not None:
        predictor.save(folder / RUN_PREDICTOR)
    get.metric(cells).save(folder / "metric.gm")
    # The values themselves stay where they are: everything that is needed later is in the results.
    results = {part: dict(getattr(cells, part)) for part in ("obsm", "varm", "uns")}
    results["uns"]["groundmetric"] = {name: entry[name] for name in entry if name != "predictor"}
    ad.AnnData(obs=cells.obs, var=cells.var, **results).write_h5ad(folder / "cells.h5ad")
    samples.write_h5ad(folder / "samples.h5ad")
    write_frame(folder / "importance.csv", get.importance(cells), "feature")
    write_frame(folder / "distances.csv", get.distances(samples), "sample")
    own = [] if predictor is None else [RUN_PREDICTOR]
    return ["cells.h5ad", "samples.h5ad", "metric.gm", *own, "importance.csv", "distances.csv", "run.json"]


def summary(findings: dict[str, Any]) -> str:
    """What was found, for people."""
    facts = {
        "learned from": f"{findings['n_samples']} samples ({label_counts(findings['labels'])}), "
        f"{findings['n_cells']:,} of {findings['n_cells_in_file']:,} cells",
        "cell numbers": findings["cell_numbers"]["text"],
        "features": findings["features"]["text"],
        **(_of_ensemble(findings) if "held_out" in findings else _of_epochs(findings)),
        "most important": ", ".join(f"{name} {share:.1%}" for name, share in findings["importance"].items()),
    }
    return "\n".join(f"{name:<16}{text}" for name, text in facts.items())


def _of_ensemble(findings: dict[str, Any]) -> dict[str, str]:
    weights = sorted(findings["weights"].items(), key=lambda item: -item[1])
    return {
        "training": f"ensemble of {findings['members']} members, {findings['seconds']:.1f} s",
        "held out": ", ".join(f"{SCORES[name]} {value:.2f}" for name, value in findings["held_out"].items())
        + f" (scored: {findings['scored']}, which `groundmetric predict` uses)",
        "what counts": ", ".join(f"{kind} {weight:.0%}" for kind, weight in weights),
    }


def _of_epochs(findings: dict[str, Any]) -> dict[str, str]:
    ended = (
        "converged" if findings["converged"] else "interrupted" if findings["interrupted"] else "stopped at the last"
    )
    return {
        "training": f"{findings['epochs']} epochs ({ended}), {findings['seconds']:.1f} s",
        "course": findings["course"],
    }
