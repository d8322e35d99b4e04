"""The demo at a small size: a simulated cohort, its metric and its report."""

import json

import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric._internal.validation import ParameterError
from groundmetric.cli import demo

COHORT = {"n_samples_per_condition": 3, "cells_per_sample": 20, "n_genes": 120, "n_programme_genes": 5, "n_markers": 5}
SMALL = {"cohort": COHORT, "permutations": 0, "n_members": 2, "max_epochs": 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that the demo wrote, and its findings."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return folder, demo.make_demo(folder, seed=3, **SMALL)


def test_the_folder_holds_the_listed_files(made):
    folder, findings = made
    assert json.loads((folder / "run.json").read_text()) == findings
    assert {path.name for path in folder.iterdir()} == set(findings["files"])
    assert (findings["seed"], findings["groundmetric"]) == (3, gm.__version__)
    assert gm.GroundMetric.load(folder / "cohort.gm").n_features <= 120
    assert "A simulated cohort" in (folder / "index.html").read_text()


def test_findings_are_those_of_the_report_beside_the_simulation(made):
    _, findings = made
    text = demo.summary(findings)
    assert findings["scores"][0]["method"] == "groundmetric"
    assert f"Prediction: {findings['summary']['Prediction']}" in text
    assert "PROG01 to PROG05 rise in the Macrophages of disease" in text


def test_the_same_seed_gives_the_same_page_and_replaces_an_earlier_demo(made, tmp_path):
    folder, findings = made
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ParameterError) as caught:
        demo.make_demo(tmp_path, seed=3, **SMALL)
    assert (caught.value.parameter, caught.value.value) == ("output", str(tmp_path))
    repeated = demo.make_demo(folder, seed=3, **SMALL)
    for name in ("summary", "truth", "warnings", "files"):
        assert repeated[name] == findings[name], name


def test_the_command_prints_findings(monkeypatch, tmp_path, capsys, made):
    monkeypatch.setattr(demo, "make_demo", lambda *arguments, **options: made[1])
    assert cli.main(["demo", "-o", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == made[1]
    assert printed.err.endswith("index.html\n")
