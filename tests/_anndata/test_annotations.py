"""Samples and labels of cells from columns of any type; errors name wrong columns."""

import numpy as np
import pandas as pd
import pytest

from groundmetric._anndata.cohort import Samples, constant_columns, draw, labels_of, samples_of

OBS = pd.DataFrame({"patient": list("bbaacc"), "disease": ["ill"] * 2 + ["well"] * 4, "age": [1, 1, 2, 2, 3, 4]})


@pytest.mark.parametrize(
    "column",
    [
        OBS["patient"],
        OBS["patient"].astype("category").cat.add_categories("unused"),
        OBS["patient"].astype("string"),
        pd.Series([7, 7, 3, 3, 9, 9]),
        pd.Series([7, 7, 3, 3, 9, 9]).astype("category"),
        pd.Series([7.5, 7.5, 3.0, 3.0, 9.0, 9.0]),
        pd.Series([True, True, False, False, "x", "x"], dtype=object),
    ],
)
def test_samples_of_any_kind_are_in_the_order_in_which_they_appear(column):
    samples = samples_of(OBS.assign(patient=column), "patient")
    assert samples.codes.tolist() == [0, 0, 1, 1, 2, 2]
    assert samples.names.tolist() == [str(value) for value in column.iloc[[0, 2, 4]]]
    assert samples.first.tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (OBS["disease"], ["ill", "well", "well"]),
        (OBS["disease"].astype("category").cat.add_categories("unused"), ["ill", "well", "well"]),
        (pd.Series([1, 1, 0, 0, 2, 2]), [1, 0, 2]),
        (pd.Series([True, True, False, False, True, True]), [True, False, True]),
    ],
)
def test_labels_of_any_kind(labels, expected):
    labelled = labels_of(OBS.assign(disease=labels), "disease", samples_of(OBS, "patient"), "patient")
    assert labelled.index.tolist() == ["b", "a", "c"]
    assert labelled.tolist() == expected


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_sample_without_a_label_has_none(missing):
    labels = OBS["disease"].astype(object).where(OBS["patient"] != "a", missing)
    labelled = labels_of(OBS.assign(disease=labels), "disease", samples_of(OBS, "patient"), "patient")
    assert labelled.to_dict() == {"b": "ill", "c": "well"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"disease": ["ill", "well", "well", "well", "ill", "ill"]},
            r"sample 'b' has the values \['ill', 'well'\].*exactly",
        ),
        ({"disease": ["ill", None, "well", "well", "ill", "ill"]}, r"sample 'b' has the values \['ill', (None|nan)\]"),
    ],
)
def test_two_labels_in_a_sample_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        labels_of(OBS.assign(**change), "disease", samples_of(OBS, "patient"), "patient")


def test_missing_samples_are_counted_with_a_remedy():
    with pytest.raises(ValueError, match=r"missing for 2 of 6 cells.*adata\[adata\.obs\['patient'\]\.notna\(\)\]"):
        samples_of(OBS.assign(patient=[None, "b", None, "a", "c", "c"]), "patient")


def test_an_unknown_column_lists_the_existing_columns_the_most_similar_first():
    with pytest.raises(
        ValueError, match=r"sample_key is 'Patients', but obs has no such column: there are 'patient', '"
    ):
        samples_of(OBS, "Patients")
    with pytest.raises(ValueError, match=r"'disase'.*there are 'disease', '"):
        labels_of(OBS, "disase", samples_of(OBS, "patient"), "patient")


def test_names_that_read_the_same_are_refused():
    with pytest.raises(ValueError, match="both text and numbers"):
        samples_of(pd.DataFrame({"s": pd.Series([1, "1"], dtype=object)}), "s")


def test_labels_that_read_the_same_are_refused():
    obs = pd.DataFrame({"sample": ["a", "b", "c"], "label": pd.Series([1, "1", "2"], dtype=object)})
    with pytest.raises(ValueError, match=r"obs\['label'\] holds both text and numbers .* \(e\.g\. '1'\)"):
        labels_of(obs, "label", samples_of(obs, "sample"), "sample")


def test_columns_that_are_the_same_within_samples_are_kept_with_their_type():
    obs = OBS.assign(
        kind=pd.Categorical(OBS["disease"]), half=[np.nan] * 2 + [1.0] * 4, mixed=[np.nan, 1.0] + [2.0] * 4
    )
    constant = constant_columns(obs, samples_of(obs, "patient"))
    assert constant.columns.tolist() == ["patient", "disease", "kind", "half"]
    assert constant.index.tolist() == ["b", "a", "c"]
    assert constant["kind"].dtype == obs["kind"].dtype
    assert np.isnan(constant.loc["b", "half"])


SIZES = {"small": 3, "middle": 10, "large": 50}
MANY = Samples(
    np.array(list(SIZES), dtype=object), np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [3, 10, 50]))
)


def test_a_draw_takes_n_of_each_and_all_of_the_few():
    rows = draw(MANY, 10, 0)
    assert np.bincount(MANY.codes[rows]).tolist() == [3, 10, 10]
    assert np.all(np.diff(rows) > 0)
    assert np.array_equal(rows, draw(MANY, 10, 0))
    assert not np.array_equal(rows, draw(MANY, 10, 1))
    assert draw(MANY, None, 0).size == 63


def test_the_draw_of_a_sample_does_not_depend_on_others():
    rows = draw(MANY, 10, 0)
    alone = np.flatnonzero(MANY.codes == 2)
    of_it = draw(Samples(np.array(["large"], dtype=object), np.zeros(50, int)), 10, 0)
    assert alone[of_it].tolist() == rows[MANY.codes[rows] == 2].tolist()


def test_every_part_of_a_draw_is_as_likely():
    codes = np.zeros(20, int)
    taken = [draw(Samples(np.array(["a"], dtype=object), codes), 5, seed) for seed in range(400)]
    counts = np.bincount(np.concatenate(taken), minlength=20)
    assert counts.sum() == 2000
    assert counts.min() > 60  # 100 expected, standard deviation 9
    assert counts.max() < 140
