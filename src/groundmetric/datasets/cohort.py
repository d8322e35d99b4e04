"""A simulated single-cell cohort in which it is known what tells the conditions apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from .._internal.validation import need
from .simulation import Cells, Effects, Genes, Samples, Settings, draw_cells, draw_effects, draw_genes, plan_samples

if TYPE_CHECKING:
    from anndata import AnnData

CELL_TYPES = {"Macrophage": 0.25, "T cell": 0.3, "B cell": 0.15, "Fibroblast": 0.2, "Endothelial cell": 0.1}


def make_cohort(
    n_samples_per_condition: int | Sequence[int] = 8,
    cells_per_sample: float = 300,
    n_genes: int = 1000,
    *,
    conditions: Sequence[str] = ("control", "disease"),
    samples_per_patient: int = 1,
    cells_spread: float = 0.2,
    cell_types: Mapping[str, float] | Sequence[str] = CELL_TYPES,
    concentration: float = 30.0,
    n_markers: int = 20,
    marker_strength: float = 2.0,
    n_programme_genes: int = 20,
    programme_type: str | None = None,
    programme_strength: float = 2.0,
    programme_share: float = 1.0,
    composition_strength: float = 0.0,
    patient_strength: float = 0.1,
    n_batches: int = 2,
    batch_strength: float = 0.2,
    confounding: float = 0.0,
    gene_spread: float = 1.0,
    library_size: float = 3000.0,
    library_spread: float = 0.3,
    dispersion: float = 0.3,
    normalise: bool = True,
    random_state: Any = None,
) -> AnnData:
    """Simulated cohort of patients whose conditions differ by one programme of genes in one cell type.

    For gene g in cell i, which is of type t and from a sample of patient p, condition c and batch b:

    - log rate: η_ig = β_g + m [g marks t] + a_i r_c [g is in the programme] + γ_pg + δ_bg
    - share of the cell's counts: π_ig = exp(η_ig) / Σ_h exp(η_ih), so that where one gene rises, all others fall
    - count: x_ig ~ negative binomial of mean μ = L_i π_ig and variance μ + φ μ²

    Base rates β_g ~ N(0, gene_spread²), patient effects γ_pg ~ N(0, patient_strength²), batch effects
    δ_bg ~ N(0, batch_strength²); m is marker_strength. The programme's strength r_c rises in equal steps from 0 in the
    first condition to programme_strength in the last. A cell of the programme_type runs it (a_i = 1) with probability
    programme_share, except in the first condition; cells of other types never do. The library size L_i is log-normal
    with mean library_size, φ is the dispersion. A sample has a log-normal number of cells, of types whose proportions
    in it are Dirichlet(concentration × proportions). Strengths are natural logarithms of fold changes.

    Parameters
    ----------
    n_samples_per_condition : int or sequence of int, default=8
        Number of samples of every condition, or one number for each.
    cells_per_sample : float, default=300
        Mean number of cells of a sample.
    n_genes : int, default=1000
        Number of genes, markers and programme genes included.
    conditions : sequence of str, default=("control", "disease")
        Names of the conditions; the first is without the programme.
    samples_per_patient : int, default=1
        Number of successive samples of a condition that are from one patient, and share the patient's effects.
    cells_spread : float, default=0.2
        Standard deviation of the logarithm of the number of cells of a sample.
    cell_types : dict or sequence of str
        Names with their proportions, or names alone, where all are equally frequent. Default: 25 % macrophages, 30 % T
        cells, 15 % B cells, 20 % fibroblasts and 10 % endothelial cells.
    concentration : float, default=30.0
        Concentration of the Dirichlet distribution: the larger, the more alike the compositions of the samples.
    n_markers : int, default=20
        Number of genes that mark each cell type.
    marker_strength : float, default=2.0
        Rise of the log rate of a marker in its cell type.
    n_programme_genes : int, default=20
        Number of genes of the programme: PROG01, PROG02, …
    programme_type : str or None, default=None
        Cell type in which the programme acts; None: the first of `cell_types`.
    programme_strength : float, default=2.0
        Rise of the log rate of the programme's genes in the last condition.
    programme_share : float, default=1.0
        Share of the cells of `programme_type` that run the programme.
    composition_strength : float, default=0.0
        Logarithm of the factor by which the frequency of `programme_type`, relative to the other types, is larger in
        the last condition than in the first; in between, in equal steps. 0: the programme is the only difference.
    patient_strength : float, default=0.1
        Standard deviation of the patient effects.
    n_batches : int, default=2
        Number of batches, to which the samples of a condition are assigned in turn.
    batch_strength : float, default=0.2
        Standard deviation of the batch effects.
    confounding : float, default=0.0
        Share of the samples of a condition, from 0 to 1, that are assigned to batches of the condition's own instead: 0
        is balanced; with 1, where there are at least as many batches as conditions, the batch determines the condition.
    gene_spread : float, default=1.0
        Standard deviation of the base rates.
    library_size : float, default=3000.0
        Mean total count of a cell.
    library_spread : float, default=0.3
        Standard deviation of the logarithm of the library size.
    dispersion : float, default=0.3
        Dispersion φ of the counts; 0 makes them Poisson.
    normalise : bool, default=True
        Whether `X` is log(1 + counts scaled to 10,000 per cell), or holds the counts themselves.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    AnnData
        Cells of all samples. `layers["counts"]`: counts. `obs`: sample, patient, condition, batch, cell_type, programme
        (whether the cell runs it). `var`: marker_of (a cell type, or empty), programme. `uns["truth"]`: parameters and
        effects.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(2, 50, 200, random_state=0)
    >>> adata.obs["sample"].nunique(), adata.n_vars, sorted(adata.var_names[adata.var["programme"]])[0]
    (4, 200, 'PROG01')
    """
    given = dict(locals())
    del given["normalise"], given["random_state"]
    settings = Settings(**given)
    need("anndata", "make_cohort")
    import anndata

    # The draws of a Generator are three times faster than those of a RandomState, which seeds it.
    random = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    samples, genes = plan_samples(settings), draw_genes(random, settings)
    effects = draw_effects(random, settings, samples)
    cells = draw_cells(random, settings, samples, genes, effects)
    adata = anndata.AnnData(
        _log_normalised(cells.counts) if normalise else cells.counts.copy(),
        obs=_describe_cells(settings, samples, cells),
        var=_describe_genes(settings, genes),
        layers={"counts": cells.counts},
        uns={"truth": _truth(settings, samples, genes, effects)},
    )
    if normalise:
        adata.uns["log1p"] = {}  # where scanpy looks before it takes logarithms a second time
    return adata


def _log_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """log(1 + counts scaled to 10,000 per cell); a cell without counts stays empty."""
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
    scaled = counts.data * np.repeat(1e4 / totals, np.diff(counts.indptr))
    return sparse.csr_matrix((np.log1p(scaled).astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)


def _describe_cells(settings: Settings, samples: Samples, cells: Cells) -> Any:
    import pandas as pd

    sample_names, patient_names, batch_names = _names(settings, samples)
    s = cells.sample
    number = np.arange(s.size) - np.searchsorted(s, s)  # of the cell within its sample
    names = [f"{sample_names[place]}_{k + 1:04d}" for place, k in zip(s, number, strict=True)]
    columns = {
        "sample": (s, sample_names),
        "patient": (samples.patient[s], patient_names),
        "condition": (samples.condition[s], settings.conditions),
        "batch": (samples.batch[s], batch_names),
        "cell_type": (cells.kind, settings.type_names),
    }
    found = {name: pd.Categorical.from_codes(codes, classes) for name, (codes, classes) in columns.items()}
    return pd.DataFrame({**found, "programme": cells.active}, index=names)


def _describe_genes(settings: Settings, genes: Genes) -> Any:
    import pandas as pd

    marker_of = pd.Categorical.from_codes(genes.marker_of + 1, ["", *settings.type_names])
    return pd.DataFrame({"marker_of": marker_of, "programme": genes.programme}, index=genes.names)


def _names(settings: Settings, samples: Samples) -> tuple[list[str], list[str], list[str]]:
    """Names of samples, patients and batches, which do not tell the condition."""
    counts = {"S": samples.condition.size, "P": samples.patient.max() + 1, "batch": settings.n_batches}
    sample, patient, batch = (
        [f"{start}{k:0{len(str(n)) if start == 'batch' else max(2, len(str(n)))}d}" for k in range(1, n + 1)]
        for start, n in counts.items()
    )
    return sample, patient, batch


def _truth(settings: Settings, samples: Samples, genes: Genes, effects: Effects) -> dict[str, Any]:
    """Everything that the cells were drawn from, as types that an .h5ad file holds."""
    sample_names, patient_names, batch_names = _names(settings, samples)
    numbers = {name: value for name, value in dataclasses.asdict(settings).items() if isinstance(value, int | float)}
    numbers.pop("n_samples_per_condition", None)
    return {
        "parameters": numbers,
        "conditions": np.array(settings.conditions),
        "condition_strengths": settings.stages * settings.programme_strength,
        "cell_types": np.array(settings.type_names),
        "proportions": settings.proportions,
        "programme_type": settings.programme_type,
        "programme_genes": np.sort(genes.names[genes.programme]),
        "samples": np.array(sample_names),
        "sample_conditions": np.array(settings.conditions)[samples.condition],
        "sample_patients": np.array(patient_names)[samples.patient],
        "sample_batches": np.array(batch_names)[samples.batch],
        "sample_proportions": effects.proportions,
        "patients": np.array(patient_names),
        "patient_effects": effects.patients,
        "batches": np.array(batch_names),
        "batch_effects": effects.batches,
        "genes": genes.names,
        "gene_rates": effects.base,
    }
