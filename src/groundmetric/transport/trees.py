"""Spanning trees as arrays of parents: the flows that masses imply, and trees from lists of arcs.

Nodes are those of the C++ core (`_core/tree.hpp`): sources, then sinks, then the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import _core

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Parent of the root.
NO_PARENT = -1


def tree_flows(parent: np.ndarray, mass: np.ndarray) -> np.ndarray | None:
    """Return the flow of each node's arc to its parent at these masses, of any sign; None if `parent` is no tree."""
    flow = mass.copy()
    return flow if _core.fill_tree_flows(parent, flow) else None


def planted_flows(parent: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Return the flows that integer masses imply; None if they are not feasible."""
    flow = tree_flows(parent, np.concatenate([a, b, [0]]))
    if flow is None or (flow < 0).any() or flow[:-1][parent[:-1] == parent.size - 1].any():
        return None
    return flow


def hung_forest(arcs: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return the parents of all nodes; each tree of a forest of arcs (source, sink) hangs from the root by a source."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components  # slow to import

    root = n + m
    _, tree = connected_components(_graph(arcs, root + 1), directed=False)
    _, tops = np.unique(tree[:n], return_index=True)  # the first source of each tree
    hung = np.concatenate([arcs, np.stack([np.full(tops.size, root), tops], axis=1)])
    parent = breadth_first_order(_graph(hung, root + 1), root, directed=False)[1].astype(np.int32)
    parent[root] = NO_PARENT
    return parent


def _graph(arcs: np.ndarray, n_nodes: int) -> csr_array:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(arcs), np.int8), (arcs[:, 0], arcs[:, 1])), shape=(n_nodes, n_nodes))
