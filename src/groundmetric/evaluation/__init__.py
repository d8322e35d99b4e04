"""Evaluation: methods compared on held-out distributions, with intervals and tests."""

from ..learning.splits import folds, leave_one_group_out, leave_one_out, shuffled
from .compare import compare, out_of_fold_distances
from .permutation import PermutationTest, SizeAssociation, permutation_test, size_association
from .planning import LearningCurve, learning_curve
from .results import Comparison, Voting
from .scores import Difference, Estimate, concordance_index, vote

__all__ = [
    "Comparison",
    "Difference",
    "Estimate",
    "LearningCurve",
    "PermutationTest",
    "SizeAssociation",
    "Voting",
    "compare",
    "concordance_index",
    "folds",
    "learning_curve",
    "leave_one_group_out",
    "leave_one_out",
    "out_of_fold_distances",
    "permutation_test",
    "shuffled",
    "size_association",
    "vote",
]


def __dir__() -> list[str]:
    return sorted(__all__)
