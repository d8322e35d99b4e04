"""Run the pages on distributions and transport and check their results; every page is tested."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from executed_pages import blocks, run

import groundmetric as gm

from .pages import CELLS, POINTS, pages_with_blocks, path_of, run_page


def check_README(names):
    assert names["learner"].metric_.importance().argmax() == 0
    assert names["classifier"].score(names["D"][1::2], names["y"][1::2]) == 1.0
    assert names["samples"].n_obs == 8


def check_cluster(names):
    assert names["distances"].shape == (len(names["D"]), len(names["D"]))
    assert len(names["D"]) > 15
    assert Path("learning.state.before").exists()


def check_from_pot(names):
    assert names["again"].optimal


def check_index(names):
    assert names["learner"].metric_.importance().argmax() == 0


def check_labels(names):
    assert np.mean(names["scores"]) >= 0.8


def check_method(names):
    assert names["values"]["same"] < names["values"]["other"]  # under the learned metric, drawn last
    assert names["eligible"].sum() == 1
    assert names["search"].best_score_ > 0.9


def check_metrics(names):
    assert names["again"].n_features == 4
    if importlib.util.find_spec("torch"):
        assert names["distances"].shape == (80, 80)


def check_point_sets(names):
    assert names["accuracy"] > names["plain"] + 0.2
    assert names["accuracies"]["learned"] > names["accuracies"]["Euclidean"]


def check_survival(names):
    result = gm.evaluation.concordance_index(names["table"].iloc[60:], names["risk"])
    assert result > 0.65
    assert set(np.argsort(-names["model"].metric_.importance())[:4]) >= {0, 1, 2}
    assert names["weights"]["triplets with known order"] == max(names["weights"].values()) > 0.8


def check_transport(names):
    assert names["robust"].value < names["broken"].value / 10
    assert isinstance(names["picked"], gm.transport.Exact)


def check_transport_problem(names):
    assert names["plan"].optimal
    assert np.isclose(names["again"].value, names["cold"].value)


# Dask has warnings of its own.
OF_OTHERS = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[OF_OTHERS] * (name == "cluster")) for name in POINTS])
def test_the_page_runs(name, tmp_path, monkeypatch):
    if name == "cluster":
        pytest.importorskip("distributed")
    if name == "from_pot":
        pytest.importorskip("ot")
    globals()[f"check_{name}"](run_page(name, tmp_path, monkeypatch))


def test_every_page_with_a_block_is_run():
    assert pages_with_blocks() == sorted(CELLS + POINTS)


@pytest.mark.parametrize("name", CELLS + POINTS)
def test_no_block_is_overlooked(name):
    text = path_of(name).read_text()
    assert len(blocks(text)) == text.count("```python")


def test_what_is_not_run_is_the_code_of_packages_that_are_not_installed():
    reasons = {block.why_not for name in CELLS + POINTS for block in blocks(path_of(name).read_text()) if block.why_not}
    assert reasons == {f"{name} is not installed" for name in ("ggml-ot", "PILOT", "patpy", "pertpy", "moscot")}


def test_an_error_in_a_block_points_to_the_line_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\nx / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run(page)
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == (page, 10)


def test_blocks_marked_as_not_run_or_without_their_module_are_left_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: it is elsewhere -->\n```python\nx = 1\n```\n"
        "<!-- needs no_such_module -->\n```python\nx = 2\n```\n```python\nprint('said')\n3\n```\n"
    )
    names, outputs = run(page)
    assert "x" not in names
    assert [(output.printed, output.value) for output in outputs.values()] == [("said\n", 3)]
