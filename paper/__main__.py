"""Command line of the paper's experiments: `python -m paper [SECTION ...] [--quick] [-o DIR]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run sections; an exit code: 2 where an argument is wrong, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        result = _run(options)
    except ValueError as error:
        log(f"paper: {error}")
        return 2
    except KeyboardInterrupt:
        log("paper: interrupted; the same command continues it")
        return 130
    print(json.dumps(result) if options.json else summary(result["sections"]))
    log(f"wrote {', '.join(result['files'])} to {options.output}")
    return 0


def _run(options: argparse.Namespace) -> dict[str, Any]:
    from .run import reproduce  # heavy, and not needed for --help

    return reproduce(
        options.sections, options.output, n_jobs=options.jobs, quick=options.quick, seed=options.seed, verbose=1,
        log=log,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description="Run the paper's experiments; an interrupted run is continued.",
    )
    sections = "classification, clustering, timing, figures, surface"
    parser.add_argument("sections", metavar="SECTION", nargs="*", help=f"some of {sections} (all)")
    parser.add_argument("-o", "--output", metavar="DIR", default="reproduced",
                        help="folder for results.md and results/ (%(default)s)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a rehearsal in a minute or two; its numbers mean nothing")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of data, splits and learners (%(default)s)")
    parser.add_argument("--jobs", metavar="N", type=int, default=None, help="processes; -1: one per core (1)")
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    return parser


def summary(sections: dict[str, Any]) -> str:
    """Return a line per section with its main figure."""
    return "\n".join(f"{name:<16}{_headline(name, content)}" for name, content in sections.items())


def _headline(section: str, content: dict[str, Any]) -> str:
    if section == "classification":
        scores = {data: study["rows"]["GGML"]["distributions"]["mean"] for data, study in content.items()}
        return f"accuracy of GGML: {', '.join(f'{data} {score:.2f}' for data, score in scores.items())}"
    return "done"


def log(line: str) -> None:
    """Progress goes to stderr: stdout is for findings."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
