"""Are the p-values of the permutation test uniform where there is no signal? A simulation with the real learner.

python benchmarks/permutation_calibration.py          100 cohorts for each row, a few minutes
python benchmarks/permutation_calibration.py 1000     more of them
python benchmarks/permutation_calibration.py 200 5    200, of the sixth row and those after it: the ensemble

Every cohort is drawn without any relation between points and labels, but with distributions (and patients, who give
two each) that differ from one another, as they do in practice. With 19 permutations a p-value is one of 0.05, 0.10, …,
1, and a calibrated test gives each of them with the same chance. Where scores tie, p-values may be larger than that,
never smaller. The row "patients not told" shows what goes wrong then. The last rows, log_probability, are of the
ensemble, the others of a single metric.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import joblib
import numpy as np
from scipy.stats import binomtest, kstwo

import groundmetric as gm

N_PERMUTATIONS = 19
LEARNER = gm.GroundMetricLearner(n_components=2, n_neighbors=2, max_epochs=3, random_state=0)


def cohort(seed: int, n_patients: int, samples: int, n_points: int = 8, n_features: int = 3):
    """Points around a place of their distribution, which lies around a place of its patient; labels are not used."""
    random = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n_patients), samples)
    centres = (
        random.normal(size=(n_patients, n_features))[patients] + random.normal(size=(patients.size, n_features)) / 2
    )
    points = random.normal(size=(patients.size, n_points, n_features)) + centres[:, None]
    return gm.Distributions.from_arrays(list(points)), patients, random


def one_sample_each(seed: int, score: str) -> float:
    D, _, random = cohort(seed, 20, 1)
    y = random.permutation(np.arange(20) % 2)
    return p_value(D, y, score, seed)


def one_label_per_patient(seed: int, score: str, *, told: bool = True) -> float:
    D, patients, random = cohort(seed, 12, 2)
    y = random.permutation(np.arange(12) % 2)[patients]
    return p_value(D, y, score, seed, groups=patients if told else None)


def treated_and_not(seed: int, score: str) -> float:
    D, patients, random = cohort(seed, 10, 2)
    y = np.concatenate([random.permutation(2) for _ in range(10)])
    return p_value(D, y, score, seed, groups=patients)


def patients_not_told(seed: int, score: str) -> float:
    return one_label_per_patient(seed, score, told=False)


def p_value(D: gm.Distributions, y: np.ndarray, score: str, seed: int, groups: np.ndarray | None = None) -> float:
    of_ensemble = score == "log_probability"  # which holds distributions out by its members
    return gm.evaluation.permutation_test(
        gm.GroundMetricEnsemble() if of_ensemble else LEARNER, D, y, cv=None if of_ensemble else 3,
        groups=groups, score=score, n_permutations=N_PERMUTATIONS, random_state=seed,
    ).p  # fmt: skip


ROWS: list[tuple[str, Callable[[int, str], float], str]] = [
    ("20 distributions", one_sample_each, "roc_auc"),
    ("20 distributions", one_sample_each, "balanced_accuracy"),
    ("12 patients × 2, one label each", one_label_per_patient, "roc_auc"),
    ("10 donors × treated or not", treated_and_not, "roc_auc"),
    ("12 patients × 2, patients not told", patients_not_told, "roc_auc"),
    ("20 distributions", one_sample_each, "log_probability"),
    ("12 patients × 2, one label each", one_label_per_patient, "log_probability"),
    ("10 donors × treated or not", treated_and_not, "log_probability"),
]


def summary(p: np.ndarray) -> dict:
    """How p-values differ from uniform: Kolmogorov and Smirnov's largest distance, and shares below the usual bars."""
    levels = np.arange(1, N_PERMUTATIONS + 2) / (N_PERMUTATIONS + 1)
    below = (p[:, None] <= levels + 1e-9).mean(axis=0)
    distance = float(np.abs(below - levels).max())
    low, high = binomtest(int(np.sum(p < 0.05 + 1e-9)), p.size).proportion_ci()
    counts = np.histogram(p, bins=np.arange(6) / 5 + 1e-9)[0]
    return {
        "p in fifths of [0, 1]": " ".join(map(str, counts)),
        "share p ≤ 0.05": float(np.mean(p < 0.05 + 1e-9)),
        "95 % interval of the share": f"{low:.3f} to {high:.3f}",
        "share p ≤ 0.2": float(np.mean(p < 0.2 + 1e-9)),
        "KS distance": distance,
        "KS p-value": float(kstwo.sf(distance, p.size)),  # conservative, because p-values are discrete
    }


def run(n_cohorts: int = 100, first_row: int = 0) -> list[dict]:
    rows = []
    for row, (name, simulate, score) in enumerate(ROWS):
        if row < first_row:
            continue
        start = time.perf_counter()
        seeds = range(row * 1_000_000, row * 1_000_000 + n_cohorts)  # no two rows share random numbers
        p = joblib.Parallel(n_jobs=-1)(joblib.delayed(simulate)(seed, score) for seed in seeds)
        seconds = time.perf_counter() - start
        rows.append({"cohort": name, "score": score, "cohorts": n_cohorts, **summary(np.array(p)), "seconds": seconds})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def table(rows: list[dict]) -> str:
    cells = [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))
