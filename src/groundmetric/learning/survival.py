"""Right-censored survival times: validation, Kaplan–Meier estimate, percentiles, concordance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._internal.types import LabelsLike
from .._internal.validation import NameIndex, align_by_name, missing_values, real_array

_FORM = 'a structured array with the fields "event" and "time" (as of scikit-survival), or a table with such columns'


@dataclass(frozen=True)
class SurvivalTimes:
    time: np.ndarray  # of the event (death, relapse), or when the patient was last seen without it
    event: np.ndarray  # bool: whether the event was observed; False: censored

    def __len__(self) -> int:
        return self.time.size

    def at(self, positions: np.ndarray) -> SurvivalTimes:
        return SurvivalTimes(self.time[positions], self.event[positions])


def read_survival(y: Any, name_index: NameIndex, name: str = "y") -> SurvivalTimes:
    y = align_by_name(y, name_index, name)
    if isinstance(y, np.ndarray) and y.dtype.names:
        kinds = {key: y.dtype[key].kind for key in y.dtype.names}
    elif hasattr(y, "columns") and hasattr(y, "iloc"):
        kinds = {key: getattr(y[key].dtype, "kind", "O") for key in y.columns}
    else:
        raise ValueError(f"{name} is a {type(y).__name__} without column names: expected {_FORM}")
    if {"event", "time"} <= set(kinds):
        columns = {"time": y["time"], "event": y["event"]}
    else:  # of two columns with other names, the column of booleans is the event
        keys = sorted(kinds, key=lambda key: kinds[key] == "b")
        if [kinds[key] == "b" for key in keys] != [False, True]:
            raise ValueError(f"{name} has the columns {list(kinds)}: expected {_FORM}")
        columns = {"time": y[keys[0]], "event": y[keys[1]]}
    for key, values in columns.items():
        if np.shape(values) != (name_index.size,):
            raise ValueError(
                f"{name} has {key} of shape {np.shape(values)}: one is needed for each of {name_index.size}"
            )
    event = np.asarray(columns["event"])
    missing = missing_values(event)
    if missing.any():
        raise ValueError(
            f"{name} has a missing event{_position(name_index, missing)}: give True if it was observed, else False"
        )
    wrong = np.array([value not in (0, 1) for value in event.tolist()])
    if wrong.any():
        raise ValueError(
            f"{name} has the event {event[wrong].tolist()[0]!r}{_position(name_index, wrong)}: expected True (1) if it "
            "was observed, and False (0) if the time is censored"
        )
    time = np.array(real_array(np.asarray(columns["time"]), f"time of {name}"), dtype=np.float64)
    invalid = ~np.isfinite(time) | (time < 0)
    if invalid.any():
        raise ValueError(
            f"{name} has the time {time[invalid][0]:g}{_position(name_index, invalid)}: expected a number of at least "
            "0; for a patient who is alive, give the time when last seen, with event False, or drop the distribution"
        )
    return SurvivalTimes(time, event.astype(bool))


def _position(name_index: NameIndex, invalid: np.ndarray) -> str:  # of the first invalid value, for an error
    position = int(np.argmax(invalid))
    return f" of {name_index.names[position]!r}" if name_index.names is not None else f" at position {position}"


def check_comparable(times: SurvivalTimes, name: str = "y") -> None:
    n = len(times)
    if not times.event.any():
        raise ValueError(f"{name} has no event among {n} distributions: the order of censored times is unknown")
    if not comparable_pairs(times).any():
        first = times.time[times.event].min()
        raise ValueError(
            f"{name} has no two survival times of known order: no time is later than the first event, at {first:g}, "
            f"among {n} distributions"
        )


def comparable_pairs(times: SurvivalTimes) -> np.ndarray:
    """Return a mask (row, column) of pairs in which the row's patient died before the column's."""
    # A patient who was censored at the time of another's death was alive then.
    later = times.time[None, :] > times.time[:, None]
    alive = (times.time[None, :] == times.time[:, None]) & ~times.event[None, :]
    return times.event[:, None] & (later | alive)


def concordance(times: SurvivalTimes, risk: np.ndarray, folds: np.ndarray | None = None) -> float:
    """Return Harrell's C: share of comparable pairs in which the patient who died first has the higher risk (ties: ½).

    With fold numbers, only patients of the same fold are compared: held-out risks of a fold are predicted from the
    other folds, whose mean risk is low if that of the fold is high. Uninformative risks would be worse than chance.
    """
    pairs = comparable_pairs(times)
    if folds is not None:
        pairs &= folds[:, None] == folds[None, :]
    order = np.sign(risk[:, None] - risk[None, :])
    return float(np.mean((order[pairs] + 1.0) / 2.0)) if pairs.any() else float("nan")


def kaplan_meier(times: SurvivalTimes, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct times of events and the share that survives each; with weights (…, n), a row per weighting.

    Patients who are censored at the time of an event are alive at that time.

    >>> times = SurvivalTimes(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    >>> [part.tolist() for part in kaplan_meier(times)]
    [[1.0, 2.0, 3.0], [0.75, 0.5, 0.0]]
    """
    weights = np.ones(len(times)) if weights is None else weights
    steps = np.unique(times.time[times.event])
    died = weights @ (times.event[:, None] & (times.time[:, None] == steps)).astype(np.float64)
    at_risk = weights @ (times.time[:, None] >= steps).astype(np.float64)
    hazard = np.divide(died, at_risk, out=np.zeros_like(died), where=at_risk > 0)
    return steps, np.cumprod(1.0 - hazard, axis=-1)


def survival_ranges(times: SurvivalTimes) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest possible percentile of survival of each patient, both 0 to 1.

    A death is in the middle of its step of the Kaplan–Meier curve; patients who outlive the last death are in the
    middle of the remaining range. For patients censored earlier, the range is from the curve at that time to there.

    >>> times = SurvivalTimes(np.array([1.0, 2.0, 3.0, 9.0]), np.array([True, False, True, False]))
    >>> [end.tolist() for end in survival_ranges(times)]
    [[0.125, 0.25, 0.4375, 0.8125], [0.125, 0.8125, 0.4375, 0.8125]]
    """
    steps, alive = kaplan_meier(times)
    died = np.concatenate([[0.0], 1.0 - alive])  # share that died before each step, and after the last one
    top = (died[-1] + 1.0) / 2.0
    step = np.searchsorted(steps, times.time, side="right")  # number of steps up to this time, inclusive
    middle = (died[np.maximum(step - 1, 0)] + died[step]) / 2.0
    low = np.where(times.event, middle, np.where(step == steps.size, top, died[step]))
    return low, np.where(times.event, middle, top)


def expected_percentiles(times: SurvivalTimes) -> np.ndarray:
    return expected(*survival_ranges(times))


def expected(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return expected percentiles from their ranges; for censored patients, the mean of the remaining curve."""
    return np.where(low == high, low, (low + 1.0) / 2.0)


def survival_percentiles(y: LabelsLike) -> np.ndarray:
    """Convert survival times to numbers: percentiles by Kaplan–Meier, expected percentiles for censored times.

    Percentiles are the shares of patients who die earlier, and do not depend on the unit of time. Use them for methods
    that need numbers, as the Peto–Prentice test uses scores.

    Parameters
    ----------
    y : structured array or table of shape (n,)
        Fields (columns) "event" (True if observed) and "time", as made by scikit-survival's `Surv`.

    Returns
    -------
    array of shape (n,)
        Numbers between 0 (dies first) and 1.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> y = np.array([(True, 3.0), (False, 4.0), (True, 5.0), (False, 9.0)], dtype=[("event", bool), ("time", float)])
    >>> gm.learning.survival_percentiles(y).tolist()
    [0.125, 0.625, 0.4375, 0.8125]
    """
    times = read_survival(y, NameIndex(None, n=NameIndex.of(y).size))
    check_comparable(times)
    return expected_percentiles(times)
