"""Labels and masses in every container: the same result, or a clear error where it would have to be guessed."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pandas as pd
from tally import Tally, Wrong, check, random_of, silence

import groundmetric as gm

SHARE = 0.05
ROWS = ("labels in arrays, lists, tables", "masses in arrays, lists, tables", "masked and missing values")


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "containers")
    rng.choice(np.array([_labels, _masses, _missing], object))(rng, tally)


@functools.cache
def _cohort():
    rng = np.random.default_rng(1)
    owner, y = np.repeat(np.arange(8), 6), np.arange(8) % 2
    names = np.array([f"patient {k}" for k in range(8)])[owner]
    return gm.Distributions(rng.normal(size=(48, 3)) + y[owner][:, None], names), y


@functools.cache
def _expected(kind: str) -> np.ndarray:
    return _learn(np.array(["well", "ill"])[_cohort()[1]] if kind == "text" else _cohort()[1])


def _learn(y) -> np.ndarray:
    with silence():
        return gm.GroundMetricLearner(max_epochs=2, random_state=0).fit(_cohort()[0], y).components_


def _shuffled_by_name(rng, y):
    series = pd.Series(y, index=_cohort()[0].names)
    return series.iloc[rng.permutation(len(series))]


LABELS = {
    "list": lambda rng, y: y.tolist(),
    "tuple": lambda rng, y: tuple(y.tolist()),
    "array": lambda rng, y: y,
    "array of objects": lambda rng, y: y.astype(object),
    "view with strides": lambda rng, y: np.repeat(y, 2)[::2],
    "Series": lambda rng, y: pd.Series(y),
    "Series by name": lambda rng, y: pd.Series(y, index=_cohort()[0].names),
    "Series by name, shuffled": _shuffled_by_name,
    "Categorical": lambda rng, y: pd.Categorical(y),
    "Series of categories": lambda rng, y: pd.Series(pd.Categorical(y)),
    "Index": lambda rng, y: pd.Index(y),
}
NUMBERS = {f"array of {kind}": kind for kind in ("int8", "uint8", "int16", "int32", "int64", "uint64", "bool")}


def _labels(rng, tally: Tally) -> None:
    kind = str(rng.choice(["text", "numbers"]))
    y = _cohort()[1]
    y = np.array(["well", "ill"])[y] if kind == "text" else y
    name = str(rng.choice([*LABELS, *([] if kind == "text" else NUMBERS)]))
    values = y.astype(NUMBERS[name]) if name in NUMBERS else LABELS[name](rng, y)
    try:
        result = _learn(values)
    except Exception as error:
        raise Wrong(f"labels ({kind}) as {name}: {type(error).__name__}: {error}") from error
    check(np.array_equal(result, _expected(kind)), f"labels ({kind}) as {name}: another metric was learned")
    tally.note(ROWS[0])


MASSES = {
    "list": list,
    "tuple": tuple,
    "Series": lambda a: pd.Series(a, index=range(a.size, 0, -1)),
    "array of objects": lambda a: a.astype(object),
    "fractions": lambda a: [Fraction(x) for x in a.tolist()],
    "read-only": lambda a: np.frombuffer(a.tobytes()),
    "column of a frame": lambda a: pd.DataFrame({"mass": a})["mass"],
    **{kind: functools.partial(np.asarray, dtype=kind)
       for kind in ("int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "longdouble")},
}  # fmt: skip


def _masses(rng, tally: Tally) -> None:
    """Small integers, which every type holds exactly: the value must be the same to the last bit."""
    n, m = rng.integers(1, 7, 2)
    a, b = rng.integers(1, 5, n), np.ones(m)
    b[0] += max(0, a.sum() - m)
    a[0] += max(0, m - a.sum())
    a, b, cost = a.astype(float), b.astype(float), rng.uniform(size=(n, m))
    name, second = rng.choice(list(MASSES), 2)
    expected = gm.transport.solve(cost, a, b).value
    try:
        value = gm.transport.solve(cost, MASSES[name](a), MASSES[second](b)).value
        owner, points = np.zeros(int(n), int), rng.normal(size=(n, 2))
        stored = gm.Distributions(points, owner, weights=MASSES[name](a)).weights
    except Exception as error:
        raise Wrong(f"masses as {name} and {second}: {type(error).__name__}: {error}") from error
    check(value == expected, f"masses as {name} and {second}: value {value!r} rather than {expected!r}")
    check(np.allclose(stored, a / a.sum(), rtol=1e-15), f"weights as {name}: {stored} rather than {a / a.sum()}")
    tally.note(ROWS[1])


def _masked(values):
    return np.ma.masked_array(values, mask=np.arange(len(values)) == 1)


# None, NaN, NA and masked labels mark distributions with unknown labels.
GAPS = {
    "labels of other names": lambda: _learn(pd.Series(_cohort()[1], index=[f"other {k}" for k in range(8)])),
    "too few labels": lambda: _learn(_cohort()[1][:-1]),
    "masked masses": lambda: gm.transport.solve(np.eye(3), _masked([1.0, 1.0, 1.0])),
    "NaN among masses": lambda: gm.transport.solve(np.eye(2), [np.nan, 1.0]),
    "masked costs": lambda: gm.transport.solve(np.ma.masked_array(np.eye(2), mask=np.eye(2))),
    "masked points": lambda: gm.Distributions(np.ma.masked_array(np.eye(2), mask=np.eye(2)), [0, 1]),
    "masked weights": lambda: gm.Distributions(np.eye(3), [0, 0, 1], weights=_masked([1.0, 1.0, 1.0])),
}


def _masked_labels() -> None:
    """A masked label means a missing label, like None."""
    y = list(map(str, _cohort()[1]))
    unknown = np.array([None if k == 1 else label for k, label in enumerate(y)], dtype=object)
    check(np.array_equal(_learn(_masked(y)), _learn(unknown)), "masked labels: other result than with missing labels")


def _missing(rng, tally: Tally) -> None:
    if rng.random() < 1 / 8:
        _masked_labels()
        tally.note(ROWS[2], ended="missing label")
        return
    name = str(rng.choice(list(GAPS)))
    try:
        GAPS[name]()
    except (ValueError, TypeError) as error:
        check(len(str(error)) > 10, f"{name}: an error without a message")
        tally.note(ROWS[2], ended="rejected")
        return
    raise Wrong(f"{name}: accepted without an error")
