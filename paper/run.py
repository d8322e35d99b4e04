"""The paper's experiments, section by section, and the page of results, which is written anew after each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groundmetric import __version__
from groundmetric._internal.cache import Cache
from groundmetric._internal.files import write_whole
from groundmetric._internal.tables import plain

from . import ablations, classification, clustering, figures
from .protocol import Plan
from .tables import prose

# In the order in which they run: fast and important sections first.
SECTIONS = ("classification", "clustering", "timing", "figures", "surface")
# How each becomes paragraphs, in the order of the page.
_PARAGRAPHS: dict[str, Callable[[Any, Path], list[str]]] = {
    "classification": classification.classification, "clustering": clustering.clustering,
    "surface": ablations.surface, "timing": ablations.timing, "figures": figures.figures,
}  # fmt: skip
MARK = "<!-- written by `make paper`: edits are lost when it runs again -->"
# Finished work, in the folder of the page, with its own .gitignore.
WORK = ".paper"


def reproduce(
    sections: Sequence[str] = (),
    output: str | os.PathLike[str] = "reproduced",
    *,
    n_jobs: int | None = None,
    quick: bool = False,
    seed: int = 0,
    verbose: int = 0,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the paper's experiments, and write results.md and the folder results/.

    Every fit is written when it is done, and the same call continues after an interruption. The page
    shows all sections that were ever finished in this folder.

    Parameters
    ----------
    sections : sequence of str
        Some of "classification", "clustering", "timing", "figures", "surface"; none: all.
    output : path
        Folder of results.md.
    n_jobs : int or None
        Processes; the timing is always done one by one.
    quick : bool
        A rehearsal of everything in a minute or two, with numbers that mean nothing.
    seed : int
        Of data, splits and learners.
    verbose : int
        1 shows progress bars on a terminal.
    log : callable
        Called with a line on what comes next.

    Returns
    -------
    dict
        "sections": findings by section; "files": names of all files that were written.
    """
    chosen = [section for section in SECTIONS if section in sections or not sections]
    unknown = sorted(set(sections) - set(SECTIONS))
    if unknown:
        raise ValueError(f"unknown section {unknown[0]!r}: expected one or more of {', '.join(SECTIONS)}")
    folder = Path(output)
    check_output(folder)
    cache = _cache(folder, quick, seed)
    plan = Plan(cache.path, n_jobs, quick, seed, verbose, log)
    files: list[str] = []

    for section in chosen:
        started = time.perf_counter()
        cache.put_json(f"section {section}", plain(_run(section, plan, folder / "results")))
        files = write_page(_finished(cache), folder, quick=quick, version=__version__)
        log(f"{section}: done in {time.perf_counter() - started:.0f} s; wrote {folder / 'results.md'}")
    return {"sections": _finished(cache), "files": files}


def _run(section: str, plan: Plan, pictures: Path) -> dict[str, Any]:
    if section == "figures":
        return figures.run(plan, pictures)
    steps = {
        "classification": classification.run, "clustering": clustering.run,
        "timing": ablations.run_timing, "surface": ablations.run_surface,
    }  # fmt: skip
    return steps[section](plan)


def _finished(cache: Cache) -> dict[str, Any]:
    """The findings of all sections that were ever finished here, perhaps by another process in the meantime."""
    return {name: stored for name in SECTIONS if (stored := cache.get_json(f"section {name}")) is not None}


def write_page(findings: dict[str, Any], output: Path, *, quick: bool, version: str) -> list[str]:
    """Write results.md, and tables and figures into results/; the names of all files, relative to the output."""
    folder = output / "results"
    folder.mkdir(parents=True, exist_ok=True)
    parts = [MARK, "# Results", _intro(quick, version)]
    for section, paragraphs in _PARAGRAPHS.items():
        if section in findings:
            parts += paragraphs(findings[section], folder)
    write_whole(output / "results.md", ["\n\n".join(parts).encode() + b"\n"])
    return ["results.md", *sorted(f"results/{path.name}" for path in folder.iterdir() if not path.name.startswith("."))]


def _intro(quick: bool, version: str) -> str:
    warning = "**A quick run: few points, splits, settings and epochs. Its numbers say nothing but that it runs.**"
    return prose(
        """The experiments of the paper (Kühn & Schaub, *Global Ground Metric Learning with Applications to scRNA data*,
        AISTATS 2025) on its synthetic data, run and written by `make paper` (version {version}). The tables show the
        published figures and ours; all tables are in `results/` as CSV. [Accuracy on real
        cohorts](new_patients.md#accuracy-on-real-and-simulated-cohorts) is measured elsewhere. {warning}""",
        version=version,
        warning=warning if quick else "",
    ).rstrip()


def check_output(folder: Path) -> None:
    """Raise instead of replacing a page that was written by hand."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output {str(folder)!r} is a file: give a folder")
    page = folder / "results.md"
    if page.exists() and not page.read_text(encoding="utf-8").startswith(MARK):
        raise ValueError(f"{str(page)!r} exists and was not written by this command: give another folder")
    alternatives = folder / "results"
    if alternatives.exists() and not page.exists() and any(alternatives.iterdir()) and not (folder / WORK).exists():
        raise ValueError(f"{str(alternatives)!r} exists and is not an earlier run: give another folder")


def _cache(folder: Path, quick: bool, seed: int) -> Cache:
    """Finished work of runs with the same data and splits."""
    work = folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    write_whole(work / ".gitignore", [b"*\n"])
    return Cache(work / f"{'quick' if quick else 'full'}-{seed}.cache")
