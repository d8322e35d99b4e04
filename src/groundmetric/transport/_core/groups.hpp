// Groups of nearby points: split until there are enough groups, and assignment to the nearest centre.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "loops.hpp"
#include "memory.hpp"

namespace groundmetric {

/// Repeatedly split the group with the largest scatter at its mean along its widest axis; deterministic.
class Splitter {
public:
    Splitter(Matrix<const double> points, std::span<const double> masses) : points_(points), masses_(masses) {}

    /// Fill the group of every point. Splitting stops at `n_groups`, or when no group has points that differ.
    void split(Index n_groups, std::span<std::int64_t> groups) {
        const Index n = points_.rows;
        order_.resize(static_cast<std::size_t>(n));
        std::iota(order_.begin(), order_.end(), Index{0});
        std::vector<Part> parts{measured(0, n)};
        std::vector<Index> above;
        while (static_cast<Index>(parts.size()) < n_groups) {
            const auto widest = std::max_element(parts.begin(), parts.end(), [](const Part& p, const Part& q) {
                return p.scatter < q.scatter;
            });
            if (!(widest->scatter > 0.0)) break;
            const Part part = *widest;
            // Stable: points keep their order on both sides of the cut.
            above.clear();
            Index middle = part.low;
            for (Index k = part.low; k < part.high; ++k) {
                if (points_(order_[k], part.axis) <= part.mean)
                    order_[middle++] = order_[k];
                else
                    above.push_back(order_[k]);
            }
            std::copy(above.begin(), above.end(), order_.begin() + middle);
            if (middle == part.low || middle == part.high) {  // the scatter is rounding
                widest->scatter = 0.0;
                continue;
            }
            *widest = measured(part.low, middle);
            parts.push_back(measured(middle, part.high));
        }
        for (std::size_t g = 0; g < parts.size(); ++g)
            for (Index k = parts[g].low; k < parts[g].high; ++k) groups[order_[k]] = static_cast<std::int64_t>(g);
    }

private:
    struct Part {
        Index low, high, axis;
        double mean, scatter;
    };

    /// The widest axis of a range of points, their mean on it, and their scatter.
    Part measured(Index low, Index high) const {
        const std::span<const Index> rows(order_.data() + low, static_cast<std::size_t>(high - low));
        double total = 0.0;
        for (const Index i : rows) total += masses_[i];
        Part part{low, high, 0, 0.0, -1.0};
        for (Index c = 0; c < points_.cols; ++c) {
            const double first = points_(rows[0], c);
            double mean = 0.0, scatter = 0.0;
            for (const Index i : rows) mean += masses_[i] * (points_(i, c) - first);
            mean = first + mean / total;
            for (const Index i : rows) {
                const double step = points_(i, c) - mean;
                scatter += masses_[i] * (step * step);
            }
            if (scatter > part.scatter) part.axis = c, part.mean = mean, part.scatter = scatter;
        }
        return part;
    }

    Matrix<const double> points_;
    std::span<const double> masses_;
    std::vector<Index> order_;
};

/// Fill the nearest centre of each point, the first of several.
inline void assign_nearest(Matrix<const double> points, Matrix<const double> centres, std::span<std::int64_t> nearest) {
    const Index width = padded(centres.rows), k = points.cols;
    Buffer<double> column_buffer, squares_buffer;
    const std::span<double> columns = column_buffer.of(k * width), squares = squares_buffer.of(width);
    for (Index c = 0; c < k; ++c)
        for (Index g = 0; g < width; ++g) columns[c * width + g] = g < centres.rows ? centres(g, c) : 0.0;
    for (Index i = 0; i < points.rows; ++i) {
        loops().fill64(Cost::squared, points.row(i), columns.data(), 1, width, k, squares.data());
        nearest[i] = std::min_element(squares.begin(), squares.begin() + centres.rows) - squares.begin();
    }
}

}  // namespace groundmetric
