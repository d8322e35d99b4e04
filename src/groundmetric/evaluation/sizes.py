"""Test of the number of points per distribution against the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .._internal.types import LabelsLike
from .._internal.validation import (
    NameIndex,
    check_classes,
    group_list,
    label_array,
    missing_values,
    real_array,
    unit_codes,
)
from ..distributions import Distributions

_N_PERMUTATIONS = 999


@dataclass(frozen=True)
class SizeAssociation:
    """Association between the numbers of points of distributions and their labels.

    Parameters
    ----------
    p : float
        p-value of no association; NaN where fewer than two labels have two units, or all sizes are equal.
    test : str
        "Kruskal-Wallis", "Spearman", or either "within groups" where labels vary within groups.
    medians : dict
        Median number of points by class; empty for numbers.
    correlation : float
        Spearman's correlation with labels that are numbers; NaN for classes.
    n_units : int
        Number of independent units: groups or, without groups, distributions.

    Examples
    --------
    >>> from groundmetric.evaluation import size_association
    >>> result = size_association([30, 35, 28, 31, 90, 85, 99, 92], ["well"] * 4 + ["ill"] * 4)
    >>> result.medians, result.p < 0.05
    ({'ill': 91.0, 'well': 30.5}, True)
    """

    p: float
    test: str
    medians: dict[Any, float]
    correlation: float
    n_units: int

    def sentence(self, label: str = "the label", item: str = "distribution", point: str = "point") -> str:
        """Return the result as a sentence.

        Parameters
        ----------
        label : str, default="the label"
            Name of the label.
        item, point : str
            Names of a distribution and of a point, e.g. "sample" and "cell".

        Returns
        -------
        str
            Whether the number of points is associated with the label, with the p-value.
        """
        numbers = f"The number of {point}s per {item}"
        used = f"{item}s are compared by equal numbers of {point}s"
        if np.isnan(self.p):
            return f"{numbers} was not tested against {label}: too few {item}s, or all of the same size; {used}."
        if self.medians:
            detail = "median " + ", ".join(f"{name}: {median:g}" for name, median in self.medians.items())
        else:
            detail = f"Spearman's correlation {self.correlation:.2f}"
        verdict = "is associated" if self.p <= 0.05 else "is not associated"
        return f"{numbers} {verdict} with {label} (p = {self.p:.2g}; {detail}); {used}."


def size_association(
    D: Distributions | ArrayLike, y: LabelsLike, groups: LabelsLike | None = None, *, target: str = "classes"
) -> SizeAssociation:
    """Test whether the number of points of distributions is associated with their labels.

    Distances between distributions grow as these have fewer points: where numbers of points differ between classes, a
    method that uses all points tells the classes apart by their numbers. The Kruskal-Wallis test compares classes,
    Spearman's correlation numbers. With `groups`, the units are groups, each with the mean logarithm of its sizes;
    where labels vary within groups, labels are permuted within them.

    Parameters
    ----------
    D : Distributions or array-like of shape (n_distributions,)
        Distributions, or their numbers of points.
    y : array-like of shape (n_distributions,)
        Labels; distributions without one (None, NaN) are ignored. `y` and `groups` are matched by name where they carry
        names.
    groups : array-like of shape (n_distributions,) or None, default=None
        Independent unit of each distribution (its patient); None: every distribution is one.
    target : {"classes", "ordered"}, default="classes"
        Whether labels are classes or numbers.

    Returns
    -------
    SizeAssociation
        The p-value and the medians by class, or the correlation.

    Examples
    --------
    >>> from groundmetric.evaluation import size_association
    >>> size_association([30, 80, 40, 60, 20, 70], [1.0, 6.0, 3.0, 4.0, 0.5, 5.0], target="ordered").correlation
    1.0
    """
    if target not in ("classes", "ordered"):
        raise ValueError(f"target is {target!r}: expected 'classes' or 'ordered'")
    name_index = D.name_index if isinstance(D, Distributions) else NameIndex.of(D)
    sizes = D.with_mass().sizes if isinstance(D, Distributions) else np.asarray(real_array(D, "D"))
    labels, names = label_array(y, name_index), group_list(groups, name_index)
    if sizes.shape != labels.shape:
        raise ValueError(f"D has {sizes.size} sizes for {labels.size} labels: one is needed for each")
    labelled = ~missing_values(labels)
    units = np.unique(unit_codes(names, labels.size)[labelled], return_inverse=True)[1]
    counts, labels = sizes[labelled].astype(np.float64), labels[labelled]
    sizes = np.log(counts)
    if target == "classes":
        check_classes(labels)
        values, codes = np.unique(labels, return_inverse=True)
        medians = {_plain(value): float(np.median(counts[codes == c])) for c, value in enumerate(values)}
    else:
        codes, medians = np.asarray(real_array(labels, "y"), dtype=np.float64), {}
    n_units = int(np.unique(units).size)
    name = "Kruskal-Wallis" if target == "classes" else "Spearman"
    if all(np.ptp(codes[units == unit]) == 0 for unit in range(n_units)):
        p = _p_of_units(_unit_means(sizes, units), _unit_means(codes, units), target)
    else:
        p, name = _p_within(sizes, codes, units, target), f"{name} within groups"
    correlation = np.nan
    if target == "ordered" and np.ptp(sizes) > 0 and np.ptp(codes) > 0:
        correlation = float(stats.spearmanr(sizes, codes).statistic)
    return SizeAssociation(p, name, medians, correlation, n_units)


def _p_of_units(sizes: np.ndarray, codes: np.ndarray, target: str) -> float:
    """Return the p-value for independent units."""
    if np.ptp(sizes) == 0 or np.ptp(codes) == 0 or sizes.size < 4:
        return np.nan
    if target == "ordered":
        return float(stats.spearmanr(sizes, codes).pvalue)
    return float(stats.kruskal(*(sizes[codes == c] for c in np.unique(codes))).pvalue)


def _p_within(sizes: np.ndarray, codes: np.ndarray, units: np.ndarray, target: str) -> float:
    """Return the p-value by permutations within units, of sizes relative to the mean of their unit."""
    centred = sizes - _unit_means(sizes, units)[units]
    if np.ptp(centred) == 0 or np.ptp(codes) == 0:
        return np.nan
    ranks, random = stats.rankdata(centred) - 0.5 * (centred.size + 1), np.random.RandomState(0)

    def statistic(codes: np.ndarray) -> float:
        if target == "ordered":
            return abs(float(np.dot(ranks, codes - codes.mean())))
        return float(sum(ranks[codes == c].sum() ** 2 / np.sum(codes == c) for c in np.unique(codes)))

    order, observed, larger = np.argsort(units, kind="stable"), statistic(codes), 0
    for _ in range(_N_PERMUTATIONS):
        permuted = np.empty_like(codes)
        permuted[order] = codes[np.lexsort((random.random_sample(codes.size), units))]
        larger += statistic(permuted) >= observed * (1.0 - 1e-12)
    return (1 + larger) / (1 + _N_PERMUTATIONS)


def _unit_means(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    return np.bincount(units, values) / np.bincount(units)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
