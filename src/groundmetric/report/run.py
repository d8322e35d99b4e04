"""A run of `groundmetric learn`, from its folder or in memory, and what a report computes from it beyond its results.

What takes long is computed once and stored in a cache in the folder of the run.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import anndata as ad
import joblib
import numpy as np

from .. import __version__, baselines, tl
from .._anndata.annotations import samples_of
from .._anndata.cohort import INSIDE, Labelled, read_cohort
from .._anndata.store import N_TOP, RUN_CELLS, EnsembleResults, Stored, check_parts, read_entry, trained_from
from .._internal.cache import Cache
from .._internal.tables import without_nan
from ..distributions import Distributions
from ..estimators import GroundMetricEnsemble, GroundMetricLearner
from ..estimators.preprocessing import SelectedFeatures, with_features
from ..evaluation import Comparison, compare, folds, permutation_test
from ..evaluation._run import Result
from ..evaluation.scores import encode, score_codes
from ..interpret import annotation_relevance, feature_significance, stability
from ..interpret.axes import canonical_axes
from ..learning.options import read_parameters
from ..metrics.base import GroundMetric
from ..supervision.splits import Split
from .content import Evaluation

FINDINGS, SAMPLES = "run.json", "samples.h5ad"
# Each class counts the same in the score, and so it does in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
LEARNED = "learned metric"
QUICK = {"Euclidean": "euclidean", "pseudobulk": "pseudobulk", "composition": "composition"}
FOLDS, NEIGHBORS = 5, 5
EXCHANGES = 1999  # of labels, for the q-values of features of an ensemble
PARTNERS = 5  # samples of every class that a sample is compared with
CACHE = "report.cache"  # file in the folder of a run
FORMAT = 5  # of what is cached: with another number, and it is computed anew
Log = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """Results of learning, and the file or AnnData with the values that were learned from.

    Parameters
    ----------
    cells : AnnData
        Cells after `tl.learn`, with or without values.
    samples : AnnData
        Samples from `tl.samples`.
    source : AnnData, path or None
        Values that were learned from; None: not known, and what needs them is left out of a report.
    findings : dict
        Notes of `groundmetric learn`, all of which may be missing: "cells" (name of the file), "seconds",
        "interrupted".
    folder : path or None, default=None
        Folder for results that take long to compute; None: they are computed every time.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> gm.tl.learn(adata, "sample", "condition", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), adata, {})
    >>> run.sample_key, run.label_key
    ('sample', 'condition')
    """

    cells: ad.AnnData
    samples: ad.AnnData
    source: Any
    findings: dict[str, Any]
    folder: Path | None = None
    key: str = "groundmetric"

    @classmethod
    def open(cls, folder: str | os.PathLike) -> Run:
        """Read the folder that `groundmetric learn` wrote.

        Parameters
        ----------
        folder : str or path
            Folder with run.json and the files of cells and samples.

        Returns
        -------
        Run
            The run; its `source` is the file that was learned from, where that is found under its name, in the folder
            or beside it.
        """
        path = Path(folder)
        for name in (FINDINGS, RUN_CELLS, SAMPLES):
            if not (path / name).is_file():
                raise ValueError(f"{os.fspath(folder)!r} is no run of groundmetric learn: it has no {name}")
        try:
            findings = json.loads((path / FINDINGS).read_text())
        except ValueError as error:
            raise ValueError(f"{str(path / FINDINGS)!r} is damaged ({error}): run groundmetric learn again") from error
        _check_findings(findings, path)
        run = cls(ad.read_h5ad(path / RUN_CELLS), ad.read_h5ad(path / SAMPLES), cls._values(findings["cells"], path),
                  findings, path)  # fmt: skip
        entry = run.cells.uns.get(run.key, {})
        course = ("ensemble",) if "ensemble" in entry else ("history", "converged")
        check_parts(entry, ("metric", "learner", *course), run.key)
        return run

    @staticmethod
    def _values(name: str, folder: Path) -> Path | None:
        """The file that was learned from, as it was named or beside the run."""
        paths = [Path(name), folder / Path(name).name, folder.parent / Path(name).name]
        return next((path for path in paths if path.exists()), None)

    @cached_property
    def entry(self) -> dict[str, Any]:
        return self.cells.uns[self.key]

    @cached_property
    def stored(self) -> Stored:
        return read_entry(self.cells.uns.get(self.key), self.key, "the run")

    @cached_property
    def results(self) -> EnsembleResults | None:
        """What an ensemble says of its training samples; None of a single learner."""
        return EnsembleResults.read(self.entry)

    @property
    def learner(self) -> dict[str, Any]:
        """The parameters of the learner, as numbers and text."""
        return {name: _plain(value) for name, value in self.entry["learner"].items()}

    @property
    def group_key(self) -> str | None:
        """Column of the patients whom learning did not divide."""
        return self.stored.params.get("group_key")

    @property
    def sample_key(self) -> str:
        return self.stored.params["sample_key"]

    @property
    def label_key(self) -> str:
        return self.stored.params["label_key"]

    @property
    def is_expression(self) -> bool:
        return self.stored.params.get("use_rep") is None


def _plain(value: Any) -> Any:
    """A number or text; an array of names as a tuple."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else tuple(map(str, value))
    return value.item() if isinstance(value, np.generic) else value


def cached(run: Run, name: str, parameters: Any, compute: Callable[[], Any]) -> Any:
    """Plain data that is computed once for the same question to the same run."""
    if run.folder is None:
        return compute()
    state = [
        __version__,
        FORMAT,
        run.stored.metric.components,
        run.stored.params,
        list(map(str, run.stored.labels)),
        parameters,
    ]
    cache, key = Cache(run.folder / CACHE), f"{name}-{joblib.hash(state)}"
    answer = cache.get_json(key)
    if answer is None:
        answer = without_nan(compute())
        cache.put_json(key, answer)
    return answer


def relevance(run: Run, n_jobs: int | None, log: Log) -> np.ndarray:
    """How much each cell takes part in telling the labels apart; missing where it was not drawn."""
    column = f"{run.key}_relevance"
    if column in run.cells.obs:
        return run.cells.obs[column].to_numpy(dtype=np.float64)

    def compute() -> list[float]:
        log("asking which cells tell the labels apart")
        cells = run.cells.copy()
        tl.cell_relevance(cells, max_partners=5, key=run.key, n_jobs=n_jobs)
        return [round(float(value), 6) for value in cells.obs[column]]

    return np.array(cached(run, "relevance", None, compute), dtype=np.float64)


def _check_findings(findings: Any, folder: Path) -> None:
    """Raise where run.json is of another command, or of a version that wrote less."""
    known = findings if isinstance(findings, dict) else {}
    if known.get("command", "learn") != "learn":
        raise ValueError(f"{str(folder)!r} was written by groundmetric {known['command']}: give one of learn")
    for name in ("groundmetric", "command", "cells"):
        if name not in known:
            version = known.get("groundmetric", "of an unknown version")
            raise ValueError(
                f"{str(folder / FINDINGS)!r} was written by groundmetric {version}, without {name!r}: run groundmetric "
                "learn again"
            )


@dataclass(frozen=True)
class Directions:
    """The axes of the learned space, those first that carry most of the transport between labels.

    Attributes
    ----------
    rotation : (n_axes, n_components) to turn the learned space onto them
    share : (n_axes,) of the transport between labels
    loadings : (n_axes, n_features) for standardised features
    labels, positions : (n_labels, n_axes) mean of each label, in standard deviations
    """

    rotation: np.ndarray
    share: np.ndarray
    loadings: np.ndarray
    labels: list[str]
    positions: np.ndarray


def directions(run: Run, n_jobs: int | None, log: Log) -> Directions:
    def compute() -> dict[str, Any]:
        log("reading the axes of the learned space")
        trained = trained_from(run.cells, run.key)
        D, y = trained.cells, run.stored.labels
        assert D is not None
        own = GroundMetric(np.eye(D.shape[1]))
        axes = canonical_axes(own, D, y.loc[D.names].to_numpy(), max_partners=PARTNERS, n_jobs=n_jobs)
        return {
            "rotation": axes.metric.components.tolist(), "share": axes.share.tolist(),
            "labels": [str(label) for label in axes.classes], "positions": axes.positions.tolist(),
        }  # fmt: skip

    found = cached(run, "axes", PARTNERS, compute)
    metric = run.stored.metric
    rotation, positions = np.array(found["rotation"]), np.array(found["positions"])
    spread = np.ones(metric.n_features) if metric.variances is None else np.sqrt(metric.variances)
    loadings = rotation @ metric.components * spread
    # The strongest gene of an axis points up: a direction has no sign of its own.
    strongest = np.abs(loadings).argmax(axis=1)
    sign = np.where(loadings[np.arange(len(loadings)), strongest] < 0, -1.0, 1.0)
    return Directions(
        rotation * sign[:, None], np.array(found["share"]), loadings * sign[:, None], found["labels"], positions * sign
    )


def type_relevance(run: Run, type_key: str, n_jobs: int | None, log: Log) -> dict[str, list]:
    """By cell type, the share that its cells have in how much farther other labels are, with its interval."""

    def compute() -> dict[str, list]:
        log("asking which cell types carry the difference")
        trained = trained_from(run.cells, run.key)
        D = trained.cells
        assert D is not None
        kinds = _kinds(run, type_key, D.names)
        own = GroundMetric(np.eye(D.shape[1]))
        y = run.stored.labels.loc[D.names].to_numpy()
        obs = run.samples.obs
        groups = (
            obs[run.group_key].loc[D.names].to_numpy() if run.group_key in obs else None
        )  # patients are drawn whole
        found = annotation_relevance(
            own, D, y, kinds, groups=groups, max_partners=PARTNERS, n_jobs=n_jobs, n_draws=500
        )  # fmt: skip
        low, high = found.interval
        return {
            "values": [str(value) for value in found.values], "share": found.share.tolist(), "low": low.tolist(),
            "high": high.tolist(), "relevance": found.relevance.tolist(),
        }  # fmt: skip

    return cached(run, "types", [type_key, PARTNERS], compute)


def _kinds(run: Run, type_key: str, names: list) -> np.ndarray:
    """The type of each cell in the order in which distributions hold them: by sample, then as in `obs`."""
    obs = run.cells.obs
    who = samples_of(obs, run.sample_key)
    drawn = obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    kinds = obs[type_key].astype(object).where(obs[type_key].notna(), "unknown").astype(str).to_numpy()
    own = who.names[who.codes]
    return np.concatenate([kinds[drawn & (own == name)] for name in names])


def cohort_of(run: Run, group_key: str | None) -> Labelled:
    """The values that were learned from, again; genes are chosen within splits where a rule can be."""
    params = run.stored.params
    rule = params["genes"] if params.get("use_rep") is None else None
    if rule == "given":
        raise ValueError(
            "the genes were given as a list, which is not in the run: evaluate with groundmetric.evaluation"
        )
    return read_cohort(
        run.source, run.sample_key, run.label_key, group_key=group_key, layer=params.get("layer"),
        use_rep=params.get("use_rep"), genes=rule, n_cells=params.get("n_cells"),
        random_state=params.get("random_state", 0),
    )  # fmt: skip


def evaluate(
    run: Run, *, group_key: str | None, permutations: int, n_jobs: int | None, verbose: int, log: Log
) -> Evaluation:
    """The learner with the run's own parameters against quick baselines, on samples that it has not seen."""
    read_once = functools.cache(lambda: cohort_of(run, group_key))

    def test() -> dict[str, Any]:
        log(f"permuting labels {permutations} times")
        cohort = read_once()
        options: dict[str, Any] = {"n_jobs": n_jobs, "random_state": 0, "verbose": verbose}
        if run.results is not None:
            D = _of_the_metric(run, cohort)
            return permutation_test(
                learner_of(run), D, cohort.y, groups=cohort.groups, n_permutations=permutations, **options
            ).to_dict()
        return permutation_test(
            _methods(run, cohort)[LEARNED], cohort.D, cohort.y, cv=_folds(cohort), groups=cohort.groups,
            n_permutations=permutations, score=SCORE, class_weight=CLASS_WEIGHT, n_neighbors=_voters(_splits(cohort)),
            **options,
        ).to_dict()  # fmt: skip

    scores = cached(
        run, "scores", [group_key, FOLDS, QUICK], lambda: _scores(run, read_once(), group_key, n_jobs, verbose, log)
    )
    testable = permutations and (run.results is None or run.results.numbers is None)
    against = cached(run, "permutations", [group_key, FOLDS, permutations], test) if testable else None
    return Evaluation(**scores, test=against)


def _scores(
    run: Run, cohort: Labelled, group_key: str | None, n_jobs: int | None, verbose: int, log: Log
) -> dict[str, Any]:
    number = _folds(cohort)
    log(f"comparing the learned metric with {', '.join(QUICK)} on held-out samples ({number} folds)")
    splits, methods = _splits(cohort), _methods(run, cohort)
    if run.results is not None:
        del methods[LEARNED]
    found = compare(
        methods, cohort.D, cohort.y, cv=splits, groups=cohort.groups, n_neighbors=_voters(splits),
        class_weight=CLASS_WEIGHT, points=False, n_jobs=n_jobs, verbose=verbose,
    )  # fmt: skip
    if run.results is not None:
        found = with_held_out(found, _held_out(run, run.results, cohort, group_key, log))
    held = f"the samples, those of one {group_key} together," if group_key else "the samples"
    return {
        "score": SCORE,
        "chance": 1 / len(found.classes),
        "rows": [_row(found, method) for method in found.methods],
        "how": _how(run, number, held, _voters(splits)),
        "notes": [*cohort.notes, *found.notes],
    }


def _how(run: Run, number: int, held: str, voters: int) -> str:
    votes = (
        f"each held-out sample is given the label of the {voters} samples nearest to it, where each label counts the "
        "same, however many samples have it"
    )
    if run.results is None:
        return (
            f"In each of {number} folds, a part of {held} is held out, everything is learned from the others, and "
            f"{votes}"
        )
    return (
        f"The learned metric is that of an ensemble: each member learns from half of {held} and each sample is given "
        "the label that is predicted from distances by members that have not learned from it, while it is left out. "
        f"For the other methods, a part of {held} is held out in each of {number} folds, and {votes}"
    )


def _held_out(run: Run, results: EnsembleResults, cohort: Labelled, group_key: str | None, log: Log) -> np.ndarray:
    """Probabilities of the classes while samples were left out, in the order of the cohort.

    They are those of the run, so that there is one score everywhere; learned again only where other groups are kept
    together than in the run.
    """
    classes = np.unique(cohort.y)
    if group_key != run.group_key:
        log(f"learning again, samples of one {group_key} kept together")
        numbers = None
        if results.numbers is not None:
            place = dict(zip(results.labels.tolist(), results.numbers, strict=True))
            numbers = np.array([place[label] for label in np.asarray(cohort.y).tolist()])
        learner = learner_of(run)
        assert isinstance(learner, GroundMetricEnsemble)
        learner.fit(_of_the_metric(run, cohort), cohort.y if numbers is None else numbers, groups=cohort.groups)
        results = EnsembleResults.of(learner, cohort.D.names, np.asarray(cohort.y), numbers)
    places = {name: k for k, name in enumerate(results.samples)}
    return results.probabilities(classes)[[places[str(name)] for name in cohort.D.names]]


def with_held_out(found: Comparison, probabilities: np.ndarray) -> Comparison:
    """The comparison with the learned metric as its first method, by predictions that are known already."""
    codes = encode(np.asarray(found.labels), np.asarray(found.classes))
    own = []
    for _, test in found.splits:
        scores = {name: float(value) for name, value in score_codes(codes[test], probabilities[test]).items()}
        own.append(Result(scores={"distributions": scores}, probabilities=probabilities[test].tolist()))
    return dataclasses.replace(found, results={LEARNED: own, **found.results})


def _of_the_metric(run: Run, cohort: Labelled) -> Distributions:
    """The cohort with the features that the metric has."""
    assert cohort.D.features is not None
    position = {name: f for f, name in enumerate(cohort.D.features)}
    return with_features(cohort.D, np.array([position[name] for name in run.stored.features]))


def _splits(cohort: Labelled) -> list[Split]:
    return folds(cohort.y, groups=cohort.groups, n_splits=_folds(cohort), random_state=0)


def _voters(splits: list[Split]) -> int:
    return min(NEIGHBORS, *(train.size for train, _ in splits))


def _folds(cohort: Labelled) -> int:
    labels, units = np.asarray(cohort.y), cohort.groups or list(range(len(cohort.y)))
    smallest = min(len({unit for unit, y in zip(units, labels, strict=True) if y == c}) for c in np.unique(labels))
    if smallest < 2:
        raise ValueError("a label has one sample (or group) only, which cannot be both learned from and held out")
    return min(FOLDS, smallest)


def _methods(run: Run, cohort: Labelled) -> dict[str, Any]:
    methods = {LEARNED: learner_of(run)} | {name: baselines.by_name(short) for name, short in QUICK.items()}
    for method in methods.values():
        if "random_state" in method.get_params() and method.get_params()["random_state"] is None:
            method.set_params(random_state=0)
    assert cohort.rule is None or cohort.rule in INSIDE
    return methods if cohort.rule is None else {n: SelectedFeatures(m, cohort.rule) for n, m in methods.items()}


def learner_of(run: Run) -> GroundMetricEnsemble | GroundMetricLearner:
    """The learner that was used, without its progress bar."""
    kind = GroundMetricLearner if run.results is None else GroundMetricEnsemble
    known = kind().get_params()
    params = {name: value for name, value in read_parameters(run.learner).items() if name in known}
    return kind(**{**params, "verbose": 0, "n_jobs": None})


def _row(found: Comparison, method: str) -> dict[str, Any]:
    estimate = found.estimate(method, SCORE)
    row: dict[str, Any] = {
        "method": method, "status": found.status(method), "value": estimate.value, "low": estimate.low,
        "high": estimate.high, "seconds": found.seconds(method) if found.results[method][0].seconds else None,
    }  # fmt: skip
    if method != LEARNED:
        lead, p = found.against(LEARNED, SCORE)[method]
        row |= {"lead": lead.value, "lead_low": lead.low, "lead_high": lead.high, "p": p}
    return row


def has_values(run: Run) -> bool:
    return run.source is not None and (not isinstance(run.source, Path) or run.source.exists())


def refit(
    run: Run, *, group_key: str | None, refits: int, permutations: int, n_jobs: int | None, verbose: int, log: Log
) -> dict[str, Any]:
    """How much of each feature's importance would be found again: columns for the table of features, and notes."""

    def compute() -> dict[str, Any]:
        log(f"learning again {refits} times from samples drawn anew"
            + (f", {permutations} times with labels exchanged" if permutations else ""))  # fmt: skip
        cohort = cohort_of(run, group_key)
        D = _of_the_metric(run, cohort)
        learner = learner_of(run)
        learner.metric_ = run.stored.metric
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = stability(
                learner, D, cohort.y, groups=cohort.groups, n_refits=refits, n_permutations=permutations,
                n_jobs=n_jobs, verbose=verbose,
            )  # fmt: skip
        return _stability_columns(found) | {"notes": [str(warning.message) for warning in caught]}

    return cached(run, "stability", [group_key, refits, permutations], compute)


def _stability_columns(found: Any) -> dict[str, Any]:
    low, high = found.interval
    columns = {"low": low, "high": high, "selected": found.selected}
    between = "95% of the refits lie between low and high"
    fields = [["Refits, low", ".2%", False, between], ["Refits, high", ".2%", False, between]]
    fields.append([f"In top {found.n_top}", ".0%", False, f"share of {len(found.refits)} refits"])
    if found.discoveries is not None:
        columns["q"] = found.discoveries.q
        fields.append(["q", ".2g", False, "estimated share of false ones among genes as good, by permuted labels"])
    table = np.column_stack(list(columns.values()))
    return {
        "fields": fields,
        "rows": {name: [float(value) for value in row] for name, row in zip(found.features, table, strict=True)},
        "refits": len(found.refits),
        "permutations": len(found.null),
        "n_top": found.n_top,
        "selected": 2,  # its column
        "how": f"Learned again {len(found.refits)} times from samples drawn anew",
        "of": "refits",
    }


def by_members(run: Run, *, group_key: str | None, permutations: int, log: Log) -> dict[str, Any]:
    """As `refit`, of an ensemble: its members are the refits, each learned from half of the samples."""
    results = run.results
    assert results is not None
    columns = [*results.interval, results.selected]
    between = "95% of the members lie between low and high, and so does the importance"
    n_top = min(N_TOP, len(run.stored.features))
    fields = [["Members, low", ".2%", False, between], ["Members, high", ".2%", False, between],
              [f"In top {n_top}", ".0%", False, "share of the members, each of half of the samples"]]  # fmt: skip
    if permutations:
        q = cached(run, "q", [group_key, EXCHANGES], lambda: _q_values(run, group_key, log))
        columns.append(np.array(q))
        fields.append(["q", ".2g", False, "estimated share of false ones among genes as good, by permuted labels"])
    table = np.column_stack(columns)
    rows = {name: [float(value) for value in row] for name, row in zip(run.stored.features, table, strict=True)}
    return {
        "fields": fields, "rows": rows, "refits": results.n_members, "permutations": permutations, "n_top": n_top,
        "selected": 2, "notes": [], "of": "members",
        "how": f"In the {results.n_members} members of the ensemble, each learned from half of the samples",
    }  # fmt: skip


def _q_values(run: Run, group_key: str | None, log: Log) -> list[float]:
    """Of all features, each transported alone: that is a sort, so that many permutations take little time."""
    log(f"asking which features differ, with labels permuted {EXCHANGES} times")
    cohort = cohort_of(run, group_key)
    found = feature_significance(
        _of_the_metric(run, cohort), cohort.y, groups=cohort.groups, n_permutations=EXCHANGES, random_state=0
    )
    return [float(value) for value in found.discoveries.q]
