"""Scores of a report: one of what was learned, a test against chance by default, and a budget that is kept."""

import dataclasses
import re
import sys

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.report import scores
from groundmetric.report.run import Steps
from groundmetric.report.write import page


def cohort(label="condition", **parameters):
    cells = gm.datasets.make_cohort(
        5, 25, 60, n_markers=5, n_programme_genes=10, programme_strength=3.0, random_state=0
    )
    if label == "age":
        ill = (cells.obs["condition"] == "disease").to_numpy()
        cells.obs["age"] = 20.5 + cells.obs["sample"].cat.codes.to_numpy() + 30 * ill
    gm.tl.learn(cells, "sample", label, n_members=2, max_epochs=2, genes="all", **parameters)
    return gm.report.Run(cells, gm.tl.samples(cells), cells, {})


@pytest.fixture(scope="module")
def run():
    return cohort()


def test_an_ensemble_is_tested_by_default_and_the_page_shows_one_score(run, monkeypatch, tmp_path):
    # The package has a function of the module's name.
    monkeypatch.setattr(sys.modules["groundmetric.report.collect"], "PERMUTATIONS", 19)
    lines = []
    content = gm.report.collect(run, log=lines.append)
    assert len(content.evaluation.test["null"]) == 19
    assert any(re.fullmatch(r"permuting labels 19 times: about \d+ s", line) for line in lines)
    answer = content.summary["Can the label be told beyond chance?"]
    assert f"p = {content.evaluation.test['p']:.2g}, 19 permutations" in answer
    own = run.results.scores["balanced_accuracy"]
    assert content.evaluation.rows[0]["value"] == own
    gm.report.save(content, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    # The statistic of the test is of a smaller ensemble: a second score beside the first would puzzle.
    assert f"{content.evaluation.test['statistic']:.2f}" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)


def test_permutations_fit_the_budget_and_what_was_left_out_is_said(run, monkeypatch):
    asked = []

    class Counted:
        def run(self, n_permutations, **options):
            asked.append(n_permutations)
            return gm.evaluation.permutation.PermutationTest(
                -0.1, np.zeros(n_permutations), 0.5, "log_probability", "distributions", 252, 2.0
            )

    monkeypatch.setattr(scores, "prepare_test", lambda *arguments, **options: Counted())
    steps = Steps(budget=100.0)
    found = scores._test_against_chance(scores.Cohort(run, None), 99, steps)
    assert asked[0] == scores.TRIAL
    assert 40 <= asked[1] <= 50  # at 2 s each
    assert len(found["test"]["null"]) == asked[1]
    assert found["notes"][0].startswith(f"Test against chance: {asked[1]} of 99 permutations fit into the budget")
    found = scores._test_against_chance(scores.Cohort(run, None), 99, Steps(budget=30.0))
    assert found["test"] is None  # with 15 permutations no p is below 0.05
    assert "of 99 permutations fit into the budget, at 2 s each, too few for a p below 0.05" in found["notes"][0]
    assert found["notes"][0].endswith("all need --budget 4m.")
    assert asked[2:] == [scores.TRIAL]
    slow = dataclasses.replace(run, findings={"seconds": 100.0})  # where learning took long, not even the trial fits
    found = scores._test_against_chance(scores.Cohort(slow, None), 99, Steps(budget=30.0))
    assert found["notes"] == ["Test against chance: no time is left for it; give e.g. --budget 3m."]
    assert len(asked) == 3


def test_ordered_labels_are_scored_by_variance_and_tested():
    run = cohort("age", target="ordered")
    content = gm.report.collect(run, permutations=19)
    assert content.title == "What goes with age"
    (row,) = content.evaluation.rows
    assert row["value"] == pytest.approx(run.results.scores["r2"])
    assert content.evaluation.test["score"] == "log_likelihood"
    assert content.evaluation.test["p_values"]["held-out score"] == pytest.approx(
        (1 + sum(value >= content.evaluation.test["statistic"] for value in content.evaluation.test["null"])) / 20
    )
    assert content.evaluation.test["p"] <= 0.1  # half of the ages go with the programme
    assert f"R² of {row['value']:.2f}" in content.summary["Can the label be told beyond chance?"]
    names = [field.name for field in content.genes.fields]
    assert "they predict classes" in content.evaluation.how
    assert {"With age", "In top 20", "q", "Differs most in"} <= set(names)
    assert "held out in each cross-validation fold" in content.evaluation.how
    text = page(content)
    assert "Against chance: p = " in text


def test_labels_are_permuted_within_the_batches_that_were_learned_within(monkeypatch):
    run = cohort(batch_key="batch", method="ensemble")
    asked = {}

    def recorded(method, D, y, **options):
        asked.update(options, y=y)
        raise ValueError("enough")

    monkeypatch.setattr(scores, "prepare_test", recorded)
    found = scores.Cohort(run, None)
    with pytest.raises(ValueError, match="enough"):
        scores._prepared_test(found)
    assert asked["strata"] == run.samples.obs["batch"].loc[found.read.D.names].tolist()
    assert len(set(asked["strata"])) == 2


def test_numbers_are_tested_as_numbers():
    run = cohort("age", target="ordered")
    found = scores.Cohort(run, None)
    place = dict(zip(run.results.samples, run.results.numbers, strict=True))
    assert found.numbers.tolist() == [place[name] for name in found.read.D.names]
    assert found.strata is None


def test_baselines_have_no_more_cells_than_a_member(run, monkeypatch):
    seen = {}
    original = scores.compare

    def recorded(methods, D, *arguments, **options):
        seen.update(dict.fromkeys(methods, int(D.sizes.max())))
        return original(methods, D, *arguments, **options)

    monkeypatch.setattr(scores, "compare", recorded)
    monkeypatch.setattr(scores, "CELLS", 7)
    found, predictions, notes = scores.evaluate(scores.Cohort(run, None), 0, Steps())
    assert seen["Euclidean"] == 7
    assert seen["pseudobulk"] == seen["composition"] > 7
    assert [row["method"] for row in found.rows] == ["learned metric", "Euclidean", "pseudobulk", "composition"]
    assert predictions.names == run.results.samples
    assert found.test is None
    assert notes == []
