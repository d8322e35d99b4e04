"""p- and q-values: right where labels say nothing, however features depend on each other; small where they do."""

import numpy as np
import pytest

from groundmetric.interpret.stability import discoveries


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
