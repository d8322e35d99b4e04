"""What can be learned from labels and strata, before anything is: errors where nothing, warnings where less."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..distances import warn_of_pivot_limit
from ..distributions import Distributions
from ..learning.training import Outcome
from ..learning.vanishing import has_vanished
from ..triplets import Classes, Supervision
from ..triplets.choosing import candidates


def check_classes(D: Distributions, known: Supervision, classes: Any) -> None:
    """Look at every label that is a class; `classes` has the values of each label."""
    for target, values in zip(known.targets, classes, strict=True):
        if isinstance(target, Classes):
            check_class_sizes(D, target.levels, values.tolist())


def check_fresh(learner: Any, X: Any, fresh: Any) -> None:
    """Fresh points can be learned from if they are used as they come."""
    if fresh is None:
        return
    if not callable(fresh):
        raise TypeError(f"fresh is a {type(fresh).__name__}: expected a function from epochs to Distributions")
    if not isinstance(X, Distributions):
        raise ValueError("fresh is given, but X are points: give Distributions, of which there can be others")
    if learner.feature_map is not None:
        raise ValueError("fresh points go together with no feature_map: leave one of the two out")


def check_class_sizes(D: Distributions, codes: np.ndarray, classes: list) -> None:
    """There must be something to tell apart, and somebody to be near to."""
    counts = np.bincount(codes[codes >= 0])
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
            stacklevel=4,
        )


def warn_of_strata(known: Supervision, held_out: np.ndarray) -> None:
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


def warn_of_training(runs: list[Outcome], planned: int) -> None:
    """Say what the numbers alone do not show: that training was interrupted, or transport stopped early."""
    if runs[-1].interrupted:
        done = sum(len(run.history["loss"]) for run in runs)
        message = f"interrupted after {done} of {planned} epochs: what was learned so far is kept"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    warn_of_pivot_limit(sum(run.stopped_pivoting for run in runs))


def warn_of_zero(learner: Any) -> None:
    """A penalty may leave nothing, or so little that its direction is chance."""
    if not np.any(getattr(learner, "components_", True)):
        message = "the penalty has set the whole metric to 0, which tells nothing apart: lower `strength`"
    elif has_vanished(learner.history_, learner.margin, learner.strength):
        message = (
            f"a penalty of strength {learner.strength:g} outweighs the labels: the metric has shrunk to nearly 0, and "
            "what is left of it is chance; lower `strength`"
        )
    else:
        return
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
