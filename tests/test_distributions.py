"""Distributions: any rows, any samples, sliced like an array."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import groundmetric as gm
from groundmetric import Distributions
from groundmetric._internal.validation import ParameterError, align_by_name
from groundmetric.distributions import as_distributions

POINTS = np.arange(12.0).reshape(6, 2)
GROUPS = ["b", "a", "b", "c", "a", "b"]


def cohort(**options):
    return Distributions(POINTS, GROUPS, **options)


def points_of(D, d):
    return D.points[D.bounds[d] : D.bounds[d + 1]]


def test_rows_in_any_order_are_gathered_by_first_appearance_of_their_group():
    D = cohort()
    assert D.names == ["b", "a", "c"]
    assert D.sizes.tolist() == [3, 2, 1]
    assert D.order.tolist() == [0, 2, 5, 1, 4, 3]
    assert_array_equal(D.points, POINTS[D.order])
    assert_array_equal(points_of(D, 1), POINTS[[1, 4]])


def test_it_says_how_many_it_holds():
    D = cohort()
    assert (len(D), D.shape) == (3, (3, 2))
    assert repr(D) == "Distributions(3 distributions, 6 points, 2 features)"


@pytest.mark.parametrize(
    "names",
    [["x", "y", "z"], [7, -1, 3], [("p", 1), ("p", 2), ("q", 1)], ["s", 4, ("t", None)], [2.5, True, "2.5"]],
    ids=["str", "int", "tuple", "mixed", "lookalikes"],
)
def test_samples_may_be_any_hashable_values(names):
    D = Distributions(POINTS, [names["bac".index(g)] for g in GROUPS])
    assert D.names == names
    assert D.order.tolist() == [0, 2, 5, 1, 4, 3]


@pytest.mark.parametrize(
    "wrap",
    [np.array, lambda g: np.array(g, object), pd.Series, pd.Categorical, pd.Index, iter, tuple,
     lambda g: pd.Series(g, dtype="category"), lambda g: pd.Series(g, index=[9, 9, 1, 2, 3, 4])],
    ids=["array", "object", "series", "categorical", "index", "iterator", "tuple", "category", "odd index"],
)  # fmt: skip
def test_samples_may_come_in_any_container(wrap):
    D = Distributions(POINTS, wrap(GROUPS))
    assert D.names == ["b", "a", "c"]
    assert D.order.tolist() == cohort().order.tolist()


def test_unused_categories_are_no_distributions():
    assert Distributions(POINTS, pd.Categorical(GROUPS, categories=list("zcba"))).names == ["b", "a", "c"]


def test_integer_samples_of_an_array_keep_the_order_of_first_appearance():
    D = Distributions(POINTS, np.array([30, 10, 30, 20, 10, 30]))
    assert D.names == [30, 10, 20]


@pytest.mark.parametrize("wrap", [list, pd.Series, np.array, lambda days: np.array(days, "M8[ns]")])
def test_dates_stay_dates(wrap):
    days = wrap([pd.Timestamp(f"2020-01-0{'bac'.index(g) + 1}") for g in GROUPS])
    assert [pd.Timestamp(name) for name in Distributions(POINTS, days).names] == sorted(set(days))
    assert not any(isinstance(name, int) for name in Distributions(POINTS, days).names)


def test_a_data_frame_gives_the_feature_names():
    frame = pd.DataFrame(POINTS, columns=["größe", "weight"])
    assert Distributions(frame, GROUPS).features == ["größe", "weight"]
    assert Distributions(frame, GROUPS, features=["x", "y"]).features == ["x", "y"]
    assert Distributions(frame, GROUPS)[[0]].features == ["größe", "weight"]


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_points_equal_dense_ones(form, kind):
    D = Distributions(kind(POINTS).asformat(form), GROUPS)
    assert D.points.format == "csr"
    assert_array_equal(D.points.toarray(), cohort().points)
    assert_allclose(D.means(), cohort().means())
    assert_array_equal(D[[2, 0]].points.toarray(), cohort()[[2, 0]].points)


def test_equal_masses_are_the_default():
    assert_allclose(cohort().weights, [1 / 3] * 3 + [1 / 2] * 2 + [1])
    assert cohort().uniform.all()


def test_weights_follow_their_points_and_sum_to_one_in_every_distribution():
    D = cohort(weights=[1, 2, 3, 5, 6, 4])
    assert_allclose(D.weights, [1 / 8, 3 / 8, 4 / 8, 2 / 8, 6 / 8, 1])
    assert D.uniform.tolist() == [False, False, True]


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300, 1.7e308])
def test_weights_of_any_size_are_normalised(scale):
    D = cohort(weights=np.full(6, scale))
    assert_allclose(np.add.reduceat(D.weights, D.bounds[:-1]), 1.0)


@pytest.mark.parametrize(
    ("indices", "positions"),
    [
        (1, [1]),
        (-1, [2]),
        ([2, 0], [2, 0]),
        ([-1, 1], [2, 1]),
        ([0, 0, 2], [0, 0, 2]),
        (slice(1, None), [1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        ([True, False, True], [0, 2]),
        (np.array([False, True, True]), [1, 2]),
        ((np.array([1, 0]), ...), [1, 0]),
        ([], []),
    ],
)
def test_slicing_keeps_every_distribution_whole(indices, positions):
    D = cohort(weights=[1, 2, 3, 5, 6, 4], annotations={"row": np.arange(6)})
    part = D[indices]
    assert part.names == [D.names[d] for d in positions]
    assert part.sizes.tolist() == [D.sizes[d] for d in positions]
    assert part.uniform.tolist() == [D.uniform[d] for d in positions]
    for position, d in enumerate(positions):
        rows = slice(part.bounds[position], part.bounds[position + 1])
        assert_array_equal(part.points[rows], points_of(D, d))
        assert_array_equal(part.weights[rows], D.weights[D.bounds[d] : D.bounds[d + 1]])
        assert_array_equal(part.points[rows], POINTS[part.order[rows]])
        assert_array_equal(part.annotations["row"][rows], part.order[rows])


def test_slicing_beyond_the_end_is_an_index_error_and_iteration_ends():
    with pytest.raises(IndexError):
        cohort()[3]
    assert [part.names for part in cohort()] == [["b"], ["a"], ["c"]]


def test_annotations_follow_their_points():
    D = cohort(annotations={"kind": list("uvwxyz")})
    assert D.annotations["kind"].tolist() == list("uwzvyx")
    assert D[[1]].annotations["kind"].tolist() == ["v", "y"]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64, object])
def test_numbers_of_any_type_become_float64(dtype):
    D = Distributions(POINTS.astype(dtype), GROUPS)
    assert D.points.dtype == np.float64
    assert_array_equal(D.points, POINTS.astype(dtype).astype(float)[D.order])


def test_float32_stays_float32_dense_and_sparse():
    assert Distributions(POINTS.astype(np.float32), GROUPS).points.dtype == np.float32
    assert Distributions(sparse.csr_matrix(POINTS, dtype=np.float32), GROUPS)[[1]].points.dtype == np.float32


def test_read_only_and_non_contiguous_points_are_accepted():
    wide = np.repeat(np.asfortranarray(POINTS), 2, axis=1)
    wide.flags.writeable = False
    assert_array_equal(Distributions(wide[:, ::2], GROUPS).points, cohort().points)


def test_points_that_lie_together_are_not_copied():
    D = Distributions(POINTS, ["z", "z", "a", "a", "a", "m"])
    assert np.shares_memory(D.points, POINTS)
    assert np.shares_memory(D[1:].points, POINTS)
    assert not np.shares_memory(cohort().points, POINTS)
    large = Distributions(sparse.csr_matrix(POINTS), GROUPS)
    assert np.shares_memory(large[[0, 1, 2]].points.data, large.points.data)
    assert not np.shares_memory(large[[0, 2, 1]].points.data, large.points.data)


def test_from_arrays_makes_one_distribution_per_array():
    D = Distributions.from_arrays([POINTS[:1], POINTS[1:]], features=["x", "y"])
    assert (D.names, D.sizes.tolist(), D.features) == ([0, 1], [1, 5], ["x", "y"])
    assert_array_equal(D.points, POINTS)
    assert Distributions.from_arrays([POINTS, POINTS], names=["p", "q"]).names == ["p", "q"]


def test_from_arrays_takes_sparse_matrices_too():
    D = Distributions.from_arrays([sparse.csc_matrix(POINTS[:2]), POINTS[2:]])
    assert D.points.format == "csr"
    assert_array_equal(D.points.toarray(), POINTS)


def test_with_mass_drops_points_that_weigh_nothing():
    D = cohort(weights=[0, 1, 2, 1, 0, 2], annotations={"row": np.arange(6)})
    stored = D.with_mass()
    assert (stored.names, stored.sizes.tolist()) == (D.names, [2, 1, 1])
    assert stored.annotations["row"].tolist() == stored.order.tolist() == [2, 5, 1, 3]
    assert_array_equal(stored.points, POINTS[[2, 5, 1, 3]])
    assert_allclose(np.add.reduceat(stored.weights, stored.bounds[:-1]), 1.0)
    assert_allclose(stored.means(), D.means())
    assert cohort().with_mass().points.shape == (6, 2)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_means_of_float32_points_are_in_double_precision(kind):
    random = np.random.default_rng(0)
    points = kind(np.where(random.random((500, 7)) < 0.5, random.normal(size=(500, 7)), 0.0).astype(np.float32))
    D = Distributions(points, random.integers(0, 60, 500), weights=random.random(500))
    block = slice(D.bounds[5], D.bounds[6])
    dense = D.points.toarray() if sparse.issparse(D.points) else D.points
    assert_allclose(D.means()[5], D.weights[block] @ dense[block].astype(float), rtol=1e-12)


def test_means_are_weighted():
    D = Distributions([[0.0], [4.0], [7.0]], ["a", "a", "b"], weights=[3, 1, 2])
    assert D.means().tolist() == [[1.0], [7.0]]
    assert_allclose(cohort().means(), [POINTS[[0, 2, 5]].mean(0), POINTS[[1, 4]].mean(0), POINTS[3]])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_weigh_points_by_their_share_in_their_distribution(kind, dtype):
    random, owner = np.random.default_rng(0), np.repeat([0, 1, 2], [40, 18, 2])
    points = np.column_stack([random.normal(size=(60, 3)), np.full(60, 7.0)]).astype(dtype)
    for masses in (None, random.uniform(size=60)):
        D = Distributions(kind(points), owner, weights=masses)
        weights = D.weights * D.sizes[owner]
        mean, variance = D.moments()
        expected = np.average(points, axis=0, weights=weights)
        assert mean.dtype == variance.dtype == np.float64
        assert_allclose(mean, expected, rtol=1e-4, atol=1e-6)
        assert_allclose(variance, np.average((points - expected) ** 2, axis=0, weights=weights), rtol=1e-4, atol=1e-9)


def test_moments_do_not_depend_on_how_many_points_are_summed_at_a_time(monkeypatch):
    random = np.random.default_rng(0)
    points, owner = random.normal(size=(500, 7)), random.integers(0, 60, 500)
    for masses in (None, random.uniform(size=500)):
        D = Distributions(points, owner, weights=masses)
        complete = D.moments()
        with monkeypatch.context() as patch:
            patch.setattr("groundmetric.distributions._BLOCK_ENTRIES", 70)
            assert_allclose(D.moments(), complete, rtol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_moments_of_equal_masses_are_those_of_the_points_whatever_the_sizes(kind):
    mean, variance = Distributions(kind(POINTS), GROUPS).moments()
    assert_allclose(mean, POINTS.mean(axis=0))
    assert_allclose(variance, POINTS.var(axis=0))


def test_moments_without_weights_count_every_point_as_one():
    D = cohort(weights=[1, 2, 3, 5, 6, 4])
    assert_array_equal(D.moments(weighted=False), cohort().moments())
    assert not np.allclose(D.moments(), cohort().moments())


def test_in_a_mean_over_all_points_a_distribution_counts_by_its_size():
    D = cohort(weights=[1, 2, 3, 5, 6, 4])
    assert_allclose(D.moments()[0], np.average(D.means(), axis=0, weights=D.sizes))


@pytest.mark.parametrize(("value", "remedy"), [(1e200, "divide"), (1e-200, "multiply")])
@pytest.mark.parametrize("weights", [None, [1, 2, 3, 5, 6, 4]])
def test_variances_out_of_the_range_of_numbers_are_refused(value, remedy, weights):
    D = Distributions(POINTS * [1.0, value], GROUPS, weights=weights, features=["fine", "wild"])
    with pytest.raises(ValueError, match=f"variance of feature 'wild' is out of the range of numbers: {remedy}"):
        D.moments()


def test_every_row_of_an_array_is_a_distribution_where_no_samples_are_known():
    D = as_distributions(POINTS)
    assert (len(D), D.sizes.tolist()) == (6, [1] * 6)
    assert as_distributions(D) is D


@given(st.data())
def test_shuffling_the_rows_gives_the_same_distributions(data):
    samples = data.draw(st.lists(st.sampled_from(["a", 1, ("t", 2), 2.5]), min_size=1, max_size=25))
    shuffle = data.draw(st.permutations(range(len(samples))))
    points = np.random.default_rng(0).normal(size=(len(samples), 3))
    weights = np.arange(1.0, len(samples) + 1.0)
    first = Distributions(points, samples, weights=weights)
    second = Distributions(points[shuffle], [samples[row] for row in shuffle], weights=weights[shuffle])
    assert set(first.names) == set(second.names)
    second = second[[second.names.index(name) for name in first.names]]
    assert_array_equal(first.bounds, second.bounds)
    for low, high in zip(first.bounds[:-1], first.bounds[1:], strict=True):
        local, there = (np.c_[D.points, D.weights][low:high] for D in (first, second))
        assert_allclose(local[np.argsort(local[:, 0])], there[np.argsort(there[:, 0])], rtol=1e-14)


@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_matrix, lambda p: p.astype(np.float32)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bad_point_is_named_by_row_feature_and_distribution(wrap, value):
    points = POINTS.copy()
    points[4, 1] = value
    messages = re.escape(f"{value} at row 4, feature 'y', of distribution 'a'")
    with pytest.raises(ValueError, match=messages):
        Distributions(wrap(points), GROUPS, features=["x", "y"])


def test_large_finite_points_are_fine_although_their_sum_is_not():
    assert np.isfinite(Distributions(np.full((4, 2), 1.7e308), list("aabb")).points).all()


def test_a_subsample_keeps_order_weights_and_annotations_together():
    random = np.random.default_rng(0)
    samples = random.choice(["b", "a", "c"], 50)
    weights = random.uniform(1, 2, 50)
    D = Distributions(np.arange(50.0)[:, None], samples, weights=weights, annotations={"place": np.arange(50)})
    part = D.subsample(5, random_state=0)
    assert part.names == D.names
    assert part.sizes.tolist() == [5, 5, 5]
    assert np.array_equal(part.points[:, 0], part.annotations["place"])
    assert np.array_equal(part.order, part.annotations["place"])
    for d, name in enumerate(part.names):
        rows = part.order[part.bounds[d] : part.bounds[d + 1]]
        assert (samples[rows] == name).all()
        assert np.allclose(part.weights[part.bounds[d] : part.bounds[d + 1]], weights[rows] / weights[rows].sum())


def test_a_subsample_of_few_points_is_all_of_them():
    D = Distributions([[0.0], [1.0], [2.0]], ["a", "a", "b"])
    assert np.array_equal(D.subsample(2, random_state=0).points, D.points)
    with pytest.raises(ParameterError) as error:
        D.subsample(0)
    assert error.value.parameter == "n"


SETS = [np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[5.0, 5.0]]), np.array([[1.0, 1.0], [0.0, 0.0], [4.0, 2.0]])]


@pytest.mark.parametrize(
    "arrays",
    [
        SETS,
        tuple(SETS),
        [array.tolist() for array in SETS],
        [sparse.csr_matrix(array) for array in SETS],
        [pd.DataFrame(array, columns=["a", "b"]) for array in SETS],
    ],
    ids=["list", "tuple", "nested lists", "sparse", "frames"],
)
def test_a_list_of_arrays_is_a_distribution_of_each(arrays):
    D, expected = gm.Distributions(arrays), gm.Distributions.from_arrays(SETS)
    assert D.names == [0, 1, 2]
    assert D.sizes.tolist() == [2, 1, 3]
    points = D.points.toarray() if sparse.issparse(D.points) else D.points
    assert_array_equal(points, expected.points)
    assert_array_equal(gm.pairwise_distances(arrays), gm.pairwise_distances(expected))
    assert D.features == (["a", "b"] if hasattr(arrays[0], "columns") else None)


def test_an_array_of_three_dimensions_is_a_distribution_of_each_of_its_tables():
    cube = np.random.RandomState(0).normal(size=(4, 5, 2))
    assert_array_equal(gm.Distributions(cube).points, cube.reshape(20, 2))
    assert_array_equal(gm.pairwise_distances(cube), gm.pairwise_distances(gm.Distributions.from_arrays(list(cube))))
    assert gm.pairwise_distances(cube[0]).shape == (5, 5)  # rows of one table stay points


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        (np.zeros((3, 2)), TypeError, "samples are missing: .*, or a list of arrays, one for each"),
        ([], TypeError, "samples are missing"),
        ([SETS[0], np.zeros(2)], ValueError, r"the points of distribution 1 have shape \(2,\): expected two"),
        ([SETS[0], np.zeros((0, 2))], ValueError, "distribution 1 is empty"),
        ([SETS[0], np.zeros((2, 3))], ValueError, r"arrays have \[2, 3\] features: all need the same"),
        ([pd.DataFrame(SETS[0], columns=["a", "b"]), pd.DataFrame(SETS[1], columns=["b", "a"])], ValueError,
         "the data frames have different columns"),
    ],
)  # fmt: skip
def test_arrays_that_make_no_distributions_are_named(points, error, message):
    with pytest.raises(error, match=message):
        gm.Distributions(points)


def test_distributions_are_no_array_and_say_what_to_do():
    with pytest.raises(TypeError, match=r"as PointwiseTransformer\(StandardScaler\(\)\)"):
        np.asarray(gm.Distributions(SETS))


def test_rows_and_arrays_without_names_go_by_position():
    """Cross-validation slices labels with their index, and arrays without one."""
    part = pd.Series(["ill", "well"], index=[7, 3])
    for X in (np.zeros((2, 3)), SETS[:2], np.zeros((2, 4, 3))):
        D = as_distributions(X)
        assert list(align_by_name(part, D.name_index, "y")) == ["ill", "well"]
        assert list(align_by_name(part.iloc[::-1], D[[1, 0]].name_index, "y")) == ["well", "ill"]


def test_draws_depend_on_names_and_points_only():
    random = np.random.default_rng(0)
    points, samples = random.normal(size=(300, 4)), np.repeat([f"s{i}" for i in range(5)], 60)
    shuffled = random.permutation(300)
    a, b = gm.Distributions(points, samples), gm.Distributions(points[shuffled], samples[shuffled])
    for name in samples[::60]:
        position, second = a.names.index(name), b.names.index(name)
        for draw in (lambda D: D.subsample(7, random_state=3), lambda D: D.equalize(7, random_state=3)):
            drawn, repeated, alone = draw(a)[[position]].points, draw(b)[[second]].points, draw(a[[position]]).points
            assert np.array_equal(np.sort(drawn, axis=0), np.sort(repeated, axis=0))
            assert np.array_equal(drawn, alone)
    assert not np.array_equal(a.equalize(7, random_state=3).points, a.equalize(7, random_state=4).points)


def test_equalize_draws_by_mass():
    values, mass = np.arange(200.0), np.r_[np.full(100, 3.0), np.full(100, 1.0)]
    means = []
    for seed in range(60):
        D = gm.Distributions(values[:, None], ["a"] * 200, weights=mass).equalize(20, random_state=seed)
        assert np.isclose(D.weights.sum(), 1.0)
        means.append(D.weights @ D.points[:, 0])
    truth = mass @ values / mass.sum()
    assert abs(np.mean(means) - truth) < 3.5 * np.std(means) / np.sqrt(60)


def test_common_size_uses_effective_sizes():
    D = gm.Distributions(
        np.zeros((60, 1)), np.repeat(["a", "b"], 30), weights=np.r_[np.full(30, 1.0), 29.0, np.ones(29)]
    )
    assert D.effective_sizes[0] == 30
    assert D.effective_sizes[1] < 5
    assert D.common_size() == 8  # half the median, which is below 10


def test_common_size_is_that_of_a_class_of_small_distributions():
    def common_size(sizes):
        return gm.Distributions(np.zeros((sum(sizes), 1)), np.repeat(range(len(sizes)), sizes)).common_size()

    assert common_size([5] * 8 + [40] * 8) == 5
    assert common_size([5] + [40] * 15) == 10
    assert common_size([1, 6] + [40] * 14) == 6
    assert common_size([7]) == 7
