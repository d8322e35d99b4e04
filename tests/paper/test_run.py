"""The paper's experiments, in small: a page with every section, and nothing done twice."""

import csv
import json
import shutil

import numpy as np
import pytest

import groundmetric as gm
from paper import reproduce
from paper import run as running
from paper.__main__ import main
from paper.classification import classification
from paper.protocol import DEFAULTS, SCRIPTS, SEARCH, Plan, halves, methods_of_the_paper, synthetic
from paper.run import MARK, write_page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Timing and surface, quickly: no section is cheaper."""
    folder = tmp_path_factory.mktemp("reproduced")
    reproduce(["surface", "timing"], folder, quick=True)
    return folder


def test_a_section_leaves_a_table_a_figure_and_a_page(folder):
    page = (folder / "results.md").read_text()
    assert page.startswith(MARK)
    assert "A quick run" in page
    assert "## Margin and strength" in page
    assert "(130.4)" in page  # the paper's, beside ours
    assert "## Classification" not in page
    with open(folder / "results" / "timing.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert (folder / "results" / "surface.png").stat().st_size > 1000
    for name in ("surface.png", "surface.csv", "timing.csv"):
        assert f"results/{name}" in page


def test_finished_work_is_not_done_again(folder, monkeypatch):
    def refuse(*_):
        raise AssertionError("done again")

    before = (folder / "results.md").read_text()
    monkeypatch.setattr("paper.tasks._call", refuse)
    reproduce(["timing"], folder, quick=True)
    assert (folder / "results.md").read_text() == before


def test_the_command_makes_a_section(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "run")  # with its finished work
    command = ["timing", "--quick", "-o", str(tmp_path / "run")]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["timing          done", "surface         done"]
    assert "wrote results.md, " in printed.err
    assert main([*command, "--json"]) == 0
    assert {"results.md", "results/timing.csv"} <= set(json.loads(capsys.readouterr().out)["files"])


def test_finished_work_is_hidden_from_git(folder):
    assert (folder / running.WORK / ".gitignore").read_text() == "*\n"


def test_a_page_of_somebody_else_is_not_replaced(tmp_path):
    (tmp_path / "results.md").write_text("my results")
    with pytest.raises(ValueError, match="not written by this command"):
        reproduce(["timing"], tmp_path, quick=True)
    assert (tmp_path / "results.md").read_text() == "my results"


def test_an_unknown_section_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown section 'tables'"):
        reproduce(["tables"], tmp_path)


def test_methods_are_those_of_the_paper(tmp_path):
    names = list(methods_of_the_paper(Plan(tmp_path / "cache")))
    assert names[:5] == [SEARCH, DEFAULTS, "Euclidean", "Manhattan", "Cosine"]
    assert {name.removesuffix(SCRIPTS) for name in names[5:]} == {"LMNN", "LFDA", "NCA", "ITML"}
    search = methods_of_the_paper(Plan(tmp_path / "cache"))[SEARCH]
    assert len(search.margins) * len(search.strengths) == 25


def test_the_data_are_the_papers(tmp_path):
    D, y = synthetic("Synth 200D", 3, quick=False)
    expected, _ = gm.datasets.synth_200d(random_state=3)
    np.testing.assert_array_equal(D.points, expected.points)
    for train, test in halves(y, 2, 0):
        assert np.bincount(y[train]).tolist() == np.bincount(y[test]).tolist() == [5, 5, 5]


def study(**accuracies):
    def estimate(mean):
        return {"mean": mean, "sd": 0.05, "low": mean - 0.1, "high": mean + 0.1}

    rows = {
        name: {"status": "ok", "distributions": estimate(mean), "points": estimate(0.5), "seconds": 1.0}
        for name, mean in accuracies.items()
    }
    lead = {"lead": 0.5, "low": 0.4, "high": None, "p": 0.001}
    return {
        "once": {name: {"mean": 0.9, "sd": 0.1} for name in accuracies if name.startswith("LMNN")},
        "n_splits": 10, "sizes": [15, 15, 9000], "max_points": 3000, "rows": rows,
        "weighted": {name: estimate(mean) for name, mean in accuracies.items()},
        "against": {name: lead for name in accuracies if name != SEARCH},
    }  # fmt: skip


def test_the_page_says_which_baselines_agree_with_the_paper_and_why_others_do_not(tmp_path):
    rows = {SEARCH: 0.97, DEFAULTS: 0.97, "Euclidean": 0.25, "Cosine": 0.20, "LMNN": 0.90, "LMNN" + SCRIPTS: 0.25}
    page = "\n".join(classification({"Synth 2D": study(**rows)}, tmp_path))
    assert "within the paper's mean ± SD: Euclidean, LMNN (with the scripts' map)." in page
    assert "Cosine (paper 0.43 ± 0.07; as published 0.20)" in page
    assert "Synth 2D, patient level: 0.97, at least the paper's 0.96" in page
    assert "Synth 2D, cell level: 0.50, **below** the paper's 0.53" in page


def test_a_method_that_failed_is_shown_as_such(tmp_path):
    outcome = study(**{SEARCH: 0.9, DEFAULTS: 0.9, "LMNN": 0.3})
    outcome["rows"]["LMNN"] |= {"status": "OOT", "distributions": {}, "points": {}}
    files = write_page({"classification": {"Synth 2D": outcome}}, tmp_path, quick=False, version="1")
    page = (tmp_path / "results.md").read_text()
    assert "| LMNN | OOT | 0.22 ± 0.07 | OOT |" in page
    assert "A quick run" not in page
    assert files == ["results.md", "results/classification.csv", "results/classification.png"]


def test_findings_are_json(folder):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    for path in (folder / running.WORK).rglob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)
