"""Run metric-learn 0.7.0 on points with labels; the last line on stdout is a JSON object.

Runs inside the environment of `check_baselines.py` and never imports groundmetric. The data are an .npz with `points`,
`labels` and, where wanted, `start` (components to start at) and, for ITML, `similar` and `dissimilar` (places of the
points of each pair, (2, n_pairs)). The components are written to an .npy file.

    rival_metric_learn.py data.npz LFDA '{"k": 3}' components.npy
"""

import json
import sys
import warnings
from time import perf_counter

import metric_learn
import numpy as np


def learn(name, data, options):
    points, labels = data["points"], data["labels"]
    if "start" in data:
        options = {**options, "init": data["start"]}
    if name != "ITML":
        return getattr(metric_learn, name)(**options).fit(points, labels)
    places = np.hstack([data["similar"], data["dissimilar"]]).T
    kinds = np.repeat([1, -1], [data["similar"].shape[1], data["dissimilar"].shape[1]])
    learner = metric_learn.ITML(**options)
    learner._fit(points[places], kinds)  # `fit` would go on to find a threshold between the two kinds
    return learner


def main():
    path, name, options, out = sys.argv[1:]
    with np.load(path) as file:
        data = dict(file)
    warnings.simplefilter("ignore")
    start = perf_counter()
    learner = learn(name, data, json.loads(options))
    seconds = perf_counter() - start
    np.save(out, learner.components_)
    print(json.dumps({"seconds": seconds, "n_iter": int(getattr(learner, "n_iter_", 0)), "numpy": np.__version__}))


if __name__ == "__main__":
    main()
