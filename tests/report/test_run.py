"""Folders of runs, their cells, and the time budget of a report."""

import os
import shutil
import time
import warnings

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric._internal.validation import ParameterError
from groundmetric.report.results import Run, Steps, collect, duration


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
    assert Run.open(project / "runs" / "one").source == project / "data" / "cells.h5ad"
    monkeypatch.chdir(project / "runs" / "one")
    assert Run.open(".").source == project / "data" / "cells.h5ad"


def test_a_run_without_its_cells_is_an_error_unless_nothing_is_evaluated(project, tmp_path, capsys):
    shutil.copytree(project / "runs" / "one", tmp_path / "run")
    page = tmp_path / "page.html"
    with pytest.raises(ParameterError) as caught:
        gm.report.write(tmp_path / "run", page)
    assert (caught.value.parameter, caught.value.remedy) == ("cells", {"evaluation": False})
    assert "--" not in str(caught.value)
    assert cli.main(["report", str(tmp_path / "run"), "-o", str(page)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--cells" in line
    assert "--no-evaluate" in line
    assert not page.exists()
    assert cli.main(["report", str(tmp_path / "run"), "-o", str(page), "--no-evaluate"]) == 0
    assert "Baselines, tests and q-values: not computed (--evaluate)." in capsys.readouterr().out


def test_other_cells_of_the_same_name_are_refused(project, tmp_path, capsys):
    shutil.copytree(project / "runs" / "one", tmp_path / "run")
    cells = gm.datasets.make_cohort(3, 15, 60, n_markers=5, n_programme_genes=10, random_state=0)
    cells[:-2].copy().write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(ParameterError, match=f"lacks 2 of the {cells.n_obs} cells .*{cells.obs_names[-2]}"):
        Run.open(tmp_path / "run")
    right = project / "data" / "cells.h5ad"
    assert Run.open(tmp_path / "run", right).source == right
    assert cli.main(["report", str(tmp_path / "run"), "--cells", str(tmp_path / "none.h5ad")]) == 2
    assert "none.h5ad', which does not exist" in capsys.readouterr().err


def test_permutations_without_an_evaluation_contradict_each_other(project, tmp_path, capsys):
    run = project / "runs" / "one"
    with pytest.raises(ParameterError) as caught:
        gm.report.write(run, tmp_path / "page.html", permutations=19, evaluation=False)
    assert (caught.value.parameter, caught.value.remedy) == ("permutations", {"evaluation": True})
    assert cli.main(["report", str(run), "--permutations", "19", "--no-evaluate", "-o", str(tmp_path / "a.html")]) == 2
    assert "--permutations is 19, but nothing is evaluated: give --evaluate" in capsys.readouterr().err


def test_the_page_names_steps_that_do_not_fit_the_budget(project, tmp_path):
    run = Run.open(project / "runs" / "one", project / "data" / "cells.h5ad")
    run = Run(run.cells, run.samples, run.source, run.findings)  # without a cache
    results = collect(run, steps=Steps(budget=1.0, started=time.monotonic() - 5.0))
    omitted = {note.title for note in results.omitted if "no time remained of the budget of 1 s" in note.text}
    assert omitted == {
        "Cell types of genes", "q-values of genes", "Baselines", "Changes of single patients", "Planning",
        "Influence of patients",
    }  # fmt: skip


@pytest.mark.parametrize(("budget", "number"), [(float("inf"), 99), (1000.0, 99), (27.0, 11), (6.0, 0)])
def test_tasks_are_limited_by_the_budget(budget, number, monkeypatch):
    """Tasks of 2 s, after 5 s for imports and reading of the run."""
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    assert Steps(budget=budget, started=95.0).affordable(99, 2.0) == number


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1 s"), (59.1, "1 min"), (3600, "1 h 0 min"), (61, "1 min 1 s")])
def test_durations_are_rounded_up(seconds, text):
    assert duration(seconds) == text


def test_a_time_without_a_valid_unit_is_refused(project, capsys):
    for text in ("soon", "5d", "0m", "-1s"):
        with pytest.raises(SystemExit):
            cli.main(["report", str(project / "runs" / "one"), f"--budget={text}"])
        assert "expected a time such as 90s, 5m or 1h" in capsys.readouterr().err


def test_many_numbers_are_compared_by_thirds_and_few_values_by_value():
    cells = gm.datasets.make_cohort(5, 20, 60, n_markers=5, n_programme_genes=10, random_state=0)
    number = cells.obs["sample"].cat.codes.to_numpy()
    cells.obs["age"], cells.obs["grade"] = 20.0 + 3 * number, number % 3
    for label, names in (("age", ["age above 38", "age up to 29", "age 29 to 38"]), ("grade", ["0", "1", "2"])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gm.tl.CohortWarning)
            gm.tl.learn(cells, "sample", label, target="ordered", n_members=1, max_epochs=1, genes="all")
        run = Run(cells, gm.tl.samples(cells), cells, {})
        assert set(run.classes) == set(names)
        low, high = run.stored.labels.min(), run.stored.labels.max()
        assert len(set(run.classes[run.stored.labels == low]) & set(run.classes[run.stored.labels == high])) == 0
        assert np.all(run.classes.value_counts() >= 3)
        results = collect(run, evaluation=False)
        assert results.cell_numbers == gm.evaluation.size_association(
            cells.obs["sample"].value_counts(sort=False)[run.stored.labels.index].to_numpy(),
            run.stored.labels.to_numpy(), target="ordered",
        )  # fmt: skip
