"""pertpy: the exact Wasserstein distance between groups of cells, under any ground metric."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal.validation import need
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ..transport import solve

need("pertpy", "its distances", "pertpy")

from pertpy.tools import Distance, DistanceTest  # noqa: E402
from pertpy.tools._distances._distances import AbstractDistance  # noqa: E402

__all__ = ["ExactWasserstein", "TransportDistance", "TransportDistanceTest"]

# pertpy selects distances by name only: this one loads nothing, and the distance is replaced.
_PLACEHOLDER = "edistance"


class ExactWasserstein(AbstractDistance):
    """Exact Wasserstein distance between two groups of cells, as a distance of pertpy.

    Parameters
    ----------
    metric : GroundMetric or str, default="euclidean"
        Distance between cells: a learned one, or the name of a distance of scikit-learn.
    **options : Any
        Options of `groundmetric.pairwise_distances`, e.g. ``solver="partial", share=0.9``.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.integrations.pertpy import ExactWasserstein
    >>> ExactWasserstein()(np.array([[0.0], [1.0]]), np.array([[5.0], [6.0]]))
    5.0
    """

    def __init__(self, metric: GroundMetric | str = "euclidean", **options: Any) -> None:
        super().__init__()
        self.ground_metric = metric
        self.options = options
        # pertpy would precompute its own distances between cells, not those of the ground metric.
        self.accepts_precomputed = False

    def __call__(self, X: Any, Y: Any, **options: Any) -> float:
        """Return the distance between two groups of cells (rows); `options` override those of the object."""
        first, second = (Distributions.from_arrays([cells], [name]) for cells, name in ((X, "X"), (Y, "Y")))
        return float(pairwise_distances(first, second, self.ground_metric, **{**self.options, **options})[0, 0])

    def from_precomputed(self, P: Any, idx: Any, **kwargs: Any) -> float:
        """Return the distance between two groups of cells from distances `P` between all cells.

        `idx` is the mask of the first group, and `kwargs` are arguments of `groundmetric.transport.solve`.
        """
        first = np.asarray(idx, dtype=bool)
        return float(solve(np.asarray(P)[np.ix_(first, ~first)], **kwargs).value)


class TransportDistance(Distance):
    """pertpy's `Distance` with the exact Wasserstein distance, between two groups of cells or all of an AnnData.

    Parameters
    ----------
    metric : GroundMetric or str, default="euclidean"
        Distance between cells. The columns of the cells must be its features, in their order.
    layer_key : str or None, default=None
        Entry of `layers` with the cells.
    obsm_key : str or None, default=None
        Entry of `obsm` with the cells; None, without `layer_key`: "X_pca". After `tl.learn`, "X_groundmetric" has the
        coordinates between which the learned metric is the Euclidean distance.
    **options : Any
        Options of `groundmetric.pairwise_distances`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> from groundmetric.integrations.pertpy import TransportDistance
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", random_state=0)
    >>> distance = TransportDistance(obsm_key="X_groundmetric")
    >>> table = distance.pairwise(adata, groupby="cell_type", show_progressbar=False)
    >>> table.shape, float(table.iloc[0, 0])
    ((5, 5), 0.0)
    """

    def __init__(
        self, metric: GroundMetric | str = "euclidean", *, layer_key: str | None = None, obsm_key: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(_PLACEHOLDER, layer_key=layer_key, obsm_key=obsm_key)
        self.metric = "exact wasserstein"
        self.metric_fct = ExactWasserstein(metric, **options)


class TransportDistanceTest(DistanceTest):
    """pertpy's permutation test of groups of cells against a control, by the exact Wasserstein distance.

    It permutes cells and thus does not test whether patients differ; `groundmetric.evaluation.permutation_test` does.

    Parameters
    ----------
    distance : TransportDistance
        The distance, with its entry of `obsm`; pertpy tests no layers by distances of this kind.
    n_perms : int, default=1000
        Number of permutations; pertpy draws them without a seed.
    **options : Any
        Further arguments of pertpy's `DistanceTest`, e.g. ``correction="fdr_bh"``.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from groundmetric.integrations.pertpy import TransportDistance, TransportDistanceTest
    >>> cells = np.random.RandomState(0).normal(np.repeat([0.0, 0.0, 5.0], 10), size=(2, 30)).T
    >>> adata = AnnData(cells, obs={"guide": np.repeat(["control", "none", "strong"], 10)}, obsm={"X_pca": cells})
    >>> test = TransportDistanceTest(TransportDistance(), n_perms=100)
    >>> table = test(adata, groupby="guide", contrast="control", show_progressbar=False)
    >>> bool(table.loc["strong", "significant_adj"])
    True
    """

    def __init__(self, distance: TransportDistance, n_perms: int = 1000, **options: Any) -> None:
        if not isinstance(distance, TransportDistance):
            raise TypeError(f"distance is {distance!r}: expected a TransportDistance, e.g. TransportDistance(metric)")
        if distance.obsm_key is None:
            remedy = "pertpy's test reads cells from obsm: copy the layer there, and give obsm_key"
            raise ValueError(f"distance has layer_key {distance.layer_key!r}, but {remedy}")
        super().__init__(_PLACEHOLDER, n_perms=n_perms, obsm_key=distance.obsm_key, **options)
        self.metric = distance.metric
        self.distance = distance

    def test_xy(self, adata: Any, groupby: str, contrast: str, show_progressbar: bool = True) -> Any:
        """Return a table of tests of all groups in the column `groupby` of ``adata.obs`` against the group `contrast`.

        As in pertpy, its columns are "distance", "pvalue", "significant", and the last two after correction ("_adj"). A
        progress bar is shown unless `show_progressbar` is False. The cells are those of `adata`.
        """
        # Before pertpy 1.3, groups have each other's p-values unless cells come in their order (its issue 1072).
        order = adata.obs[groupby].reset_index(drop=True).sort_values(kind="stable").index
        return super().test_xy(adata[order], groupby, contrast, show_progressbar)
