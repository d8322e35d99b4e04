"""A run of `groundmetric learn`: its folder, or the same things in memory."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import anndata as ad

from .._anndata.store import RUN_CELLS, Stored, recall

FINDINGS, SAMPLES = "run.json", "samples.h5ad"


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
    >>> gm.tl.learn(adata, "sample", "condition", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), adata, {})
    >>> run.sample_key, run.label_key
    ('sample', 'condition')
    """

    cells: ad.AnnData
    samples: ad.AnnData
    source: Any
    findings: dict[str, Any]
    folder: Path | None = None
    key: str = "groundmetric"

    @classmethod
    def open(cls, folder: str | os.PathLike) -> Run:
        """Read the folder that `groundmetric learn` wrote.

        Parameters
        ----------
        folder : str or path
            Folder with run.json and the files of cells and samples.

        Returns
        -------
        Run
            The run; its `source` is the file that was learned from, where that is found under its name, in the folder
            or beside it.
        """
        path = Path(folder)
        for name in (FINDINGS, RUN_CELLS, SAMPLES):
            if not (path / name).is_file():
                raise ValueError(f"{os.fspath(folder)!r} is no run of groundmetric learn: it has no {name}")
        try:
            findings = json.loads((path / FINDINGS).read_text())
        except ValueError as error:
            raise ValueError(f"{str(path / FINDINGS)!r} is damaged ({error}): run groundmetric learn again") from error
        if findings.get("command") != "learn":
            raise ValueError(
                f"{os.fspath(folder)!r} was written by groundmetric {findings.get('command')}: give one of learn"
            )
        cells, samples = ad.read_h5ad(path / RUN_CELLS), ad.read_h5ad(path / SAMPLES)
        return cls(cells, samples, cls._values(findings["cells"], path), findings, path)

    @staticmethod
    def _values(name: str, folder: Path) -> Path | None:
        """The file that was learned from, as it was named or beside the run."""
        places = [Path(name), folder / Path(name).name, folder.parent / Path(name).name]
        return next((place for place in places if place.exists()), None)

    @cached_property
    def entry(self) -> dict[str, Any]:
        return self.cells.uns[self.key]

    @cached_property
    def stored(self) -> Stored:
        return recall(self.cells.uns.get(self.key), self.key, "the run")

    @property
    def learner(self) -> dict[str, Any]:
        """The parameters of the learner, as numbers and text."""
        return {
            name: getattr(value, "item", lambda value=value: value)() for name, value in self.entry["learner"].items()
        }

    @property
    def sample_key(self) -> str:
        return self.stored.params["sample_key"]

    @property
    def label_key(self) -> str:
        return self.stored.params["label_key"]

    @property
    def is_expression(self) -> bool:
        return self.stored.params.get("use_rep") is None
