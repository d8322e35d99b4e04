"""The program `groundmetric`: which commands there are, and how each one ends."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from .. import __version__
from . import demo, evaluate, learn, predict, report
from .options import log

# Each is a module with `add`, which adds the command to the parser. `--help` loads nothing else.
COMMANDS = (demo, evaluate, learn, predict, report)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which names the option or choice that was probably meant."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        # Before the other checks: a misspelt option that is required would be reported as missing.
        if args is not None and self._subparsers is None:
            self._check_options(list(args))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _check_options(self, args: list[str]) -> None:
        known = list(self._option_string_actions)
        for word in args[: args.index("--")] if "--" in args else args:
            name = word.split("=")[0]
            if name.startswith("--") and not any(option.startswith(name) for option in known):
                self.error(f"there is no option {name}{nearest(name, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"{value!r} is none of {', '.join(choices)}{nearest(str(value), choices)}"
            )


def nearest(word: str, known: Sequence[str]) -> str:
    """The known word that was probably meant, as a question; nothing where none is near.

    >>> nearest("--smaple", ["--sample", "--label"])
    ': did you mean --sample?'
    """
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {found[0]}?" if found else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; `arguments` default to those of the process."""
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings(), _quiet_processes(), _signals_as_interrupts() as signals:
        warnings.showwarning = _show_warning
        try:
            options.run(options)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                _end_workers()
            if options.debug:
                raise
            code, message = _explain(error, options, signals[0] if signals else signal.SIGINT)
            log(f"{options.prog}: {message}")
            return code
    return 0


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """SIGTERM, and the end of the terminal, end a command as Ctrl-C does: nothing half-written stays. Yields the list
    of signals received."""
    received: list[int] = []
    owner = os.getpid()

    def interrupt(number: int, frame: Any) -> None:
        if os.getpid() != owner:  # a child that inherited this: it ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        received.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main = threading.current_thread() is threading.main_thread()  # no other thread can handle signals
    handled = [number for number in numbers if in_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _quiet_processes() -> Iterator[None]:
    """Python does not warn of the semaphores of joblib's processes: where these are ended, others clean up."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join([*([before] if before else []), "ignore:resource_tracker:UserWarning"])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _end_workers() -> None:
    """End the processes of joblib, which would otherwise go on, and complain of a parent that is gone."""
    executor = getattr(sys.modules.get("joblib.externals.loky.reusable_executor"), "_executor", None)
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="groundmetric", description="Learn the ground metric of optimal transport from labels.",
        epilog="example:\n  groundmetric learn cells.h5ad --sample sample --label disease -o run && "
        "groundmetric report run", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"groundmetric {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


def _explain(error: BaseException, options: argparse.Namespace, ended_by: int) -> tuple[int, str]:
    """An exit code and one line for whoever typed the command."""
    text = " ".join(_message(error, getattr(options, "option_of", {})).split())
    if isinstance(error, KeyboardInterrupt):
        word = "interrupted" if ended_by == signal.SIGINT else "terminated"
        return 128 + ended_by, f"{word} {text}" if text else f"{word}: {options.interrupted}"
    if isinstance(error, ModuleNotFoundError):
        extra = "plot" if error.name == "matplotlib" else "single-cell"
        return 1, f"{error.name} is needed for this: pip install 'groundmetric[{extra}]'"
    if isinstance(error, OSError) and error.filename is not None:
        return 2, f"{error.strerror}: {str(error.filename)!r}"
    if isinstance(error, ValueError | OSError):
        return 2, text
    return 1, f"unexpected {type(error).__name__}: {text} (--debug shows where)"


def _message(error: Any, option_of: Mapping[str, str]) -> str:
    """What an error says; a `ParameterError` names the options that parameters are in this command."""
    options = {"output": "--output", "replace": "--replace", **option_of}
    return error.naming(options) if hasattr(error, "naming") else str(error)


def _show_warning(message: Any, *where: Any, **more: Any) -> None:
    log(f"warning: {message}")
