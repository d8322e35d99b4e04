"""The spanning tree of the network simplex: built from parents, walked as a list, cut and hung anew.

See `simplex` for what its nodes and arcs are.
"""

from typing import NamedTuple

import numba
import numpy as np


class Tree(NamedTuple):
    """A rooted spanning tree with the flow on each node's arc to its parent.

    `next` and `previous` thread all nodes in an order in which every subtree is one piece: it begins with its top node
    and ends with that node's `last`. A walk over a subtree is then a walk along a list.
    """

    parent: np.ndarray  # (n + m + 1,) int32, like the others
    flow: np.ndarray  # int64
    size: np.ndarray  # number of nodes in the subtree
    next: np.ndarray  # -1 after the last node of all
    previous: np.ndarray
    last: np.ndarray


@numba.njit(nogil=True, cache=True)
def _thread(parent):
    """An order of the nodes in which every subtree is one piece, as a list; shorter if `parent` is not a tree."""
    size = parent.size
    child, sibling = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    for x in range(size):
        if parent[x] >= 0:
            sibling[x] = child[parent[x]]
            child[parent[x]] = x
    order, stack = np.empty(size, np.int32), np.empty(size, np.int32)
    count, top = 0, 1
    stack[0] = size - 1
    while top > 0:
        top -= 1
        order[count] = stack[top]
        x = child[order[count]]
        count += 1
        while x >= 0:
            stack[top] = x
            top += 1
            x = sibling[x]
    return order[:count]


@numba.njit(nogil=True, cache=True)
def plant(parent, flow, a, b):
    """The tree behind a parent array with the flows that the masses imply, and whether these are feasible."""
    n, root = a.size, parent.size - 1
    size, last = np.ones(root + 1, np.int32), np.arange(root + 1).astype(np.int32)
    following, previous = np.full(root + 1, -1, np.int32), np.full(root + 1, -1, np.int32)
    tree = Tree(parent, flow, size, following, previous, last)
    order = _thread(parent)
    if order.size <= root:
        return tree, False
    flow[:n] = a
    flow[n:root] = b
    flow[root] = 0
    feasible = True
    for k in range(root, 0, -1):  # children before their parents
        x, p = order[k], parent[order[k]]
        previous[x], following[order[k - 1]] = order[k - 1], x
        size[p] += size[x]
        if last[p] == p:
            last[p] = last[x]
        if p != root:
            flow[p] -= flow[x]
        feasible = feasible and flow[x] >= 0 and (p != root or flow[x] == 0)
    return tree, feasible


@numba.njit(nogil=True, cache=True)
def join_of(tree, x, y):
    """The lowest node above both x and y. The one with the smaller subtree cannot be above the other: move it up."""
    while x != y:
        if tree.size[x] < tree.size[y]:
            x = tree.parent[x]
        else:
            y = tree.parent[y]
    return x


@numba.njit(nogil=True, cache=True)
def push(tree, n, source, sink, meet, amount):
    """Send `amount` from source to sink and back through the tree."""
    x = source
    while x != meet:
        tree.flow[x] += -amount if x < n else amount
        x = tree.parent[x]
    x = sink
    while x != meet:
        tree.flow[x] += amount if x < n else -amount
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True)
def _resize(tree, x, meet, amount):
    """Add to the subtree sizes from x up to, but without, `meet`."""
    while x != meet:
        tree.size[x] += amount
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True)
def _new_end(tree, x, old, new):
    """Subtrees from x upwards that ended with the node `old` end with `new` from now on."""
    while x >= 0 and tree.last[x] == old:
        tree.last[x] = new
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True)
def _follow(tree, x, y):
    """Let y stand behind x in the list."""
    tree.next[x] = y
    if y >= 0:
        tree.previous[y] = x


@numba.njit(nogil=True, cache=True)
def _take_out(tree, x):
    """Take x's subtree out of the list; its piece then ends the list."""
    before, last = tree.previous[x], tree.last[x]
    _new_end(tree, tree.parent[x], last, before)
    _follow(tree, before, tree.next[last])
    tree.next[last] = -1


@numba.njit(nogil=True, cache=True)
def _turn(tree, x, parent, flow, leave):
    """Turn the path from x up to `leave` upside down, so that x becomes the top, below `parent`; returns the new end.

    In the list: x's piece comes first, then what is left of its old parent's piece, and so on up to `leave`.
    """
    moved = tree.size[leave]
    above, hung, end = parent, 0, -1  # hung: nodes that are off the path already; end: of the new piece so far
    inner_last, inner_before = -1, -1  # the end of the piece that was just taken out, and the node before it
    while True:
        old_parent, old_flow, old_size, old_last = tree.parent[x], tree.flow[x], tree.size[x], tree.last[x]
        before = tree.previous[x]
        last = inner_before if old_last == inner_last else old_last
        if x != leave:
            _follow(tree, before, tree.next[last])
        if end >= 0:
            _follow(tree, end, x)
        end = last
        tree.parent[x], tree.flow[x], tree.size[x] = above, flow, moved - hung
        if x == leave:
            break
        above, flow, hung, x = x, old_flow, old_size, old_parent
        inner_last, inner_before = old_last, before
    while x != parent:  # every subtree on the path now reaches to the end
        tree.last[x] = end
        x = tree.parent[x]
    return end


@numba.njit(nogil=True, cache=True)
def rehang(tree, x, parent, flow, leave, meet):
    """Cut the tree above `leave` and hang the part below by its node x under `parent`."""
    moved = tree.size[leave]
    _resize(tree, tree.parent[leave], meet, -moved)
    _resize(tree, parent, meet, moved)
    _take_out(tree, leave)
    end = _turn(tree, x, parent, flow, leave)
    _follow(tree, end, tree.next[parent])
    _follow(tree, parent, x)
    _new_end(tree, parent, parent, end)
