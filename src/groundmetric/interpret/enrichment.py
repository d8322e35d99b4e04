"""Which sets of features (pathways) the important ones belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from .axes import Axes
from .frames import frame
from .gene_sets import membership

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
