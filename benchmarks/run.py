"""Run the benchmarks, print their tables and write them to results.md and results.json.

python benchmarks/run.py                 all of them (about half an hour; ggml-ot's side takes most of it)
python benchmarks/run.py solve accuracy  some of them
"""

from __future__ import annotations

import sys

import bench_accuracy
import bench_distances
import bench_first
import bench_labels
import bench_metrics
import bench_permutation
import bench_report
import bench_scaling
import bench_solve
import bench_training
import bench_variants
from measuring import pin_to_one_core
from sections import run_sections

SECTIONS = {
    "solve": ("One exact solve against POT's ot.emd2", bench_solve.run),
    "first": ("The first call in a fresh process", bench_first.run),
    "size": ("Installed size of the package", bench_first.installed_size),
    "epoch": ("One training epoch against ggml-ot 0.9.94", bench_training.epochs),
    "tutorial": ("One epoch of the workload of ggml-ot's GPU tutorial", bench_training.tutorial),
    "goal": ("From data to a metric that classifies", bench_training.time_to_goal),
    "distances": ("Distance matrix of 40 × 1000 points", bench_distances.run),
    "scaling": ("Growth with the number of distributions", bench_scaling.run),
    "accuracy": ("Accuracy with default parameters", bench_accuracy.run),
    "variants": ("Ways to compare distributions under a learned metric", bench_variants.run),
    "labels": ("Ordered labels and strata", bench_labels.run),
    "metrics": ("Metrics and penalties", bench_metrics.run),
    "permutation": ("Permutation test of the ensemble", bench_permutation.run),
    "report": ("The command line, from cells to a page, 2 jobs", bench_report.run),
}


def main(chosen: list[str]) -> None:
    pin_to_one_core()
    heading = "Benchmarks\n\nWritten by `make bench`."
    run_sections(SECTIONS, chosen, "results", heading, "one core, one thread, medians")


if __name__ == "__main__":
    main(sys.argv[1:])
