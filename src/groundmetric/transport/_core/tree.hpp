// Spanning tree of the network simplex.
//
// Nodes 0 … n-1 are sources, n … n+m-1 sinks, and n+m is the root, which is no part of the problem. All arcs run from a
// source to a sink, so the kind of a node tells the direction of the arc to its parent: upwards if it is a source.
//
// Invariants between pivots:
// - `next` and `previous` thread all nodes in an order in which every subtree is contiguous: it starts with its top node
//   and ends with that node's `last`. A traversal of a subtree is a traversal of a list.
// - Masses are integers, so flows are exact. The flow of a node is that of the arc to its parent, at least 0.
// - The tree is strongly feasible: an arc without flow points towards the root. This rules out cycling.
// - Arcs of the root come from sources and carry no flow; they only fix the level of the potentials below.
// - Potentials are -u of a source and v of a sink: on arcs of the tree the sink's potential exceeds the source's by the
//   cost, up to rounding, and a pivot shifts a whole subtree by one number.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>

#include "memory.hpp"

namespace groundmetric {

/// Parent of the root, and successor of the last node.
inline constexpr Node kNone = -1;

/// Order the nodes so that every subtree is contiguous, parents first. Returns the number of nodes below the root; fewer
/// than all if `parent` has a cycle. Parents must be nodes or kNone. `child` and `sibling` are scratch.
inline Node order_tree(std::span<const Node> parent, std::span<Node> child, std::span<Node> sibling,
                       std::span<Node> stack, std::span<Node> order) {
    const auto root = static_cast<Node>(parent.size()) - 1;
    std::fill(child.begin(), child.end(), kNone);
    for (Node x = 0; x <= root; ++x)
        if (const Node p = parent[x]; p >= 0) {
            sibling[x] = child[p];
            child[p] = x;
        }
    Node count = 0, top = 1;
    stack[0] = root;
    while (top > 0) {
        const Node x = order[count++] = stack[--top];
        for (Node y = child[x]; y != kNone; y = sibling[y]) stack[top++] = y;
    }
    return count;
}

/// Whether sources have sinks or the root as parents, sinks have sources, and the root has none.
inline bool is_bipartite(std::span<const Node> parent, Index n) {
    const auto root = static_cast<Index>(parent.size()) - 1;
    for (Index x = 0; x < n; ++x)
        if (parent[x] < n || parent[x] > root) return false;
    for (Index x = n; x < root; ++x)
        if (parent[x] < 0 || parent[x] >= n) return false;
    return parent[root] == kNone;
}

/// Whether all masses are positive and both sides have the same total, without overflow.
inline bool masses_balance(std::span<const Mass> a, std::span<const Mass> b) {
    Mass difference = 0;
    constexpr Mass most = Mass{1} << 62;
    for (const std::span<const Mass> side : {a, b}) {
        Mass total = 0;
        for (const Mass mass : side) {
            if (mass <= 0 || mass > most - total) return false;
            total += mass;
        }
        difference = total - difference;
    }
    return difference == 0;
}

class Tree {
public:
    /// Copy a basis; returns whether its parents may be those of a tree and its potentials are finite.
    bool load(Index n, std::span<const Node> parent, std::span<const double> potential) {
        resize(n, static_cast<Index>(parent.size()));
        std::copy(parent.begin(), parent.end(), parent_.begin());
        std::copy(potential.begin(), potential.end(), potential_.begin());
        return is_bipartite(parent, n) &&
               std::all_of(potential.begin(), potential.end(), [](double number) { return std::isfinite(number); });
    }

    void store(std::span<Node> parent, std::span<Mass> flow) const {
        std::copy(parent_.begin(), parent_.end(), parent.begin());
        std::copy(flow_.begin(), flow_.end(), flow.begin());
    }

    void store(std::span<Node> parent, std::span<Mass> flow, std::span<double> potential) const {
        store(parent, flow);
        std::copy(potential_.begin(), potential_.end(), potential.begin());
    }

    /// Thread the nodes below their parents and set the flows that masses imply; returns whether these are feasible.
    bool plant(std::span<const Mass> a, std::span<const Mass> b) {
        const std::span<Node> order = up_;
        if (order_tree(parent_, next_, previous_, down_, order) <= root_) return false;
        for (Node x = 0; x <= root_; ++x) {
            last_[x] = x, next_[x] = previous_[x] = kNone;
            flow_[x] = x == root_ ? 0 : x < n_ ? a[x] : b[x - n_];
        }
        bool feasible = true;
        for (Node k = root_; k > 0; --k) {  // children before their parents
            const Node x = order[k], before = order[k - 1], p = parent_[x];
            previous_[x] = before, next_[before] = x;
            if (last_[p] == p) last_[p] = last_[x];
            if (p != root_) flow_[p] -= flow_[x];
            feasible = feasible && flow_[x] >= 0 && (p != root_ || flow_[x] == 0);
        }
        return feasible;
    }

    Node n() const { return n_; }
    Node root() const { return root_; }
    Node parent(Node x) const { return parent_[x]; }
    Node first() const { return next_[root_]; }
    Node next(Node x) const { return next_[x]; }
    Mass flow(Node x) const { return flow_[x]; }
    double potential(Node x) const { return potential_[x]; }
    std::span<const double> potentials() const { return potential_; }
    std::span<const double> sinks() const { return potential_.subspan(n_, root_ - n_); }
    void set_potential(Node x, double number) { potential_[x] = number; }

    /// Move a source with its subtree to the root, at potential 0. `plant` must follow.
    void detach(Node source) { parent_[source] = root_, potential_[source] = 0.0; }

    /// Move potentials back to about 0: shifts lift them all, and rounding is proportional to their size.
    ///
    /// Not if the smallest are near 0 already: they would lose digits beside the others. Returns whether they moved.
    bool centre() {
        const std::span<double> potential = potential_.first(root_);
        double lowest = potential[0], highest = potential[0];
        for (const double number : potential) lowest = std::min(lowest, number), highest = std::max(highest, number);
        const double middle = 0.5 * lowest + 0.5 * highest;
        if (!(std::fabs(middle) > highest - lowest)) return false;
        for (double& number : potential) number -= middle;
        return true;
    }

    /// Bring the arc source → sink, of negative reduced cost, into the tree.
    ///
    /// A source without flow to its parent cannot send back anything: if its arc is on the cycle, it leaves, and the rest
    /// of the cycle need not be known. With equal masses, nineteen of twenty pivots are of this kind.
    void pivot(Node source, Node sink, double reduced) {
        if (flow_[source] == 0 && !is_below(sink, source)) {
            rehang(source, sink, 0, source);
            shift(source, -reduced);
            return;
        }
        const auto [steps_up, steps_down] = find_cycle(source, sink);
        const auto [amount, position, on_source_side] = leaving_arc(steps_up, steps_down);
        if (amount > 0) {
            augment(up_.first(steps_up), amount);
            augment(down_.first(steps_down), amount);
        }
        if (on_source_side) {
            rehang(source, sink, amount, up_[position]);
            shift(source, -reduced);
        } else {
            rehang(sink, source, amount, down_[position]);
            shift(sink, reduced);
        }
    }

private:
    struct Cycle {
        Node steps_up, steps_down;
    };
    struct Leaving {
        Mass amount;
        Node position;
        bool on_source_side;
    };

    void resize(Index n, Index nodes) {
        n_ = static_cast<Node>(n), root_ = static_cast<Node>(nodes - 1);
        parent_ = parent_buffer_.of(nodes), next_ = next_buffer_.of(nodes);
        previous_ = previous_buffer_.of(nodes), last_ = last_buffer_.of(nodes);
        flow_ = flow_buffer_.of(nodes), potential_ = potential_buffer_.of(nodes);
        up_ = up_buffer_.of(nodes), down_ = down_buffer_.of(nodes);
        place_up_ = place_up_buffer_.of(nodes), place_down_ = place_down_buffer_.of(nodes);
        std::fill(place_up_.begin(), place_up_.end(), 0);
        std::fill(place_down_.begin(), place_down_.end(), 0);
        std::fill(flow_.begin(), flow_.end(), 0);
    }

    /// Whether a node is in the subtree below `top`.
    ///
    /// One traversal goes through the subtree, one from the node upwards; the first to end decides. A node is never
    /// deeper in a subtree than its position in the subtree's list, so the second reaches the top in time.
    bool is_below(Node x, Node top) const {
        const Node last = last_[top];
        for (Node y = top; y != last;) {
            y = next_[y];
            if (y == x) return true;
            x = parent_[x];
            if (x == top) return true;
            if (x == root_) return false;
        }
        return false;
    }

    /// Collect the cycle that an arc closes: nodes from source and sink up to, but without, their common ancestor.
    ///
    /// Both paths advance in turn until one meets the other, so neither goes on to the root. Later passes read the nodes
    /// from `up` and `down` in order, which is faster than from parent to parent.
    Cycle find_cycle(Node source, Node sink) {
        // Places of earlier cycles remain; a place is valid if its list agrees with it.
        const auto is_in = [](std::span<const Node> list, Node size, Node place, Node x) {
            return place < size && list[place] == x;
        };
        Node x = source, y = sink, steps_up = 0, steps_down = 0;
        while (true) {
            if (x != kNone) {
                if (is_in(down_, steps_down, place_down_[x], x)) return {steps_up, place_down_[x]};
                up_[steps_up] = x;
                place_up_[x] = steps_up++;
                x = parent_[x];
            }
            if (y != kNone) {
                if (is_in(up_, steps_up, place_up_[y], y)) return {place_up_[y], steps_down};
                down_[steps_down] = y;
                place_down_[y] = steps_down++;
                y = parent_[y];
            }
        }
    }

    /// The arc that blocks flow around the cycle, by its position on its side, and the flow that it lets pass.
    ///
    /// Sources and sinks alternate on a path, so every other arc loses flow. Of several blocking arcs the last one in
    /// the direction of the cycle, seen from the common ancestor, leaves (strict comparison on the source's side, weak
    /// on the sink's side): this keeps the tree strongly feasible.
    Leaving leaving_arc(Node steps_up, Node steps_down) const {
        Leaving leaving{std::numeric_limits<Mass>::max(), 0, true};
        for (Node k = 0; k < steps_up; k += 2)
            if (flow_[up_[k]] < leaving.amount) leaving = {flow_[up_[k]], k, true};
        for (Node k = 0; k < steps_down; k += 2)
            if (flow_[down_[k]] <= leaving.amount) leaving = {flow_[down_[k]], k, false};
        return leaving;
    }

    /// On one side of the cycle, arcs lose and gain flow in turn.
    void augment(std::span<const Node> side, Mass amount) {
        for (std::size_t k = 0; k < side.size(); ++k) flow_[side[k]] += k % 2 ? amount : -amount;
    }

    /// Cut the tree above `leaving` and attach the part below it by its node x under `parent`.
    void rehang(Node x, Node parent, Mass flow, Node leaving) {
        const Node before = previous_[leaving], last = last_[leaving];
        replace_last(parent_[leaving], last, before);
        link(before, next_[last]);
        next_[last] = kNone;
        const Node end = reverse_path(x, parent, flow, leaving);
        link(end, next_[parent]);
        link(parent, x);
        replace_last(parent, parent, end);
    }

    /// Reverse the path from x up to `leaving`, so that x becomes the top, below `parent`; returns the new last node.
    ///
    /// In the list, x's subtree comes first, then the remainder of its old parent's subtree, and so on.
    Node reverse_path(Node x, Node parent, Mass flow, Node leaving) {
        Node above = parent, end = kNone;
        Node inner_last = kNone, inner_before = kNone;  // last node of the subtree just moved, and the node before it
        while (true) {
            const Node old_parent = parent_[x], old_last = last_[x], before = previous_[x];
            const Mass old_flow = flow_[x];
            const Node last = old_last == inner_last ? inner_before : old_last;
            if (x != leaving) link(before, next_[last]);
            if (end != kNone) link(end, x);
            end = last;
            parent_[x] = above, flow_[x] = flow;
            if (x == leaving) break;
            above = x, flow = old_flow, x = old_parent;
            inner_last = old_last, inner_before = before;
        }
        for (; x != parent; x = parent_[x]) last_[x] = end;
        return end;
    }

    /// Subtrees from x upwards that end with the node `old` end with `now` afterwards.
    void replace_last(Node x, Node old, Node now) {
        for (; x != kNone && last_[x] == old; x = parent_[x]) last_[x] = now;
    }

    void link(Node x, Node y) {
        next_[x] = y;
        if (y != kNone) previous_[y] = x;
    }

    /// Shift the potentials of a subtree, or those of all other nodes the other way, whichever are fewer.
    ///
    /// Only differences of potentials matter. Nodes are collected from both ends of the list, of a large subtree at the
    /// same time as its complement: these traversals wait for memory together, and the first to end decides.
    void shift(Node top, double amount) {
        constexpr Index small_subtree = 64;
        const std::span<Node> inside = up_, outside = down_;
        Node first = top, last = last_[top];
        Node before = previous_[top], after = next_[last];
        Index count = 0, others = 0;
        while (true) {
            inside[count++] = first;
            if (first == last) break;
            inside[count++] = last;
            if (next_[first] == last) break;
            first = next_[first], last = previous_[last];
            if (count < small_subtree) continue;
            if (before != kNone) outside[others++] = before, before = previous_[before];
            if (after != kNone) outside[others++] = after, after = next_[after];
            if (before == kNone && after == kNone) {
                for (const Node x : outside.first(others)) potential_[x] -= amount;
                return;
            }
        }
        for (const Node x : inside.first(count)) potential_[x] += amount;
    }

    Node n_ = 0, root_ = 0;
    Buffer<Mass> flow_buffer_;
    Buffer<double> potential_buffer_;
    Buffer<Node> parent_buffer_, next_buffer_, previous_buffer_, last_buffer_;
    Buffer<Node> up_buffer_, down_buffer_, place_up_buffer_, place_down_buffer_;
    // Separate arrays: most loops read one or two fields of many nodes.
    std::span<Node> parent_, next_, previous_, last_;
    std::span<Mass> flow_;
    std::span<double> potential_;
    std::span<Node> up_, down_, place_up_, place_down_;
};

}  // namespace groundmetric
