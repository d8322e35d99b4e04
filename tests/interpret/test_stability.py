"""Stability: known answers, seeds and groups; discoveries: p- and q-values from few permutations."""

import itertools

import joblib
import numpy as np
import pytest
from sklearn.base import clone

import groundmetric as gm
from groundmetric.interpret import stability
from groundmetric.interpret._refits import Reference, bootstrap_indices, canonical, thinned
from groundmetric.interpret.stability import discoveries
from groundmetric.learning.splits import restricted_permutations

OPTIONS = {"n_top": 4, "random_state": 0}


@pytest.fixture(scope="module")
def found(case):
    return stability(case.learner, case.D, case.y, n_refits=12, n_permutations=39, **OPTIONS)


def test_features_of_the_programme_are_found_again_and_sure(case, found):
    programme = np.isin(found.features, list(case.programme))
    assert np.all(found.selected[programme] > 0.8)
    called = {name for name, q in zip(found.features, found.discoveries.q, strict=True) if q < 0.05}
    assert case.programme <= called
    assert called - case.programme <= {"g118"}  # it marks the kind of points that the programme is in
    low, high = found.interval
    assert np.all((low <= found.importance) & (found.importance <= high))
    assert np.median(low[programme]) > np.quantile(high[~programme], 0.95)  # twelve refits: single ones are wide
    assert found.agreement == 1.0
    assert found.table()["q"][0] == found.smallest_p == pytest.approx(1 / 40)
    assert "with q < 0.05; 12 refits, 39 permutations of distributions, smallest q about 0.025" in repr(found)


def test_axes_agree_between_refits_and_not_with_exchanged_labels(found):
    assert found.angles[:, 0].max() < found.null_angles[:, 0].min()


def test_exchanged_labels_give_nothing(case):
    labels = np.random.RandomState(0).permutation(case.y)
    result = stability(clone(case.learner), case.D, labels, n_refits=0, n_permutations=39, epochs=3, **OPTIONS)
    assert (result.discoveries.q >= 0.05).all()
    assert result.discoveries.overall > 0.05


def test_of_many_arrangements_of_labels_few_give_a_small_q(found):
    """Fits to exchanged labels, each in turn taken for that of the data: one in twenty may have a feature called."""
    called = [
        bool((discoveries(found.null[k], np.delete(found.null, k, axis=0)).q < 0.05).any())
        for k in range(len(found.null))
    ]
    assert sum(called) <= 0.05 * len(called)


def test_same_seed_same_result_for_any_number_of_workers(case):
    few = {"n_refits": 2, "n_permutations": 5, "epochs": 2, "max_points": 15, **OPTIONS}
    with pytest.warns(UserWarning, match=r"smallest q-value .* about 0\.17"):
        one = stability(case.learner, case.D, case.y, **few)
    with (
        pytest.warns(UserWarning, match=r"smallest q-value .* about 0\.17"),
        joblib.parallel_config("threading"),
    ):
        two = stability(case.learner, case.D, case.y, n_jobs=2, **few)
    np.testing.assert_array_equal(one.refits, two.refits)
    np.testing.assert_array_equal(one.null, two.null)
    assert one.epochs == 2


def test_refits_vary_as_much_as_full_training_does(case):
    """Short training from a start of its own: a start at the first W would show a half or a third of the spread."""
    patient = clone(case.learner).set_params(max_epochs=50, random_state=0).fit(case.D, case.y)
    short = stability(patient, case.D, case.y, n_refits=10, n_permutations=0, **OPTIONS)
    full = stability(patient, case.D, case.y, n_refits=10, n_permutations=0, epochs=50, **OPTIONS)
    assert (short.epochs, full.epochs) == (10, 50)
    ratio = np.sqrt(short.refits).std(axis=0) / np.sqrt(full.refits).std(axis=0)
    assert 0.75 < np.median(ratio) < 1.5


def test_learners_that_were_not_fitted_and_that_are_not_ours(case):
    few = {"n_refits": 2, "n_permutations": 0, **OPTIONS}
    fresh = stability(clone(case.learner), case.D, case.y, **few)
    np.testing.assert_array_equal(fresh.importance, case.learner.metric_.importance())
    other = stability(gm.baselines.LinearDiscriminant(), case.D, case.y, **few)
    assert other.epochs is None
    assert other.discoveries is None
    assert "q" not in other.table()


def test_random_starts_are_trained_in_full_and_an_order_by_chance_is_noticed(case):
    learner = gm.GroundMetricLearner(init="random", max_epochs=12, random_state=0)
    with pytest.warns(UserWarning, match="a fit of 12 epochs .* finds only 25% of the 4 features"):
        result = stability(learner, case.D, case.y, n_refits=0, n_permutations=0, n_top=4)
    assert result.epochs == 12


@pytest.mark.parametrize("grouped", [False, True])
def test_bootstrap_keeps_class_sizes_and_two_of_each(grouped):
    codes = np.array([0, 0, 0, 0, 1, 1, 2])
    groups = ["a", "a", "b", "b", "c", "d", "e"] if grouped else None
    draws = bootstrap_indices(codes, groups, 200, np.random.RandomState(0))
    assert len(draws) == 200
    for places in draws:
        assert np.bincount(codes[places]).tolist() == [4, 2, 1]
        assert set(places[codes[places] == 1]) == {4, 5}  # of two, both are needed
        assert len(set(places[codes[places] == 0])) >= 2
        if grouped:
            assert np.sum(places == 0) == np.sum(places == 1)
    assert len({tuple(places) for places in draws}) > 1


def test_groups_that_leave_nothing_to_draw():
    with pytest.raises(ValueError, match="cannot be drawn anew"):
        bootstrap_indices(np.array([0, 0, 1, 1]), ["a"] * 4, 3, np.random.RandomState(0))


@pytest.mark.parametrize(
    ("codes", "groups"),
    [
        ([0, 0, 1, 1], None),
        ([0, 0, 1, 1, 1], None),
        ([0, 0, 1, 1, 2, 2], None),
        ([0, 1, 0, 1, 0, 1], ["a", "a", "b", "b", "c", "c"]),
        ([0, 0, 1, 1, 1, 1], ["a", "a", "b", "b", "c", "c"]),
    ],
)
def test_partitions_are_counted_as_by_trying_all(codes, groups):
    exchange = restricted_permutations(np.array(codes), groups)
    random = np.random.RandomState(0)
    seen = {tuple(canonical(exchange.draw(random))) for _ in range(2000)}
    assert exchange.partitions == len(seen)


def test_paired_labels_are_exchanged_within_pairs(case):
    groups = np.tile(np.arange(6), 2)
    with pytest.warns(UserWarning, match="that have 32 different arrangements"):
        result = stability(
            case.learner, case.D, case.y, groups=groups, n_refits=0, n_permutations=10, epochs=1, **OPTIONS
        )
    assert result.exchanged == "distributions within groups"
    assert result.partitions == 2**6 // 2


def test_thinned_distributions_have_so_many_of_their_own_points():
    D = gm.Distributions.from_arrays([np.full((30, 2), d) + np.eye(30, 2) for d in range(3)], ["a", "b", "c"])
    few = thinned(D[[2, 0]], 10, np.random.RandomState(0))
    assert few.names == ["c", "a"]
    assert few.sizes.tolist() == [10, 10]
    assert few.uniform.all()
    assert set(np.floor(few.points[:10].min(axis=1))) == {2.0}
    assert thinned(D, 50, np.random.RandomState(0)) is D


def test_angles_are_canonical_correlations_and_vanish_under_rotation(case):
    metric = case.learner.metric_
    reference = Reference.of(metric, case.D, 1.0)
    turned = gm.GroundMetric(metric.components[::-1], metric.features)
    # Half the digits: an arc cosine near 1.
    np.testing.assert_allclose(reference.angles(turned), 0.0, atol=1e-4)
    random = np.random.RandomState(0)
    a, b = random.normal(size=(2, 400, 1))
    D = gm.Distributions(np.hstack([a, b]), np.repeat([0, 1], 200))
    one = Reference.of(gm.GroundMetric([[1.0, 0.0]]), D, 0.9)
    angle = one.angles(gm.GroundMetric([[1.0, 1.0]]))[0]
    np.testing.assert_allclose(np.cos(np.radians(angle)), abs(np.corrcoef(a.T, (a + b).T)[0, 1]))


def test_numbers_that_cannot_be(case):
    for options, message in (
        ({"n_refits": -1}, "n_refits is -1"),
        ({"n_permutations": 1.5}, r"n_permutations is 1\.5"),
        ({"confidence": 95}, "confidence is 95"),
        ({"max_points": 1}, "max_points is 1"),
        ({"epochs": 0}, "epochs is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            stability(case.learner, case.D, case.y, **options)


def test_canonical_names_are_all_that_is_forgotten():
    for labels in itertools.product(range(3), repeat=4):
        codes = np.array(labels)
        again = canonical(codes)
        assert np.array_equal(codes[:, None] == codes, again[:, None] == again)
        assert np.all(np.diff(np.unique(again, return_index=True)[1]) > 0)


def importances(random, n_rows, n_features):
    """Shares as a fit would give them: of very different size, heavy-tailed, dependent within a row."""
    typical = random.lognormal(0.0, 1.0, n_features)
    together = random.normal(size=(n_rows, 5)) @ random.normal(size=(5, n_features))
    raw = typical * (random.normal(size=(n_rows, n_features)) + 0.5 * together) ** 2
    return raw / raw.sum(axis=1, keepdims=True)


def test_where_labels_say_nothing_a_small_q_is_as_rare_as_promised():
    random, n_runs = np.random.RandomState(0), 400
    called, overall, family = 0, [], 0
    for _ in range(n_runs):
        table = importances(random, 40, 60)
        found = discoveries(table[0], table[1:])
        called += bool((found.q < 0.05).any())
        family += bool((found.family_p <= 0.05).any())
        overall.append(found.overall)
    # Each is 20 or fewer in expectation, and above 34 with a probability below 0.002.
    assert called <= 34
    assert family <= 34
    assert 0.4 < np.mean(overall) < 0.65  # uniform, up to ties


def test_features_that_the_labels_raise_are_found_and_few_others():
    random = np.random.RandomState(1)
    true, false = 0, 0
    for _ in range(20):
        table = importances(random, 100, 200)
        table[0, :10] = 30 * table[1:, :10].mean(axis=0)
        table[0] /= table[0].sum()
        q = discoveries(table[0], table[1:]).q
        true += int(np.sum(q[:10] < 0.05))
        false += int(np.sum(q[10:] < 0.05))
    assert true > 150
    assert false < 0.1 * (true + false)


def test_nothing_is_below_what_so_many_permutations_allow():
    null = np.random.RandomState(0).uniform(size=(9, 4))
    found = discoveries([100.0, 0.0, 0.5, 0.5], null)
    assert found.smallest == pytest.approx(0.1)
    assert found.p[0] == found.q[0] == found.family_p[0] == found.overall == pytest.approx(0.1)
    assert found.p[1] == 1.0
    for values in (found.p, found.q, found.family_p):
        assert np.all((values >= 0.1 - 1e-12) & (values <= 1.0))


def test_by_hand():
    """Three arrangements; only feature 0 stands out, twice its mean, as it does in no other."""
    found = discoveries([4.0, 1.0], [[1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(found.p, [1 / 3, 1.0])
    np.testing.assert_allclose(found.family_p, [1 / 3, 1.0])
    # As high as feature 0: 1 in three rows, 1 here. As high as feature 1: 2 + 1 + 1 in three rows, 2 here.
    np.testing.assert_allclose(found.q, [1 / 3, 4 / 3 / 2])


def test_order_of_features_does_not_matter_and_features_without_weight_are_nothing():
    random = np.random.RandomState(0)
    table = importances(random, 20, 30)
    table[:, 3] = 0.0
    order = random.permutation(30)
    one, other = discoveries(table[0], table[1:]), discoveries(table[0, order], table[1:, order])
    np.testing.assert_allclose(one.q[order], other.q)
    assert one.p[3] == 1.0
