// Network simplex on candidate arcs, the cheapest ones of every source, priced from the points without a cost matrix.
//
// Sinks are in an order in which every 64 consecutive points are close together (`groups.halving_order`). A ball around
// such a block bounds the costs of its sinks from below; a block that cannot contain a cheaper sink is skipped.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "loops.hpp"
#include "simplex.hpp"
#include "tree.hpp"

namespace groundmetric {

/// Points in blocks of 64, and balls around the blocks.
class PointBlocks {
public:
    PointBlocks(Matrix<const double> points, Cost cost)
        : n_points_(points.rows),
          k_(points.cols),
          n_blocks_(padded(points.rows) / kBlock),
          width_(padded(n_blocks_)),
          cost_(cost),
          columns_(static_cast<std::size_t>(n_blocks_ * k_ * kBlock), 0.0),
          centres_(static_cast<std::size_t>(k_ * width_), 0.0),
          radius_(static_cast<std::size_t>(n_blocks_), 0.0) {
        for (Index i = 0; i < n_points_; ++i)
            for (Index c = 0; c < k_; ++c) columns_[(i / kBlock * k_ + c) * kBlock + i % kBlock] = points(i, c);
        std::vector<double> centre(static_cast<std::size_t>(k_));
        for (Index block = 0; block < n_blocks_; ++block) {
            const Matrix<const double> members =
                points.rows_between(block * kBlock, std::min(n_points_, (block + 1) * kBlock));
            for (Index c = 0; c < k_; ++c) {
                double low = members(0, c), high = low;
                for (Index i = 1; i < members.rows; ++i)
                    low = std::min(low, members(i, c)), high = std::max(high, members(i, c));
                centres_[c * width_ + block] = centre[c] = 0.5 * (low + high);
            }
            for (Index i = 0; i < members.rows; ++i)
                radius_[block] = std::max(radius_[block], step_cost(norm(), members.row(i), centre.data(), k_));
        }
    }

    Index n_points() const { return n_points_; }
    Index n_blocks() const { return n_blocks_; }
    Index k() const { return k_; }
    Cost cost() const { return cost_; }

    /// Lower bounds of the cost from x to the sinks of each block, less the highest potential in the block.
    void fill_floors(const double* x, std::span<const double> tops, std::span<double> floors) const {
        // Balls are enlarged by this share, so that rounding skips no block.
        constexpr double slack = 1e-12;
        loops_.fill64(norm(), x, centres_.data(), 1, width_, k_, floors.data());
        for (Index block = 0; block < n_blocks_; ++block) {
            const double way = floors[block], radius = radius_[block];
            const double nearest = std::max(way - radius - slack * (way + radius), 0.0);
            floors[block] = (cost_ == Cost::squared ? nearest * nearest : nearest) - tops[block];
        }
    }

    /// Costs from x to the 64 points of a block.
    void fill_costs(const double* x, Index block, double* costs) const {
        loops_.fill64(cost_, x, columns_.data() + block * k_ * kBlock, 1, kBlock, k_, costs);
    }

    Index floors_size() const { return width_; }

private:
    /// The norm whose balls enclose the blocks; squared costs are squares of the Euclidean one.
    Cost norm() const { return cost_ == Cost::manhattan ? cost_ : Cost::euclidean; }

    const Loops& loops_ = loops();
    Index n_points_, k_, n_blocks_, width_;
    Cost cost_;
    std::vector<double> columns_;  // (blocks, components, 64)
    std::vector<double> centres_;  // (components, blocks padded to 64)
    std::vector<double> radius_;
};

/// Search for the sinks with the lowest cost less potential.
class NearestSinks {
public:
    /// `heights` are the potentials of the points in the blocks.
    NearestSinks(const PointBlocks& blocks, std::span<const double> heights, Index capacity)
        : blocks_(blocks),
          heights_(static_cast<std::size_t>(blocks.n_blocks() * kBlock), -kInfinite),
          tops_(static_cast<std::size_t>(blocks.n_blocks()), -kInfinite),
          floors_(static_cast<std::size_t>(blocks.floors_size())),
          positions_(static_cast<std::size_t>(capacity)),
          values_(static_cast<std::size_t>(capacity)) {
        std::copy(heights.begin(), heights.end(), heights_.begin());
        for (Index j = 0; j < static_cast<Index>(heights.size()); ++j)
            tops_[j / kBlock] = std::max(tops_[j / kBlock], heights[j]);
    }

    /// Collect the lowest values below the limit, sorted, up to the capacity; returns their number.
    Index search(const double* x, double limit) {
        blocks_.fill_floors(x, tops_, floors_);
        count_ = 0, limit_ = limit;
        // The most promising block comes first: its values exclude most of the others.
        const Index best = std::min_element(floors_.begin(), floors_.begin() + blocks_.n_blocks()) - floors_.begin();
        scan(x, best);
        for (Index block = 0; block < blocks_.n_blocks(); ++block)
            if (block != best) scan(x, block);
        return count_;
    }

    Node position(Index rank) const { return positions_[rank]; }
    double value(Index rank) const { return values_[rank]; }

private:
    static constexpr double kInfinite = std::numeric_limits<double>::infinity();

    void scan(const double* x, Index block) {
        if (!(floors_[block] < limit_)) return;
        const double* heights = heights_.data() + block * kBlock;
        blocks_.fill_costs(x, block, costs_.data());
        if (!(loops_.scan64.lowest(costs_.data(), heights, kBlock, -kInfinite).value < limit_)) return;
        for (Index j = 0; j < kBlock; ++j)
            if (const double value = costs_[j] - heights[j]; value < limit_) insert(block * kBlock + j, value);
    }

    void insert(Index position, double value) {
        const auto capacity = static_cast<Index>(values_.size());
        count_ = std::min(count_ + 1, capacity);
        Index k = count_ - 1;
        for (; k > 0 && values_[k - 1] > value; --k) positions_[k] = positions_[k - 1], values_[k] = values_[k - 1];
        positions_[k] = static_cast<Node>(position), values_[k] = value;
        if (count_ == capacity) limit_ = std::min(limit_, values_[count_ - 1]);
    }

    const Loops& loops_ = loops();
    const PointBlocks& blocks_;
    std::vector<double> heights_, tops_, floors_;
    std::vector<Node> positions_;
    std::vector<double> values_;
    std::array<double, kBlock> costs_;
    Index count_ = 0;
    double limit_ = kInfinite;
};

/// Reduced costs below this size may be due to rounding.
///
/// Potentials add costs along the paths of the tree, which may pass through parts with far larger costs: the largest
/// potential and the length of the paths, which grows with the tree, determine the rounding.
inline double noise_of(std::span<const double> potential) {
    return 3.0 * kNoise * std::max(static_cast<double>(potential.size()) / 1000.0, 1.0) *
           largest(potential.first(potential.size() - 1));
}

/// Arcs that may enter the tree, by source.
class Candidates {
public:
    Candidates(Index n_sources, Index capacity)
        : n_(n_sources),
          capacity_(capacity),
          sinks_(static_cast<std::size_t>(n_sources * capacity)),
          prices_(static_cast<std::size_t>(n_sources * capacity)),
          number_(static_cast<std::size_t>(n_sources), 0) {}

    Index n_sources() const { return n_; }
    Index capacity() const { return capacity_; }
    /// One more than the largest sink of any candidate, as a node.
    Node end() const { return end_; }

    std::span<const Node> sinks(Index i) const { return std::span(sinks_).subspan(i * capacity_, number_[i]); }
    std::span<const double> prices(Index i) const { return std::span(prices_).subspan(i * capacity_, number_[i]); }

    /// Drop the dearest candidates of a source until there are at most `most`.
    void keep_cheapest(Index i, Index most, std::span<const double> potential) {
        Node* sinks = sinks_.data() + i * capacity_;
        double* prices = prices_.data() + i * capacity_;
        while (number_[i] > most) {
            Index worst = 0;
            double dearest = -std::numeric_limits<double>::infinity();
            for (Index k = 0; k < number_[i]; ++k)
                if (const double value = prices[k] - potential[sinks[k]]; value > dearest) worst = k, dearest = value;
            --number_[i];
            sinks[worst] = sinks[number_[i]], prices[worst] = prices[number_[i]];
        }
    }

    void add(Index i, Node sink, double price) {
        sinks_[i * capacity_ + number_[i]] = sink, prices_[i * capacity_ + number_[i]] = price;
        ++number_[i];
        end_ = std::max(end_, sink + 1);
    }

private:
    Index n_, capacity_;
    std::vector<Node> sinks_;
    std::vector<double> prices_;
    std::vector<Index> number_;
    Node end_ = 0;
};

inline double reduced_or_zero(double price, double source, double sink, double noise) {
    const double reduced = price - sink + source;
    return reduced < -noise ? reduced : 0.0;
}

/// Add the cheapest arcs of every source to its candidates, up to `width`, and only those with negative reduced cost if
/// asked; returns their number. z holds the points of all sources, then of all sinks.
///
/// `allowed` becomes the largest potential that the sinks' allow each source (or its own, if that is not larger).
inline Index add_candidates(Matrix<const double> z, const PointBlocks& blocks, std::span<const double> potential,
                            Index width, bool only_negative, Candidates& candidates, std::span<double> allowed) {
    const auto n = static_cast<Index>(allowed.size());
    NearestSinks nearest(blocks, potential.subspan(n, blocks.n_points()), width);
    const double noise = noise_of(potential);
    Index added = 0;
    for (Index i = 0; i < n; ++i) {
        const double* x = z.row(i);
        allowed[i] = only_negative ? -potential[i] : std::numeric_limits<double>::infinity();
        const Index count = nearest.search(x, allowed[i]);
        if (count > 0) allowed[i] = nearest.value(0);
        candidates.keep_cheapest(i, candidates.capacity() - count, potential);
        for (Index rank = 0; rank < count; ++rank) {
            const auto sink = static_cast<Node>(n + nearest.position(rank));
            // Recomputed: the value of the search is less the potential, which may have taken digits.
            const double price = step_cost(blocks.cost(), x, z.row(sink), z.cols);
            if (only_negative && reduced_or_zero(price, potential[i], potential[sink], noise) == 0.0) continue;
            candidates.add(i, sink, price);
            ++added;
        }
    }
    return added;
}

/// The largest potentials at other points that the potentials of the points in blocks allow.
inline void fill_allowed(Matrix<const double> points, const PointBlocks& blocks, std::span<const double> heights,
                         std::span<double> allowed) {
    NearestSinks nearest(blocks, heights, 1);
    for (Index i = 0; i < points.rows; ++i) {
        const Index count = nearest.search(points.row(i), std::numeric_limits<double>::infinity());
        allowed[i] = count > 0 ? nearest.value(0) : std::numeric_limits<double>::infinity();
    }
}

/// Pricing on candidates; their prices are exact.
class CandidatePricing {
public:
    CandidatePricing(const Tree& tree, const Candidates& candidates)
        : tree_(tree), candidates_(candidates), noise_(noise_of(tree.potentials())) {}

    void potentials_changed() {}

    Arc best(Node i) const {
        const std::span<const Node> sinks = candidates_.sinks(i);
        const std::span<const double> prices = candidates_.prices(i);
        double lowest = std::numeric_limits<double>::infinity();
        Arc arc{0.0, 0.0, i, tree_.n()};
        for (std::size_t k = 0; k < sinks.size(); ++k)
            if (const double value = prices[k] - tree_.potential(sinks[k]); value < lowest)
                lowest = value, arc.sink = sinks[k], arc.price = prices[k];
        arc.gain = sinks.empty() ? 0.0 : reduced(arc);
        return arc;
    }

    void set_price(Arc&) const {}

    double reduced(const Arc& arc) const {
        return reduced_or_zero(arc.price, tree_.potential(arc.source), tree_.potential(arc.sink), noise_);
    }

    bool sharpen() { return false; }
    bool suffices() const { return false; }

private:
    const Tree& tree_;
    const Candidates& candidates_;
    double noise_;
};

/// Optimise the basis over the candidates, in place; returns the number of pivots, -1 if the basis is not feasible.
inline std::int64_t optimise_candidates(Matrix<const double> z, Cost cost, const Candidates& candidates,
                                        std::span<const Mass> a, std::span<const Mass> b, Basis basis,
                                        std::int64_t max_pivots) {
    const auto n = static_cast<Index>(a.size()), m = static_cast<Index>(b.size());
    Tree tree;
    if (!masses_balance(a, b) || !tree.load(n, basis.parent, basis.potential) || !tree.plant(a, b)) return -1;
    std::int64_t pivots = 0;
    with_prices(cost, z.rows_between(0, n), z.rows_between(n, n + m), [&](const auto& prices) {
        for (std::int64_t done = 1; done > 0 && pivots < max_pivots; pivots += done) {
            // Pivots shift all levels, and rounding accumulates: both are reset from time to time.
            tree.centre();
            tighten(tree, prices);
            CandidatePricing pricing(tree, candidates);
            done = improve(tree, pricing, std::min<std::int64_t>(max_pivots - pivots, 10 * (n + m + 1)));
        }
        tighten(tree, prices);
    });
    tree.store(basis.parent, basis.flow, basis.potential);
    return pivots;
}

}  // namespace groundmetric
