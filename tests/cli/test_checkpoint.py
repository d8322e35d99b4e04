"""`groundmetric learn --checkpoint`: a run that was stopped goes on to the same files."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric.learning.checkpoints import Checkpoints


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    cohort = gm.datasets.make_cohort(3, 20, 60, cell_types=["A"], n_markers=2, n_programme_genes=5, random_state=0)
    del cohort.uns["truth"]
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    options = ["--sample", "sample", "--label", "condition", "--epochs", "6"]
    command = ["learn", str(tmp_path / "cells.h5ad"), *options, "-o"]
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
