"""`groundmetric learn` on cohorts of many patients, and the accuracy of landmarks against all pairs.

python benchmarks/bench_patients.py                       both cohorts and the comparison
python benchmarks/bench_patients.py 400 100 300           a simulated cohort of this many patients, cells and genes
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench_neighbours import DATA, patients

WORK = Path(__file__).resolve().parent / "work"
PATIENTS, CELLS, GENES = 2000, 500, 1000
N_RAISED, RAISED, DENSITY = 10, 0.7, 0.1
# Report the CPU time and the peak memory of a command that is run in this process.
MEASURED = """
import json, resource, sys, time
from groundmetric.cli.main import main
started = time.perf_counter()
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
usage = resource.getrusage(resource.RUSAGE_SELF)
cpu = usage.ru_utime + usage.ru_stime
print(json.dumps({"seconds": time.perf_counter() - started, "cpu": cpu, "megabytes": usage.ru_maxrss / 1024}))
"""


def make_file(path: Path, n_patients: int, n_cells: int, n_genes: int, seed: int = 0) -> None:
    """Write log-normalised counts of patients; ten genes are raised in a quarter of the cells of every second patient.

    Patients differ in the rates of all genes (standard deviation 0.3 of the logarithm).
    """
    import anndata as ad
    import pandas as pd
    from scipy import sparse

    random = np.random.default_rng(seed)
    base, blocks = random.normal(0.0, 1.0, n_genes), []
    markers = 1.5 * (random.random((4, n_genes)) < 0.05)
    for patient in range(n_patients):
        kinds = random.choice(4, n_cells, p=random.dirichlet([10.0] * 4))
        logs = base + markers[kinds] + random.normal(0.0, 0.3, n_genes)
        logs[:, :N_RAISED] += RAISED * (patient % 2) * (kinds == 0)[:, None]
        rates = np.exp(logs)
        rates *= DENSITY * n_genes / rates.sum(axis=1, keepdims=True)
        counts = sparse.csr_matrix(random.poisson(rates).astype(np.float32))
        totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
        counts.data = np.log1p(counts.data * np.repeat(1000.0 / totals, np.diff(counts.indptr))).astype(np.float32)
        blocks.append(counts)
    names = np.repeat([f"p{patient:04d}" for patient in range(n_patients)], n_cells)
    labels = np.repeat(np.where(np.arange(n_patients) % 2, "ill", "healthy"), n_cells)
    obs = pd.DataFrame({"sample": pd.Categorical(names), "label": pd.Categorical(labels)})
    obs.index = [f"cell{row}" for row in range(len(obs))]
    var = pd.DataFrame(index=[f"gene{gene}" for gene in range(n_genes)])
    ad.AnnData(sparse.vstack(blocks, format="csr"), obs=obs, var=var).write_h5ad(path)


def learn(path: Path, *options: str) -> dict[str, Any]:
    """Run `groundmetric learn` in a new process, and return its time, memory and held-out scores."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", MEASURED, "learn", str(path), "--sample", "sample", "--label", "label"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "-o", str(run), *options], stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        measured = json.loads(done.stdout.splitlines()[-1])
        scores = json.loads((run / "run.json").read_text())["held_out"]
    return {
        "wall s": measured["seconds"],
        "CPU s": measured["cpu"],
        "peak memory, MB": round(measured["megabytes"]),
        "held-out balanced accuracy": scores["balanced_accuracy"],
        "held-out log-probability": scores["log_probability"],
    }


def simulated(n_patients: int, n_cells: int, n_genes: int) -> dict[str, Any]:
    """Learn from a simulated cohort, whose file is made once."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"patients_{n_patients}_{n_cells}_{n_genes}.h5ad"
    if not path.exists():
        make_file(path, n_patients, n_cells, n_genes)
    name = f"simulated, {n_patients} patients × {n_cells} cells × {n_genes} genes, 2 threads"
    return {"cohort": name, **learn(path, "--genes", "all", "--jobs", "2")}


def run() -> list[dict]:
    """Return the rows of the scale benchmark."""
    rows = [simulated(PATIENTS, CELLS, GENES)]
    if DATA.exists():
        rows.insert(0, {"cohort": "IgA nephropathy, 634 patients × 14 features, 1 thread", **learn(DATA)})
    return rows


def accuracy() -> list[dict]:
    """Fit halves of the 634 patients with landmarks and with all pairs, and predict the other halves."""
    from sklearn.metrics import balanced_accuracy_score

    import groundmetric as gm
    from groundmetric.ensemble import geometry, members

    if not DATA.exists():
        return [{"data": f"{DATA.name} is not at hand"}]
    D, y = patients()
    limits = {"landmarks": (geometry.MAX_EXACT, members._MAX_TRAINING), "all pairs": (len(D), len(D))}
    rows = []
    for name, (exact, training) in limits.items():
        geometry.MAX_EXACT, members._MAX_TRAINING = exact, training
        accuracies, logs, started = [], [], time.process_time()
        for seed in range(3):
            half = np.random.default_rng(seed).permutation(len(D)) % 2 == 0
            for train, test in ((half, ~half), (~half, half)):
                model = gm.TransportClassifier(random_state=0).fit(D[train], y[train])
                probabilities = model.predict_proba(D[test])
                columns = np.searchsorted(model.classes_, y[test])
                accuracies.append(balanced_accuracy_score(y[test], model.classes_[probabilities.argmax(axis=1)]))
                logs.append(np.log(probabilities[np.arange(columns.size), columns]).mean())
        rows.append(
            {
                "317 training, 317 test patients": name,
                "balanced accuracy": np.mean(accuracies),
                "standard error over 6 halves": np.std(accuracies, ddof=1) / np.sqrt(len(accuracies)),
                "log-probability": np.mean(logs),
                "CPU s per fit and prediction": (time.process_time() - started) / len(accuracies),
            }
        )
    geometry.MAX_EXACT, members._MAX_TRAINING = limits["landmarks"]
    return rows


if __name__ == "__main__":
    from measuring import table

    sizes = [int(number) for number in sys.argv[1:]]
    print(table([simulated(*sizes)] if sizes else run()))
    if not sizes:
        print(table(accuracy()))
