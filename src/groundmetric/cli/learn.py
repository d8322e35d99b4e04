"""`groundmetric learn`: learn a metric from an .h5ad file; write it, distances between samples and gene importance."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from .._internal.tables import plain, score_name
from . import options as shared

TOP = 10


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, "learn", "learn a metric under which samples of one label are close, from an .h5ad file",
        "groundmetric learn cells.h5ad --sample sample --label disease --group patient -o run",
    )  # fmt: skip
    shared.add_options(command, "cells", "sample", "label", "group")
    shared.add_options(command, "output", required=True)
    command.add_argument("--target", choices=("classes", "ordered"),
                         help="ordered: labels are numbers or ordered categories (classes)")  # fmt: skip
    command.add_argument("--order", metavar="A,B,…", type=shared.labels,
                         help="text labels from low to high, e.g. mild,moderate,severe; implies ordered")  # fmt: skip
    command.add_argument("--method", choices=("ensemble", "ggml"), default="ensemble",
                         help="ensemble: members trained on parts of the patients, with held-out predictions; ggml: "
                         "the published method, one metric from all samples (ensemble)")  # fmt: skip
    command.add_argument("--batch", metavar="COLUMN", help="column of obs: the batch; labels are compared within it")
    rule = "those selected by pp.select_genes; else variance for genes on a log scale, all otherwise"
    shared.add_values(command, rule)
    command.add_argument("--resample", action="store_true", help="ggml: subsample the cells anew in every epoch")
    shared.add_options(command, "cell_type")
    command.add_argument("--components", metavar="N", type=shared.count,
                         help="ggml: dimensions of the learned space (5)")  # fmt: skip
    command.add_argument("--strength", metavar="X", type=shared.number, help="ggml: strength of the penalty (0.1)")
    command.add_argument("--epochs", metavar="N", type=shared.count,
                         help="maximum number of epochs (ensemble members 10, ggml 50)")  # fmt: skip
    command.add_argument("--checkpoint", metavar="FILE",
                         help="ggml: file for the state of training, from which an interrupted run continues; Ctrl-C "
                         "then ends training after the current step, a second one at once")  # fmt: skip
    shared.add_options(command, "seed", help="seed of subsampling and training (0)")
    shared.add_options(command, "jobs", "replace")


def run(options: argparse.Namespace) -> dict[str, Any]:
    beside = []
    if options.checkpoint is not None:  # an error if it would replace another file
        from ..learning.checkpoint import check_path

        before = check_path(options.checkpoint)
        if os.path.realpath(os.path.dirname(os.path.abspath(options.checkpoint))) == os.path.realpath(options.output):
            beside = [os.path.basename(options.checkpoint), before.name]
    findings = shared.write_run(options, partial(_learn, options), [options.cells], beside)
    if findings["interrupted"]:
        advice = "" if options.checkpoint is None else "; the same command with --replace continues from there"
        options.ended = f"after {findings['epochs']} of {findings['learner']['max_epochs']} epochs{advice}"
    return findings


def _learn(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import anndata as ad

    from .. import get, tl
    from .._anndata.cohort import find_column
    from .._anndata.source import Source
    from .._anndata.store import RUN_PREDICTOR, predictor_of
    from ..interpret.importance import training_summary

    if options.cell_type is not None:  # an error before the long work
        with Source(options.cells) as source:
            find_column(source.obs, options.cell_type, "cell_type_key")
    shared.log(f"reading {options.cells}, learning")
    started = time.perf_counter()
    parameters = {
        "n_components": options.components, "strength": options.strength, "max_epochs": options.epochs,
        "checkpoint": options.checkpoint, "target": options.target, "order": options.order,
        "resample": options.resample or None,
    }  # fmt: skip
    cells = tl.learn(
        options.cells, options.sample, options.label, method=options.method, group_key=options.group,
        batch_key=options.batch, layer=options.layer, use_rep=options.rep, genes=options.genes,
        n_cells=options.cells_per_sample, random_state=options.seed, n_jobs=options.jobs, verbose=1,
        **{name: value for name, value in parameters.items() if value is not None},
    )  # fmt: skip
    seconds = time.perf_counter() - started
    entry = cells.uns["groundmetric"]
    if "ensemble" in entry:
        ensemble = entry["ensemble"]
        course = {"scored": ensemble["scored"], "held_out": ensemble["scores"], "weights": ensemble["weights"],
                  "members": ensemble["n_members"], "interrupted": False}  # fmt: skip
    else:
        loss, most = entry["history"]["loss"], entry["learner"]["max_epochs"]
        if len(loss) == 0:
            raise KeyboardInterrupt("before the end of the first epoch")
        course = {"epochs": len(loss), "converged": entry["converged"],
                  "interrupted": len(loss) < most and not entry["converged"],
                  "loss": [float(loss[k]) for k in (0, -1)], "course": training_summary(entry["history"])}  # fmt: skip
    shared.log(f"learned in {seconds:.1f} s; computing distances between {cells.obs[options.sample].nunique()} samples")
    samples = tl.samples(cells, cell_type_key=options.cell_type, n_jobs=options.jobs, verbose=1)
    shared.log("writing")
    files = ["cells.h5ad", "samples.h5ad", "metric.gm", "importance.csv", "distances.csv", shared.FINDINGS]
    predictor = predictor_of(entry, RUN_PREDICTOR)
    if predictor is not None:
        predictor.save(folder / RUN_PREDICTOR)
        files.insert(3, RUN_PREDICTOR)
    get.metric(cells).save(folder / "metric.gm")
    # The values of the cells are not copied: later commands read them from the original file.
    results = {part: dict(getattr(cells, part)) for part in ("obsm", "varm", "uns")}
    results["uns"]["groundmetric"] = {name: entry[name] for name in entry if name != "predictor"}
    ad.AnnData(obs=cells.obs, var=cells.var, **results).write_h5ad(folder / "cells.h5ad")
    samples.write_h5ad(folder / "samples.h5ad")
    shared.write_frame(folder / "importance.csv", get.importance(cells), "feature")
    shared.write_frame(folder / "distances.csv", get.distances(samples), "sample")
    counts = Counter(map(str, entry["labels"]["labels"].tolist()))
    labels = dict.fromkeys([*map(str, entry["params"].get("order", ())), *counts])  # ordered labels from low to high
    return {
        "cells": str(options.cells),
        **{part: plain(dict(entry[part])) for part in ("params", "learner")},
        "n_cells": cells.n_obs, "n_cells_in_file": int(entry["n_cells"]["n_cells"].sum()),
        "n_features": len(entry["metric"]["features"]), "features": entry["features"], "n_samples": samples.n_obs,
        "labels": {label: counts[label] for label in labels if label in counts},
        "cell_numbers": plain(dict(entry["cell_numbers"])),
        **course,
        "importance": get.importance(cells)["importance"].head(TOP).to_dict(),
        "seconds": round(seconds, 3), "files": files,
    }  # fmt: skip


def summary(findings: dict[str, Any]) -> str:
    """Return the findings as lines of text."""
    facts = {
        "learned from": f"{findings['n_samples']} samples ({shared.label_counts(findings['labels'])}), "
        f"{findings['n_cells']:,} of {findings['n_cells_in_file']:,} cells",
        "cell numbers": findings["cell_numbers"]["text"],
        "features": findings["features"]["text"],
    }
    if "held_out" in findings:
        weights = sorted(findings["weights"].items(), key=lambda item: -item[1])
        scores = ", ".join(f"{score_name(name)} {value:.2f}" for name, value in findings["held_out"].items())
        facts["training"] = f"ensemble of {findings['members']} members, {findings['seconds']:.1f} s"
        facts["held out"] = f"{scores} (of the {findings['scored']} that `groundmetric predict` uses)"
        facts["members"] = ", ".join(f"{kind} {weight:.0%}" for kind, weight in weights)
    else:
        stopped = "interrupted" if findings["interrupted"] else "stopped at the last"
        end = "converged" if findings["converged"] else stopped
        facts["training"] = f"{findings['epochs']} epochs ({end}), {findings['seconds']:.1f} s"
        facts["course"] = findings["course"]
    facts["most important"] = ", ".join(f"{name} {share:.1%}" for name, share in findings["importance"].items())
    return "\n".join(f"{name:<16}{text}" for name, text in facts.items())
