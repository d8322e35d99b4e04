"""Real data sets, each with the split that its description names, and their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from groundmetric import baselines
from groundmetric._anndata.cohort import Labelled, read_cohort
from groundmetric._internal.tables import markdown, number
from groundmetric.distributions import Distributions
from groundmetric.estimators import GroundMetricLearner
from groundmetric.evaluation import Comparison, Voting, compare, folds, leave_one_group_out
from groundmetric.learning.splits import Split

from .figures import draw_scores
from .points import LinearDiscriminant, PCAEuclidean
from .protocol import SEARCH, Plan, PrincipalComponents
from .search import NestedSearch
from .tables import interval, prose, write_records

# Principal components, fitted on each training set, that all methods use for data with more features.
COMPONENTS = 30
# From this number of distributions, the search holds out once, tries fewer settings and learns for fewer epochs.
MANY = 200


@dataclass(frozen=True)
class RealSet:
    """A file of the data folder and how it is judged.

    `splitting` is "folds" (n_splits of them) or "leave group out"; `score` is the score in the description.
    """

    name: str
    file: str
    group: str | None
    splitting: str
    n_splits: int
    n_cells: int
    about: str
    min_cells: int = 1
    depth: str | None = None  # column of obs with the total counts, where values are raw
    score: str = "balanced_accuracy"
    standardise: bool = False  # for Euclid, where features have different units

    @property
    def class_weight(self) -> str | None:
        """Return the weights of votes: balanced if the score is balanced."""
        return "balanced" if self.score == "balanced_accuracy" else None


SETS = (
    RealSet("Melanoma", "sadefeldman_melanoma_48samples_pcs.h5ad", "patient", "leave group out", 0, 150,
            "responders to checkpoint therapy or not, 10 principal components", score="accuracy"),
    RealSet("Glioblastoma", "zhao_gbm_panobinostat_10samples.h5ad", "patient", "leave group out", 0, 150,
            "slices with a drug or without, 300 genes", score="accuracy"),
    RealSet("B-cell receptor", "bodenmiller_bcrxl_cytof_16samples.h5ad", "patient", "folds", 2, 150,
            "blood cells stimulated or not, 24 markers", score="silhouette"),
    RealSet("Interferon", "kang_ifnb_pbmc_16samples.h5ad", "donor", "folds", 2, 150,
            "blood cells with interferon-β or without, 6,000 genes", depth="n_counts_all_genes", score="silhouette"),
    RealSet("Lung cancer", "maynard_lung_tki_44samples.h5ad", "patient", "leave group out", 0, 150,
            "biopsies before, on and after targeted therapy, 5,000 genes", min_cells=20),
    RealSet("IgA nephropathy", "pilot_igan_glomeruli_634patients.h5ad", None, "folds", 5, 150,
            "three levels of kidney function, 14 measures of glomeruli", standardise=True),
)  # fmt: skip


def run(plan: Plan, keep: Callable[[dict[str, Any]], None] = lambda result: None) -> dict[str, Any]:
    """Return, by data set, its description and a row per method. Under "all cells", those of many features again, with
    components of all cells; under "absent", files that are not there.

    `keep` is called with the results after every data set, because a run takes long.
    """
    if plan.data is None or not plan.data.is_dir():
        plan.log("real: no folder of data (--data), so this section is left out")
        return {"absent": [data.file for data in SETS], "pending": [], "sets": {}, "all cells": {}}
    local = [data for data in SETS if (plan.data / data.file).exists()]
    local = local[:2] if plan.quick else local
    absent = [data.file for data in SETS if not (plan.data / data.file).exists()]
    result: dict[str, Any] = {"absent": absent, "pending": [data.name for data in local], "sets": {}, "all cells": {}}
    for data in local:
        cohort = load(data, plan.data, plan.seed)
        result["sets"][data.name] = _study(data, cohort, plan)
        if cohort.D.shape[1] > COMPONENTS:
            shown = components_of_all_cells(cohort, plan.seed)
            result["all cells"][data.name] = _study(data, shown, plan, "components of all cells, ")
        result["pending"].remove(data.name)
        keep(result)
    return result


def components_of_all_cells(cohort: Labelled, seed: int) -> Labelled:
    """Follow the description of the data: scaling and components without labels, but with the held-out cells."""
    space = PCAEuclidean(COMPONENTS, standardise=True, random_state=seed).fit(cohort.D)
    return cohort._replace(D=cohort.D.with_points(space.metric_.project(cohort.D.points)))


def _study(data: RealSet, cohort: Labelled, plan: Plan, shown: str = "") -> dict[str, Any]:
    splits = make_splits(data, cohort, plan.seed)
    methods = methods_for(data, cohort, plan)
    plan.log(f"real: {data.name}, {shown}{len(methods)} methods, {len(splits)} splits of {len(cohort.D)} samples")
    result = compare(
        methods, cohort.D, cohort.y, cv=splits, groups=cohort.groups,
        voting=Voting(class_weight=data.class_weight), points=False, clustering=True,
        n_jobs=plan.n_jobs, resume=plan.cache, verbose=plan.verbose,
    )  # fmt: skip
    return {
        "file": data.file,
        "about": data.about,
        "score": data.score,
        "class_weight": data.class_weight,
        "n_samples": len(cohort.D),
        "n_points": int(cohort.D.points.shape[0]),
        "n_features": int(cohort.D.shape[1]),
        "labels": dict(Counter(map(str, cohort.y.tolist()))),
        "splits": _in_words(data, len(splits)),
        "rows": {method: _row(result, method) for method in methods},
        "against_euclid": _against_euclid(result),
        "notes": cohort.notes,
    }


def load(data: RealSet, folder: Path, seed: int) -> Labelled:
    """The data set, normalised where it holds counts."""
    path = folder / data.file
    if data.depth is None:
        return read_cohort(
            path, "sample", "label", group_key=data.group, genes="all", n_cells=data.n_cells,
            min_cells=data.min_cells, random_state=seed,
        )  # fmt: skip
    return read_cohort(
        _normalised(path, data.depth), "sample", "label", group_key=data.group, genes="all",
        n_cells=data.n_cells, min_cells=data.min_cells, random_state=seed,
    )  # fmt: skip


def _normalised(path: Path, depth: str) -> Any:
    """Counts per ten thousand of the cell's total, on a log scale."""
    import anndata as ad
    from scipy import sparse

    cells = ad.read_h5ad(path)
    scale = sparse.diags_array(1e4 / cells.obs[depth].to_numpy(dtype=np.float64))
    cells.X = (scale @ cells.X).log1p().tocsr().astype(np.float32)
    return cells


def make_splits(data: RealSet, cohort: Labelled, seed: int) -> list[Split]:
    if data.splitting == "leave group out":
        assert cohort.groups is not None
        return leave_one_group_out(cohort.groups)
    return folds(cohort.y, groups=cohort.groups, n_splits=data.n_splits, random_state=seed)


def methods_for(data: RealSet, cohort: Labelled, plan: Plan) -> dict[str, Any]:
    """Return the search, Euclid, and fast methods."""
    methods = {
        SEARCH: _search(cohort.D, plan),
        "Euclidean": baselines.Euclidean(standardise=data.standardise),
        "PCA": PCAEuclidean(random_state=plan.seed),
        "LDA": LinearDiscriminant(random_state=plan.seed),
        "Pseudobulk, logistic": baselines.SummaryModel("moments", random_state=plan.seed),
        "Composition": baselines.Composition(random_state=plan.seed),
    }
    if cohort.D.shape[1] <= COMPONENTS:
        return methods
    return {name: PrincipalComponents(method, COMPONENTS, random_state=plan.seed) for name, method in methods.items()}


def _search(D: Distributions, plan: Plan) -> NestedSearch:
    def learner(max_epochs: int) -> GroundMetricLearner:
        return GroundMetricLearner(max_epochs=max_epochs, class_weight="balanced")

    if plan.quick:
        return NestedSearch(
            learner(5), margins=(1.0,), strengths=(0.1, 1.0), validation=0.25,
            random_state=plan.seed,
        )  # fmt: skip
    if len(D) < MANY:
        return NestedSearch(random_state=plan.seed)
    return NestedSearch(
        learner(20), margins=(0.1, 1.0, 10.0), strengths=(0.1, 1.0, 10.0), validation=0.25,
        random_state=plan.seed,
    )  # fmt: skip


def _row(result: Comparison, method: str) -> dict[str, Any]:
    row: dict[str, Any] = {"status": result.status(method), "seconds": result.seconds(method)}
    for level, score in (
        ("distributions", "accuracy"),
        ("distributions", "balanced_accuracy"),
        ("distributions", "roc_auc"),
        ("clusters", "silhouette"),
    ):
        if level in result.levels:
            estimate = result.estimate(method, score, level)
            row[score] = {"mean": estimate.value, "sd": estimate.sd, "low": estimate.low, "high": estimate.high}
    return row


def _against_euclid(result: Comparison) -> dict[str, float] | None:
    """Lead of the learner in balanced accuracy, paired, with its interval and p-value."""
    if "distributions" not in result.levels or result.status("Euclidean") != "ok" or result.status(SEARCH) != "ok":
        return None
    lead, p = result.against(SEARCH, "balanced_accuracy")["Euclidean"]
    return {"lead": lead.value, "low": lead.low, "high": lead.high, "p": p}


def _in_words(data: RealSet, n_splits: int) -> str:
    if data.splitting == "leave group out":
        return f"each {data.group} held out once ({n_splits})"
    return f"{n_splits} folds" + ("" if data.group is None else f" of {data.group}s")


INTRODUCTION = """
    GGML with a nested search of its settings, and methods without a search, on real data; the paper's data sets are not
    among them. Stronger baselines and the ensemble are compared in [new_patients.md](new_patients.md). Samples have at
    most 150 cells. Data with more than 30 features are reduced to 30 principal components, fitted to each training set.
    5-NN votes have weights of one over the distance; for data that are judged by balanced accuracy, votes (and the
    logistic regression) are also balanced by the number of training samples of each class, because leaving a sample out
    removes a vote for its own class. Scores are of pooled predictions, with a 95 % interval for new patients (for new
    samples if every patient has one). Silhouettes are of the labels on distances between held-out samples, averaged
    over splits. With more than 200 samples, the search has one validation set, 9 settings and 20 epochs. Seconds are
    wall-clock times on a machine with other jobs. The cohorts are small, so intervals are wide."""

ALL_CELLS = """
    The same splits of the data with many features, prepared as the description of the data does: features are
    standardised and reduced to 30 components once, without labels, but with the cells of held-out samples. This is no
    fair test for new patients, but makes the scores comparable to the description. Its votes are not balanced, which
    disadvantages rare classes."""


def real(result: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table and figure go into the folder."""
    parts = ["## Real data", prose(INTRODUCTION)]
    for name, study in result["sets"].items():
        parts += [f"### {name}", _about(study), _scores(study["rows"])]
        parts.append(" ".join([_verdict(study["rows"], study["score"]), *_lead(study.get("against_euclid"))]))
    all_cells = result.get("all cells", {})
    if all_cells:
        parts += ["### Components of all cells", prose(ALL_CELLS), _one_score_each(all_cells)]
    if result["sets"]:
        picture = draw_scores(result["sets"], "balanced_accuracy", folder, "real")
        repeated = {f"{name}, components of all cells": study for name, study in all_cells.items()}
        table = write_records(folder / "real.csv", _records(result["sets"] | repeated))
        parts += [f"![scores on real data](results/{picture})", f"As CSV: [{table}](results/{table})"]
    if result["pending"]:
        parts.append(f"The run was not finished when this page was written. Missing: {', '.join(result['pending'])}.")
    if result["absent"]:
        parts.append(f"Left out, because the files were not there: {', '.join(result['absent'])}.")
    return parts


def _one_score_each(sets: dict[str, Any]) -> str:
    methods = list(dict.fromkeys(method for study in sets.values() for method in study["rows"]))
    lines = []
    for name, study in sets.items():
        rows, score = study["rows"], study["score"]
        values = [(rows.get(method, {}).get(score) or {}).get("mean") for method in methods]
        lines.append([name, score.replace("_", " "), *map(number, values)])
    return markdown(["data", "judged by", *methods], lines)


def _about(study: dict[str, Any]) -> str:
    labels = ", ".join(f"{count} {label}" for label, count in study["labels"].items())
    about = study["about"][0].upper() + study["about"][1:]
    sizes = f"{study['n_samples']} samples ({labels}), {study['n_points']:,} points, {study['n_features']:,} features"
    votes = "" if study.get("class_weight") is None else " Votes are balanced."
    return " ".join(
        [f"{about}. {sizes}; {study['splits']}.{votes}", *(f"Of the file, {note}." for note in study["notes"])]
    )


def _scores(rows: dict[str, Any]) -> str:
    lines = []
    for method, row in rows.items():
        cells = [interval(row.get(score)) for score in ("accuracy", "balanced_accuracy", "roc_auc")]
        cells += [number((row.get("silhouette") or {}).get("mean")), number(row["seconds"], 1)]
        lines.append([method, *(cells if row["status"] == "ok" else [row["status"], "", "", "", ""])])
    return markdown(["method", "accuracy", "balanced accuracy", "ROC AUC", "silhouette", "seconds per split"], lines)


def _verdict(rows: dict[str, Any], score: str) -> str:
    """Where the learner stands among the others, by the score that the set is judged by."""
    result = {method: (row.get(score) or {}).get("mean") for method, row in rows.items()}
    values = {method: value for method, value in result.items() if value is not None}
    name = score.replace("_", " ")
    if SEARCH not in values:
        return f"{SEARCH} has no {name} here."
    ours = values[SEARCH]
    better = [f"{method} ({number(value)})" for method, value in values.items() if value > ours + 0.005]
    if better:
        return f"By {name}, {SEARCH} ({number(ours)}) is worse than {', '.join(better)}."
    return (
        f"By {name}, no method is better than {SEARCH} ({number(ours)}; Euclidean {number(values.get('Euclidean'))})."
    )


def _lead(against: dict[str, float] | None) -> list[str]:
    if against is None:
        return []
    low, high = against["low"], against["high"]
    where = "significantly worse" if high < 0 else "significantly better" if low > 0 else "no significant difference"
    lead = f"{against['lead']:+.2f} [{low:+.2f}, {high:+.2f}]"
    return [f"Its difference from Euclidean in balanced accuracy is {lead}: {where}."]


def _records(sets: dict[str, Any]) -> list[dict[str, Any]]:
    records = []
    for name, study in sets.items():
        for method, row in study["rows"].items():
            scores = {
                f"{key}: {part}": v
                for key, value in row.items()
                if isinstance(value, dict)
                for part, v in value.items()
            }
            records.append(
                {"data": name, "method": method, "status": row["status"], "seconds": row["seconds"], **scores}
            )
    return records
