"""Run the benchmarks, print their tables and write them to results.md and results.json.

python benchmarks/run.py                 all sections (most time is spent in ggml-ot)
python benchmarks/run.py solve solvers   these sections
"""

from __future__ import annotations

import sys

import bench_first
import bench_pot
import bench_solve
import bench_training
from measuring import pin_to_one_core, run_sections

SECTIONS = {
    "solve": ("One exact solve against POT's ot.emd2", bench_solve.run),
    "solvers": ("Exact, coarse and POT's solvers on the same pairs", bench_pot.run),
    "first": ("The first call in a fresh process", bench_first.run),
    "size": ("Installed size of the package", bench_first.installed_size),
    "epoch": ("One training epoch against ggml-ot 0.9.94", bench_training.epochs),
    "tutorial": ("One epoch of the workload of ggml-ot's GPU tutorial", bench_training.tutorial),
    "goal": ("From data to a metric that classifies", bench_training.time_to_goal),
    "distances": ("Distance matrix of 40 × 1000 points", bench_training.distances),
}
HEADING = "Benchmarks\n\nWritten by `make bench`."


if __name__ == "__main__":
    pin_to_one_core()
    run_sections(SECTIONS, sys.argv[1:], "results", HEADING, "one core, one thread, medians")
