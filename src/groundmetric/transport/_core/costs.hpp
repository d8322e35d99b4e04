// Costs of arcs: exact costs one at a time, and rough costs of all arcs in float32 or int16.
//
// Half of a solve is the search for an arc with negative reduced cost. The search runs on rough costs, which take a half
// or a quarter of the memory of exact ones; each arc it returns is priced exactly. Rounding may hide an arc whose reduced
// cost is barely negative: before a plan is accepted as optimal, every arc that may be hidden is priced exactly too.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <span>
#include <type_traits>

#include "loops.hpp"
#include "memory.hpp"

namespace groundmetric {

/// Exact cost of the arc from source i to sink j.
template <class T>
concept Prices = requires(const T& prices, Index i) {
    { prices(i, i) } -> std::same_as<double>;
    { prices.n() } -> std::same_as<Index>;
    { prices.m() } -> std::same_as<Index>;
};

/// Costs of a matrix, between `range.low` and `range.high`.
struct MatrixPrices {
    Matrix<const double> costs;
    Range range;

    Index n() const { return costs.rows; }
    Index m() const { return costs.cols; }
    double operator()(Index i, Index j) const { return costs(i, j); }
};

/// Cost of the step from x to y. Components are added in order, as `Loops::fill64` adds them.
template <Cost cost>
double step_cost(const double* x, const double* y, Index k) {
    double total = 0.0;
    for (Index c = 0; c < k; ++c) {
        const double step = x[c] - y[c];
        total += cost == Cost::manhattan ? std::fabs(step) : step * step;
    }
    return cost == Cost::euclidean ? std::sqrt(total) : total;
}

inline double step_cost(Cost cost, const double* x, const double* y, Index k) {
    switch (cost) {
        case Cost::manhattan: return step_cost<Cost::manhattan>(x, y, k);
        case Cost::squared: return step_cost<Cost::squared>(x, y, k);
        default: return step_cost<Cost::euclidean>(x, y, k);
    }
}

/// Costs of the steps from points x to points y.
template <Cost kind>
struct StepPrices {
    static constexpr Cost cost = kind;
    Matrix<const double> x, y;

    Index n() const { return x.rows; }
    Index m() const { return y.rows; }
    double operator()(Index i, Index j) const { return step_cost<kind>(x.row(i), y.row(j), x.cols); }

    /// An upper bound of all distances: the largest distance from x's first point to a source plus that to a sink.
    double reach() const {
        // Smaller reaches would make squares underflow.
        return std::max(radius(x) + radius(y), 1e-140);
    }

private:
    double radius(Matrix<const double> points) const {
        constexpr Cost norm = kind == Cost::squared ? Cost::euclidean : kind;
        double radius = 0.0;
        for (Index i = 0; i < points.rows; ++i)
            radius = std::max(radius, step_cost<norm>(points.row(i), x.data, points.cols));
        return radius;
    }
};

/// Call visit(StepPrices) for this cost.
template <class Visit>
auto with_prices(Cost cost, Matrix<const double> x, Matrix<const double> y, Visit visit) {
    switch (cost) {
        case Cost::manhattan: return visit(StepPrices<Cost::manhattan>{x, y});
        case Cost::squared: return visit(StepPrices<Cost::squared>{x, y});
        default: return visit(StepPrices<Cost::euclidean>{x, y});
    }
}

/// Cost at quantile 1/10 of 128 arcs.
template <Prices P>
double low_cost(const P& prices, double offset) {
    std::array<double, 128> sample;
    for (Index s = 0; s < 128; ++s) sample[s] = prices(s * 7919 % prices.n(), s * 104729 % prices.m()) - offset;
    std::nth_element(sample.begin(), sample.begin() + 12, sample.end());
    return sample[12];
}

/// Whether int16 resolves the costs of these arcs well enough to pay.
///
/// Steps of 1/16383 of the largest cost are too coarse when a few points are far away from the others: then most arcs
/// look alike and are priced exactly again and again. The more arcs there are, the closer their reduced costs lie: int16
/// is 1.3 to 2 times as fast as float32 at 3000 x 3000 and 4000 x 4000 points; larger problems were not measured. Small
/// problems do not repay the conversion.
template <Prices P>
bool suits_int16(const P& prices) {
    constexpr Index few_arcs = 400 * 400, many_arcs = 5000 * 5000, most_sinks = 1'000'000;
    constexpr double outlying = 64.0;
    const Index arcs = prices.n() * prices.m();
    if (arcs < few_arcs || arcs > many_arcs || prices.m() > most_sinks) return false;
    double offset = 0.0, extent;
    if constexpr (requires { prices.range; }) {
        offset = prices.range.low, extent = prices.range.high - prices.range.low;
    } else {
        const double reach = prices.reach();
        extent = P::cost == Cost::squared ? reach * reach : reach;
    }
    return std::isfinite(extent) && extent > 1e-200 && low_cost(prices, offset) * outlying >= extent;
}

/// Rough costs of all arcs, (cost - offset) * scale, and the levels of the sinks, (potential - middle) * scale.
template <class Rough>
class RoughCosts {
    static constexpr bool is_integer = std::is_same_v<Rough, std::int16_t>;

public:
    static constexpr double kRounding = 0x1p-24;  // relative rounding error of float32

    void fill(const MatrixPrices& prices) {
        resize(prices.n(), prices.m());
        offset_ = is_integer ? prices.range.low : 0.0;
        scale_ = is_integer ? kSteps / (prices.range.high - prices.range.low) : 1.0 / typical(prices.costs);
        error_ = is_integer ? 0x1p-20 : 0x1p-140;
        for (Index i = 0; i < n_; ++i) {
            Rough* row = costs_.data() + i * width_;
            if constexpr (is_integer)
                loops_.quantise16(prices.costs.row(i), offset_, scale_, m_, row);
            else
                loops_.round32(prices.costs.row(i), scale_, m_, row);
            std::fill(row + m_, row + width_, kPadding);
        }
    }

    /// Points are shifted and scaled into the unit ball, where nothing overflows and underflow is below rounding.
    template <Cost cost>
    void fill(const StepPrices<cost>& prices) {
        const Matrix<const double> x = prices.x, y = prices.y;
        resize(x.rows, y.rows);
        const double reach = prices.reach();
        const std::span<const Index> used = used_components(x, y);
        const auto k = static_cast<Index>(used.size());
        const std::span<float> points = points_.of(n_ * k), columns = columns_.of(width_ * k);
        const auto scaled = [&](double coordinate, Index c) {
            return static_cast<float>((coordinate - x.data[c]) / reach);
        };
        for (Index i = 0; i < n_; ++i)
            for (Index c = 0; c < k; ++c) points[i * k + c] = scaled(x(i, used[c]), used[c]);
        for (Index j = 0; j < m_; ++j)
            for (Index c = 0; c < k; ++c) columns[c * width_ + j] = scaled(y(j, used[c]), used[c]);
        for (Index c = 0; c < k; ++c)
            std::fill_n(columns.data() + c * width_ + m_, width_ - m_, std::numeric_limits<float>::infinity());
        if constexpr (is_integer)
            loops_.fill16(cost, points.data(), columns.data(), n_, width_, k, costs_.data());
        else
            loops_.fill32(cost, points.data(), columns.data(), n_, width_, k, costs_.data());
        offset_ = 0.0;
        scale_ = (is_integer ? kSteps : 1.0) / (cost == Cost::squared ? reach * reach : reach);
        error_ = (is_integer ? kSteps : 1.0) * kRounding * (6.0 + static_cast<double>(k));
    }

    Index n() const { return n_; }
    Index m() const { return m_; }
    Index width() const { return width_; }
    double scale() const { return scale_; }
    double error() const { return error_; }
    const Rough* row(Index i) const { return costs_.data() + i * width_; }
    Rough operator()(Index i, Index j) const { return row(i)[j]; }
    std::size_t bytes() const { return costs_buffer_.bytes(); }

    /// Levels at which every sink is open, for `cheapest_open`.
    void open_all() {
        std::fill(levels_.begin(), levels_.end(), Rough{0});
    }

    /// Exclude a sink from `cheapest_open`.
    void close(Node j) { levels_[j] = is_integer ? Rough(-kSteps - 1) : -std::numeric_limits<Rough>::infinity(); }

    /// The first of the cheapest sinks that are open; m if costs are NaN.
    Node cheapest_open(Index i) const {
        const auto [value, block] = scan_.lowest(row(i), levels_.data(), width_, std::nan(""));
        return std::min(scan_.position(row(i), levels_.data(), block, value), static_cast<Node>(m_));
    }

    /// Set the levels to the potentials of the sinks.
    void set_levels(std::span<const double> sinks) {
        if constexpr (is_integer) {
            const Range range = loops_.finite_range(sinks.data(), m_);
            middle_ = range.low <= range.high ? 0.5 * range.low + 0.5 * range.high : 0.0;
            extent_ = range.low <= range.high ? (range.high - middle_) * scale_ : std::numeric_limits<double>::infinity();
            loops_.round16(sinks.data(), middle_, scale_, m_, levels_.data());
        } else {
            extent_ = largest(sinks) * scale_;
            loops_.round32(sinks.data(), scale_, m_, levels_.data());
        }
        std::fill(levels_.begin() + m_, levels_.end(), Rough{0});
    }

    struct Best {
        double gain;  // scaled
        Node sink;
    };

    /// About the lowest reduced cost of a source's arcs, scaled; gain 0 if it may be due to rounding.
    ///
    /// Potentials of the first trees may exceed the range of int16. Their arcs are then missed or reported in vain, which
    /// costs time only: the caller prices each arc exactly, and `near` accounts for clipping.
    Best best(Index i, double potential) const {
        const double level = source_level(potential);
        const double limit = level - (is_integer ? kSlack16 + 2.0 * error_ : slack(level));
        const auto [value, block] = scan_.lowest(row(i), levels_.data(), width_, limit);
        if (!(value < limit)) return {0.0, 0};
        const Node j = scan_.position(row(i), levels_.data(), block, value);
        return j < m_ ? Best{value - level, j} : Best{0.0, 0};
    }

    /// Every sink to which the source's arc may have a negative reduced cost when rounding is taken into account.
    std::span<const Node> near(Index i, double potential) {
        const double level = source_level(potential), limit = level + slack(level);
        const std::span<Node> sinks = near_.of(width_);
        Index count = 0;
        if (!(limit < kHighestLimit)) {
            for (Node j = 0; j < m_; ++j) sinks[count++] = j;
        } else if (limit >= kLowestLimit) {
            const auto rounded = static_cast<Rough>(is_integer ? std::floor(limit) : limit);
            count = scan_.at_most(row(i), levels_.data(), width_, rounded, sinks.data());
            while (count > 0 && sinks[count - 1] >= m_) --count;
        }
        return sinks.first(count);
    }

    /// Make the potentials of earlier costs feasible for these costs, and return the dual value that they prove.
    ///
    /// By weak duality no plan costs less. Where an arc has become too cheap for its potentials, its source gives way by
    /// half; then the sinks take what the sources leave them, and the sources what the sinks leave. If one side gave way
    /// alone, the bound would be twice as loose. Rounding is subtracted.
    template <class M>
    double lift(std::span<const M> a, std::span<const M> b, M total, std::span<double> potential) {
        set_levels(potential.subspan(n_, m_));
        const std::span<Rough> raised = raised_.of(width_);
        std::fill(raised.begin(), raised.begin() + m_, is_integer ? kPadding : std::numeric_limits<Rough>::infinity());
        std::fill(raised.begin() + m_, raised.end(), Rough{0});
        for (Index i = 0; i < n_; ++i) {
            const Rough level = rounded_level(source_level(potential[i]));
            const Rough lowest = std::min(lowest_value(i, levels_), level);
            scan_.lower_to(row(i), halfway(level, lowest), width_, raised.data());
            std::fill(raised.begin() + m_, raised.end(), Rough{0});
        }
        double paid = 0.0, highest_source = 0.0, highest_sink = 0.0;
        for (Index i = 0; i < n_; ++i) {
            const double level = lowest_value(i, raised);
            potential[i] = -(level / scale_ + offset_ - middle_);
            paid += static_cast<double>(a[i]) * level;
            highest_source = std::max(highest_source, std::fabs(level));
        }
        for (Index j = 0; j < m_; ++j) {
            const double level = raised[j];
            potential[n_ + j] = level / scale_ + middle_;
            paid += static_cast<double>(b[j]) * level;
            highest_sink = std::max(highest_sink, std::fabs(level));
        }
        const double size = 2.0 * (highest_source + highest_sink);
        const double rounding = is_integer       ? 0.5 + 2.0 * error_
                                : size < kLargest32 ? 2.0 * error_ + 4.0 * kRounding * size
                                                    : std::numeric_limits<double>::infinity();
        return (paid / static_cast<double>(total) - rounding) / scale_ + offset_;
    }

private:
    static constexpr Rough kPadding = is_integer ? Rough(kPadding16) : std::numeric_limits<Rough>::infinity();
    // Limits of differences that `at_most` can compare without including padding.
    static constexpr double kHighestLimit = is_integer ? kPadding16 : 2.0 * kLargest32;
    static constexpr double kLowestLimit = is_integer ? -32768.0 : -std::numeric_limits<double>::infinity();
    static constexpr double kSlack16 = 1.0 + 0x1p-20;
    // From this number of components on, constant ones are left out.
    static constexpr Index kManyComponents = 100;

    void resize(Index n, Index m) {
        n_ = n, m_ = m, width_ = padded(m);
        costs_ = costs_buffer_.of(n_ * width_);
        levels_ = levels_buffer_.of(width_);
        middle_ = 0.0;
    }

    Rough lowest_value(Index i, std::span<const Rough> levels) const {
        return scan_.lowest(row(i), levels.data(), width_, -std::numeric_limits<double>::infinity()).value;
    }

    double source_level(double potential) const { return (middle_ - offset_ - potential) * scale_; }

    /// How far a rough reduced cost may be from the exact one, for arcs whose reduced cost may be negative.
    ///
    /// float32: these arcs cost at most what their potentials allow, so the errors of the cost, the level, their
    /// difference and the comparison are proportional to potentials; infinite beyond the range of float32.
    /// int16: half a step for the cost and half a step for the level; infinite if levels were clipped.
    double slack(double level) const {
        constexpr double infinite = std::numeric_limits<double>::infinity();
        if constexpr (is_integer) return extent_ <= kSteps ? kSlack16 + 2.0 * error_ : infinite;
        const double size = extent_ + std::fabs(level);
        return size < kLargest32 ? error_ + 4.0 * kRounding * size : infinite;
    }

    static Rough rounded_level(double level) {
        if constexpr (is_integer)
            return static_cast<Rough>(std::isnan(level) ? 0.0 : std::clamp(std::floor(level), -double{kSteps}, double{kSteps}));
        else
            return static_cast<Rough>(std::isnan(level) ? 0.0 : std::clamp(level, -kLargest32, kLargest32));
    }

    static Rough halfway(Rough level, Rough lowest) {
        if constexpr (is_integer)
            return static_cast<Rough>(std::clamp((level + lowest) >> 1, -kSteps, kSteps));
        else
            return 0.5F * (level + lowest);
    }

    /// Components in which any point differs from the first; all if they are few.
    std::span<const Index> used_components(Matrix<const double> x, Matrix<const double> y) {
        const std::span<Index> used = used_.of(x.cols);
        Index count = 0;
        const auto varies = [&](Matrix<const double> points, Index c) {
            for (Index i = 0; i < points.rows; ++i)
                if (points(i, c) != x.data[c]) return true;
            return false;
        };
        for (Index c = 0; c < x.cols; ++c)
            if (x.cols <= kManyComponents || varies(y, c) || varies(x, c)) used[count++] = c;
        if (count == 0) used[count++] = 0;  // padding needs a component
        return used.first(count);
    }

    /// Median of the costs that are not 0, of a sample; far larger or smaller ones may leave the range of float32.
    static double typical(Matrix<const double> costs) {
        std::array<double, 128> sample;
        std::size_t count = 0;
        const Index size = costs.rows * costs.cols, step = std::max<Index>(1, (size + 127) / 128);
        for (Index place = 0; place < size; place += step)
            if (costs.data[place] != 0.0) sample[count++] = std::fabs(costs.data[place]);
        if (count == 0) return 1.0;
        std::nth_element(sample.begin(), sample.begin() + count / 2, sample.begin() + count);
        return std::max(sample[count / 2], 1e-290);
    }

    const Loops& loops_ = loops();
    const Scan<Rough>& scan_ = loops_.scan<Rough>();
    Buffer<Rough> costs_buffer_, levels_buffer_, raised_;
    Buffer<float> points_, columns_;
    Buffer<Node> near_;
    Buffer<Index> used_;
    std::span<Rough> costs_, levels_;
    Index n_ = 0, m_ = 0, width_ = 0;
    double scale_ = 1.0, offset_ = 0.0, error_ = 0.0;
    double middle_ = 0.0;  // of the sinks' potentials; 0 in float32
    double extent_ = 0.0;  // largest distance of a sink's potential from `middle`, scaled
};

}  // namespace groundmetric
