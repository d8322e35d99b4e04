"""Properties of all baselines: fitted to training data only, for dense, sparse and weighted points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import groundmetric as gm
from groundmetric import baselines
from groundmetric._internal.validation import ParameterError

from .examples import cohort

D, y = cohort()
DISTANCES = {
    "euclidean": baselines.Euclidean(),
    "standardised": baselines.Euclidean(standardise=True),
    "pca": baselines.PointTransport(make_pipeline(StandardScaler(), PCA(2))),
    "lda": baselines.PointTransport(LinearDiscriminantAnalysis()),
    "composition": baselines.Composition(4),
    **{name: baselines.Summary(name) for name in ("mean", "moments", "type_means")},
    "clr": baselines.Summary("composition"),
    "embedding": baselines.Summary("embedding"),
}
PREDICTORS = {
    **{
        f"model of {name}": baselines.SummaryModel(name)
        for name in ("mean", "moments", "type_means", "composition", "embedding")
    },
    "neighbours": baselines.SummaryModel("mean", KNeighborsClassifier(3)),
    "kernel": baselines.TransportKernel(),
}
ALL = {**DISTANCES, **PREDICTORS}
# scikit-learn's PCA and LDA fail for sparse points or constant features.
SPARSE = [name for name in ALL if name not in ("pca", "lda")]


def result(method, cohort_):
    """Distances between distributions, or probabilities of classes."""
    return method.predict_proba(cohort_) if hasattr(method, "predict_proba") else method.distances(cohort_)


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_symmetric_and_zero_on_the_diagonal(name):
    method = clone(DISTANCES[name]).fit(D, y)
    distances = method.distances(D)
    assert distances.shape == (len(D), len(D))
    assert np.all(distances >= 0.0)
    assert_allclose(distances, distances.T, atol=1e-12)
    assert_allclose(np.diag(distances), 0.0, atol=1e-7)
    assert_array_equal(distances, method.distances(D, n_jobs=2))


@pytest.mark.parametrize("name", PREDICTORS)
def test_probabilities_go_with_the_classes(name):
    names = np.array(["well", "ill", "cured"])[y]
    method = clone(PREDICTORS[name]).fit(D, names)
    probabilities = method.predict_proba(D)
    assert method.classes_.tolist() == ["cured", "ill", "well"]
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_array_equal(method.classes_[probabilities.argmax(axis=1)], method.predict(D))


@pytest.mark.parametrize("name", ALL)
def test_new_distributions_do_not_depend_on_each_other(name):
    train, test = [0, 1, 2, 3, 4, 5], [6, 7, 8]
    method = clone(ALL[name]).fit(D[train], y[train])
    if name in PREDICTORS:
        alone = [method.predict_proba(D[[d]])[0] for d in test]
        assert_allclose(method.predict_proba(D[test]), alone, atol=1e-12)
    else:
        alone = [method.distances(D[[d]], D[train])[0] for d in test]
        assert_allclose(method.distances(D[test], D[train]), alone, atol=1e-12)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_points_give_the_same_result(name):
    sparse_D = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(D.names, D.sizes))
    dense, same = clone(ALL[name]).fit(D, y), clone(ALL[name]).fit(sparse_D, y)
    assert_allclose(result(same, sparse_D), result(dense, D), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_bits_and_fit_does_not_change_parameters(name):
    method = clone(ALL[name])
    params = str(method.get_params())
    first, second = result(method.fit(D, y), D), result(clone(method).fit(D, y), D)
    assert_array_equal(first, second)
    assert str(method.get_params()) == params


@pytest.mark.parametrize("name", ALL)
def test_before_fit_it_raises(name):
    with pytest.raises(NotFittedError):
        result(clone(ALL[name]), D)


@pytest.mark.parametrize("name", ALL)
def test_one_point_per_distribution(name):
    single, labels = cohort(12, 1)
    assert np.isfinite(result(clone(ALL[name]).fit(single, labels), single)).all()


@pytest.mark.parametrize("name", ALL)
def test_a_class_of_one_distribution_with_one_point(name):
    rare = gm.Distributions(np.vstack([D.points, [[9.0, 9.0, 9.0, 9.0]]]), [*np.repeat(D.names, D.sizes), "rare"])
    assert np.isfinite(result(clone(ALL[name]).fit(rare, [*y, 3]), rare)).all()


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_constant_features_are_finite_and_a_single_feature_is_enough(name, kind):
    points = np.insert(D.points, [1, 3], 0.1, axis=1)
    constant = gm.Distributions(kind(points), np.repeat(D.names, D.sizes))
    assert np.isfinite(result(clone(ALL[name]).fit(constant, y), constant)).all()
    narrow, labels = cohort(n_features=1)
    assert np.isfinite(result(clone(ALL[name]).fit(narrow, labels), narrow)).all()


@pytest.mark.parametrize("name", [name for name in DISTANCES if name not in ("lda", "pca")])
def test_coinciding_points_have_distance_0(name):
    same = gm.Distributions(np.ones((8, 3)), np.repeat(range(4), 2))
    assert_allclose(clone(DISTANCES[name]).fit(same, [0, 0, 1, 1]).distances(same), 0.0, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_points_without_mass_change_nothing(name):
    masses = np.r_[np.ones(len(D.points)), np.zeros(3)]
    points = np.vstack([D.points, np.full((3, 4), 1e6)])
    more = gm.Distributions(points, [*np.repeat(D.names, D.sizes), 0, 1, 2], weights=masses)
    with_them, without = clone(ALL[name]).fit(more, y), clone(ALL[name]).fit(D, y)
    assert_allclose(result(with_them, more), result(without, D), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_labels_of_the_wrong_length_are_refused(name):
    with pytest.raises(ValueError, match=r"y has shape \(8,\), but a label is needed for each of 9"):
        clone(ALL[name]).fit(D, y[:-1])


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_predictor_needs_two_classes(name):
    with pytest.raises(ValueError, match="two are needed"):
        clone(PREDICTORS[name]).fit(D, np.zeros(len(D), int))


@pytest.mark.parametrize("name", ALL)
def test_other_features_than_those_of_training_are_refused(name):
    named, _ = cohort(features=["a", "b", "c", "d"])
    method = clone(ALL[name]).fit(named, y)
    reordered, _ = cohort(features=["a", "c", "b", "d"])
    for wrong in (gm.Distributions(np.zeros((2, 5)), [0, 1]), reordered):
        with pytest.raises(ValueError, match=r"features|'c'"):
            result(method, wrong)


@pytest.mark.parametrize("name", ["euclidean", "standardised", "pca", "lda"])
def test_a_ground_metric_serves_a_classifier_by_nearest_distributions(name):
    classifier = gm.TransportKNeighborsClassifier(1, metric=clone(DISTANCES[name]))
    assert classifier.fit(D[:6], y[:6]).predict(D[6:]).shape == (3,)


@pytest.mark.parametrize(
    ("method", "parameter"),
    [
        (baselines.Summary("median"), "statistics"),
        (baselines.SummaryModel(target="rank"), "target"),
        (baselines.Composition(annotation="kind"), "annotation"),
    ],
)
def test_impossible_parameters_are_named(method, parameter):
    with pytest.raises(ParameterError) as raised:
        method.fit(D, y)
    assert raised.value.parameter == parameter


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match="n_types"):
        baselines.Composition(0).fit(D, y)


def test_a_transformer_is_fitted_to_a_share_of_many_points(monkeypatch):
    monkeypatch.setattr(baselines, "_MAX_TRANSFORMED_POINTS", 36)
    seen = []

    class Noted(PCA):
        def fit(self, X, y=None):
            seen.append((X, y))
            return super().fit(X, y)

    baselines.PointTransport(Noted(1)).fit(D, y)
    points, labels = seen[0]
    assert points.shape == (36, 4)
    assert np.bincount(labels).tolist() == [12, 12, 12]


def test_the_standard_baselines_have_titles_for_every_target():
    for target in ("classes", "ordered", "survival"):
        methods, titles = baselines.standard(target), baselines.titles(target)
        assert set(methods) <= set(titles)
        assert len(set(titles.values())) == len(titles)
    assert [title for title in titles.values() if "neighbour" in title] == []
    assert baselines.titles()["transport-5-nn"] == "Euclidean OT, 5-NN"
