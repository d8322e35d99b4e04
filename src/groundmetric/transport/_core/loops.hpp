// The innermost loops, compiled once per instruction set; the set is chosen at run time.
//
// All instruction sets return the same bits: products and sums are not contracted, ties go to the first position, and
// the order of every sum is fixed in the source.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "memory.hpp"

namespace groundmetric {

/// Cost of a step between two points; the numbers are those of `groundmetric.metrics.Cost`.
enum class Cost : int { euclidean = 0, manhattan = 1, squared = 2 };

/// Rows of rough costs are padded to whole blocks; entries of a block are compared together.
inline constexpr Index kBlock = 64;
constexpr Index padded(Index count) { return (count + kBlock - 1) / kBlock * kBlock; }

/// Rough costs in int16 lie between 0 and kSteps, levels between -kSteps and kSteps, so that no difference overflows.
inline constexpr int kSteps = 16383;
/// Cost of padding in int16, above all differences of a cost and a level.
inline constexpr std::int16_t kPadding16 = 32767;
/// Half of the largest float32; rough costs and levels are clipped to it.
inline constexpr double kLargest32 = 0x1p126;

template <class Rough>
struct Lowest {
    Rough value;
    Node block;  // start of the first block that contains it, or 0
};

/// Scans of a row of rough costs; `width` is padded.
template <class Rough>
struct Scan {
    /// Smallest costs[j] - levels[j]; its block only if it is below the limit, or the limit is NaN.
    Lowest<Rough> (*lowest)(const Rough* costs, const Rough* levels, Index width, double limit);
    /// First j of a block with costs[j] - levels[j] == value.
    Node (*position)(const Rough* costs, const Rough* levels, Node block, Rough value);
    /// All j with costs[j] - levels[j] <= limit, in order; returns their number.
    Index (*at_most)(const Rough* costs, const Rough* levels, Index width, Rough limit, Node* positions);
    /// levels[j] = min(levels[j], costs[j] - level).
    void (*lower_to)(const Rough* costs, Rough level, Index width, Rough* levels);
};

struct Range {
    double low, high;
};

struct Loops {
    const char* name;
    Scan<float> scan32;
    Scan<std::int16_t> scan16;
    Scan<double> scan64;  // only `lowest` and `lower_to`
    /// Costs of the steps from n points (n, k) to the columns of (k, width); components are added in order.
    void (*fill64)(Cost cost, const double* points, const double* columns, Index n, Index width, Index k, double* costs);
    void (*fill32)(Cost cost, const float* points, const float* columns, Index n, Index width, Index k, float* costs);
    /// The same costs in steps of 1 / kSteps; infinite ones become kPadding16.
    void (*fill16)(Cost cost, const float* points, const float* columns, Index n, Index width, Index k,
                   std::int16_t* costs);
    /// numbers * scale, clipped to the range of float32.
    void (*round32)(const double* numbers, double scale, Index count, float* rounded);
    /// (numbers - offset) * scale to the nearest integer, clipped to [-kSteps, kSteps].
    void (*round16)(const double* numbers, double offset, double scale, Index count, std::int16_t* rounded);
    /// The same for numbers from offset to offset + kSteps / scale, which need no clipping.
    void (*quantise16)(const double* numbers, double offset, double scale, Index count, std::int16_t* rounded);
    /// Smallest and largest number; {inf, -inf} if any is NaN or infinite.
    Range (*finite_range)(const double* numbers, Index count);
    /// Products of n points (n, features) with k components (k, features), into (n, k).
    void (*project32)(const float* points, const double* components, Index n, Index features, Index k, double* products);
    void (*project64)(const double* points, const double* components, Index n, Index features, Index k,
                      double* products);

    template <class Rough>
    const Scan<Rough>& scan() const {
        if constexpr (sizeof(Rough) == 2)
            return scan16;
        else
            return scan32;
    }
};

/// The loops for this processor; GROUNDMETRIC_ISA=baseline|avx2|avx512 selects others.
const Loops& loops();

/// Largest absolute value; infinity if any number is NaN.
inline double largest(std::span<const double> numbers) {
    const Range range = loops().finite_range(numbers.data(), static_cast<Index>(numbers.size()));
    if (numbers.empty()) return 0.0;
    return range.low <= range.high ? std::max(-range.low, range.high) : std::numeric_limits<double>::infinity();
}

}  // namespace groundmetric
