"""Models on summaries: known answers, tuning inside the training set, numbers and survival times."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import QuantileTransformer, StandardScaler

import groundmetric as gm
from groundmetric.baselines import (
    STRENGTHS,
    PointTransport,
    SummaryModel,
    TransportKernel,
    _Regression,
    cox_coefficients,
    standard,
)
from groundmetric.ensemble import Classes
from groundmetric.estimators.preprocessing import SelectedFeatures
from groundmetric.metrics.forms import MappedMetric

from .examples import cohort


@pytest.fixture(scope="module")
def demo():
    """The simulated cohort of `groundmetric demo`."""
    cells = gm.datasets.make_cohort(random_state=0)
    samples = cells.obs["sample"].astype(str)
    D = gm.Distributions(cells.X, samples.to_numpy(), features=list(cells.var_names))
    return D, cells.obs["condition"].astype(str).groupby(samples).first().loc[D.names].to_numpy()


def test_logistic_regression_on_pseudobulk_solves_the_demo_cohort(demo):
    D, y = demo
    method = SelectedFeatures(SummaryModel(), "variance")
    splits = gm.evaluation.folds(y, n_splits=5, random_state=0)
    result = gm.evaluation.compare({"pseudobulk": method}, D, y, cv=splits, points=False)
    assert result.estimate("pseudobulk").value == 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_features", [4, 40])
def test_the_default_model_is_balanced_logistic_regression(n_classes, n_features):
    D, y = cohort(18, n_features=n_features, n_classes=n_classes)
    y[:3] = 0
    z = StandardScaler().fit_transform(D.means()) / np.sqrt(n_features)
    ours = _Regression(D.means(), Classes(y, n_classes), None, np.array([2.0])).predict(D.means())
    # Of two classes, scikit-learn penalises the difference of the coefficients, which is twice each of them.
    strength = 4.0 if n_classes == 2 else 2.0
    theirs = (
        LogisticRegression(C=strength, class_weight="balanced", tol=1e-8, max_iter=10_000).fit(z, y).predict_proba(z)
    )
    assert_allclose(ours, theirs, atol=1e-3)


def test_columns_are_selected_and_penalties_follow_the_signal():
    random = np.random.default_rng(0)
    y, x = np.arange(60) % 2, random.normal(size=(60, 500))
    x[:, :5] += 3.0 * y[:, None]
    folds = np.arange(60) // 2 % 5
    signal = _Regression.tuned(x, Classes(y, 2), folds)
    assert signal.columns.size == 20
    assert set(range(5)) <= set(signal.columns)
    noise = _Regression.tuned(x[:, 5:], Classes(y, 2), folds).predict(x[:, 5:])
    assert np.abs(noise - 0.5).max() < np.abs(signal.predict(x) - 0.5).min()


def test_labels_that_say_nothing_are_not_predicted():
    """Selection by all labels of the training set would make the held-out accuracy better than chance."""
    random, right = np.random.default_rng(0), []
    for _ in range(20):
        D = gm.Distributions(random.normal(size=(40, 300)), range(40))
        y = np.arange(40) % 2
        right.append(np.mean(SummaryModel().fit(D[:30], y[:30]).predict(D[30:]) == y[30:]))
    assert 0.4 < np.mean(right) < 0.6  # standard error 0.035


def test_groups_are_undivided_in_the_inner_folds(monkeypatch):
    seen = []
    original = _Regression.tuned.__func__
    monkeypatch.setattr(
        _Regression, "tuned", classmethod(lambda cls, x, t, folds: seen.append(folds) or original(cls, x, t, folds))
    )
    D, y = cohort(18, n_classes=2)
    groups = np.arange(18) // 2
    SummaryModel().fit(D, y[groups], groups=groups)
    assert all(np.unique(seen[0][groups == g]).size == 1 for g in range(9))
    assert np.unique(seen[0]).size > 2


def test_numbers_are_predicted():
    random = np.random.default_rng(0)
    y = random.normal(size=50)
    D = gm.Distributions(
        (y[:, None, None] * [1.0, 0.0] + random.normal(size=(50, 20, 2))).reshape(-1, 2), np.repeat(range(50), 20)
    )
    methods = standard("ordered")
    assert not any(hasattr(method, "predict_proba") for method in methods.values())
    for name in ("pseudobulk", "moments", "embedding", "transport-kernel"):
        error = methods[name].fit(D[:40], 1000.0 * y[:40]).predict(D[40:]) / 1000.0 - y[40:]
        assert np.mean(error**2) < 0.3 * np.var(y[40:]), name


def survival(n=80, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 3))
    death, end = random.exponential(np.exp(-x[:, 0])), random.exponential(2.0, n)
    y = np.array(list(zip(death <= end, np.minimum(death, end), strict=True)), dtype=[("event", bool), ("time", float)])
    return x, y


def test_cox_regression_maximises_the_penalised_partial_likelihood():
    x, y = survival()
    y["time"] = np.ceil(y["time"] * 5)  # ties

    def loss(b):
        at_risk = [np.exp(x[y["time"] >= t] @ b).sum() for t in y["time"][y["event"]]]
        return 1.0 * b @ b - np.sum(x[y["event"]] @ b - np.log(at_risk))

    assert_allclose(cox_coefficients(x, y, 2.0), minimize(loss, np.zeros(3), tol=1e-10).x, atol=1e-4)


def test_cox_regression_recovers_log_hazard_ratios():
    x, y = survival(2000)
    assert_allclose(cox_coefficients(x, y, 1e-6), [1.0, 0.0, 0.0], atol=0.12)


def test_survival_times_are_predicted_from_means():
    x, y = survival(120)
    D = gm.Distributions(
        np.repeat(x, 5, axis=0) + np.tile([-0.2, -0.1, 0.0, 0.1, 0.2], 120)[:, None], np.repeat(range(120), 5)
    )
    for method in (standard("survival")["pseudobulk"], TransportKernel(target="survival")):
        risk = method.fit(D[:80], y[:80]).predict(D[80:])
        assert gm.evaluation.concordance_index(y[80:], risk) > 0.65


def test_a_transformer_may_be_linear_or_not():
    D, _ = cohort()
    linear = PointTransport(PCA(2)).fit(D)
    assert linear.metric_.components.shape == (2, 4)
    axes = PCA(2).fit(D.points).components_
    assert_allclose(linear.distances(D), gm.pairwise_distances(D, metric=gm.GroundMetric(axes)), atol=1e-9)
    curved = PointTransport(QuantileTransformer(n_quantiles=10)).fit(D)
    assert isinstance(curved.metric_, MappedMetric)
    mapped = D.with_points(QuantileTransformer(n_quantiles=10).fit_transform(D.points))
    assert_allclose(curved.distances(D), gm.pairwise_distances(mapped), atol=1e-9)


def test_penalties_cover_four_orders_of_magnitude():
    assert STRENGTHS.max() / STRENGTHS.min() >= 1e4


def test_a_kernel_model_of_a_large_cohort_uses_landmarks():
    numbers = np.random.default_rng(0).uniform(size=300)
    arrays = [np.random.default_rng(k).normal(size=(4, 2)) + 6 * number for k, number in enumerate(numbers)]
    D = gm.Distributions.from_arrays(arrays)
    model = TransportKernel(target="ordered").fit(D[:270], numbers[:270])
    assert np.corrcoef(model.predict(D[270:]), numbers[270:])[0, 1] > 0.9
