"""Rows of the validity table: a measured rate with confidence limits, and its nominal value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Row:
    """One number that a user reads, measured by simulation.

    Parameters
    ----------
    area : str
        Function that reports the number.
    number : str
        The number and its event, e.g. "p ≤ 0.05, no effect".
    design : str
        Simulated design.
    measured, low, high : float
        Mean over simulated cohorts and its 95 % confidence limits.
    nominal : float
        Value that the number promises.
    holds : bool
        Whether the measured value is compatible with the promise.
    """

    area: str
    number: str
    design: str
    measured: float
    low: float
    high: float
    nominal: float
    holds: bool


def mean_limits(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of independent values and its 95 % confidence limits by Student's t."""
    values = np.asarray(values, dtype=np.float64)
    error = values.std(ddof=1) / np.sqrt(values.size) * stats.t.ppf(0.975, values.size - 1)
    return float(values.mean()), float(values.mean() - error), float(values.mean() + error)


def share_limits(events: Sequence[bool]) -> tuple[float, float, float]:
    """Return a share of independent events and its 95 % confidence limits by Clopper and Pearson."""
    n, k = len(events), int(np.sum(events))
    test = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    return k / n, float(test.low), float(test.high)


def error_rate(area: str, number: str, design: str, limits: tuple[float, float, float], nominal: float) -> Row:
    """Return a row of an error rate: it holds unless the lower limit is above 1.2 times the nominal rate."""
    return Row(area, number, design, *limits, nominal, limits[1] <= 1.2 * nominal)


def difference(area: str, number: str, design: str, values: Sequence[float], slack: float) -> Row:
    """Return a row of a difference that should be at least 0: it holds if the upper limit is at least `-slack`."""
    limits = mean_limits(values)
    return Row(area, number, design, *limits, 0.0, limits[0] >= -slack or limits[2] >= 0.0)


def invariance(area: str, number: str, design: str, change: float, tolerance: float = 1e-9) -> Row:
    """Return a row of a change that should be 0."""
    return Row(area, number, design, change, change, change, 0.0, change <= tolerance)


def report(rows: Sequence[Row]) -> str:
    """Return the rows as lines of text."""
    return "\n".join(
        f"{'holds' if row.holds else 'SHORT'}  {row.area:22} {row.number:44} {row.design:52} "
        f"{row.measured:+.4f} [{row.low:+.4f}, {row.high:+.4f}]  nominal {row.nominal:g}"
        for row in rows
    )
