"""The comparison of the paper for anyone's data: the learner against the baselines, written into a folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from .. import baselines, pl
from ..estimators import GroundMetricLearner
from ..evaluation import (
    Comparison,
    GroundMetricLearnerCV,
    PermutationTest,
    compare,
    folds,
    leave_one_group_out,
    permutation_test,
    shuffled,
)
from ..evaluation.feasibility import Split
from ..evaluation.running import Cohort, fit
from ..safe_files import write_whole
from .cohorts import Labelled
from .figures import draw_scores, save
from .keeping import without_nan
from .selected import SelectedFeatures

OWN = ("learned", "defaults")
NAMES = (*OWN, *baselines.BASELINES)
# What is compared unless other methods are named: those that take seconds rather than minutes.
USUAL = ("learned", "euclidean", "cosine", "pca", "lda", "pseudobulk", "logistic", "composition")
# Each class counts the same in the score, and so it does in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"


@dataclass(frozen=True)
class Splitting:
    """How samples are divided: "splits" (shuffled), "folds" or "leave group out"; a function of the labels."""

    kind: str
    number: int
    groups: list | None
    seed: int

    def __call__(self, y: np.ndarray) -> list[Split]:
        if self.kind == "leave group out":
            if self.groups is None:
                raise ValueError("to leave a group out, groups are needed: give the column that holds them")
            return leave_one_group_out(self.groups)
        make = folds if self.kind == "folds" else shuffled
        return make(y, groups=self.groups, n_splits=self.number, random_state=self.seed)


def make_methods(names: Sequence[str], cohort: Labelled, seed: int) -> dict[str, Any]:
    """Methods by name: "learned" (with its nested search), "defaults" (without), and the baselines.

    >>> import groundmetric as gm
    >>> list(make_methods(["learned", "lda"], Labelled(*gm.datasets.synth_2d(0), None, None, []), 0))
    ['learned', 'lda']
    """
    if not names:
        raise ValueError("no methods: at least one is needed")
    methods = {name: _method(name, seed) for name in names}
    if cohort.rule is None:
        return methods
    return {name: SelectedFeatures(method, cohort.rule) for name, method in methods.items()}


def _method(name: str, seed: int) -> Any:
    if name == "learned":
        return GroundMetricLearnerCV(random_state=seed)
    if name == "defaults":
        return GroundMetricLearner(random_state=seed)
    if name not in baselines.BASELINES:
        raise ValueError(f"no method is called {name!r}: expected some of {', '.join(NAMES)}")
    method = baselines.by_name(name)
    return method.set_params(random_state=seed) if "random_state" in method.get_params() else method


def evaluate(
    cohort: Labelled,
    folder: Path,
    *,
    methods: Sequence[str] = USUAL,
    splitting: str = "splits",
    number: int = 10,
    n_permutations: int = 0,
    n_jobs: int | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    max_points: int | None = 2000,
    resume: Path | None = None,
    seed: int = 0,
    verbose: int = 0,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Compare methods on a cohort, and write results.md, .csv and .json and figures into the folder.

    Parameters
    ----------
    cohort : Labelled: Distributions, labels, groups or None, a rule for features or None (all), notes
    methods : names; the first is compared with all others
    splitting, number : "splits" or "folds" and how many, or "leave group out"
    n_permutations : of labels, to test the first method against chance; each costs a whole evaluation of it
    max_points : of either side of a split that are voted on at cell level
    resume : folder where finished fits are kept
    """
    split = Splitting(splitting, number, cohort.groups, seed)
    splits = split(cohort.y)
    chosen = make_methods(methods, cohort, seed)
    log(f"comparing {len(chosen)} methods on {len(splits)} splits of {len(cohort.D)} samples")
    found = compare(
        chosen, cohort.D, cohort.y, splits=splits, groups=cohort.groups, class_weight=CLASS_WEIGHT,
        max_points=max_points, clustering="test", n_jobs=n_jobs, time_limit=time_limit, memory_limit=memory_limit,
        resume=resume, verbose=verbose,
    )  # fmt: skip
    found.notes += [*cohort.notes, *_notes(cohort, max_points)]
    test = None
    if n_permutations:
        log(f"permuting labels {n_permutations} times")
        again = splits if splitting == "leave group out" else number if splitting == "folds" else split
        test = permutation_test(
            chosen[methods[0]], cohort.D, cohort.y, splits=again, groups=cohort.groups, n_permutations=n_permutations,
            score=SCORE, class_weight=CLASS_WEIGHT, n_jobs=n_jobs, random_state=seed, verbose=verbose,
        )  # fmt: skip
    log("drawing")
    pictures = draw(found, chosen, cohort, folder)
    return _write(found, test, cohort, pictures, folder)


def _notes(cohort: Labelled, max_points: int | None) -> list[str]:
    notes = []
    if cohort.rule is not None:
        rule = "with variance above the average" if cohort.rule == "variance" else f"the {cohort.rule} most variable"
        notes.append(f"features are chosen anew from the training samples of every split: {rule}")
    if max_points is not None:
        notes.append(f"at cell level, at most {max_points:,} cells of either side of a split vote or are voted on")
    return notes


def draw(found: Comparison, methods: dict[str, Any], cohort: Labelled, folder: Path) -> list[str]:
    """Scores of all methods; samples by the first method, learned from the first training part, the others hollow."""
    rows = {}
    for method in found.methods:
        estimate = found.estimate(method, SCORE)
        rows[method] = {SCORE: {"mean": estimate.value, "low": estimate.low, "high": estimate.high}}
    pictures = [draw_scores({"samples": {"rows": rows}}, SCORE, folder, "scores", columns=1)]
    first = found.methods[0]
    if found.status(first) != "ok":
        return pictures
    train, _ = found.splits[0]
    known = Cohort(cohort.D, np.asarray(found.labels), np.asarray(found.classes), cohort.groups)
    fitted = fit(methods[first], cohort.D[train], known, train)
    if not hasattr(fitted, "distances"):
        return pictures
    distances = fitted.distances(cohort.D)
    with mpl.rc_context(pl.STYLE):
        figure = Figure(figsize=(7.0, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        pl.embedding(distances, found.labels, left, train=train)
        pl.heatmap(distances, found.labels, right)
        return [*pictures, save(figure, folder, "samples")]


def _write(
    found: Comparison, test: PermutationTest | None, cohort: Labelled, pictures: list[str], folder: Path
) -> dict[str, Any]:
    labels = dict(Counter(map(str, cohort.y.tolist())))
    text = [f"# {len(cohort.D)} samples: {', '.join(f'{count} {label}' for label, count in labels.items())}"]
    if test is not None:
        text.append(
            f"{found.methods[0]}, against chance: {SCORE.replace('_', ' ')} {test.statistic:.2f}, p = {test.p:.3g} "
            f"({test.null.size} permutations of {test.exchanged}; {test.arrangements} arrangements in all)"
        )
    learned = f"samples by {found.methods[0]}, learned from the first training part (filled), and their distances"
    shown = {"scores.png": "scores of all methods", "samples.png": learned}
    text += [found.to_markdown(), *(f"![{shown[name]}]({name})" for name in pictures)]
    write_whole(folder / "results.md", ["\n\n".join(text).encode() + b"\n"])
    found.to_csv(folder / "results.csv")
    permuted = None if test is None else test.to_dict()
    content = {"comparison": found.to_dict(), "permutation_test": permuted}
    write_whole(folder / "results.json", [json.dumps(content).encode() + b"\n"])
    return without_nan(
        {
            "n_samples": len(cohort.D),
            "n_points": int(cohort.D.points.shape[0]),
            "n_features": int(cohort.D.shape[1]),
            "labels": labels,
            "n_splits": len(found.splits),
            "scores": {method: _scores(found, method) for method in found.methods},
            "against_chance": None if test is None else {"p": test.p, "n_permutations": int(test.null.size)},
            "notes": found.notes,
            "files": ["results.md", "results.csv", "results.json", *pictures, "run.json"],
        }
    )


def _scores(found: Comparison, method: str) -> dict[str, Any]:
    estimate = found.estimate(method, SCORE)
    row: dict[str, Any] = {
        "status": found.status(method), SCORE: estimate.value, "low": estimate.low, "high": estimate.high,
        "seconds": found.seconds(method),
    }  # fmt: skip
    if method != found.methods[0]:
        lead = found.difference(found.methods[0], method, SCORE)
        row |= {"lead_of_first": lead.value, "lead_low": lead.low, "lead_high": lead.high}
        row["p_holm"] = found.against(found.methods[0], SCORE)[method][1]
    return row
