"""Validity of prediction sets, influence, learning curves and counterfactual changes.

`validity.py` runs the functions in `ROWS`. Patients are Gaussian as in `validity_interpret`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from validity_interpret import Row, cohort, error_rate, mean_limits, share_limits

import groundmetric as gm

SMALL = {"n_members": 4, "kinds": ("univariate", "anova")}
DESIGN = {"n_features": 40, "cells": 12, "n_effect": 6}


def ensemble(seed: int) -> gm.GroundMetricEnsemble:
    return gm.GroundMetricEnsemble(**SMALL, random_state=seed)


def prediction_sets(seed: int, n_cohorts: int = 24) -> list[Row]:
    """Measure how often sets miss the class of new patients, by class."""
    rows = []
    for sizes, effect in (((10, 10), 0.6), ((12, 24), 0.6), ((15, 15), 1.5)):
        misses: list[list[float]] = [[], []]
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 1, r, *sizes])
            y, new = np.repeat([0, 1], sizes), np.tile([0, 1], 20)
            D = cohort(rng, np.r_[y, new], effect=effect, **DESIGN).D
            model = gm.TransportClassifier(ensemble(r)).fit(D[: y.size], y)
            contains = model.predict_set(D[y.size :], coverage=0.9).contains
            for c in (0, 1):
                misses[c].append(1.0 - contains[new == c, c].mean())
        for c in (0, 1):
            design = f"{sizes[0]} v {sizes[1]} patients, effect {effect}, class {c}"
            rows.append(
                error_rate("predict_set", "true class is not in the 90 % set", design, mean_limits(misses[c]), 0.1)
            )
    return rows


def prediction_intervals(seed: int, n_cohorts: int = 24) -> list[Row]:
    """Measure how often intervals miss the number of new patients."""
    misses = []
    for r in range(n_cohorts):
        rng = np.random.default_rng([seed, 2, r])
        y = rng.normal(size=60)
        D = cohort(rng, y, effect=0.6, **DESIGN).D
        model = gm.TransportRegressor(ensemble(r)).fit(D[:20], y[:20])
        result = model.predict_interval(D[20:], coverage=0.9)
        misses.append(1.0 - np.mean((result.low <= y[20:]) & (y[20:] <= result.high)))
    limits = mean_limits(misses)
    return [error_rate("predict_interval", "true number is outside the 90 % interval", "20 patients", limits, 0.1)]


def learning_curves(seed: int, n_cohorts: int = 50) -> list[Row]:
    """Measure how often the bands at twice the pilot miss the accuracy and power of cohorts of this size."""
    rows = []
    for effect in (0.0, 0.5, 1.0):
        y, new = np.repeat([0, 1], 20), np.tile([0, 1], 30)
        accuracies, rejected = [], []
        for r in range(16):
            D = cohort(np.random.default_rng([seed, 3, r]), np.r_[y, new], effect=effect, **DESIGN).D
            accuracies.append(np.mean(gm.TransportClassifier(ensemble(r)).fit(D[:40], y).predict(D[40:]) == new))
        for r in range(100):
            D = cohort(np.random.default_rng([seed, 4, r]), y, effect=effect, **DESIGN).D
            test = gm.evaluation.permutation_test(
                ensemble(0), D, y, statistic="association", n_permutations=199, random_state=r
            )
            rejected.append(test.p <= 0.05)
        pilot = np.repeat([0, 1], 10)
        missed: dict[str, list[bool]] = {"accuracy": [], "power": []}
        for r in range(n_cohorts):
            D = cohort(np.random.default_rng([seed, 5, r]), pilot, effect=effect, **DESIGN).D
            curve = gm.evaluation.learning_curve(ensemble(r), D, pilot, n_subsamples=1)
            # The truth has a simulation error of its own: two standard errors are allowed.
            for name, truth, error in (("accuracy", accuracies, 0.02), ("power", rejected, 0.05)):
                _, low, high = getattr(curve, name)(40)
                missed[name].append(not low - error <= np.mean(truth) <= high + error)
        for name, events in missed.items():
            design = f"pilot of 10 v 10, effect {effect}, twice as many patients"
            rows.append(
                error_rate("learning_curve", f"{name} is outside the 95 % band", design, share_limits(events), 0.1)
            )
    return rows


def counterfactual_changes(seed: int, n_cohorts: int = 40) -> list[Row]:
    """Measure how often a change is significant without effect, and how often intervals miss the planted change."""
    significant, missed = [], []
    for r in range(n_cohorts):
        for effect in (0.0, 1.0):
            y = np.tile([0, 1], 10)
            D = cohort(np.random.default_rng([seed, 6, r]), y, effect=effect, patient_sd=0.3, **DESIGN).D
            fitted = ensemble(r).fit(D, y)
            result = gm.interpret.counterfactual(fitted, D, y, D.names[int(np.argmin(y))])
            if effect == 0.0:
                significant.append(bool(np.nanmin(result.p) <= 0.05))
            else:
                planted = [k for k, name in enumerate(result.features) if int(name.split()[-1]) < 6]
                missed.append(1.0 - np.mean((result.low[0, planted] <= 1.0) & (result.high[0, planted] >= 1.0)))
    area = "counterfactual"
    return [
        error_rate(area, "any change has p ≤ 0.05, no effect", "10 v 10 patients", share_limits(significant), 0.05),
        error_rate(area, "change is outside the 95 % interval", "10 v 10, effect 1", mean_limits(missed), 0.05),
    ]


def influences(seed: int, n_cohorts: int = 20) -> list[Row]:
    """Measure how often a mislabelled patient is not first in the table of influences."""
    events = []
    for r in range(n_cohorts):
        y = np.repeat([0, 1], 8)
        sample = cohort(np.random.default_rng([seed, 7, r]), y, effect=3.0, n_features=30, cells=15, n_effect=4)
        wrong = sample.y.copy()
        wrong[2] = 1
        table = gm.interpret.influence(ensemble(r), sample.D, wrong).table()
        events.append(table["patient"].iloc[0] != sample.D.names[2])
    return [
        error_rate("influence", "mislabelled patient is not first", "8 v 8, strong effect", share_limits(events), 0.1)
    ]


ROWS: list[Callable[..., list[Row]]] = [
    prediction_sets, prediction_intervals, learning_curves, counterfactual_changes, influences,
]  # fmt: skip
