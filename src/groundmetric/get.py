"""Results in an AnnData, in the style of scanpy: the metric, and tables of genes and of distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._anndata.source import Source
from ._anndata.store import EnsembleResults, read_entry
from ._internal.types import CellsLike
from .metrics import GroundMetric

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["distances", "importance", "metric"]


def __dir__() -> list[str]:
    return __all__


def metric(adata: CellsLike, *, key: str = "groundmetric") -> GroundMetric:
    """Return the metric that `tl.learn` stored in `uns`.

    Parameters
    ----------
    adata : AnnData or path
        After `tl.learn` or `tl.transfer`, or the path of its .h5ad file.
    key : str
        The `key_added` of `tl.learn`.

    Returns
    -------
    GroundMetric
        The metric with the names of its genes, even if genes of `adata` were dropped or reordered.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> gm.get.metric(adata).n_components
    2
    """
    with Source(adata) as source:
        return read_entry(source.uns_entry(key), key, "adata").metric


def importance(adata: CellsLike, *, key: str = "groundmetric") -> pd.DataFrame:
    """Return a table of the genes of the metric, the most important first.

    Parameters
    ----------
    adata, key : as in `get.metric`
        Cells with a metric, and the `key_added` of `tl.learn`.

    Returns
    -------
    DataFrame
        A row per gene (with `use_rep`: per dimension). Column "importance": importances, summing to 1. For an
        ensemble also "low" and "high", bounds that include the importance and 95% of the members; and "selected", the
        share of members in which the gene is among the 20 most important.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", random_state=0)
    >>> table = gm.get.importance(adata)
    >>> table.index[0][:4], float(table["importance"].sum().round(6))
    ('PROG', 1.0)
    """
    import pandas as pd

    with Source(adata) as source:
        entry = source.uns_entry(key)
        learned = read_entry(entry, key, "adata").metric
    columns = {"importance": learned.importance()}
    results = EnsembleResults.read(entry)
    if results is not None:
        columns |= {"low": results.interval[0], "high": results.interval[1], "selected": results.selected}
    table = pd.DataFrame(columns, index=pd.Index(learned.features, name="gene"))
    return table.sort_values("importance", ascending=False, kind="stable")


def distances(samples: CellsLike, *, key: str = "groundmetric") -> pd.DataFrame:
    """Return a table of the distances between samples.

    Parameters
    ----------
    samples : AnnData or path
        From `tl.samples` or `tl.transfer`, or the path of its .h5ad file.
    key : str
        The `key_added` of `tl.learn`.

    Returns
    -------
    DataFrame
        A copy, with a row per sample and a column per sample (`tl.samples`) or training sample (`tl.transfer`).

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", random_state=0)
    >>> table = gm.get.distances(gm.tl.samples(adata))
    >>> table.shape, float(table.loc["S01", "S01"])
    ((8, 8), 0.0)
    """
    import pandas as pd

    with Source(samples) as source:
        if not source.has_representation(f"X_{key}_distances"):
            remedy = "give the AnnData of tl.samples or tl.transfer, and the key_added of tl.learn as key"
            raise ValueError(f"obsm lacks {f'X_{key}_distances'!r}: {remedy}")
        values = np.array(source.representation(f"X_{key}_distances")[:])
        columns = source.uns_entry(key).get("training_samples")
        rows = source.obs.index
    return pd.DataFrame(values, rows, rows if columns is None else pd.Index([str(name) for name in columns]))
