"""TransportSurvival: planted genes and fresh patients, survival curves, names, scikit-learn's tools, files."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score

from groundmetric import GroundMetricEnsemble, TransportKNeighborsRegressor, TransportRegressor, TransportSurvival
from groundmetric.datasets import make_survival
from groundmetric.estimators.predictor import unpack_predictor
from groundmetric.evaluation import concordance_index
from groundmetric.learning import survival_percentiles
from groundmetric.learning.survival import SurvivalTimes, kaplan_meier

SMALL = GroundMetricEnsemble(4, kinds=["univariate", "anova"])


def patients(n, seed, **options):
    options = {"n_planted": 3, "share": 0.4, "donor_effect": 0.5, "censored": 0.4, **options}
    return make_survival(n, 10, 30, random_state=seed, **options)


D, y = patients(40, 1)
NEW = patients(30, 2)[0]


@pytest.fixture(scope="module")
def model():
    return TransportSurvival(SMALL, random_state=0).fit(D, y)


def test_planted_genes_are_found_and_fresh_patients_ranked_better_than_by_euclid():
    scores, planted = [], []
    for seed in range(4):
        cohort, times = patients(100, seed)
        supervision, new = np.arange(50), np.arange(50, 100)
        learned = TransportSurvival(SMALL, random_state=0).fit(cohort[supervision], times[supervision])
        euclid = TransportKNeighborsRegressor(5).fit(cohort[supervision], survival_percentiles(times[supervision]))
        scores.append(
            [learned.score(cohort[new], times[new]), concordance_index(times[new], -euclid.predict(cohort[new]))]
        )
        planted.append(np.isin(np.argsort(-learned.metric_.importance())[:3], range(3)).mean())
    learned, euclid = np.mean(scores, axis=0)
    assert learned > 0.65
    assert learned > euclid + 0.05, scores
    assert np.mean(planted) > 0.8, planted


def test_a_programme_without_hazard_is_not_found():
    """Pooled over folds, held-out risks of no value would be worse than chance."""
    result = []
    for seed in range(8):
        cohort, times = patients(40, seed, hazard_ratio=1.0)
        result.append(TransportSurvival(SMALL, random_state=0).fit(cohort, times).concordance_)
    assert abs(np.mean(result) - 0.5) < 0.08, result


def test_risks_are_shares_of_patients_who_live_longer(model):
    assert model.held_out_risk_.shape == (40,)
    assert abs(model.held_out_risk_.mean() + survival_percentiles(y).mean() - 1.0) < 0.05
    assert 0.6 < model.concordance_ < 1.0
    assert_array_equal(model.predict_all(NEW).values, model.predict(NEW))


def test_the_unit_of_time_does_not_matter(model):
    months = y.copy()
    months["time"] *= 12.0
    second = TransportSurvival(SMALL, random_state=0).fit(D, months)
    assert_array_equal(second.predict(NEW), model.predict(NEW))
    assert_array_equal(second.predict_survival(NEW, [6.0]), model.predict_survival(NEW, [0.5]))


def test_survival_curves_fall_from_one_and_lower_risks_are_above_higher_ones(model):
    grid = np.linspace(0.0, y["time"].max(), 30)
    curves = model.predict_survival(NEW, grid)
    assert curves.shape == (30, 30)
    assert_array_equal(curves[:, 0], 1.0)
    assert np.all(np.diff(curves, axis=1) <= 1e-12)
    assert curves.min() >= 0.0
    order = np.argsort(model.predict(NEW))
    assert curves[order[:10]].mean() > curves[order[-10:]].mean() + 0.1
    assert np.isnan(model.predict_survival(NEW, [y["time"].max() + 1.0])).all()


def test_patients_of_one_risk_have_the_plain_kaplan_meier_curve(model):
    alike = clone(model)
    vars(alike).update(vars(model) | {"held_out_risk_": np.zeros(40)})
    steps, alive = kaplan_meier(SurvivalTimes(y["time"], y["event"]))
    assert_allclose(alike.predict_survival(NEW, steps), np.tile(alive, (30, 1)), atol=1e-12)


def test_times_go_by_name(model):
    table = pd.DataFrame({"time": y["time"], "event": y["event"]}, index=D.names).sample(frac=1.0, random_state=0)
    second = TransportSurvival(SMALL, random_state=0).fit(D, table)
    assert_array_equal(second.held_out_risk_, model.held_out_risk_)
    assert second.score(D, table) == model.score(D, y)


def test_groups_and_strata_are_passed_on():
    site = np.arange(40) % 2
    result = TransportSurvival(SMALL, random_state=0).fit(D, y, groups=np.arange(40) // 2, strata=site)
    assert np.isfinite(result.concordance_)
    folds = result.ensemble_.folds_
    assert_array_equal(folds[::2], folds[1::2])
    assert_array_equal(np.unique(result.ensemble_.fitted_.target.strata), [0, 1])


def test_scikit_learns_cross_validation_slices_and_scores():
    folds = KFold(3, shuffle=True, random_state=0)
    estimator = TransportSurvival(GroundMetricEnsemble(1, kinds=["anova"]), random_state=0)
    scores = cross_val_score(estimator, D, y, cv=folds)
    risk = cross_val_predict(estimator, D, y, cv=folds)
    assert_allclose(scores, [concordance_index(y[test], risk[test]) for _, test in folds.split(np.arange(40))])


def test_before_fit_it_says_that_it_is_not_fitted():
    with pytest.raises(NotFittedError):
        TransportSurvival().predict(NEW)
    with pytest.raises(NotFittedError):
        TransportSurvival().score(D, y)


@pytest.mark.parametrize("times", [[-1.0], [[1.0]], [np.nan], "soon"])
def test_times_of_curves_are_checked(model, times):
    with pytest.raises(ValueError, match="times"):
        model.predict_survival(NEW, times)


def test_what_is_loaded_predicts_the_same_bits(model, tmp_path):
    model.save(tmp_path / "survival.gm")
    repeated = TransportSurvival.load(tmp_path / "survival.gm")
    assert_array_equal(repeated.predict(NEW), model.predict(NEW))
    assert_array_equal(repeated.predict_survival(NEW, [0.5, 1.0]), model.predict_survival(NEW, [0.5, 1.0]))
    assert repeated.concordance_ == model.concordance_
    with pytest.raises(ValueError, match=r"holds a TransportSurvival: read it with TransportSurvival\.load"):
        TransportRegressor.load(tmp_path / "survival.gm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": np.ones(3)}, r"survival times of shape \(3,\) for 40"),
        ({"event": np.ones(40)}, "survival times of shape"),
        ({"time": np.full(40, -1.0)}, "negative, infinite or without an event"),
        ({"held_out_risk": np.full(40, np.nan)}, "negative, infinite or without an event"),
        ({"event": np.zeros(40, bool)}, "negative, infinite or without an event"),
    ],
)
def test_damaged_files_are_named(model, change, message):
    description, arrays = model.pack()
    with pytest.raises(ValueError, match=message):
        unpack_predictor(description, {**arrays, **change}, "it")
