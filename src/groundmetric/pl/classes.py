"""What colours stand for: classes, or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .style import MARKERS, MISSING, colour

Palette = Mapping[Any, str] | Sequence[str] | None


@dataclass(frozen=True)
class Classes:
    """The classes that occur, as text, with a colour and a shape each; `codes` has the place of each item's class."""

    names: list[str]
    codes: np.ndarray
    colours: list[str]
    markers: list[str]
    values: list[Any]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def of_items(self) -> list[str]:
        """The colour of each item."""
        return [self.colours[c] for c in self.codes]


@dataclass(frozen=True)
class Numbers:
    """A number per item, which colours of increasing lightness show."""

    values: np.ndarray


def classes_of(
    labels: Any, size: int, palette: Palette = None, *, first: int = 0, items: str = "distributions"
) -> Classes:
    """The classes of plain labels, in sorted order."""
    values, codes = np.unique(np.asarray(labels), return_inverse=True)
    if codes.shape != (size,):
        raise ValueError(f"y has shape {codes.shape}, but a label is needed for each of {size} {items}")
    return name_classes(values.tolist(), codes, palette, first)


def name_classes(values: Sequence[Any], codes: np.ndarray, palette: Palette = None, first: int = 0) -> Classes:
    """Classes in the order of their `values`, of those that occur; items of code -1 are without label.

    A palette gives colours by value, or in order; None: those of the style, from number `first` on. A class keeps its
    colour where others do not occur.
    """
    colours = _colours(values, palette, first)
    markers = [MARKERS[c % len(MARKERS)] for c in range(len(values))]
    names = [value if isinstance(value, str) else f"class {value}" for value in values]
    if np.any(codes < 0):
        values, names, colours, markers = [*values, None], [*names, "no label"], [*colours, MISSING], [*markers, "X"]
        codes = np.where(codes < 0, len(values) - 1, codes)
    used, codes = np.unique(codes, return_inverse=True)
    names, colours, markers, values = ([part[c] for c in used] for part in (names, colours, markers, values))
    return Classes(names, codes, colours, markers, values)


def _colours(values: Sequence[Any], palette: Palette, first: int) -> list[str]:
    if palette is None:
        return [colour(first + c) for c in range(len(values))]
    if isinstance(palette, Mapping):
        lacking = [value for value in values if value not in palette]
        if lacking:
            raise ValueError(f"palette has no colour for {lacking}")
        return [palette[value] for value in values]
    if len(palette) < len(values):
        raise ValueError(f"palette has {len(palette)} colours for {len(values)} classes")
    return list(palette)[: len(values)]
