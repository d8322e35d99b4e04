"""Stability of what is learned: the time of a hundred refits, and what is found with true and with exchanged labels."""

from __future__ import annotations

import numpy as np

import groundmetric as gm
from groundmetric.interpret import stability

SEEDS = 5


def run() -> list[dict]:
    """The default simulated cohort (20 programme genes); then the same with labels dealt out anew, `SEEDS` times."""
    adata = gm.datasets.make_cohort(random_state=0)
    samples = adata.obs["sample"].to_numpy(str)
    D = gm.Distributions(adata.X, samples, features=list(adata.var_names))
    y = adata.obs.drop_duplicates("sample").set_index("sample")["condition"].loc[D.names].to_numpy(str)
    programme = set(adata.uns["truth"]["programme_genes"])
    rows = [_row("true", D, y, programme, n_refits=100)]
    for seed in range(SEEDS):
        exchanged = np.random.RandomState(seed).permutation(y)
        rows.append(_row(f"exchanged, seed {seed}", D, exchanged, programme, n_refits=0))
    return rows


def _row(labels: str, D: gm.Distributions, y: np.ndarray, programme: set[str], n_refits: int) -> dict:
    learner = gm.GroundMetricLearner(random_state=0).fit(D, y)
    found = stability(learner, D, y, n_refits=n_refits, n_permutations=99, random_state=0)
    table = found.table()
    called = set(table.loc[table["q"] < 0.05, "feature"])
    return {
        "labels": labels,
        "refits": len(found.refits),
        "permutations": len(found.null),
        "seconds of all fits": found.seconds,
        "of the programme in the top 20": len(programme & set(table["feature"][:20])),
        "genes with q < 0.05": len(called),
        "of these in the programme": len(called & programme),
        "mean times selected (top 20)": float(np.mean(table["selected"][:20])) if n_refits else float("nan"),
        "first principal angle": float(np.median(found.angles[:, 0])) if n_refits else float("nan"),
    }
