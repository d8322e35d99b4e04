"""Batch effects: association of batch, site, donor or another covariate with distances and with labels.

A covariate is tested in the distances, by permutations within labels, and against the labels: if a batch is associated
with the label, a metric may have learned the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.stats import contingency

from .._internal.types import ColumnsLike, LabelsLike, RandomState
from .._internal.validation import (
    NameIndex,
    align_by_name,
    check_labels,
    check_number,
    group_list,
    is_missing,
    keyed_generator,
    number_groups,
    resolve_seed,
    square_distances,
    unit_codes,
)
from ..learning.splits import canonical_order, restricted_permutations
from .flows import Tabular

# Smallest Cramér's V of a covariate that is called associated with the label.
_STRONG = 0.5
# Smallest relevant difference of a statistic and its expectation: of `neighbors`, and of R².
_MORE_NEIGHBORS, _MORE_EXPLAINED = 0.1, 0.05
# Equal statistics differ by at most this from rounding; ties count against significance.
_TIE = 1e-9
# Fields of `BatchEffects` for each covariate, in the order of their computation.
_STATISTICS = (
    "n_values", "association", "association_p", "neighbors", "neighbors_expected", "r2", "r2_expected", "label_r2", "p"
)  # fmt: skip
# Permutations for the association of tables larger than two by two.
_DRAWS = 1999


@dataclass(frozen=True)
class BatchEffects(Tabular):
    """Covariates tested in distances and against labels; all arrays have an entry per covariate.

    Parameters
    ----------
    covariates, n_values : list of str, array
        Names of the covariates that were tested, and their numbers of values.
    neighbors, neighbors_expected : array
        Share of the units whose nearest neighbour has the same value, and its mean with values permuted.
    r2, r2_expected, label_r2 : array
        Share of the squared distances between units that the covariate explains (PERMANOVA), its mean with values
        permuted, and, for comparison, the share that the labels explain.
    p, q : array
        p-value of both statistics together, NaN without distances or possible permutations (a covariate with one value
        within each label); adjusted for the number of covariates (Benjamini & Hochberg).
    association, association_p : array
        Cramér's V of covariate and labels, from 0 to 1, and its p-value: Fisher's exact test for two values, two labels
        and independent units, otherwise by restricted permutations of the units.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> at = np.arange(12) % 2 * 5.0 + np.linspace(0, 1, 12)  # the batch moves everything
    >>> y, batch = np.repeat(["ill", "well"], 6), np.tile(["a", "b"], 6)
    >>> result = gm.interpret.batch_effects(np.abs(at[:, None] - at), y, {"batch": batch})
    >>> result.in_distances().tolist(), float(result.neighbors[0]), bool(result.neighbors_expected[0] < 0.6)
    ([True], 1.0, True)
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
        """Return which covariates have a significant and relevant effect on the distances.

        q is below the `level`, and `neighbors` exceeds its expectation by 0.1, or `r2` by 0.05.
        """
        more = (self.neighbors - self.neighbors_expected >= _MORE_NEIGHBORS) | (
            self.r2 - self.r2_expected >= _MORE_EXPLAINED
        )
        return (np.nan_to_num(self.q, nan=1.0) < level) & more

    def with_labels(self, level: float = 0.05) -> np.ndarray:
        """Return which covariates have a Cramér's V of at least 0.5 with the labels, with a p-value below `level`."""
        return (self.association >= _STRONG) & (self.association_p < level)

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        columns: dict[str, Any] = {"covariate": self.covariates, "values": self.n_values}
        columns |= {"same among nearest": self.neighbors, "expected": self.neighbors_expected}
        columns |= {"R2": self.r2, "R2 expected": self.r2_expected, "R2 of labels": self.label_r2}
        columns |= {"p": self.p, "q": self.q, "Cramér's V with labels": self.association, "its p": self.association_p}
        return columns, np.lexsort([-np.nan_to_num(self.r2), np.nan_to_num(self.p, nan=np.inf)])


def batch_effects(
    distances: ArrayLike | None,
    y: LabelsLike,
    covariates: ColumnsLike,
    *,
    groups: LabelsLike | None = None,
    n_permutations: int = 999,
    random_state: RandomState = 0,
) -> BatchEffects:
    """Test whether batch, site, donor or another covariate is associated with distances, and with labels.

    Distributions of a group with the same value and label are one unit, with their mean distances; every group has the
    same total weight. Two statistics are tested together: how often the nearest unit has the same value, and R², the
    share of the squared distances that the covariate explains (PERMANOVA, Anderson 2001). Values are permuted among
    units of the same label: the test is independent of an association of the covariate with the label, which is tested
    separately. With groups, permutations keep groups together. If most groups have one value, neighbours in the same
    group are ignored. A covariate that identifies the groups (the donor) is tested among distributions.

    Use distances that hold for new distributions: for an ensemble, its out-of-bag `distances_`.

    Parameters
    ----------
    distances : array-like of shape (n_distributions, n_distributions) or None
        Distances between distributions; None: covariates are tested against labels only.
    y : array-like of shape (n_distributions,)
        Labels; these, covariates and groups go by name where they carry names.
    covariates : DataFrame or dict of str to array-like of shape (n_distributions,)
        Candidates by name. Tested are those with at least 2 values and at most half as many as distributions, without
        the distributions in which the value is missing.
    groups : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution.
    n_permutations : int, default=999
        Number of permutations of each covariate; designs with fewer arrangements use all of them.
    random_state : int, RandomState or None, default=0
        Seed of the permutations, which are keyed by name.

    Returns
    -------
    BatchEffects

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> ensemble = gm.GroundMetricEnsemble(2, random_state=0).fit(D, y)
    >>> result = gm.interpret.batch_effects(ensemble.distances_, y, {"site": np.arange(len(D)) % 2})
    >>> result.covariates, result.in_distances().tolist()
    (['site'], [False])
    """
    name_index = NameIndex.of(y, *([] if distances is None else [distances]))
    labels = check_labels(y, name_index)
    matrix = None if distances is None else square_distances(distances, name_index)
    if matrix is not None and len(matrix) != labels.size:
        raise ValueError(f"distances have shape {matrix.shape} for {labels.size} labels: one row is needed for each")
    groups = group_list(groups, name_index)
    check_number("n_permutations", n_permutations, low=1, whole=True)
    if not isinstance(covariates, Mapping) and not hasattr(covariates, "columns"):
        raise TypeError(
            f"covariates is {type(covariates).__name__}: expected a DataFrame, or a dict of names to values"
        )
    seed = resolve_seed(random_state)
    rows: dict[str, tuple[float, ...]] = {}
    for name in covariates.columns if hasattr(covariates, "columns") else covariates:
        values = np.array(align_by_name(covariates[name], name_index, str(name)), dtype=object)
        if values.shape != labels.shape:
            raise ValueError(
                f"covariate {name!r} has shape {values.shape} for {labels.size} distributions: one is needed for each"
            )
        present = np.flatnonzero([not is_missing(value) for value in values])
        codes = np.unique([str(values[row]) for row in present], return_inverse=True)[1]
        if not codes.size or not 2 <= codes.max() + 1 <= codes.size / 2:
            continue
        order = canonical_order(
            None if name_index.names is None else [name_index.names[row] for row in present.tolist()], present.size
        )
        chosen = present[order]
        rows[str(name)] = _tested(
            codes[order],
            np.unique(labels[chosen], return_inverse=True)[1],
            number_groups(None if groups is None else [groups[row] for row in chosen], chosen.size),
            None if matrix is None else matrix[np.ix_(chosen, chosen)],
            n_permutations,
            keyed_generator(seed, "permutations", str(name)),
        )
    columns = {name: np.array([row[k] for row in rows.values()]) for k, name in enumerate(_STATISTICS)}
    q = np.full(len(rows), np.nan)
    tested = np.isfinite(columns["p"].astype(float))
    if tested.any():
        q[tested] = stats.false_discovery_control(columns["p"][tested])
    return BatchEffects(list(rows), q=q, **columns)


def _tested(
    codes: np.ndarray, labels: np.ndarray, groups: np.ndarray | None, distances: np.ndarray | None,
    n_permutations: int, random: np.random.Generator,
) -> tuple[float, ...]:  # fmt: skip
    """Return `_STATISTICS` of the covariate `codes`, with all arrays in the order of names."""
    # A covariate with a value of its own in each group identifies the groups: it is tested among distributions.
    if groups is not None and (
        np.unique(np.stack([groups, codes]), axis=1).shape[1] == codes.max() + 1 == groups.max() + 1
    ):
        groups = None
    triples = None if groups is None else list(zip(*(part.tolist() for part in (groups, codes, labels)), strict=True))
    units = unit_codes(triples, codes.size)
    membership = (units == np.arange(units.max() + 1)[:, None]).astype(np.float64)
    membership /= membership.sum(axis=1, keepdims=True)
    first = np.unique(units, return_index=True)[1]
    codes, labels, groups = codes[first], labels[first], None if groups is None else groups[first]

    def arranged(count: int, strata: np.ndarray | None) -> np.ndarray:
        """Return the observed values and permutations of them, a row each; one row if no permutation is possible."""
        try:
            exchange = restricted_permutations(codes, groups, strata, equal_sizes=True)
        except ValueError:
            return codes[None]
        return exchange.sample(count, random)

    arrangements = None
    if groups is not None and np.unique(groups).size < groups.size:
        arrangements = arranged(_DRAWS, None)
    associated = int(codes.max()) + 1, *association(codes, labels, random, arrangements)
    if distances is None:
        return *associated, *[np.nan] * 6
    excluded, weights = np.eye(codes.size, dtype=bool), np.ones(codes.size)
    if groups is not None:
        weights = 1.0 / np.bincount(groups)[groups]  # the same sum for each group
        pairs = np.unique(np.stack([groups, codes]), axis=1)
        if np.mean(np.unique(pairs[0], return_counts=True)[1] == 1) > 0.5:  # most groups have one value
            excluded = groups[:, None] == groups
    nearest = np.argmin(np.where(excluded, np.inf, membership @ distances @ membership.T), axis=1)
    squares = membership @ distances**2 @ membership.T
    np.fill_diagonal(squares, 0.0)
    rows = arranged(n_permutations, labels)
    same = (rows == rows[:, nearest]) @ weights / weights.sum()
    table = np.stack([same, _explained(squares, rows, weights)], axis=1)
    expected, p = np.full(2, np.nan), np.nan
    if len(table) > 1:
        expected = table[1:].mean(axis=0)
        # Each arrangement is ranked among all by each statistic, and then by its best rank: under the null hypothesis
        # the observed arrangement has every rank with equal probability.
        ranks = np.stack([np.mean(column >= column[:, None] - _TIE, axis=1) for column in table.T], axis=1)
        best = ranks.min(axis=1)
        p = float(np.mean(best <= best[0] + _TIE))
    label_r2 = float(_explained(squares, labels[None], weights)[0])
    return *associated, table[0, 0], expected[0], table[0, 1], expected[1], label_r2, p


def _explained(squares: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return R² of PERMANOVA for each arrangement (row) of the codes, with weights of the units."""
    # R² is 1 minus the sum of squares within values over the total one, each divided by its weight.
    total = weights @ squares @ weights / weights.sum()
    within = np.zeros(len(rows))
    for code in range(int(rows.max()) + 1):
        members = (rows == code) * weights
        mass = members.sum(axis=1)
        within += np.einsum("au,au->a", members @ squares, members) / np.where(mass > 0, mass, 1.0)
    return 1.0 - within / total if total > 0 else np.zeros(len(rows))


def association(
    first_labels: Any,
    second_labels: Any,
    random: np.random.Generator | None = None,
    arrangements: np.ndarray | None = None,
) -> tuple[float, float]:
    """Return Cramér's V of two lists of classes and its p-value.

    The p-value is that of Fisher's exact test for two by two classes, otherwise of 1,999 permutations. If
    `arrangements` of the first list are given, one per row with the observed labels first, the p-value is the share of
    rows with at least the association of the first row.
    """
    rows, columns = (np.unique(np.asarray(values), return_inverse=True)[1] for values in (first_labels, second_labels))
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    if min(table.shape) < 2:
        return 0.0, 1.0
    strength = round(float(contingency.association(table, method="cramer")), 12)
    if arrangements is None and table.shape == (2, 2):
        return strength, float(stats.fisher_exact(table).pvalue)
    if arrangements is None:
        random = np.random.default_rng(0) if random is None else random
        arrangements = np.vstack([rows, restricted_permutations(rows).draws(_DRAWS, random)])
    # Permutations keep the sums of rows and columns, hence chi-squared increases with the sum of n_ij² / e_ij.
    counts = (arrangements[:, :, None] == np.arange(len(table))).astype(np.float64).transpose(0, 2, 1)
    tables = counts @ (columns[:, None] == np.arange(table.shape[1])).astype(np.float64)
    deviations = (tables**2 / contingency.expected_freq(table)).sum(axis=(1, 2))
    return strength, float(np.mean(deviations >= deviations[0] * (1 - _TIE)))
