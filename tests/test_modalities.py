"""Modalities: the same samples in each, cells matched by name, joint metrics, and plain errors."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import groundmetric as gm
from groundmetric import Distributions, GroundMetric, Modalities

RANDOM = np.random.default_rng(0)
SAMPLES = np.repeat(list("abc"), 4)
CELLS = np.array([f"cell{k}" for k in range(12)])
RNA = RANDOM.normal(size=(12, 3))
PROTEIN = RANDOM.normal(size=(12, 2))


def distributions(points, rows=None, **options):
    rows = np.arange(12) if rows is None else rows
    features = [f"g{k}" for k in range(points.shape[1])]
    return Distributions(points[rows], SAMPLES[rows], features=features, annotations={"cell": CELLS[rows]}, **options)


def both(rows=None):
    return Modalities({"rna": distributions(RNA), "protein": distributions(PROTEIN, rows)})


def test_samples_are_brought_into_the_order_of_the_first_modality():
    shuffled = np.array([11, 3, 5, 8, 0, 1, 2, 4, 6, 7, 9, 10])
    result = both(shuffled)
    assert result.names == result["protein"].names == ["a", "b", "c"]
    assert_array_equal(result["protein"].points[:4].sum(axis=0).round(9), PROTEIN[:4].sum(axis=0).round(9))


def test_joint_has_the_features_of_a_cell_side_by_side_whatever_the_order_of_cells():
    shuffled = RANDOM.permutation(12)
    joint = both(shuffled).joint()
    assert_array_equal(joint.points, np.hstack([RNA, PROTEIN]))
    assert joint.features == ["rna:g0", "rna:g1", "rna:g2", "protein:g0", "protein:g1"]
    assert joint.names == ["a", "b", "c"]
    assert_array_equal(joint.annotations["cell"], CELLS)


def test_joint_has_the_cells_that_all_modalities_have():
    subset = np.array([0, 2, 5, 6, 7, 9])
    result = both(subset)
    assert both().matched
    assert not result.matched
    assert_array_equal(result.joint().points, np.hstack([RNA, PROTEIN])[subset])
    assert result.joint().sizes.tolist() == [2, 3, 1]


def test_joint_of_sparse_modalities_is_sparse_and_of_mixed_ones_dense():
    rna, protein = distributions(RNA), distributions(PROTEIN)
    subset = rna.with_points(sparse.csr_matrix(RNA), rna.features)
    joint = Modalities({"rna": subset, "protein": protein}).joint()
    assert isinstance(joint.points, np.ndarray)
    both_sparse = Modalities({"rna": subset, "protein": protein.with_points(sparse.csr_matrix(PROTEIN))}).joint()
    assert sparse.issparse(both_sparse.points)
    assert_array_equal(both_sparse.points.toarray(), joint.points)


def test_masses_of_points_are_those_of_the_first_modality():
    weights = np.arange(1.0, 13.0)
    joint = Modalities({"rna": distributions(RNA, weights=weights), "protein": distributions(PROTEIN)}).joint()
    assert_allclose(joint.weights, distributions(RNA, weights=weights).weights)


def test_slices_have_all_modalities():
    result = both()[[2, 0]]
    assert result.names == ["c", "a"]
    assert_array_equal(result["protein"].points, PROTEIN[[8, 9, 10, 11, 0, 1, 2, 3]])
    assert both().shape == (3, 5)
    assert list(both()) == ["rna", "protein"]
    assert repr(both()) == "Modalities(3 distributions, rna: 3 features, protein: 2 features)"


def test_squared_distances_under_a_joint_metric_are_weighted_sums():
    learned = GroundMetric(RANDOM.normal(size=(2, 3)))
    X = both()
    result = X.joint_metric({"rna": learned, "protein": "euclidean"}, {"rna": 3.0, "protein": 1.0})
    rna, protein = learned.project(RNA), PROTEIN
    squares = [
        np.square(z[:, None] - z[None]).sum(axis=2) / z.var(axis=0).sum() * share
        for z, share in ((rna, 0.75), (protein, 0.25))
    ]
    assert_allclose(result.distances(X.joint()), np.sqrt(sum(squares)), atol=1e-12)


def test_a_modality_of_weight_zero_does_not_count_and_units_do_not_matter():
    X = both()
    metrics = {"rna": "euclidean", "protein": "euclidean"}
    alone = X.joint_metric(metrics, {"rna": 1.0, "protein": 0.0})
    expected = gm.pairwise_distances(X["rna"]) / np.sqrt(RNA.var(axis=0).sum())
    assert_allclose(gm.pairwise_distances(X.joint(), metric=alone), expected)
    scaled = Modalities({"rna": X["rna"], "protein": X["protein"].with_points(1000.0 * PROTEIN)})
    first, second = (subset.joint_metric(metrics, {"rna": 0.5, "protein": 0.5}) for subset in (X, scaled))
    assert_allclose(second.distances(scaled.joint()), first.distances(X.joint()))


def missing(modality="protein", name="c"):
    full, part = distributions(RNA), distributions(PROTEIN)[[0, 1]]
    return {"rna": full, modality: part}


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (missing(), ValueError, "sample 'c' is in modality 'rna', but not in 'protein' (3 and 2 samples)"),
        (dict(reversed(missing().items())), ValueError, "sample 'c' is in modality 'rna', but not in 'protein'"),
        ({}, TypeError, "expected Distributions by the name of their modality"),
        ([distributions(RNA)], TypeError, "expected Distributions by the name of their modality"),
        ({"rna": RNA}, TypeError, "modality 'rna' is a ndarray: expected Distributions"),
    ],
)
def test_what_are_not_the_same_samples_is_refused(parts, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Modalities(parts)


def test_cells_that_cannot_be_matched_are_refused():
    bare = Distributions(PROTEIN, SAMPLES)
    with pytest.raises(ValueError, match="points of modality 'protein' have no annotation 'cell'"):
        Modalities({"rna": distributions(RNA), "protein": bare}).joint()
    assert not Modalities({"rna": distributions(RNA), "protein": bare}).matched
    alternatives = Distributions(PROTEIN, SAMPLES, annotations={"cell": np.where(SAMPLES == "b", "other", CELLS)})
    with pytest.raises(ValueError, match="modality 'protein' has cells of the same name in sample 'b'"):
        Modalities({"rna": distributions(RNA), "protein": alternatives}).joint()
    renamed = np.array([f"x{cell}" if sample == "b" else cell for cell, sample in zip(CELLS, SAMPLES, strict=True)])
    separated = Distributions(PROTEIN, SAMPLES, annotations={"cell": renamed})
    with pytest.raises(ValueError, match=re.escape("sample 'b' has no cell that is in all of ['rna', 'protein']")):
        Modalities({"rna": distributions(RNA), "protein": separated}).joint()


@pytest.mark.parametrize(
    ("metrics", "weights", "message"),
    [
        ({"rna": "euclidean"}, {"rna": 1.0, "protein": 1.0}, "which lacks 'protein': give one for each modality"),
        ({"rna": "cosine", "protein": "euclidean"}, {"rna": 1.0, "protein": 1.0}, "expected a GroundMetric"),
        ({}, {"rna": 1.0}, "expected a weight for each of ['rna', 'protein']"),
        ({}, {"rna": 1.0, "protein": -1.0}, "weight of 'protein' is -1.0"),
        ({}, {"rna": 0.0, "protein": 0.0}, "expected one above 0"),
    ],
)
def test_metrics_and_weights_that_do_not_fit_are_refused(metrics, weights, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        both().joint_metric(metrics, weights)


def test_modalities_are_no_array_and_unknown_ones_are_named():
    with pytest.raises(TypeError):
        np.asarray(both())
    with pytest.raises(KeyError):
        both()["atac"]
