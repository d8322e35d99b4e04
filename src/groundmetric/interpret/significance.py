"""Significance of single features: which of them differ between labels, by transport of one feature at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import false_discovery_control
from sklearn.utils import check_random_state

from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import check_labels, check_number
from ..distributions import as_distributions
from ..evaluation.permutation import exchangeable
from ..learning.features import FeatureDistances, quantile_functions
from ..supervision.splits import group_list
from ._inputs import frame
from .stability import Discoveries, discoveries

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class FeatureSignificance:
    """Statistics, p- and q-values of single features.

    Parameters
    ----------
    features : list of str
        Names of the features.
    statistic : array of shape (n_features,)
        t: how much farther distributions are from unlike than from like ones in this feature, over its error.
    shift : array of shape (n_features,)
        Mean of the second class minus mean of the first, in standard deviations of the points; NaN where there are not
        two classes. It gives the direction; a feature may differ in spread or shape alone.
    discoveries : Discoveries
        p-values, q-values (estimated false discovery rate) and family-wise p-values.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> found = gm.interpret.feature_significance(D, y, n_permutations=99, random_state=0)
    >>> bool(found.discoveries.q[0] < 0.05 < found.discoveries.q[1])
    True
    """

    features: list[str]
    statistic: np.ndarray
    shift: np.ndarray
    discoveries: Discoveries

    def table(self) -> DataFrame:
        """A row per feature, the strongest first.

        Returns
        -------
        DataFrame
            Columns feature, statistic, shift, p, q and family_p.
        """
        found = self.discoveries
        columns = {
            "feature": self.features, "statistic": self.statistic, "shift": self.shift,
            "p": found.p, "q": found.q, "family_p": found.family_p,
        }  # fmt: skip
        return frame(columns, np.argsort(-self.statistic, kind="stable"))


def feature_significance(
    D: DistributionsLike,
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    n_permutations: int = 1999,
    random_state: RandomState = None,
) -> FeatureSignificance:
    """Test which features differ between labels, with labels exchanged as null.

    Each feature is transported alone, which is a sort; its statistic is how much farther distributions are from those
    of other labels than from those of their own, over its error. Under the null hypothesis labels are exchangeable
    (among distributions, groups, or within strata, as in `evaluation.permutation_test`), and the statistics of all
    features are computed again for every exchange. So neither the number of points of a distribution nor dependence
    between features makes anything significant: the distribution is the unit.

    Parameters
    ----------
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Classes; these, groups and strata go by name where they carry names.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample).
    strata : array-like of shape (n_distributions,) or None, default=None
        Labels are exchanged only within these (centre, batch, sex).
    n_permutations : int, default=1999
        Number of exchanges of the labels. No q-value is below the number of features over that of permutations, by the
        number of features found: thousands of features need thousands of permutations.
    random_state : int, RandomState or None, default=None
        Seed of the exchanges.

    Returns
    -------
    FeatureSignificance
        Statistics, p- and q-values of all features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> found = gm.interpret.feature_significance(D, y, n_permutations=99, random_state=0)
    >>> found.statistic.shape
    (2,)
    """
    D = as_distributions(D).with_mass()
    labels = check_labels(y, D.roll)
    groups, strata = group_list(groups, D.roll), group_list(strata, D.roll, "strata")
    check_number("n_permutations", n_permutations, low=1, whole=True)
    classes, codes = np.unique(labels, return_inverse=True)
    exchange, random = exchangeable(codes, groups, strata), check_random_state(random_state)
    _, variances = D.moments(weighted=False)
    scale = np.where(variances > 0, np.sqrt(variances), 1.0)
    distances = FeatureDistances(quantile_functions(D, scale), random)
    drawn = np.stack([codes, *(exchange.draw(random) for _ in range(n_permutations))])
    statistics = distances.statistics(drawn)
    found = discoveries(statistics[0], statistics[1:], relative=False)
    # Pooled nulls need few permutations but take features to be alike; each feature's own null does not.
    found = replace(found, q=np.maximum(found.q, false_discovery_control(found.p)))
    return FeatureSignificance(
        list(D.features) if D.features is not None else [f"feature {k}" for k in range(D.shape[1])],
        statistics[0],
        _shift(D.means() / scale, codes, classes.size),
        found,
    )


def _shift(means: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    if n_classes != 2:
        return np.full(means.shape[1], np.nan)
    return means[codes == 1].mean(axis=0) - means[codes == 0].mean(axis=0)
