"""The spanning tree of the network simplex: threaded, cut and rehung.

See `simplex` for what its nodes and arcs are, `forest` for first trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .compiled import behind, glued, inner, shared

# The node above the root and behind the last one.
NOBODY = -1
# Arrays of room, a number for every node, that a tree needs beside parents and flows.
TREE_ROOM = 6


class Tree(NamedTuple):
    """A rooted spanning tree with the flow on each node's arc to its parent; all but the root are pointers.

    `next` and `previous` thread all nodes in an order in which every subtree is one piece: it begins with its top node
    and ends with that node's `last`. A walk over a subtree is then a walk along a list.
    """

    parent: Any  # (n + m + 1,) int32, like the others
    flow: Any  # int64
    place: Any  # room for `find_cycle`
    next: Any
    previous: Any
    last: Any
    up: Any  # room for the two sides of a cycle, see `find_cycle`
    down: Any
    root: int  # the last node


@glued
def tree_at(parent, flow, nodes, room):
    """A tree of so many nodes with these parents and flows; see TREE_ROOM. Its other arrays are filled by `plant`."""
    place, following, previous = room, behind(room, nodes), behind(room, 2 * nodes)
    last, up, down = behind(room, 3 * nodes), behind(room, 4 * nodes), behind(room, 5 * nodes)
    return Tree(parent, flow, place, following, previous, last, up, down, nodes - 1)


@glued
def thread(parent, root, child, sibling, stack, order):
    """An order of the nodes in which every subtree is one piece; returns how many of them hang from the root.

    Room for a number per node: child, sibling and stack.
    """
    for x in range(root + 1):
        child[x] = NOBODY
    for x in range(root + 1):
        if parent[x] >= 0:
            sibling[x] = child[parent[x]]
            child[parent[x]] = x
    count, top = 0, 1
    stack[0] = root
    while top > 0:
        top -= 1
        order[count] = stack[top]
        x = child[order[count]]
        count += 1
        while x >= 0:
            stack[top] = x
            top += 1
            x = sibling[x]
    return count


@shared
def plant(tree, n, a, b):
    """Thread the tree behind its parents, set the flows that masses imply, and return whether these are feasible."""
    parent, flow, root = tree.parent, tree.flow, tree.root
    following, previous, last, order = tree.next, tree.previous, tree.last, tree.up
    if thread(parent, root, following, previous, tree.down, order) <= root:
        return False
    for x in range(root + 1):
        last[x], following[x], previous[x] = x, NOBODY, NOBODY
        flow[x] = 0 if x == root else a[x] if x < n else b[x - n]
    feasible = True
    for k in range(root, 0, -1):  # children before their parents
        x, before = order[k], order[k - 1]
        p = parent[x]
        previous[x], following[before] = before, x
        if last[p] == p:
            last[p] = last[x]
        if p != root:
            flow[p] -= flow[x]
        feasible = feasible and flow[x] >= 0 and (p != root or flow[x] == 0)
    return feasible


@glued
def hangs_below(tree, x, top):
    """Whether a node is in the subtree below another.

    One walk goes through the subtree, one from the node upwards; whichever ends first tells. Most subtrees are small.
    No node is deeper in a subtree than it stands in its list: the walk upwards is at the top before the other ends.
    """
    parent, following, last = tree.parent, tree.next, tree.last[top]
    y = top
    while y != last:
        y = following[y]
        if y == x:
            return True
        x = parent[x]
        if x == top:
            return True
        if x == tree.root:
            return False
    return False


@glued
def find_cycle(tree, source, sink):
    """Lay down the cycle that an arc closes: nodes from source and sink up to, but without, the node above both.

    Later walks along the cycle read its nodes from `up` and `down` side by side, which is faster than from parent to
    parent. Returns the numbers of nodes.
    """
    parent, up, down, place = tree.parent, tree.up, tree.down, tree.place
    x, above_source = source, 0
    while x != NOBODY:
        up[above_source], place[x] = x, above_source
        above_source += 1
        x = parent[x]
    y, steps_down = sink, 0
    # Places are never cleared: they count where `up` agrees.
    while not (0 <= place[y] < above_source and up[place[y]] == y):
        down[steps_down] = y
        steps_down += 1
        y = parent[y]
    return place[y], steps_down


@glued
def send_around(tree, steps_up, steps_down, amount):
    """Send `amount` around the cycle: on both sides, every other arc loses what those between gain."""
    flow, up, down = tree.flow, tree.up, tree.down
    for k in range(steps_up):
        flow[up[k]] += amount if k % 2 else -amount
    for k in range(steps_down):
        flow[down[k]] += amount if k % 2 else -amount


@glued
def _new_end(tree, x, old, new):
    """Subtrees from x upwards that ended with the node `old` end with `new` from now on."""
    last, parent = tree.last, tree.parent
    while x != NOBODY and last[x] == old:
        last[x] = new
        x = parent[x]


@glued
def _follow(tree, x, y):
    """Let y stand behind x in the list."""
    tree.next[x] = y
    if y != NOBODY:
        tree.previous[y] = x


@glued
def _turn(tree, x, parent, flow, leave):
    """Turn the path from x up to `leave` upside down, so that x becomes the top, below `parent`; returns the new end.

    In the list: x's piece comes first, then what is left of its old parent's piece, and so on up to `leave`.
    """
    above = parent
    end = NOBODY  # of the new piece so far
    inner_last, inner_before = NOBODY, NOBODY  # the end of the piece that was just taken out, and the node before it
    while True:
        old_parent, old_flow, old_last = tree.parent[x], tree.flow[x], tree.last[x]
        before = tree.previous[x]
        last = inner_before if old_last == inner_last else old_last
        if x != leave:
            _follow(tree, before, tree.next[last])
        if end != NOBODY:
            _follow(tree, end, x)
        end = last
        tree.parent[x], tree.flow[x] = above, flow
        if x == leave:
            break
        above, flow, x = x, old_flow, old_parent
        inner_last, inner_before = old_last, before
    while x != parent:  # every subtree on the path now reaches to the end
        tree.last[x] = end
        x = tree.parent[x]
    return end


@inner
def rehang(tree, x, parent, flow, leave):
    """Cut the tree above `leave` and hang the part below by its node x under `parent`."""
    before, last = tree.previous[leave], tree.last[leave]
    _new_end(tree, tree.parent[leave], last, before)
    _follow(tree, before, tree.next[last])
    tree.next[last] = NOBODY
    end = _turn(tree, x, parent, flow, leave)
    _follow(tree, end, tree.next[parent])
    _follow(tree, parent, x)
    _new_end(tree, parent, parent, end)
