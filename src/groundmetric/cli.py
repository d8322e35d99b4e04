"""The command line: thin commands over the package. Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from . import __version__


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
            code, message = _explain(error)
            _log(f"{options.prog}: {message}")
            return code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="groundmetric", description="Learn the ground metric of optimal transport from labels.")
    parser.add_argument("--version", action="version", version=f"groundmetric {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_demo,):
        add(commands)
    return parser


def _add_command(commands: Any, run: Any, name: str, help: str) -> argparse.ArgumentParser:
    """A command with the options that all have; `run` is called with what was parsed."""
    command = commands.add_parser(name, help=help, description=help)
    command.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    command.add_argument("--debug", action="store_true", help="show a traceback where something goes wrong")
    command.set_defaults(run=run, prog=command.prog)
    return command


def _add_demo(commands: Any) -> None:
    command = _add_command(commands, _demo, "demo", "learn on built-in data; write figures and a page that shows them")
    command.add_argument("--output", metavar="DIR", default="groundmetric-demo", help="folder to write (%(default)s)")
    command.add_argument("--seed", metavar="N", type=_seed, default=0, help="of data, split and learner (%(default)s)")


def _demo(options: argparse.Namespace) -> None:
    from . import demo  # heavy, and not needed for --help

    findings = demo.run(options.output, seed=options.seed, verbose=1, log=_log)
    print(json.dumps(findings) if options.json else demo.summary(findings))
    _log(f"wrote index.html, results.json, figures and metrics to {options.output}")


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}, not {text!r}")
    return int(text)


def _log(line: str) -> None:
    """Progress goes to stderr: stdout is for what was found."""
    print(line, file=sys.stderr, flush=True)


def _explain(error: BaseException) -> tuple[int, str]:
    """An exit code and one line for whoever typed the command."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, ModuleNotFoundError):
        return 1, f"{error.name} is needed for this: pip install 'groundmetric[plot]'"
    if isinstance(error, OSError) and error.filename is not None:
        return 2, f"{error.strerror}: {str(error.filename)!r}"
    if isinstance(error, ValueError | OSError):
        return 2, text
    return 1, f"unexpected {type(error).__name__}: {text} (--debug shows where)"


def _show_warning(message: Any, *where: Any, **more: Any) -> None:
    _log(f"warning: {message}")


if __name__ == "__main__":
    sys.exit(main())
