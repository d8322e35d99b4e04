"""The fitted ensemble, and the predictor that it leaves: views, models and weights for new distributions, and its file.

A file holds arrays and JSON, without pickle. Every array of a file is validated before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import trim_mean

from .._internal.files import Damaged, check_content, read_header, unpack, write_arrays
from .._internal.parallel import progress_bar
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from .geometry import ArrayReader, Description, Geometry, Scaling, StoredDescription
from .members import (
    EUCLIDEAN,
    LINEAR,
    MARGINAL,
    Design,
    EuclideanView,
    LinearView,
    MarginalView,
    Member,
    MemberView,
    Refine,
    TransportView,
    View,
    choose_design,
    fallback_design,
    train_members,
    unpack_view,
)
from .stacking import HeldOut, KernelModel, Stack, Target, combine, predict_held_out, unpack_target

FORMAT, VERSION = "groundmetric.Predictor", 2

# Share of the members that is ignored at either end when importances are averaged: an unstable member does not decide.
_TRIMMED = 0.25
# Components that the average metric has at most: with so few, costs are filled inside the solver.
_MAX_COMPONENTS = 25
# Points that the spread and the principal axes of a metric are estimated from.
_MAX_POINTS = 4000
# A new distribution is unfamiliar if its nearest training distribution is more than this many times as far as the
# nearest neighbour of any training distribution.
FAR = 1.5


@dataclass(frozen=True)
class Settings:
    """What is learned from the labels.

    Attributes
    ----------
    kinds : sequence of str
        Kinds of members, in the order of `members.KINDS`.
    n_members : int
        Members of each kind, at least.
    seed : int
        Seed of the folds.
    refine : callable
        Training of "learned" members.
    n_jobs : int or None
        Threads.
    verbose : bool
        Whether to show a progress bar.
    """

    kinds: Sequence[str]
    n_members: int
    seed: int
    refine: Refine
    n_jobs: int | None = None
    verbose: bool = False


@dataclass(frozen=True)
class FittedEnsemble:
    """An ensemble fitted to distributions in the order of their names.

    Attributes
    ----------
    geometries : dict of str to Geometry
        Label-free geometry of each modality; a single one has the name "".
    target : Target
        Labels.
    settings : Settings
        What was learned.
    folds : array of int of shape (n_distributions,)
        Cross-validation fold of each distribution.
    design : list of tuple of int
        Folds that each member of a kind leaves out in a nested design; empty where the cohort is too small for one.
    members : dict of str to list of Member
        Members of each modality. Without a nested design they leave out a single fold or none: they contribute to the
        metric, and no view uses them.
    views : list of (str, View)
        Modality and view.
    held_out : HeldOut
        Held-out predictions.
    """

    geometries: Mapping[str, Geometry]
    target: Target
    settings: Settings
    folds: np.ndarray
    design: Design
    members: Mapping[str, list[Member]]
    views: Sequence[tuple[str, View]]
    held_out: HeldOut

    @classmethod
    def fit(
        cls,
        geometries: Mapping[str, Geometry],
        target: Target,
        groups: np.ndarray,
        group_names: Sequence[Any],
        settings: Settings,
        folds: np.ndarray | None = None,
    ) -> FittedEnsemble:
        """Train members on unions of folds, and predict every fold without its labels.

        `folds` replaces the folds that are assigned by name.
        """
        folds, design = choose_design(target, groups, group_names, settings.n_members, settings.seed, folds)
        left_out = design or fallback_design(folds, target, groups)
        members = {name: _train(geometry, target, folds, left_out, settings) for name, geometry in geometries.items()}
        views = [
            (name, view) for name in geometries for view in _views(geometries[name], members[name] if design else [])
        ]
        held_out = predict_held_out([view for _, view in views], target, folds)
        return cls(geometries, target, settings, folds, design, members, views, held_out)

    @property
    def score(self) -> float:
        """Mean held-out log-likelihood of the labels."""
        return self.target.score(self.held_out.predictions)

    @property
    def chance(self) -> float:
        """Score of predictions that ignore the distributions."""
        return self.target.score(self.target.chance(self.folds))

    @property
    def view_scores(self) -> dict[str, float]:
        """Score of the held-out predictions of each view alone."""
        return {
            name: self.target.score(predictions)
            for name, predictions in zip(self.view_names, self.held_out.by_view, strict=True)
        }

    @cached_property
    def stack(self) -> Stack:
        """Models and stacking weights for new distributions, from all labels."""
        return Stack.fit([view.kernel() for _, view in self.views], self.target, self.folds)

    @property
    def view_names(self) -> list[str]:
        """Names of the views, with their modality where there are several."""
        return [f"{modality}: {view.name}" if modality else view.name for modality, view in self.views]

    @property
    def weights(self) -> dict[str, float]:
        """Stacking weight of each view."""
        return dict(zip(self.view_names, self.stack.weights.tolist(), strict=True))

    @cached_property
    def distances(self) -> np.ndarray:
        """Distances between distributions, averaged over views by their stacking weights.

        In learned views, each pair is measured by members that were trained on neither distribution. The unit is the
        median distance of each view.
        """
        return np.tensordot(self.stack.weights, [view.distances for _, view in self.views], axes=1)

    def metric(self, modality: str = "") -> GroundMetric:
        """Return the average of the members and the Euclidean metric, by the stacking weights of their views.

        The squared distance is the weighted sum of theirs. Components are rotated to the principal axes of the
        projected points, which changes no distance, and those with less than 10⁻³ of the variance are left out.
        """
        geometry, weights = self.geometries[modality], self.metric_weights(modality)
        scale = geometry.scaling.scale
        drawn = geometry.description.drawn.points
        points = drawn[np.linspace(0, drawn.shape[0] - 1, min(_MAX_POINTS, drawn.shape[0])).astype(int)]
        axes = np.eye(geometry.n_features) if geometry.scaling.axes is None else geometry.scaling.axes
        euclidean = axes / scale
        # In units in which the projected points have total variance 1, as the shares of members in theirs.
        spread = float(np.sqrt(GroundMetric(euclidean).project(points).var(axis=0).sum()))
        blocks = [np.sqrt(weights[EUCLIDEAN]) * (euclidean / spread if spread > 0 else euclidean)]
        squares = np.zeros(geometry.n_features)
        for kind, weight in weights.items():
            if kind != EUCLIDEAN:
                squares += weight * self.importances(kind, modality)
        used = np.flatnonzero(squares)
        if used.size:
            learned = np.zeros((used.size, geometry.n_features))
            learned[np.arange(used.size), used] = np.sqrt(squares[used]) / scale[used]
            blocks = [learned, *blocks]
        stacked = np.vstack(blocks)
        z = GroundMetric(stacked).project(points)
        variances, axes = np.linalg.eigh(np.cov(z, rowvar=False, ddof=0).reshape(len(stacked), len(stacked)))
        total = np.cumsum(variances[::-1])
        kept = min(_MAX_COMPONENTS, int(np.searchsorted(total, (1.0 - 1e-3) * total[-1])) + 1, len(stacked))
        components = axes[:, ::-1][:, :kept].T @ stacked
        return GroundMetric(components, geometry.features, variances=geometry.variances)

    def metric_weights(self, modality: str = "") -> dict[str, float]:
        """Return the weight of each kind of member, and of "euclidean", in the metric of a modality.

        Weights are those of the views. Without a nested design there is no evidence for weights: the Euclidean metric
        has one half, and the kinds share the other.
        """
        if not self.design:
            kinds = {kind: 0.5 / len(self.settings.kinds) for kind in self.settings.kinds}
            return {EUCLIDEAN: 0.5, **kinds}
        weights: dict[str, float] = dict.fromkeys((EUCLIDEAN, *self.settings.kinds), 0.0)
        for (name, view), weight in zip(self.views, self.stack.weights, strict=True):
            kind = self.marginal_kind if view.name == MARGINAL else view.name
            if name == modality and kind in weights:
                weights[kind] += float(weight)
        total = sum(weights.values())
        return {kind: weight / total for kind, weight in weights.items()}

    @property
    def marginal_kind(self) -> str:
        """Kind whose members the marginal view reads."""
        return _marginal_kind(self.settings.kinds)

    def importances(self, kind: str, modality: str = "") -> np.ndarray:
        """Return the mean share of each feature over the members of a kind, without the extreme quarters."""
        squares = [m.squares(self.geometries[modality].n_features) for m in self.members[modality] if m.kind == kind]
        if not squares:
            return np.zeros(self.geometries[modality].n_features)
        mean = trim_mean(squares, _TRIMMED, axis=0)
        mean = mean if mean.any() else np.mean(squares, axis=0)
        return mean / (mean.sum() or 1.0)


@dataclass(frozen=True)
class Predicted:
    """Predictions for new distributions.

    Attributes
    ----------
    values : array of shape (n_distributions, n_classes) or (n_distributions,)
        Probabilities of the classes, numbers or risks.
    typicality : array of shape (n_distributions,)
        Share of training distributions that are as far from their nearest neighbour; see `typicality` of the
        estimators.
    far : array of bool of shape (n_distributions,)
        Whether the distribution is unlike all training distributions.
    small : array of bool of shape (n_distributions,)
        Whether the distribution has fewer points than training distributions were compared by.
    """

    values: np.ndarray
    typicality: np.ndarray
    far: np.ndarray
    small: np.ndarray


@dataclass(frozen=True)
class Predictor:
    """Views, models and stacking weights for new distributions.

    Attributes
    ----------
    names : list of str
        Names of the training distributions, in sorted order.
    scalings : dict of str to Scaling
        Transformation of the points of each modality; a single one has the name "".
    views : list of (str, View)
        Modality and view.
    stack : Stack
        Kernel models of the views and their stacking weights.
    target : Target
        Kind of the labels, without the labels themselves.
    """

    names: list[str]
    scalings: Mapping[str, Scaling]
    views: Sequence[tuple[str, View]]
    stack: Stack
    target: Target

    @classmethod
    def of(cls, fitted: FittedEnsemble) -> Predictor:
        """Return the predictor of a fitted ensemble."""
        scalings = {name: geometry.scaling for name, geometry in fitted.geometries.items()}
        names = [str(name) for name in next(iter(fitted.geometries.values())).names]
        return cls(names, scalings, fitted.views, fitted.stack, fitted.target.without_labels())

    def predict(self, modalities: Mapping[str, Distributions]) -> Predicted:
        """Return predictions in the units of the labels, and how familiar the distributions are."""
        descriptions = self._describe(modalities)
        euclidean = self._euclidean_distances(descriptions)
        kernels = [
            np.exp(-euclidean[name]) if isinstance(view, EuclideanView) else view.kernel_to(descriptions[name])
            for name, view in self.views
        ]
        values = self.target.decode(combine(self.stack.weights, self.stack.predict_views(kernels, self.target)))
        new, training = self._remoteness(euclidean)
        small = np.any([part.sizes < part.scaling.n_points for part in descriptions.values()], axis=0)
        return Predicted(values, _typicality(new, training), new > FAR * training.max(), small)

    def typicality(self, modalities: Mapping[str, Distributions]) -> np.ndarray:
        """Return the share of training distributions that are as far from their nearest neighbour."""
        return _typicality(*self._remoteness(self._euclidean_distances(self._describe(modalities))))

    def _describe(self, modalities: Mapping[str, Distributions]) -> dict[str, Description]:
        return {name: scaling.describe(modalities[name]) for name, scaling in self.scalings.items()}

    def _euclidean_distances(self, descriptions: Mapping[str, Description]) -> dict[str, np.ndarray]:
        return {
            name: view.distances_to(descriptions[name]) for name, view in self.views if isinstance(view, EuclideanView)
        }

    def _remoteness(self, euclidean: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the distance of new and of training distributions to the nearest (other) training distribution.

        Of several modalities, the mean.
        """
        training = {name: view.nearest for name, view in self.views if isinstance(view, EuclideanView)}
        new = [euclidean[name].min(axis=1) for name in training]
        return np.mean(new, axis=0), np.mean(list(training.values()), axis=0)

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the predictor as JSON and arrays."""
        arrays: dict[str, np.ndarray] = {"weights": self.stack.weights}
        modalities = []
        for k, (name, scaling) in enumerate(self.scalings.items()):
            modalities.append({"name": name, **scaling.pack(f"scaling{k}", arrays)})
            learned = [view for other, view in self.views if other == name and isinstance(view, MemberView)]
            if learned:
                used = np.unique(np.concatenate([member.columns for view in learned for member in view.members]))
                learned[0].description.pack(used, f"modality{k}", arrays)
        views = [
            {"modality": name, **model.pack(f"model{k}", arrays), **view.pack(f"view{k}", arrays)}
            for k, ((name, view), model) in enumerate(zip(self.views, self.stack.models, strict=True))
        ]
        return {"names": self.names, "modalities": modalities, "views": views, "target": self.target.pack()}, arrays

    @classmethod
    def unpack(cls, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_features: int) -> Predictor:
        """Return the predictor that `pack` was given; raise `Damaged` where something does not fit."""
        read = ArrayReader(arrays)
        names = [str(name) for name in description["names"]]
        target, scalings, stored = unpack_target(description["target"]), {}, {}
        for k, entry in enumerate(description["modalities"]):
            name = str(entry["name"])
            scalings[name] = Scaling.unpack(read, entry, f"scaling{k}", None if name else n_features)
            stored[name] = StoredDescription.unpack(read, scalings[name], f"modality{k}", len(names))
        views: list[tuple[str, View]] = []
        models = []
        for k, entry in enumerate(description["views"]):
            name = str(entry["modality"])
            views.append((name, unpack_view(read, entry, f"view{k}", scalings[name], stored[name], len(names))))
            models.append(KernelModel.unpack(read, entry, f"model{k}", len(names), target))
        weights = read.numbers("weights", len(views))
        if not views or np.any(weights < 0) or not np.isclose(weights.sum(), 1.0):
            raise Damaged("stacking weights are not positive numbers of sum 1")
        if {name for name, view in views if isinstance(view, EuclideanView)} != set(scalings):
            raise Damaged("a modality has no Euclidean view")
        return cls(names, scalings, views, Stack(models, weights), target)


def _typicality(new: np.ndarray, training: np.ndarray) -> np.ndarray:
    return (1 + np.sum(training >= new[:, None], axis=1)) / (1 + training.size)


def write_file(path: str | os.PathLike[str], description: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a predictor by an atomic write, which replaces an older predictor but no other kind of file."""
    write_arrays(path, FORMAT, VERSION, description, arrays, compress=True)


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write_file` made."""
    try:
        version, checksum, content = read_header(path, FORMAT)
    except Damaged:
        raise unreadable(path, "it does not begin as one") from None
    if version != VERSION:
        remedy = "update groundmetric" if version > VERSION else "fit again"
        raise ValueError(
            f"{os.fspath(path)!r} has format version {version}, this groundmetric reads version {VERSION}: {remedy}"
        )
    if not check_content(content, checksum, FORMAT, version):
        raise unreadable(path, "its content does not match its checksum")
    return unpack(content, repr(os.fspath(path)))


def unreadable(where: str | os.PathLike[str], reason: Any) -> ValueError:
    """Return the error for a file that is not a valid predictor."""
    kinds = "TransportClassifier, TransportRegressor or TransportSurvival"
    return ValueError(f"{os.fspath(where)!r} is damaged or not a saved {kinds}: {reason}")


def _train(geometry: Geometry, target: Target, folds: np.ndarray, design: Design, settings: Settings) -> list[Member]:
    if any(kind != "anova" for kind in settings.kinds):
        _ = geometry.marginals  # computed once, before threads share it
    _ = geometry.quantiles
    train: Callable[..., Any] = delayed(train_members)
    members: list[Member] = []
    with progress_bar(len(design), "ensemble", "member", show=settings.verbose) as bar:
        jobs = Parallel(n_jobs=settings.n_jobs, prefer="threads", return_as="generator")
        tasks = (train(geometry, target, folds, settings.kinds, left_out, settings.refine) for left_out in design)
        for trained in jobs(tasks):
            members += trained
            bar.update()
    return sorted(members, key=lambda member: settings.kinds.index(member.kind))  # stable: designs keep their order


def _views(geometry: Geometry, members: Sequence[Member]) -> list[View]:
    views: list[View] = [EuclideanView.fit(geometry), *(LinearView.fit(geometry, name) for name in LINEAR)]
    kinds = list(dict.fromkeys(member.kind for member in members))
    views += [TransportView.fit(kind, geometry, [m for m in members if m.kind == kind]) for kind in kinds]
    if kinds:
        marginal = _marginal_kind(kinds)
        views.append(MarginalView.fit(MARGINAL, geometry, [m for m in members if m.kind == marginal]))
    return views


def _marginal_kind(kinds: Sequence[str]) -> str:
    return "univariate" if "univariate" in kinds else kinds[0]
