"""Ensemble of ground metrics with nested held-out predictions, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import column_or_1d

from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import (
    ParameterError,
    align_by_name,
    check_groups_per_class,
    check_labels,
    check_number,
    group_list,
    number_groups,
    resolve_seed,
)
from ..distances import GroundMetricMethod
from ..distributions import Distributions, SmallSampleWarning
from ..ensemble import KINDS, Classes, FittedEnsemble, Geometry, Numbers, Settings, Survival, Target
from ..learning.labels import read_labels, read_strata
from ..learning.survival import check_comparable, read_survival
from ..metrics.base import GroundMetric
from .learner import checked_distributions, refine_weights

TARGETS = ("classes", "ordered", "survival")
# Cross-validation folds that a user may give: members leave out every three folds, so their number grows with the third
# power of the number of folds.
_MAX_FOLDS = 12


def ordered_values(y: Any, D: Distributions) -> np.ndarray:
    """Return labels as numbers; of ordered categories (pandas), their ranks."""
    values = read_labels(y, "ordered", D.name_index, D, by_row=False)[0].target.values  # type: ignore[attr-defined]
    if np.isnan(values).any():
        raise ValueError("y contains a missing label: drop the distribution or label it")
    return values


def read_target(y: Any, target: str, D: Distributions) -> tuple[Target, np.ndarray]:
    """Return validated labels in the order of the distributions, and their classes (empty for other targets)."""
    if target not in TARGETS:
        raise ParameterError("target", target, f": expected one of {list(TARGETS)}")
    if target == "classes":
        classes, codes = np.unique(check_labels(y, D.name_index), return_inverse=True)
        return Classes(codes, classes.size), classes
    if target == "ordered":
        return Numbers.of(ordered_values(y, D)), np.empty(0)
    times = read_survival(y, D.name_index)
    check_comparable(times)
    return Survival.of_times(times), np.empty(0)


class Cohort:
    """Labels, groups, strata and folds of distributions in the order of their names, in which ensembles compute.

    ``D[order]`` is sorted by name, and ``result[inverse]`` is in the order of the input again. `classes` is empty for
    numbers and survival times; `strata` and `folds` are None if not given.
    """

    def __init__(self, D: Distributions, y: Any, target: str, groups: Any, strata: Any, cv: Any = None) -> None:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a label is needed per distribution")
        if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        named_groups = group_list(groups, D.name_index)
        codes = number_groups(named_groups, len(D))
        stratum = read_strata(strata, D.name_index, D, by_row=False)
        self.order = np.array(sorted(range(len(D)), key=lambda d: str(D.names[d])), dtype=np.intp)
        self.inverse = np.argsort(self.order)
        self.strata = None if stratum is None or np.ptp(stratum) == 0 else _renumbered(stratum[self.order])
        codes = np.arange(len(D)) if codes is None else codes[self.order]
        _, first, self.groups = np.unique(codes, return_index=True, return_inverse=True)
        self.group_names = [(named_groups or D.names)[d] for d in self.order[first]]
        unordered, self.classes = read_target(y, target, D)
        n_groups = len(self.group_names)
        if isinstance(unordered, Classes):
            labels = self.classes[unordered.codes]
            check_groups_per_class(labels, named_groups, 2, "one to train on and one to hold out")
        elif n_groups < 4:
            raise ValueError(f"{n_groups} independent distributions (groups) are there, but 4 are needed: add some")
        self.target = replace(unordered.subset(self.order), strata=self.strata)
        if self.strata is not None and not any(
            np.unique(self.target.labels[self.strata == s]).size >= 2 for s in np.unique(self.strata)
        ):
            raise ValueError(
                "labels do not differ within any stratum, so the effects of stratum and label cannot be separated: "
                "give coarser strata, or none"
            )
        folds = number_groups(align_by_name(cv, D.name_index, "cv"), len(D), "cv")
        self.folds = None if folds is None else _renumbered(folds[self.order])
        if self.folds is not None:
            for group, name in enumerate(self.group_names):
                if np.unique(self.folds[self.groups == group]).size > 1:
                    raise ValueError(f"cv divides group {name!r}: all its distributions must be in one fold")
            n_folds = int(self.folds.max()) + 1
            if not 2 <= n_folds <= _MAX_FOLDS:
                raise ParameterError("cv", f"{n_folds} folds", f": expected 2 to {_MAX_FOLDS}")


def _renumbered(codes: np.ndarray) -> np.ndarray:
    """Return codes 0, 1, 2, … in the order of their first appearance, which is that of the names."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


class GroundMetricEnsemble(GroundMetricMethod, BaseEstimator):
    """Ensemble of ground metrics with held-out predictions and out-of-bag distances.

    With few labelled distributions a single learned metric overfits. Here the groups (patients) are divided into
    cross-validation folds, and each ensemble member is a metric trained on a union of folds, in one of four ways. The
    first three are diagonal metrics on standardised features, the last is a low-rank metric:

    - "univariate": the weight of a feature is a moderated t statistic: how much farther distributions are from unlike
      than from like ones if only this feature is transported.
    - "anova": the weight is a moderated F statistic of the quantile functions of the feature.
    - "learned": the weights of "univariate" are the start of a `GroundMetricLearner` with a diagonal form.
    - "linear": W of ten rows, for at most 50 principal components, maximises the leave-one-out likelihood of the labels
      if each distribution is predicted by the others with weights exp(-distance).

    Each kind of member gives a *view* of the distributions, a kernel of transport distances in which the entry of two
    distributions averages the members that were trained on neither of their folds. Further views use no labels:
    Euclidean transport, means, means with standard deviations, kernel mean embeddings, and proportions of clusters of
    points. Kernel logistic (or ridge) regressions on the views are averaged by stacking weights, from their held-out
    likelihood; groups of similar views (diagonal metrics, summaries) have the same prior weight as a single view.

    The held-out prediction of a fold uses no label of the fold at any step: members, kernels, penalties and stacking
    weights are those of the other folds. All distributions are compared by equal numbers of points, drawn by name:
    results depend neither on the number of points nor on the order of the input.

    A "learned" member is trained on at most 128 distributions, a "linear" member on 40. In cohorts of more than 256
    distributions, each is compared with 128 landmarks, chosen by name: time and memory grow linearly.

    Parameters
    ----------
    n_members : int, default=14
        Members of each kind, at least: 4, 10, 14 or 30 members are trained, on 25, 40, 50 or 60 % of the folds. Cohorts
        with few groups per class get more members, which leave out less. A member needs two groups of each class.
    kinds : sequence of {"univariate", "anova", "learned", "linear"}, default=all
        Kinds of members, in any order.
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels: classes, numbers, or right-censored survival times. Predictors set it by their class.
    cv : array-like of shape (n_distributions,) or None, default=None
        Cross-validation fold of each distribution, matched by name where it carries names. None: 4 to 10 folds,
        balanced by label; the fold of a group depends on the seed and its name.
    max_points : int, default=100
        Points per distribution in transport problems, at most. All distributions are represented by the same number.
    max_epochs : int, default=10
        Epochs of "learned" members.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core. The result is the same for any number. Within
        ``joblib.parallel_config(backend="dask")``, members and folds are tasks of the cluster.
    random_state : int, RandomState or None, default=None
        Seed of folds, subsamples and members.
    verbose : int, default=0
        1 shows progress bars on a terminal, and an estimate of the time before long work.

    Attributes
    ----------
    metric_, metrics_ : GroundMetric, dict of str to GroundMetric
        Average of all members and of the Euclidean metric, from all labels. The same by modality; if several were
        given, `metric_` is absent.
    metric_weights_, weights_ : dict of str to float
        Weight of each kind of member, and of "euclidean", in `metric_`; stacking weight of each view in predictions of
        new distributions, from held-out predictions of all labels.
    held_out_, view_held_out_ : array of shape (n_distributions, n_classes) or (n_distributions,), dict of str to array
        Held-out probabilities of the classes, numbers, or expected percentiles of survival; the same by each view.
    score_, chance_ : float
        Mean held-out log-probability of the true class, with equal weight for all classes (within strata, where given);
        for numbers -log of the held-out error in standard deviations. `chance_` is the score of predictions that ignore
        the distributions.
    distances_ : array of shape (n_distributions, n_distributions)
        Distances between training distributions, averaged over views; each pair is measured by members that were
        trained on neither (with landmarks, other distances are interpolated). All members share features that are
        associated with the labels by chance, so a map of noise may still look separated:
        `p_values["map separation"]` of `evaluation.permutation_test` accounts for this.
    folds_ : array of int of shape (n_distributions,)
        Cross-validation fold of each distribution.
    members_, importances_ : list of Member, array of shape (n_all_members, n_features)
        The members, and the importance of each feature in them. Where a class has too few groups for a nested design,
        they leave out one fold or none: they give `metric_`, and predictions and `distances_` do not use them.
    small_ : list
        Names of distributions with fewer points than the common number of points.
    fitted_ : FittedEnsemble
        The geometry, views and models, in the order of the names.
    classes_ : array of shape (n_classes,)
        Classes in sorted order; empty for other targets.
    components_, n_features_in_ : array of shape (n_components, n_features), int
        The components of `metric_`, and the number of features of the points.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(n_members=4, random_state=0).fit(D, y)
    >>> bool((ensemble.held_out_.argmax(axis=1) == y).mean() > 0.9)
    True
    """

    takes_groups = True  # the evaluation passes outer groups (patients) on, which folds must not divide
    held_out_: np.ndarray
    metrics_: dict[str, GroundMetric]

    def __init__(
        self, n_members: int = 14, *, kinds: Sequence[str] = KINDS, target: str = "classes",
        cv: LabelsLike | None = None, max_points: int = 100, max_epochs: int = 10, n_jobs: int | None = None,
        random_state: RandomState = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.n_members = n_members
        self.kinds = kinds
        self.target = target
        self.cv = cv
        self.max_points = max_points
        self.max_epochs = max_epochs
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: DistributionsLike | Mapping[str, Distributions], y: LabelsLike, *,
        groups: LabelsLike | None = None, strata: LabelsLike | None = None,
    ) -> GroundMetricEnsemble:  # fmt: skip
        """Train the members on unions of folds, and predict every fold without its labels.

        Parameters
        ----------
        X : Distributions, array of shape (n_points, n_features) or dict of str to Distributions
            Training distributions. The rows of an array are distributions of one point each. A dict has the same
            distributions, in the same order, in several modalities, whose views are stacked together.
        y : array-like of shape (n_distributions,)
            Classes, numbers or survival times. Labels, groups and strata are matched by name if they carry names (a
            Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided by a fold.
        strata : array-like of shape (n_distributions,) or None, default=None
            Stratum (batch, site) of each distribution. Statistics of features are computed within strata, and classes
            have equal weight in each stratum: differences between strata do not predict the label.
        """
        cohort, geometries, settings = prepare_fit(self, X, y, groups, strata)
        fitted, back = fit_cohort(geometries, cohort, settings), cohort.inverse
        self.fitted_, self.classes_, self.folds_ = fitted, cohort.classes, fitted.folds[back]
        self.held_out_ = fitted.target.decode(fitted.held_out.predictions[back])
        by_view = fitted.target.decode(fitted.held_out.by_view[:, back])
        self.view_held_out_ = dict(zip(fitted.view_names, by_view, strict=True))
        self.score_, self.chance_, self.weights_ = fitted.score, fitted.chance, fitted.weights
        self.distances_ = fitted.distances[np.ix_(back, back)]
        self.metrics_ = {name: fitted.metric(name) for name in geometries}
        self.small_ = list(dict.fromkeys(g.names[d] for g in geometries.values() for d in g.description.small))
        if "" in geometries:
            self.metric_, self.metric_weights_ = self.metrics_[""], fitted.metric_weights()
            self.components_ = self.metric_.components
            self.members_ = [replace(member, trained_on=member.trained_on[back]) for member in fitted.members[""]]
            scaling = fitted.geometries[""].scaling
            squares = [member.squares(scaling) for member in self.members_]
            self.importances_ = np.array(squares).reshape(-1, self.n_features_in_)
        if self.small_:
            n_points = min(geometry.scaling.n_points for geometry in geometries.values())
            warnings.warn(SmallSampleWarning(self.small_, n_points), stacklevel=2)
        return self

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


def prepare_fit(
    ensemble: GroundMetricEnsemble, X: Any, y: Any, groups: Any = None, strata: Any = None
) -> tuple[Cohort, dict[str, Geometry], Settings]:
    """Validate the input of `fit`; return its labels, the geometry of each modality (one: ""), and settings."""
    if isinstance(X, Mapping) and not sparse.issparse(X):  # scipy's dok_matrix is a dict
        parts = {name: D.with_mass() for name, D in X.items()}
        ensemble.n_features_in_ = sum(D.shape[1] for D in parts.values())
    else:
        parts = {"": checked_distributions(ensemble, X, reset=True)}
    cohort = Cohort(next(iter(parts.values())), y, ensemble.target, groups, strata, ensemble.cv)
    for name in ("n_members", "max_points", "max_epochs"):
        check_number(name, getattr(ensemble, name), low=1, whole=True)
    kinds = list(ensemble.kinds)
    if not kinds or any(kind not in KINDS for kind in kinds):
        raise ParameterError("kinds", ensemble.kinds, f": expected a list of some of {list(KINDS)}")
    if len(set(kinds)) < len(kinds):
        raise ParameterError("kinds", ensemble.kinds, ": expected each kind once; `n_members` says how many of each")
    kinds.sort(key=KINDS.index)
    seed, refine = resolve_seed(ensemble.random_state), partial(refine_weights, max_epochs=ensemble.max_epochs)
    settings = Settings(kinds, ensemble.n_members, seed, refine, ensemble.n_jobs, bool(ensemble.verbose))
    geometries = {
        name: Geometry(parts[name][cohort.order], seed, ensemble.max_points, cohort.strata, ensemble.n_jobs)
        for name in sorted(parts)
    }
    return cohort, geometries, settings


def fit_cohort(
    geometries: dict[str, Geometry], cohort: Cohort, settings: Settings, target: Target | None = None
) -> FittedEnsemble:
    """Fit an ensemble to the geometries of a cohort, one for each modality; `target` replaces its labels."""
    target = cohort.target if target is None else target
    return FittedEnsemble.fit(geometries, target, cohort.groups, cohort.group_names, settings, cohort.folds)
