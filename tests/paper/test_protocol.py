"""Principal components are found in the training part alone."""

import numpy as np
from scipy import sparse

import groundmetric as gm
from groundmetric._anndata.cohort import Labelled
from paper.protocol import PrincipalComponents
from paper.real import COMPONENTS, components_of_all_cells


def cohort():
    """The first six distributions vary along feature 0, the others along feature 1."""
    random = np.random.RandomState(0)
    points = random.normal(size=(12, 20, 3)) * [1.0, 1.0, 0.01]
    points[:6, :, 1] *= 0.01
    points[6:, :, 0] *= 0.01
    return gm.Distributions.from_arrays(list(points)), np.array([0, 1] * 6)


def test_components_are_those_of_the_training_part():
    D, y = cohort()
    for part, expected in ((slice(0, 6), 0), (slice(6, 12), 1)):
        fitted = PrincipalComponents(gm.baselines.Euclidean(), 1, random_state=0).fit(D[part], y[part])
        weight = np.abs(fitted.space_.components[0])
        assert weight.argmax() == expected
        assert weight[expected] > 0.99


def test_few_features_are_shown_as_they_are():
    D, y = cohort()
    fitted = PrincipalComponents(gm.baselines.Euclidean(), 3).fit(D, y)
    np.testing.assert_allclose(fitted.distances(D), gm.pairwise_distances(D), atol=1e-12)


def test_sparse_points_give_the_same_distances():
    D, y = cohort()
    thin = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(np.arange(12), D.sizes))
    dense_fit = PrincipalComponents(gm.baselines.Euclidean(), 2, random_state=0).fit(D, y)
    sparse_fit = PrincipalComponents(gm.baselines.Euclidean(), 2, random_state=0).fit(thin, y)
    np.testing.assert_allclose(dense_fit.distances(D), sparse_fit.distances(thin), atol=1e-6)


def test_it_has_what_the_method_has():
    D, y = cohort()
    logistic = PrincipalComponents(gm.baselines.SummaryModel(), 2, random_state=0).fit(D, y)
    assert logistic.predict_proba(D).shape == (12, 2)
    assert PrincipalComponents(gm.TransportClassifier()).takes_groups


def test_components_of_all_cells_see_every_part():
    D, y = cohort()
    wide = gm.Distributions(
        np.hstack([D.points, np.random.RandomState(1).normal(size=(240, 40))]), np.repeat(np.arange(12), D.sizes)
    )
    reduced = components_of_all_cells(Labelled(wide, y, None, None, []), seed=0).D
    assert reduced.shape == (12, COMPONENTS)
    assert reduced.sizes.tolist() == wide.sizes.tolist()
    variances = reduced.points.var(axis=0)
    assert (np.diff(variances) <= 1e-9).all()  # leading first
    assert variances[0] < 3.0  # of scaled features
