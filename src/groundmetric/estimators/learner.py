"""The metric learner: input, settings and labels checked, training run and checkpointed, warnings given."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from .._internal.parallel import InterruptedWarning, Threads, progress_bar
from .._internal.types import DistributionsLike, FilePath, LabelsLike, RandomState
from .._internal.validation import NameIndex, align_by_name, refuse_groups, refuse_mask, resolve_seed
from ..distributions import Distributions, gathered, named_rows, resolve_n_points, with_equal_points
from ..learning.checkpoint import Checkpoints, Saving, belonging
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
from ..learning.objective import DiagonalModel, LinearModel, Model
from ..learning.penalties import Penalty, has_vanished
from ..learning.training import (
    Checkpoint,
    CoincidingError,
    EarlyStopping,
    Fresh,
    Mapped,
    Nearest,
    Outcome,
    Settings,
    Training,
    check_settings,
    resolve_checkpoint,
    resolve_form,
    resolve_stopping,
)
from ..learning.triplets import candidates
from ..metrics.base import Cost, GroundMetric
from ..metrics.forms import MappedMetric, fit_map, map_points, some_points
from ..transport.solvers.exact import Exact, warn_of_pivot_limit
from ._base import GroundMetricMethod


class GroundMetricLearner(GroundMetricMethod, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn the ground metric of optimal transport from labels on distributions (GGML, Kühn & Schaub 2025).

    Finds W such that, with d(x, y) = |W(x - y)| between points, distributions of one class are nearer to each other in
    Wasserstein distance than to distributions of other classes, by a margin. Every transport problem is solved
    exactly, and the gradient is exact.

    Units do not matter: features are standardised inside (and the scale folded back into W), the margin is measured in
    units of the mean distance at the start, and the penalty in units of its value there.

    Labels may be classes, ordered or continuous values, distances between distributions, or several of these; see
    `target`. Distributions without a label (None or NaN) are left out, of the standardisation too.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of rows of W (the rank k). None: 5, or the number of features where that is less. A diagonal metric has
        one per feature, and needs None.
    margin : float, default=1.0
        Distance by which other classes should be farther away (α), in units of the mean distance at the start.
    penalty : str, None or an object with ``value`` and ``gradient``, default="l2"
        Penalty on the components for standardised features: "l2" (Frobenius norm), "l2_squared" (its square), "l1"
        (sum of absolute values), "group" (sum of the norms of the columns) or "nuclear" (sum of singular values). See
        `groundmetric.learning`.
    strength : float, default=0.1
        Weight of the penalty (λ); 1 makes it as large at the start as a violation by one mean distance.
    n_neighbors : int, default=3
        Neighbours (t) per anchor and class: up to t² (C - 1) triplets for every distribution, with C classes.
    neighbors : {"random", "nearest"} or Nearest, default="random"
        Choice of the neighbours: once at random, or those nearest under the present metric, again every few epochs.
    init : {"discriminant", "random"} or array of shape (n_components, n_features), default="discriminant"
        First W: linear discriminants of the distributions' means, random entries, or the given array, for features as
        given (of a diagonal metric, weights of shape (n_features,)).
    learning_rate : float, default=0.01
        Step of Adam; falls to 0 over `max_epochs` along half a cosine.
    max_epochs : int, default=50
        Passes over all triplets at most; `stopping` may end learning before.
    batch_size : int, default=128
        Triplets per step, about. All triplets of an anchor are in the same batch, and random neighbours come from the
        anchors of the batch, as far as there are enough: they share distances.
    form : {"linear", "diagonal"} or Mapped, default="linear"
        Form of the metric: a full W, or only a weight for each feature (W is diagonal); with ``Mapped(transformer)``,
        either of these on the features that a scikit-learn transformer returns.
    cost : {"euclidean", "manhattan", "squared"}, default="euclidean"
        Cost of the step s = W(x - y): |s|, the sum of its absolute entries, or |s|². The last makes distances between
        distributions W2² instead of W1: no metric, and the margin is in units of squared distances.
    target : {"classes", "ordered", "survival", "distances"}, an object or a list of these, default="classes"
        Kind of the labels. "classes": those of one class belong together. "ordered": numbers, or ordered categories of
        pandas; the farther apart two values, the farther apart their distributions. "survival": right-censored times (a
        structured array or table with "event" and "time"), learned from where their order is certain. "distances": a
        matrix of target distances between the distributions (the paper's W*), NaN where one is not known. A list:
        several labels. The objects (Classes, Ordered, Survival, Distances) have a weight among several labels, and all
        but classes a gap; see `groundmetric.learning`.
    class_weight : {None, "balanced"}, default=None
        "balanced": each class makes up the same share of the loss, however many distributions it has. None: all
        triplets count the same, so that classes of more distributions make up more.
    stopping : EarlyStopping or None, default=None
        Rule by which learning stops before the last epoch, and the share of distributions that is held out for it.
    solver : Exact or None, default=None
        Solver of `groundmetric.transport`: `max_pivots` limits the simplex steps per pair (a warning says if the limit
        was reached), `memory` the megabytes of bases from which the next solves of the same pairs start warm.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution to learn from, drawn at random (`Distributions.equalize`): Wasserstein
        distances grow as distributions have fewer points, and a metric would be learned from their numbers. "equal":
        `Distributions.common_size`; None: all points, with this bias. Points from `fresh` are drawn likewise.
    nuisance : float, default=1.0
        Weight of a penalty on the share of the variance between distributions that `strata` explain beyond the labels;
        without `strata` it has no effect.
    checkpoint : Checkpoint, path-like or None, default=None
        File for the state of learning, from which the same fit continues after an accident or Ctrl-C, with the same
        result. A file that is no checkpoint is refused.
    n_jobs : int or None, default=None
        Number of threads; None means one, -1 one per core. The result is the same for any number.
    random_state : int, RandomState or None, default=None
        Seed of the start, the triplets, the batches and the held-out distributions.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        W for the features as given, or for mapped features where `form` is Mapped. Of a diagonal metric, only the rows
        of features whose weight is not 0.
    metric_ : GroundMetric
        The learned metric.
    feature_map_ : transformer
        The fitted transformer, where `form` is Mapped.
    history_ : dict of str to arrays
        An entry per epoch: loss, penalty, active (share of triplets within the margin), solved and saved (pairs),
        pivots, validation_loss, seconds_project, seconds_transport, seconds_gradient.
    n_iter_ : int
        Number of epochs done.
    converged_ : bool
        Whether learning stopped by itself: the loss settled (see EarlyStopping), no triplet was within the margin, or
        the penalty had shrunk the metric to nearly 0.
    loss_ : float
        Last loss with penalty (the best held-out loss where there is one), in units of the mean distance at the start.
    classes_ : array
        The labels in order (of ordered ones, the values that occur; of distances, none). Of several labels, an array
        with such an array for each.
    n_features_in_ : int
        Number of features of the points.
    feature_names_in_ : array of str
        Names of the features, where the data have names.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=20, random_state=0).fit(D, y)
    >>> learner.metric_.importance().round(2).tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        margin: float = 1.0,
        penalty: Penalty | str | None = "l2",
        strength: float = 0.1,
        n_neighbors: int = 3,
        neighbors: str | Nearest = "random",
        init: ArrayLike = "discriminant",
        learning_rate: float = 0.01,
        max_epochs: int = 50,
        batch_size: int = 128,
        form: str | Mapped = "linear",
        cost: str = "euclidean",
        target: Kind | str | Sequence[Kind | str] = "classes",
        class_weight: str | None = None,
        stopping: EarlyStopping | None = None,
        solver: Exact | None = None,
        n_points: int | str | None = "equal",
        nuisance: float = 1.0,
        checkpoint: Checkpoint | FilePath | None = None,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
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
        self,
        X: DistributionsLike,
        y: LabelsLike,
        samples: LabelsLike | None = None,
        strata: LabelsLike | None = None,
        *,
        fresh: Fresh | None = None,
        **other: Any,
    ) -> GroundMetricLearner:
        """Learn the metric from labelled distributions, or from labelled points.

        Parameters
        ----------
        X : Distributions, array, sparse matrix, or sequence of these
            Distributions; or points as rows; or a list of arrays, one for each distribution.
        y : array-like
            Labels: one per distribution, or one per row of an array; a matrix of distances; or, for several labels, a
            table with a column for each, or a list of them. None, NaN, NaT or masked: no label. Labels that carry names
            (a Series, a dict, both sides of a table of distances) are matched to the names of the distributions (or the
            index of the rows), in any order; so are samples and strata.
        samples : array-like of shape (n_points,) or None, default=None
            For points: distribution that each row belongs to. None: every row is a distribution of its own, and this is
            metric learning on points.
        strata : array-like or None, default=None
            Batch, site or donor of each distribution (or row), which the metric should not learn: distributions should
            be nearer to those of like label in other strata than to those of unlike label in their own.
        fresh : callable or None, default=None
            Function from the number of epochs done to the Distributions of `X` with other points, from which the next
            epoch learns; all need a label. With a checkpoint, the same number must return the same points.
        **other : Any
            Refused with a TypeError; for `groups`, the error says that `samples` is meant.

        Returns
        -------
        GroundMetricLearner
            The learner itself.
        """
        refuse_groups(other, "fit")
        run, known, held_out = self._train(X, y, samples, strata, fresh)
        _warn_of_strata(known, held_out)
        self._warn_of(run)
        return self

    def _train(
        self, X: Any, y: Any, samples: Any = None, strata: Any = None, fresh: Fresh | None = None
    ) -> tuple[Outcome, Supervision, np.ndarray]:
        """Fit without warnings; return the run, the supervision, and which distributions were held out."""
        self._check_fresh(X, fresh)
        D, known = self._check_data(X, y, samples, strata)
        D, fresh = self._with_equal_points(D, fresh)
        D, raw = self._map(D), D
        settings = check_settings(self, D.shape[1])
        random = check_random_state(self.random_state)
        check_class_sizes(D, known, self.classes_ if isinstance(self.target, list | tuple) else [self.classes_])
        centre, variance = D.moments(weighted=False)  # units are those of the points, whatever mass they have
        scale = np.where(variance > 0, np.sqrt(variance), 1.0)
        held_out = hold_out(known.targets[0].levels, resolve_stopping(self.stopping).validation_fraction, random)
        model = self._model(settings, centre, scale)
        training = Training(D, known, settings, model, scale, held_out, random)
        run = self._run(training, fresh)
        self._keep(run, model.metric(run.kept, D.features, variance), raw)
        return run, known, held_out

    def transform(self, X: DistributionsLike) -> np.ndarray:
        """Project points to the learned space.

        Parameters
        ----------
        X : Distributions, array or sparse matrix of shape (n_points, n_features)
            Points as rows; of Distributions, their `points` in order.

        Returns
        -------
        array of shape (n_points, n_components)
            The projected points.
        """
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

    def _with_equal_points(self, D: Distributions, fresh: Fresh | None) -> tuple[Distributions, Fresh | None]:
        """Draw the same number of points from all distributions, of fresh points as well."""
        n = resolve_n_points(self.n_points, D)
        if n is None:
            return D, fresh
        if fresh is None and np.all(D.effective_sizes <= n):  # no draw that needs a seed
            return with_equal_points(D, n, stacklevel=4), fresh
        # A generator is advanced by this; a seed gives the same draws in every fit, and after a checkpoint.
        seed = resolve_seed(self.random_state)
        drawn = with_equal_points(D, n, random_state=seed, stacklevel=4)
        if fresh is None:
            return drawn, None
        return drawn, lambda epochs: with_equal_points(fresh(epochs), n, random_state=seed, warn=False)

    def _check_fresh(self, X: Any, fresh: Any) -> None:
        """Fresh points can be learned from if they are used as they come."""
        if fresh is None:
            return
        if not callable(fresh):
            raise TypeError(f"fresh is a {type(fresh).__name__}: expected a function from epochs to Distributions")
        if not isinstance(X, Distributions):
            raise ValueError("fresh is given, but X are points: give Distributions, of which there can be others")
        if resolve_form(self.form).transformer is not None:
            raise ValueError("fresh points are not mapped: leave out `fresh`, or the transformer of `form`")

    def _check_data(self, X: Any, y: Any, samples: Any, strata: Any) -> tuple[Distributions, Supervision]:
        """The distributions that have a label, and what is known about them."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a label is needed per distribution")
        X = gathered(X) if samples is None else X
        if isinstance(X, Distributions):
            if samples is not None:
                raise ValueError(
                    "samples are given, but X are Distributions, which have theirs already: leave them out"
                )
            self._remember_features(X)
            D, name_index = X.with_mass(), X.name_index
        else:
            D, name_index = self._as_distributions(X, y, samples)
        by_row = samples is not None
        labels = read_labels(y, self.target, name_index, D, by_row=by_row, class_weight=self.class_weight)
        seen, known = supervision(labels, read_strata(strata, name_index, D, by_row=by_row))
        self.classes_ = labels[0].values
        if isinstance(self.target, list | tuple):
            self.classes_ = np.empty(len(labels), dtype=object)
            self.classes_[:] = [label.values for label in labels]
        return D if seen.size == len(D) else D[seen], known

    def _as_distributions(self, X: Any, y: Any, samples: Any) -> tuple[Distributions, NameIndex]:
        """Points by their samples, or each as a distribution of its own; and the names of the points."""
        refuse_mask(X, "X")
        name_index = NameIndex.of(X, items="points")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        name_index = replace(name_index, n=X.shape[0])  # not everything that can be an array knows its length before
        if not isinstance(self.target, list | tuple) and not isinstance(resolve_target(self.target), Distances):
            check_consistent_length(X, y)
        if samples is not None:
            D = Distributions(X, align_by_name(samples, name_index, "samples"), features=self._feature_names())
            return D.with_mass(), name_index
        D = Distributions(X, np.arange(name_index.size), features=self._feature_names())
        return named_rows(D.with_mass(), name_index), name_index

    def _remember_features(self, D: Distributions) -> None:
        """What validate_data does for arrays; names of an earlier fit are forgotten."""
        self.n_features_in_ = D.shape[1]
        if D.features is not None:
            self.feature_names_in_ = np.array(D.features, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _feature_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    def _map(self, D: Distributions) -> Distributions:
        """The distributions that are learned from: of mapped points, where there is a feature map."""
        transformer = resolve_form(self.form).transformer
        if transformer is None:
            return D
        self.feature_map_ = fit_map(transformer, D)
        return map_points(self.feature_map_, D)

    def _model(self, settings: Settings, centre: np.ndarray, scale: np.ndarray) -> Model:
        cost = Cost.named(self.cost)
        if resolve_form(self.form).form == "diagonal":
            return DiagonalModel(scale, centre, cost)
        return LinearModel(settings.n_components, scale, centre, cost)

    def _run(self, training: Training, fresh: Fresh | None) -> Outcome:
        """Train to the end, or on from the checkpoint, with a progress bar. An interruption loses nothing."""
        saving = self._saving(training, fresh)
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

    def _saving(self, training: Training, fresh: Fresh | None) -> Saving | None:
        """Where the states of training go, if anywhere."""
        checkpoint = resolve_checkpoint(self.checkpoint)
        if checkpoint is None:
            return None
        # What decides what is learned, beside the settings.
        form, share = resolve_form(self.form).form, resolve_stopping(self.stopping).validation_fraction
        seed = self.random_state if isinstance(self.random_state, numbers.Integral) else None
        more = [form, self.cost, share, self.class_weight, seed, *["fresh points"] * (fresh is not None)]
        more += [] if fresh is None else [self.n_points]  # without fresh points, the draw is part of the data
        belongs_to = belonging(training.D, training.known, [asdict(training.settings), *more])
        return Saving(Checkpoints(checkpoint.path, float(checkpoint.every), belongs_to))

    def _keep(self, run: Outcome, metric: Any, raw: Distributions) -> None:
        self._keep_metric(metric, raw)
        self.history_ = {name: np.array(values) for name, values in run.history.items()}
        self.n_iter_ = len(run.history["loss"])
        self.loss_ = run.loss
        self.converged_ = run.converged

    def _keep_metric(self, metric: Any, raw: Distributions) -> None:
        self.components_ = metric.components
        self.metric_ = self._behind_map(metric, raw)

    def _behind_map(self, metric: GroundMetric, raw: Distributions) -> GroundMetric:
        """The metric for points as they were given."""
        if resolve_form(self.form).transformer is None:
            return metric
        return MappedMetric(self.feature_map_, metric, raw.shape[1], self._feature_names(), probes=some_points(raw))

    def _warn_of(self, run: Outcome) -> None:
        """Say what the numbers alone do not show: training was interrupted, solves stopped early, little is left."""
        if run.interrupted:
            message = f"interrupted after {self.n_iter_} of {self.max_epochs} epochs: what was learned so far is kept"
            warnings.warn(message, InterruptedWarning, stacklevel=3)
        if run.stopped_pivoting:
            warn_of_pivot_limit(run.stopped_pivoting)
        if not np.any(getattr(self, "components_", True)):
            message = "the penalty has set the whole metric to 0, which tells nothing apart: lower `strength`"
        elif has_vanished(self.history_, self.margin, self.strength):
            message = (
                f"a penalty of strength {self.strength:g} outweighs the labels: the metric has shrunk to nearly 0, and "
                "what is left of it is chance; lower `strength`"
            )
        else:
            return
        warnings.warn(message, ConvergenceWarning, stacklevel=3)


def _warn_of_strata(known: Supervision, held_out: np.ndarray) -> None:
    """Say how many distributions cannot be compared across strata."""
    if known.strata is None:
        return
    relaxed = [some.relaxed for target in known.targets for some in candidates(target, held_out, known.strata)]
    if any(relaxed):
        warnings.warn(
            f"{sum(relaxed)} of {len(relaxed)} distributions have no like label in another stratum, or no unlike one "
            "in their own: they are compared with any, so that strata may be learned from them",
            UserWarning,
            stacklevel=3,
        )


def refine_weights(
    D: Distributions, y: np.ndarray, strata: np.ndarray | None, start: np.ndarray, *, target: str, max_epochs: int,
    seed: int,
) -> np.ndarray:  # fmt: skip
    """Learn a diagonal metric from starting weights, without warnings: for ensemble members.

    Returns the starting weights where the penalty has outweighed the labels, or where all distributions coincide.
    """
    # Weights of standardised features are as large as those that learning starts from by default.
    first = start * (np.sqrt(start.size) / 16.0 / np.linalg.norm(start))
    learner = GroundMetricLearner(
        form="diagonal",
        init=first,
        strength=0.01,
        max_epochs=max_epochs,
        n_points=None,
        random_state=seed,
        target=target,
    )
    try:
        run = learner._train(D, y, strata=strata)[0]
    except CoincidingError:
        return start
    if run.interrupted:
        raise KeyboardInterrupt("before all members of the ensemble had learned")
    components = learner.metric_.components
    if not np.any(components) or has_vanished(learner.history_, learner.margin, learner.strength):
        return start
    return np.abs(components).sum(axis=0)
