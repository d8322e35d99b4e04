"""How many files a verb runs through: `python tests/test_paths.py` prints the path that CONTRIBUTING.md shows.

A file counts when a Python function of it runs during the call; the C++ core is not followed.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import groundmetric as gm
from groundmetric.report.results import Run

SOURCE = Path(gm.__file__).parent
# A newcomer who follows a verb should not need more.
LIMITS = {
    "fit": 13,
    "distances": 8,
    "learn one metric from a file": 18,
    "learn an ensemble from a file": 24,
    "report": 19,
    "report with baselines and tests": 40,
}


def files_of(call: Callable[[], Any]) -> list[str]:
    """Files of the package whose functions run during a call, in the order of their first run.

    The call is made twice, and the first call is not counted: imports are not part of the path.
    """
    call()
    files: dict[str, None] = {}
    prefix = f"{SOURCE}/"

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(prefix) and code.co_filename.endswith(".py")  # not a template
        if event == "call" and ours and code.co_name != "<module>":
            files.setdefault(code.co_filename.removeprefix(prefix))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(files)


def verbs(folder: Path) -> dict[str, Callable[[], Any]]:
    """The calls that are followed."""
    D, y = gm.datasets.make_modes(9, 1.0, points_per_mode=5, random_state=0)
    metric = gm.GroundMetric.euclidean(10)
    path = folder / "cells.h5ad"
    gm.datasets.make_cohort(4, 20, 150, random_state=0).write_h5ad(path)
    # Looked up here: the `__getattr__` of `gm` is not part of the path.
    learner, distances, learn = gm.GroundMetricLearner, gm.pairwise_distances, gm.tl.learn
    cells = gm.datasets.make_cohort(4, 20, 150, random_state=0)
    learn(cells, "sample", "condition", max_epochs=2, n_members=2, random_state=0)
    run, write = Run(cells, gm.tl.samples(cells), cells, {}), gm.report.write
    return {
        "report": lambda: write(run, folder / "report.html", evaluation=False),
        "report with baselines and tests": lambda: write(run, folder / "report.html", permutations=3),
        "fit": lambda: learner(max_epochs=2, random_state=0).fit(D, y),
        "distances": lambda: distances(D, metric=metric),
        "learn one metric from a file": lambda: learn(
            path, "sample", "condition", method="ggml", max_epochs=2, random_state=0
        ),
        "learn an ensemble from a file": lambda: learn(
            path, "sample", "condition", max_epochs=2, n_members=2, random_state=0
        ),
    }


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verbs(tmp_path_factory.mktemp("paths"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fewer_permutations")
@pytest.mark.parametrize("verb", LIMITS)
def test_a_verb_runs_through_few_files(verb, calls):
    files = files_of(calls[verb])
    assert files, "no file of the package ran: the profile is not set"
    assert len(files) <= LIMITS[verb], f"{len(files)} files:\n" + "\n".join(files)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for verb, call in verbs(Path(folder)).items():
            files = files_of(call)
            path = textwrap.fill(" → ".join(files), 116, initial_indent="  ", subsequent_indent="  ")
            print(f"{verb}: {len(files)} files\n{path}")
