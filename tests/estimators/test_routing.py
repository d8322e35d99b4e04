"""Groups and strata reach `fit` through scikit-learn's metadata routing."""

import inspect

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline

import groundmetric as gm

from .cohorts import cohort

D, y = cohort(16, points=5, n_features=5)
PATIENTS = np.arange(16) // 2
BATCHES = np.arange(16) // 4 % 2
SMALL = gm.GroundMetricEnsemble(2, kinds=["anova"], random_state=0)
ESTIMATORS = [
    SMALL, gm.TransportClassifier(SMALL), gm.TransportRegressor(SMALL), gm.TransportSurvival(SMALL),
    gm.MultimodalClassifier(SMALL), gm.MultimodalRegressor(SMALL), gm.TransportKNeighborsClassifier(3, metric=SMALL),
    gm.TransportKNeighborsRegressor(3, metric=SMALL),
]  # fmt: skip


@pytest.fixture(autouse=True)
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_all_estimators_have_one_fit_signature_and_request_groups_and_strata(estimator):
    parameters = inspect.signature(type(estimator).fit).parameters
    assert list(parameters) == ["self", "X", "y", "groups", "strata"]
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ("groups", "strata"))
    requests = sklearn.clone(estimator).set_fit_request(groups=True, strata=True).get_metadata_routing()
    assert requests.fit.requests == {"groups": True, "strata": True}


def test_the_learner_takes_samples_groups_and_strata_by_keyword():
    parameters = inspect.signature(gm.GroundMetricLearner.fit).parameters
    assert list(parameters) == ["self", "X", "y", "samples", "groups", "strata", "fresh"]
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ("samples", "groups", "strata"))
    requests = gm.GroundMetricLearner().set_fit_request(groups=True, strata=True).get_metadata_routing().fit.requests
    assert requests["groups"] is requests["strata"] is True


@pytest.mark.parametrize(
    "estimator", [*ESTIMATORS[1:4], *ESTIMATORS[6:]], ids=lambda estimator: type(estimator).__name__
)
def test_a_learner_before_an_estimator_in_a_pipeline_gets_an_error_with_the_remedy(estimator):
    learner = gm.GroundMetricLearner(max_epochs=1, target="ordered", random_state=0)
    with pytest.raises(ValueError, match="a learner before this step returns points, not Distributions"):
        make_pipeline(learner, estimator).fit(D, np.arange(16.0))


def test_cross_validation_passes_groups_and_strata_of_the_training_samples():
    labels = (np.arange(16) // 2 + np.arange(16) // 8) % 2
    model = gm.TransportClassifier(SMALL).set_fit_request(groups=True, strata=True)
    params = {"groups": PATIENTS, "strata": BATCHES}
    result = cross_validate(
        model, D, labels, cv=GroupKFold(4).set_split_request(groups=True), params=params, return_estimator=True,
        return_indices=True, error_score="raise",
    )  # fmt: skip
    for fitted, train in zip(result["estimator"], result["indices"]["train"], strict=True):
        expected = gm.TransportClassifier(SMALL).fit(
            D[train], labels[train], groups=PATIENTS[train], strata=BATCHES[train]
        )
        np.testing.assert_array_equal(fitted.ensemble_.held_out_, expected.ensemble_.held_out_)


def test_the_class_of_a_predictor_decides_its_target():
    with pytest.raises(ValueError, match="target") as caught:
        gm.TransportClassifier(gm.GroundMetricEnsemble(2, target="ordered")).fit(D, y)
    assert caught.value.parameter == "target"
    ordered = gm.GroundMetricEnsemble(2, kinds=["anova"], target="ordered")
    assert gm.TransportRegressor(ordered).fit(D, np.arange(16.0)).ensemble_.target == "ordered"
