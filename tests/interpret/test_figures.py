"""Figures of flows and of stability."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import PathPatch, Rectangle

import groundmetric as gm
from groundmetric.interpret import Flow, Stability


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def flow():
    mass = np.array([[0.3, 0.1, 0.0], [0.0, 0.2, 0.0], [0.05, 0.0, 0.35]])
    cost = mass * [[1.0, 4.0, 1.0], [1.0, 2.0, 1.0], [9.0, 1.0, 0.5]]
    return Flow("ctrl", "$stim$", ["B", "T", "a kind with a very long name"], mass, cost, 4)


def result(n_refits=5, n_permutations=39):
    random = np.random.RandomState(0)
    importance = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    return Stability(
        features=[f"g{k}" for k in range(6)], importance=importance,
        refits=importance * random.uniform(0.8, 1.2, (n_refits, 6)), angles=np.zeros((n_refits, 1)),
        observed=importance, null=random.dirichlet(np.full(6, 50.0), n_permutations),
        null_angles=np.zeros((n_permutations, 1)), exchanged="distributions", partitions=462, epochs=10, n_top=2,
        confidence=0.9, seconds=1.0,
    )  # fmt: skip


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
    assert len([p for p in gm.pl.flow(flow, least=0.08).patches if isinstance(p, PathPatch)]) == 4


def test_marks_are_filled_where_q_is_small():
    ax = gm.pl.stability(result(), n=4)
    ax.figure.canvas.draw()
    found = result().discoveries.q[:4] < 0.05
    assert found.any()
    assert not found.all()
    sure, unsure = ax.lines
    np.testing.assert_allclose(sure.get_xdata(), 100 * result().importance[:4][found])
    assert unsure.get_markerfacecolor() == "white"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["g0", "g1", "g2", "g3"]


@pytest.mark.parametrize(("refits", "permutations"), [(0, 0), (3, 0), (0, 39)])
def test_parts_that_were_not_computed_are_left_out(refits, permutations):
    ax = gm.pl.stability(result(refits, permutations))
    ax.figure.canvas.draw()
    assert len(ax.collections) == (refits > 0) + (permutations > 0)


@pytest.mark.parametrize(
    "draw", [lambda flow, ax: gm.pl.flow(flow, ax), lambda flow, ax: gm.pl.stability(result(), ax)]
)
def test_figures_fit_on_given_axes(draw, flow):
    figure = plt.figure(figsize=(3.3, 2.6), layout="constrained")
    ax = figure.add_subplot()
    assert draw(flow, ax) is ax
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.x1 <= 3.31
