"""Run benchmarks, print their tables, and write results.md, scale.md and the table of the README from results.json and
scale.json.

python benchmarks/run.py                 all sections of results.md (most time is spent in ggml-ot)
python benchmarks/run.py scale           all sections of scale.md
python benchmarks/run.py solve large     these sections
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import atlas
import scale
import speed
import training

FOLDER = Path(__file__).resolve().parent
README = FOLDER.parent / "README.md"
# By file: heading, conditions, and the title and the function of each section.
PAGES = {
    "results": ("Benchmarks\n\nWritten by `make bench`.", "one core, one thread, medians", {
        "solve": ("One exact solve against POT's ot.emd2", speed.exact_solve),
        "solvers": ("Exact, coarse and POT's solvers on the same pairs", speed.all_solvers),
        "first": ("The first call in a fresh process", speed.first_call),
        "size": ("Installed size of the package", speed.installed_size),
        "epoch": ("One training epoch against ggml-ot 0.9.94", training.epochs),
        "tutorial": ("One epoch of the workload of ggml-ot's GPU tutorial", training.tutorial),
        "goal": ("From data to a metric that classifies", training.time_to_goal),
        "distances": ("Distance matrix of 40 × 1000 points", training.distances),
    }),
    "scale": ("Benchmarks of scale\n\nWritten by `make bench-scale`.", "one thread where no other number is given", {
        "neighbours": ("Nearest neighbours without all distances", scale.neighbours),
        "large": ("10,000 against 10,000 points, exactly, without a matrix of costs", scale.large),
        "atlas": ("700,000 cells × 30,000 genes on disk: time and peak memory of each stage", atlas.run),
        "cluster": ("Two Dask processes against one", scale.cluster),
        "machines": ("1,000 patients of 10,000 cells on 32 machines: an estimate", scale.machines),
        "patients": ("`groundmetric learn` on many patients", scale.many_patients),
        "landmarks": ("Ensembles with landmarks against all pairs: 634 patients", scale.landmarks),
        "larger": ("100,000 against 100,000 points, with a bound on the error", scale.larger),
    }),
}  # fmt: skip


def table(rows: list[dict]) -> str:
    """Return rows as a Markdown table."""
    cells = [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


def run_section(page: str, name: str) -> None:
    """Run a section, print its table, and write its rows to `page`.json and `page`.md."""
    heading, conditions, sections = PAGES[page]
    title, run = sections[name]
    stored = FOLDER / f"{page}.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    packages = ", ".join(f"{package} {version(package)}" for package in ("groundmetric", "numpy", "POT"))
    machine = f"{platform.machine()}, Python {platform.python_version()}, {packages}; {conditions}."
    start = time.perf_counter()
    rows = [
        {key: value if isinstance(value, str | int) else float(value) for key, value in row.items()} for row in run()
    ]
    results[name] = {"title": title, "machine": machine, "rows": rows}
    print(f"\n## {title} ({time.perf_counter() - start:.0f} s)\n\n{table(rows)}", flush=True)
    stored.write_text(json.dumps(results, indent=1) + "\n")
    parts = [
        f"## {result['title']}\n\n{result['machine']}\n\n{table(result['rows'])}\n"
        for result in (results[name] for name in sections if name in results)
    ]
    (FOLDER / f"{page}.md").write_text(f"# {heading}\n\n" + "\n".join(parts))


def time_of(ms: float) -> str:
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def write_readme(results: dict) -> None:
    """Replace the rows of the speed table of the README; the last row of the table is the distance matrix."""
    lines = []
    for solve in results["solve"]["rows"]:
        sizes, comma, masses = solve["sizes"].partition(",")
        label, cold, warm = f"exact solve, {sizes} points{comma}{masses}", solve["cold ms"], solve["warm ms"]
        others = {
            name: solve[f"{key} ms"]
            for name, key in (("POT", "POT"), ("SciPy `linear_sum_assignment`", "SciPy linear_sum_assignment"),
                              ("lapx `lapjv`", "lapx lapjv"))
            if solve[f"{key} ms"]
        }  # fmt: skip
        if solve["sizes"].startswith(("1000", "4000")):
            times = ", ".join(f"{name} {time_of(ms)}" for name, ms in others.items())
            ratios = ", ".join(f"{ms / cold:.0f}" for ms in others.values())
            lines.append(f"| {label}, cold start | {time_of(cold)} | {times} | {ratios} |")
        if solve["sizes"] == "1000 × 1000":
            pot = solve["POT warm ms"]
            lines.append(
                f"| {label}, warm start | {time_of(warm)} | POT, warm start {time_of(pot)} | {pot / warm:.0f} |"
            )
    for epoch in results["epoch"]["rows"]:
        if epoch["our steps"] == "default batches":
            ours, theirs = epoch["groundmetric s per epoch"], epoch["ggml-ot s per epoch"]
            lines.append(
                f"| training epoch, {epoch['data']} | {ours:.3g} s | ggml-ot {theirs:.3g} s | {theirs / ours:.0f} |"
            )
    ours, gpu, _, exact = (row["s per epoch"] for row in results["tutorial"]["rows"])
    lines.append(
        f"| training epoch, GPU tutorial of ggml-ot (63 × 250 cells × 5,000 genes) | {ours:.3g} s, exact, 1 CPU thread "
        f"| published by ggml-ot: {gpu:.3g} s, Sinkhorn, GPU; {exact:.3g} s, exact, 64 CPU threads | |"
    )
    matrix = results["distances"]["rows"][0]
    ours, theirs = matrix["groundmetric s"], matrix["ggml-ot s"]
    lines.append(f"| distance matrix, 40 × 1000 points | {ours:.3g} s | ggml-ot {theirs:.3g} s | {theirs / ours:.0f} |")
    text = README.read_text()
    first, last = text.index("| exact solve,"), text.index("\n", text.index("| distance matrix,"))
    README.write_text(text[:first] + "\n".join(lines) + text[last:])


def main(chosen: list[str]) -> None:
    page_of = {name: page for page, (*_, sections) in PAGES.items() for name in sections}
    unknown = set(chosen) - set(page_of) - set(PAGES)
    if unknown:
        sys.exit(f"unknown sections {sorted(unknown)}: expected some of {[*PAGES, *page_of]}")
    names = [section for name in chosen or ["results"] for section in (PAGES[name][2] if name in PAGES else [name])]
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    for name in names:
        if cores is not None:
            os.sched_setaffinity(0, {min(cores)} if page_of[name] == "results" else cores)
        run_section(page_of[name], name)
    write_readme(json.loads((FOLDER / "results.json").read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
