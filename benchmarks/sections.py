"""How sections of benchmarks are run: each gives rows, which are printed, kept as JSON and written as Markdown."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
Sections = dict[str, tuple[str, Callable[[], list[dict]]]]  # title and rows by name


def table(rows: list[dict]) -> str:
    """Rows as a Markdown table."""
    cells = [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


def machine(manner: str) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("groundmetric", "numpy", "POT"))
    return f"{platform.machine()}, Python {platform.python_version()}, {packages}; {manner}."


def run_sections(sections: Sections, chosen: list[str], file: str, heading: str, manner: str) -> None:
    """Run the chosen sections (none: all) and write `file`.md with all that were ever run."""
    unknown = set(chosen) - set(sections)
    if unknown:
        sys.exit(f"no such benchmark: {sorted(unknown)}; there are {list(sections)}")
    kept = FOLDER / f"{file}.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name in chosen or sections:
        title, run = sections[name]
        start = time.perf_counter()
        rows = [
            {key: value if isinstance(value, str | int) else float(value) for key, value in row.items()}
            for row in run()
        ]
        results[name] = {"title": title, "machine": machine(manner), "rows": rows}
        print(f"\n## {title} ({time.perf_counter() - start:.0f} s)\n\n{table(rows)}", flush=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")
        _write_page(FOLDER / f"{file}.md", heading, [results[name] for name in sections if name in results])


def _write_page(path: Path, heading: str, results: list[dict]) -> None:
    parts = [f"## {r['title']}\n\n{r['machine']}\n\n{table(r['rows'])}\n" for r in results]
    path.write_text(f"# {heading}\n\n" + "\n".join(parts))
