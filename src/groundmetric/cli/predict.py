"""`groundmetric predict`: labels of new samples by the predictor of an earlier `learn`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from .._internal.tables import plain
from . import options as shared


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, "predict", "predict the labels of new samples by an earlier `learn`",
        "groundmetric predict run new.h5ad -o new",
    )  # fmt: skip
    shared.add_options(command, "trained")
    shared.add_options(command, "cells", metavar="NEW.h5ad", help="new cells, preprocessed as the training data")
    shared.add_options(command, "output", help="folder to write (only print the labels)")
    sample = "column of obs: the sample of each cell (as in training)"
    shared.add_options(command, "sample", required=False, help=sample)
    shared.add_options(command, "layer", help="layer to use (as in training)")
    command.add_argument("--neighbors", metavar="K", type=shared.count,
                         help="predict by the K nearest training samples (the predictor of the run; after --method "
                         "ggml 5 neighbours)")  # fmt: skip
    command.add_argument("--max-missing", metavar="SHARE", type=shared.share, default=0.2,
                         help="accepted share of missing genes, set to their mean (%(default)s)")  # fmt: skip
    shared.add_options(command, "draw")
    shared.add_options(command, "seed", help="seed of subsampling (0)")
    shared.add_options(command, "jobs", "replace")
    command.add_argument("--force", action="store_true",
                         help="warn instead of failing if values are on another scale than in training")  # fmt: skip


def run(options: argparse.Namespace) -> dict[str, Any]:
    if options.output is None:
        return _predict(options, None)
    return shared.write_run(options, partial(_predict, options), [options.trained, options.cells])


def _predict(options: argparse.Namespace, folder: Path | None) -> dict[str, Any]:
    import anndata as ad

    from .. import get
    from .._anndata.source import Source
    from .._anndata.store import trained_from
    from ..tl.transfer import project_samples

    trained = trained_from(options.trained, "groundmetric")
    with Source(options.cells) as source:
        shared.log(f"reading {options.cells}, comparing with {len(trained.cells)} training samples")
        projected = project_samples(
            source, trained, sample_key=options.sample, layer=options.layer, max_missing=options.max_missing,
            n_neighbors=options.neighbors, n_cells=options.cells_per_sample, random_state=options.seed,
            force=options.force, n_jobs=options.jobs, verbose=1,
        )  # fmt: skip
        obs = source.obs.assign(**projected.obs)
    samples, files = projected.samples, []
    probabilities = samples.obsm.get("groundmetric_probabilities")
    if folder is not None:
        files = ["cells.h5ad", "samples.h5ad", "predictions.csv", "distances.csv", shared.FINDINGS]
        cells = ad.AnnData(obs=obs, obsm={"X_groundmetric": projected.z})
        cells.uns["groundmetric"] = projected.stored.entry()
        cells.write_h5ad(folder / "cells.h5ad")
        samples.write_h5ad(folder / "samples.h5ad")
        names = ("predicted", "probability", "set", "reason", "number", "low", "high", "typicality", "far")
        columns = [f"groundmetric_{name}" for name in names if f"groundmetric_{name}" in samples.obs]
        table = samples.obs[["n_cells", *columns]].rename(columns=lambda name: name.removeprefix("groundmetric_"))
        if probabilities is not None:
            table = table.join(probabilities.add_prefix("probability of "))
        shared.write_frame(folder / "predictions.csv", table, "sample")
        shared.write_frame(folder / "distances.csv", get.distances(samples), "sample")
    training = samples.uns["groundmetric"]["training_samples"]
    nearest = samples.obsm["X_groundmetric_distances"].argmin(axis=1)
    predictions = []
    for k, (name, row) in enumerate(samples.obs.iterrows()):
        label = row["groundmetric_predicted"]
        label = None if label is None or label != label else str(label)
        predicted: dict[str, Any] = {"sample": str(name), "n_cells": int(row["n_cells"]), "predicted": label}
        if probabilities is not None:
            predicted["probabilities"] = {label: float(p) for label, p in probabilities.iloc[k].items() if p == p}
        for column in ("number", "typicality"):
            if f"groundmetric_{column}" in row:
                predicted[column] = plain(float(row[f"groundmetric_{column}"]))
        if "groundmetric_far" in row:
            predicted["far"] = bool(row["groundmetric_far"])
        if "groundmetric_set" in row:
            predicted |= {"set": str(row["groundmetric_set"]), "reason": str(row["groundmetric_reason"])}
        predictions.append({**predicted, "nearest": str(training[nearest[k]])})
    return {
        "run": str(options.trained), "cells": str(options.cells),
        "predicted_by": samples.uns["groundmetric"]["predicted_by"], "predictions": predictions, "files": files,
    }  # fmt: skip


def summary(findings: dict[str, Any]) -> str:
    """Return a line per sample, and an explanation of the columns."""
    rows, predictions = [], findings["predictions"]
    for prediction in predictions:
        label = prediction["predicted"]
        try:
            label = f"{float(label):.4g}"
        except (TypeError, ValueError):
            label = "-" if label is None else label
        row = {"sample": prediction["sample"], "cells": str(prediction["n_cells"]), "predicted": label}
        if "probabilities" in prediction:
            best = max(prediction["probabilities"].values(), default=None)
            row["probability"] = "-" if best is None else f"{best:.2f}"
        if "set" in prediction:
            row["90% set"] = prediction["set"] or "-"
        for name in ("number", "typicality"):
            if name in prediction:
                row[name] = "-" if prediction[name] is None else f"{prediction[name]:.2f}"
        rows.append({**row, "nearest": prediction["nearest"]})
    table = shared.aligned([list(rows[0]), *(list(row.values()) for row in rows)])
    lines = [table, f"predicted by: {findings['predicted_by']}"]
    if "typicality" in predictions[0]:
        lines.append(
            "typicality: share of the training samples whose nearest neighbour is at least as far; 1: typical, near 0: "
            "unlike all training samples"
        )
    if "set" in predictions[0]:
        lines.append("90% set: labels that are compatible with the sample; several labels: the data do not decide")
        lines += sorted({f"all labels are in the set: {p['reason']}" for p in predictions if p.get("reason")})
    far = [prediction["sample"] for prediction in predictions if prediction.get("far")]
    if far:
        lines.append(f"unreliable predictions, far from all training samples: {', '.join(far)}")
    return "\n".join(lines)
