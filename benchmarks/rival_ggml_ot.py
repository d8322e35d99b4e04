"""Run ggml-ot 0.9.94 on one core; the last line on stdout is a JSON object.

Runs inside the environment of `training.rival_python` and never imports groundmetric. The data are an
.npz with `points` (one row per point), `groups` (0, 0, ..., 1, 1, ...) and `labels` (one per
group). For a fair single-core time the caller also sets OMP_NUM_THREADS=1 and pins a core.

    rival_ggml_ot.py data.npz epoch --components 5 --epochs 3
    rival_ggml_ot.py data.npz train --components 5 --epochs 70 --checkpoint-every 5 --out W.npy
    rival_ggml_ot.py data.npz distances --metric W.npy --out D.npy
"""

import argparse
import json
from pathlib import Path
from time import process_time  # other programs on the machine do not count

import ggml_ot
import numpy as np
from ggml_ot.distances import ot as ggml_distances
from ggml_ot.optimization import _ggml as ggml_loop
from ggml_ot.optimization import loss as ggml_loss


class Watch:
    """Notes the clock after every epoch and counts the transport problems that are solved.

    ggml-ot calls `snapshot_numpy` once before the first epoch and once after each: there the
    clock is read. It hands all pairs of a mini-batch to `compute_OT`, which calls `_emd2` (and
    that POT's `emd2`) once for each: there the pairs and the solves are counted. Its triplets
    (i, j, k) may have i = j, so the pairs include every distribution with itself; those are
    counted apart. A distribution is in one mini-batch per epoch, so no pair comes twice.
    """

    def __init__(self):
        self.clock, self.pairs, self.self_pairs, self.solves = [], 0, 0, 0
        self.wrap(ggml_loop, "snapshot_numpy", lambda *_, **__: self.clock.append(process_time()))
        self.wrap(ggml_loss, "compute_OT", self.count_pairs)
        self.wrap(ggml_distances, "_emd2", self.count_solve)

    def wrap(self, module, name, before):
        original = getattr(module, name)

        def watched(*args, **kwargs):
            before(*args, **kwargs)
            return original(*args, **kwargs)

        setattr(module, name, watched)

    def count_pairs(self, *_, pairs, **__):
        same = int((pairs[:, 0] == pairs[:, 1]).sum())
        self.self_pairs += same
        self.pairs += len(pairs) - same

    def count_solve(self, *_, **__):
        self.solves += 1


def read(path):
    """The .npz as ggml-ot's dataset, by the constructor that it documents for arrays."""
    with np.load(path) as data:
        points, groups, labels = data["points"], data["groups"], data["labels"]
    sizes = np.bincount(groups)
    if len(set(sizes)) > 1 or np.any(np.diff(groups) < 0):
        raise ValueError(
            "ggml-ot stacks the distributions, so `groups` must be sorted and its groups of one "
            f"size; here the sizes are {sizes}"
        )
    supports = points.reshape(len(sizes), sizes[0], points.shape[1])
    return ggml_ot.from_numpy(supports, labels)


def train(dataset, args):
    """Train with ggml-ot's defaults; returns W before and after each epoch, and the Watch.

    The history costs one copy of W per epoch. `plot_iter=0` spares ggml-ot the full distance
    matrix and the figure that it makes after the last epoch. It may stop early, when the
    gradient vanishes. The first epoch is slower than the rest by memory touched for the first time.
    """
    options = {"batch_size": args.batch_distributions} if args.batch_distributions else {}
    watch = Watch()
    history = ggml_ot.train(
        dataset,
        n_comps=args.components,
        max_iter=args.epochs,
        plot_iter=0,
        return_dataset=False,
        return_map_A_history=True,
        **options,
    )
    return history, watch


def run_epoch(dataset, args):
    _, watch = train(dataset, args)
    seconds = np.diff(watch.clock)
    return {
        "seconds_per_epoch": seconds.tolist(),
        "pairs_per_epoch": watch.pairs // len(seconds),
        "self_pairs_per_epoch": watch.self_pairs // len(seconds),
        "solves_per_epoch": watch.solves // len(seconds),
    }


def run_train(dataset, args):
    """Save the last W as `out` and the checkpoints as `<out>.checkpoints.npz`."""
    history, watch = train(dataset, args)
    np.save(args.out, history[-1])
    # From the start of the first epoch: making torch's first optimiser imports for a second or two.
    elapsed = np.array(watch.clock) - watch.clock[0]
    result = {"seconds": elapsed[-1], "epochs": len(history) - 1, "out": str(args.out)}
    if args.checkpoint_every:
        epochs = np.arange(0, len(history), args.checkpoint_every)  # epoch 0 is the random start
        checkpoints = args.out.with_suffix(".checkpoints.npz")
        states = np.stack([history[epoch] for epoch in epochs])
        np.savez(checkpoints, epochs=epochs, seconds=elapsed[epochs], components=states)
        result["checkpoints"] = str(checkpoints)
    return result


def run_distances(dataset, args):
    components = np.load(args.metric)
    start = process_time()
    distances = dataset.compute_OT(ground_metric=components, plot_type=False)
    seconds = process_time() - start
    if args.out:
        np.save(args.out, distances.numpy())
    return {"seconds": seconds}


def arguments():
    parser = argparse.ArgumentParser(description="Run ggml-ot on one core.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--random-state", type=int, default=42, help="default: ggml-ot's own, 42")
    commands = parser.add_subparsers(dest="command", required=True)

    epoch = commands.add_parser("epoch", help="the time of each training epoch")
    epoch.set_defaults(run=run_epoch)

    training = commands.add_parser("train", help="train and save the components")
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--checkpoint-every", type=int, metavar="EPOCHS")
    training.set_defaults(run=run_train)

    for command in (epoch, training):
        command.add_argument("--components", type=int, required=True)
        command.add_argument("--epochs", type=int, required=True)
        command.add_argument("--batch-distributions", type=int, help="default: ggml-ot's own, 512")

    distances = commands.add_parser("distances", help="all pairwise distances under a metric")
    distances.add_argument("--metric", type=Path, required=True)
    distances.add_argument("--out", type=Path)
    distances.set_defaults(run=run_distances)
    return parser.parse_args()


def main():
    args = arguments()
    # Importing ggml-ot sets torch to 4 threads, regardless of OMP_NUM_THREADS. This setting holds
    # both torch and POT to one; nothing else in training is parallel (its loader uses no workers).
    ggml_ot.settings.n_threads = 1
    ggml_ot.settings.random_seed = args.random_state
    print(json.dumps(args.run(read(args.data), args)))


if __name__ == "__main__":
    main()
