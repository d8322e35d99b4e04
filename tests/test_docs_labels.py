"""The code of the page on labels runs, block after block; its asserts are the test."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).resolve().parent.parent / "docs" / "labels.md"


def test_the_page_runs():
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) >= 9
    assert np.mean(names["scores"]) >= 0.8
