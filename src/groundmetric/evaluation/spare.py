"""SPARE's four measures of distances between samples, and distances that are honest enough to be measured.

SPARE (Shitov, Dehkordi & Luecken 2025, LMRL workshop at ICLR) judges a sample representation by its distances alone:

- information retained: leave one sample out, and let its 3 nearest vote by one over the distance. For classes, macro F1
  scaled so that 1/C is 0: (F1 - 1/C) / (1 - 1/C); for ordered covariates, Spearman's correlation of vote and truth.
  What is negative counts 0. The mean over the relevant covariates.
- batch removed: one minus the same score, of technical covariates.
- trajectory: Spearman's correlation of an ordered covariate with diffusion pseudotime.
- replicates: one minus the share of other samples that are nearer than the replicate (FOSCTTM; Liu et al. 2019).

The definitions are those of `patpy.tl.evaluation`. Three details differ. A sample never votes for itself; patpy sets
its distance to the largest one, which may still be among three. Replicates are counted as a share of samples, so that
the measure lies between 0 and 1, and there may be several; patpy counts samples, and takes two. Pseudotime is that of
`tl.trajectory`, which links all samples; patpy takes scanpy's, on a graph of 15 neighbours that may fall apart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import rankdata
from sklearn.utils import check_random_state

from .._internal.types import ColumnsLike, DistributionsLike, Estimator, LabelsLike, RandomState, SplitsLike
from .._internal.validation import (
    NameIndex,
    align_square_by_name,
    check_classes,
    check_number,
    label_array,
    missing_values,
    need,
    real_array,
)
from ..distributions import as_distributions
from ..estimators._base import class_shares, mean_values
from ..learning.splits import Split, as_splits, check_splits, folds, group_list, number_groups, rounds_of
from ._run import Cohort, fit
from .scores import check_distances, k_nearest

if TYPE_CHECKING:
    from pandas import DataFrame

INFORMATION, BATCH, TRAJECTORY, REPLICATES = "information retained", "batch removed", "trajectory", "replicates"
F1, SPEARMAN, FOSCTTM = "macro F1", "Spearman", "1 - FOSCTTM"
# Neighbours whose distance is the width of a sample's kernel in pseudotime, as in `tl.trajectory`.
_WIDTH = 5


@dataclass(frozen=True)
class MeasuredScore:
    """One score of one set of distances.

    Parameters
    ----------
    measure : str
        "information retained", "batch removed", "trajectory" or "replicates".
    covariate : str
        Name of the covariate.
    statistic : str
        "macro F1" (scaled to 0 for chance), "Spearman" or "1 - FOSCTTM".
    score : float
        The score; 1 is best.
    chance : float
        Its mean with the covariate permuted among samples.
    n_samples : int
        Number of samples that have a value.

    Examples
    --------
    >>> import groundmetric as gm
    >>> found = gm.evaluation.spare([[0, 1, 9], [1, 0, 9], [9, 9, 0]], trajectory=[1, 2, 3])
    >>> found.scores[0].measure, round(found.scores[0].score, 3)
    ('trajectory', 1.0)
    """

    measure: str
    covariate: str
    statistic: str
    score: float
    chance: float
    n_samples: int


@dataclass(frozen=True)
class SpareScores:
    """SPARE's measures of one set of distances; a measure that nothing was given for is NaN.

    Parameters
    ----------
    scores : list of MeasuredScore
        A score for each covariate.

    Examples
    --------
    >>> import groundmetric as gm
    >>> at = [0.0, 0.1, 0.2, 0.3, 9.0, 9.1, 9.2, 9.3]
    >>> distances = [[abs(a - b) for b in at] for a in at]
    >>> label, batch = ["ill"] * 4 + ["well"] * 4, ["a", "b"] * 4
    >>> found = gm.evaluation.spare(distances, relevant={"label": label}, technical={"batch": batch})
    >>> found.information, found.batch_removed, found.total
    (1.0, 1.0, 1.0)
    """

    scores: list[MeasuredScore]

    @property
    def information(self) -> float:
        """Information retained: mean over the relevant covariates."""
        return self._mean(INFORMATION)

    @property
    def batch_removed(self) -> float:
        """Batch removed: mean over the technical covariates."""
        return self._mean(BATCH)

    @property
    def trajectory(self) -> float:
        """Correlation of the ordered covariate with pseudotime."""
        return self._mean(TRAJECTORY)

    @property
    def replicates(self) -> float:
        """Robustness of replicates."""
        return self._mean(REPLICATES)

    @property
    def total(self) -> float:
        """Two thirds information retained and one third batch removed, as SPARE ranks methods."""
        return (2.0 * self.information + self.batch_removed) / 3.0

    def table(self) -> DataFrame:
        """The scores as a table.

        Returns
        -------
        pandas.DataFrame
            A row for each covariate: measure, covariate, statistic, score, chance, samples.
        """
        need("pandas", "a table")
        import pandas as pd

        rows = [(s.measure, s.covariate, s.statistic, s.score, s.chance, s.n_samples) for s in self.scores]
        return pd.DataFrame(rows, columns=["measure", "covariate", "statistic", "score", "chance", "samples"])

    def _mean(self, measure: str) -> float:
        found = [score.score for score in self.scores if score.measure == measure]
        return float(np.mean(found)) if found else np.nan


def spare(
    distances: ArrayLike,
    *,
    relevant: ColumnsLike | None = None,
    technical: ColumnsLike | None = None,
    trajectory: LabelsLike | None = None,
    root: Hashable | None = None,
    replicates: LabelsLike | None = None,
    groups: LabelsLike | None = None,
    n_neighbors: int = 3,
    n_permutations: int = 200,
    random_state: RandomState = 0,
) -> SpareScores:
    """SPARE's measures: information retained, batch removed, trajectory, robustness of replicates.

    A metric that was learned from the same samples flatters the information retained. Give distances that hold for new
    samples: those out of bag of an ensemble (`distances_`), or `out_of_fold_distances` of any method.

    Parameters
    ----------
    distances : array-like of shape (n_samples, n_samples)
        Distances between samples. Row i is how far sample i finds the others; rows may have different units, and the
        matrix need not be symmetric.
    relevant : DataFrame or dict of str to array-like of shape (n_samples,) or None, default=None
        Covariates that the distances should tell, by name. Numbers and ordered categories (pandas) are ordered, all
        else are classes; numbers that are names must be text. Samples without a value are left out. All that carries
        names goes by name.
    technical : DataFrame or dict of str to array-like of shape (n_samples,) or None, default=None
        Covariates that the distances should not tell: batch, site, number of cells.
    trajectory : array-like of shape (n_samples,) or None, default=None
        Numbers or ordered categories that pseudotime should follow, rising from the root.
    root : name or position of a sample, or None, default=None
        Where the trajectory starts. None: of the samples with the lowest value, the one nearest to the others of them.
    replicates : array-like of shape (n_samples,) or None, default=None
        Samples with the same entry are replicates of each other.
    groups : array-like of shape (n_samples,) or None, default=None
        Outer group of each sample (the patient): samples of one group do not vote for each other. None: all vote, as in
        SPARE.
    n_neighbors : int, default=3
        Number of samples that vote.
    n_permutations : int, default=200
        Permutations of each covariate from which chance is estimated.
    random_state : int, RandomState or None, default=0
        Seed of the permutations.

    Returns
    -------
    SpareScores
        A score for each covariate, the means as attributes, and a table.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(2, random_state=0).fit(D, y)
    >>> found = gm.evaluation.spare(ensemble.distances_, relevant={"class": [f"c{label}" for label in y]})
    >>> bool(found.information > 0.8)
    True
    """
    name_index = NameIndex.of(distances, *_values(relevant), *_values(technical), items="samples")
    matrix = _matrix(distances, name_index)
    check_number("n_neighbors", n_neighbors, low=1, whole=True)
    check_number("n_permutations", n_permutations, low=1, whole=True)
    votes = _Votes(matrix, number_groups(group_list(groups, name_index), len(matrix)), n_neighbors, n_permutations)
    random = check_random_state(random_state)
    found = [votes.score(INFORMATION, covariate, random) for covariate in _covariates(relevant, name_index, "relevant")]
    found += [votes.score(BATCH, covariate, random) for covariate in _covariates(technical, name_index, "technical")]
    if trajectory is not None:
        found.append(_trajectory(matrix, _Covariate.read("trajectory", trajectory, name_index), root, name_index))
    if replicates is not None:
        found.append(_replicates(matrix, number_groups(group_list(replicates, name_index, "replicates"), len(matrix))))
    if not found:
        raise ValueError("nothing to measure by: give relevant or technical covariates, a trajectory, or replicates")
    return SpareScores(found)


@dataclass(frozen=True)
class _Covariate:
    """Values of those samples that have one: numbers, or classes as numbers."""

    name: str
    places: np.ndarray
    values: np.ndarray
    is_ordered: bool

    @classmethod
    def read(cls, name: str, given: Any, name_index: NameIndex) -> _Covariate:
        kind: Any = getattr(given, "dtype", None)
        if getattr(kind, "ordered", False):
            ranks = {category: rank for rank, category in enumerate(kind.categories)}
            labels = np.array(
                [ranks.get(value, np.nan) for value in label_array(given, name_index, name)], dtype=np.float64
            )
        else:
            labels = label_array(given, name_index, name)
        places = np.flatnonzero(~missing_values(labels))
        labels = labels[places]
        if labels.dtype == object and all(isinstance(value, int | float | np.number) for value in labels):
            labels = np.array(labels.tolist())
        ordered = labels.dtype.kind in "iuf"
        if not ordered:
            check_classes(labels, name)
        values, codes = np.unique(labels, return_inverse=True)
        if values.size < 2:
            raise ValueError(
                f"{name} has the value {values.tolist()} in all {places.size} samples that have one: two or more "
                "different ones are needed; leave it out"
            )
        if not ordered and values.size == places.size:
            raise ValueError(f"{name} is different in all {places.size} samples, so that none can vote: leave it out")
        return cls(name, places, labels.astype(np.float64) if ordered else codes, ordered)


class _Votes:
    """Scores of covariates by the votes of the nearest samples."""

    def __init__(self, distances: np.ndarray, groups: np.ndarray | None, n_neighbors: int, n_permutations: int) -> None:
        kin = np.eye(len(distances), dtype=bool) if groups is None else groups == groups[:, None]
        self.distances = np.where(kin, np.inf, distances)  # votes count one over the distance: these count nothing
        self.n_neighbors, self.n_permutations = n_neighbors, n_permutations

    def score(self, measure: str, covariate: _Covariate, random: np.random.RandomState) -> MeasuredScore:
        among = self.distances[np.ix_(covariate.places, covariate.places)]
        alone = np.flatnonzero(~np.isfinite(among).any(axis=1))
        if alone.size:
            raise ValueError(
                f"{covariate.name}: all samples that have a value are of one group, so that none can vote; leave the "
                "covariate out, or give no groups"
            )
        nearest, indices = k_nearest(among, min(self.n_neighbors, len(among) - 1))
        how: Callable[..., float] = _correlation_of_votes if covariate.is_ordered else _scaled_f1
        score = how(nearest, indices, covariate.values)
        drawn = [how(nearest, indices, random.permutation(covariate.values)) for _ in range(self.n_permutations)]
        chance = float(np.mean(drawn))
        if measure == BATCH:
            score, chance = 1.0 - score, 1.0 - chance
        statistic = SPEARMAN if covariate.is_ordered else F1
        return MeasuredScore(measure, covariate.name, statistic, score, chance, covariate.places.size)


def _scaled_f1(nearest: np.ndarray, indices: np.ndarray, codes: np.ndarray) -> float:
    """Macro F1 of the classes voted for, scaled so that one over the number of classes is 0."""
    n_classes = int(codes.max()) + 1
    voted = class_shares(nearest, codes[indices], n_classes, "distance").argmax(axis=1)
    right = np.bincount(codes[voted == codes], minlength=n_classes)
    f1 = 2.0 * right / (np.bincount(codes, minlength=n_classes) + np.bincount(voted, minlength=n_classes))
    return max(0.0, float((f1.mean() - 1.0 / n_classes) / (1.0 - 1.0 / n_classes)))


def _correlation_of_votes(nearest: np.ndarray, indices: np.ndarray, values: np.ndarray) -> float:
    return max(0.0, _spearman(mean_values(nearest, values[indices], "distance"), values))


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's correlation; 0 where one side is constant and says nothing."""
    ranks = [rankdata(side) - (side.size + 1) / 2.0 for side in (a, b)]
    size = float(np.linalg.norm(ranks[0]) * np.linalg.norm(ranks[1]))
    return min(1.0, float(ranks[0] @ ranks[1]) / size) if size > 0 else 0.0


def _trajectory(
    distances: np.ndarray, covariate: _Covariate, root: Hashable | None, name_index: NameIndex
) -> MeasuredScore:
    if not covariate.is_ordered:
        raise ValueError("trajectory has no order: give numbers, or an ordered category of pandas")
    if covariate.places.size < 3:
        raise ValueError(f"trajectory has values for {covariate.places.size} samples: an order needs at least 3")
    part = distances[np.ix_(covariate.places, covariate.places)]
    part = (part + part.T) / 2.0
    if root is None:
        first = np.flatnonzero(covariate.values == covariate.values.min())
        start = int(first[part[np.ix_(first, first)].sum(axis=1).argmin()])
    else:
        start = _place_of(root, name_index, covariate.places)
    time = pseudotime(part, start, min(_WIDTH, len(part) - 1))
    score = _spearman(time, covariate.values)
    return MeasuredScore(TRAJECTORY, covariate.name, SPEARMAN, score, 0.0, covariate.places.size)


def _place_of(root: Hashable, name_index: NameIndex, places: np.ndarray) -> int:
    """Position of the root among the samples that have a value."""
    names: list[Hashable] = list(range(name_index.size)) if name_index.names is None else list(name_index.names)
    if root not in names:
        raise ValueError(f"root is {root!r}, which is none of the {len(names)} samples, e.g. {names[0]!r}")
    at = np.flatnonzero(places == names.index(root))
    if not at.size:
        raise ValueError(f"root is {root!r}, which has no value of the trajectory: give another sample")
    return int(at[0])


def pseudotime(distances: np.ndarray, root: int, n_neighbors: int) -> np.ndarray:
    """Diffusion pseudotime (Haghverdi et al. 2016) from the root, scaled to at most 1.

    Steps of a random walk with probabilities T sum to the distance |Σ_t T^t(root, ·) - Σ_t T^t(x, ·)|, the stationary
    part left out: by eigenvalues λ of T, coordinates λ/(1 - λ).
    """
    transitions = _transitions(distances, n_neighbors)
    values, vectors = np.linalg.eigh(transitions)
    moving = np.argsort(values)[:-1]  # all but the stationary part
    coordinates = vectors[:, moving] * (values[moving] / (1.0 - values[moving]))
    away = np.linalg.norm(coordinates - coordinates[root], axis=1)
    return away / away.max() if away.max() > 0 else away


def _transitions(distances: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Symmetric transition matrix of a Gaussian kernel whose width follows the local density."""
    longest = minimum_spanning_tree(distances).data.max(initial=0.0)
    # The chain of nearest samples must hold: no link of it is longer than three widths.
    width = np.maximum(np.sort(distances, axis=1)[:, n_neighbors], longest / 3.0)
    width = np.where(width > 0, width, 1.0)
    spread = width[:, None] ** 2 + width**2
    kernel = np.sqrt(2.0 * np.outer(width, width) / spread) * np.exp(-(distances**2) / spread)
    density = kernel.sum(axis=1)
    kernel /= np.outer(density, density)
    degree = np.sqrt(kernel.sum(axis=1))
    return kernel / np.outer(degree, degree)


def _replicates(distances: np.ndarray, of: np.ndarray | None) -> MeasuredScore:
    """Mean share, over samples and their replicates, of other samples that are farther away; ties count half."""
    assert of is not None
    same = of == of[:, None]
    if not (~same).any():
        raise ValueError(f"all {of.size} samples are replicates of each other: nothing to compare them with")
    farther = []
    for row, mine, place in zip(distances, same, range(of.size), strict=True):
        others = row[~mine]
        for twin in np.setdiff1d(np.flatnonzero(mine), place):
            farther.append(np.mean(others > row[twin]) + 0.5 * np.mean(others == row[twin]))
    if not farther:
        raise ValueError(f"replicates has {of.size} different entries for {of.size} samples: no two are replicates")
    n_samples = int((same.sum(axis=1) > 1).sum())
    return MeasuredScore(REPLICATES, "replicates", FOSCTTM, float(np.mean(farther)), 0.5, n_samples)


def out_of_fold_distances(
    method: Estimator, D: DistributionsLike, y: LabelsLike, *, cv: SplitsLike = 5, groups: LabelsLike | None = None
) -> np.ndarray:
    """Distances from each distribution to all others, under a method that was fitted without it.

    Row i holds what a new distribution i would see: the metric has learned from other distributions only. Metrics of
    different folds have different units, so that rows are divided by the mean distance of their fold; the matrix is not
    symmetric.

    Parameters
    ----------
    method : estimator
        With ``fit(D, y)`` and ``distances(A, B)``. One that has ``takes_groups = True`` is fitted with groups.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; these and `groups` go by name where they carry names.
    cv : int, list of (train, test) or scikit-learn splitter, default=5
        Number of folds, or splits that test each distribution once. Numbers as labels need splits.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample): never on both sides of a split.

    Returns
    -------
    array of shape (n_distributions, n_distributions)
        Distances, 0 on the diagonal.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=5, random_state=0)
    >>> gm.evaluation.out_of_fold_distances(learner, D, y, cv=3).shape
    (30, 30)
    """
    D = as_distributions(D)
    labels, groups = label_array(y, D.name_index), group_list(groups, D.name_index)
    if not hasattr(method, "fit") or not hasattr(method, "distances"):
        raise ValueError(f"method is {method!r}: expected an estimator with fit and distances")
    splits = _splits_of_all(cv, labels, groups, D.name_index)
    cohort = Cohort(D, labels, np.empty(0), groups)
    found = np.empty((len(D), len(D)))
    for train, test in splits:
        fitted = fit(method, D[train], cohort, train)
        rows = check_distances(fitted.distances(D[test], D), len(D))
        found[test] = rows / (rows[:, train].mean() or 1.0)
    np.fill_diagonal(found, 0.0)
    return found


def _splits_of_all(cv: Any, labels: np.ndarray, groups: list[Hashable] | None, name_index: NameIndex) -> list[Split]:
    """Splits whose test parts are all distributions, each once."""
    if isinstance(cv, int | np.integer):
        check_classes(labels)
        cv = folds(labels, groups=groups, n_splits=int(cv), random_state=0)
    splits = as_splits(cv, labels, groups, name_index)
    check_splits(splits, labels, groups)
    rounds = rounds_of(splits, labels.size)
    if rounds is None or rounds.max() > 0:
        tested = np.bincount(np.concatenate([test for _, test in splits]), minlength=labels.size)
        wrong = int(np.flatnonzero(tested != 1)[0])
        raise ValueError(
            f"cv tests distribution {wrong} {tested[wrong]} times: every one must be tested once; give a number of "
            "folds, or `evaluation.folds`, `leave_one_out` or `leave_one_group_out`"
        )
    return splits


def _matrix(distances: Any, name_index: NameIndex) -> np.ndarray:
    """Distances as floats, rows and columns by name where they carry names."""
    matrix = check_distances(
        real_array(align_square_by_name(distances, name_index, "distances"), "distances"), name_index.size
    )
    if len(matrix) != name_index.size:
        raise ValueError(f"distances have shape {matrix.shape}: expected a square matrix")
    if len(matrix) < 3:
        raise ValueError(f"distances are between {len(matrix)} samples: at least 3 are needed")
    return matrix


def _values(covariates: Any) -> list[Any]:
    """Covariates of a dict or a data frame, with the names of samples that they carry."""
    return [covariates[name] for name in covariates] if _is_table(covariates) else []


def _is_table(covariates: Any) -> bool:
    return isinstance(covariates, Mapping) or hasattr(covariates, "columns")


def _covariates(given: Any, name_index: NameIndex, parameter: str) -> Iterator[_Covariate]:
    if given is None:
        return
    if not _is_table(given):
        raise ValueError(
            f"{parameter} is {type(given).__name__}: expected a data frame, or a dict of covariates by name"
        )
    for name in given:
        yield _Covariate.read(str(name), given[name], name_index)
