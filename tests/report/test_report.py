"""The report as a file: what it says is what was found, and it is whole, small and loads nothing."""

import dataclasses
import itertools
import json
import re
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list

import groundmetric as gm
from groundmetric import cli
from groundmetric.interpret.axes import average_linkage, classical_scaling
from groundmetric.report import summary
from groundmetric.report.content import Column, Evaluation, SampleMap
from groundmetric.report.summary import cautions_of, cautions_of_training
from groundmetric.report.write import figures_of_page, inline, render
from groundmetric.report.write import page as page_of

from .conftest import NAMES, SCRIPT


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


@pytest.fixture(scope="module")
def written_content(written, run_folder):
    run = gm.report.Run.open(run_folder)
    return gm.report.collect(run, evaluation=False, refits=0)


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


def test_says_what_was_found(written, page, run_folder):
    metric = gm.get.metric(run_folder / "cells.h5ad")
    first = int(metric.importance().argmax())
    answers = written[1]["summary"]
    assert list(answers) == [
        "Which samples are alike?",
        "Can the label be told beyond chance?",
        "Which features?",
        "Which cells?",
        "What to beware of?",
    ]
    assert f"{metric.features[first]} ({metric.importance()[first]:.1%}, higher in " in answers["Which features?"]
    scores = {row["method"]: row for row in written[1]["scores"]}
    assert list(scores) == ["learned metric", "Euclidean", "pseudobulk", "composition"]
    assert f"{scores['learned metric']['value']:.2f}" in answers["Can the label be told beyond chance?"]
    assert "Few samples" in answers["What to beware of?"]
    assert written[1]["against_chance"]["p"] >= 0.25
    assert any("<u>batch goes with condition" in line for line in written[1]["warnings"]) is False  # 6 samples: p = 0.1
    assert any(line.startswith("Few samples") for line in written[1]["warnings"])
    for question, answer in answers.items():
        assert question in page.text
        assert answer in page.text


def test_every_figure_is_also_a_file(written, run_folder):
    folder = run_folder.parent / "figures"
    assert sorted(written[1]["figures"]) == sorted(path.name for path in folder.iterdir())
    names = {name.rpartition(".")[0] for name in written[1]["figures"]}
    assert {
        "samples",
        "distances",
        "importance",
        "axes",
        "scores",
        "cell_types",
        "cells_condition",
    } <= names
    for path in folder.iterdir():
        assert path.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<?xml"}[path.suffix])
        assert path.suffix == ".png" or "<script" not in path.read_text()


def test_second_report_computes_nothing_again(written, run_folder, tmp_path):
    lines = []
    sets = run_folder.parent / "sets.gmt"
    again = gm.report.write(run_folder, tmp_path / "b.html", gene_sets=sets, permutations=3, log=lines.append)
    assert not lines
    assert (tmp_path / "b.html").read_bytes() == written[0].read_bytes()
    assert again["scores"] == written[1]["scores"]


def test_a_first_page_is_written_before_the_long_steps_and_says_what_follows(runs, tmp_path):
    page, seen = tmp_path / "page.html", []

    def log(line):
        seen.append((line, page.read_text() if page.exists() else None))

    gm.report.write(runs["ensemble"], page, permutations=0, log=log)
    lines = [line for line, _ in seen]
    assert lines[0] == f"wrote a first page, of samples and genes: {page}"
    first, last = seen[0][1], page.read_text()
    assert "Still being computed: axes of the learned space, cells, cell types, scores and tests." in first
    assert "Still being computed" not in last
    names = runs["ensemble"].stored.features
    top = names[int(runs["ensemble"].stored.metric.importance().argmax())]
    for text in (first, last):
        assert f"<td>{top}</td>" in text
        assert "Predicted labels" in text
    assert 'id="axis-1"' in last
    assert 'id="axis-1"' not in first


def test_names_of_samples_are_written_in_both_figures(runs):
    content = gm.report.collect(runs["ensemble"], evaluation=False)
    for name, draw in figures_of_page(content).items():
        draw(ax := Figure().add_subplot())
        written = {text.get_text() for text in [*ax.texts, *ax.get_yticklabels()]}
        assert set(content.samples.names) <= written, name


def test_colours_of_distances_go_by_rank(runs):
    content = gm.report.collect(runs["ensemble"], evaluation=False)
    figures_of_page(content)["distances"](ax := Figure().add_subplot())
    distances = content.samples.distances
    pairs = distances[np.triu_indices(len(distances), 1)]
    shades = np.asarray(ax.images[0].norm(pairs))
    assert np.array_equal(np.argsort(shades, kind="stable"), np.argsort(pairs, kind="stable"))
    np.testing.assert_allclose(np.quantile(shades, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.06)


def test_command_says_what_is_left_out_and_keeps_what_is_there(written, run_folder, tmp_path, capsys):
    command = ["report", str(run_folder), "--no-evaluate", "--refits", "0", "-o", str(tmp_path / "page.html")]
    assert cli.main(command) == 0
    told = capsys.readouterr()
    assert "On samples while they were left out" in told.out  # an ensemble knows without an evaluation
    assert "leave out --no-evaluate" in told.out
    assert "--gene-sets" in told.out
    before = (tmp_path / "page.html").read_bytes()
    assert cli.main(command) == 2
    assert "--replace" in capsys.readouterr().err
    assert cli.main([*command, "--replace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == len(before)


@pytest.mark.parametrize("content", [b"<!doctype html><p>my own", b"a,b"])
def test_what_is_no_report_is_never_replaced(run_folder, tmp_path, capsys, content):
    (tmp_path / "page.html").write_bytes(content)
    assert cli.main(["report", str(run_folder), "-o", str(tmp_path / "page.html"), "--replace"]) == 2
    assert "exists and is no earlier report: it would be lost" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is no earlier report"):
        gm.report.write(run_folder, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == content


def test_hidden_characters_of_names_are_shown(written):
    text = written[0].read_text()
    assert not set(text) & {"\u202e", "\u200b"}
    assert r"\u202ebob" in text


def test_an_interrupted_run_is_called_so():
    (found,) = cautions_of_training({}, False, 14, True)
    assert found.title == "Training was interrupted"
    assert cautions_of_training({}, False, 14)[0].title == "Training was stopped"


def test_bad_input_is_a_line_that_helps(run_folder, tmp_path, capsys):
    for arguments, culprit in (
        ([str(tmp_path)], "no run of groundmetric learn"),
        ([str(run_folder), "-o", str(tmp_path)], "is a folder"),
        ([str(run_folder), "-o", str(tmp_path / "a.html"), "--gene-sets", "nowhere.gmt"], "'nowhere.gmt'"),
        ([str(run_folder), "-o", str(tmp_path / "a.html"), "--cell-type", "kind"], "--cell-type is 'kind'"),
    ):
        assert cli.main(["report", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert culprit in line
    assert not list(tmp_path.iterdir())


def test_without_the_values_the_rest_is_shown(run_folder, tmp_path):
    run = gm.report.Run.open(run_folder)
    bare = gm.report.Run(run.cells, run.samples, None, run.findings)
    found = gm.report.write(bare, tmp_path / "page.html")
    lacking = [note.split(":")[0] for note in found["left_out"] if "does not have them" in note]
    assert lacking == ["Cell types in which genes differ", "q-values of genes", "Scores on held-out samples"]
    assert found["scores"] is None
    assert "members of the ensemble" in found["summary"]["Which features?"]  # which need no values


@pytest.fixture(scope="module")
def runs():
    """Runs in memory on the same cohort, by an ensemble and by a single learner."""
    found = {}
    for method in ("ensemble", "ggml"):
        cells = gm.datasets.make_cohort(4, 20, 150, random_state=0)
        cells.obs["donor"] = ("D" + (cells.obs["sample"].cat.codes % 4).astype(str)).to_numpy()
        few = {"n_members": 2} if method == "ensemble" else {"max_epochs": 5}
        gm.tl.learn(cells, "sample", "condition", method=method, **few)
        found[method] = gm.report.Run(cells, gm.tl.samples(cells), cells, {})
    return found


def test_there_is_one_score_everywhere(runs):
    run = runs["ensemble"]
    content = gm.report.collect(run, permutations=3)
    scores = run.entry["ensemble"]["scores"]
    first = content.evaluation.rows[0]
    assert (first["method"], first["value"]) == ("learned metric", scores["balanced_accuracy"])
    assert f"balanced accuracy of {scores['balanced_accuracy']:.2f}" in " ".join(content.summary.values())
    assert content.evaluation.test["score"] == "log_probability"
    assert len(content.evaluation.rows) == 4
    np.testing.assert_array_equal(content.samples.distances, run.samples.obsp["groundmetric_distances"])
    assert [field.name for field in content.genes.fields][-4:] == ["Members, low", "Members, high", "In top 20", "q"]
    for row in content.genes.rows:
        assert row[-4] <= row[2] <= row[-3]
        assert 0.0 < row[-1] <= 1.0
    assert content.history == {}
    weights = {row[0]: row[2] for row in content.kinds.rows}
    assert weights == pytest.approx(run.entry["ensemble"]["weights"])
    assert not [caution for caution in content.cautions if "groundmetric_" in caution.text]


def test_with_other_groups_the_ensemble_is_learned_again(runs):
    run, lines = runs["ensemble"], []
    content = gm.report.collect(run, group_key="donor", permutations=3, log=lines.append)
    assert "learning again, samples of one donor kept together" in lines
    assert "those of one donor together" in content.evaluation.how
    assert "held out in each cross-validation fold" in content.evaluation.how
    assert any("arrangements of labels among" in note for note in content.left_out)  # few donors: a note, no warning
    lines.clear()
    gm.report.collect(run, permutations=0, log=lines.append)
    assert not any(line.startswith("learning again") for line in lines)


def test_a_single_learner_keeps_its_history_refits_and_folds(runs, tmp_path):
    run, lines = runs["ggml"], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        content = gm.report.collect(run, refits=2, log=lines.append)
    assert content.kinds is None
    assert content.evaluation.test is None  # each permutation would cost a whole evaluation
    counts = [row[1:-1] for row in content.confusion.rows]
    right = np.mean([row[k] / sum(row) for k, row in enumerate(counts)])
    assert right == pytest.approx(content.evaluation.rows[0]["value"])
    assert len(content.history["loss"]) == 5
    assert any(line.startswith("learning again 2 times from samples drawn anew: about") for line in lines)
    assert not content.samples.out_of_bag
    np.testing.assert_array_equal(content.samples.distances, run.samples.obsp["groundmetric_distances"])
    gm.report.write(run, tmp_path / "page.html", refits=0, evaluation=False)
    assert "Course of training" in (tmp_path / "page.html").read_text()


def cohort_table(**columns):
    table = pd.DataFrame({"condition": ["a"] * 10 + ["b"] * 10, "n_cells": 100, **columns})
    return table.set_index(pd.Index([f"S{k}" for k in range(20)]))


@pytest.mark.parametrize(
    ("column", "suspected"),
    [(["x"] * 10 + ["y"] * 10, True), (["x", "y"] * 10, False), (list(range(20)), False), (["x"] * 20, False),
     (["x"] * 9 + ["y"] * 6 + ["z"] * 5, True)],
)  # fmt: skip
def test_batch_effect_is_suspected_where_a_column_goes_with_the_label(column, suspected):
    found = [caution.title for caution in cautions_of(cohort_table(batch=column), "condition", "sample", None)]
    assert ("Suspected batch effect" in found) == suspected
    assert "Few samples" not in found


def test_cautions_of_few_unequal_and_small_samples_and_of_patients():
    table = cohort_table(patient=[f"P{k // 2}" for k in range(20)]).iloc[:12].assign(n_cells=[10] + [100] * 11)
    found = {caution.title: caution.text for caution in cautions_of(table, "condition", "sample", None)}
    assert set(found) == {
        "Few samples",
        "Classes of unequal size",
        "Samples of few cells",
        "Several samples of a patient",
    }
    assert "S0 has" in found["Samples of few cells"]
    assert "--group patient" in found["Several samples of a patient"]


def test_batch_effect_is_suspected_where_the_nearest_samples_are_of_the_same_batch():
    table = cohort_table(batch=["x", "y"] * 10, donor=[f"P{k // 2}" for k in range(20)])
    at = np.random.default_rng(0).normal(size=20) + 50.0 * (table["batch"] == "y").to_numpy()
    found = cautions_of(table, "condition", "sample", None, np.abs(at[:, None] - at))
    (text,) = (caution.text for caution in found if caution.title == "Suspected batch effect")
    assert "of 100% of the samples the nearest has the same batch (by chance 4" in text
    assert "% of the squared distances (by chance " in text
    assert ", condition 0%" in text
    assert "--batch batch" in text


def scored(value, p_lead, p_chance):
    other = {"method": "Euclidean", "status": "ok", "value": 0.6, "low": 0.5, "high": 0.7, "lead": value - 0.6,
             "lead_low": -0.1, "lead_high": 0.3, "p": p_lead}  # fmt: skip
    first = {"method": "learned metric", "status": "ok", "value": value, "low": 0.4, "high": 0.9}
    test = {"p": p_chance, "null": [0.5] * 99}
    return " ".join(summary.describe_scores(Evaluation("balanced_accuracy", 0.5, [first, other], "", test, [])))


def test_summary_is_honest():
    assert "is better" in scored(0.8, 0.01, 0.01)
    assert "associated with the label (p = 0.01" in scored(0.8, 0.01, 0.01)
    assert "do not show which is better" in scored(0.8, 0.2, 0.01)
    assert "is worse" in scored(0.4, 0.01, 0.3)
    assert "as noise" in scored(0.4, 0.01, 0.3)
    assert "was not tested" in summary.describe_scores(None)[0]


def test_data_of_the_scripts_is_what_was_given(written):
    text = re.search('<script type="application/json" id="data">(.*?)</script>', written[0].read_text())[1]
    assert not set("<>&") & set(text)
    assert json.loads(text)["samples"]["names"] == NAMES


def sample_map_of(label):
    distances = np.abs(np.subtract.outer(*[np.array([0.0, 5.0, 1.0, 9.0, 6.5, 3.0])] * 2))
    names = [f"S{k}" for k in range(6)]
    return SampleMap(
        names, classical_scaling(distances), [label], distances, leaves_list(average_linkage(distances)), 1.0
    )


@pytest.mark.parametrize(
    "label",
    [
        Column("condition", np.array([1, 0, -1, 1, 2, 0]), ["<a>", "b&", "c"]),
        Column("condition", np.array([0, 0, 2, 2, 2, 0]), ["a", "b", "c"]),
        Column("age", np.array([3.0, 1.0, np.nan, 2.0, 7.0, 5.0])),
    ],
    ids=["classes, one missing", "a class that does not occur", "numbers, one missing"],
)
def test_scripts_know_which_mark_is_which_sample(written_content, label):
    content = dataclasses.replace(written_content, samples=sample_map_of(label))
    text = page_of(content)
    data = json.loads(re.search('id="data">(.*?)</script>', text)[1])
    figure = re.search('<svg [^>]*aria-label="Map of 6 samples.*?</svg>', text, re.DOTALL)[0]
    marks = [group for group in ElementTree.fromstring(figure).iter("g") if "-map-marks" in group.get("id", "")]
    x = [float(use.get("x")) for group in marks for use in group.iter("use")]
    places = content.samples.places[data["samples"]["marks"], 0]
    np.testing.assert_allclose(np.corrcoef(x, places)[0, 1], 1.0)
    figures_of_page(content)["distances"](ax := Figure().add_subplot())
    order = data["heat"]["order"]
    np.testing.assert_array_equal(ax.images[0].get_array(), content.samples.distances[np.ix_(order, order)])


def test_inline_figure_has_identifiers_of_its_own_and_keeps_its_text():
    name = '<b> id="x" url(#y) #262626'

    def draw(ax):
        ax.set_title(name)
        ax.scatter([1, 2], [1, 2], marker="s")

    figure = inline(render(draw, "figure", ["svg"])["svg"], "mine", 'a "label"')
    root = ElementTree.fromstring(figure)
    assert [text.text for text in root.iter("text") if "<" in text.text] == [name]
    assert root.get("aria-label") == 'a "label"'
    identifiers = {element.get("id") for element in root.iter()} - {None}
    assert all(identifier.startswith("mine-") for identifier in identifiers)
    for pattern in ('href="#([^"]*)"', r'clip-path="url\(#([^)]*)\)'):
        assert set() != set(re.findall(pattern, figure)) <= identifiers
    assert "<style" not in figure
    assert "currentColor" in figure


def test_without_jinja_an_error_says_what_to_install():
    code = "import sys; sys.modules['jinja2'] = None; import groundmetric as gm; gm.report.write"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert 'jinja2 is needed for a report: pip install "groundmetric[single-cell]"' in done.stderr
