"""Do the baselines agree with metric-learn 0.7.0? Both run on the same points; agreement and times are printed.

    PYTHONPATH=. .venv/bin/python benchmarks/check_baselines.py

The first run makes an environment for metric-learn (300 MB, under a minute). Ends with an error where something that
should agree does not: the matrix M = WᵀW of LFDA (with metric-learn's departures from the publication followed) and of
ITML (with the same pairs), and an objective of LMNN or NCA that is worse than theirs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import rival_env
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import scale

import groundmetric as gm
from groundmetric.baselines import NCA
from groundmetric.baselines import points as scatter
from paper import itml, lfda, lmnn
from paper.lmnn import LMNN, starting_map

HERE = Path(__file__).resolve().parent
FOLDER = HERE / ".venv-metric-learn"
# numpy as here: metric-learn's LFDA depends on the order in which numpy's partition leaves what it does not sort.
STEPS = [f"numpy=={np.__version__} scipy scikit-learn==1.7.2 metric-learn==0.7.0"]

TIGHT = 1e-6


class Case:
    """Points with labels, half of them to learn from."""

    def __init__(self, name, points, labels):
        self.name = name
        split = train_test_split(points, labels, test_size=0.5, stratify=labels, random_state=0)
        self.train, self.test, self.labels, self.test_labels = split
        self.train = self.train - self.train.mean(axis=0)
        self.test = self.test - points.mean(axis=0)

    def accuracy(self, components):
        nearest = KNeighborsClassifier(5).fit(self.train @ components.T, self.labels)
        return nearest.score(self.test @ components.T, self.test_labels)

    def distributions(self):
        """Every point as a distribution of its own."""
        return gm.Distributions(self.train, np.arange(len(self.train)))


def cases():
    for name, load in (("iris", load_iris), ("wine", load_wine)):
        points, labels = load(return_X_y=True)
        yield Case(name, points, labels)
        if name == "wine":
            yield Case("wine, standardised", scale(points), labels)
    D, y = gm.datasets.make_modes(9, 1.0, points_per_mode=10, random_state=0)
    yield Case("synthetic, 10 features", D.points, np.repeat(y, D.sizes))
    D, y = gm.datasets.make_modes(1, 1000.0, points_per_mode=10, random_state=0)
    yield Case("synthetic, 2 features", D.points, np.repeat(y, D.sizes))


def theirs(case, name, options, **more):
    """Components by metric-learn and the JSON that its script prints."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data.npz"), Path(folder, "components.npy")
        np.savez(data, points=case.train, labels=case.labels, **more)
        interpreter = rival_env.environment(FOLDER, STEPS, "300 MB, under a minute")
        command = [interpreter, HERE / "rival_metric_learn.py", data, name, json.dumps(options), out]
        done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"metric-learn's {name} failed on {case.name}: {done.stderr[-2000:]}")
        return np.load(out), json.loads(done.stdout.strip().splitlines()[-1])


def timed(function):
    start = perf_counter()
    result = function()
    return result, perf_counter() - start


def difference(ours, other):
    """Of the matrices M, relative to the size of theirs."""
    M, N = ours.T @ ours, other.T @ other
    return np.linalg.norm(M - N) / np.linalg.norm(N)


def unit(components):
    """With an M of norm 1: a factor of all distances is no difference."""
    return components / np.sqrt(np.linalg.norm(components.T @ components))


def check_lfda(case):
    for embedding in ("weighted", "orthonormalized", "plain"):
        count = min(2, case.train.shape[1] - 1)
        other, report = theirs(case, "LFDA", {"k": 3, "embedding_type": embedding, "n_components": count})

        def ours(follow, embedding=embedding, count=count):
            between, within = lfda.local_scatter(case.train, case.labels, 3, as_metric_learn=follow)
            values, vectors = scatter.directions(between, within)
            return lfda.embed(values[:count], vectors[:, :count], embedding)

        followed, seconds = timed(lambda ours=ours: ours(True))
        gap, published = difference(followed, other), ours(False)
        yield (
            f"LFDA, {embedding}",
            f"M differs by {gap:.1e} (as published, up to a factor: by {difference(unit(published), unit(other)):.2f})",
            (case.accuracy(published), case.accuracy(other)),
            (seconds, report["seconds"]),
            gap < TIGHT,
        )


def check_itml(case):
    for seed in (0, 1):
        pairs = itml.draw_pairs(case.labels, np.ones(len(case.labels)), 180, seed)
        bounds = itml.percentile_bounds(case.train, pairs, squared=False)
        other, report = theirs(case, "ITML", {}, similar=pairs.similar, dissimilar=pairs.dissimilar)
        steps = [case.train[first] - case.train[second] for first, second in pairs]
        outcome, seconds = timed(
            lambda steps=steps, bounds=bounds: itml.project_in_turn(*steps, bounds, 1.0, 1000, 1e-3)
        )
        ours = itml.factor(outcome.matrix)
        gap = difference(ours, other)
        yield (
            f"ITML, pairs {seed}",
            f"M differs by {gap:.1e} ({outcome.n_iter} and {report['n_iter'] + 1} sweeps)",
            (case.accuracy(ours), case.accuracy(other)),
            (seconds, report["seconds"]),
            gap < TIGHT,
        )


def check_lmnn(case):
    for k, rate in ((3, 1e-6), (30, 1e-6), (3, 1e-3)):
        k = min(k, int(np.bincount(case.labels).min()) - 1)
        # scikit-learn's discriminant, where both may start, changed by a factor between versions.
        start = starting_map(case.train, case.labels, None, np.random.RandomState(0))
        other, report = theirs(case, "LMNN", {"n_neighbors": k, "learn_rate": rate, "max_iter": 100}, start=start)
        learner = LMNN(n_neighbors=k, learning_rate=rate, max_points=None)
        _, seconds = timed(lambda learner=learner: learner.fit(case.distributions(), case.labels))
        problem = lmnn.margin_problem(case.train, case.labels, k, 0.5)
        value = problem.value_and_gradient(other)[0]
        yield (
            f"LMNN, {k} neighbours, rate {rate:g}",
            f"objective {learner.objective_:.10g} and {value:.10g}",
            (case.accuracy(learner.components_), case.accuracy(other)),
            (seconds, report["seconds"]),
            learner.objective_ <= value * (1.0 + 1e-9),
        )


def expected_hits(case, components):
    """NCA's objective, to be maximised: the expected number of points that choose a neighbour of their own class."""
    z = case.train @ components.T
    squared = ((z[:, None] - z) ** 2).sum(axis=-1)
    np.fill_diagonal(squared, np.inf)
    chance = np.exp(squared.min(axis=1, keepdims=True) - squared)
    chance /= chance.sum(axis=1, keepdims=True)
    return chance[case.labels[:, None] == case.labels].sum()


def check_nca(case):
    other, report = theirs(case, "NCA", {})
    learner, seconds = timed(lambda: NCA(max_points=None, random_state=0).fit(case.distributions(), case.labels))
    ours, value = expected_hits(case, learner.components_), expected_hits(case, other)
    yield (
        "NCA",
        f"expected hits {ours:.2f} and {value:.2f} of {len(case.labels)}",
        (case.accuracy(learner.components_), case.accuracy(other)),
        (seconds, report["seconds"]),
        ours >= 0.99 * value,
    )


def main():
    LMNN(max_iter=3).fit(gm.Distributions(np.eye(4), range(4)), [0, 0, 1, 1])  # compiles
    failed = 0
    print("| data | method | agreement | accuracy: ours, theirs | seconds: ours, theirs | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in cases():
        for check in (check_lfda, check_itml, check_lmnn, check_nca):
            for method, agreement, accuracies, seconds, fine in check(case):
                scores = ", ".join(f"{score:.3f}" for score in accuracies)
                times = ", ".join(f"{time:.3f}" for time in seconds)
                mark = "agrees" if fine else "DIFFERS"
                print(f"| {case.name} | {method} | {agreement} | {scores} | {times} | {mark} |", flush=True)
                failed += not fine
    sys.exit(f"{failed} comparisons differ" if failed else 0)


if __name__ == "__main__":
    main()
