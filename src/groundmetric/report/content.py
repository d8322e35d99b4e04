"""What a report shows, as plain data: made by `collecting`, drawn by `page`. A part that is None is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .markup import Markup


@dataclass(frozen=True)
class Column:
    """Something known of every sample or cell: a class (codes are places in `values`, -1 missing) or a number."""

    name: str
    codes: np.ndarray
    values: list[str] | None = None

    @property
    def is_class(self) -> bool:
        return self.values is not None


@dataclass(frozen=True)
class SampleMap:
    """Samples in the plane and their distances; the first column is the label."""

    names: list[str]
    places: np.ndarray
    columns: list[Column]
    distances: np.ndarray
    order: np.ndarray
    kept_variance: float  # share of the squared distances that the plane shows


@dataclass(frozen=True)
class CellMap:
    """Some cells along the first two axes of the learned space."""

    places: np.ndarray
    columns: list[Column]
    shares: list[float]
    of: int  # cells that they were drawn from


@dataclass(frozen=True)
class Field:
    """A column of a table; `digits` are those of a number (None: text), `bar` draws it as a bar behind."""

    name: str
    digits: str | None = None
    bar: bool = False
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of plain values. `choice` is the place of a column by whose values rows can be picked."""

    identifier: str
    caption: str
    fields: list[Field]
    rows: list[list[Any]]
    choice: int | None = None


@dataclass(frozen=True)
class Axis:
    """A direction of the learned space: its share of importance, its strongest genes, and what these take part in."""

    name: str
    share: float
    ends: tuple[str, str]  # what lies towards its low and its high end
    genes: list[tuple[str, float]]
    processes: Table | None = None


@dataclass(frozen=True)
class Evaluation:
    """Held-out scores of all methods, the first being what was learned; `test` is against chance."""

    score: str
    chance: float
    rows: list[dict[str, Any]]
    how: str
    test: dict[str, Any] | None
    notes: list[str]


@dataclass(frozen=True)
class Caution:
    """Something to know before believing the rest."""

    title: str
    text: str


@dataclass(frozen=True)
class Part:
    """A section that the caller adds: a title for the contents and markup; at the end, or right after the summary."""

    identifier: str
    title: str
    body: Markup
    first: bool = False


@dataclass(frozen=True)
class Content:
    """All that a page shows."""

    title: str
    subtitle: str
    label: str
    facts: dict[str, dict[str, str]]
    summary: list[str]
    cautions: list[Caution]
    samples: SampleMap
    cells: CellMap
    genes: Table
    feature: str  # what a feature is called
    axes: list[Axis]
    types: Table | None
    history: dict[str, np.ndarray]
    evaluation: Evaluation | None
    left_out: list[str] = field(default_factory=list)
    parts: Sequence[Part] = ()
