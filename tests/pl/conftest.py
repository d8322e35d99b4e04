"""Figures are drawn without a screen, and closed after each test."""

import matplotlib as mpl

mpl.use("Agg")

import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.figure(figsize=(3.3, 2.6), layout="constrained").add_subplot()
