"""Importance of features, with the class and kind of points in which they are higher."""

import numpy as np
import pytest
from scipy import sparse

import groundmetric as gm
from groundmetric.interpret import read_features


@pytest.fixture
def labelled_cohort():
    """Feature "up" is higher in ill B points, "down" lower in all ill points, "none" the same; sizes differ."""
    points, groups, kinds = [], [], []
    for d, ill in enumerate([False, False, True, True]):
        for kind in ["A"] * (d + 1) + ["B"] * 3:
            points.append([1.0 + 4.0 * (ill and kind == "B"), 5.0 - 2.0 * ill, 3.0])
            groups.append(f"d{d}")
            kinds.append(kind)
    D = gm.Distributions(points, groups, features=["up", "down", "none"], annotations={"kind": kinds})
    return D, ["well", "well", "ill", "ill"], gm.GroundMetric([[1.0, -0.5, 0.0]], D.features)


def test_direction_and_place_of_each_feature(labelled_cohort):
    D, y, metric = labelled_cohort
    reading = read_features(metric, D, y, annotation="kind")
    assert reading.highest.tolist()[:2] == ["ill", "well"]
    assert reading.lowest.tolist()[:2] == ["well", "ill"]
    assert reading.where[0] == "B"
    spread = np.asarray(D.points).std(axis=0)
    np.testing.assert_allclose(reading.differences[:, 0], np.array([0.0, 4.0]) / spread[0], atol=1e-12)
    np.testing.assert_allclose(reading.differences[:, 1], 2.0 / spread[1])
    # Every distribution counts the same: 3 of 6 and 3 of 7 points are B.
    np.testing.assert_allclose(reading.means[0, 0], 1.0 + 4.0 * (3 / 6 + 3 / 7) / 2)
    assert reading.table()["feature"].tolist() == ["up", "down", "none"]


def test_sparse_points_give_the_same(labelled_cohort):
    D, y, metric = labelled_cohort
    thin = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(D.names, D.sizes), features=D.features)
    first = read_features(metric, D, y, annotation="kind")
    second = read_features(metric, thin, y, annotation=D.annotations["kind"])
    np.testing.assert_allclose(first.differences, second.differences)


def test_a_kind_that_a_class_lacks_is_not_compared(labelled_cohort):
    D, y, metric = labelled_cohort
    kinds = np.where(np.repeat(np.arange(4), D.sizes) < 2, "A", "B")
    reading = read_features(metric, D, y, annotation=kinds)
    assert np.isnan(reading.differences).all()


def test_programme_genes_lead_and_are_raised_in_their_cell_type(case):
    reading = read_features(case.learner, case.D, case.y, annotation="cell_type")
    assert set(reading.top(4)) == case.programme
    positions = [reading.features.index(gene) for gene in case.programme]
    assert set(reading.highest[positions]) == {"disease"}
    assert set(reading.where[positions]) == {case.acts_in}
