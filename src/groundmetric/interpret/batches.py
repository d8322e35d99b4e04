"""Batch effects: do distances between distributions, or their labels, go with batch, site, donor or another covariate?

A covariate is tested twice. In the distances, learned ones above all: are distributions of one value nearer to each
other than to the rest, beyond what the labels explain? And against the labels: where a batch goes with the label, what
was learned may be the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.stats import contingency
from sklearn.utils import check_random_state

from .._internal.types import ColumnsLike, LabelsLike, RandomState
from .._internal.validation import Roll, aligned, aligned_square, check_labels, check_number, is_missing, real_array
from ..evaluation.permutation import Exchangeability, exchangeable
from ..supervision.splits import group_list, number_groups
from ._inputs import frame

if TYPE_CHECKING:
    from pandas import DataFrame

# Cramér's V from which a covariate counts as tied to the label.
_STRONG = 0.5
# How far above its expectation one of the shares must be to matter, however sure that is: of neighbours, and R².
_MORE_NEIGHBORS, _MORE_EXPLAINED = 0.1, 0.05
# What rounding may do to equal statistics: ties count.
_TIE = 1e-9
# Permutations for the association of tables larger than two by two.
_DRAWS = 1999


@dataclass(frozen=True)
class BatchEffects:
    """Covariates tested in distances and against labels; all arrays have an entry per covariate.

    Parameters
    ----------
    covariates : list of str
        Names of the covariates that were tested.
    n_values : array of int of shape (n_covariates,)
        Number of values of each.
    neighbors : array of shape (n_covariates,)
        Share of the distributions whose nearest other one has the same value.
    neighbors_expected : array of shape (n_covariates,)
        Mean of that share with values permuted among distributions of one label.
    r2 : array of shape (n_covariates,)
        Share of the squared distances that the covariate explains, as in a PERMANOVA.
    r2_expected : array of shape (n_covariates,)
        Mean of that share with values permuted.
    label_r2 : array of shape (n_covariates,)
        Share that the labels explain, for comparison.
    p : array of shape (n_covariates,)
        p-value of both statistics together; NaN without distances, and where the covariate is the same for all
        distributions of each label, so that the two cannot be told apart.
    q : array of shape (n_covariates,)
        p-values adjusted for the number of covariates (Benjamini & Hochberg).
    association : array of shape (n_covariates,)
        Cramér's V of covariate and labels: 0 for none, 1 where one determines the other.
    association_p : array of shape (n_covariates,)
        p-value of that: Fisher's for two by two, else by permutation.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> at = np.arange(12) % 2 * 5.0 + np.linspace(0, 1, 12)  # the batch moves everything
    >>> y, batch = np.repeat(["ill", "well"], 6), np.tile(["a", "b"], 6)
    >>> found = gm.interpret.batch_effects(np.abs(at[:, None] - at), y, {"batch": batch})
    >>> found.suspected(), float(found.neighbors[0]), bool(found.neighbors_expected[0] < 0.6)
    (['batch'], 1.0, True)
    """

    covariates: list[str]
    n_values: np.ndarray
    neighbors: np.ndarray
    neighbors_expected: np.ndarray
    r2: np.ndarray
    r2_expected: np.ndarray
    label_r2: np.ndarray
    p: np.ndarray
    q: np.ndarray
    association: np.ndarray
    association_p: np.ndarray

    def in_distances(self, level: float = 0.05) -> np.ndarray:
        """Covariates that show in the distances, surely and by more than a trace.

        Parameters
        ----------
        level : float, default=0.05
            Share of false ones to expect.

        Returns
        -------
        array of bool of shape (n_covariates,)
            Whether q is below that, and the share of neighbours is above its expectation by 0.1 or R² by 0.05.
        """
        more = (self.neighbors - self.neighbors_expected >= _MORE_NEIGHBORS) | (
            self.r2 - self.r2_expected >= _MORE_EXPLAINED
        )
        return (np.nan_to_num(self.q, nan=1.0) < level) & more

    def with_labels(self, level: float = 0.05) -> np.ndarray:
        """Covariates that go with the labels.

        Parameters
        ----------
        level : float, default=0.05
            Level of the test.

        Returns
        -------
        array of bool of shape (n_covariates,)
            Whether Cramér's V is at least 0.5 and its p-value below the level.
        """
        return (self.association >= _STRONG) & (self.association_p < level)

    def suspected(self, level: float = 0.05) -> list[str]:
        """Names of the covariates that show in the distances or go with the labels.

        Parameters
        ----------
        level : float, default=0.05
            Level of the tests.

        Returns
        -------
        list of str
            Names, in the order of `covariates`.
        """
        either = self.in_distances(level) | self.with_labels(level)
        return [name for name, found in zip(self.covariates, either, strict=True) if found]

    def table(self) -> DataFrame:
        """The covariates as a table.

        Returns
        -------
        pandas.DataFrame
            A row per covariate, those first that show most clearly in the distances.
        """
        columns: dict[str, Any] = {"covariate": self.covariates, "values": self.n_values}
        columns |= {"same among nearest": self.neighbors, "expected": self.neighbors_expected}
        columns |= {"R2": self.r2, "R2 expected": self.r2_expected, "R2 of labels": self.label_r2}
        columns |= {"p": self.p, "q": self.q, "Cramér's V with labels": self.association, "its p": self.association_p}
        return frame(columns, np.lexsort([-np.nan_to_num(self.r2), np.nan_to_num(self.p, nan=np.inf)]))


def batch_effects(
    distances: ArrayLike | None,
    y: LabelsLike,
    covariates: ColumnsLike,
    *,
    groups: LabelsLike | None = None,
    n_permutations: int = 999,
    random_state: RandomState = 0,
) -> BatchEffects:
    """Test whether batch, site, donor or any other covariate shows in distances, and whether it goes with labels.

    Two statistics of the distances are taken: how often the nearest distribution has the same value, and R², the share
    of the squared distances that the covariate explains (one less the mean within values over that of all, as in
    PERMANOVA, Anderson 2001). Their null has the values permuted among distributions of the same label, so that a
    covariate that merely goes with the label does not count here; that is tested apart. With groups, a covariate that
    is the same within all of them is permuted group by group, and the nearest is of another group.

    Give distances that hold for new distributions: of an ensemble, those out of bag (its `distances_`).

    Parameters
    ----------
    distances : array-like of shape (n_distributions, n_distributions) or None
        Distances between distributions; None: covariates are tested against labels only.
    y : array-like of shape (n_distributions,)
        Labels; these, covariates and groups go by name where they carry names.
    covariates : DataFrame or dict of str to array-like of shape (n_distributions,)
        Candidates by name. Tested are those with at least 2 values and at most half as many as distributions;
        distributions in which one is missing are left out of its test.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample).
    n_permutations : int, default=999
        Number of permutations of each covariate.
    random_state : int, RandomState or None, default=0
        Seed of the permutations.

    Returns
    -------
    BatchEffects
        Strength, p- and q-values of every covariate that could be tested.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(2, random_state=0).fit(D, y)
    >>> found = gm.interpret.batch_effects(ensemble.distances_, y, {"site": np.arange(len(D)) % 2})
    >>> found.covariates, found.suspected()
    (['site'], [])
    """
    roll = Roll.of(y, *([] if distances is None else [distances]))
    labels = check_labels(y, roll)
    matrix = None if distances is None else _square(distances, roll, labels.size)
    groups = group_list(groups, roll)
    check_number("n_permutations", n_permutations, low=1, whole=True)
    random = check_random_state(random_state)
    rows: dict[str, _Tested] = {}
    for name, values in _columns(covariates, roll, labels.size).items():
        there = np.flatnonzero([not is_missing(value) for value in values])
        codes = np.unique([str(values[place]) for place in there], return_inverse=True)[1]
        if not codes.size or not 2 <= codes.max() + 1 <= codes.size / 2:
            continue
        case = _Case(
            codes,
            np.unique(labels[there], return_inverse=True)[1],
            number_groups(None if groups is None else [groups[place] for place in there], there.size),
        )
        part = None if matrix is None else matrix[np.ix_(there, there)]
        rows[name] = _tested(case, part, n_permutations, random)
    columns = {name: np.array([getattr(row, name) for row in rows.values()]) for name in _Tested._fields}
    q = np.full(len(rows), np.nan)
    known = np.isfinite(columns["p"].astype(float))
    if known.any():
        q[known] = stats.false_discovery_control(columns["p"][known])
    return BatchEffects(list(rows), q=q, **columns)


class _Case(NamedTuple):
    """A covariate, labels and outer groups of the distributions that have all of them, as numbers."""

    codes: np.ndarray
    labels: np.ndarray
    groups: np.ndarray | None

    @property
    def by_group(self) -> bool:
        """Whether the covariate is one of groups rather than of distributions."""
        if self.groups is None or self.codes.max() >= self.groups.max():
            return False
        return len(np.unique(np.stack([self.groups, self.codes]), axis=1).T) == self.groups.max() + 1

    def exchange(self) -> Exchangeability | None:
        """What may be permuted: values among distributions, or groups, of the same labels; None where nothing may."""
        strata: list[Any] = self.labels.tolist()
        if self.by_group:
            assert self.groups is not None
            strata = [tuple(np.sort(self.labels[self.groups == group])) for group in self.groups]
        try:
            return exchangeable(self.codes, self.groups if self.by_group else None, strata)
        except ValueError:
            return None

    def association(self) -> tuple[float, float]:
        """Of covariate and label; what is the same within groups counts once for each."""
        if not self.by_group or self.groups is None:
            return association(self.codes, self.labels)
        _, codes, labels = np.unique(np.stack([self.groups, self.codes, self.labels]), axis=1)
        return association(codes, labels)


class _Tested(NamedTuple):
    """What is known of one covariate; the names are those of `BatchEffects`."""

    n_values: int
    neighbors: float
    neighbors_expected: float
    r2: float
    r2_expected: float
    label_r2: float
    p: float
    association: float
    association_p: float


def _tested(case: _Case, distances: np.ndarray | None, n_permutations: int, random: np.random.RandomState) -> _Tested:
    n_values, tied, unknown = int(case.codes.max()) + 1, case.association(), np.nan
    if distances is None:
        return _Tested(n_values, unknown, unknown, unknown, unknown, unknown, unknown, *tied)
    nearest, squares = _nearest(distances, case.groups if case.by_group else None), distances**2
    exchange = case.exchange()
    drawn = [] if exchange is None else [exchange.draw(random) for _ in range(n_permutations)]
    table = np.array([[np.mean(c == c[nearest]), _explained(squares, c)] for c in [case.codes, *drawn]])
    expected = table[1:].mean(axis=0) if drawn else np.full(2, np.nan)
    p = _both(table) if drawn else np.nan
    return _Tested(
        n_values, table[0, 0], expected[0], table[0, 1], expected[1], _explained(squares, case.labels), p, *tied
    )


def _nearest(distances: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """The nearest other distribution of each, of another group where there are groups."""
    excluded = np.eye(len(distances), dtype=bool) if groups is None else groups[:, None] == groups
    return np.argmin(np.where(excluded, np.inf, distances), axis=1)


def _explained(squares: np.ndarray, codes: np.ndarray) -> float:
    """R² of PERMANOVA: one less the sum of squares within values over the whole, each over its number of members."""
    whole = squares.sum() / codes.size
    within = np.sum(squares * (codes[:, None] == codes) / np.bincount(codes)[codes])
    return float(1.0 - within / whole) if whole > 0 else 0.0


def _both(table: np.ndarray) -> float:
    """p-value of several statistics together, (arrangements, statistics), the first row that of the data.

    Every row is ranked among all by each statistic, and then by the best of its ranks: under the null hypothesis the
    data's row is one among equals.
    """
    ranks = np.stack([np.mean(column >= column[:, None] - _TIE, axis=1) for column in table.T], axis=1)
    best = ranks.min(axis=1)
    return float(np.mean(best <= best[0] + _TIE))


def association(one: Any, other: Any) -> tuple[float, float]:
    """Cramér's V of two lists of classes, and a p-value: Fisher's for two by two, else by 1,999 permutations.

    >>> association(list("aabb" * 3), list("xxyy" * 3))[0]
    1.0
    """
    rows, columns = (np.unique(np.asarray(values), return_inverse=True)[1] for values in (one, other))
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    if min(table.shape) < 2:
        return 0.0, 1.0
    strength = round(float(contingency.association(table, method="cramer")), 12)
    if table.shape == (2, 2):
        return strength, float(stats.fisher_exact(table).pvalue)
    return strength, _chance_of_table(table, rows, columns)


def _chance_of_table(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
    """Share of permutations whose table is at least as far from independence.

    Permutations keep the sums of rows and columns, so that chi-squared grows with the sum of n_ij^2 / e_ij, where e_ij
    are the counts expected; that is quick, which 1,999 calls of SciPy are not.
    """
    expected = contingency.expected_freq(table)
    found = (table**2 / expected).sum() * (1 - _TIE)
    random, hits = np.random.default_rng(0), 0
    for _ in range(_DRAWS):
        drawn = np.zeros(table.shape)
        np.add.at(drawn, (rows, random.permutation(columns)), 1)
        hits += bool((drawn**2 / expected).sum() >= found)
    return (1 + hits) / (1 + _DRAWS)


def _columns(covariates: Any, roll: Roll, n: int) -> dict[str, np.ndarray]:
    """Values of each covariate in the order of the distributions."""
    if not isinstance(covariates, Mapping) and not hasattr(covariates, "columns"):
        raise TypeError(
            f"covariates is {type(covariates).__name__}: expected a DataFrame, or a dict of names to values"
        )
    found = {}
    for name in covariates.columns if hasattr(covariates, "columns") else covariates:
        values = np.array(aligned(covariates[name], roll, str(name)), dtype=object)
        if values.shape != (n,):
            raise ValueError(
                f"covariate {name!r} has shape {values.shape} for {n} distributions: one is needed for each"
            )
        found[str(name)] = values
    return found


def _square(distances: Any, roll: Roll, n: int) -> np.ndarray:
    matrix = np.asarray(real_array(aligned_square(distances, roll, "distances"), "distances"), dtype=np.float64)
    if matrix.shape != (n, n):
        raise ValueError(f"distances have shape {matrix.shape} for {n} labels: expected a row and a column for each")
    if not np.isfinite(matrix).all():
        raise ValueError("distances contain NaN or infinity: leave out distributions whose distances are not known")
    return matrix
