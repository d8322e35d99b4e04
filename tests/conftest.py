"""Settings of hypothesis, and a small cohort whose truth is known: two conditions differ by ten genes in one cell type.

Hypothesis runs without deadlines, and with fixed seeds in CI. It draws 50 examples per property; `make fuzz` draws many
more. GROUNDMETRIC_EXAMPLES=10 lowers the number for `make test-fast` and for slow builds with sanitizers.
"""

import os
import signal
import threading
import warnings

import pytest
from hypothesis import settings

import groundmetric as gm

_EXAMPLES = int(os.environ.get("GROUNDMETRIC_EXAMPLES", 50))
settings.register_profile("here", deadline=None, max_examples=_EXAMPLES)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=_EXAMPLES)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session")
def original():
    """Cells of the cohort; read only, tests that write use `cohort`."""
    adata = gm.datasets.make_cohort(
        5, 60, 150, cell_types={"Macrophage": 0.5, "T cell": 0.3, "B/plasma": 0.2}, n_markers=5, n_programme_genes=10,
        programme_strength=3.0, batch_strength=0.0, concentration=300.0, random_state=1,
    )  # fmt: skip
    del adata.uns["truth"]  # many small arrays, which take long to write
    return adata


@pytest.fixture
def cohort(original):
    return original.copy()


@pytest.fixture(scope="session")
def learned(original):
    """Cells after learning an ensemble; read only, tests that write use `trained`."""
    adata = original.copy()
    gm.tl.learn(adata, "sample", "condition", n_cells=40)
    return adata


@pytest.fixture(scope="session")
def learned_by_one(original):
    """Cells after learning a single metric; read only."""
    adata = original.copy()
    gm.tl.learn(adata, "sample", "condition", method="ggml", n_cells=40, max_epochs=40)
    return adata


@pytest.fixture
def trained(learned):
    return learned.copy()


@pytest.fixture(scope="session")
def halves(original):
    """Samples to learn from, and others, with six of ten samples in the first half."""
    labelled = original.obs["sample"].isin([f"S{k:02d}" for k in (1, 2, 3, 6, 7, 8)])
    train, new = original[labelled].copy(), original[~labelled].copy()
    gm.tl.learn(train, "sample", "condition", n_cells=40)
    return train, new


@pytest.fixture
def fewer_permutations(monkeypatch):
    """Permute labels 99 times for statistics of association instead of 999 times; p-values are valid for any number."""
    monkeypatch.setattr(gm.evaluation.permutation, "_MIN_ASSOCIATION_PERMUTATIONS", 99)


@pytest.fixture
def write_zarr():
    """anndata warns that its default of the format's version will change."""

    def write(adata, path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            adata.write_zarr(path)

    return write


# A shell that starts the tests in the background has Ctrl-C ignored, which programs inherit; tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
