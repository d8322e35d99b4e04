"""`groundmetric reproduce`: sections by name, and what is wrong said in a line."""

import json

from groundmetric import cli
from paper import SECTIONS
from paper import run as command


def test_the_help_names_the_sections_that_there_are():
    assert command.SECTIONS == SECTIONS


def test_a_quick_section(tmp_path, capsys):
    assert cli.main(["reproduce", "timing", "--quick", "-o", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out == "timing          done\n"
    assert "wrote results.md, results/timing.csv" in told.err
    assert cli.main(["reproduce", "timing", "--quick", "-o", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["results.md", "results/timing.csv"]


def test_bad_input_is_said_in_a_line(tmp_path, capsys):
    assert cli.main(["reproduce", "tables", "-o", str(tmp_path)]) == 2
    assert "no section 'tables': expected some of classification" in capsys.readouterr().err
    assert cli.main(["reproduce", "real", "-o", str(tmp_path), "--data", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
