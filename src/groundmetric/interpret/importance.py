"""Importance of features and of pairs of features: in which class they are higher, and in which kind of points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from .._internal.types import DistributionsLike, LabelsLike, MetricLike
from ..distributions import Distributions, as_distributions
from ..metrics.base import GroundMetric
from ._inputs import Annotation, annotation_of, classes_of, feature_names, frame, metric_of, spreads

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class FeatureReading:
    """Importance of each feature in a metric, and how its values differ between classes.

    Parameters
    ----------
    features : list of str
        Names of the features.
    importance : array of shape (n_features,)
        Share of each feature in the metric, as `GroundMetric.importance`.
    classes : array of shape (n_classes,)
        Labels.
    means : array of shape (n_classes, n_features)
        Mean value in each class, every distribution counting the same.
    highest, lowest : array of shape (n_features,)
        Label of the class in which the feature's mean is highest, and lowest.
    difference : array of shape (n_features,)
        Highest less lowest mean, in standard deviations of the feature.
    values : list
        Kinds of points.
    differences : array of shape (n_values, n_features)
        The same difference (of the same two classes) among points of each kind only; NaN where a class has none.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0], [6.0, 1.0]], ["a", "b", "c", "d"])
    >>> reading = gm.interpret.read_features(gm.GroundMetric([[1.0, 0.1]]), D, ["well", "well", "ill", "ill"])
    >>> reading.top(1), reading.highest.tolist()[0], reading.lowest.tolist()[0], reading.importance.round(2).tolist()
    (['feature 0'], 'ill', 'well', [0.99, 0.01])
    """

    features: list[str]
    importance: np.ndarray
    classes: np.ndarray
    means: np.ndarray
    highest: np.ndarray
    lowest: np.ndarray
    difference: np.ndarray
    values: list[Any]
    differences: np.ndarray

    @property
    def where(self) -> np.ndarray:
        """For each feature, the kind of points in which it differs most."""
        size = np.nan_to_num(np.abs(self.differences), nan=-1.0)
        return np.array(self.values, dtype=object)[np.argmax(size, axis=0)]

    def top(self, n: int = 20) -> list[str]:
        """Names of the most important features.

        Parameters
        ----------
        n : int, default=20
            Number of features.

        Returns
        -------
        list of str
            Names, the most important first.
        """
        return [self.features[f] for f in np.argsort(-self.importance, kind="stable")[:n]]

    def table(self) -> DataFrame:
        """The features as a table.

        Returns
        -------
        pandas.DataFrame
            A row per feature, the most important first.
        """
        columns: dict[str, Any] = {
            "feature": self.features,
            "importance": self.importance,
            "highest": self.highest,
            "lowest": self.lowest,
            "difference": self.difference,
        }
        if len(self.values) > 1:
            columns["where"] = self.where
            columns |= {f"difference in {value}": self.differences[v] for v, value in enumerate(self.values)}
        return frame(columns, np.argsort(-self.importance, kind="stable"))


def read_features(
    metric: MetricLike, D: DistributionsLike, y: LabelsLike, *, annotation: str | LabelsLike | None = None
) -> FeatureReading:
    """Importance of every feature, and in which class and kind of points its values are higher.

    The importance alone says that a feature counts, not which class has more of it: this comes from the class means.
    They are means of single features; the metric may use a feature only together with others (`feature_pairs`).

    Parameters
    ----------
    metric : GroundMetric or fitted learner
        The ground metric.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels.
    annotation : str, array of shape (n_points,) or None, default=None
        Kind of each point: name of an annotation of D, or an array in the order of `D.points`.

    Returns
    -------
    FeatureReading
        Importance, class means and their differences, of every feature.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0], [6.0, 1.0]], ["a", "b", "c", "d"])
    >>> reading = gm.interpret.read_features(gm.GroundMetric([[1.0, 0.1]]), D, ["well", "well", "ill", "ill"])
    >>> reading.top(1), str(reading.highest[0]), reading.means[:, 0].tolist()
    (['feature 0'], 'ill', [5.5, 0.5])
    """
    D = as_distributions(D)
    metric = metric_of(metric, D)
    classes, codes = classes_of(y, D)
    kinds = annotation_of(D, annotation)
    whole = class_means(D, codes, annotation_of(D, None))[:, 0]
    by_kind = class_means(D, codes, kinds)
    high, low, each = whole.argmax(axis=0), whole.argmin(axis=0), np.arange(D.shape[1])
    spread = spreads(metric, D)
    unit = np.where(spread > 0, spread, 1.0)
    return FeatureReading(
        features=feature_names(metric, D),
        importance=metric.importance(),
        classes=classes,
        means=whole,
        highest=classes[high],
        lowest=classes[low],
        difference=(whole[high, each] - whole[low, each]) / unit,
        values=kinds.values,
        differences=(by_kind[high, :, each] - by_kind[low, :, each]).T / unit,
    )


def class_means(D: Distributions, codes: np.ndarray, kinds: Annotation) -> np.ndarray:
    """Mean of each class among points of each kind, (n_classes, n_values, n_features); NaN where there are none.

    Every distribution that has such points counts the same.
    """
    n_classes, n_values = int(codes.max()) + 1, len(kinds.values)
    masses = kinds.masses(D)  # (n_distributions, n_values)
    members = np.stack([np.sum(masses[codes == c] > 0, axis=0) for c in range(n_classes)])  # (n_classes, n_values)
    owner = np.repeat(np.arange(len(D)), D.sizes)
    counts = D.weights > 0
    share = np.zeros(owner.size)
    share[counts] = D.weights[counts] / (masses * members[codes])[owner[counts], kinds.codes[counts]]
    rows = codes[owner] * n_values + kinds.codes
    averaging = sparse.csr_matrix((share, (rows, np.arange(owner.size))), (n_classes * n_values, owner.size))
    means = averaging @ D.points
    means = np.asarray(means.todense() if sparse.issparse(means) else means, dtype=np.float64)
    means[members.ravel() == 0] = np.nan
    return means.reshape(n_classes, n_values, -1)


@dataclass(frozen=True)
class FeaturePairs:
    """Pairs of features with the largest weights in a metric, largest first.

    Parameters
    ----------
    first, second : list of str
        Names of the two features of each pair.
    weight : array of shape (n_pairs,)
        Twice the off-diagonal entry of M for standardised features, in units of its trace, as the importance is.
        Positive: differences in both add up. Negative: they cancel, and their contrast counts.
    alignment : array of shape (n_pairs,)
        Cosine, from -1 to 1, of the two features' columns of W: ±1 where the metric treats them as one feature, 0
        where it treats them as unrelated.

    Examples
    --------
    >>> import groundmetric as gm
    >>> pairs = gm.interpret.feature_pairs(gm.GroundMetric([[3.0, -2.0, 0.0]], ["a", "b", "c"]), 1)
    >>> pairs.first, pairs.second, pairs.weight.round(3).tolist(), pairs.alignment.round(3).tolist()
    (['a'], ['b'], [-0.923], [-1.0])
    """

    first: list[str]
    second: list[str]
    weight: np.ndarray
    alignment: np.ndarray

    def table(self) -> DataFrame:
        """The pairs as a table.

        Returns
        -------
        pandas.DataFrame
            A row per pair.
        """
        names = {"first": self.first, "second": self.second}
        return frame(names | {"weight": self.weight, "alignment": self.alignment})


def feature_pairs(metric: MetricLike, n: int = 20) -> FeaturePairs:
    """Pairs of features with the largest off-diagonal entries of M, for standardised features.

    Features are standardised by their training variances; a metric without them (made by hand) is taken as it is.
    M is never formed: an entry is at most the product of two columns' lengths (Cauchy-Schwarz), so only features that
    can have an entry among the largest are multiplied.

    Parameters
    ----------
    metric : GroundMetric or fitted learner
        The ground metric.
    n : int, default=20
        Number of pairs.

    Returns
    -------
    FeaturePairs
        Weight and alignment of the pairs, strongest first.

    Examples
    --------
    >>> import groundmetric as gm
    >>> pairs = gm.interpret.feature_pairs(gm.GroundMetric([[3.0, -2.0, 0.1]], ["a", "b", "c"]), 1)
    >>> pairs.first, pairs.second, bool(pairs.weight[0] < 0)
    (['a'], ['b'], True)
    """
    metric = getattr(metric, "metric_", metric)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"metric is {type(metric).__name__}: expected a GroundMetric or a fitted learner")
    columns = metric.components * spreads(metric)
    lengths = np.linalg.norm(columns, axis=0)
    order = np.argsort(-lengths, kind="stable")
    size = min(max(64, n), order.size)
    while True:
        chosen = order[:size]
        entries = columns[:, chosen].T @ columns[:, chosen]
        rows, cols = np.triu_indices(size, 1)
        values = entries[rows, cols]
        best = np.argsort(-np.abs(values), kind="stable")[:n]
        # No pair with a shorter column than these can beat the last one found.
        if size == order.size or (best.size == n and abs(values[best[-1]]) >= lengths[order[0]] * lengths[order[size]]):
            break
        size = min(2 * size, order.size)
    names, total = feature_names(metric), float(np.sum(lengths**2)) or 1.0
    one, two = chosen[rows[best]], chosen[cols[best]]
    both = lengths[one] * lengths[two]
    return FeaturePairs(
        first=[names[f] for f in one],
        second=[names[f] for f in two],
        weight=2.0 * values[best] / total,
        alignment=values[best] / np.where(both > 0, both, 1.0),
    )
