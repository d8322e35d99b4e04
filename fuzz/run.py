"""`make fuzz`: random tests for a given time, and a table of the numbers of tests and the largest errors.

python fuzz/run.py --minutes 60                      all subjects, as the page docs/certified.md shows them
python fuzz/run.py --subject problems --seed 17      one attempt, as a failure prints it

Every subject runs in a process of its own that reports after each attempt: crashes and hangs also have a seed.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import multiprocessing.connection
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: forks of a process with threads of BLAS may hang
sys.path.insert(0, str(Path(__file__).parent))

from tally import Tally

SUBJECTS = ("problems", "chains", "bases", "files", "kills", "together", "containers", "cohorts")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "certified.md"
BEGIN, END = "<!-- table of make fuzz: begin -->", "<!-- table of make fuzz: end -->"
HANGS = 180.0  # seconds without an attempt that is done
TURNS, SHORTEST = 3, 15.0  # in how many turns a subject uses its time, about, and their least seconds
SHOWN = 5  # failures of one subject that are printed in full


@dataclass
class Progress:
    """One subject: its attempts and the time used so far."""

    name: str
    seed: int
    share: float
    used: float = 0.0
    tally: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)


def main() -> int:
    options = _options()
    if options.subject is not None and options.seed is not None:
        with tempfile.TemporaryDirectory(prefix="groundmetric-fuzz-") as tempfile.tempdir:
            importlib.import_module(options.subject).attempt(options.seed, Tally())
        print(f"{options.subject} with seed {options.seed}: correct")
        return 0
    base = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    names = SUBJECTS if options.subject is None else (options.subject,)
    print(f"seeds from {base}; {options.minutes:g} minutes, {options.jobs} at a time", flush=True)
    subjects = [Progress(name, base, importlib.import_module(name).SHARE) for name in names]
    started = time.monotonic()
    _run_all(subjects, started + 60.0 * options.minutes, options.jobs)
    table = _table(subjects, base, time.monotonic() - started)
    print(table)
    if options.subject is None and not options.no_page:
        _write_page(table)
    return 1 if any(subject.failures for subject in subjects) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (%(default)s)")
    parser.add_argument("--subject", choices=SUBJECTS)
    parser.add_argument("--seed", type=int, help="of the first attempt; with --subject, of the only one")
    parser.add_argument("--no-page", action="store_true", help=f"leave {PAGE.name} unchanged")
    return parser.parse_args()


def _run_all(subjects: list[Progress], until: float, jobs: int) -> None:
    """Turns: who has used least of their share goes next, until the time is over."""
    running: dict[Any, tuple[Progress, _Turn]] = {}
    total = jobs * (until - time.monotonic())
    while running or time.monotonic() < until:
        waiting = [first for first in subjects if all(first is not second for second, _ in running.values())]
        while waiting and len(running) < jobs and time.monotonic() < until:
            subject = min(waiting, key=lambda first: first.used / first.share)
            waiting.remove(subject)
            turn = _Turn(subject, min(max(SHORTEST, subject.share * total / TURNS), until - time.monotonic()))
            running[turn.reports] = subject, turn
        for reports in multiprocessing.connection.wait(list(running), timeout=1.0):
            running[reports][1].take()
        for reports, (_, turn) in list(running.items()):
            if turn.is_over():
                del running[reports]


class _Turn:
    """A process that makes attempts of one subject, one seed after the other."""

    def __init__(self, subject: Progress, seconds: float) -> None:
        self.subject, self.ended = subject, False
        self.started = self.heard = time.monotonic()
        self.reports, there = multiprocessing.Pipe(duplex=False)
        self.folder = tempfile.TemporaryDirectory(prefix="groundmetric-fuzz-")  # ours, as the process may crash
        # Spawned rather than forked: each starts from nothing, as a user's process does.
        self.process = multiprocessing.get_context("spawn").Process(
            target=_attempts, args=(subject.name, subject.seed, seconds, self.folder.name, there)
        )
        self.process.start()
        there.close()

    def take(self) -> None:
        try:
            seed, tally, failure = self.reports.recv()
        except EOFError:
            self.ended = True
            return
        self.heard, self.subject.seed = time.monotonic(), seed + 1
        self.subject.tally.add(tally)
        if failure:
            _tell(self.subject, seed, failure)

    def is_over(self) -> bool:
        """Whether the process has ended, well or badly, or hangs and was ended."""
        silent = time.monotonic() - self.heard
        if not self.ended and silent < HANGS:
            return False
        if not self.ended:
            self.process.kill()
        self.process.join()
        self.reports.close()
        self.folder.cleanup()
        if not self.ended or self.process.exitcode != 0:
            how = f"ended with {self.process.exitcode}" if self.ended else f"hung for {silent:.0f} s"
            _tell(self.subject, self.subject.seed, f"the process {how}")
            self.subject.seed += 1
        self.subject.used += time.monotonic() - self.started
        return True


def _attempts(name: str, seed: int, seconds: float, folder: str, reports: Any) -> None:
    """Runs in a process of its own, and reports after every attempt."""
    tempfile.tempdir = folder
    subject = importlib.import_module(name)
    with reports:
        for at in _counting(seed, seconds):
            tally, failure = Tally(), ""
            try:
                subject.attempt(at, tally)
            except Exception as error:
                position = traceback.extract_tb(error.__traceback__)[-1]
                failure = f"{type(error).__name__}: {error} ({Path(position.filename).name}:{position.lineno})"
            reports.send((at, tally, failure))


def _counting(seed: int, seconds: float) -> Iterator[int]:
    """Run seeds for a time, starting with the first, which may prepare files for later attempts."""
    yield seed
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seed += 1
        yield seed


def _tell(subject: Progress, seed: int, failure: str) -> None:
    subject.failures.append(failure)
    if len(subject.failures) <= SHOWN:
        line = f"python fuzz/run.py --subject {subject.name} --seed {seed}"
        print(f"WRONG {subject.name}: {failure}\n      again: {line}", flush=True)


def _table(subjects: list[Progress], base: int, seconds: float) -> str:
    lines = ["| test | passed | largest relative error | outcome |", "| --- | --- | --- | --- |"]
    for subject in subjects:
        tally = subject.tally
        for row in importlib.import_module(subject.name).ROWS:
            ends = ", ".join(f"{count:,} {end}" for end, count in tally.ended.get(row, {}).items())
            worst = tally.worst.get(row, 0.0)
            lines.append(f"| {row} | {tally.tried[row]:,} | {f'{worst:.1e}' if worst else '0'} | {ends} |")
    failed = {subject.name: len(subject.failures) for subject in subjects if subject.failures}
    wrong = ", ".join(f"{count:,} in {name}" for name, count in failed.items()) or "none"
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    return "\n".join([*lines, "", f"Failures: {wrong}. {seconds / 60:.0f} minutes, seeds from {base}, {machine}."])


def _write_page(table: str) -> None:
    before, _, remaining = PAGE.read_text().partition(BEGIN)
    _, _, after = remaining.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
