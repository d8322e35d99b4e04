"""`groundmetric evaluate`: compare methods on held-out samples of a cohort; write tables and figures."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import options as shared

# Modules that are heavy are imported by the functions that need them: `--help` does not.
if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from .._anndata.cohort import Labelled
    from ..evaluation import Comparison, PermutationTest
    from ..learning.splits import Split

# Keys of `baselines.standard`.
BASELINES = (
    "pseudobulk", "moments", "type-means", "composition", "embedding", "transport-kernel", "pseudobulk-5-nn",
    "transport-5-nn",
)  # fmt: skip
METHODS = (
    "methods; the first is compared with all others (all). groundmetric: the ensemble with its classifier, as in learn "
    "and predict; ggml: one metric (GroundMetricLearner), 5-NN. Logistic regression on: pseudobulk (means), moments "
    "(means and standard deviations), type-means (means of cell types), composition (log-ratios of cell types), "
    "embedding (kernel mean embedding), transport-kernel (Euclidean transport); 5-NN: pseudobulk-5-nn, transport-5-nn"
)
PERMUTATIONS = "of labels, to test the first method against chance; each costs a whole evaluation (%(default)s)"
CV = ("shuffle-split", "k-fold", "leave-one-group-out")
LEARNED = ("groundmetric", "ggml")
ALL = (*LEARNED, *BASELINES)
# Classes have equal weight in the score and in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
MAX_POINTS = 2000  # cells of either side of a split that are voted on at cell level


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, run, "evaluate", "compare the learned metric with other methods on held-out samples of an .h5ad file",
        "groundmetric evaluate cells.h5ad --sample sample --label disease --group patient -o comparison --jobs -1",
        interrupted="finished fits are saved, and --resume continues from them",
    )  # fmt: skip
    shared.add_options(command, "cells", "sample", "label", "group")
    shared.add_options(command, "output", required=True)
    command.add_argument("--methods", metavar="A,B,…", help=METHODS)
    command.add_argument("--cv", choices=CV, default="shuffle-split",
                         help="random splits, a fifth tested; folds, every sample tested once; or every --group tested "
                         "once (%(default)s)")  # fmt: skip
    command.add_argument("--n-splits", metavar="N", type=shared.count, help="splits (10) or folds (5)")
    shared.add_values(command, "variance; this and N choose from the training samples of each split")
    command.add_argument("--min-cells", metavar="N", type=shared.count, default=1,
                         help="leave out samples with fewer (%(default)s)")  # fmt: skip
    shared.add_options(command, "cell_type")
    shared.add_options(command, "permutations", help=PERMUTATIONS)
    command.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    shared.add_options(command, "seed", help="seed of the draw, the splits and the methods (0)")
    shared.add_options(command, "jobs", "replace")


def run(options: argparse.Namespace) -> None:
    from .._internal.cache import cache_files, remove_cache  # heavy, and not needed for --help

    fits = _unfinished(options.output)
    shared.check_free(options.output, replace=options.replace, beside=cache_files(fits))
    if fits.exists() and not options.resume:
        if not options.replace:
            raise ValueError(
                f"{str(fits)!r} holds an unfinished run: give --resume to continue it, or --replace to start again"
            )
        remove_cache(fits)
    beside = cache_files(fits)
    with shared.new_folder(options.output, replace=options.replace, inputs=[options.cells], beside=beside) as folder:
        findings = _evaluate(options, folder, fits)
        shared.write_findings(folder, findings)
    remove_cache(fits)
    shared.print_findings(findings, summary(findings), as_json=options.json)
    shared.log(f"wrote {', '.join(findings['files'])} to {options.output}")


def _unfinished(output: str) -> Path:
    """Return the file of finished fits: next to the output folder, or inside it if the folder cannot be replaced."""
    folder = Path(os.path.realpath(output))
    mounted = folder.is_dir() and (os.path.ismount(folder) or not os.access(folder.parent, os.W_OK))
    return folder / "unfinished" if mounted else folder.with_name(f"{folder.name}.unfinished")


def _evaluate(options: argparse.Namespace, folder: Path, fits: Path) -> dict[str, Any]:
    """Compare methods on a cohort, and write results.md, .csv and .json and figures into the folder.

    `fits` is the file of finished fits.
    """
    from .. import __version__
    from .._anndata.cohort import read_cohort
    from ..evaluation import Voting, compare

    names = ALL if options.methods in (None, "all") else options.methods.split(",")
    if options.cv == "leave-one-group-out" and options.group is None:
        raise ValueError("--cv leave-one-group-out needs --group, the column of obs that holds the groups")
    n_splits = options.n_splits or (5 if options.cv == "k-fold" else 10)
    shared.log(f"reading {options.cells}")
    cohort = read_cohort(
        options.cells, options.sample, options.label, group_key=options.group, layer=options.layer,
        use_rep=options.rep, genes=options.genes, n_cells=options.cells_per_sample, min_cells=options.min_cells,
        cell_type_key=options.cell_type, random_state=options.seed,
    )  # fmt: skip
    methods = make_methods(names, cohort, options.seed)
    split = partial(_split, cv=options.cv, n_splits=n_splits, groups=cohort.groups, seed=options.seed)
    splits = split(cohort.y)
    shared.log(f"comparing {len(methods)} methods on {len(splits)} splits of {len(cohort.D)} samples")
    comparison = compare(
        methods, cohort.D, cohort.y, cv=splits, groups=cohort.groups,
        voting=Voting(class_weight=CLASS_WEIGHT, max_points=MAX_POINTS), n_jobs=options.jobs,
        resume=fits, verbose=1,
    )  # fmt: skip
    comparison.notes += [*cohort.notes, *_notes(cohort)]
    verdict = _verdict(comparison)
    if verdict is not None:
        comparison.notes.insert(0, verdict)
    if "groundmetric" in methods:
        comparison.notes.append("groundmetric is the TransportClassifier that learn fits and predict uses")
    test = None
    if options.permutations:
        shared.log(f"permuting labels {options.permutations} times")
        test_cv = {"leave-one-group-out": splits, "k-fold": n_splits, "shuffle-split": split}[options.cv]
        test = _against_chance(
            methods[names[0]], cohort, test_cv, n_permutations=options.permutations, n_jobs=options.jobs,
            random_state=options.seed, verbose=1,
        )  # fmt: skip
    shared.log("drawing")
    pictures = draw(comparison, methods, cohort, folder)
    findings = _write(comparison, test, cohort, pictures, folder)
    return {"groundmetric": __version__, "command": "evaluate", "cells": str(options.cells), **findings}


def _split(y: np.ndarray, *, cv: str, n_splits: int, groups: list[Hashable] | None, seed: int) -> list[Split]:
    from ..evaluation import folds, leave_one_group_out, shuffled

    if cv == "leave-one-group-out":
        assert groups is not None
        return leave_one_group_out(groups)
    make = folds if cv == "k-fold" else shuffled
    return make(y, groups=groups, n_splits=n_splits, random_state=seed)


def make_methods(names: Sequence[str], cohort: Labelled, seed: int) -> dict[str, Any]:
    """Methods by name: "groundmetric" (the ensemble), "ggml" (one metric), and the baselines.

    >>> import groundmetric as gm
    >>> from groundmetric._anndata.cohort import Labelled
    >>> list(make_methods(["groundmetric", "moments"], Labelled(*gm.datasets.synth_2d(0), None, None, []), 0))
    ['groundmetric', 'moments']
    """
    from .. import baselines
    from .._anndata.cohort import CELL_TYPE
    from ..estimators import GroundMetricLearner, TransportClassifier
    from ..estimators.preprocessing import SelectedFeatures

    annotation = CELL_TYPE if CELL_TYPE in cohort.D.annotations else None
    methods = {
        "groundmetric": TransportClassifier(random_state=seed),
        "ggml": GroundMetricLearner(random_state=seed),
        **baselines.standard(annotation=annotation, random_state=seed),
    }
    unknown = [name for name in names if name not in methods]
    if unknown or not names:
        raise ValueError(f"no method is called {(*unknown, '')[0]!r}: expected some of {', '.join(methods)}")
    chosen = {name: methods[name] for name in names}
    return chosen if cohort.rule is None else {name: SelectedFeatures(m, cohort.rule) for name, m in chosen.items()}


def _against_chance(method: Any, cohort: Labelled, cv: Any, **options: Any) -> PermutationTest:
    """Test the score of a method against permuted labels.

    An ensemble holds samples out itself. Its features are selected once, by variance, which does not depend on labels.
    """
    from ..estimators import TransportClassifier
    from ..estimators.preprocessing import SelectedFeatures, with_features
    from ..evaluation import Voting, permutation_test

    inner, D = method, cohort.D
    if isinstance(method, SelectedFeatures) and isinstance(method.method, TransportClassifier):
        inner = method.method
        D = with_features(D, SelectedFeatures(inner, method.rule).choose(D))
    if isinstance(inner, TransportClassifier):
        return permutation_test(inner, D, cohort.y, groups=cohort.groups, **options)
    voting = Voting(class_weight=CLASS_WEIGHT)
    return permutation_test(method, D, cohort.y, cv=cv, groups=cohort.groups, voting=voting, **options)


def _verdict(comparison: Comparison) -> str | None:
    """Return the comparison of a learned metric with the best baseline in a sentence; None unless it comes first."""
    learned, names = comparison.methods[0], [name for name in comparison.methods if name in BASELINES]
    return comparison.verdict(learned, names, SCORE) if learned in LEARNED and names else None


def _notes(cohort: Labelled) -> list[str]:
    notes = [f"at cell level, at most {MAX_POINTS:,} cells of either side of a split vote or are voted on"]
    if cohort.rule is not None:
        rule = "with variance above the average" if cohort.rule == "variance" else f"the {cohort.rule} most variable"
        notes.append(f"features are chosen anew from the training samples of every split: {rule}")
    return notes


def draw(comparison: Comparison, methods: dict[str, Any], cohort: Labelled, folder: Path) -> list[str]:
    """Draw the scores of all methods, and the map and distances of samples learned from the first training set."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from .. import pl
    from ..pl.style import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.7, 0.8 + 0.18 * len(comparison.methods)), layout="constrained")
        estimates = {method: comparison.estimate(method, SCORE) for method in comparison.methods}
        rows = {method: (estimate.value, estimate.low, estimate.high) for method, estimate in estimates.items()}
        name = f"{SCORE.replace('_', ' ')}, 95% interval (dashed: guessing)"
        pl.scores(rows, ax=figure.subplots(), reference=1 / len(comparison.classes), name=name)
        pictures = [_save(figure, folder / "scores.png")]
        distances = _distances(comparison, methods[comparison.methods[0]], cohort)
        if distances is not None:
            figure = Figure(figsize=(7.0, 3.4), layout="constrained")
            map_axes, heatmap_axes = figure.subplots(1, 2)
            pl.embedding(distances, comparison.labels, ax=map_axes, train=comparison.splits[0][0])
            pl.heatmap(distances, comparison.labels, ax=heatmap_axes)
            pictures.append(_save(figure, folder / "samples.png"))
    return pictures


def _distances(comparison: Comparison, method: Any, cohort: Labelled) -> np.ndarray | None:
    """Return distances between all samples after fitting the first training set; None if the method lacks distances."""
    import numpy as np

    from ..evaluation.compare import Cohort, fit

    if comparison.status(comparison.methods[0]) != "ok":
        return None
    train, _ = comparison.splits[0]
    labelled = Cohort(cohort.D, np.asarray(comparison.labels), np.asarray(comparison.classes), cohort.groups)
    fitted = fit(method, labelled, train)
    return fitted.distances(cohort.D) if hasattr(fitted, "distances") else None


def _save(figure: Figure, path: Path) -> str:
    from .._internal.files import replacing

    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=150, pil_kwargs={"optimize": True})
    return path.name


def _write(
    comparison: Comparison, test: PermutationTest | None, cohort: Labelled, pictures: list[str], folder: Path
) -> dict[str, Any]:
    from .._internal.files import write_whole
    from .._internal.tables import plain

    labels = dict(Counter(map(str, cohort.y.tolist())))
    text = [f"# {len(cohort.D)} samples: {shared.label_counts(labels)}"]
    if test is not None:
        text.append(
            f"{comparison.methods[0]}, against chance: {test.score.replace('_', ' ')} {test.statistic:.2f}, "
            f"p = {test.p:.3g} ({test.null.size} permutations of {test.exchanged}; {test.arrangements} arrangements in "
            "all)"
        )
    learned = f"samples by {comparison.methods[0]}, learned from the first training part (filled), and their distances"
    shown = {"scores.png": "scores of all methods with 95% intervals, and of guessing", "samples.png": learned}
    text += [comparison.to_markdown(), *(f"![{shown[name]}]({name})" for name in pictures)]
    write_whole(folder / "results.md", ["\n\n".join(text).encode() + b"\n"])
    comparison.to_csv(folder / "results.csv")
    permuted = None if test is None else test.to_dict()
    content = {"comparison": comparison.to_dict(), "permutation_test": permuted}
    write_whole(folder / "results.json", [json.dumps(content).encode() + b"\n"])
    return plain(
        {
            "n_samples": len(cohort.D),
            "n_points": int(cohort.D.points.shape[0]),
            "n_features": int(cohort.D.shape[1]),
            "labels": labels,
            "n_splits": len(comparison.splits),
            "estimators": comparison.estimators,
            "scores": {method: _scores(comparison, method) for method in comparison.methods},
            "against_chance": None if test is None else {"p": test.p, "n_permutations": int(test.null.size)},
            "best_baseline": _verdict(comparison),
            "notes": comparison.notes,
            "files": ["results.md", "results.csv", "results.json", *pictures, "run.json"],
        }
    )


def _scores(comparison: Comparison, method: str) -> dict[str, Any]:
    estimate = comparison.estimate(method, SCORE)
    row: dict[str, Any] = {
        "status": comparison.status(method), SCORE: estimate.value, "low": estimate.low, "high": estimate.high,
        "seconds": comparison.seconds(method),
    }  # fmt: skip
    if method != comparison.methods[0]:
        lead = comparison.difference(comparison.methods[0], method, SCORE)
        row |= {"lead_of_first": lead.value, "lead_low": lead.low, "lead_high": lead.high}
        row["p_holm"] = comparison.against(comparison.methods[0], SCORE)[method][1]
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
    verdict = "" if findings["best_baseline"] is None else f"\n{findings['best_baseline']}"
    return shared.aligned(rows) + verdict + more + scored


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def _pair(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
