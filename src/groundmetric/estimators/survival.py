"""Risk and survival curves of new distributions from right-censored survival times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._internal.files import Damaged
from .._internal.types import DistributionsLike, LabelsLike
from .._internal.validation import real_array
from ..learning.survival import (
    SurvivalTimes,
    check_comparable,
    concordance,
    kaplan_meier,
    read_survival,
)
from .ensemble import checked_distributions
from .predictor import EnsemblePredictor, Predicted

# Width of the kernel between risks, in standard deviations times n^(-1/5): Silverman's rule.
_WIDTH = 1.06


class TransportSurvival(EnsemblePredictor):
    """Risk of an event (death, relapse) from an ensemble of learned ground metrics.

    Right-censored times become numbers: the percentile of survival of each patient by Kaplan–Meier, for a censored one
    the expected percentile (see `groundmetric.learning.survival_percentiles`). An ensemble is fitted to these; the
    percentiles for the prediction of a fold use the times of the other folds only. A survival curve is the Kaplan–Meier
    estimate among training patients of similar held-out risk.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble, a copy of which is fitted with ``target="survival"``. None: one with default parameters.
    random_state : int, RandomState or None, default=None
        Seed of the ensemble; None keeps that of `ensemble`.

    Attributes
    ----------
    ensemble_ : GroundMetricEnsemble
        The fitted ensemble; not of one that was loaded.
    metric_ : GroundMetric
        Its metric.
    held_out_risk_ : array of shape (n_distributions,)
        Held-out risk of each training distribution.
    concordance_ : float
        Harrell's C of `held_out_risk_` between patients of the same fold, an estimate for new patients. NaN where no
        two such patients are comparable.
    n_features_in_ : int
        Number of features of the points.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_survival(24, 20, 10, random_state=0)
    >>> model = gm.TransportSurvival(gm.GroundMetricEnsemble(2), random_state=0).fit(D[:20], y[:20])
    >>> model.predict(D[20:]).shape, model.predict_survival(D[20:], times=[0.5, 1.0]).shape
    ((4,), (4, 2))
    """

    target = "survival"
    _times: SurvivalTimes
    held_out_risk_: np.ndarray

    def fit(
        self, X: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> TransportSurvival:
        """Fit the ensemble to percentiles of survival, and a kernel model to each way in which it compares.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : structured array or table of shape (n_distributions,)
            Fields (columns) "event", whether it was observed, and "time", as made by scikit-survival's `Surv`; the rows
            of a table go by its index.
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided between a part and the rest.
        strata : array-like of shape (n_distributions,) or None, default=None
            Stratum (batch, site) of each distribution, within which times are compared.

        Returns
        -------
        TransportSurvival
            The estimator itself.
        """
        D = checked_distributions(self, X, reset=True)
        times = read_survival(y, D.name_index)
        check_comparable(times)
        super().fit(D, y, groups, strata)
        self._times = times
        self.held_out_risk_ = 1.0 - self.ensemble_.held_out_
        self.concordance_ = concordance(times, self.held_out_risk_, self.ensemble_.folds_)
        return self

    def predict(self, X: DistributionsLike) -> np.ndarray:
        """Risk of each distribution: the expected share of patients who outlive it.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,)
            Risks; the higher, the earlier the event. They are predicted numbers: some may be beyond 0 or 1.
        """
        return 1.0 - self._predict(X)

    def predict_all(self, X: DistributionsLike) -> Predicted:
        """Risks of new distributions, with how usual these are and which are far from all; without a warning.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            New distributions.

        Returns
        -------
        Predicted
            Risks; typicality; and which are far.
        """
        found = super().predict_all(X)
        return replace(found, values=1.0 - found.values)

    def predict_survival(self, X: DistributionsLike, times: ArrayLike) -> np.ndarray:
        """Probability of being without the event at some times.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.
        times : array-like of shape (n_times,)
            Times, in the unit of those that were learned from. After the last training patient was seen, nothing is
            known: NaN.

        Returns
        -------
        array of shape (n_distributions, n_times)
            Probabilities, falling along each row.
        """
        risk = 1.0 - self._predict(X)
        wanted = np.atleast_1d(np.asarray(real_array(times, "times"), dtype=np.float64))
        if wanted.ndim != 1 or not np.all(wanted >= 0):
            raise ValueError(f"times are {times!r}: expected a list of numbers of at least 0")
        known = self.held_out_risk_
        width = _WIDTH * float(known.std()) * known.size**-0.2 or 1.0
        squares = ((risk[:, None] - known) / width) ** 2
        # Relative to the nearest, so that weights of a risk far from all others do not vanish.
        weights = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True)))
        steps, alive = kaplan_meier(self._times, weights)
        curve = np.hstack([np.ones((risk.size, 1)), alive])
        found = curve[:, np.searchsorted(steps, wanted, side="right")]
        found[:, wanted > self._times.time.max()] = np.nan
        return found

    def score(self, X: DistributionsLike, y: LabelsLike) -> float:
        """Concordance index (Harrell's C) of the predicted risks.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.
        y : structured array or table of shape (n_distributions,)
            Fields (columns) "event" and "time"; the rows of a table go by its index.

        Returns
        -------
        float
            Share of the pairs of known order that the risks have in this order: 1 for all, 0.5 by chance.
        """
        check_is_fitted(self, "metric_")
        D = self._checked(X)
        times = read_survival(y, D.name_index)
        check_comparable(times)
        return concordance(times, self.predict(D))

    def _pack_more(self) -> dict[str, np.ndarray]:
        found = {"time": self._times.time, "event": self._times.event, "held_out_risk": self.held_out_risk_}
        return {**found, "concordance": np.array(self.concordance_)}

    def _unpack_more(self, arrays: dict[str, np.ndarray]) -> None:
        time, event, risk = (arrays[name] for name in ("time", "event", "held_out_risk"))
        shape, kinds = (len(self.predictor_.names),), (time.dtype.kind, event.dtype.kind, risk.dtype.kind)
        if {time.shape, event.shape, risk.shape} != {shape} or kinds != ("f", "b", "f"):
            raise Damaged(f"there are survival times of shape {time.shape} for {shape[0]} distributions")
        if not np.all(time >= 0) or not np.isfinite(time + risk).all() or not event.any():
            raise Damaged("survival times or risks are negative, infinite or without an event")
        self._times, self.held_out_risk_ = SurvivalTimes(time, event), risk
        self.concordance_ = float(arrays["concordance"])
