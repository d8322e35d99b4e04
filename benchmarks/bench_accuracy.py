"""How good the defaults are: half splits of the paper's synthetic data, learned against Euclidean, over ten seeds."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import ShuffleSplit

import groundmetric as gm


def run(n_splits: int = 10) -> list[dict]:
    rows = []
    for name, make in (("Synth 2D", gm.datasets.synth_2d), ("Synth 200D", gm.datasets.synth_200d)):
        learned, euclidean, equal_votes, importance = [], [], [], []
        for seed in range(n_splits):  # every split has data, a division and a start of its own
            D, y = make(random_state=seed)
            train, test = next(ShuffleSplit(1, test_size=0.5, random_state=seed).split(y))
            metric = gm.GroundMetricLearner(random_state=seed).fit(D[train], y[train]).metric_
            importance.append(metric.importance()[0])
            cases = ((learned, metric, "distance"), (euclidean, "euclidean", "distance"))
            for scores, ground, weights in (*cases, (equal_votes, "euclidean", "uniform")):
                classifier = gm.TransportKNeighborsClassifier(5, metric=ground, weights=weights)
                scores.append(classifier.fit(D[train], y[train]).score(D[test], y[test]))
        rows.append(
            {
                "data": name,
                "learned: mean accuracy": np.mean(learned),
                "learned: worst seed": np.min(learned),
                "Euclidean: mean accuracy": np.mean(euclidean),
                "Euclidean, equal votes": np.mean(equal_votes),
                "importance of the informative feature: mean": np.mean(importance),
                "importance: worst seed": np.min(importance),
            }
        )
    return rows
