// Initial trees: feasible plans that take less time than a round of the simplex, as the parents of all nodes.
#pragma once

#include <algorithm>
#include <compare>
#include <functional>
#include <span>
#include <vector>

#include "costs.hpp"
#include "memory.hpp"
#include "tree.hpp"

namespace groundmetric {

/// Ship masses of equal totals in order, and call visit(i, j, amount) for each shipment; at most n + m - 1 of them.
template <class A, class B, class Visit>
void ship_in_order(Index n, A mass_a, Index m, B mass_b, Visit visit) {
    Index i = 0, j = 0;
    Mass supply = mass_a(0), demand = mass_b(0);
    while (true) {
        const Mass amount = std::min(supply, demand);
        visit(i, j, amount, supply < demand);
        supply -= amount, demand -= amount;
        if (supply == 0 && ++i == n) return;
        if (demand == 0 && ++j == m) return;
        if (supply == 0) supply = mass_a(i);
        if (demand == 0) demand = mass_b(j);
    }
}

/// The cheaper of two plans: each source ships to the cheapest open sinks, or all ship in order along a line.
///
/// Points that spread along one direction more than along others, as under a metric learned for two classes, are close
/// to a line, where shipping in order is optimal and shipping to the nearest is poor; otherwise it is the other way
/// round. The cheaper plan needs about half the pivots of the other.
class InitialTree {
public:
    /// Fill the parents; masses must be positive and balance.
    template <class Rough>
    void fill(RoughCosts<Rough>& costs, std::span<const Mass> a, std::span<const Mass> b, std::span<Node> parent) {
        n_ = static_cast<Node>(costs.n()), m_ = static_cast<Node>(costs.m());
        const std::span<Node> other = other_.of(n_ + m_ + 1);
        double greedy_cost = 0.0;
        const bool is_complete = fill_greedily(costs, a, b, parent, greedy_cost);
        if (fill_in_order(costs, a, b, other) < greedy_cost || !is_complete)
            std::copy(other.begin(), other.end(), parent.begin());
    }

private:
    void hang_all(std::span<Node> parent) const {
        std::fill(parent.begin(), parent.end(), n_ + m_);
        parent[n_ + m_] = kNone;
    }

    /// Ship along the cheapest arc between a source with supply and a sink with demand, until nothing remains.
    ///
    /// The heap has the cheapest open sink of every source with supply; if the sink has been closed since, the source
    /// looks for another. At any time a component has at most one node with supply or demand. A source that runs out
    /// hangs below its last sink, a sink below the source that met the last of its demand; a source whose masses balance
    /// stays at the root. Returns false if costs are NaN, which have no cheapest sink.
    template <class Rough>
    bool fill_greedily(RoughCosts<Rough>& costs, std::span<const Mass> a, std::span<const Mass> b,
                       std::span<Node> parent, double& total) {
        hang_all(parent);
        const std::span<Mass> supply = supply_.of(n_), demand = demand_.of(m_);
        std::copy(a.begin(), a.end(), supply.begin());
        std::copy(b.begin(), b.end(), demand.begin());
        costs.open_all();
        offers_.clear();
        const auto offer = [&](Node i) {
            const Node j = costs.cheapest_open(i);
            if (j >= m_ || demand[j] == 0) return false;
            offers_.push_back({static_cast<float>(costs(i, j)), i, j});
            return true;
        };
        for (Node i = 0; i < n_; ++i)
            if (!offer(i)) return false;
        std::make_heap(offers_.begin(), offers_.end(), std::greater<>());
        while (!offers_.empty()) {
            std::pop_heap(offers_.begin(), offers_.end(), std::greater<>());
            const auto [price, i, j] = offers_.back();
            offers_.pop_back();
            const Mass amount = std::min(supply[i], demand[j]);
            total += static_cast<double>(amount) * price;
            supply[i] -= amount, demand[j] -= amount;
            if (amount > 0 && demand[j] > 0) {
                parent[i] = n_ + j;
            } else if (amount > 0) {
                parent[n_ + j] = i;
                costs.close(j);
            }
            if (supply[i] == 0) continue;
            if (!offer(i)) return false;
            std::push_heap(offers_.begin(), offers_.end(), std::greater<>());
        }
        return true;
    }

    /// The order is that of the distance from an end of the line: the farthest sink from the farthest source.
    template <class Rough>
    double fill_in_order(const RoughCosts<Rough>& costs, std::span<const Mass> a, std::span<const Mass> b,
                         std::span<Node> parent) {
        hang_all(parent);
        Node far = farthest(m_, [&](Node j) { return costs(0, j); });
        far = farthest(n_, [&](Node i) { return costs(i, far); });
        far = farthest(m_, [&](Node j) { return costs(far, j); });
        const Node near = farthest(n_, [&](Node i) { return -costs(i, far); });
        const std::span<Node> sources = sources_.of(n_), sinks = sinks_.of(m_);
        sort_nodes(sources, [&](Node i) { return costs(i, far); });
        sort_nodes(sinks, [&](Node j) { return costs(near, j); });
        double total = 0.0;
        ship_in_order(
            n_, [&](Index i) { return a[sources[i]]; }, m_, [&](Index j) { return b[sinks[j]]; },
            [&](Index i, Index j, Mass amount, bool source_ends) {
                const Node source = sources[i], sink = sinks[j];
                total += static_cast<double>(amount) * static_cast<double>(costs(source, sink));
                if (source_ends)
                    parent[source] = n_ + sink;
                else
                    parent[n_ + sink] = source;
            });
        return total;
    }

    template <class Key>
    static Node farthest(Node count, Key key) {
        Node far = 0;
        for (Node k = 1; k < count; ++k)
            if (key(k) > key(far)) far = k;
        return far;
    }

    struct Offer {
        float price;
        Node source, sink;
        auto operator<=>(const Offer&) const = default;  // by price, then by source
    };

    /// Sort nodes 0, 1, … by their keys, ties by number. Keys are copied: those of sources are far apart in memory.
    template <class Key>
    void sort_nodes(std::span<Node> nodes, Key key) {
        offers_.clear();
        for (Node k = 0; k < static_cast<Node>(nodes.size()); ++k) {
            const auto number = static_cast<float>(key(k));
            offers_.push_back({number == number ? number : 0.0F, k, 0});  // NaN has no order
        }
        std::sort(offers_.begin(), offers_.end());
        std::transform(offers_.begin(), offers_.end(), nodes.begin(), [](const Offer& offer) { return offer.source; });
    }

    Node n_ = 0, m_ = 0;
    Buffer<Node> other_, sources_, sinks_;
    Buffer<Mass> supply_, demand_;
    std::vector<Offer> offers_;
};

}  // namespace groundmetric
