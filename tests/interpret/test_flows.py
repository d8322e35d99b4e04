"""Flows add up to masses and distances; what moves adds up to the cost."""

import numpy as np
import pytest
from scipy import sparse

import groundmetric as gm
from groundmetric.interpret import barycentric, flow, movement


def test_flow_of_two_keeps_masses_and_sums_to_their_distance(case):
    found = flow(case.D, "S01", "S12", case.learner, "cell_type")
    kinds = case.D.annotations["cell_type"]
    for name, side in (("S01", found.mass.sum(axis=1)), ("S12", found.mass.sum(axis=0))):
        d = case.D.names.index(name)
        own = kinds[case.D.bounds[d] : case.D.bounds[d + 1]]
        np.testing.assert_allclose(side, [np.mean(own == value) for value in found.values], atol=1e-12)
    d, e = case.D.names.index("S01"), case.D.names.index("S12")
    np.testing.assert_allclose(found.value, case.learner.distances(case.D[[d]], case.D[[e]])[0, 0], rtol=1e-9)
    assert (found.source, found.target, found.n_pairs) == ("S01", "S12", 1)
    assert found.kept == pytest.approx(found.table().query("`from` == to")["mass"].sum())


def test_flow_of_classes_is_the_mean_over_pairs(case):
    found = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y)
    distances = case.learner.distances(case.D)
    np.testing.assert_allclose(found.value, distances[np.ix_(case.y == "control", case.y == "disease")].mean())
    assert found.n_pairs == 36
    within = flow(case.D, "control", "control", case.learner, "cell_type", y=case.y)
    assert within.n_pairs == 30
    assert within.value < found.value
    few = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y, max_pairs=5)
    assert few.n_pairs == 5
    np.testing.assert_allclose(few.mass.sum(), 1.0)
    places = [np.flatnonzero(case.y == label) for label in ("control", "disease")]
    same = flow(case.D, *places, case.learner, "cell_type", n_jobs=2)
    np.testing.assert_array_equal(same.mass, found.mass)


def test_cells_of_the_diseased_type_move_farthest(case):
    found = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y)
    assert found.values[int(np.nanargmax(np.diag(found.distance)))] == case.acts_in


def test_contributions_sum_to_the_cost_and_name_the_programme(case):
    options = {"y": case.y, "annotation": "cell_type", "value": case.acts_in}
    found = movement(case.D, "control", "disease", case.learner, **options)
    np.testing.assert_allclose(found.contribution.sum(), 1.0)
    assert case.programme < set(found.table()["feature"][:5])
    raised = [found.change[found.features.index(name)] > 0 for name in case.programme]
    assert all(raised)
    masses = flow(case.D, "control", "disease", case.learner, "cell_type", y=case.y)
    np.testing.assert_allclose(found.mass, masses.mass[masses.values.index(case.acts_in)].sum())


def test_change_of_all_mass_is_the_difference_of_means(case):
    found = movement(case.D, 0, 11, case.learner)
    means = case.D.means()
    np.testing.assert_allclose(found.change, means[11] - means[0], atol=1e-6)


def test_contributions_by_hand():
    D = gm.Distributions([[0.0, 0.0], [3.0, 4.0]], ["a", "b"])
    found = movement(D, "a", "b", gm.GroundMetric([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(found.contribution, [9 / 25, 16 / 25])


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_barycentric_projection_finds_the_moved_points(make):
    random = np.random.RandomState(0)
    here = 100.0 * random.normal(size=(6, 3))
    moved = here + np.array([1.0, 2.0, 3.0])
    there = moved[random.permutation(6)]
    D = gm.Distributions(make(np.vstack([here, there])), [0] * 6 + [1] * 6)
    found = barycentric(D, 0, 1, gm.GroundMetric.euclidean(3))
    found = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_allclose(found, moved)


def test_projection_keeps_the_mean_and_points_without_mass(case):
    D = gm.Distributions([[0.0], [5.0], [1.0], [3.0]], ["a", "a", "b", "b"], weights=[1, 0, 1, 1])
    assert barycentric(D, "a", "b", gm.GroundMetric([[1.0]])).ravel().tolist() == [2.0, 5.0]
    d, e = 0, 7
    found = barycentric(case.D, d, e, case.learner)
    weights = case.D.weights[case.D.bounds[d] : case.D.bounds[d + 1]]
    np.testing.assert_allclose(weights @ found, case.D.means()[e], atol=1e-9)


def test_what_cannot_be_moved(case):
    with pytest.raises(ValueError, match="no distribution 'S99'"):
        flow(case.D, "S99", "S01", case.learner, "cell_type")
    with pytest.raises(ValueError, match="a place from 0 to 11"):
        flow(case.D, 12, "S01", case.learner, "cell_type")
    with pytest.raises(ValueError, match="same single distribution"):
        flow(case.D, "S01", "S01", case.learner, "cell_type")
    with pytest.raises(ValueError, match="label 'ill'"):
        flow(case.D, "ill", "control", case.learner, "cell_type", y=case.y)
    with pytest.raises(ValueError, match="value is 'Neuron'"):
        movement(case.D, 0, 1, case.learner, annotation="cell_type", value="Neuron")
    with pytest.raises(ValueError, match="expected one each"):
        barycentric(case.D, [0, 1], 2, case.learner)
