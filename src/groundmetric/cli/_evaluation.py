"""Work of `groundmetric evaluate`: a comparison of methods on a cohort, written as tables and figures."""

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
from .._anndata.cohort import Labelled
from .._internal.files import replacing, write_whole
from .._internal.tables import without_nan
from ..estimators import GroundMetricLearner, GroundMetricLearnerCV
from ..estimators.preprocessing import SelectedFeatures
from ..evaluation import Comparison, PermutationTest, compare, folds, leave_one_group_out, permutation_test, shuffled
from ..evaluation._run import Cohort, fit
from ..pl.style import STYLE
from ..supervision.splits import Split

OWN = ("learned", "defaults")
NAMES = (*OWN, *baselines.BASELINES)
# What is compared unless other methods are named: those that take seconds rather than minutes.
USUAL = ("learned", "euclidean", "cosine", "pca", "lda", "pseudobulk", "logistic", "composition")
# Each class counts the same in the score, and so it does in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"


@dataclass(frozen=True)
class Splitter:
    """How samples are divided, as scikit-learn names it: a function of the labels.

    Attributes
    ----------
    cv : str
        "shuffle-split", "k-fold" or "leave-one-group-out".
    n_splits : int
        Number of splits or folds; not used to leave one group out.
    groups : list or None
        The group of each sample, which is never divided.
    seed : int
        Seed of the draw.
    """

    cv: str
    n_splits: int
    groups: list | None
    seed: int

    def __call__(self, y: np.ndarray) -> list[Split]:
        if self.cv == "leave-one-group-out":
            if self.groups is None:
                raise ValueError(
                    "cv is 'leave-one-group-out', but there are no groups: give the column that holds them"
                )
            return leave_one_group_out(self.groups)
        make = folds if self.cv == "k-fold" else shuffled
        return make(y, groups=self.groups, n_splits=self.n_splits, random_state=self.seed)


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
    cv: str = "shuffle-split",
    n_splits: int = 10,
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
    cohort : Labelled
        Samples with labels, groups or None, a rule for features or None (all), notes.
    folder : path
        Where files are written.
    methods : sequence of str
        Names; the first is compared with all others.
    cv, n_splits : str and int
        How samples are divided, see `Splitter`.
    n_permutations : int
        Permutations of labels, to test the first method against chance; each costs a whole evaluation of it.
    n_jobs, time_limit, memory_limit
        As in `evaluation.compare`.
    max_points : int or None
        Cells of either side of a split that are voted on at cell level.
    resume : path or None
        File where finished fits are kept.
    """
    splitter = Splitter(cv, n_splits, cohort.groups, seed)
    splits = splitter(cohort.y)
    chosen = make_methods(methods, cohort, seed)
    log(f"comparing {len(chosen)} methods on {len(splits)} splits of {len(cohort.D)} samples")
    found = compare(
        chosen, cohort.D, cohort.y, cv=splits, groups=cohort.groups, class_weight=CLASS_WEIGHT,
        max_points=max_points, clustering="test", n_jobs=n_jobs, time_limit=time_limit, memory_limit=memory_limit,
        resume=resume, verbose=verbose,
    )  # fmt: skip
    found.notes += [*cohort.notes, *_notes(cohort, max_points)]
    test = None
    if n_permutations:
        log(f"permuting labels {n_permutations} times")
        again = {"leave-one-group-out": splits, "k-fold": n_splits, "shuffle-split": splitter}[cv]
        test = permutation_test(
            chosen[methods[0]], cohort.D, cohort.y, cv=again, groups=cohort.groups, n_permutations=n_permutations,
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
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.7, 0.8 + 0.18 * len(found.methods)), layout="constrained")
        estimates = {method: found.estimate(method, SCORE) for method in found.methods}
        rows = {method: (estimate.value, estimate.low, estimate.high) for method, estimate in estimates.items()}
        pl.scores(rows, figure.subplots(), name=SCORE.replace("_", " "))
        pictures = [_save(figure, folder / "scores.png")]
        distances = _distances(found, methods[found.methods[0]], cohort)
        if distances is not None:
            figure = Figure(figsize=(7.0, 3.4), layout="constrained")
            left, right = figure.subplots(1, 2)
            pl.embedding(distances, found.labels, left, train=found.splits[0][0])
            pl.heatmap(distances, found.labels, right)
            pictures.append(_save(figure, folder / "samples.png"))
    return pictures


def _distances(found: Comparison, method: Any, cohort: Labelled) -> np.ndarray | None:
    """Distances between all samples by a method that learns from the first training part; None if it has none."""
    if found.status(found.methods[0]) != "ok":
        return None
    train, _ = found.splits[0]
    known = Cohort(cohort.D, np.asarray(found.labels), np.asarray(found.classes), cohort.groups)
    fitted = fit(method, cohort.D[train], known, train)
    return fitted.distances(cohort.D) if hasattr(fitted, "distances") else None


def _save(figure: Figure, path: Path) -> str:
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110, pil_kwargs={"optimize": True})
    return path.name


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
