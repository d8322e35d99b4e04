"""A run of training as plain numbers, and back: what comes after depends on nothing else, to the last bit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ..triplets import Triplets
from .optimiser import Adam
from .renewal import Fresh, take_again

# What a run consists of beside its arrays: numbers that JSON can hold.
_PLAIN = ("finished", "converged", "stopped_pivoting", "penalty_weight", "best", "since_best")

State = dict[str, Any]  # arrays and plain numbers, by name


def state_of(run: Any) -> State:
    """All that the rest of a run depends on, between two steps. Arrays are not copied."""
    state: State = {name: getattr(run, name) for name in _PLAIN}
    state |= {
        "W": run.W,
        "kept": run.kept,
        "unit": run.objective.unit,
        "drawn": run.drawn,
        "part_names": list(run.parts[0] if run.parts else ()),
    }
    state |= named("optimiser", optimiser_state(run.optimiser))
    state |= named("random", random_state(run.random))
    triplets = run.objective.triplets
    state |= named("triplets", {field.name: getattr(triplets, field.name) for field in fields(triplets)})
    state |= named("history", {name: np.array(values) for name, values in run.history.items()})
    state |= named("pairs", run.objective.pairs.state())
    state["batches"] = np.concatenate([*run.batches, np.empty(0, np.int64)]).astype(np.int64)
    state["batch_sizes"] = np.array([batch.size for batch in run.batches], np.int64)
    state |= named("parts", {name: np.array([part[name] for part in run.parts]) for name in state["part_names"]})
    return {name: value for name, value in state.items() if value is not None}


def restore(run: Any, state: State, fresh: Fresh | None = None) -> None:
    """Put a run, as its constructor leaves it, where `state_of` found another one.

    `fresh` must give the points again that the other one had, where these changed from epoch to epoch.
    """
    for name in (*_PLAIN, "W", "kept"):
        setattr(run, name, state[name])
    set_optimiser_state(run.optimiser, under("optimiser", state))
    set_random_state(run.random, under("random", state))
    # The last epoch is followed by no other, and by no other points.
    take_again(run, fresh, len(state["history.loss"]) - int(run.finished), state.get("drawn"))
    run.use(Triplets(**under("triplets", state)))
    run.objective.unit = state["unit"]
    run.objective.pairs.restore(under("pairs", state))
    run.history = {name: values.tolist() for name, values in under("history", state).items()}
    ends = np.cumsum(state["batch_sizes"])
    run.batches = np.split(state["batches"], ends[:-1]) if ends.size else []
    columns = {name: values.tolist() for name, values in under("parts", state).items()}
    n_parts = len(columns["loss"]) if columns else 0
    run.parts = [{name: columns[name][place] for name in state["part_names"]} for place in range(n_parts)]


def optimiser_state(optimiser: Any) -> State:
    if not isinstance(optimiser, Adam):
        raise TypeError(f"{type(optimiser).__name__} cannot be put into a checkpoint: leave `checkpoint` out")
    return optimiser.state()


def set_optimiser_state(optimiser: Adam, state: State) -> None:
    optimiser.restore(state)


def random_state(random: np.random.RandomState) -> State:
    kind, keys, place, has_gauss, gauss = random.get_state(legacy=True)
    return {"kind": kind, "keys": keys, "place": place, "has_gauss": has_gauss, "gauss": gauss}


def set_random_state(random: np.random.RandomState, state: State) -> None:
    random.set_state((state["kind"], state["keys"], state["place"], state["has_gauss"], state["gauss"]))


def named(prefix: str, state: State) -> State:
    """The same under longer names.

    >>> named("a", {"b": 1})
    {'a.b': 1}
    """
    return {f"{prefix}.{name}": value for name, value in state.items()}


def under(prefix: str, state: State) -> State:
    """What `named` was given.

    >>> under("a", {"a.b": 1, "c": 2})
    {'b': 1}
    """
    return {name.removeprefix(f"{prefix}."): value for name, value in state.items() if name.startswith(f"{prefix}.")}
