"""Balanced accuracy and log-probability for new patients: the ensemble, a single metric and the standard baselines.

    OMP_NUM_THREADS=1 python benchmarks/new_patients.py --data FOLDER [--draws 3] [--first 0] [method …]

Cross-validation of one cohort of 30 patients has a standard error of 0.08, which is larger than the differences between
methods. The tasks are seven real cohorts in six folds of patients, few training patients and many test patients of a
large cohort, real cells whose effect is diluted, and simulated cohorts with new test patients. A draw takes other
cells, folds and patients. Families of tasks have equal weight. FOLDER has the .h5ad files that `FILES` names; without
them only the simulated family is run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import groundmetric as gm

FILES = {
    "kang": ("kang_ifnb_pbmc_16samples", "donor", "ctrl"),
    "bodenmiller": ("bodenmiller_bcrxl_cytof_16samples", "patient", "Ref"),
    "zhao": ("zhao_gbm_panobinostat_10samples", "patient", "ctrl"),
    "igan": ("pilot_igan_glomeruli_634patients", None, None),
    "sadefeldman": ("sadefeldman_melanoma_48samples_pcs", "patient", None),
    "maynard": ("maynard_lung_tki_44samples", "patient", None),
    "onek1k": ("onek1k_40donors", None, None),
    "lung": ("lung_imc_64patients", None, None),
    "crc": ("crc_imc_35patients", None, None),
    "tnbc": ("tnbc_mibi_33patients", None, None),
    "fox": ("mil_fox_200bags", None, None),
}
# Real cohorts without changes: the smallest number of cells of a sample that is used.
WHOLE = {"sadefeldman": 20, "maynard": 20, "onek1k": 20, "lung": 2, "crc": 2, "tnbc": 2, "fox": 2}
POINTS = 60


class Task(NamedTuple):
    family: str
    name: str
    D: gm.Distributions
    y: np.ndarray
    groups: np.ndarray  # the patient of each distribution: never divided by a split
    splits: list[tuple[np.ndarray, np.ndarray]]


def tasks(folder: Path | None, draws: range) -> Iterator[Task]:
    for draw in draws:
        for per_class, strength, share in ((4, 2.0, 1.0), (8, 1.0, 1.0), (8, 2.0, 0.3), (16, 0.7, 1.0)):
            yield simulated(draw, per_class, strength, share)
        if folder is None:
            continue
        for cohort_name, parts in (("kang", (0.1, 0.2)), ("bodenmiller", (0.15, 0.3)), ("zhao", (0.5, 1.0))):
            for part in parts:
                yield diluted(folder, cohort_name, part, draw)
        for per_class in (8, 16, 30):
            yield few_of_many(folder, draw, per_class)
        for cohort_name in WHOLE:
            yield whole(folder, cohort_name, draw)


def simulated(draw: int, per_class: int, strength: float, share: float) -> Task:
    """One programme of 20 genes in one cell type; 15 fresh patients of each class to test on."""
    cells = gm.datasets.make_cohort(
        per_class + 15, 1.2 * POINTS, programme_strength=strength, programme_share=share, random_state=1000 + draw
    )
    sample = cells.obs["sample"].astype(str).to_numpy()
    D = distributions(dense(cells.X), sample, some(sample), by_variance=True)
    y = labels(D, sample, cells.obs["condition"].astype(str).to_numpy())
    random = np.random.RandomState(draw)
    train = np.sort(np.concatenate([random.permutation(np.flatnonzero(y == c))[:per_class] for c in np.unique(y)]))
    split = (train, np.setdiff1d(np.arange(y.size), train))
    return Task("simulated", f"simulated {per_class} {strength} {share} #{draw}", D, y, np.arange(y.size), [split])


def diluted(folder: Path, cohort_name: str, part: float, draw: int) -> Task:
    """Of each donor, two samples of real cells: control, and control with a part of treated cells; donors left out."""
    X, _, label, donor = read(folder, cohort_name)
    treated = label != FILES[cohort_name][2]
    random, rows, names = np.random.RandomState(draw), [], []
    for name in np.unique(donor):
        plain = random.permutation(np.flatnonzero((donor == name) & ~treated))
        changed = random.permutation(np.flatnonzero((donor == name) & treated))
        half, k = plain.size // 2, round(part * POINTS)
        for value, chosen in ((0, plain[:half][:POINTS]), (1, np.r_[plain[half:][: POINTS - k], changed[:k]])):
            rows.append(chosen)
            names += [f"{name}_{value}"] * chosen.size
    D = distributions(X, np.array(names), np.concatenate(rows), by_variance=X.shape[1] > 50, named=True)
    y = np.array([int(str(name)[-1]) for name in D.names])
    groups = np.array([str(name)[:-2] for name in D.names])
    splits = [(np.flatnonzero(groups != g), np.flatnonzero(groups == g)) for g in np.unique(groups)]
    return Task(f"{cohort_name}, diluted", f"{cohort_name} {part} #{draw}", D, y, groups, splits)


def few_of_many(folder: Path, draw: int, per_class: int) -> Task:
    """IgA nephropathy: learn from a few of 634 patients, test on up to 50 others of each class."""
    X, sample, label, _ = read(folder, "igan")
    D = distributions(X, sample, some(sample))
    y, random = labels(D, sample, label), np.random.RandomState(draw)
    orders = [random.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    train = np.sort(np.concatenate([order[:per_class] for order in orders]))
    test = np.sort(np.concatenate([order[per_class:][:50] for order in orders]))
    return Task("igan, few of many", f"igan {per_class} #{draw}", D, y, np.arange(y.size), [(train, test)])


def whole(folder: Path, cohort_name: str, draw: int) -> Task:
    """Return an unchanged real cohort in six folds of patients."""
    X, sample, label, patient = read(folder, cohort_name)
    random = np.random.RandomState(draw)
    genes = cohort_name in ("sadefeldman", "maynard", "onek1k") and X.shape[1] > 50
    D = distributions(X, sample, some(sample, random, WHOLE[cohort_name]), by_variance=genes)
    y, groups = labels(D, sample, label), labels(D, sample, patient)
    parts = np.array_split(random.permutation(np.unique(groups)), 6)
    splits = [(np.flatnonzero(~np.isin(groups, part)), np.flatnonzero(np.isin(groups, part))) for part in parts]
    return Task(cohort_name, f"{cohort_name} #{draw}", D, y, groups, splits)


def read(folder: Path, cohort_name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values, samples, labels and patients of all cells."""
    import anndata

    file, group, _ = FILES[cohort_name]
    cells = anndata.read_h5ad(folder / f"{file}.h5ad")
    X = dense(cells.X)
    if cohort_name == "kang":  # raw counts
        X = np.log1p(X / cells.obs["n_counts_all_genes"].to_numpy()[:, None] * 1e4)
    sample, label = (cells.obs[key].astype(str).to_numpy() for key in ("sample", "label"))
    return X, sample, label, sample if group is None else cells.obs[group].astype(str).to_numpy()


def some(sample: np.ndarray, random: np.random.RandomState | None = None, fewest: int = 2) -> np.ndarray:
    """Rows of up to POINTS cells of every sample that has enough."""
    rows = []
    for name in np.unique(sample):
        mine = np.flatnonzero(sample == name)
        if mine.size >= fewest:
            rows.append((mine if random is None else random.permutation(mine))[:POINTS])
    return np.concatenate(rows)


def distributions(
    X: np.ndarray, sample: np.ndarray, rows: np.ndarray, *, by_variance: bool = False, named: bool = False
) -> gm.Distributions:
    """The rows as distributions; with `named`, `sample` is that of each row. Labels play no part in the choice."""
    X, sample = X[rows], sample if named else sample[rows]
    variance = X.var(axis=0)
    genes = variance > (variance.mean() if by_variance else 0.0)
    return gm.Distributions(X[:, genes].astype(np.float64), sample)


def labels(D: gm.Distributions, sample: np.ndarray, label: np.ndarray) -> np.ndarray:
    of = dict(zip(sample, label, strict=True))
    return np.unique([of[str(name)] for name in D.names], return_inverse=True)[1]


def dense(X: object) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float32)


def score(y: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Balanced accuracy, and the mean log-probability of the true class with classes counting alike."""
    predicted, classes = probabilities.argmax(axis=1), np.unique(y)
    p = np.clip(probabilities[np.arange(y.size), y], 1e-3, 1.0)
    return {
        "accuracy": float(np.mean([np.mean(predicted[y == c] == c) for c in classes])),
        "log_p": float(np.mean([np.mean(np.log(p[y == c])) for c in classes])),
    }


Predict = Callable[[gm.Distributions], np.ndarray]


def votes(metric: gm.GroundMetric, D: gm.Distributions, y: np.ndarray) -> Predict:
    return gm.TransportKNeighborsClassifier(5, metric=metric, class_weight="balanced").fit(D, y).predict_proba


def baseline(key: str) -> Callable[..., Predict]:
    def method(D: gm.Distributions, y: np.ndarray, groups: np.ndarray) -> Predict:
        model = gm.baselines.standard()[key].fit(D, y)
        return votes(model.metric_, D, y) if key == "transport-5-nn" else model.predict_proba

    return method


def learned(D: gm.Distributions, y: np.ndarray, groups: np.ndarray) -> Predict:
    return votes(gm.GroundMetricLearner(random_state=0).fit(D, y).metric_, D, y)


def ensemble_votes(D: gm.Distributions, y: np.ndarray, groups: np.ndarray) -> Predict:
    return votes(gm.GroundMetricEnsemble(random_state=0).fit(D, y, groups=groups).metric_, D, y)


def ensemble(D: gm.Distributions, y: np.ndarray, groups: np.ndarray) -> Predict:
    return gm.TransportClassifier(random_state=0).fit(D, y, groups=groups).predict_proba


BASELINES = ("transport-5-nn", "pseudobulk", "moments", "composition", "embedding", "transport-kernel")
METHODS = {
    **{gm.baselines.titles()[key]: baseline(key) for key in BASELINES},
    "single metric, 5-NN": learned,
    "ensemble": ensemble,
    "metric of the ensemble, 5-NN": ensemble_votes,
}
USUAL = list(METHODS)[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("methods", nargs="*", default=USUAL, metavar="METHOD")
    parser.add_argument("--data", type=Path, help="folder of .h5ad files")
    parser.add_argument("--draws", type=int, default=3, help="of patients and cells")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    options = parser.parse_args()
    unknown = set(options.methods) - set(METHODS)
    if unknown:
        parser.error(f"no such method: {sorted(unknown)}; there are {list(METHODS)}")
    warnings.simplefilter("ignore")
    scores: dict = defaultdict(lambda: defaultdict(list))
    spent: dict = defaultdict(float)
    for task in tasks(options.data, range(options.first, options.first + options.draws)):
        line = []
        for name in options.methods:
            p, began = np.full((task.y.size, np.unique(task.y).size), np.nan), time.process_time()
            for train, test in task.splits:
                p[test] = METHODS[name](task.D[train], task.y[train], task.groups[train])(task.D[test])
            spent[name] += time.process_time() - began
            tested = ~np.isnan(p[:, 0])
            scores[name][task.family].append(score(task.y[tested], p[tested]))
            line.append(f"{name} {scores[name][task.family][-1]['accuracy']:.2f}")
        print(f"{task.name}: " + ", ".join(line), flush=True)
    for what in ("accuracy", "log_p"):
        print(table(scores, spent, options.methods, what))
        if "ensemble" in options.methods:
            print(leads(scores, what))


def leads(scores: dict, score: str) -> str:
    """Mean lead of the ensemble over every other method, with its standard error over families."""
    lines = []
    for title, families in (("all families", list(scores["ensemble"])), ("cohorts without changes", list(WHOLE))):
        chosen = [family for family in families if family in scores["ensemble"]]
        for name in scores if len(chosen) > 1 else ():
            means = [[np.mean([r[score] for r in scores[m][f]]) for f in chosen] for m in ("ensemble", name)]
            lead = np.subtract(*means)
            if name != "ensemble":
                error = lead.std(ddof=1) / np.sqrt(lead.size)
                lines.append(f"lead over {name}, {title}: {lead.mean():+.3f} ± {error:.3f}")
    return "\n".join(lines)


def table(scores: dict, spent: dict, names: list[str], score: str) -> str:
    families = list(scores[names[0]])
    lines = [f"\n| {score} | " + " | ".join(families) + " | mean | CPU s |", "|" + " --- |" * (len(families) + 3)]
    for name in names:
        means = [np.mean([result[score] for result in scores[name][family]]) for family in families]
        lines.append(
            f"| {name} | " + " | ".join(f"{m:.3f}" for m in [*means, np.mean(means)]) + f" | {spent[name]:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
