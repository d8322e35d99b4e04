"""Importance of features: stability in refits, enrichment of feature sets (GMT files), summary of a training."""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._internal.parallel import progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, RandomState
from .._internal.validation import check_number, group_list, unit_codes
from ..distributions import as_distributions
from ..ensemble.members import importance_interval
from ..evaluation.scores import resample
from .flows import Tabular, classes_of, feature_names, metric_of

# Sizes of sets that are tested for enrichment, in features of the background.
MIN_SIZE, MAX_SIZE = 5, 500


@dataclass(frozen=True)
class Stability(Tabular):
    """Importances of features in refits on bootstrap samples of the distributions.

    Parameters
    ----------
    features, importance, refits : list of str, array of shape (n_features,) and (n_refits, n_features)
        Names of the features, and importances of the learner as fitted and from bootstrap samples of the distributions.
    n_top : int
        Number of most important features that are called selected in a refit.

    Examples
    --------
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.PointTransport(LinearDiscriminantAnalysis())
    >>> gm.interpret.stability(learner, D, y, n_refits=3, n_top=1).selected.tolist()
    [1.0, 0.0]
    """

    features: list[str]
    importance: np.ndarray
    refits: np.ndarray
    n_top: int

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of 95 % of the refits, (2, n_features), as `pl.importance` draws them."""
        return importance_interval(self.importance, self.refits)

    @property
    def selected(self) -> np.ndarray:
        """Share of the refits in which each feature is among the `n_top` most important."""
        ranks = np.argsort(np.argsort(-self.refits, axis=1, kind="stable"), axis=1)
        return np.mean(ranks < self.n_top, axis=0)

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        low, high = self.interval
        columns = {
            "feature": self.features, "importance": self.importance, "low": low, "high": high,
            "selected": self.selected,
        }  # fmt: skip
        return columns, np.argsort(-self.importance, kind="stable")


def stability(
    learner: Estimator,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    n_refits: int = 100,
    n_top: int = 20,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> Stability:
    """Refit a learner on bootstrap samples of the distributions, for intervals and selection frequencies.

    Distributions are drawn with replacement within their class (whole groups if given; groups with several classes,
    regardless of class). A learner whose `init` is "discriminant" starts every refit at a discriminant of the refit's
    own sample and trains for a fifth of its epochs (at least 10); a start at the fitted W would make intervals up to
    three times too narrow. For error rates of single features use `feature_significance`; an ensemble has intervals
    without refits.

    Parameters
    ----------
    learner : GroundMetricLearner or another method with `metric_`
        Fitted on D and y, or not fitted.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; `y` and `groups` are aligned by name if they have names.
    groups : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution: distributions of a patient are drawn together.
    n_refits : int, default=100
        Number of bootstrap samples.
    n_top : int, default=20
        Number of most important features that are called selected.
    n_jobs : int or None, default=None
        Number of parallel fits.
    random_state : int, RandomState or None, default=0
        Seed of the draws.
    verbose : int, default=0
        1 shows a progress bar if stderr is a terminal.

    Returns
    -------
    Stability

    Examples
    --------
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.PointTransport(LinearDiscriminantAnalysis())
    >>> gm.interpret.stability(learner, D, y, n_refits=5, n_top=1).interval.shape
    (2, 2)
    """
    D = as_distributions(D)
    classes, codes = classes_of(y, D)
    check_number("n_refits", n_refits, low=1, whole=True)
    check_number("n_top", n_top, low=1, whole=True)
    random = check_random_state(random_state)
    metric = metric_of(learner if hasattr(learner, "metric_") else clone(learner).fit(D, classes[codes]), D)
    settings = learner.get_params()
    parameters: dict[str, Any] = {name: value for name, value in (("n_jobs", None), ("verbose", 0)) if name in settings}
    init = settings.get("init", "discriminant")  # may be an array
    if "max_epochs" in settings and isinstance(init, str) and init == "discriminant":
        parameters["max_epochs"] = min(max(10, settings["max_epochs"] // 5), settings["max_epochs"])
    draws = bootstrap_indices(codes, group_list(groups, D.name_index), n_refits, random)
    jobs = [(indices, int(random.randint(2**31 - 1))) for indices in draws]

    def refit(job: tuple[np.ndarray, int]) -> np.ndarray:
        indices, seed = job
        fresh = clone(learner).set_params(**parameters)
        if "random_state" in fresh.get_params():
            fresh.set_params(random_state=seed)
        importance: np.ndarray = fresh.fit(D[indices], codes[indices]).metric_.importance()
        return importance

    refits = np.empty((n_refits, D.shape[1]))
    # A refit has fewer different distributions than the cohort, and may warn of that. The filter is set outside of the
    # tasks, because filters belong to the process: threads would restore each other's.
    quiet = warnings.catch_warnings(action="ignore", category=UserWarning)
    with quiet, progress_bar(n_refits, "refits", "fit", show=bool(verbose)) as bar:
        for number, importance in run_tasks(refit, jobs, n_jobs):
            refits[number] = importance
            bar.update()
    return Stability(feature_names(D, metric), metric.importance(), refits, min(n_top, D.shape[1]))


def bootstrap_indices(codes: np.ndarray, groups: Any, n_draws: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Return bootstrap draws of distributions, each as indices."""
    # A draw has at least two different distributions of each class (of a class of one, this one): nothing can be
    # learned about a class from one distribution or copies of it.
    units = unit_codes(groups, codes.size)
    least = np.minimum(np.bincount(codes), 2)
    draws: list[np.ndarray] = []
    for _ in range(200 * n_draws):
        if len(draws) == n_draws:
            return draws
        counts = resample(units, codes, 1, random)
        if len(counts) and np.all(np.bincount(codes[counts[0] > 0], minlength=least.size) >= least):
            draws.append(np.repeat(np.arange(codes.size), counts[0].astype(int)))
    raise ValueError("too few groups for bootstrap draws: most draws leave a class with a single distribution")


def training_summary(history: Mapping[str, Any]) -> str:
    """Describe the training of a learner: loss of held-out triplets if available, else active triplets."""
    held_out = np.asarray(history.get("validation_loss", []), dtype=float)
    if np.isfinite(held_out).any():
        best = int(np.nanargmin(held_out))
        return f"held-out loss {held_out[0]:.3g} in the first epoch, {held_out[best]:.3g} at best (epoch {best + 1})"
    first, last = history["active"][0], history["active"][-1]
    if not np.any(history["active"]):
        return "no triplet was ever active (within the margin): there was nothing to learn beyond the start"
    if last == 0.0:
        return f"no triplet is active any more: nothing is left to learn ({first:.0%} in the first epoch)"
    return f"{last:.0%} of the triplets are active (within the margin), {first:.0%} in the first epoch"


@dataclass(frozen=True)
class Enrichment(Tabular):
    """Enrichment of sets of features, sorted by p-value.

    Parameters
    ----------
    sets, size : list of str, array of shape (n_sets,)
        Names of the sets, and the number of their members in the background.
    overlap : list of list of str
        Members of each set among the features that are tested for enrichment.
    effect, p, q : array of shape (n_sets,)
        Fold enrichment (size of the overlap over its expected size), p-values, and p-values adjusted for their number
        (Benjamini & Hochberg 1995).

    Examples
    --------
    >>> from groundmetric.interpret import over_representation
    >>> background = [f"g{k}" for k in range(20)]
    >>> over_representation(["g0", "g1"], background, {"first": background[:5]}).overlap
    [['g0', 'g1']]
    """

    sets: list[str]
    size: np.ndarray
    overlap: list[list[str]]
    effect: np.ndarray
    p: np.ndarray
    q: np.ndarray

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        columns = {
            "set": self.sets, "size": self.size, "overlap": [len(names) for names in self.overlap],
            "effect": self.effect, "p": self.p, "q": self.q, "features": [", ".join(names) for names in self.overlap],
        }  # fmt: skip
        return columns, np.arange(len(self.sets))


def over_representation(
    features: Iterable[str], background: Iterable[str], sets: Mapping[str, Iterable[str]]
) -> Enrichment:
    """Test whether a set has more of the given features than expected for a random draw from the background.

    The test is the one-sided hypergeometric test (Fisher's exact test). The background is the set of tested features
    (those that the metric was learned from), not all genes of the genome; otherwise every set of expressed genes is
    enriched.

    Parameters
    ----------
    features, background : iterable of str
        Names of the features, and of all that could have been among them, each once.
    sets : mapping of str to iterable of str
        Name of a set to its members, as from `read_gmt`; sets with 5 to 500 members in the background are tested.

    Returns
    -------
    Enrichment

    Examples
    --------
    >>> from groundmetric.interpret import over_representation
    >>> background = [f"g{k}" for k in range(100)]
    >>> result = over_representation(background[:5], background, {"first": background[:10]})
    >>> result.sets, result.effect.tolist(), f"{result.p[0]:.1e}"
    (['first'], [10.0], '3.3e-06')
    """
    names = [str(name) for name in background]
    position = {name: k for k, name in enumerate(names)}
    if len(position) < len(names):
        raise ValueError("background has a feature more than once: every feature counts once")
    chosen = {str(name) for name in features}
    if not chosen <= position.keys():
        unknown = sorted(chosen - position.keys())
        raise ValueError(f"{len(unknown)} features are not in the background, e.g. {unknown[0]!r}")
    if not chosen:
        raise ValueError("no features are given: at least one is needed")
    members = {name: sorted({position[m] for m in genes if m in position}) for name, genes in sets.items()}
    tested = {name: rows for name, rows in members.items() if MIN_SIZE <= len(rows) <= MAX_SIZE}
    if not tested:
        raise ValueError(
            f"none of {len(members)} sets has {MIN_SIZE} to {MAX_SIZE} members among the {len(names)} features of the "
            f"background (the largest has {max(map(len, members.values()), default=0)}): do both use the same names?"
        )
    overlap = [[names[k] for k in rows if names[k] in chosen] for rows in tested.values()]
    size, hits = np.array([len(rows) for rows in tested.values()]), np.array([len(shared) for shared in overlap])
    p = stats.hypergeom.sf(hits - 1, len(names), size, len(chosen))
    fold = hits / (size * (len(chosen) / len(names)))
    order = np.lexsort((-fold, p))
    sorted_sets, shared = [list(tested)[k] for k in order], [overlap[k] for k in order]
    q = stats.false_discovery_control(p)
    return Enrichment(sorted_sets, size[order], shared, effect=fold[order], p=p[order], q=q[order])


def read_gmt(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read the sets of a GMT file: a line has a name, a description and the members, separated by tabs.

    Parameters
    ----------
    path : path-like
        The file, compressed if its name ends in ".gz".

    Returns
    -------
    dict of str to list of str
        Name of a set to its members.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from groundmetric.interpret import read_gmt
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sets.gmt"
    ...     _ = path.write_text("first\\tthree genes\\tA\\tB\\tC\\nsecond\\ttwo genes\\tC\\tD\\n")
    ...     read_gmt(path)
    {'first': ['A', 'B', 'C'], 'second': ['C', 'D']}
    """
    path = Path(path)
    sets: dict[str, list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, *columns = line.rstrip("\r\n").split("\t")
            if len(columns) < 2:
                raise ValueError(f"{path.name}, line {number}: expected a name, a description and members, with tabs")
            if name in sets:
                raise ValueError(f"{path.name}, line {number}: a set {name!r} was defined before")
            sets[name] = list(dict.fromkeys(member for member in columns[1:] if member))
    if not sets:
        raise ValueError(f"{path.name} has no sets")
    return sets
