"""Votes of nearest neighbours, scores of predictions, and confidence intervals of scores and of their differences.

The intervals cover the expected score on new patients from the same population, of the method trained on cohorts of
the size of the training parts. Two sources of error add up:

- The test patients are a sample. The recall of each class has Wilson's interval for the effective number of patients
  (Kish; a patient with several samples counts once). The intervals of the classes are combined by the square-and-add
  rule (Newcombe 1998; MOVER, Zou & Donner 2008), which keeps their asymmetry near 0 and 1.
- The training set is a sample too. All predictions depend on it, which makes those of different patients
  correlated. The correlation cannot be estimated from one cohort without nested cross-validation (Bates, Hastie &
  Tibshirani 2021), which multiplies the number of fits. Variances are multiplied by a constant instead, `INFLATION`.

Differences between two methods use the same parts, with the correlation between the results of the two methods across
patients. The p-value is the level at which the interval begins to exclude 0. Scores of points that are not counts of
predictions (the ROC AUC) have the corrected resampled t interval in shuffled splits instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats
from scipy.optimize import brentq
from sklearn.utils import check_random_state

from .._internal.types import ClassesLike, LabelsLike, RandomState
from .._internal.validation import NameIndex, align_by_name, check_number, real_array, refuse_mask
from ..distances import GroundMetricMethod, kneighbors
from ..distributions import Distributions
from ..estimators.neighbors import check_weights, class_shares
from ..learning.splits import Split
from ..learning.survival import check_comparable, concordance, read_survival
from ..metrics.base import EuclideanMetric
from ..transport.cohort import is_projection

SCORES = ("accuracy", "balanced_accuracy", "macro_f1", "roc_auc", "log_probability")
# Lower limit of probabilities in the log-probability: one confident error must not decide the mean.
LEAST_PROBABILITY = 1e-3
# Entries of a block of distances between points: 64 MB, and as much again to find the nearest.
_BLOCK = 1 << 23
# Variance of a cross-validated score relative to that of as many independent predictions, where a fifth or more of the
# patients are tested at a time, and where only one is: then all models share nearly all training patients. Chosen for
# a simulated coverage of about 0.92 or more in most designs (20 and 40 patients; k-nearest neighbours, ridge
# regression, feature selection). Simulated ratios vary by design: medians by score 1.2 to 1.9, maxima 3.2 for 5 folds
# and 3.7 where one patient is left out. The constants are a compromise, not upper bounds.
INFLATION, INFLATION_LEAVE_ONE_OUT = 2.0, 3.3
# The same factor for R², chosen from 2, 3 and 4 by simulation: two ridge regressions with a fixed penalty, 5 folds, 20
# or 40 patients. With 4, coverage was 0.97 to 0.99 for R² and 0.89 to 0.99 for differences. Regressions with a tuned
# penalty covered less with 2 (0.74 to 0.90 for differences) and were not simulated with 4.
R2_INFLATION = 4.0
# Weight, in patients, of the largest possible variance between patients in the estimated variance: an estimate
# from few patients who happen to agree is too small.
_PRIOR_PATIENTS = 1.0
# Pairs that are added without correlation, as in the interval of Agresti & Min (2005).
_PRIOR_PAIRS = 2.0
# Number of wrong (or right) patients up to which Wilson's interval is modified.
_FEW_CASES = 2.0


def concordance_index(y: LabelsLike, risk: ArrayLike) -> float:
    """Return Harrell's C: the share of comparable pairs in which the patient who died first has the higher risk.

    Two patients are comparable if one died, and the other was alive at that time or later. A pair of equal risks counts
    as one half. Patients who died at the same time are not compared.

    Parameters
    ----------
    y : structured array or table of shape (n,)
        Fields (columns) "event", whether it was observed, and "time", as made by scikit-survival's `Surv`; matched by
        name if `y` and `risk` carry names.
    risk : array-like of shape (n,)
        Predicted risks; the higher, the earlier the event.

    Returns
    -------
    float
        1 if all pairs have the correct order, 0.5 by chance.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.evaluation import concordance_index
    >>> y = np.array([(True, 3.0), (False, 4.0), (True, 5.0), (False, 9.0)], dtype=[("event", bool), ("time", float)])
    >>> concordance_index(y, [0.9, 0.8, 0.1, 0.2])  # 3 of 4 pairs: who died at 5 should be at higher risk than the last
    0.75
    """
    name_index = NameIndex.of(risk, items="items")
    risks = np.asarray(real_array(risk, "risk"), dtype=np.float64)
    if risks.shape != (name_index.size,) or not np.isfinite(risks).all():
        raise ValueError(f"risk has shape {risks.shape}: expected a finite number for each of {name_index.size}")
    times = read_survival(y, name_index)
    check_comparable(times)
    return concordance(times, risks)


def score_codes(codes: np.ndarray, probabilities: np.ndarray, weights: Any = None) -> dict[str, float]:
    """Return all scores of predictions for the true classes `codes`, with a weight of each item (None: 1)."""
    weights = np.ones(codes.size) if weights is None else np.asarray(weights, dtype=np.float64)
    n_classes = probabilities.shape[1]
    areas = []  # of each class against the rest
    for c in range(n_classes):
        order = np.argsort(probabilities[:, c], kind="stable")
        value, member = probabilities[order, c], codes[order] == c
        positive, negative = weights[order] * member, weights[order] * ~member
        lower = np.concatenate([np.zeros(1), np.cumsum(negative)])
        low, high = np.searchsorted(value, value, side="left"), np.searchsorted(value, value, side="right")
        below = 0.5 * (lower[low] + lower[high])  # a tie is half a success
        areas.append(_ratio((positive * below).sum(), positive.sum() * negative.sum()))
    true = np.maximum(probabilities[np.arange(codes.size), codes], LEAST_PROBABILITY)
    return {
        **score_confusion(confusion_of(codes, np.eye(n_classes)[probabilities.argmax(axis=1)], weights)),
        "roc_auc": _defined_mean(np.array(areas)),
        "log_probability": float(_ratio(weights @ np.log(true), weights.sum())),
    }


def confusion_of(codes: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the confusion matrix (rows: true classes) from the predictions of each class by item."""
    return (np.eye(counts.shape[1])[codes] * weights[:, None]).T @ counts


def score_confusion(confusion: np.ndarray) -> dict[str, float]:
    """Return accuracy, balanced accuracy and macro F1 of a confusion matrix."""
    correct, actual, predicted = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    return {
        "accuracy": float(_ratio(correct.sum(), actual.sum())),
        "balanced_accuracy": _defined_mean(_ratio(correct, actual)),
        "macro_f1": _defined_mean(_ratio(2.0 * correct, actual + predicted)),
    }


def encode(y: Any, classes: Any) -> np.ndarray:
    """Return labels as indices into `classes`."""
    index = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    refuse_mask(y, "y")
    labels = np.asarray(y).tolist()
    unknown = [label for label in labels if label not in index]
    if unknown:
        raise ValueError(f"label {unknown[0]!r} is not one of the classes {list(index)}")
    return np.array([index[label] for label in labels], dtype=np.intp)


def auc_influence(codes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the contribution of each item to the deviation of the AUC from its mean (DeLong et al. 1988)."""
    influence, n_areas = np.zeros(codes.size), 0
    for c in range(probabilities.shape[1]):
        member = codes == c
        positive, negative = np.sort(probabilities[member, c]), np.sort(probabilities[~member, c])
        n, m = positive.size, negative.size
        if not n or not m:
            continue
        value = probabilities[:, c]
        lower = 0.5 * (np.searchsorted(negative, value, "left") + np.searchsorted(negative, value, "right"))
        higher = n - 0.5 * (np.searchsorted(positive, value, "left") + np.searchsorted(positive, value, "right"))
        placement = np.where(member, lower / m, higher / n)
        influence += (placement - placement[member].mean()) / np.where(member, n, m)
        n_areas += 1
    return influence / max(n_areas, 1)


def _ratio(part: Any, total: Any) -> np.ndarray:
    """Return part / total, NaN if the total is 0."""
    return np.where(total > 0, part / np.where(total > 0, total, 1.0), np.nan)


def _defined_mean(values: np.ndarray) -> float:
    """Return the mean of the defined values, NaN without any."""
    return float(np.nansum(values) / np.isfinite(values).sum()) if np.isfinite(values).any() else np.nan


def vote(
    distances: ArrayLike, y: LabelsLike, classes: ClassesLike, *, n_neighbors: int = 5, weights: str = "distance"
) -> np.ndarray:
    """Return the probability of each class from distances to labelled items.

    At most `n_neighbors` nearest items vote, with weights of one over the distance or equal weights. With weights by
    distance, neighbours that coincide with the item are the only voters. Of equally distant items, the first are used.

    Parameters
    ----------
    distances : array-like of shape (n_items, n_labelled)
        Distance of each item to each labelled one.
    y : array-like of shape (n_labelled,)
        Labels of the labelled items; a Series or dict is matched by name to the columns of `distances`.
    classes : array-like of shape (n_classes,)
        The label of each column of the result.
    n_neighbors : int, default=5
        Number of voters.
    weights : {"distance", "uniform"}, default="distance"
        Weight of a vote: one over the distance, or 1.

    Returns
    -------
    array of shape (n_items, n_classes)
        Probabilities; rows sum to 1.

    Examples
    --------
    >>> from groundmetric.evaluation import vote
    >>> shares = vote([[1.0, 2.0, 4.0, 9.0]], ["a", "b", "b", "a"], ["a", "b"], n_neighbors=3, weights="uniform")
    >>> shares.round(3).tolist()
    [[0.333, 0.667]]
    """
    check_weights(weights)
    check_number("n_neighbors", n_neighbors, low=1, whole=True)
    transposed = distances.T if hasattr(distances, "T") else np.asarray(distances).T
    name_index = NameIndex.of(transposed, items="columns of distances")
    codes = encode(align_by_name(y, name_index, "y"), classes)
    nearest, indices = k_nearest(check_distances(distances, codes.size), min(n_neighbors, codes.size))
    return class_shares(nearest, codes[indices], len(classes), weights)


def nearest_distributions(
    method: Any, train: Distributions, test: Distributions, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices of the k training distributions nearest to each test distribution."""
    k = min(k, len(train))
    # Bounds of exact Wasserstein distances exclude most pairs without a solve; the neighbours are the same.
    if getattr(type(method), "distances", None) is GroundMetricMethod.distances:
        return kneighbors(test, train, k, method.metric_)
    return k_nearest(check_distances(method.distances(test, train), len(train)), k)


def vote_points(
    method: Any,
    train: Any,
    codes: np.ndarray,
    test: Any,
    n_classes: int,
    k: int,
    weights: str,
    *,
    among: np.ndarray | None = None,
) -> np.ndarray:
    """Return votes of the nearest training points under a fitted method, for blocks of test points to bound memory.

    `train` and `test` are points (dense or sparse), `codes` the classes of the training points, `among` as for
    `class_shares`.
    """
    k = min(k, codes.size)
    between = method.point_distances
    metric: Any = getattr(method, "metric_", None)
    plain = getattr(type(method), "point_distances", None) is GroundMetricMethod.point_distances
    # Points are projected once; the Euclidean metric takes sparse points without a projection.
    if plain and is_projection(metric) and not isinstance(metric, EuclideanMetric):
        between, train, test = metric.projected_distances, metric.project(train), metric.project(test)
    shares = np.empty((test.shape[0], n_classes))
    step = max(1, _BLOCK // codes.size)
    for low in range(0, test.shape[0], step):
        block = check_distances(between(test[low : low + step], train), codes.size)
        nearest, indices = k_nearest(block, k)
        shares[low : low + step] = class_shares(nearest, codes[indices], n_classes, weights, among=among)
    return shares


def k_nearest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k smallest entries of each row and their indices, smallest first; equal entries by index."""
    if k < distances.shape[1]:  # four times as fast as a stable sort of complete rows
        indices = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
        last = np.take_along_axis(distances, indices, axis=1).max(axis=1, keepdims=True)
        # Of several equal entries `argpartition` takes any: sort these rows completely.
        ties = np.flatnonzero((distances <= last).sum(axis=1) > k)
        indices[ties] = np.sort(np.argsort(distances[ties], axis=1, kind="stable")[:, :k], axis=1)
    else:
        indices = np.broadcast_to(np.arange(k), distances.shape)
    nearest = np.take_along_axis(distances, indices, axis=1)
    order = np.argsort(nearest, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(indices, order, axis=1)


def check_distances(distances: Any, n_labelled: int) -> np.ndarray:
    """Return validated distances: one column per labelled item, finite, negative only by rounding errors."""
    block = np.asarray(distances, dtype=np.float64)
    if block.ndim != 2 or block.shape[1] != n_labelled:
        raise ValueError(f"distances have shape {block.shape}: expected a column for each of {n_labelled}")
    if not np.isfinite(block).all():
        raise ValueError(f"distances contain {block[~np.isfinite(block)][0]}: only finite ones can be compared")
    if block.size and block.min() < -1e-9 * np.abs(block).max():
        raise ValueError(f"distances contain {block.min():g}: they cannot be negative")
    return np.maximum(block, 0.0)


@dataclass(frozen=True)
class Estimate:
    """Score with its confidence interval; NaN if not available.

    Parameters
    ----------
    value : float
        The score.
    sd : float
        Standard deviation over splits.
    low, high : float
        Ends of the confidence interval.
    how : str
        Method of the interval: "Wilson" (see `intervals`), "corrected t", "delta method", or "" without an interval.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.evaluation.Estimate(0.8, 0.1, 0.6, 0.9, "Wilson").low
    0.6
    """

    value: float
    sd: float
    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Difference:
    """Difference of two methods' scores, with its confidence interval and p-value; NaN if not available.

    Parameters
    ----------
    value : float
        Score of the first method less that of the second.
    low, high, p : float
        Ends of the confidence interval, and two-sided p-value of the hypothesis that both methods score the same.
    how : str
        Method of the interval, as in `Estimate`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.evaluation.Difference(0.1, -0.1, 0.3, 0.2, "Wilson").p
    0.2
    """

    value: float
    low: float
    high: float
    p: float
    how: str


@dataclass(frozen=True)
class Predictions:
    """Held-out predictions of one method for a cohort, in one or more rounds, and the labels to score them with."""

    codes: np.ndarray  # (n,) class of each distribution
    units: np.ndarray  # (n,) independent unit of each distribution (its patient), numbered from 0
    counts: np.ndarray  # (n_rounds, n, n_classes) predictions of each class: 1, or numbers of points; 0: not predicted
    probabilities: np.ndarray | None  # (n_rounds, n, n_classes); None at the level of points
    test_share: float = 0.2  # mean share of the units in the test set of a split

    @classmethod
    def of(
        cls, codes: np.ndarray, units: np.ndarray, splits: list[Split], rounds: np.ndarray, tables: list[Any],
        *, n_classes: int, points: bool = False,
    ) -> Predictions:  # fmt: skip
        """Collect a table of each split (probabilities, or numbers of `points` by class); empty tables are left out."""
        counts = np.zeros((int(rounds.max()) + 1, codes.size, n_classes))
        probabilities = np.zeros(counts.shape)
        for (_, test), at, table in zip(splits, rounds, tables, strict=True):
            if len(table) and points:
                counts[at, test] = table
            elif len(table):
                probabilities[at, test] = table
                counts[at, test, np.argmax(table, axis=1)] = 1.0
        share = float(np.mean([np.unique(units[test]).size for _, test in splits])) / (units.max() + 1)
        return cls(codes, units, counts, None if points else probabilities, share)

    def pooled(self, score: str) -> float:
        """Return the score of the pooled held-out predictions of a round, averaged over rounds."""
        # The pooled AUC compares probabilities of different fits, because an AUC of single splits is undefined for
        # small test sets. It is biased downwards if leaving a distribution out removes a vote for its class.
        if self.probabilities is None:
            scores = [score_confusion(confusion_of(self.codes, c, np.ones(self.codes.size))) for c in self.counts]
        else:
            tables = zip(self.probabilities, self.counts, strict=True)
            scores = [score_codes(self.codes, table, counts.any(axis=1)) for table, counts in tables]
        return float(np.mean([values[score] for values in scores]))

    @property
    def inflation(self) -> float:
        """Factor of all variances for the randomness of the training set, interpolated by the share tested."""
        weight = min(self.test_share / 0.2, 1.0)
        return weight * INFLATION + (1.0 - weight) * INFLATION_LEAVE_ONE_OUT

    @property
    def tested(self) -> np.ndarray:
        """Whether each distribution has a prediction."""
        return self.counts.sum(axis=(0, 2)) > 0

    @property
    def several_units(self) -> bool:
        """Whether more than one unit was tested, which an interval needs."""
        return np.unique(self.units[self.tested]).size > 1

    @property
    def degrees_of_freedom(self) -> int:
        """Number of tested units minus the number of their classes, at least 1."""
        units, codes = self.units[self.tested], self.codes[self.tested]
        return max(int(np.unique(units).size - np.unique(codes).size), 1)

    @property
    def quantile(self) -> float:
        """Quantile of the t distribution for a level of 95 %."""
        return float(special.stdtrit(self.degrees_of_freedom, 0.975))

    @property
    def confusion(self) -> np.ndarray:
        """Confusion matrix of all rounds (rows: true classes)."""
        return confusion_of(self.codes, self.counts.sum(axis=0), np.ones(self.codes.size))


class Component(NamedTuple):
    """An independent part of a score."""

    # Distance from the score to the lower (0) or upper (1) end of its interval if only this part varied, for a quantile
    # of the t distribution.
    reach: Callable[[int, float], float]
    influence: np.ndarray  # contribution of each unit to the score


def interval(predictions: Predictions, score: str, value: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of a score whose estimate is `value`, which the interval contains."""
    parts = _components(predictions, score, value)
    lower, upper = (np.sqrt(sum(part.reach(end, predictions.quantile) ** 2 for part in parts)) for end in (0, 1))
    # The mean of the macro F1 of rounds is biased, because each has few predictions: the pooled one is the centre.
    centre = score_confusion(predictions.confusion)[score] if score == "macro_f1" else value
    lowest, highest = _bounds(score)
    return min(max(centre - float(lower), lowest), value), max(min(centre + float(upper), highest), value)


def difference(a: Predictions, b: Predictions, score: str, values: tuple[float, float]) -> tuple[float, float, float]:
    """Return the ends of the confidence interval of the first score minus the second, and the p-value of no difference.

    Both methods have predicted the same distributions; `values` are the estimates of the two scores.
    """
    first, second = (_components(part, score, value) for part, value in zip((a, b), values, strict=True))
    pairs = []
    for x, y in zip(first, second, strict=True):
        # The correlation of the methods' influences across units, shrunk as by two uncorrelated pairs.
        spread = np.sqrt(np.sum(x.influence**2) * np.sum(y.influence**2))
        n = np.count_nonzero((x.influence != 0.0) | (y.influence != 0.0))
        pairs.append((x, y, float(np.sum(x.influence * y.influence) / (spread or 1.0) * n / (n + _PRIOR_PAIRS))))
    value = values[0] - values[1]

    def reach(quantile: float, end: int) -> float:
        """Distance from the difference to the lower (0) or upper (1) end of its interval."""
        squares = 0.0
        for x, y, correlation in pairs:
            u, v = x.reach(end, quantile), y.reach(1 - end, quantile)
            squares += u * u - 2.0 * correlation * u * v + v * v
        return float(np.sqrt(max(squares, 0.0)))

    extent, towards = _bounds(score)[1] - _bounds(score)[0], int(value < 0.0)
    low, high = max(value - reach(a.quantile, 0), -extent), min(value + reach(a.quantile, 1), extent)
    # The p-value belongs to the quantile at which the interval reaches 0.
    p, largest = 1.0, 1e3  # the largest quantile reaches the ends of the possible range for any score
    if abs(value) > reach(0.0, towards):
        crossing = largest
        if reach(largest, towards) >= abs(value):
            crossing = float(brentq(lambda quantile: reach(quantile, towards) - abs(value), 0.0, largest))
        p = float(2.0 * special.stdtr(a.degrees_of_freedom, -crossing))
    # No test of n patients has a smaller p-value than the sign test in which all of them agree; n is the effective
    # number where classes have equal weights.
    tested = a.tested.astype(np.float64)
    weights = tested / np.maximum(np.bincount(a.codes, tested), 1.0)[a.codes]
    return low, high, max(p, min(1.0, 2.0 ** (1.0 - _kish(np.bincount(a.units, weights)))))


def _bounds(score: str) -> tuple[float, float]:
    """Return the lowest and the highest possible score."""
    return (float(np.log(LEAST_PROBABILITY)), 0.0) if score == "log_probability" else (0.0, 1.0)


def _components(predictions: Predictions, score: str, value: float) -> list[Component]:
    """Return the parts of a score: the area, the log-probability, or the recall of each class."""
    # As the recall of a class changes, its errors keep their shares among the other classes.
    if score == "roc_auc":
        return [_area(predictions, value)]
    codes, counts, confusion = predictions.codes, predictions.counts.sum(axis=0), predictions.confusion
    if score == "log_probability":  # a mean of numbers between log(LEAST_PROBABILITY) and 0
        assert predictions.probabilities is not None
        true = np.maximum(predictions.probabilities[:, np.arange(codes.size), codes], LEAST_PROBABILITY)
        lowest, tested = float(np.log(LEAST_PROBABILITY)), predictions.counts.sum(axis=2)
        parts = tested * (1.0 - np.log(true) / lowest)  # from 0 to 1, as Wilson's interval requires
        mean = _mean(parts.sum(axis=0), tested.sum(axis=0), predictions)
        return [Component(lambda end, quantile: -lowest * abs(mean.ends(quantile)[end] - mean.value), mean.influence)]
    base, components = score_confusion(confusion)[score], []
    for c in np.flatnonzero(confusion.sum(axis=1) > 0):
        members, others = np.where((codes == c)[:, None], counts, 0.0), np.arange(len(confusion)) != c
        recall = _mean(members[:, c], members.sum(axis=1), predictions)
        errors = np.where(others, confusion[c], 0.0)
        errors = errors if errors.any() else others.astype(np.float64)

        def reach(
            end: int, quantile: float, c: int = int(c), recall: Mean = recall, errors: np.ndarray = errors
        ) -> float:
            changed, share = confusion.copy(), recall.ends(quantile)[end]
            changed[c] = (1.0 - share) * errors / (errors.sum() or 1.0)
            changed[c, c] = share
            changed[c] *= confusion[c].sum()
            return abs(score_confusion(changed)[score] - base)

        components.append(Component(reach, recall.influence))
    return components


def _area(predictions: Predictions, area: float) -> Component:
    """Return the area under the ROC curve as one component, with the variance of Hanley & McNeil (1982)."""
    # The interval contains the areas that the estimate does not contradict, each with its own variance (Newcombe 2006).
    # The mean over C classes, each against the rest, has the variance of C / 2 independent areas: with two classes,
    # both areas are equal. Simulated intervals of three classes are still too wide rather than too narrow.
    assert predictions.probabilities is not None
    tested = predictions.counts.sum(axis=(0, 2))
    sizes = []
    for c in range(predictions.counts.shape[2]):
        member = predictions.codes == c
        m, n = (_kish(np.bincount(predictions.units, tested * chosen)) for chosen in (member, ~member))
        sizes += [(m, n)] if m > 0 and n > 0 else []

    def excess(limit: float, quantile: float) -> float:
        m, n = np.array(sizes).T
        terms = 1.0 + (m - 1.0) * (1.0 - limit) / (2.0 - limit) + (n - 1.0) * limit / (1.0 + limit)
        variances = limit * (1.0 - limit) / (m * n) * terms
        variance = predictions.inflation * float(np.mean(variances)) / max(0.5 * len(sizes), 1.0)
        return (limit - area) ** 2 - quantile**2 * variance

    def reach(end: int, quantile: float) -> float:
        limit = float(end)
        start = area + 1e-12 * float(np.sign(limit - area))
        if area == limit or excess(start, quantile) >= 0.0:
            return 0.0
        return abs(area - float(brentq(excess, start, limit, args=(quantile,))))

    influence = np.zeros(predictions.codes.size)
    for probabilities, counts in zip(predictions.probabilities, predictions.counts, strict=True):
        rows = np.flatnonzero(counts.any(axis=1))
        influence[rows] += auc_influence(predictions.codes[rows], probabilities[rows])
    return Component(reach, np.bincount(predictions.units, influence))


def _mean(parts: np.ndarray, totals: np.ndarray, predictions: Predictions) -> Mean:
    """Return the mean of patients' results from 0 to 1 with its effective number of patients."""
    # The effective number is Kish's, increased where patients differ less than patients whose results are all 0 or 1 (a
    # patient's result is the mean over several samples, points or rounds), and divided by the inflation.
    part, total = np.bincount(predictions.units, parts), np.bincount(predictions.units, totals)
    mean = float(part.sum() / total.sum())
    influence = (part - mean * total) / total.sum()
    kish, largest = _kish(total), mean * (1.0 - mean)
    ratio = kish * float(np.sum(influence**2)) / largest if largest > 0.0 else 1.0
    ratio = (kish * min(ratio, 1.0) + _PRIOR_PATIENTS) / (kish + _PRIOR_PATIENTS)
    return Mean(mean, kish / (predictions.inflation * ratio), kish, influence)


class Mean(NamedTuple):
    """A mean of patients' results from 0 to 1."""

    value: float
    n: float  # number of patients with results 0 or 1 that would have the same variance
    kish: float  # effective number of patients before the inflation
    influence: np.ndarray  # contribution of each unit

    def ends(self, quantile: float) -> tuple[float, float]:
        """Return the ends of Wilson's interval, modified near 0 and 1 (Brown, Cai & DasGupta 2001)."""
        # Where at most two patients are wrong, Wilson's interval may exclude a share just below 1: its upper end is
        # then at least that of the Poisson distribution of their number; likewise for the lower end.
        low, high = wilson_ends(self.value, self.n, quantile)
        level = float(special.ndtr(-quantile))
        for_right, for_wrong = self.kish * self.value, self.kish * (1.0 - self.value)
        if 0.0 < for_right <= _FEW_CASES:
            low = min(low, float(special.gammaincinv(for_right, level)) / self.kish)
        if 0.0 < for_wrong <= _FEW_CASES:
            high = max(high, 1.0 - float(special.gammaincinv(for_wrong, level)) / self.kish)
        return low, high


def wilson_ends(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Return the ends of Wilson's interval of a share of `n` units (SciPy's takes whole numbers only)."""
    z2 = quantile * quantile
    centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n)
    reach = np.sqrt(z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))) / (1.0 + z2 / n)
    return float(min(centre - reach, share)), float(max(centre + reach, share))


def _kish(weights: np.ndarray) -> float:
    """Return Kish's effective number of units, (Σ w)² / Σ w²."""
    return float(weights.sum() ** 2 / np.sum(weights**2)) if weights.any() else 0.0


def corrected_t(scores: ArrayLike, test_share: float) -> Estimate:
    """Return the mean over shuffled splits with the corrected resampled t interval (Nadeau & Bengio 2003)."""
    # Shuffled splits share most of their training data, so the usual standard error is too small: the variance of the
    # mean of J scores is taken as (1/J + `test_share`) times the variance over splits, with J - 1 degrees of freedom
    # and `test_share` = n_test / n_train. Scores that are NaN are ignored.
    values = np.asarray(scores, dtype=np.float64)
    mean, sd, error, reach = _corrected_moments(values, test_share)
    return Estimate(mean, sd, mean - reach * error, mean + reach * error, "corrected t")


def paired_t(a: ArrayLike, b: ArrayLike, test_share: float) -> Difference:
    """Return the mean difference of scores on the same shuffled splits, with the corrected resampled t test.

    If the difference is the same in every split, the p-value is 0 (or 1, if the difference is 0).
    """
    differences = np.asarray(np.subtract(a, b), dtype=np.float64)
    mean, _, error, reach = _corrected_moments(differences, test_share)
    p = float(mean == 0.0) if error == 0.0 else np.nan
    if error > 0.0:
        p = float(2.0 * stats.t.sf(abs(mean) / error, np.isfinite(differences).sum() - 1))
    return Difference(mean, mean - reach * error, mean + reach * error, p, "corrected t")


def _corrected_moments(scores: np.ndarray, test_share: float) -> tuple[float, float, float, float]:
    """Return mean, standard deviation, corrected standard error, and the quantile of the t distribution."""
    scores = scores[np.isfinite(scores)]
    if scores.size < 2:
        return float(scores[0]) if scores.size else np.nan, np.nan, np.nan, np.nan
    sd = float(scores.std(ddof=1)) if np.ptp(scores) > 0 else 0.0  # equal scores: exactly 0, without rounding errors
    error = sd * np.sqrt(1.0 / scores.size + test_share)
    return float(scores.mean()), sd, float(error), float(stats.t.ppf(0.975, scores.size - 1))


def r2_estimate(values: np.ndarray, predictions: np.ndarray, units: np.ndarray) -> Estimate:
    """Return the R² of cross-validated predictions of numbers with its confidence interval.

    The variance is that of the contributions of units (patients) in the delta method, multiplied by `R2_INFLATION`.
    """
    value, influence = _r2(values, predictions)
    error, quantile = _unit_error(influence, units)
    return Estimate(value, np.nan, value - quantile * error, min(value + quantile * error, 1.0), "delta method")


def r2_difference(values: np.ndarray, a: np.ndarray, b: np.ndarray, units: np.ndarray) -> Difference:
    """Return the difference of the R² of two methods' cross-validated predictions of the same numbers."""
    (first, x), (second, y) = _r2(values, a), _r2(values, b)
    error, quantile = _unit_error(x - y, units)
    value, n_units = first - second, int(units.max()) + 1
    p = 2.0 * float(stats.t.sf(abs(value) / error, n_units - 1)) if error > 0.0 else float(value == 0.0)
    p = max(p, min(1.0, 2.0 ** (1.0 - n_units)))  # not below the p-value of the sign test, as in `difference`
    return Difference(value, value - quantile * error, value + quantile * error, p, "delta method")


def _r2(values: np.ndarray, predictions: np.ndarray) -> tuple[float, np.ndarray]:
    """Return R² and the contribution of each distribution to its deviation from the mean."""
    errors, spread = np.square(values - predictions), np.square(values - values.mean())
    total = float(spread.sum()) or 1.0
    value = 1.0 - float(errors.sum()) / total
    return value, ((1.0 - value) * spread - errors) / total


def _unit_error(influence: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """Return the standard error of a sum of contributions, and the quantile of the t distribution."""
    parts = np.bincount(units, influence)
    variance = R2_INFLATION * float(np.sum(parts**2)) * parts.size / max(parts.size - 1, 1)
    return float(np.sqrt(variance)), float(stats.t.ppf(0.975, max(parts.size - 1, 1)))


def holm(p_values: ArrayLike) -> np.ndarray:
    """Return p-values adjusted for their number (Holm 1979); NaN stays NaN and does not count."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.size, np.nan)
    order = np.argsort(p, kind="stable")[: np.isfinite(p).sum()]  # NaN is sorted last
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(order.size, 0, -1)))
    return adjusted


def resample(units: np.ndarray, codes: np.ndarray, n_draws: int = 2000, random_state: RandomState = 0) -> np.ndarray:
    """Return bootstrap weights of distributions, of shape (n_draws, n_distributions).

    Whole units (patients, numbered from 0) are drawn with replacement: within classes if every unit has one class, else
    from all. The result of a single unit is empty. (SciPy's bootstrap has neither units nor classes.)
    """
    random = check_random_state(random_state)
    pairs = np.unique(np.stack([units, codes]), axis=1)
    n_units = int(units.max()) + 1
    strata = pairs[1] if pairs.shape[1] == n_units else np.zeros(n_units, np.intp)
    if n_units < 2:
        return np.empty((0, units.size))
    counts = np.zeros((n_draws, n_units))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        counts[:, members] = random.multinomial(members.size, np.full(members.size, 1.0 / members.size), n_draws)
    return counts[:, units]


def containing(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return 95 % percentile intervals of draws, (2, n), widened to contain the values; NaN without draws."""
    if not len(draws):
        return np.full((2, values.size), np.nan)
    low, high = np.nanquantile(draws, [1.0 - 0.975, 0.975], axis=0)
    return np.array([np.fmin(low, values), np.fmax(high, values)])
