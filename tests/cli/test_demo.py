"""The demo at a small size: what it says is what it found, what it writes is whole and needs nothing from elsewhere."""

import functools
import json
import re
import subprocess
import sys
import warnings
from html.parser import HTMLParser

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric.cli import demo

EVIL = "<script>alert('x')</script>"


def flat(seed):
    return gm.datasets.make_modes(1, 1000.0, points_per_mode=4, random_state=seed)


def wide(seed):
    """More features than are projected inside the solver, and names that are no good in a page or a formula."""
    D, y = gm.datasets.make_modes(34, 1.0, points_per_mode=4, random_state=seed)
    features = [f"{EVIL} $_{k}$" for k in range(D.shape[1])]
    return gm.Distributions(D.points, np.repeat(D.names, D.sizes), features=features), np.array(
        [f"{EVIL} {c}" for c in y]
    )


LOADERS = {"Flat": flat, f"Wide {EVIL}": wide}
COHORT = {"n_samples_per_condition": 3, "cells_per_sample": 20, "n_genes": 120, "n_programme_genes": 5, "n_markers": 5}
SMALL_COHORT = {"cohort": COHORT, "refits": 2, "permutations": 0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that the demo wrote, what it returned, and what it logged."""
    folder, lines = tmp_path_factory.mktemp("demo") / "new" / "folder", []
    return (
        folder,
        demo.make_demo(folder, seed=3, loaders=LOADERS, max_epochs=8, log=lines.append, **SMALL_COHORT),
        lines,
    )


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)

    def every(self, name):
        return [value for key, value in self.attributes if key == name]


@pytest.fixture(scope="module")
def page(made):
    return Page((made[0] / "index.html").read_text())


def test_results_file_holds_what_was_returned(made):
    folder, findings, _ = made
    assert json.loads((folder / "results.json").read_text()) == findings
    assert findings["seed"] == 3
    assert findings["groundmetric"] == gm.__version__


@pytest.mark.parametrize("place", [0, 1])
def test_accuracy_is_that_of_the_saved_metric(made, place):
    folder, findings, _ = made
    found = findings["datasets"][place]
    D, y = list(LOADERS.values())[place](3)
    train, test = found["train"], found["test"]
    assert sorted(train + test) == list(range(len(D)))
    assert np.unique(y[train], return_counts=True)[1].tolist() == [5, 5, 5]
    saved = gm.GroundMetric.load(folder / found["files"][0])
    for kind, metric in (("learned", saved), ("Euclidean", "euclidean")):
        classifier = gm.TransportKNeighborsClassifier(5, metric=metric).fit(D[train], y[train])
        assert found["accuracy"][kind] == classifier.score(D[test], y[test])
    assert found["importance"] == saved.importance().max()
    assert found["important_feature"] == D.features[saved.importance().argmax()]


def test_learning_was_by_the_plain_learner(made):
    folder, findings, _ = made
    found = findings["datasets"][0]
    D, y = flat(3)
    learner = gm.GroundMetricLearner(max_epochs=8, random_state=3).fit(D[found["train"]], y[found["train"]])
    saved = gm.GroundMetric.load(folder / found["files"][0])
    np.testing.assert_array_equal(saved.components, learner.components_)
    assert found["epochs"] == learner.n_iter_
    assert found["solved"] == learner.history_["solved"].sum()
    assert found["share_saved"] == found["saved"] / (found["saved"] + found["solved"])


def test_files_are_those_that_are_listed(made):
    folder, findings, _ = made
    listed = {name for found in [*findings["datasets"], findings["cohort"]] for name in found["files"]}
    assert {path.name for path in folder.iterdir()} == listed | {"results.json", "index.html"}
    for name in listed:
        start = (folder / name).read_bytes()[:5]
        assert start.startswith(
            {"png": b"\x89PNG", "svg": b"<?xml", "gm": b'{"for', "h5ad": b"\x89HDF"}[name.rpartition(".")[2]]
        )
    pictures = ["data", "learned_space", "ellipses", "training", "embedding_learned", "distances_euclidean"]
    assert {f"flat_{name}.svg" for name in pictures} <= listed
    assert "wide_script_alert_x_script_importance.png" in listed


def test_page_shows_every_figure_with_a_text_for_those_who_do_not_see_it(made, page):
    svgs = [attributes for tag, attributes in page.tags if tag == "svg" and "aria-hidden" not in attributes]
    figures = [name for found in made[1]["datasets"] for name in found["files"] if name.endswith(".svg")]
    labelled = [svg["aria-label"] for svg in svgs if "aria-label" in svg]
    assert len(figures) == 16
    assert len(labelled) >= 16 + 2  # those of the cohort's samples beside them
    assert all(len(label) > 10 for label in labelled)


def test_page_loads_nothing(made, page):
    text = (made[0] / "index.html").read_text()
    assert "http:" not in text
    assert "https:" not in text
    assert not {"link", "iframe", "img", "object"} & {tag for tag, _ in page.tags}
    loaded = page.every("href") + page.every("xlink:href") + page.every("src") + re.findall(r"url\(([^)]*)\)", text)
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in loaded)
    assert "@import" not in text


def test_identifiers_of_the_page_are_unique_and_all_references_lead_somewhere(made, page):
    identifiers = page.every("id")
    assert len(set(identifiers)) == len(identifiers)
    text = (made[0] / "index.html").read_text()
    targets = re.findall(r"url\(#([^)]*)\)", text) + re.findall(r'href="#([^"]*)"', text)
    assert targets
    assert set(targets) <= set(identifiers)


def test_page_says_what_was_found(made, page):
    text = " ".join(page.texts)
    for found in made[1]["datasets"]:
        for kind, accuracy in found["accuracy"].items():
            assert f"{accuracy:.2f} ({round(accuracy * 15)} of 15)" in text
            assert f"Distributions under the {kind} metric" in text
        assert f"{found['seconds']:.1f} s, {found['epochs']} epochs" in text
        assert found["important_feature"] in text


def test_names_cannot_break_out_of_the_page(made, page):
    assert EVIL in "".join(page.texts)  # as text
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}, {}]  # the page's own
    for name in made[1]["datasets"][1]["files"]:
        if name.endswith(".svg"):
            assert "<script" not in (made[0] / name).read_text()


def test_summary_and_log_say_what_happens(made):
    _, findings, lines = made
    text = demo.summary(findings)
    for found in findings["datasets"]:
        assert f"{found['name']}: 30 distributions of 3 classes, 360 points, {found['n_features']} features" in text
        assert f"{found['accuracy']['learned']:.2f} ({found['right']['learned']} of 15)" in text
        assert f"{found['name']}: learning from 15 distributions" in lines


def test_a_page_of_somebody_else_is_not_replaced(tmp_path):
    (tmp_path / "index.html").write_text("my home page")
    with pytest.raises(ValueError, match="exists and is no earlier run: give another folder"):
        demo.make_demo(tmp_path, loaders={})
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "my home page"


def test_same_seed_same_files_in_the_folder_of_an_earlier_demo(made, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "index.html").write_text("old")
    (tmp_path / "old.png").write_text("old")
    old = {"groundmetric": "0", "datasets": [{"files": ["old.png", "../mine.txt"]}]}
    (tmp_path / "results.json").write_text(json.dumps(old))
    again = demo.make_demo(tmp_path, seed=3, loaders={"Flat": flat}, max_epochs=8, **SMALL_COHORT)
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert not (tmp_path / "old.png").exists()
    assert "A simulated cohort" in (tmp_path / "index.html").read_text()
    for name in [*again["datasets"][0]["files"], *again["cohort"]["files"]]:
        if not name.endswith((".gm", ".h5ad")):  # holds a zip archive, which has a date
            assert (tmp_path / name).read_bytes() == (made[0] / name).read_bytes(), name


def test_what_was_put_in_is_compared_with_what_was_found(made, page):
    folder, findings, _ = made
    rows = {row["what"]: row for row in findings["cohort"]["put_in_and_found"]}
    saved = gm.GroundMetric.load(folder / "cohort.gm")
    top = [saved.features[k] for k in np.argsort(-saved.importance(), kind="stable")[:5]]
    right = sum(name.startswith("PROG") for name in top)
    assert rows["Genes that differ"]["put_in"] == "5: PROG01 to PROG05"
    assert rows["Genes that differ"]["found"] == f"{right} of the 5 most important are among them"
    assert rows["Cell type in which they differ"]["put_in"] == "Macrophage"
    text = " ".join(page.texts)
    for row in rows.values():
        assert row["found"] in text
        assert row["put_in"] in demo.summary(findings)


def run_python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_command_prints_findings_as_json_alone(tmp_path, monkeypatch, capfd):
    small = {"Small": lambda seed: gm.datasets.make_modes(1, 10.0, points_per_mode=3, random_state=seed)}
    cohort = {"n_samples_per_condition": 3, "cells_per_sample": 15, "n_genes": 120}
    options = {"loaders": small, "cohort": cohort, "max_epochs": 2, "refits": 1, "permutations": 0}
    monkeypatch.setattr(demo, "make_demo", functools.partial(demo.make_demo, **options))
    assert cli.main(["demo", "--output", str(tmp_path / "out"), "--seed", "5", "--json"]) == 0
    printed = capfd.readouterr()
    findings = json.loads(printed.out)
    assert findings == json.loads((tmp_path / "out" / "results.json").read_text())
    assert (findings["seed"], findings["datasets"][0]["epochs"]) == (5, 2)
    assert "Small: learning from 15 distributions" in printed.err.splitlines()


def test_bad_output_is_one_line_and_code_2(tmp_path):
    (tmp_path / "file").write_text("mine")
    done = run_python("-m", "groundmetric", "demo", "--output", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"groundmetric demo: --output is {str(tmp_path / 'file')!r}, which is a file: give a folder\n"
    assert (tmp_path / "file").read_text() == "mine"


HELP = """
import sys
from groundmetric import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as stop:
    print(*sys.modules, stop.code)
"""


def test_help_and_version_load_nothing_heavy():
    for argument, expected in (("--help", "demo"), ("--version", f"groundmetric {gm.__version__}")):
        done = run_python("-c", HELP, argument)
        assert expected in done.stdout
        assert not {"numpy", "sklearn", "matplotlib"} & set(done.stdout.split())
        assert done.stdout.split()[-1] == "0"


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["demo", "--seed", "-1"], "'-1'"),
        (["demo", "--seed", "many"], "'many'"),
        (["demo", "--seed", str(2**32)], f"'{2**32}'"),
        (["nonsense"], "'nonsense'"),
        (["demo", "--colour"], "--colour"),
        ([], "COMMAND"),
    ],
)
def test_bad_arguments_are_one_line_and_code_2(arguments, culprit, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert culprit in line


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("bad\nvalue"), 2, "bad value"),
        (PermissionError(13, "Permission denied", "/x"), 2, "Permission denied: '/x'"),
        (ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib"), 1, "pip install 'groundmetric[plot]'"),
        (ZeroDivisionError("by zero"), 1, "unexpected ZeroDivisionError: by zero"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_are_one_line_unless_debugging(error, code, line, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(demo, "run", fail)
    assert cli.main(["demo"]) == code
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith("groundmetric demo: ")
    assert line in printed
    with pytest.raises(type(error)):
        cli.main(["demo", "--debug"])


def test_warnings_are_lines(monkeypatch, capsys):
    def warn(*arguments, **options):
        warnings.warn("take care", UserWarning, stacklevel=1)
        return {"datasets": []}

    monkeypatch.setattr(demo, "run", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert cli.main(["demo"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "warning: take care"
