"""Columns of `obs` as classes or numbers that a page can colour by."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .content import Column

MOST_CLASSES = 60  # more can neither be told apart nor listed in a legend
MOST_COLUMNS = 24


def columns_of(obs: pd.DataFrame, first: list[str], most: int = MOST_CLASSES) -> tuple[list[Column], list[str]]:
    """All columns that can be coloured by, some of them first, and the names of those that cannot."""
    names = [*first, *(name for name in obs.columns if name not in first)]
    made = {name: column_of(str(name), obs[name], most) for name in names}
    kept = [column for column in made.values() if column is not None][:MOST_COLUMNS]
    shown = {column.name for column in kept}
    return kept, [str(name) for name in names if str(name) not in shown]


def column_of(name: str, column: pd.Series, most: int | None = MOST_CLASSES) -> Column | None:
    """Numbers with many values stay numbers; everything else is a class, unless there are too many of them."""
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if numeric and column.nunique() > 8:
        return Column(name, column.to_numpy(dtype=np.float64, na_value=np.nan))
    codes, values = pd.factorize(column, sort=True)
    if most is not None and len(values) > most:
        return None
    return Column(name, codes, [str(value) for value in values])


def as_data(column: Column) -> dict:
    """For the scripts of the page: places of classes, or numbers in thousandths of their range."""
    if column.is_class:
        return {"name": column.name, "values": column.values, "codes": column.codes.tolist()}
    known = column.codes[np.isfinite(column.codes)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    shares = (column.codes - low) / ((high - low) or 1.0)
    codes = [-1 if not np.isfinite(share) else round(1000 * share) for share in shares]
    return {"name": column.name, "low": low, "high": high, "codes": codes}
