"""Training against ggml-ot: time per epoch and pair, and time until fresh data are classified.

ggml-ot runs in an environment of its own, on the same core and with the same thread settings.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from speed import seconds

import groundmetric as gm

FOLDER = Path(__file__).resolve().parent
WORK = FOLDER / "work"
RIVAL = FOLDER / ".venv-ggml-ot"
# torch is installed first and pinned: otherwise pip may choose a build with gigabytes of CUDA for ggml-ot. If the
# index has only such builds, set PIP_EXTRA_INDEX_URL to torch's CPU wheels.
RIVAL_REQUIREMENTS = ["torch==2.13.0", "ggml-ot==0.9.94"]
GOAL = 0.97


def modes_2000d(n_distributions: int = 40, n_points: int = 1000, n_features: int = 2000, seed: int = 0):
    """Return two classes with ten shared Gaussian modes; class two has one mode shifted along five features."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, n_features)) * 2.0
    shifted = centres.copy()
    shifted[0, :5] += 4.0
    y = np.arange(n_distributions) % 2
    points = np.empty((n_distributions * n_points, n_features))
    for d, label in enumerate(y):
        rows = slice(d * n_points, (d + 1) * n_points)
        points[rows] = (shifted if label else centres)[random.integers(0, 10, n_points)]
        for row in points[rows]:  # row by row: noise for all points would double the memory
            row += random.normal(size=n_features)
    return gm.Distributions(points, np.repeat(np.arange(n_distributions), n_points)), y


def save_for_rival(name: str, D: gm.Distributions, y: np.ndarray) -> Path:
    """Write the file that rival_ggml_ot.py reads."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"{name}.npz"
    np.savez(path, points=D.points, groups=np.repeat(np.arange(len(D)), D.sizes), labels=y)
    return path


def rival(data: Path, *arguments: Any) -> dict[str, Any]:
    """Run ggml-ot in its own environment, with the core and the thread settings of this process."""
    command = [rival_python(), FOLDER / "rival_ggml_ot.py", data, *arguments]
    return json.loads(_run(command).strip().splitlines()[-1])


def rival_python() -> Path:
    """Return the Python of an environment with ggml-ot, which the first call creates."""
    interpreter, complete = RIVAL / "bin" / "python", RIVAL / "complete"
    requirements = "\n".join(RIVAL_REQUIREMENTS) + "\n"
    # `complete` is written last: an interrupted installation is repeated.
    if not complete.exists() or complete.read_text() != requirements:
        print(f"installing {', '.join(RIVAL_REQUIREMENTS)} into {RIVAL.name} (once; 2 GB, minutes)", file=sys.stderr)
        _run([sys.executable, "-m", "venv", "--clear", RIVAL])
        for requirement in RIVAL_REQUIREMENTS:
            _run([interpreter, "-m", "pip", "install", "--quiet", requirement])
        complete.write_text(requirements)
    return interpreter


def _run(command: list[Any]) -> str:
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def our_epochs(D: gm.Distributions, y: np.ndarray, epochs: int, **options: int) -> tuple[float, float, float]:
    """Return medians per epoch, without the first two epochs: CPU seconds, pairs in triplets, and solved pairs.

    Pairs are not solved if bounds prove that their triplets have zero loss.
    """
    learner = gm.GroundMetricLearner(
        n_components=5,
        max_epochs=epochs,
        stopping=gm.learning.EarlyStopping(patience=epochs),
        random_state=0,
        **options,
    )
    with mock.patch("time.perf_counter", time.process_time):  # CPU time does not depend on other programs
        learner.fit(D, y)
    history = learner.history_
    parts = sum(history[f"seconds_{part}"] for part in ("project", "transport", "gradient"))
    pairs = history["solved"] + history["saved"]
    return statistics.median(parts[2:]), statistics.median(pairs[2:]), statistics.median(history["solved"][2:])


def epochs() -> list[dict]:
    cases = {
        "Synth 200D": (gm.datasets.synth_200d(random_state=0), ["--epochs", 5]),
        "40 × 1000 points × 2000 features": (modes_2000d(), ["--epochs", 3, "--batch-distributions", 8]),
    }
    rows = []
    for name, ((D, y), options) in cases.items():
        data = save_for_rival(name.replace(" ", ""), D, y)
        # ggml-ot takes one step per epoch over all triplets (if memory allows); our default is several steps.
        batches = {"default batches": {}, "one step": {"batch_size": 10**9}}
        # The speed of a shared machine changes within minutes: ours is the mean of runs before and after ggml-ot's.
        before = {steps: our_epochs(D, y, 12, **batch) for steps, batch in batches.items()}
        theirs = rival(data, "epoch", "--components", 5, *options)
        # The first epoch of ggml-ot is slower because its memory is touched for the first time: exclude it.
        their_epoch = statistics.median(theirs["seconds_per_epoch"][1:])
        for steps, batch in batches.items():
            our_epoch, our_pairs, our_solves = np.mean([before[steps], our_epochs(D, y, 12, **batch)], axis=0)
            rows.append(
                {
                    "data": name,
                    "our steps": steps,
                    "ggml-ot s per epoch": their_epoch,
                    "its solves": theirs["solves_per_epoch"],
                    "groundmetric s per epoch": our_epoch,
                    "our pairs": our_pairs,
                    "our solved pairs": our_solves,
                    "ratio per epoch": their_epoch / our_epoch,
                    "ratio per pair": (their_epoch / theirs["solves_per_epoch"]) / (our_epoch / our_pairs),
                    "ratio per pair solved": (their_epoch / theirs["solves_per_epoch"]) / (our_epoch / our_solves),
                }
            )
    return rows


# Seconds per epoch that the tutorial of ggml-ot reports for its data. They are published, not measured here.
PUBLISHED = {
    "Sinkhorn, GPU": 0.32,
    "Sinkhorn, 64 CPU threads": 7.1,
    "exact, 64 CPU threads": 355.0,
}


def tutorial() -> list[dict]:
    """Sizes of ggml-ot's GPU tutorial: 63 donors × 250 cells × 5,000 genes, 3 neighbours, rank 5; generated data."""
    D, y = modes_2000d(63, 250, 5000)
    seconds, pairs, solves = our_epochs(D, y, 12, n_neighbors=3)
    ours = {"method": "groundmetric, exact, 1 CPU thread", "s per epoch": seconds, "source": "measured here"}
    rows = [ours | {"pairs": pairs, "solved pairs": solves}]
    for method, published in PUBLISHED.items():
        row = {"method": f"ggml-ot, {method}", "s per epoch": published, "source": "published by its authors"}
        rows.append(row | {"pairs": "", "solved pairs": ""})
    return rows


def accuracy_on_fresh_data(components: np.ndarray, D: gm.Distributions, y: np.ndarray) -> float:
    """Mean accuracy of weighted 5-NN on three fresh draws of Synth 200D."""
    metric = gm.GroundMetric(components)
    classifier = gm.TransportKNeighborsClassifier(5, metric=metric).fit(D, y)
    return float(np.mean([classifier.score(*gm.datasets.synth_200d(random_state=100 + draw)) for draw in range(3)]))


def time_to_goal(rival_epochs: int = 30) -> list[dict]:
    """Return the time from data in memory to the first metric that reaches the goal on fresh Synth 200D data."""
    D, y = gm.datasets.synth_200d(random_state=0)
    data = save_for_rival("Synth200D", D, y)
    rival(data, "train", "--components", 5, "--epochs", rival_epochs, "--out", WORK / "W.npy", "--checkpoint-every", 5)
    checkpoints = np.load(WORK / "W.checkpoints.npz")
    theirs = next(
        (
            float(seconds)
            for seconds, components in zip(checkpoints["seconds"], checkpoints["components"], strict=True)
            if accuracy_on_fresh_data(components, D, y) >= GOAL
        ),
        float("nan"),
    )
    for max_epochs in (1, 2, 5, 10, 20, 50):  # separate runs, because the learning rate decays to 0 over max_epochs
        times = []
        for seed in range(3):
            start = time.process_time()
            learner = gm.GroundMetricLearner(n_components=5, max_epochs=max_epochs, random_state=seed).fit(D, y)
            times.append((time.process_time() - start, accuracy_on_fresh_data(learner.components_, D, y)))
        if min(accuracy for _, accuracy in times) >= GOAL:
            break
    ours = statistics.median(seconds for seconds, _ in times)
    return [
        {
            "goal": f"accuracy {GOAL} on fresh Synth 200D",
            "ggml-ot s": theirs,
            "groundmetric s": ours,
            "groundmetric epochs": max_epochs,
            "worst accuracy of 3 seeds": min(accuracy for _, accuracy in times),
            "ratio": theirs / ours,
        }
    ]


def distances() -> list[dict]:
    """Distance matrix under a learned metric against ggml-ot."""
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
