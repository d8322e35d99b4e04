"""SPARE's measures of learned and plain distances between samples, and by how much learning from them flatters.

    OMP_NUM_THREADS=1 python benchmarks/spare.py [--data FOLDER] [--methods NAME …] [cohort …]

The simulated cohort needs no files; FOLDER has the .h5ad files that `COHORTS` names. All methods see the same cells and
the same genes (of above-average variance, where they are many). Replicates are the halves of each sample's cells. Where
mixmil (with torch and torch-scatter) is installed, it is measured too. GloScope is an R package: its divergence is
computed here, by its formula.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA

import groundmetric as gm
from groundmetric._internal.tables import markdown, number
from groundmetric.evaluation import out_of_fold_distances, spare

POINTS, WIDE, FOLDS = 60, 50, 5
# GloScope: neighbours of the density estimate, and principal components.
GLOSCOPE_NEIGHBOURS, GLOSCOPE_COMPONENTS = 25, 10


class Cohort(NamedTuple):
    """Cells as distributions, the halves of each, and what is known of the samples, in the order of `D`."""

    D: gm.Distributions
    halves: gm.Distributions
    label: np.ndarray
    relevant: dict[str, Any]
    technical: dict[str, Any]
    trajectory: np.ndarray | None
    groups: np.ndarray  # the patient of each sample


def simulated(folder: Path | None) -> Cohort:
    """Three stages of a disease, 12 samples each: one programme of 20 genes in one cell type; two batches."""
    cells = gm.datasets.make_cohort(
        12, 1.2 * POINTS, conditions=["well", "mild", "severe"], programme_strength=2.0, random_state=0
    )
    cells.obs["counts"] = np.asarray(cells.layers["counts"].sum(axis=1)).ravel()
    return cohort(cells, "condition", "patient", ["batch"], stages=["well", "mild", "severe"])


def maynard(folder: Path) -> Cohort:
    """Lung cancer before, on and after therapy."""
    cells = read(folder, "maynard_lung_tki_44samples")
    return cohort(cells, "label", "patient", ["biopsy_site"], fewest=20)


def sadefeldman(folder: Path) -> Cohort:
    """Melanoma under checkpoint therapy: responders or not, before or after."""
    return cohort(read(folder, "sadefeldman_melanoma_48samples_pcs"), "label", "patient", [])


def bodenmiller(folder: Path) -> Cohort:
    """Blood cells of eight donors, stimulated or not, by mass cytometry."""
    return cohort(read(folder, "bodenmiller_bcrxl_cytof_16samples"), "label", "patient", [])


COHORTS: dict[str, Callable[[Any], Cohort]] = {
    "simulated": simulated,
    "maynard": maynard,
    "sadefeldman": sadefeldman,
    "bodenmiller": bodenmiller,
}


def read(folder: Path, name: str) -> Any:
    import anndata

    return anndata.read_h5ad(folder / f"{name}.h5ad")


def cohort(
    cells: Any, label: str, patient: str, technical: list[str], *, stages: list[str] | None = None, fewest: int = 2
) -> Cohort:
    """The cohort from cells; `stages` are the labels in their order, where they have one."""
    random = np.random.RandomState(0)
    sample = cells.obs["sample"].astype(str).to_numpy()
    sizes = pd.Series(sample).value_counts()
    rows = [
        random.permutation(np.flatnonzero(sample == name))[:POINTS]
        for name in sizes.index[sizes >= fewest].sort_values()
    ]
    X = cells.X.toarray() if hasattr(cells.X, "toarray") else np.asarray(cells.X)
    X = X[np.concatenate(rows)].astype(np.float64)
    variance = X.var(axis=0)
    X = X[:, variance > (variance.mean() if X.shape[1] > WIDE else 0.0)]  # labels play no part
    X /= X.std(axis=0)
    names = sample[np.concatenate(rows)]
    half = np.concatenate([np.arange(part.size) % 2 for part in rows])
    D = gm.Distributions(X, names)
    halves = gm.Distributions(X, [f"{name} half {side}" for name, side in zip(names, half, strict=True)])
    obs = cells.obs.groupby("sample", observed=True).first()
    obs.index = obs.index.astype(str)
    of = {key: obs.loc[list(D.names), key].astype(str).to_numpy() for key in (label, *technical)}
    groups = obs.loc[list(D.names), patient].astype(str).to_numpy()
    order = None if stages is None else np.array([stages.index(value) for value in of[label]], dtype=float)
    more = {"number of cells": sizes.loc[list(D.names)].to_numpy(dtype=float)}
    if "counts" in cells.obs:
        more["median counts"] = cells.obs.groupby(sample)["counts"].median().loc[list(D.names)].to_numpy()
    return Cohort(D, halves, of[label], {label: of[label]}, {key: of[key] for key in technical} | more, order, groups)


class Vectors(BaseEstimator):
    """Distances between vectors of samples that do not depend on labels."""

    def fit(self, D: gm.Distributions, y: Any = None) -> Vectors:
        return self


class Random(Vectors):
    """SPARE's control: a random vector for each sample."""

    def distances(self, A: gm.Distributions, B: Any = None) -> np.ndarray:
        z = np.random.RandomState(0).normal(size=(len(A), 10))
        return np.linalg.norm(z[:, None] - z, axis=2)


class GloScope(Vectors):
    """Root of the symmetrised Kullback-Leibler divergence between samples, by distances to the k-th neighbours.

    KL(P, Q) = d mean log(ν/ρ) + log(m/(n - 1)), with ρ and ν the distances of a point of P to its k-th neighbour in P
    and in Q (Wang, Kulkarni & Verdú 2009), on leading principal components (Wang et al. 2024).
    """

    def distances(self, A: gm.Distributions, B: Any = None) -> np.ndarray:
        d = min(GLOSCOPE_COMPONENTS, A.shape[1])
        z = PCA(d, random_state=0).fit_transform(A.points)
        sets = [z[low:high] for low, high in zip(A.bounds, A.bounds[1:], strict=False)]
        k = min(GLOSCOPE_NEIGHBOURS, *(len(one) - 1 for one in sets))
        trees = [cKDTree(one) for one in sets]
        own = [np.log(tree.query(one, k + 1)[0][:, -1] + 1e-12) for tree, one in zip(trees, sets, strict=True)]
        found = np.zeros((len(sets), len(sets)))
        for i, one in enumerate(sets):
            for j, tree in enumerate(trees):
                if i != j:
                    other = np.log(np.atleast_2d(tree.query(one, [k])[0])[:, -1] + 1e-12)
                    found[i, j] = d * np.mean(other - own[i]) + np.log(len(sets[j]) / (len(one) - 1))
        return np.sqrt(np.maximum(found + found.T, 0.0))


class MixMIL(BaseEstimator):
    """MixMIL (Engelmann et al. 2024) on principal components: distances between what samples are predicted by."""

    def fit(self, D: gm.Distributions, y: Any) -> MixMIL:
        import torch
        from mixmil import MixMIL as Model

        torch.manual_seed(0)
        self._pca = PCA(min(30, D.shape[1]), random_state=0).fit(D.points)
        self._scale = self._pca.transform(D.points).std(axis=0)
        classes = np.unique(y)
        bags, constant = self._bags(D), torch.ones((len(D), 1))
        # Each class against the rest: the model of many classes starts from what scikit-learn 1.8 has removed.
        target = torch.tensor(np.asarray(y)[:, None] == classes[classes.size == 2 :], dtype=torch.float32)
        self._model = Model.init_with_mean_model(bags, constant, target, likelihood="binomial", n_trials=1)
        self._model.train(bags, constant, target, n_epochs=200, verbose=False)
        with torch.no_grad():  # predictions are in units of the bags that they are made for, unless told otherwise
            weights, effects = self._model.get_betas(predict=True)
            effects = effects / torch.sqrt((effects**2).mean(0, keepdim=True))
            u = self._model._calc_bag_emb_effect_scatter(weights, effects, bags)
            self._units = u.mean(0), u.std(0)
        return self

    def distances(self, A: gm.Distributions, B: Any = None) -> np.ndarray:
        a, b = (
            self._model.predict(self._bags(D), scaling=self._units).numpy().reshape(len(D), -1)
            for D in (A, A if B is None else B)
        )
        return np.linalg.norm(a[:, None] - b, axis=2)

    def _bags(self, D: gm.Distributions) -> list:
        import torch

        z = torch.tensor(self._pca.transform(D.points) / self._scale, dtype=torch.float32)
        return [z[low:high] for low, high in zip(D.bounds, D.bounds[1:], strict=False)]


PLAIN = {
    "Euclid": gm.baselines.Euclidean(),
    "pseudobulk": gm.baselines.PseudobulkNeighbors(),
    "composition": gm.baselines.Composition(random_state=0),
    "GloScope's divergence": GloScope(),
    "random": Random(),
}
LEARNED = {
    "ensemble": gm.GroundMetricEnsemble(random_state=0),
    "single metric": gm.GroundMetricLearner(random_state=0),
}
if importlib.util.find_spec("mixmil"):
    LEARNED["MixMIL"] = MixMIL()

Distances = Callable[[gm.Distributions, np.ndarray, np.ndarray], np.ndarray]


def ways(methods: list[str]) -> Iterator[tuple[str, Distances]]:
    """Names of the ways to distances, and functions of distributions, labels and patients that compute them."""
    for name, method in LEARNED.items():
        if name in methods:
            yield f"{name}, out of fold", partial(held_out, method)
            if name == "ensemble":
                yield f"{name}, out of bag", partial(out_of_bag, method)
            yield f"{name}, in bag", partial(in_bag, method)
    for name, method in PLAIN.items():
        if name in methods:
            yield name, partial(in_bag, method)  # which uses no labels


def held_out(method: Any, D: gm.Distributions, label: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return out_of_fold_distances(method, D, label, cv=FOLDS, groups=groups)


def in_bag(method: Any, D: gm.Distributions, label: np.ndarray, groups: np.ndarray) -> np.ndarray:
    more = {"groups": groups} if getattr(method, "takes_groups", False) else {}
    return method.fit(D, label, **more).distances(D)


def out_of_bag(method: Any, D: gm.Distributions, label: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return method.fit(D, label, groups=groups).distances_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cohorts", nargs="*", metavar="COHORT")
    parser.add_argument("--data", type=Path, help="folder of .h5ad files")
    parser.add_argument("--methods", nargs="+", default=[*LEARNED, *PLAIN], choices=[*LEARNED, *PLAIN])
    options = parser.parse_args()
    names = options.cohorts or (list(COHORTS) if options.data else ["simulated"])
    unknown = set(names) - set(COHORTS)
    if unknown:
        parser.error(f"no such cohort: {sorted(unknown)}; there are {list(COHORTS)}")
    warnings.simplefilter("ignore")
    for name in names:
        it = COHORTS[name](options.data)
        print(
            f"\n{name}: {len(it.D)} samples of {np.unique(it.groups).size} patients, {it.D.shape[1]} features; "
            f"relevant: {', '.join(it.relevant)}; technical: {', '.join(it.technical)}\n"
        )
        head = ["", "information retained", "by chance", "batch removed", "trajectory", "replicates", "total", "CPU s"]
        print(markdown(head, []))
        for name, distances in ways(options.methods):
            print(markdown(row(it, name, distances), []).split("\n")[0], flush=True)


def row(it: Cohort, name: str, distances: Distances) -> list[str]:
    """Scores of one way to distances, on the samples and, for replicates, on their halves."""
    at = {sample: place for place, sample in enumerate(it.D.names)}
    sample = np.array([at[str(half).rpartition(" half ")[0]] for half in it.halves.names])
    began = time.process_time()
    whole, halves = distances(it.D, it.label, it.groups), distances(it.halves, it.label[sample], it.groups[sample])
    seconds = time.process_time() - began
    found = spare(whole, relevant=it.relevant, technical=it.technical, trajectory=it.trajectory, groups=it.groups)
    chance = np.mean([score.chance for score in found.scores if score.measure == "information retained"])
    robust = spare(halves, replicates=sample).replicates
    scores = (found.information, chance, found.batch_removed, found.trajectory, robust, found.total)
    return [name, *map(number, scores), f"{seconds:.0f}"]


if __name__ == "__main__":
    main()
