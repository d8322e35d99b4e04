"""The code of docs/cluster.md runs, block after block."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cluster.md"


@pytest.mark.filterwarnings("ignore")  # Dask has warnings of its own
def test_the_page_on_clusters_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cluster.py"])
    names: dict = {"__name__": "__main__"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    assert names["distances"].shape == (len(names["D"]), len(names["D"]))
    assert len(names["D"]) > 15
    assert (tmp_path / "learning.state.before").exists()
