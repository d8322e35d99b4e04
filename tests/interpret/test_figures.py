"""Figures of flows."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import PathPatch, Rectangle

import groundmetric as gm
from groundmetric.interpret import Flow


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def flow():
    mass = np.array([[0.3, 0.1, 0.0], [0.0, 0.2, 0.0], [0.05, 0.0, 0.35]])
    cost = mass * [[1.0, 4.0, 1.0], [1.0, 2.0, 1.0], [9.0, 1.0, 0.5]]
    return Flow("ctrl", "$stim$", ["B", "T", "a kind with a very long name"], mass, cost, 4)


def test_a_band_for_all_mass_that_moves_as_wide_as_it_is(flow):
    ax = gm.pl.flow(flow)
    ax.figure.canvas.draw()
    bands = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    assert len(bands) == np.count_nonzero(flow.mass)
    widths = [np.ptp(band.get_path().vertices[[0, 7], 1]) for band in bands]
    np.testing.assert_allclose(widths, flow.mass[flow.mass > 0])
    bars = [patch.get_height() for patch in ax.patches if isinstance(patch, Rectangle)]
    np.testing.assert_allclose(bars, [*flow.mass.sum(axis=1), *flow.mass.sum(axis=0)])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["ctrl", "$stim$"]
    assert len({band.get_facecolor() for band in bands}) == len(bands)


def test_a_flow_fits_on_given_axes(flow):
    figure = plt.figure(figsize=(3.8, 2.6), layout="constrained")
    ax = figure.add_subplot()
    assert gm.pl.flow(flow, ax=ax) is ax
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.x1 <= 3.81
