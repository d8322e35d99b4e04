"""Weights of triplets: they enter loss and gradient, and equal ones change nothing."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose

from groundmetric import Distributions
from groundmetric._internal.parallel import Threads
from groundmetric.learning.objective import LinearModel, Objective
from groundmetric.learning.triplets import random_triplets

LABELS, FEATURES = np.array([0, 1, 0, 1, 2, 2]), 3
POINTS = np.random.default_rng(0).normal(size=(30, FEATURES))
D = Distributions(POINTS, np.repeat(np.arange(6), 5))
TRIPLETS = random_triplets(LABELS, 1, np.random.RandomState(0))
W = np.random.default_rng(1).normal(size=(2, FEATURES))


def evaluated(weight, components=W, batch=None):
    model = LinearModel(2, np.ones(FEATURES), np.zeros(FEATURES))
    pairs = model.pairs(D, TRIPLETS.first, TRIPLETS.second, threads=Threads(1), memory=1e8)
    objective = Objective(replace(TRIPLETS, weight=weight), pairs, margin=0.5)
    return objective.evaluate(components, np.arange(len(TRIPLETS)) if batch is None else batch)


def test_the_loss_is_the_weighted_mean_of_the_triplets_losses():
    weight = np.random.default_rng(2).uniform(0.1, 2.0, len(TRIPLETS))
    one_by_one = np.array([evaluated(None, batch=np.array([t])).loss for t in range(len(TRIPLETS))])
    assert_allclose(evaluated(weight).loss, np.mean(weight * one_by_one))


def test_equal_weights_change_nothing():
    plain, weighted = evaluated(None), evaluated(np.ones(len(TRIPLETS)))
    assert_allclose(weighted.loss, plain.loss)
    assert_allclose(weighted.gradient, plain.gradient)


def test_the_gradient_is_that_of_finite_differences():
    weight, step = np.random.default_rng(2).uniform(0.1, 2.0, len(TRIPLETS)), 1e-6
    expected = np.empty_like(W)
    for position in np.ndindex(W.shape):
        change = np.zeros_like(W)
        change[position] = step
        expected[position] = (evaluated(weight, W + change).loss - evaluated(weight, W - change).loss) / (2 * step)
    assert_allclose(evaluated(weight).gradient, expected, rtol=1e-5, atol=1e-8)
