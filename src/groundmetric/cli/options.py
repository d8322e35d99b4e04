"""Options that several commands share, and numbers as people type them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_command(commands: Any, run: Callable, name: str, help: str) -> argparse.ArgumentParser:
    """A command with the options that all have; `run` is called with what was parsed."""
    command = commands.add_parser(name, help=help, description=help)
    command.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    command.add_argument("--debug", action="store_true", help="show a traceback where something goes wrong")
    command.set_defaults(run=run, prog=command.prog)
    return command


def add_seed(command: argparse.ArgumentParser, of: str) -> None:
    command.add_argument("--seed", metavar="N", type=seed, default=0, help=f"{of} (%(default)s)")


def add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="replace the folder of an earlier run")


def add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", metavar="N", type=jobs, default=None, help="threads; -1: one per core (1)")


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}, not {text!r}")
    return int(text)


def count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, not {text!r}")
    return int(text)


def count_or_all(text: str) -> int | None:
    return None if text == "all" else count(text)


def jobs(text: str) -> int:
    return -1 if text == "-1" else count(text)


def number(text: str) -> float:
    """Not negative and finite."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, not {text!r}")
    return value


def share(text: str) -> float:
    value = number(text)
    if value > 1.0:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, not {text!r}")
    return value
