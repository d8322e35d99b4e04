"""Simulated single-cell cohort whose conditions differ by a known programme of genes."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.utils import check_random_state

from .._internal.types import RandomState
from .._internal.validation import ParameterError, check_number, need

if TYPE_CHECKING:
    from anndata import AnnData

CELL_TYPES = {"Macrophage": 0.25, "T cell": 0.3, "B cell": 0.15, "Fibroblast": 0.2, "Endothelial cell": 0.1}
# Design and noise. The spreads of numbers of cells and of library sizes are standard deviations of logarithms.
_MODEL = {
    "n_batches": 2, "cells_spread": 0.2, "marker_strength": 2.0, "patient_strength": 0.1, "gene_spread": 1.0,
    "library_size": 3000.0, "library_spread": 0.3, "dispersion": 0.3,
}  # fmt: skip


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
    confounding: float = 0.0,
    composition_strength: float = 0.0,
    concentration: float = 30.0,
    random_state: RandomState = None,
) -> AnnData:
    """Simulate a cohort of patients whose conditions differ by one programme of genes in one cell type.

    Each sample is from a patient of its own. For gene g in cell i of type t, from patient p, condition c and batch b:

    - log rate: η_ig = β_g + 2 [g marks t] + a_i r_c [g is in the programme] + γ_pg + δ_bg
    - share of the cell's counts: π_ig = exp(η_ig) / Σ_h exp(η_ih), which sum to 1: if one gene rises, all others fall
    - count: x_ig ~ negative binomial of mean μ = L_i π_ig and variance μ + 0.3 μ²

    Base rates β_g ~ N(0, 1), patient effects γ_pg ~ N(0, 0.1²), batch effects δ_bg ~ N(0, batch_strength²). The
    programme's strength r_c rises in equal steps from 0 in the first condition to programme_strength in the last. A
    cell of the first cell type runs it (a_i = 1) with probability programme_share, except in the first condition; cells
    of other types never do. The library size L_i is log-normal with mean 3,000. A sample has a log-normal number of
    cells, of types whose proportions in it are Dirichlet(concentration × proportions). Strengths are natural logarithms
    of fold changes.

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
    n_markers, n_programme_genes : int, default=20
        Number of genes that mark each cell type, and of genes of the programme: PROG01, PROG02, …
    programme_strength : float, default=2.0
        Rise of the log rate of the programme's genes in the last condition.
    programme_share : float, default=1.0
        Share of the cells of the first type that run the programme.
    batch_strength : float, default=0.2
        Standard deviation of the effects of the two batches, to which the samples of a condition are assigned in turn.
    confounding : float, default=0.0
        Share of the samples of a condition that are all assigned to one batch, which alternates between conditions.
    composition_strength : float, default=0.0
        Logarithm of the factor by which the first cell type is more frequent, relative to the other types, in the last
        condition than in the first; in between, in equal steps.
    concentration : float, default=30.0
        Concentration of the Dirichlet distribution: the larger, the more alike the compositions of the samples.
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
    check_number("n_genes", n_genes, low=1, whole=True)
    check_number("n_markers", n_markers, low=0, whole=True)
    check_number("n_programme_genes", n_programme_genes, low=0, whole=True)
    check_number("cells_per_sample", cells_per_sample, low=0, above=True)
    check_number("concentration", concentration, low=0, above=True)
    check_number("programme_strength", programme_strength, low=-np.inf)
    check_number("composition_strength", composition_strength, low=-np.inf)
    check_number("programme_share", programme_share, low=0, high=1)
    check_number("confounding", confounding, low=0, high=1)
    check_number("batch_strength", batch_strength, low=0)
    conditions = _check_names(conditions, "conditions")
    counts_by_condition: Any = n_samples_per_condition
    if isinstance(n_samples_per_condition, numbers.Integral):
        counts_by_condition = [n_samples_per_condition] * len(conditions)
    for count in counts_by_condition:
        check_number("n_samples_per_condition", count, low=1, whole=True)
    if len(counts_by_condition) != len(conditions):
        problem = f": expected a whole number, or one for each of {len(conditions)} conditions"
        raise ParameterError("n_samples_per_condition", n_samples_per_condition, problem)
    type_names = _check_names(list(cell_types), "cell_types")
    n_types = len(type_names)
    weights = list(cell_types.values()) if isinstance(cell_types, Mapping) else [1.0] * n_types
    for name, value in zip(type_names, weights, strict=True):
        check_number(f"proportion of cell type {name!r}", value, low=0, above=True)
    proportions = np.array(weights, dtype=float) / sum(weights)
    n_needed = n_types * n_markers + n_programme_genes
    if n_needed > n_genes:
        problem = f", but {n_types} types with {n_markers} markers and the programme need {n_needed}: lower n_markers"
        raise ParameterError("n_genes", n_genes, problem, {"n_genes": n_needed})
    need("anndata", "make_cohort")
    import anndata
    import pandas as pd

    # The draws of a Generator are three times faster than those of a RandomState, which seeds it.
    random = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    n_batches, library_size = int(_MODEL["n_batches"]), _MODEL["library_size"]
    condition, n_samples = np.repeat(np.arange(len(conditions)), counts_by_condition), sum(counts_by_condition)
    batches = []
    for c, count in enumerate(counts_by_condition):
        n_tied = round(confounding * count)
        batches += [c % n_batches] * n_tied + [k % n_batches for k in range(count - n_tied)]
    batch = np.array(batches)
    sample_names, patient_names = _numbered("S", n_samples), _numbered("P", n_samples)
    batch_names = _numbered("batch", n_batches, 1)
    # Genes in random order: markers of each cell type (or -1), membership in the programme.
    gene_counts = [n_programme_genes, *[n_markers] * n_types, n_genes - n_needed]
    prefixes = ["PROG", "GENE"]
    for name in type_names:  # all different: TCELL and TCELLX of "T cell" and "T-cell"
        prefix = re.sub("[^A-Z0-9]", "", name.upper())[:5] or "TYPE"
        while prefix in prefixes:
            prefix += "X"
        prefixes.insert(-1, prefix)
    named = zip(prefixes, gene_counts, strict=True)
    gene_order = random.permutation(n_genes)
    gene_names = np.array([name for prefix, count in named for name in _numbered(prefix, count)])[gene_order]
    kind = np.repeat([-2, *range(n_types), -1], gene_counts)[gene_order]
    marker_of, programme = np.maximum(kind, -1), kind == -2

    # Effects that all cells of a gene, patient, batch or sample share. From 0 in the first condition to 1 in the last:
    stages = np.linspace(0.0, 1.0, len(conditions))
    first_type = np.arange(n_types) == 0
    mixtures = proportions * np.exp(composition_strength * np.outer(stages, first_type))
    mixtures /= mixtures.sum(axis=1, keepdims=True)  # (conditions, cell types)
    sizes = _log_normal(random, cells_per_sample, _MODEL["cells_spread"], n_samples)
    gene_rates = random.normal(0.0, _MODEL["gene_spread"], n_genes)
    patient_effects = random.normal(0.0, _MODEL["patient_strength"], (n_samples, n_genes))
    batch_effects = random.normal(0.0, batch_strength, (n_batches, n_genes))
    sizes = np.maximum(np.rint(sizes), 1).astype(int)
    sample_proportions = np.stack([random.dirichlet(concentration * mixtures[c]) for c in condition])

    # Cells sample by sample: only the rates of one sample are dense.
    marker_rates = _MODEL["marker_strength"] * (marker_of == np.arange(n_types)[:, None])  # (cell types, genes)
    cell_types_drawn, actives, counts = [], [], []
    for s, size in enumerate(sizes):
        stage = stages[condition[s]]
        cell_type = random.choice(n_types, size, p=sample_proportions[s])
        active = (random.random(size) < programme_share) & first_type[cell_type] & (stage > 0)
        resting = gene_rates + marker_rates + patient_effects[s] + batch_effects[batch[s]]
        running = resting + stage * programme_strength * programme
        shares = softmax([resting, running], axis=-1)  # (2, cell types, genes)
        library = _log_normal(random, library_size, _MODEL["library_spread"], size)
        mean = shares[active.astype(int), cell_type] * library[:, None]
        # Poisson counts whose rates vary by a gamma factor are negative binomial.
        dispersion = _MODEL["dispersion"]
        mean = mean * (dispersion * random.standard_gamma(1.0 / dispersion, mean.shape))
        counts.append(sparse.csr_matrix(random.poisson(mean), dtype=np.float32))
        cell_types_drawn.append(cell_type)
        actives.append(active)

    of_cell = np.repeat(np.arange(n_samples), sizes)
    columns = {
        "sample": (of_cell, sample_names),
        "patient": (of_cell, patient_names),
        "condition": (condition[of_cell], conditions),
        "batch": (batch[of_cell], batch_names),
        "cell_type": (np.concatenate(cell_types_drawn), type_names),
    }
    obs = {name: pd.Categorical.from_codes(codes, classes) for name, (codes, classes) in columns.items()}
    cell_names = [f"{name}_{k + 1:04d}" for name, size in zip(sample_names, sizes, strict=True) for k in range(size)]
    marked = pd.Categorical.from_codes(marker_of + 1, ["", *type_names])
    truth = {
        "parameters": {
            "cells_per_sample": cells_per_sample, "n_genes": n_genes, "n_markers": n_markers,
            "n_programme_genes": n_programme_genes, "programme_strength": programme_strength,
            "programme_share": programme_share, "batch_strength": batch_strength, "confounding": confounding,
            "composition_strength": composition_strength, "concentration": concentration, **_MODEL,
        },
        "conditions": np.array(conditions), "condition_strengths": stages * programme_strength,
        "cell_types": np.array(type_names), "proportions": proportions, "programme_type": type_names[0],
        "programme_genes": np.sort(gene_names[programme]), "genes": gene_names, "gene_rates": gene_rates,
        "samples": np.array(sample_names), "sample_conditions": np.array(conditions)[condition],
        "sample_patients": np.array(patient_names), "sample_batches": np.array(batch_names)[batch],
        "sample_proportions": sample_proportions, "patients": np.array(patient_names),
        "patient_effects": patient_effects, "batches": np.array(batch_names), "batch_effects": batch_effects,
    }  # fmt: skip
    stacked = sparse.vstack(counts, format="csr")
    totals = np.maximum(np.asarray(stacked.sum(axis=1)).ravel(), 1.0)  # a cell without counts stays empty
    logs = np.log1p(stacked.data * np.repeat(1e4 / totals, np.diff(stacked.indptr))).astype(np.float32)
    return anndata.AnnData(
        sparse.csr_matrix((logs, stacked.indices, stacked.indptr), shape=stacked.shape),
        obs=pd.DataFrame({**obs, "programme": np.concatenate(actives)}, index=cell_names),
        var=pd.DataFrame({"marker_of": marked, "programme": programme}, index=gene_names),
        layers={"counts": stacked},
        uns={"truth": truth, "log1p": {}},  # scanpy looks for "log1p" before it takes logarithms a second time
    )


def _log_normal(random: np.random.Generator, mean: float, spread: float, size: int) -> np.ndarray:
    return mean * np.exp(random.normal(-0.5 * spread**2, spread, size))


def _numbered(prefix: str, count: int, least_digits: int = 2) -> list[str]:
    return [f"{prefix}{k:0{max(least_digits, len(str(count)))}d}" for k in range(1, count + 1)]


def _check_names(names: Sequence[str], parameter: str) -> list[str]:
    checked = [names] if isinstance(names, str) else list(names)
    if not checked or not all(isinstance(name, str) and name for name in checked) or len(set(checked)) < len(checked):
        raise ParameterError(parameter, checked, ": expected different names")
    return checked
