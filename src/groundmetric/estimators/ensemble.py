"""An ensemble of ground metrics: learned from parts of the cohort, judged on the rest, and one metric in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._internal.executor import progress_bar
from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import Roll, check_labels, check_number, refuse_mask
from ..distributions import Distributions, gathered, named_rows
from ..learning.features import within_strata
from ..metrics.base import GroundMetric
from ..supervision.labels import read_labels, read_strata
from ..supervision.splits import check_class_sizes, folds, group_list, leave_one_group_out, number_groups
from ._averages import average_metric, of_unit_spread
from ._base import GroundMetricMethod
from ._kernel import Reading, balanced_weights, log_likelihood, read_kernel, read_votes, similarities, unit_of
from ._members import KINDS, Geometry, Labels, learn_member, out_of_bag, parts

# The kind of member that does not look at labels: what the others are shrunk to.
EUCLIDEAN = "euclidean"
# The view by votes of the nearest, under the members of the last kind.
VOTES = "votes"
# Log-likelihood that means alone have ahead: where nothing says much, the simplest view decides.
_HANDICAP = 0.3
# Folds of held-out predictions: the fewer distributions, the more of them each model needs.
_N_FOLDS = 5
_N_FOLDS_OF_FEW = 8
_FEW = 20


@dataclass(frozen=True)
class View:
    """One way to compare distributions, and what it says about those that were left out.

    Attributes
    ----------
    name : str
        Kind of member, "euclidean", "means" or "votes".
    kernel : array of shape (n_distributions, n_distributions)
        Similarities between training distributions, out of bag where labels were learned from; of votes, distances.
    unit : float
        Distance at which the similarity is 1/e; of means, the number of features.
    reading : Reading
        Held-out predictions, and the strength that served them.
    weight : float
        Share in the metric and in predictions.
    """

    name: str
    kernel: np.ndarray
    unit: float
    reading: Reading
    weight: float = 0.0


def checked_distributions(estimator: Any, X: Any, *, reset: bool) -> Distributions:
    """Distributions of points with mass; the rows of an array, as scikit-learn checks them, are one point each.

    With `reset` the estimator keeps the number and the names of the features; else those of an array are compared.
    """
    X = gathered(X)
    if not isinstance(X, Distributions):
        refuse_mask(X, "X")
        roll, least = Roll.of(X), 2 if reset else 1
        rows = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=least
        )
        named = getattr(estimator, "feature_names_in_", None) if hasattr(X, "columns") else None
        return named_rows(Distributions(rows, np.arange(rows.shape[0]), features=named), roll)
    if reset:
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
        if X.features is not None:
            estimator.feature_names_in_ = np.array(X.features, dtype=object)
    return X.with_mass()


def ordered_values(y: Any, D: Distributions) -> np.ndarray:
    """Labels as numbers; of ordered categories (pandas), their ranks."""
    values = read_labels(y, "ordered", D.roll, D, by_row=False)[0].target.values  # type: ignore[attr-defined]
    if np.isnan(values).any():
        raise ValueError("y contains a missing label: drop the distribution or label it")
    return values


def _check_kinds(kinds: Sequence[str]) -> None:
    found = [kinds] if isinstance(kinds, str) else list(kinds)
    if isinstance(kinds, str) or not found or any(kind not in KINDS for kind in found):
        raise ValueError(f"kinds is {kinds!r}: expected a list of some of {list(KINDS)}")
    if len(set(found)) < len(found):
        raise ValueError(f"kinds is {kinds!r}: expected each kind once; `n_members` says how many there are of each")


def _fewest_groups(labels: np.ndarray, groups: np.ndarray) -> int:
    """Groups of the class that has the fewest."""
    return min(np.unique(groups[labels == c]).size for c in np.unique(labels))


def _steps(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Quarters of the values, for folds of which each has low and high ones; of few groups, thirds or halves."""
    rank = np.argsort(np.argsort(values))
    for count in (4, 3, 2):
        found = rank * count // values.size
        if np.unique(found).size == count and _fewest_groups(found, groups) >= 2:
            return found
    raise ValueError(
        f"{values.size} distributions in {np.unique(groups).size} groups: low and high values are needed in two groups "
        "each, one to learn from and one that is left out; add distributions, or leave out `groups` if they are none"
    )


class GroundMetricEnsemble(GroundMetricMethod, BaseEstimator):
    """A ground metric from many, each learned from a part of the distributions and judged on the rest.

    With few labelled distributions a single learned metric fits their accidents. Here every member learns from half of
    the groups (patients), in one of three ways:

    - "univariate": a weight for each feature, by how much farther distributions are from unlike than from like ones
      when only this feature is transported (a t statistic over distributions). In one dimension transport is a sort.
    - "anova": a weight by the variance between distributions that the labels explain, over the rest (F).
    - "learned": the weights of "univariate" as start of a `GroundMetricLearner` with a diagonal form.

    Distances between training distributions are averaged over the members that were not learned from both of them (out
    of bag). From these, and from Euclidean distances and from means alone, a kernel model predicts distributions that
    are left out; so do the votes of the nearest under the last kind. The kinds are weighted by how much better than
    chance that is; where Euclidean distances serve as well, the result is shrunk to them. One set of fits so gives the
    metric, distances that hold for others, a held-out score, how stable each feature is, and, refitted with labels
    permuted, a p-value.

    Parameters
    ----------
    n_members : int, default=8
        Members of each kind.
    kinds : sequence of {"univariate", "anova", "learned"}, default=("univariate", "anova", "learned")
        Kinds of members.
    target : {"classes", "ordered"}, default="classes"
        Kind of the labels: classes, or numbers.
    max_points : int, default=100
        Points of each distribution that a member draws at most; each member draws others.
    max_epochs : int, default=10
        Epochs of members that are learned.
    n_jobs : int or None, default=None
        Members at the same time, as processes of joblib; None means one, -1 one per core.
    random_state : int, RandomState or None, default=None
        Seed of the parts, the draws and the learners.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Attributes
    ----------
    metric_ : GroundMetric
        Weighted average of all members and of the Euclidean metric.
    weights_ : dict of str to float
        Weight of each kind in `metric_`, and of "euclidean".
    distances_ : array of shape (n_distributions, n_distributions)
        Distances between training distributions out of bag, in units of their mean; Euclidean ones where every member
        has learned from a distribution (in a class of two).
    held_out_ : array of shape (n_distributions, n_classes) or (n_distributions,)
        Probabilities of the classes, or numbers, predicted for each training distribution while it was left out.
    score_ : float
        Mean log-probability of the true class in `held_out_`, classes counting the same (with strata, within each); of
        numbers in units of their standard deviation, the log-likelihood per distribution. The penalties and the weights
        of the kinds by which a fold is predicted are those that serve the other folds best.
    importances_ : array of shape (n_all_members, n_features)
        Importance of each feature in each member.
    members_ : list of Member
        The members.
    classes_ : array of shape (n_classes,)
        Classes in sorted order; of numbers, none.
    components_ : array of shape (n_components, n_features)
        The components of `metric_`.
    n_features_in_ : int
        Number of features of the points.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(n_members=4, random_state=0).fit(D, y)
    >>> bool((ensemble.held_out_.argmax(axis=1) == y).mean() > 0.9)
    True
    """

    takes_groups = True  # the evaluation hands outer groups (patients) over, so that parts do not divide them
    held_out_: np.ndarray

    def __init__(
        self,
        n_members: int = 8,
        *,
        kinds: Sequence[str] = KINDS,
        target: str = "classes",
        max_points: int = 100,
        max_epochs: int = 10,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_members = n_members
        self.kinds = kinds
        self.target = target
        self.max_points = max_points
        self.max_epochs = max_epochs
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> GroundMetricEnsemble:
        """Learn the members from parts of the distributions, and weight them by what they say about the rest.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Classes or numbers; matched by name where they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided between a part and the rest;
            matched by name where they carry names.
        strata : array-like of shape (n_distributions,) or None, default=None
            Stratum (batch, site) of each distribution; matched by name where they carry names. Features are judged by
            what is left of them within strata, metrics learned by comparisons across them, and every class counts the
            same in each stratum, so that what sets strata apart does not tell the label. Numbers are taken relative to
            the mean of their stratum.

        Returns
        -------
        GroundMetricEnsemble
            The estimator itself.
        """
        D, labels = self._check(X, y, groups, strata)
        random = check_random_state(self.random_state)
        geometry = Geometry(D, self.max_points, self.n_members, random, labels.strata)
        self._learn_members(geometry, labels, int(random.randint(2**31)))
        self._average()
        if self.target == "ordered":
            self.held_out_ = self._mean + self._spread * self.held_out_
        return self

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _check(self, X: Any, y: Any, groups: Any, strata: Any) -> tuple[Distributions, Labels]:
        """The distributions, and what is known of them as numbers."""
        for name in ("n_members", "max_points", "max_epochs"):
            check_number(name, getattr(self, name), low=1, whole=True)
        _check_kinds(self.kinds)
        if self.target not in ("classes", "ordered"):
            raise ValueError(f"target is {self.target!r}: expected 'classes' or 'ordered'")
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a label is needed per distribution")
        D = checked_distributions(self, X, reset=True)
        groups, strata = group_list(groups, D.roll), read_strata(strata, D.roll, D, by_row=False)
        strata = None if strata is None or np.ptp(strata) == 0 else strata
        codes: np.ndarray
        if self.target == "ordered":
            self.classes_ = np.empty(0)
            codes = ordered_values(y, D)
            self._mean = float(codes.mean())
            codes = within_strata(codes, strata)
            self._spread = float(codes.std()) or 1.0
            codes = codes / self._spread
        else:
            named = check_labels(y, D.roll)
            check_class_sizes(named, groups, 2, "one to learn from and one that is left out")
            classes, codes = np.unique(named, return_inverse=True)
            self.classes_ = classes
        numbers = number_groups(groups, len(D))
        labels = Labels(codes, np.arange(len(D)) if numbers is None else numbers, strata)
        if strata is not None and not labels.comparable(np.ones(len(D), dtype=bool)):
            raise ValueError(
                "every stratum has labels of one kind only, so that batch and label cannot be told apart in this "
                "cohort: give coarser strata, or none"
            )
        return D, labels

    def _learn_members(self, geometry: Geometry, labels: Labels, seed: int) -> None:
        """All that depends on labels, but for the average."""
        self._geometry, self._labels, self._seed = geometry, labels, seed
        self._codes, self._strata = labels.codes, labels.strata
        inside = parts(labels, self.n_members, np.random.RandomState(seed))
        tasks = [(kind, draw) for kind in self.kinds for draw in range(self.n_members)]
        with progress_bar(len(tasks), "ensemble", "member", show=bool(self.verbose)) as bar:
            self.members_ = []
            jobs = Parallel(n_jobs=self.n_jobs, return_as="generator")
            for member in jobs(
                delayed(learn_member)(geometry, labels, kind, draw, inside[draw], self.max_epochs, seed)
                for kind, draw in tasks
            ):
                self.members_.append(member)
                bar.update()
        self.importances_ = np.array([member.metric.importance() for member in self.members_])
        self._read(self._folds(labels.codes, labels.groups, seed))

    def _folds(self, codes: np.ndarray, groups: np.ndarray, seed: int) -> list[np.ndarray]:
        labels = codes if self.classes_.size else _steps(codes, groups)
        most = _N_FOLDS_OF_FEW if codes.size <= _FEW else _N_FOLDS
        n_splits = min(most, _fewest_groups(labels, groups))
        try:
            found = folds(labels, groups=groups.tolist(), n_splits=n_splits, random_state=seed)
        except ValueError:  # groups of several classes: a fold would have taken all of a class
            found = leave_one_group_out(groups.tolist())
        return [np.isin(np.arange(codes.size), test) for _, test in found]

    def _read(self, fold: list[np.ndarray]) -> None:
        """Held-out predictions of every view, and their weights by what they gain over chance."""
        geometry, codes, n_classes = self._geometry, self._codes, self.classes_.size
        means, euclidean = geometry.own_means, geometry.euclidean_distances
        kernels = {"means": (means @ means.T, 0.0), EUCLIDEAN: _kernel(euclidean)}
        for kind in self.kinds:
            voting = out_of_bag([m for m in self.members_ if m.kind == kind], euclidean)
            kernels[kind] = _kernel(voting)
        readings = {name: read_kernel(k, codes, fold, n_classes, self._strata) for name, (k, _) in kernels.items()}
        kernels[VOTES] = (voting, 0.0)  # of the last kind
        readings[VOTES] = read_votes(voting, codes, self._labels.groups, n_classes)
        said = {name: reading.held_out for name, reading in readings.items()}
        weights = balanced_weights(codes, self._strata) if n_classes else None
        chance = _without_data(codes, fold, n_classes)
        share = _shares(said, chance, codes, weights)
        self._views = [View(name, *kernels[name], readings[name], share[name]) for name in kernels]
        self.held_out_ = np.empty_like(chance)
        for part in fold:
            rest = {name: held_out[~part] for name, held_out in said.items()}
            share = _shares(rest, chance[~part], codes[~part], None if weights is None else weights[~part])
            self.held_out_[part] = np.sum([share[name] * held_out[part] for name, held_out in said.items()], axis=0)
        self.score_ = log_likelihood(self.held_out_, codes, weights) / codes.size

    def _average(self) -> None:
        """One metric: the members by the weights of their kinds, and the Euclidean one."""
        weights = {view.name: view.weight for view in self._views if view.name not in ("means", VOTES)}
        weights[self.kinds[-1]] += next(view.weight for view in self._views if view.name == VOTES)
        total = sum(weights.values())
        self.weights_ = {name: w / total if total > 0 else float(name == EUCLIDEAN) for name, w in weights.items()}
        D, euclidean = self._geometry.D, self._geometry.euclidean
        squares = np.zeros(D.shape[1])  # the components of a member are weights of single features
        for member in self.members_:
            metric = of_unit_spread(member.metric, D)
            squares += self.weights_[member.kind] / self.n_members * np.square(metric.components).sum(axis=0)
        used = np.flatnonzero(squares)
        metrics, each = [euclidean], [self.weights_[EUCLIDEAN]]
        if used.size:
            components = np.zeros((used.size, squares.size))
            components[np.arange(used.size), used] = np.sqrt(squares[used])
            metrics, each = [GroundMetric(components), *metrics], [1.0, *each]
        self.metric_ = average_metric(metrics, each, D)
        self.components_ = self.metric_.components
        learned = [m for m in self.members_ if self.weights_[m.kind] > 0] or self.members_
        self.distances_ = out_of_bag(learned, self._geometry.euclidean_distances)

    def relabelled(
        self, codes: ArrayLike, *, kinds: Sequence[str] = KINDS[:2], n_members: int = 2
    ) -> GroundMetricEnsemble:
        """An ensemble of the same distributions with other labels, smaller and without its metric: for permutations.

        Parameters
        ----------
        codes : array of shape (n_distributions,)
            Classes as indices of `classes_`, or numbers.
        kinds : sequence of str, default=("univariate", "anova")
            Kinds of members; those that need no learning are quick.
        n_members : int, default=2
            Members of each kind, at most those of this ensemble.

        Returns
        -------
        GroundMetricEnsemble
            With `held_out_`, `score_` and `importances_`.
        """
        check_is_fitted(self, "metric_")
        other = clone(self).set_params(n_jobs=None, verbose=0, kinds=kinds, n_members=min(n_members, self.n_members))
        other.classes_ = self.classes_
        other._learn_members(self._geometry, replace(self._labels, codes=np.asarray(codes)), self._seed)
        return other


def _kernel(distances: np.ndarray) -> tuple[np.ndarray, float]:
    unit = unit_of(distances)
    return similarities(distances, unit), unit


def _shares(
    said: dict[str, np.ndarray], chance: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> dict[str, float]:
    """Weights of the views by what they gain over chance in predicting these distributions."""
    least = log_likelihood(chance, codes, weights)
    gains = {name: max(log_likelihood(held_out, codes, weights) - least, 0.0) for name, held_out in said.items()}
    gains["means"] += _HANDICAP
    return {name: gain / sum(gains.values()) for name, gain in gains.items()}


def _without_data(codes: np.ndarray, fold: list[np.ndarray], n_classes: int) -> np.ndarray:
    """What would be predicted without looking at the distributions: equal chances, or the mean of the other folds."""
    if n_classes:
        return np.full((codes.size, n_classes), 1.0 / n_classes)
    found = np.empty(codes.size)
    for part in fold:
        found[part] = codes[~part].mean()
    return found
