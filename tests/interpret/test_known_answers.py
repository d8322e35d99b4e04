"""The simulated and the real cohort in which it is known what must come out."""

from pathlib import Path

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.interpret import annotation_relevance, over_representation, read_gmt

DATA = Path(__file__).parents[2].parent / "shared" / "data"
INTERFERON = ("HALLMARK_INTERFERON_ALPHA_RESPONSE", "HALLMARK_INTERFERON_GAMMA_RESPONSE")


def as_distributions(adata, points, label):
    samples = adata.obs["sample"].to_numpy(str)
    kinds = {"cell_type": adata.obs["cell_type"].to_numpy(str)}
    D = gm.Distributions(points, samples, features=list(adata.var_names), annotations=kinds)
    return D, adata.obs.drop_duplicates("sample").set_index("sample")[label].loc[D.names].to_numpy(str)


def test_the_programme_of_a_simulated_cohort():
    pytest.importorskip("anndata")
    adata = gm.datasets.make_cohort(random_state=0)
    truth = adata.uns["truth"]
    D, y = as_distributions(adata, adata.X, "condition")
    learner = gm.GroundMetricLearner(max_epochs=20, random_state=0).fit(D, y)
    assert np.isin(most_important(learner, D, 20), truth["programme_genes"]).sum() >= 18
    carried = annotation_relevance(learner, D, y, "cell_type", n_draws=200)
    first = int(carried.share.argmax())
    assert carried.values[first] == truth["programme_type"]
    assert carried.first[first] > 0.95


def most_important(learner, D, n):
    """Names of the features with the highest importance."""
    return [D.features[f] for f in np.argsort(-learner.metric_.importance(), kind="stable")[:n]]


def interferon_cohort():
    """Four donors of the interferon cohort, control and stimulated, 400 cells of each sample, on a log scale."""
    anndata = pytest.importorskip("anndata")
    path = DATA / "kang_ifnb_pbmc_16samples.h5ad"
    if not path.exists():
        pytest.skip(f"the data of Kang et al. are not there: {path}")
    adata = anndata.read_h5ad(path)
    adata = adata[adata.obs["donor"].isin(sorted(adata.obs["donor"].unique())[:4])]
    random = np.random.RandomState(0)
    samples = adata.obs["sample"].to_numpy(str)
    rows = [random.permutation(np.flatnonzero(samples == name))[:400] for name in np.unique(samples)]
    adata = adata[np.sort(np.concatenate(rows))].copy()
    scaled = adata.X.multiply(1e4 / adata.obs["n_counts_all_genes"].to_numpy(float)[:, None]).tocsr()
    return as_distributions(adata, scaled.log1p().astype(np.float32), "label")


def test_interferon_genes_of_stimulated_cells():
    D, y = interferon_cohort()
    sets = read_gmt(DATA / "genesets_hallmark_reactome_gobp.gmt.gz")
    learner = gm.GroundMetricLearner(max_epochs=20, random_state=0).fit(D, y)
    labelled = set().union(*(sets[name] for name in INTERFERON))
    assert len(labelled & set(most_important(learner, D, 20))) >= 15
    assert over_representation(most_important(learner, D, 50), D.features, sets).sets[0] in INTERFERON
