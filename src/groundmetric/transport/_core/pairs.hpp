// Work on lists of pairs of distributions: solves with warm starts, costs and gradients of earlier plans, bounds.
//
// The bases of all pairs are consecutive in three long arrays; `offset[p]` is the start of pair p's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>

#include "costs.hpp"
#include "loops.hpp"
#include "simplex.hpp"
#include "start.hpp"

namespace groundmetric {

/// Projected points of all distributions and their masses.
struct Points {
    Matrix<double> z;
    std::span<const std::int64_t> bounds;  // distribution d has the rows bounds[d] to bounds[d + 1]
    std::span<const Mass> units;           // the smallest integers with the ratios of the masses
    std::span<const Mass> rounded;         // masses rounded to a common total; empty if no pair needs them
    Cost cost;
};

/// The distributions of each pair, and the factors that make their units balance; 0: use `rounded`.
struct Pairs {
    std::span<const std::int64_t> first, second;
    std::span<const Mass> times_first, times_second;
};

/// Where the last solve of each pair ended.
struct Bases {
    std::span<const std::int64_t> offset;
    std::span<Node> parent;
    std::span<Mass> flow;
    std::span<double> potential;
    std::span<bool> warm;
};

/// Results of solves, by pair.
struct Results {
    std::span<double> value;
    std::span<std::int64_t> pivots;  // -1 if the basis is not feasible for the masses
    std::span<bool> optimal;
    std::span<bool> bound;  // the value is a lower bound that was enough
};

/// Points and masses of one pair. Indices were checked when the arrays were converted.
struct Pair {
    Index low, start, n, m;  // first rows of both distributions, and their sizes

    Pair(const Points& points, const Pairs& pairs, Index p)
        : low(points.bounds[pairs.first[p]]),
          start(points.bounds[pairs.second[p]]),
          n(points.bounds[pairs.first[p] + 1] - low),
          m(points.bounds[pairs.second[p] + 1] - start) {}

    Matrix<const double> x(const Points& points) const { return {points.z.row(low), n, points.z.cols}; }
    Matrix<const double> y(const Points& points) const { return {points.z.row(start), m, points.z.cols}; }
    Index nodes() const { return n + m + 1; }

    Basis basis(const Bases& bases, Index p) const {
        const auto first = static_cast<std::size_t>(bases.offset[p]), count = static_cast<std::size_t>(nodes());
        return {bases.parent.subspan(first, count), bases.flow.subspan(first, count),
                bases.potential.subspan(first, count)};
    }
};

/// Integer masses of a pair, which balance.
class PairMasses {
public:
    void fill(const Points& points, const Pairs& pairs, Index p, const Pair& pair) {
        a_ = fill_side(a_buffer_, points, pair.low, pair.n, pairs.times_first[p], total_);
        Mass unused;
        b_ = fill_side(b_buffer_, points, pair.start, pair.m, pairs.times_second[p], unused);
    }

    std::span<const Mass> a() const { return a_; }
    std::span<const Mass> b() const { return b_; }
    Mass total() const { return total_; }

private:
    static std::span<const Mass> fill_side(Buffer<Mass>& buffer, const Points& points, Index low, Index size, Mass times,
                                           Mass& total) {
        const std::span<Mass> side = buffer.of(size);
        std::uint64_t sum = 0;  // unsigned: masses of any size must not overflow before they are checked
        for (Index i = 0; i < size; ++i) {
            const auto mass = times > 0 ? static_cast<std::uint64_t>(points.units[low + i]) * static_cast<std::uint64_t>(times)
                                        : static_cast<std::uint64_t>(points.rounded[low + i]);
            side[i] = static_cast<Mass>(mass);
            sum += mass;
        }
        total = static_cast<Mass>(sum);
        return side;
    }

    Buffer<Mass> a_buffer_, b_buffer_;
    std::span<const Mass> a_, b_;
    Mass total_ = 0;
};

/// Scratch buffers for work on pairs; one object per thread.
class Workspace {
public:
    Simplex simplex;
    PairMasses masses;

    /// Solve the pairs `todo`, each from its own basis if it has one; without a limit of pivots if that is negative.
    ///
    /// A solve stops as soon as potentials prove that its value is at least `enough`.
    void solve(std::span<const std::int64_t> todo, std::span<const double> enough, const Points& points,
               const Pairs& pairs, const Bases& bases, std::int64_t max_pivots, const Results& results) {
        for (std::size_t k = 0; k < todo.size(); ++k) {
            const std::int64_t p = todo[k];
            const Pair pair(points, pairs, p);
            masses.fill(points, pairs, p, pair);
            const Basis basis = pair.basis(bases, p);
            const std::int64_t limit = max_pivots >= 0 ? max_pivots : 2000 * (pair.n + pair.m);
            const Result result = with_prices(points.cost, pair.x(points), pair.y(points), [&](const auto& prices) {
                return simplex.solve(prices, masses.a(), masses.b(), basis, bases.warm[p], limit, enough[k]);
            });
            results.value[p] = result.value;
            results.bound[p] = result.status == Status::bounded;
            bases.warm[p] = result.status != Status::unfit;
            if (results.bound[p]) continue;
            results.pivots[p] = result.status == Status::unfit ? -1 : result.pivots;
            // Coordinates beyond 1e150 overflow: their values are not finite.
            results.optimal[p] = result.status == Status::optimal && std::isfinite(result.value);
        }
    }

    /// Set the flows that the trees of these pairs imply; returns false if a tree is not feasible for its masses.
    bool fill_flows(std::span<const std::int64_t> todo, const Points& points, const Pairs& pairs, const Bases& bases) {
        for (const std::int64_t p : todo) {
            const Pair pair(points, pairs, p);
            masses.fill(points, pairs, p, pair);
            const Basis basis = pair.basis(bases, p);
            if (!masses_balance(masses.a(), masses.b()) || !tree_.load(pair.n, basis.parent, basis.potential) ||
                !tree_.plant(masses.a(), masses.b()))
                return false;
            tree_.store(basis.parent, basis.flow, basis.potential);
            bases.warm[p] = true;
        }
        return true;
    }

private:
    Tree tree_;
};

/// Move distribution d's points to z, set its mean, and return the distance that its mass travelled.
///
/// The distance obeys the triangle inequality between distributions: the mean cost, or its root for squared costs.
inline double move_points(Index d, Matrix<const double> z, const Points& points, std::span<const double> shares,
                          Matrix<double> means) {
    const Index low = points.bounds[d], k = z.cols;
    double* mean = means.row(d);
    std::fill_n(mean, k, 0.0);
    double travelled = 0.0;
    for (Index i = 0; i < z.rows; ++i) {
        double* old = points.z.row(low + i);
        const double share = shares[low + i];
        travelled += share * step_cost(points.cost, z.row(i), old, k);
        for (Index c = 0; c < k; ++c) {
            old[c] = z(i, c);
            mean[c] += share * old[c];
        }
    }
    return points.cost == Cost::squared ? std::sqrt(travelled) : travelled;
}

/// Fill the costs of the plans of the last solves at the present points: an upper bound of each new value, infinite for
/// pairs without a basis. Returns false if a basis is damaged.
///
/// If coefficients are given, add each pair's coefficient times the gradient of its value with respect to the points.
/// Mass m moved over the step s costs m|s|, so the gradient is m s/|s| at the source and its negative at the sink; for
/// Manhattan costs m sign(s), for squared costs 2 m s. Coinciding points contribute none. The plan is optimal, so it is
/// held fixed (Danskin).
inline bool follow_plans(std::span<const std::int64_t> todo, std::span<const double> coefficient, const Points& points,
                         const Pairs& pairs, const Bases& bases, std::span<double> values, Matrix<double> gradient) {
    const Cost cost = points.cost;
    for (std::size_t q = 0; q < todo.size(); ++q) {
        const std::int64_t p = todo[q];
        values[q] = std::numeric_limits<double>::infinity();
        if (!bases.warm[p]) continue;
        const Pair pair(points, pairs, p);
        const Basis basis = pair.basis(bases, p);
        const Index k = points.z.cols, n = pair.n, root = pair.nodes() - 1;
        if (!is_bipartite(basis.parent, n)) return false;
        const auto total =
            static_cast<double>(std::accumulate(basis.flow.begin(), basis.flow.begin() + root, Mass{0}));
        double paid = 0.0;
        for (Index node = 0; node < root; ++node) {
            const auto flow = static_cast<double>(basis.flow[node]);
            const Index above = basis.parent[node];
            if (flow == 0.0 || above == root) continue;
            const Index i = pair.low + (node < n ? node : above), j = pair.start + (node < n ? above : node) - n;
            const double *x = points.z.row(i), *y = points.z.row(j);
            const double length = step_cost(cost, x, y, k);
            paid += flow * length;
            if (coefficient.empty() || !(length > 0.0)) continue;
            const double divisor = cost == Cost::manhattan ? 1.0 : cost == Cost::squared ? 0.5 : length;
            const double share = coefficient[q] * flow / (total * divisor);
            double *at_x = gradient.row(i), *at_y = gradient.row(j);
            for (Index c = 0; c < k; ++c) {
                double step = x[c] - y[c];
                if (cost == Cost::manhattan) step = step > 0.0 ? 1.0 : step < 0.0 ? -1.0 : 0.0;
                at_x[c] += share * step;
                at_y[c] -= share * step;
            }
        }
        values[q] = paid / total;
    }
    return true;
}

/// Transport between points on a line, sorted within each distribution: shipping in order is optimal for every convex
/// cost of the step, the distance and its square among them. Values are NaN if masses do not balance.
///
/// If coefficients are given, add each pair's coefficient times the gradient of its value, in the sorted order.
inline void follow_lines(std::span<const std::int64_t> todo, std::span<const double> coefficient, const Points& points,
                         const Pairs& pairs, std::span<double> values, double* gradient) {
    PairMasses masses;
    for (std::size_t q = 0; q < todo.size(); ++q) {
        const Pair pair(points, pairs, todo[q]);
        masses.fill(points, pairs, todo[q], pair);
        values[q] = std::nan("");
        if (!masses_balance(masses.a(), masses.b())) continue;
        const auto total = static_cast<double>(masses.total());
        double paid = 0.0;
        const auto ship = [&](Index i, Index j, Mass amount, bool) {
            const double step = points.z.data[pair.low + i] - points.z.data[pair.start + j];
            paid += static_cast<double>(amount) * (points.cost == Cost::squared ? step * step : std::fabs(step));
            if (coefficient.empty() || step == 0.0) return;
            const double share = coefficient[q] * static_cast<double>(amount) / total;
            const double slope = share * (points.cost == Cost::squared ? 2.0 * step : step > 0.0 ? 1.0 : -1.0);
            gradient[pair.low + i] += slope;
            gradient[pair.start + j] -= slope;
        };
        ship_in_order(
            pair.n, [&](Index i) { return masses.a()[i]; }, pair.m, [&](Index j) { return masses.b()[j]; }, ship);
        values[q] = paid / total;
    }
}

/// Lower bounds of values from feasible potentials, without a plan.
///
/// Potentials start as a slope along the line between the two means, half as steep as the distance: a slope of 1 would
/// prove the distance between the means, 0 the distance to the nearest points, and half of each proves most. `lift`
/// makes them feasible and as large as possible, and subtracts rounding.
class SlopeBounds {
public:
    double bound(Cost cost, Matrix<const double> x, std::span<const double> a, Matrix<const double> y,
                 std::span<const double> b, const double* mean_x, const double* mean_y) {
        const Index n = x.rows, k = x.cols;
        const std::span<double> slope = slope_.of(k), potential = potential_.of(n + y.rows);
        double squares = 0.0;
        for (Index c = 0; c < k; ++c) {
            slope[c] = mean_x[c] - mean_y[c];
            squares += slope[c] * slope[c];
        }
        const double steepness = squares > 0.0 ? 0.5 / std::sqrt(squares) : 0.0;
        const auto height = [&](const double* point) {
            double height = 0.0;
            for (Index c = 0; c < k; ++c) height += steepness * slope[c] * (point[c] - 0.5 * (mean_x[c] + mean_y[c]));
            return height;
        };
        for (Index i = 0; i < n; ++i) potential[i] = -height(x.row(i));
        for (Index j = 0; j < y.rows; ++j) potential[n + j] = -height(y.row(j));
        double bound = 0.0;
        with_prices(cost, x, y, [&](const auto& prices) {
            rough_.fill(prices);
            bound = std::max(rough_.lift(a, b, 1.0, potential), 0.0);
        });
        return bound;
    }

private:
    RoughCosts<float> rough_;
    Buffer<double> slope_, potential_;
};

}  // namespace groundmetric
