"""Batch effects: known answers, calibration, and differences that are not batch effects."""

import numpy as np
import pandas as pd
import pytest

import groundmetric as gm
from groundmetric.interpret import batch_effects
from groundmetric.interpret.batches import association

LABELS = np.repeat(["ill", "well"], 10)
BATCH = np.tile(["a", "b"], 10)


def placed(*shifts, seed=0, n=20):
    """Distances between random places, which the given columns move."""
    at = np.random.default_rng(seed).normal(size=(n, 2))
    for values, size in shifts:
        at[:, 0] += size * np.unique(values, return_inverse=True)[1]
    return np.linalg.norm(at[:, None] - at, axis=2)


def test_a_batch_that_moves_everything_is_found_and_its_strength_told():
    result = batch_effects(placed((BATCH, 50.0)), LABELS, {"batch": BATCH})
    assert result.in_distances().tolist() == [True]
    assert result.neighbors.tolist() == [1.0]
    assert result.neighbors_expected[0] == pytest.approx(9 / 19, abs=0.05)  # half of the others
    assert result.r2[0] > 0.95 > 0.2 > result.label_r2[0]
    assert result.p[0] == result.q[0] == pytest.approx(1 / 1000)
    assert result.association[0] == 0.0
    assert result.table()["covariate"].tolist() == ["batch"]


def test_r2_is_the_explained_share_of_the_variance():
    at = np.random.default_rng(0).normal(size=20) + 3.0 * (BATCH == "b")
    result = batch_effects(np.abs(at[:, None] - at), LABELS, {"batch": BATCH}, n_permutations=9)
    means = np.where(BATCH == "a", at[BATCH == "a"].mean(), at[BATCH == "b"].mean())
    assert result.r2[0] == pytest.approx(means.var() / at.var())


def test_without_an_effect_p_values_are_uniform_and_nothing_is_suspected():
    random = np.random.default_rng(0)
    columns = {f"c{k}": random.permutation(np.arange(20) % (2 + k % 3)) for k in range(150)}
    result = batch_effects(placed((LABELS, 3.0)), LABELS, columns, n_permutations=99)
    for level in (0.1, 0.3, 0.5):
        assert np.mean(result.p <= level) == pytest.approx(level, abs=0.1)
    assert not result.in_distances().any()
    assert np.all(result.q >= result.p)


def test_a_trace_is_not_suspected_however_sure_it_is():
    """In many samples a small shift is significant, which is not to say that it matters."""
    labels, batch = np.repeat(["ill", "well"], 150), np.tile(["a", "b"], 150)
    distances = placed((batch, 0.4), n=300, seed=3)
    result = batch_effects(distances, labels, {"batch": batch}, n_permutations=199)
    assert result.q[0] < 0.05
    assert result.r2[0] < 0.04
    assert not result.in_distances().any()


def test_what_merely_goes_with_the_label_is_told_as_that():
    """The label moves samples, the site goes along with it: within labels the site says nothing."""
    site = np.array(["x"] * 8 + ["y"] * 2 + ["x"] * 1 + ["y"] * 9)
    result = batch_effects(placed((LABELS, 5.0)), LABELS, {"site": site})
    assert result.r2[0] > 0.2
    assert result.p[0] > 0.05
    assert result.with_labels().tolist() == [True]
    assert result.in_distances().tolist() == [False]


def test_a_covariate_that_is_the_label_cannot_be_told_from_it():
    result = batch_effects(placed((LABELS, 5.0)), LABELS, {"site": np.where(LABELS == "ill", 1, 2), "batch": BATCH})
    assert np.isnan(result.p[0])
    assert np.isfinite(result.q[1])
    assert result.association[0] == 1.0
    assert result.with_labels().tolist() == [True, False]


def test_patients_count_not_their_samples():
    """Four samples of each patient lie together; whichever value the patients have, it is as if it held them there."""
    random = np.random.default_rng(1)
    patients = np.repeat(np.arange(8), 4)
    at = (10.0 * random.normal(size=(8, 3)))[patients] + random.normal(size=(32, 3))
    distances, labels = np.linalg.norm(at[:, None] - at, axis=2), np.tile(["ill", "well"], 16)
    low = {"alone": 0, "told": 0}
    for seed in range(20):
        site = np.random.default_rng(seed).permutation(np.arange(8) % 2)[patients]
        for how, groups in (("alone", None), ("told", patients)):
            result = batch_effects(distances, labels, {"site": site}, groups=groups, n_permutations=99)
            low[how] += result.p[0] < 0.05
    assert low["alone"] == 20
    assert low["told"] <= 3
    donor = batch_effects(distances, labels, {"donor": patients}, groups=patients, n_permutations=99)
    assert donor.p[0] == pytest.approx(0.01)  # the patients themselves are tested among samples


@pytest.mark.parametrize(
    ("sizes", "n_exceptions"),
    [(np.full(12, 4), 0), (np.full(12, 4), 1), (1 + np.arange(16) % 6, 0), (1 + np.arange(16) % 6, 2)],
)
def test_an_irrelevant_batch_is_rarely_significant_in_any_design(sizes, n_exceptions):
    """Samples of a patient are near each other; the batch of a patient, but for exceptions, is irrelevant."""
    low, associated = 0, 0
    for seed in range(80):
        random = np.random.default_rng(seed)
        patients = np.repeat(np.arange(sizes.size), sizes)
        at = random.normal(size=(sizes.size, 10))[patients] + 0.3 * random.normal(size=(patients.size, 10))
        batch, labels = ((random.permutation(sizes.size) % 2)[patients] for _ in range(2))
        moved = random.choice(patients.size, n_exceptions, replace=False)
        batch[moved] = 1 - batch[moved]
        distances = np.linalg.norm(at[:, None] - at, axis=2)
        result = batch_effects(distances, labels, {"batch": batch}, groups=patients, n_permutations=99)
        low += result.p[0] <= 0.05
        associated += result.association_p[0] <= 0.05
    assert low <= 11  # of 80; binomial with 0.05: probability of more below 0.001
    assert associated <= 11


def test_a_batch_effect_is_found_in_spite_of_an_exception():
    random = np.random.default_rng(0)
    patients, batch = np.repeat(np.arange(12), 4), np.repeat(np.arange(12) // 2 % 2, 4)
    labels = patients % 2
    batch[0] = 1
    at = random.normal(size=(12, 5))[patients] + 0.3 * random.normal(size=(48, 5)) + 4.0 * batch[:, None]
    result = batch_effects(np.linalg.norm(at[:, None] - at, axis=2), labels, {"batch": batch}, groups=patients)
    assert result.p[0] < 0.02


def test_association_counts_patients_once():
    patients, labels = np.repeat(np.arange(6), 10), np.repeat(np.arange(6) % 2, 10)
    site = np.repeat([0, 1, 0, 1, 0, 0], 10)
    alone, reported = (batch_effects(None, labels, {"site": site}, groups=groups) for groups in (None, patients))
    assert alone.association_p[0] < 1e-6
    assert reported.association_p[0] > 0.3
    assert np.isnan(reported.p[0])
    assert np.isnan(reported.q[0])


def test_only_columns_that_can_be_a_batch_are_tested():
    columns = pd.DataFrame(
        {"one": "x", "batch": BATCH, "name": [f"S{k}" for k in range(20)], "pairs": np.arange(20) // 2,
         "gaps": [None, np.nan, *BATCH[2:]], "empty": None}
    )  # fmt: skip
    result = batch_effects(placed((BATCH, 50.0)), LABELS, columns, n_permutations=49)
    assert result.covariates == ["batch", "pairs", "gaps"]
    assert result.n_values.tolist() == [2, 10, 2]
    assert result.neighbors[2] == 1.0


def test_by_name():
    names = [f"S{k}" for k in range(20)]
    distances = pd.DataFrame(placed((BATCH, 2.0)), names, names)
    y, columns = pd.Series(LABELS, names), pd.DataFrame({"batch": BATCH}, names)
    expected = batch_effects(distances, y, columns)
    order = np.random.default_rng(0).permutation(20)
    result = batch_effects(distances.iloc[order[::-1], order], y, columns.iloc[order])
    assert result.p == expected.p
    assert result.r2 == pytest.approx(expected.r2)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"distances": np.zeros((3, 3))}, r"shape \(3, 3\) for 20 labels"),
     ({"distances": np.full((20, 20), np.nan)}, "NaN or infinity"),
     ({"covariates": {"batch": BATCH[:5]}}, "'batch' has shape"),
     ({"n_permutations": 0}, "n_permutations is 0")],
)  # fmt: skip
def test_what_cannot_be_tested_is_named(change, message):
    supplied = {"distances": placed(), "y": LABELS, "covariates": {"batch": BATCH}} | change
    with pytest.raises(ValueError, match=message):
        batch_effects(supplied.pop("distances"), supplied.pop("y"), supplied.pop("covariates"), **supplied)
    with pytest.raises(TypeError, match="covariates is list"):
        batch_effects(placed(), LABELS, [BATCH])


def test_the_batch_of_a_simulated_cohort_shows_in_distances_out_of_bag():
    """Batches are balanced over conditions: only the distances show them."""
    pytest.importorskip("anndata")
    cells = gm.datasets.make_cohort(8, 60, 300, batch_strength=0.4, random_state=0)
    D = gm.Distributions(np.asarray(cells.X.toarray(), float), cells.obs["sample"].to_numpy())
    of = cells.obs.groupby("sample", observed=True)[["condition", "batch"]].first().loc[D.names]
    ensemble = gm.GroundMetricEnsemble(4, random_state=0).fit(D, of["condition"])
    result = batch_effects(ensemble.distances_, of["condition"], of[["batch"]])
    assert result.in_distances().all()
    assert not result.with_labels().any()


def test_association_by_permutation_agrees_with_the_exact_one_in_kind():
    random = np.random.default_rng(0)
    first, second = (
        pd.Series(random.integers(3, size=60).astype(str)),
        pd.Series(random.integers(3, size=60).astype(str)),
    )
    strength, p = association(first, second)
    assert strength < 0.4
    assert p > 0.05
    assert association(first, first) == (1.0, pytest.approx(1 / 2000))
