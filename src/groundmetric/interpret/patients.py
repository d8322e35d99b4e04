"""Influence of single patients: score, p-value, feature ranking and map of the cohort without each patient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal.parallel import progress_bar
from .._internal.types import DistributionsLike, LabelsLike
from .._internal.validation import check_number
from ..ensemble import Classes, Geometry, Settings
from ..ensemble.members import MARGINAL, EuclideanView, MarginalView, SummaryView, View, choose_design, train_members
from ..ensemble.stacking import predict_held_out
from ..estimators.ensemble import Cohort, GroundMetricEnsemble, prepare_fit
from ..evaluation.permutation import WEIGHTS, Association, combined_p_value
from ..learning.splits import restricted_permutations
from ._inputs import frame

if TYPE_CHECKING:
    from pandas import DataFrame

# Features that are compared between rankings.
_N_TOP = 10
# The refits without a patient have ten members per kind on five folds. Their kernels need 1-D transport only: each
# refit costs a few percent of a fit.
_N_MEMBERS = 10
_KINDS = ("univariate", "anova")


@dataclass(frozen=True)
class Influence:
    """Results of a cohort without each of its patients.

    Parameters
    ----------
    names : list
        Names of the patients that are left out (groups, or distributions where no groups are given).
    score : float
        Mean held-out log-probability (for numbers, log-likelihood) of the whole cohort minus that of chance.
    p : float
        P-value of the association of labels and distributions in the whole cohort.
    scores, p_values : array of shape (n_patients,)
        The same without each patient.
    overlap : array of shape (n_patients,)
        Share of the ten most important features of the whole cohort that are among the ten without the patient.
    map_correlation : array of shape (n_patients,)
        Correlation of the distances between the other patients with and without the patient.
    map_share : array of shape (n_patients,)
        Share of the squared distances from the centre of the cohort that is due to the patient; 1 over the number of
        patients if all are equally far.
    n_patients : int
        Patients of the cohort, of which `names` are left out.
    level : float
        Significance level by which `changes` is judged.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, offsets=(1.5, 7.5, 13.5, 19.5), random_state=0)
    >>> result = gm.interpret.influence(gm.GroundMetricEnsemble(random_state=0), D, y)
    >>> result.scores.shape, result.table().columns[0]
    ((12,), 'patient')
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
    level: float = 0.05

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
        """Whether the conclusion (significance at `level`) is another one without the patient."""
        return (self.p_values <= self.level) != (self.p <= self.level)

    def table(self) -> DataFrame:
        """Return a row per patient, sorted by influence.

        Returns
        -------
        pandas.DataFrame
            Columns patient, influence, score, p, overlap, map correlation, map share and changes conclusion.
        """
        columns = {
            "patient": self.names, "influence": self.influence, "score": self.scores, "p": self.p_values,
            "overlap": self.overlap, "map correlation": self.map_correlation, "map share": self.map_share,
            "changes conclusion": self.changes,
        }  # fmt: skip
        return frame(columns, np.argsort(-self.influence, kind="stable"))


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
    each of the kinds "univariate" and "anova". The whole cohort is analysed by the same small ensemble and in the same
    folds; its `score` and `p` are therefore not those of `ensemble`. The cost is about that of three fits.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble
        Ensemble whose target, seed and number of points are used; it need not be fitted.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; these, groups and strata are matched by name where they carry names.
    groups : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution. None: each distribution is a patient.
    strata : array-like of shape (n_distributions,) or None, default=None
        Stratum (batch) of each distribution.
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
        Score, p-value, feature ranking and map without each patient.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, offsets=(1.5, 7.5, 13.5, 19.5), random_state=0)
    >>> result = gm.interpret.influence(gm.GroundMetricEnsemble(random_state=0), D, y)
    >>> result.table().shape
    (12, 8)
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
    order = sorted(_candidates(cohort, full, share, int(max_patients)), key=lambda g: str(names[g]))
    results = []
    with progress_bar(len(order), "leaving out", "patient", show=bool(verbose)) as bar:
        for g in order:
            rows = np.flatnonzero(cohort.groups != g)
            part = _analyse(geometry, cohort, settings, folds, rows, n_permutations)
            correlation = _correlation(full.distances[np.ix_(rows, rows)], part.distances)
            results.append((part.score, part.p, len(full.top & part.top) / max(len(full.top), 1), correlation))
            bar.update()
    scores, p_values, overlap, correlations = np.array(results).T
    left_out = [names[g] for g in order]
    return Influence(
        left_out, full.score, full.p, scores, p_values, overlap, correlations, share[order], n_patients=len(names)
    )


def _candidates(cohort: Cohort, full: _Analysis, share: np.ndarray, max_patients: int) -> np.ndarray:
    """Return the patients to leave out: all, or those with the largest share of the map or effect on the score."""
    if share.size <= max_patients:
        return np.arange(share.size)
    effects = np.empty(share.size)
    for g in range(share.size):
        rows = np.flatnonzero(cohort.groups != g)
        effects[g] = abs(cohort.target.subset(rows).score(full.predictions[rows]) - full.raw_score)
    ranks = [np.argsort(np.argsort(-values, kind="stable"), kind="stable") for values in (share, effects)]
    return np.argsort(np.minimum(*ranks), kind="stable")[:max_patients]


@dataclass(frozen=True)
class _Analysis:
    """Score minus chance, p-value, most important features, distances and predictions of a cohort or a part of it."""

    score: float
    p: float
    top: set[int]
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


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    pairs = np.triu_indices(len(first), 1)
    return float(np.corrcoef(first[pairs], second[pairs])[0, 1])
