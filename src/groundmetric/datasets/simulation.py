"""The model behind `make_cohort`: its parameters, and how it draws genes, samples and counts."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

# What a parameter must be: a test, and how to say it.
_WHOLE = (lambda value: isinstance(value, numbers.Integral) and int(value) >= 1, "a whole number of at least 1")
_COUNT = (lambda value: isinstance(value, numbers.Integral) and int(value) >= 0, "a whole number of at least 0")
_POSITIVE = (lambda value: value > 0, "a number above 0")
_SPREAD = (lambda value: value >= 0, "a number of at least 0")
_SHARE = (lambda value: 0 <= value <= 1, "a number from 0 to 1")
_ANY = (lambda value: True, "a number")
_EXPECTED = {
    "n_genes": _WHOLE, "samples_per_patient": _WHOLE, "n_batches": _WHOLE,
    "n_markers": _COUNT, "n_programme_genes": _COUNT,
    "cells_per_sample": _POSITIVE, "concentration": _POSITIVE, "library_size": _POSITIVE,
    "cells_spread": _SPREAD, "patient_strength": _SPREAD, "batch_strength": _SPREAD, "gene_spread": _SPREAD,
    "library_spread": _SPREAD, "dispersion": _SPREAD,
    "programme_share": _SHARE, "confounding": _SHARE,
    "marker_strength": _ANY, "programme_strength": _ANY, "composition_strength": _ANY,
}  # fmt: skip


@dataclass
class Settings:
    """The parameters of `make_cohort`, checked. Shorthands are resolved: a number of samples per condition, names with
    proportions, the name of the programme's cell type."""

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
