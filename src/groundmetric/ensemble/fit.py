"""The fitted ensemble: geometry, members, views, held-out predictions and the stack for new distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import trim_mean

from .._internal.parallel import progress_bar
from ..distributions import Distributions
from ..metrics.average import average_metric, of_unit_spread
from ..metrics.base import GroundMetric
from .geometry import Description, Geometry, Scaling
from .members import Design, Member, Refine, choose_design, fallback_design, train_members
from .stacking import HeldOut, Stack, combine, predict_held_out
from .targets import Target
from .views import EUCLIDEAN, LINEAR, MARGINAL, EuclideanView, LinearView, MarginalView, TransportView, View

# Share of the members that is ignored at either end when importances are averaged: an unstable member does not decide.
_TRIMMED = 0.25


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
    groups : array of int of shape (n_distributions,)
        Group (patient) of each distribution.
    group_names : list
        Names of the groups.
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
    groups: np.ndarray
    group_names: Sequence[Any]
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
        return cls(
            geometries, target, groups, group_names, settings, folds, design, members, views, held_out
        )  # fmt: skip

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
        """Return the average of the members and the Euclidean metric, by the stacking weights of their views."""
        geometry, scaling = self.geometries[modality], self.geometries[modality].scaling
        weights = self.metric_weights(modality)
        squares = np.zeros(geometry.n_features)
        for kind, weight in weights.items():
            if kind != EUCLIDEAN:
                squares += weight * self.importances(kind, modality)
        used = np.flatnonzero(squares)
        drawn = geometry.description.drawn
        metrics, shares = [_euclidean_metric(geometry)], [weights[EUCLIDEAN]]
        if used.size:
            components = np.zeros((used.size, geometry.n_features))
            components[np.arange(used.size), used] = np.sqrt(squares[used]) / scaling.scale[used]
            metrics, shares = [GroundMetric(components), *metrics], [1.0, *shares]
        averaged = average_metric(metrics, shares, drawn)
        return GroundMetric(averaged.components, geometry.features, variances=geometry.variances)

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

    def describe(self, modalities: Mapping[str, Distributions]) -> dict[str, Description]:
        """Return the descriptions of new distributions by modality."""
        return {name: scaling.describe(modalities[name]) for name, scaling in self.scalings.items()}

    def predict(self, descriptions: Mapping[str, Description], euclidean: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return predictions in the units of the labels; `euclidean` are the results of `euclidean_distances`."""
        kernels = [
            np.exp(-euclidean[name]) if isinstance(view, EuclideanView) else view.kernel_to(descriptions[name])
            for name, view in self.views
        ]
        return self.target.decode(combine(self.stack.weights, self.stack.predict_views(kernels, self.target)))

    def euclidean_distances(self, descriptions: Mapping[str, Description]) -> dict[str, np.ndarray]:
        """Return Euclidean transport distances from new to training distributions, in units of their median."""
        return {
            name: view.distances_to(descriptions[name]) for name, view in self.views if isinstance(view, EuclideanView)
        }

    def remoteness(self, euclidean: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the distance of new and of training distributions to the nearest (other) training distribution.

        Of several modalities, the mean.
        """
        nearest = [
            (euclidean[name].min(axis=1), view.nearest) for name, view in self.views if isinstance(view, EuclideanView)
        ]
        new, training = zip(*nearest, strict=True)
        return np.mean(new, axis=0), np.mean(training, axis=0)


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


def _euclidean_metric(geometry: Geometry) -> GroundMetric:
    scaling = geometry.scaling
    axes = np.eye(geometry.n_features) if scaling.axes is None else scaling.axes
    return of_unit_spread(GroundMetric(axes / scaling.scale), geometry.description.drawn)
