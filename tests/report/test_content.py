"""Cards, figures and tables of a report."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.report.page import (
    PREDICTED,
    PROBABILITY,
    Column,
    Field,
    Table,
    confusion_table,
    contrast,
    describe_errors,
    draw_samples,
    make_page,
    name_positions,
    render,
    sample_map,
    sample_table,
    smallest_p,
)
from groundmetric.report.results import Run, collect, held_out_classes, held_out_predictions

from .conftest import cards_of

PREDICTIONS = held_out_classes(
    ["S1", "S2", "S3", "S4"],
    ["ill", "ill", "well", "well"],
    np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.4, 0.6]]),
    ["ill", "well"],
)


def test_confusion_matrix_counts_samples_by_label_and_prediction():
    table = confusion_table(PREDICTIONS, "state")
    assert [field.name for field in table.fields] == ["state", "predicted ill", "predicted well", "correct"]
    assert table.rows == [["ill", 1, 1, 0.5], ["well", 0, 2, 1.0]]
    assert PREDICTIONS["probability"] == [0.9, 0.7, 0.8, 0.6]


def test_errors_are_named():
    assert describe_errors(PREDICTIONS) == ["Held-out errors: S2 (ill, predicted well)."]
    right = held_out_classes(["a"], ["ill"], np.array([[1.0, 0.0]]), ["ill", "well"])
    assert describe_errors(right) == ["All held-out predictions are correct."]
    wrong = held_out_classes(list("abcdef"), ["ill"] * 6, np.array([[0.0, 1.0]] * 6), ["ill", "well"])
    assert describe_errors(wrong)[0].endswith("d (ill, predicted well) and 2 more.")


@pytest.fixture(scope="module")
def run():
    cells = gm.datasets.make_cohort(4, 20, 100, n_markers=5, n_programme_genes=10, random_state=0)
    gm.tl.learn(cells, "sample", "condition", n_members=2, genes="all")
    return Run(cells, gm.tl.samples(cells), cells, {})


def test_every_sample_has_a_held_out_prediction_and_its_probability(run):
    samples = sample_map(run, held_out_predictions(run.results))
    table = sample_table(samples)
    names = [field.name for field in table.fields]
    held_out = dict(zip(run.results.samples, run.results.held_out, strict=True))
    for row in table.rows:
        probabilities = held_out[row[0]]
        assert row[names.index(PREDICTED)] == run.results.classes[probabilities.argmax()]
        assert row[names.index(PROBABILITY)] == pytest.approx(probabilities.max())
    assert not [name for name in names if name.startswith("groundmetric_")]
    assert table.samples == list(range(8))


def test_cards_show_the_key_figures(run):
    results = collect(run, evaluation=False)
    titles = cards_of(make_page(results))
    assert list(titles) == ["Held-out balanced accuracy", "p-value", "Cohort", "Significant features", "Warnings"]
    assert titles["Held-out balanced accuracy"][0] == f"{run.results.scores['balanced_accuracy']:.2f}"
    assert titles["p-value"][0] == "–"
    assert titles["Cohort"][0] == "8 samples"
    assert titles["Cohort"][1][0] == "4 control and 4 disease"
    assert titles["Warnings"][0] == str(len(results.warnings))
    assert '<a class="card warning" href="#warnings">' in render(make_page(results))


def test_similar_samples_are_adjacent_in_the_matrix(run):
    samples = sample_map(run, None)
    assert sorted(samples.order) == list(range(8))
    assert "out-of-bag" in samples.caption
    steps = samples.distances[samples.order[:-1], samples.order[1:]]
    assert steps.mean() < samples.distances[~np.eye(8, dtype=bool)].mean()


def test_the_caption_compares_the_contrast_of_labels_with_that_of_the_map(run):
    samples = sample_map(run, None)
    label = (run.samples.obs["condition"] == "disease").to_numpy()
    same = label[:, None] == label
    pairs = samples.distances
    expected = pairs[~same].mean() / pairs[same & ~np.eye(8, dtype=bool)].mean()
    assert contrast(pairs, samples.columns[0]) == pytest.approx(expected)
    assert f"between labels / within labels: {expected:.2f}, in the map " in samples.caption
    assert contrast(pairs, Column("state", np.zeros(8, int), ["a"])) is None


@pytest.mark.parametrize("n", [1, 2, 3])
def test_small_cohorts_have_a_map(n):
    distances = np.ones((n, n)) - np.eye(n)
    samples = draw_samples([f"S{k}" for k in range(n)], [Column("state", np.zeros(n, int), ["a"])], distances, False)
    assert np.isfinite(samples.marks).all()
    assert len(sample_table(samples).rows) == n


def test_names_cover_neither_marks_nor_each_other():
    marks = np.array([[100.0, 100.0], [104.0, 100.0], [300.0, 200.0]])
    assert {name for *_, name in name_positions(marks, ["one", "two", "three"])} == {"one", "two", "three"}
    assert name_positions(np.zeros((50, 2)), ["a"] * 50) == []


def test_intervals_are_scaled_to_the_column():
    table = Table("t", "", [Field("a")], [["x", (0.5, 0.0, 1.0)], ["y", None]], reference=0.5)
    assert table.interval(table.rows[0], 1) == {"at": 50, "low": 4, "high": 96, "reference": 50}
    assert table.interval(table.rows[1], 1) is None


def test_the_smallest_p_value_depends_on_the_design():
    assert smallest_p({"null": [0.0] * 99, "arrangements": 10**6}) == 0.01
    assert smallest_p({"null": [0.0] * 99, "arrangements": 20}) == 0.05


def test_predicted_numbers_are_shown_without_a_confusion_matrix():
    cells = gm.datasets.make_cohort(4, 15, 60, n_markers=5, n_programme_genes=10, random_state=0)
    cells.obs["age"] = 20.0 + 5 * cells.obs["sample"].cat.codes.to_numpy()
    gm.tl.learn(cells, "sample", "age", target="ordered", n_members=1, max_epochs=1, genes="all")
    run = Run(cells, gm.tl.samples(cells), cells, {})
    predictions = held_out_predictions(run.results)
    assert confusion_table(predictions, "age") is None
    assert describe_errors(predictions) == []
    (column,) = [column for column in sample_map(run, predictions).columns if column.name == PREDICTED]
    np.testing.assert_allclose(sorted(column.codes), sorted(run.results.held_out))
    page = make_page(collect(run, evaluation=False))
    assert page.title == "Association of cells with age"
    assert "expected by chance" in page.summary["Samples"]
    assert "Correlation" in [field.name for field in page.genes.fields]


def test_ordered_text_labels_are_shown_from_low_to_high():
    order = ("severe", "mild", "none")
    cells = gm.datasets.make_cohort(4, 20, 60, conditions=order, n_markers=5, random_state=0)
    gm.tl.learn(
        cells,
        "sample",
        "condition",
        target="ordered",
        order=["none", "mild", "severe"],
        n_members=2,
        kinds=["univariate"],
    )
    run = Run(cells, gm.tl.samples(cells), None, {})
    samples = sample_map(run, None)
    assert samples.columns[0].values == ["none", "mild", "severe"]
    assert samples.columns[0].text(0) == run.samples.obs["condition"].iloc[0]
    page = make_page(collect(run, evaluation=False))
    assert cards_of(page)["Cohort"][1][0] == "4 none, 4 mild and 4 severe"
    assert page.genes.caption == "All 60 features"
