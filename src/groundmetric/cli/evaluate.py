"""`groundmetric evaluate`: compare methods on held-out samples of a cohort; write tables and figures."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import (
    add_cells,
    add_command,
    add_jobs,
    add_permutations,
    add_replace,
    add_seed,
    add_values,
    aligned,
    check_free,
    count,
    label_counts,
    log,
    new_folder,
    print_findings,
    write_findings,
)

# Modules that are heavy are imported by the functions that need them: `--help` does not.
if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from .._anndata.cohort import Labelled
    from ..evaluation import Comparison, PermutationTest
    from ..learning.splits import Split

# Names of the baselines on the command line, and their classes.
BASELINES = {
    "euclidean": "Euclidean", "manhattan": "Manhattan", "cosine": "Cosine", "nca": "NCA", "pca": "PCAEuclidean",
    "lda": "LinearDiscriminant", "pseudobulk": "PseudobulkNeighbors", "logistic": "PseudobulkLogistic",
    "composition": "Composition",
}  # fmt: skip
METHODS = (
    "methods; the first is compared with all others. groundmetric: the ensemble with its classifier, as in learn and "
    "predict; ggml: one metric (GroundMetricLearner) and votes of the nearest samples; all: every method; baselines: "
    "euclidean, manhattan, cosine, nca, pca, lda, pseudobulk, logistic, composition"
)
PERMUTATIONS = "of labels, to test the first method against chance; each costs a whole evaluation (%(default)s)"
CV = ("shuffle-split", "k-fold", "leave-one-group-out")
OWN = ("groundmetric", "ggml")
# What is compared unless other methods are named: those that take seconds rather than minutes.
USUAL = ("groundmetric", "ggml", "euclidean", "cosine", "pca", "lda", "pseudobulk", "logistic", "composition")
# Each class counts the same in the score, and so it does in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "evaluate", "compare the learned metric with other methods on held-out samples of an .h5ad file",
        "groundmetric evaluate cells.h5ad --sample sample --label disease --group patient -o comparison --jobs -1",
        interrupted="fits that are done are kept, and --resume goes on with them",
    )  # fmt: skip
    add_cells(command)
    command.add_argument("--methods", metavar="A,B,…", help=METHODS)
    command.add_argument("--cv", choices=CV, default="shuffle-split",
                         help="random splits, a fifth tested; folds, every sample tested once; or every --group tested "
                         "once (%(default)s)")  # fmt: skip
    command.add_argument("--n-splits", metavar="N", type=count, help="splits (10) or folds (5)")
    add_values(command, "variance; this and N choose from the training samples of each split")
    command.add_argument("--min-cells", metavar="N", type=count, default=1,
                         help="leave out samples with fewer (%(default)s)")  # fmt: skip
    add_permutations(command, PERMUTATIONS)
    command.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    add_seed(command, "of the draw, the splits and the methods")
    add_jobs(command)
    add_replace(command)


def run(options: argparse.Namespace) -> None:
    from .._internal.cache import cache_files, remove_cache  # heavy, and not needed for --help

    fits = _unfinished(options.output)
    check_free(options.output, replace=options.replace, beside=cache_files(fits))
    if fits.exists() and not options.resume:
        if not options.replace:
            raise ValueError(
                f"{str(fits)!r} holds an unfinished run: give --resume to go on with it, or --replace to start anew"
            )
        remove_cache(fits)
    with new_folder(
        options.output, replace=options.replace, inputs=[options.cells], beside=cache_files(fits)
    ) as folder:
        findings = _evaluate(options, folder, fits)
        write_findings(folder, findings)
    remove_cache(fits)
    print_findings(findings, summary(findings), as_json=options.json)
    log(f"wrote {', '.join(findings['files'])} to {options.output}")


def _unfinished(output: str) -> Path:
    """File of the fits that are done, until all are: beside the folder, or in a folder that cannot be replaced."""
    folder = Path(os.path.realpath(output))
    mounted = folder.is_dir() and (os.path.ismount(folder) or not os.access(folder.parent, os.W_OK))
    return folder / "unfinished" if mounted else folder.with_name(f"{folder.name}.unfinished")


def _evaluate(options: argparse.Namespace, folder: Path, fits: Path) -> dict[str, Any]:
    from .. import __version__
    from .._anndata.cohort import read_cohort

    methods = USUAL if options.methods is None else _names() if options.methods == "all" else options.methods.split(",")
    if options.cv == "leave-one-group-out" and options.group is None:
        raise ValueError("--cv leave-one-group-out needs --group, the column of obs that holds the groups")
    n_splits = options.n_splits or (5 if options.cv == "k-fold" else 10)
    log(f"reading {options.cells}")
    cohort = read_cohort(
        options.cells, options.sample, options.label, group_key=options.group, layer=options.layer,
        use_rep=options.rep, genes=options.genes, n_cells=options.cells_per_sample, min_cells=options.min_cells,
        random_state=options.seed,
    )  # fmt: skip
    # Unknown methods and impossible splits are named before the long work.
    make_methods(methods, cohort, options.seed)
    Splitter(options.cv, n_splits, cohort.groups, options.seed)(cohort.y)
    findings = evaluate(
        cohort, folder, methods=methods, cv=options.cv, n_splits=n_splits, n_permutations=options.permutations,
        n_jobs=options.jobs, resume=fits, seed=options.seed, verbose=1, log=log,
    )  # fmt: skip
    return {"groundmetric": __version__, "command": "evaluate", "cells": str(options.cells), **findings}


@dataclass(frozen=True)
class Splitter:
    """Splits of the samples from their labels: "shuffle-split", "k-fold" or "leave-one-group-out"."""

    cv: str
    n_splits: int
    groups: list[Hashable] | None
    seed: int

    def __call__(self, y: np.ndarray) -> list[Split]:
        from ..evaluation import folds, leave_one_group_out, shuffled

        if self.cv == "leave-one-group-out":
            if self.groups is None:
                raise ValueError(
                    "cv is 'leave-one-group-out', but there are no groups: give the column that holds them"
                )
            return leave_one_group_out(self.groups)
        make = folds if self.cv == "k-fold" else shuffled
        return make(y, groups=self.groups, n_splits=self.n_splits, random_state=self.seed)


def make_methods(names: Sequence[str], cohort: Labelled, seed: int) -> dict[str, Any]:
    """Methods by name: "groundmetric" (the ensemble), "ggml" (one metric), and the baselines.

    >>> import groundmetric as gm
    >>> from groundmetric._anndata.cohort import Labelled
    >>> list(make_methods(["groundmetric", "lda"], Labelled(*gm.datasets.synth_2d(0), None, None, []), 0))
    ['groundmetric', 'lda']
    """
    from ..estimators.preprocessing import SelectedFeatures

    if not names:
        raise ValueError("no methods: at least one is needed")
    methods = {name: _method(name, seed) for name in names}
    if cohort.rule is None:
        return methods
    return {name: SelectedFeatures(method, cohort.rule) for name, method in methods.items()}


def _names() -> tuple[str, ...]:
    """Names of all methods."""
    return (*OWN, *BASELINES)


def _method(name: str, seed: int) -> Any:
    from .. import baselines
    from ..estimators import GroundMetricLearner, TransportClassifier

    own = {"groundmetric": TransportClassifier, "ggml": GroundMetricLearner}
    if name in own:
        return own[name](random_state=seed)
    if name not in BASELINES:
        raise ValueError(f"no method is called {name!r}: expected some of {', '.join(_names())}")
    method = getattr(baselines, BASELINES[name])()
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
    n_jobs : int or None
        As in `evaluation.compare`.
    max_points : int or None
        Cells of either side of a split that are voted on at cell level.
    resume : path or None
        File of the fits that are done.
    """
    from ..evaluation import Voting, compare

    splitter = Splitter(cv, n_splits, cohort.groups, seed)
    splits = splitter(cohort.y)
    chosen = make_methods(methods, cohort, seed)
    log(f"comparing {len(chosen)} methods on {len(splits)} splits of {len(cohort.D)} samples")
    found = compare(
        chosen, cohort.D, cohort.y, cv=splits, groups=cohort.groups,
        voting=Voting(class_weight=CLASS_WEIGHT, max_points=max_points), clustering=True,
        n_jobs=n_jobs, resume=resume, verbose=verbose,
    )  # fmt: skip
    found.notes += [*cohort.notes, *_notes(cohort, max_points)]
    if "groundmetric" in methods:
        found.notes.append("groundmetric is the TransportClassifier that learn fits and predict uses")
    test = None
    if n_permutations:
        log(f"permuting labels {n_permutations} times")
        again = {"leave-one-group-out": splits, "k-fold": n_splits, "shuffle-split": splitter}[cv]
        test = _against_chance(
            chosen[methods[0]], cohort, again, n_permutations=n_permutations, n_jobs=n_jobs, random_state=seed,
            verbose=verbose,
        )  # fmt: skip
    log("drawing")
    pictures = draw(found, chosen, cohort, folder)
    return _write(found, test, cohort, pictures, folder)


def _against_chance(method: Any, cohort: Labelled, cv: Any, **options: Any) -> PermutationTest:
    """An ensemble holds samples out itself, on features that are chosen once: their variance knows no labels."""
    from ..estimators import TransportClassifier
    from ..estimators.preprocessing import SelectedFeatures, with_features
    from ..evaluation import Voting, permutation_test

    inner, D = method, cohort.D
    if isinstance(method, SelectedFeatures) and isinstance(method.method, TransportClassifier):
        inner = method.method
        D = with_features(D, SelectedFeatures(inner, method.rule).choose(D))
    if isinstance(inner, TransportClassifier):
        return permutation_test(inner, D, cohort.y, groups=cohort.groups, **options)
    return permutation_test(
        method,
        D,
        cohort.y,
        cv=cv,
        groups=cohort.groups,
        score=SCORE,
        voting=Voting(class_weight=CLASS_WEIGHT),
        **options,
    )


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
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from .. import pl
    from ..pl.style import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.7, 0.8 + 0.18 * len(found.methods)), layout="constrained")
        estimates = {method: found.estimate(method, SCORE) for method in found.methods}
        rows = {method: (estimate.value, estimate.low, estimate.high) for method, estimate in estimates.items()}
        name = f"{SCORE.replace('_', ' ')}, 95% interval (dashed: guessing)"
        pl.scores(rows, ax=figure.subplots(), reference=1 / len(found.classes), name=name)
        pictures = [_save(figure, folder / "scores.png")]
        distances = _distances(found, methods[found.methods[0]], cohort)
        if distances is not None:
            figure = Figure(figsize=(7.0, 3.4), layout="constrained")
            left, right = figure.subplots(1, 2)
            pl.embedding(distances, found.labels, ax=left, train=found.splits[0][0])
            pl.heatmap(distances, found.labels, ax=right)
            pictures.append(_save(figure, folder / "samples.png"))
    return pictures


def _distances(found: Comparison, method: Any, cohort: Labelled) -> np.ndarray | None:
    """Distances between all samples by a method that learns from the first training part; None if it has none."""
    import numpy as np

    from ..evaluation._run import Cohort, fit

    if found.status(found.methods[0]) != "ok":
        return None
    train, _ = found.splits[0]
    known = Cohort(cohort.D, np.asarray(found.labels), np.asarray(found.classes), cohort.groups)
    fitted = fit(method, cohort.D[train], known, train)
    return fitted.distances(cohort.D) if hasattr(fitted, "distances") else None


def _save(figure: Figure, path: Path) -> str:
    from .._internal.files import replacing

    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=150, pil_kwargs={"optimize": True})
    return path.name


def _write(
    found: Comparison, test: PermutationTest | None, cohort: Labelled, pictures: list[str], folder: Path
) -> dict[str, Any]:
    from .._internal.files import write_whole
    from .._internal.tables import without_nan

    labels = dict(Counter(map(str, cohort.y.tolist())))
    text = [f"# {len(cohort.D)} samples: {label_counts(labels)}"]
    if test is not None:
        text.append(
            f"{found.methods[0]}, against chance: {test.score.replace('_', ' ')} {test.statistic:.2f}, "
            f"p = {test.p:.3g} ({test.null.size} permutations of {test.exchanged}; {test.arrangements} arrangements in "
            "all)"
        )
    learned = f"samples by {found.methods[0]}, learned from the first training part (filled), and their distances"
    shown = {"scores.png": "scores of all methods with 95% intervals, and of guessing", "samples.png": learned}
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
            "estimators": found.estimators,
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


def summary(findings: dict[str, Any]) -> str:
    """A line per method."""
    rows = [["method", "balanced accuracy", "95% interval", "lead of first", "p (Holm)", "seconds per split"]]
    for method, row in findings["scores"].items():
        cells = [_number(row["balanced_accuracy"]), _pair(row["low"], row["high"])]
        cells += [_number(row.get("lead_of_first"), "+.2f"), _number(row.get("p_holm"), ".3f")]
        rows.append([method, *cells, _number(row["seconds"], ".1f")] if row["status"] == "ok" else
                    [method, row["status"], "", "", "", ""])  # fmt: skip
    chance = findings["against_chance"]
    more = (
        "" if chance is None else f"\nagainst chance  p = {chance['p']:.3g} ({chance['n_permutations']} permutations)"
    )
    first = next(iter(findings["scores"]))
    scored = f"\n{first} is {findings['estimators'][first]}; the others are in results.md"
    return aligned(rows) + more + scored


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def _pair(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
