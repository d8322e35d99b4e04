"""The demo at a small size: a simulated cohort, its metric and its report."""

import json
from functools import partial

import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric.cli import demo

COHORT = {"n_samples_per_condition": 3, "cells_per_sample": 20, "n_genes": 120, "n_programme_genes": 5, "n_markers": 5}
SMALL = {"cohort": COHORT, "permutations": 0, "n_members": 2, "max_epochs": 2}


def run(folder, *options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "make_demo", partial(demo.make_demo, **SMALL))
        return cli.main(["demo", "-o", str(folder), "--seed", "3", *options])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that the demo wrote, and its findings."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    assert run(folder) == 0
    return folder, json.loads((folder / "run.json").read_text())


def test_the_folder_holds_the_listed_files(made):
    folder, findings = made
    assert {path.name for path in folder.iterdir()} == set(findings["files"])
    assert (findings["command"], findings["seed"], findings["groundmetric"]) == ("demo", 3, gm.__version__)
    assert gm.GroundMetric.load(folder / "cohort.gm").n_features <= 120
    assert "A simulated cohort" in (folder / "index.html").read_text()


def test_findings_are_those_of_the_report_beside_the_simulation(made):
    _, findings = made
    text = demo.summary(findings)
    assert findings["scores"][0]["method"] == "groundmetric"
    assert f"Prediction: {findings['summary']['Prediction']}" in text
    assert "PROG01 to PROG05 rise in the Macrophages of disease" in text


def test_the_same_seed_gives_the_same_page_and_replaces_an_earlier_demo(made, tmp_path, capsys):
    folder, findings = made
    (tmp_path / "mine.txt").touch()
    assert run(tmp_path) == 2
    assert f"--output is {str(tmp_path)!r}, which exists and is not an earlier run" in capsys.readouterr().err
    assert run(folder, "--json") == 0
    printed = capsys.readouterr()
    repeated = json.loads(printed.out)
    assert repeated == json.loads((folder / "run.json").read_text())
    assert printed.err.endswith("index.html\n")
    for name in ("summary", "truth", "warnings", "files"):
        assert repeated[name] == findings[name], name
