"""Flows against plans; costs of pairs under weights."""

import numpy as np
import pytest

from groundmetric.interpret import flow
from groundmetric.interpret.flows import PairCosts, partners


def test_flow_of_two_keeps_masses_and_sums_to_their_distance(case):
    result = flow(case.D, "S01", "S12", case.learner, "cell_type")
    kinds = case.D.annotations["cell_type"]
    for name, side in (("S01", result.mass.sum(axis=1)), ("S12", result.mass.sum(axis=0))):
        d = case.D.names.index(name)
        original = kinds[case.D.bounds[d] : case.D.bounds[d + 1]]
        np.testing.assert_allclose(side, [np.mean(original == value) for value in result.values], atol=1e-12)
    d, e = case.D.names.index("S01"), case.D.names.index("S12")
    np.testing.assert_allclose(result.value, case.learner.distances(case.D[[d]], case.D[[e]])[0, 0], rtol=1e-9)
    assert (result.source, result.target, result.n_pairs) == ("S01", "S12", 1)
    assert result.kept == pytest.approx(result.table().query("`from` == to")["mass"].sum())


def test_flow_of_classes_is_the_mean_over_pairs(case):
    result = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y)
    distances = case.learner.distances(case.D)
    np.testing.assert_allclose(result.value, distances[np.ix_(case.y == "control", case.y == "disease")].mean())
    assert result.n_pairs == 36
    within = flow(case.D, "control", "control", case.learner, "cell_type", y=case.y)
    assert within.n_pairs == 30
    assert within.value < result.value
    small = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y, max_pairs=5)
    assert small.n_pairs == 5
    np.testing.assert_allclose(small.mass.sum(), 1.0)
    same = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y, n_jobs=2)
    np.testing.assert_array_equal(same.mass, result.mass)


def test_cells_of_the_diseased_type_move_farthest(case):
    result = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y)
    assert result.values[int(np.nanargmax(np.diag(result.distance)))] == case.acts_in


def test_what_cannot_be_moved(case):
    with pytest.raises(ValueError, match="no distribution 'S99'"):
        flow(case.D, "S99", "S01", case.learner, "cell_type")
    with pytest.raises(ValueError, match="an index from 0 to 11"):
        flow(case.D, 12, "S01", case.learner, "cell_type")
    with pytest.raises(ValueError, match="same single distribution"):
        flow(case.D, "S01", "S01", case.learner, "cell_type")
    with pytest.raises(ValueError, match="label 'ill'"):
        flow(case.D, "ill", "control", case.learner, "cell_type", y=case.y)


def test_weights_of_pair_costs_are_copies_that_are_not_compared_with_each_other():
    random = np.random.RandomState(0)
    codes = np.array([0, 0, 0, 1, 1])
    pairs = partners(codes, 10, random)
    costs = random.uniform(size=(len(pairs), 2, 1))
    weights = np.array([2, 1, 0, 1, 3])
    copies = np.repeat(np.arange(5), weights)
    expected = np.zeros((2, 2, 1))
    counted = 0
    for d in copies:
        rows = [np.flatnonzero((pairs[:, 0] == d) & (pairs[:, 1] == e))[0] for e in copies if e != d]
        same = codes[pairs[rows, 1]] == codes[d]
        if same.any():
            counted += 1
            expected += [costs[rows][~same].mean(axis=0), costs[rows][same].mean(axis=0)]
    np.testing.assert_allclose(PairCosts(pairs, costs, codes).means(weights), expected / counted)
