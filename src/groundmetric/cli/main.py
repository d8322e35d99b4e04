"""The program `groundmetric`: which commands there are, and how each one ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from .. import __version__
from . import demo, evaluate, learn, predict, report
from .options import log

# Each is a module with `add`, which adds the command to the parser. `--help` loads nothing else.
COMMANDS = (demo, evaluate, learn, predict, report)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; `arguments` default to those of the process."""
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings(), _ended_like_by_ctrl_c() as came:
        warnings.showwarning = _show_warning
        try:
            options.run(options)
        except (Exception, KeyboardInterrupt) as error:
            if options.debug:
                raise
            code, message = _explain(error, options, came[0] if came else signal.SIGINT)
            log(f"{options.prog}: {message}")
            return code
    return 0


@contextlib.contextmanager
def _ended_like_by_ctrl_c() -> Iterator[list[int]]:
    """SIGTERM, and the end of the terminal, end a command as Ctrl-C does: nothing half-written stays. Gives those that
    came."""
    came: list[int] = []
    owner = os.getpid()

    def end(number: int, frame: Any) -> None:
        if os.getpid() != owner:  # a child that inherited this: it ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        came.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main = threading.current_thread() is threading.main_thread()  # nobody else hears signals
    heard = [number for number in numbers if in_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    try:
        yield came
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="groundmetric", description="Learn the ground metric of optimal transport from labels.")
    parser.add_argument("--version", action="version", version=f"groundmetric {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


def _explain(error: BaseException, options: argparse.Namespace, ended_by: int) -> tuple[int, str]:
    """An exit code and one line for whoever typed the command."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return 128 + ended_by, f"{'interrupted' if ended_by == signal.SIGINT else 'terminated'} {text}".strip()
    if isinstance(error, ModuleNotFoundError):
        extra = "plot" if error.name == "matplotlib" else "single-cell"
        return 1, f"{error.name} is needed for this: pip install 'groundmetric[{extra}]'"
    if isinstance(error, OSError) and error.filename is not None:
        return 2, f"{error.strerror}: {str(error.filename)!r}"
    if isinstance(error, ValueError | OSError):
        return 2, _in_words_of_the_command(text, options)
    return 1, f"unexpected {type(error).__name__}: {text} (--debug shows where)"


def _in_words_of_the_command(text: str, options: argparse.Namespace) -> str:
    """Errors of the package name its parameters: here they are options."""
    for parameter, option in getattr(options, "spelling", {}).items():
        text = text.replace(f"{parameter} is ", f"{option} is ").replace(f"{parameter}=", f"{option} ")
    return text


def _show_warning(message: Any, *where: Any, **more: Any) -> None:
    log(f"warning: {message}")
