"""`python -m paper`: sections by name; errors are one line."""

import pytest

from paper import SECTIONS
from paper.__main__ import main, summary


def test_the_help_names_the_sections_that_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert ", ".join(SECTIONS) in " ".join(capsys.readouterr().out.split())


def test_bad_input_is_said_in_a_line(tmp_path, capsys):
    assert main(["tables", "-o", str(tmp_path)]) == 2
    assert "unknown section 'tables': expected one or more of classification" in capsys.readouterr().err


def test_the_summary_gives_the_accuracy():
    study = {"rows": {"GGML": {"distributions": {"mean": 0.957}}}}
    lines = summary({"classification": {"Synth 2D": study}, "timing": {}}).splitlines()
    assert lines[0].split(maxsplit=1) == ["classification", "accuracy of GGML: Synth 2D 0.96"]
    assert lines[1].split(maxsplit=1) == ["timing", "done"]
