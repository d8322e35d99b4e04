"""The metric learner."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from ..arrays import real_array
from ..distances import warn_of_pivot_limit
from ..distributions import Distributions
from ..learning.penalties import resolve_penalty
from ..learning.training import Outcome, Settings, train
from ..metric import GroundMetric
from ..parallel import Threads
from .checks import check_labels, check_number, labels_of_groups
from .method import GroundMetricMethod
from .preparation import feature_moments, hold_out


class GroundMetricLearner(GroundMetricMethod, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn the ground metric of optimal transport from labels on distributions (GGML, Kühn & Schaub 2025).

    Finds W such that, with d(x, y) = |W(x - y)| between points, distributions of one class are nearer to each other in
    Wasserstein distance than to distributions of other classes, by a margin. Every transport problem is solved
    exactly, and the gradient is exact.

    Units do not matter: features are standardised inside (and the scale folded back into W), the margin is measured in
    units of the mean distance at the start, and the penalty in units of its value there.

    Parameters
    ----------
    n_components : int or None
        Rows of W (the rank k). None: 5, or the number of features where that is less.
    margin : float
        By how much other classes should be farther away (α), in units of the mean distance at the start.
    penalty : {"l2", "l2_squared", "l1", "group", "nuclear"}, None or an object with ``value`` and ``gradient``
        On the components for standardised features: Frobenius norm, its square, sum of absolute values, sum of the
        features' norms, sum of singular values. See `groundmetric.learning`.
    strength : float
        Weight of the penalty (λ); 1 makes it as large at the start as a violation by one mean distance.
    n_neighbors : int
        Neighbours (t) per anchor and class: t² (C - 1) triplets for every distribution.
    neighbors : {"random", "nearest"}
        How they are chosen: once at random, or those nearest under the present metric, every `refresh` epochs.
    refresh : int
        Epochs between two choices of the nearest neighbours.
    init : {"discriminant", "random"} or array of shape (n_components, n_features)
        Where W starts: at a linear discriminant of the distributions' means, at random, or as given.
    learning_rate : float
        Step of Adam; falls to 0 over `max_epochs` along half a cosine.
    max_epochs : int
    batch_size : int
        Triplets per step, about: all triplets of an anchor stay together, because they share distances.
    tol, patience : float, int
        Stop when the loss has changed by less than `tol` times the margin over `patience` epochs, or the held-out loss
        has not fallen by as much.
    validation_fraction : float
        Share of the distributions of each class that is held out to watch for overfitting: training stops when their
        loss no longer falls, and the best W is kept. 0: the training loss is watched.
    n_restarts : int
        Runs from different starts and triplets, of which the one with the lowest loss is kept.
    n_jobs : int or None
        Threads; None means one, -1 one per core. The result is the same for any number.
    memory : float
        Megabytes that may be spent on remembering where each pair's last solve ended.
    max_pivots : int or None
        Limit of simplex steps per pair; a warning says if it was reached.
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar where there is a terminal.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features), W for the features as given
    metric_ : GroundMetric
    history_ : dict of arrays with an entry per epoch: loss, penalty, active (share of triplets within the margin),
        solved and saved (pairs), pivots, validation_loss, seconds_project, seconds_transport, seconds_gradient
    n_iter_ : epochs done
    converged_ : whether the loss stopped falling before `max_epochs`
    loss_ : last loss with penalty (held-out loss where there is one), in units of the mean distance at the start
    classes_ : array of labels
    n_features_in_, feature_names_in_

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
        penalty: Any = "l2",
        strength: float = 0.1,
        n_neighbors: int = 3,
        neighbors: str = "random",
        refresh: int = 5,
        init: Any = "discriminant",
        learning_rate: float = 0.01,
        max_epochs: int = 50,
        batch_size: int = 128,
        tol: float = 1e-3,
        patience: int = 10,
        validation_fraction: float = 0.0,
        n_restarts: int = 1,
        n_jobs: int | None = None,
        memory: float = 1000.0,
        max_pivots: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.margin = margin
        self.penalty = penalty
        self.strength = strength
        self.n_neighbors = n_neighbors
        self.neighbors = neighbors
        self.refresh = refresh
        self.init = init
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.tol = tol
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_restarts = n_restarts
        self.n_jobs = n_jobs
        self.memory = memory
        self.max_pivots = max_pivots
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, groups: Any = None) -> GroundMetricLearner:
        """Learn from Distributions with a label each, or from points.

        Parameters
        ----------
        X : Distributions, or array or sparse matrix of points
        y : labels: one per distribution, or one per row of an array
        groups : for an array: which distribution each row belongs to. Without, every row is a distribution of its own,
            and this is metric learning on points.
        """
        D, labels = self._check_data(X, y, groups)
        settings = self._check_settings(D)
        random = check_random_state(self.random_state)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._check_classes(D, codes)
        centre, variance = feature_moments(D)
        scale = np.where(variance > 0, np.sqrt(variance), 1.0)
        held_out = hold_out(codes, self.validation_fraction, random)
        runs = self._run_all(D, codes, settings, centre, scale, held_out, random)
        best = min(runs, key=lambda run: run.loss)
        self._keep(best, scale, variance)
        self._warn(runs, settings)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Points (or the points of Distributions) in the learned space, (n_points, n_components)."""
        check_is_fitted(self)
        if not isinstance(X, Distributions):
            X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return self.metric_.project(X)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _check_data(self, X: Any, y: Any, groups: Any) -> tuple[Distributions, np.ndarray]:
        """Distributions and a label for each."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a label is needed per distribution")
        if isinstance(X, Distributions):
            if groups is not None:
                raise ValueError("groups are given, but X are Distributions, which are grouped already")
            self._remember_features(X)
            return X.with_mass(), check_labels(y, len(X))
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2, y_numeric=False
        )
        labels = check_labels(y, X.shape[0])
        if groups is None:
            return Distributions(X, np.arange(X.shape[0]), features=self._feature_names()), labels
        D = Distributions(X, groups, features=self._feature_names())
        return D.with_mass(), labels_of_groups(D, labels)

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

    def _check_settings(self, D: Distributions) -> Settings:
        n_features = D.shape[1]
        k = min(5, n_features) if self.n_components is None else self.n_components
        check_number("n_components", k, low=1, whole=True)
        if k > n_features:
            raise ValueError(f"n_components is {k}, but there are only {n_features} features: give at most that many")
        for name in ("n_neighbors", "refresh", "max_epochs", "batch_size", "patience", "n_restarts"):
            check_number(name, getattr(self, name), low=1, whole=True)
        for name in ("margin", "learning_rate"):
            check_number(name, getattr(self, name), low=0.0, above=True)
        for name in ("strength", "tol", "validation_fraction", "memory"):
            check_number(name, getattr(self, name), low=0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(f"validation_fraction is {self.validation_fraction}: expected a share below 1")
        if self.max_pivots is not None:
            check_number("max_pivots", self.max_pivots, low=1, whole=True)
        if self.neighbors not in ("random", "nearest"):
            raise ValueError(f"neighbors is {self.neighbors!r}: expected 'random' or 'nearest'")
        return Settings(
            n_components=int(k),
            margin=float(self.margin),
            penalty=resolve_penalty(self.penalty),
            strength=float(self.strength),
            n_neighbors=int(self.n_neighbors),
            neighbors=self.neighbors,
            refresh=int(self.refresh),
            init=self._check_init(k, n_features),
            learning_rate=float(self.learning_rate),
            max_epochs=int(self.max_epochs),
            batch_size=int(self.batch_size),
            tol=float(self.tol),
            patience=int(self.patience),
            memory=float(self.memory) * 1e6,
            max_pivots=self.max_pivots,
        )

    def _check_init(self, k: int, n_features: int) -> Any:
        if isinstance(self.init, str):
            if self.init not in ("discriminant", "random"):
                raise ValueError(f"init is {self.init!r}: expected 'discriminant', 'random' or an array")
            return self.init
        init = np.array(real_array(self.init, "init"), dtype=np.float64)
        if init.shape != (k, n_features) or not np.isfinite(init).all():
            raise ValueError(f"init has shape {init.shape}: expected finite numbers of shape {(k, n_features)}")
        return init

    def _check_classes(self, D: Distributions, codes: np.ndarray) -> None:
        """There must be something to tell apart, and somebody to be near to."""
        counts, classes = np.bincount(codes), self.classes_.tolist()
        if counts.size < 2:
            raise ValueError(f"all distributions have one class ({classes[0]!r}): at least two are needed")
        if counts.max() < 2:
            raise ValueError(
                "every class has a single distribution: no triplet can be formed; at least one class needs two"
            )
        for place in np.flatnonzero(counts == 1):
            name = D.names[int(np.flatnonzero(codes == place)[0])]
            warnings.warn(
                f"class {classes[place]!r} has a single distribution ({name!r}): others are kept away from it, "
                "but it is not an anchor itself",
                UserWarning,
                stacklevel=3,
            )

    def _run_all(
        self,
        D: Distributions,
        codes: np.ndarray,
        settings: Settings,
        centre: np.ndarray,
        scale: np.ndarray,
        held_out: np.ndarray,
        random: np.random.RandomState,
    ) -> list[Outcome]:
        runs: list[Outcome] = []
        total = settings.max_epochs * self.n_restarts
        with (
            Threads(self.n_jobs) as threads,
            tqdm(
                total=total, desc="learning", unit="epoch", disable=None if self.verbose else True, leave=False
            ) as bar,
        ):

            def show(history: dict[str, list]) -> None:
                bar.set_postfix(loss=f"{history['loss'][-1]:.3f}", active=f"{history['active'][-1]:.0%}", refresh=False)
                bar.update()

            for _ in range(self.n_restarts):
                try:
                    run = train(
                        D,
                        codes,
                        settings,
                        scale=scale,
                        centre=centre,
                        held_out=held_out,
                        threads=threads,
                        random=random,
                        on_epoch=show,
                    )
                except KeyboardInterrupt:  # before this run had a start; an earlier one is still worth keeping
                    if not runs:
                        raise
                    runs[-1].interrupted = True
                    break
                runs.append(run)
                if run.interrupted:
                    break
        return runs

    def _keep(self, run: Outcome, scale: np.ndarray, variance: np.ndarray) -> None:
        self.components_ = run.W / scale
        self.metric_ = GroundMetric(self.components_, self._feature_names(), variances=variance)
        self.history_ = {name: np.array(values) for name, values in run.history.items()}
        self.n_iter_ = len(run.history["loss"])
        self.loss_ = run.loss
        self.converged_ = run.converged

    def _warn(self, runs: list[Outcome], settings: Settings) -> None:
        """Say what the numbers alone do not show."""
        if runs[-1].interrupted:
            done, planned = sum(len(run.history["loss"]) for run in runs), settings.max_epochs * self.n_restarts
            message = f"interrupted after {done} of {planned} epochs: what was learned so far is kept"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        warn_of_pivot_limit(sum(run.stopped_pivoting for run in runs))
