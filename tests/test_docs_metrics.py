"""The code of the page on metrics runs, block after block; its asserts are the test."""

import importlib.util
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
NETWORKS = "## Networks\n"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the blocks before the networks have defined."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        _run(PAGE.read_text().partition(NETWORKS)[0], names)
    return names


def _run(text, names):
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, names)


def test_the_page_runs(names):
    assert names["again"].n_features == 4


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: make test-neural")
def test_the_part_on_networks_runs(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _run(PAGE.read_text().partition(NETWORKS)[2], names)
    assert names["distances"].shape == (80, 80)
