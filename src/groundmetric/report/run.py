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
    """What was learned, and where to find the values that it was learned from.

    Parameters
    ----------
    cells : AnnData
        After `tl.learn`, with or without values.
    samples : AnnData
        From `tl.samples`.
    source : AnnData, path or None
        Where the values are; None where that is not known.
    findings : dict
        What `learn` noted: seconds, the name of the file.
    folder : path or None
        Where results are kept; None: nowhere.
    key : str
        Entry of `uns` and prefix of columns, as `key_added` of `tl.learn`.
    """

    cells: ad.AnnData
    samples: ad.AnnData
    source: Any
    findings: dict[str, Any]
    folder: Path | None = None
    key: str = "groundmetric"

    @classmethod
    def open(cls, folder: str | os.PathLike) -> Run:
        """Read the folder that `groundmetric learn` wrote."""
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
