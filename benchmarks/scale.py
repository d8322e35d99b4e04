"""Run the benchmarks of scale, print their tables and write them to scale.md and scale.json.

python benchmarks/scale.py                    all of them
python benchmarks/scale.py neighbours large   some of them
"""

from __future__ import annotations

import sys

import atlas
import bench_cluster
import bench_large
import bench_neighbours
import bench_patients
from measuring import run_sections

SECTIONS = {
    "neighbours": ("Nearest neighbours without all distances", bench_neighbours.run),
    "large": ("10,000 against 10,000 points, exactly, without a matrix of costs", bench_large.exact),
    "atlas": ("700,000 cells × 30,000 genes on disk: time and peak memory of each stage", atlas.run),
    "cluster": ("Two Dask processes against one", bench_cluster.run),
    "machines": ("1,000 patients of 10,000 cells on 32 machines: an estimate", bench_cluster.estimate),
    "patients": ("`groundmetric learn` on many patients", bench_patients.run),
    "landmarks": ("Ensembles with landmarks against all pairs: 634 patients", bench_patients.accuracy),
    "larger": ("100,000 against 100,000 points, with a bound on the error", bench_large.coarse),
}


def main(chosen: list[str]) -> None:
    heading = "Benchmarks of scale\n\nWritten by `make bench-scale`."
    run_sections(SECTIONS, chosen, "scale", heading, "one thread where no other number is given")


if __name__ == "__main__":
    main(sys.argv[1:])
