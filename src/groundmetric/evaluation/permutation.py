"""Tests of association with the label: of the distributions, by permutation, and of their numbers of points.

The held-out score of an ensemble has little power for many weak differences. It is combined with statistics of the
association between labels and distributions, which need no fit: PERMANOVA of means for many weak differences, the mean
over all standardised features for many weak differences of the same sign (a programme), and a likelihood ratio of
sparse differences for a few strong ones. The first and the last exist for standard deviations, too.

Ranks of each statistic among all arrangements of the labels are combined, and the combination is ranked again among the
same arrangements, one of which is the observed one: the p-value is valid for any dependence between the statistics.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._internal.parallel import progress_bar, run_tasks
from .._internal.tables import plain
from .._internal.types import DistributionsLike, Estimator, LabelsLike, RandomState, SplitsOfLabels
from .._internal.validation import (
    NameIndex,
    ParameterError,
    check_classes,
    check_labels,
    check_number,
    group_list,
    keyed_uniform,
    label_array,
    missing_values,
    number_groups,
    real_array,
    unit_codes,
)
from ..distributions import Distributions, as_distributions
from ..ensemble import Classes, Geometry, Survival
from ..ensemble.members import EuclideanView, replace_diagonal
from ..estimators.ensemble import GroundMetricEnsemble, fit_cohort, prepare_fit
from ..estimators.predictor import EnsemblePredictor
from ..learning.splits import Split, as_splits, check_splits, folds, restricted_permutations, rounds_of
from .compare import Cohort, fit, nearest_training, predict, recorded_warnings
from .results import Protocol, Voting
from .scores import Predictions, score_codes

STATISTICS = ("combined", "score", "association")
SCORE, SEPARATION = "held-out score", "map separation"
# Permutations of the statistics of association, which need no fit, at least; and of numbers of points.
_MIN_ASSOCIATION_PERMUTATIONS, _N_PERMUTATIONS = 999, 999
# Weights of the statistics of association and of the held-out score in a combined p-value.
MERGE_WEIGHTS = (0.8, 0.2)
# Share of features that differ, and variance of their standardised differences, in the likelihood ratio.
_SHARE, _VARIANCE = 0.1, 5.0
# Degrees of freedom that the median variance is worth in moderated variances.
_PRIOR_DEGREES = 4.0
# Values this close to each other, relative to their size, are ties.
_TIE = 1e-9
# Statistics and their weights in the combination. PERMANOVA of means has most of the weight: for many weak differences,
# the power of the combination is nearly that of this test alone.
WEIGHTS = {
    "PERMANOVA of means": 0.45,
    "PERMANOVA of transport": 0.05,
    "PERMANOVA of standard deviations": 0.05,
    "sparse differences of means": 0.2,
    "sparse differences of standard deviations": 0.05,
    "common shift of means": 0.2,
}


@dataclass(frozen=True)
class PermutationTest:
    """Permutation test: the score of a method, its scores with labels permuted, and the p-value.

    Parameters
    ----------
    statistic, null : float and array of shape (n_permutations,)
        Score with the observed labels (with ``statistic="association"``, the combination of statistics), and scores
        with permuted labels; NaN, which counts as a hit, if the method failed.
    p : float
        P-value of all `combined` statistics. Of a single statistic, (1 + hits) / (1 + permutations); a hit is a null
        value as high as the statistic or higher.
    score, exchanged : str
        Name of the score, and the units among which labels were permuted, e.g. "groups within strata".
    arrangements : int
        Number of different arrangements of the labels. No test has a p-value far below one over this number.
    seconds : float
        Mean time of one arrangement, fits and predictions on all splits.
    p_values : dict of str to float
        P-value of each statistic alone. "map separation" is that of the labels in a 2-D map of the ensemble's
        `distances_`, from refits under permuted labels.
    combined : tuple of str
        Statistics that `p` combines.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=3, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> test = gm.evaluation.permutation_test(gm.baselines.Euclidean(), D, y, cv=3, n_permutations=9, random_state=0)
    >>> test.null.shape, test.exchanged, test.arrangements
    ((9,), 'distributions', 1680)
    """

    statistic: float
    null: np.ndarray
    p: float
    score: str
    exchanged: str
    arrangements: int
    seconds: float
    p_values: dict[str, float] = field(default_factory=dict)
    combined: tuple[str, ...] = ()

    @property
    def failed(self) -> int:
        """Number of arrangements in which the method failed."""
        return int(np.isnan(self.null).sum())

    def __repr__(self) -> str:
        return (
            f"PermutationTest({self.score} {self.statistic:.3f}, p = {self.p:.4g} from {self.null.size} permutations "
            f"of {self.exchanged})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all parameters by name, and `failed`, as plain data for JSON; NaN scores become None."""
        return {**plain(asdict(self)), "failed": self.failed}


def permutation_test(
    method: Estimator,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    cv: SplitsOfLabels = None,
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    n_permutations: int = 199,
    statistic: str = "combined",
    voting: Voting | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
    verbose: int = 0,
) -> PermutationTest:
    """Test whether labels are associated with the distributions, by the held-out score of a method.

    Splitting, fitting and predicting are repeated with permuted labels. Observed labels go through the same procedure:
    under the null hypothesis, p-values are uniform (conservative if scores tie).

    Labels are permuted within strata where given: labels of distributions; if every outer group has one label (a
    patient with several samples), labels of whole groups; if groups have several labels (a donor, treated or not),
    labels of distributions within their group and, where groups differ in their labels, also all labels of one group
    with those of another of the same size.

    An ensemble is fitted again for every permutation; permutations share the geometry, which does not depend on labels.
    By default its held-out score is combined with statistics of the association between labels and distributions
    (PERMANOVA of means, standard deviations and Euclidean transport; sparse differences of single features), which have
    more power for many weak differences, need no fit and have at least 999 permutations. Both p-values are merged by
    the Cauchy combination (Liu & Xie 2020), not below ``1 / (n_permutations + 1)``.

    Parameters
    ----------
    method : estimator
        As in `compare`; or a `GroundMetricEnsemble`, `TransportClassifier`, `TransportRegressor` or
        `TransportSurvival`, which has held-out predictions of its own and needs no splits.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels, of a `TransportRegressor` numbers; these, groups and strata go by name where they carry names.
    cv : int, callable, scikit-learn splitter, list of (train, test) or None, default=None
        Number of folds, a function of labels to a list of (train, test), or a splitter: made anew for every
        arrangement (a method with ``uses_labels = False`` has the same unstratified folds for all). A list is the same
        for all, and must not depend on `y`: its stratification would favour the observed labels. None: 5 folds, or as
        many as the smallest class allows, and at least 2.
    groups, strata : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution, never on both sides of a split; labels are exchanged only within strata.
    n_permutations : int, default=199
        Number of exchanges of the labels.
    statistic : {"combined", "score", "association"}, default="combined"
        For an ensemble: the held-out score (mean log-probability of the true class; for numbers and survival times, the
        log-likelihood) combined with statistics of association, or one of the two. "association" takes milliseconds.
        For other methods, the statistic is the balanced accuracy.
    voting : Voting or None, default=None
        Votes of the nearest training distributions, for methods without `predict_proba`; None: ``Voting()``.
    n_jobs : int or None, default=None
        Arrangements at the same time, in worker processes or on the cluster that joblib is configured for.
    random_state : int, RandomState or None, default=None
        Seed of the exchanges and of the folds.
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Returns
    -------
    PermutationTest

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=3, offsets=(1.5, 7.5, 13.5, 19.5), random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=3, random_state=0)
    >>> gm.evaluation.permutation_test(learner, D, y, cv=2, n_permutations=19, random_state=0).p
    0.05
    """
    check_number("n_permutations", n_permutations, low=1, whole=True)
    test = PreparedTest(
        method, D, y, cv=cv, groups=groups, strata=strata, statistic=statistic, voting=voting, random_state=random_state
    )  # fmt: skip
    return test.run(n_permutations, n_jobs=n_jobs, verbose=verbose)


class PreparedTest:
    """A permutation test that can be run again with more permutations; earlier results are kept."""

    def __init__(
        self, method: Any, D: Any, y: Any, *, cv: Any = None, groups: Any = None, strata: Any = None,
        statistic: str = "combined", voting: Voting | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        D = as_distributions(D)
        groups, strata = group_list(groups, D.name_index), group_list(strata, D.name_index, "strata")
        if statistic not in STATISTICS:
            raise ParameterError("statistic", statistic, f": expected one of {list(STATISTICS)}")
        self.random = check_random_state(random_state)
        self.procedure: Any
        self.names: tuple[str, ...]  # of the statistics of the procedure, the score first
        seed = None
        if isinstance(method, EnsemblePredictor):
            seed, target = method.random_state, method.target
            method = clone(method.ensemble or GroundMetricEnsemble()).set_params(target=target)
        if isinstance(method, GroundMetricEnsemble):
            if cv is not None:
                raise ParameterError("cv", cv, ", but an ensemble has held-out predictions without it")
            ensemble = clone(method).set_params(n_jobs=None, verbose=0)
            seed = ensemble.random_state if seed is None else seed
            ensemble.set_params(random_state=self.random.randint(2**31) if seed is None else seed)
            self.score = "log_probability" if ensemble.target == "classes" else "log_likelihood"
            self.procedure = EnsembleProcedure(ensemble, D, y, groups, strata)
            self.labels, self.names, self.statistic = self.procedure.labels, (SCORE, SEPARATION), statistic
        else:
            self.score, self.names, self.statistic = "balanced_accuracy", ("balanced_accuracy",), "score"
            labels, protocol = check_labels(y, D.name_index), Protocol.of(voting, D, points=False)
            classes, self.labels = np.unique(labels, return_inverse=True)
            shareable = not getattr(method, "uses_labels", True)
            splits = _splits_of_labels(cv, labels, groups, self.random.randint(2**31), shareable, D.name_index)
            if not shareable or not isinstance(cv, int | np.integer | None):  # neighbours vote without a class, too
                check_splits(splits(labels) if callable(splits) else splits, labels, groups)
            self.procedure = Procedure(method, Cohort(D, labels, classes, groups), splits, shareable, protocol)
        self.exchange = restricted_permutations(self.labels, groups, strata, names=D.name_index.names)
        if self.exchange.arrangements < 20:
            warnings.warn(
                f"there are only {self.exchange.arrangements} arrangements of labels among {self.exchange.among}: for "
                f"any number of permutations, the smallest p-value to expect is about "
                f"{1 / self.exchange.arrangements:.2g}; give more distributions or groups, or coarser strata",
                UserWarning,
                stacklevel=3,
            )
        self.seed = self.random.randint(2**31)  # of the statistics of association
        self.drawn: list[np.ndarray] = []
        self.answers: dict[bytes, tuple[np.ndarray, float]] = {}  # statistics and seconds, by arrangement

    def run(self, n_permutations: int, *, n_jobs: int | None = None, verbose: int = 0) -> PermutationTest:
        """Rank the statistics of the observed labels among those of permuted labels."""
        p_values: dict[str, float] = {}
        combined: tuple[str, ...] = ()
        score = self.score
        if self.statistic != "association":
            key = self.labels.tobytes()
            if key not in self.answers:  # first and in this process: an error is raised at once
                self.answers[key] = _answer(self.procedure, True, self.labels)
            observed = self.answers[key][0]
            if np.isnan(observed).any():
                raise ValueError(f"{self.score} is undefined on all splits: take larger test sets")
            while len(self.drawn) < n_permutations:
                self.drawn.append(self.exchange.draw(self.random))
            drawn = self.drawn[:n_permutations]
            # A repeated arrangement is computed once.
            missing = {labels.tobytes(): labels for labels in drawn if labels.tobytes() not in self.answers}
            keys, refit = list(missing), partial(_answer, self.procedure, False)
            with progress_bar(len(missing), "permuting", "arrangement", show=bool(verbose)) as bar:
                for number, answer in run_tasks(refit, list(missing.values()), n_jobs):
                    self.answers[keys[number]] = answer
                    bar.update()
            null = [np.broadcast_to(self.answers[labels.tobytes()][0], observed.shape) for labels in drawn]
            table = np.vstack([observed, *null])
            p_values = {name: float(rank_p_values(column)[0]) for name, column in zip(self.names, table.T, strict=True)}
            values, p, combined = table[:, 0], p_values[self.names[0]], self.names[:1]
        if self.statistic != "score":
            n_drawn = max(n_permutations, _MIN_ASSOCIATION_PERMUTATIONS)
            arrangements = self.exchange.sample(n_drawn, np.random.RandomState(self.seed))
            table = np.array(
                [self.procedure.association.statistics(self.procedure.target(row)) for row in arrangements]
            )
            p_values |= {name: float(rank_p_values(column)[0]) for name, column in zip(WEIGHTS, table.T, strict=True)}
            combined = (*combined, *WEIGHTS)
            scores = combined_scores(table, list(WEIGHTS.values()))
            p_association = float(rank_p_values(scores)[0])
            if self.statistic == "association":
                values, p, score = scores, p_association, "association"
            else:
                p = max(merged_p_value([p_association, p], MERGE_WEIGHTS), 1.0 / (n_permutations + 1))
        seconds = [seconds for _, seconds in self.answers.values()]
        return PermutationTest(
            float(values[0]), values[1:], p, score, exchanged=self.exchange.among,
            arrangements=self.exchange.arrangements, seconds=float(np.nanmean(seconds)) if seconds else 0.0,
            p_values=p_values, combined=combined,
        )  # fmt: skip


def _answer(procedure: Callable[[np.ndarray], Any], raising: bool, labels: np.ndarray) -> tuple[Any, float]:
    """Return statistics and seconds; NaN, which counts as a hit, if the method fails, unless errors are raised."""
    start = time.perf_counter()
    with recorded_warnings():
        try:
            value = np.atleast_1d(procedure(labels))
        except Exception as error:
            if raising or isinstance(error, MemoryError):
                raise
            return np.nan, np.nan
    return value, time.perf_counter() - start


class EnsembleProcedure:
    """Statistics of an ensemble with permuted labels, on a shared geometry.

    A call fits the ensemble to permuted `labels` (codes of classes or of survival times, or numbers) and returns its
    held-out score and the separation of its map; both use the permuted labels only.
    """

    def __init__(self, ensemble: GroundMetricEnsemble, D: Any, y: Any, groups: Any, strata: Any) -> None:
        self.cohort, geometries, self.settings = prepare_fit(ensemble, D, y, groups, strata)
        self.geometry = geometries[""]
        target: Any = self.cohort.target
        self.first: np.ndarray | None = None  # a patient with each survival time
        if isinstance(target, Survival):
            assert target.times is not None
            pairs = np.column_stack([target.times.time, target.times.event])
            _, self.first, codes = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
            labels = codes.reshape(-1)
        else:
            labels = target.codes if isinstance(target, Classes) else target.values
        self.labels = labels[self.cohort.inverse]

    def target(self, labels: np.ndarray) -> Any:
        """Return the target of permuted labels."""
        ordered = labels[self.cohort.order]
        return self.cohort.target.relabelled(ordered if self.first is None else self.first[ordered])

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        target = self.target(labels)
        fitted = fit_cohort({"": self.geometry}, self.cohort, self.settings, target)
        return np.array([fitted.score, separation(fitted.distances, target)])

    @cached_property
    def association(self) -> Association:
        """Statistics that need no fit."""
        return Association(self.geometry, self.labels[self.cohort.order], self.cohort.groups, self.cohort.strata)


@dataclass(frozen=True)
class Procedure:
    """Function from codes of permuted labels to the held-out balanced accuracy: split, fit, predict.

    Fits and splits use the permuted labels of the training sets, the score those of the test sets.
    """

    method: Any
    cohort: Cohort
    splits: list[Split] | Callable[[np.ndarray], list[Split]]  # a list does not depend on labels
    shareable: bool  # whether the method ignores labels
    protocol: Protocol

    def __call__(self, codes: np.ndarray) -> float:
        data, protocol = self.cohort, self.protocol
        cohort = Cohort(data.D, data.classes[codes], data.classes, data.groups)
        splits = self.splits(cohort.labels) if callable(self.splits) else self.splits
        tables = []
        for at, (train, test) in enumerate(splits):
            if self.shareable and not callable(self.splits):
                tables.append(protocol.votes(self.neighbors[at], codes[train], data.classes.size))
            else:
                tables.append(predict(fit(self.method, cohort, train), cohort, protocol, train, test))
        rounds = rounds_of(splits, codes.size)
        if rounds is not None:
            units = np.arange(codes.size)
            predictions = Predictions.of(codes, units, splits, rounds, tables, n_classes=data.classes.size)
            return predictions.pooled("balanced_accuracy")
        scores = [score_codes(codes[test], table) for (_, test), table in zip(splits, tables, strict=True)]
        return float(np.nanmean([score["balanced_accuracy"] for score in scores]))

    @cached_property
    def neighbors(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Neighbours of the test distributions of each split, for a method that ignores labels: found once."""
        assert not callable(self.splits)
        cohort, protocol = self.cohort, self.protocol
        return [nearest_training(fit(self.method, cohort, split[0]), cohort, protocol, *split) for split in self.splits]


def _splits_of_labels(
    cv: Any, labels: np.ndarray, groups: Any, seed: int, shareable: bool, name_index: NameIndex
) -> list[Split] | Callable[[np.ndarray], list[Split]]:
    """Return splits that are the same for all arrangements as a list, otherwise as a function of the labels."""
    if cv is None or isinstance(cv, int | np.integer):
        units = unit_codes(groups, labels.size)
        least = min(np.unique(units[labels == label]).size for label in np.unique(labels))
        n_splits = max(2, min(5, least)) if cv is None else int(cv)
        if not shareable:
            return partial(folds, groups=groups, n_splits=n_splits, random_state=seed)
        from sklearn.model_selection import GroupKFold, KFold  # few need them, and they load slowly

        kind = KFold if groups is None else GroupKFold
        splitter = kind(n_splits, shuffle=True, random_state=seed)
        return list(splitter.split(labels, groups=number_groups(groups, labels.size)))
    if hasattr(cv, "split") or callable(cv):
        return lambda labels: as_splits(cv, labels, groups, name_index)
    return as_splits(cv, labels, groups, name_index)


class Association:
    """Statistics of labels on the label-free geometry of a cohort, with patients as units."""

    def __init__(
        self, geometry: Geometry, labels: np.ndarray, groups: np.ndarray, strata: np.ndarray | None = None
    ) -> None:
        # Distributions of a group with one label are averaged, the same number in each group (drawn by name), because
        # averages of more distributions vary less and would not be exchangeable with the others. Where labels differ
        # within groups (paired designs), differences between groups are removed; differences between strata always
        # are. The observed labels only decide which of the two designs it is.
        n = labels.size
        _, first = np.unique(groups, return_index=True)
        whole_groups = bool(np.all(labels == labels[first][groups]))
        average, self._first, used, blocks = np.eye(n), np.arange(n), np.arange(n), strata
        if not whole_groups:
            blocks = groups if strata is None else unit_codes(list(zip(groups, strata, strict=True)), n)
        elif first.size < n:
            count = int(np.bincount(groups).min())
            order = keyed_uniform(geometry.names, geometry.scaling.seed, "group average")
            used = np.concatenate(
                [sorted(np.flatnonzero(groups == g), key=order.__getitem__)[:count] for g in groups[first]]
            )
            average, self._first = np.kron(np.eye(first.size), np.full((1, count), 1.0 / count)), first
            blocks = None if strata is None else strata[first]
        self._centre = _centring(self._first.size, blocks)
        self._degrees = round(float(np.trace(self._centre)))
        means = (geometry.description.drawn.means() - geometry.scaling.centre)[used]
        deviations = geometry.description.deviations[used]
        scaled = []
        for x in (means, deviations):
            deviation = x.std(axis=0)
            varies = deviation > 1e-9 * max(float(np.abs(x).max(initial=0.0)), 1e-300)
            scaled.append(self._centre @ average @ ((x - x.mean(axis=0)) / np.where(varies, deviation, np.inf)))
        self._columns = [(x, np.square(x).sum(axis=0)) for x in scaled]
        self._programme = scaled[0].mean(axis=1)
        # The diagonal is that of the distributions in use: a nearby distribution of the same group would enlarge it.
        transport = replace_diagonal(np.exp(-EuclideanView.fit(geometry).distances[np.ix_(used, used)]))
        kernels = [means @ means.T, transport]
        self._kernels = [self._centre @ average @ kernel @ average.T @ self._centre for kernel in kernels]
        self._kernels.append(scaled[1] @ scaled[1].T)

    def statistics(self, target: Any) -> np.ndarray:
        """Return the statistics in the order of `WEIGHTS`; large values are extreme."""
        basis = _label_basis(self._centre, target, self._first)
        between = [float(np.trace(basis.T @ kernel @ basis)) for kernel in self._kernels]
        ratios = []
        for x, total in self._columns:
            # Log-likelihood ratio of a share of columns with differences against none. Columns are treated as
            # independent, with normal differences; the permutation distribution accounts for the rest.
            n_between, n_error = basis.shape[1], max(self._degrees - basis.shape[1], 1)
            explained = np.square(basis.T @ x).sum(axis=0)
            residual = np.maximum(total - explained, 0.0) / n_error
            squares = explained / np.maximum(moderated_variances(residual, n_error), 1e-12)
            gain = 0.5 * squares * _VARIANCE / (1.0 + _VARIANCE) - 0.5 * n_between * np.log1p(_VARIANCE)
            ratios.append(float(np.logaddexp(np.log1p(-_SHARE), np.log(_SHARE) + gain).sum()))
        return np.array([*between, *ratios, float(np.square(basis.T @ self._programme).sum())])


def moderated_variances(variances: np.ndarray, degrees: float) -> np.ndarray:
    """Return variances shrunk to their median: of many variances from few units, some are small by chance."""
    return (_PRIOR_DEGREES * np.median(variances) + degrees * variances) / (_PRIOR_DEGREES + degrees)


def _centring(n: int, blocks: np.ndarray | None) -> np.ndarray:
    """Return the matrix that subtracts the mean or, with blocks, the mean of the block."""
    blocks = np.zeros(n, np.intp) if blocks is None else blocks
    same = (blocks[:, None] == blocks).astype(np.float64)
    return np.eye(n) - same / same.sum(axis=1, keepdims=True)


def _label_basis(centre: np.ndarray, target: Any, rows: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the centred labels of these rows."""
    if isinstance(target, Classes):
        columns = (target.codes[rows, None] == np.arange(target.n_classes)).astype(np.float64)
    else:
        columns = target.values[rows, None]
    basis, sizes, _ = np.linalg.svd(centre @ columns, full_matrices=False)
    return basis[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]


def separation(distances: np.ndarray, target: Any) -> float:
    """Return the share of the variance of a 2-D map (classical scaling) of the distances that labels explain."""
    n = len(distances)
    centre = _centring(n, None)
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
    z = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0))
    basis = _label_basis(centre, target, np.arange(n))
    total = float(np.square(z).sum())
    return float(np.square(basis.T @ z).sum()) / total if total > 0 else 0.0


def rank_p_values(values: np.ndarray) -> np.ndarray:
    """Return for each arrangement the share of arrangements with a value at least as large; NaN is the largest."""
    values = np.where(np.isnan(values), np.inf, values)
    ordered = np.sort(values)
    with np.errstate(invalid="ignore"):
        tied = np.where(np.isfinite(values), values - _TIE * np.maximum(np.abs(values), _TIE), values)
    return (values.size - np.searchsorted(ordered, tied, side="left")) / values.size


def combined_p_value(table: np.ndarray, weights: Sequence[float] | None = None) -> float:
    """Return the p-value of the first row of (n_arrangements, n_statistics) by all statistics together."""
    return float(rank_p_values(combined_scores(table, weights))[0])


def combined_scores(table: np.ndarray, weights: Sequence[float] | None = None) -> np.ndarray:
    """Return the Cauchy combination of the ranks of each row (Liu & Xie 2020); a single statistic unchanged."""
    if table.shape[1] == 1:
        return table[:, 0]
    p = np.array([rank_p_values(column) for column in table.T])
    cauchy = np.tan((0.5 - np.minimum(p, 1.0 - 0.5 / len(table))) * np.pi)
    return np.average(cauchy, axis=0, weights=weights)


def merged_p_value(p: Sequence[float], weights: Sequence[float]) -> float:
    """Return the Cauchy combination of p-values from different numbers of permutations (Liu & Xie 2020)."""
    values = np.asarray(p, dtype=np.float64)
    score = float(np.average(np.tan((0.5 - np.minimum(values, 0.99)) * np.pi), weights=weights))
    return float(min(max(0.5 - np.arctan(score) / np.pi, 0.0), 1.0))


@dataclass(frozen=True)
class SizeAssociation:
    """Association between the numbers of points of distributions and their labels.

    Parameters
    ----------
    p : float
        P-value of no association; NaN for fewer than four units, or if all sizes are equal.
    medians, correlation : dict and float
        Median number of points by class (empty for numbers); Spearman's correlation with numbers (NaN for classes).

    Examples
    --------
    >>> from groundmetric.evaluation import size_association
    >>> result = size_association([30, 35, 28, 31, 90, 85, 99, 92], ["well"] * 4 + ["ill"] * 4)
    >>> result.medians, result.p < 0.05
    ({'ill': 91.0, 'well': 30.5}, True)
    """

    p: float
    medians: dict[Any, float]
    correlation: float

    def sentence(self, label: str = "the label", item: str = "distribution", point: str = "point") -> str:
        """Return whether the number of points is associated with the label, with the p-value, as a sentence.

        It names the label `label`, a distribution `item` (e.g. "sample") and a point `point` (e.g. "cell").
        """
        numbers = f"The number of {point}s per {item}"
        used = f"{item}s are compared by equal numbers of {point}s"
        if np.isnan(self.p):
            reason = f"too few {item}s, or equal numbers of {point}s"
            return f"{numbers} was not tested for association with {label} ({reason}); {used}."
        if self.medians:
            detail = "median " + ", ".join(f"{name}: {median:g}" for name, median in self.medians.items())
        else:
            detail = f"Spearman's correlation {self.correlation:.2f}"
        verdict = "is associated" if self.p <= 0.05 else "is not associated"
        return f"{numbers} {verdict} with {label} (p = {self.p:.2g}; {detail}); {used}."


def size_association(
    D: Distributions | ArrayLike, y: LabelsLike, groups: LabelsLike | None = None, *, target: str = "classes"
) -> SizeAssociation:
    """Test whether the number of points of distributions is associated with their labels.

    Distances grow as distributions have fewer points: where numbers of points differ between classes, a method that
    uses all points tells the classes apart by their numbers. The Kruskal-Wallis test compares classes, Spearman's
    correlation numbers. With `groups`, the units are groups, each with the mean logarithm of its sizes; where labels
    vary within groups, labels are permuted within them.

    Parameters
    ----------
    D : Distributions or array-like of shape (n_distributions,)
        Distributions, or their numbers of points.
    y : array-like of shape (n_distributions,)
        Labels; distributions without one (None, NaN) are ignored. `y` and `groups` are matched by name.
    groups : array-like of shape (n_distributions,) or None, default=None
        Independent unit of each distribution (its patient); None: every distribution is one.
    target : {"classes", "ordered"}, default="classes"
        Whether labels are classes or numbers.

    Returns
    -------
    SizeAssociation

    Examples
    --------
    >>> from groundmetric.evaluation import size_association
    >>> size_association([30, 80, 40, 60, 20, 70], [1.0, 6.0, 3.0, 4.0, 0.5, 5.0], target="ordered").correlation
    1.0
    """
    if target not in ("classes", "ordered"):
        raise ValueError(f"target is {target!r}: expected 'classes' or 'ordered'")
    name_index = D.name_index if isinstance(D, Distributions) else NameIndex.of(D)
    sizes = D.with_mass().sizes if isinstance(D, Distributions) else np.asarray(real_array(D, "D"))
    labels, names = label_array(y, name_index), group_list(groups, name_index)
    if sizes.shape != labels.shape:
        raise ValueError(f"D has {sizes.size} sizes for {labels.size} labels: one is needed for each")
    labelled = ~missing_values(labels)
    units = np.unique(unit_codes(names, labels.size)[labelled], return_inverse=True)[1]
    counts, labels = sizes[labelled].astype(np.float64), labels[labelled]
    sizes = np.log(counts)
    if target == "classes":
        check_classes(labels)
        values, codes = np.unique(labels, return_inverse=True)
        medians = {value: float(np.median(counts[codes == c])) for c, value in enumerate(values.tolist())}
    else:
        codes, medians = np.asarray(real_array(labels, "y"), dtype=np.float64), {}
    p = np.nan
    if all(np.ptp(codes[units == unit]) == 0 for unit in range(int(units.max()) + 1)):
        means, labels_of_units = _unit_means(sizes, units), _unit_means(codes, units)
        if np.ptp(means) > 0 and np.ptp(labels_of_units) > 0 and means.size >= 4:
            if target == "ordered":
                p = stats.spearmanr(means, labels_of_units).pvalue
            else:
                p = stats.kruskal(*(means[labels_of_units == c] for c in np.unique(labels_of_units))).pvalue
    else:
        p = _p_within(sizes, codes, units, target)
    correlation = np.nan
    if target == "ordered" and np.ptp(sizes) > 0 and np.ptp(codes) > 0:
        correlation = float(stats.spearmanr(sizes, codes).statistic)
    return SizeAssociation(float(p), medians, correlation)


def _p_within(sizes: np.ndarray, codes: np.ndarray, units: np.ndarray, target: str) -> float:
    """Return the p-value by permutations within units, of sizes relative to the mean of their unit."""
    centred = sizes - _unit_means(sizes, units)[units]
    if np.ptp(centred) == 0 or np.ptp(codes) == 0:
        return np.nan
    ranks, random = stats.rankdata(centred) - 0.5 * (centred.size + 1), np.random.RandomState(0)

    def statistic(codes: np.ndarray) -> float:
        if target == "ordered":
            return abs(float(np.dot(ranks, codes - codes.mean())))
        return float(sum(ranks[codes == c].sum() ** 2 / np.sum(codes == c) for c in np.unique(codes)))

    order, observed, larger = np.argsort(units, kind="stable"), statistic(codes), 0
    for _ in range(_N_PERMUTATIONS):
        permuted = np.empty_like(codes)
        permuted[order] = codes[np.lexsort((random.random_sample(codes.size), units))]
        larger += statistic(permuted) >= observed * (1.0 - 1e-12)
    return (1 + larger) / (1 + _N_PERMUTATIONS)


def _unit_means(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    return np.bincount(units, values) / np.bincount(units)
