"""Counterfactual changes: what would have to change for a patient to look like another class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.stats import t as student_t

from .._internal.types import DistributionsLike, LabelsLike
from .._internal.validation import ParameterError, check_number, group_list, keyed_generator
from ..distributions import Distributions, as_distributions
from ..ensemble.members import DIAGONAL
from ..estimators.ensemble import GroundMetricEnsemble
from ..evaluation.permutation import moderated_variances
from ._inputs import annotation_of, check_confidence, classes_of, equalized_with_kinds, feature_names, frame
from .flows import Shipments, shipping

if TYPE_CHECKING:
    from pandas import DataFrame

# Members under which a pair is compared: more take longer and hardly add precision.
_MAX_MEMBERS = 4
_N_PERMUTATIONS = 999


@dataclass(frozen=True)
class Counterfactual:
    """Changes of the points of a distribution on their way to another class.

    Parameters
    ----------
    name : object
        The distribution.
    label, other : object
        Its class, and the class that it is moved to.
    values : list
        Kinds of points (cell types).
    features : list of str
        Features that at least one ensemble member uses.
    change : array of shape (n_values, n_features)
        Mean change of the points of each kind on the optimal plans to distributions of the other class, minus the
        change on plans to distributions of the same class, in units of the feature. NaN for a kind that is absent.
    low, high : array of shape (n_values, n_features)
        Confidence interval of the change, over distributions of both classes.
    p : array of shape (n_values, n_features)
        P-value of each change, adjusted for all kinds and features (maximum of permuted t statistics).
    share : array of shape (n_values,)
        Share of each kind in the transport cost to the other class in excess of that to the same class; negative
        excesses are set to 0.
    neighbors : list
        Distributions of the other class that were compared, nearest first.
    confidence : float
        Confidence level of the intervals.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(4, random_state=0).fit(D, y)
    >>> result = gm.interpret.counterfactual(ensemble, D, y, D.names[0], other=2, annotation="mode")
    >>> result.table().iloc[0][["kind", "feature"]].tolist()
    ['centre', 'signal']
    """

    name: Any
    label: Any
    other: Any
    values: list[Any]
    features: list[str]
    change: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    share: np.ndarray
    neighbors: list[Any]
    confidence: float

    def table(self) -> DataFrame:
        """Return a row per kind and feature, sorted by p-value and by the ratio of the change to its interval.

        Returns
        -------
        pandas.DataFrame
            Columns kind, feature, change, low, high, p and share of the kind.
        """
        kind, feature = np.nonzero(np.isfinite(self.change))
        at = (kind, feature)
        columns = {
            "kind": [self.values[k] for k in kind], "feature": [self.features[f] for f in feature],
            "change": self.change[at], "low": self.low[at], "high": self.high[at], "p": self.p[at],
            "share of the kind": self.share[kind],
        }  # fmt: skip
        strength = np.abs(self.change[at]) / np.maximum(self.high[at] - self.low[at], 1e-300)
        return frame(columns, np.lexsort([-strength, self.p[at]]))


def counterfactual(
    ensemble: GroundMetricEnsemble,
    D: DistributionsLike,
    y: LabelsLike,
    name: Any,
    *,
    other: Any = None,
    annotation: str | LabelsLike | None = None,
    groups: LabelsLike | None = None,
    n_neighbors: int = 10,
    confidence: float = 0.95,
) -> Counterfactual:
    """Move a distribution to the nearest distributions of another class and sum the changes by kind and feature.

    Optimal plans from the distribution to the nearest distributions of the other class are computed under ensemble
    members that were trained on none of the two, and keep mass in its kind as far as possible. The same is done for
    the nearest distributions of its own class. The difference of both is the change that is due to the class: a change
    on all plans, for example because the distribution has an unusual value, cancels. P-values are from permutations of
    the class among the distributions that are compared, adjusted for all kinds and features.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble
        Ensemble that was fitted to D and y.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Classes; matched by name where they carry names.
    name : object
        Name of the distribution.
    other : object, default=None
        Class to move to. None: the class of the nearest distribution of another class.
    annotation : str, array of shape (n_points,) or None, default=None
        Kind of each point (cell type): name of an annotation of D, or an array. None: one kind.
    groups : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution: of each other patient, the nearest distribution of a class is compared.
    n_neighbors : int, default=10
        Largest number of distributions of each class that are compared.
    confidence : float, default=0.95
        Confidence level of the intervals.

    Returns
    -------
    Counterfactual
        Changes with intervals and p-values.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(4, random_state=0).fit(D, y)
    >>> result = gm.interpret.counterfactual(ensemble, D, y, D.names[0], other=2, annotation="mode")
    >>> len(result.neighbors), int(result.label), int(result.other)
    (10, 0, 2)
    """
    check_number("n_neighbors", n_neighbors, low=2, whole=True)
    check_confidence(confidence)
    D = as_distributions(D)
    fitted = ensemble.fitted_
    names = fitted.geometries[""].names
    if sorted(map(str, names)) != sorted(map(str, D.names)):
        raise ValueError("the ensemble was fitted to other distributions: fit it to D")
    if not fitted.design:
        raise ValueError(
            "a class has too few patients for members that were trained without a given pair: add patients"
        )
    classes, codes = classes_of(y, D)
    if name not in D.names:
        raise ParameterError("name", name, f": expected a distribution of D, for example {D.names[0]!r}")
    subject = D.names.index(name)
    distances = np.asarray(ensemble.distances_)[subject].copy()
    distances[subject] = np.inf
    if other is None:
        target_code = int(codes[np.argmin(np.where(codes == codes[subject], np.inf, distances))])
    elif other not in classes.tolist() or classes.tolist().index(other) == codes[subject]:
        raise ParameterError("other", other, f": expected another class than {classes[codes[subject]]!r} of {classes}")
    else:
        target_code = classes.tolist().index(other)
    nearest = np.argsort(distances, kind="stable")
    patients = group_list(groups, D.name_index) or list(range(len(D)))
    sides = []
    for code in (target_code, codes[subject]):
        candidates = [int(d) for d in nearest if codes[d] == code and patients[d] != patients[subject]]
        # The nearest distribution of each patient: distributions of one patient are not independent.
        sides.append(list({patients[d]: d for d in reversed(candidates)}.values())[::-1][:n_neighbors])
    if min(map(len, sides)) < 2:
        raise ValueError("at least two other distributions of each of the two classes are needed to compare changes")

    kinds = annotation_of(D, annotation)
    equal, codes_of_kinds = equalized_with_kinds(D, kinds)
    position = {str(n): d for d, n in enumerate(names)}
    # Features that a diagonal member selects have sharper changes than combinations of all features.
    members = [m for m in fitted.members[""] if m.kind in DIAGONAL] or fitted.members[""]
    trained_on = np.array([[m.trained_on[position[str(n)]] for n in D.names] for m in members])
    selected = [m.columns for m in members if m.kind in DIAGONAL]
    columns = np.unique(np.concatenate(selected)) if selected else np.arange(D.shape[1])
    changes, costs = [], []
    for partner in [*sides[0], *sides[1]]:
        eligible = np.flatnonzero(~trained_on[:, subject] & ~trained_on[:, partner])
        if eligible.size > _MAX_MEMBERS:
            random = keyed_generator(0, "counterfactual", *sorted([str(name), str(D.names[partner])]))
            eligible = np.sort(random.choice(eligible, _MAX_MEMBERS, replace=False))
        metrics = [members[m].metric(fitted.geometries[""]) for m in eligible]
        parts = [
            _by_kind(equal, codes_of_kinds, metric, subject, partner, columns, len(kinds.values)) for metric in metrics
        ]
        changes.append(np.mean([change for change, _ in parts], axis=0))
        costs.append(np.mean([cost for _, cost in parts], axis=0))

    is_other = np.arange(len(changes)) < len(sides[0])
    stacked, stacked_costs = np.array(changes), np.array(costs)
    change, low, high, p = _contrast(stacked.reshape(len(stacked), -1), is_other, confidence, str(name))
    excess = np.maximum(stacked_costs[is_other].mean(axis=0) - stacked_costs[~is_other].mean(axis=0), 0.0)
    shape = stacked.shape[1:]
    features = feature_names(D)
    return Counterfactual(
        name=name,
        label=classes[codes[subject]],
        other=classes[target_code],
        values=kinds.values,
        features=[features[c] for c in columns],
        change=change.reshape(shape),
        low=low.reshape(shape),
        high=high.reshape(shape),
        p=p.reshape(shape),
        share=excess / (excess.sum() or 1.0),
        neighbors=[D.names[d] for d in sides[0]],
        confidence=confidence,
    )


def _by_kind(
    D: Distributions, kinds: np.ndarray, metric: Any, subject: int, partner: int, columns: np.ndarray, n_values: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean change of the features and the transport cost by kind of the subject's points."""
    plan: Shipments = shipping(D, metric, kinds if n_values > 1 else None)(subject, partner)
    start, end = (_dense(D.points[rows][:, columns]) for rows in (plan.rows, plan.cols))
    kind = kinds[plan.rows]
    mass = np.bincount(kind, plan.mass, n_values)
    change = np.zeros((n_values, columns.size))
    np.add.at(change, kind, plan.mass[:, None] * (end - start))
    with np.errstate(invalid="ignore", divide="ignore"):
        return change / mass[:, None], np.bincount(kind, plan.cost, n_values)


def _dense(points: Any) -> np.ndarray:
    return np.asarray(points.toarray() if sparse.issparse(points) else points, dtype=np.float64)


def _contrast(
    rows: np.ndarray, is_other: np.ndarray, confidence: float, key: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the difference of the means of two sets of rows, its interval, and p-values adjusted by the maximum.

    Variances are moderated by their median over columns, because the smallest of many variances from a few rows are
    small by chance and would dominate the maximum.
    """
    n, m = int(is_other.sum()), int((~is_other).sum())
    degrees = n + m - 2
    finite = np.isfinite(rows).all(axis=0)
    values = np.where(finite, rows, 0.0)
    scale = values.std(axis=0)
    varies = finite & (scale > 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300))
    values = values[:, varies] / scale[varies]

    def statistics(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second = values[mask], values[~mask]
        squares = [((part - part.mean(axis=0)) ** 2).sum(axis=0) for part in (first, second)]
        variance = (squares[0] + squares[1]) / degrees
        error = np.sqrt(moderated_variances(variance, degrees) * (1.0 / mask.sum() + 1.0 / (~mask).sum()))
        return first.mean(axis=0) - second.mean(axis=0), error

    difference, error = statistics(is_other)
    observed = np.abs(difference) / error
    random = keyed_generator(0, "counterfactual permutations", key)
    largest = np.empty(_N_PERMUTATIONS)
    for k in range(_N_PERMUTATIONS):
        permuted, permuted_error = statistics(random.permutation(is_other))
        largest[k] = (np.abs(permuted) / permuted_error).max(initial=0.0)
    change, low, high, p = np.full((4, rows.shape[1]), np.nan)
    reach = student_t.ppf(0.5 + confidence / 2, degrees) * error
    change[finite], low[finite], high[finite], p[finite] = 0.0, 0.0, 0.0, 1.0
    for array, ends in ((change, difference), (low, difference - reach), (high, difference + reach)):
        array[varies] = ends * scale[varies]
    hits = (largest[:, None] >= observed * (1.0 - 1e-9)).sum(axis=0)
    p[varies] = (1 + hits) / (1 + _N_PERMUTATIONS)
    return change, low, high, p
