"""The binding of the C++ core: arrays that it must not read or write are rejected for every argument type."""

import threading

import numpy as np
import pytest

import groundmetric as gm
from groundmetric._internal.parallel import Threads
from groundmetric.transport import _core
from groundmetric.transport.pairs import pair_transport
from groundmetric.transport.problem import Masses, no_answers


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def misaligned(array):
    buffer = np.empty(array.nbytes + 1, np.uint8)[1:]
    copy = buffer.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


ODD = {
    "another type": lambda array: array.astype(np.float16),
    "strides": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "one dimension more": lambda array: array[None],
    "no array": lambda array: array.tolist(),
    "misaligned": misaligned,
    "byte order": lambda array: array.astype(array.dtype.newbyteorder()),
}


def problem(n=4, m=3):
    """Arguments of `solve_matrix` from a cold start."""
    nodes = n + m + 1
    basis = {"parent": np.zeros(nodes, np.int32), "flow": np.zeros(nodes, np.int64), "potential": np.zeros(nodes)}
    masses = {"a": np.full(n, m, np.int64), "b": np.full(m, n, np.int64)}
    return {"cost": np.eye(n, m), "range": (0.0, 1.0), **masses, **basis, "warm": False, "max_pivots": 100}


def test_a_problem_without_faults_is_solved():
    assert _core.solve_matrix(**problem())[1]


@pytest.mark.parametrize("name", ["cost", "a", "b", "parent", "flow", "potential"])
@pytest.mark.parametrize("fault", ODD)
def test_odd_arrays_are_rejected(name, fault):
    arguments = problem()
    with pytest.raises(TypeError, match=f"{name} must be a"):
        _core.solve_matrix(**{**arguments, name: ODD[fault](arguments[name])})


@pytest.mark.parametrize("name", ["parent", "flow", "potential"])
def test_read_only_outputs_are_rejected(name):
    arguments = problem()
    with pytest.raises(TypeError, match=f"{name} must be a writable"):
        _core.solve_matrix(**{**arguments, name: read_only(arguments[name])})


@pytest.mark.parametrize("name", ["cost", "a", "b"])
def test_read_only_inputs_are_accepted(name):
    arguments = problem()
    assert _core.solve_matrix(**{**arguments, name: read_only(arguments[name])})[1]


@pytest.mark.parametrize("name", ["a", "b", "parent", "flow", "potential"])
@pytest.mark.parametrize("change", [lambda array: array[:-1].copy(), lambda array: np.append(array, array[:1])])
def test_arrays_of_another_size_are_rejected(name, change):
    arguments = problem()
    with pytest.raises(ValueError, match="must have"):
        _core.solve_matrix(**{**arguments, name: change(arguments[name])})


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty_problems_are_rejected(shape):
    with pytest.raises(ValueError, match="at least one source"):
        _core.solve_matrix(**{**problem(), "cost": np.empty(shape)})


@pytest.mark.parametrize("a", [[0, 3, 3, 6], [-3, 3, 6, 6], [3, 3, 3, 4], [2**62, 2**62, 2**62, 2**62]])
def test_masses_that_do_not_balance_are_rejected(a):
    assert _core.solve_matrix(**{**problem(), "a": np.array(a, np.int64)}) == (-1, False)


def damaged(seed):
    """Parents of a tree in which a few entries were replaced by any number."""
    rng, arguments = np.random.default_rng(seed), problem(6, 5)
    _core.solve_matrix(**arguments)
    for node in rng.integers(0, 12, rng.integers(1, 4)):
        arguments["parent"][node] = rng.integers(-3, 15)
    return arguments


@pytest.mark.parametrize("seed", range(60))
def test_damaged_trees_are_rejected_or_solved(seed):
    arguments = damaged(seed)
    pivots, optimal = _core.solve_matrix(**{**arguments, "warm": True})
    assert optimal or pivots == -1


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_potentials_that_are_not_finite_are_rejected(number):
    arguments = problem()
    _core.solve_matrix(**arguments)
    arguments["potential"][2] = number
    assert _core.solve_matrix(**{**arguments, "warm": True}) == (-1, False)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300])
def test_costs_of_any_kind_end_in_an_answer(number):
    cost = np.random.default_rng(0).random((500, 400))
    cost[3, 5] = cost[100] = number
    arguments = {**problem(500, 400), "cost": cost, "max_pivots": 20_000}
    pivots, _ = _core.solve_matrix(**arguments)
    assert pivots >= 0


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("n", [10, 500])
def test_points_of_any_kind_end_in_an_answer(number, n):
    arguments = problem(n, n)
    points = np.random.default_rng(0).normal(size=(2, n, 3))
    points[0, 4, 1] = number
    del arguments["cost"], arguments["range"]
    x, y = (np.ascontiguousarray(side) for side in points)
    pivots, optimal = _core.solve_points(x, y, 0, **{**arguments, "max_pivots": 20_000})
    assert pivots >= 0
    assert not optimal


@pytest.mark.parametrize("parent", [[-1], [1, -1], [0, -1], [1, 0, -1], [5, 2, -1], [-7, 2, -1], [2, 2, 2], [1, 2, 0]])
def test_flows_of_trees_and_of_others(parent):
    n = len(parent)
    flow = np.ones(n, np.int64)
    is_tree = parent in ([-1], [1, -1])
    assert _core.fill_tree_flows(np.array(parent, np.int32), flow) == is_tree


@pytest.fixture
def transport():
    D, _ = gm.datasets.make_modes(4, 1.0, points_per_mode=5, random_state=0)
    first, second = np.triu_indices(len(D), 1)
    pairs = pair_transport(Masses.of(D), first, second, 2, threads=Threads(1))
    pairs.move_all(np.ascontiguousarray(D.points[:, :2], np.float64))
    pairs.solve(np.arange(first.size))
    return pairs


def solve_pairs(transport, todo=(0, 1), **changes):
    parts = {"points": transport._points, "pairs": transport._pairs, "bases": transport._bases}
    for name, array in changes.items():
        owner = next(part for part, value in parts.items() if name in value._fields)
        parts[owner] = parts[owner]._replace(**{name: array})
    todo = np.array(todo, np.int64)
    answers = no_answers(transport.first.size)
    arguments = parts["points"], parts["pairs"], parts["bases"], -1, answers
    _core.solve_pairs(_core.Workspace(), todo, np.full(todo.size, np.inf), *arguments)
    return answers


def test_pairs_are_solved(transport):
    assert solve_pairs(transport).optimal.all()


@pytest.mark.parametrize("todo", [[-1], [10**6], [-(2**62)]])
def test_pairs_that_do_not_exist_are_rejected(transport, todo):
    with pytest.raises(ValueError, match="no pair"):
        solve_pairs(transport, todo)


@pytest.mark.parametrize("name", ["first", "second"])
@pytest.mark.parametrize("number", [-1, 10**6])
def test_distributions_that_do_not_exist_are_rejected(transport, name, number):
    with pytest.raises(ValueError, match="no distribution"):
        solve_pairs(transport, **{name: np.full(transport.first.size, number)})


@pytest.mark.parametrize("number", [-1, 10**6, 2**62])
def test_bases_outside_of_their_arrays_are_rejected(transport, number):
    with pytest.raises(ValueError, match="outside"):
        solve_pairs(transport, offset=np.full(transport.first.size, number))


@pytest.mark.parametrize("change", [lambda b: b[::-1].copy(), lambda b: b + 1, lambda b: b * 2, lambda b: b[:0]])
def test_bounds_that_are_none_are_rejected(transport, change):
    with pytest.raises(ValueError, match="bounds must"):
        solve_pairs(transport, bounds=change(transport._points.bounds))


def test_rounded_masses_that_are_missing_are_rejected(transport):
    with pytest.raises(ValueError, match="rounded"):
        solve_pairs(transport, times_first=np.zeros(transport.first.size, np.int64))


@pytest.mark.parametrize("name", ["parent", "flow", "potential", "warm"])
def test_bases_that_cannot_be_written_are_rejected(transport, name):
    with pytest.raises(TypeError, match=f"{name} must be a writable"):
        solve_pairs(transport, **{name: read_only(getattr(transport._bases, name))})


def test_a_damaged_basis_of_a_pair_is_reported(transport):
    parent = transport._bases.parent.copy()
    parent[0] = 10**6
    answers = solve_pairs(transport, parent=parent)
    assert answers.pivots[0] == -1
    assert not answers.optimal[0]
    assert answers.optimal[1]


def test_damaged_bases_have_no_costs(transport):
    transport._bases.parent[0] = 10**6
    with pytest.raises(ValueError, match="no tree"):
        transport.upper(np.arange(2))


def test_a_damaged_state_is_not_restored(transport):
    state = transport.state()
    state["parent"] = state["parent"].copy()
    state["parent"][:3] = 0
    with pytest.raises(ValueError, match="no tree"):
        transport.restore(state)


def test_a_workspace_serves_one_thread_at_a_time():
    D = gm.Distributions(np.random.default_rng(0).normal(size=(4000, 3)), np.repeat([0, 1], 2000))
    pairs = pair_transport(Masses.of(D), np.array([0]), np.array([1]), 3, threads=Threads(1))
    pairs.move_all(D.points)
    workspace, errors = _core.Workspace(), []

    def solve():
        answers, bases = no_answers(1), pairs._bases._replace(warm=np.zeros(1, bool))
        try:
            _core.solve_pairs(
                workspace, np.array([0]), np.array([np.inf]), pairs._points, pairs._pairs, bases, -1, answers
            )
        except RuntimeError as error:
            errors.append(error)

    pairs._allocate_unstored(np.array([0]))
    threads = [threading.Thread(target=solve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) <= 1


def test_candidates_of_another_problem_are_rejected():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 70, 3))
    blocks, candidates = _core.PointBlocks(y, 0), _core.Candidates(70, 8)
    potential = np.zeros(141)
    candidates.add(np.vstack([x, y]), blocks, potential, 8, False, np.empty(70))
    masses = np.ones(70, np.int64), np.full(35, 2, np.int64)
    basis = np.zeros(106, np.int32), np.zeros(106, np.int64), np.zeros(106)
    with pytest.raises(ValueError, match="larger problem"):
        candidates.optimise(np.vstack([x, y[:35]]), 0, *masses, *basis, 100)
    with pytest.raises(ValueError, match="width"):
        candidates.add(np.vstack([x, y]), blocks, potential, 9, False, np.empty(70))
    with pytest.raises(ValueError, match="sources and sinks"):
        candidates.add(x, blocks, potential, 8, False, np.empty(70))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_blocks_of_no_points_are_rejected(shape):
    with pytest.raises(ValueError, match="empty"):
        _core.PointBlocks(np.empty(shape), 0)


@pytest.mark.parametrize("cost", [-1, 3])
def test_unknown_costs_are_rejected(cost):
    with pytest.raises(ValueError, match="cost must be"):
        _core.PointBlocks(np.ones((2, 2)), cost)
