"""`groundmetric evaluate`: a comparison as files, with errors that help, before the long work."""

import csv
import json
import re
import sys

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric._anndata.cohort import Labelled
from groundmetric.cli.evaluate import make_methods, summary
from groundmetric.evaluation import Comparison

QUICK = ["--sample", "sample", "--label", "condition", "--cells", "30", "--methods", "ggml,transport-5-nn"]
QUICK += ["--cv", "k-fold", "--n-splits", "3"]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Ten samples of five patients, with a label that a patient has in one sample only."""
    path = tmp_path_factory.mktemp("evaluate") / "cells.h5ad"
    cohort = gm.datasets.make_cohort(
        5, 40, 60, cell_types=["A", "B"], n_markers=5, n_programme_genes=10, programme_strength=3.0,
        batch_strength=0.0, random_state=0,
    )  # fmt: skip
    del cohort.uns["truth"]
    number = cohort.obs["sample"].astype(str).str[1:].astype(int)
    cohort.obs["person"] = "P" + ((number - 1) % 5).astype(str)
    cohort.obs["rare"] = np.where(number == 1, "once", "often")
    cohort.obs["arm"] = np.where((number - 1) % 5 < 2, "x", "y")
    cohort.var["marked"] = np.arange(60) < 30
    cohort.write_h5ad(path)
    return path


@pytest.fixture(scope="module")
def finished(cells, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    more = ["--group", "person", "--genes", "variance", "-o", str(folder)]
    assert cli.main(["evaluate", str(cells), *QUICK, *more]) == 0
    return folder


def test_a_run_holds_the_comparison(finished):
    names = {"results.md", "results.csv", "results.json", "run.json"}
    assert {path.name for path in finished.iterdir()} == names
    findings = json.loads((finished / "run.json").read_text())
    assert set(findings["files"]) == names
    content = json.loads((finished / "results.json").read_text())
    comparison = Comparison.from_dict(content["comparison"])
    assert comparison.methods == ["ggml", "transport-5-nn"]
    for method in comparison.methods:
        assert findings["scores"][method]["balanced_accuracy"] == comparison.estimate(method).value
    assert (
        findings["scores"]["transport-5-nn"]["lead_of_first"] == comparison.difference("ggml", "transport-5-nn").value
    )
    for train, test in comparison.splits:
        assert not {comparison.groups[d] for d in train} & {comparison.groups[d] for d in test}
    with open(finished / "results.csv") as file:
        assert len(list(csv.DictReader(file))) == 6
    page = (finished / "results.md").read_text()
    assert "chosen anew from the training samples of every split" in page
    assert not finished.with_name("run.unfinished").exists()


def test_the_ensemble_is_compared_with_a_single_learner_and_the_baselines(cells, tmp_path, capsys):
    quick = [*QUICK, "--methods", "groundmetric,ggml,pseudobulk,type-means", "--group", "person"]
    assert cli.main(["evaluate", str(cells), *quick, "-o", str(tmp_path / "run"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert list(findings["scores"]) == ["groundmetric", "ggml", "pseudobulk", "type-means"]
    scored = findings["estimators"]
    assert "TransportClassifier(random_state=0)" in scored["groundmetric"]
    assert "GroundMetricLearner(random_state=0)" in scored["ggml"]
    assert f"groundmetric is {scored['groundmetric']}" in summary(findings)
    assert f"- groundmetric is {scored['groundmetric']}" in (tmp_path / "run" / "results.md").read_text()
    content = json.loads((tmp_path / "run" / "results.json").read_text())
    comparison = Comparison.from_dict(content["comparison"])
    assert {comparison.status(method) for method in comparison.methods} == {"ok"}
    page = (tmp_path / "run" / "results.md").read_text()
    verdict = comparison.verdict("groundmetric", ["pseudobulk", "type-means"])
    assert f"- {verdict}" in page
    assert verdict in summary(findings)
    assert "annotation='cell_type'" in scored["type-means"]
    assert "groundmetric is the TransportClassifier that learn fits and predict uses" in page
    assert "all 60 features are used: the default for 100 or fewer" in page


def test_methods_are_what_learn_fits():
    cohort = Labelled(*gm.datasets.synth_2d(0), None, "variance", [])
    methods = make_methods(["groundmetric", "ggml"], cohort, 3)
    kinds = [type(method.method).__name__ for method in methods.values()]
    assert kinds == ["TransportClassifier", "GroundMetricLearner"]
    assert methods["groundmetric"].takes_groups  # patients are handed over
    assert list(make_methods(None, cohort, 3))[:3] == ["groundmetric", "ggml", "pseudobulk"]


def test_findings_are_a_table_for_people_or_json_for_machines(cells, tmp_path, capsys):
    assert cli.main(["evaluate", str(cells), *QUICK, "--genes", "5", "-o", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr()
    assert re.split("  +", printed.out.splitlines()[0])[:3] == ["method", "balanced accuracy", "95% interval"]
    assert printed.out.splitlines()[1].startswith("ggml")
    assert "reading" in printed.err.splitlines()[0]
    assert cli.main(["evaluate", str(cells), *QUICK, "--genes", "marked", "-o", str(tmp_path / "b"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["n_features"] == 30
    assert any("selected beforehand" in note for note in findings["notes"])


def test_a_finished_run_is_replaced_only_if_asked_for(cells, finished, capsys):
    assert cli.main(["evaluate", str(cells), *QUICK, "-o", str(finished)]) == 2
    assert "--replace" in capsys.readouterr().err


def test_methods_without_distances_are_compared_on_selected_features(cells, tmp_path, capsys):
    options = [*QUICK, "--methods", "pseudobulk,transport-5-nn", "--genes", "variance"]
    assert cli.main(["evaluate", str(cells), *options, "-o", str(tmp_path / "a"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert {name: row["status"] for name, row in scores.items()} == {"pseudobulk": "ok", "transport-5-nn": "ok"}


def test_an_interrupted_run_goes_on_where_it_stopped(cells, tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    command = ["evaluate", str(cells), *QUICK, "-o", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(Comparison, "to_csv", interrupt)
        assert cli.main(command) == 130
    assert not (tmp_path / "run").exists()
    assert cli.main(command) == 2
    assert "--resume" in capsys.readouterr().err
    # what was fitted is not fitted again
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["groundmetric.evaluation.compare"], "fit_and_score", interrupt)
        assert cli.main([*command, "--resume"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("arguments", [["--resume"], ["--replace"]])
def test_what_somebody_else_keeps_beside_is_not_removed(cells, tmp_path, capsys, arguments):
    (tmp_path / "run.unfinished").write_text("mine")
    assert cli.main(["evaluate", str(cells), *QUICK, "-o", str(tmp_path / "run"), *arguments]) == 2
    assert "not written by groundmetric" in capsys.readouterr().err
    assert (tmp_path / "run.unfinished").read_text() == "mine"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["--sample", "smaple"], "--sample is 'smaple', but obs has no such column: there are 'sample'"),
        (
            ["--label", "person", "--cv", "k-fold", "--n-splits", "3"],
            "class 'P0' has 2 distributions, but 3 are needed: one for every fold",
        ),
        (["--label", "rare"], "class 'once' has 1 distributions, but 3 are needed"),
        (
            ["--label", "arm", "--group", "person", "--cv", "k-fold", "--n-splits", "3"],
            "class 'x' has 2 groups ('P0', 'P1'), but 3 are needed",
        ),
        (["--methods", "ggml,svm"], "no method is called 'svm': expected some of groundmetric, ggml, "),
        (["--genes", "good"], "--genes is 'good', which is neither a rule nor a column of var"),
        (["--group", "cell_type"], "--group is 'cell_type', but sample"),
        (["--min-cells", "100"], "at least two labels are needed"),
    ],
)
def test_bad_input_is_said_before_the_long_work(cells, tmp_path, monkeypatch, capsys, change, expected):
    def refuse(*_):
        raise AssertionError("the long work has begun")

    monkeypatch.setattr(sys.modules["groundmetric.evaluation.compare"], "fit_and_score", refuse)
    assert cli.main(["evaluate", str(cells), *QUICK, *change, "-o", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert "Traceback" not in printed
    assert not any(tmp_path.iterdir())


def test_leaving_groups_out_needs_groups(cells, tmp_path, capsys):
    command = ["evaluate", str(cells), *QUICK[:-4], "--cv", "leave-one-group-out", "-o", str(tmp_path / "run")]
    assert cli.main(command) == 2
    assert "--cv leave-one-group-out needs --group" in capsys.readouterr().err


def test_a_method_that_cannot_run_is_named(cells, tmp_path, capsys, monkeypatch):
    class Broken(gm.baselines.Euclidean):
        def fit(self, D, y=None):
            raise ValueError("this cannot be")

    monkeypatch.setattr("groundmetric.baselines.Euclidean", Broken)
    assert cli.main(["evaluate", str(cells), *QUICK, "-o", str(tmp_path / "run")]) == 2
    assert "'transport-5-nn': error: ValueError: this cannot be" in capsys.readouterr().err
