"""Learning from an atlas on disk, 700,000 cells × 30,000 genes of 130 samples: time and peak memory of each stage.

python benchmarks/atlas.py                700,000 cells (8.5 GB, written once to benchmarks/work)
python benchmarks/atlas.py --cells N      a smaller atlas

Each stage runs in its own process, because the peak memory of a process never decreases.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

WORK = Path(__file__).resolve().parent / "work"
N_SAMPLES, N_GENES, N_MARKERS, DENSITY, N_CELLS = 130, 30_000, 30, 0.05, 700_000
BLOCK = 10_000  # cells that are made at a time
CELLS_PER_SAMPLE, MAX_EPOCHS, FRESH_EPOCHS = 1000, 10, 3
LIMIT = 6000  # megabytes

Stages = dict[str, Callable[[Path], str]]  # functions of the file's path that return a summary


def answer(stages: Stages, arguments: list[str]) -> bool:
    """Run a stage and print its measurements if this process was started with --stage NAME FILE."""
    if arguments[:1] != ["--stage"]:
        return False
    name, path = arguments[1:]
    started = time.perf_counter()
    summary = stages[name](Path(path))
    times = {"seconds": time.perf_counter() - started, "cpu": time.process_time()}
    print(json.dumps({**times, "megabytes": peak_memory(), "summary": summary}))
    return True


def peak_memory() -> float:
    """Return the peak memory of this process in megabytes; `ru_maxrss` would include the parent process."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def measure_all(script: str, stages: Iterable[str], path: Path) -> list[dict]:
    """Run every stage in its own process, and return and print the rows of a table."""
    rows = []
    for stage in stages:
        command = [sys.executable, script, "--stage", stage, str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"{stage} failed")
        result = json.loads(done.stdout.splitlines()[-1])
        rows.append(
            {
                "stage": stage,
                "seconds": result["seconds"],
                "CPU seconds": result["cpu"],
                "peak memory, MB": round(result["megabytes"]),
                "result": result["summary"],
            }
        )
        numbers = (value if isinstance(value, str | int) else f"{value:.1f}" for value in rows[-1].values())
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n" + "| --- " * len(rows[0]) + "|")
        print("| " + " | ".join(map(str, numbers)) + " |", flush=True)
    return rows


def check_limit(rows: list[dict], megabytes: int) -> bool:
    """Print and return whether the peak memory of all stages is below the limit."""
    highest = max(row["peak memory, MB"] for row in rows)
    print(f"highest peak: {highest} MB, {'below' if highest < megabytes else 'ABOVE'} the limit of {megabytes} MB")
    return highest < megabytes


def make_file(path: Path, n_cells: int, seed: int = 0) -> None:
    """Log-normalised-like values in CSR, cells of all samples mixed; 30 genes are raised in a quarter of the cells of
    the samples that are ill. Blocks are written one by one: memory does not grow with the file."""
    import anndata as ad
    import h5py
    import pandas as pd

    obs = make_obs(n_cells, seed)
    raised = ((obs["disease"] == "ill") & (obs["cell_type"] == "B")).to_numpy()
    recipe = Recipe(seed)
    temporary = path.with_suffix(".part")
    with h5py.File(temporary, "w") as file:
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            ad.io.write_elem(file, name, {})
        ad.io.write_elem(file, "obs", obs)
        ad.io.write_elem(file, "var", pd.DataFrame(index=[f"gene{g}" for g in range(N_GENES)]))
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        _write_matrix(file.create_group("X"), recipe, raised)
    temporary.replace(path)


def make_obs(n_cells: int, seed: int) -> Any:
    import pandas as pd

    random = np.random.default_rng(seed)
    sample = random.permutation(np.arange(n_cells) % N_SAMPLES)
    return pd.DataFrame(
        {
            "patient": pd.Categorical.from_codes(sample, [f"p{s:03d}" for s in range(N_SAMPLES)]),
            "disease": pd.Categorical.from_codes(sample % 2, ["healthy", "ill"]),
            "cell_type": pd.Categorical.from_codes(random.integers(0, 4, n_cells), ["B", "T", "NK", "Mono"]),
        },
        index=[f"cell{i}" for i in range(n_cells)],
    )


def _write_matrix(group: Any, recipe: Recipe, raised: np.ndarray) -> None:
    shape = (raised.size, N_GENES)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape})
    stored = [
        group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(1 << 18,))
        for name, kind in (("data", np.float32), ("indices", np.int32))
    ]
    sizes = []
    for low in range(0, raised.size, BLOCK):
        *parts, lengths = recipe.block(raised[low : low + BLOCK])
        sizes.append(lengths)
        for dataset, part in zip(stored, parts, strict=True):
            end = dataset.size
            dataset.resize((end + part.size,))
            dataset[end:] = part
    group.create_dataset("indptr", data=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64))


class Recipe:
    """How often each gene is seen and how high it then is; drawn from tables, because there are a billion values."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        abundance = random.lognormal(0.0, 1.0, N_GENES)
        self.markers = np.argsort(-abundance)[10 : 10 + N_MARKERS]  # often seen, but not the most frequent
        self.level = random.gamma(4.0, 0.25, N_GENES).astype(np.float32)
        share = abundance / abundance.sum()
        self.n_draws = _draws_for(share, DENSITY * N_GENES)
        self.genes = _by_share(share, 1 << 20)  # one is drawn by 20 bits
        self.spread = np.sort(random.gamma(4.0, 0.25, 1 << 12)).astype(np.float32)  # by 12 bits
        self.is_marker = np.isin(np.arange(N_GENES), self.markers)
        self.random = random

    def block(self, raised: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, genes and number of values of each cell."""
        bits = self.random.integers(1 << 32, size=(raised.size, self.n_draws), dtype=np.uint32)
        return _fill(bits, self.genes, self.spread, self.level, self.is_marker, raised)


def _draws_for(share: np.ndarray, n_seen: float) -> int:
    """Return the number of draws whose expected number of different genes is `n_seen`."""
    low, high = int(n_seen), 100 * int(n_seen)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if np.sum(1.0 - (1.0 - share) ** middle) < n_seen else (low, middle)
    return high


def _by_share(share: np.ndarray, size: int) -> np.ndarray:
    """A table in which every gene has its share of places."""
    ends = np.rint(np.cumsum(share) * size).astype(np.int64)
    return np.repeat(np.arange(share.size, dtype=np.int32), np.diff(ends, prepend=0))


def _fill(bits, genes, spread, level, is_marker, raised):
    """Each draw has 20 bits for the gene and 12 for the value; if a gene is drawn twice, the later draw holds."""
    n_cells = bits.shape[0]
    data = np.empty(bits.size, np.float32)
    indices = np.empty(bits.size, np.int32)
    lengths = np.zeros(n_cells, np.int64)
    row = np.zeros(level.size, np.float32)
    end = 0
    for cell in range(n_cells):
        drawn = genes[bits[cell] >> 12]
        row[drawn] = level[drawn] * spread[bits[cell] & 4095]
        expressed = np.flatnonzero(row > 0.0)
        start, end = end, end + expressed.size
        data[start:end] = row[expressed] + (2.0 * is_marker[expressed] if raised[cell] else 0.0)
        indices[start:end] = expressed
        lengths[cell] = expressed.size
        row[drawn] = 0.0
    return data[:end], indices[:end], lengths


def import_only(path: Path) -> str:
    import groundmetric as gm

    return f"{len(gm.tl.__all__)} tools"


def select_genes(path: Path) -> str:
    """One pass over all values of the file."""
    import anndata as ad

    import groundmetric as gm

    cells = ad.read_h5ad(path, backed="r")
    gm.pp.select_genes(cells)
    chosen = cells.var_names[cells.var["selected_genes"]]
    _genes_of(path).write_text("\n".join(chosen))
    return f"{len(chosen)} of {cells.n_vars} genes, from all {cells.n_obs} cells"


def learn(path: Path) -> str:
    import groundmetric as gm

    genes = _genes_of(path).read_text().split()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so few epochs may not be enough, and need not be here
        part = gm.tl.learn(
            path, "patient", "disease", method="ggml", genes=genes, n_cells=CELLS_PER_SAMPLE, max_epochs=MAX_EPOCHS
        )
    part.write_h5ad(_learned_of(path))
    top = part.var["groundmetric_importance"].nlargest(N_MARKERS).index
    raised = {f"gene{g}" for g in Recipe(0).markers}
    epochs = len(part.uns["groundmetric"]["history"]["loss"])
    return f"{part.n_obs} cells × {part.n_vars} genes, {epochs} epochs, {len(raised & set(top))} of {N_MARKERS} on top"


def learn_from_fresh_cells(path: Path) -> str:
    """Few epochs: each takes as long and as much memory as the next."""
    import groundmetric as gm

    genes = _genes_of(path).read_text().split()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        options = {"n_cells": CELLS_PER_SAMPLE, "max_epochs": FRESH_EPOCHS, "resample": True}
        gm.tl.learn(path, "patient", "disease", method="ggml", genes=genes, **options)
    return f"{FRESH_EPOCHS} epochs with other cells in each"


def compare_samples(path: Path) -> str:
    """All distances between samples."""
    import groundmetric as gm

    n = gm.tl.samples(_learned_of(path)).n_obs
    return f"{n * (n - 1) // 2} distances between {n} samples"


def _genes_of(path: Path) -> Path:
    return path.with_suffix(".genes.txt")


def _learned_of(path: Path) -> Path:
    return path.with_suffix(".learned.h5ad")


STAGES: Stages = {
    "import": import_only,
    "select genes": select_genes,
    "learn": learn,
    "learn with resample=True": learn_from_fresh_cells,
    "samples": compare_samples,
}


def run(n_cells: int = N_CELLS) -> list[dict]:
    """Rows for the table; the file is made if it is not there."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"atlas_{n_cells}.h5ad"
    if not path.exists():
        free = shutil.disk_usage(WORK).free
        needed = int(1.3 * n_cells * N_GENES * DENSITY * 8)  # and for the results of learning
        if free < needed:
            sys.exit(f"{needed / 1e9:.0f} GB are needed in {WORK}, {free / 1e9:.0f} GB are free: give fewer --cells")
        make_file(path, n_cells)
    return measure_all(__file__, STAGES, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=N_CELLS)
    sys.exit(not check_limit(run(parser.parse_args().cells), LIMIT))


if __name__ == "__main__" and not answer(STAGES, sys.argv[1:]):
    main()
