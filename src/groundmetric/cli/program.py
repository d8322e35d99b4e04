"""The program `groundmetric`: which commands there are, and how each one ends."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from . import demo, evaluate, learn, predict, report, reproduce
from .output import log

# Each is a module with `add`, which adds the command to the parser. `--help` loads nothing else.
COMMANDS = (demo, evaluate, learn, predict, report, reproduce)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; `arguments` default to those of the process."""
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            options.run(options)
        except (Exception, KeyboardInterrupt) as error:
            if options.debug:
                raise
            code, message = _explain(error, options)
            log(f"{options.prog}: {message}")
            return code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="groundmetric", description="Learn the ground metric of optimal transport from labels.")
    parser.add_argument("--version", action="version", version=f"groundmetric {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


def _explain(error: BaseException, options: argparse.Namespace) -> tuple[int, str]:
    """An exit code and one line for whoever typed the command."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
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
