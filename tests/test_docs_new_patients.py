"""The code of the page on new patients runs, block after block."""

import re
from pathlib import Path

import pytest

pytest.importorskip("anndata")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "new_patients.md"


@pytest.mark.filterwarnings("ignore")
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a file
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(block, names)
    assert names["test"].p == 0.05
    planted = names["genes"].table()["feature"].str.startswith("PROG")
    assert planted.head(10).sum() >= 8
    assert (names["ensemble"].held_out_.argmax(axis=1) == (names["y"].loc[names["D"].names] == "disease")).mean() > 0.7
    assert names["batches"].covariates == ["batch"]
    assert names["types"].table()["value"][0] == "Macrophage"
    assert names["types"].share.max() > 0.9
