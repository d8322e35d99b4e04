"""`python -m paper`: sections in turn, each kept when it is done; the page is written anew after each."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from groundmetric import __version__
from groundmetric._internal.cache import Cache
from groundmetric._internal.files import write_whole
from groundmetric._internal.tables import without_nan
from groundmetric.cli.options import add_command, add_jobs, add_seed, log, print_findings

from . import ablations as surface
from . import ablations as timing
from . import classification, clustering, figures, real
from .page import MARK, write_page
from .protocol import Plan

# In the order in which they run: what is quick and most asked for first.
SECTIONS = ("classification", "clustering", "timing", "figures", "surface", "real")
# Beside the page: finished work, hidden from git by a file of its own.
WORK = ".reproduce"


def reproduce(
    sections: Sequence[str] = (),
    output: str | os.PathLike = "reproduced",
    *,
    n_jobs: int | None = None,
    quick: bool = False,
    data: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 0,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the paper's experiments, and write results.md and the folder results/.

    Every fit is kept as soon as it is done: after an interruption, the same call goes on where it stopped. The page
    shows all sections that were ever finished in this folder.

    Parameters
    ----------
    sections : some of "classification", "clustering", "timing", "figures", "surface", "real"; none: all
    output : folder
    n_jobs : processes; the timing is always done one by one
    quick : a rehearsal of everything in a minute or two, with numbers that mean nothing
    data : folder of the real data sets; without, the section "real" says that they are absent
    seed : of data, splits and learners
    verbose : 1 shows progress bars where there is a terminal
    log : is told in a line what comes next

    Returns
    -------
    dict of the findings by section, and the names of all files that were written
    """
    chosen = [section for section in SECTIONS if section in sections or not sections]
    unknown = sorted(set(sections) - set(SECTIONS))
    if unknown:
        raise ValueError(f"there is no section {unknown[0]!r}: expected some of {', '.join(SECTIONS)}")
    folder = Path(output)
    check_output(folder)
    cache = _cache(folder, quick, seed)
    plan = Plan(cache.path, n_jobs, quick, None if data is None else Path(data), seed, verbose, log)
    files: list[str] = []

    def keep(section: str, found: dict[str, Any]) -> None:
        cache.put_json(f"section {section}", without_nan(found))
        files[:] = write_page(_finished(cache), folder, quick=quick, version=__version__)

    for section in chosen:
        started = time.perf_counter()
        keep(section, _run(section, plan, folder / "results", partial(keep, section)))
        log(f"{section}: done in {time.perf_counter() - started:.0f} s; wrote {folder / 'results.md'}")
    return {"sections": _finished(cache), "files": files}


def _run(section: str, plan: Plan, pictures: Path, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    if section == "figures":
        return figures.run(plan, pictures)
    if section == "real":
        return real.run(plan, keep)
    steps = {"classification": classification, "clustering": clustering, "timing": timing, "surface": surface}
    return steps[section].run(plan)


def _finished(cache: Cache) -> dict[str, Any]:
    """The findings of all sections that were ever finished here, perhaps by another process in the meantime."""
    return {name: kept for name in SECTIONS if (kept := cache.get_json(f"section {name}")) is not None}


def check_output(folder: Path) -> None:
    """A page that somebody wrote by hand is not replaced."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output {str(folder)!r} is a file: give a folder")
    page = folder / "results.md"
    if page.exists() and not page.read_text(encoding="utf-8").startswith(MARK):
        raise ValueError(f"{str(page)!r} exists and was not written by this command: give another folder")
    others = folder / "results"
    if others.exists() and not page.exists() and any(others.iterdir()) and not (folder / WORK).exists():
        raise ValueError(f"{str(others)!r} exists and is no earlier run: give another folder")


def _cache(folder: Path, quick: bool, seed: int) -> Cache:
    """Finished work of runs with the same data and splits."""
    work = folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    write_whole(work / ".gitignore", [b"*\n"])
    return Cache(work / f"{'quick' if quick else 'full'}-{seed}.cache")


_SECTIONS_HELP = ("classification", "clustering", "timing", "figures", "surface", "real")
# Where the real data sets lie in a checkout of the project.
DATA = Path("../shared/data")


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "reproduce", "run the paper's experiments; an interrupted run goes on where it stopped"
    )
    command.add_argument("sections", metavar="SECTION", nargs="*", help=f"some of {', '.join(_SECTIONS_HELP)} (all)")
    command.add_argument("-o", "--output", metavar="DIR", default="reproduced",
                         help="folder for results.md and results/ (%(default)s)")  # fmt: skip
    command.add_argument(
        "--quick", action="store_true", help="a rehearsal in a minute or two; its numbers mean nothing"
    )
    command.add_argument("--data", metavar="DIR", help=f"folder of the real data sets ({DATA}, if there)")
    add_seed(command, "of data, splits and learners")
    add_jobs(command)


def run(options: argparse.Namespace) -> None:
    from . import reproduce  # heavy, and not needed for --help

    if options.data is not None and not Path(options.data).is_dir():
        raise ValueError(f"--data {options.data!r} is no folder")
    data = options.data or (DATA if DATA.is_dir() else None)
    found = reproduce(
        options.sections, options.output, n_jobs=options.jobs, quick=options.quick, data=data, seed=options.seed,
        verbose=1, log=log,
    )  # fmt: skip
    print_findings(found, summary(found), as_json=options.json)
    log(f"wrote {', '.join(found['files'])} to {options.output}")


def summary(found: dict[str, Any]) -> str:
    """A line per section, with the figure that is asked for first."""
    lines = []
    for name, content in found["sections"].items():
        text = "done"
        if name == "classification":
            text = ", ".join(
                f"{data} {study['rows']['GGML']['distributions']['mean']:.2f}" for data, study in content.items()
            )
            text = f"accuracy of GGML: {text}"
        elif name == "real":
            text = f"{len(content['sets'])} data sets" + (
                f", {len(content['absent'])} absent" if content["absent"] else ""
            )
        lines.append(f"{name:<16}{text}")
    return "\n".join(lines)
