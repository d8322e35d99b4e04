"""Stacking: kernel models against regressions on features, penalties mixed by likelihood, and weights by gain."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, Ridge

from groundmetric.ensemble import Classes, Numbers, stacking
from groundmetric.ensemble.stacking import KernelModel, Stack, predict_held_out, stacking_weights

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(24, 3))
NEW = RANDOM.normal(size=(10, 3))
CODES = (X[:, 0] + 0.3 * RANDOM.normal(size=24) > 0).astype(int)
VALUES = X[:, 0] + 0.3 * RANDOM.normal(size=24)
CENTRE = X.mean(axis=0)
SCALE = np.sqrt(np.mean(np.sum((X - CENTRE) ** 2, axis=1)))
FOLDS = np.arange(24) % 4
TARGETS = [Classes(CODES, 2), Numbers(VALUES)]


class FixedView:
    """A view with the same kernel for all folds."""

    name = group = "fixed"

    def __init__(self, kernel):
        self.matrix, self.landmarks = kernel, np.arange(len(kernel))

    def kernel(self, fold=None):
        return self.matrix


def kernel_of(x, second=None):
    second = x if second is None else second
    return np.exp(-np.linalg.norm(x[:, None] - second[None], axis=2) / 2.0)


@pytest.mark.parametrize("strength", [0.3, 30.0])
def test_a_linear_kernel_is_logistic_regression_on_centred_features(monkeypatch, strength):
    monkeypatch.setattr(stacking, "STRENGTHS", np.array([strength]))
    target = Classes(CODES, 2)
    model, _ = KernelModel.fit(X @ X.T, target, FOLDS)
    reference = LogisticRegression(C=2.0 * strength, class_weight="balanced", tol=1e-10, max_iter=5000)
    reference.fit((X - CENTRE) / SCALE, CODES)
    assert_allclose(
        model.predict(NEW @ X.T, target), reference.predict_proba((NEW - CENTRE) / SCALE), atol=1e-3
    )  # the ridge on the intercept


@pytest.mark.parametrize("strength", [0.3, 30.0])
def test_a_linear_kernel_is_ridge_regression_on_centred_features(monkeypatch, strength):
    monkeypatch.setattr(stacking, "STRENGTHS", np.array([strength]))
    target = Numbers(VALUES)
    model, held_out = KernelModel.fit(X @ X.T, target, FOLDS)
    z = (X - CENTRE) / SCALE
    reference = Ridge(alpha=1.0 / strength)
    expected = reference.fit(z, VALUES).predict((NEW - CENTRE) / SCALE)
    assert_allclose(model.predict(NEW @ X.T, target), expected, atol=1e-9)
    for fold in range(4):
        train, test = fold != FOLDS, fold == FOLDS
        assert_allclose(held_out[test], reference.fit(z[train], VALUES[train]).predict(z[test]), atol=1e-9)


@pytest.mark.parametrize("target", TARGETS, ids=["classes", "numbers"])
def test_training_samples_as_new_samples_have_the_fitted_coordinates(target):
    """Compare predictions from the rows of the training kernel with those of its eigenvectors."""
    kernel = kernel_of(X)
    model, _ = KernelModel.fit(kernel, target, FOLDS)
    middle = np.eye(24) - 1.0 / 24
    centred = middle @ kernel @ middle / model.scale
    coordinates = centred @ model.axes
    assert_allclose(coordinates @ coordinates.T, centred, atol=1e-6)
    x = np.column_stack([coordinates, np.ones(24)])
    expected = np.tensordot(model.mixture, target.predict(model.coefficients, x), axes=1)
    assert_allclose(model.predict(kernel, target), expected, atol=1e-9)


@pytest.mark.parametrize("target", TARGETS, ids=["classes", "numbers"])
def test_penalties_are_mixed_by_the_root_of_the_held_out_likelihood(monkeypatch, target):
    strengths, scores, held_out = stacking.STRENGTHS, [], []
    mixed, batch = KernelModel.fit(kernel_of(X), target, FOLDS)
    for strength in strengths:
        monkeypatch.setattr(stacking, "STRENGTHS", np.array([strength]))
        held_out.append(KernelModel.fit(kernel_of(X), target, FOLDS)[1])
        scores.append(target.score(held_out[-1]))
    likelihood = np.exp(12.0 * (np.array(scores) - max(scores)))
    assert_allclose(mixed.mixture, likelihood / likelihood.sum(), rtol=1e-5)
    assert_allclose(batch, np.tensordot(mixed.mixture, held_out, axes=1), atol=1e-6)


@pytest.mark.parametrize("target", TARGETS, ids=["classes", "numbers"])
@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_samples_that_coincide_are_predicted_at_chance(target, noise):
    model, held_out = KernelModel.fit(7.0 + noise * X @ X.T, target, FOLDS)
    middle = 0.5 if isinstance(target, Classes) else VALUES.mean()
    assert_allclose(
        model.predict(np.full((3, 24), 7.0), target), np.broadcast_to(middle, held_out[:3].shape), atol=0.01
    )
    assert np.isfinite(held_out).all()


def test_an_indefinite_kernel_keeps_its_positive_part():
    model, held_out = KernelModel.fit(np.diag(np.linspace(-1.0, 3.0, 24)), Classes(CODES, 2), FOLDS)
    assert 0 < model.axes.shape[1] < 24
    assert np.isfinite(held_out).all()


def test_classes_have_equal_weight_whatever_their_size():
    codes = np.array([0] * 20 + [1] * 4)
    target = Classes(codes, 2)
    model, held_out = KernelModel.fit(np.ones((24, 24)), target, FOLDS)
    assert_allclose(held_out, 0.5, atol=1e-3)
    assert_allclose(model.predict(np.ones((1, 24)), target), [[0.5, 0.5]], atol=1e-3)


def test_a_fold_without_a_class_among_the_others_is_predicted_at_chance():
    codes, folds = np.array([1] * 6 + [0] * 18), np.repeat(np.arange(4), 6)
    held_out = KernelModel.fit(kernel_of(X), Classes(codes, 2), folds)[1]
    assert_array_equal(held_out[:6], 0.5)


@pytest.mark.parametrize("target", TARGETS, ids=["classes", "numbers"])
def test_order_of_samples_changes_nothing(target):
    order = RANDOM.permutation(24)
    moved = Classes(CODES[order], 2) if isinstance(target, Classes) else Numbers(VALUES[order])
    model, held_out = KernelModel.fit(kernel_of(X), target, FOLDS)
    second, moved_out = KernelModel.fit(kernel_of(X[order]), moved, FOLDS[order])
    assert_allclose(moved_out, held_out[order], atol=1e-6)
    assert_allclose(
        second.predict(kernel_of(NEW, X[order]), moved), model.predict(kernel_of(NEW, X), target), atol=1e-6
    )


@pytest.mark.parametrize("fold", range(4))
def test_held_out_predictions_do_not_depend_on_labels_of_the_fold(fold):
    views = [FixedView(kernel_of(X)), FixedView(X @ X.T), FixedView(X[:, :1] @ X[:, :1].T)]
    in_fold = fold == FOLDS
    changes = [
        (Classes(CODES, 2), Classes(np.where(in_fold, 1 - CODES, CODES), 2)),
        (Numbers.of(VALUES), Numbers.of(np.where(in_fold, 1e6 * VALUES, VALUES))),
    ]
    for first, second in changes:
        (a, _), (b, _) = predict_held_out(views, first, FOLDS), predict_held_out(views, second, FOLDS)
        assert_array_equal(first.decode(a.by_view)[:, in_fold], second.decode(b.by_view)[:, in_fold])
        assert_array_equal(first.decode(a.predictions)[in_fold], second.decode(b.predictions)[in_fold])
        assert np.any(first.decode(a.predictions)[~in_fold] != second.decode(b.predictions)[~in_fold])


def test_stacking_weights_are_third_powers_of_gains_over_chance_times_the_prior():
    codes = np.arange(1000) % 2
    target, folds = Classes(codes, 2), np.arange(1000) % 5
    confident, fair, wrong = (np.where(codes[:, None] == [0, 1], p, 1.0 - p) for p in (0.9, 0.6, 0.3))
    prior = np.array([1.0, 2.0, 0.5])
    weights = stacking_weights([confident, fair, wrong], prior, target, folds)
    gains = prior * np.array([np.log(0.9 / 0.5), np.log(0.6 / 0.5), 0.02]) ** 3
    assert_allclose(weights, gains / gains.sum(), rtol=1e-9)
    assert_allclose(weights.sum(), 1.0)


def test_views_without_gain_have_equal_weights():
    target = Classes(CODES, 2)
    weights = stacking_weights([np.full((24, 2), 0.5)] * 3, np.ones(3), target, FOLDS)
    assert_allclose(weights, 1.0 / 3.0)


def test_an_informative_view_outweighs_noise():
    noise = [kernel_of(np.random.default_rng(seed).normal(size=(24, 3))) for seed in range(3)]
    stack = Stack.fit([kernel_of(X[:, :1]), *noise], np.ones(4), Classes(CODES, 2), FOLDS)
    assert np.argmax(stack.weights) == 0
    assert_allclose(stack.weights.sum(), 1.0)
    predicted = stack.predict_views([kernel_of(NEW[:, :1], X[:, :1]), *(np.ones((10, 24)),) * 3], Classes(CODES, 2))
    assert predicted.shape == (4, 10, 2)
    assert_allclose(np.tensordot(stack.weights, predicted, axes=1).sum(axis=1), 1.0)
