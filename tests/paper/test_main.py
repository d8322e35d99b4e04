"""`python -m paper`: sections by name, the folder of the data, and errors in a line."""

import pytest

from paper import SECTIONS
from paper.__main__ import DATA_VARIABLE, data_folder, main, summary


def test_the_help_names_the_sections_that_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert ", ".join(SECTIONS) in " ".join(capsys.readouterr().out.split())


def test_bad_input_is_said_in_a_line(tmp_path, capsys):
    assert main(["tables", "-o", str(tmp_path)]) == 2
    assert "unknown section 'tables': expected one or more of classification" in capsys.readouterr().err
    assert main(["real", "-o", str(tmp_path), "--data", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_data_come_from_the_option_then_the_variable_then_beside_the_checkout(tmp_path, monkeypatch):
    there = tmp_path / "work" / "checkout"
    there.mkdir(parents=True)
    monkeypatch.chdir(there)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert data_folder(None) is None
    (tmp_path / "work" / "shared" / "data").mkdir(parents=True)
    assert data_folder(None).resolve() == tmp_path / "work" / "shared" / "data"
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert data_folder(None) == tmp_path
    assert data_folder(str(there)) == there
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"\$GROUNDMETRIC_DATA .* is not a folder"):
        data_folder(None)


def test_the_summary_gives_the_accuracy_and_the_number_of_data_sets():
    study = {"rows": {"GGML": {"distributions": {"mean": 0.957}}}}
    lines = summary({"classification": {"Synth 2D": study}, "real": {"sets": {"a": {}}, "absent": ["b"]}}).splitlines()
    assert lines[0].split(maxsplit=1) == ["classification", "accuracy of GGML: Synth 2D 0.96"]
    assert lines[1].split(maxsplit=1) == ["real", "1 data sets, 1 absent"]
