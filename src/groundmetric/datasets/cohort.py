"""A simulated single-cell cohort in which it is known what tells the conditions apart, and the model that draws it."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from .._internal.types import RandomState
from .._internal.validation import need

if TYPE_CHECKING:
    from anndata import AnnData


CELL_TYPES = {"Macrophage": 0.25, "T cell": 0.3, "B cell": 0.15, "Fibroblast": 0.2, "Endothelial cell": 0.1}
# What a parameter must be: a test, and how to say it.
_WHOLE = (lambda value: isinstance(value, numbers.Integral) and int(value) >= 1, "a whole number of at least 1")
_COUNT = (lambda value: isinstance(value, numbers.Integral) and int(value) >= 0, "a whole number of at least 0")
_POSITIVE = (lambda value: value > 0, "a number above 0")
_SPREAD = (lambda value: value >= 0, "a number of at least 0")
_SHARE = (lambda value: 0 <= value <= 1, "a number from 0 to 1")
_ANY = (lambda value: True, "a number")
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_genes": _WHOLE, "samples_per_patient": _WHOLE, "n_batches": _WHOLE,
    "n_markers": _COUNT, "n_programme_genes": _COUNT,
    "cells_per_sample": _POSITIVE, "concentration": _POSITIVE, "library_size": _POSITIVE,
    "cells_spread": _SPREAD, "patient_strength": _SPREAD, "batch_strength": _SPREAD, "gene_spread": _SPREAD,
    "library_spread": _SPREAD, "dispersion": _SPREAD,
    "programme_share": _SHARE, "confounding": _SHARE,
    "marker_strength": _ANY, "programme_strength": _ANY, "composition_strength": _ANY,
}  # fmt: skip


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
    random_state: RandomState = None,
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
    names = [f"{sample_names[k]}_{n + 1:04d}" for k, n in zip(s, number, strict=True)]
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
    numbers = {name: value for name, value in asdict(settings).items() if isinstance(value, int | float)}
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


@dataclass
class Settings:
    """The parameters of `make_cohort`, checked, and their shorthands resolved."""

    n_samples_per_condition: int | Sequence[int]
    cells_per_sample: float
    n_genes: int
    conditions: Sequence[str]
    samples_per_patient: int
    cells_spread: float
    cell_types: Mapping[str, float] | Sequence[str]
    concentration: float
    n_markers: int
    marker_strength: float
    n_programme_genes: int
    programme_type: str | None
    programme_strength: float
    programme_share: float
    composition_strength: float
    patient_strength: float
    n_batches: int
    batch_strength: float
    confounding: float
    gene_spread: float
    library_size: float
    library_spread: float
    dispersion: float

    def __post_init__(self) -> None:
        for name, (fits, expected) in _EXPECTED.items():
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not math.isfinite(value) or not fits(value):
                raise ValueError(f"{name} is {value!r}: expected {expected}")
        self.conditions = _check_names(self.conditions, "conditions")
        self.sample_counts = _sample_counts(self.n_samples_per_condition, len(self.conditions))
        self.type_names, self.proportions = _proportions(self.cell_types)
        if self.programme_type is None:
            self.programme_type = self.type_names[0]
        if self.programme_type not in self.type_names:
            raise ValueError(f"programme_type is {self.programme_type!r}: expected one of {self.type_names}")
        needed = len(self.type_names) * self.n_markers + self.n_programme_genes
        if needed > self.n_genes:
            raise ValueError(
                f"n_genes is {self.n_genes}, but {len(self.type_names)} cell types with {self.n_markers} markers each "
                f"and {self.n_programme_genes} programme genes need {needed}: raise n_genes or lower n_markers"
            )

    @property
    def stages(self) -> np.ndarray:
        """How far each condition is along the disease: from 0, the first, to 1, the last."""
        return np.linspace(0.0, 1.0, len(self.conditions))

    @property
    def acts_in(self) -> np.ndarray:
        """For each cell type, whether the programme acts in it."""
        return np.array([name == self.programme_type for name in self.type_names])


class Samples(NamedTuple):
    """For each sample, the number of its condition, patient and batch."""

    condition: np.ndarray
    patient: np.ndarray
    batch: np.ndarray


class Genes(NamedTuple):
    """For each gene its name, the number of the cell type that it marks (or -1), and whether the programme has it."""

    names: np.ndarray
    marker_of: np.ndarray
    programme: np.ndarray


class Effects(NamedTuple):
    """What was drawn before any cell: log rates by gene, and each sample's number and kinds of cells."""

    base: np.ndarray  # (genes,)
    patients: np.ndarray  # (patients, genes)
    batches: np.ndarray  # (batches, genes)
    n_cells: np.ndarray  # (samples,)
    proportions: np.ndarray  # (samples, cell types)


class Cells(NamedTuple):
    """For each cell its sample, its type and whether it runs the programme; and the counts, (cells, genes)."""

    sample: np.ndarray
    kind: np.ndarray
    active: np.ndarray
    counts: sparse.csr_matrix


def plan_samples(settings: Settings) -> Samples:
    """Samples by condition; `confounding` of each condition's go to batches of its own, the others to all in turn."""
    condition = np.repeat(np.arange(len(settings.conditions)), settings.sample_counts)
    patient, batch, n_patients = [], [], 0
    for c, count in enumerate(settings.sample_counts):
        own = np.flatnonzero(np.arange(settings.n_batches) % len(settings.conditions) == c % settings.n_batches)
        n_tied = round(settings.confounding * count)
        batch += [own[k % own.size] for k in range(n_tied)]
        batch += [k % settings.n_batches for k in range(count - n_tied)]
        patient += [n_patients + k // settings.samples_per_patient for k in range(count)]
        n_patients = patient[-1] + 1
    return Samples(condition, np.array(patient), np.array(batch))


def draw_genes(random: np.random.Generator, settings: Settings) -> Genes:
    """Programme genes, markers of each type and others, in an order that says nothing."""
    n_types, n_markers, n_programme = len(settings.type_names), settings.n_markers, settings.n_programme_genes
    n_others = settings.n_genes - n_types * n_markers - n_programme
    names = _numbered("PROG", n_programme)
    for prefix in _prefixes(settings.type_names):
        names += _numbered(prefix, n_markers)
    names += _numbered("GENE", n_others)
    kind = np.repeat([-2, *range(n_types), -1], [n_programme, *[n_markers] * n_types, n_others])
    order = random.permutation(settings.n_genes)
    return Genes(np.array(names)[order], np.maximum(kind[order], -1), kind[order] == -2)


def draw_effects(random: np.random.Generator, settings: Settings, samples: Samples) -> Effects:
    raised = np.exp(settings.composition_strength * np.outer(settings.stages, settings.acts_in))
    mixtures = settings.proportions * raised  # (conditions, cell types)
    mixtures /= mixtures.sum(axis=1, keepdims=True)
    sizes = _log_normal(random, settings.cells_per_sample, settings.cells_spread, samples.condition.size)
    return Effects(
        base=random.normal(0.0, settings.gene_spread, settings.n_genes),
        patients=random.normal(0.0, settings.patient_strength, (samples.patient.max() + 1, settings.n_genes)),
        batches=random.normal(0.0, settings.batch_strength, (settings.n_batches, settings.n_genes)),
        n_cells=np.maximum(np.rint(sizes), 1).astype(int),
        proportions=np.stack([random.dirichlet(settings.concentration * mixtures[c]) for c in samples.condition]),
    )


def draw_cells(
    random: np.random.Generator, settings: Settings, samples: Samples, genes: Genes, effects: Effects
) -> Cells:
    """Cells sample by sample, so that only one sample's rates are ever dense."""
    types = np.arange(len(settings.type_names))
    markers = settings.marker_strength * (genes.marker_of == types[:, None])  # (cell types, genes)
    kinds, runs, counts = [], [], []
    for s, size in enumerate(effects.n_cells):
        stage = settings.stages[samples.condition[s]]
        kind = random.choice(types, size, p=effects.proportions[s])
        active = (random.random(size) < settings.programme_share) & settings.acts_in[kind] & (stage > 0)
        resting = effects.base + markers + effects.patients[samples.patient[s]] + effects.batches[samples.batch[s]]
        running = resting + stage * settings.programme_strength * genes.programme
        shares = np.stack([_softmax(resting), _softmax(running)])  # (2, cell types, genes)
        library = _log_normal(random, settings.library_size, settings.library_spread, size)
        mean = shares[active.astype(int), kind] * library[:, None]
        counts.append(sparse.csr_matrix(_negative_binomial(random, mean, settings.dispersion), dtype=np.float32))
        kinds.append(kind)
        runs.append(active)
    sample = np.repeat(np.arange(effects.n_cells.size), effects.n_cells)
    return Cells(sample, np.concatenate(kinds), np.concatenate(runs), sparse.vstack(counts, format="csr"))


def _negative_binomial(random: np.random.Generator, mean: np.ndarray, dispersion: float) -> np.ndarray:
    """Poisson counts whose rates vary by a gamma factor of mean 1 and variance `dispersion`."""
    if dispersion > 0:
        mean = mean * (dispersion * random.standard_gamma(1.0 / dispersion, mean.shape))
    return random.poisson(mean)


def _log_normal(random: np.random.Generator, mean: float, spread: float, size: int) -> np.ndarray:
    return mean * np.exp(random.normal(-0.5 * spread**2, spread, size))


def _softmax(rates: np.ndarray) -> np.ndarray:
    grown = np.exp(rates - rates.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def _numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{k:0{max(2, len(str(count)))}d}" for k in range(1, count + 1)]


def _prefixes(names: Sequence[str]) -> list[str]:
    """Beginnings of marker names, all different.

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


def _check_names(names: Sequence[str], parameter: str) -> list[str]:
    found = [names] if isinstance(names, str) else list(names)
    if not found or not all(isinstance(name, str) and name for name in found) or len(set(found)) < len(found):
        raise ValueError(f"{parameter} are {found}: expected names, each of them once")
    return found


def _sample_counts(given: int | Sequence[int], n_conditions: int) -> list[int]:
    counts = [given] * n_conditions if isinstance(given, numbers.Integral) else list(given)  # type: ignore[arg-type]
    if len(counts) != n_conditions or not all(_WHOLE[0](count) for count in counts):
        expected = f"a whole number of at least 1, or one for each of {n_conditions} conditions"
        raise ValueError(f"n_samples_per_condition is {given!r}: expected {expected}")
    return [int(count) for count in counts]


def _proportions(cell_types: Mapping[str, float] | Sequence[str]) -> tuple[list[str], np.ndarray]:
    names = _check_names(list(cell_types), "cell_types")
    given = list(cell_types.values()) if isinstance(cell_types, Mapping) else [1.0] * len(names)
    for name, value in zip(names, given, strict=True):
        if not isinstance(value, numbers.Real) or not math.isfinite(value) or value <= 0:
            raise ValueError(f"the proportion of cell type {name!r} is {value!r}: expected a number above 0")
    return names, np.array(given, dtype=float) / sum(given)
