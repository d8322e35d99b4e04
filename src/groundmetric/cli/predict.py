"""`groundmetric predict`: labels of new samples by a metric that was learned before."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import (
    add_command,
    add_draw,
    add_force,
    add_jobs,
    add_output,
    add_seed,
    aligned,
    count,
    log,
    new_folder,
    print_findings,
    share,
    write_findings,
    write_frame,
)

OPTION_OF = {"sample_key": "--sample", "layer": "--layer", "max_missing": "--max-missing"}


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "predict", "predict the labels of new samples by an earlier `learn`",
        "groundmetric predict run new.h5ad -o new",
    )  # fmt: skip
    command.add_argument("trained", metavar="RUN", help="folder that `learn` wrote")
    command.add_argument("cells", metavar="NEW.h5ad", help="prepared as the training data were; read in part only")
    add_output(command, "folder to write; without, labels are printed only")
    command.add_argument("--sample", metavar="COLUMN", help="column of obs: the sample of each cell (as in training)")
    command.add_argument("--layer", help="layer to use (as in training)")
    command.add_argument("--neighbors", metavar="K", type=count, default=5,
                         help="nearest training samples that vote (%(default)s)")  # fmt: skip
    command.add_argument("--max-missing", metavar="SHARE", type=share, default=0.2,
                         help="of the genes, which count as their mean in training (%(default)s)")  # fmt: skip
    add_draw(command)
    add_seed(command, "of the draw")
    add_jobs(command)
    add_force(command)
    command.set_defaults(option_of=OPTION_OF)


def run(options: argparse.Namespace) -> None:
    if options.output is None:
        findings = _predict(options, None)
    else:
        inputs = [options.trained, options.cells]
        with new_folder(options.output, force=options.force, inputs=inputs) as folder:
            findings = _predict(options, folder)
            write_findings(folder, findings)
    print_findings(findings, summary(findings), as_json=options.json)
    if options.output is not None:
        log(f"wrote {', '.join(findings['files'])} to {options.output}")


def _predict(options: argparse.Namespace, folder: Path | None) -> dict[str, Any]:
    from .. import __version__
    from .._anndata.source import Source
    from .._anndata.store import trained_from
    from ..tl.transfer import project_samples

    known = trained_from(options.trained, "groundmetric")
    if known.cells is None:
        raise ValueError(f"{options.trained!r} is a bare metric: to predict labels, the folder of a run is needed")
    with Source(options.cells) as source:
        log(f"reading {options.cells}, comparing with {len(known.cells)} training samples")
        projected = project_samples(
            source, known, sample_key=options.sample, layer=options.layer, max_missing=options.max_missing,
            n_neighbors=options.neighbors, n_cells=options.cells_per_sample, random_state=options.seed,
            n_jobs=options.jobs, verbose=1,
        )  # fmt: skip
        files = [] if folder is None else _write(folder, source, projected)
    samples = projected.samples
    shares = samples.obsm["groundmetric_probabilities"]
    nearest = samples.obsm["X_groundmetric_distances"].argmin(axis=1)
    predictions = [
        {
            "sample": str(name),
            "n_cells": int(samples.obs["n_cells"].iloc[k]),
            "predicted": None if shares.iloc[k].isna().any() else str(samples.obs["groundmetric_predicted"].iloc[k]),
            "probabilities": {label: float(p) for label, p in shares.iloc[k].items() if p == p},
            "nearest": str(known.cells.names[nearest[k]]),
        }
        for k, name in enumerate(samples.obs_names)
    ]
    return {
        "groundmetric": __version__,
        "command": "predict",
        "run": str(options.trained),
        "cells": str(options.cells),
        "predictions": predictions,
        "files": files,
    }


def _write(folder: Path, source: Any, projected: Any) -> list[str]:
    import anndata as ad
    import pandas as pd

    samples = projected.samples
    cells = ad.AnnData(obs=source.obs.assign(**projected.obs), obsm={"X_groundmetric": projected.z})
    cells.uns["groundmetric"] = projected.stored.entry()
    cells.write_h5ad(folder / "cells.h5ad")
    samples.write_h5ad(folder / "samples.h5ad")
    table = samples.obs[["n_cells", "groundmetric_predicted", "groundmetric_probability"]]
    shares = samples.obsm["groundmetric_probabilities"].add_prefix("probability of ")
    table = table.rename(columns=lambda name: name.removeprefix("groundmetric_")).join(shares)
    write_frame(folder / "predictions.csv", table, "sample")
    known = samples.uns["groundmetric"]["training_samples"]
    distances = pd.DataFrame(samples.obsm["X_groundmetric_distances"], samples.obs_names, known)
    write_frame(folder / "distances.csv", distances, "sample")
    return ["cells.h5ad", "samples.h5ad", "predictions.csv", "distances.csv", "run.json"]


def summary(findings: dict[str, Any]) -> str:
    """A line per sample."""
    rows = [["sample", "cells", "predicted", "probability", "nearest"]]
    for found in findings["predictions"]:
        best = f"{max(found['probabilities'].values()):.2f}" if found["probabilities"] else "-"
        rows.append([found["sample"], str(found["n_cells"]), found["predicted"] or "-", best, found["nearest"]])
    return aligned(rows)
