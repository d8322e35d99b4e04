"""Views: kernels by hand, members that were trained on none of the samples involved, and new samples alone."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric import Distributions, pairwise_distances
from groundmetric.ensemble import KINDS, Classes, Geometry
from groundmetric.ensemble.members import (
    SUMMARIES,
    EuclideanView,
    MarginalView,
    SummaryView,
    TransportView,
    choose_design,
    measure_members,
    median_distance,
    replace_diagonal,
    train_members,
)
from groundmetric.estimators.learner import refine_weights

from ..estimators.cohorts import cohort

D, y = cohort(24, points=6, shift=1.0)
NEW, _ = cohort(3, seed=9, points=9)
GEOMETRY = Geometry(D, 0, 100)
FOLDS = np.arange(24) // 2 % 8
N_LABEL_FREE = 1 + len(SUMMARIES)


def member_views(codes):
    """Return the transport view of each kind and the marginal view."""
    target = Classes(codes, 2)
    _, design = choose_design(target, np.arange(24), list(D.names), 14, 0, FOLDS)
    assert len(design) == 14
    members = train_members(GEOMETRY, target, FOLDS, KINDS, design, partial(refine_weights, max_epochs=2))
    by_kind = {kind: [m for m in members if m.kind == kind] for kind in KINDS}
    views = [TransportView.fit(kind, GEOMETRY, part, measure_members(GEOMETRY, part)) for kind, part in by_kind.items()]
    return [*views, MarginalView.fit("marginal", GEOMETRY, by_kind["univariate"])]


@pytest.fixture(scope="module")
def views():
    return [EuclideanView.fit(GEOMETRY), *(SummaryView.fit(GEOMETRY, name) for name in SUMMARIES), *member_views(y)]


def test_the_diagonal_is_the_largest_other_entry():
    kernel = np.array([[1.0, 0.2, 0.5], [0.2, 1.0, 0.1], [0.5, 0.1, 1.0]])
    assert_array_equal(np.diag(replace_diagonal(kernel)), [0.5, 0.2, 0.5])
    assert_array_equal(kernel.diagonal(), 1.0)


def test_the_unit_is_the_median_distance_between_different_samples():
    assert median_distance(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 9.0], [2.0, 9.0, 0.0]])) == 2.0
    assert median_distance(np.zeros((3, 3))) == 1.0


def test_all_views_have_symmetric_finite_kernels_and_distances(views):
    for view in views:
        for matrix in (view.kernel(), view.kernel(3), view.distances):
            assert matrix.shape == (24, 24)
            assert np.isfinite(matrix).all()
            assert_allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12)
        assert_allclose(np.diag(view.distances), 0.0, atol=1e-7)
        assert 0.5 < median_distance(view.distances) < 2.0


def test_euclidean_kernel_by_hand(views):
    points = (D.points - GEOMETRY.scaling.centre) / GEOMETRY.scaling.scale
    distances = pairwise_distances(D.with_points(points))
    expected = np.exp(-distances / np.median(distances[~np.eye(24, dtype=bool)]))
    off_diagonal = ~np.eye(24, dtype=bool)
    assert_allclose(views[0].kernel()[off_diagonal], expected[off_diagonal], rtol=1e-9)


def test_the_kernel_of_means_by_hand(views):
    means = D.means()
    z = (means - means.mean(axis=0)) / means.std(axis=0)
    assert_allclose(views[1].kernel(), z @ z.T / 10, atol=1e-9)


def test_the_composition_by_hand():
    """Points at four places: proportions of places, with half a point added to each count."""
    random = np.random.default_rng(0)
    places = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    codes = random.integers(0, 4, size=(6, 10))
    D = Distributions((places[codes] + 1e-3 * random.normal(size=(6, 10, 2))).reshape(-1, 2), np.repeat(range(6), 10))
    description = Geometry(D, 0, 100).description
    points, centres = description.euclidean.points, description.scaling.clusters
    distances = np.linalg.norm(points[:, None] - centres, axis=2)
    counts = np.array([np.bincount(row, minlength=len(centres)) for row in distances.argmin(axis=1).reshape(6, 10)])
    logs = np.log(counts + 0.5)
    assert_allclose(description.composition, logs - logs.mean(axis=1, keepdims=True), atol=1e-12)


def test_the_composition_does_not_depend_on_the_order_of_points():
    order = np.random.default_rng(1).permutation(len(D.points))
    sample = np.repeat(D.names, D.sizes)
    shuffled = Distributions(D.points[order], sample[order])
    rows = [list(shuffled.names).index(name) for name in D.names]
    first, second = (Geometry(cells, 0, 100).description.composition for cells in (D, shuffled[rows]))
    assert_allclose(first, second, atol=1e-12)


def test_the_kernel_of_a_fold_averages_members_that_leave_out_all_three_folds(views):
    """Compute entries of the transport view from the members' metrics, for pairs within, beside and of the fold."""
    view, fold = views[N_LABEL_FREE], 2
    kernel, overall = view.kernel(fold), view.kernel()
    cells = D.with_points(D.points)
    by_member = []
    for member in view.members:
        distances = pairwise_distances(cells, metric=member.metric(GEOMETRY))
        out = ~member.trained_on
        by_member.append(np.exp(-distances / median_distance(distances[np.ix_(out, out)])))
    for i, j in ((0, 1), (0, 5), (4, 7), (4, 20), (9, 23)):
        for entry, needed in ((kernel[i, j], {fold, FOLDS[i], FOLDS[j]}), (overall[i, j], {FOLDS[i], FOLDS[j]})):
            eligible = [k for m, k in zip(view.members, by_member, strict=True) if needed <= set(m.left_out)]
            assert eligible
            assert_allclose(entry, np.mean([k[i, j] for k in eligible]), rtol=1e-9)


def test_the_kernel_of_a_new_sample_averages_members_that_leave_out_the_training_sample(views):
    view = views[N_LABEL_FREE]
    new = GEOMETRY.scaling.describe(NEW)
    kernel = view.kernel_to(new)
    for j in (0, 11):
        eligible = [(m, unit) for m, unit in zip(view.members, view.units, strict=True) if FOLDS[j] in m.left_out]
        entries = [
            np.exp(-pairwise_distances(new.transported, D[[j]], metric=member.metric(GEOMETRY)) / unit)
            for member, unit in eligible
        ]
        assert_allclose(kernel[:, [j]], np.mean(entries, axis=0), rtol=1e-9)


def test_new_samples_alone_or_in_company_have_the_same_kernel(views):
    batch = GEOMETRY.scaling.describe(NEW)
    for view in views:
        alone = np.vstack([view.kernel_to(GEOMETRY.scaling.describe(NEW[[d]])) for d in range(3)])
        assert_allclose(alone, view.kernel_to(batch), rtol=1e-12, atol=1e-12)


def test_views_without_labels_give_training_samples_their_own_kernel(views):
    off_diagonal = ~np.eye(24, dtype=bool)
    for view in views[:N_LABEL_FREE]:
        assert_allclose(
            view.kernel_to(GEOMETRY.description)[off_diagonal], view.kernel()[off_diagonal], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("folds", [(1,), (2, 5)])
def test_distances_of_a_pair_do_not_depend_on_the_labels_of_its_folds(views, folds):
    """Exchange all labels in one or two folds: distances from one of them to the other keep every bit."""
    in_fold = np.isin(FOLDS, folds)
    pairs = np.ix_(folds[0] == FOLDS, folds[-1] == FOLDS)
    changed = member_views(np.where(in_fold, 1 - y, y))
    for first, second in zip(views[N_LABEL_FREE:], changed, strict=True):
        assert_array_equal(first.distances[pairs], second.distances[pairs])
        assert np.any(first.distances[~in_fold] != second.distances[~in_fold])


def test_the_kernel_of_a_fold_does_not_depend_on_its_labels(views):
    in_fold = FOLDS == 4
    changed = member_views(np.where(in_fold, 1 - y, y))
    for first, second in zip(views[N_LABEL_FREE:], changed, strict=True):
        assert_array_equal(first.kernel(4), second.kernel(4))
        assert np.any(first.kernel(3) != second.kernel(3))
