"""Accuracy of the default GroundMetricLearner on random, not stratified, halves of Synth 200D (the paper's protocol).

    python benchmarks/random_halves.py [--halves 100] [--neighbors auto]

For every seed, Synth 200D is drawn anew and divided into random halves. A metric is learned on one half, and 5-NN votes
under it classify the other half. Unequal class shares associate the noise features with the classes, so some halves are
misleading. Prints the accuracy of every half that is not classified perfectly, the mean and the worst.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import groundmetric as gm


def accuracy(seed: int, neighbors: str) -> tuple[float, list[int]]:
    """Return the accuracy on the second half, and the number of training distributions of each class."""
    D, y = gm.datasets.synth_200d(random_state=seed)
    order = np.random.RandomState(seed).permutation(len(y))
    train, test = np.sort(order[: len(y) // 2]), np.sort(order[len(y) // 2 :])
    learner = gm.GroundMetricLearner(neighbors=neighbors, random_state=seed).fit(D[train], y[train])
    classifier = gm.TransportKNeighborsClassifier(metric=learner.metric_).fit(D[train], y[train])
    return classifier.score(D[test], y[test]), np.bincount(y[train], minlength=3).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--halves", type=int, default=100)
    parser.add_argument("--neighbors", default="auto", choices=["auto", "random", "nearest"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of classes with one training distribution
    scores, started = [], time.process_time()
    for seed in range(options.halves):
        score, sizes = accuracy(seed, options.neighbors)
        scores.append(score)
        if score < 1.0:
            print(f"half {seed}: accuracy {score:.2f}, training distributions by class {sizes}", flush=True)
    print(
        f"neighbors={options.neighbors!r}, {len(scores)} halves: mean accuracy {np.mean(scores):.3f}, worst "
        f"{min(scores):.2f}, {np.mean(np.array(scores) == 1.0):.0%} perfect, {time.process_time() - started:.0f} CPU s"
    )


if __name__ == "__main__":
    main()
