"""Valid and invalid input of `solve`."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import groundmetric as gm

from .problems import problem

WHOLE = np.random.default_rng(0).integers(0, 9, (14, 22))

FORMS = {
    "float32": lambda cost: cost.astype(np.float32),
    "float16": lambda cost: cost.astype(np.float16),
    "int64": lambda cost: cost.astype(np.int64),
    "uint8": lambda cost: cost.astype(np.uint8),
    "bool": lambda cost: cost > 4,
    "other byte order": lambda cost: cost.astype(">f8"),
    "Fortran order": lambda cost: np.asfortranarray(cost, dtype=float),
    "transposed": lambda cost: cost.astype(float).T,
    "strided": lambda cost: cost.astype(float)[::2, ::3],
    "backwards": lambda cost: cost.astype(float)[::-1, ::-1],
    "one row repeated": lambda cost: np.broadcast_to(cost[0].astype(float), cost.shape),
    "lists": lambda cost: cost.tolist(),
}


def read_only(array):
    array = np.array(array)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_any_form_of_the_same_costs_has_the_same_plan(form):
    cost = form(WHOLE)
    plain = np.array(cost, dtype=np.float64, order="C")
    plan, expected = gm.transport.solve(cost), gm.transport.solve(plain)
    assert plan.value == expected.value
    assert_array_equal(plan.rows, expected.rows)
    assert_array_equal(plan.cols, expected.cols)


def test_read_only_input_is_taken():
    task = problem("plane", "random", (9, 12))
    plan = gm.transport.solve(read_only(task.cost), read_only(task.a), read_only(task.b))
    assert plan.value == gm.transport.solve(task.cost, task.a, task.b).value


@pytest.mark.parametrize("masses", ["equal", "random", "some zero"])
def test_input_is_not_modified(masses):
    task = problem("plane", masses, (9, 12))
    before = task.cost.copy(), task.a.copy(), task.b.copy()
    gm.transport.solve(task.cost, task.a, task.b)
    for now, then in zip((task.cost, task.a, task.b), before, strict=True):
        assert_array_equal(now, then)


def test_float32_masses_may_balance_to_their_own_precision():
    rng = np.random.default_rng(0)
    cost = rng.uniform(size=(50, 70))
    a, b = rng.uniform(0.1, 1.0, 50), rng.uniform(0.1, 1.0, 70)
    a, b = a / a.sum(), b / b.sum()
    single = gm.transport.solve(cost, a.astype(np.float32), b.astype(np.float32)).value
    np.testing.assert_allclose(single, gm.transport.solve(cost, a, b).value, rtol=1e-5)


@pytest.mark.parametrize("dtype", [int, bool])
def test_masses_may_be_whole_numbers(dtype):
    cost = WHOLE[:2, :2].astype(float)
    assert gm.transport.solve(cost, np.ones(2, dtype), np.ones(2, dtype)).value == 2 * gm.transport.solve(cost).value


def with_entry(value, shape=(2, 3)):
    cost = np.ones(shape)
    cost[1, 0] = value
    return cost


ONES = np.ones((2, 3))
REFUSED = {
    "cost NaN": ({"cost": with_entry(np.nan)}, r"cost .*nan at \(1, 0\)"),
    "cost infinite": ({"cost": with_entry(np.inf)}, r"cost .*inf at \(1, 0\)"),
    "cost minus infinite": ({"cost": with_entry(-np.inf)}, r"cost .*-inf at \(1, 0\)"),
    "cost of both infinities": ({"cost": [[np.inf, -np.inf]]}, r"cost .*inf at \(0, 0\)"),
    "cost NaN where no mass is": ({"cost": with_entry(np.nan), "a": [1.0, 0.0]}, r"cost .*nan at \(1, 0\)"),
    "cost NaN among many": ({"cost": with_entry(np.nan, (20, 20))}, r"cost .*nan at \(1, 0\)"),
    "cost infinite among many": ({"cost": with_entry(-np.inf, (20, 20))}, r"cost .*-inf at \(1, 0\)"),
    "cost of one dimension": ({"cost": np.ones(3)}, r"cost has shape \(3,\)"),
    "cost of three dimensions": ({"cost": np.ones((2, 3, 1))}, r"cost has shape \(2, 3, 1\)"),
    "cost a number": ({"cost": 1.0}, r"cost has shape \(\)"),
    "cost empty": ({"cost": []}, r"cost has shape \(0,\)"),
    "cost without sources": ({"cost": np.ones((0, 3))}, r"cost has shape \(0, 3\)"),
    "cost without sinks": ({"cost": np.ones((3, 0))}, r"cost has shape \(3, 0\)"),
    "cost of words": ({"cost": [["near", "far"]]}, "cost must be numbers"),
    "cost of objects": ({"cost": [[None, object()]]}, "cost must be numbers"),
    "cost ragged": ({"cost": [[1.0, 2.0], [3.0]]}, "cost"),
    "cost complex": ({"cost": ONES * 1j}, "cost"),
    "a negative": ({"cost": ONES, "a": [1.5, -0.5]}, r"a\[1\] is -0.5"),
    "b negative": ({"cost": ONES, "b": [1.0, 0.5, -0.5]}, r"b\[2\] is -0.5"),
    "a NaN": ({"cost": ONES, "a": [np.nan, 1.0]}, r"a\[0\] is nan"),
    "b infinite": ({"cost": ONES, "b": [1.0, np.inf, 0.0]}, r"b\[1\] is inf"),
    "a too short": ({"cost": ONES, "a": [1.0]}, r"a has shape \(1,\)"),
    "b too long": ({"cost": ONES, "b": np.ones(4) / 4}, r"b has shape \(4,\)"),
    "a a column": ({"cost": ONES, "a": np.full((2, 1), 0.5)}, r"a has shape \(2, 1\)"),
    "a a number": ({"cost": ONES, "a": 0.5}, r"a has shape \(\)"),
    "a and b swapped": ({"cost": ONES, "a": np.ones(3), "b": np.ones(2)}, "a has shape"),
    "a empty": ({"cost": ONES, "a": []}, r"a has shape \(0,\)"),
    "a all zero": ({"cost": ONES, "a": np.zeros(2)}, "a sums to 0"),
    "both all zero": ({"cost": ONES, "a": np.zeros(2), "b": np.zeros(3)}, "a sums to 0"),
    "unbalanced": ({"cost": ONES, "a": [0.5, 0.6], "b": np.ones(3) / 3}, "do not balance: a sums to 1.1, b to 1.0"),
    "unbalanced by little": ({"cost": ONES, "a": [0.5, 0.5 + 1e-6]}, "do not balance"),
    "a of words": ({"cost": ONES, "a": ["much", "little"]}, r"^a\b"),
    "b of words": ({"cost": ONES, "b": ["much", "little", "none"]}, r"^b\b"),
    "a of objects": ({"cost": ONES, "a": [object(), object()]}, r"^a\b"),
    "a complex": ({"cost": ONES, "a": np.array([0.5 + 1j, 0.5 - 1j])}, r"^a\b"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_and_the_culprit_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        gm.transport.solve(**arguments)
