"""Run the benchmarks, print their tables and write them to results.md and results.json.

python benchmarks/run.py                 all of them (about half an hour; ggml-ot's side takes most of it)
python benchmarks/run.py solve accuracy  some of them
"""

from __future__ import annotations

import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import bench_accuracy
import bench_distances
import bench_scaling
import bench_solve
import bench_training
from measuring import pin_to_one_core

FOLDER = Path(__file__).resolve().parent
SECTIONS = {
    "solve": ("One exact solve against POT's ot.emd2", bench_solve.run),
    "epoch": ("One training epoch against ggml-ot 0.9.94", bench_training.epochs),
    "goal": ("From data to a metric that classifies", bench_training.time_to_goal),
    "distances": ("Distance matrix of 40 × 1000 points", bench_distances.run),
    "scaling": ("Growth with the number of distributions", bench_scaling.run),
    "accuracy": ("Accuracy with default parameters", bench_accuracy.run),
}


def table(rows: list[dict]) -> str:
    """Rows as a Markdown table."""
    cells = [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


def machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("groundmetric", "numpy", "numba", "POT"))
    return f"{platform.machine()}, Python {platform.python_version()}, {packages}; one core, one thread, medians."


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        sys.exit(f"no such benchmark: {sorted(unknown)}; there are {list(SECTIONS)}")
    pin_to_one_core()
    kept = FOLDER / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name in chosen or SECTIONS:
        title, run = SECTIONS[name]
        start = time.perf_counter()
        rows = [
            {key: value if isinstance(value, str | int) else float(value) for key, value in row.items()}
            for row in run()
        ]
        results[name] = {"title": title, "machine": machine(), "rows": rows}
        print(f"\n## {title} ({time.perf_counter() - start:.0f} s)\n\n{table(rows)}", flush=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")
    parts = [f"## {r['title']}\n\n{r['machine']}\n\n{table(r['rows'])}\n" for r in map(results.get, SECTIONS) if r]
    (FOLDER / "results.md").write_text("# Benchmarks\n\nWritten by `make bench`.\n\n" + "\n".join(parts))


if __name__ == "__main__":
    main(sys.argv[1:])
