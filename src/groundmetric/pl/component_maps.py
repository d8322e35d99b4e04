"""What the components of a metric are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..point_distances import Cost
from .geometry import with_sign
from .style import axes, row_size, short
from .tables import entry, gene_names, is_anndata, metric_of

_ROW = 0.105  # inches for a feature


def components(
    metric: Any, ax: Axes | None = None, *, n: int = 20, gene_symbols: str | None = None, key: str = "groundmetric"
) -> Axes:
    """The weights of the `n` most important features in each component, in units of the features' spread.

    Rotating the components leaves the metric as it is, so that they are turned onto their principal axes first: the
    first component accounts for as much of the importance as one can (its share is given below it), and so on. With
    Manhattan costs a rotation is another metric: then they are shown as they were learned, the strongest first.

    Parameters
    ----------
    metric : a GroundMetric or a learner, or AnnData with `varm["<key>_components"]` and `var["<key>_importance"]`
    gene_symbols : for AnnData, the column of `var` with the names to show
    """
    weights, names, may_turn = _weights(metric, gene_symbols, key)
    turned, shares = principal_components(weights) if may_turn else _by_strength(weights)
    top = np.argsort(-np.sum(weights**2, axis=0), kind="stable")[:n]
    with axes(ax, 0.5 + _ROW * top.size) as ax:
        limit = np.abs(turned[:, top]).max() or 1.0
        image = ax.imshow(turned[:, top].T, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="none")
        letters = np.clip(0.75 * row_size(ax, top.size), 3.0, 7.0)
        ax.set_yticks(np.arange(top.size), [short(names[f], 28) for f in top], parse_math=False, fontsize=letters)
        ax.set_xticks(np.arange(len(shares)), [f"{k}\n{share:.0%}" for k, share in enumerate(shares, 1)])
        ax.set(xlabel="component (share of the importance)")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        bar = ax.figure.colorbar(image, ax=ax, label="weight × spread", pad=0.03)
        bar.outline.set_visible(False)  # type: ignore[operator]
    return ax


def principal_components(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components turned onto their principal axes, and the share of the squared weights of each.

    >>> turned, shares = principal_components(np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]))
    >>> turned.round(3).tolist(), shares.round(3).tolist()
    ([[0.0, 2.449], [1.414, 0.0]], [0.75, 0.25])
    """
    _, sizes, axes = np.linalg.svd(weights, full_matrices=False)
    kept = sizes > 1e-9 * (sizes[0] or 1.0)
    kept[0] = True
    shares = sizes**2 / (np.sum(sizes**2) or 1.0)
    return (with_sign(axes.T).T * sizes[:, None])[kept], shares[kept]


def _by_strength(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The components as they are, and the share of the squared weights of each."""
    sizes = np.sum(weights**2, axis=1)
    order = np.argsort(-sizes, kind="stable")
    return weights[order], sizes[order] / (sizes.sum() or 1.0)


def _weights(source: Any, gene_symbols: str | None, key: str) -> tuple[np.ndarray, list[str], bool]:
    """Components for features of equal spread, (n_components, n_features): their squares sum to the importance.

    And the features' names, and whether a rotation of the components is the same metric.
    """
    may_turn = True
    if is_anndata(source):
        bare = np.asarray(entry(source, "varm", f"{key}_components"), dtype=float).T
        importance = np.asarray(entry(source, "var", f"{key}_importance"), dtype=float)
        names = gene_names(source, gene_symbols)
    else:
        metric = metric_of(source)
        bare, importance, may_turn = metric.components, metric.importance(), metric.cost is not Cost.MANHATTAN
        names = metric.features or [f"feature {k}" for k in range(metric.n_features)]
    lengths = np.sqrt(np.sum(bare**2, axis=0))
    scale = np.divide(np.sqrt(importance), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return bare * scale, names, may_turn
