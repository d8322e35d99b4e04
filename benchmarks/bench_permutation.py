"""A permutation test with default parameters: is there anything to learn in 30 distributions of 500 points?"""

from __future__ import annotations

from cohorts import modes_2000d
from measuring import seconds

import groundmetric as gm
from groundmetric.evaluation import permutation_test

SIZE = 30, 500, 2000  # distributions, points of each, features
PERMUTATIONS = 199


def run() -> list[dict]:
    D, y = modes_2000d(*SIZE)
    found = []
    fit = seconds(lambda: gm.GroundMetricEnsemble(random_state=0).fit(D, y))
    test = seconds(
        lambda: found.append(
            permutation_test(gm.GroundMetricEnsemble(), D, y, n_permutations=PERMUTATIONS, random_state=0)
        )
    )
    return [
        {
            "data": " × ".join(map(str, SIZE)),
            "permutations": PERMUTATIONS,
            "CPU s of one fit": fit,
            "CPU s of the test": test,
            "fits that the test is worth": test / fit,
            "p": found[0].p,
        }
    ]
