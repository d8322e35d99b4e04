"""The code of the page on large files runs, block after block; its asserts are the test."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "atlas.md"


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("anndata")
    pytest.importorskip("dask.array")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 5
    assert names["patients"].n_obs == 8
