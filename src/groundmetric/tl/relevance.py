"""tl.cell_relevance: relevance of cells for the classes, by transport plans."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd

from .._anndata.cohort import find_column, samples_of
from .._anndata.source import Source, check_anndata
from .._anndata.store import drawn_cells, read_entry
from .._internal.validation import check_number
from ..interpret.flows import partners, travel_of_cells


def cell_relevance(
    adata: ad.AnnData,
    *,
    cell_type_key: str | None = None,
    max_partners: int = 10,
    key: str = "groundmetric",
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> None:
    """Compute the relevance of each cell for the difference between the classes.

    Relevance is the mean distance of the cell's mass to samples of other classes minus that to samples of its own
    class, by optimal transport plans under the learned metric. The mean over the cells of a sample is the sample's
    distance to other classes minus that to its own class. It describes the training samples and does not test the
    metric; `interpret.annotation_relevance` is also out-of-bag. Numbers as labels are divided into two halves.

    Parameters
    ----------
    adata : AnnData
        Cells in memory, after `tl.learn`; the results are added to its `obs`.
    cell_type_key : str or None, default=None
        Column of `obs` with the type of each cell: cells are matched to cells of their type as far as masses allow, as
        in reports. None: cells are matched to cells of any type, and part of the cost of changed cells appears in
        unchanged cells that are matched to them.
    max_partners : int, default=10
        Maximum number of random samples of each class that a sample is compared with.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    random_state : int, default=0
        Seed of the draw of partners.
    n_jobs, verbose : as in `tl.samples`
        Number of threads, and whether to show a progress bar.

    Notes
    -----
    Results, with "groundmetric" for `key`; missing for cells that were not drawn, and for samples without a label or
    alone in their class:

    - ``obs["groundmetric_relevance"]``: relevance, in units of the mean distance between samples of different classes
    - ``obs["groundmetric_between"]``, ``obs["groundmetric_within"]``: mean distance of the cell's mass to samples of
      other classes and of its own class, in units of the metric

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> gm.tl.cell_relevance(adata)
    >>> relevance, active = adata.obs["groundmetric_relevance"], adata.obs["programme"]
    >>> bool(relevance[active].mean() > relevance[~active].mean())
    True
    """
    check_anndata(adata)
    check_number("max_partners", max_partners, low=1, whole=True)
    table = relevance_by_plans(adata, key, max_partners, random_state, n_jobs, None, cell_type_key, verbose)
    for name, values in table.items():
        adata.obs[f"{key}_{name}"] = values


def halves(numbers: pd.Series) -> pd.Series:
    """Return "lower" or "upper" for each number; "upper" is above the median, or the median if it is the maximum."""
    upper = numbers > numbers.median()
    return pd.Series(np.where(upper if upper.any() else numbers >= numbers.median(), "upper", "lower"), numbers.index)


def relevance_by_plans(
    adata: ad.AnnData,
    key: str,
    max_partners: int,
    seed: int,
    n_jobs: int | None,
    labels: pd.Series | None = None,
    cell_type_key: str | None = None,
    verbose: int = 0,
) -> pd.DataFrame:
    """Return relevance and travelled distances of each cell; `labels` replace those of the training samples."""
    with Source(adata) as source:
        entry = source.uns_entry(key)
        stored = read_entry(entry, key, "adata")
        samples = samples_of(source.obs, stored.params["sample_key"])
        labelled = [name for name in samples.names if name in stored.labels.index]
        cells = drawn_cells(source, samples, key, only=labelled)
        drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool) & samples.contains(labelled)
        types = None if cell_type_key is None else find_column(source.obs, cell_type_key, "cell_type_key")
    # Cells without a type have the code -1, as if they were of one type.
    type_codes = None if types is None else pd.factorize(types)[0][drawn][cells.order]
    if labels is None:
        is_numbers = entry["learner"].get("target") == "ordered" and stored.labels.dtype.kind in "biuf"
        labels = halves(stored.labels) if is_numbers else stored.labels
    codes = np.unique(labels.loc[cells.names].to_numpy(), return_inverse=True)[1]
    pairs = partners(codes, max_partners, np.random.default_rng(seed))
    travel = travel_of_cells(cells, codes, pairs, type_codes, n_jobs, verbose)
    between, within = travel.between, travel.within
    table = pd.DataFrame(index=adata.obs_names, columns=["relevance", "between", "within"], dtype=np.float64)
    rows = np.flatnonzero(drawn)[cells.order]
    table.iloc[rows] = np.column_stack([(between - within) / travel.unit, between, within])
    return table
