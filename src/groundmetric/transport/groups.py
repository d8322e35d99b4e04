"""Groups of points that lie close together, and the plan between groups as a first basis between their points.

Points are halved along their widest axis, the halves again, and so on (`halving_order`). Cuts fall on multiples of the
largest group that fits, so that every run of 8, of 64, of 512 … points is compact: the groups of every level are plain
ranges.

Nodes and bases are those of `trees`.
"""

from __future__ import annotations

import numpy as np

from .trees import hung_forest

GROUP = 8
# So few points are not grouped: nothing would be left of them.
FEW = 64


def group_size(n_points: int) -> int:
    return GROUP if n_points > FEW else 1


def halving_order(points: np.ndarray) -> np.ndarray:
    """The order itself: the points' places, one behind the other."""
    order, todo = np.arange(points.shape[0]), [(0, points.shape[0])]
    while todo:
        low, high = todo.pop()
        if high - low <= GROUP:
            continue
        unit = GROUP
        while unit * GROUP < high - low:
            unit *= GROUP
        piece = points[order[low:high]]
        widest = np.argmax(np.ptp(piece, axis=0))
        order[low:high] = order[low:high][np.argsort(piece[:, widest], kind="stable")]
        middle = low + unit * ((-(-(high - low) // unit) + 1) // 2)
        todo += [(low, middle), (middle, high)]
    return order


def grouped(points: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and masses of the groups of points that stand in `halving_order`."""
    size = group_size(units.size)
    starts = np.arange(0, units.size, size)
    sums = np.add.reduceat(units, starts)
    shares = units / np.repeat(sums, size)[: units.size]
    return np.add.reduceat(points * shares[:, None], starts, axis=0), sums


def refined_basis(
    parent: np.ndarray, flow: np.ndarray, a: np.ndarray, b: np.ndarray, n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """A basis for sources of mass a and sinks of mass b, and its flows, from those of their groups.

    `n_groups` is the number of groups of sources. What one group ships to another, its points ship in order. The arcs
    of a basis form a forest, and so do these: the shipments of one arc are a chain, and two chains share at most a
    point, where their arcs share a group.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    above, sent = parent[nodes], flow[nodes]
    is_source = nodes < n_groups
    # Units of mass are counted through all sources; at which of them each arc begins, and each source ends.
    sending, ends = _begins(np.where(is_source, nodes, above), sent), np.cumsum(a)
    receiving, their_ends = _begins(np.where(is_source, above, nodes), sent), np.cumsum(b)
    cut = _arc_before(receiving, their_ends)
    cuts = np.unique(np.concatenate([ends, sending + sent, their_ends - receiving[cut] + sending[cut]]))
    arc = _arc_before(sending, cuts)
    i = np.searchsorted(ends, cuts)
    j = a.size + np.searchsorted(their_ends, cuts - sending[arc] + receiving[arc])
    refined, flows = hung_forest(np.stack([i, j], axis=1), a.size, b.size), np.zeros(a.size + b.size + 1, np.int64)
    flows[np.where(refined[i] == j, i, j)] = np.diff(cuts, prepend=0)
    return refined, flows


def _begins(groups: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Where each arc's units begin, when those of a group come one behind the other, and so do the groups."""
    order = np.argsort(groups, kind="stable")
    begins = np.empty(sent.size, np.int64)
    begins[order] = np.cumsum(sent[order]) - sent[order]
    return begins


def _arc_before(begins: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The arc that each of these units, counted from 1, belongs to."""
    order = np.argsort(begins)
    return order[np.searchsorted(begins[order], units) - 1]
