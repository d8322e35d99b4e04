"""Simulated single-cell cohort whose conditions differ by a known programme of genes."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from .._internal.types import RandomState
from .._internal.validation import ParameterError, check_number, need

if TYPE_CHECKING:
    from anndata import AnnData


CELL_TYPES = {"Macrophage": 0.25, "T cell": 0.3, "B cell": 0.15, "Fibroblast": 0.2, "Endothelial cell": 0.1}


@dataclass(frozen=True, kw_only=True)
class CohortModel:
    """Design and noise of a simulated cohort (`make_cohort`).

    Parameters
    ----------
    samples_per_patient : int, default=1
        Number of successive samples of a condition that are from one patient, and share the patient's effects.
    n_batches : int, default=2
        Number of batches, to which the samples of a condition are assigned in turn.
    confounding : float, default=0.0
        Share of the samples of a condition, from 0 to 1, that are assigned to batches of the condition's own instead.
        0 is balanced; with 1 and at least as many batches as conditions, the batch determines the condition.
    composition_strength : float, default=0.0
        Logarithm of the factor by which the first cell type is more frequent, relative to the other types, in the last
        condition than in the first; in between, in equal steps. 0: the programme is the only difference.
    concentration : float, default=30.0
        Concentration of the Dirichlet distribution: the larger, the more alike the compositions of the samples.
    cells_spread : float, default=0.2
        Standard deviation of the logarithm of the number of cells of a sample.
    marker_strength : float, default=2.0
        Rise of the log rate of a marker in its cell type.
    patient_strength : float, default=0.1
        Standard deviation of the patient effects.
    gene_spread : float, default=1.0
        Standard deviation of the base rates.
    library_size : float, default=3000.0
        Mean total count of a cell.
    library_spread : float, default=0.3
        Standard deviation of the logarithm of the library size.
    dispersion : float, default=0.3
        Dispersion φ of the counts; 0 makes them Poisson.

    Examples
    --------
    >>> import groundmetric as gm
    >>> model = gm.datasets.CohortModel(samples_per_patient=2, confounding=0.5)
    >>> adata = gm.datasets.make_cohort(4, 20, 150, model=model, random_state=0)
    >>> adata.obs["patient"].nunique()
    4
    """

    samples_per_patient: int = 1
    n_batches: int = 2
    confounding: float = 0.0
    composition_strength: float = 0.0
    concentration: float = 30.0
    cells_spread: float = 0.2
    marker_strength: float = 2.0
    patient_strength: float = 0.1
    gene_spread: float = 1.0
    library_size: float = 3000.0
    library_spread: float = 0.3
    dispersion: float = 0.3

    def __post_init__(self) -> None:
        for name in ("samples_per_patient", "n_batches"):
            check_number(name, getattr(self, name), low=1, whole=True)
        for name in ("concentration", "library_size"):
            check_number(name, getattr(self, name), low=0, above=True)
        for name in ("cells_spread", "patient_strength", "gene_spread", "library_spread", "dispersion"):
            check_number(name, getattr(self, name), low=0)
        for name in ("composition_strength", "marker_strength"):
            _check_finite(name, getattr(self, name))
        check_number("confounding", self.confounding, low=0, high=1)


def make_cohort(
    n_samples_per_condition: int | Sequence[int] = 8,
    cells_per_sample: float = 300,
    n_genes: int = 1000,
    *,
    conditions: Sequence[str] = ("control", "disease"),
    cell_types: Mapping[str, float] | Sequence[str] = CELL_TYPES,
    n_markers: int = 20,
    n_programme_genes: int = 20,
    programme_strength: float = 2.0,
    programme_share: float = 1.0,
    batch_strength: float = 0.2,
    model: CohortModel | None = None,
    random_state: RandomState = None,
) -> AnnData:
    """Simulate a cohort of patients whose conditions differ by one programme of genes in one cell type.

    For gene g in cell i, which is of type t and from a sample of patient p, condition c and batch b:

    - log rate: η_ig = β_g + m [g marks t] + a_i r_c [g is in the programme] + γ_pg + δ_bg
    - share of the cell's counts: π_ig = exp(η_ig) / Σ_h exp(η_ih), which sum to 1: if one gene rises, all others fall
    - count: x_ig ~ negative binomial of mean μ = L_i π_ig and variance μ + φ μ²

    Base rates β_g ~ N(0, gene_spread²), patient effects γ_pg ~ N(0, patient_strength²), batch effects
    δ_bg ~ N(0, batch_strength²); m is marker_strength. The programme's strength r_c rises in equal steps from 0 in the
    first condition to programme_strength in the last. A cell of the first cell type runs it (a_i = 1) with probability
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
    cell_types : dict or sequence of str
        Names with their proportions, or names alone, where all are equally frequent. The programme acts in the first.
        Default: 25 % macrophages, 30 % T cells, 15 % B cells, 20 % fibroblasts and 10 % endothelial cells.
    n_markers : int, default=20
        Number of genes that mark each cell type.
    n_programme_genes : int, default=20
        Number of genes of the programme: PROG01, PROG02, …
    programme_strength : float, default=2.0
        Rise of the log rate of the programme's genes in the last condition.
    programme_share : float, default=1.0
        Share of the cells of the first type that run the programme.
    batch_strength : float, default=0.2
        Standard deviation of the batch effects.
    model : CohortModel or None, default=None
        Design and noise; None: the defaults of `CohortModel`.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    AnnData
        Cells of all samples. `X`: log(1 + counts scaled to 10,000 per cell). `layers["counts"]`: counts. `obs`: sample,
        patient, condition, batch, cell_type, programme (whether the cell runs it). `var`: marker_of (a cell type, or
        empty), programme. `uns["truth"]`: parameters and effects.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(2, 50, 200, random_state=0)
    >>> adata.obs["sample"].nunique(), adata.n_vars, sorted(adata.var_names[adata.var["programme"]])[0]
    (4, 200, 'PROG01')
    """
    model = CohortModel() if model is None else model
    check_number("cells_per_sample", cells_per_sample, low=0, above=True)
    check_number("n_genes", n_genes, low=1, whole=True)
    check_number("n_markers", n_markers, low=0, whole=True)
    check_number("n_programme_genes", n_programme_genes, low=0, whole=True)
    check_number("batch_strength", batch_strength, low=0)
    _check_finite("programme_strength", programme_strength)
    check_number("programme_share", programme_share, low=0, high=1)
    conditions = _check_names(conditions, "conditions")
    counts_by_condition = _sample_counts(n_samples_per_condition, len(conditions))
    type_names, proportions = _proportions(cell_types)
    n_types = len(type_names)
    if n_types * n_markers + n_programme_genes > n_genes:
        n_needed = n_types * n_markers + n_programme_genes
        problem = (
            f", but {n_types} cell types with {n_markers} markers each and {n_programme_genes} programme genes need "
            f"{n_needed}: lower n_markers"
        )
        raise ParameterError("n_genes", n_genes, problem, {"n_genes": n_needed})
    need("anndata", "make_cohort")
    import anndata
    import pandas as pd

    # The draws of a Generator are three times faster than those of a RandomState, which seeds it.
    random = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    condition, patient, batch = _plan_samples(counts_by_condition, model)
    n_samples, n_patients = condition.size, int(patient.max()) + 1
    sample_names, patient_names = _numbered("S", n_samples), _numbered("P", n_patients)
    batch_names = _numbered("batch", model.n_batches, 1)
    gene_names, marker_of, programme = _draw_genes(random, type_names, n_markers, n_programme_genes, n_genes)

    # Effects that all cells of a gene, patient, batch or sample share. From 0 in the first condition to 1 in the last:
    stages = np.linspace(0.0, 1.0, len(conditions))
    first_type = np.arange(n_types) == 0
    mixtures = proportions * np.exp(model.composition_strength * np.outer(stages, first_type))
    mixtures /= mixtures.sum(axis=1, keepdims=True)  # (conditions, cell types)
    sizes = _log_normal(random, cells_per_sample, model.cells_spread, n_samples)
    gene_rates = random.normal(0.0, model.gene_spread, n_genes)
    patient_effects = random.normal(0.0, model.patient_strength, (n_patients, n_genes))
    batch_effects = random.normal(0.0, batch_strength, (model.n_batches, n_genes))
    sizes = np.maximum(np.rint(sizes), 1).astype(int)
    sample_proportions = np.stack([random.dirichlet(model.concentration * mixtures[c]) for c in condition])

    # Cells sample by sample: only the rates of one sample are dense.
    marker_rates = model.marker_strength * (marker_of == np.arange(n_types)[:, None])  # (cell types, genes)
    cell_types_drawn, actives, counts = [], [], []
    for s, size in enumerate(sizes):
        stage = stages[condition[s]]
        cell_type = random.choice(n_types, size, p=sample_proportions[s])
        active = (random.random(size) < programme_share) & first_type[cell_type] & (stage > 0)
        resting = gene_rates + marker_rates + patient_effects[patient[s]] + batch_effects[batch[s]]
        running = resting + stage * programme_strength * programme
        shares = np.stack([_softmax(resting), _softmax(running)])  # (2, cell types, genes)
        library = _log_normal(random, model.library_size, model.library_spread, size)
        mean = shares[active.astype(int), cell_type] * library[:, None]
        if model.dispersion > 0:  # Poisson counts whose rates vary by a gamma factor are negative binomial
            mean = mean * (model.dispersion * random.standard_gamma(1.0 / model.dispersion, mean.shape))
        counts.append(sparse.csr_matrix(random.poisson(mean), dtype=np.float32))
        cell_types_drawn.append(cell_type)
        actives.append(active)

    of_cell = np.repeat(np.arange(n_samples), sizes)
    columns = {
        "sample": (of_cell, sample_names),
        "patient": (patient[of_cell], patient_names),
        "condition": (condition[of_cell], conditions),
        "batch": (batch[of_cell], batch_names),
        "cell_type": (np.concatenate(cell_types_drawn), type_names),
    }
    obs = {name: pd.Categorical.from_codes(codes, classes) for name, (codes, classes) in columns.items()}
    cell_names = [f"{name}_{k + 1:04d}" for name, size in zip(sample_names, sizes, strict=True) for k in range(size)]
    marked = pd.Categorical.from_codes(marker_of + 1, ["", *type_names])
    parameters = {
        "cells_per_sample": cells_per_sample, "n_genes": n_genes, "n_markers": n_markers,
        "n_programme_genes": n_programme_genes, "programme_strength": programme_strength,
        "programme_share": programme_share, "batch_strength": batch_strength, **asdict(model),
    }  # fmt: skip
    truth = {
        "parameters": parameters,
        "conditions": np.array(conditions),
        "condition_strengths": stages * programme_strength,
        "cell_types": np.array(type_names),
        "proportions": proportions,
        "programme_type": type_names[0],
        "programme_genes": np.sort(gene_names[programme]),
        "samples": np.array(sample_names),
        "sample_conditions": np.array(conditions)[condition],
        "sample_patients": np.array(patient_names)[patient],
        "sample_batches": np.array(batch_names)[batch],
        "sample_proportions": sample_proportions,
        "patients": np.array(patient_names),
        "patient_effects": patient_effects,
        "batches": np.array(batch_names),
        "batch_effects": batch_effects,
        "genes": gene_names,
        "gene_rates": gene_rates,
    }
    stacked = sparse.vstack(counts, format="csr")
    return anndata.AnnData(
        _log_normalised(stacked),
        obs=pd.DataFrame({**obs, "programme": np.concatenate(actives)}, index=cell_names),
        var=pd.DataFrame({"marker_of": marked, "programme": programme}, index=gene_names),
        layers={"counts": stacked},
        uns={"truth": truth, "log1p": {}},  # scanpy looks for "log1p" before it takes logarithms a second time
    )


def _plan_samples(counts: Sequence[int], model: CohortModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return condition, patient and batch of each sample, as numbers.

    The share `confounding` of each condition is assigned to the condition's own batches, the others to all in turn.
    """
    patient: list[int] = []
    batch: list[int] = []
    for c, count in enumerate(counts):
        tied = np.flatnonzero(np.arange(model.n_batches) % len(counts) == c % model.n_batches)
        n_tied = round(model.confounding * count)
        batch += [tied[k % tied.size] for k in range(n_tied)] + [k % model.n_batches for k in range(count - n_tied)]
        first = patient[-1] + 1 if patient else 0
        patient += [first + k // model.samples_per_patient for k in range(count)]
    return np.repeat(np.arange(len(counts)), counts), np.array(patient), np.array(batch)


def _draw_genes(
    random: np.random.Generator, type_names: Sequence[str], n_markers: int, n_programme: int, n_genes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return names, marked cell type (or -1) and membership in the programme of the genes, in random order."""
    n_types = len(type_names)
    n_others = n_genes - n_types * n_markers - n_programme
    names = _numbered("PROG", n_programme)
    for prefix in _prefixes(type_names):
        names += _numbered(prefix, n_markers)
    names += _numbered("GENE", n_others)
    kind = np.repeat([-2, *range(n_types), -1], [n_programme, *[n_markers] * n_types, n_others])
    order = random.permutation(n_genes)
    return np.array(names)[order], np.maximum(kind[order], -1), kind[order] == -2


def _log_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return log(1 + counts scaled to 10,000 per cell); a cell without counts stays empty."""
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
    scaled = counts.data * np.repeat(1e4 / totals, np.diff(counts.indptr))
    return sparse.csr_matrix((np.log1p(scaled).astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)


def _log_normal(random: np.random.Generator, mean: float, spread: float, size: int) -> np.ndarray:
    return mean * np.exp(random.normal(-0.5 * spread**2, spread, size))


def _softmax(rates: np.ndarray) -> np.ndarray:
    grown = np.exp(rates - rates.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def _numbered(prefix: str, count: int, least_digits: int = 2) -> list[str]:
    return [f"{prefix}{k:0{max(least_digits, len(str(count)))}d}" for k in range(1, count + 1)]


def _prefixes(names: Sequence[str]) -> list[str]:
    """Return prefixes of marker names, all different.

    >>> _prefixes(["T cell", "Macrophage", "T-cell", "Prog", "γδ"])
    ['TCELL', 'MACRO', 'TCELLX', 'PROGX', 'TYPE']
    """
    taken = ["PROG", "GENE"]
    for name in names:
        prefix = re.sub("[^A-Z0-9]", "", name.upper())[:5] or "TYPE"
        while prefix in taken:
            prefix += "X"
        taken.append(prefix)
    return taken[2:]


def _check_finite(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Real) or not np.isfinite(float(value)):
        raise ParameterError(name, value, ": expected a finite number")


def _check_names(names: Sequence[str], parameter: str) -> list[str]:
    checked = [names] if isinstance(names, str) else list(names)
    if not checked or not all(isinstance(name, str) and name for name in checked) or len(set(checked)) < len(checked):
        raise ParameterError(parameter, checked, ": expected different names")
    return checked


def _sample_counts(n_samples: int | Sequence[int], n_conditions: int) -> list[int]:
    counts = [n_samples] * n_conditions if isinstance(n_samples, numbers.Integral) else list(n_samples)  # type: ignore[arg-type]
    if len(counts) != n_conditions or not all(isinstance(n, numbers.Integral) and int(n) >= 1 for n in counts):
        expected = f"a whole number of at least 1, or one for each of {n_conditions} conditions"
        raise ParameterError("n_samples_per_condition", n_samples, f": expected {expected}")
    return [int(count) for count in counts]


def _proportions(cell_types: Mapping[str, float] | Sequence[str]) -> tuple[list[str], np.ndarray]:
    names = _check_names(list(cell_types), "cell_types")
    weights = list(cell_types.values()) if isinstance(cell_types, Mapping) else [1.0] * len(names)
    for name, value in zip(names, weights, strict=True):
        check_number(f"proportion of cell type {name!r}", value, low=0, above=True)
    return names, np.array(weights, dtype=float) / sum(weights)
