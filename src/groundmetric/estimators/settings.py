"""The learner's parameters, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import real_array
from ..learning.penalties import resolve_penalty
from ..learning.training import Settings
from .checks import check_number


def check_settings(learner: Any, n_features: int) -> Settings:
    """What a GroundMetricLearner is to do with so many features."""
    if learner.metric not in ("linear", "diagonal"):
        raise ValueError(f"metric is {learner.metric!r}: expected 'linear' or 'diagonal'")
    if learner.metric == "diagonal" and learner.n_components is not None:
        raise ValueError("a diagonal metric has a component per feature: leave n_components out")
    k = min(5, n_features) if learner.n_components is None else learner.n_components
    check_number("n_components", k, low=1, whole=True)
    if k > n_features:
        raise ValueError(f"n_components is {k}, but there are only {n_features} features: give at most that many")
    for name in ("n_neighbors", "refresh", "max_epochs", "batch_size", "patience", "n_restarts"):
        check_number(name, getattr(learner, name), low=1, whole=True)
    for name in ("margin", "learning_rate"):
        check_number(name, getattr(learner, name), low=0.0, above=True)
    for name in ("strength", "nuisance", "tol", "validation_fraction", "memory"):
        check_number(name, getattr(learner, name), low=0.0)
    if learner.validation_fraction >= 1.0:
        raise ValueError(f"validation_fraction is {learner.validation_fraction}: expected a share below 1")
    if learner.max_pivots is not None:
        check_number("max_pivots", learner.max_pivots, low=1, whole=True)
    if learner.neighbors not in ("random", "nearest"):
        raise ValueError(f"neighbors is {learner.neighbors!r}: expected 'random' or 'nearest'")
    return Settings(
        n_components=int(k),
        margin=float(learner.margin),
        penalty=resolve_penalty(learner.penalty),
        strength=float(learner.strength),
        n_neighbors=int(learner.n_neighbors),
        neighbors=learner.neighbors,
        refresh=int(learner.refresh),
        init=_check_init(learner.init, (n_features,) if learner.metric == "diagonal" else (k, n_features)),
        learning_rate=float(learner.learning_rate),
        max_epochs=int(learner.max_epochs),
        batch_size=int(learner.batch_size),
        tol=float(learner.tol),
        patience=int(learner.patience),
        memory=float(learner.memory) * 1e6,
        max_pivots=learner.max_pivots,
        nuisance=float(learner.nuisance),
    )


def _check_init(init: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(init, str):
        if init not in ("discriminant", "random"):
            raise ValueError(f"init is {init!r}: expected 'discriminant', 'random' or an array")
        return init
    start = np.array(real_array(init, "init"), dtype=np.float64)
    if start.shape != shape or not np.isfinite(start).all():
        raise ValueError(f"init has shape {start.shape}: expected finite numbers of shape {shape}")
    return np.atleast_2d(start)
