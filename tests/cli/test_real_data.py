"""The command line in fresh processes on real data: blood cells of eight donors, with interferon or not (Kang 2018)."""

import json
import subprocess
import sys
from pathlib import Path

import anndata as ad
import pytest
import scanpy as sc

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "kang_ifnb_pbmc_16samples.h5ad"
# Genes that textbooks name as induced by interferon.
INTERFERON = {
    "CMPK2", "CXCL10", "DDX58", "EIF2AK2", "EPSTI1", "HERC5", "IFI35", "IFI44", "IFI44L", "IFI6", "IFIH1", "IFIT1",
    "IFIT2", "IFIT3", "IFIT5", "IFITM3", "IRF7", "ISG15", "ISG20", "LY6E", "MX1", "MX2", "OAS1", "OAS2", "OAS3", "OASL",
    "RSAD2", "STAT1", "USP18",
}  # fmt: skip


def groundmetric(*arguments):
    command = [sys.executable, "-m", "groundmetric", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data, which is not part of the repository")
def test_learned_on_four_donors_the_others_are_told_apart(tmp_path):
    adata = ad.read_h5ad(DATA)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    first = adata.obs["donor"].isin(sorted(adata.obs["donor"].unique())[:4])
    adata[first].write_h5ad(tmp_path / "cells.h5ad")
    adata[~first].write_h5ad(tmp_path / "new.h5ad")

    learn = [
        "learn",
        tmp_path / "cells.h5ad",
        "--sample",
        "sample",
        "--label",
        "label",
        "--cells-per-sample",
        50,
        "--genes",
        500,
    ]
    done = groundmetric(*learn, "-o", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)
    assert findings["n_samples"] == 8
    assert len(INTERFERON & set(findings["importance"])) >= 7  # of 10
    assert "--group donor" in done.stderr

    done = groundmetric("predict", tmp_path / "run", tmp_path / "new.h5ad", "--json", "-o", tmp_path / "predicted")
    assert done.returncode == 0, done.stderr
    predictions = json.loads(done.stdout)["predictions"]
    assert len(predictions) == 8
    assert all(
        prediction["sample"].startswith(prediction["predicted"]) for prediction in predictions
    )  # ctrl_101, stim_101, …

    done = groundmetric(*learn, "-o", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--replace" in done.stderr
    assert "Traceback" not in done.stderr
