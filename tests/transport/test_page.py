"""The code of docs/transport.md runs, block after block, and prints the output in the text."""

import re
from pathlib import Path

import groundmetric as gm
from groundmetric.transport.solvers.exact import SOLVERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transport.md"


def test_the_page_runs_and_does_what_it_says():
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    assert names["robust"].value < names["broken"].value / 10
    assert 0.9 < names["moved"] < 1.0
    assert names["low"] <= names["exact"][0, 1] <= names["high"]
    assert names["picked"] == gm.transport.Exact()
    assert isinstance(names["details"].solver, gm.transport.Coarse)
    assert names["quick"].importance()[0] > 0.9
    documented = set(re.findall(r'^\| `"(\w+)"` \|', PAGE.read_text(), re.MULTILINE))
    assert documented == set(SOLVERS)
