"""tl.cell_relevance: relevance of cells, and its relation to their types."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.interpret.flows import partners


@pytest.fixture(scope="module")
def judged(learned):
    adata = learned.copy()
    gm.tl.cell_relevance(adata)
    return adata


def test_relevance_shares_out_how_much_farther_other_classes_are(judged):
    table = gm.tl.samples(judged)
    distances, labels = table.obsp["groundmetric_in_sample"], table.obs["condition"].to_numpy()
    differs = labels[:, None] != labels
    unit = distances[differs].mean()
    by_sample = judged.obs.groupby("sample", observed=True)
    for s, name in enumerate(table.obs_names):
        between, within = distances[s, differs[s]].mean(), distances[s, ~differs[s]].sum() / (np.sum(~differs[s]) - 1)
        cells = by_sample.get_group(name)
        np.testing.assert_allclose(cells["groundmetric_between"].mean(), between, rtol=1e-9)
        np.testing.assert_allclose(cells["groundmetric_within"].mean(), within, rtol=1e-9)
        np.testing.assert_allclose(cells["groundmetric_relevance"].mean(), (between - within) / unit, rtol=1e-9)


def test_cells_of_the_type_that_the_disease_is_in_are_the_relevant_ones(judged):
    drawn = judged.obs[judged.obs["groundmetric_sampled"] & (judged.obs["condition"] == "disease")]
    assert roc_auc_score(drawn["programme"], drawn["groundmetric_relevance"]) > 0.9


def test_cells_of_other_types_are_relevant_only_where_they_must_be_partners(judged):
    """With types, a cell of a type without effect travels as far in the own class; without, changed cells push it."""
    adata = judged.copy()
    gm.tl.cell_relevance(adata, cell_type_key="cell_type")
    differs = ~adata.obs["cell_type"].isin(adata.obs.loc[adata.obs["programme"], "cell_type"])
    within, free = (np.abs(table.obs.loc[differs, "groundmetric_relevance"].mean()) for table in (adata, judged))
    assert within < 0.5 * free
    with pytest.raises(ParameterError) as caught:
        gm.tl.cell_relevance(adata, cell_type_key="kind")
    assert (caught.value.parameter, caught.value.value) == ("cell_type_key", "kind")


def test_one_type_is_as_none(judged):
    adata = judged.copy()
    adata.obs["kind"] = "cell"
    gm.tl.cell_relevance(adata, cell_type_key="kind")
    np.testing.assert_array_equal(adata.obs["groundmetric_relevance"], judged.obs["groundmetric_relevance"])


def test_the_order_of_cells_makes_no_difference(judged):
    mixed = judged[np.random.default_rng(0).permutation(judged.n_obs)].copy()
    gm.tl.cell_relevance(mixed)
    relevance = mixed.obs.loc[judged.obs_names, "groundmetric_relevance"]
    expected = judged.obs.groupby("sample", observed=True)["groundmetric_relevance"].mean()
    np.testing.assert_allclose(relevance.groupby(judged.obs["sample"], observed=True).mean(), expected, rtol=1e-9)
    assert np.corrcoef(relevance.dropna(), judged.obs["groundmetric_relevance"].dropna())[0, 1] > 0.999


def test_cells_that_were_not_drawn_have_none(judged):
    assert judged.obs["groundmetric_relevance"].notna().tolist() == judged.obs["groundmetric_sampled"].tolist()


def test_partners_are_at_most_so_many_of_each_class_and_never_oneself():
    codes = np.array([0, 0, 0, 0, 1, 1, 2])
    pairs = partners(codes, 2, np.random.default_rng(0))
    assert np.all(pairs[:, 0] != pairs[:, 1])
    assert len(set(map(tuple, pairs.tolist()))) == len(pairs)
    for sample, differs in enumerate(codes):
        chosen = codes[pairs[pairs[:, 0] == sample, 1]]
        expected = [min(2, np.sum(codes == c) - (c == differs)) for c in range(3)]
        assert np.bincount(chosen, minlength=3).tolist() == expected


def test_fewer_partners_and_more_threads(judged):
    adata = judged.copy()
    gm.tl.cell_relevance(adata, n_jobs=2)
    np.testing.assert_array_equal(adata.obs["groundmetric_relevance"], judged.obs["groundmetric_relevance"])
    gm.tl.cell_relevance(adata, max_partners=2, random_state=1)
    drawn = adata.obs["groundmetric_sampled"]
    correlation = np.corrcoef(
        adata.obs.loc[drawn, "groundmetric_relevance"], judged.obs.loc[drawn, "groundmetric_relevance"]
    )
    assert correlation[0, 1] > 0.9
    with pytest.raises(ParameterError) as caught:
        gm.tl.cell_relevance(adata, max_partners=0)
    assert (caught.value.parameter, caught.value.value) == ("max_partners", 0)


def test_numbers_are_divided_into_halves(cohort):
    cohort.obs["age"] = cohort.obs["sample"].cat.codes.astype(float)  # the diseased are in the upper half
    gm.tl.learn(cohort, "sample", "age", target="ordered", n_cells=30, n_members=2, kinds=["univariate"])
    gm.tl.cell_relevance(cohort)
    numbers = cohort.obs["groundmetric_relevance"].copy()
    assert numbers.notna().tolist() == cohort.obs["groundmetric_sampled"].tolist()
    entry = cohort.uns["groundmetric"]
    entry["labels"]["labels"] = np.repeat(["control", "disease"], 5).astype(object)
    gm.tl.cell_relevance(cohort)
    np.testing.assert_array_equal(cohort.obs["groundmetric_relevance"], numbers)


def test_samples_without_a_label_are_not_judged(cohort):
    cohort.obs["known"] = cohort.obs["condition"].astype(object).where(cohort.obs["sample"] != "S01")
    with pytest.warns(UserWarning, match="samples without a label in .*: 1 of 10"):
        gm.tl.learn(cohort, "sample", "known", n_cells=30, max_epochs=2)
    gm.tl.cell_relevance(cohort)
    hidden = cohort.obs["sample"] == "S01"
    assert cohort.obs.loc[hidden, "groundmetric_relevance"].isna().all()
