"""Enrichment by g:Profiler, which is asked over the internet through its official client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .enrichment import Enrichment


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
