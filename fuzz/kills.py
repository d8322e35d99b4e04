"""`groundmetric learn`, `evaluate` and `report`, killed at a random moment and started again.

Wanted: the output is whole or absent; the next start comes to the result of an unbroken run; and after it nothing is
left of the killed one. Commands run in forks of this process, which has everything imported: a start takes no time.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tqdm
from tally import Tally, check, quiet_output, random_of, silence

import groundmetric as gm
from groundmetric import cli
from groundmetric.learning.checkpoint import Checkpoints

SHARE = 0.2
ROWS = ("killed learn", "killed evaluate", "killed report")
tqdm.tqdm.monitor_interval = 0  # a thread of its own would not survive a fork
COLUMNS = ("--sample", "sample", "--label", "condition")


@dataclass(frozen=True)
class Command:
    """A command in a folder with cells.h5ad, and the files that it writes."""

    row: str
    start: tuple[str, ...]
    repeated: tuple[str, ...]  # option to continue
    output: str
    allowed: frozenset[str]  # names that may be in the folder of the output at the end

    def argv(self, folder: Path, more: tuple[str, ...] = ()) -> list[str]:
        return [str(folder / part[1:]) if part.startswith("@") else part for part in [*self.start, *more]]


LEARN = Command(
    ROWS[0],
    ("learn", "@cells.h5ad", *COLUMNS, "--epochs", "4", "--cells-per-sample", "15", "--method", "ggml",
     "--checkpoint", "@state",
     "-o", "@learned"),
    ("--replace",), "learned", frozenset({"learned", "state", "state.before"}),
)  # fmt: skip
EVALUATE = Command(
    ROWS[1],
    ("evaluate", "@cells.h5ad", *COLUMNS, "--cells", "10", "--methods", "transport-5-nn,pseudobulk",
     "--cv", "k-fold", "--n-splits", "3", "-o", "@evaluated"),
    ("--resume", "--replace"), "evaluated", frozenset({"evaluated"}),
)  # fmt: skip
REPORT = Command(
    ROWS[2],
    ("report", "@run", "-o", "@page.html", "--no-evaluate"),
    ("--replace",), "page.html", frozenset({"page.html"}),
)  # fmt: skip
COMMANDS = (LEARN, EVALUATE, REPORT)


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "kills")
    command = COMMANDS[rng.choice(3, p=[0.45, 0.35, 0.2])]
    template, expected, seconds = _reference(command)
    how = int(rng.choice([signal.SIGKILL, signal.SIGTERM]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "work")
        shutil.copytree(template, folder)
        before = _names(folder)
        moment = rng.uniform(0.0, 1.1 * seconds)
        ended = _run(command.argv(folder), kill_after=moment, how=how)
        messages = f"{command.row}: signal {how} after {moment:.2f} of {seconds:.2f} s"
        if ended == 143 and _says_interrupted(folder / command.output):
            pass  # SIGTERM keeps the metric learned so far, with a warning
        elif (folder / command.output).exists():
            check(_content(folder / command.output) == expected, f"{messages}: the output is there, but not whole")
        for entry in _names(folder) - before:  # temporary files are removed once they are older than a day
            if entry.endswith(".part"):
                os.utime(folder / entry, (0, 0))
        repeated = _run(command.argv(folder, command.repeated))
        check(repeated == 0, f"{messages}: started again, it ends with {repeated}")
        check(_content(folder / command.output) == expected, f"{messages}: started again, it comes to another result")
        remaining = _names(folder) - before - command.allowed
        check(not remaining, f"{messages}: left after the next start: {sorted(remaining)}")
    tally.note(command.row, ended="killed" if ended < 0 else "interrupted" if ended == 143 else "finished")


def _says_interrupted(output: Path) -> bool:
    run = output / "run.json"
    return run.exists() and bool(json.loads(run.read_text()).get("interrupted"))


def _run(argv: list[str], kill_after: float | None = None, how: int = signal.SIGKILL) -> int:
    """The exit code of a command; negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            Checkpoints.is_due = lambda self: True  # type: ignore[method-assign]
            with quiet_output(), silence():
                code = cli.main(argv)
        finally:
            os._exit(code)
    if kill_after is not None:
        _wait(child, kill_after)
        os.kill(child, how)  # a child that is done already is a zombie still: no other process can have its number
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _wait(child: int, seconds: float) -> None:
    """Until it is done, but no longer; the child is left to be asked for its end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.002)


@functools.cache
def _reference(command: Command) -> tuple[Path, str, float]:
    """Return an initial folder, and the results and seconds of an uninterrupted run."""
    template = _template(with_run=command is REPORT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "work")
        shutil.copytree(template, folder)
        with quiet_output(), silence():  # here: every fork has all modules loaded
            code = cli.main(command.argv(folder))
        check(code == 0, f"{command.row}: an unbroken run ends with {code}")
        started = time.monotonic()
        _run(command.argv(folder, command.repeated))
        return template, _content(folder / command.output), time.monotonic() - started


@functools.cache
def _template(*, with_run: bool) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    cohort = gm.datasets.make_cohort(5, 15, 30, cell_types=["A"], n_markers=2, n_programme_genes=5, random_state=0)
    del cohort.uns["truth"]
    cohort.write_h5ad(folder / "cells.h5ad")
    if with_run:
        argv = ["learn", str(folder / "cells.h5ad"), *COLUMNS, "--epochs", "2", "-o", str(folder / "run")]
        with quiet_output(), silence():
            check(cli.main(argv) == 0, "no run to report on")
    return folder


def _names(folder: Path) -> set[str]:
    """Everything that is there, also inside of the run that is reported on."""
    inner = {f"run/{path.name}" for path in folder.glob("run/*") if path.name.startswith(".")}
    return {path.name for path in folder.iterdir()} | inner


def _content(output: Path) -> str:
    """What must be the same in every run: all but seconds and places."""
    if output.is_file():
        text = output.read_text()
        return f"whole: {text.rstrip().endswith('</html>')}"
    findings = json.loads((output / "run.json").read_text())
    missing = [name for name in findings["files"] if not (output / name).exists()]
    scores = {
        method: {key: value for key, value in row.items() if "second" not in key}
        for method, row in findings.get("scores", {}).items()
    }
    learned = [(output / name).read_text() for name in ("distances.csv", "importance.csv") if (output / name).exists()]
    return re.sub(r"\s+", " ", json.dumps([missing, scores, findings.get("loss"), learned]))
