"""Features are selected from the training set alone, for any method."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.estimators.preprocessing import SelectedFeatures
from groundmetric.evaluation import Voting, compare, folds


@pytest.fixture(scope="module")
def cohort():
    """Feature 0 varies in the first six distributions only, feature 1 in the others, feature 2 nowhere much."""
    random = np.random.RandomState(0)
    points = random.normal(size=(12, 20, 3)) * [1.0, 1.0, 0.01]
    points[:6, :, 1] *= 0.01
    points[6:, :, 0] *= 0.01
    return gm.Distributions.from_arrays(list(points)), np.array([0, 1] * 6)


def test_the_choice_sees_the_training_part_alone(cohort):
    D, y = cohort
    for part, expected in ((slice(0, 6), 0), (slice(6, 12), 1)):
        fitted = SelectedFeatures(gm.baselines.Euclidean(), 1).fit(D[part], y[part])
        assert fitted.places_.tolist() == [expected]
        only = gm.Distributions.from_arrays([D[d].points[:, [expected]] for d in range(12)])
        np.testing.assert_allclose(fitted.distances(D), gm.pairwise_distances(only), atol=1e-12)
        np.testing.assert_allclose(
            fitted.point_distances(D.points[:5]), np.abs(np.subtract.outer(*[D.points[:5, expected]] * 2)), atol=1e-9
        )


def test_the_rule_of_the_paper_takes_what_varies_more_than_the_average(cohort):
    D, y = cohort
    assert SelectedFeatures(gm.baselines.Euclidean()).fit(D, y).places_.tolist() == [0, 1]


def test_features_that_all_vary_the_same_are_all_kept():
    D = gm.Distributions(np.array([[0.0, 1.0], [1.0, 0.0]] * 4), [0, 0, 1, 1, 2, 2, 3, 3])
    assert SelectedFeatures(gm.baselines.Euclidean()).fit(D, [0, 0, 1, 1]).places_.tolist() == [0, 1]


def test_sparse_points_give_the_same_choice_and_distances(cohort):
    D, y = cohort
    groups = np.repeat(np.arange(12), D.sizes)
    thin = gm.Distributions(sparse.csr_matrix(D.points), groups)
    for method in (gm.baselines.Euclidean(), gm.baselines.Summary()):
        dense, second = (SelectedFeatures(method, 2).fit(data, y) for data in (D, thin))
        assert dense.places_.tolist() == second.places_.tolist()
        np.testing.assert_allclose(dense.distances(D), second.distances(thin), atol=1e-8)


def test_it_has_what_the_method_has(cohort):
    D, y = cohort
    logistic = SelectedFeatures(gm.baselines.SummaryModel(), 2).fit(D, y)
    assert logistic.predict_proba(D).shape == (12, 2)
    assert logistic.classes_.tolist() == [0, 1]
    assert not hasattr(SelectedFeatures(gm.baselines.Euclidean()), "predict_proba")
    assert SelectedFeatures(gm.TransportClassifier()).takes_groups
    assert not SelectedFeatures(gm.GroundMetricLearner()).takes_groups
    assert SelectedFeatures(gm.baselines.Euclidean()).uses_labels == getattr(
        gm.baselines.Euclidean(), "uses_labels", True
    )


def test_a_comparison_gives_it_groups_and_scores(cohort):
    D, y = cohort
    ensemble = gm.TransportClassifier(gm.GroundMetricEnsemble(2, kinds=["anova"]), random_state=0)
    methods = {
        "ensemble": SelectedFeatures(ensemble, 2),
        "logistic": SelectedFeatures(gm.baselines.SummaryModel(), 2),
    }
    groups = np.repeat(np.arange(6), 2).tolist()
    result = compare(
        methods, D, y, cv=folds(y, groups=groups, n_splits=3, random_state=0), groups=groups, voting=Voting(3)
    )
    assert [result.status(name) for name in methods] == ["ok", "ok"]


def test_an_impossible_rule_is_an_error(cohort):
    with pytest.raises(ParameterError) as caught:
        SelectedFeatures(gm.baselines.Euclidean(), 0).fit(*cohort)
    assert (caught.value.parameter, caught.value.value) == ("rule", 0)


def test_steps_on_points_in_a_pipeline_are_the_steps_beforehand(cohort):
    D, y = cohort
    pipeline = make_pipeline(gm.PointwiseTransformer(StandardScaler()), gm.PointwiseTransformer(PCA(2)),
                             gm.TransportKNeighborsClassifier(3)).fit(D, y)  # fmt: skip
    points = make_pipeline(StandardScaler(), PCA(2)).fit_transform(D.points)
    direct = gm.TransportKNeighborsClassifier(3).fit(D.with_points(points), y)
    np.testing.assert_array_equal(pipeline.predict_proba(D), direct.predict_proba(D.with_points(points)))


def test_a_pipeline_is_fitted_anew_in_every_split_and_searched(cohort):
    D, y = cohort
    pipeline = make_pipeline(gm.PointwiseTransformer(PCA(2)), gm.TransportKNeighborsClassifier(3))
    assert cross_val_score(pipeline, D, y, cv=2, error_score="raise").shape == (2,)
    search = GridSearchCV(
        pipeline, {"pointwisetransformer__transformer__n_components": [1, 2]}, cv=2, error_score="raise"
    )
    assert search.fit(D, y).best_params_["pointwisetransformer__transformer__n_components"] in (1, 2)


def test_names_of_distributions_stay_and_those_of_features_follow(cohort):
    D, _ = cohort
    D = gm.Distributions(D.points, np.repeat([f"S{k}" for k in range(12)], 20), features=["a", "b", "c"],
                         annotations={"kind": np.arange(240)})  # fmt: skip
    scaled = gm.PointwiseTransformer(StandardScaler()).fit_transform(D)
    assert (scaled.names, scaled.features) == (D.names, ["a", "b", "c"])
    np.testing.assert_array_equal(scaled.annotations["kind"], D.annotations["kind"])
    assert gm.PointwiseTransformer(PCA(2)).fit_transform(D).features == ["pca0", "pca1"]
    with pytest.raises(ValueError, match="X has 2 features, but the transformer was fitted to 3"):
        gm.PointwiseTransformer(PCA(2)).fit(D).transform(D.with_points(D.points[:, :2]))
    with pytest.raises(TypeError, match="expected a scikit-learn transformer"):
        gm.PointwiseTransformer(3).fit(D)


def test_a_bare_step_says_how_to_do_it(cohort):
    with pytest.raises(TypeError, match=r"PointwiseTransformer\(StandardScaler\(\)\)"):
        make_pipeline(StandardScaler(), gm.GroundMetricLearner()).fit(*cohort)


@pytest.mark.parametrize(
    "estimator",
    [
        gm.GroundMetricLearner(max_epochs=2, random_state=0),
        gm.TransportKNeighborsClassifier(3),
        gm.TransportKNeighborsRegressor(3),
        gm.TransportClassifier(gm.GroundMetricEnsemble(2, kinds=["anova"]), random_state=0),
        gm.GroundMetricEnsemble(2, kinds=["anova"], random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_take_lists_of_arrays_and_arrays_of_three_dimensions(cohort, estimator):
    D, y = cohort
    cube = D.points.reshape(12, 20, 3)
    direct = clone(estimator).fit(D, y)
    for X in (list(cube), cube):
        fitted = clone(estimator).fit(X, pd.Series(y, index=np.arange(12) + 5))
        for name in ("predict", "transform"):
            if hasattr(estimator, name):
                np.testing.assert_array_equal(getattr(fitted, name)(X), getattr(direct, name)(D))


def test_a_learner_before_a_classifier_says_how_to_do_it(cohort):
    pipeline = make_pipeline(gm.GroundMetricLearner(max_epochs=1), gm.TransportKNeighborsClassifier(3))
    with pytest.raises(ValueError, match=r"metric=GroundMetricLearner\(\)"):
        pipeline.fit(*cohort)
