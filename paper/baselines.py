"""Baselines by name: those of the package, and LMNN, LFDA and ITML, which only the paper's tables need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groundmetric import baselines

from .itml import ITML
from .lfda import LFDA
from .lmnn import LMNN
from .paper_map import NCA

BASELINES: dict[str, Callable[..., Any]] = {**baselines.BASELINES, "nca": NCA, "lmnn": LMNN, "lfda": LFDA, "itml": ITML}


def by_name(name: str, **params: Any) -> Any:
    """A baseline by its short name (a key of `BASELINES`), with these parameters."""
    return BASELINES[name](**params)
