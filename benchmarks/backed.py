"""Learning from a file that is not read whole: time and peak memory of each stage, in a process of its own.

python benchmarks/backed.py              200,000 cells × 20,000 genes, 5 % dense (1.7 GB, made once in benchmarks/work)
python benchmarks/backed.py --cells N    a smaller file
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from stages import Stages, answer, check_limit, measure_all

WORK = Path(__file__).resolve().parent / "work"
N_SAMPLES, N_GENES, N_MARKERS, DENSITY = 40, 20_000, 30, 0.05
LIMIT = 2000  # megabytes


def make_file(path: Path, n_cells: int, seed: int = 0) -> None:
    """Log-normalised-like values in CSR, cells of all samples mixed; 30 genes are raised in a quarter of the cells of
    the samples that are ill."""
    import anndata as ad
    import h5py
    import pandas as pd

    random = np.random.default_rng(seed)
    sample = random.permutation(np.arange(n_cells) % N_SAMPLES)
    kind = random.integers(0, 4, n_cells)
    obs = pd.DataFrame(
        {
            "patient": pd.Categorical([f"p{s:02d}" for s in sample]),
            "disease": pd.Categorical(np.where(sample % 2, "ill", "healthy")),
            "cell_type": pd.Categorical.from_codes(kind, ["B", "T", "NK", "Mono"]),
        },
        index=[f"cell{i}" for i in range(n_cells)],
    )
    reach = np.cumsum(_abundance()) / _abundance().sum()
    level = random.gamma(4.0, 0.25, N_GENES)
    markers = _markers()
    var = pd.DataFrame(index=[f"gene{g}" for g in range(N_GENES)])
    temporary = path.with_suffix(".part")
    raised = (sample % 2 == 1) & (kind == 0)
    blocks = (_block(random, reach, level, markers, raised[low : low + 5000]) for low in range(0, n_cells, 5000))
    ad.AnnData(next(blocks), obs=obs.iloc[:5000], var=var).write_h5ad(temporary)
    with h5py.File(temporary, "r+") as file:
        matrix = ad.io.sparse_dataset(file["X"])
        for block in blocks:
            matrix.append(block)
        del file["obs"]
        ad.io.write_elem(file, "obs", obs)
    temporary.replace(path)


def _abundance() -> np.ndarray:
    return np.random.default_rng(0).lognormal(0.0, 1.0, N_GENES)


def _markers() -> np.ndarray:
    """The genes that are raised in disease: often seen, but not the most frequent."""
    return np.argsort(-_abundance())[10 : 10 + N_MARKERS]


def _block(random, reach, level, markers, raised):
    from scipy import sparse

    n_cells = raised.size
    draws = int(N_GENES * DENSITY * 1.12)  # some hit a gene twice
    genes = np.sort(np.searchsorted(reach, random.random((n_cells, draws))), axis=1).clip(max=N_GENES - 1)
    cells = np.repeat(np.arange(n_cells), draws)
    new = np.ones(genes.shape, bool)
    new[:, 1:] = genes[:, 1:] != genes[:, :-1]
    genes, cells = genes[new], cells[new.ravel()]
    values = level[genes] * random.gamma(4.0, 0.25, genes.size)
    values[np.isin(genes, markers) & raised[cells]] += 2.0
    counts = np.bincount(cells, minlength=n_cells)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_matrix((values.astype(np.float32), genes.astype(np.int32), bounds), (n_cells, N_GENES))


def import_only(path: Path) -> str:
    import groundmetric as gm

    return f"{len(gm.tl.__all__)} tools"


def select_genes(path: Path) -> str:
    """The first pass over the drawn cells, with all their genes."""
    from groundmetric._anndata.annotations import Selection, draw, samples_of
    from groundmetric._anndata.source import Source

    with Source(path) as source:
        rows = draw(samples_of(source.obs, "patient"), 1000, 0)
        return f"{Selection('variance').choose(source.matrix(), rows, source.genes).places.size} genes"


def learn(path: Path) -> str:
    import groundmetric as gm

    part = gm.tl.learn(path, "patient", "disease", method="ggml")
    part.write_h5ad(path.with_suffix(".trained.h5ad"))
    top = part.var["groundmetric_importance"].nlargest(N_MARKERS).index
    raised = {f"gene{g}" for g in _markers()}
    return f"{part.n_obs} cells × {part.n_vars} genes read, {len(raised & set(top))} of {N_MARKERS} on top"


def compare_samples(path: Path) -> str:
    import groundmetric as gm

    return f"{gm.tl.samples(path.with_suffix('.trained.h5ad')).n_obs} samples"


def transfer_all(path: Path) -> str:
    """Every cell of the file is placed; only the genes of the metric are read."""
    import warnings

    import anndata as ad

    import groundmetric as gm

    cells = ad.read_h5ad(path, backed="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these samples were learned from
        gm.tl.transfer(cells, path.with_suffix(".trained.h5ad"))
    return f"{cells.obsm['X_groundmetric'].shape[0]} cells placed"


def command_line(path: Path) -> str:
    from groundmetric import cli

    output = path.with_suffix(".run")
    code = cli.main(
        [
            "learn",
            str(path),
            "--sample",
            "patient",
            "--label",
            "disease",
            "--learner",
            "single",
            "-o",
            str(output),
            "--replace",
        ]
    )
    return f"exit code {code}"


STAGES: Stages = {
    "import": import_only,
    "select genes": select_genes,
    "learn": learn,
    "samples": compare_samples,
    "transfer": transfer_all,
    "groundmetric learn": command_line,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=200_000)
    options = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    path = WORK / f"cells_{options.cells}.h5ad"
    if not path.exists():
        make_file(path, options.cells)
    sys.exit(not check_limit(measure_all(__file__, STAGES, path), LIMIT))


if __name__ == "__main__" and not answer(STAGES, sys.argv[1:]):
    main()
