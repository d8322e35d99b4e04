"""A run of `groundmetric learn`, from its folder or in memory: results, values, a cache, and steps that take long."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import anndata as ad
import joblib
import numpy as np
import pandas as pd

from .. import __version__
from .._anndata.cohort import Labelled, read_cohort
from .._anndata.source import PANEL, Source
from .._anndata.store import (  # fmt: skip
    RUN_CELLS,
    RUN_PREDICTOR,
    EnsembleResults,
    Stored,
    check_parts,
    predictor_of,
    read_entry,
)
from .._internal.cache import Cache
from .._internal.tables import without_nan
from .._internal.types import CellsLike
from ..distributions import Distributions
from ..ensemble import Predictor as ViewPredictor
from ..estimators import GroundMetricEnsemble, GroundMetricLearner
from ..estimators.predictor import load_predictor
from ..estimators.preprocessing import with_features
from ..learning.training import read_parameters

FINDINGS, SAMPLES = "run.json", "samples.h5ad"
CACHE = "report.cache"  # file in the folder of a run
FORMAT = 7  # of what is cached: with another number, and it is computed anew
MOST_STEPS = 5  # values of an ordered label up to which samples are compared by value
ASIDE = 8.0  # seconds for what is done before and after all steps: imports, reading the run, drawing the page
Log = Callable[[str], None]


@dataclass
class Steps:
    """Long steps of a report: the line before each, threads, and the time that is left of a budget.

    Attributes
    ----------
    n_jobs : int or None
        Threads or processes; None: one.
    verbose : int
        1 shows progress bars where there is a terminal.
    log : function of str
        Called with a line before each step.
    budget : float or None
        Seconds for all steps; None: as long as they take.
    first : function or None
        Called once, before the first step.
    """

    n_jobs: int | None = None
    verbose: int = 0
    log: Log = lambda line: None
    budget: float | None = None
    first: Callable[[], None] | None = None
    started: float = field(default_factory=time.monotonic)

    def begin(self, line: str, seconds: float | None = None, *, needed: bool = False) -> None:
        """Say what begins, and how long it is expected to take; raise where no time is left, unless it is `needed`."""
        if self.first is not None:
            first, self.first = self.first, None
            first()
        if self.left <= 0 and not needed:
            raise ValueError(f"nothing is left of the budget of {duration(self.budget or 0.0)}: give a longer one")
        self.log(line if seconds is None else f"{line}: about {duration(seconds)}")

    @property
    def left(self) -> float:
        """Seconds that are left of the budget, but for those that reading the run and drawing the page take."""
        return float("inf") if self.budget is None else self.budget - ASIDE - (time.monotonic() - self.started)

    def affordable(self, most: int, seconds: float, spent: float = 0.0) -> int:
        """How many of at most so many tasks fit into what is left, each of so many seconds, after `spent` seconds."""
        if self.budget is None or seconds <= 0:
            return most
        return max(0, min(most, int((self.left - spent) / seconds)))


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(4.2), duration(75), duration(4000)
    ('5 s', '1 min 15 s', '1 h 7 min')
    """
    whole = max(1, int(np.ceil(seconds)))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h {round(whole % 3600 / 60)} min"


def as_budget(seconds: float) -> str:
    """A time that is enough, as `--budget` takes it.

    >>> as_budget(42), as_budget(178), as_budget(7000)
    ('42s', '3m', '2h')
    """
    for size, unit in ((1, "s"), (60, "m"), (3600, "h")):
        if seconds <= 60 * size or unit == "h":
            break
    return f"{int(np.ceil(seconds / size))}{unit}"


@dataclass(frozen=True)
class Run:
    """Results of learning, and the file or AnnData with the values that were learned from.

    Parameters
    ----------
    cells : AnnData
        Cells after `tl.learn`, with or without values.
    samples : AnnData
        Samples from `tl.samples`.
    source : AnnData, path or None
        Values that were learned from; None: not known, and what needs them is left out of a report.
    findings : dict
        Notes of `groundmetric learn`, all of which may be missing: "cells" (name of the file), "seconds",
        "interrupted".
    folder : path or None, default=None
        Folder for results that take long to compute; None: they are computed every time.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), adata, {})
    >>> run.sample_key, run.label_key
    ('sample', 'condition')
    """

    cells: ad.AnnData
    samples: ad.AnnData
    source: CellsLike | None
    findings: dict[str, Any]
    folder: Path | None = None
    key: str = "groundmetric"

    @classmethod
    def open(cls, folder: str | os.PathLike[str], cells: str | os.PathLike[str] | None = None) -> Run:
        """Read the folder that `groundmetric learn` wrote.

        Parameters
        ----------
        folder : str or path
            Folder with run.json and the files of cells and samples.
        cells : str, path or None, default=None
            File that was learned from; None: the one that was named then, looked for from the present folder and from
            those that the run is in.

        Returns
        -------
        Run
            The run; its `source` is None where the file is not found.
        """
        path = Path(folder)
        for name in (FINDINGS, RUN_CELLS, SAMPLES):
            if not (path / name).is_file():
                raise ValueError(f"{os.fspath(folder)!r} is no run of groundmetric learn: it has no {name}")
        try:
            findings = json.loads((path / FINDINGS).read_text())
        except ValueError as error:
            raise ValueError(f"{str(path / FINDINGS)!r} is damaged ({error}): run groundmetric learn again") from error
        _check_findings(findings, path)
        source = cls._values(findings["cells"], path) if cells is None else Path(cells)
        run = cls(ad.read_h5ad(path / RUN_CELLS), ad.read_h5ad(path / SAMPLES), source, findings, path)
        entry = run.cells.uns.get(run.key, {})
        course = ("ensemble",) if "ensemble" in entry else ("history", "converged")
        check_parts(entry, ("metric", "learner", *course), run.key)
        if source is not None:
            _check_same_cells(run, source)
        return run

    @staticmethod
    def _values(name: str, folder: Path) -> Path | None:
        """The file that was learned from: as it was named, from here or from a folder that the run is in, or beside it.

        The command may have been given from another folder than the present one. The run's own file of the same name
        has no values.
        """
        here = folder.resolve()
        beside = [here / Path(name).name, here.parent / Path(name).name]
        paths = [Path(name), *(place / name for place in here.parents), *beside]
        return next((path for path in paths if path.exists() and path.resolve() != here / RUN_CELLS), None)

    @cached_property
    def entry(self) -> dict[str, Any]:
        return self.cells.uns[self.key]

    @cached_property
    def stored(self) -> Stored:
        return read_entry(self.cells.uns.get(self.key), self.key, "the run")

    @cached_property
    def results(self) -> EnsembleResults | None:
        """What an ensemble says of its training samples; None of a single learner."""
        return EnsembleResults.read(self.entry)

    @cached_property
    def predictor(self) -> ViewPredictor | None:
        """Views of an ensemble with the cells that their members compare; None of a single learner."""
        beside = None if self.folder is None else self.folder / RUN_PREDICTOR
        if beside is not None and beside.exists():
            return load_predictor(beside).predictor_
        predictor = predictor_of(self.entry, f"uns[{self.key!r}]['predictor']")
        return None if predictor is None else predictor.predictor_

    @property
    def learner(self) -> dict[str, Any]:
        """The parameters of the learner, as numbers and text."""
        return {name: _plain(value) for name, value in self.entry["learner"].items()}

    @property
    def group_key(self) -> str | None:
        """Column of the patients whom learning did not divide."""
        return self.stored.params.get("group_key")

    @property
    def sample_key(self) -> str:
        return self.stored.params["sample_key"]

    @property
    def label_key(self) -> str:
        return self.stored.params["label_key"]

    @property
    def is_ordered(self) -> bool:
        """Whether labels are numbers or ordered categories, not classes."""
        return str(self.learner.get("target", "classes")) == "ordered"

    @cached_property
    def classes(self) -> pd.Series:
        """Class of each training sample, to compare samples by: its label; of many numbers, which third it is in."""
        labels = self.stored.labels
        if not self.is_ordered or labels.dtype.kind not in "biuf" or labels.nunique() <= MOST_STEPS:
            return labels.astype(str)
        low, high = np.quantile(labels.to_numpy(dtype=np.float64), [1 / 3, 2 / 3])
        names = [
            f"{self.label_key} {part}" for part in (f"up to {low:.3g}", f"{low:.3g} to {high:.3g}", f"above {high:.3g}")
        ]
        which = np.searchsorted([low, high], labels.to_numpy(dtype=np.float64))
        return pd.Series(np.array(names, dtype=object)[which], labels.index)

    @property
    def feature(self) -> str:
        """What a feature is called; those of a panel may be anything."""
        if not self.is_expression:
            return "dimension"
        return "gene" if int(self.entry.get("features", {}).get("n_features", PANEL + 1)) > PANEL else "feature"

    @property
    def is_expression(self) -> bool:
        return self.stored.params.get("use_rep") is None


def with_order(run: Run, obs: pd.DataFrame) -> pd.DataFrame:
    """The same with ordered labels that are text as categories, from low to high."""
    if not run.is_ordered or run.stored.labels.dtype.kind in "biuf":
        return obs
    order = run.stored.params.get("order")
    if order is None and run.results is not None:
        order = run.results.ordered_categories[0]
    if order is None:
        return obs
    labels = obs[run.label_key].astype(object).map(str, na_action="ignore")
    return obs.assign(**{run.label_key: pd.Categorical(labels, list(map(str, order)), ordered=True)})


def _plain(value: Any) -> Any:
    """A number or text; an array of names as a tuple."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else tuple(map(str, value))
    return value.item() if isinstance(value, np.generic) else value


def _check_findings(findings: Any, folder: Path) -> None:
    """Raise where run.json is of another command, or of a version that wrote less."""
    known = findings if isinstance(findings, dict) else {}
    if known.get("command", "learn") != "learn":
        raise ValueError(f"{str(folder)!r} was written by groundmetric {known['command']}: give one of learn")
    for name in ("groundmetric", "command", "cells"):
        if name not in known:
            version = known.get("groundmetric", "of an unknown version")
            raise ValueError(
                f"{str(folder / FINDINGS)!r} was written by groundmetric {version}, without {name!r}: run groundmetric "
                "learn again"
            )


def _check_same_cells(run: Run, source: Path) -> None:
    """Raise where a file lacks cells of the run: it is another of the same name, or was edited."""
    with Source(source) as found:
        missing = ~run.cells.obs_names.isin(found.obs.index)
    if missing.any():
        name = str(run.cells.obs_names[missing][0])
        raise ValueError(
            f"{str(source)!r} lacks {int(missing.sum())} of the {missing.size} cells that the run was learned from "
            f"({name!r} for one): give their file (--cells), or learn again"
        )


def cached(run: Run, name: str, parameters: Any, compute: Callable[[], Any]) -> Any:
    """Plain data that is computed once for the same question to the same run."""
    if run.folder is None:
        return compute()
    state = [
        __version__,
        FORMAT,
        run.stored.metric.components,
        run.stored.params,
        list(map(str, run.stored.labels)),
        parameters,
    ]
    cache, key = Cache(run.folder / CACHE), f"{name}-{joblib.hash(state)}"
    answer = cache.get_json(key)
    if answer is None:
        answer = without_nan(compute())
        cache.put_json(key, answer)
    return answer


def has_values(run: Run) -> bool:
    return run.source is not None and (not isinstance(run.source, Path) or run.source.exists())


def check_values(run: Run) -> None:
    """Raise where the folder of a run is there, but not the cells: a page without scores should be asked for."""
    if run.folder is not None and not has_values(run):
        raise ValueError(
            f"the cells that were learned from are gone: {run.findings.get('cells')!r} is neither here nor beside "
            f"{str(run.folder)!r}; give their file (--cells), or leave out scores and tests "
            "(--no-evaluate)"
        )


def cohort_of(run: Run, group_key: str | None) -> Labelled:
    """The values that were learned from, again; genes are chosen within splits where a rule can be."""
    params = run.stored.params
    rule = params["genes"] if params.get("use_rep") is None else None
    if rule == "given":
        raise ValueError(
            "the genes were given as a list, which is not in the run: evaluate with groundmetric.evaluation"
        )
    return read_cohort(
        run.source, run.sample_key, run.label_key, group_key=group_key, layer=params.get("layer"),
        use_rep=params.get("use_rep"), genes=rule, n_cells=params.get("n_cells"),
        ordered=run.is_ordered, random_state=params.get("random_state", 0),
    )  # fmt: skip


def of_the_metric(run: Run, cohort: Labelled) -> Distributions:
    """The cohort with the features that the metric has."""
    assert cohort.D.features is not None
    position = {name: f for f, name in enumerate(cohort.D.features)}
    return with_features(cohort.D, np.array([position[name] for name in run.stored.features]))


def learner_of(run: Run) -> GroundMetricEnsemble | GroundMetricLearner:
    """The learner that was used, without its progress bar."""
    kind = GroundMetricLearner if run.results is None else GroundMetricEnsemble
    known = kind().get_params()
    params = {name: value for name, value in read_parameters(run.learner).items() if name in known}
    return kind(**{**params, "verbose": 0, "n_jobs": None})
