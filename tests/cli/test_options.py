"""Options: the same in all commands, with examples; a misspelt option gets the most similar one."""

import argparse
import os
import subprocess
import sys

import pytest

from groundmetric import cli
from groundmetric.cli.main import COMMANDS, _parser
from groundmetric.cli.options import label_counts, labels, wrapped

NAMES = [command.__name__.rpartition(".")[2] for command in COMMANDS]


def parsers():
    (commands,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return commands.choices


def test_options_of_several_commands_are_parsed_alike():
    """The help may differ; the parsed value must not depend on the command."""
    parsed = {}
    for name, parser in parsers().items():
        for action in parser._actions:
            for option in action.option_strings:
                parsed.setdefault(option, {})[name] = (action.type, type(action).__name__, tuple(action.choices or ()))
    shared = {option: kinds for option, kinds in parsed.items() if len(kinds) > 1}
    assert {"--genes", "--cells-per-sample", "--group", "--output", "-o"} <= set(shared)
    for option, kinds in shared.items():
        assert len(set(kinds.values())) == 1, (option, kinds)


@pytest.mark.parametrize("name", NAMES)
def test_every_help_ends_with_an_example_that_can_be_parsed(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    *_, title, example = capsys.readouterr().out.splitlines()
    assert title == "example:"
    program_name, *arguments = example.split()
    assert program_name == "groundmetric"
    assert _parser().parse_args(arguments).prog == f"groundmetric {name}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["learn", "c.h5ad", "--smaple", "s", "--label", "l", "-o", "r"], "no option --smaple: did you mean --sample?"),
        (
            ["learn", "c.h5ad", "--sample=s", "--lable=l", "-o", "r"],
            "no option --lable: did you mean --label?",
        ),
        (["report", "run", "--permutation-test", "9"], "no option --permutation-test: did you mean --permutations?"),
        (["report", "run", "--xyzzy"], "no option --xyzzy (see groundmetric report --help)"),
        (["lern"], "'lern' is not one of demo, evaluate, learn, plan, predict, report: did you mean learn?"),
        (
            ["evaluate", "c.h5ad", "--cv", "kfold"],
            "'kfold' is not one of shuffle-split, k-fold, leave-one-group-out",
        ),
    ],
)
def test_a_typo_is_answered_with_the_nearest(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_abbreviations_and_values_that_look_like_options_are_no_typos():
    parsed = _parser().parse_args(
        ["learn", "c.h5ad", "--sam", "s", "--lab", "l", "--cells", "9", "--jobs", "-1", "-o", "r"]
    )
    assert (parsed.sample, parsed.label, parsed.cells_per_sample, parsed.jobs) == ("s", "l", 9, -1)


def test_labels_of_an_order_are_different_and_at_least_two():
    assert labels("low, high") == ["low", "high"]
    for text in ("low", "low,,high", "low,low"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected different labels from low to high"):
            labels(text)


def test_many_numbers_are_counted_as_a_range():
    assert label_counts({str(k): 1 for k in range(9)}) == "9 numbers from 0 to 8"
    assert label_counts({"1": 2, "0": 3}) == "3 of 0, 2 of 1"


def test_python_does_not_warn_of_semaphores_of_processes_that_were_ended(monkeypatch):
    """The process that warns reads the environment: it has the filter while a command runs, and not after it."""
    seen = []
    monkeypatch.setenv("PYTHONWARNINGS", "error::DeprecationWarning")
    monkeypatch.setattr("groundmetric.cli.demo.run", lambda _: seen.append(os.environ["PYTHONWARNINGS"]) or {})
    assert cli.main(["demo", "--json"]) == 0
    assert seen == ["error::DeprecationWarning,ignore:resource_tracker:UserWarning"]
    assert os.environ["PYTHONWARNINGS"] == "error::DeprecationWarning"
    environment = {**os.environ, "PYTHONWARNINGS": seen[0]}
    code = "import warnings; warnings.warn('resource_tracker: There appear to be 6 leaked semaphore objects')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stderr == b""


def test_long_text_is_wrapped_on_a_terminal_only(monkeypatch):
    text = "What counts most in the distance: PROG20, with --batch site."
    assert wrapped(text, 2, 2) == f"  {text}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    lines = wrapped(text, 2, 2).splitlines()
    assert lines[0] == "  What counts most in the"
    assert max(map(len, lines)) <= 30
    assert all(line.startswith("    ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == text
