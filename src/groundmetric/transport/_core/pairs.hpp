// Work on lists of pairs of distributions: solves with warm starts, costs and gradients of earlier plans, bounds.
//
// The bases of all pairs are consecutive in three long arrays; `offset[p]` is the start of pair p's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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

    Matrix<double> x(const Points& points) const { return points.z.rows_between(low, low + n); }
    Matrix<double> y(const Points& points) const { return points.z.rows_between(start, start + m); }
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

/// Call visit(StepPrices) for the cost of the points.
template <class Visit>
void with_prices(Cost cost, Matrix<const double> x, Matrix<const double> y, Visit visit) {
    switch (cost) {
        case Cost::euclidean: return visit(StepPrices<Cost::euclidean>{x, y});
        case Cost::manhattan: return visit(StepPrices<Cost::manhattan>{x, y});
        case Cost::squared: return visit(StepPrices<Cost::squared>{x, y});
    }
}

template <class T>
Matrix<const T> as_const(Matrix<T> matrix) {
    return {matrix.data, matrix.rows, matrix.cols};
}

/// Scratch buffers for work on pairs; one object per thread.
class Workspace {
public:
    Simplex simplex;
    PairMasses masses;

    /// Solve the pairs `todo`, each from its own basis if it has one; without a limit of pivots if that is negative.
    ///
    /// If the potentials of a pair prove that its value is at least `enough`, only its potentials change.
    void solve(std::span<const std::int64_t> todo, std::span<const double> enough, const Points& points,
               const Pairs& pairs, const Bases& bases, std::int64_t max_pivots, const Results& results) {
        for (std::size_t k = 0; k < todo.size(); ++k) {
            const std::int64_t p = todo[k];
            const Pair pair(points, pairs, p);
            masses.fill(points, pairs, p, pair);
            const Basis basis = pair.basis(bases, p);
            const std::int64_t limit = max_pivots >= 0 ? max_pivots : 2000 * (pair.n + pair.m);
            const bool warm = bases.warm[p];
            Result result{};
            double bound = -std::numeric_limits<double>::infinity();
            with_prices(points.cost, as_const(pair.x(points)), as_const(pair.y(points)), [&](const auto& prices) {
                result = warm && enough[k] < std::numeric_limits<double>::infinity()
                             ? simplex.solve_or_bound(prices, masses.a(), masses.b(), basis, warm, limit, enough[k], bound)
                             : simplex.solve(prices, masses.a(), masses.b(), basis, warm, limit);
            });
            results.bound[p] = bound >= enough[k] && bound > -std::numeric_limits<double>::infinity();
            if (results.bound[p]) {
                results.value[p] = bound;
                continue;
            }
            bases.warm[p] = result.status != Status::unfit;
            results.value[p] = result.value / static_cast<double>(masses.total());
            results.pivots[p] = result.status == Status::unfit ? -1 : result.pivots;
            // Coordinates beyond 1e150 overflow: their values are not finite.
            results.optimal[p] = result.status == Status::optimal && std::isfinite(results.value[p]);
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

/// Costs of the plans of the last solves at the present points: an upper bound of each new value.
///
/// If coefficients are given, add each pair's coefficient times the gradient of its value with respect to the points.
/// Mass m moved over the step s costs m|s|, so the gradient is m s/|s| at the source and its negative at the sink; for
/// Manhattan costs m sign(s), for squared costs 2 m s. Coinciding points contribute none. The plan is optimal, so it is
/// held fixed (Danskin).
class PlanCosts {
public:
    PlanCosts(const Points& points, const Pairs& pairs, const Bases& bases)
        : points_(points), pairs_(pairs), bases_(bases) {}

    /// Returns false if a basis is damaged.
    bool follow(std::span<const std::int64_t> todo, std::span<const double> coefficient, std::span<double> values,
                Matrix<double> gradient) const {
        for (std::size_t k = 0; k < todo.size(); ++k) {
            const std::int64_t p = todo[k];
            values[k] = std::numeric_limits<double>::infinity();
            if (!bases_.warm[p]) continue;
            const Pair pair(points_, pairs_, p);
            const Basis basis = pair.basis(bases_, p);
            if (!is_bipartite(basis.parent, pair.n)) return false;
            const bool differentiates = !coefficient.empty();
            values[k] = follow_one(pair, basis, differentiates ? coefficient[k] : 0.0, differentiates, gradient);
        }
        return true;
    }

private:
    double follow_one(const Pair& pair, const Basis& basis, double coefficient, bool differentiates,
                      Matrix<double> gradient) const {
        const Cost cost = points_.cost;
        const Index k = points_.z.cols, n = pair.n, root = pair.nodes() - 1;
        Mass total = 0;
        for (Index node = 0; node < root; ++node) total += basis.flow[node];
        double paid = 0.0;
        for (Index node = 0; node < root; ++node) {
            const Mass flow = basis.flow[node];
            const Index above = basis.parent[node];
            if (flow == 0 || above == root) continue;
            const Index i = pair.low + (node < n ? node : above), j = pair.start + (node < n ? above : node) - n;
            const double *x = points_.z.row(i), *y = points_.z.row(j);
            const double length = step_cost(cost, x, y, k);
            paid += static_cast<double>(flow) * length;
            if (!differentiates || !(length > 0.0)) continue;
            const double divisor = cost == Cost::manhattan ? 1.0 : cost == Cost::squared ? 0.5 : length;
            const double share = coefficient * static_cast<double>(flow) / (static_cast<double>(total) * divisor);
            double *at_x = gradient.row(i), *at_y = gradient.row(j);
            for (Index c = 0; c < k; ++c) {
                double step = x[c] - y[c];
                if (cost == Cost::manhattan) step = step > 0.0 ? 1.0 : step < 0.0 ? -1.0 : 0.0;
                at_x[c] += share * step;
                at_y[c] -= share * step;
            }
        }
        return paid / static_cast<double>(total);
    }

    const Points& points_;
    const Pairs& pairs_;
    const Bases& bases_;
};

/// Transport between points on a line, sorted within each distribution: shipping in order is optimal for every convex
/// cost of the step, the distance and its square among them.
class Lines {
public:
    void solve(std::span<const std::int64_t> todo, const Points& points, const Pairs& pairs, const Results& results) {
        for (const std::int64_t p : todo) {
            const Pair pair(points, pairs, p);
            double paid = 0.0;
            ship(points, pairs, p, pair, [&](Index i, Index j, Mass amount, bool) {
                const double step = std::fabs(points.z.data[pair.low + i] - points.z.data[pair.start + j]);
                paid += static_cast<double>(amount) * (points.cost == Cost::squared ? step * step : step);
            });
            results.optimal[p] = masses_balance(masses_.a(), masses_.b());
            results.value[p] = results.optimal[p] ? paid / static_cast<double>(masses_.total()) : std::nan("");
        }
    }

    /// Add each pair's coefficient times the gradient of its value, in the sorted order.
    void differentiate(std::span<const std::int64_t> todo, std::span<const double> coefficient, const Points& points,
                       const Pairs& pairs, std::span<double> gradient) {
        for (std::size_t k = 0; k < todo.size(); ++k) {
            const Pair pair(points, pairs, todo[k]);
            ship(points, pairs, todo[k], pair, [&](Index i, Index j, Mass amount, bool) {
                const double step = points.z.data[pair.low + i] - points.z.data[pair.start + j];
                if (step == 0.0) return;
                const double share = coefficient[k] * static_cast<double>(amount) / static_cast<double>(masses_.total());
                const double slope = share * (points.cost == Cost::squared ? 2.0 * step : step > 0.0 ? 1.0 : -1.0);
                gradient[pair.low + i] += slope;
                gradient[pair.start + j] -= slope;
            });
        }
    }

private:
    template <class Visit>
    void ship(const Points& points, const Pairs& pairs, Index p, const Pair& pair, Visit visit) {
        masses_.fill(points, pairs, p, pair);
        if (!masses_balance(masses_.a(), masses_.b())) return;
        ship_in_order(
            pair.n, [&](Index i) { return masses_.a()[i]; }, pair.m, [&](Index j) { return masses_.b()[j]; }, visit);
    }

    PairMasses masses_;
};

/// Lower bounds of values from feasible potentials, without a plan.
///
/// Any u, v with u_i + v_j <= cost_ij prove that transport costs at least their mean. v starts as a slope between the
/// two means; then u is the largest that v allows, and v the largest that u allows. The same is done from the other
/// side, and the larger value is returned, less rounding.
class PotentialBounds {
public:
    double bound(Cost cost, Matrix<const double> x, std::span<const double> a, Matrix<const double> y,
                 std::span<const double> b, const double* mean_x, const double* mean_y) {
        n_ = x.rows, m_ = y.rows, k_ = x.cols, width_ = padded(m_);
        fill(cost, x, y);
        u_ = u_buffer_.of(n_), v_ = v_buffer_.of(m_);
        set_slope(mean_x, mean_y);
        set_heights(y, -1.0, v_);
        raise_sources();
        raise_sinks();
        const double best = proved(a, b);
        set_heights(x, 1.0, u_);
        raise_sinks();
        raise_sources();
        return std::max({best, proved(a, b), 0.0});
    }

private:
    // Steepness of the first potentials along the line between the means. 1 proves the distance between the means, 0 the
    // distance to the nearest point; half of each proves most.
    static constexpr double kSteepness = 0.5;

    void fill(Cost cost, Matrix<const double> x, Matrix<const double> y) {
        costs_ = costs_buffer_.of(n_ * width_);
        const std::span<double> columns = columns_.of(width_ * k_);
        for (Index c = 0; c < k_; ++c)
            for (Index j = 0; j < width_; ++j) columns[c * width_ + j] = j < m_ ? y(j, c) : 0.0;
        loops_.fill64(cost, x.data, columns.data(), n_, width_, k_, costs_.data());
    }

    void set_slope(const double* mean_x, const double* mean_y) {
        slope_ = slope_buffer_.of(k_), middle_ = middle_buffer_.of(k_);
        double squares = 0.0;
        for (Index c = 0; c < k_; ++c) {
            slope_[c] = mean_x[c] - mean_y[c];
            middle_[c] = 0.5 * (mean_x[c] + mean_y[c]);
            squares += slope_[c] * slope_[c];
        }
        if (squares > 0.0)
            for (double& number : slope_) number *= kSteepness / std::sqrt(squares);
    }

    void set_heights(Matrix<const double> points, double sign, std::span<double> heights) const {
        for (Index i = 0; i < points.rows; ++i) {
            heights[i] = 0.0;
            for (Index c = 0; c < k_; ++c) heights[i] += sign * slope_[c] * (points(i, c) - middle_[c]);
        }
    }

    void raise_sources() {
        for (Index i = 0; i < n_; ++i) u_[i] = loops_.lowest64(costs_.data() + i * width_, v_.data(), m_);
    }

    void raise_sinks() {
        std::fill(v_.begin(), v_.end(), std::numeric_limits<double>::infinity());
        for (Index i = 0; i < n_; ++i) loops_.lower_to64(costs_.data() + i * width_, u_[i], m_, v_.data());
    }

    double proved(std::span<const double> a, std::span<const double> b) const {
        double mean = 0.0;
        for (Index i = 0; i < n_; ++i) mean += a[i] * u_[i];
        for (Index j = 0; j < m_; ++j) mean += b[j] * v_[j];
        const double size = loops_.largest(u_.data(), n_) + loops_.largest(v_.data(), m_);
        return mean - 0x1p-52 * static_cast<double>(n_ + m_ + 16) * size;
    }

    const Loops& loops_ = loops();
    Index n_ = 0, m_ = 0, k_ = 0, width_ = 0;
    Buffer<double> costs_buffer_, columns_, u_buffer_, v_buffer_, slope_buffer_, middle_buffer_;
    std::span<double> costs_, u_, v_, slope_, middle_;
};

}  // namespace groundmetric
