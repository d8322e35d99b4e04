"""Coverage of prediction sets on real cohorts: how often the set of a left-out patient contains the patient's class.

    OMP_NUM_THREADS=1 python benchmarks/prediction_sets.py --data FOLDER [--draws 2] [cohort …]

FOLDER has the .h5ad files that `COHORTS` names. Patients are left out in five folds, never divided by a fold; every
draw takes other cells and other folds. Limits are 95 % Clopper–Pearson limits with patients as units.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import anndata as ad
import numpy as np
from scipy import stats

import groundmetric as gm
from groundmetric._anndata.cohort import read_cohort
from groundmetric._internal.tables import markdown
from groundmetric.estimators.preprocessing import SelectedFeatures, with_features

POINTS, COVERAGE, N_SPLITS = 60, 0.9, 5
WIDE = 50  # of more features, those of above-average variance in the training part are used
# File, column of the patient, and smallest number of points of a sample.
COHORTS = {
    "sadefeldman": ("sadefeldman_melanoma_48samples_pcs", "patient", 20),
    "maynard": ("maynard_lung_tki_44samples", "patient", 20),
    "onek1k": ("onek1k_40donors", None, 20),
    "lung": ("lung_imc_64patients", None, 20),
    "crc": ("crc_imc_35patients", None, 20),
    "tnbc": ("tnbc_mibi_33patients", None, 20),
    "fox": ("mil_fox_200bags", None, 2),
    "igan": ("pilot_igan_glomeruli_634patients", None, 10),
}


def sets(folder: Path, name: str, draw: int) -> tuple[np.ndarray, ...]:
    """Return label, patient, whether the set contains the label and whether it has one class, of every sample."""
    file, group, fewest = COHORTS[name]
    cells = ad.read_h5ad(folder / f"{file}.h5ad")
    labelled = read_cohort(
        cells, "sample", "label", group_key=group, genes="variance" if cells.n_vars > WIDE else "all",
        n_cells=POINTS, min_cells=fewest, random_state=draw,
    )  # fmt: skip
    y, groups = labelled.y, labelled.groups
    contained, single = np.zeros(y.size, bool), np.zeros(y.size, bool)
    for train, test in gm.evaluation.folds(y, groups=groups, n_splits=N_SPLITS, random_state=draw):
        D = labelled.D
        if labelled.rule is not None:
            D = with_features(D, SelectedFeatures(None, labelled.rule).choose(D[train]))
        model = gm.TransportClassifier(random_state=0)
        model.fit(D[train], y[train], groups=None if groups is None else np.asarray(groups)[train])
        result = model.predict_set(D[test], coverage=COVERAGE)
        contained[test] = result.contains[np.arange(test.size), np.searchsorted(result.classes, y[test])]
        single[test] = result.contains.sum(axis=1) == 1
    patients = np.arange(y.size) if groups is None else np.unique(groups, return_inverse=True)[1]
    return y, patients, contained, single


def rows(folder: Path, name: str, n_draws: int) -> list[list[str]]:
    """Return a row of the table for each class of a cohort."""
    draws = [sets(folder, name, draw) for draw in range(n_draws)]
    y, patients = draws[0][0], draws[0][1]
    contained, single = (np.mean([draw[part] for draw in draws], axis=0) for part in (2, 3))
    lines = []
    for label in np.unique(y):
        of_class = y == label
        n = np.unique(patients[of_class]).size
        covered = contained[of_class].mean()
        low, high = stats.beta.ppf(
            [0.025, 0.975], [n * covered, n * covered + 1], [n - n * covered + 1, n - n * covered]
        )
        low, high = np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)
        lines.append(
            [name, str(label), str(n), f"{covered:.2f} [{low:.2f}, {high:.2f}]", f"{single[of_class].mean():.2f}",
             "yes" if high >= COVERAGE else "no"]
        )  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cohorts", nargs="*", default=list(COHORTS), metavar="COHORT")
    parser.add_argument("--data", type=Path, required=True, help="folder of .h5ad files")
    parser.add_argument("--draws", type=int, default=2, help="of cells and folds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = []
    for name in options.cohorts:
        table += rows(options.data, name, options.draws)
        print(*table[-1], flush=True)
    head = ["cohort", "class", "patients", f"set of {COVERAGE:.0%} contains the class", "sets with one class", "holds"]
    print(markdown(head, table))


if __name__ == "__main__":
    main()
