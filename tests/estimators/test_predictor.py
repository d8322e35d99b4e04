"""TransportClassifier and TransportRegressor: new distributions, how usual they are, scikit-learn's contract, files."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.utils.estimator_checks import parametrize_with_checks

from groundmetric import (
    Distributions,
    GroundMetricEnsemble,
    GroundMetricLearner,
    TransportClassifier,
    TransportRegressor,
)
from groundmetric._internal.files import write_arrays
from groundmetric._internal.validation import ParameterError
from groundmetric.estimators import UnfamiliarWarning
from groundmetric.estimators.predictor import FORMAT

from .cohorts import FEATURES, PLANTED, cohort

D, y = cohort(20, seed=1)
NEW, NEW_Y = cohort(30, seed=2)
SMALL = GroundMetricEnsemble(4, kinds=["univariate", "anova"], max_epochs=2)
ONE = GroundMetricEnsemble(1, kinds=["univariate"])
# On hundreds of rows; what these ask for is tested here on small cohorts: accuracy, shapes, sparse rows, lists.
SLOW = {
    "check_classifiers_train", "check_regressors_train", "check_regressor_data_not_an_array",
    "check_estimator_sparse_array", "check_estimator_sparse_matrix",
}  # fmt: skip


@pytest.fixture(scope="module")
def classifier():
    return TransportClassifier(SMALL, random_state=0).fit(D, np.array(["well", "ill"])[y])


@pytest.fixture(scope="module")
def regressor():
    return TransportRegressor(SMALL, random_state=0).fit(*ages(20, 1))


def ages(n, seed):
    return cohort(n, seed, values=np.random.default_rng(seed).uniform(20.0, 80.0, n), shift=0.08)


def shifted(by):
    return NEW.with_points(NEW.points + by, FEATURES)


def test_probabilities_are_shares_of_the_classes(classifier):
    result = classifier.predict_proba(NEW)
    assert classifier.classes_.tolist() == ["ill", "well"]
    assert result.shape == (30, 2)
    assert result.min() >= 0.0
    assert_allclose(result.sum(axis=1), 1.0)
    assert_array_equal(classifier.predict(NEW), classifier.classes_[result.argmax(axis=1)])


def test_fresh_draws_are_classified_as_well_as_held_out_ones(classifier):
    truth = np.array(["well", "ill"])[NEW_Y]
    score = classifier.score(NEW, truth)
    held_out = classifier.classes_[classifier.ensemble_.held_out_.argmax(axis=1)]
    assert score > 0.8
    assert abs(score - (held_out == np.array(["well", "ill"])[y]).mean()) < 0.2
    assert classifier.metric_.importance().argmax() == PLANTED


def test_labels_and_weights_of_a_score_go_by_name(classifier):
    truth = pd.Series(np.array(["well", "ill"])[NEW_Y], index=NEW.names)
    assert classifier.score(NEW, truth[::-1]) == classifier.score(NEW, truth.to_numpy())
    right = classifier.predict(NEW) == truth.to_numpy()
    weights = pd.Series(np.where(right, 1.0, 3.0), index=NEW.names)
    assert_allclose(classifier.score(NEW, truth, weights[::-1]), right.sum() / weights.sum())


def test_three_classes_have_three_probabilities():
    levels = np.arange(48) % 3
    subset, _ = cohort(48, values=levels, shift=3.0)
    result = TransportClassifier(SMALL, random_state=0).fit(subset[:30], levels[:30]).predict_proba(subset[30:])
    assert_allclose(result.sum(axis=1), 1.0)
    assert (result.argmax(axis=1) == levels[30:]).mean() > 0.6


def test_a_prediction_does_not_depend_on_what_else_is_predicted(classifier):
    assert_allclose(classifier.predict_proba(NEW[[7, 3]]), classifier.predict_proba(NEW)[[7, 3]], atol=1e-9)


def test_labels_without_meaning_get_probabilities_around_one_half():
    noise, labels = cohort(20, seed=3, shift=0.0)
    fresh, _ = cohort(40, seed=4, shift=0.0)
    fitted = TransportClassifier(SMALL, random_state=0).fit(noise, labels)
    assert abs(fitted.predict_proba(fresh)[:, 1].mean() - 0.5) < 0.15


def test_distributions_of_many_points_are_drawn_from():
    drawn = TransportClassifier(clone(SMALL).set_params(max_points=4), random_state=0).fit(D, y)
    assert drawn.score(NEW, NEW_Y) > 0.75
    assert_array_equal(drawn.predict_proba(NEW), drawn.predict_proba(NEW))


# Class prior


def test_a_prior_adjusts_probabilities_by_the_rule_of_bayes(classifier):
    """Compare with probabilities times prior odds, and a prior by class with one in the order of the classes."""
    equal = classifier.predict_proba(NEW)
    adjusted = classifier.predict_proba(NEW, prior=[0.1, 0.9])
    assert_allclose(adjusted[:, 1] / adjusted[:, 0], 9.0 * equal[:, 1] / equal[:, 0], rtol=1e-9)
    assert_allclose(adjusted.sum(axis=1), 1.0)
    assert_array_equal(classifier.predict_proba(NEW, prior={"well": 0.9, "ill": 0.1}), adjusted)
    assert_array_equal(classifier.predict_proba(NEW, prior=pd.Series([9.0, 1.0], ["well", "ill"])), adjusted)
    assert_allclose(classifier.predict_proba(NEW, prior=[2.0, 2.0]), equal, rtol=1e-12)
    assert_array_equal(classifier.predict(NEW, prior=[0.1, 0.9]), classifier.classes_[adjusted.argmax(axis=1)])


@pytest.mark.parametrize(
    "prior", [[0.5], [0.5, 0.5, 0.5], [1.0, 0.0], [2.0, -1.0], [np.nan, 1.0], {"ill": 1.0}, {"ill": 1.0, "other": 1.0}]
)
def test_an_impossible_prior_is_an_error(classifier, prior):
    with pytest.raises(ParameterError) as caught:
        classifier.predict_proba(NEW, prior=prior)
    assert caught.value.parameter == "prior"


# Unfamiliar distributions


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_a_shifted_distribution_is_called_unfamiliar_where_the_user_called(classifier, method):
    one_far = NEW.with_points(NEW.points + 9.0 * np.repeat(np.arange(30) == 4, NEW.sizes)[:, None], FEATURES)
    with pytest.warns(UnfamiliarWarning, match=r"1 of 30 distributions \(e\.g\. 's04'\)") as caught:
        getattr(classifier, method)(one_far)
    assert caught[0].filename == __file__


def test_usual_distributions_are_predicted_without_a_warning(classifier, regressor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.predict(NEW)
        regressor.predict(ages(10, 5)[0])


def test_typicality_is_a_share_and_that_of_exchangeable_ones_is_roughly_uniform(classifier):
    result = np.concatenate([classifier.typicality(cohort(30, seed)[0]) for seed in range(5, 10)])
    assert result.min() >= 1 / 21
    assert result.max() <= 1.0
    assert abs(result.mean() - 0.5) < 0.15
    assert 0.02 < np.mean(result <= 0.25) < 0.5


def test_typicality_of_a_far_one_is_the_least_there_is_and_of_a_known_one_the_most(classifier):
    assert_allclose(classifier.typicality(shifted(50.0)), 1 / 21)
    assert_allclose(classifier.typicality(D), 1.0)


# Numbers


def test_numbers_are_recovered_on_fresh_draws(regressor):
    fresh, truth = ages(30, 3)
    result = regressor.predict(fresh)
    assert result.shape == (30,)
    assert np.corrcoef(result, truth)[0, 1] > 0.8
    assert regressor.score(fresh, truth) > 0.5
    assert regressor.score(fresh, pd.Series(truth, index=fresh.names)[::-1]) == regressor.score(fresh, truth)
    assert regressor.metric_.importance().argmax() == PLANTED


def test_numbers_in_other_units_are_predicted_in_these(regressor):
    subset, truth = ages(20, 1)
    rescaled = TransportRegressor(SMALL, random_state=0).fit(subset, 1e4 * truth - 7.0)
    assert_allclose(rescaled.predict(NEW), 1e4 * regressor.predict(NEW) - 7.0, rtol=1e-6)


def test_ordered_categories_are_their_ranks():
    ranks = np.arange(15) % 3
    subset, _ = cohort(15, values=ranks, shift=2.0)
    grades = pd.Series(pd.Categorical.from_codes(ranks, ["low", "mid", "high"], ordered=True), index=subset.names)
    fitted = TransportRegressor(SMALL, random_state=0).fit(subset, grades[::-1])
    result = fitted.predict(subset)
    assert_array_equal(result, TransportRegressor(SMALL, random_state=0).fit(subset, ranks).predict(subset))
    assert result[ranks == 0].mean() < result[ranks == 1].mean() < result[ranks == 2].mean()
    assert fitted.score(subset, grades) == fitted.score(subset, ranks) > 0.5


def test_the_ensemble_that_was_given_is_not_touched():
    provided = clone(SMALL)
    TransportRegressor(provided, random_state=0).fit(*ages(12, 1))
    assert provided.target == "classes"
    assert provided.random_state is None
    assert not hasattr(provided, "metric_")


# scikit-learn


@pytest.mark.filterwarnings("ignore")  # a part of the labels is noise
@parametrize_with_checks([TransportClassifier(ONE), TransportRegressor(ONE)])
def test_scikit_learns_own_checks(estimator, check):
    if getattr(check, "func", check).__name__ not in SLOW:
        check(estimator)


def test_predictions_of_cross_validation_are_those_of_the_folds():
    grouped = TransportClassifier(SMALL, random_state=0)
    positions = np.arange(30)
    splits = [
        (positions[positions % 10 >= 5], positions[positions % 10 < 5]),
        (positions[positions % 10 < 5], positions[positions % 10 >= 5]),
    ]
    result = cross_val_predict(grouped, NEW, NEW_Y, cv=splits, method="predict_proba")
    train, test = splits[0]
    assert_array_equal(result[test], clone(grouped).fit(NEW[train], NEW_Y[train]).predict_proba(NEW[test]))
    assert (result.argmax(axis=1) == NEW_Y).mean() > 0.7


def test_a_grid_search_finds_parameters_of_the_ensemble():
    search = GridSearchCV(TransportClassifier(SMALL, random_state=0), {"ensemble__kinds": [["anova"]]}, cv=2)
    assert search.fit(D, y).best_score_ > 0.6
    assert search.best_estimator_.ensemble_.kinds == ["anova"]
    assert search.predict(NEW).shape == (30,)


def test_it_can_be_cloned_and_pickled(classifier):
    assert clone(classifier).get_params()["ensemble__n_members"] == 4
    repeated = pickle.loads(pickle.dumps(classifier))
    assert_array_equal(repeated.predict_proba(NEW), classifier.predict_proba(NEW))


def test_rows_of_arrays_sparse_or_dense_are_distributions_of_one_point():
    X, new = D.means(), NEW.means()
    fitted = TransportClassifier(SMALL, random_state=0).fit(X, y)
    assert (fitted.predict(new) == NEW_Y).mean() > 0.8
    for same in (sparse.csr_matrix(new), Distributions(new, NEW.names), new.tolist()):
        assert_allclose(fitted.predict_proba(same), fitted.predict_proba(new), rtol=1e-6)


def test_labels_in_a_table_of_one_column_are_taken_with_a_warning():
    with pytest.warns(DataConversionWarning):
        fitted = TransportClassifier(SMALL, random_state=0).fit(D, y[:, None])
    assert_array_equal(
        fitted.predict_proba(NEW), TransportClassifier(SMALL, random_state=0).fit(D, y).predict_proba(NEW)
    )


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score", "typicality"])
def test_before_fit_it_says_that_it_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(TransportClassifier(), method)(D, *([y] if method == "score" else []))
    if method != "predict_proba":
        with pytest.raises(NotFittedError):
            getattr(TransportRegressor(), method)(D, *([y] if method == "score" else []))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "typicality"])
def test_other_features_than_those_it_was_fitted_to_are_refused(classifier, method):
    with pytest.raises(ValueError, match="points have 9 features, but the metric was made for 10"):
        getattr(classifier, method)(NEW.with_points(NEW.points[:, :9]))
    with pytest.raises(ValueError, match="feature 0 is 'f9', the metric has 'f0'"):
        getattr(classifier, method)(NEW.with_points(NEW.points[:, ::-1], FEATURES[::-1]))
    with pytest.raises(ValueError, match="feature names should match"):
        getattr(classifier, method)(pd.DataFrame(NEW.means(), columns=FEATURES[::-1]))


def test_anything_but_an_ensemble_is_refused():
    with pytest.raises(TypeError, match=r"ensemble is GroundMetricLearner\(\): expected a GroundMetricEnsemble"):
        TransportClassifier(GroundMetricLearner()).fit(D, y)


@pytest.mark.parametrize(
    ("estimator", "labels", "message"),
    [
        (TransportClassifier(SMALL), np.zeros(20, int), "all distributions have one class"),
        (TransportClassifier(SMALL), np.linspace(0.0, 1.1, 20), "classes|classification|continuous"),
        (TransportRegressor(SMALL), np.where(y == 1, np.nan, 1.0), "y holds only the value 1"),
        (TransportRegressor(SMALL), np.where(np.arange(20) == 3, np.nan, np.arange(20.0)), "y contains a missing"),
        (TransportRegressor(SMALL), np.array(["low", "high"])[y], "y holds text"),
        (TransportRegressor(SMALL), y[:-1], r"y has shape \(19,\)"),
    ],
)
def test_labels_that_cannot_be_learned_from_are_refused(estimator, labels, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(D, labels)


# Files


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, lambda points: points.astype(np.float32)])
@pytest.mark.parametrize("max_points", [4, 100])
def test_what_is_loaded_predicts_the_same_bits(tmp_path, make, max_points):
    supervision, new = (Distributions(make(d.points), np.repeat(d.names, d.sizes), features=FEATURES) for d in (D, NEW))
    labels = np.array(["well", "ill"], dtype=object)[y]
    saved = TransportClassifier(clone(SMALL).set_params(max_points=max_points), random_state=0).fit(supervision, labels)
    saved.save(tmp_path / "c.gm")
    loaded = TransportClassifier.load(tmp_path / "c.gm")
    assert_array_equal(loaded.predict_proba(new), saved.predict_proba(new))
    assert_array_equal(loaded.typicality(new), saved.typicality(new))
    assert_array_equal(loaded.predict(new), saved.predict(new))
    assert loaded.classes_.dtype == saved.classes_.dtype
    assert_array_equal(loaded.metric_.importance(), saved.metric_.importance())
    assert not hasattr(loaded, "ensemble_")
    loaded.save(tmp_path / "again.gm")
    assert (tmp_path / "again.gm").stat().st_size == (tmp_path / "c.gm").stat().st_size
    assert clone(loaded).get_params()["ensemble__max_points"] == max_points


def test_numbers_strata_weights_and_other_classes_survive_a_file(tmp_path, regressor):
    regressor.save(tmp_path / "r.gm")
    assert_array_equal(TransportRegressor.load(tmp_path / "r.gm").predict(NEW), regressor.predict(NEW))
    weighted = Distributions(
        D.points, np.repeat(D.names, D.sizes), weights=np.random.default_rng(0).uniform(0.5, 2.0, D.points.shape[0])
    )
    saved = TransportClassifier(SMALL, random_state=0).fit(weighted, y + 3, strata=np.arange(20) // 2 % 2)
    saved.save(tmp_path / "c.gm")
    bare = NEW.with_points(NEW.points)
    loaded = TransportClassifier.load(tmp_path / "c.gm")
    assert_array_equal(loaded.predict_proba(bare), saved.predict_proba(bare))
    assert loaded.classes_.tolist() == [3, 4]
    assert not hasattr(loaded, "feature_names_in_")


def test_a_file_is_small_because_it_has_only_the_features_that_members_use(tmp_path):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20 * 200, 1000)).astype(np.float32)
    points[:2000, :5] += 1.0
    wide = Distributions(points, np.repeat(range(20), 200))
    fitted = TransportClassifier(GroundMetricEnsemble(2, kinds=["univariate"], max_points=20), random_state=0)
    fitted.fit(wide, np.arange(20) < 10).save(tmp_path / "c.gm")
    assert (tmp_path / "c.gm").stat().st_size < 0.2 * points.nbytes


def test_files_that_are_none_or_damaged_are_named(classifier, regressor, tmp_path):
    path = tmp_path / "c.gm"
    classifier.save(path)
    complete = path.read_bytes()
    with pytest.raises(ValueError, match=r"holds a TransportClassifier: read it with TransportClassifier\.load"):
        TransportRegressor.load(path)
    classifier.metric_.save(tmp_path / "metric.gm")
    with pytest.raises(ValueError, match=r"is damaged or not a saved TransportClassifier.*it has another header"):
        TransportClassifier.load(tmp_path / "metric.gm")
    with pytest.raises(ValueError, match=r"metric\.gm"):
        classifier.save(tmp_path / "metric.gm")
    for content in (complete[:-50], complete[:400] + b"x" + complete[401:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="its content does not match its checksum"):
            TransportClassifier.load(path)
    write_arrays(path, FORMAT, 9, {}, {})
    with pytest.raises(ValueError, match="format version 9, this groundmetric reads 5: update"):
        TransportClassifier.load(path)
    with pytest.raises(NotFittedError):
        TransportClassifier().save(path)


def test_classes_that_no_file_can_hold_are_refused(tmp_path):
    fitted = TransportClassifier(SMALL, random_state=0).fit(D, y)
    fitted.classes_ = np.array([(1, 2), None], dtype=object)
    with pytest.raises(TypeError, match="only text and numbers can be saved, make all labels text"):
        fitted.save(tmp_path / "c.gm")
