"""Right-censored survival times: labels read, Kaplan–Meier, percentiles, triplets of certain order, concordance.

Of a patient who died the survival time is known; of one who was alive when last seen (censored) it is known to be
longer. Times are compared as percentiles of survival, the share of patients who die earlier by the Kaplan–Meier
estimate, so that neither their unit nor their skewness matters. Those who outlive the last death observed are alike:
their percentile is the middle of what is left. Of a patient who was censored before, a range of percentiles is known,
and only comparisons that hold anywhere in it are learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._internal.types import LabelsLike
from .._internal.validation import NameIndex, align_by_name, missing_values, real_array

_FORM = 'a structured array with the fields "event" and "time" (as of scikit-survival), or a table with such columns'


@dataclass(frozen=True)
class SurvivalTimes:
    """Survival times of n distributions.

    Attributes
    ----------
    time : array of shape (n,)
        Time of the event (death, relapse), or when the patient was last seen without it.
    event : array of bool of shape (n,)
        Whether the event was observed; False: censored.
    """

    time: np.ndarray
    event: np.ndarray

    def __len__(self) -> int:
        return self.time.size

    def at(self, places: np.ndarray) -> SurvivalTimes:
        return SurvivalTimes(self.time[places], self.event[places])


def read_survival(y: Any, name_index: NameIndex, name: str = "y") -> SurvivalTimes:
    """Times and events in the order of the name index; whatever is wrong with them is said."""
    columns = _two_columns(align_by_name(y, name_index, name), name)
    time, event = (np.asarray(columns[key]) for key in ("time", "event"))
    for key, values in columns.items():
        if np.shape(values) != (name_index.size,):
            raise ValueError(
                f"{name} has {key} of shape {np.shape(values)}: one is needed for each of {name_index.size}"
            )
    event = _events(event, name_index, name)
    time = np.array(real_array(time, f"time of {name}"), dtype=np.float64)
    bad = ~np.isfinite(time) | (time < 0)
    if bad.any():
        raise ValueError(
            f"{name} has the time {time[bad][0]:g}{_of(name_index, bad)}: expected a number of at least 0; of a "
            "patient who is alive, give when he was last seen, with event False, or drop the distribution"
        )
    return SurvivalTimes(time, event)


def _two_columns(y: Any, name: str) -> dict[str, Any]:
    """Time and event by these names, or the event by its being true or false."""
    if isinstance(y, np.ndarray) and y.dtype.names:
        names, kinds = list(y.dtype.names), {key: y.dtype[key].kind for key in y.dtype.names}
    elif hasattr(y, "columns") and hasattr(y, "iloc"):
        names = list(y.columns)
        kinds = {key: getattr(y[key].dtype, "kind", "O") for key in names}
    else:
        raise ValueError(f"{name} is a {type(y).__name__} without names of columns: survival times are {_FORM}")
    if {"event", "time"} <= set(names):
        return {"time": y["time"], "event": y["event"]}
    truth = [key for key in names if kinds[key] == "b"]
    if len(names) != 2 or len(truth) != 1:
        raise ValueError(f"{name} has the columns {names}: survival times are {_FORM}")
    return {"time": y[next(key for key in names if key not in truth)], "event": y[truth[0]]}


def _events(event: np.ndarray, name_index: NameIndex, name: str) -> np.ndarray:
    missing = missing_values(event)
    if missing.any():
        raise ValueError(
            f"{name} has no event{_of(name_index, missing)}: give True where it was observed, False where it was not"
        )
    wrong = np.array([value not in (0, 1) for value in event.tolist()])
    if wrong.any():
        raise ValueError(
            f"{name} has the event {event[wrong].tolist()[0]!r}{_of(name_index, wrong)}: expected True where it was "
            "observed (1), and False where the time is censored (0)"
        )
    return event.astype(bool)


def _of(name_index: NameIndex, which: np.ndarray) -> str:
    """Whose value it is."""
    place = int(np.argmax(which))
    return f" of {name_index.names[place]!r}" if name_index.names is not None else f" at place {place}"


def check_comparable(times: SurvivalTimes, name: str = "y") -> None:
    """Raise where no order of two survival times is known."""
    n = len(times)
    if not times.event.any():
        raise ValueError(f"{name} has no event among {n} distributions: if all are censored, no order is known")
    if not comparable_pairs(times).any():
        first = times.time[times.event].min()
        raise ValueError(
            f"{name} has no two survival times of known order: nobody was seen after the first event, at {first:g}, "
            f"among {n} distributions"
        )


def comparable_pairs(times: SurvivalTimes) -> np.ndarray:
    """Which patient (row) certainly died before which other (column): censored at the same time means alive then."""
    later = times.time[None, :] > times.time[:, None]
    alive = (times.time[None, :] == times.time[:, None]) & ~times.event[None, :]
    return times.event[:, None] & (later | alive)


def concordance(times: SurvivalTimes, risk: np.ndarray, folds: np.ndarray | None = None) -> float:
    """Harrell's C: share of the comparable pairs in which the one who died first has the higher risk; ties are half.

    With folds (numbers), only patients of the same fold are compared. Risks of a fold are predicted from the others,
    whose mean is the lower the higher that of the fold: between folds, useless predictions are worse than chance.
    """
    pairs = comparable_pairs(times)
    if folds is not None:
        pairs &= folds[:, None] == folds[None, :]
    order = np.sign(risk[:, None] - risk[None, :])
    return float(np.mean((order[pairs] + 1.0) / 2.0)) if pairs.any() else float("nan")


def kaplan_meier(times: SurvivalTimes, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Distinct times of events, and the share that survives each; with weights (…, n), a row for each of these.

    Patients who are censored at the time of an event count as alive then.

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
    """Lowest and highest percentile of survival that each patient may have, both 0 to 1.

    A death is in the middle of its step of the Kaplan–Meier curve. Whoever outlives the last one is in the middle of
    what is left. Patients who were censored before may be anywhere between what was left of the curve then and there.

    >>> times = SurvivalTimes(np.array([1.0, 2.0, 3.0, 9.0]), np.array([True, False, True, False]))
    >>> [end.tolist() for end in survival_ranges(times)]
    [[0.125, 0.25, 0.4375, 0.8125], [0.125, 0.8125, 0.4375, 0.8125]]
    """
    steps, alive = kaplan_meier(times)
    died = np.concatenate([[0.0], 1.0 - alive])  # share that has died before each step, and after the last
    top = (died[-1] + 1.0) / 2.0
    step = np.searchsorted(steps, times.time, side="right")  # steps until then, one at the same time included
    middle = (died[np.maximum(step - 1, 0)] + died[step]) / 2.0
    low = np.where(times.event, middle, np.where(step == steps.size, top, died[step]))
    return low, np.where(times.event, middle, top)


def expected_percentiles(times: SurvivalTimes) -> np.ndarray:
    """Percentile of survival of each patient, of censored ones the mean of what is left of the curve."""
    return expected(*survival_ranges(times))


def expected(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.where(low == high, low, (low + 1.0) / 2.0)


def survival_percentiles(y: LabelsLike) -> np.ndarray:
    """Survival times as numbers: the percentile of each by Kaplan–Meier, of censored ones the expected percentile.

    They stand for right-censored times where a method needs numbers, as the scores of the Peto–Prentice test do: a
    patient who is censored early is near the middle, one who outlives all deaths near 1.

    Parameters
    ----------
    y : structured array or table of shape (n,)
        Fields (columns) "event", whether it was observed, and "time", as made by scikit-survival's `Surv`.

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
