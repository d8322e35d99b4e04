"""The paper's figures are those of its tables."""

import re
from pathlib import Path

import pytest

from paper import published as paper

SOURCE = Path(__file__).parents[2].parent / "shared" / "paper" / "ggml-aistats2025.tex"


@pytest.fixture(scope="module")
def lines():
    if not SOURCE.exists():
        pytest.skip("the paper's source is not here")
    return SOURCE.read_text().splitlines()


def row(lines, start, occurrence=0):
    """Numbers of a table row that starts so."""
    table_row = [line for line in lines if line.strip().startswith(start) and "&" in line][occurrence]
    return [
        float(x)
        for x in re.findall(r"-?\d+\.\d+", re.sub(r"\\(multi|rotate)\w*(\[.*?\])?\{.*?\}\{.*?\}", "", table_row))
    ]


@pytest.mark.parametrize(
    ("name", "start"), [("Euclidean", "Eucl."), ("Cosine", "Cos."), ("ITML", "ITML"), ("GGML", "GGML")]
)
def test_accuracies(lines, name, start):
    numbers = row(lines, start)
    for data, at in (("Synth 2D", 0), ("Synth 200D", 2)):
        assert list(paper.CLASSIFICATION[data, "distributions"][name]) == numbers[at : at + 2]
        assert list(paper.CLASSIFICATION[data, "points"][name]) == numbers[at + 10 : at + 12]


@pytest.mark.parametrize("name", ["LFDA", "NCA", "GGML", "LMNN"])
@pytest.mark.parametrize(("level", "occurrence"), [("distributions", 1), ("points", 2)])
def test_clustering(lines, name, level, occurrence):
    numbers = row(lines, name, occurrence)
    assert list(paper.CLUSTERING["Synth 2D", level][name]) == numbers[:3]
    assert list(paper.CLUSTERING["Synth 200D", level][name]) == numbers[3:6]


def test_times(lines):
    assert list(paper.TIMING[3]) == row(lines, "3\t")
    assert list(paper.TIMING[9]) == row(lines, "9(all)")
