"""Equal numbers of points: neither a vote nor a learned metric uses the number of points of a distribution."""

import warnings

import numpy as np
import pytest

from groundmetric import Distributions, GroundMetricLearner, TransportKNeighborsClassifier, TransportKNeighborsRegressor
from groundmetric._internal.validation import ParameterError
from groundmetric.baselines import Euclidean, Summary
from groundmetric.distributions import SmallSampleWarning
from groundmetric.evaluation import Voting, compare, folds


def cohort(seed, y, sizes, n_features=10, patient_sd=0.2, effect=0.0, tag="s"):
    random = np.random.default_rng(seed)
    means = patient_sd * random.normal(size=(len(y), n_features))
    means[:, 0] += effect * np.asarray(y)
    points = np.repeat(means, sizes, axis=0) + random.normal(size=(np.sum(sizes), n_features))
    return Distributions(points, np.repeat([f"{tag}{i}" for i in range(len(y))], sizes))


Y = np.repeat([0, 1], 8)
UNEQUAL = np.where(Y == 0, 30, 90)


def accuracy_without_effect(method, n_points, n_cohorts=10):
    values = []
    for seed in range(n_cohorts):
        D = cohort(seed, Y, UNEQUAL)
        cv = folds(Y, n_splits=4, random_state=seed)
        values.append(
            compare({"m": method}, D, Y, cv=cv, points=False, voting=Voting(n_points=n_points)).estimate("m").value
        )
    return np.array(values)


@pytest.mark.parametrize(
    "method",
    [Euclidean(), Summary(), GroundMetricLearner(max_epochs=3, random_state=0)],
    ids=["Euclidean", "pseudobulk", "learner"],
)
def test_numbers_of_points_are_not_classified(method):
    values = accuracy_without_effect(method, "equal")
    assert values.mean() <= 0.5 + 3.0 * max(values.std(), 0.1) / np.sqrt(values.size)


def test_with_all_points_the_larger_distributions_are_nearest_to_all():
    shares = []
    for n_points in (None, "equal"):
        result = [
            compare(
                {"m": Euclidean()}, cohort(seed, Y, UNEQUAL), Y, cv=4, points=False, voting=Voting(n_points=n_points)
            )
            for seed in range(5)
        ]
        shares.append(np.mean([every.predictions("m")["predicted"] for every in result]))
    assert shares[0] > 0.9
    assert 0.3 < shares[1] < 0.7


def test_the_classifier_compares_new_distributions_by_the_same_number_of_points():
    values = []
    for seed in range(8):
        D = cohort(seed, Y, UNEQUAL)
        new = cohort([1, seed], np.tile(Y, 3), np.tile(UNEQUAL, 3), tag="new")
        fitted = TransportKNeighborsClassifier(5).fit(D, Y)
        assert fitted.n_points_ == 30
        values.append(fitted.score(new, np.tile(Y, 3)))
    # Predictions of one training set are correlated: the standard deviation between training sets is the error.
    assert np.mean(values) <= 0.5 + 3.0 * max(np.std(values), 0.05) / np.sqrt(8)


def test_equal_sizes_are_used_as_they_are():
    D = cohort(0, Y, np.full(16, 20), effect=1.0)
    for single, another in (
        (TransportKNeighborsClassifier().fit(D, Y), TransportKNeighborsClassifier(n_points=None).fit(D, Y)),
        (TransportKNeighborsClassifier().fit(D, Y), TransportKNeighborsClassifier(n_points=20).fit(D, Y)),
    ):
        np.testing.assert_array_equal(single.kneighbors(D)[0], another.kneighbors(D)[0])
    for seed in (0, np.random.RandomState(0)):
        first, second = (
            GroundMetricLearner(max_epochs=2, n_points=n, random_state=np.random.RandomState(0) if seed else 0).fit(
                D, Y
            )
            for n in ("equal", None)
        )
        np.testing.assert_array_equal(first.components_, second.components_)


def test_draws_depend_on_names_and_not_on_the_order_or_the_company():
    D, new = cohort(0, Y, UNEQUAL), cohort(1, Y, UNEQUAL, tag="new")
    order = np.random.default_rng(0).permutation(16)
    fitted, shuffled = (TransportKNeighborsClassifier().fit(D[part], Y[part]) for part in (np.arange(16), order))
    joint = fitted.predict_proba(new)
    np.testing.assert_allclose(shuffled.predict_proba(new), joint, atol=1e-12)
    alone = np.vstack([fitted.predict_proba(new[[d]]) for d in range(16)])
    np.testing.assert_allclose(alone, joint, atol=1e-12)


def test_small_samples_are_named_with_the_remedy():
    sizes = np.full(16, 60)
    sizes[3] = 4  # more than a tenth of small samples would lower the number of points of all
    D = cohort(0, Y, sizes)
    with pytest.warns(SmallSampleWarning, match=r"D\[D.sizes >= 10\]") as caught:
        TransportKNeighborsClassifier().fit(D, Y)
    assert (caught[0].message.names, caught[0].message.n) == (["s3"], 10)
    with pytest.warns(SmallSampleWarning):
        GroundMetricLearner(max_epochs=1, random_state=0).fit(D, Y)
    with pytest.warns(SmallSampleWarning):
        result = compare({"e": Euclidean()}, D, Y, cv=4, points=False)
    assert any("s3" in note for note in result.notes)
    stored = D.sizes >= 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = TransportKNeighborsClassifier().fit(D[stored], Y[stored])
    with pytest.warns(SmallSampleWarning):
        fitted.predict(D[[3]])


def test_the_regressor_and_numbers_of_points():
    D = cohort(0, Y, UNEQUAL)
    fitted = TransportKNeighborsRegressor(n_points=12).fit(D, np.arange(16.0))
    assert fitted.n_points_ == 12
    assert fitted.predict(D).shape == (16,)


@pytest.mark.parametrize("n_points", ["all", 0, 2.5, True])
def test_other_numbers_are_refused(n_points):
    D = cohort(0, Y, UNEQUAL)
    for method in (TransportKNeighborsClassifier(n_points=n_points), GroundMetricLearner(n_points=n_points)):
        with pytest.raises(ParameterError) as caught:
            method.fit(D, Y)
        assert caught.value.parameter == "n_points"
    with pytest.raises(ParameterError) as caught:
        compare({"e": Euclidean()}, D, Y, cv=2, voting=Voting(n_points=n_points))
    assert caught.value.parameter == "n_points"


def test_fresh_points_are_drawn_in_equal_numbers(tmp_path):
    D = cohort(0, Y, UNEQUAL)
    sizes = []

    def fresh(epochs):
        return cohort([2, epochs], Y, UNEQUAL)

    class Spy(GroundMetricLearner):
        def _run(self, training, fresh):
            take = training._take
            training._take = lambda *provided: (take(*provided), sizes.append(training.D.sizes))[0]
            return super()._run(training, fresh)

    path = tmp_path / "state"
    complete = Spy(max_epochs=3, random_state=0).fit(D, Y, fresh=fresh)
    assert all((size == 30).all() for size in sizes)
    assert sizes
    repeated = GroundMetricLearner(max_epochs=3, random_state=0, checkpoint=path).fit(D, Y, fresh=fresh)
    np.testing.assert_array_equal(repeated.components_, complete.components_)
