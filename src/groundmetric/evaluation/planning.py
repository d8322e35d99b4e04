"""Planning of a study from a pilot cohort: accuracy and power as functions of the number of patients.

Both are extrapolated from the pilot with a confidence band that makes few assumptions.

- Accuracy a is expressed as the separation z = Φ⁻¹(a). More training patients do not lower it. For a discriminant with
  separation Δ of the true means and p features it is Δ² / (2 √(Δ² + 4p/n)), so it grows at most with √n. The band at n
  patients is therefore from the lower end of the interval of the pilot to its upper end times √(n/N).
- The z-score of the permutation test, Φ⁻¹(1 - p), has a standard error of about 1. It grows with √n for a test of one
  direction, and at most with n for a sum of squares over many features (PERMANOVA).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student_t
from sklearn.base import clone

from .._internal.parallel import progress_bar
from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import ParameterError, check_labels, check_number, group_list, resolve_seed, unit_codes
from ..distributions import as_distributions
from ..estimators.ensemble import GroundMetricEnsemble
from .permutation import MERGE_WEIGHTS, merged_p_value, permutation_test
from .scores import Predictions, interval

if TYPE_CHECKING:
    from pandas import DataFrame

# Permutations of the test of association, which need no fit: the largest z-score is 3.54.
_N_PERMUTATIONS = 4999
# Pilot sizes, as shares of the patients, at which the accuracy is measured by subsampling.
_SHARES = (0.5, 0.75)
# Largest exponents with which separation and z-score grow with the number of patients (see above).
_MAX_ACCURACY_GROWTH, _POWER_GROWTH = 0.5, (0.5, 1.0)
# An upper limit beyond this many times the pilot is not reported: it is practically unlimited.
_MAX_FACTOR = 50
# Assumed standard error of the z-score of a permutation test: that of a z-test with a margin of 10 %.
_Z_ERROR = 1.1


@dataclass(frozen=True)
class LearningCurve:
    """Balanced accuracy and power of the permutation test as functions of the number of patients.

    Parameters
    ----------
    n_patients, n_classes : int
        Patients and classes of the pilot.
    sizes, accuracies : array of shape (n_sizes,)
        Numbers of patients of subsamples, the pilot itself last, and their mean held-out balanced accuracy.
    interval : tuple of two floats
        Confidence interval of the balanced accuracy of the pilot.
    growth : float
        Estimated exponent with which the separation of the classes grows with the number of patients.
    p, level : float
        P-value of the pilot (statistics of association, combined with a corrected t-test of the held-out
        log-probability over patients), and significance level of the planned test.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.evaluation import LearningCurve
    >>> curve = LearningCurve(20, 2, np.array([20.0]), np.array([0.7]), (0.5, 0.85), 0.25, 0.02, 0.05)
    >>> [round(n) for n in curve.patients_for(0.8)[:2]]
    [26, 12]
    """

    n_patients: int
    n_classes: int
    sizes: np.ndarray
    accuracies: np.ndarray
    interval: tuple[float, float]
    growth: float
    p: float
    level: float

    def accuracy(self, n: int) -> tuple[float, float, float]:
        """Return the expected balanced accuracy on new patients after training on `n` patients, and its band's ends."""
        chance, ratio = 1.0 / self.n_classes, self._ratio(n)
        value, low, high = (separation_of(end, self.n_classes) for end in (self.accuracies[-1], *self.interval))
        ends = (value * ratio**self.growth, low, max(high, 0.0) * ratio**_MAX_ACCURACY_GROWTH)
        value, low, high = (float(chance + (norm.cdf(end) - 0.5) * 2.0 * (1.0 - chance)) for end in ends)
        return value, min(low, value), max(high, value)

    def power(self, n: int) -> tuple[float, float, float]:
        """Return the power of the permutation test with `n` patients, and the ends of its confidence band."""
        ratio = self._ratio(n)
        z, low, high = self._z_scores()
        slow, fast = _POWER_GROWTH
        ends = (max(z, 0.0) * ratio ** (0.5 * (slow + fast)), max(low, 0.0) * ratio**slow, max(high, 0.0) * ratio**fast)
        value, low, high = (float(norm.cdf(end - norm.ppf(1.0 - self.level))) for end in ends)
        return value, low, high

    def patients_for(self, power: float = 0.8) -> tuple[float, float, float]:
        """Return the number of patients for a `power` of the permutation test, and the ends of its interval.

        Numbers are infinite where the pilot does not exclude that there is no effect.
        """
        if not self.level < power < 1.0:
            raise ParameterError("power", power, f": expected a number between {self.level:g} and 1")
        needed = float(norm.ppf(1.0 - self.level) + norm.ppf(power))
        z, low, high = self._z_scores()
        slow, fast = _POWER_GROWTH
        numbers = [
            np.inf if score <= 0 else self.n_patients * max(needed / score, 0.0) ** (1.0 / growth)
            for score, growth in ((z, 0.5 * (slow + fast)), (high, fast), (low, slow))
        ]
        value, low, high = (float(np.ceil(n)) for n in numbers)
        return value, low, high

    def describe(self, power: float = 0.8) -> str:
        """Return sentences on the pilot, twice its size, and the number of patients for a `power`."""
        value, low, high = self.patients_for(power)
        accuracy, worst, best = self.accuracy(2 * self.n_patients)
        lines = [
            f"Pilot: {self.n_patients} patients, balanced accuracy {self.accuracies[-1]:.2f} "
            f"[{self.interval[0]:.2f}, {self.interval[1]:.2f}], p = {self.p:.3g}.",
            f"With {2 * self.n_patients} patients: accuracy {accuracy:.2f} [{worst:.2f}, {best:.2f}], "
            "power {:.2f} [{:.2f}, {:.2f}].".format(*self.power(2 * self.n_patients)),
        ]
        if high <= _MAX_FACTOR * self.n_patients:
            lines.append(f"Patients for a power of {power:g}: {value:.0f} [{low:.0f}, {high:.0f}].")
        else:
            estimate = f"at least {low:.0f}" if np.isfinite(low) else "unknown"
            lines.append(
                f"Patients for a power of {power:g}: {estimate}. The pilot is too small for an upper limit: it does "
                "not exclude that the classes are nearly equal."
            )
        return "\n".join(lines)

    def table(self) -> DataFrame:
        """Return accuracy and power, with their bands, for 1 to 8 times the patients of the pilot."""
        import pandas as pd

        sizes = [round(self.n_patients * factor) for factor in (1, 1.5, 2, 3, 4, 6, 8)]
        names = ["patients", "accuracy", "accuracy low", "accuracy high", "power", "power low", "power high"]
        return pd.DataFrame([[n, *self.accuracy(n), *self.power(n)] for n in sizes], columns=names)

    def _ratio(self, n: int) -> float:
        if n < self.n_patients:
            raise ParameterError("n", n, f": expected at least the {self.n_patients} patients of the pilot")
        return n / self.n_patients

    def _z_scores(self) -> tuple[float, float, float]:
        z = float(norm.ppf(1.0 - min(self.p, 1.0 - 1e-9)))
        reach = _Z_ERROR * float(norm.ppf(0.975))
        # The smallest p-value of the permutations does not limit the effect from above.
        return z, z - reach, np.inf if self.p <= 1.5 / (_N_PERMUTATIONS + 1) else z + reach


def separation_of(accuracy: float, n_classes: int) -> float:
    """Return Φ⁻¹ of an accuracy on a scale on which chance is 1/2."""
    chance = 1.0 / n_classes
    binary = 0.5 + 0.5 * (accuracy - chance) / (1.0 - chance)
    return float(norm.ppf(np.clip(binary, 1e-3, 1.0 - 1e-3)))


def learning_curve(
    ensemble: GroundMetricEnsemble,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    level: float = 0.05,
    n_subsamples: int = 3,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> LearningCurve:
    """Extrapolate accuracy and power from a pilot cohort to larger numbers of patients.

    The ensemble is fitted to the pilot and to random halves and three quarters of its patients. The 95 % confidence
    band rests on the pilot and on bounds of the growth only (see `groundmetric.evaluation.planning`); subsamples give
    the estimate inside the band. Planned cohorts are composed as the pilot: samples per patient and class frequencies.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble
        Ensemble for classes; a copy is fitted.
    D : Distributions
        The pilot cohort.
    y : array-like of shape (n_distributions,)
        Classes; these, groups and strata are matched by name where they carry names.
    groups, strata : array-like of shape (n_distributions,) or None, default=None
        Patient and stratum (batch) of each distribution. Without groups, each distribution is a patient.
    level : float, default=0.05
        Significance level of the planned test.
    n_subsamples : int, default=3
        Random subsamples of each size.
    random_state : int, RandomState or None, default=0
        Seed of the subsamples and permutations.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Returns
    -------
    LearningCurve

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, offsets=(1.5, 7.5, 13.5, 19.5), random_state=0)
    >>> curve = gm.evaluation.learning_curve(gm.GroundMetricEnsemble(2, random_state=0), D, y, n_subsamples=1)
    >>> curve.n_patients, curve.sizes.tolist()
    (12, [6.0, 9.0, 12.0])
    """
    check_number("n_subsamples", n_subsamples, low=1, whole=True)
    if ensemble.target != "classes":
        raise ParameterError("target", ensemble.target, ": learning curves are available for classes")
    D = as_distributions(D)
    labels = check_labels(y, D.name_index)
    classes, codes = np.unique(labels, return_inverse=True)
    groups, strata = group_list(groups, D.name_index), group_list(strata, D.name_index, "strata")
    units = unit_codes(groups, len(D))
    random = np.random.RandomState(resolve_seed(random_state) % 2**32)
    subsets = [np.arange(len(D))]
    for share in np.repeat(_SHARES, n_subsamples):
        rows = np.flatnonzero(np.isin(units, _stratified_subset(units, codes, share, random)))
        # A subset in which a class has fewer than two patients cannot be held out.
        if all(np.unique(units[rows][codes[rows] == c]).size >= 2 for c in range(classes.size)):
            subsets.append(rows)
    sizes, accuracies, pilot = [], [], None
    with progress_bar(len(subsets), "learning curve", "fit", show=bool(verbose)) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # subsets of a cohort repeat its warnings
        for rows in subsets:
            parts = {
                name: None if part is None else [part[d] for d in rows]
                for name, part in (("groups", groups), ("strata", strata))
            }
            fitted = clone(ensemble).fit(D[rows], labels[rows], **parts)
            pilot = fitted if pilot is None else pilot
            hits = fitted.held_out_.argmax(axis=1) == codes[rows]  # of labels that the prediction did not use
            members = [codes[rows] == c for c in range(classes.size)]
            recalls = [_unit_means(hits[member], units[rows][member]).mean() for member in members]
            accuracies.append(float(np.mean(recalls)))
            sizes.append(np.unique(units[rows]).size)
            bar.update()
    levels = np.unique(sizes)
    means = np.array([np.mean([a for a, s in zip(accuracies, sizes, strict=True) if s == level]) for level in levels])
    means[-1] = accuracies[0]
    assert pilot is not None
    n_folds = np.unique(pilot.folds_).size
    log_gains = np.log(np.clip(pilot.held_out_[np.arange(len(D)), codes], 1e-3, 1.0) * classes.size)
    counts = np.eye(classes.size)[pilot.held_out_.argmax(axis=1)]
    ends = interval(Predictions(codes, units, counts[None], None, 1.0 / n_folds), "balanced_accuracy", accuracies[0])
    test = permutation_test(
        ensemble, D, labels, groups=groups, strata=strata, statistic="association", n_permutations=_N_PERMUTATIONS,
        random_state=random.randint(2**31),
    )  # fmt: skip
    # The p-value of the mean held-out gain stands in for that of refits with permuted labels, which take minutes: a
    # one-sided t-test over patients, with the variance corrected for the overlap of training sets (Nadeau & Bengio
    # 2003).
    gains = _unit_means(log_gains, units)
    error = float(np.sqrt(gains.var(ddof=1) * (1.0 / gains.size + 1.0 / (n_folds - 1)))) or 1e-12
    p_gain = max(float(student_t.sf(gains.mean() / error, n_folds - 1)), 1.0 / (_N_PERMUTATIONS + 1))
    p = merged_p_value([test.p, p_gain], MERGE_WEIGHTS)
    separations = [separation_of(mean, classes.size) for mean in means]
    growth = 0.5 * _MAX_ACCURACY_GROWTH
    if levels.size > 1 and min(separations) > 0:
        slope = float(np.polyfit(np.log(levels), np.log(separations), 1)[0])
        growth = 0.5 * (growth + float(np.clip(slope, 0.0, _MAX_ACCURACY_GROWTH)))
    return LearningCurve(int(units.max()) + 1, classes.size, levels.astype(float), means, ends, growth, p, level)


def _stratified_subset(units: np.ndarray, codes: np.ndarray, share: float, random: np.random.RandomState) -> np.ndarray:
    """Return a share of the patients, drawn within sets of patients with the same classes."""
    profiles: dict[tuple[int, ...], list[int]] = {}
    for unit in np.unique(units):
        profiles.setdefault(tuple(np.unique(codes[units == unit]).tolist()), []).append(int(unit))
    chosen = [random.permutation(members)[: max(2, round(share * len(members)))] for members in profiles.values()]
    return np.concatenate(chosen)


def _unit_means(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    return np.array([values[units == unit].mean() for unit in np.unique(units)])
