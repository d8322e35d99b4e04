"""Cohorts with landmarks: results close to those of all pairs, held-out predictions without labels of their fold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from groundmetric import GroundMetricEnsemble, TransportClassifier, pairwise_distances
from groundmetric.ensemble import geometry, members
from groundmetric.ensemble.geometry import MAX_EXACT, N_LANDMARKS, choose_landmarks, complete_distances
from groundmetric.ensemble.members import median_distance, replace_diagonal

from ..estimators.cohorts import cohort

N = 280
D, y = cohort(N, points=4, n_features=5, shift=1.0)
FOLDS = np.arange(N) // 2 % 4
NEW, NEW_LABELS = cohort(60, seed=9, points=4, n_features=5, shift=1.0)


def classifier(**options):
    options = {"n_members": 4, "kinds": ["univariate", "learned"], "max_epochs": 2, "cv": FOLDS} | options
    return TransportClassifier(GroundMetricEnsemble(**options), random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(D, y)


@pytest.fixture(scope="module")
def exact():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(geometry, "MAX_EXACT", N)
        patch.setattr(members, "_MAX_TRAINING", N)
        return classifier().fit(D, y)


def test_results_are_close_to_those_of_all_pairs(fitted, exact):
    landmark, full = fitted.ensemble_, exact.ensemble_
    assert landmark.fitted_.geometries[""].landmarks.size == N_LANDMARKS
    assert full.fitted_.geometries[""].landmarks.size == N
    assert np.corrcoef(landmark.held_out_[:, 1], full.held_out_[:, 1])[0, 1] > 0.97
    assert abs(landmark.score_ - full.score_) < 0.03
    pairs = np.triu_indices(N, 1)
    assert np.corrcoef(landmark.distances_[pairs], full.distances_[pairs])[0, 1] > 0.95
    new, expected = fitted.predict_proba(NEW)[:, 1], exact.predict_proba(NEW)[:, 1]
    assert np.corrcoef(new, expected)[0, 1] > 0.97
    assert np.mean((new > 0.5) == NEW_LABELS) > 0.65


def test_held_out_predictions_of_a_fold_do_not_depend_on_its_labels(fitted):
    fold = FOLDS == 2
    changed = classifier().fit(D, np.where(fold, 1 - y, y)).ensemble_
    assert_array_equal(changed.held_out_[fold], fitted.ensemble_.held_out_[fold])
    for name, predictions in fitted.ensemble_.view_held_out_.items():
        assert_array_equal(changed.view_held_out_[name][fold], predictions[fold])
    assert np.any(changed.held_out_[~fold] != fitted.ensemble_.held_out_[~fold])


def test_order_of_the_input_and_number_of_threads_change_nothing(fitted):
    order = np.random.default_rng(0).permutation(N)
    moved = classifier(cv=FOLDS[order], n_jobs=2).fit(D[order], y[order])
    assert_allclose(moved.ensemble_.held_out_, fitted.ensemble_.held_out_[order], atol=1e-9)
    assert_allclose(moved.ensemble_.distances_, fitted.ensemble_.distances_[np.ix_(order, order)], atol=1e-9)
    assert_allclose(moved.predict_proba(NEW[:5]), fitted.predict_proba(NEW[:5]), atol=1e-9)


def test_new_samples_alone_or_together_have_the_same_predictions(fitted):
    batch = fitted.predict_all(NEW[:4])
    alone = [fitted.predict_all(NEW[[d]]) for d in range(4)]
    assert_allclose(np.vstack([part.values for part in alone]), batch.values, atol=1e-12)
    assert_allclose(np.concatenate([part.typicality for part in alone]), batch.typicality)


def test_a_file_holds_the_landmarks_only(fitted, tmp_path):
    fitted.save(tmp_path / "predictor.gm")
    loaded = TransportClassifier.load(tmp_path / "predictor.gm")
    assert len(loaded.predictor_.names) == N_LANDMARKS
    assert all(view.landmarks.size == N_LANDMARKS for _, view in loaded.predictor_.views)
    assert_array_equal(loaded.predict_proba(NEW[:5]), fitted.predict_proba(NEW[:5]))
    assert_array_equal(loaded.typicality(NEW[:5]), fitted.typicality(NEW[:5]))


def test_learned_members_are_trained_on_balanced_subsets(fitted):
    ensemble = fitted.ensemble_.fitted_
    counts = []

    def refine(cells, target, start, seed):
        counts.append(np.bincount(target.codes))
        return start

    codes = (np.arange(N) % 4 == 0).astype(int)
    target = type(ensemble.target)(codes, 2)
    members.train_members(ensemble.geometries[""], target, ensemble.folds, ["learned"], [(0,), (1,)], refine)
    assert_array_equal(np.sum(counts, axis=1), [members._MAX_TRAINING] * 2)
    n_rare = [np.sum(codes[ensemble.folds != fold]) for fold in (0, 1)]
    assert_array_equal(np.array(counts)[:, 1], np.minimum(n_rare, members._MAX_TRAINING // 2))


def test_landmarks_depend_on_seed_and_names():
    names = [f"p{k}" for k in range(1000)]
    chosen = {names[k] for k in choose_landmarks(names, 0)}
    assert len(chosen) == N_LANDMARKS
    assert chosen == {names[::-1][k] for k in choose_landmarks(names[::-1], 0)}
    assert chosen != {names[k] for k in choose_landmarks(names, 1)}
    assert choose_landmarks(names[:MAX_EXACT], 0).size == MAX_EXACT


def test_interpolated_distances_are_close_to_measured_distances():
    random = np.random.default_rng(0)
    points = random.normal(size=(300, 4)) * [3.0, 2.0, 1.0, 0.5]
    full, landmarks = cdist(points, points), np.sort(random.permutation(300)[:60])
    distances = complete_distances(full[:, landmarks], landmarks)
    assert_array_equal(distances[:, landmarks], full[:, landmarks])
    assert_allclose(distances, distances.T, atol=1e-12)
    assert_array_equal(np.diag(distances), 0.0)
    measured = np.setdiff1d(np.arange(300), landmarks)
    pairs = np.ix_(measured, measured)
    assert np.corrcoef(distances[pairs].ravel(), full[pairs].ravel())[0, 1] > 0.97
    assert complete_distances(full, np.arange(300)) is full


def test_units_and_diagonals_skip_entries_of_a_landmark_with_itself():
    distances = pairwise_distances(D[:10], D[[2, 7]])
    different = np.delete(np.delete(distances.ravel(), 2 * 7 + 1), 2 * 2)
    assert median_distance(distances, np.array([2, 7])) == np.median(different)
    kernel = replace_diagonal(np.exp(-distances), np.array([2, 7]))
    assert kernel[2, 0] == np.exp(-distances[2, 1])
    assert kernel[7, 1] == np.exp(-distances[7, 0])
    assert_array_equal(kernel[0], np.exp(-distances[0]))
