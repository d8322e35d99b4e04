"""The fitted ensemble, and the predictor of new distributions: views, models, stacking weights and prediction sets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import trim_mean

from .._internal.files import Damaged
from .._internal.parallel import write_line
from .._internal.validation import ParameterError
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from .geometry import ArrayReader, Geometry, Scaling, StoredDescription
from .members import (
    DIAGONAL,
    EUCLIDEAN,
    MARGINAL,
    SUMMARIES,
    VIEWS,
    Design,
    EuclideanView,
    MarginalView,
    Member,
    MemberView,
    Refine,
    SummaryView,
    TransportView,
    View,
    choose_design,
    fallback_design,
    measure_members,
    train_members,
)
from .stacking import HeldOut, KernelModel, Stack, Target, predict_held_out, prior_weights, unpack_target

if TYPE_CHECKING:
    from pandas import DataFrame

# Share of the members that is ignored at either end when importances are averaged, against unstable members.
_TRIMMED = 0.25
# Components of the average metric, at most: up to this number, the solver computes costs itself.
_MAX_COMPONENTS = 25
# Points that the spread and the principal axes of a metric are estimated from.
_MAX_POINTS = 4000
# A new distribution is unfamiliar if its nearest training distribution is more than this many times as far as the
# nearest neighbour of any training distribution.
FAR = 1.5
# Seconds from which an estimate of the remaining time is printed before the work.
_LONG = 5.0


@dataclass(frozen=True)
class Settings:
    """Settings of the steps that use labels."""

    kinds: Sequence[str]  # kinds of members, in the order of `members.KINDS`
    n_members: int  # members of each kind, at least
    seed: int  # of the folds
    refine: Refine  # training of "learned" members
    n_jobs: int | None = None
    verbose: bool = False

    @property
    def marginal_kind(self) -> str:
        """Kind of the members in the marginal view: the first diagonal one; "" if there is none."""
        return next((kind for kind in DIAGONAL if kind in self.kinds), "")


@dataclass(frozen=True)
class FittedEnsemble:
    """An ensemble fitted to distributions in the order of their names."""

    geometries: Mapping[str, Geometry]  # of each modality; a single one has the name ""
    target: Target
    settings: Settings
    folds: np.ndarray  # cross-validation fold of each distribution
    # Folds that each member of a kind leaves out in a nested design; empty if the cohort is too small for one. Members
    # then leave out one fold or none: they contribute to the metric, and no view uses them.
    design: Design
    members: Mapping[str, list[Member]]  # of each modality
    views: Sequence[tuple[str, View]]  # modality and view
    held_out: HeldOut  # the predictions of a fold use the labels of the other folds only
    stack: Stack  # models and stacking weights for new distributions, from all labels

    @classmethod
    def fit(
        cls, geometries: Mapping[str, Geometry], target: Target, groups: np.ndarray, group_names: Sequence[Any],
        settings: Settings, folds: np.ndarray | None = None,
    ) -> FittedEnsemble:  # fmt: skip
        """Train members on unions of `folds` (None: assigned by name), and predict every fold without its labels."""
        run: dict[str, Any] = {"n_jobs": settings.n_jobs, "verbose": settings.verbose}
        folds, design = choose_design(target, groups, group_names, settings.n_members, settings.seed, folds)
        left_out = design or fallback_design(folds, target, groups)
        members: dict[str, list[Member]] = {}
        views: list[tuple[str, View]] = []
        for name, geometry in geometries.items():
            started = time.perf_counter()
            views.append((name, EuclideanView.fit(geometry)))  # this view and the summaries use no label
            if settings.verbose and design:
                n, n_landmarks, n_members = len(geometry), geometry.landmarks.size, len(design) * len(settings.kinds)
                # The Euclidean distances used the same threads. A member leaves out about half of the distributions and
                # half of the landmarks: it measures a quarter of the pairs. Training and stacking take a fifth of that.
                expected = 1.2 * (time.perf_counter() - started) * n_members / 4.0
                if expected > _LONG:
                    pairs = "all pairs" if n == n_landmarks else f"pairs with {n_landmarks} landmarks"
                    duration = f"{expected:.0f} s" if expected < 120.0 else f"{expected / 60.0:.0f} min"
                    write_line(f"ensemble of {n_members} members, {n:,} distributions, {pairs}: about {duration}")
            views += [(name, SummaryView.fit(geometry, summary)) for summary in SUMMARIES]
            trained = train_members(geometry, target, folds, settings.kinds, left_out, settings.refine, **run)
            members[name] = trained
            if not design:
                continue
            by_kind = {kind: [member for member in trained if member.kind == kind] for kind in settings.kinds}
            distances = iter(measure_members(geometry, trained, **run))  # ordered by kind, as the members
            for kind, of_kind in by_kind.items():
                view = TransportView.fit(kind, geometry, of_kind, [next(distances) for _ in of_kind])
                views.append((name, view))
            if settings.marginal_kind:
                views.append((name, MarginalView.fit(MARGINAL, geometry, by_kind[settings.marginal_kind])))
        held_out, stack = predict_held_out([view for _, view in views], target, folds, **run)
        return cls(geometries, target, settings, folds, design, members, views, held_out, stack)

    @property
    def score(self) -> float:
        """Mean log-likelihood of the labels under the held-out predictions."""
        return self.target.score(self.held_out.predictions)

    @property
    def chance(self) -> float:
        """Score of predictions that ignore the distributions."""
        return self.target.score(self.target.chance(self.folds))

    @property
    def view_names(self) -> list[str]:
        """Names of the views, with the modality if there are several."""
        return [f"{modality}: {view.name}" if modality else view.name for modality, view in self.views]

    @property
    def view_scores(self) -> dict[str, float]:
        """Score of the held-out predictions of each view alone."""
        return dict(zip(self.view_names, map(self.target.score, self.held_out.by_view), strict=True))

    @property
    def weights(self) -> dict[str, float]:
        """Stacking weight of each view, from all labels."""
        return dict(zip(self.view_names, self.stack.weights.tolist(), strict=True))

    @cached_property
    def distances(self) -> np.ndarray:
        """Distances between distributions by members that were trained on neither, averaged by the stacking weights."""
        return np.tensordot(self.stack.weights, [view.distances for _, view in self.views], axes=1)

    def metric(self, modality: str = "") -> GroundMetric:
        """Return the average of all members and the Euclidean metric, by the stacking weights of their views.

        The squared distance is the weighted sum of theirs. Components are rotated to the principal axes of the
        projected points, which changes no distance, and those with less than 10⁻³ of the variance are left out.
        """
        geometry, weights = self.geometries[modality], self.metric_weights(modality)
        scaling = geometry.scaling
        drawn = geometry.description.drawn.points
        points = drawn[np.linspace(0, drawn.shape[0] - 1, min(_MAX_POINTS, drawn.shape[0])).astype(int)]
        axes = np.eye(geometry.n_features) if scaling.axes is None else scaling.axes
        covariance = np.cov(GroundMetric(axes / scaling.scale).project(points), rowvar=False, ddof=0)
        covariance = covariance.reshape(len(axes), len(axes))

        def scaled(square: np.ndarray) -> np.ndarray:
            """Scale WᵀW on the axes: the projected points get total variance 1, as the shares of members sum to 1."""
            variance = float(np.sum(square * covariance))
            return square / variance if variance > 0 else square

        # The metrics on the principal axes: Euclidean, and "linear" members.
        square = weights[EUCLIDEAN] * scaled(np.eye(len(axes)))
        linear = [member.weights for member in self.members[modality] if member.kind == "linear"]
        for components in linear:
            square += weights["linear"] / len(linear) * scaled(components.T @ components)
        strengths, directions = np.linalg.eigh(square)
        blocks = [(np.sqrt(np.maximum(strengths, 0.0)) * directions).T @ axes / scaling.scale]
        squares = np.zeros(geometry.n_features)
        for kind in DIAGONAL:
            squares += weights.get(kind, 0.0) * self.importances(kind, modality)
        used = np.flatnonzero(squares)
        if used.size:
            learned = np.zeros((used.size, geometry.n_features))
            learned[np.arange(used.size), used] = np.sqrt(squares[used]) / scaling.scale[used]
            blocks = [learned, *blocks]
        stacked = np.vstack(blocks)
        z = GroundMetric(stacked).project(points)
        variances, axes = np.linalg.eigh(np.cov(z, rowvar=False, ddof=0).reshape(len(stacked), len(stacked)))
        total = np.cumsum(variances[::-1])
        kept = min(_MAX_COMPONENTS, int(np.searchsorted(total, (1.0 - 1e-3) * total[-1])) + 1, len(stacked))
        components = axes[:, ::-1][:, :kept].T @ stacked
        # The sign of an eigenvector is arbitrary: the largest entry of a component is positive.
        largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
        components *= np.where(largest < 0, -1.0, 1.0)
        return GroundMetric(components, geometry.features, variances=geometry.variances)

    def metric_weights(self, modality: str = "") -> dict[str, float]:
        """Return the weight of each kind of member, and of "euclidean", in the metric of a modality.

        Weights are the stacking weights of the views without their prior, which balances predictions of similar views:
        here it would dilute the features that diagonal members select. Without a nested design weights cannot be
        estimated: the Euclidean metric has weight 1/2, and the kinds have equal shares of 1/2.
        """
        kinds = self.settings.kinds
        if not self.design:
            return {EUCLIDEAN: 0.5, **dict.fromkeys(kinds, 0.5 / len(kinds))}
        weights: dict[str, float] = dict.fromkeys((EUCLIDEAN, *kinds), 0.0)
        gains = self.stack.weights / prior_weights([view.group for _, view in self.views])
        for (name, view), weight in zip(self.views, gains, strict=True):
            kind = self.settings.marginal_kind if view.name == MARGINAL else view.name
            if name == modality and kind in weights:
                weights[kind] += float(weight)
        total = sum(weights.values())
        return {kind: weight / total for kind, weight in weights.items()}

    def importances(self, kind: str, modality: str = "") -> np.ndarray:
        """Return the mean share of each feature over the members of a kind, without the extreme quarters."""
        geometry = self.geometries[modality]
        squares = [member.squares(geometry.scaling) for member in self.members[modality] if member.kind == kind]
        if not squares:
            return np.zeros(geometry.n_features)
        mean = trim_mean(squares, _TRIMMED, axis=0)
        mean = mean if mean.any() else np.mean(squares, axis=0)
        return mean / (mean.sum() or 1.0)


@dataclass(frozen=True)
class Predicted:
    """Predictions for new distributions, an entry or row for each."""

    values: np.ndarray  # probabilities of the classes, numbers or risks
    typicality: np.ndarray  # see `typicality` of the estimators
    far: np.ndarray  # whether the distribution is unlike all training distributions
    small: np.ndarray  # whether it has fewer points than the subsamples of training distributions


@dataclass(frozen=True)
class Predictor:
    """Views, models and stacking weights for new distributions."""

    names: list[str]  # of the landmarks, in sorted order; in small cohorts, of all training distributions
    scalings: Mapping[str, Scaling]  # transformation of the points of each modality; a single one has the name ""
    views: Sequence[tuple[str, View]]  # modality and view
    stack: Stack
    target: Target  # kind of the labels, without the labels themselves

    @classmethod
    def of(cls, fitted: FittedEnsemble) -> Predictor:
        """Return the predictor of a fitted ensemble."""
        scalings = {name: geometry.scaling for name, geometry in fitted.geometries.items()}
        geometry = next(iter(fitted.geometries.values()))
        names = [str(geometry.names[d]) for d in geometry.landmarks]
        return cls(names, scalings, fitted.views, fitted.stack, fitted.target.without_labels())

    def predict(self, modalities: Mapping[str, Distributions]) -> Predicted:
        """Return predictions in the units of the labels, with typicality and flags of the distributions."""
        described = {name: scaling.describe(modalities[name]) for name, scaling in self.scalings.items()}
        kernels, nearest, nearest_in_training = [], [], []
        for name, view in self.views:
            if isinstance(view, EuclideanView):
                distances = view.distances_to(described[name])
                nearest.append(distances.min(axis=1))
                nearest_in_training.append(view.nearest)
                kernels.append(np.exp(-distances))
            else:
                kernels.append(view.kernel_to(described[name]))
        views = self.stack.predict_views(kernels, self.target)
        values = self.target.decode(np.tensordot(self.stack.weights, views, axes=1))
        # With several modalities, the mean distance over modalities.
        new, training = np.mean(nearest, axis=0), np.mean(nearest_in_training, axis=0)
        typicality = (1 + np.sum(training >= new[:, None], axis=1)) / (1 + training.size)
        small = np.any([part.sizes < part.scaling.n_points for part in described.values()], axis=0)
        return Predicted(values, typicality, new > FAR * training.max(), small)

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the predictor as JSON and arrays."""
        arrays: dict[str, np.ndarray] = {"weights": self.stack.weights}
        modalities = []
        for k, (name, scaling) in enumerate(self.scalings.items()):
            modalities.append({"name": name, **scaling.pack(f"scaling{k}", arrays)})
            learned = [view for modality, view in self.views if modality == name and isinstance(view, MemberView)]
            if learned:
                columns = [m.columns for view in learned for m in view.members if m.kind in DIAGONAL]
                # At least one feature, because distributions without features are invalid.
                used = np.unique(np.concatenate(columns or [np.zeros(1, int)]))
                learned[0].description.pack(used, learned[0].landmarks, f"modality{k}", arrays)
        views = [
            {"modality": name, **model.pack(f"model{k}", arrays), **view.pack(f"view{k}", arrays)}
            for k, ((name, view), model) in enumerate(zip(self.views, self.stack.models, strict=True))
        ]
        return {"names": self.names, "modalities": modalities, "views": views, "target": self.target.pack()}, arrays

    @classmethod
    def unpack(cls, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_features: int) -> Predictor:
        """Return the validated predictor from the output of `pack`; raise `Damaged` if it is invalid."""
        reader = ArrayReader(arrays)
        names = [str(name) for name in description["names"]]
        target, scalings, stored = unpack_target(description["target"]), {}, {}
        for k, entry in enumerate(description["modalities"]):
            name = str(entry["name"])
            scalings[name] = Scaling.unpack(reader, entry, f"scaling{k}", None if name else n_features)
            stored[name] = StoredDescription.unpack(reader, scalings[name], f"modality{k}", len(names))
        views: list[tuple[str, View]] = []
        models = []
        for k, entry in enumerate(description["views"]):
            name = str(entry["modality"])
            learned, training = stored[name], (scalings[name], stored[name])
            view = VIEWS.get(entry["view"], MemberView).unpack(reader, entry, f"view{k}", training, len(names))
            views.append((name, view))
            if isinstance(view, EuclideanView) and learned is not None:
                learned.euclidean = view.points  # "linear" members project these points
            models.append(KernelModel.unpack(reader, entry, f"model{k}", len(names), target))
        weights = reader.numbers("weights", len(views))
        if not views or np.any(weights < 0) or not np.isclose(weights.sum(), 1.0):
            raise Damaged("stacking weights are not positive numbers of sum 1")
        if {name for name, view in views if isinstance(view, EuclideanView)} != set(scalings):
            raise Damaged("a modality lacks its Euclidean view")
        return cls(names, scalings, views, Stack(models, weights), target)


# Prediction sets and prediction intervals
#
# The nonconformity score of a training distribution is 1 minus the held-out probability of its class, or the absolute
# error of its held-out number. A class belongs to the prediction set of a new distribution unless its nonconformity
# score would be among the largest of the training distributions of the class. If patients are exchangeable, the set
# contains the true class with at least the stated probability, for each class separately, whether or not probabilities
# are calibrated (Vovk et al. 2005; class-conditional: Vovk 2013). Held-out predictions come from models of fewer
# patients, so coverage is slightly conservative.

UNFAMILIAR = "unlike all training distributions"


@dataclass(frozen=True)
class PredictionSets:
    """Sets of classes that contain the true class with a stated probability.

    Parameters
    ----------
    names, classes : list, array of shape (n_classes,)
        Names of the distributions, and classes in sorted order.
    contains : array of bool of shape (n_distributions, n_classes)
        Whether the set of a distribution contains each class.
    p_values : array of shape (n_distributions, n_classes)
        Conformal p-value of each class: share of the training patients of the class whose held-out prediction fits
        their class as badly. A class is in the set if its p-value exceeds ``1 - coverage``.
    coverage : float
        Probability with which a set contains the true class, for each class, at least.
    reasons : list of str
        Why the classes cannot be told apart for a distribution; empty where the set follows from the p-values alone.
    """

    names: list[Any]
    classes: np.ndarray
    contains: np.ndarray
    p_values: np.ndarray
    coverage: float
    reasons: list[str]

    @property
    def sets(self) -> list[list[Any]]:
        """Classes in the set of each distribution."""
        return [self.classes[row].tolist() for row in self.contains]

    @property
    def labels(self) -> list[str]:
        """Text for each distribution: the class, or "cannot say" if the set has several classes."""
        return [str(labels[0]) if len(labels) == 1 else "cannot say" for labels in self.sets]

    def table(self) -> DataFrame:
        """Return a row per distribution: label, set, reason, and the p-value of each class."""
        import pandas as pd

        columns = {
            "label": self.labels,
            "set": [", ".join(map(str, labels)) for labels in self.sets],
            "reason": self.reasons,
            **{f"p {label}": column for label, column in zip(self.classes, self.p_values.T, strict=True)},
        }
        return pd.DataFrame(columns, index=pd.Index(self.names, name="distribution"))


@dataclass(frozen=True)
class PredictionIntervals:
    """Intervals that contain the true number with a stated probability.

    Parameters
    ----------
    names, reasons : list
        Names of the distributions, and why an interval is infinite (otherwise empty).
    values, low, high : array of shape (n_distributions,)
        Predicted number, and ends of the interval; infinite where the training patients are too few for the coverage.
    coverage : float
        Probability with which an interval contains the true number, at least.
    """

    names: list[Any]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    coverage: float
    reasons: list[str]

    def table(self) -> DataFrame:
        """Return a row per distribution: value, low, high and reason."""
        import pandas as pd

        columns = {"value": self.values, "low": self.low, "high": self.high, "reason": self.reasons}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="distribution"))


@dataclass(frozen=True)
class Calibration:
    """Nonconformity scores of the held-out predictions of the training distributions."""

    scores: np.ndarray  # a prediction against the label of its distribution, which it did not use
    codes: np.ndarray  # class of each training distribution; zeros for numbers
    # 1 over the number of distributions of the same group and class: a patient with several samples counts once.
    weights: np.ndarray
    strata: np.ndarray | None = None  # names of the strata, as text

    @classmethod
    def of(cls, scores: np.ndarray, codes: np.ndarray, groups: Any, strata: Any) -> Calibration:
        """Return the calibration of held-out scores; groups and strata are lists or None."""
        weights = np.ones(scores.size)
        if groups is not None:
            keys = [f"{code} {group}" for code, group in zip(codes, groups, strict=True)]
            _, unit, sizes = np.unique(keys, return_inverse=True, return_counts=True)
            weights = 1.0 / sizes[unit]
        return cls(scores, codes, weights, None if strata is None else np.array([str(s) for s in strata]))

    def p_values(self, scores: np.ndarray, code: int, coverage: float, strata: Sequence[Any] | None) -> np.ndarray:
        """Return the conformal p-value of a class for new distributions with these nonconformity scores."""
        of_class = self.codes == code
        p_values = np.empty(scores.size)
        for d, score in enumerate(scores):
            rows = of_class  # those of the stratum, if they are enough for the coverage
            if strata is not None and self.strata is not None:
                within = of_class & (self.strata == str(strata[d]))
                rows = within if _enough(float(self.weights[within].sum()), coverage) else of_class
            weights = self.weights[rows]
            p_values[d] = (1.0 + weights[self.scores[rows] >= score].sum()) / (1.0 + weights.sum())
        return p_values

    def shortages(self, classes: Sequence[Any], coverage: float) -> str:
        """Return a sentence that names the classes with too few training patients for the coverage; "" if none."""
        if not 0.0 < coverage < 1.0:
            raise ParameterError("coverage", coverage, ": expected a number between 0 and 1, for example 0.9")
        counts = [float(self.weights[self.codes == code].sum()) for code in range(len(classes))]
        rare = [(label, count) for label, count in zip(classes, counts, strict=True) if not _enough(count, coverage)]
        short = [f"{label!s} ({round(count)})" for label, count in rare]
        if not short:
            return ""
        needed = int(np.ceil(coverage / (1.0 - coverage) - 1e-9))
        return f"too few training patients, {needed} are needed for coverage {coverage:g}: {', '.join(short)}"

    def pack(self, arrays: dict[str, np.ndarray]) -> None:
        """Add the arrays that `unpack` reads."""
        arrays |= {f"calibration.{name}": getattr(self, name) for name in ("scores", "codes", "weights")}
        if self.strata is not None:
            arrays["calibration.strata"] = self.strata

    @classmethod
    def unpack(cls, read: ArrayReader, n_classes: int) -> Calibration:
        """Return the validated calibration from the output of `pack`."""
        scores = read.numbers("calibration.scores", None)
        n = scores.size
        weights = read.numbers("calibration.weights", n)
        codes = read.indices("calibration.codes", n_classes)
        strata = read.arrays.get("calibration.strata")
        if codes.size != n or np.any(scores < 0) or not np.all((weights > 0) & (weights <= 1)):
            raise Damaged("nonconformity scores, classes or weights of the calibration are invalid")
        if strata is not None and (strata.shape != (n,) or strata.dtype.kind != "U"):
            raise Damaged("strata of the calibration are invalid")
        return cls(scores, codes, weights, strata)

    def sets(
        self, probabilities: np.ndarray, unfamiliar: np.ndarray, names: Sequence[Any], classes: np.ndarray,
        coverage: float, strata: Sequence[Any] | None = None,
    ) -> PredictionSets:  # fmt: skip
        """Return the prediction sets of new distributions with these probabilities."""
        shortage = self.shortages(classes.tolist(), coverage)
        p_values = np.column_stack(
            [self.p_values(1.0 - column, code, coverage, strata) for code, column in enumerate(probabilities.T)]
        )
        contains = p_values > 1.0 - coverage + 1e-12
        # An empty set would only state that the prediction is worse than most; the best class keeps sets informative
        # and can only raise the coverage.
        contains[np.arange(len(contains)), p_values.argmax(axis=1)] = True
        contains[unfamiliar | bool(shortage)] = True
        reasons = [UNFAMILIAR if far else shortage for far in unfamiliar]
        return PredictionSets(list(names), classes, contains, p_values, coverage, reasons)

    def intervals(
        self, values: np.ndarray, unfamiliar: np.ndarray, names: Sequence[Any], coverage: float
    ) -> PredictionIntervals:
        """Return the prediction intervals of new distributions with these predicted numbers."""
        shortage, radius = self.shortages(["all"], coverage), np.full(len(values), np.inf)
        if not shortage:  # the error that held-out numbers stay within with the stated probability
            order = np.argsort(self.scores)
            share = np.cumsum(self.weights[order]) / (1.0 + self.weights.sum())
            radius[~unfamiliar] = self.scores[order][np.searchsorted(share, coverage - 1e-12)]
        reasons = [UNFAMILIAR if far else shortage for far in unfamiliar]
        return PredictionIntervals(list(names), values, values - radius, values + radius, coverage, reasons)


def _enough(n_patients: float, coverage: float) -> bool:
    """Return whether the smallest conformal p-value of n patients, 1 / (n + 1), can exclude a class."""
    return 1.0 / (1.0 + n_patients) <= 1.0 - coverage + 1e-12
