"""Options that are objects: scikit-learn copies, sets and searches them like numbers."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import groundmetric as gm
from groundmetric.learning import Checkpoint, Classes, EarlyStopping, Lasso, Nearest
from groundmetric.transport import Exact

# Options other than the default; every one changes the result.
OPTIONS = {
    "neighbors": {"neighbors": Nearest(refresh=1)},
    "stopping": {"stopping": EarlyStopping(tol=100.0, patience=1)},
    "target": {"target": [Classes(weight=2.0), Classes()]},
    "penalty": {"penalty": Lasso(), "strength": 1.0},
    "solver": {"solver": Exact(max_pivots=1_000_000, memory=0.001)},
}
QUICK = {"max_epochs": 4, "n_neighbors": 2, "batch_size": 20, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(12), 8), np.arange(12) % 2
    return gm.Distributions(random.normal(size=(96, 4)) + 0.7 * np.eye(4)[y][owner], owner), y


def labels_for(options, y):
    return [y, y[::-1]] if isinstance(options.get("target"), list) else y


def learned(data, options):
    D, y = data
    return gm.GroundMetricLearner(**QUICK, **options).fit(D, labels_for(options, y))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_copy_has_equal_options_and_learns_the_same(data, name):
    D, y = data
    original = gm.GroundMetricLearner(**QUICK, **OPTIONS[name])
    copy = clone(original)
    for option, value in OPTIONS[name].items():
        result = copy.get_params()[option]
        assert result == value or (option == "penalty" and type(result) is type(value) and result is not value)
    fitted = learned(data, OPTIONS[name])
    assert_array_equal(copy.fit(D, labels_for(OPTIONS[name], y)).components_, fitted.components_)
    assert original.get_params() == gm.GroundMetricLearner(**QUICK, **OPTIONS[name]).get_params()


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_set_are_those_that_are_given(data, name):
    D, y = data
    later = gm.GroundMetricLearner(**QUICK).set_params(**OPTIONS[name])
    later.fit(D, labels_for(OPTIONS[name], y))
    assert_array_equal(later.components_, learned(data, OPTIONS[name]).components_)
    assert later.n_iter_ == learned(data, OPTIONS[name]).n_iter_


@pytest.mark.parametrize("name", ["neighbors", "stopping", "penalty"])
def test_an_option_has_an_effect(data, name):
    assert not np.array_equal(learned(data, OPTIONS[name]).components_, learned(data, {}).components_)


def test_a_checkpoint_is_copied_and_set(data, tmp_path):
    D, y = data
    option = Checkpoint(tmp_path / "state", every=0.0)
    assert clone(gm.GroundMetricLearner(checkpoint=option)).checkpoint == option
    fitted = gm.GroundMetricLearner(**QUICK).set_params(checkpoint=option).fit(D, y)
    assert_array_equal(fitted.components_, learned(data, {}).components_)
    assert (tmp_path / "state").exists()


GRIDS = {
    "neighbors": {"metric__neighbors": ["random", Nearest(refresh=1), Nearest(refresh=2)]},
    "stopping": {"metric__stopping": [None, EarlyStopping(tol=100.0, patience=1)]},
    "target": {"metric__target": ["classes", Classes(weight=2.0)]},
    "penalty": {"metric__penalty": ["l2", Lasso(), "group"], "metric__strength": [0.1, 1.0]},
    "solver": {"metric__solver": [Exact(memory=0.001), Exact()]},
}


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_search_goes_through_objects(data, name):
    D, y = data
    classifier = gm.TransportKNeighborsClassifier(3, metric=gm.GroundMetricLearner(**QUICK))
    search = GridSearchCV(classifier, GRIDS[name], cv=2, error_score="raise").fit(D, y)
    assert len(search.cv_results_["params"]) == np.prod([len(values) for values in GRIDS[name].values()])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = {option.removeprefix("metric__"): value for option, value in search.best_params_.items()}
    assert_array_equal(search.best_estimator_.metric_.components, learned(data, best).components_)


def test_fits_of_a_grid_search_cannot_share_a_checkpoint(data, tmp_path):
    learner = gm.GroundMetricLearner(**QUICK, checkpoint=Checkpoint(tmp_path / "state"))
    classifier = gm.TransportKNeighborsClassifier(3, metric=learner)
    with pytest.raises(ValueError, match="checkpoint of other data"):
        GridSearchCV(classifier, {"metric__strength": [0.1]}, cv=2, error_score="raise").fit(*data)
