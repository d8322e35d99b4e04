"""The metric learner of the paper, and the validation of distributions that all estimators share."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from .._internal.parallel import InterruptedWarning, Threads, progress_bar
from .._internal.types import DistributionsLike, FilePath, LabelsLike, RandomState
from .._internal.validation import (
    NameIndex,
    align_by_name,
    group_list,
    labels_of_samples,
    number_groups,
    refuse_mask,
    resolve_seed,
)
from ..distances import GroundMetricMethod
from ..distributions import Distributions, gathered, named_rows, resolve_n_points, with_equal_points
from ..learning.checkpoint import Checkpoints, belonging
from ..learning.labels import (
    Distances,
    Kind,
    Supervision,
    check_class_sizes,
    hold_out,
    read_labels,
    read_strata,
    resolve_target,
    supervision,
)
from ..learning.objective import DiagonalModel, LinearModel, Penalty, has_vanished
from ..learning.training import (
    MIN_AGREEMENT,
    Checkpoint,
    CoincidingError,
    EarlyStopping,
    Fresh,
    Mapped,
    Nearest,
    Progress,
    Settings,
    Training,
    check_settings,
    resolve_form,
)
from ..learning.triplets import candidates
from ..metrics.base import Cost, GroundMetric
from ..metrics.forms import MappedMetric, fit_map, map_points, some_points
from ..transport.plan import Status
from ..transport.solvers.exact import Exact, warn_of_status

if TYPE_CHECKING:
    from ..ensemble import Target


def checked_distributions(estimator: Any, X: Any, *, reset: bool) -> Distributions:
    """Return distributions without points of zero mass; with `reset`, the estimator keeps the names of the features."""
    X = gathered(X)
    if not isinstance(X, Distributions):
        refuse_mask(X, "X")
        index, least = NameIndex.of(X), 2 if reset else 1
        rows = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=least
        )
        names = getattr(estimator, "feature_names_in_", None) if hasattr(X, "columns") else None
        return named_rows(Distributions(rows, np.arange(rows.shape[0]), features=names), index)
    if reset:
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
        if X.features is not None:
            estimator.feature_names_in_ = np.array(X.features, dtype=object)
    return X.with_mass()


class GroundMetricLearner(GroundMetricMethod, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn the ground metric of optimal transport from labels on distributions (GGML, Kühn & Schaub 2025).

    Find W such that, with d(x, y) = |W(x - y)| between points, distributions of one class are nearer to each other in
    Wasserstein distance than to distributions of other classes, by a margin. Every transport problem is solved
    exactly, and the gradient is exact.

    The result does not depend on units: features are standardised inside (and the scale folded back into W), the margin
    is measured in units of the mean distance at the start, and the penalty in units of its value there.

    Labels may be classes, ordered or continuous values, distances between distributions, or several labels; see
    `target`. Distributions without a label (None or NaN) are dropped before the features are standardised.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of rows of W (the rank k). None: 5, but at most the number of features; for a diagonal metric, only None.
    margin : float, default=1.0
        Distance by which other classes should be farther away (α), in units of the mean distance at the start.
    penalty : str, None or an object with ``value`` and ``gradient``, default="l2"
        Penalty on the components for standardised features: "l2" (Frobenius norm), "l2_squared", "l1" (sum of absolute
        values), "group" (sum of the norms of the columns) or "nuclear" (sum of singular values).
    strength : float, default=0.1
        Weight of the penalty (λ); with 1, the penalty at the start equals a violation by one mean distance.
    n_neighbors : int, default=3
        Neighbours (t) per anchor and class: up to t² (C - 1) triplets for every distribution, with C classes.
    neighbors : {"auto", "random", "nearest"} or Nearest, default="auto"
        Neighbours of an anchor. "random": drawn before training, as in the authors' code. "nearest": under the current
        metric, searched again every 5 epochs. "auto": random; if then fewer than half of the training distributions are
        nearest to one of their class (no strata, at most 1,000 distributions), learned again with nearest neighbours.
    init : {"discriminant", "random"} or array of shape (n_components, n_features), default="discriminant"
        First W: linear discriminants of the distributions' means, random entries, or an array for the original features
        (of a diagonal metric: of shape (n_features,)).
    learning_rate : float, default=0.01
        Step of Adam; falls to 0 over `max_epochs` along half a cosine.
    max_epochs : int, default=50
        Largest number of passes over all triplets; `stopping` may end learning earlier.
    batch_size : int, default=128
        Approximate number of triplets per step; all triplets of an anchor are in the same batch.
    form : {"linear", "diagonal"} or Mapped, default="linear"
        Form of the metric: a full W, or only a weight for each feature (W is diagonal); with ``Mapped(transformer)``,
        either form on the features that a scikit-learn transformer returns.
    cost : {"euclidean", "manhattan", "squared"}, default="euclidean"
        Cost of the step s = W(x - y): |s|, the sum of its absolute entries, or |s|². The last makes distances between
        distributions W2² instead of W1, which is not a metric, and the margin is in units of squared distances.
    target : {"classes", "ordered", "survival", "distances"}, an object or a list, default="classes"
        Kind of the labels. "classes": distributions of one class should be near each other. "ordered": numbers, or
        ordered categories of pandas; distances should increase with the difference of two values. "survival":
        right-censored times (a structured array or table with "event" and "time"), compared only if their order is
        certain. "distances": a matrix of target distances between the distributions (the paper's W*), NaN if unknown.
        A list: several labels. The objects of `groundmetric.learning` have a weight among several labels, and a gap.
    class_weight : {None, "balanced"}, default=None
        "balanced": each class makes up the same share of the loss. None: all triplets have the same weight.
    stopping : EarlyStopping or None, default=None
        Rule that stops learning before the last epoch, and the share of distributions that is held out for it.
    solver : Exact or None, default=None
        Solver of `groundmetric.transport`: `max_pivots` limits the simplex steps per pair (with a warning if the limit
        was reached), `memory` the megabytes of bases from which the next solves of the same pairs start warm.
    n_points : "equal", int or None, default="equal"
        Points of each distribution, also of `fresh`, that are drawn to learn from (`Distributions.equalize`):
        Wasserstein distances grow as distributions have fewer points, and a metric would be learned from their numbers.
        "equal": `Distributions.common_size`; None: all points, with this bias.
    nuisance : float, default=1.0
        Weight of a penalty on the share of the variance between distributions that `strata` explain beyond the labels;
        without `strata` it has no effect.
    checkpoint : Checkpoint, path-like or None, default=None
        File for the state of learning, from which the same fit continues after a crash or Ctrl-C, with the same result.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core. The result is the same for any number.
    random_state : int, RandomState or None, default=None
        Seed of the start, the triplets, the batches and the held-out distributions.
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        W for the original (or mapped) features; of a diagonal metric, the rows of features with non-zero weight.
    metric_, feature_map_ : GroundMetric, transformer
        The learned metric, and the fitted transformer if `form` is Mapped.
    history_ : dict of str to arrays
        An entry per epoch: loss, penalty, active (share of triplets within the margin), solved and saved (pairs),
        pivots, validation_loss, seconds_project, seconds_transport, seconds_gradient.
    n_iter_, converged_ : int, bool
        Number of finished epochs, and whether learning stopped by itself: the loss settled (see EarlyStopping), no
        triplet was within the margin, or the penalty had shrunk the metric to nearly 0.
    loss_ : float
        Last loss with penalty (the best held-out loss, if distributions are held out), in units of the mean distance at
        the start.
    classes_ : array
        Distinct labels in order (empty for distances). For several labels, an array with such an array for each.
    n_features_in_, feature_names_in_ : int, array of str
        Number of features of the points, and their names if the data have names.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=20, random_state=0).fit(D, y)
    >>> learner.metric_.importance().round(2).tolist()
    [1.0, 0.0]
    """

    def __init__(
        self, n_components: int | None = None, *, margin: float = 1.0, penalty: Penalty | str | None = "l2",
        strength: float = 0.1, n_neighbors: int = 3, neighbors: str | Nearest = "auto",
        init: ArrayLike = "discriminant", learning_rate: float = 0.01, max_epochs: int = 50, batch_size: int = 128,
        form: str | Mapped = "linear", cost: str = "euclidean", target: Kind | str | Sequence[Kind | str] = "classes",
        class_weight: str | None = None, stopping: EarlyStopping | None = None, solver: Exact | None = None,
        n_points: int | str | None = "equal", nuisance: float = 1.0, checkpoint: Checkpoint | FilePath | None = None,
        n_jobs: int | None = None, random_state: RandomState = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.margin = margin
        self.penalty = penalty
        self.strength = strength
        self.n_neighbors = n_neighbors
        self.neighbors = neighbors
        self.init = init
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.form = form
        self.cost = cost
        self.target = target
        self.class_weight = class_weight
        self.stopping = stopping
        self.solver = solver
        self.n_points = n_points
        self.nuisance = nuisance
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: DistributionsLike, y: LabelsLike, *, samples: LabelsLike | None = None,
        groups: LabelsLike | None = None, strata: LabelsLike | None = None, fresh: Fresh | None = None,
    ) -> GroundMetricLearner:  # fmt: skip
        """Learn the metric from labelled distributions, or from labelled points.

        Parameters
        ----------
        X : Distributions, array, sparse matrix, or sequence of arrays
            Distributions; or points as rows; or a list of arrays, one for each distribution.
        y : array-like
            Labels: one per distribution, or one per row of an array; a matrix of distances; or, for several labels, a
            table with a column for each, or a list of them. None, NaN, NaT or masked: no label. Labels that carry names
            (a Series, a dict, both sides of a table of distances) are matched to the names of the distributions (or the
            index of the rows), in any order; so are samples, groups and strata.
        samples : array-like of shape (n_points,) or None, default=None
            For points: distribution of each row. None: every row is a distribution of one point.
        groups : array-like or None, default=None
            Outer group of each distribution (the patient of a sample), never divided into training and held-out
            distributions. Without held-out distributions (`stopping`) they have no effect.
        strata : array-like or None, default=None
            Batch, site or donor of each distribution (or row), which the metric should ignore: distributions should
            be nearer to those of the same label in other strata than to those of other labels in their stratum.
        fresh : callable or None, default=None
            Function from the number of finished epochs to the Distributions of `X` with other points, from which the
            next epoch learns; all need a label. With a checkpoint, the same number must return the same points.
        """
        run, labels, held_out = self._train(X, y, samples=samples, groups=groups, strata=strata, fresh=fresh)
        if labels.strata is not None:
            relaxed = [c.relaxed for target in labels.targets for c in candidates(target, held_out, labels.strata)]
            if any(relaxed):
                warnings.warn(
                    f"{sum(relaxed)} of {len(relaxed)} distributions lack a distribution of the same label in another "
                    "stratum, or of another label in their stratum: they are compared with all strata, and the metric "
                    "may learn differences between strata from them",
                    UserWarning,
                    stacklevel=2,
                )
        self._warn_of(run)
        return self

    def _train(
        self, X: Any, y: Any, *, samples: Any = None, groups: Any = None, strata: Any = None, fresh: Fresh | None = None
    ) -> tuple[Progress, Supervision, np.ndarray]:
        """Fit without warnings; return the run, the supervision, and a mask of the held-out distributions."""
        transformer = resolve_form(self.form).transformer
        if fresh is not None:
            if not callable(fresh):
                raise TypeError(f"fresh is a {type(fresh).__name__}: expected a function from epochs to Distributions")
            if not isinstance(X, Distributions):
                raise ValueError(
                    "fresh is given, but X are points: give Distributions, whose points can be drawn again"
                )
            if transformer is not None:
                raise ValueError("fresh points are not mapped: leave out `fresh`, or the transformer of `form`")
        D, labels, patients = self._check_data(X, y, samples, groups, strata)
        D, fresh = self._with_equal_points(D, fresh)
        original = D
        if transformer is not None:
            self.feature_map_ = fit_map(transformer, D)
            D = map_points(self.feature_map_, D)
        settings = check_settings(self, D.shape[1])
        random = check_random_state(self.random_state)
        check_class_sizes(D, labels, self.classes_ if isinstance(self.target, list | tuple) else [self.classes_])
        centre, variance = D.moments(weighted=False)  # features are scaled by their points, independently of mass
        scale = np.where(variance > 0, np.sqrt(variance), 1.0)
        held_out = hold_out(labels.targets[0].levels, settings.stopping.validation_fraction, random, patients)
        model = self._model(settings, centre, scale)
        training = Training(D, labels, settings, model, scale, held_out, random)
        run = self._run(training, fresh)
        self._keep_metric(model.metric(run.kept, D.features, variance), original)
        self.history_ = {name: np.array(values) for name, values in run.history.items()}
        self.n_iter_, self.loss_, self.converged_ = run.n_epochs, float(run.best), run.converged
        return run, labels, held_out

    def transform(self, X: DistributionsLike) -> np.ndarray:
        """Return points (rows, or the `points` of Distributions) in the learned space, (n_points, n_components)."""
        check_is_fitted(self)
        X = gathered(X)
        if not isinstance(X, Distributions):
            X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return self.metric_.project(X)

    @property
    def _n_features_out(self) -> int:
        return self.metric_.n_components

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _check_data(
        self, X: Any, y: Any, samples: Any, groups: Any, strata: Any
    ) -> tuple[Distributions, Supervision, np.ndarray | None]:
        """Return the labelled distributions, their supervision, and their groups as numbers."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a label is needed per distribution")
        by_row = samples is not None
        X = X if by_row else gathered(X)
        if isinstance(X, Distributions):
            if by_row:
                raise ValueError("samples are given, but X are Distributions, which already have samples: leave it out")
            D, name_index = checked_distributions(self, X, reset=True), X.name_index
        else:
            if groups is not None and not by_row:
                raise TypeError(
                    "groups are given for points without samples: groups are patients that a split keeps together; "
                    "the distribution of each row is `samples`"
                )
            refuse_mask(X, "X")
            name_index = NameIndex.of(X, items="points")
            X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
            name_index = replace(name_index, n=X.shape[0])  # some array-likes have no length before the conversion
            if not isinstance(self.target, list | tuple) and not isinstance(resolve_target(self.target), Distances):
                check_consistent_length(X, y)
            of_row = align_by_name(samples, name_index, "samples") if by_row else np.arange(name_index.size)
            D = Distributions(X, of_row, features=getattr(self, "feature_names_in_", None)).with_mass()
            D = D if by_row else named_rows(D, name_index)
        labels = read_labels(y, self.target, name_index, D, by_row=by_row, class_weight=self.class_weight)
        labelled, supervised = supervision(labels, read_strata(strata, name_index, D, by_row=by_row))
        patients = number_groups(group_list(groups, name_index), name_index.size)
        if patients is not None:
            patients = (labels_of_samples(D, patients) if by_row else patients)[labelled]
        self.classes_ = labels[0].values
        if isinstance(self.target, list | tuple):
            self.classes_ = np.empty(len(labels), dtype=object)
            self.classes_[:] = [label.values for label in labels]
        return D if labelled.size == len(D) else D[labelled], supervised, patients

    def _with_equal_points(self, D: Distributions, fresh: Fresh | None) -> tuple[Distributions, Fresh | None]:
        """Draw the same number of points from all distributions, also from fresh ones."""
        n = resolve_n_points(self.n_points, D)
        if n is None:
            return D, fresh
        if fresh is None and np.all(D.effective_sizes <= n):  # nothing is drawn, and no seed is needed
            return with_equal_points(D, n, stacklevel=4), fresh
        # This advances a generator; a seed gives the same draws in every fit, and after a checkpoint.
        seed = resolve_seed(self.random_state)
        drawn = with_equal_points(D, n, random_state=seed, stacklevel=4)
        if fresh is None:
            return drawn, None
        return drawn, lambda epochs: with_equal_points(fresh(epochs), n, random_state=seed, warn=False)

    def _model(self, settings: Settings, centre: np.ndarray, scale: np.ndarray) -> LinearModel:
        cost = Cost.named(self.cost)
        if settings.form == "diagonal":
            return DiagonalModel(scale, centre, cost)
        return LinearModel(settings.n_components, scale, centre, cost)

    def _run(self, training: Training, fresh: Fresh | None) -> Progress:
        """Train to the end, or continue from the checkpoint, with a progress bar."""
        saving = None
        if self.checkpoint is not None:
            checkpoint = self.checkpoint if isinstance(self.checkpoint, Checkpoint) else Checkpoint(self.checkpoint)
            seed = self.random_state if isinstance(self.random_state, numbers.Integral) else None
            parameters: list[Any] = [asdict(training.settings), self.cost, self.class_weight, seed]
            # Without fresh points, the drawn points are part of the data.
            parameters += [] if fresh is None else ["fresh points", self.n_points]
            belongs_to = belonging(training.D, training.labels, parameters)
            saving = Checkpoints(checkpoint.path, float(checkpoint.every), belongs_to)
        with (
            saving or nullcontext(),
            Threads(self.n_jobs) as threads,
            progress_bar(self.max_epochs, "learning", "epoch", show=bool(self.verbose)) as bar,
        ):

            def show(history: dict[str, list[Any]]) -> None:
                held_out = history["validation_loss"][-1]
                shown = {"held-out loss": f"{held_out:.3f}"} if np.isfinite(held_out) else {}
                bar.set_postfix({"active triplets": f"{history['active'][-1]:.0%}", **shown}, refresh=False)
                bar.update()

            return training.run(threads, on_epoch=show, saving=saving, fresh=fresh)

    def _keep_metric(self, metric: Any, original: Distributions) -> None:
        """Set the attributes of the learned metric; metrics without components override this method."""
        self.components_ = metric.components
        self.metric_ = self._with_map(metric, original)

    def _with_map(self, metric: GroundMetric, original: Distributions) -> GroundMetric:
        """Return the metric for points with the original features."""
        if resolve_form(self.form).transformer is None:
            return metric
        names = getattr(self, "feature_names_in_", None)
        return MappedMetric(self.feature_map_, metric, original.shape[1], names, probes=some_points(original))

    def _warn_of(self, run: Progress) -> None:
        """Warn of an interruption, of solves at the pivot limit, and of a metric that the penalty has shrunk to 0."""
        if run.interrupted:
            message = f"interrupted after {self.n_iter_} of {self.max_epochs} epochs: the metric learned so far is kept"
            warnings.warn(message, InterruptedWarning, stacklevel=3)
        if run.stopped_pivoting:
            warn_of_status(Status.PIVOT_LIMIT, run.stopped_pivoting)
        if run.agreement < MIN_AGREEMENT and self.history_["active"][-1] == 0.0:
            message = (
                f"all training triplets are satisfied, but only {run.agreement:.0%} of the training distributions are "
                "nearest to one of their class: the metric does not generalise; give more `n_neighbors` or more data"
            )
        elif not np.any(getattr(self, "components_", True)):
            message = "the penalty has set the whole metric to 0, so all distances are 0: lower `strength`"
        elif has_vanished(self.history_, self.margin, self.strength):
            message = (
                f"a penalty of strength {self.strength:g} outweighs the labels: the metric has shrunk to nearly 0, and "
                "its direction is random; lower `strength`"
            )
        else:
            return
        warnings.warn(message, ConvergenceWarning, stacklevel=3)


def refine_weights(D: Distributions, target: Target, start: np.ndarray, seed: int, *, max_epochs: int) -> np.ndarray:
    """Learn weights of features from `start`, for an ensemble; return `start` if nothing can be learned."""
    # Weights of standardised features with the norm of the default start (entries of 1/16).
    init = start * (np.sqrt(start.size) / 16.0 / np.linalg.norm(start))
    learner = GroundMetricLearner(
        form="diagonal", init=init, strength=0.01, max_epochs=max_epochs, neighbors="random", n_points=None,
        random_state=seed, target=target.kind,
    )  # fmt: skip
    try:
        run = learner._train(D, target.labels, strata=target.strata)[0]
    except CoincidingError:
        return start
    if run.interrupted:
        raise KeyboardInterrupt("before all members of the ensemble had learned")
    components = learner.metric_.components
    if not np.any(components) or has_vanished(learner.history_, learner.margin, learner.strength):
        return start
    return np.abs(components).sum(axis=0)
