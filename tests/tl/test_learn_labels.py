"""tl.learn with batches and ordered labels."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric import cli
from groundmetric._internal.validation import ParameterError

QUICK = {"n_cells": 30, "max_epochs": 3}


def distributions(adata):
    values = adata.X.toarray()
    # Equal numbers of points are drawn by the names of samples and features.
    selected = values.var(axis=0) > values.var(axis=0).mean()
    return gm.Distributions(values[:, selected], adata.obs["sample"].astype(str), features=adata.var_names[selected])


@pytest.mark.parametrize("kind", ["ggml", "ensemble"])
def test_a_batch_key_is_the_learners_strata(cohort, kind):
    more = {"max_epochs": 3, **({"n_members": 2} if kind == "ensemble" else {})}
    gm.tl.learn(cohort, "sample", "condition", method=kind, batch_key="batch", n_cells=None, **more)
    D = distributions(cohort)
    samples = cohort.obs.drop_duplicates("sample").set_index("sample").loc[D.names]
    plain = (gm.GroundMetricEnsemble if kind == "ensemble" else gm.GroundMetricLearner)(**more, random_state=0)
    expected = plain.fit(D, samples["condition"].astype(str).to_numpy(), strata=samples["batch"].to_numpy())
    # The signs of components depend on rounding, the matrix does not.
    expected_matrix = expected.components_.T @ expected.components_
    tolerance = 1e-5 * np.abs(expected_matrix).max()
    np.testing.assert_allclose(gm.get.metric(cohort).matrix(), expected_matrix, rtol=1e-5, atol=tolerance)
    params = cohort.uns["groundmetric"]["params"]
    assert (params["batch_key"], params["method"]) == ("batch", kind)


def test_batches_that_do_not_fit_are_named(cohort):
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "condition", batch_key="site", **QUICK)
    assert (caught.value.parameter, caught.value.value) == ("batch_key", "site")
    with pytest.raises(ValueError, match=r"batch_key is 'cell_type', but sample 'S01' has the values"):
        gm.tl.learn(cohort, "sample", "condition", batch_key="cell_type", **QUICK)


@pytest.mark.parametrize("method", ["ggml", "ensemble"])
@pytest.mark.parametrize("batch_key", ["condition", "sample"])
def test_batches_that_determine_the_label_are_refused(cohort, method, batch_key):
    with pytest.raises(ValueError, match=r"obs\['condition'\] does not differ within any batch") as caught:
        gm.tl.learn(cohort, "sample", "condition", method=method, batch_key=batch_key, **QUICK)
    assert (caught.value.parameter, caught.value.value) == ("batch_key", batch_key)


def ordered(adata, names):
    codes = adata.obs["sample"].cat.codes.to_numpy() % len(names)
    adata.obs["stage"] = pd.Categorical.from_codes(codes, names, ordered=True)
    return codes.astype(float)


def test_ordered_categories_keep_their_order(cohort):
    cohort.obs["rank"] = ordered(cohort, ["none", "mild", "bad"])
    by_name, by_rank = (
        gm.tl.learn(cohort.copy(), "sample", key, target="ordered", **QUICK) for key in ("stage", "rank")
    )
    assert_array_equal(gm.get.metric(by_name).components, gm.get.metric(by_rank).components)
    assert set(by_name.uns["groundmetric"]["labels"]["labels"]) == {"none", "mild", "bad"}
    names, ranks = (result.uns["groundmetric"]["ensemble"] for result in (by_name, by_rank))
    assert_array_equal(names["held_out"], ranks["held_out"])
    nearest = np.clip(np.round(ranks["predicted"]), 0, 2).astype(int)  # numbers stay numbers, categories are named
    assert names["predicted"].tolist() == np.array(["none", "mild", "bad"])[nearest].tolist()
    assert names["scores"]["r2"] == ranks["scores"]["r2"] <= 1.0


def test_targets_other_than_a_column_are_refused(cohort):
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "condition", target="distances", **QUICK)
    assert (caught.value.parameter, caught.value.value) == ("target", "distances")


def test_the_command_line_takes_a_batch_and_an_order(cohort, tmp_path):
    ordered(cohort, ["none", "mild", "bad"])
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    command = ["learn", str(tmp_path / "cells.h5ad"), "--sample", "sample", "--label", "stage", "--epochs", "3"]
    more = ["--cells-per-sample", "30", "--target", "ordered", "--batch", "batch", "-o", str(tmp_path / "run")]
    assert cli.main([*command, *more]) == 0
    expected = gm.tl.learn(cohort, "sample", "stage", target="ordered", batch_key="batch", **QUICK)
    assert_array_equal(
        gm.GroundMetric.load(tmp_path / "run" / "metric.gm").components, gm.get.metric(expected).components
    )
