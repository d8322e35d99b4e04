"""Figures that the paper prints (Kühn & Schaub, AISTATS 2025), for comparison with ours. Nothing here is computed.

Source of each: "Table 1" is the table of k-NN accuracies (`tab:class`), "Table 2" that of clustering (`tab:clust`), and
"Table 3" that of training times (`tab:abla`, panel A), by their labels in the paper's source.
"""

from __future__ import annotations

from typing import NamedTuple


class Accuracy(NamedTuple):
    """Mean and standard deviation over ten splits (the caption says variance; the authors' scripts take the SD)."""

    mean: float
    sd: float


class Clustering(NamedTuple):
    """Mutual information, adjusted Rand index, variation of information."""

    mutual_information: float
    adjusted_rand: float
    variation_of_information: float


DATA = ("Synth 2D", "Synth 200D")
METHODS = ("GGML", "Euclidean", "Manhattan", "Cosine", "LMNN", "LFDA", "NCA", "ITML")

# Table 1: patient level on Synth 2D and 200D, then cell level on both.
_TABLE_1 = {
    "Euclidean": ((0.24, 0.08), (0.39, 0.12), (0.32, 0.01), (0.45, 0.01)),
    "Manhattan": ((0.24, 0.08), (0.39, 0.11), (0.33, 0.01), (0.41, 0.01)),
    "Cosine": ((0.43, 0.07), (0.46, 0.10), (0.36, 0.01), (0.35, 0.01)),
    "LMNN": ((0.22, 0.07), (0.29, 0.11), (0.38, 0.01), (0.45, 0.01)),
    "LFDA": ((0.46, 0.06), (0.47, 0.09), (0.40, 0.01), (0.37, 0.01)),
    "NCA": ((0.35, 0.11), (0.25, 0.11), (0.37, 0.00), (0.46, 0.02)),
    "ITML": ((0.51, 0.09), (0.43, 0.08), (0.41, 0.01), (0.36, 0.01)),
    "GGML": ((0.96, 0.04), (0.95, 0.11), (0.53, 0.01), (0.53, 0.01)),
}

# Table 2: patient level on Synth 2D and 200D, then cell level (centre mode only) on both.
_TABLE_2 = {
    "Euclidean": ((0.00, -0.07, 2.19), (0.00, -0.07, 2.13), (0.00, 0.00, 1.78), (0.00, 0.00, 1.79)),
    "Manhattan": ((0.00, -0.07, 2.13), (0.00, -0.07, 2.19), (0.00, 0.00, 2.18), (0.00, 0.00, 1.79)),
    "Cosine": ((0.03, -0.03, 1.97), (0.07, 0.00, 1.24), (0.05, 0.02, 2.03), (0.34, 0.01, 3.05)),
    "LMNN": ((0.01, -0.07, 2.17), (0.01, -0.06, 2.17), (0.01, 0.01, 2.15), (0.00, 0.00, 1.77)),
    "LFDA": ((0.03, -0.05, 2.07), (0.08, -0.01, 1.40), (0.06, 0.03, 1.87), (0.00, 0.00, 2.40)),
    "NCA": ((0.01, -0.06, 2.15), (0.04, -0.03, 2.10), (0.00, 0.00, 2.16), (0.10, 0.06, 1.93)),
    "ITML": ((0.18, 0.02, 1.68), (0.22, 0.11, 1.38), (0.15, 0.09, 1.82), (0.01, 0.00, 2.46)),
    "GGML": ((1.10, 1.00, 0.00), (1.10, 1.00, 0.00), (0.77, 0.75, 0.65), (0.68, 0.64, 0.83)),
}

# Table 3, panel A: seconds per epoch on Synth 200D, 64 cores; neighbours to times by rank.
RANKS = (5, 10, 50, 100, 200)
TIMING = {
    1: (12.9, 14.5, 15.8, 17.0, 22.3),
    3: (130.4, 132.5, 143.3, 156.0, 195.8),
    5: (348.6, 361.3, 365.2, 417.3, 525.4),
    7: (646.0, 687.6, 789.3, 866.7, 1040.5),
    9: (1049.1, 1119.8, 1249.2, 1446.2, 1703.2),
}

_COLUMNS = [
    ("Synth 2D", "distributions"),
    ("Synth 200D", "distributions"),
    ("Synth 2D", "points"),
    ("Synth 200D", "points"),
]
CLASSIFICATION = {
    where: {name: Accuracy(*row[k]) for name, row in _TABLE_1.items()} for k, where in enumerate(_COLUMNS)
}
CLUSTERING = {where: {name: Clustering(*row[k]) for name, row in _TABLE_2.items()} for k, where in enumerate(_COLUMNS)}
