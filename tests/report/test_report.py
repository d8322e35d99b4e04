"""The page of a report: complete, small, correct, and without external resources."""

import itertools
import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric._anndata.cohort import Note, cohort_problems
from groundmetric._internal.validation import ParameterError
from groundmetric.report.page import describe_prediction, make_page, prose, render
from groundmetric.report.results import Evaluation, Run, Steps, collect, training_warnings

from .conftest import NAMES, SCRIPT, cards_of

pytestmark = pytest.mark.usefixtures("fewer_permutations")


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.inside = [], "", []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))
        self.inside.append(name)

    def handle_endtag(self, name):
        while self.inside and self.inside.pop() != name:
            pass

    def handle_data(self, data):
        if not self.inside or self.inside[-1] not in ("script", "style"):
            self.text += data


@pytest.fixture(scope="module")
def page(written):
    return Page(written[0].read_text())


def test_loads_nothing_and_is_small(written, page):
    text = written[0].read_text()
    assert "http:" not in text
    assert "https:" not in text
    assert not {"link", "iframe", "img", "object"} & {name for name, _ in page.tags}
    loaded = [value for _, attributes in page.tags for key, value in attributes.items() if key in ("href", "src")]
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in loaded)
    assert written[1]["bytes"] == written[0].stat().st_size < 1e6


def test_hostile_names_are_text(written, page):
    assert [attributes.get("type") for name, attributes in page.tags if name == "script"] == [
        "application/json",
        None,
        None,
    ]
    for name in [*NAMES, f"PROG01{SCRIPT}", "<b>well</b>", 'ill "é" 🤒', "A<i>", "<u>batch", "PROGRAMME <b>SET</b>"]:
        assert name in page.text, name


def test_identifiers_are_unique_links_lead_somewhere_headings_are_in_order(page):
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert {a["href"][1:] for name, a in page.tags if name == "a"} <= set(identifiers)
    levels = [int(name[1]) for name, _ in page.tags if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_sections_have_plain_titles(page):
    titles = [attributes["aria-labelledby"] for name, attributes in page.tags if name == "section"]
    assert [title.removesuffix("-title") for title in titles] == [
        "summary", "samples", "prediction", "genes", "types", "cells", "axes", "settings", "warnings",
    ]  # fmt: skip


def test_says_what_was_found(written, page, run_folder):
    metric = gm.get.metric(run_folder / "cells.h5ad")
    first = int(metric.importance().argmax())
    summary = written[1]["summary"]
    assert list(summary) == ["Prediction", "Samples", "Features", "Cell types", "Cell numbers"]
    assert f"{metric.features[first]} ({metric.importance()[first]:.1%}, higher in " in summary["Features"]
    scores = {row["method"]: row for row in written[1]["scores"]}
    assert f"{scores['groundmetric']['value']:.2f}" in summary["Prediction"]
    assert written[1]["permutation_test"]["p"] >= 0.25
    titles = [note["title"] for note in written[1]["warnings"]]
    assert "Few samples" in titles
    assert "Possible batch effect" not in titles  # 6 samples: p = 0.1
    for text in summary.values():
        assert text in page.text


def test_samples_are_linked_in_map_matrix_and_table(page):
    marked = [(name, attributes["data-s"]) for name, attributes in page.tags if "data-s" in attributes]
    for kind in ("use", "text", "tr"):
        assert sorted(sample for name, sample in marked if name == kind) == sorted(map(str, range(6))), kind


def test_figures_work_without_scripts(written):
    text = re.sub("<script.*?</script>", "", written[0].read_text(), flags=re.DOTALL)
    assert text.count('<use class="mark"') == 6
    assert text.count('href="data:image/png;base64,') == 1
    assert text.count('<g class="dots"><path stroke="#') == 2
    assert text.count('<ul class="legend">') == 4


def test_second_report_computes_nothing_again(written, run_folder, tmp_path, capsys):
    sets = run_folder.parent / "sets.gmt"
    summary = gm.report.write(run_folder, tmp_path / "b.html", gene_sets=sets, permutations=3, verbose=1)
    assert capsys.readouterr().err == ""
    assert (tmp_path / "b.html").read_bytes() == written[0].read_bytes()
    assert summary["scores"] == written[1]["scores"]


def test_command_says_what_is_not_computed_and_keeps_the_page(written, run_folder, tmp_path, capsys):
    command = ["report", str(run_folder), "--no-evaluate", "-o", str(tmp_path / "page.html")]
    assert cli.main(command) == 0
    printed = capsys.readouterr()
    assert "Held-out samples: condition is predicted" in printed.out  # an ensemble knows without an evaluation
    assert "not computed (--evaluate)" in printed.out
    assert "no gene sets were given (--gene-sets FILE.gmt)" in printed.out
    before = (tmp_path / "page.html").read_bytes()
    assert b"--" not in re.sub(rb"<(style|script).*?</\1>|style=\"[^\"]*\"|<!--", b"", before, flags=re.DOTALL)
    assert cli.main(command) == 2
    assert "--replace" in capsys.readouterr().err
    assert cli.main([*command, "--replace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == len(before)


@pytest.mark.parametrize("content", [b"<!doctype html><p>my own", b"a,b"])
def test_other_files_are_never_replaced(run_folder, tmp_path, capsys, content):
    (tmp_path / "page.html").write_bytes(content)
    assert cli.main(["report", str(run_folder), "-o", str(tmp_path / "page.html"), "--replace"]) == 2
    assert "which exists and is not a report" in capsys.readouterr().err
    with pytest.raises(ParameterError) as caught:
        gm.report.write(run_folder, tmp_path / "page.html")
    assert caught.value.parameter == "output"
    assert (tmp_path / "page.html").read_bytes() == content


def test_hidden_characters_of_names_are_shown(written):
    text = written[0].read_text()
    assert not set(text) & {"\u202e", "\u200b"}
    assert r"\u202ebob" in text


def test_an_interrupted_training_and_one_that_did_not_converge_are_warnings(runs):
    run, cells = runs["ggml"], runs["ggml"].cells.copy()
    cells.uns["groundmetric"] = {
        **run.entry, "converged": False, "history": {**run.entry["history"], "active": np.array([0.5])},
    }  # fmt: skip
    interrupted = Run(cells, run.samples, None, {"interrupted": True})
    assert [note.title for note in training_warnings(interrupted)] == ["Training was interrupted"]
    (note,) = training_warnings(Run(cells, run.samples, None, {}))
    assert (note.title, list(note.remedy)) == ("Training did not converge", ["max_epochs"])


def test_bad_input_is_a_line_that_helps(run_folder, tmp_path, capsys):
    for arguments, culprit in (
        ([str(tmp_path)], "not a run of groundmetric learn"),
        ([str(run_folder), "-o", str(tmp_path)], "is a folder"),
        ([str(run_folder), "-o", str(tmp_path / "a.html"), "--gene-sets", "nowhere.gmt"], "'nowhere.gmt'"),
        ([str(run_folder), "-o", str(tmp_path / "a.html"), "--cell-type", "kind"], "--cell-type is 'kind'"),
    ):
        assert cli.main(["report", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert culprit in line
    assert not list(tmp_path.iterdir())


def test_without_the_values_the_rest_is_shown(run_folder):
    run = Run.open(run_folder)
    results = collect(Run(run.cells, run.samples, None, run.findings))
    lacking = [note.title for note in results.omitted if "which the run does not have" in note.text]
    assert lacking == [
        "Cell types of genes", "q-values of genes", "Baselines", "Changes of single patients", "Planning",
        "Influence of patients",
    ]  # fmt: skip
    assert results.evaluation is None
    assert "ensemble members" in make_page(results).summary["Features"]  # which need no values


def test_an_anndata_in_memory_has_a_report(runs, tmp_path):
    cells = runs["ensemble"].cells
    answer = gm.report.write(cells, tmp_path / "page.html", evaluation=False, title="Mine")
    assert "<h1>Mine</h1>" in (tmp_path / "page.html").read_text()
    assert answer["scores"] is None
    with pytest.raises(ParameterError) as caught:
        gm.report.write(cells)
    assert caught.value.parameter == "output"


@pytest.fixture(scope="module")
def runs():
    """Runs in memory on the same cohort, by an ensemble and by a single metric."""
    runs = {}
    for method in ("ensemble", "ggml"):
        cells = gm.datasets.make_cohort(4, 20, 150, random_state=0)
        limits = {"n_members": 2, "max_epochs": 2} if method == "ensemble" else {"max_epochs": 5}
        gm.tl.learn(cells, "sample", "condition", method=method, **limits)
        runs[method] = Run(cells, gm.tl.samples(cells), cells, {})
    return runs


def test_there_is_one_score_everywhere(runs):
    run = runs["ensemble"]
    page = make_page(collect(run, permutations=3))
    scores, evaluation = run.entry["ensemble"]["scores"], page.results.evaluation
    assert (evaluation.learned["method"], evaluation.learned["value"]) == ("groundmetric", scores["balanced_accuracy"])
    assert f"balanced accuracy {scores['balanced_accuracy']:.2f}" in page.summary["Prediction"]
    assert evaluation.test["score"] == "log_probability"
    assert len(evaluation.test["null"]) == 3
    value, lines = cards_of(page)["Held-out balanced accuracy"]
    assert value == f"{scores['balanced_accuracy']:.2f}"
    assert lines[1] == f"guessing 0.50, best baseline {evaluation.best_baseline['value']:.2f}"
    p_value = f"{evaluation.test['p']:.2g}"
    assert cards_of(page)["p-value"] == (p_value, ["3 permutations of the labels", "smallest attainable: 0.25"])
    assert f"p = {evaluation.test['p']:.2g}, 3 permutations" in page.summary["Prediction"]
    np.testing.assert_array_equal(page.samples.distances, run.samples.obsp["groundmetric_distances"])
    names = [field.name for field in page.genes.fields]
    low, high = run.results.interval
    for row in page.genes.rows:
        f = run.stored.features.index(row[1])
        assert row[names.index("95% range")] == f"{low[f]:.1%} to {high[f]:.1%}"
        assert low[f] <= row[names.index("Importance")] <= high[f]
        assert 0.0 < row[names.index("q")] <= 1.0
    weights = {row[0]: row[2] for row in page.kinds.rows}
    assert weights == pytest.approx(run.entry["ensemble"]["weights"])
    assert not [note for note in page.results.warnings if "groundmetric_" in note.text]


def test_a_design_that_cannot_reach_significance_is_named(runs):
    results = collect(runs["ensemble"], permutations=3)
    results.stability = replace(results.stability, smallest_p=0.1)
    page = make_page(results)
    assert "can reach q < 0.05: this design allows no p-value below 0.1." in page.summary["Genes"]
    assert cards_of(page)["Significant genes"][1][1] == "smallest attainable q: 0.1"


def test_a_single_metric_is_refitted_and_scored_in_folds(runs, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results = collect(runs["ggml"], steps=Steps(verbose=1))
    page = make_page(results)
    assert page.kinds is None
    assert results.evaluation.test is None  # each permutation would cost a whole cross-validation
    counts = [row[1:-1] for row in page.confusion.rows]
    right = np.mean([row[k] / sum(row) for k, row in enumerate(counts)])
    assert right == pytest.approx(results.evaluation.learned["value"])
    assert "refitting to bootstrap samples" in capsys.readouterr().err
    assert "training samples" in page.samples.caption
    assert "<dt>Epochs</dt><dd>5</dd>" in render(page)
    assert "20 refits" in page.summary["Genes"]
    assert "Course" in render(page)


def cohort_table(**columns):
    table = pd.DataFrame({"condition": ["a"] * 10 + ["b"] * 10, "n_cells": 100, **columns})
    return table.set_index(pd.Index([f"S{k}" for k in range(20)]))


@pytest.mark.parametrize(
    ("column", "suspected"),
    [(["x"] * 10 + ["y"] * 10, True), (["x", "y"] * 10, False), (list(range(20)), False), (["x"] * 20, False),
     (["x"] * 9 + ["y"] * 6 + ["z"] * 5, True)],
)  # fmt: skip
def test_a_column_associated_with_the_label_is_a_possible_batch_effect(column, suspected):
    titles = [note.title for note in cohort_problems(cohort_table(batch=column), "condition", "sample")[0]]
    assert ("Possible batch effect" in titles) == suspected
    assert "Few samples" not in titles


def test_few_unequal_and_small_samples_and_repeated_patients_are_warnings():
    table = cohort_table(patient=[f"P{k // 2}" for k in range(20)]).iloc[:12].assign(n_cells=[10] + [100] * 11)
    notes = {note.title: note for note in cohort_problems(table, "condition", "sample")[0]}
    assert set(notes) == {
        "Few samples", "Unequal class sizes", "Samples with few cells", "Several samples per patient",
    }  # fmt: skip
    assert "'S0' has 10" in notes["Samples with few cells"].text
    assert notes["Several samples per patient"].remedy == {"group_key": "patient"}


def test_nearest_samples_of_the_same_batch_are_a_possible_batch_effect():
    table = cohort_table(batch=["x", "y"] * 10, donor=[f"P{k // 2}" for k in range(20)])
    at = np.random.default_rng(0).normal(size=20) + 50.0 * (table["batch"] == "y").to_numpy()
    notes = cohort_problems(table, "condition", "sample", distances=np.abs(at[:, None] - at))[0]
    (note,) = (note for note in notes if note.title == "Possible batch effect")
    assert "the nearest sample has the same batch for 100% of the samples (4" in note.text
    assert "; condition explains 0%)" in note.text
    assert note.remedy == {"batch_key": "batch"}


def scored(value, p_lead, p_chance, arrangements=10**6):
    baseline = {"method": "Euclidean", "status": "ok", "value": 0.6, "low": 0.5, "high": 0.7, "lead": value - 0.6,
             "lead_low": -0.1, "lead_high": 0.3, "p": p_lead}  # fmt: skip
    first = {"method": "groundmetric", "status": "ok", "value": value, "low": 0.4, "high": 0.9}
    test = {"p": p_chance, "null": [0.5] * 99, "arrangements": arrangements}
    return Evaluation("balanced_accuracy", 0.5, [first, baseline], "", None, [], test)


def test_conclusions_are_honest(runs):
    from dataclasses import replace

    results = collect(runs["ensemble"], evaluation=False)

    def described(*arguments):
        return describe_prediction(replace(results, evaluation=scored(*arguments)))

    assert "are associated with condition (p = 0.01, 99 permutations)" in described(0.8, 0.01, 0.01)[1]
    assert "unconfirmed" in described(0.4, 0.01, 0.3)[1]
    assert "cannot reach p = 0.05: the design allows 10 arrangements" in described(0.9, 0.01, 0.1, 10)[1]
    assert described(0.8, 0.01, 0.01)[2] == scored(0.8, 0.01, 0.01).verdict


def test_remedies_are_parameters_on_the_page():
    note = Note("Batch", "learn within batches", {"batch_key": "<b>"})
    assert str(note) == "learn within batches (batch_key='<b>')."
    assert prose(note) == "learn within batches (<code>batch_key=&#39;&lt;b&gt;&#39;</code>)."


def test_data_of_the_scripts_is_what_was_given(written):
    text = re.search('<script type="application/json" id="data">(.*?)</script>', written[0].read_text())[1]
    assert not set("<>&") & set(text)
    assert json.loads(text)["samples"]["names"] == NAMES


def test_without_jinja_an_error_says_what_to_install():
    code = "import sys; sys.modules['jinja2'] = None; import groundmetric as gm; gm.report.write"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert 'jinja2 is needed for a report: pip install "groundmetric[single-cell]"' in done.stderr
