"""Samples of a report: their order and map, what was predicted for each, and the confusion matrix."""

import dataclasses

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.report.content import Column, SampleMap
from groundmetric.report.samples import PREDICTED, PROBABILITY, Predictions, sample_map, sample_table
from groundmetric.report.summary import describe_errors, describe_neighbours

FOUND = Predictions.of_probabilities(
    ["S1", "S2", "S3", "S4"],
    ["ill", "ill", "well", "well"],
    np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.4, 0.6]]),
    ["ill", "well"],
)


def test_confusion_matrix_counts_samples_by_label_and_prediction():
    table = FOUND.confusion("state")
    assert [field.name for field in table.fields] == ["state", "predicted ill", "predicted well", "right"]
    assert table.rows == [["ill", 1, 1, 0.5], ["well", 0, 2, 1.0]]
    assert FOUND.wrong == ["S2"]
    assert FOUND.probability == [0.9, 0.7, 0.8, 0.6]


def test_errors_are_named():
    assert describe_errors(FOUND) == "While they were left out, one was given another label: S2 (ill, taken for well)."
    right = Predictions(["a"], ["ill"], ["ill"], [1.0], ["ill", "well"])
    assert "every sample was given its own label" in describe_errors(right)
    many = Predictions(list("abcdef"), ["ill"] * 6, ["well"] * 6, None, ["ill", "well"])
    assert describe_errors(many).endswith("d (ill, taken for well) and 2 more.")


def test_neighbours_of_the_same_label_are_counted_against_chance():
    distances = np.abs(np.subtract.outer([0.0, 1, 2, 10, 11, 1.4], [0.0, 1, 2, 10, 11, 1.4]))
    column = Column("state", np.array([0, 0, 0, 1, 1, 1]), ["ill", "well"])
    names = list("abcdef")
    found = SampleMap(names, np.zeros((6, 2)), [column], distances, np.arange(6), 1.0)
    # a's nearest is b; b's and c's is f, which is of the other label, as b is for f; d and e have each other.
    said = describe_neighbours(found, "state")
    assert said == "The nearest sample has the same state for 3 of 6 samples; by chance 2 would."


@pytest.fixture(scope="module")
def run():
    cells = gm.datasets.make_cohort(4, 20, 100, n_markers=5, n_programme_genes=10, random_state=0)
    gm.tl.learn(cells, "sample", "condition", n_members=2, genes="all")
    return gm.report.Run(cells, gm.tl.samples(cells), cells, {})


def test_every_sample_has_a_held_out_prediction_and_its_probability(run):
    found = Predictions.of_ensemble(run.results)
    samples, unused = sample_map(run, found)
    table = sample_table(samples)
    names = [field.name for field in table.fields]
    held_out = dict(zip(run.results.samples, run.results.held_out, strict=True))
    for row in table.rows:
        chances = held_out[row[0]]
        assert row[names.index(PREDICTED)] == run.results.classes[chances.argmax()]
        assert row[names.index(PROBABILITY)] == pytest.approx(chances.max())
    assert not [name for name in names if name.startswith("groundmetric_")]
    assert unused == []


def test_near_samples_are_beside_each_other(run):
    samples, _ = sample_map(run, None)
    assert sorted(samples.order) == list(range(8))
    assert samples.out_of_bag
    steps = samples.distances[samples.order[:-1], samples.order[1:]]
    others = samples.distances[~np.eye(8, dtype=bool)]
    assert steps.mean() < others.mean()


def test_of_numbers_the_predicted_number_is_shown_and_there_is_no_confusion():
    cells = gm.datasets.make_cohort(4, 15, 60, n_markers=5, n_programme_genes=10, random_state=0)
    cells.obs["age"] = 20.0 + 5 * cells.obs["sample"].cat.codes.to_numpy()
    gm.tl.learn(cells, "sample", "age", target="ordered", n_members=1, max_epochs=1, genes="all")
    run = gm.report.Run(cells, gm.tl.samples(cells), cells, {})
    found = Predictions.of_ensemble(run.results)
    assert found.confusion("age") is None
    assert found.wrong == []
    samples, _ = sample_map(run, found)
    (column,) = [column for column in samples.columns if column.name == PREDICTED]
    np.testing.assert_allclose(sorted(column.codes), sorted(run.results.held_out))
    numbers = np.array([0.0, 10.0, np.nan, 1.0, 5.0, 5.0, 5.0, 5.0])
    far = np.abs(np.subtract.outer(numbers, numbers)) + 1e-3 * np.abs(np.subtract.outer(range(8), range(8)))
    said = describe_neighbours(dataclasses.replace(samples, distances=np.nan_to_num(far)), "age", numbers)
    # 0 and 1 have each other, 10 has 5, and those of 5 have each other.
    assert said.startswith("The age of a sample and of its nearest differ by 1 on average; by chance they would by ")


def test_ordered_labels_that_are_text_are_shown_from_low_to_high():
    order = ("severe", "mild", "none")
    cells = gm.datasets.make_cohort(4, 20, 60, conditions=order, n_markers=5, random_state=0)
    gm.tl.learn(cells, "sample", "condition", target="ordered", order=["none", "mild", "severe"], n_members=2)
    run = gm.report.Run(cells, gm.tl.samples(cells), None, {})
    found, _ = sample_map(run, None)
    assert found.columns[0].values == ["none", "mild", "severe"]
    first = run.samples.obs["condition"].iloc[0]
    assert found.columns[0].values[found.columns[0].codes[0]] == first
    content = gm.report.collect(run, evaluation=False)
    assert "(4 none, 4 mild and 4 severe)" in content.summary["Which samples are alike?"]
    assert "Which features?" in content.summary
    assert content.genes.caption == "All 60 features"
