"""Single patients: counterfactual changes towards another class, and the influence of a patient on the results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import t as student_t

from .._internal.parallel import progress_bar
from .._internal.types import DistributionsLike, LabelsLike
from .._internal.validation import ParameterError, check_number, group_list, keyed_generator
from ..distributions import as_distributions
from ..ensemble import Classes, Geometry, Settings
from ..ensemble.members import (
    DIAGONAL,
    MARGINAL,
    EuclideanView,
    MarginalView,
    SummaryView,
    View,
    choose_design,
    train_members,
)
from ..ensemble.stacking import predict_held_out
from ..estimators.ensemble import Cohort, GroundMetricEnsemble, prepare_fit
from ..evaluation.permutation import WEIGHTS, Association, combined_p_value, moderated_variances
from ..learning.splits import restricted_permutations
from ..metrics.base import GroundMetric
from .flows import MOST_BAGS, Tabular, annotation_of, by_kind, classes_of, equalized_with_kinds, feature_names, shipping

_N_PERMUTATIONS = 999


@dataclass(frozen=True)
class Counterfactual(Tabular):
    """Changes of the points of a distribution on their way to another class.

    Parameters
    ----------
    name, label, other : object
        The distribution, its class, and the class that it is moved to.
    values, features : list
        Kinds of points (cell types), and features that at least one ensemble member uses.
    change, low, high, p : array of shape (n_values, n_features)
        Mean change of the points of each kind on the optimal plans to distributions of the other class, minus the
        change on plans to distributions of the same class, in units of the feature, with the 95 % confidence interval
        over distributions of both classes, and the p-value, adjusted for all kinds and features (maximum of permuted t
        statistics). NaN for a kind that is absent.
    share : array of shape (n_values,)
        Share of each kind in the transport cost to the other class in excess of that to the same class, at least 0.
    neighbors : list
        Distributions of the other class that were compared, nearest first.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(4, random_state=0).fit(D, y)
    >>> gm.interpret.counterfactual(ensemble, D, y, D.names[0], annotation="mode").features
    ['signal', 'noise 1']
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

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        kind, feature = np.nonzero(np.isfinite(self.change))
        at = (kind, feature)
        columns = {
            "kind": [self.values[k] for k in kind], "feature": [self.features[f] for f in feature],
            "change": self.change[at], "low": self.low[at], "high": self.high[at], "p": self.p[at],
            "share of the kind": self.share[kind],
        }  # fmt: skip
        strength = np.abs(self.change[at]) / np.maximum(self.high[at] - self.low[at], 1e-300)
        return columns, np.lexsort([-strength, self.p[at]])


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
) -> Counterfactual:
    """Move a distribution to the nearest distributions of another class and sum the changes by kind and feature.

    Optimal plans from the distribution to the nearest distributions of the other class, and of its own class, are
    computed under ensemble members that were trained on neither of the two, and keep mass in its kind as far as
    possible. The difference of both is the change that is due to the class: a change on all plans, for example because
    the distribution has an unusual value, cancels. P-values are from permutations of the class among the distributions
    that are compared, adjusted for all kinds and features.

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

    Returns
    -------
    Counterfactual

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(4, random_state=0).fit(D, y)
    >>> result = gm.interpret.counterfactual(ensemble, D, y, D.names[0], other=2, annotation="mode")
    >>> result.table().iloc[0][["kind", "feature"]].tolist()
    ['centre', 'signal']
    """
    check_number("n_neighbors", n_neighbors, low=2, whole=True)
    D = as_distributions(D)
    fitted, geometry = ensemble.fitted_, ensemble.fitted_.geometries[""]
    if sorted(map(str, geometry.names)) != sorted(map(str, D.names)):
        raise ValueError("the ensemble was fitted to other distributions: fit it to D")
    if not fitted.design:
        raise ValueError(
            "a class has too few patients for members that were trained without a given pair: add patients"
        )
    classes, codes = classes_of(y, D)
    labels = classes.tolist()
    if name not in D.names:
        raise ParameterError("name", name, f": expected a distribution of D, for example {D.names[0]!r}")
    subject = D.names.index(name)
    distances = np.asarray(ensemble.distances_)[subject].copy()
    distances[subject] = np.inf
    if other is None:
        other = labels[int(codes[np.argmin(np.where(codes == codes[subject], np.inf, distances))])]
    elif other not in labels or labels.index(other) == codes[subject]:
        raise ParameterError("other", other, f": expected another class than {classes[codes[subject]]!r} of {classes}")
    target_code = labels.index(other)
    nearest = np.argsort(distances, kind="stable")
    patients = group_list(groups, D.name_index) or list(range(len(D)))
    sides = []
    for code in (target_code, codes[subject]):
        candidates = [int(d) for d in nearest if codes[d] == code and patients[d] != patients[subject]]
        # The nearest distribution of each patient: distributions of one patient are not independent.
        sides.append(list({patients[d]: d for d in reversed(candidates)}.values())[::-1][:n_neighbors])
    if min(map(len, sides)) < 2:
        raise ValueError("at least two other distributions of each of the two classes are needed to compare changes")

    values, kinds = annotation_of(D, annotation)
    D, kinds = equalized_with_kinds(D, kinds)
    position = {str(n): d for d, n in enumerate(geometry.names)}
    # Features that a diagonal member selects have sharper changes than combinations of all features.
    diagonal = [m for m in fitted.members[""] if m.kind in DIAGONAL]
    members = diagonal or fitted.members[""]
    trained_on = np.array([[m.trained_on[position[str(n)]] for n in D.names] for m in members])
    columns = np.unique(np.concatenate([m.columns for m in diagonal])) if diagonal else np.arange(D.shape[1])

    def change_and_cost(metric: GroundMetric, partner: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean change of the features and the transport cost by kind of the subject's points."""
        plan = shipping(D, metric, kinds)(subject, partner)
        ends = (D.points[rows][:, columns] for rows in (plan.rows, plan.cols))
        start, end = (np.asarray(x.toarray() if sparse.issparse(x) else x, dtype=np.float64) for x in ends)
        mass, cost = by_kind(kinds[plan.rows], np.column_stack([plan.mass, plan.cost]), len(values)).T
        with np.errstate(invalid="ignore", divide="ignore"):
            return by_kind(kinds[plan.rows], plan.mass[:, None] * (end - start), len(values)) / mass[:, None], cost

    changes, costs = [], []
    for partner in [*sides[0], *sides[1]]:
        # Only members whose training labels included neither of the two distributions compare them.
        eligible = np.flatnonzero(~trained_on[:, subject] & ~trained_on[:, partner])
        if eligible.size > MOST_BAGS:
            random = keyed_generator(0, "counterfactual", *sorted([str(name), str(D.names[partner])]))
            eligible = np.sort(random.choice(eligible, MOST_BAGS, replace=False))
        parts = [change_and_cost(members[m].metric(geometry), partner) for m in eligible]
        changes.append(np.mean([change for change, _ in parts], axis=0))
        costs.append(np.mean([cost for _, cost in parts], axis=0))

    is_other, stacked, stacked_costs = np.arange(len(changes)) < len(sides[0]), np.array(changes), np.array(costs)
    contrast = _contrast(stacked.reshape(len(stacked), -1), is_other, str(name))
    change, low, high, p = (part.reshape(stacked.shape[1:]) for part in contrast)
    excess = np.maximum(stacked_costs[is_other].mean(axis=0) - stacked_costs[~is_other].mean(axis=0), 0.0)
    features = feature_names(D)
    return Counterfactual(
        name, label=classes[codes[subject]], other=classes[target_code], values=values,
        features=[features[c] for c in columns], change=change, low=low, high=high, p=p,
        share=excess / (excess.sum() or 1.0), neighbors=[D.names[d] for d in sides[0]],
    )  # fmt: skip


def _contrast(rows: np.ndarray, is_other: np.ndarray, key: str) -> np.ndarray:
    """Return a row each: difference of the means of two sets of rows, ends of its interval, adjusted p-value."""
    # Variances are moderated by their median over columns, because the smallest of many variances from a few rows are
    # small by chance and would dominate the maximum.
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
    # NaN for absent kinds; no change, with p = 1, for columns that do not vary.
    result = np.where(finite, np.array([[0.0], [0.0], [0.0], [1.0]]), np.nan)
    reach = student_t.ppf(0.975, degrees) * error
    result[:3, varies] = np.array([difference, difference - reach, difference + reach]) * scale[varies]
    hits = (largest[:, None] >= observed * (1.0 - 1e-9)).sum(axis=0)
    result[3, varies] = (1 + hits) / (1 + _N_PERMUTATIONS)
    return result


# Features that are compared between rankings.
_N_TOP = 10
# The refits without a patient have ten members per kind on five folds. Their kernels need 1-D transport only: each
# refit costs a few percent of a fit.
_N_MEMBERS = 10
_KINDS = ("univariate", "anova")


@dataclass(frozen=True)
class Influence(Tabular):
    """Results of a cohort without each of its patients.

    Parameters
    ----------
    names : list
        Names of the patients that are left out (groups, or distributions where no groups are given).
    score, p : float
        Mean held-out log-probability (for numbers, log-likelihood) of the whole cohort minus that of chance, and
        p-value of the association of labels and distributions.
    scores, p_values : array of shape (n_patients,)
        The same without each patient.
    overlap : array of shape (n_patients,)
        Share of the ten most important features of the whole cohort that are among the ten without the patient.
    map_correlation, map_share : array of shape (n_patients,)
        Correlation of the distances between the other patients with and without the patient, and the patient's share of
        the squared distances from the centre of the cohort.
    n_patients : int
        Patients of the cohort, of which `names` are left out.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> gm.interpret.influence(gm.GroundMetricEnsemble(random_state=0), D, y, max_patients=2).n_patients
    9
    """

    names: list[Any]
    score: float
    p: float
    scores: np.ndarray
    p_values: np.ndarray
    overlap: np.ndarray
    map_correlation: np.ndarray
    map_share: np.ndarray
    n_patients: int

    @property
    def influence(self) -> np.ndarray:
        """Influence of each patient: the largest of its five changes, in median absolute deviations of all patients."""
        changes = np.column_stack(
            [
                np.abs(self.scores - np.median(self.scores)),
                np.abs(np.log(self.p_values) - np.median(np.log(self.p_values))),
                np.median(self.overlap) - self.overlap,
                np.median(self.map_correlation) - self.map_correlation,
                self.map_share - np.median(self.map_share),
            ]
        )
        # Smallest units, below which changes are due to chance: 0.03 of a log-probability, a factor of 2 of a p-value,
        # two of ten features, 0.05 of a correlation, and half of an equal share of the map.
        smallest = [0.03, np.log(2.0), 2.0 / _N_TOP, 0.05, 0.5 / self.n_patients]
        units = np.maximum(np.median(np.abs(changes), axis=0), smallest)
        return (changes / units).max(axis=1)

    @property
    def changes(self) -> np.ndarray:
        """Whether the conclusion (p at most 0.05) is another one without the patient."""
        return (self.p_values <= 0.05) != (self.p <= 0.05)

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        columns = {
            "patient": self.names, "influence": self.influence, "score": self.scores, "p": self.p_values,
            "overlap": self.overlap, "map correlation": self.map_correlation, "map share": self.map_share,
            "changes conclusion": self.changes,
        }  # fmt: skip
        return columns, np.argsort(-self.influence, kind="stable")


def influence(
    ensemble: GroundMetricEnsemble,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    max_patients: int = 40,
    n_permutations: int = 199,
    verbose: int = 0,
) -> Influence:
    """Leave out each patient, repeat the analysis, and compare the results.

    Everything that uses labels is done again without the patient: members, kernels, held-out predictions, importances,
    distances and the permutation test of association. The refits share the label-free geometry of the whole cohort and
    use a small ensemble: Euclidean transport, means and standard deviations, and 1-D transport under ten members of
    each of the kinds "univariate" and "anova". So does the analysis of the whole cohort; its `score` and `p` are
    therefore not those of `ensemble`. The cost is about that of three fits.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble
        Ensemble whose target, seed and number of points are used; it need not be fitted.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; these, groups and strata are matched by name where they carry names.
    groups, strata : array-like of shape (n_distributions,) or None, default=None
        Patient and stratum (batch) of each distribution. Without groups, each distribution is a patient.
    max_patients : int, default=40
        Largest number of patients that are left out, one at a time. In larger cohorts these are, in equal parts, the
        patients with the largest share of the map and those whose own held-out predictions change the score most.
    n_permutations : int, default=199
        Permutations of each test of association.
    verbose : int, default=0
        1 shows a progress bar if the output is a terminal.

    Returns
    -------
    Influence

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> gm.interpret.influence(gm.GroundMetricEnsemble(random_state=0), D, y, max_patients=3).table().shape
    (3, 8)
    """
    check_number("max_patients", max_patients, low=2, whole=True)
    check_number("n_permutations", n_permutations, low=19, whole=True)
    cohort, geometries, settings = prepare_fit(ensemble, D, y, groups, strata)
    settings = replace(settings, n_members=_N_MEMBERS)
    geometry, names = geometries[""], cohort.group_names
    folds = choose_design(cohort.target, cohort.groups, names, settings.n_members, settings.seed, cohort.folds)[0]
    full = _analyse(geometry, cohort, settings, folds, np.arange(len(geometry)), n_permutations)
    # Squared distance from the centre: mean squared distance to all minus half of the mean over all pairs.
    squares = np.square(full.distances).mean(axis=1)
    squares = np.maximum(squares - 0.5 * squares.mean(), 0.0)
    share = np.bincount(cohort.groups, squares) / max(float(squares.sum()), 1e-300)
    left_out = np.arange(share.size)
    if share.size > max_patients:
        effects = np.empty(share.size)
        for g in range(share.size):
            rows = np.flatnonzero(cohort.groups != g)
            effects[g] = abs(cohort.target.subset(rows).score(full.predictions[rows]) - full.raw_score)
        ranks = [np.argsort(np.argsort(-values, kind="stable"), kind="stable") for values in (share, effects)]
        left_out = np.argsort(np.minimum(*ranks), kind="stable")[: int(max_patients)]
    order = sorted(left_out.tolist(), key=lambda g: str(names[g]))
    results = []
    with progress_bar(len(order), "leaving out", "patient", show=bool(verbose)) as bar:
        for g in order:
            rows = np.flatnonzero(cohort.groups != g)
            part = _analyse(geometry, cohort, settings, folds, rows, n_permutations)
            pairs = np.triu_indices(rows.size, 1)
            correlation = np.corrcoef(full.distances[np.ix_(rows, rows)][pairs], part.distances[pairs])[0, 1]
            results.append((part.score, part.p, len(full.top & part.top) / max(len(full.top), 1), correlation))
            bar.update()
    scores, p_values, overlap, correlations = np.array(results).T
    patients = [names[g] for g in order]
    return Influence(
        patients, full.score, full.p, scores, p_values, overlap, correlations, share[order], n_patients=len(names)
    )


class _Analysis(NamedTuple):
    """Results of a cohort or a part of it."""

    score: float  # minus chance
    p: float
    top: set[int]  # most important features
    distances: np.ndarray
    predictions: np.ndarray
    raw_score: float


def _analyse(
    geometry: Geometry, cohort: Cohort, settings: Settings, folds: np.ndarray, rows: np.ndarray, n_permutations: int
) -> _Analysis:
    """Analyse some of the distributions, in cross-validation folds that do not depend on the selection."""
    part, target, folds = geometry.subset(rows), cohort.target.subset(rows), folds[rows]
    _, groups = np.unique(cohort.groups[rows], return_inverse=True)
    views: list[View] = [EuclideanView.fit(part), SummaryView.fit(part, "moments")]
    design = choose_design(target, groups, [], settings.n_members, settings.seed, folds)[1]
    members = train_members(part, target, folds, _KINDS, design, settings.refine)
    if members:
        views.append(MarginalView.fit(MARGINAL, part, members))
    held_out, stack = predict_held_out(views, target, folds)
    raw_score = target.score(held_out.predictions)
    distances = np.tensordot(stack.weights, [view.distances for view in views], axes=1)
    final = train_members(part, target, folds, _KINDS, [()], settings.refine)
    importances = np.mean([member.squares(part.scaling) for member in final], axis=0)
    top = set(np.argsort(-importances, kind="stable")[:_N_TOP].tolist())
    labels = target.codes if isinstance(target, Classes) else target.values
    strata = None if cohort.strata is None else cohort.strata[rows]
    association = Association(part, labels, groups, strata)
    exchange = restricted_permutations(labels, groups.tolist(), None if strata is None else strata.tolist())
    drawn = exchange.sample(n_permutations, np.random.RandomState(settings.seed % 2**32))
    table = np.array([association.statistics(target.relabelled(permuted)) for permuted in drawn])
    score, p = raw_score - target.score(target.chance(folds)), combined_p_value(table, list(WEIGHTS.values()))
    return _Analysis(score, p, top, distances, held_out.predictions, raw_score)
