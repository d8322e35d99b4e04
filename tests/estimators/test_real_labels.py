"""On real data: a paired design, in which the nearest by Euclid is the same donor's other arm."""

from pathlib import Path

import numpy as np
import pytest

import groundmetric as gm

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "zhao_gbm_panobinostat_10samples.h5ad"


@pytest.mark.skipif(not DATA.exists(), reason="the real data sets are not here")
@pytest.mark.filterwarnings("ignore:1 of 9 distributions")  # the one whose partner is left out
def test_the_drug_is_learned_and_not_the_patient():
    anndata = pytest.importorskip("anndata")
    adata = anndata.read_h5ad(DATA)
    D = gm.Distributions(adata.X, adata.obs["sample"].astype(str).to_numpy()).subsample(100, random_state=0)
    first = adata.obs.drop_duplicates("sample")
    first = first.set_index(first["sample"].astype(str)).loc[D.names]
    arm, patient = first["label"].astype(str).to_numpy(), first["patient"].astype(str).to_numpy()
    right = []
    for position in range(len(D)):
        train = np.delete(np.arange(len(D)), position)
        classifier = gm.TransportKNeighborsClassifier(1, metric=gm.GroundMetricLearner(max_epochs=20, random_state=0))
        classifier.fit(D[train], arm[train], strata=patient[train])
        right.append(classifier.predict(D[[position]])[0] == arm[position])
    assert np.mean(right) >= 0.8
