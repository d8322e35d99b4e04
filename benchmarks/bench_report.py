"""The command line from cells to a page, as users run it: a simulated cohort of 30 samples × 500 cells × 2,000 genes.

CPU seconds, user and system, are those of the process and its children, including imports. A small cohort warms up file
caches before.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import groundmetric as gm

SAMPLES, CELLS, GENES = 15, 500, 2000  # samples of each condition
JOBS = "2"
PROGRAM = [sys.executable, "-m", "groundmetric"]


def run() -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        _steps(Path(folder, "small"), 4, 50, 200)
        return _steps(Path(folder, "cohort"), SAMPLES, CELLS, GENES)


def _steps(folder: Path, n_samples: int, n_cells: int, n_genes: int) -> list[dict]:
    folder.mkdir()
    cells = gm.datasets.make_cohort(n_samples, n_cells, n_genes, random_state=0)
    new = gm.datasets.make_cohort(1, n_cells, n_genes, random_state=1)
    new = new[new.obs["condition"] == "disease"].copy()
    new.obs["sample"] = "new"
    for name, part in (("cells", cells), ("new", new)):
        part.write_h5ad(folder / f"{name}.h5ad")
    trained = str(folder / "run")
    columns = ["--sample", "sample", "--label", "condition"]
    commands = {
        "learn": ["learn", str(folder / "cells.h5ad"), *columns, "-o", trained, "--jobs", JOBS],
        "report": ["report", trained, "--jobs", JOBS],
        "predict one sample": ["predict", trained, str(folder / "new.h5ad"), "--sample", "sample"],
    }
    data = f"{2 * n_samples} × {n_cells} × {n_genes}"
    return [{"data": data, "command": name, **_measured(words)} for name, words in commands.items()]


def _measured(words: list[str]) -> dict[str, float]:
    """CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"CPU s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
