"""Evaluation: methods compared on held-out distributions, with intervals and tests.

>>> import groundmetric as gm
>>> y = ["ill", "well"] * 5
>>> cv = gm.evaluation.folds(y, n_splits=5, random_state=0)
>>> len(cv)
5
"""

from ..learning.splits import folds, leave_one_group_out, leave_one_out, shuffled
from .compare import compare
from .permutation import PermutationTest, permutation_test
from .results import Comparison
from .scores import cluster_distributions, cluster_points, cluster_scores, concordance_index, scores, vote
from .sizes import SizeAssociation, size_association
from .spare import MeasuredScore, SpareScores, out_of_fold_distances, spare
from .statistics import (
    Difference,
    Estimate,
    corrected_t,
    holm,
    paired_t,
    resample,
    wilson,
)

__all__ = [
    "Comparison",
    "Difference",
    "Estimate",
    "MeasuredScore",
    "PermutationTest",
    "SizeAssociation",
    "SpareScores",
    "cluster_distributions",
    "cluster_points",
    "cluster_scores",
    "compare",
    "concordance_index",
    "corrected_t",
    "folds",
    "holm",
    "leave_one_group_out",
    "leave_one_out",
    "out_of_fold_distances",
    "paired_t",
    "permutation_test",
    "resample",
    "scores",
    "shuffled",
    "size_association",
    "spare",
    "vote",
    "wilson",
]


def __dir__() -> list[str]:
    return sorted(__all__)
