"""Validity of `evaluation` and of nearest-neighbour votes: coverage, p-values of differences, numbers of points, names.

`validity.py` runs the functions in `ROWS`.

Patients are Gaussian: means with standard deviation 1 per feature; the class shifts the first 5 features. The truth is
the mean score on new patients, over training sets of the size of the training parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from validity_interpret import Row, error_rate, invariance, mean_limits, share_limits

import groundmetric as gm
from groundmetric import evaluation
from groundmetric.baselines import Euclidean, SummaryModel
from groundmetric.estimators import GroundMetricMethod
from groundmetric.evaluation.scores import SCORES, r2_difference, r2_estimate

N_COHORTS, N_TRUTH, N_FEATURES, N_SHIFTED = 150, 100, 20, 5
# Coverage that the intervals promise at least, at a nominal 95 %.
LEAST_COVERAGE = 0.92
LOGISTIC = SummaryModel(
    "mean", make_pipeline(StandardScaler(), LogisticRegression(C=1.0 / N_FEATURES, max_iter=10_000))
)


def cohort(
    random: np.random.Generator, y: np.ndarray, effect: float, per_patient: int = 1, n_features: int = N_FEATURES
) -> tuple[gm.Distributions, np.ndarray, np.ndarray]:
    """Return samples of one point, labels and patients; samples of a patient have a standard deviation of 0.5."""
    x = random.normal(size=(y.size, n_features))
    x[:, :N_SHIFTED] += effect * y[:, None]
    x = np.repeat(x, per_patient, axis=0)
    x += 0.5 * (per_patient > 1) * random.normal(size=x.shape)
    names = np.arange(len(x))
    return gm.Distributions(x, names), np.repeat(y, per_patient), np.repeat(np.arange(y.size), per_patient)


def labels_of(n: int, share: float, n_classes: int = 2) -> np.ndarray:
    """Return labels of two classes, the second with a share, or of several classes of equal size."""
    if n_classes > 2:
        return np.sort(np.arange(n) % n_classes)
    return np.repeat([0, 1], [n - round(share * n), round(share * n)])


def splits_of(cv: str, labels: np.ndarray, patients: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    if cv == "leave one out":
        return evaluation.leave_one_group_out(patients)
    if cv == "shuffled":
        return evaluation.shuffled(labels, groups=patients, random_state=seed)
    repeats = 4 if cv == "5 folds, 4 times" else 1
    return evaluation.folds(labels, groups=patients, n_splits=5, n_repeats=repeats, random_state=seed)


def truth(
    methods: dict[str, object], y: np.ndarray, effect: float, per_patient: int, cv: str, seed: int
) -> dict[str, dict[str, float]]:
    """Return mean scores on new patients, by method and score."""
    random, values = np.random.default_rng([seed, 1]), {name: [] for name in methods}
    for _ in range(N_TRUTH):
        D, labels, patients = cohort(random, y, effect, per_patient)
        train = splits_of(cv, labels, patients, int(random.integers(2**31)))[0][0]
        new, new_labels, _ = cohort(random, np.tile(y, 100 // y.size), effect, per_patient)
        points = np.vstack([D.points[train], new.points])
        cohorts = gm.Distributions(points, np.arange(len(points)))
        split = [(np.arange(train.size), np.arange(train.size, len(points)))]
        comparison = evaluation.compare(methods, cohorts, np.r_[labels[train], new_labels], cv=split, points=False)
        for name in methods:
            values[name].append([comparison.scores(score)[name][0] for score in SCORES])
    return {name: dict(zip(SCORES, np.mean(rows, axis=0), strict=True)) for name, rows in values.items()}


def coverage_row(number: str, design: str, covered: Sequence[bool]) -> Row:
    """Return a row of a coverage: it holds unless the upper limit is below the coverage that is promised."""
    limits = share_limits(covered)
    return Row("evaluation.compare", number, design, *limits, 0.95, limits[2] >= LEAST_COVERAGE)


def coverage(seed: int, n_cohorts: int = N_COHORTS) -> list[Row]:
    """Coverage of the score on new patients by intervals of scores, for several designs."""
    designs = [
        (n, share, effect, 1, cv, 2)
        for n in (20, 40)
        for share, effect, cv in (
            (0.5, 0.0, "5 folds"), (0.5, 0.6, "5 folds"), (0.5, 1.2, "5 folds"), (0.5, 3.0, "5 folds"),
            (0.25, 0.0, "5 folds"), (0.25, 1.2, "5 folds"), (0.5, 1.2, "leave one out"), (0.5, 0.0, "leave one out"),
            (0.5, 1.2, "5 folds, 4 times"), (0.5, 1.2, "shuffled"),
        )
    ]  # fmt: skip
    designs += [(n, 0.5, 1.2, 3, "5 folds", 2) for n in (20, 40)] + [(30, 0.5, 1.2, 1, "5 folds", 3)]
    methods = {"5-NN": Euclidean(), "logistic regression": LOGISTIC}
    rows = []
    for k, (n, share, effect, per_patient, cv, n_classes) in enumerate(designs):
        y = labels_of(n, share, n_classes)
        expected = truth(methods, y, effect, per_patient, cv, seed)
        covered = {(name, score): [] for name in methods for score in SCORES}
        for r in range(n_cohorts):
            D, labels, patients = cohort(np.random.default_rng([seed, 2, k, r]), y, effect, per_patient)
            cut = splits_of(cv, labels, patients, r)
            comparison = evaluation.compare(methods, D, labels, cv=cut, groups=patients, points=False)
            for name, score in covered:
                estimate = comparison.estimate(name, score)
                covered[name, score].append(estimate.low <= expected[name][score] <= estimate.high)
        text = f"{n} patients"
        text += "" if per_patient == 1 else f" x {per_patient} samples"
        text += f", {n_classes} classes" if n_classes > 2 else f", {share:.0%} in class 2" if share != 0.5 else ""
        rows += [
            coverage_row(f"interval of {score}, {name}", f"{text}, effect {effect:g}, {cv}", hits)
            for (name, score), hits in covered.items()
        ]
    return rows


def numbers(seed: int, n_cohorts: int = N_COHORTS) -> list[Row]:
    """Coverage of intervals of R² and of differences of R², for ridge regressions on all and on 17 features."""

    def fit(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from new rows to the predictions of both regressions."""
        models = [Ridge(20.0).fit(part, y) for part in (x, x[:, 3:])]
        return lambda new: np.array([models[0].predict(new), models[1].predict(new[:, 3:])])

    rows = []
    for n, effect in [(20, 0.0), (20, 1.0), (40, 0.0), (40, 1.0)]:
        random = np.random.default_rng([seed, n])

        def draw(size: int, random: np.random.Generator = random, effect: float = effect) -> tuple[np.ndarray, ...]:
            x = random.normal(size=(size, N_FEATURES))
            return x, effect * x[:, :N_SHIFTED].sum(axis=1) / np.sqrt(N_SHIFTED) + random.normal(size=size)

        errors = []
        for _ in range(10 * N_TRUTH):
            (x, y), (new, values) = draw(4 * n // 5), draw(400)
            errors.append(np.mean((fit(x, y)(new) - values) ** 2, axis=1) / (1.0 + effect**2))
        first, second = 1.0 - np.mean(errors, axis=0)
        inside = np.zeros((n_cohorts, 2))
        for k in range(n_cohorts):
            (x, y), folds = draw(n), random.permutation(n) % 5
            predictions = np.empty((2, n))
            for fold in range(5):
                predictions[:, folds == fold] = fit(x[folds != fold], y[folds != fold])(x[folds == fold])
            estimate = r2_estimate(y, predictions[0], np.arange(n))
            lead = r2_difference(y, *predictions, np.arange(n))
            inside[k] = estimate.low <= first <= estimate.high, lead.low <= first - second <= lead.high
        design = f"{n} patients, effect {effect:g}, 5 folds"
        rows.append(coverage_row("interval of R²", design, list(inside[:, 0] > 0)))
        rows.append(coverage_row("interval of a difference of R²", design, list(inside[:, 1] > 0)))
    return rows


def differences(seed: int, n_cohorts: int = N_COHORTS) -> list[Row]:
    """Coverage of intervals of differences between methods, and p-values of methods that are equally good."""
    rows, methods = [], {"5-NN": Euclidean(), "logistic regression": LOGISTIC}
    for k, (n, effect) in enumerate([(20, 0.6), (40, 0.6), (40, 1.2)]):
        y = labels_of(n, 0.5)
        expected = truth(methods, y, effect, 1, "5 folds", seed)
        covered: dict[str, list[bool]] = {score: [] for score in SCORES}
        for r in range(n_cohorts):
            D, labels, patients = cohort(np.random.default_rng([seed, 3, k, r]), y, effect)
            comparison = evaluation.compare(
                methods, D, labels, cv=splits_of("5 folds", labels, patients, r), points=False
            )
            for score in SCORES:
                difference = comparison.difference("5-NN", "logistic regression", score)
                value = expected["5-NN"][score] - expected["logistic regression"][score]
                covered[score].append(difference.low <= value <= difference.high)
        rows += [
            coverage_row(f"interval of a difference, {score}", f"{n} patients, effect {effect:g}, 5 folds", hits)
            for score, hits in covered.items()
        ]
        rows += _equal_methods(seed, n, effect, k, n_cohorts)
    return rows


class Columns(GroundMetricMethod, BaseEstimator):
    """Euclidean distance on a range of columns: two of them see independent features of equal effect."""

    def __init__(self, first: int = 0, last: int = N_FEATURES) -> None:
        self.first, self.last = first, last

    def fit(self, D: gm.Distributions, y: object = None) -> Columns:
        self.metric_ = gm.GroundMetric(np.eye(D.shape[1])[self.first : self.last])
        return self


def _equal_methods(seed: int, n: int, effect: float, k: int, n_cohorts: int) -> list[Row]:
    y = labels_of(n, 0.5)
    methods = {"one": Columns(0, N_FEATURES), "other": Columns(N_FEATURES, 2 * N_FEATURES)}
    small: dict[str, list[bool]] = {score: [] for score in SCORES}
    for r in range(n_cohorts):
        random = np.random.default_rng([seed, 4, k, r])
        x = np.hstack([cohort(random, y, effect)[0].points for _ in range(2)])
        D = gm.Distributions(x, np.arange(n))
        comparison = evaluation.compare(methods, D, y, cv=splits_of("5 folds", y, np.arange(n), r), points=False)
        for score in SCORES:
            small[score].append(comparison.difference("one", "other", score).p <= 0.05)
    return [
        error_rate("evaluation.compare", f"p of a difference <= 0.05, {score}", f"equal methods, {n} patients, effect "
                   f"{effect:g}", share_limits(events), 0.05)
        for score, events in small.items()
    ]  # fmt: skip


def numbers_of_points(seed: int, n_cohorts: int = 30) -> list[Row]:
    """Held-out balanced accuracy where classes differ in the number of points per distribution only."""
    y = np.repeat([0, 1], 8)
    sizes = np.where(y == 0, 30, 90)
    methods = {"Euclidean": Euclidean(), "GroundMetricLearner": gm.GroundMetricLearner(max_epochs=10, random_state=0)}
    values: dict[str, list[float]] = {name: [] for name in (*methods, "classifier")}
    for r in range(n_cohorts):
        random = np.random.default_rng([seed, 5, r])
        x = np.repeat(0.2 * random.normal(size=(16, 40)), sizes, axis=0) + random.normal(size=(sizes.sum(), 40))
        D = gm.Distributions(x, np.repeat([f"s{i}" for i in range(16)], sizes))
        cut = evaluation.folds(y, n_splits=4, random_state=r)
        comparison = evaluation.compare(methods, D, y, cv=cut, points=False)
        for name in methods:
            values[name].append(comparison.estimate(name).value)
        right = [gm.TransportKNeighborsClassifier().fit(D[a], y[a]).score(D[b], y[b]) for a, b in cut]
        values["classifier"].append(float(np.mean(right)))
    rows = []
    for name, comparison in values.items():
        limits = mean_limits(comparison)
        area = "TransportKNeighborsClassifier" if name == "classifier" else f"compare, {name}"
        rows.append(Row(area, "held-out accuracy", "30 v 90 points, no effect", *limits, 0.5, limits[1] <= 0.5))
    return rows


def names(seed: int) -> list[Row]:
    """Change of votes by the order of labels and columns."""
    random = np.random.default_rng([seed, 6])
    keys = [f"s{i}" for i in range(12)]
    x = random.normal(size=(12, 2))
    d = pd.DataFrame(np.linalg.norm(x[:, None] - x, axis=-1), keys, keys)
    y = pd.Series(random.choice(["a", "b"], 12), keys)
    order = random.permutation(12)
    votes = [evaluation.vote(table, labels, ["a", "b"], n_neighbors=3)
             for table in (d, d.iloc[:, order]) for labels in (y, y.iloc[order], y.iloc[order].to_dict())]  # fmt: skip
    change = max(float(np.abs(vote - votes[0]).max()) for vote in votes)
    return [invariance("evaluation.vote", "change of votes", "labels and columns in another order", change)]


ROWS: list[Callable[..., list[Row]]] = [coverage, differences, numbers, numbers_of_points, names]
