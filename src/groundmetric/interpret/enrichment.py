"""Enrichment: which sets of features (pathways) the important ones belong to, from GMT files or g:Profiler."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse, stats

from ._inputs import frame
from .axes import Axes


def read_gmt(path: str | os.PathLike, *, prefix: str = "") -> dict[str, list[str]]:
    """The sets of a GMT file (also .gz): a line has a name, a description and the members, with tabs between.

    Parameters
    ----------
    prefix : only sets whose name begins with it, e.g. "HALLMARK_"
    """
    path = Path(path)
    sets: dict[str, list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, *rest = line.rstrip("\r\n").split("\t")
            if len(rest) < 2:
                raise ValueError(f"{path.name}, line {number}: expected a name, a description and members, with tabs")
            if name.startswith(prefix):
                if name in sets:
                    raise ValueError(f"{path.name}, line {number}: there is a set {name!r} before")
                sets[name] = list(dict.fromkeys(member for member in rest[1:] if member))
    if not sets:
        raise ValueError(f"{path.name} has no sets" + (f" whose name begins with {prefix!r}" if prefix else ""))
    return sets


@dataclass(frozen=True)
class Membership:
    """Which of the background's features are in which set: a sparse matrix (n_sets, n_features) of ones."""

    names: list[str]
    background: list[str]
    matrix: sparse.csr_matrix

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.matrix.indptr)

    def members(self, s: int, of: np.ndarray) -> list[str]:
        """Names of the members of a set among those of a mask."""
        inside = self.matrix.indices[self.matrix.indptr[s] : self.matrix.indptr[s + 1]]
        return [self.background[f] for f in inside if of[f]]


def membership(
    background: Iterable[str], sets: Mapping[str, Iterable[str]], min_size: int, max_size: int | None
) -> Membership:
    """Sets with at least `min_size` and at most `max_size` members in the background; other members do not count."""
    background = [str(name) for name in background]
    place = {name: f for f, name in enumerate(background)}
    if len(place) < len(background):
        twice = next(name for f, name in enumerate(background) if place[name] != f)
        raise ValueError(f"background has {twice!r} more than once: every feature counts once")
    found = {name: sorted({place[m] for m in members if m in place}) for name, members in sets.items()}
    most = len(background) if max_size is None else max_size
    kept = {name: members for name, members in found.items() if max(1, min_size) <= len(members) <= most}
    if not kept:
        largest = max(map(len, found.values()), default=0)
        raise ValueError(
            f"none of {len(found)} sets has {min_size} to {most} members among the {len(background)} features of the "
            f"background (the largest has {largest}): do both use the same kind of names?"
        )
    bounds = np.concatenate([[0], np.cumsum([len(members) for members in kept.values()])])
    indices = np.concatenate([np.array(members, dtype=np.intp) for members in kept.values()])
    matrix = sparse.csr_matrix((np.ones(indices.size), indices, bounds), (len(kept), len(background)))
    return Membership(list(kept), background, matrix)


if TYPE_CHECKING:
    from pandas import DataFrame

Sets = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class Enrichment:
    """Sets, those with the smallest p-value first.

    Attributes
    ----------
    sets : names
    size : (n_sets,) members of each among the features that were tested
    overlap : members of each among the features that were asked about; for a rank test, among the top tenth
    effect : (n_sets,) fold of the overlap over what is expected; for a rank test, the chance that a member ranks above
        another feature (0.5: like any)
    p : (n_sets,)
    q : (n_sets,) p-values adjusted for the number of sets (Benjamini & Hochberg 1995)
    test : how it was tested
    """

    sets: list[str]
    size: np.ndarray
    overlap: list[list[str]]
    effect: np.ndarray
    p: np.ndarray
    q: np.ndarray
    test: str

    def table(self) -> DataFrame:
        """A row per set."""
        columns = {
            "set": self.sets, "size": self.size, "overlap": [len(names) for names in self.overlap],
            "effect": self.effect, "p": self.p, "q": self.q, "features": [", ".join(names) for names in self.overlap],
        }  # fmt: skip
        return frame(columns)


def benjamini_hochberg(p: Any) -> np.ndarray:
    """p-values adjusted so that calling all below q expects a share of at most q of them to be false.

    >>> benjamini_hochberg([0.01, 0.02, 0.9]).round(3).tolist()
    [0.03, 0.03, 0.9]
    """
    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return adjusted


def over_representation(
    features: Iterable[str], background: Iterable[str], sets: Sets, *, min_size: int = 5, max_size: int | None = 500
) -> Enrichment:
    """Are more of these features in a set than if they had been drawn from the background at random?

    The hypergeometric test, one-sided (Fisher's exact test). The background is what was tested (the features that the
    metric was learned from), not all genes of the genome, else every set of expressed genes looks enriched.

    Parameters
    ----------
    features : names, all of them in the background
    background : names of all features that could have been among them
    sets : names to members, as by `read_gmt`
    min_size, max_size : of the sets, counting members in the background

    >>> background = [f"g{k}" for k in range(100)]
    >>> found = over_representation(background[:5], background, {"first": background[:10]})
    >>> found.sets, found.effect.tolist(), f"{found.p[0]:.1e}"
    (['first'], [10.0], '3.3e-06')
    """
    known = membership(background, sets, min_size, max_size)
    asked = {str(name) for name in features}
    chosen = np.array([name in asked for name in known.background])
    if chosen.sum() < len(asked):
        strange = sorted(asked - set(known.background))
        raise ValueError(f"{len(strange)} features are not in the background, e.g. {strange[0]!r}: give both alike")
    if not chosen.any():
        raise ValueError("no features are given: at least one is needed")
    hits = known.matrix @ chosen.astype(float)
    p = stats.hypergeom.sf(hits - 1, chosen.size, known.sizes, int(chosen.sum()))
    fold = hits / (known.sizes * chosen.mean())
    return _enrichment(known, chosen, p, fold, f"over-representation of {int(chosen.sum())} in {chosen.size} features")


def rank_enrichment(
    scores: Any,
    sets: Sets,
    *,
    features: Iterable[str] | None = None,
    null: Any = None,
    min_size: int = 5,
    max_size: int | None = 500,
) -> Enrichment:
    """Do the members of a set rank higher than other features? The rank-sum test of Mann and Whitney, one-sided.

    No threshold is needed, and many small effects count. The test takes features for independent: members of a set
    that rise and fall together make its p-values too small. With `null` (the importances with labels exchanged, as
    `stability` keeps them) the rank sum is compared with those instead, which have the same correlations; then no
    p-value is below one over their number plus one.

    Parameters
    ----------
    scores : a score per feature (importance, say), or a mapping of names to scores
    sets : names to members, as by `read_gmt`
    features : names, where scores are an array
    null : (n_permutations, n_features), scores with labels exchanged
    min_size, max_size : of the sets, counting members among the features
    """
    names, scores = _scores(scores, features)
    known = membership(names, sets, min_size, max_size)
    inside, outside = known.sizes, scores.size - known.sizes
    total = known.matrix @ stats.rankdata(scores)
    above = total - inside * (inside + 1) / 2  # pairs in which the member is higher, ties counting half
    effect = above / np.maximum(inside * outside, 1)
    if null is None:
        p = stats.norm.sf((above - inside * outside / 2 - 0.5) / _deviation(scores, inside, outside))
        test = f"rank sums of {scores.size} features"
    else:
        null = np.atleast_2d(np.asarray(null, dtype=np.float64))
        if null.shape[1] != scores.size:
            raise ValueError(f"null has {null.shape[1]} features, scores have {scores.size}: both need the same")
        exchanged = known.matrix @ stats.rankdata(null, axis=1).T  # (n_sets, n_permutations)
        p = (1 + np.sum(exchanged >= total[:, None] - 1e-9, axis=1)) / (1 + len(null))
        test = f"rank sums of {scores.size} features against {len(null)} permutations"
    top = scores >= np.quantile(scores, 0.9)
    return _enrichment(known, top, p, effect, test)


def enrich_axes(axes: Axes, sets: Sets, *, n_top: int | None = 50, **options: Any) -> dict[str, Enrichment]:
    """Enrichment of the whole metric ("all") and of each of its axes ("axis 1", …).

    Parameters
    ----------
    axes : from `canonical_axes`
    n_top : over-representation of so many features with the largest loadings; None: the rank test on the loadings
    **options : min_size, max_size
    """
    scores = {"all": axes.metric.importance()}
    scores |= {f"axis {a + 1}": axes.importance(a) for a in range(len(axes.loadings))}
    if n_top is None:
        return {name: rank_enrichment(each, sets, features=axes.features, **options) for name, each in scores.items()}
    found = {}
    for name, each in scores.items():
        top = [axes.features[f] for f in np.argsort(-each, kind="stable")[:n_top]]
        found[name] = over_representation(top, axes.features, sets, **options)
    return found


def _scores(scores: Any, features: Iterable[str] | None) -> tuple[list[str], np.ndarray]:
    if features is None:
        if not hasattr(scores, "items"):
            raise ValueError("scores have no names: give `features`, or a mapping of names to scores")
        features, scores = zip(*scores.items(), strict=True)
    names, scores = [str(name) for name in features], np.asarray(scores, dtype=np.float64)
    if scores.shape != (len(names),):
        raise ValueError(f"scores have shape {scores.shape} for {len(names)} features: one is needed for each")
    if not np.isfinite(scores).all():
        raise ValueError(f"the score of {names[int(np.argmin(np.isfinite(scores)))]!r} is not a number: leave it out")
    return names, scores


def _deviation(scores: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
    """Standard deviation of the rank-sum statistic, with the correction for ties."""
    _, ties = np.unique(scores, return_counts=True)
    n = scores.size
    variance = inside * outside / 12 * (n + 1 - np.sum(ties**3.0 - ties) / (n * (n - 1)))
    return np.sqrt(np.maximum(variance, 1e-300))


def _enrichment(known: Any, chosen: np.ndarray, p: np.ndarray, effect: np.ndarray, test: str) -> Enrichment:
    q = benjamini_hochberg(p)
    order = np.lexsort((-effect, p))
    return Enrichment(
        sets=[known.names[s] for s in order],
        size=known.sizes[order],
        overlap=[known.members(s, chosen) for s in order],
        effect=effect[order],
        p=p[order],
        q=q[order],
        test=test,
    )


def g_profiler(
    features: Iterable[str],
    background: Iterable[str] | None = None,
    *,
    organism: str = "hsapiens",
    sources: Sequence[str] = (),
    base_url: str | None = None,
) -> Enrichment:
    """Ask g:Profiler which terms (GO, Reactome, KEGG, …) these genes belong to.

    The genes leave this computer; `over_representation` with a GMT file does not need that. The q-values are those of
    g:Profiler (false discovery rate), which gives no others: `p` is the same.

    Parameters
    ----------
    features : names of genes, in any kind of names that g:Profiler knows
    background : names of all genes that could have been among them; None: all genes with annotation
    organism : as g:Profiler calls it, e.g. "mmusculus"
    sources : e.g. ("GO:BP", "REAC"); empty: all
    base_url : of another server than the public one
    """
    asked = list(dict.fromkeys(str(name) for name in features))
    if not asked:
        raise ValueError("no features are given: at least one is needed")
    rows = _ask(
        base_url,
        organism=organism,
        query=asked,
        sources=list(sources),
        all_results=True,
        no_evidences=False,
        significance_threshold_method="fdr",
        background=None if background is None else [str(name) for name in background],
    )
    rows = sorted(rows, key=lambda row: row["p_value"])
    numbers = {key: np.array([row[key] for row in rows], dtype=float) for key in ("p_value", "term_size", "query_size")}
    shared = np.array([row["intersection_size"] for row in rows], dtype=float)
    domain = np.array([row["effective_domain_size"] for row in rows], dtype=float)
    expected = numbers["term_size"] * numbers["query_size"] / np.maximum(domain, 1)
    return Enrichment(
        sets=[f"{row['native']} {row['name']}" for row in rows],
        size=numbers["term_size"].astype(int),
        overlap=[list(row.get("intersections", [])) for row in rows],
        effect=shared / np.maximum(expected, 1e-300),
        p=numbers["p_value"],
        q=numbers["p_value"],
        test=f"g:Profiler, {organism}",
    )


def _ask(base_url: str | None, **question: Any) -> list[dict[str, Any]]:
    try:
        import requests
        from gprofiler import GProfiler
    except ModuleNotFoundError:
        message = "gprofiler-official is needed for this: pip install 'groundmetric[enrichment]'"
        raise ModuleNotFoundError(message, name="gprofiler") from None
    client = GProfiler(user_agent="groundmetric", base_url=base_url)
    instead = "without internet, use over_representation with a GMT file (read_gmt)"
    try:
        return client.profile(**question)
    except requests.exceptions.RequestException as error:
        raise ConnectionError(f"g:Profiler does not answer at {client.base_url} ({error}): {instead}") from error
    except AssertionError as error:  # how the client says that the server has refused
        raise ValueError(f"g:Profiler refuses the question: {error}") from error
