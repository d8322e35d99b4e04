"""Estimates and differences of scores, the corrected resampled t, Wilson's interval, bootstrap draws, Holm's method.

`groundmetric.evaluation.intervals` has the confidence intervals of cross-validated scores that `compare` reports.
Scores of shuffled splits without predictions to count (clusters, the ROC AUC of points) have the corrected resampled t
(Nadeau & Bengio 2003): such splits share most of their training data, and the usual standard error is too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.utils import check_random_state

from .._internal import tables
from .._internal.types import RandomState
from .intervals import wilson_ends


@dataclass(frozen=True)
class Estimate:
    """A score with its confidence interval; what is not known is NaN.

    Parameters
    ----------
    value : float
        The score.
    sd : float
        Standard deviation over splits.
    low, high : float
        Lower and upper end of the confidence interval.
    how : str
        Method of the interval: "Wilson" (see `intervals`), "corrected t", or "" where none was computed.

    Examples
    --------
    >>> from groundmetric.evaluation import corrected_t
    >>> estimate = corrected_t([0.8, 0.9, 1.0], 0.25)
    >>> estimate.value, estimate.how, estimate.low < estimate.value < estimate.high
    (0.9, 'corrected t', True)
    """

    value: float
    sd: float
    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Difference:
    """Difference of two methods' scores, with its confidence interval and p-value; what is not known is NaN.

    Parameters
    ----------
    value : float
        Score of the first method less that of the second.
    low, high : float
        Lower and upper end of the confidence interval.
    p : float
        Two-sided p-value of the hypothesis that both methods score the same.
    how : str
        Method of the interval: "Wilson" (see `intervals`), "corrected t", or "" where none was computed.

    Examples
    --------
    >>> from groundmetric.evaluation import paired_t
    >>> difference = paired_t([0.8, 0.9, 1.0], [0.5, 0.7, 0.6], 0.25)
    >>> round(difference.value, 3), round(difference.p, 3), difference.how
    (0.3, 0.059, 'corrected t')
    """

    value: float
    low: float
    high: float
    p: float
    how: str


def corrected_t(scores: ArrayLike, test_share: float, *, confidence: float = 0.95) -> Estimate:
    """Mean over shuffled splits with the corrected resampled t interval.

    The variance of the mean of J scores is taken as (1/J + n_test/n_train) times the variance over splits, with J - 1
    degrees of freedom. Scores that are NaN are left out.

    Parameters
    ----------
    scores : array-like of shape (n_splits,)
        Score on each split.
    test_share : float
        Number of test distributions over that of training distributions, n_test / n_train.
    confidence : float, default=0.95
        Confidence level of the interval.

    Returns
    -------
    Estimate
        Mean, standard deviation and interval; where fewer than two scores are defined, without an interval.

    Examples
    --------
    >>> from groundmetric.evaluation import corrected_t
    >>> corrected_t([0.8, 0.9, 1.0], 0.25).value
    0.9
    """
    scores = _defined(scores)
    mean, sd, error, reach = _moments(scores, test_share, confidence)
    return Estimate(mean, sd, mean - reach * error, mean + reach * error, "corrected t")


def paired_t(one: ArrayLike, other: ArrayLike, test_share: float, *, confidence: float = 0.95) -> Difference:
    """How much higher `one` scores than `other` on the same shuffled splits, by the corrected resampled t test.

    Where the difference is the same in every split, the p-value is 0 (or 1, where the difference is 0): the test parts
    are then too small, or the splits too few, to tell how sure it is.

    Parameters
    ----------
    one, other : array-like of shape (n_splits,)
        Scores of the two methods; splits where either is NaN are left out.
    test_share : float
        Number of test distributions over that of training distributions, n_test / n_train.
    confidence : float, default=0.95
        Confidence level of the interval.

    Returns
    -------
    Difference
        Mean difference, interval and p-value.

    Examples
    --------
    >>> from groundmetric.evaluation import paired_t
    >>> round(paired_t([0.8, 0.9, 1.0], [0.5, 0.7, 0.6], 0.25).value, 3)
    0.3
    """
    differences = _defined(np.subtract(one, other))
    mean, _, error, reach = _moments(differences, test_share, confidence)
    if not np.isfinite(error):
        p = np.nan
    elif error == 0.0:
        p = float(mean == 0.0)
    else:
        p = float(2.0 * stats.t.sf(abs(mean) / error, differences.size - 1))
    return Difference(mean, mean - reach * error, mean + reach * error, p, "corrected t")


def resample(units: np.ndarray, codes: np.ndarray, n_draws: int = 2000, random_state: RandomState = 0) -> np.ndarray:
    """Bootstrap draws of distributions: how often each one counts in every draw.

    Whole units are drawn with replacement: distributions, or outer groups where some belong together. Where every unit
    has one class, as many are drawn of each class as there are; where any unit holds several, they are drawn without
    regard to class.

    Parameters
    ----------
    units : array of int of shape (n_distributions,)
        Unit of each distribution: numbers from 0 that leave none out.
    codes : array of int of shape (n_distributions,)
        Class of each distribution as a number.
    n_draws : int, default=2000
        Number of draws.
    random_state : int, RandomState or None, default=0
        Seed of the draws.

    Returns
    -------
    array of shape (n_draws, n_distributions)
        Weights; without rows where there is a single unit, which leaves nothing to draw.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.evaluation import resample
    >>> resample(np.arange(4), np.array([0, 0, 1, 1]), n_draws=3).sum(axis=1).tolist()
    [4.0, 4.0, 4.0]
    """
    random = check_random_state(random_state)
    pairs = np.unique(np.stack([units, codes]), axis=1)
    n_units = int(units.max()) + 1
    strata = pairs[1] if pairs.shape[1] == n_units else np.zeros(n_units, np.intp)
    if n_units < 2:
        return np.empty((0, units.size))
    counts = np.zeros((n_draws, n_units))
    for stratum in np.unique(strata):
        own = np.flatnonzero(strata == stratum)
        counts[:, own] = random.multinomial(own.size, np.full(own.size, 1.0 / own.size), n_draws)
    return counts[:, units]


def wilson(share: float, n: float, *, confidence: float = 0.95) -> Estimate:
    """A share of independent units with Wilson's interval, which has a width also where all of them agree.

    Parameters
    ----------
    share : float
        Share of the units that are right, from 0 to 1.
    n : float
        Number of independent units: patients where they have several samples each.
    confidence : float, default=0.95
        Confidence level of the interval.

    Returns
    -------
    Estimate
        The share and its interval, which contains it.

    Examples
    --------
    >>> from groundmetric.evaluation import wilson
    >>> found = wilson(1.0, 12)
    >>> round(found.low, 2), found.high
    (0.76, 1.0)
    """
    if not n > 0:
        return Estimate(share, np.nan, np.nan, np.nan, "")
    return Estimate(share, np.nan, *wilson_ends(share, n, float(stats.norm.ppf(0.5 + confidence / 2.0))), "Wilson")


def containing(values: np.ndarray, draws: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Percentile intervals of draws, (2, n), widened where a value is outside its own; NaN without draws."""
    if not len(draws):
        return np.full((2, values.size), np.nan)
    low, high = np.nanquantile(draws, [0.5 - confidence / 2.0, 0.5 + confidence / 2.0], axis=0)
    return np.array([np.fmin(low, values), np.fmax(high, values)])


def holm(p_values: ArrayLike) -> np.ndarray:
    """p-values adjusted for their number (Holm 1979).

    Parameters
    ----------
    p_values : array-like of shape (n,)
        p-values of all tests; NaN stays NaN and does not count.

    Returns
    -------
    array of shape (n,)
        Adjusted p-values, at most 1, in the same order.

    Examples
    --------
    >>> from groundmetric.evaluation import holm
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.size, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(order.size, 0, -1)))
    return adjusted


def format_estimate(estimate: Estimate) -> str:
    if np.isnan(estimate.value):
        return "–"
    text = tables.number(estimate.value)
    if np.isfinite(estimate.sd):
        text += f" ± {estimate.sd:.2f}"
    if np.isfinite(estimate.low):
        text += f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return text


def format_difference(difference: Difference) -> tuple[str, str]:
    if np.isnan(difference.value):
        return "–", "–"
    known = np.isfinite(difference.low)
    return f"{difference.value:+.2f}", f"[{difference.low:+.2f}, {difference.high:+.2f}]" if known else "–"


def _moments(scores: np.ndarray, test_share: float, confidence: float) -> tuple[float, float, float, float]:
    """Mean, standard deviation, corrected standard error, and how many of these the interval reaches."""
    if scores.size < 2:
        return float(scores[0]) if scores.size else np.nan, np.nan, np.nan, np.nan
    sd = float(scores.std(ddof=1)) if np.ptp(scores) > 0 else 0.0  # equal scores vary by nothing, not by rounding
    error = sd * np.sqrt(1.0 / scores.size + test_share)
    return float(scores.mean()), sd, float(error), float(stats.t.ppf(0.5 + confidence / 2.0, scores.size - 1))


def _defined(values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    return values[np.isfinite(values)]
