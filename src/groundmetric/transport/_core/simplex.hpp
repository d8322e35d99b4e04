// Network simplex for transport: exact, and able to start from the tree of an earlier solve (warm start).
//
// When only the costs change, an optimal tree of earlier costs is still feasible, and a few pivots suffice.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "costs.hpp"
#include "start.hpp"
#include "tree.hpp"

namespace groundmetric {

/// Rounding in a reduced cost is a few units in the last place of its largest term; reduced costs below this share of
/// the terms are noise.
inline constexpr double kNoise = 0x1p-46;
/// Rows that are scanned before the best of their arcs enter. Scanning more rows per pivot would save pivots, but cost
/// more than it saves.
inline constexpr int kRows = 32;
/// Pricing becomes exact as soon as a round has less than one pivot for this number of rows.
inline constexpr std::int64_t kRowsPerPivot = 32;

/// An arc that may enter the tree.
struct Arc {
    double gain;   // reduced cost when the row was scanned, in the units of the pricing
    double price;  // exact cost
    Node source, sink;
};

/// The candidates of a block of rows, in the order of their gains.
class Block {
public:
    void clear() { count_ = 0, keys_.fill(std::numeric_limits<std::int32_t>::max()); }
    int count() const { return count_; }
    std::span<Arc> arcs() { return std::span(arcs_).first(count_); }

    /// Keys are the first bits of the gains, accurate to 2^-15, and the position in the last bits: no two are equal.
    void add(const Arc& arc) {
        static_assert(kRows == 32);
        const auto size = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(-arc.gain) >> 32) / kRows * kRows;
        keys_[count_] = static_cast<std::int32_t>(0x7fffffe0U - size) + count_;
        arcs_[count_++] = arc;
    }

    /// The positions of the arcs, the lowest gain first. Counting smaller keys is faster than sorting: no branch depends
    /// on a key, and a vector compares many.
    std::span<const int> order() {
        for (int k = 0; k < count_; ++k) {
            int rank = 0;
            for (const std::int32_t key : keys_) rank += key < keys_[k];
            order_[rank] = k;
        }
        return std::span(order_).first(count_);
    }

private:
    std::array<Arc, kRows> arcs_;
    std::array<std::int32_t, kRows> keys_;
    std::array<int, kRows> order_;
    int count_ = 0;
};

/// Pivot until a whole round over the sources finds no arc with negative reduced cost; returns the number of pivots.
///
/// Pricing is a policy:
///   potentials_changed()  reads the potentials of the tree
///   best(source)          the best arc of a source; its gain is 0 if no reduced cost is negative
///   set_price(arc)        sets the exact cost of an arc if `best` has not
///   reduced(arc)          the exact reduced cost of an arc, 0 if it is noise
///   sharpen()             switches to exact pricing; false if it is exact already
///   suffices()            whether the potentials prove enough to stop before the optimum; asked once a round
template <class Pricing>
std::int64_t improve(Tree& tree, Pricing& pricing, std::int64_t budget) {
    const Node n = tree.n();
    Block block;
    std::int64_t pivots = 0, pivots_before_round = 0;
    bool changed = true;
    for (Node clean = 0, i = 0; clean < n && pivots < budget;) {
        if (i < kRows && pivots > 0) {  // once a round
            if (kRowsPerPivot * (pivots - pivots_before_round) < n && pricing.sharpen()) clean = 0;
            pivots_before_round = pivots;
            changed |= tree.centre();
            if (pricing.suffices()) return pivots;
        }
        if (changed) pricing.potentials_changed();
        changed = false;
        block.clear();
        for (int k = 0; k < kRows && clean < n; ++k) {
            if (const Arc arc = pricing.best(i); arc.gain < 0.0)
                block.add(arc);
            else
                ++clean;
            i = i + 1 < n ? i + 1 : 0;
        }
        // Costs are computed together, because they do not wait for each other as pivots do.
        for (Arc& arc : block.arcs()) pricing.set_price(arc);
        for (const int k : block.order()) {
            const Arc& arc = block.arcs()[k];
            const double reduced = pricing.reduced(arc);
            if (!(reduced < 0.0)) continue;
            if (pivots >= budget) break;
            tree.pivot(arc.source, arc.sink, reduced);
            ++pivots;
            clean = 0, changed = true;  // rows without such an arc may have one now
        }
        // Rough costs never report an arc without negative reduced cost, unless costs are NaN: then the round must end too.
        if (!changed) clean += block.count();
        if (clean >= n && pricing.sharpen()) clean = 0;
    }
    return pivots;
}

/// Exact cost of the arc between a node and its parent.
template <Prices P>
double price_to_parent(const Tree& tree, const P& prices, Node x) {
    const Node n = tree.n(), p = tree.parent(x);
    return x < n ? prices(x, p - n) : prices(p, x - n);
}

struct Paid {
    double total = 0.0, dearest = 0.0;
};

/// Flow times cost, summed over the arcs in the order of nodes, and the dearest arc that carries flow.
template <Prices P>
Paid paid_costs(const Tree& tree, const P& prices) {
    Paid paid;
    for (Node x = 0; x < tree.root(); ++x)
        if (tree.flow(x) > 0) {
            const double cost = price_to_parent(tree, prices, x);
            paid.total += static_cast<double>(tree.flow(x)) * cost;
            paid.dearest = std::max(paid.dearest, std::fabs(cost));
        }
    return paid;
}

/// A lower bound of the value at which a solve may stop, and the arguments of its proof by `RoughCosts::lift`.
struct Goal {
    double enough;
    std::span<const Mass> a, b;
    Mass total;
    std::span<double> potential;  // the potentials that prove the bound

    bool is_set() const { return enough < std::numeric_limits<double>::infinity(); }
    bool is_reached_by(double bound) const { return bound >= enough && std::isfinite(bound); }
};

/// Pricing on rough costs of all arcs, exact from `sharpen` on.
template <class Rough, Prices P>
class RoughPricing {
public:
    RoughPricing(const Tree& tree, RoughCosts<Rough>& rough, const P& prices, Goal goal)
        : tree_(tree), rough_(rough), prices_(prices), goal_(goal) {}

    void potentials_changed() { rough_.set_levels(tree_.sinks()); }

    Arc best(Node i) {
        if (is_exact_) return best_of_near(i);
        const auto [gain, sink] = rough_.best(i, tree_.potential(i));
        return {gain, 0.0, i, tree_.n() + sink};
    }

    void set_price(Arc& arc) const { arc.price = prices_(arc.source, arc.sink - tree_.n()); }

    double reduced(const Arc& arc) const { return reduced(arc.source, arc.sink, arc.price); }

    bool sharpen() { return !std::exchange(is_exact_, true); }

    /// A proof takes about half of the time of a round, so only every third round is followed by one.
    bool suffices() {
        if (!goal_.is_set() || ++rounds_ % 3 != 0) return false;
        if (paid_costs(tree_, prices_).total < goal_.enough * static_cast<double>(goal_.total)) {
            goal_.enough = std::numeric_limits<double>::infinity();  // no lower bound exceeds the cost of a plan
            return false;
        }
        std::ranges::copy(tree_.potentials(), goal_.potential.begin());
        bound_ = rough_.lift(goal_.a, goal_.b, goal_.total, goal_.potential);
        rough_.set_levels(tree_.sinks());
        return goal_.is_reached_by(bound_);
    }

    /// The last lower bound of the value.
    double bound() const { return bound_; }

private:
    Arc best_of_near(Node i) {
        Arc best{0.0, 0.0, i, tree_.n()};
        for (const Node j : rough_.near(i, tree_.potential(i))) {
            const Node sink = tree_.n() + j;
            if (const double gain = reduced(i, sink, prices_(i, j)); gain < best.gain) best.gain = gain, best.sink = sink;
        }
        return best;
    }

    double reduced(Node i, Node sink, double cost) const {
        const double source = tree_.potential(i), level = tree_.potential(sink);
        const double reduced = cost - level + source;
        return reduced < -kNoise * (std::fabs(cost) + std::fabs(source) + std::fabs(level)) ? reduced : 0.0;
    }

    const Tree& tree_;
    RoughCosts<Rough>& rough_;
    const P& prices_;
    Goal goal_;
    std::int64_t rounds_ = 0;
    double bound_ = -std::numeric_limits<double>::infinity();
    bool is_exact_ = false;
};

/// Set potentials that make every arc of the tree tight, from the root down; a component keeps the level of its top
/// source. Returns the largest change.
template <Prices P>
double tighten(Tree& tree, const P& prices) {
    double largest = 0.0;
    for (Node x = tree.first(); x != kNone; x = tree.next(x)) {
        const Node p = tree.parent(x);
        if (p == tree.root()) continue;
        const double cost = price_to_parent(tree, prices, x);
        const double tight = x < tree.n() ? tree.potential(p) - cost : tree.potential(p) + cost;
        largest = std::max(largest, std::fabs(tight - tree.potential(x)));
        tree.set_potential(x, tight);
    }
    return largest;
}

/// A basis that the caller owns, with a number per node: where a solve starts and ends.
struct Basis {
    std::span<Node> parent;
    std::span<Mass> flow;
    std::span<double> potential;
};

enum class Status { optimal, pivot_limit, unfit, bounded };

struct Result {
    double value;  // mean cost of a unit of mass; of Status::bounded a lower bound of it
    std::int64_t pivots;
    Status status;
};

/// Scratch buffers for solves one after another; one object per thread.
class Simplex {
public:
    /// Optimise the basis in place. A basis that is not feasible for these masses is left unchanged (Status::unfit).
    ///
    /// The solve stops as soon as potentials prove that the value is at least `enough` (Status::bounded); those of a warm
    /// basis may prove it before the first pivot. The basis is feasible in any case, and its potentials are the proof.
    template <Prices P>
    Result solve(const P& prices, std::span<const Mass> a, std::span<const Mass> b, Basis basis, bool warm,
                 std::int64_t max_pivots, double enough = std::numeric_limits<double>::infinity()) {
        if (!masses_balance(a, b)) return {std::nan(""), 0, Status::unfit};
        return suits_int16(prices) ? solve_with(rough16_, prices, a, b, basis, warm, max_pivots, enough)
                                   : solve_with(rough32_, prices, a, b, basis, warm, max_pivots, enough);
    }

    std::size_t bytes() const { return rough32_.bytes() + rough16_.bytes(); }

private:
    template <class Rough, Prices P>
    Result solve_with(RoughCosts<Rough>& rough, const P& prices, std::span<const Mass> a, std::span<const Mass> b,
                      Basis basis, bool warm, std::int64_t max_pivots, double enough) {
        rough.fill(prices);
        const Mass total = std::accumulate(a.begin(), a.end(), Mass{0});
        const Goal goal{enough, a, b, total, basis.potential};
        if (!warm) {
            initial_.fill(rough, a, b, basis.parent);
            std::fill(basis.potential.begin(), basis.potential.end(), 0.0);
        } else if (goal.is_set()) {
            const double bound = rough.lift(a, b, total, basis.potential);
            if (goal.is_reached_by(bound)) return {bound, 0, Status::bounded};
        }
        if (!tree_.load(prices.n(), basis.parent, basis.potential) || !tree_.plant(a, b))
            return {std::nan(""), 0, Status::unfit};
        Result result = optimise(rough, prices, goal, max_pivots);
        tree_.store(basis.parent, basis.flow);
        if (result.status == Status::bounded) return result;
        std::ranges::copy(tree_.potentials(), basis.potential.begin());
        result.value = paid_costs(tree_, prices).total / static_cast<double>(total);
        return result;
    }

    template <class Rough, Prices P>
    Result optimise(RoughCosts<Rough>& rough, const P& prices, const Goal& goal, std::int64_t max_pivots) {
        std::int64_t pivots = 0;
        tree_.centre();
        tighten(tree_, prices);
        bool may_cut = true;
        while (pivots < max_pivots) {
            RoughPricing<Rough, P> pricing(tree_, rough, prices, goal);
            const std::int64_t done = improve(tree_, pricing, max_pivots - pivots);
            pivots += done;
            if (goal.is_reached_by(pricing.bound())) return {pricing.bound(), pivots, Status::bounded};
            // Shifts accumulate rounding errors: if recomputed potentials differ from the shifted ones, repeat.
            const double drift = tighten(tree_, prices);
            if (pivots >= max_pivots) break;
            if (done > 0 && drift > kNoise * largest_potential()) continue;
            if (!may_cut || !cut_idle_arcs(paid_costs(tree_, prices).dearest)) return {0.0, pivots, Status::optimal};
            may_cut = false;
            tree_.plant(goal.a, goal.b);
            tighten(tree_, prices);
        }
        return {0.0, pivots, Status::pivot_limit};
    }

    double largest_potential() const { return largest(tree_.potentials()); }

    /// Cut the arcs without flow if potentials are far larger than the costs that are paid; returns whether they were.
    ///
    /// An arc that a huge cost bars may be in the tree without flow, and potentials beyond it are as huge: the digits
    /// that remain are too few for the small costs. After the cut, components restart at level 0.
    bool cut_idle_arcs(double dearest) {
        if (!(largest_potential() > 100.0 * dearest)) return false;
        for (Node x = 0; x < tree_.n(); ++x)  // in a strongly feasible tree only a source's arc can be without flow
            if (tree_.flow(x) == 0) tree_.detach(x);
        return true;
    }

    RoughCosts<float> rough32_;
    RoughCosts<std::int16_t> rough16_;
    InitialTree initial_;
    Tree tree_;
};

}  // namespace groundmetric
