"""The program `groundmetric`: its commands, and their exit codes and error messages."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from .. import __version__
from . import demo, evaluate, learn, plan, predict, report
from . import options as shared
from .options import OPTION_OF, as_options, log, with_options

# Each has the functions `add` (adds the command to the parser), `run` (options to findings) and `summary` (findings to
# text). `--help` imports nothing else.
COMMANDS = (demo, evaluate, learn, plan, predict, report)


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line that suggests the nearest option or choice."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        # Before the other checks: a misspelt option that is required would be reported as missing.
        if args is not None and self._subparsers is None:
            options = list(self._option_string_actions)
            for word in args[: args.index("--")] if "--" in args else args:
                name = word.split("=")[0]
                if name.startswith("--") and not any(option.startswith(name) for option in options):
                    self.error(f"no option {name}{nearest(name, options)}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(choices)}{nearest(str(value), choices)}"
            )


def nearest(word: str, words: Sequence[str]) -> str:
    """Return the most similar word as a question, or an empty text.

    >>> nearest("--smaple", ["--sample", "--label"])
    ': did you mean --sample?'
    """
    matches = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f": did you mean {matches[0]}?" if matches else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; `arguments` default to those of the process."""
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings(), _signals_as_interrupts() as signals:
        warnings.showwarning = lambda message, *where, **more: log(f"warning: {with_options(str(message))}")
        try:
            findings = {**shared.origin(options), **options.run(options)}
            print(json.dumps(findings) if options.json else options.summary(findings))
            if options.ended is not None:  # an interrupt after which incomplete results were written
                raise KeyboardInterrupt(options.ended)
        except (Exception, KeyboardInterrupt) as error:
            # Processes of joblib would otherwise continue after an interrupt.
            executor = getattr(sys.modules.get("joblib.externals.loky.reusable_executor"), "_executor", None)
            if executor is not None and isinstance(error, KeyboardInterrupt):
                executor.shutdown(wait=True, kill_workers=True)
            if options.debug:
                raise
            code, message = _explain(error, options, signals[0] if signals else signal.SIGINT)
            log(f"{options.prog}: {message}")
            return code
    return 0


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, as on Ctrl-C; yield the list of received signals."""
    received: list[int] = []
    owner = os.getpid()

    def interrupt(number: int, frame: Any) -> None:
        if os.getpid() != owner:  # a child process that inherited this handler ends by default
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        received.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main = threading.current_thread() is threading.main_thread()  # only the main thread can handle signals
    handled = [number for number in numbers if in_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, interrupt)
    # Python would warn about semaphores of joblib's processes, which joblib removes itself.
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = f"{before or ''},ignore:resource_tracker:UserWarning".lstrip(",")
    try:
        yield received
    finally:
        os.environ.pop("PYTHONWARNINGS")
        os.environ |= {} if before is None else {"PYTHONWARNINGS": before}
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


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
        name = command.__name__.rpartition(".")[2]
        commands.choices[name].set_defaults(run=command.run, summary=command.summary)
    return parser


def _explain(error: Any, options: argparse.Namespace, ended_by: int) -> tuple[int, str]:
    """Return an exit code and one line for the user, with options instead of parameters."""
    text = with_options(str(error))
    if hasattr(error, "remedy"):  # a ParameterError
        text = f"{OPTION_OF.get(error.parameter, error.parameter)} is {error.value!r}{with_options(error.problem)}"
        if error.remedy:
            text += f"{', or give' if ':' in error.problem else ': give'} {as_options(error.remedy)}"
    text = " ".join(text.split())
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
