// What Python sees. Every array is checked and converted here, indices included: the rest of the library trusts them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

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

Points points_of(nb::handle object) {
    const Points points{matrix_of<double>(object.attr("z"), "z"), span_in<const std::int64_t>(object, "bounds"),
                        span_in<const Mass>(object, "units"), span_in<const Mass>(object, "rounded"),
                        cost_of(nb::cast<int>(object.attr("cost")))};
    require(!points.bounds.empty() && points.bounds.front() == 0 && points.bounds.back() == points.z.rows,
            "bounds must start at 0 and end at the number of points");
    for (std::size_t d = 1; d < points.bounds.size(); ++d)
        require(points.bounds[d - 1] < points.bounds[d], "bounds must increase");
    require(size_of(points.units) == points.z.rows, "units must have a number for every point");
    require(points.rounded.empty() || size_of(points.rounded) == points.z.rows,
            "rounded must be empty or have a number for every point");
    require(points.z.cols > 0, "points must have at least one component");
    return points;
}

Pairs pairs_of(nb::handle object, const Points& points) {
    const Pairs pairs{span_in<const std::int64_t>(object, "first"), span_in<const std::int64_t>(object, "second"),
                      span_in<const Mass>(object, "times_first"), span_in<const Mass>(object, "times_second")};
    require(pairs.second.size() == pairs.first.size() && pairs.times_first.size() == pairs.first.size() &&
                pairs.times_second.size() == pairs.first.size(),
            "first, second, times_first and times_second must have the same size");
    (void)points;
    return pairs;
}

Bases bases_of(nb::handle object, const Pairs& pairs) {
    const Bases bases{span_in<const std::int64_t>(object, "offset"), span_in<Node>(object, "parent"),
                      span_in<Mass>(object, "flow"), span_in<double>(object, "potential"), span_in<bool>(object, "warm")};
    require(bases.offset.size() == pairs.first.size() && bases.warm.size() == pairs.first.size(),
            "offset and warm must have a number for every pair");
    require(bases.flow.size() == bases.parent.size() && bases.potential.size() == bases.parent.size(),
            "parent, flow and potential must have the same size");
    return bases;
}

Results results_of(nb::handle object, const Pairs& pairs) {
    const Results results{span_in<double>(object, "value"), span_in<std::int64_t>(object, "pivots"),
                          span_in<bool>(object, "optimal"), span_in<bool>(object, "bound")};
    for (const std::size_t size :
         {results.value.size(), results.pivots.size(), results.optimal.size(), results.bound.size()})
        require(size == pairs.first.size(), "answers must have a number for every pair");
    return results;
}

/// Pairs to work on, with the distributions of each; if `bases` is given, their bases lie inside the arrays.
std::span<const std::int64_t> todo_of(nb::handle object, const Points& points, const Pairs& pairs,
                                      const Bases* bases = nullptr) {
    const auto todo = span_of<const std::int64_t>(object, "todo");
    const Index n_pairs = size_of(pairs.first), n_distributions = size_of(points.bounds) - 1;
    for (const std::int64_t p : todo) {
        require(0 <= p && p < n_pairs, "todo has an index that is no pair");
        for (const std::int64_t d : {pairs.first[p], pairs.second[p]})
            require(0 <= d && d < n_distributions, "first or second has an index that is no distribution");
        require((pairs.times_first[p] > 0 && pairs.times_second[p] > 0) || !points.rounded.empty(),
                "rounded is empty, but a pair needs rounded masses");
        if (bases == nullptr) continue;
        const Index nodes = Pair(points, pairs, p).nodes(), size = size_of(bases->parent);
        require(bases->offset[p] >= 0 && bases->offset[p] <= size && nodes <= size - bases->offset[p],
                "offset places a basis outside of the arrays");
    }
    return todo;
}

/// Scratch memory of one thread. A second thread that uses it at the same time gets an error.
class SharedWorkspace {
public:
    class Lock {
    public:
        explicit Lock(SharedWorkspace& owner) : owner_(owner) {
            if (owner_.busy_.test_and_set()) throw std::runtime_error("workspace is in use by another thread");
        }
        ~Lock() { owner_.busy_.clear(); }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

    private:
        SharedWorkspace& owner_;
    };

    Workspace workspace;

private:
    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

void solve_pairs(SharedWorkspace& shared, nb::handle todo, nb::handle enough, nb::handle points, nb::handle pairs,
                 nb::handle bases, std::int64_t max_pivots, nb::handle answers) {
    const Points all = points_of(points);
    const Pairs listed = pairs_of(pairs, all);
    const Bases stored = bases_of(bases, listed);
    const Results results = results_of(answers, listed);
    const auto chosen = todo_of(todo, all, listed, &stored);
    const auto limits = span_of<const double>(enough, "enough");
    require(limits.size() == chosen.size(), "enough must have a number for every pair of todo");
    const SharedWorkspace::Lock lock(shared);
    const nb::gil_scoped_release released;
    shared.workspace.solve(chosen, limits, all, listed, stored, max_pivots, results);
}

void fill_flows(nb::handle todo, nb::handle points, nb::handle pairs, nb::handle bases) {
    const Points all = points_of(points);
    const Pairs listed = pairs_of(pairs, all);
    const Bases stored = bases_of(bases, listed);
    const auto chosen = todo_of(todo, all, listed, &stored);
    Workspace workspace;
    require(workspace.fill_flows(chosen, all, listed, stored), "a basis is no tree, or not feasible for its masses");
}

void follow_plans(nb::handle todo, nb::handle coefficient, nb::handle points, nb::handle pairs, nb::handle bases,
                  nb::handle values, nb::handle gradient) {
    const Points all = points_of(points);
    const Pairs listed = pairs_of(pairs, all);
    const Bases stored = bases_of(bases, listed);
    // Pairs without a basis have no place in the arrays.
    const auto chosen = todo_of(todo, all, listed);
    for (const std::int64_t p : chosen) {
        const Index nodes = Pair(all, listed, p).nodes(), size = size_of(stored.parent);
        require(!stored.warm[p] ||
                    (stored.offset[p] >= 0 && stored.offset[p] <= size && nodes <= size - stored.offset[p]),
                "offset places a basis outside of the arrays");
    }
    const auto factors = span_of<const double>(coefficient, "coefficient");
    const auto costs = span_of<double>(values, "values");
    const auto slopes = matrix_of<double>(gradient, "gradient");
    require(factors.empty() || factors.size() == chosen.size(), "coefficient must be empty or have a number per pair");
    require(costs.size() == chosen.size(), "values must have a number for every pair of todo");
    require(slopes.rows == all.z.rows && slopes.cols == all.z.cols, "gradient must have the shape of the points");
    bool intact;
    {
        const nb::gil_scoped_release released;
        intact = PlanCosts(all, listed, stored).follow(chosen, factors, costs, slopes);
    }
    require(intact, "a basis is no tree");
}

double move(std::int64_t distribution, nb::handle z, nb::handle points, nb::handle means) {
    const Points all = points_of(points);
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

void solve_lines(nb::handle todo, nb::handle points, nb::handle pairs, nb::handle answers) {
    const Points all = points_of(points);
    const Pairs listed = pairs_of(pairs, all);
    const Results results = results_of(answers, listed);
    const auto chosen = todo_of(todo, all, listed);
    require(all.z.cols == 1, "points must have one component");
    const nb::gil_scoped_release released;
    Lines().solve(chosen, all, listed, results);
}

void differentiate_lines(nb::handle todo, nb::handle coefficient, nb::handle points, nb::handle pairs,
                         nb::handle gradient) {
    const Points all = points_of(points);
    const Pairs listed = pairs_of(pairs, all);
    const auto chosen = todo_of(todo, all, listed);
    const auto factors = span_of<const double>(coefficient, "coefficient");
    const auto slopes = matrix_of<double>(gradient, "gradient");
    require(factors.size() == chosen.size(), "coefficient must have a number for every pair of todo");
    require(all.z.cols == 1 && slopes.cols == 1 && slopes.rows == all.z.rows, "points must have one component");
    const nb::gil_scoped_release released;
    Lines().differentiate(chosen, factors, all, listed, {slopes.data, static_cast<std::size_t>(slopes.rows)});
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
    const Index n_distributions = size_of(limits) - 1;
    require(n_distributions >= 0 && limits.front() == 0 && limits.back() == points.rows,
            "bounds must start at 0 and end at the number of points");
    for (Index d = 0; d < n_distributions; ++d) require(limits[d] < limits[d + 1], "bounds must increase");
    require(size_of(masses) == points.rows, "weights must have a number for every point");
    require(centres.rows == n_distributions && centres.cols == points.cols, "means must have a row per distribution");
    require(rows.size() == cols.size() && proved.size() == rows.size(), "first, second and values must have one size");
    for (const std::int64_t p : chosen) {
        require(0 <= p && p < size_of(rows), "todo has an index that is no pair");
        for (const std::int64_t d : {rows[p], cols[p]})
            require(0 <= d && d < n_distributions, "first or second has an index that is no distribution");
    }
    const Cost kind = cost_of(cost);
    const nb::gil_scoped_release released;
    PotentialBounds by_potentials;
    for (const std::int64_t p : chosen) {
        const Index d = rows[p], e = cols[p];
        const auto side = [&](Index of) {
            return masses.subspan(static_cast<std::size_t>(limits[of]), static_cast<std::size_t>(limits[of + 1] - limits[of]));
        };
        proved[p] = by_potentials.bound(kind, points.rows_between(limits[d], limits[d + 1]), side(d),
                                        points.rows_between(limits[e], limits[e + 1]), side(e), centres.row(d),
                                        centres.row(e));
    }
}

using Solved = std::tuple<std::int64_t, bool>;  // pivots (-1: the basis is not feasible), and whether it is optimal

/// Solve one problem with the buffers of this thread, which are kept up to 64 MB: allocating and touching them takes a
/// tenth of the time of a solve of 1000 x 1000 points.
template <Prices P>
Solved solve_one(const P& prices, nb::handle a, nb::handle b, nb::handle parent, nb::handle flow, nb::handle potential,
                 bool warm, std::int64_t max_pivots) {
    const auto supply = span_of<const Mass>(a, "a"), demand = span_of<const Mass>(b, "b");
    const Basis basis{span_of<Node>(parent, "parent"), span_of<Mass>(flow, "flow"),
                      span_of<double>(potential, "potential")};
    const auto n = static_cast<std::size_t>(prices.n()), m = static_cast<std::size_t>(prices.m());
    require(n > 0 && m > 0, "there must be at least one source and one sink");
    require(supply.size() == n && demand.size() == m, "a and b must have a mass for every source and sink");
    require(basis.parent.size() == n + m + 1 && basis.flow.size() == n + m + 1 && basis.potential.size() == n + m + 1,
            "parent, flow and potential must have a number for every node");
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
    Solved solved;
    with_prices(cost_of(cost), sources, sinks, [&](const auto& prices) {
        solved = solve_one(prices, a, b, parent, flow, potential, warm, max_pivots);
    });
    return solved;
}

/// Turn masses (of any sign) into the flows of a tree, in place; returns false if `parent` is no tree.
template <class T>
bool fill_tree_flows_of(std::span<const Node> parent, std::span<T> flow) {
    const auto nodes = static_cast<Index>(parent.size());
    std::vector<Node> child(parent.size()), sibling(parent.size()), stack(parent.size()), order(parent.size());
    const auto root = static_cast<Node>(nodes - 1);
    for (Index x = 0; x < nodes; ++x) {
        if (x == root ? parent[x] != kNone : parent[x] < 0 || parent[x] > root) return false;
    }
    if (order_tree(parent, child, sibling, stack, order) < nodes) return false;
    for (Index k = nodes - 1; k > 0; --k)  // children before their parents
        if (const Node x = order[k], p = parent[x]; p != root) flow[p] = static_cast<T>(flow[p] - flow[x]);
    return true;
}

bool fill_tree_flows(nb::handle parent, nb::handle flow) {
    const auto parents = span_of<const Node>(parent, "parent");
    require(!parents.empty(), "parent must not be empty");
    Array<double, 1> floats;
    if (nb::try_cast(flow, floats, false)) {
        const auto numbers = span_of<double>(flow, "flow");
        require(numbers.size() == parents.size(), "flow must have a number for every node");
        return fill_tree_flows_of(parents, numbers);
    }
    const auto numbers = span_of<Mass>(flow, "flow");
    require(numbers.size() == parents.size(), "flow must have a number for every node");
    return fill_tree_flows_of(parents, numbers);
}

std::int64_t fill_shipments(nb::handle a, nb::handle b, nb::handle senders, nb::handle receivers, nb::handle amounts) {
    const auto supply = span_of<const Mass>(a, "a"), demand = span_of<const Mass>(b, "b");
    const auto from = span_of<std::int64_t>(senders, "senders"), to = span_of<std::int64_t>(receivers, "receivers");
    const auto sent = span_of<std::int64_t>(amounts, "amounts");
    require(!supply.empty() && !demand.empty(), "a and b must not be empty");
    for (const std::size_t size : {from.size(), to.size(), sent.size()})
        require(size >= supply.size() + demand.size() - 1, "shipments need len(a) + len(b) - 1 places");
    std::int64_t count = 0;
    ship_in_order(
        size_of(supply), [&](Index i) { return supply[i]; }, size_of(demand), [&](Index j) { return demand[j]; },
        [&](Index i, Index j, Mass amount, bool) { from[count] = i, to[count] = j, sent[count++] = amount; });
    return count;
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
    const Basis basis{span_of<Node>(parent, "parent"), span_of<Mass>(flow, "flow"),
                      span_of<double>(potential, "potential")};
    const std::size_t nodes = supply.size() + demand.size() + 1;
    require(size_of(supply) == candidates.n_sources() && !demand.empty(), "a must have a mass for every source");
    require(points.rows == static_cast<Index>(nodes) - 1, "z must hold all sources and sinks");
    require(basis.parent.size() == nodes && basis.flow.size() == nodes && basis.potential.size() == nodes,
            "parent, flow and potential must have a number for every node");
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

template <class T>
void project_rows(nb::handle points, Matrix<const double> components, Matrix<double> products) {
    const auto rows = matrix_of<const T>(points, "points");
    require(rows.cols == components.cols && products.rows == rows.rows && products.cols == components.rows,
            "shapes of points, components and products do not fit");
    const nb::gil_scoped_release released;
    const auto project = [] {
        if constexpr (std::is_same_v<T, float>)
            return loops().project32;
        else
            return loops().project64;
    }();
    project(rows.data, components.data, rows.rows, rows.cols, components.rows, products.data);
}

void project(nb::handle points, nb::handle components, nb::handle products) {
    const auto factors = matrix_of<const double>(components, "components");
    const auto out = matrix_of<double>(products, "products");
    Array<const float, 2> floats;
    if (nb::try_cast(points, floats, false))
        project_rows<float>(points, factors, out);
    else
        project_rows<double>(points, factors, out);
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
class RoughView {
public:
    RoughView(nb::handle cost, std::tuple<double, double> range) {
        rough_.fill(MatrixPrices{matrix_of<const double>(cost, "cost"), {std::get<0>(range), std::get<1>(range)}});
    }
    RoughView(nb::handle x, nb::handle y, int cost) {
        const auto sources = matrix_of<const double>(x, "x"), sinks = matrix_of<const double>(y, "y");
        require(sources.cols == sinks.cols && sources.cols > 0 && sources.rows > 0, "x and y must not be empty");
        with_prices(cost_of(cost), sources, sinks, [&](const auto& prices) { rough_.fill(prices); });
    }

    double scale() const { return rough_.scale(); }
    double error() const { return rough_.error(); }

    nb::ndarray<nb::numpy, Rough, nb::ndim<2>> costs() const {
        const auto n = static_cast<std::size_t>(rough_.n()), width = static_cast<std::size_t>(rough_.width());
        auto* copy = new Rough[n * width];
        nb::capsule owner(copy, [](void* numbers) noexcept { delete[] static_cast<Rough*>(numbers); });
        std::copy_n(rough_.row(0), n * width, copy);
        return {copy, {n, width}, owner};
    }

    void set_levels(nb::handle sinks) {
        const auto levels = span_of<const double>(sinks, "sinks");
        require(size_of(levels) == rough_.m(), "sinks must have a potential for every sink");
        rough_.set_levels(levels);
    }

    std::tuple<double, std::int64_t> best(std::int64_t i, double potential) const {
        require(0 <= i && i < rough_.n(), "i is no source");
        const auto [gain, sink] = rough_.best(i, potential);
        return {gain, sink};
    }

    nb::list near(std::int64_t i, double potential) {
        require(0 <= i && i < rough_.n(), "i is no source");
        nb::list sinks;
        for (const Node j : rough_.near(i, potential)) sinks.append(j);
        return sinks;
    }

private:
    RoughCosts<Rough> rough_;
};

template <class Rough>
void bind_rough(nb::module_& module, const char* name) {
    using View = RoughView<Rough>;
    nb::class_<View>(module, name)
        .def(nb::init<nb::handle, std::tuple<double, double>>(), "cost"_a, "range"_a)
        .def(nb::init<nb::handle, nb::handle, int>(), "x"_a, "y"_a, "cost"_a)
        .def_prop_ro("scale", &View::scale)
        .def_prop_ro("error", &View::error)
        .def("costs", &View::costs)
        .def("set_levels", &View::set_levels, "sinks"_a)
        .def("best", &View::best, "i"_a, "potential"_a)
        .def("near", &View::near, "i"_a, "potential"_a);
}

/// Scan a padded row: the smallest difference, its first position, and all positions up to a limit.
template <class Rough>
nb::tuple scan_row(nb::handle costs, nb::handle levels, Rough limit) {
    const auto row = span_of<const Rough>(costs, "costs"), heights = span_of<const Rough>(levels, "levels");
    require(!row.empty() && row.size() % kBlock == 0 && heights.size() == row.size(), "rows must have whole blocks");
    const Scan<Rough>& scan = loops().scan<Rough>();
    const auto [value, block] = scan.lowest(row.data(), heights.data(), size_of(row));
    std::vector<Node> positions(row.size());
    const Index count = scan.at_most(row.data(), heights.data(), size_of(row), limit, positions.data());
    nb::list listed;
    for (Index k = 0; k < count; ++k) listed.append(positions[k]);
    return nb::make_tuple(value, block, scan.position(row.data(), heights.data(), block, value), listed);
}

nb::tuple scan_either(nb::handle costs, nb::handle levels, double limit) {
    Array<const float, 1> floats;
    if (nb::try_cast(costs, floats, false)) return scan_row<float>(costs, levels, static_cast<float>(limit));
    return scan_row<std::int16_t>(costs, levels, static_cast<std::int16_t>(limit));
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
    module.def("follow_plans", &follow_plans, "todo"_a, "coefficient"_a, "points"_a, "pairs"_a, "bases"_a, "values"_a,
               "gradient"_a);
    module.def("move_points", &move, "distribution"_a, "z"_a, "points"_a, "means"_a);
    module.def("solve_lines", &solve_lines, "todo"_a, "points"_a, "pairs"_a, "answers"_a);
    module.def("differentiate_lines", &differentiate_lines, "todo"_a, "coefficient"_a, "points"_a, "pairs"_a,
               "gradient"_a);
    module.def("bound_pairs", &bound_pairs, "todo"_a, "first"_a, "second"_a, "z"_a, "bounds"_a, "weights"_a, "means"_a,
               "cost"_a, "values"_a);

    module.def("solve_matrix", &solve_matrix, "cost"_a, "range"_a, "a"_a, "b"_a, "parent"_a, "flow"_a, "potential"_a,
               "warm"_a, "max_pivots"_a);
    module.def("solve_points", &solve_points, "x"_a, "y"_a, "cost"_a, "a"_a, "b"_a, "parent"_a, "flow"_a,
               "potential"_a, "warm"_a, "max_pivots"_a);
    module.def("fill_tree_flows", &fill_tree_flows, "parent"_a, "flow"_a);
    module.def("fill_shipments", &fill_shipments, "a"_a, "b"_a, "senders"_a, "receivers"_a, "amounts"_a);
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
    module.def("scan_row", &scan_either, "costs"_a, "levels"_a, "limit"_a);
    module.def("fill_costs", &fill_costs, "x"_a, "y"_a, "cost"_a, "costs"_a);
}
