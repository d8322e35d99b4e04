"""`groundmetric learn --checkpoint`: a run that was stopped goes on to the same files."""

import json

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric.learning.checkpoints import Checkpoints


def learn(folder):
    """The command for a small cohort."""
    cohort = gm.datasets.make_cohort(3, 20, 60, cell_types=["A"], n_markers=2, n_programme_genes=5, random_state=0)
    del cohort.uns["truth"]
    cohort.write_h5ad(folder / "cells.h5ad")
    return ["learn", str(folder / "cells.h5ad"), "--sample", "sample", "--label", "condition"]


@pytest.mark.parametrize("more", [[], ["--resample", "--cells-per-sample", "10"]], ids=["once", "resample"])
def test_a_stopped_run_goes_on(tmp_path, more):
    command = [*learn(tmp_path), "--epochs", "6", *more, "-o"]
    assert cli.main([*command, str(tmp_path / "whole")]) == 0
    whole = gm.GroundMetric.load(tmp_path / "whole" / "metric.gm").components

    inner, checkpoint, count = Checkpoints.write, str(tmp_path / "state"), [0]

    def write(self, state):
        inner(self, state)
        count[0] += 1
        if count[0] == 2:
            raise SystemError("the power is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "is_due", lambda self: True)
        patch.setattr(Checkpoints, "write", write)
        with pytest.raises(SystemError):
            cli.main([*command, str(tmp_path / "run"), "--checkpoint", checkpoint, "--debug"])
    assert not (tmp_path / "run").exists()
    assert cli.main([*command, str(tmp_path / "run"), "--checkpoint", checkpoint]) == 0
    np.testing.assert_array_equal(gm.GroundMetric.load(tmp_path / "run" / "metric.gm").components, whole)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["params"].get("resample", False) == bool(more)


def test_all_cells_cannot_be_drawn_again(tmp_path, capsys):
    command = [*learn(tmp_path), "-o", str(tmp_path / "run")]
    assert cli.main([*command, "--resample", "--cells-per-sample", "all"]) == 2
    assert "--cells-per-sample is None" in capsys.readouterr().err
