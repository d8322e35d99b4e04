"""What can be learned beside W: time, accuracy on distributions held out, and exact zeros of every variant."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import SplineTransformer, StandardScaler

import groundmetric as gm

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
MELANOMA = DATA / "sadefeldman_melanoma_48samples_pcs.h5ad"
Split = tuple[gm.Distributions, np.ndarray, gm.Distributions, np.ndarray]

LINEAR: dict[str, dict[str, Any]] = {
    "linear": {},
    "linear, manhattan": {"cost": "manhattan"},
    "linear, squared": {"cost": "squared"},
    "linear, l1": {"penalty": "l1"},
    "linear, group": {"penalty": "group"},
    "diagonal": {"form": "diagonal"},
    "diagonal, l1": {"form": "diagonal", "penalty": "l1"},
}
BENT: dict[str, dict[str, Any]] = {
    "splines": {"form": gm.learning.Mapped(SplineTransformer(5))},
    "Nyström": {"form": gm.learning.Mapped(Nystroem(gamma=0.3, n_components=60, random_state=0))},
}


def run(n_splits: int = 3) -> list[dict]:
    """A row for each data set and variant; the data in `shared` only where they are."""
    rows = _rows("Synth 200D", list(_synthetic(n_splits)), LINEAR)
    rows += _rows("rings", list(_rings(n_splits)), {"linear": {}, "diagonal": {"form": "diagonal"}, **BENT})
    if MELANOMA.exists() and importlib.util.find_spec("anndata"):
        rows += _rows("sadefeldman", list(_melanoma()), {**LINEAR, "splines": BENT["splines"]})
    return rows


def _rows(name: str, splits: list[Split], variants: dict[str, dict]) -> list[dict]:
    made: dict[str, Callable[[int, int], Any]] = {
        variant: lambda seed, _, options=options: gm.GroundMetricLearner(random_state=seed, **options)
        for variant, options in variants.items()
    }
    if importlib.util.find_spec("torch"):
        made["network of two layers"] = _network
    return [_row(name, "Euclid", None, splits), *(_row(name, variant, make, splits) for variant, make in made.items())]


def _row(name: str, variant: str, make: Callable[[int, int], Any] | None, splits: list[Split]) -> dict:
    seconds, scores, used = [], [], []
    for seed, (train, y, test, truth) in enumerate(splits):
        metric: Any = "euclidean"
        if make is not None:
            start = time.process_time()
            learner = make(seed, train.shape[1]).fit(train, y)
            seconds.append(time.process_time() - start)
            metric = learner.metric_
            used.append(_features_used(learner))
        scores.append(gm.TransportKNeighborsClassifier(5, metric=metric).fit(train, y).score(test, truth))
    return {
        "data": name,
        "metric": variant,
        "s to learn": float(np.median(seconds)) if seconds else "",
        "accuracy, held out": float(np.mean(scores)),
        "worst split": float(np.min(scores)),
        "features of weight not 0": _shown(used, splits[0][0].shape[1]),
    }


def _features_used(learner: Any) -> int | None:
    if not hasattr(learner, "components_") or hasattr(learner, "feature_map_"):
        return None
    return int(np.any(learner.components_ != 0.0, axis=0).sum())


def _shown(used: list[int | None], n_features: int) -> str:
    counts = [count for count in used if count is not None]
    return f"{np.median(counts):.0f} of {n_features}" if counts else ""


def _network(seed: int, n_features: int) -> Any:
    import torch

    torch.manual_seed(seed)
    layers = torch.nn.Linear(n_features, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    return gm.neural.NeuralGroundMetricLearner(torch.nn.Sequential(*layers), random_state=seed)


def _synthetic(n_splits: int) -> Iterator[Split]:
    """A third of the points, because a diagonal metric has 200 components."""
    for seed in range(n_splits):
        train = gm.datasets.make_modes(199, 1.0, points_per_mode=33, random_state=seed)
        yield *train, *gm.datasets.make_modes(199, 1.0, points_per_mode=33, random_state=100 + seed)


def _rings(n_splits: int) -> Iterator[Split]:
    for seed in range(n_splits):
        yield *gm.datasets.make_rings(random_state=seed), *gm.datasets.make_rings(random_state=100 + seed)


def _melanoma() -> Iterator[Split]:
    """Folds that leave patients out, 50 cells of each sample."""
    import anndata as ad

    adata = ad.read_h5ad(MELANOMA)
    random = np.random.default_rng(0)
    order = random.permutation(adata.n_obs)
    rank = adata.obs.iloc[order].groupby("sample", observed=True).cumcount().to_numpy()
    adata = adata[np.sort(order[rank < 50])]
    D = gm.Distributions(StandardScaler().fit_transform(np.asarray(adata.X)), adata.obs["sample"].astype(str))
    by_sample = adata.obs.drop_duplicates("sample").set_index("sample").loc[D.names]
    y = by_sample["label"].to_numpy().astype(str)
    for train, test in GroupKFold(4).split(y, groups=by_sample["patient"].astype(str)):
        yield D[train], y[train], D[test], y[test]
