"""Six real cohorts: the classifier against Euclid and pseudobulk on patients who are left out.

    OMP_NUM_THREADS=1 python benchmarks/six_cohorts.py --data FOLDER [--draws 2] [cohort …]

FOLDER has the .h5ad files that `COHORTS` names. Every draw takes other cells and other folds of patients. A sample's
score is its mean over draws, a patient's the sum over their samples with classes counting the same, and the test is a
paired t over patients. Folds share training data, so its standard error is widened as in the corrected resampled t
(Nadeau & Bengio 2003), by √(1 + folds · n_test/n_train): 1.5 for five folds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import numpy as np
from scipy import sparse, stats

import groundmetric as gm
from groundmetric._anndata.cohort import Labelled, read_cohort
from groundmetric._internal.tables import markdown, p_value
from groundmetric.estimators.preprocessing import SelectedFeatures
from groundmetric.evaluation.intervals import Difference

OURS, OTHERS = "groundmetric", ("Euclid", "pseudobulk")
POINTS, FEWEST = 60, 20  # cells of a sample: drawn at most; with fewer it is left out
WIDE = 50  # of more features, those of above-average variance in the training part are shown to all methods
FLOOR = 1e-3  # lower limit of probabilities: votes may be unanimous and wrong


class Cohort(NamedTuple):
    file: str
    group: str | None
    n_splits: int = 5
    depth: str | None = None  # column of obs with the total counts, where values are raw
    fewest: int = FEWEST


COHORTS = {
    "kang": Cohort("kang_ifnb_pbmc_16samples", "donor", depth="n_counts_all_genes"),
    "bodenmiller": Cohort("bodenmiller_bcrxl_cytof_16samples", "patient"),
    "zhao": Cohort("zhao_gbm_panobinostat_10samples", "patient"),
    "sadefeldman": Cohort("sadefeldman_melanoma_48samples_pcs", "patient"),
    "maynard": Cohort("maynard_lung_tki_44samples", "patient"),
    "igan": Cohort("pilot_igan_glomeruli_634patients", None, n_splits=2, fewest=2),
}


def read(cohort: Cohort, folder: Path, draw: int) -> Labelled:
    cells = ad.read_h5ad(folder / f"{cohort.file}.h5ad")
    if cohort.depth is not None:
        scale = sparse.diags_array(1e4 / cells.obs[cohort.depth].to_numpy(dtype=np.float64))
        cells.X = (scale @ cells.X).log1p().tocsr().astype(np.float32)
    genes = "variance" if cells.n_vars > WIDE else "all"
    return read_cohort(cells, "sample", "label", group_key=cohort.group, genes=genes, n_cells=POINTS,
                       min_cells=cohort.fewest, random_state=draw)  # fmt: skip


def methods(rule: Any) -> dict[str, Any]:
    results = {
        "Euclid": gm.baselines.Euclidean(standardise=True),
        "pseudobulk": gm.baselines.SummaryModel(),
        OURS: gm.TransportClassifier(random_state=0),
    }
    return results if rule is None else {name: SelectedFeatures(method, rule) for name, method in results.items()}


class Scores(NamedTuple):
    """Of each sample, mean over draws: whether it was classified right, and the log-probability of its class."""

    right: np.ndarray
    log_p: np.ndarray


def score(labelled: Labelled, n_splits: int, draw: int) -> dict[str, Scores]:
    cv = gm.evaluation.folds(labelled.y, groups=labelled.groups, n_splits=n_splits, random_state=draw)
    results = gm.evaluation.compare(
        methods(labelled.rule), labelled.D, labelled.y, cv=cv, groups=labelled.groups,
        voting=gm.evaluation.Voting(class_weight="balanced"), points=False,
    )  # fmt: skip
    codes, scores = np.searchsorted(results.classes, labelled.y), {}
    for name in results.methods:
        assert results.status(name) == "ok", results.status(name)
        p = results.predictions(name)["probabilities"]
        scores[name] = Scores(p.argmax(axis=1) == codes, np.log(np.maximum(p[np.arange(codes.size), codes], FLOOR)))
    return scores


def by_patient(values: np.ndarray, y: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Parts of the patients in the mean over classes of the mean over samples; their mean is that score."""
    classes, codes = np.unique(y, return_inverse=True)
    weights = 1.0 / (classes.size * np.bincount(codes)[codes])
    members = np.unique(patients, return_inverse=True)[1]
    return np.bincount(members, values * weights) * (members.max() + 1)


def lead(parts: np.ndarray, n_splits: int, bounded: bool) -> Difference:
    """Mean of paired differences of patients, with the corrected t interval and p-value.

    For accuracies with the same difference in every patient, the smallest attainable p-value.
    """
    mean, error = float(parts.mean()), float(parts.std(ddof=1)) / np.sqrt(parts.size)
    error *= np.sqrt(1.0 + n_splits / (n_splits - 1.0))
    reach = float(stats.t.ppf(0.975, parts.size - 1)) * error
    p = float(2.0 * stats.t.sf(abs(mean) / error, parts.size - 1)) if error > 0 else float(mean == 0.0)
    if bounded:  # no p-value below that of a sign test, and Tango's interval where all pairs agree, z² / (n + z²)
        p = max(p, min(1.0, 2.0 ** (1.0 - parts.size)))
        reach = reach if reach > 0.0 else 1.96**2 / (parts.size + 1.96**2)
        return Difference(mean, max(-1.0, mean - reach), min(1.0, mean + reach), p, "corrected t")
    return Difference(mean, mean - reach, mean + reach, p, "corrected t")


def row(name: str, score: str, results: list[dict[str, Scores]], y: np.ndarray, patients: np.ndarray, n_splits: int):
    mean = {m: np.mean([getattr(scores[m], score) for scores in results], axis=0) for m in results[0]}
    cells = [name, f"{np.unique(patients).size} ({y.size})"]
    cells += [f"{by_patient(mean[m], y, patients).mean():.3f}" for m in (*OTHERS, OURS)]
    for method in OTHERS:
        it = lead(by_patient(mean[OURS] - mean[method], y, patients), n_splits, score == "right")
        cells += [f"{it.value:+.3f} [{it.low:+.3f}, {it.high:+.3f}]", p_value(it.p)]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cohorts", nargs="*", default=list(COHORTS), metavar="COHORT")
    parser.add_argument("--data", type=Path, required=True, help="folder of .h5ad files")
    parser.add_argument("--draws", type=int, default=2, help="of cells and folds; of igan, one")
    options = parser.parse_args()
    unknown = set(options.cohorts) - set(COHORTS)
    if unknown:
        parser.error(f"no such cohort: {sorted(unknown)}; there are {list(COHORTS)}")
    warnings.simplefilter("ignore")
    rows: dict[str, list] = {"right": [], "log_p": []}
    for name in options.cohorts:
        cohort, results, began = COHORTS[name], [], time.process_time()
        for draw in range(options.draws if cohort.group else 1):
            labelled = read(cohort, options.data, draw)
            results.append(score(labelled, cohort.n_splits, draw))
        patients = np.array(labelled.D.names if labelled.groups is None else labelled.groups, dtype=str)
        for what, lines in rows.items():
            lines.append(row(name, what, results, labelled.y, patients, cohort.n_splits))
            print(what, *lines[-1], f"{time.process_time() - began:.0f} s", flush=True)
    head = ["cohort", "patients (samples)", *OTHERS, OURS]
    head += [text for method in OTHERS for text in (f"lead over {method} [95 %]", "p")]
    for title, what in (("Balanced accuracy", "right"), ("Mean log-probability of the true class", "log_p")):
        print(f"\n{title}:\n\n{markdown(head, rows[what])}")


if __name__ == "__main__":
    main()
