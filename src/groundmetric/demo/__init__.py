"""The demo: learn on built-in data, say what was found, and write figures, metrics and a report that shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, datasets
from ..distributions import Distributions
from ..estimators import GroundMetricLearner
from ..safe_files import write_whole
from ..safe_folders import new_folder
from .cohort import COHORT, report_on_cohort
from .pictures import write_study
from .studies import Log, examine, facts, size, warm_up

Loader = Callable[[int], tuple[Distributions, np.ndarray]]
BUILT_IN: Mapping[str, Loader] = {"Synth 2D": datasets.synth_2d, "Synth 200D": datasets.synth_200d}
PAGE, FINDINGS = "index.html", "results.json"

__all__ = ["BUILT_IN", "COHORT", "PAGE", "run", "summary"]


def run(
    output: str | os.PathLike,
    *,
    seed: int = 0,
    loaders: Mapping[str, Loader] = BUILT_IN,
    cohort: Mapping[str, Any] = COHORT,
    max_epochs: int | None = None,
    refits: int = 10,
    permutations: int = 39,
    n_jobs: int | None = None,
    verbose: int = 0,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Learn on each data set, write everything into the folder `output`, and return the findings.

    Parameters
    ----------
    output : folder; made if need be. One with files is refused, unless these are of an earlier demo, which are replaced
    seed : of the data, the split and the learner
    loaders : by the name of the data set, functions of the seed that return Distributions and labels
    cohort : parameters of the simulated cohort that the report is about, see `datasets.make_cohort`
    max_epochs : of learning; None is the learner's default (20 for the cohort)
    refits, permutations : for the stability of genes and the test against chance
    n_jobs : threads or processes
    verbose : 1 shows progress bars where there is a terminal
    log : is told in a line what comes next
    """
    options: dict[str, Any] = {"refits": refits, "permutations": permutations, "n_jobs": n_jobs, "verbose": verbose}
    with new_folder(output, earlier=_earlier, last=FINDINGS, replace=True) as folder:
        return _run(folder, seed, loaders, max_epochs, cohort=cohort, log=log, **options)


def _earlier(folder: Path) -> list[str] | None:
    """The files of an earlier demo, by its own list."""
    try:
        found = json.loads((folder / FINDINGS).read_text(encoding="utf-8"))
        parts = [*found["datasets"], *([found["cohort"]] if "cohort" in found else [])]
        files = [name for part in parts for name in part["files"] if os.path.basename(name) == name]
        return [*dict.fromkeys([*files, PAGE, FINDINGS])] if "groundmetric" in found else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _run(
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
    log("getting ready: after an installation, code is compiled once (up to a minute)")
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
    """What was found, for people: a few lines per data set, and what was put into the cohort beside what was found."""
    lines = []
    for found in findings["datasets"]:
        lines.append(f"{found['name']}: {size(found)}")
        lines += [f"  {label:<28}{text}" for label, text in facts(found).items()]
    if "cohort" in findings:
        lines.append("Simulated cohort: put in → found")
        lines += [
            f"  {row['what']:<32}{row['put_in']} → {row['found']}" for row in findings["cohort"]["put_in_and_found"]
        ]
    return "\n".join(lines)
