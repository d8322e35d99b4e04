"""Ways to compare distributions under a learned metric: time, distance from the exact values, and accuracy."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import ot
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupShuffleSplit

import groundmetric as gm
from groundmetric.estimators._base import class_shares
from groundmetric.transport import POT

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
# From "entropic" on, all are computed by POT.
VARIANTS = {
    "exact": {},
    "coarse, 100 groups": {"solver": "coarse", "n_groups": 100},
    "coarse, 30 groups": {"solver": "coarse", "n_groups": 30},
    "partial, 90 %": {"solver": "partial", "share": 0.9},
    "unbalanced": {"solver": "unbalanced"},
    "entropic": {},  # `_options` adds the solver, whose regularisation depends on the data
    "entropic, debiased": {},
    "sliced, 50 lines": {"solver": POT(ot.sliced_wasserstein_distance, p=1, seed=0)},
    "gaussian": {"solver": POT(ot.gaussian.empirical_bures_wasserstein_distance)},
}


def run(n_splits: int = 3, n_test: int = 16) -> list[dict]:
    """For each data set and variant, means over splits: a metric learned on one half, neighbours of some others.

    The bound is on the error against each variant's own optimum, which for partial and unbalanced is another problem's.
    """
    rows = []
    for name, cases in (("Synth 200D", _synthetic(n_splits)), ("sadefeldman", _melanoma(n_splits))):
        results: dict[str, list] = {variant: [] for variant in VARIANTS}
        for seed, (D, y, train, test) in enumerate(cases):
            metric = gm.GroundMetricLearner(random_state=seed).fit(D[train], y[train]).metric_
            test = np.random.default_rng(seed).permutation(test)[:n_test]
            exact = gm.pairwise_distances(D[test], D[train], metric)
            for variant, options in VARIANTS.items():
                options = _options(variant, options, float(exact.mean()))
                results[variant].append(_measure(D[test], D[train], y[test], y[train], metric, exact, options))
        for variant, measured in results.items():
            if measured:
                rows.append({"data": name, "variant": variant, **_means(measured)})
    return rows


def _options(variant: str, options: dict, scale: float) -> dict:
    """The options of a variant for distances of a mean `scale`."""
    if variant == "unbalanced":  # mass moves no farther than the mean distance
        return {**options, "price": scale / 2}
    if variant == "entropic":
        return {"solver": POT(ot.solve, reg=0.05 * scale)}
    if variant == "entropic, debiased":
        return {"solver": POT(ot.bregman.empirical_sinkhorn_divergence, reg=0.05 * scale, metric="euclidean")}
    return options


def _measure(test, train, y_test, y_train, metric, exact, options) -> dict:
    start = time.perf_counter()
    details = gm.transport.pairwise(test, train, metric, **options)
    seconds, distances = time.perf_counter() - start, details.distances
    classes, codes = np.unique(y_train, return_inverse=True)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :5]
    votes = class_shares(np.take_along_axis(distances, nearest, axis=1), codes[nearest], classes.size, "distance")
    return {
        "ms per pair": 1000 * seconds / distances.size,
        "difference from exact": np.abs(distances - exact).mean() / exact.mean(),
        "certain bound": np.maximum(distances - details.lower, details.upper - distances).mean() / exact.mean(),
        "correlation with exact": np.corrcoef(distances.ravel(), exact.ravel())[0, 1],
        "balanced accuracy": balanced_accuracy_score(y_test, classes[np.argmax(votes, axis=1)]),
    }


def _means(measured: list[dict]) -> dict:
    return {key: float(np.mean([one[key] for one in measured])) for key in measured[0]}


def _synthetic(n_splits: int):
    for seed in range(n_splits):
        D, y = gm.datasets.synth_200d(random_state=seed)
        train, test = next(GroupShuffleSplit(1, test_size=0.5, random_state=seed).split(y, groups=np.arange(y.size)))
        yield D, y, train, test


def _melanoma(n_splits: int):
    """Nothing where the data are not there."""
    path = DATA / "sadefeldman_melanoma_48samples_pcs.h5ad"
    if not path.exists():
        return
    import anndata

    adata = anndata.read_h5ad(path)
    points = adata.X.toarray() if hasattr(adata.X, "toarray") else adata.X
    D = gm.Distributions(np.asarray(points, dtype=np.float64), adata.obs["sample"].to_numpy())
    of_sample = adata.obs.drop_duplicates("sample").set_index("sample").loc[D.names]
    y, patients = of_sample["label"].to_numpy().astype(str), of_sample["patient"].to_numpy().astype(str)
    for train, test in GroupShuffleSplit(n_splits, test_size=0.5, random_state=0).split(y, groups=patients):
        yield D, y, train, test
