"""Results as data frames; pandas is loaded when somebody asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(columns: Mapping[str, Any], order: np.ndarray | None = None) -> DataFrame:
    """A data frame of these columns, its rows in the given order."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        message = "pandas is needed for a table: pip install 'groundmetric[single-cell]'"
        raise ModuleNotFoundError(message, name="pandas") from None
    table = pd.DataFrame(dict(columns))
    return table if order is None else table.iloc[order].reset_index(drop=True)
