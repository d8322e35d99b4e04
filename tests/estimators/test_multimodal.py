"""MultimodalClassifier and MultimodalRegressor: the modality that tells the label counts; joint ones see more."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict

from groundmetric import (
    Distributions,
    GroundMetricEnsemble,
    Modalities,
    MultimodalClassifier,
    MultimodalRegressor,
    TransportClassifier,
)

from .cohorts import cohort

SMALL = GroundMetricEnsemble(4, kinds=["univariate", "anova"])


def modalities(n, seed, *, values=(None, None), shifts=(2.0, 0.0), **options):
    """Two modalities of the same samples; the feature of each that is planted follows its own values."""
    every = [
        cohort(n, 2 * seed + k, shift=shift, values=value, **options)[0]
        for k, (value, shift) in enumerate(zip(values, shifts, strict=True))
    ]
    return Modalities({"rna": every[0], "protein": every[1]})


def together(n, seed, n_cells=40):
    """Cells with a high or a low value in either modality: in class 1 the same cells have both high, in 0 others."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    high = np.tile(np.arange(n_cells) < n_cells // 2, (n, 1))
    second = np.where(y[:, None] == 1, high, ~high)
    names, cells = np.repeat([f"s{k}" for k in range(n)], n_cells), [f"c{k}" for k in range(n * n_cells)]
    rna, protein = (
        Distributions(
            6.0 * values.ravel()[:, None] + random.normal(size=(n * n_cells, 2)) * [1.0, 0.3],
            names,
            annotations={"cell": cells},
        )
        for values in (high, second)
    )
    return Modalities({"rna": rna, "protein": protein}), y


def test_a_modality_of_noise_hardly_counts():
    y = np.arange(24) % 2
    result = MultimodalClassifier(SMALL, random_state=0).fit(modalities(24, 1), y)
    assert list(result.weights_) == ["rna", "protein"]
    assert result.weights_["rna"] > 0.8
    assert sum(result.weights_.values()) == pytest.approx(1.0)
    assert np.mean(result.held_out_.argmax(axis=1) == y) > 0.8
    assert result.metrics_["rna"].importance().argmax() == 3


def test_modalities_that_each_tell_a_part_do_better_together():
    """Compare held-out accuracy with that of the better modality, and score new samples, as means of two cohorts."""
    y, truth = np.arange(36) % 3, np.arange(30) % 3
    gains, scores = [], []
    for seed in (3, 13):
        X = modalities(36, seed, values=(y == 0, y == 2), shifts=(2.5, 2.5))
        result = MultimodalClassifier(SMALL, random_state=0).fit(X, y)
        assert min(result.weights_.values()) > 0.25
        ensemble = clone(SMALL).set_params(random_state=0)
        alone = [np.mean(clone(ensemble).fit(part, y).held_out_.argmax(axis=1) == y) for part in X.parts.values()]
        gains.append(np.mean(result.held_out_.argmax(axis=1) == y) - max(alone))
        new = modalities(30, seed + 1, values=(truth == 0, truth == 2), shifts=(2.5, 2.5))
        scores.append(result.score(new, truth))
    assert np.mean(gains) > 0.05, gains
    assert np.mean(scores) > 0.75, scores


def test_what_goes_together_in_a_cell_is_seen_where_cells_are_matched_and_not_otherwise():
    X, y = together(16, 0)
    new, truth = together(12, 1)
    matched = MultimodalClassifier(SMALL, random_state=0).fit(X, y)
    assert matched.weights_["joint"] > 0.6
    assert matched.score(new, truth) > 0.9
    distances = MultimodalClassifier(SMALL, joint=False, random_state=0).fit(X, y)
    assert set(distances.weights_) == {"rna", "protein"}
    assert distances.score(new, truth) < 0.8


def test_numbers_are_predicted_from_the_modality_that_has_them():
    ages = np.random.default_rng(1).uniform(20.0, 80.0, 30)
    X = modalities(30, 5, values=(None, ages), shifts=(0.0, 0.08))
    result = MultimodalRegressor(SMALL, random_state=0).fit(X, ages)
    assert result.weights_["protein"] > 0.7
    assert np.corrcoef(result.held_out_, ages)[0, 1] > 0.7
    new = np.random.default_rng(2).uniform(20.0, 80.0, 30)
    assert result.score(modalities(30, 6, values=(None, new), shifts=(0.0, 0.08)), new) > 0.4


def test_weights_of_modalities_are_sums_over_views_and_distances_weighted_sums():
    y = np.arange(16) % 2
    X, new = modalities(16, 1), modalities(10, 2)
    result = MultimodalClassifier(SMALL, random_state=0).fit(X, y)
    for name, weight in result.weights_.items():
        views = [value for view, value in result.view_weights_.items() if view.startswith(f"{name}: ")]
        assert sum(views) == pytest.approx(weight)
    assert_allclose(result.predict_proba(new).sum(axis=1), 1.0)
    views = [result.view_weights_[name] * view.distances for name, (_, view) in zip(
        result.ensemble_.fitted_.view_names, result.ensemble_.fitted_.views, strict=True
    )]  # fmt: skip
    assert_allclose(result.distances_, sum(views), atol=1e-12)


@pytest.mark.parametrize("numeric", [False, True])
def test_held_out_predictions_of_a_fold_do_not_depend_on_its_labels(numeric):
    X, y = modalities(16, 1), np.arange(16) % 2 + 0.1 * np.arange(16) * numeric
    folds = np.arange(16) // 2 % 4
    ensemble = clone(SMALL).set_params(cv=folds)
    model = (MultimodalRegressor if numeric else MultimodalClassifier)(ensemble, random_state=0)
    first = model.fit(X, y).held_out_
    changed = np.where(folds == 2, 1 - y, y)
    second = clone(model).fit(X, changed).held_out_
    assert_array_equal(second[folds == 2], first[folds == 2])
    assert np.any(second[folds != 2] != first[folds != 2])


def test_labels_go_by_name_and_the_order_of_modalities_does_not_matter():
    X, y = modalities(16, 1), np.arange(16) % 2
    labels = pd.Series(y, index=X.names).sample(frac=1.0, random_state=0)
    estimator = MultimodalClassifier(SMALL, random_state=0)
    first = clone(estimator).fit(X, y)
    second = clone(estimator).fit({"protein": X["protein"], "rna": X["rna"]}, labels)
    assert_allclose(second.held_out_, first.held_out_)
    new = modalities(10, 2)
    assert_allclose(second.predict_proba({"rna": new["rna"], "protein": new["protein"]}), first.predict_proba(new))
    assert second.score(X, labels) == first.score(X, y)


def test_one_modality_is_the_classifier_itself():
    X, y = modalities(16, 1), np.arange(16) % 2
    result = MultimodalClassifier(SMALL, random_state=0).fit({"rna": X["rna"]}, y)
    assert result.weights_ == {"rna": pytest.approx(1.0)}
    alone = TransportClassifier(SMALL, random_state=0).fit(X["rna"], y)
    assert_array_equal(result.held_out_, alone.ensemble_.held_out_)
    new = modalities(5, 2)["rna"]
    assert_array_equal(result.predict_proba({"rna": new}), alone.predict_proba(new))


def test_scikit_learns_cross_validation_slices_modalities():
    X, y = modalities(18, 1), np.arange(18) % 2
    estimator = MultimodalClassifier(GroundMetricEnsemble(1, kinds=["anova"]), random_state=0)
    folds = KFold(3, shuffle=True, random_state=0)
    result = cross_val_predict(estimator, X, y, cv=folds)
    train, test = next(folds.split(y))
    assert_array_equal(result[test], estimator.fit(X[train], y[train]).predict(X[test]))


def test_groups_and_strata_are_passed_on():
    X, y = modalities(16, 1), np.arange(16) % 2
    patients = np.arange(16) // 2
    result = MultimodalClassifier(SMALL, random_state=0).fit(X, y, groups=patients, strata=np.arange(16) // 8)
    assert_array_equal(result.folds_[::2], result.folds_[1::2])
    assert_array_equal(np.bincount(result.ensemble_.fitted_.target.strata), [8, 8])


def test_bad_input_is_refused():
    X, y = modalities(16, 1), np.arange(16) % 2
    estimator = MultimodalClassifier(SMALL, random_state=0)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    with pytest.raises(TypeError, match="X is a Distributions: expected Modalities"):
        estimator.fit(X["rna"], y)
    with pytest.raises(TypeError, match="joint is 'yes'"):
        MultimodalClassifier(SMALL, joint="yes").fit(X, y)
    with pytest.raises(ValueError, match="a modality is named 'joint'"):
        estimator.fit({"joint": X["rna"]}, y)
    with pytest.raises(ValueError, match="points of modality 'rna' have no annotation 'cell'"):
        MultimodalClassifier(SMALL, joint=True).fit(X, y)
    with pytest.raises(ValueError, match="sample 's15' is in modality 'rna', but not in 'protein'"):
        estimator.fit({"rna": X["rna"], "protein": X["protein"][:15]}, y)
    fitted = estimator.fit(X, y)
    with pytest.raises(ValueError, match=r"X has the modalities \['rna'\], but \['rna', 'protein'\] were learned from"):
        fitted.predict({"rna": X["rna"]})
