"""The distance matrix of 40 × 1000 points under a learned metric, against ggml-ot's."""

from __future__ import annotations

import statistics

import numpy as np
from cohorts import WORK, modes_2000d, save_for_rival
from measuring import rival, seconds

import groundmetric as gm


def run() -> list[dict]:
    D, y = modes_2000d()
    metric = gm.GroundMetricLearner(n_components=5, max_epochs=5, random_state=0).fit(D, y).metric_
    data = save_for_rival("40×1000×2000", D, y)
    np.save(WORK / "metric.npy", metric.components)
    theirs = rival(data, "distances", "--metric", WORK / "metric.npy", "--out", WORK / "distances.npy")["seconds"]
    ours = statistics.median(seconds(lambda: gm.pairwise_distances(D, metric=metric)) for _ in range(3))
    exact = gm.pairwise_distances(D, metric=metric)
    difference = np.abs(np.load(WORK / "distances.npy") - exact).max() / exact.max()
    return [{"pairs": 780, "ggml-ot s": theirs, "groundmetric s": ours, "ratio": theirs / ours,
             "largest difference (its float32)": difference}]  # fmt: skip
