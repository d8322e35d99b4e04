"""Cases of digests.py: small runs of everything that gives numbers, each in an empty folder.

Only public names are called, from the top of the package: files may move. Left out, because other libraries
compute them: functions of POT; and LMNN, LFDA and ITML.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.preprocessing import SplineTransformer

import groundmetric as gm
from groundmetric import cli
from groundmetric.evaluation import scores
from groundmetric.evaluation.scores import score_codes

QUICK: dict[str, Any] = {"max_epochs": 4, "random_state": 0}
Found = Mapping[str, Any]
CASES: dict[str, Callable[[Path], Found]] = {}


def case(function: Callable[[Path], Found]) -> Callable[[Path], Found]:
    """Function of an empty folder that returns results by name."""
    CASES[function.__name__] = function
    return function


# Data and results that several cases share


def by_sample(call: Callable, *arguments: Any, samples: Any, **more: Any) -> Any:
    """Call with the keyword that says which distribution each row belongs to: `samples`, `groups` as it once was."""
    keyword = "samples" if "samples" in inspect.signature(call).parameters else "groups"
    return call(*arguments, **{keyword: samples}, **more)


@cache
def modes() -> tuple[gm.Distributions, np.ndarray]:
    """12 distributions of 24 points in 3 classes, 4 features."""
    return gm.datasets.make_modes(3, 10.0, points_per_mode=8, offsets=(1.5, 7.5, 13.5, 19.5), random_state=0)


@cache
def metric() -> gm.GroundMetric:
    return gm.GroundMetricLearner(**QUICK).fit(*modes()).metric_


def weighted(D: gm.Distributions) -> gm.Distributions:
    """The same points with masses of all sizes, some of them 0."""
    mass = np.random.default_rng(0).random(D.weights.size) ** 4
    mass[::7] = 0.0
    return by_sample(gm.Distributions, D.points, samples=np.repeat(D.names, D.sizes), weights=mass, features=D.features)


def cohort(seed: int) -> Any:
    """8 samples of about 40 cells, 80 genes."""
    types: dict[str, Any] = {"cell_types": ["A", "B"], "n_markers": 5, "n_programme_genes": 10}
    return gm.datasets.make_cohort(4, 40, 80, confounding=0.5, random_state=seed, **types)


def spelled(D: gm.Distributions) -> Found:
    parts = {name: getattr(D, name) for name in ("names", "bounds", "points", "weights", "order")}
    return parts | {"dtype": str(D.points.dtype), "means": D.means()} | D.annotations


def fitted(learner: Any) -> Found:
    names = [name for name in sorted(learner.history_) if not name.startswith("seconds")]
    results = {name: getattr(learner, f"{name}_") for name in ("components", "n_iter", "loss", "converged", "classes")}
    return results | {"history": np.stack([learner.history_[name] for name in names]), "columns": names}


def learned(D: Any, y: Any, strata: Any = None, **options: Any) -> Found:
    return fitted(gm.GroundMetricLearner(**QUICK | options).fit(D, y, strata=strata))


def shipped(plan: gm.transport.Plan) -> Found:
    names = ("value", "rows", "cols", "mass", "potentials", "status", "pivots", "bounds")
    return {name: getattr(plan, name) for name in names}


# Data and transport


@case
def distributions(folder: Path) -> Found:
    random, (D, _) = np.random.default_rng(1), modes()
    values, samples = random.normal(size=(60, 3)), random.permutation(np.repeat(["c", "a", "d", "b"], 15))
    kinds = {"dense": values, "float32": values.astype(np.float32), "sparse": sparse.csr_matrix(values * (values > 0))}
    results: dict[str, Any] = {"with mass": spelled(weighted(D).with_mass())}
    for kind, points in kinds.items():
        D = by_sample(gm.Distributions, points, samples=samples, weights=random.random(60))
        parts = {"all": D, "turned": D[[2, 0]], "slice": D[1:3], "drawn": D.subsample(5, random_state=0)}
        results |= {f"{kind} {name}": spelled(part) for name, part in parts.items()}
    return results | {"listed": spelled(gm.Distributions.from_arrays([values[:5], values[5:20]], ["x", "y"]))}


@case
def datasets(folder: Path) -> Found:
    rings, adata = gm.datasets.make_rings(5, random_state=0), cohort(0)
    sets = {"2d": gm.datasets.synth_2d(0), "200d": gm.datasets.synth_200d(0), "rings": rings, "modes": modes()}
    results = {name: {"points": D.points, "names": D.names, "y": y} for name, (D, y) in sets.items()}
    return results | {"cohort": {"X": adata.X, "obs": adata.obs, "var": adata.var, "truth": adata.uns["truth"]}}


@case
def solve(folder: Path) -> Found:
    random, solve = np.random.default_rng(0), gm.transport.solve
    x, y = random.normal(size=(60, 3)), random.normal(size=(45, 3))
    a, b = random.dirichlet(np.ones(60)), random.dirichlet(np.ones(45))
    cost, moved = (np.linalg.norm(scale * x[:, None] - y, axis=2) for scale in (1.0, 1.05))
    cold, massive = solve(cost), solve(cost, a, b)
    plans = {"cold": cold, "warm": solve(moved, start=cold.basis), "stopped": solve(cost, max_pivots=20)}
    plans |= {"masses": massive, "warm masses": solve(moved, a, b, start=massive.basis)}
    plans |= {"partial": solve(cost, a, b, solver="partial", share=0.7)}
    return {name: shipped(plan) for name, plan in plans.items()}


@case
def solve_points(folder: Path) -> Found:
    random, solve = np.random.default_rng(0), gm.transport.solve_points
    x, y = random.normal(size=(6000, 3)), random.normal(0.5, 1.5, size=(5000, 3))
    subset, mass = (x[:300], y[:200]), random.dirichlet(np.ones(200))
    plans = {cost: solve(*subset, b=mass, cost=cost) for cost in ("euclidean", "manhattan", "squared")}
    plans |= {"line": solve(x[:300, :1], y[:200, :1]), "coarse": solve(*subset, solver="coarse", n_groups=20)}
    plans |= {"auto": solve(*subset, solver="auto", seconds=1e-4), "tolerance": solve(x, y, tolerance=0.02)}
    return {name: shipped(plan) for name, plan in plans.items()}


@case
def distances(folder: Path) -> Found:
    (D, _), learnt = modes(), metric()
    wide, squared = gm.datasets.synth_200d(0)[0], gm.GroundMetric(learnt.components, D.features, cost="squared")
    kinds = {"learned": learnt, "squared": squared} | {name: name for name in ("euclidean", "cityblock", "cosine")}
    results = {name: gm.pairwise_distances(D, metric=kind) for name, kind in kinds.items()}
    results |= {f"{name}, weighted": gm.pairwise_distances(weighted(D), D[:5], kind) for name, kind in kinds.items()}
    results |= {"threads": gm.pairwise_distances(D, metric=learnt, n_jobs=2)}
    results |= {"200d": gm.pairwise_distances(wide.subsample(20, random_state=0)[::3])}
    return results | {"points": gm.pairwise_distances(D.points[:8], D.points[8:20])}


@case
def distances_by_variants(folder: Path) -> Found:
    D, small = modes()[0], gm.transport.coarsen(modes()[0], 6)
    variants: list[dict[str, Any]] = [{"solver": "partial", "share": 0.8}, {"solver": "coarse", "n_groups": 6}]
    variants += [{"solver": "auto"}, {"solver": "auto", "seconds": 1e-3}, {"max_pivots": 5}]
    results: dict[str, Any] = {"coarsened": spelled(small.distributions), "radii": small.radii(metric())}
    for options in variants:
        pairs = gm.transport.pairwise(D, metric=metric(), **options)
        results[str(options)] = {
            "values": pairs.distances,
            "lower": pairs.lower,
            "upper": pairs.upper,
            "gap": pairs.gap,
        }
    return results


@case
def distances_kept(folder: Path) -> Found:
    D, options = modes()[0], {"metric": metric(), "keep": folder / "kept"}
    parts = {"some": D[3:9], "all": D, "turned": D[::-1]}
    return {name: gm.pairwise_distances(part, **options) for name, part in parts.items()}


@case
def neighbors(folder: Path) -> Found:
    D, y = gm.datasets.synth_2d(0)
    D, names = D.subsample(40, random_state=0), ("distances", "indices")
    options = {"metric": gm.GroundMetricLearner(**QUICK).fit(D, y).metric_}
    results = {"among": gm.kneighbors(D, n_neighbors=3, **options)}
    results |= {"across": gm.kneighbors(weighted(D[::2]), D[1::2], 2, **options)}
    results |= {"cosine": gm.kneighbors(D[:6], D[6:], 2, "cosine")}
    return {name: dict(zip(names, pairs, strict=True)) for name, pairs in results.items()}


@case
def metric_files(folder: Path) -> Found:
    D, _ = modes()
    metric().save(folder / "metric.gm")
    loaded = gm.GroundMetric.load(folder / "metric.gm")
    results = {
        "components": loaded,
        "features": loaded.features,
        "matrix": loaded.matrix(),
        "projected": loaded.project(D),
    }
    results |= {"importance": loaded.importance()}
    blend = loaded.blend(gm.GroundMetric.euclidean(4, D.features), 0.3)
    results |= {"points, distances": blend.distances(D.points[:9])}
    results |= {"distances": gm.pairwise_distances(D[:4], metric=blend)}
    return results


# Learning

# Cases by name: parameters of the learner, each of them a fit. Names as in files of version 0.1, which lets the
# digests keep theirs.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "learn_linear": [{}, {"n_jobs": 2}, {"margin": 0.5, "init": "random"}, {"n_components": 1, "init": [[1, 0, 0, 0]]}],
    "learn_diagonal": [{"metric": "diagonal"}, {"metric": "diagonal", "penalty": "l1", "strength": 0.5}],
    "learn_costs": [{"cost": c, "metric": m} for c in ("manhattan", "squared") for m in ("linear", "diagonal")],
    "learn_penalties": [{"penalty": penalty} for penalty in (None, "l2_squared", "l1", "group", "nuclear")],
    "learn_nearest": [{"neighbors": "nearest", "refresh": 2, "n_neighbors": 2}],
    "learn_stopping": [{"tol": 0.5, "patience": 2}, {"validation_fraction": 0.25, "patience": 2, "max_epochs": 10}],
    "learn_batches": [{"batch_size": 8}, {"batch_size": 1000}, {"memory": 0.0}, {"max_pivots": 5}],
    "learn_balanced": [{"class_weight": "balanced"}],
}


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Parameters of version 0.1 by their present names."""
    options = {"form" if name == "metric" else name: value for name, value in options.items()}
    objects = {"stopping": gm.learning.EarlyStopping, "solver": gm.transport.Exact}
    fields = {"tol": "stopping", "patience": "stopping", "validation_fraction": "stopping", "memory": "solver"}
    fields |= {"max_pivots": "solver"}
    for parameter, kind in objects.items():
        values = {name: options.pop(name) for name in list(options) if fields.get(name) == parameter}
        options |= {parameter: kind(**values)} if values else {}
    if "refresh" in options:
        options["neighbors"] = gm.learning.Nearest(options.pop("refresh"))
    return options


def _learn_variants(variants: list[dict[str, Any]], folder: Path) -> Found:
    D, y = (part[1:] for part in modes())  # classes of different sizes
    return {str(options): learned(D, y, **_renamed(options)) for options in variants}


CASES |= {name: partial(_learn_variants, variants) for name, variants in VARIANTS.items()}


@case
def learn_points(folder: Path) -> Found:
    D, y = modes()
    mixed = np.random.default_rng(0).permutation(D.weights.size)
    rows, owner, learner = D.points[mixed], np.repeat(np.arange(12), D.sizes)[mixed], gm.GroundMetricLearner(**QUICK)
    results = {"rows": fitted(by_sample(learner.fit, rows, y[owner], samples=owner)), "moved": learner.transform(rows)}
    light = gm.Distributions.from_arrays([D[[d]].points.astype(np.float32)[: 9 + d] for d in range(12)])
    thin = by_sample(gm.Distributions, sparse.csr_matrix(D.points), samples=np.repeat(D.names, D.sizes))
    results |= {"weighted": learned(weighted(D), y), "float32": learned(light, y), "sparse": learned(thin, y)}
    for name, (E, z) in {"2d": gm.datasets.synth_2d(0), "200d": gm.datasets.synth_200d(0)}.items():
        results[name] = learned(E.subsample(30, random_state=0), z)
    results["fresh"] = fitted(learner.fit(D, y, fresh=lambda epoch: D.subsample(12, random_state=epoch)))
    return results | {"without samples": learned(rows[::3], y[owner][::3])}


@case
def learn_mapped(folder: Path) -> Found:
    D, y = gm.datasets.make_rings(6, random_state=0)
    learner = gm.GroundMetricLearner(form=gm.learning.Mapped(SplineTransformer(n_knots=4)), **QUICK).fit(D, y)
    learner.metric_.save(folder / "bent.gm")
    loaded = gm.GroundMetric.load(folder / "bent.gm", feature_map=learner.feature_map_)
    return {**fitted(learner), "projected": loaded.project(D), "distances": gm.pairwise_distances(D, metric=loaded)}


@case
def learn_labels(folder: Path) -> Found:
    D, y = modes()
    value, names = y + np.linspace(0.0, 0.9, 12), ["mild", "worse", "worst"]
    wanted = np.abs(value[:, None] - value)
    wanted[2, 7] = wanted[7, 2] = np.nan
    stage, partial = pd.Categorical.from_codes(y, names, ordered=True), np.where(value > 2, np.nan, value)
    results = {"continuous": learned(D, value, target="ordered"), "stages": learned(D, stage, target="ordered")}
    results["unknown"] = learned(D, partial, target=gm.learning.Ordered(gap=0.2))
    results["distances"] = learned(D, wanted, target="distances")
    results["several"] = learned(D, [value, y % 2], target=[gm.learning.Ordered(weight=2), "classes"])
    return results | {f"strata, {weight}": learned(D, y, np.arange(12) % 2, nuisance=weight) for weight in (0.0, 1.0)}


class Stopping:
    """The Frobenius norm as a penalty that stops learning after some steps, as an accident would."""

    left = 0  # of the class: a checkpoint must treat both fits as the same

    def value(self, W: np.ndarray) -> float:
        return float(np.linalg.norm(W))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        Stopping.left -= 1
        if Stopping.left < 0:
            raise InterruptedError
        return W / (np.linalg.norm(W) or 1.0)


@case
def learn_again(folder: Path) -> Found:
    options: dict[str, Any] = {
        "checkpoint": gm.learning.Checkpoint(folder / "state", every=0.0),
        "batch_size": 16,
        **QUICK,
    }
    learner = gm.GroundMetricLearner(penalty=Stopping(), **options)
    Stopping.left = 13
    with contextlib.suppress(InterruptedError):
        learner.fit(*modes())
        raise AssertionError("learning was not interrupted")
    Stopping.left = sys.maxsize
    return {"resumed": fitted(learner.fit(*modes())), "done": fitted(learner.fit(*modes()))}


@case
def predictors(folder: Path) -> Found:
    (D, y), results = modes(), {}
    for weights, ground in {"distance": metric(), "uniform": gm.GroundMetricLearner(**QUICK)}.items():
        options: dict[str, Any] = {"n_neighbors": 3, "metric": ground, "weights": weights}
        model = gm.TransportKNeighborsClassifier(class_weight="balanced", **options).fit(D[::2], y[::2])
        value = gm.TransportKNeighborsRegressor(**options).fit(D[::2], y[::2])
        results[weights] = {
            "predicted": model.predict(D[1::2]), "probabilities": model.predict_proba(D[1::2]),
            "neighbors": model.kneighbors(D[1::2]), "own": model.kneighbors(), "value": value.predict(D[1::2]),
        }  # fmt: skip
    return results


@case
def baselines(folder: Path) -> Found:
    (D, y), of, results = modes(), gm.baselines, {}
    methods = [of.Euclidean(), of.Composition(4), of.Composition(annotation="mode"), of.Summary("moments")]
    for method in [*methods, *of.standard().values()]:
        method.fit(D[::2], y[::2])
        asked = [name for name in ("distances", "predict_proba") if hasattr(method, name)]
        results[str(method)] = {name: getattr(method, name)(D[1::2]) for name in asked}
    return results


# Evaluation and interpretation


@case
def statistics(folder: Path) -> Found:
    random, of, y, who = np.random.default_rng(0), gm.evaluation, np.repeat([0, 1], 10), np.arange(20) // 2
    (first, second), draws = random.random((2, 20)), scores.resample(who, y, 200)
    away, probabilities = np.abs(first[:, None] - first), np.stack([first, 1.0 - first], axis=1)
    splits = {"one": of.leave_one_out(y), "one group": of.leave_one_group_out(who)}
    for name, groups in (("alone", None), ("groups", who)):
        splits[f"shuffled, {name}"] = of.shuffled(y, groups=groups, n_splits=3, random_state=0)
        splits[f"folds, {name}"] = of.folds(y, groups=groups, n_repeats=2, random_state=0)
    return {
        "draws": draws,
        "t": scores.corrected_t(first, 0.25), "paired t": scores.paired_t(first, second, 0.25),
        "holm": scores.holm([*second, np.nan]),
        "scores": score_codes(y, probabilities), "votes": of.vote(away, y, [0, 1], n_neighbors=3),
        "splits": splits,
    }  # fmt: skip


@case
def compare(folder: Path) -> Found:
    (D, y), of, results = modes(), gm.evaluation, {}
    methods = {"learned": gm.GroundMetricLearner(**QUICK), "Euclidean": gm.baselines.Euclidean()}
    methods["logistic"] = gm.baselines.SummaryModel("moments")
    options: dict[str, Any] = {
        "voting": of.Voting(3, n_point_neighbors=10),
        "resume": folder / "kept",
    }
    for splits in (of.folds(y, n_splits=3, random_state=0), of.shuffled(y, n_splits=3, test_size=0.4, random_state=0)):
        for time_of in ("first", "again"):  # the second time, from the folder
            result = of.compare(methods, D, y, cv=splits, **options)
            results[f"{len(results)} {time_of}"] = {
                "points": result.scores(level="points"),
                "estimates": {name: result.estimate(name) for name in methods}, "leads": result.against("learned"),
                "predictions": {name: result.predictions(name) for name in methods}, "scores": result.scores(),
            }  # fmt: skip
    return results


@case
def permutations(folder: Path) -> Found:
    test = partial(
        gm.evaluation.permutation_test, n_permutations=7, cv=2, voting=gm.evaluation.Voting(3), random_state=0
    )
    learner, patients = gm.GroundMetricLearner(max_epochs=2, random_state=0), np.arange(12) // 2
    return {"learned": test(learner, *modes()), "groups": test(gm.baselines.Euclidean(), *modes(), groups=patients)}


@case
def interpretation(folder: Path) -> Found:
    (D, y), of = modes(), gm.interpret
    bootstrap: dict[str, Any] = {"annotation": "mode", "groups": np.arange(12) // 2, "n_draws": 50}
    return {
        "axes": of.canonical_axes(metric(), D, y, annotation="mode", max_partners=3),
        "flow": of.flow(D, 0, 1, metric(), "mode", y=y, max_pairs=5),
        "relevance": of.annotation_relevance(metric(), D, y, max_partners=3, **bootstrap).table(),
    }  # fmt: skip


@case
def stability(folder: Path) -> Found:
    results = gm.interpret.stability(gm.GroundMetricLearner(**QUICK), *modes(), n_refits=4, n_top=2)
    return {"all": results, "table": results.table()}


@case
def enrichment(folder: Path) -> Found:
    random, names = np.random.default_rng(0), [f"g{k}" for k in range(60)]
    sets = {f"set {k}": random.choice(names, 6 + 2 * k, replace=False).tolist() for k in range(5)}
    return {"top": gm.interpret.over_representation(names[:12], names, sets)}


# AnnData and the command line


@case
def cells(folder: Path) -> Found:
    adata, new = cohort(0), cohort(1)[:, ::-1].copy()
    gm.pp.select_genes(adata)
    gm.pp.subsample(adata, "sample", 30)
    gm.tl.learn(adata, "sample", "condition", batch_key="batch", n_cells=20, **QUICK)
    gm.tl.cell_relevance(adata, max_partners=2)
    samples = gm.tl.samples(adata, n_neighbors=4)
    gm.tl.trajectory(samples, "control", n_neighbors=3)
    new.obs["sample"] = "new " + new.obs["sample"].astype(str)
    placed = gm.tl.transfer(new, adata, n_neighbors=3, n_cells=20)
    loaded = gm.tl.learn(
        cohort(0), "sample", "condition", method="ggml", n_cells=10, resample=True, genes="all", **QUICK
    )
    parts = {"old": adata, "samples": samples, "new": new, "placed": placed, "resampled": loaded}
    tables = ("X", "obs", "var", "obsm", "varm", "obsp")
    return {name: {table: getattr(part, table) for table in tables} for name, part in parts.items()}


@case
def command_line(folder: Path) -> Found:
    adata = cohort(0)
    new = adata.obs["sample"].isin(["S04", "S08"])
    adata[~new].write_h5ad(folder / "cells.h5ad")
    adata[new].write_h5ad(folder / "new.h5ad")
    columns = ["--sample", "sample", "--label", "condition", "--cells-per-sample", "20"]
    run_command(folder, "learn", "cells.h5ad", *columns, "--epochs", "4", "-o", "learned")
    run_command(folder, "predict", "learned", "new.h5ad", "--neighbors", "3", "-o", "predicted")
    methods = ["--methods", "transport-5-nn,pseudobulk", "--cv", "k-fold", "--n-splits", "2"]
    run_command(folder, "evaluate", "cells.h5ad", *columns, *methods, "-o", "evaluated")
    results: dict[str, Any] = {"metric.gm": gm.GroundMetric.load(folder / "learned" / "metric.gm")}
    for path in sorted(folder.glob("*/*.csv")):
        results[f"{path.parent.name}/{path.name}"] = pd.read_csv(path, float_precision="round_trip")
    for path in sorted(folder.glob("*/*.json")):
        results[f"{path.parent.name}/{path.name}"] = json.loads(path.read_text())
    return results


def run_command(folder: Path, command: str, *arguments: str) -> None:
    """Run a command in the folder; show its output only if it fails."""
    output = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = cli.main([command, *arguments])
    if code != 0:
        raise RuntimeError(f"groundmetric {command} ended with code {code}: {output.getvalue()}")
