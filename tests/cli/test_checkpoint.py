"""`groundmetric learn --checkpoint`: an interrupted run continues to the same files."""

import json
import os
import signal
import warnings

import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric.learning.checkpoint import Checkpoints
from groundmetric.learning.training import Training


def learn(folder):
    """The command for a small cohort."""
    cohort = gm.datasets.make_cohort(3, 20, 60, cell_types=["A"], n_markers=2, n_programme_genes=5, random_state=0)
    del cohort.uns["truth"]
    cohort.write_h5ad(folder / "cells.h5ad")
    return ["learn", str(folder / "cells.h5ad"), "--sample", "sample", "--label", "condition", "--method", "ggml"]


@pytest.mark.parametrize("more", [[], ["--resample", "--cells-per-sample", "10"]], ids=["once", "resample"])
def test_an_interrupted_run_continues(tmp_path, more):
    command = [*learn(tmp_path), "--epochs", "6", *more, "-o"]
    assert cli.main([*command, str(tmp_path / "whole")]) == 0
    complete = gm.GroundMetric.load(tmp_path / "whole" / "metric.gm").components

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
    np.testing.assert_array_equal(gm.GroundMetric.load(tmp_path / "run" / "metric.gm").components, complete)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["params"].get("resample", False) == bool(more)


def test_all_cells_cannot_be_drawn_again(tmp_path, capsys):
    command = [*learn(tmp_path), "-o", str(tmp_path / "run")]
    assert cli.main([*command, "--resample", "--cells-per-sample", "all"]) == 2
    assert "--cells-per-sample is None" in capsys.readouterr().err


def with_signal(command, number, after):
    """The exit code of a command that gets a signal in the midst of a step of learning."""
    inner, count = Training.step, [0]

    def step(self):
        count[0] += 1
        if count[0] == after:
            os.kill(os.getpid(), number)
        return inner(self)

    before = signal.getsignal(number)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")  # as for those who type it: the command shows it as a line
        patch.setattr(Training, "step", step)
        code = cli.main(command)
    assert signal.getsignal(number) is before
    return code


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_an_interrupted_run_says_so_and_continues_from_its_checkpoint(tmp_path, capsys, number, code, word):
    command = [*learn(tmp_path), "--epochs", "6", "-o"]
    assert cli.main([*command, str(tmp_path / "whole")]) == 0
    command += [str(tmp_path / "run")]
    assert with_signal(command, number, after=4) == code
    findings = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (findings["interrupted"], findings["converged"], findings["epochs"] < 6) == (True, False, True)
    printed = capsys.readouterr()
    assert f"groundmetric learn: {word} after {findings['epochs']} of 6 epochs" in printed.err
    assert f"{findings['epochs']} epochs (interrupted)" in printed.out
    assert sorted(os.listdir(tmp_path)) == ["cells.h5ad", "run", "whole"]

    command += ["--replace", "--checkpoint", str(tmp_path / "state")]
    assert with_signal(command, number, after=4) == code
    assert "the same command with --replace continues from there" in capsys.readouterr().err
    assert (tmp_path / "state").exists()
    assert cli.main(command) == 0
    assert not json.loads((tmp_path / "run" / "run.json").read_text())["interrupted"]
    uninterrupted, continued = (
        gm.GroundMetric.load(tmp_path / name / "metric.gm").components for name in ("whole", "run")
    )
    np.testing.assert_array_equal(uninterrupted, continued)


def test_an_interrupted_ensemble_ends_at_once_and_leaves_nothing(tmp_path, capsys):
    command = [*learn(tmp_path)[:-1], "ensemble", "-o", str(tmp_path / "run")]
    assert with_signal(command, signal.SIGINT, after=1) == 130
    assert "interrupted before all members of the ensemble had learned" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cells.h5ad"]


def test_interrupted_before_the_first_epoch_there_is_no_run_and_nothing_is_left(tmp_path, capsys):
    command = [*learn(tmp_path), "--epochs", "6", "-o", str(tmp_path / "run")]
    assert with_signal(command, signal.SIGTERM, after=1) == 143
    assert "terminated before the end of the first epoch" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["cells.h5ad"]


def test_a_checkpoint_does_not_replace_the_input_and_may_be_in_the_output(tmp_path, capsys):
    command = [*learn(tmp_path), "--epochs", "2", "-o", str(tmp_path / "run"), "--checkpoint"]
    before = (tmp_path / "cells.h5ad").read_bytes()
    assert cli.main([*command, str(tmp_path / "cells.h5ad")]) == 2
    assert "cells.h5ad' exists and is not a groundmetric checkpoint" in capsys.readouterr().err
    assert (tmp_path / "cells.h5ad").read_bytes() == before
    for _ in range(2):
        assert cli.main([*command, str(tmp_path / "run" / "state"), "--replace"]) == 0
        assert {"state", "run.json"} <= set(os.listdir(tmp_path / "run"))


def test_the_input_is_not_replaced(tmp_path, capsys):
    command = [*learn(tmp_path), "--epochs", "2", "-o", str(tmp_path / "run")]
    assert cli.main(command) == 0
    command[1] = str(tmp_path / "run" / "cells.h5ad")
    assert cli.main([*command, "--replace"]) == 2
    assert "which is read: give another folder" in capsys.readouterr().err
