"""Results of a run of `groundmetric learn`, read from its folder or taken from memory, and the steps of a report."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import anndata as ad
import joblib
import numpy as np
import pandas as pd

from .. import __version__
from .._anndata.source import PANEL, Source
from .._anndata.store import (  # fmt: skip
    RUN_CELLS,
    RUN_PREDICTOR,
    EnsembleResults,
    Stored,
    check_parts,
    plain_parameters,
    predictor_of,
    read_entry,
)
from .._internal.cache import Cache
from .._internal.tables import plain
from .._internal.types import CellsLike
from .._internal.validation import ParameterError
from ..ensemble import Predictor as ViewPredictor
from ..estimators.predictor import load_predictor

FINDINGS, SAMPLES = "run.json", "samples.h5ad"
CACHE = "report.cache"  # file in the folder of a run
CACHE_FORMAT = 8  # entries of other formats are computed again
MAX_VALUES = 5  # ordered labels with more different values are compared by thirds
TOLERANCE = 1.2  # a budget is kept if the report takes at most this multiple of it


class BudgetError(ValueError):
    """A step that exceeds the remaining budget."""


@dataclass
class Steps:
    """Long steps of a report: a line before each, their duration, and the remaining budget."""

    n_jobs: int | None = None  # threads or processes; None: one
    verbose: int = 0  # 1 prints a line per step, and shows progress bars on a terminal
    budget: float | None = None  # seconds for all steps; None: no limit
    seconds: dict[str, float] = field(default_factory=dict)  # duration of each finished step
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def step(self, name: str, *, required: bool = False) -> Iterator[None]:
        """Time a step. Raise `BudgetError` if no time remains, unless the page requires the step."""
        if self.remaining <= 0 and not required:
            raise BudgetError(f"no time remained of the budget of {duration(self.budget or 0.0)}")
        if self.verbose:
            print(name, file=sys.stderr, flush=True)
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        """Seconds that remain of the budget."""
        return float("inf") if self.budget is None else self.budget - self.elapsed

    def affordable(self, n: int, seconds: float) -> int:
        """Return how many of `n` tasks of this duration fit into the remaining budget."""
        return n if self.budget is None or seconds <= 0 else max(0, min(n, int(self.remaining / seconds)))

    def overrun(self) -> str | None:
        """Return a sentence that names the longest steps if the budget was exceeded by more than 20 %."""
        if self.budget is None or self.elapsed <= TOLERANCE * self.budget:
            return None
        longest = sorted(self.seconds.items(), key=lambda item: -item[1])[:3]
        steps = ", ".join(f"{name} ({duration(seconds)})" for name, seconds in longest)
        return f"the report took {duration(self.elapsed)} instead of {duration(self.budget)}; longest steps: {steps}"


def duration(seconds: float) -> str:
    """Return a duration as text, rounded up.

    >>> duration(4.2), duration(75), duration(4000)
    ('5 s', '1 min 15 s', '1 h 7 min')
    """
    whole = max(1, int(np.ceil(seconds)))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h {round(whole % 3600 / 60)} min"


@dataclass(frozen=True)
class Run:
    """Results of learning, and the file or AnnData with the values of the cells."""

    cells: ad.AnnData  # after `tl.learn`, with or without values
    samples: ad.AnnData  # from `tl.samples`
    source: CellsLike | None  # values of the cells; None: the report omits results that need them
    findings: dict[str, Any]  # of `groundmetric learn`, each optional: "cells" (file), "seconds", "interrupted"
    folder: Path | None = None  # of the cache; None: nothing is cached
    key: str = "groundmetric"  # the `key_added` of `tl.learn`

    @classmethod
    def open(cls, folder: str | os.PathLike[str], cells: str | os.PathLike[str] | None = None) -> Run:
        """Read the folder of a run; `cells` is the file that was learned from.

        By default the file is searched under the name in run.json, relative to the working directory and to the
        parents of the run's folder. `source` is None if no such file exists.
        """
        path = Path(folder)
        for name in (FINDINGS, RUN_CELLS, SAMPLES):
            if not (path / name).is_file():
                raise ParameterError("run", os.fspath(folder), f", which is not a run of groundmetric learn: no {name}")
        findings = _read_findings(path / FINDINGS)
        source = _find_cells(findings["cells"], path.resolve()) if cells is None else Path(cells)
        run = cls(ad.read_h5ad(path / RUN_CELLS), ad.read_h5ad(path / SAMPLES), source, findings, path)
        entry = run.cells.uns.get(run.key, {})
        check_parts(entry, ("metric", "learner", *(("ensemble",) if "ensemble" in entry else ("history",))), run.key)
        if source is not None:
            with Source(source) as values:
                missing = ~run.cells.obs_names.isin(values.obs.index)
            if missing.any():
                name = str(run.cells.obs_names[missing][0])
                problem = f", which lacks {int(missing.sum())} of the {missing.size} cells of the run, e.g. {name!r}"
                raise ParameterError("cells", str(source), problem)
        return run

    @cached_property
    def entry(self) -> dict[str, Any]:
        return self.cells.uns[self.key]

    @cached_property
    def stored(self) -> Stored:
        return read_entry(self.cells.uns.get(self.key), self.key, "the run")

    @cached_property
    def results(self) -> EnsembleResults | None:
        """Held-out results of an ensemble; None for a single metric."""
        return EnsembleResults.read(self.entry)

    @cached_property
    def predictor(self) -> ViewPredictor | None:
        """Views of an ensemble with the cells that its members compare; None for a single metric."""
        file = None if self.folder is None else self.folder / RUN_PREDICTOR
        if file is not None and file.exists():
            return load_predictor(file).predictor_
        predictor = predictor_of(self.entry, f"uns[{self.key!r}]['predictor']")
        return None if predictor is None else predictor.predictor_

    @property
    def learner(self) -> dict[str, Any]:
        """Parameters of the learner."""
        return plain_parameters(self.entry["learner"])

    @property
    def group_key(self) -> str | None:
        return self.stored.params.get("group_key")

    @property
    def sample_key(self) -> str:
        return self.stored.params["sample_key"]

    @property
    def label_key(self) -> str:
        return self.stored.params["label_key"]

    @property
    def is_ordered(self) -> bool:
        """Whether labels are numbers or ordered categories."""
        return str(self.learner.get("target", "classes")) == "ordered"

    @property
    def has_numbers(self) -> bool:
        """Whether labels are numbers that were learned in their order."""
        return self.is_ordered and self.stored.labels.dtype.kind in "biuf"

    @property
    def is_expression(self) -> bool:
        return self.stored.params.get("use_rep") is None

    @property
    def feature(self) -> str:
        """Name of a feature in texts; a small panel may hold other features than genes."""
        if not self.is_expression:
            return "dimension"
        return "gene" if int(self.entry.get("features", {}).get("n_features", PANEL + 1)) > PANEL else "feature"

    @property
    def has_values(self) -> bool:
        return self.source is not None and (not isinstance(self.source, Path) or self.source.exists())

    @property
    def own_columns(self) -> list[str]:
        """Columns of `samples.obs` that learning added."""
        return [name for name in self.samples.obs.columns if str(name).startswith(f"{self.key}_")]

    @cached_property
    def classes(self) -> pd.Series:
        """Class of each training sample: its label, or the third of the labels for more than `MAX_VALUES` numbers."""
        labels = self.stored.labels
        if not self.has_numbers or labels.nunique() <= MAX_VALUES:
            return labels.astype(str)
        numbers = labels.to_numpy(dtype=np.float64)
        low, high = np.quantile(numbers, [1 / 3, 2 / 3])
        ranges = [f"up to {low:.3g}", f"{low:.3g} to {high:.3g}", f"above {high:.3g}"]
        names = np.array([f"{self.label_key} {text}" for text in ranges], dtype=object)
        return pd.Series(names[np.searchsorted([low, high], numbers)], labels.index)

    def with_order(self, obs: pd.DataFrame) -> pd.DataFrame:
        """Return `obs` with ordered text labels as categories from low to high."""
        if not self.is_ordered or self.has_numbers:
            return obs
        order = self.stored.params.get("order")
        if order is None and self.results is not None:
            order = self.results.ordered_categories[0]
        if order is None:
            return obs
        labels = obs[self.label_key].astype(object).map(str, na_action="ignore")
        return obs.assign(**{self.label_key: pd.Categorical(labels, list(map(str, order)), ordered=True)})

    def cached(self, name: str, parameters: Any, compute: Callable[[], Any]) -> Any:
        """Return the plain data of `compute`, from the cache if it has them for these parameters."""
        if self.folder is None:
            return compute()
        stored, labels = self.stored, list(map(str, self.stored.labels))
        state = [__version__, CACHE_FORMAT, stored.metric.components, stored.params, labels, parameters]
        cache, key = Cache(self.folder / CACHE), f"{name}-{joblib.hash(state)}"
        answer = cache.get_json(key)
        if answer is None:
            answer = plain(compute())
            cache.put_json(key, answer)
        return answer


def _find_cells(name: str, folder: Path) -> Path | None:
    """Return the file that was learned from, or None.

    The command may have been given in another working directory: the parents of the run's folder and the folder itself
    are searched as well. The run's own file of cells has no values.
    """
    paths = [Path(name), *(parent / name for parent in folder.parents)]
    paths += [folder / Path(name).name, folder.parent / Path(name).name]
    return next((path for path in paths if path.exists() and path.resolve() != folder / RUN_CELLS), None)


def _read_findings(path: Path) -> dict[str, Any]:
    try:
        findings = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}): run groundmetric learn again") from error
    findings = findings if isinstance(findings, dict) else {}
    if findings.get("command", "learn") != "learn":
        raise ValueError(f"{str(path)!r} was written by groundmetric {findings['command']}: expected a run of learn")
    if lacking := [name for name in ("groundmetric", "command", "cells") if name not in findings]:
        version = findings.get("groundmetric", "(unknown version)")
        raise ValueError(f"{str(path)!r} of groundmetric {version} lacks {lacking[0]!r}: run groundmetric learn again")
    return findings
