"""How learning went: what each view of an ensemble says of held-out distributions, and the epochs of one learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..ensemble import Classes
from ..estimators.ensemble import GroundMetricEnsemble

if TYPE_CHECKING:
    from ..estimators.predictor import TransportClassifier, TransportRegressor


@dataclass(frozen=True)
class ViewScores:
    """Held-out scores of the views of an ensemble.

    Parameters
    ----------
    scores : dict of str to float
        By view, the mean log-probability of the true class of distributions that were left out, classes counting the
        same; of numbers in units of their spread, the log-likelihood.
    overall : float
        Score of all views together, by their weights.
    chance : float
        Score without looking at the distributions: of equal chances, or of the mean of the others.
    of_classes : bool
        Whether labels are classes.

    Examples
    --------
    >>> found = ViewScores({"means": -0.5, "learned": -0.1}, overall=-0.08, chance=-0.69, of_classes=True)
    >>> found.unit
    'log-probability'
    """

    scores: dict[str, float]
    overall: float
    chance: float
    of_classes: bool

    @property
    def unit(self) -> str:
        """Name of the score."""
        return "log-probability" if self.of_classes else "log-likelihood"


def view_scores(ensemble: GroundMetricEnsemble | TransportClassifier | TransportRegressor) -> ViewScores:
    """Scores of the views of an ensemble on distributions that were left out, against chance.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble, TransportClassifier or TransportRegressor
        Fitted ensemble, or what predicts from one.

    Returns
    -------
    ViewScores
        A score for each view, for all together, and of guessing.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> found = view_scores(gm.GroundMetricEnsemble(2, random_state=0).fit(D, y))
    >>> list(found.scores)
    ['euclidean', 'means', 'moments', 'embedding', 'univariate', 'anova', 'learned', 'marginal']
    """
    found = getattr(ensemble, "ensemble_", ensemble)
    if not isinstance(found, GroundMetricEnsemble):
        raise TypeError(
            f"ensemble is a {type(ensemble).__name__}: expected a GroundMetricEnsemble or what predicts by one"
        )
    check_is_fitted(found, "metric_")
    fitted = found.fitted_
    return ViewScores(fitted.view_scores, found.score_, found.chance_, isinstance(fitted.target, Classes))


def nothing_left(history: Mapping[str, Any]) -> bool:
    """Whether no triplet pulls any more after the last epoch, so that further epochs would learn nothing."""
    active = history["active"]
    return len(active) > 0 and active[-1] == 0.0


def epochs_in_words(history: Mapping[str, Any]) -> str:
    """How the epochs of a learner went: by held-out triplets where there are some, else by the triplets that pull.

    >>> epochs_in_words({"active": [0.9, 0.34]})
    '34% of the triplets are within the margin and still pull, 90% in the first epoch'
    >>> epochs_in_words({"active": [0.0]})
    'no triplet was ever within the margin: there was nothing to learn beyond the start'
    """
    held_out = np.asarray(history.get("validation_loss", []), dtype=float)
    if np.isfinite(held_out).any():
        best = int(np.nanargmin(held_out))
        return f"held-out loss {held_out[0]:.3g} in the first epoch, {held_out[best]:.3g} at best (epoch {best + 1})"
    first, last = history["active"][0], history["active"][-1]
    if not np.any(history["active"]):
        return "no triplet was ever within the margin: there was nothing to learn beyond the start"
    if nothing_left(history):
        return f"no triplet is within the margin any more: nothing is left to learn ({first:.0%} in the first epoch)"
    return f"{last:.0%} of the triplets are within the margin and still pull, {first:.0%} in the first epoch"
