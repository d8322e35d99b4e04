"""From labels to a score: split, fit, predict. A permutation test does this again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

from .._internal.alignment import Roll
from ..distributions import Distributions
from ..estimators._base import class_shares
from ..supervision.splits import Split, as_splits, folds, number_groups
from ._run import Cohort, Protocol, Result, fit, overall, predict
from .scores import score_codes
from .votes import nearest_distributions


@dataclass(frozen=True)
class Procedure:
    """From labels (as numbers) to a score: split, fit, predict."""

    method: Any
    D: Distributions
    classes: np.ndarray
    groups: list | None
    splitting: Callable[[np.ndarray], list[Split]]
    protocol: Protocol
    score: str

    def __call__(self, codes: np.ndarray) -> float:
        splits = self.splitting(codes)
        results = []
        for place, (_, test) in enumerate(splits):
            probabilities = self.probabilities(codes, splits, place)
            scores = {name: float(value) for name, value in score_codes(codes[test], probabilities).items()}
            results.append(Result(scores={"distributions": scores}, probabilities=probabilities.tolist()))
        return overall(codes, splits, results, self.score, self.classes.size)

    def probabilities(self, codes: np.ndarray, splits: list[Split], place: int) -> np.ndarray:
        train, test = splits[place]
        known = self.D[train]
        fitted = fit(self.method, known, Cohort(self.D, self.classes[codes], self.classes, self.groups), train)
        return predict(fitted, known, codes[train], self.D[test], self.classes, self.protocol)


@dataclass(frozen=True)
class SharedProcedure(Procedure):
    """For distances that do not depend on labels: neighbours are found once, and only their votes are counted anew."""

    neighbours: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, procedure: Procedure) -> SharedProcedure:
        codes = np.zeros(len(procedure.D), np.intp)
        cohort = Cohort(procedure.D, procedure.classes[codes], procedure.classes, procedure.groups)
        neighbours = []
        for train, test in procedure.splitting(codes):
            known = procedure.D[train]
            fitted = fit(procedure.method, known, cohort, train)
            neighbours.append(nearest_distributions(fitted, known, procedure.D[test], procedure.protocol.k))
        return cls(**vars(procedure), neighbours=neighbours)

    def probabilities(self, codes: np.ndarray, splits: list[Split], place: int) -> np.ndarray:
        nearest, places = self.neighbours[place]
        known = codes[splits[place][0]]
        return class_shares(
            nearest, known[places], self.classes.size, self.protocol.weights, among=self.protocol.among(known)
        )


@dataclass(frozen=True)
class Fixed:
    """The same splits for all labels."""

    splits: list[Split]

    def __call__(self, codes: np.ndarray) -> list[Split]:
        return self.splits


def splitting_by(
    splits: Any, classes: np.ndarray, codes: np.ndarray, groups: Any, seed: int, shareable: bool, roll: Roll
) -> Callable[[np.ndarray], list[Split]]:
    """How labels are turned into splits. Folds for a method that ignores labels do so as well, to be shared."""
    members = number_groups(groups, codes.size)
    if splits is None or isinstance(splits, int | np.integer):
        units = np.arange(codes.size) if members is None else members
        least = min(np.unique(units[codes == c]).size for c in range(classes.size))
        n_splits = max(2, min(5, least)) if splits is None else int(splits)
        if shareable:
            kind = KFold if members is None else GroupKFold
            return Fixed(list(kind(n_splits, shuffle=True, random_state=seed).split(codes, groups=members)))
        return lambda codes: folds(classes[codes], groups=groups, n_splits=n_splits, random_state=seed)
    if hasattr(splits, "split") or callable(splits):
        return lambda codes: as_splits(splits, classes[codes], groups, roll)
    return Fixed(as_splits(splits, classes[codes], groups, roll))
