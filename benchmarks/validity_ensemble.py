"""Held-out scores, permutation tests, probabilities, maps and intervals of the ensemble, measured by simulation.

`validity.py` runs the functions in `ROWS`.

Cohorts are those of `validity_interpret.cohort`. Most ensembles have 4 members of two kinds, which keeps the table
affordable; "default settings" says otherwise. New patients come from the population of the training patients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from validity_interpret import Cohort, Row, cohort, error_rate, invariance, mean_limits, share_limits

import groundmetric as gm

# Tolerances: a row holds unless the confidence limits exclude the nominal value by more than this. Without tolerances,
# sampling error alone would make one row in forty short.
ACCURACY, LOG_PROBABILITY, R2, CALIBRATION = 0.02, 0.01, 0.02, 0.04
SMALL = {"n_members": 4, "kinds": ("univariate", "anova")}
DEFAULT: dict[str, Any] = {}


def at_most(
    area: str, number: str, design: str, values: Sequence[float], nominal: float, tolerance: float = 0.0
) -> Row:
    """Return a row of a mean that should be at most `nominal`; NaN values (not defined) are ignored."""
    limits = mean_limits(np.asarray(values)[np.isfinite(values)])
    return Row(area, number, design, *limits, nominal, limits[1] <= nominal + tolerance)


def at_least(
    area: str, number: str, design: str, values: Sequence[float], nominal: float, tolerance: float = 0.0
) -> Row:
    """Return a row of a mean that should be at least `nominal`."""
    limits = mean_limits(values)
    return Row(area, number, design, *limits, nominal, limits[2] >= nominal - tolerance)


def near(area: str, number: str, design: str, values: Sequence[float], nominal: float, tolerance: float) -> Row:
    """Return a row of a mean that should be `nominal`, within the tolerance."""
    limits = mean_limits(values)
    return Row(area, number, design, *limits, nominal, limits[1] - tolerance <= nominal <= limits[2] + tolerance)


def descriptive(area: str, number: str, design: str, values: Sequence[float]) -> Row:
    """Return a row without a nominal value, of a number that promises none."""
    return Row(area, number, design, *mean_limits(values), float("nan"), True)


@dataclass(frozen=True)
class Design:
    """Labels, patients and batches of the samples of a cohort, and the options of `cohort`.

    Attributes
    ----------
    labels : array of shape (n_samples,)
        Class codes (integers) or numbers (floats).
    patients, batches : array of int of shape (n_samples,) or None
        Patient and batch of each sample.
    cells : tuple of int or None
        Cells per sample of each class; None: `options["cells"]` for all.
    options : dict
        Options of `cohort`.
    settings : dict
        Parameters of the ensemble.
    survival : bool
        Whether labels are hazards, from which censored survival times are drawn.
    """

    labels: np.ndarray
    patients: np.ndarray | None = None
    batches: np.ndarray | None = None
    cells: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=lambda: SMALL)
    survival: bool = False

    @property
    def numeric(self) -> bool:
        return self.labels.dtype.kind == "f"

    def draw(self, rng: np.random.Generator, n_new: int = 0, **options: Any) -> tuple[Cohort, Cohort]:
        """Return training patients and `n_new` new patients per class (of numbers, ten times as many in all)."""
        n, patients, batches = self.labels.size, self.patients, self.batches
        labels = rng.permutation(self.labels) if self.numeric else self.labels
        values = np.unique(self.labels)
        new = rng.choice(values, 10 * n_new) if self.numeric else np.repeat(values, n_new)
        patients = np.arange(n) if patients is None else patients
        batches = np.zeros(n, int) if batches is None else batches
        settings = {"n_features": 40, "cells": 12, **self.options, **options}
        cells = np.broadcast_to(settings.pop("cells"), n + new.size)
        if self.cells is not None:
            ranks = np.searchsorted(np.quantile(values, [0.5]), labels) if self.numeric else labels
            cells = np.r_[np.array(self.cells)[ranks], np.repeat(max(self.cells), new.size)]
        drawn = cohort(
            rng, np.r_[labels, new], np.r_[patients, patients.max() + 1 + np.arange(new.size)],
            np.r_[batches, np.arange(new.size) % (batches.max() + 1)], cells=cells, **settings,
        )  # fmt: skip
        parts = np.split(np.arange(n + new.size), [n])
        return tuple(Cohort(drawn.D[k], drawn.y[k], drawn.patients[k], drawn.batches[k]) for k in parts)  # type: ignore

    def arguments(self, case: Cohort) -> dict[str, np.ndarray]:
        """Return `groups` and `strata` of a cohort, where the design has them."""
        groups = {} if self.patients is None else {"groups": case.patients}
        return groups if self.batches is None else groups | {"strata": case.batches}

    def model(self, seed: int) -> Any:
        kinds = (gm.TransportClassifier, gm.TransportRegressor, gm.TransportSurvival)
        kind = kinds[2 if self.survival else int(self.numeric)]
        return kind(gm.GroundMetricEnsemble(**self.settings), random_state=seed)


def survival_times(rng: np.random.Generator, hazards: np.ndarray) -> np.ndarray:
    """Return exponential survival times with log-hazards `hazards`, a third of them censored."""
    times = rng.exponential(np.exp(-hazards))
    censored = rng.exponential(2.0 * np.exp(-hazards.mean()), hazards.size)
    columns = [times <= censored, np.minimum(times, censored)]
    return np.array(list(zip(*columns, strict=True)), dtype=[("event", bool), ("time", float)])


TWO = np.repeat([0, 1], 8)
CONFOUNDED = np.r_[np.repeat([0, 1], [8, 2]), np.repeat([0, 1], [2, 8])]  # 0.8 of a class in one of two batches
UNEVEN = np.repeat(np.arange(12), np.repeat([4, 1], 6))
STAGES = np.repeat(np.arange(4.0), 5)
AGES = np.linspace(-1.0, 1.0, 20)

# Every design without an effect: no label has anything to do with the cells.
NULL: dict[str, Design] = {
    "6 + 6 patients": Design(np.repeat([0, 1], 6)),
    "8 + 8 patients, default settings": Design(TWO, settings=DEFAULT),
    "30 v 90 cells": Design(TWO, cells=(30, 90), options={"patient_sd": 0.2}),
    "10 v 100 cells": Design(TWO, cells=(10, 100), options={"patient_sd": 0.2}),
    "5 v 40 cells": Design(TWO, cells=(5, 40), options={"patient_sd": 0.2}),
    "10 v 100 cells, skewed features": Design(TWO, cells=(10, 100), options={"patient_sd": 0.2, "skewed": True}),
    "4 v 12 patients": Design(np.repeat([0, 1], [4, 12])),
    "classes of two, 2 v 6": Design(np.repeat([0, 1], [2, 6])),
    "classes of two, 2 + 2 + 8": Design(np.repeat([0, 1, 2], [2, 2, 8])),
    "three classes, 5 + 5 + 5": Design(np.repeat([0, 1, 2], 5)),
    "12 patients × 3 samples": Design(np.repeat(np.arange(12) % 2, 3), np.repeat(np.arange(12), 3),
                                      options={"sample_sd": 0.5}),
    "4 v 1 samples per patient, 6 + 6": Design((UNEVEN >= 6).astype(int), UNEVEN, options={"sample_sd": 0.5}),
    "8 pairs": Design(np.tile([0, 1], 8), np.repeat(np.arange(8), 2), options={"sample_sd": 0.5}),
    "2 batches, confounded 0.8": Design(np.repeat([0, 1], 10), batches=CONFOUNDED, options={"batch_sd": 2.0}),
    "four ordered stages, 20 patients": Design(STAGES),
    "numbers, 20 patients": Design(AGES),
    "numbers, 10 v 100 cells by number": Design(AGES, cells=(10, 100), options={"patient_sd": 0.2}),
    "numbers, 10 patients × 2 visits": Design(AGES, np.repeat(np.arange(10), 2), options={"sample_sd": 0.5}),
    "numbers, 2 batches": Design(AGES, batches=np.arange(20) % 2, options={"batch_sd": 2.0}),
    "survival, 24 patients": Design(np.zeros(24), survival=True),
}  # fmt: skip


def held_out(seed: int, n_cohorts: int = 48, designs: Sequence[str] = tuple(NULL)) -> list[Row]:
    """Held-out accuracy, score, R² and concordance without an effect: at most chance."""
    rows = []
    for name in designs:
        design, results = NULL[name], []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 10, list(NULL).index(name), r])
            case, _ = design.draw(rng)
            y = survival_times(rng, design.labels) if design.survival else case.y
            model = design.model(r).fit(case.D, y, **design.arguments(case))
            results.append(_held_out_gain(model, design, case))
        values = np.array(results)
        if design.survival:
            rows.append(at_most("held-out", "concordance_, no effect", name, values[:, 0], 0.5, ACCURACY))
        elif design.numeric:
            rows.append(at_most("held-out", "R² of held_out_, no effect", name, values[:, 0], 0.0, R2))
        else:
            chance = 1.0 / np.unique(design.labels).size
            rows.append(at_most("held-out", "balanced accuracy, no effect", name, values[:, 0], chance, ACCURACY))
        rows.append(at_most("held-out", "score_ minus chance_, no effect", name, values[:, 1], 0.0, LOG_PROBABILITY))
    return rows


def _held_out_gain(model: Any, design: Design, case: Cohort) -> tuple[float, float]:
    """Return the balanced accuracy (R², concordance) of held-out predictions, and the gain of the score over chance."""
    ensemble = model.ensemble_
    gain = ensemble.score_ - ensemble.chance_
    if design.survival:
        return model.concordance_, gain
    if design.numeric:
        return r2(case.y, ensemble.held_out_), gain
    return balanced_accuracy(case, ensemble.held_out_.argmax(axis=1)), gain


def r2(y: np.ndarray, predicted: np.ndarray) -> float:
    return float(1.0 - np.sum(np.square(y - predicted)) / np.sum(np.square(y - y.mean())))


def balanced_accuracy(case: Cohort, predicted: np.ndarray) -> float:
    """Return the accuracy averaged over classes and batches: within a batch, the batch cannot predict the class."""
    cells = {(label, batch) for label, batch in zip(case.y, case.batches, strict=True)}
    hits = predicted == case.y
    return float(np.mean([hits[(case.y == label) & (case.batches == batch)].mean() for label, batch in cells]))


def modalities(seed: int, n_cohorts: int = 24) -> list[Row]:
    """Held-out accuracy and score of two modalities without an effect; in one modality, a class has fewer cells."""
    values = []
    for r in range(n_cohorts):
        rng = np.random.default_rng([seed, 11, r])
        parts = [NULL[name].draw(rng)[0] for name in ("8 + 8 patients, default settings", "30 v 90 cells")]
        renamed = [gm.Distributions(p.D.points, np.repeat([f"s{k:02d}" for k in range(16)], p.D.sizes)) for p in parts]
        model = gm.MultimodalClassifier(gm.GroundMetricEnsemble(**SMALL), random_state=r)
        model.fit(dict(zip(("rna", "protein"), renamed, strict=True)), TWO)
        values.append((np.mean(model.held_out_.argmax(axis=1) == TWO), model.score_ - model.chance_))
    accuracy, gain = np.array(values).T
    design = "two modalities, 30 v 90 cells in one"
    return [
        at_most("held-out", "balanced accuracy, no effect", design, accuracy, 0.5, ACCURACY),
        at_most("held-out", "score_ minus chance_, no effect", design, gain, 0.0, LOG_PROBABILITY),
    ]


WEAK, STRONG = {"effect": 0.5, "n_effect": 6}, {"effect": 1.2, "n_effect": 6}
EFFECT: dict[str, Design] = {
    "6 + 6 patients, weak effect": Design(np.repeat([0, 1], 6), options=WEAK),
    "10 + 10 patients, strong effect": Design(np.repeat([0, 1], 10), options=STRONG),
    "8 + 8 patients, strong effect, default settings": Design(TWO, options=STRONG, settings=DEFAULT),
    "4 v 12 patients, strong effect": Design(np.repeat([0, 1], [4, 12]), options=STRONG),
    "6 + 6 + 6 patients, weak effect": Design(np.repeat([0, 1, 2], 6), options=WEAK),
    "4 v 1 samples per patient, 6 + 6, strong effect": Design(
        (UNEVEN >= 6).astype(int), UNEVEN, options={"sample_sd": 0.5, **STRONG}),
    "2 batches, confounded 0.8, strong effect": Design(
        np.repeat([0, 1], 10), batches=CONFOUNDED, options={"batch_sd": 1.0, **STRONG}),
    "numbers, 20 patients, effect": Design(AGES, options=STRONG),
    "four ordered stages, 20 patients, effect": Design(STAGES, options=WEAK),
    "survival, 24 patients, effect": Design(1.5 * np.linspace(-1.0, 1.0, 24), options=STRONG, survival=True),
}  # fmt: skip


def new_patients(seed: int, n_cohorts: int = 32, designs: Sequence[str] = tuple(EFFECT)) -> list[Row]:
    """Held-out scores minus scores on new patients (optimism), calibration of probabilities, and typicality."""
    rows = []
    for name in designs:
        design, results = EFFECT[name], []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 12, list(EFFECT).index(name), r])
            case, new = design.draw(rng, n_new=20)
            times = survival_times(rng, np.r_[case.y, new.y]) if design.survival else None
            y, new_y = (case.y, new.y) if times is None else np.split(times, [len(case.D)])
            model = design.model(r).fit(case.D, y, **design.arguments(case))
            predicted = model.predict_all(new.D)
            results.append(_compared(model, design, case.y, new.y, new_y, predicted.values))
        values = dict(zip(results[0], zip(*(result.values() for result in results), strict=True), strict=True))
        for number, column in values.items():
            row = near if number.startswith("prior") else at_most
            tolerance = LOG_PROBABILITY if number.startswith("score_") else CALIBRATION
            rows.append(row("new patients", number, name, column, 0.0, tolerance))
    return rows


def _compared(
    model: Any, design: Design, y: np.ndarray, new_y: np.ndarray, new_target: np.ndarray, values: np.ndarray
) -> dict[str, float]:
    """Return held-out minus new scores and, of probabilities, their mean minus the frequency that they state."""
    if design.survival:
        return {"concordance_ minus C of new patients": model.concordance_ - model_concordance(new_target, values)}
    if design.numeric:
        return {"R² of held_out_ minus R² of new patients": r2(y, model.ensemble_.held_out_) - r2(new_y, values)}
    probability = values[np.arange(len(new_y)), new_y]
    score = float(np.mean(np.log(np.clip(probability, 1e-3, 1.0))))
    frequency = np.r_[0.1, np.full(values.shape[1] - 1, 0.9 / (values.shape[1] - 1))]
    adjusted = values * frequency
    adjusted /= adjusted.sum(axis=1, keepdims=True)
    weights = frequency[new_y] / frequency[new_y].sum()
    return {
        "score_ minus score of new patients": model.ensemble_.score_ - score,
        "overconfidence of held_out_": overconfidence(y, model.ensemble_.held_out_),
        "overconfidence for new patients": overconfidence(new_y, values),
        "prior 0.1: overconfidence for new patients": overconfidence(new_y, adjusted, weights),
        "prior 0.1: mean probability minus 0.1": float(weights @ adjusted[:, 0]) - 0.1,
    }


def model_concordance(times: np.ndarray, risk: np.ndarray) -> float:
    return float(gm.evaluation.concordance_index(times, risk))


def overconfidence(y: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the mean probability of the predicted class minus the share of correct predictions, classes balanced."""
    if weights is None:
        weights = 1.0 / np.bincount(y)[y]
    hits = probabilities.argmax(axis=1) == y
    return float(np.average(probabilities.max(axis=1) - hits, weights=weights))


def typicality(seed: int, n_cohorts: int = 60) -> list[Row]:
    """Typicality of new patients of the training population, and how often they are called unfamiliar."""
    rows = []
    for k, (name, options) in enumerate({"40 features": {}, "200 features": {"n_features": 200}}.items()):
        unusual, distant = [], []
        for r in range(n_cohorts):
            case, new = Design(TWO, options=options, settings={"n_members": 1, "kinds": ("anova",)}).draw(
                np.random.default_rng([seed, 13, k, r]), n_new=10
            )
            model = gm.TransportClassifier(gm.GroundMetricEnsemble(1, kinds=("anova",)), random_state=r)
            predicted = model.fit(case.D, case.y).predict_all(new.D)
            unusual.append(np.mean(predicted.typicality <= 0.1))
            distant.append(np.mean(predicted.far))
        design = f"8 + 8 patients, {name}"
        rows.append(error_rate("new patients", "typicality ≤ 0.1, same population", design, mean_limits(unusual), 0.1))
        rows.append(
            error_rate("new patients", "UnfamiliarWarning, same population", design, mean_limits(distant), 0.05)
        )
    return rows


def association_rates(seed: int, n_cohorts: int = 80) -> list[Row]:
    """p ≤ 0.05 of the statistics of association alone, which need no fit, without an effect."""
    rows = []
    designs = {**NULL, **UNBALANCED}
    for k, (name, design) in enumerate(designs.items()):
        p = []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 14, k, r])
            case, _ = design.draw(rng, n_features=20, cells=6)
            y = survival_times(rng, design.labels) if design.survival else case.y
            p.append(_permutation_p(design, case, y, r, 99, statistic="association").p)
        rows.append(_rate(p, 0.05, 'p ≤ 0.05, statistic="association"', name))
    return rows


# Patients with more samples in the smaller or the larger class: their averages have unequal variances.
UNBALANCED = {
    f"4 v 1 samples per patient, {counts[0]} v {counts[1]}": Design(
        np.repeat(np.repeat([0, 1], counts), np.repeat([4, 1], counts)),
        np.repeat(np.arange(16), np.repeat([4, 1], counts)), options={"sample_sd": 0.5},
    )
    for counts in ((4, 12), (12, 4))
}  # fmt: skip
CHEAP = {"n_members": 1, "kinds": ("univariate",)}


def permutation_rates(seed: int, n_cohorts: int = 40) -> list[Row]:
    """p ≤ 0.2 of `permutation_test` and of the separation of the map, from 4 permutations, without an effect."""
    rows = []
    designs = {**NULL, **UNBALANCED}
    chosen = (
        "6 + 6 patients", "classes of two, 2 v 6", "three classes, 5 + 5 + 5", "4 v 1 samples per patient, 6 + 6",
        "4 v 1 samples per patient, 4 v 12", "8 pairs", "2 batches, confounded 0.8", "numbers, 20 patients",
        "survival, 24 patients",
    )  # fmt: skip
    for name in chosen:
        design, p = designs[name], []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 15, list(designs).index(name), r])
            case, _ = design.draw(rng, n_features=20, cells=6)
            y = survival_times(rng, design.labels) if design.survival else case.y
            test = _permutation_p(design, case, y, r, 4, **CHEAP)
            p.append([test.p, test.p_values["held-out score"], test.p_values["map separation"]])
        for number, column in zip(("p", "p of the held-out score", "p of the map"), zip(*p, strict=True), strict=True):
            rows.append(_rate(column, 0.2, f"{number} ≤ 0.2", name))
    return rows


def small_p_values(seed: int, n_cohorts: int = 60) -> list[Row]:
    """p ≤ 0.05 of `permutation_test` and of the separation of the map, from 19 permutations, without an effect."""
    rows = []
    for k, name in enumerate(("30 v 90 cells", "10 v 100 cells")):
        p = []
        for r in range(n_cohorts):
            case, _ = NULL[name].draw(np.random.default_rng([seed, 16, k, r]), n_features=20)
            test = _permutation_p(NULL[name], case, case.y, r, 19, **CHEAP)
            p.append([test.p, test.p_values["map separation"]])
        for number, column in zip(("p", "p of the map"), zip(*p, strict=True), strict=True):
            rows.append(_rate(column, 0.05, f"{number} ≤ 0.05", name))
    return rows


def _rate(p: Sequence[float], level: float, number: str, design: str) -> Row:
    return error_rate(
        "permutation_test", f"{number}, no effect", design, share_limits(np.array(p) <= level + 1e-9), level
    )


def _permutation_p(
    design: Design, case: Cohort, y: np.ndarray, seed: int, n_permutations: int, statistic: str = "combined",
    **settings: Any,
) -> Any:  # fmt: skip
    target = "survival" if design.survival else "ordered" if design.numeric else "classes"
    return gm.evaluation.permutation_test(
        gm.GroundMetricEnsemble(target=target, **settings), case.D, y, n_permutations=n_permutations,
        statistic=statistic, random_state=seed, **design.arguments(case),
    )  # fmt: skip


DIFFERENCES = {
    "3 strong features (1.5 sd)": {"effect": 1.5, "n_effect": 3},
    "20 weak features (0.6 sd)": {"effect": 0.6, "n_effect": 20},
    "10 features of spread × 1.6": {"spread": 1.6, "n_effect": 10},
}


def power(seed: int, n_cohorts: int = 30) -> list[Row]:
    """Power of `permutation_test` at p ≤ 0.05 minus that of PERMANOVA of means and of the largest t statistic."""
    rows, y = [], np.repeat([0, 1], 10)
    for k, (name, options) in enumerate(DIFFERENCES.items()):
        rejected = []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 17, k, r])
            case, _ = Design(y).draw(rng, n_features=100, cells=10, **options)
            test = _permutation_p(Design(y), case, y, r, 19, **SMALL)
            labels = np.array([y, *(rng.permutation(y) for _ in range(19))])
            means = case.D.means()
            gaps = np.array([means[code == 1].mean(axis=0) - means[code == 0].mean(axis=0) for code in labels])
            deviations = np.array([
                np.sqrt(sum(means[code == c].var(axis=0, ddof=1) for c in (0, 1)) / 10) for code in labels
            ])  # fmt: skip
            statistics = [np.square(gaps).sum(axis=1), np.abs(gaps / deviations).max(axis=1)]
            rejected.append([test.p <= 0.0501, *(np.mean(values >= values[0]) <= 0.0501 for values in statistics)])
        ours, *others_rejected = np.array(rejected, dtype=float).T
        for title, theirs in zip(("PERMANOVA of means", "largest t of means"), others_rejected, strict=True):
            number = f"power {ours.mean():.2f}, minus that of {title} ({theirs.mean():.2f})"
            rows.append(at_least("permutation_test", number, f"10 + 10, {name}", ours - theirs, 0.0))
    return rows


def maps(seed: int, n_cohorts: int = 60) -> list[Row]:
    """Separation of the classes in a map of noise by a test that ignores how the distances were learned."""
    y, events = np.repeat([0, 1], 10), []
    for r in range(n_cohorts):
        rng = np.random.default_rng([seed, 18, r])
        case, _ = Design(y).draw(rng, n_features=200, cells=8)
        distances = gm.GroundMetricEnsemble(**SMALL, random_state=r).fit(case.D, y).distances_
        centre = np.eye(20) - 1 / 20
        values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
        z = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
        labels = [y, *(rng.permutation(y) for _ in range(99))]
        gaps = np.array([np.linalg.norm(z[code == 0].mean(axis=0) - z[code == 1].mean(axis=0)) for code in labels])
        events.append(bool(np.mean(gaps >= gaps[0]) <= 0.05))
    limits = share_limits(events)
    number = "classes apart in the map, naive p ≤ 0.05, no effect"
    return [Row("map", number, "10 + 10, 200 features", *limits, 0.2, limits[1] <= 0.2)]


def relevance(seed: int, n_cohorts: int = 30) -> list[Row]:
    """Intervals of `annotation_relevance`: three cell types; one or none differs between classes."""
    rows, y, types = [], np.repeat([0, 1], 8), np.tile([0, 1, 2], 10)
    centres = 3.0 * np.eye(3, 10)
    for k, effect in enumerate((0.0, 1.5)):
        results = []
        for r in range(n_cohorts):
            rng = np.random.default_rng([seed, 19, k, r])
            points = centres[types] + rng.normal(size=(16, 30, 10)) + 0.3 * rng.normal(size=(16, 1, 10))
            points[8:, types == 0, 3:6] += effect
            names = np.repeat([f"s{i:02d}" for i in range(16)], 30)
            D = gm.Distributions(points.reshape(-1, 10), names)
            ensemble = gm.GroundMetricEnsemble(**SMALL, random_state=r).fit(D, y)
            result = gm.interpret.annotation_relevance(ensemble, D, y, np.tile(types, 16), n_draws=300, random_state=r)
            low, high = result.interval
            results.append([result.total_interval[0] > 0, np.mean((low > 0) | (high < 0)),
                          np.mean((low[1:] > 0) | (high[1:] < 0)), low[0] <= 1.0 <= high[0]])  # fmt: skip
        exceeded, _, excluded, covered = np.array(results, dtype=float).T
        design = f"3 cell types, {'one differs' if effect else 'no effect'}, 8 + 8"
        if effect:
            number = "interval of a type without effect excludes 0"
            rows.append(error_rate("annotation_relevance", number, design, mean_limits(excluded), 0.05))
            number = "interval of the planted type contains its share"
            rows.append(at_least("annotation_relevance", number, design, covered, 0.95))
        else:
            number = "total_interval above 0"
            rows.append(error_rate("annotation_relevance", number, design, share_limits(exceeded > 0), 0.05))
    return rows


def importance(seed: int, n_cohorts: int = 16) -> list[Row]:
    """Columns "low", "high" and "selected" of `get.importance`, which describe members and promise no coverage."""
    selected, covered = [], []
    for r in range(n_cohorts):
        rng = np.random.default_rng([seed, 20, r])
        noise, _ = Design(TWO).draw(rng, n_features=100)
        selected.append(_importance_table(noise, r)["selected"].max())
        first, second = (_importance_table(Design(TWO).draw(rng, n_features=100, **STRONG)[0], r) for _ in range(2))
        planted = [f"g{k:03d}" for k in range(STRONG["n_effect"])]
        covered.append(
            second.loc[planted, "importance"].between(*(first.loc[planted, end] for end in ("low", "high"))).mean()
        )
    return [
        descriptive("get.importance", "largest `selected`, no effect", "8 + 8, 100 features", selected),
        descriptive(
            "get.importance", "importance in another cohort within low … high", "8 + 8, 6 features differ", covered
        ),
    ]


def _importance_table(case: Cohort, seed: int) -> Any:
    import anndata as ad
    import pandas as pd

    samples = np.repeat(case.D.names, case.D.sizes)
    obs = pd.DataFrame({"sample": samples, "label": np.repeat(case.y, case.D.sizes).astype(str)})
    genes = pd.DataFrame(index=[f"g{k:03d}" for k in range(case.D.shape[1])])
    adata = ad.AnnData(case.D.points, obs.set_axis(obs.index.astype(str)), genes)
    gm.tl.learn(adata, "sample", "label", genes="all", random_state=seed)
    return gm.get.importance(adata)


def invariances(seed: int, n_folds: int = 3) -> list[Row]:
    """Changes by labels of the same fold, by the order of samples and of kinds, and by the company of a new sample."""
    rows = []
    for name in ("6 + 6 patients", "three classes, 5 + 5 + 5", "4 v 1 samples per patient, 6 + 6",
                 "2 batches, confounded 0.8", "numbers, 20 patients", "survival, 24 patients"):  # fmt: skip
        design = NULL[name]
        rng = np.random.default_rng([seed, 21, list(NULL).index(name)])
        case, _ = design.draw(rng, n_features=20)
        y = survival_times(rng, design.labels) if design.survival else case.y
        rows.append(
            invariance(
                "held-out", "change by labels of the same fold", name, _own_labels(design, case, y, rng, n_folds)
            )
        )
    case, new = Design(TWO, cells=(60, 200), options=WEAK).draw(np.random.default_rng([seed, 22]), n_new=4)
    model = Design(TWO).model(0).fit(case.D, TWO)
    in_one_call = model.predict_proba(new.D)
    one_by_one = np.vstack([model.predict_proba(new.D[[k]]) for k in range(len(new.D))])
    order = np.random.default_rng([seed, 23]).permutation(16)
    shuffled = gm.GroundMetricEnsemble(**{**SMALL, "kinds": SMALL["kinds"][::-1]}, random_state=0)
    shuffled.fit(case.D[order], TWO[order])
    change = np.abs(shuffled.held_out_ - model.ensemble_.held_out_[order]).max()
    text = "change by the order of samples and of kinds"
    rows.append(invariance("held-out", text, "8 + 8, 60 v 200 cells", float(change)))
    change = float(np.abs(in_one_call - one_by_one).max())
    rows.append(invariance("new patients", "change by other samples in the call", "8 + 8, 60 v 200 cells", change))
    return rows


def _own_labels(design: Design, case: Cohort, y: np.ndarray, rng: np.random.Generator, n_folds: int) -> float:
    """Return the largest change of held-out predictions by exchanging labels inside their fold."""
    target = "survival" if design.survival else "ordered" if design.numeric else "classes"

    def fitted(labels: np.ndarray, folds: np.ndarray | None) -> gm.GroundMetricEnsemble:
        ensemble = gm.GroundMetricEnsemble(2, target=target, cv=folds, random_state=0)
        return ensemble.fit(case.D, labels, **design.arguments(case))

    folds = fitted(y, None).folds_
    reference, change = fitted(y, folds).held_out_, 0.0
    for fold in np.unique(folds)[:n_folds]:
        labels = y.copy()
        rows = np.flatnonzero(folds == fold)
        patients = np.unique(case.patients[rows])
        source = dict(zip(patients, np.roll(patients, 1 + int(rng.integers(2))), strict=True))
        first = {patient: int(np.flatnonzero(case.patients == patient)[0]) for patient in patients}
        labels[rows] = [y[first[source[case.patients[row]]]] for row in rows]
        change = max(change, float(np.abs(fitted(labels, folds).held_out_ - reference)[folds == fold].max()))
    return change


ROWS: list[Callable[..., list[Row]]] = [
    held_out, modalities, new_patients, typicality, association_rates, permutation_rates, small_p_values, power, maps,
    relevance, importance, invariances,
]  # fmt: skip
