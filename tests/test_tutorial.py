"""The code of the tutorial runs, block after block, and finds what was put in."""

import re
from pathlib import Path

import pytest

pytest.importorskip("scanpy")
matplotlib = pytest.importorskip("matplotlib")

TUTORIAL = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"


@pytest.mark.filterwarnings("ignore")  # scanpy and umap have warnings of their own
def test_the_tutorial_runs_and_finds_what_was_put_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL):
        exec(block, names)
    top = names["adata"].var["groundmetric_importance"].nlargest(10).index
    assert names["adata"].var.loc[top, "programme"].sum() >= 5
    assert names["accuracy"] >= 0.5
    assert names["by_type"].idxmax() == names["adata"].uns["truth"]["programme_type"]
    matplotlib.pyplot.close("all")
