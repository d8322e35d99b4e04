"""Resampling: new cells are drawn in every epoch, with reproducible results."""

import contextlib
import sys

import numpy as np
import pytest

import groundmetric as gm
from groundmetric._anndata.cohort import draw, samples_of
from groundmetric._anndata.source import read
from groundmetric._internal.validation import ParameterError
from groundmetric.learning import Checkpoint, EarlyStopping, Nearest
from groundmetric.learning.checkpoint import Checkpoints

OPTIONS = {
    "sample_key": "sample", "label_key": "condition", "method": "ggml", "max_epochs": 6,
    "stopping": EarlyStopping(tol=0.0),
}  # fmt: skip


def learn(cells, **options):
    """Return components and history."""
    part = gm.tl.learn(cells.copy() if hasattr(cells, "obs") else cells, **{**OPTIONS, **options})
    return gm.get.metric(part).components, part.uns["groundmetric"]["history"]


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_where_all_cells_are_drawn_fresh_ones_are_the_same(cohort):
    expected, history = learn(cohort, n_cells=10_000)
    components, repeated = learn(cohort, n_cells=10_000, resample=True)
    np.testing.assert_allclose(components, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(repeated["loss"], history["loss"], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_every_epoch_reads_other_cells_of_every_sample(cohort, monkeypatch):
    asked = []

    def spy(matrix, rows, columns=None):
        asked.append(rows)
        return read(matrix, rows, columns)

    monkeypatch.setattr(sys.modules["groundmetric.tl.learn"], "read", spy)
    gm.tl.learn(cohort, **OPTIONS, n_cells=20, resample=True)
    assert len(asked) == OPTIONS["max_epochs"]
    assert len({rows.tobytes() for rows in asked}) == OPTIONS["max_epochs"]
    codes = samples_of(cohort.obs, "sample").codes
    for rows in asked:
        assert np.all(np.diff(rows) > 0)
        assert np.all(np.bincount(codes[rows]) == 20)
    assert np.array_equal(np.flatnonzero(cohort.obs["groundmetric_sampled"]), asked[0])
    assert cohort.uns["groundmetric"]["params"]["resample"]


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_the_same_seed_gives_the_same_metric_from_memory_and_from_a_file(cohort, tmp_path):
    del cohort.layers["counts"]
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    expected, _ = learn(cohort, n_cells=20, resample=True)
    components, _ = learn(tmp_path / "cells.h5ad", n_cells=20, resample=True)
    np.testing.assert_array_equal(components, expected)
    second, _ = learn(cohort, n_cells=20)
    assert np.abs(second - expected).max() > 1e-3


def test_the_genes_that_tell_the_conditions_apart_are_found(cohort):
    gm.tl.learn(cohort, "sample", "condition", method="ggml", n_cells=20, max_epochs=40, resample=True)
    top = cohort.var["groundmetric_importance"].nlargest(10).index
    assert sum(name.startswith("PROG") for name in top) >= 5  # by chance: one


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_samples_without_a_label_are_projected(cohort):
    missing = cohort.obs["sample"].isin(["S01"])
    cohort.obs["condition"] = cohort.obs["condition"].astype(object).mask(missing)
    with pytest.warns(UserWarning, match="without a label"):
        gm.tl.learn(cohort, **OPTIONS, n_cells=20, resample=True)
    assert cohort.obsm["X_groundmetric"].shape[0] == cohort.n_obs


def test_all_cells_cannot_be_resampled(cohort):
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, **OPTIONS, n_cells=None, resample=True)
    assert (caught.value.parameter, caught.value.value) == ("n_cells", None)


FRESH = {"n_cells": 12, "resample": True, "max_epochs": 3, "batch_size": 16}


class Stopped(Exception):
    """A simulated power cut."""


def stopped_after(n_writes, cells, **options):
    """Learn up to a power cut after `n_writes` checkpoints; return the number of written checkpoints."""
    inner, count = Checkpoints.write, [0]

    def write(self, state):
        inner(self, state)
        count[0] += 1
        if count[0] == n_writes:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stopped):
        patch.setattr(Checkpoints, "write", write)
        learn(cells, **{**FRESH, **options})
    return count[0]


def assert_same(first_result, second):
    np.testing.assert_array_equal(first_result[0], second[0])
    for name, values in first_result[1].items():
        if not name.startswith("seconds"):
            np.testing.assert_array_equal(values, second[1][name])


@pytest.mark.filterwarnings("ignore:.*max_epochs")
@pytest.mark.filterwarnings("ignore:.*stratum")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neighbors": Nearest(refresh=1)},
        {"stopping": EarlyStopping(tol=0.0, validation_fraction=0.3), "batch_key": "batch", "batch_size": 10},
    ],
    ids=["plain", "nearest", "validation, batches"],
)
def test_an_interrupted_run_continues_to_the_same_result(cohort, tmp_path, options):
    cohort.obs["batch"] = cohort.obs["sample"].cat.codes.to_numpy() // 2 % 2
    complete = learn(cohort, **{**FRESH, **options})
    n_writes = stopped_after(-1, cohort, **options, checkpoint=Checkpoint(tmp_path / "whole", every=0.0))
    assert n_writes > FRESH["max_epochs"]  # within epochs, too
    for stop in range(1, n_writes + 1, 1 if not options else 5):
        state = tmp_path / str(stop)
        assert stopped_after(stop, cohort, **options, checkpoint=Checkpoint(state, every=0.0)) == stop
        assert_same(learn(cohort, **{**FRESH, **options}, checkpoint=Checkpoint(state, every=0.0)), complete)


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_a_state_of_other_cells_is_refused(cohort, tmp_path):
    """Also if the first draw, by which data are recognised, is the same."""
    stop = stopped_after(-1, cohort, checkpoint=Checkpoint(tmp_path / "whole", every=0.0)) - 1
    assert stopped_after(stop, cohort, checkpoint=Checkpoint(tmp_path / "state", every=0.0)) == stop
    for options in ({"resample": False}, {"n_cells": 11}):
        with pytest.raises(ValueError, match="checkpoint of other"):
            learn(cohort, **{**FRESH, **options}, checkpoint=Checkpoint(tmp_path / "state", every=0.0))
    samples = samples_of(cohort.obs, "sample")
    late = np.setdiff1d(draw(samples, 12, 0, FRESH["max_epochs"] - 1), draw(samples, 12, 0))
    changed = cohort.copy()
    factor = np.where(np.isin(np.arange(cohort.n_obs), late), 1.5, 1.0).astype(np.float32)
    changed.X = changed.X.multiply(factor[:, None]).tocsr()
    with pytest.raises(ValueError, match="after 2 epochs are not those of the checkpoint"):
        learn(changed, **FRESH, checkpoint=Checkpoint(tmp_path / "state", every=0.0))


def test_a_draw_depends_on_the_turn(cohort):
    samples = samples_of(cohort.obs, "sample")
    first, second = draw(samples, 20, 0), draw(samples, 20, 0, 1)
    assert np.array_equal(first, draw(samples, 20, 0, 0))
    assert not np.array_equal(first, second)
    assert not np.array_equal(draw(samples, 20, 0, 2), second)


def test_fresh_distributions_must_be_the_same_ones():
    D, y = gm.datasets.synth_2d(random_state=0)
    learner = gm.GroundMetricLearner(max_epochs=2, random_state=0)
    with pytest.raises(ValueError, match="in their order"):
        learner.fit(D, y, fresh=lambda epoch: D[::-1])
    with pytest.raises(TypeError, match="expected a function"):
        learner.fit(D, y, fresh=D)
    with pytest.raises(ValueError, match="X are points"):
        learner.fit(D.points, np.arange(len(D.points)) % 2, fresh=lambda epoch: D)
