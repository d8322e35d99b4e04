"""Folders of runs: the cells are found from anywhere, or are said to be gone; time that is left of a budget."""

import os
import shutil
import sys

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric.report.run import Steps, duration
from groundmetric.report.write import is_first_page


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with data/cells.h5ad and runs/one, where `learn` was given relative names."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "data").mkdir()
    cells = gm.datasets.make_cohort(3, 15, 60, n_markers=5, n_programme_genes=10, random_state=0)
    cells.write_h5ad(folder / "data" / "cells.h5ad")
    before = os.getcwd()
    os.chdir(folder)
    try:
        options = ["--sample", "sample", "--label", "condition", "--epochs", "2", "--genes", "all"]
        assert cli.main(["learn", "data/cells.h5ad", *options, "-o", "runs/one"]) == 0
    finally:
        os.chdir(before)
    return folder


def test_the_cells_are_found_from_any_folder(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = gm.report.Run.open(project / "runs" / "one")
    assert found.source == project / "data" / "cells.h5ad"
    monkeypatch.chdir(project / "runs" / "one")
    assert gm.report.Run.open(".").source == project / "data" / "cells.h5ad"


def test_a_run_whose_cells_are_gone_is_an_error_unless_nothing_needs_them(project, tmp_path, capsys):
    shutil.copytree(project / "runs" / "one", tmp_path / "run")
    page = tmp_path / "page.html"
    assert cli.main(["report", str(tmp_path / "run"), "-o", str(page)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'data/cells.h5ad' is neither here nor" in line
    assert "--cells" in line
    assert "--no-evaluate" in line
    assert not page.exists()
    assert cli.main(["report", str(tmp_path / "run"), "-o", str(page), "--no-evaluate"]) == 0
    assert "Scores on held-out samples: leave out --no-evaluate." in capsys.readouterr().out


def test_other_cells_of_the_same_name_are_refused(project, tmp_path, capsys):
    shutil.copytree(project / "runs" / "one", tmp_path / "run")
    cells = gm.datasets.make_cohort(3, 15, 60, n_markers=5, n_programme_genes=10, random_state=0)
    cells[:-2].copy().write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(ValueError, match=f"lacks 2 of the {cells.n_obs} cells .*{cells.obs_names[-2]}"):
        gm.report.Run.open(tmp_path / "run")
    right = project / "data" / "cells.h5ad"
    assert gm.report.Run.open(tmp_path / "run", right).source == right
    assert cli.main(["report", str(tmp_path / "run"), "--cells", str(tmp_path / "none.h5ad")]) == 2
    assert "none.h5ad' does not exist" in capsys.readouterr().err


def test_an_interrupted_report_is_started_again_without_force(project, tmp_path, monkeypatch, capsys):
    page, run = tmp_path / "page.html", project / "runs" / "one"
    command = ["report", str(run), "-o", str(page), "--no-evaluate", "--cells", str(project / "data" / "cells.h5ad")]
    (run / "report.cache").unlink(missing_ok=True)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["groundmetric.report.collect"], "relevance", interrupted)
        assert cli.main(command) == 130
    assert is_first_page(page)
    assert cli.main(command) == 0
    assert not is_first_page(page)
    assert cli.main(command) == 2
    assert "--replace" in capsys.readouterr().err


def test_steps_call_the_first_page_once_and_say_how_long_a_step_takes():
    said = []
    steps = Steps(log=said.append, first=lambda: said.append("first"))
    steps.begin("reading")
    steps.begin("permuting", 75)
    assert said == ["first", "reading", "permuting: about 1 min 15 s"]


def test_a_step_does_not_begin_when_nothing_is_left_of_the_budget_unless_the_page_needs_it():
    said = []
    steps = Steps(log=said.append, budget=0.0)
    steps.begin("reading", needed=True)
    with pytest.raises(ValueError, match="nothing is left of the budget"):
        steps.begin("permuting")
    assert said == ["reading"]


def test_with_a_short_budget_the_page_says_what_was_left_out(project, tmp_path):
    run = gm.report.Run.open(project / "runs" / "one", project / "data" / "cells.h5ad")
    run = gm.report.Run(run.cells, run.samples, run.source, run.findings)  # without a cache
    found = gm.report.write(run, tmp_path / "page.html", budget=1e-6)
    lacking = {note.split(":")[0] for note in found["left_out"] if "nothing is left of the budget of 1 s" in note}
    assert lacking == {"Cell types in which genes differ", "q-values of genes", "Scores on held-out samples"}
    assert "Which cells?" in found["summary"]


@pytest.mark.parametrize(("budget", "number"), [(None, 99), (1000.0, 99), (40.0, 11), (9.0, 0)])
def test_tasks_are_as_many_as_the_budget_has_time_for(budget, number, monkeypatch):
    """Each of 2 s after one of 10 s, and 8 s aside for reading the run and drawing the page."""
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    steps = Steps(budget=budget, started=100.0)
    assert steps.affordable(99, 2.0, 10.0) == number


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1 s"), (59.1, "1 min"), (3600, "1 h 0 min"), (61, "1 min 1 s")])
def test_a_duration_is_said_in_whole_units(seconds, text):
    assert duration(seconds) == text


def test_a_time_without_a_sensible_unit_is_refused(project, capsys):
    for text in ("soon", "5d", "0m", "-1s"):
        with pytest.raises(SystemExit):
            cli.main(["report", str(project / "runs" / "one"), f"--budget={text}"])
        assert "expected a time such as 90s, 5m or 1h" in capsys.readouterr().err


def test_many_numbers_are_compared_by_thirds_and_few_values_by_value():
    cells = gm.datasets.make_cohort(5, 20, 60, n_markers=5, n_programme_genes=10, random_state=0)
    number = cells.obs["sample"].cat.codes.to_numpy()
    cells.obs["age"], cells.obs["grade"] = 20.0 + 3 * number, number % 3
    for label, names in (("age", ["age above 38", "age up to 29", "age 29 to 38"]), ("grade", ["0", "1", "2"])):
        gm.tl.learn(cells, "sample", label, target="ordered", n_members=1, max_epochs=1, genes="all")
        run = gm.report.Run(cells, gm.tl.samples(cells), cells, {})
        assert set(run.classes) == set(names)
        low, high = run.stored.labels.min(), run.stored.labels.max()
        assert len(set(run.classes[run.stored.labels == low]) & set(run.classes[run.stored.labels == high])) == 0
        assert np.all(run.classes.value_counts() >= 3)
        cautions = gm.report.collect(run, evaluation=False).cautions
        few = next(caution.text for caution in cautions if caution.title == "Few samples")
        assert "has 3 samples" in few  # and not one, as every age would have
