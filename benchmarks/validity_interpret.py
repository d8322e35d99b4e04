"""Rows of the validity table, simulated cohorts, and error rates of `feature_significance` and `batch_effects`.

`validity.py` runs the functions in `ROWS`.

Cohorts are Gaussian unless a design says otherwise: the cells of a sample scatter with standard deviation 1 around the
sample mean, sample means around patient means, patient means with standard deviation `patient_sd` around the mean of
the label and batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

import groundmetric as gm
from groundmetric.interpret import batch_effects, feature_significance

Rng = np.random.Generator


@dataclass(frozen=True)
class Row:
    """One number that a user reads, measured by simulation.

    Parameters
    ----------
    area : str
        Function that reports the number.
    number : str
        The number and its event, e.g. "p ≤ 0.05, no effect".
    design : str
        Simulated design.
    measured, low, high : float
        Mean over simulated cohorts and its 95 % confidence limits.
    nominal : float
        Value that the number promises.
    holds : bool
        Whether the measured value is compatible with the promise.
    """

    area: str
    number: str
    design: str
    measured: float
    low: float
    high: float
    nominal: float
    holds: bool


def mean_limits(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of independent values and its 95 % confidence limits by Student's t."""
    values = np.asarray(values, dtype=np.float64)
    error = values.std(ddof=1) / np.sqrt(values.size) * stats.t.ppf(0.975, values.size - 1)
    return float(values.mean()), float(values.mean() - error), float(values.mean() + error)


def share_limits(events: Sequence[bool]) -> tuple[float, float, float]:
    """Return a share of independent events and its 95 % confidence limits by Clopper and Pearson."""
    n, k = len(events), int(np.sum(events))
    test = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    return k / n, float(test.low), float(test.high)


def error_rate(area: str, number: str, design: str, limits: tuple[float, float, float], nominal: float) -> Row:
    """Return a row of an error rate: it holds unless the lower limit is above 1.2 times the nominal rate."""
    return Row(area, number, design, *limits, nominal, limits[1] <= 1.2 * nominal)


def difference(area: str, number: str, design: str, values: Sequence[float], slack: float) -> Row:
    """Return a row of a difference that should be at least 0: it holds if the upper limit is at least `-slack`."""
    limits = mean_limits(values)
    return Row(area, number, design, *limits, 0.0, limits[0] >= -slack or limits[2] >= 0.0)


def invariance(area: str, number: str, design: str, change: float, tolerance: float = 1e-9) -> Row:
    """Return a row of a change that should be 0."""
    return Row(area, number, design, change, change, change, 0.0, change <= tolerance)


def report(rows: Sequence[Row]) -> str:
    """Return the rows as lines of text."""
    return "\n".join(
        f"{'holds' if row.holds else 'SHORT'}  {row.area:22} {row.number:44} {row.design:52} "
        f"{row.measured:+.4f} [{row.low:+.4f}, {row.high:+.4f}]  nominal {row.nominal:g}"
        for row in rows
    )


@dataclass(frozen=True)
class Cohort:
    """Distributions with label, patient and batch of each."""

    D: gm.Distributions
    y: np.ndarray
    patients: np.ndarray
    batches: np.ndarray


def cohort(
    rng: Rng,
    labels: np.ndarray,
    patients: np.ndarray | None = None,
    batches: np.ndarray | None = None,
    *,
    n_features: int = 60,
    cells: int | np.ndarray = 20,
    patient_sd: float = 1.0,
    sample_sd: float = 0.0,
    batch_sd: float = 0.0,
    effect: float = 0.0,
    n_effect: int = 0,
    spread: float = 1.0,
    correlation: float = 0.0,
    skewed: bool = False,
) -> Cohort:
    """Draw one sample per label; effects shift the first `n_effect` features, or multiply their spread, by label."""
    n = labels.size
    patients = np.arange(n) if patients is None else patients
    batches = np.zeros(n, int) if batches is None else batches

    def noise(size: int) -> np.ndarray:
        values = rng.normal(size=(size, n_features))
        if correlation:
            values = np.sqrt(1 - correlation) * values + np.sqrt(correlation) * rng.normal(size=(size, 1))
        return (np.exp(values) - np.exp(0.5)) / 2.16 if skewed else values

    means = patient_sd * noise(int(patients.max()) + 1)[patients] + sample_sd * rng.normal(size=(n, n_features))
    means += batch_sd * rng.normal(size=(int(batches.max()) + 1, n_features))[batches]
    means[:, :n_effect] += effect * labels[:, None]
    sizes = np.broadcast_to(cells, n)
    points = []
    for k in range(n):
        deviations = rng.normal(size=(sizes[k], n_features))
        deviations[:, :n_effect] *= spread ** labels[k]
        points.append(means[k] + deviations)
    names = np.repeat([f"s{k:03d}" for k in rng.permutation(n)], sizes)
    return Cohort(gm.Distributions(np.vstack(points), names), labels, patients, batches)


def _plain(rng: Rng, **options: object) -> Cohort:
    return cohort(rng, np.repeat([0, 1], 8), **options)


def _fewer_cells(counts: tuple[int, int], sizes: tuple[int, int]) -> Callable[..., Cohort]:
    def draw(rng: Rng, **options: object) -> Cohort:
        y = np.repeat([0, 1], counts)
        return cohort(rng, y, cells=np.where(y == 0, *sizes), patient_sd=0.2, **options)

    return draw


def _uneven_patients(counts: tuple[int, int]) -> Callable[..., Cohort]:
    def draw(rng: Rng, **options: object) -> Cohort:
        per_patient = np.repeat([4, 1], counts)
        patients = np.repeat(np.arange(sum(counts)), per_patient)
        return cohort(rng, np.repeat(np.repeat([0, 1], counts), per_patient), patients, sample_sd=0.5, **options)

    return draw


def _groups(rng: Rng, **options: object) -> Cohort:
    return cohort(rng, np.repeat(np.arange(12) % 2, 3), np.repeat(np.arange(12), 3), sample_sd=0.5, **options)


def _pairs(rng: Rng, **options: object) -> Cohort:
    return cohort(rng, np.tile([0, 1], 8), np.repeat(np.arange(8), 2), sample_sd=0.5, **options)


def _some_pairs(rng: Rng, **options: object) -> Cohort:
    """Four patients with both labels, ten with one."""
    patients = np.r_[np.repeat(np.arange(4), 2), np.arange(4, 14)]
    return cohort(rng, np.r_[np.tile([0, 1], 4), np.arange(10) % 2], patients, sample_sd=0.7, **options)


def _exception(rng: Rng, **options: object) -> Cohort:
    """Twelve patients with four samples each; one sample has another label."""
    y = np.repeat(np.arange(12) % 2, 4)
    y[0] = 1 - y[0]
    return cohort(rng, y, np.repeat(np.arange(12), 4), sample_sd=0.5, **options)


def _strata(confounded: float) -> Callable[..., Cohort]:
    def draw(rng: Rng, **options: object) -> Cohort:
        y = np.repeat([0, 1], 10)
        first = round(10 * confounded)
        batches = np.r_[np.repeat([0, 1], [first, 10 - first]), np.repeat([1, 0], [first, 10 - first])]
        return cohort(rng, y, batches=batches, **({"batch_sd": 2.0} | options))

    return draw


def _strata_and_groups(rng: Rng, **options: object) -> Cohort:
    """Every patient has a sample in each of two batches; labels are those of patients."""
    return cohort(
        rng, np.repeat(np.arange(12) % 2, 2), np.repeat(np.arange(12), 2), np.tile([0, 1], 12), sample_sd=0.5,
        **({"batch_sd": 2.0} | options),
    )  # fmt: skip


def _classes(counts: list[int]) -> Callable[..., Cohort]:
    def draw(rng: Rng, **options: object) -> Cohort:
        return cohort(rng, np.repeat(np.arange(len(counts)), counts), **options)

    return draw


def _numbers(rng: Rng, **options: object) -> Cohort:
    return cohort(rng, rng.uniform(-1, 1, 20), **options)


def _numbers_in_groups(rng: Rng, **options: object) -> Cohort:
    """Numbers that vary between and within patients, such as the age at several visits."""
    patients = np.repeat(np.arange(10), 2)
    y = rng.uniform(-1, 1, 10)[patients] + 0.3 * rng.uniform(-1, 1, 20)
    return cohort(rng, y, patients, sample_sd=0.5, **options)


DESIGNS: dict[str, Callable[..., Cohort]] = {
    "8 + 8 patients": _plain,
    "10 v 100 cells, 10 + 10": _fewer_cells((10, 10), (10, 100)),
    "10 v 100 cells, 4 v 12": _fewer_cells((4, 12), (10, 100)),
    "10 v 100 cells, 12 v 4": _fewer_cells((12, 4), (10, 100)),
    "4 v 1 samples per patient, 6 + 6": _uneven_patients((6, 6)),
    "4 v 1 samples per patient, 4 v 12": _uneven_patients((4, 12)),
    "4 v 1 samples per patient, 12 v 4": _uneven_patients((12, 4)),
    "12 patients × 3 samples": _groups,
    "8 pairs": _pairs,
    "4 pairs and 10 single patients": _some_pairs,
    "12 patients × 4 samples, one exception": _exception,
    "2 batches, balanced": _strata(0.5),
    "2 batches, confounded 0.75": _strata(0.75),
    "12 patients, each in 2 batches": _strata_and_groups,
    "three classes, 6 + 6 + 6": _classes([6, 6, 6]),
    "classes of two, 2 v 10": _classes([2, 10]),
    "numbers, 20 patients": _numbers,
    "numbers, 10 patients × 2 visits": _numbers_in_groups,
}


def _options(case: Cohort) -> dict[str, object]:
    options: dict[str, object] = {"target": "ordered" if case.y.dtype.kind == "f" else "classes"}
    if np.unique(case.patients).size < case.patients.size:
        options["groups"] = case.patients
    if case.batches.any():
        options["strata"] = case.batches
    return options


def null_rates(seed: int, n_cohorts: int = 40) -> list[Row]:
    """Share of features with p ≤ 0.05 without effects, by permutation and parametric."""
    rows = []
    settings = [(name, draw, {}) for name, draw in DESIGNS.items()]
    settings.append(("8 + 8 patients, skewed features", _plain, {"skewed": True}))
    for k, (name, draw, options) in enumerate(settings):
        shares = []
        for r in range(n_cohorts):
            case = draw(np.random.default_rng([seed, 1, k, r]), **options)
            result = feature_significance(case.D, case.y, n_permutations=299, random_state=r, **_options(case))
            shares.append([np.mean(result.discoveries.p <= 0.05), np.mean(result.parametric_p <= 0.05)])
        for number, column in zip(("p ≤ 0.05", "parametric p ≤ 0.05"), np.array(shares).T, strict=True):
            rows.append(error_rate("feature_significance", f"{number}, no effect", name, mean_limits(column), 0.05))
    return rows


def linear_model(case: Cohort) -> np.ndarray:
    """p-values of a linear model of patient means: label, batches, and patients in paired designs."""
    means = case.D.means()
    keys = np.array([f"{p}/{label}" for p, label in zip(case.patients, case.y, strict=True)])
    _, first, unit = np.unique(keys, return_index=True, return_inverse=True)
    average = (unit == np.arange(first.size)[:, None]).astype(float)
    average /= average.sum(axis=1, keepdims=True)
    y, patients = case.y[first], case.patients[first]
    nuisance = average @ (case.batches[:, None] == np.unique(case.batches)).astype(float)
    if np.unique(patients).size < patients.size and case.y.dtype.kind != "f":
        nuisance = np.hstack([nuisance, (patients[:, None] == np.unique(patients)).astype(float)])
    label = y[:, None] if y.dtype.kind == "f" else (y[:, None] == np.unique(y)[1:]).astype(float)
    values, full = average @ means, np.hstack([nuisance, label])
    rss = [np.square(values - x @ np.linalg.lstsq(x, values)[0]).sum(axis=0) for x in (nuisance, full)]
    rank = [np.linalg.matrix_rank(x) for x in (nuisance, full)]
    f = (rss[0] - rss[1]) / (rank[1] - rank[0]) / (rss[1] / (len(y) - rank[1]))
    return stats.f.sf(f, rank[1] - rank[0], len(y) - rank[1])


POWER = {
    "8 + 8 patients": 1.8,
    "12 patients × 3 samples": 2.0,
    "8 pairs": 1.2,
    "4 pairs and 10 single patients": 1.8,
    "2 batches, balanced": 1.6,
    "2 batches, confounded 0.75": 1.8,
    "12 patients, each in 2 batches": 2.0,
    "three classes, 6 + 6 + 6": 1.2,
    "numbers, 20 patients": 2.0,
}


def discovery_rates(seed: int, n_cohorts: int = 30) -> list[Row]:
    """False discovery rate and power at q < 0.1 with effects, against a linear model of patient means."""
    rows = []
    for k, (name, effect) in enumerate(POWER.items()):
        for correlation in (0.0, 0.6) if k < 2 else (0.0,):
            design = name + (f", features correlated {correlation:g}" if correlation else "")
            results = []
            for r in range(n_cohorts):
                rng = np.random.default_rng([seed, 2, k, r])
                case = DESIGNS[name](rng, n_features=100, n_effect=10, effect=effect, correlation=correlation)
                result = feature_significance(case.D, case.y, n_permutations=1999, random_state=r, **_options(case))
                q = [result.discoveries.q, result.parametric_q, stats.false_discovery_control(linear_model(case))]
                results.append([(np.mean(values[:10] < 0.1), _false_share(values < 0.1, 10)) for values in q])
            power, false = np.array(results).transpose(2, 1, 0)
            for number, shares in zip(("q", "parametric q"), false[:2], strict=True):
                rows.append(
                    error_rate("feature_significance", f"FDR, {number} < 0.1", design, mean_limits(shares), 0.1)
                )
            for number, selected in zip(("q", "parametric q"), power[:2], strict=True):
                text = f"power, {number}, minus linear model ({power[2].mean():.2f})"
                rows.append(difference("feature_significance", text, design, selected - power[2], 0.02))
    return rows


def _false_share(selected: np.ndarray, n_effect: int) -> float:
    return float(np.sum(selected[n_effect:]) / max(np.sum(selected), 1))


def spread_power(seed: int, n_cohorts: int = 20) -> list[Row]:
    """Power for features that differ in spread only, minus that of a linear model of patient means."""
    gains = []
    for r in range(n_cohorts):
        case = _plain(np.random.default_rng([seed, 3, r]), n_features=100, n_effect=10, spread=1.8)
        q = feature_significance(case.D, case.y, n_permutations=1999, random_state=r).discoveries.q
        gains.append(np.mean(q[:10] < 0.1) - np.mean(stats.false_discovery_control(linear_model(case))[:10] < 0.1))
    return [
        difference("feature_significance", "power, spread × 1.8, minus linear model", "8 + 8 patients", gains, -0.5)
    ]


def family_wise(seed: int, n_cohorts: int = 200) -> list[Row]:
    """Share of cohorts without effect in which any feature has q < 0.1 or a family-wise p ≤ 0.05."""
    rows = []
    for k, correlation in enumerate((0.0, 0.9)):
        events = []
        for r in range(n_cohorts):
            case = _plain(np.random.default_rng([seed, 4, k, r]), cells=8, correlation=correlation)
            selected = feature_significance(case.D, case.y, n_permutations=199, random_state=r).discoveries
            events.append([selected.q.min() < 0.1, selected.family_p.min() <= 0.05])
        design = f"8 + 8 patients, features correlated {correlation:g}"
        for (number, nominal), column in zip(
            (("q < 0.1", 0.1), ("family_p ≤ 0.05", 0.05)), zip(*events, strict=True), strict=True
        ):
            rows.append(
                error_rate("feature_significance", f"any {number}, no effect", design, share_limits(column), nominal)
            )
    return rows


def batches(seed: int, n_cohorts: int = 300) -> list[Row]:
    """Share of cohorts with p ≤ 0.05 for a batch that has no effect on distances, and none on labels."""
    rows = []
    designs: dict[str, tuple[np.ndarray, int, bool]] = {
        "12 patients × 4 samples": (np.repeat(np.arange(12), 4), 0, False),
        "12 patients × 4 samples, one exception": (np.repeat(np.arange(12), 4), 1, False),
        "12 patients × 4 samples, 6 exceptions": (np.repeat(np.arange(12), 4), 6, False),
        "16 patients with 1 to 6 samples": (np.repeat(np.arange(16), 1 + np.arange(16) % 6), 0, False),
        "16 patients with 1 to 6 samples, 2 exceptions": (np.repeat(np.arange(16), 1 + np.arange(16) % 6), 2, False),
        "10 patients × 4 samples, two labels each": (np.repeat(np.arange(10), 4), 1, True),
    }
    for k, (design, (patients, n_exceptions, paired)) in enumerate(designs.items()):
        p, association_p = [], []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 5, k, r])
            n = patients.max() + 1
            x = rng.normal(size=(n, 10))[patients] + 0.3 * rng.normal(size=(patients.size, 10))
            batch = (rng.permutation(n) % 2)[patients]
            moved = rng.choice(patients.size, n_exceptions, replace=False)
            batch[moved] = 1 - batch[moved]
            y = np.arange(patients.size) % 2 if paired else (rng.permutation(n) % 2)[patients]
            distances = np.linalg.norm(x[:, None] - x, axis=2)
            result = batch_effects(distances, y, {"batch": batch}, groups=patients, n_permutations=199, random_state=r)
            p.append(bool(result.p[0] <= 0.05))
            association_p.append(bool(result.association_p[0] <= 0.05))
        for number, events in (("p ≤ 0.05", p), ("association p ≤ 0.05", association_p)):
            rows.append(error_rate("batch_effects", f"{number}, no effect", design, share_limits(events), 0.05))
    return rows


def invariances(seed: int) -> list[Row]:
    """Change of p- and q-values by the order of samples and by offsets of features."""
    case = _uneven_patients((6, 6))(np.random.default_rng([seed, 6]), cells=np.arange(30) + 20, effect=1.0, n_effect=5)
    order = np.random.default_rng([seed, 7]).permutation(len(case.D))

    def q_of(D: gm.Distributions, rows: np.ndarray) -> np.ndarray:
        result = feature_significance(D[rows], case.y[rows], groups=case.patients[rows], random_state=0)
        return np.r_[result.discoveries.p, result.discoveries.q, result.parametric_p]

    straight = np.arange(len(case.D))
    reference = q_of(case.D, straight)
    shifted = case.D.with_points(case.D.points + 1e8)
    changes = {
        "change by the order of samples": q_of(case.D, order),
        "change by adding 1e8 to features": q_of(shifted, straight),
    }
    return [
        invariance(
            "feature_significance", number, "6 × 4 v 6 × 1 samples", float(np.abs(selected - reference).max()), 1e-5
        )
        for number, selected in changes.items()
    ]


ROWS: list[Callable[[int], list[Row]]] = [
    null_rates, discovery_rates, spread_power, family_wise, batches, invariances,
]  # fmt: skip
