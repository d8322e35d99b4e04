// What Python sees. Every array is checked and converted here, indices included: the rest of the library trusts them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "candidates.hpp"
#include "costs.hpp"
#include "groups.hpp"
#include "loops.hpp"
#include "pairs.hpp"
#include "simplex.hpp"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace groundmetric {
namespace {

template <class T, int dimensions>
using Array = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

template <class T>
const char* name_of() {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Plain, double>) return "float64";
    if constexpr (std::is_same_v<Plain, float>) return "float32";
    if constexpr (std::is_same_v<Plain, std::int64_t>) return "int64";
    if constexpr (std::is_same_v<Plain, std::int32_t>) return "int32";
    if constexpr (std::is_same_v<Plain, std::int16_t>) return "int16";
    return "bool";
}

/// An array of exactly this type. Nothing is copied or cast: a copy of an output would be lost.
template <class T, int dimensions>
Array<T, dimensions> array_of(nb::handle object, const char* name) {
    Array<T, dimensions> array;
    if (!nb::try_cast(object, array, false) || reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) != 0) {
        const std::string kind = std::is_const_v<T> ? "" : "writable ";
        throw nb::type_error((std::string(name) + " must be a " + kind + "C-contiguous, aligned array of " +
                              name_of<T>() + " with " + std::to_string(dimensions) + " dimension" +
                              (dimensions == 1 ? "" : "s"))
                                 .c_str());
    }
    return array;
}

template <class T>
std::span<T> span_of(nb::handle object, const char* name) {
    const auto array = array_of<T, 1>(object, name);
    return {array.data(), array.size()};
}

template <class T>
Matrix<T> matrix_of(nb::handle object, const char* name) {
    const auto array = array_of<T, 2>(object, name);
    return {array.data(), static_cast<Index>(array.shape(0)), static_cast<Index>(array.shape(1))};
}

/// An attribute of a named tuple. The tuple outlives the call, so the view does too.
template <class T>
std::span<T> span_in(nb::handle owner, const char* name) {
    return span_of<T>(owner.attr(name), name);
}

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

Index size_of(const auto& span) { return static_cast<Index>(span.size()); }

Cost cost_of(int cost) {
    require(cost >= 0 && cost <= 2, "cost must be 0, 1 or 2");
    return static_cast<Cost>(cost);
}

/// Distribution d has the rows bounds[d] to bounds[d + 1], at least one.
void check_bounds(std::span<const std::int64_t> bounds, Index n_points) {
    require(!bounds.empty() && bounds.front() == 0 && bounds.back() == n_points,
            "bounds must start at 0 and end at the number of points");
    for (std::size_t d = 1; d < bounds.size(); ++d) require(bounds[d - 1] < bounds[d], "bounds must increase");
}

/// A basis of n sources and m sinks.
Basis basis_of(nb::handle parent, nb::handle flow, nb::handle potential, std::size_t n, std::size_t m) {
    const Basis basis{span_of<Node>(parent, "parent"), span_of<Mass>(flow, "flow"),
                      span_of<double>(potential, "potential")};
    require(basis.parent.size() == n + m + 1 && basis.flow.size() == n + m + 1 && basis.potential.size() == n + m + 1,
            "parent, flow and potential must have a number for every node");
    return basis;
}

/// The arrays of a call on pairs of distributions, checked: every pair of `todo` has distributions, masses and, if bases
/// are given, a basis inside their arrays. `only_warm`: pairs without a basis need no place in the arrays.
struct PairCall {
    Points points;
    Pairs pairs;
    Bases bases;
    std::span<const std::int64_t> todo;

    PairCall(nb::handle todo_object, nb::handle points_object, nb::handle pairs_object, nb::handle bases_object = {},
             bool only_warm = false)
        : points(points_of(points_object)),
          pairs{span_in<const std::int64_t>(pairs_object, "first"), span_in<const std::int64_t>(pairs_object, "second"),
                span_in<const Mass>(pairs_object, "times_first"), span_in<const Mass>(pairs_object, "times_second")},
          bases{},
          todo(span_of<const std::int64_t>(todo_object, "todo")) {
        const std::size_t n_pairs = pairs.first.size();
        require(pairs.second.size() == n_pairs && pairs.times_first.size() == n_pairs &&
                    pairs.times_second.size() == n_pairs,
                "first, second, times_first and times_second must have the same size");
        if (bases_object) {
            bases = {span_in<const std::int64_t>(bases_object, "offset"), span_in<Node>(bases_object, "parent"),
                     span_in<Mass>(bases_object, "flow"), span_in<double>(bases_object, "potential"),
                     span_in<bool>(bases_object, "warm")};
            require(bases.offset.size() == n_pairs && bases.warm.size() == n_pairs,
                    "offset and warm must have a number for every pair");
            require(bases.flow.size() == bases.parent.size() && bases.potential.size() == bases.parent.size(),
                    "parent, flow and potential must have the same size");
        }
        for (const std::int64_t p : todo) {
            require(0 <= p && p < size_of(pairs.first), "todo has an index that is no pair");
            for (const std::int64_t d : {pairs.first[p], pairs.second[p]})
                require(0 <= d && d < size_of(points.bounds) - 1, "first or second has an index that is no distribution");
            require((pairs.times_first[p] > 0 && pairs.times_second[p] > 0) || !points.rounded.empty(),
                    "rounded is empty, but a pair needs rounded masses");
            if (!bases_object || (only_warm && !bases.warm[p])) continue;
            const Index nodes = Pair(points, pairs, p).nodes(), size = size_of(bases.parent);
            require(bases.offset[p] >= 0 && bases.offset[p] <= size && nodes <= size - bases.offset[p],
                    "offset places a basis outside of the arrays");
        }
    }

    static Points points_of(nb::handle object) {
        const Points points{matrix_of<double>(object.attr("z"), "z"), span_in<const std::int64_t>(object, "bounds"),
                            span_in<const Mass>(object, "units"), span_in<const Mass>(object, "rounded"),
                            cost_of(nb::cast<int>(object.attr("cost")))};
        check_bounds(points.bounds, points.z.rows);
        require(size_of(points.units) == points.z.rows, "units must have a number for every point");
        require(points.rounded.empty() || size_of(points.rounded) == points.z.rows,
                "rounded must be empty or have a number for every point");
        require(points.z.cols > 0, "points must have at least one component");
        return points;
    }

    Results results(nb::handle object) const {
        const Results results{span_in<double>(object, "value"), span_in<std::int64_t>(object, "pivots"),
                              span_in<bool>(object, "optimal"), span_in<bool>(object, "bound")};
        for (const std::size_t size :
             {results.value.size(), results.pivots.size(), results.optimal.size(), results.bound.size()})
            require(size == pairs.first.size(), "answers must have a number for every pair");
        return results;
    }

    /// Numbers for the pairs of `todo`; an input may be left empty where `may_be_empty`.
    template <class T>
    std::span<T> numbers(nb::handle object, const char* name, bool may_be_empty = false) const {
        const auto numbers = span_of<T>(object, name);
        if (numbers.size() != todo.size() && !(may_be_empty && numbers.empty()))
            throw nb::value_error((std::string(name) + " must have a number for every pair of todo").c_str());
        return numbers;
    }

    Matrix<double> gradient(nb::handle object) const {
        const auto gradient = matrix_of<double>(object, "gradient");
        require(gradient.rows == points.z.rows && gradient.cols == points.z.cols,
                "gradient must have the shape of the points");
        return gradient;
    }
};

/// Scratch buffers of one thread. A second thread that uses them at the same time gets an error.
struct SharedWorkspace {
    Workspace workspace;
    std::mutex mutex;
};

void solve_pairs(SharedWorkspace& shared, nb::handle todo, nb::handle enough, nb::handle points, nb::handle pairs,
                 nb::handle bases, std::int64_t max_pivots, nb::handle answers) {
    const PairCall call(todo, points, pairs, bases);
    const Results results = call.results(answers);
    const auto limits = call.numbers<const double>(enough, "enough");
    const std::unique_lock lock(shared.mutex, std::try_to_lock);
    if (!lock) throw std::runtime_error("workspace is in use by another thread");
    const nb::gil_scoped_release released;
    shared.workspace.solve(call.todo, limits, call.points, call.pairs, call.bases, max_pivots, results);
}

void fill_flows(nb::handle todo, nb::handle points, nb::handle pairs, nb::handle bases) {
    const PairCall call(todo, points, pairs, bases);
    Workspace workspace;
    require(workspace.fill_flows(call.todo, call.points, call.pairs, call.bases),
            "a basis is no tree, or not feasible for its masses");
}

void follow(nb::handle todo, nb::handle coefficient, nb::handle points, nb::handle pairs, nb::handle bases,
                  nb::handle values, nb::handle gradient) {
    const PairCall call(todo, points, pairs, bases, true);
    const auto factors = call.numbers<const double>(coefficient, "coefficient", true);
    const auto costs = call.numbers<double>(values, "values");
    const auto slopes = call.gradient(gradient);
    bool intact;
    {
        const nb::gil_scoped_release released;
        intact = follow_plans(call.todo, factors, call.points, call.pairs, call.bases, costs, slopes);
    }
    require(intact, "a basis is no tree");
}

double move(std::int64_t distribution, nb::handle z, nb::handle points, nb::handle means) {
    const Points all = PairCall::points_of(points);
    const auto shares = span_in<const double>(points, "shares");
    const auto moved = matrix_of<const double>(z, "z");
    const auto centres = matrix_of<double>(means, "means");
    const Index n_distributions = size_of(all.bounds) - 1;
    require(0 <= distribution && distribution < n_distributions, "distribution is out of range");
    require(moved.rows == all.bounds[distribution + 1] - all.bounds[distribution] && moved.cols == all.z.cols,
            "z must have a row for every point of the distribution");
    require(size_of(shares) == all.z.rows, "shares must have a number for every point");
    require(centres.rows == n_distributions && centres.cols == all.z.cols, "means must have a row per distribution");
    const nb::gil_scoped_release released;
    return move_points(distribution, moved, all, shares, centres);
}

void follow_on_lines(nb::handle todo, nb::handle coefficient, nb::handle points, nb::handle pairs, nb::handle values,
                     nb::handle gradient) {
    const PairCall call(todo, points, pairs);
    const auto factors = call.numbers<const double>(coefficient, "coefficient", true);
    const auto costs = call.numbers<double>(values, "values");
    const auto slopes = call.gradient(gradient);
    require(call.points.z.cols == 1, "points must have one component");
    const nb::gil_scoped_release released;
    follow_lines(call.todo, factors, call.points, call.pairs, costs, slopes.data);
}

void bound_pairs(nb::handle todo, nb::handle first, nb::handle second, nb::handle z, nb::handle bounds,
                 nb::handle weights, nb::handle means, int cost, nb::handle values) {
    const auto chosen = span_of<const std::int64_t>(todo, "todo");
    const auto rows = span_of<const std::int64_t>(first, "first"), cols = span_of<const std::int64_t>(second, "second");
    const auto points = matrix_of<const double>(z, "z");
    const auto limits = span_of<const std::int64_t>(bounds, "bounds");
    const auto masses = span_of<const double>(weights, "weights");
    const auto centres = matrix_of<const double>(means, "means");
    const auto proved = span_of<double>(values, "values");
    const Cost kind = cost_of(cost);
    check_bounds(limits, points.rows);
    const Index n_distributions = size_of(limits) - 1;
    require(size_of(masses) == points.rows, "weights must have a number for every point");
    require(centres.rows == n_distributions && centres.cols == points.cols, "means must have a row per distribution");
    require(rows.size() == cols.size() && proved.size() == rows.size(), "first, second and values must have one size");
    for (const std::int64_t p : chosen) {
        require(0 <= p && p < size_of(rows), "todo has an index that is no pair");
        for (const std::int64_t d : {rows[p], cols[p]})
            require(0 <= d && d < n_distributions, "first or second has an index that is no distribution");
    }
    const nb::gil_scoped_release released;
    SlopeBounds slope_bounds;
    for (const std::int64_t p : chosen) {
        const auto side = [&](Index d) { return points.rows_between(limits[d], limits[d + 1]); };
        const auto masses_of = [&](Index d) { return masses.subspan(limits[d], limits[d + 1] - limits[d]); };
        const Index d = rows[p], e = cols[p];
        proved[p] = slope_bounds.bound(kind, side(d), masses_of(d), side(e), masses_of(e), centres.row(d), centres.row(e));
    }
}

using Solved = std::tuple<std::int64_t, bool>;  // pivots (-1: the basis is not feasible), and whether it is optimal

/// Solve one problem with the buffers of this thread, which are kept up to 64 MB: allocating and touching them takes a
/// tenth of the time of a solve of 1000 x 1000 points.
template <Prices P>
Solved solve_one(const P& prices, nb::handle a, nb::handle b, nb::handle parent, nb::handle flow, nb::handle potential,
                 bool warm, std::int64_t max_pivots) {
    const auto supply = span_of<const Mass>(a, "a"), demand = span_of<const Mass>(b, "b");
    const auto n = static_cast<std::size_t>(prices.n()), m = static_cast<std::size_t>(prices.m());
    require(n > 0 && m > 0, "there must be at least one source and one sink");
    require(supply.size() == n && demand.size() == m, "a and b must have a mass for every source and sink");
    const Basis basis = basis_of(parent, flow, potential, n, m);
    constexpr std::size_t most_bytes = 64'000'000;
    thread_local std::unique_ptr<Simplex> simplex;
    const nb::gil_scoped_release released;
    if (!simplex) simplex = std::make_unique<Simplex>();
    const Result result = simplex->solve(prices, supply, demand, basis, warm, max_pivots);
    if (simplex->bytes() > most_bytes) simplex.reset();
    const bool optimal = result.status == Status::optimal && std::isfinite(result.value);
    return {result.status == Status::unfit ? -1 : result.pivots, optimal};
}

Solved solve_matrix(nb::handle cost, std::tuple<double, double> range, nb::handle a, nb::handle b, nb::handle parent,
                    nb::handle flow, nb::handle potential, bool warm, std::int64_t max_pivots) {
    const MatrixPrices prices{matrix_of<const double>(cost, "cost"), {std::get<0>(range), std::get<1>(range)}};
    return solve_one(prices, a, b, parent, flow, potential, warm, max_pivots);
}

Solved solve_points(nb::handle x, nb::handle y, int cost, nb::handle a, nb::handle b, nb::handle parent,
                    nb::handle flow, nb::handle potential, bool warm, std::int64_t max_pivots) {
    const auto sources = matrix_of<const double>(x, "x"), sinks = matrix_of<const double>(y, "y");
    require(sources.cols == sinks.cols && sources.cols > 0, "x and y must have the same columns, at least one");
    return with_prices(cost_of(cost), sources, sinks, [&](const auto& prices) {
        return solve_one(prices, a, b, parent, flow, potential, warm, max_pivots);
    });
}

/// Call visit with an array of the first of these types that the object has; the error names the last.
template <class T, class... Others, class Read, class Visit>
auto with_types(nb::handle object, Read read, Visit visit) {
    if constexpr (sizeof...(Others) > 0) {
        nb::ndarray<T> array;
        if (!nb::try_cast(object, array, false)) return with_types<Others...>(object, read, visit);
    }
    return visit(read.template operator()<T>());
}

/// Turn masses (of any sign) into the flows of a tree, in place; returns false if `parent` is no tree.
bool fill_tree_flows(nb::handle parent_object, nb::handle flow_object) {
    const auto parent = span_of<const Node>(parent_object, "parent");
    require(!parent.empty(), "parent must not be empty");
    const auto read = [&]<class T>() { return span_of<T>(flow_object, "flow"); };
    return with_types<double, Mass>(flow_object, read, [&](auto flow) {
        require(flow.size() == parent.size(), "flow must have a number for every node");
        const auto root = static_cast<Node>(parent.size()) - 1;
        for (Node x = 0; x <= root; ++x)
            if (x == root ? parent[x] != kNone : parent[x] < 0 || parent[x] > root) return false;
        std::vector<Node> child(parent.size()), sibling(parent.size()), stack(parent.size()), order(parent.size());
        if (order_tree(parent, child, sibling, stack, order) <= root) return false;
        for (Node k = root; k > 0; --k)  // children before their parents
            if (const Node x = order[k], p = parent[x]; p != root) flow[p] -= flow[x];
        return true;
    });
}

void construct_blocks(PointBlocks* self, nb::handle points, int cost) {
    const auto matrix = matrix_of<const double>(points, "points");
    require(matrix.rows > 0 && matrix.cols > 0, "points must not be empty");
    new (self) PointBlocks(matrix, cost_of(cost));
}

void construct_candidates(Candidates* self, std::int64_t n_sources, std::int64_t capacity) {
    require(n_sources > 0 && capacity > 0, "n_sources and capacity must be positive");
    new (self) Candidates(n_sources, capacity);
}

std::int64_t add_to(Candidates& candidates, nb::handle z, const PointBlocks& blocks, nb::handle potential,
                    std::int64_t width, bool only_negative, nb::handle allowed) {
    const auto points = matrix_of<const double>(z, "z");
    const auto levels = span_of<const double>(potential, "potential");
    const auto highest = span_of<double>(allowed, "allowed");
    const Index n = candidates.n_sources();
    require(size_of(highest) == n, "allowed must have a number for every source");
    require(points.rows == n + blocks.n_points() && points.cols == blocks.k(), "z must hold all sources and sinks");
    require(size_of(levels) == points.rows + 1, "potential must have a number for every node");
    require(1 <= width && width <= candidates.capacity(), "width must be from 1 to the capacity");
    require(candidates.end() <= points.rows, "candidates are those of a larger problem");
    const nb::gil_scoped_release released;
    return add_candidates(points, blocks, levels, width, only_negative, candidates, highest);
}

void allowed_potentials(nb::handle points, const PointBlocks& blocks, nb::handle heights, nb::handle allowed) {
    const auto others = matrix_of<const double>(points, "points");
    const auto levels = span_of<const double>(heights, "heights");
    const auto highest = span_of<double>(allowed, "allowed");
    require(others.cols == blocks.k() && size_of(highest) == others.rows, "points and allowed must fit the blocks");
    require(size_of(levels) == blocks.n_points(), "heights must have a number for every point in blocks");
    const nb::gil_scoped_release released;
    fill_allowed(others, blocks, levels, highest);
}

std::int64_t optimise(const Candidates& candidates, nb::handle z, int cost, nb::handle a, nb::handle b,
                      nb::handle parent, nb::handle flow, nb::handle potential, std::int64_t max_pivots) {
    const auto points = matrix_of<const double>(z, "z");
    const auto supply = span_of<const Mass>(a, "a"), demand = span_of<const Mass>(b, "b");
    require(size_of(supply) == candidates.n_sources() && !demand.empty(), "a must have a mass for every source");
    require(points.rows == size_of(supply) + size_of(demand), "z must hold all sources and sinks");
    const Basis basis = basis_of(parent, flow, potential, supply.size(), demand.size());
    require(candidates.end() <= points.rows, "candidates are those of a larger problem");
    const Cost kind = cost_of(cost);
    std::int64_t pivots;
    {
        const nb::gil_scoped_release released;
        pivots = optimise_candidates(points, kind, candidates, supply, demand, basis, max_pivots);
    }
    require(pivots >= 0, "the basis is no tree, or not feasible for these masses");
    return pivots;
}

void project(nb::handle points, nb::handle components, nb::handle products) {
    const auto factors = matrix_of<const double>(components, "components");
    const auto out = matrix_of<double>(products, "products");
    const auto read = [&]<class T>() { return matrix_of<T>(points, "points"); };
    with_types<const float, const double>(points, read, [&](auto rows) {
        require(rows.cols == factors.cols && out.rows == rows.rows && out.cols == factors.rows,
                "shapes of points, components and products do not fit");
        const nb::gil_scoped_release released;
        if constexpr (sizeof *rows.data == sizeof(float))
            loops().project32(rows.data, factors.data, rows.rows, rows.cols, factors.rows, out.data);
        else
            loops().project64(rows.data, factors.data, rows.rows, rows.cols, factors.rows, out.data);
    });
}

void split(nb::handle points, nb::handle masses, std::int64_t n_groups, nb::handle groups) {
    const auto matrix = matrix_of<const double>(points, "points");
    const auto weights = span_of<const double>(masses, "masses");
    const auto numbers = span_of<std::int64_t>(groups, "groups");
    require(matrix.rows > 0 && matrix.cols > 0 && n_groups > 0, "points and n_groups must not be empty");
    require(size_of(weights) == matrix.rows && size_of(numbers) == matrix.rows, "masses and groups must fit the points");
    const nb::gil_scoped_release released;
    Splitter(matrix, weights).split(n_groups, numbers);
}

void nearest_centres(nb::handle points, nb::handle centres, nb::handle nearest) {
    const auto matrix = matrix_of<const double>(points, "points"), middles = matrix_of<const double>(centres, "centres");
    const auto numbers = span_of<std::int64_t>(nearest, "nearest");
    require(matrix.cols == middles.cols && middles.rows > 0 && size_of(numbers) == matrix.rows,
            "shapes of points, centres and nearest do not fit");
    const nb::gil_scoped_release released;
    assign_nearest(matrix, middles, numbers);
}

std::tuple<double, double> finite_range(nb::handle numbers) {
    const auto matrix = matrix_of<const double>(numbers, "numbers");
    const nb::gil_scoped_release released;
    const Range range = loops().finite_range(matrix.data, matrix.rows * matrix.cols);
    return {range.low, range.high};
}

// Views of the inside, for tests.

/// Rough costs of a problem and the pricing on them.
template <class Rough>
void bind_rough(nb::module_& module, const char* name) {
    using Costs = RoughCosts<Rough>;
    const auto check = [](const Costs& rough, std::int64_t i) { require(0 <= i && i < rough.n(), "i is no source"); };
    nb::class_<Costs>(module, name)
        .def("__init__",
             [](Costs* self, nb::handle cost, std::tuple<double, double> range) {
                 const auto [low, high] = range;
                 const MatrixPrices prices{matrix_of<const double>(cost, "cost"), {low, high}};
                 (new (self) Costs)->fill(prices);
             })
        .def("__init__",
             [](Costs* self, nb::handle x, nb::handle y, int cost) {
                 const auto sources = matrix_of<const double>(x, "x"), sinks = matrix_of<const double>(y, "y");
                 require(sources.cols == sinks.cols && sources.cols > 0 && sources.rows > 0, "x and y must not be empty");
                 new (self) Costs;
                 with_prices(cost_of(cost), sources, sinks, [&](const auto& prices) { self->fill(prices); });
             })
        .def_prop_ro("scale", &Costs::scale)
        .def_prop_ro("error", &Costs::error)
        .def("fill",
             [](const Costs& rough, nb::handle costs) {
                 const auto out = matrix_of<Rough>(costs, "costs");
                 require(out.rows == rough.n() && out.cols == rough.width(), "costs must have rows of whole blocks");
                 std::copy_n(rough.row(0), out.rows * out.cols, out.data);
             })
        .def("set_levels",
             [](Costs& rough, nb::handle sinks) {
                 const auto levels = span_of<const double>(sinks, "sinks");
                 require(size_of(levels) == rough.m(), "sinks must have a potential for every sink");
                 rough.set_levels(levels);
             })
        .def("best",
             [check](const Costs& rough, std::int64_t i, double potential) {
                 check(rough, i);
                 const auto [gain, sink] = rough.best(i, potential);
                 return std::make_tuple(gain, sink);
             })
        .def("near", [check](Costs& rough, std::int64_t i, double potential) {
            check(rough, i);
            nb::list sinks;
            for (const Node j : rough.near(i, potential)) sinks.append(j);
            return sinks;
        });
}

/// Scan a padded row: the smallest difference, its block and first position, and all positions up to a limit.
nb::tuple scan_row(nb::handle costs, nb::handle levels, double limit) {
    const auto read = [&]<class T>() { return span_of<T>(costs, "costs"); };
    return with_types<const float, const std::int16_t>(costs, read, [&](auto row) {
        using Rough = std::remove_const_t<typename decltype(row)::element_type>;
        const auto heights = span_of<const Rough>(levels, "levels");
        require(!row.empty() && row.size() % kBlock == 0 && heights.size() == row.size(), "rows must have whole blocks");
        const Scan<Rough>& scan = loops().scan<Rough>();
        const auto [value, block] = scan.lowest(row.data(), heights.data(), size_of(row), std::nan(""));
        std::vector<Node> positions(row.size());
        const Index count = scan.at_most(row.data(), heights.data(), size_of(row), static_cast<Rough>(limit), positions.data());
        nb::list listed;
        for (Index k = 0; k < count; ++k) listed.append(positions[k]);
        return nb::make_tuple(value, block, scan.position(row.data(), heights.data(), block, value), listed);
    });
}

void fill_costs(nb::handle x, nb::handle y, int cost, nb::handle costs) {
    const auto sources = matrix_of<const double>(x, "x"), sinks = matrix_of<const double>(y, "y");
    const auto out = matrix_of<double>(costs, "costs");
    require(sources.cols == sinks.cols && out.rows == sources.rows && out.cols == sinks.rows, "shapes do not fit");
    for (Index i = 0; i < out.rows; ++i)
        for (Index j = 0; j < out.cols; ++j)
            out(i, j) = step_cost(cost_of(cost), sources.row(i), sinks.row(j), sources.cols);
}

}  // namespace
}  // namespace groundmetric

NB_MODULE(_core, module) {
    using namespace groundmetric;
    module.doc() = "Kernels of exact transport. `_core.pyi` documents them.";
    module.def("instruction_set", [] { return loops().name; });

    nb::class_<SharedWorkspace>(module, "Workspace").def(nb::init<>());
    module.def("solve_pairs", &solve_pairs, "workspace"_a, "todo"_a, "enough"_a, "points"_a, "pairs"_a, "bases"_a,
               "max_pivots"_a, "answers"_a);
    module.def("fill_flows", &fill_flows, "todo"_a, "points"_a, "pairs"_a, "bases"_a);
    module.def("follow_plans", &follow, "todo"_a, "coefficient"_a, "points"_a, "pairs"_a, "bases"_a, "values"_a,
               "gradient"_a);
    module.def("move_points", &move, "distribution"_a, "z"_a, "points"_a, "means"_a);
    module.def("follow_lines", &follow_on_lines, "todo"_a, "coefficient"_a, "points"_a, "pairs"_a, "values"_a,
               "gradient"_a);
    module.def("bound_pairs", &bound_pairs, "todo"_a, "first"_a, "second"_a, "z"_a, "bounds"_a, "weights"_a, "means"_a,
               "cost"_a, "values"_a);

    module.def("solve_matrix", &solve_matrix, "cost"_a, "range"_a, "a"_a, "b"_a, "parent"_a, "flow"_a, "potential"_a,
               "warm"_a, "max_pivots"_a);
    module.def("solve_points", &solve_points, "x"_a, "y"_a, "cost"_a, "a"_a, "b"_a, "parent"_a, "flow"_a,
               "potential"_a, "warm"_a, "max_pivots"_a);
    module.def("fill_tree_flows", &fill_tree_flows, "parent"_a, "flow"_a);
    module.def("finite_range", &finite_range, "numbers"_a);

    nb::class_<PointBlocks>(module, "PointBlocks").def("__init__", &construct_blocks, "points"_a, "cost"_a);
    nb::class_<Candidates>(module, "Candidates")
        .def("__init__", &construct_candidates, "n_sources"_a, "capacity"_a)
        .def("add", &add_to, "z"_a, "blocks"_a, "potential"_a, "width"_a, "only_negative"_a, "allowed"_a)
        .def("optimise", &optimise, "z"_a, "cost"_a, "a"_a, "b"_a, "parent"_a, "flow"_a, "potential"_a, "max_pivots"_a);
    module.def("allowed_potentials", &allowed_potentials, "points"_a, "blocks"_a, "heights"_a, "allowed"_a);

    module.def("project", &project, "points"_a, "components"_a, "products"_a);
    module.def("split", &split, "points"_a, "masses"_a, "n_groups"_a, "groups"_a);
    module.def("nearest_centres", &nearest_centres, "points"_a, "centres"_a, "nearest"_a);

    bind_rough<float>(module, "RoughCosts32");
    bind_rough<std::int16_t>(module, "RoughCosts16");
    module.def("scan_row", &scan_row, "costs"_a, "levels"_a, "limit"_a);
    module.def("fill_costs", &fill_costs, "x"_a, "y"_a, "cost"_a, "costs"_a);
}
