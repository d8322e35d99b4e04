"""The examples of the README run as they stand, and give what they say."""

import re
from pathlib import Path

import numpy as np

import groundmetric as gm

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(block, names)
    assert names["learner"].metric_.importance().argmax() == 0
    assert names["search"].best_score_ > 0.9
    assert np.isclose(names["u"].mean() + names["v"].mean(), gm.transport.solve(names["cost"]).value)
    assert (tmp_path / "disease.gm").exists()
