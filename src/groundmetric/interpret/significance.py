"""Significance of single features: p- and q-values for differences in mean and shape between labels.

Each feature of a unit (patient) is described by its quantile function, averaged over 20 bins of equal mass: the mean of
the bins is the mean of the points, the deviations from it are the shape (spread, skewness, a subpopulation).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special, stats

from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import (
    check_number,
    group_list,
    keyed_generator,
    keyed_uniform,
    label_array,
    missing_values,
    number_groups,
    real_array,
    resolve_seed,
    unit_codes,
)
from ..distributions import Distributions, as_distributions
from ..learning.splits import RestrictedPermutations, canonical_order, profiles, restricted_permutations
from .flows import Tabular, classes_of, feature_names

# Bins of equal mass that describe a quantile function.
_N_BINS = 20
# The statistic is the larger of z(mean) and z(shape) - _SHAPE_PENALTY: at z = 3 about 95 % of the significance level
# goes to the mean, and the power for a shift is that of a linear model.
_SHAPE_PENALTY = 1.0
# Share of the label's variation that must be within patients for patients to be removed as blocks; below this share,
# patients are random effects, which keeps the information between patients.
_WITHIN = 0.75
# Factor by which the pooled null distribution may extrapolate the p-value of a feature's own permutations.
_EXTRAPOLATION = 10.0
# Digits of statistics: arrangements that only differ in the names of the classes tie in spite of rounding.
_DECIMALS = 9
# Entries of the arrays that are held at the same time: 128 MB.
_MAX_ENTRIES = 2**24

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Discoveries:
    """p- and q-values of features by permutation of the labels.

    Parameters
    ----------
    p, q, family_p : array of shape (n_features,)
        Share of arrangements of the labels (the observed one included) in which the feature has at least its observed
        statistic; estimated false discovery rate of the features with at least this statistic, never below `overall`;
        and share of arrangements in which any feature has at least this statistic (Westfall & Young 1993).
    overall : float
        p-value of the hypothesis that no feature differs between labels.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> gm.interpret.feature_significance(D, y, n_permutations=99, random_state=0).discoveries.p.shape
    (2,)
    """

    p: np.ndarray
    q: np.ndarray
    family_p: np.ndarray
    overall: float


@dataclass(frozen=True)
class FeatureSignificance(Tabular):
    """Statistics, p- and q-values of single features.

    Parameters
    ----------
    features, statistic : list of str, array of shape (n_features,)
        Names of the features, and their combined z-scores of mean and shape.
    shift : array of shape (n_features,)
        Difference of the means of the second and the first class, in standard deviations of the points; with
        ``target="ordered"``, change of the mean per standard deviation of the label. NaN with more than two classes.
    discoveries : Discoveries
        p-values, q-values (estimated false discovery rate) and family-wise p-values by permutation.
    parametric_p, parametric_q : array of shape (n_features,)
        p-values of the moderated F test of the means (limma), and adjusted for the number of features (Benjamini &
        Hochberg). They assume normally distributed patient means, and do not include changes of shape.
    exchanged, arrangements : str and int
        Units among which labels were permuted, e.g. "groups within strata", and number of different arrangements of the
        labels that the design allows.
    exact : bool
        Whether all arrangements were used, and `p` does not depend on random numbers.
    smallest_p : float
        Smallest p-value that the design and the number of permutations allow. The q-value of a feature that differs
        alone among m is at least ``m * smallest_p / 10``.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> gm.interpret.feature_significance(D, y, n_permutations=99, random_state=0).exchanged
    'distributions'
    """

    features: list[str]
    statistic: np.ndarray
    shift: np.ndarray
    discoveries: Discoveries
    parametric_p: np.ndarray
    parametric_q: np.ndarray
    exchanged: str
    arrangements: int
    exact: bool
    smallest_p: float

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        columns = {
            "feature": self.features, "statistic": self.statistic, "shift": self.shift,
            "p": self.discoveries.p, "q": self.discoveries.q, "family_p": self.discoveries.family_p,
            "parametric_p": self.parametric_p, "parametric_q": self.parametric_q,
        }  # fmt: skip
        return columns, np.argsort(-self.statistic, kind="stable")

    def __repr__(self) -> str:
        kind = "all" if self.exact else "random"
        return (
            f"FeatureSignificance({len(self.features)} features; q < 0.05: {np.sum(self.discoveries.q < 0.05)}, "
            f"parametric {np.sum(self.parametric_q < 0.05)}; {kind} permutations of {self.exchanged}, smallest p "
            f"{self.smallest_p:.2g})"
        )


def feature_significance(
    D: DistributionsLike,
    y: LabelsLike,
    *,
    target: str = "classes",
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    n_permutations: int = 1999,
    random_state: RandomState = None,
) -> FeatureSignificance:
    """Test which features differ between labels, in mean or shape, with patients as units.

    The same number of points is drawn from each distribution, because quantile functions of fewer points are noisier.
    Distributions of a patient (`groups`) with the same label are averaged: a patient counts once. Differences between
    strata are removed; in paired designs (patients with several labels each) also those between patients. If only a
    minority of patients has several labels, patients are random effects with one correlation for all features.

    The statistic is the larger of two moderated F statistics (Smyth 2004, as in limma), of the mean and of the shape of
    the quantile function, as z-scores. `p` ranks it among the values of the same feature for permuted labels: all
    arrangements if the design has at most ``n_permutations + 1``, otherwise random ones. `q` adjusts (Benjamini &
    Hochberg) p-values from the permutations of all features together, after removal of the observed effects; these
    extrapolate `p` by at most a factor of 10.

    Parameters
    ----------
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Classes, or numbers with ``target="ordered"``; these, groups and strata are aligned by name.
    target : {"classes", "ordered"}, default="classes"
        Whether labels are classes, or numbers (ages, survival percentiles), for which a linear trend is tested.
    groups, strata : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution, and stratum (batch, centre), within which labels are permuted.
    n_permutations : int, default=1999
        Number of permutations. A feature that differs alone among m needs 2 m permutations for a q-value of 0.05.
    random_state : int, RandomState or None, default=None
        Seed of the permutations and of the draw of points, which are keyed by name.

    Returns
    -------
    FeatureSignificance

    Notes
    -----
    If patients of a stratum are exchangeable, `p` is exact for any distribution of the features; it is approximate if
    the number of samples per patient depends on the label. If no feature differs, the probability of any q-value below
    0.05 is at most 0.05, for any dependence between features. With effects, `q` estimates the expected share of false
    discoveries, assuming that features of equal statistic have similar null distributions. Use `parametric_p` if
    `smallest_p` shows that the cohort is too small for a permutation test: 5 pairs have 32 arrangements and a smallest
    p of 1/16. No number protects against a confounder that is not among the strata.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> q = gm.interpret.feature_significance(D, y, n_permutations=99, random_state=0).discoveries.q
    >>> bool(q[0] < 0.05 < q[1])
    True
    """
    D = as_distributions(D).with_mass()
    if target == "classes":
        labels = classes_of(y, D)[1]
    elif target == "ordered":
        named = label_array(y, D.name_index)
        labels = real_array(named, "y").astype(np.float64)
        if missing_values(named).any() or not np.isfinite(labels).all():
            raise ValueError("y contains a missing or infinite label: drop the distribution or label it")
        labels = labels / max(float(np.abs(labels).max()), 1e-300)  # squares neither overflow nor vanish
        spread = float(labels.std())
        if spread <= 1e-12:
            raise ValueError("all distributions have the same label: at least two values are needed")
        labels = (labels - labels.mean()) / spread
    else:
        raise ValueError(f"target is {target!r}: expected 'classes' or 'ordered'")
    groups, strata = group_list(groups, D.name_index), group_list(strata, D.name_index, "strata")
    check_number("n_permutations", n_permutations, low=1, whole=True)
    seed = resolve_seed(random_state)
    design = _Design.of(labels, groups, strata, D.name_index.names)
    arrangements = design.exchange.sample(n_permutations, keyed_generator(seed, "permutations"))
    n = D.common_size()
    small = [name for name, size in zip(D.names, D.effective_sizes, strict=True) if size < n - 0.5]
    if small:
        warnings.warn(
            f"{len(small)} distributions have fewer than {n} points ({', '.join(map(str, small[:3]))}): their quantile "
            "functions are noisier than those of the others; exclude these distributions if their number depends on "
            "the label",
            UserWarning,
            stacklevel=2,
        )
    D = D.equalize(n, random_state=seed)
    quantiles = _Quantiles.of(D, design.units, seed)
    statistics, pooled_p, parametric_p, shift = _test(quantiles, design.roots(quantiles), arrangements)
    exact = design.exchange.arrangements <= n_permutations + 1
    partitions = design.exchange.partitions if target == "classes" else design.exchange.arrangements
    return FeatureSignificance(
        feature_names(D), statistics[0], shift, discoveries=_discoveries(statistics, pooled_p),
        parametric_p=parametric_p, parametric_q=stats.false_discovery_control(parametric_p),
        exchanged=design.exchange.among, arrangements=design.exchange.arrangements, exact=exact,
        smallest_p=max(1.0 / partitions, 0.0 if exact else 1.0 / len(arrangements)),
    )  # fmt: skip


@dataclass(frozen=True)
class _Design:
    """Linear model of units."""

    units: np.ndarray  # unit of each distribution
    labels: np.ndarray  # of each unit
    exchange: RestrictedPermutations
    nuisance: Floats  # a row per unit
    patients: np.ndarray | None  # of the units, if patients are random effects

    @classmethod
    def of(cls, labels: np.ndarray, groups: Any, strata: Any, names: Any) -> _Design:
        n = labels.size
        order, group, stratum = canonical_order(names, n), number_groups(groups, n), number_groups(strata, n, "strata")
        # A unit is a patient and a label, or a distribution; units are numbered in the order of names.
        pairs = None if group is None else list(zip(group[order].tolist(), labels[order].tolist(), strict=True))
        units = np.empty(n, np.intp)
        units[order] = unit_codes(pairs, n)
        first = np.unique(units, return_index=True)[1]
        by_unit, patients = labels[first], None if group is None else group[first]
        shares = None if stratum is None else profiles(stratum, units)
        exchange = restricted_permutations(by_unit, patients, shares)
        nuisance = np.ones((by_unit.size, 1))
        if shares is not None:
            n_strata = 1 + max(value for unit in shares for value, _ in unit)
            nuisance = np.array([[float(dict(unit).get(value, 0)) for value in range(n_strata)] for unit in shares])
        if patients is None or len(set(patients.tolist())) == by_unit.size:
            return cls(units, by_unit, exchange, nuisance, None)
        blocks = (patients[:, None] == np.unique(patients)).astype(np.float64)
        label_columns = _columns(by_unit[None])[0]
        total, within = (
            np.square(_complement(z) @ label_columns).sum() for z in (nuisance, np.hstack([nuisance, blocks]))
        )
        if within >= _WITHIN * total:
            return cls(units, by_unit, exchange, np.hstack([nuisance, blocks]), None)
        return cls(units, by_unit, exchange, nuisance, patients)

    def roots(self, quantiles: _Quantiles) -> tuple[Floats, Floats]:
        """Return two matrices, for means and for shapes, that make units independent with equal variances."""
        # Rows are orthogonal to the nuisance variables; the label is not used. If patients are random effects, units of
        # a patient have one correlation for all features (limma's consensus correlation). The variance of a unit's mean
        # is that of patients plus that of distributions over their number, with one ratio of the two for all features.
        complement, same = _complement(self.nuisance), np.eye(self.labels.size, dtype=bool)
        residuals, correlation = complement @ quantiles.means, 0.0
        if self.patients is not None:
            same = self.patients[:, None] == self.patients
            scaled = complement.T @ residuals
            scaled = scaled / np.maximum(np.sqrt(np.square(scaled).mean(axis=0)), 1e-300)
            pairs = same & ~np.eye(len(same), dtype=bool)
            correlation = np.sum(pairs * (scaled @ scaled.T)) / pairs.sum() / scaled.shape[1]
            correlation = float(np.clip(correlation, 0.0, 0.95))
        covariance = np.where(same, correlation + (1.0 - correlation) * np.eye(len(same)), 0.0)
        variances, spread = np.square(residuals).mean(axis=0), np.ones(self.labels.size)
        share, varies = 1.0 / np.bincount(self.units), variances > 0
        if np.ptp(share) > 0 and varies.any():
            ratio = min(float(np.median(quantiles.within[varies] / variances[varies])), 1.0 / float(share.mean()))
            spread = np.sqrt(np.maximum(1.0 + ratio * (share - share.mean()), 0.01))
        roots = []
        for matrix in (covariance * spread * spread[:, None], covariance):
            eigenvalues, vectors = np.linalg.eigh(matrix)
            root = (vectors / np.sqrt(eigenvalues)) @ vectors.T
            roots.append(_complement(root @ self.nuisance) @ root)
        return roots[0], roots[1]


def _complement(columns: Floats) -> Floats:
    """Return orthonormal rows that span the orthogonal complement of the columns."""
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=True)
    rank = int(np.sum(sizes > 1e-9 * max(float(sizes[0]), 1e-300)))
    return np.ascontiguousarray(vectors[:, rank:].T)


def _columns(labels: np.ndarray) -> Floats:
    """Return the design matrix of each arrangement: indicators of all classes but the first, or the numbers."""
    if labels.dtype.kind == "f":
        return labels[:, :, None].astype(np.float64)
    return (labels[:, :, None] == np.unique(labels)[1:]).astype(np.float64)


@dataclass(frozen=True)
class _Quantiles:
    """Quantile functions of the units."""

    means: Floats  # (n_units, features)
    shapes: Floats  # (n_units, bins, features), deviations from the mean, averaged over bins of equal mass
    within: Floats  # (features,), variance of means between distributions of a unit

    @classmethod
    def of(cls, D: Distributions, units: np.ndarray, seed: int) -> _Quantiles:
        """Average the distributions of each unit."""
        # Features are centred in double precision before they are divided by their standard deviation: an offset of a
        # feature does not change the result. Means are averages over all distributions of a unit. Shapes are averages
        # over the same number of distributions for all units, drawn by name: the error of a shape is mostly that of its
        # few points, far from normal, and weights would not correct for it.
        origin, variances = D.moments(weighted=False)
        if not sparse.issparse(D.points):  # rounded to the type of the values: differences of float32 are then exact
            origin = origin.astype(D.points.dtype).astype(np.float64)
        scale = np.where(variances > 0, np.sqrt(variances), 1.0)
        counts = np.bincount(units)
        order = np.lexsort((keyed_uniform(D.names, seed, "distributions"), units))
        rank = np.arange(units.size) - np.repeat(np.cumsum(counts) - counts, counts)  # within the unit
        chosen = np.isin(np.arange(units.size), order[rank < counts.min()])
        means, squares = np.zeros((counts.size, D.shape[1])), np.zeros(D.shape[1])
        shapes = np.zeros((counts.size, _N_BINS, D.shape[1]))
        width = max(1, _MAX_ENTRIES // int(D.sizes.max()))
        for d in range(len(D)):
            rows = slice(D.bounds[d], D.bounds[d + 1])
            points = D.points[rows]
            masses = None if D.uniform[d] else D.weights[rows]
            for low in range(0, D.shape[1], width):
                columns = slice(low, low + width)
                values = points[:, columns].toarray() if sparse.issparse(points) else points[:, columns]
                values = _bin_means((values.astype(np.float64) - origin[columns]) / scale[columns], masses)
                mean = values.mean(axis=0)
                means[units[d], columns] += mean / counts[units[d]]
                squares[columns] += mean**2
                if chosen[d]:
                    shapes[units[d], :, columns] += (values - mean) / counts.min()
        within = np.maximum(squares - counts @ means**2, 0.0) / max(units.size - counts.size, 1)
        return cls(means, shapes, within)


def _bin_means(values: Floats, masses: np.ndarray | None) -> Floats:
    """Return the mean of the quantile function in each bin, (bins, features); their mean is the mean of the points."""
    n = len(values)
    if masses is None:
        ends = np.arange(n + 1) / n
        edges = np.arange(_N_BINS + 1) / _N_BINS
        overlap = np.minimum(edges[1:, None], ends[1:]) - np.maximum(edges[:-1, None], ends[:-1])
        return _N_BINS * np.maximum(overlap, 0.0) @ np.sort(values, axis=0)
    order = np.argsort(values, axis=0, kind="stable")
    values = np.take_along_axis(values, order, axis=0)
    mass = masses[order] / masses.sum()
    ends = np.vstack([np.zeros(values.shape[1]), np.cumsum(mass, axis=0)])
    integral = np.vstack([np.zeros(values.shape[1]), np.cumsum(mass * values, axis=0)])
    at_edges = [np.zeros(values.shape[1])]
    for edge in np.arange(1, _N_BINS) / _N_BINS:
        last = np.minimum(np.sum(ends[1:] <= edge, axis=0), n - 1)[None]
        partial = (edge - np.take_along_axis(ends, last, 0)) * np.take_along_axis(values, last, 0)
        at_edges.append((np.take_along_axis(integral, last, 0) + partial)[0])
    return _N_BINS * np.diff([*at_edges, integral[-1]], axis=0)


def _test(
    quantiles: _Quantiles, roots: tuple[Floats, Floats], arrangements: np.ndarray
) -> tuple[Floats, Floats | None, Floats, Floats]:
    """Return statistics (arrangements, features), pooled and parametric p-values, and shifts of all features."""
    # `arrangements` has a row per arrangement of the labels, the observed one first.
    # Two null distributions are used. The statistics of permuted labels rank each feature among its own values. For the
    # pooled one, the effect of the observed labels is removed from the data first: otherwise features that differ,
    # whose variance includes their effect, would dominate the tail.
    n_units, n_bins, n_features = quantiles.shapes.shape
    values = (quantiles.means[:, None], quantiles.shapes)
    bases = [_LabelBasis.of(root @ _columns(arrangements)) for root in roots]
    n_rest, n_between = len(roots[0]), bases[0].rank[0, 0]
    if n_rest - bases[0].rank.max() < 1:
        raise ValueError(
            f"{n_units} units leave no degree of freedom for the error after removal of labels, strata and patients: "
            "give more patients, or coarser strata"
        )
    removals = [_complement(basis.rows[0].T) for basis in bases]
    pooled = [
        _LabelBasis.of(removal @ root @ _columns(arrangements)) for removal, root in zip(removals, roots, strict=True)
    ]
    valid = np.flatnonzero(np.all([basis.rank[:, 0] == n_between for basis in pooled], axis=0))
    pooled = [basis.at(valid) for basis in pooled]
    width = max(1, _MAX_ENTRIES // (n_bins * (2 * bases[1].rows[:, :, 0].size + 4 * n_units)))
    blocks = [slice(low, low + width) for low in range(0, n_features, width)]

    total, residual, dimensions = np.empty((2, n_features)), np.empty((2, n_features)), np.ones((2, n_features))
    for block in blocks:
        for k in range(2):
            residuals = np.tensordot(roots[k], values[k][:, :, block], 1)
            total[k, block] = np.square(residuals).sum(axis=(0, 1))
            residual[k, block] = total[k, block] - bases[k].at([0]).explained(residuals)[0]
            dimensions[k, block] = _effective_dimensions(residuals) if k else 1.0
    varies = total > 1e-20 * n_rest  # in units of the variance of the points
    n_error = n_rest - n_between
    # The prior of ranked statistics does not depend on the labels: one that is fitted to residuals of each
    # arrangement is tighter for the observed labels if many features differ, and p-values of the other features would
    # be too small.
    free = [_Prior.fit(total[k] / dimensions[k], n_rest * dimensions[k], varies[k]) for k in range(2)]
    fitted = [_Prior.fit(residual[k] / dimensions[k], n_error * dimensions[k], varies[k]) for k in range(2)]

    statistics = np.empty((len(arrangements), n_features))
    scores, null = np.empty((2, n_features)), np.empty((valid.size, n_features), dtype=np.float32)

    def combine(score_mean: Floats, score_shape: Floats) -> Floats:
        return np.maximum(score_mean, score_shape - _SHAPE_PENALTY)

    for block in blocks:
        by_labels, by_removal = [], []
        for k in range(2):
            residuals = np.tensordot(roots[k], values[k][:, :, block], 1)
            among = varies[k, block], dimensions[k, block]
            explained = bases[k].explained(residuals)
            by_labels.append(free[k].scores(explained, total[k, block], bases[k].rank, n_rest, *among))
            scores[k, block] = fitted[k].scores(explained[:1], total[k, block], bases[k].rank[:1], n_rest, *among)[0]
            residuals = np.tensordot(removals[k], residuals, 1)
            by_removal.append(
                fitted[k].scores(pooled[k].explained(residuals), residual[k, block], pooled[k].rank, n_error, *among)
            )
        statistics[:, block], null[:, block] = combine(*by_labels), combine(*by_removal)
    columns = bases[0].columns[0]
    shift: Any = np.full(n_features, np.nan)
    if columns.shape[1] == 1:
        shift = columns[:, 0] @ (roots[0] @ quantiles.means) / np.square(columns[:, 0]).sum()
    pooled_p: Any = None
    if n_error - n_between >= 1 and valid.size:
        tail = np.sort(null, axis=None)
        at_least = tail.size - np.searchsorted(tail, (combine(*scores) - 1e-6).astype(np.float32), side="left")
        pooled_p = (1.0 + at_least) / (1.0 + tail.size)
    parametric_p = fitted[0].p_values(total[0] - residual[0], residual[0], n_between, n_error, varies[0])
    return np.round(statistics, _DECIMALS, out=statistics), pooled_p, parametric_p, shift


def _discoveries(statistics: Floats, pooled_p: np.ndarray | None) -> Discoveries:
    """Return p-values by the permutations of each feature, and q-values."""
    # q-values are adjusted pooled p-values (Benjamini & Hochberg), which extrapolate the p-value of a feature by at
    # most a factor `_EXTRAPOLATION`. This estimate may be small by chance. Therefore the smallest estimated false
    # discovery rate of all thresholds (Tusher, Tibshirani & Chu 2001) is ranked among those of the other arrangements,
    # and no q-value is below this rank (`overall`): if no feature differs, a q-value below 0.05 has a probability of at
    # most 0.05 for any dependence between features.
    observed, pool = statistics[0], np.sort(statistics, axis=None)
    p = np.mean(statistics >= observed, axis=0)
    rates = np.empty(len(statistics))
    for k, row in enumerate(statistics):
        ascending = np.sort(row)  # searches for ascending values are four times as fast
        expected = (pool.size - np.searchsorted(pool, ascending, side="left")) / len(statistics)
        rates[k] = np.min(expected / (row.size - np.searchsorted(ascending, ascending, side="left")))
    overall = float(np.mean(rates <= rates[0]))
    extrapolated = p if pooled_p is None else np.maximum(pooled_p, p / _EXTRAPOLATION)
    q = np.maximum(stats.false_discovery_control(extrapolated), overall)
    return Discoveries(p, q, np.mean(statistics.max(axis=1)[:, None] >= observed, axis=0), overall)


@dataclass(frozen=True)
class _LabelBasis:
    """Whitened label columns of each arrangement, and orthonormal rows that span them."""

    columns: Floats  # (arrangements, n_rest, columns)
    rows: Floats  # (arrangements, columns, n_rest)
    rank: Floats  # (arrangements, 1)

    @classmethod
    def of(cls, columns: Floats) -> _LabelBasis:
        basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
        used = sizes > 1e-9 * np.sqrt(columns.shape[1])
        rows = np.ascontiguousarray((basis * used[:, None, :]).transpose(0, 2, 1))
        return cls(columns, rows, used.sum(axis=1, keepdims=True).astype(np.float64))

    def at(self, chosen: Any) -> _LabelBasis:
        return _LabelBasis(self.columns[chosen], self.rows[chosen], self.rank[chosen])

    def explained(self, residuals: Floats) -> Floats:
        """Return the sum of squares that the labels explain, (arrangements, features)."""
        n_rest, _, width = residuals.shape
        parts = self.rows.reshape(-1, n_rest) @ residuals.reshape(n_rest, -1)
        return np.square(parts, out=parts).reshape(len(self.rows), -1, width).sum(axis=1)


def _effective_dimensions(residuals: Floats) -> Floats:
    """Return the effective number of dimensions of each feature's shape: (tr S)² / tr S², S the covariance of bins."""
    # The estimate of tr S² is corrected for the sampling error of S from n_rest rows (Srivastava 2005).
    n = len(residuals)
    rows = residuals.transpose(2, 0, 1)
    gram = rows @ rows.transpose(0, 2, 1) if n < residuals.shape[1] else rows.transpose(0, 2, 1) @ rows
    trace, squares = np.einsum("fii->f", gram), np.square(gram).sum(axis=(1, 2))
    if n > 1:
        squares = np.maximum((squares - trace**2 / n) * n**2 / ((n - 1.0) * (n + 2.0)), trace**2 / residuals.shape[1])
    return np.clip(np.divide(trace**2, squares, out=np.ones_like(trace), where=squares > 0), 1.0, residuals.shape[1])


@dataclass(frozen=True)
class _Prior:
    """Prior of the variances of all features (Smyth 2004): degrees of freedom and value."""

    df: float
    variance: float

    @classmethod
    def fit(cls, squares: Floats, df: Floats, varies: np.ndarray) -> _Prior:
        """Fit the prior to sums of squares (`fitFDist` of limma); fewer than three features have none."""
        if varies.sum() < 3:
            return cls(0.0, 1.0)
        half, variance = df[varies] / 2.0, (squares / df)[varies]
        logs = np.log(np.maximum(variance, max(1e-5 * float(np.median(variance)), 1e-300)))
        logs += np.log(half) - special.digamma(half)
        half_prior = _inverse_trigamma(float(logs.var(ddof=1) - special.polygamma(1, half).mean()))
        if not np.isfinite(half_prior):
            return cls(np.inf, float(np.exp(logs.mean())))
        return cls(2.0 * half_prior, float(np.exp(logs.mean() + special.digamma(half_prior) - np.log(half_prior))))

    def shrink(self, variance: Floats, df: Floats | float) -> Floats:
        """Return averages of variances and prior, weighted by degrees of freedom."""
        if not np.isfinite(self.df):
            return np.full_like(variance, self.variance)
        return (self.df * self.variance + df * variance) / (self.df + df)

    def scores(
        self, explained: Floats, total: Floats, rank: Floats, n_rest: float, varies: np.ndarray, dimensions: Floats
    ) -> Floats:
        """Return approximate z-scores of moderated F statistics, increasing in F, (arrangements, features)."""
        # A feature with d effective dimensions has d times the degrees of freedom. Bartlett's approximation turns F
        # into a chi-squared statistic, Wilson and Hilferty's into a normal one. The approximation only decides how mean
        # and shape are weighted: p-values are ranks.
        df, n_error = rank * dimensions, (n_rest - rank) * dimensions
        variance = self.shrink(np.maximum(total - explained, 0.0) / np.maximum(n_error, 1e-9), n_error)
        defined = (variance > 0) & varies & (df > 0)
        f = np.divide(explained, variance * np.maximum(df, 1.0), out=np.zeros_like(explained), where=defined)
        df, n_error = np.maximum(df, 1.0), n_error + min(self.df, 1e6)
        scaled = (n_error + df / 2.0 - 1.0) * np.log1p(f * (df / n_error)) / df
        deviation = 2.0 / (9.0 * df)
        return (np.cbrt(scaled) - (1.0 - deviation)) / np.sqrt(deviation)

    def p_values(
        self, explained: Floats, residual: Floats, n_between: float, n_error: float, varies: np.ndarray
    ) -> Floats:
        """Return p-values of moderated F statistics (`eBayes` of limma)."""
        variance = self.shrink(np.maximum(residual, 0.0) / n_error, n_error)
        f = np.divide(explained / n_between, variance, out=np.zeros_like(explained), where=(variance > 0) & varies)
        # No more degrees of freedom than all features have together, as in limma.
        return special.fdtrc(n_between, min(n_error + self.df, n_error * max(int(varies.sum()), 1)), f)


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value by Newton's method, infinity for values of at most 0."""
    if value <= 1e-7:
        return np.inf
    x = 0.5 + 1.0 / value
    for _ in range(20):  # converges monotonically from this start (Smyth 2004, appendix)
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1.0 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if abs(step) <= 1e-10 * x:
            break
    return x
