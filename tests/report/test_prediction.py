"""Held-out scores, baselines and the permutation test of a report."""

import time

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.report import results as prediction
from groundmetric.report.page import make_page
from groundmetric.report.results import Cohort, Run, Steps, collect, held_out_scores, permutation_test

from .conftest import cards_of

pytestmark = pytest.mark.usefixtures("fewer_permutations")


def learned(label="condition", **parameters):
    cells = gm.datasets.make_cohort(
        5, 25, 60, n_markers=5, n_programme_genes=10, programme_strength=3.0, random_state=0
    )
    if label == "age":
        ill = (cells.obs["condition"] == "disease").to_numpy()
        cells.obs["age"] = 20.5 + cells.obs["sample"].cat.codes.to_numpy() + 30 * ill
    options = {"n_members": 2, "kinds": ["univariate", "learned"], "max_epochs": 2, "genes": "all", **parameters}
    gm.tl.learn(cells, "sample", label, **options)
    return Run(cells, gm.tl.samples(cells), cells, {})


@pytest.fixture(scope="module")
def run():
    return learned()


def fake_test(asked):
    class Counted:
        def run(self, n_permutations, **options):
            asked.append(n_permutations)
            return gm.evaluation.permutation.PermutationTest(
                -0.1, np.zeros(n_permutations), 0.5, "log_probability", "distributions", 252, 2.0
            )

    return lambda *arguments, **options: Counted()


def test_permutations_fit_the_budget(run, monkeypatch):
    asked = []
    monkeypatch.setattr(prediction, "PreparedTest", fake_test(asked))
    answer = permutation_test(Cohort(run, steps=Steps(budget=100.0)), 99)
    assert asked[0] == prediction.TRIAL
    assert 40 <= asked[1] <= 50  # at 2 s each
    assert len(answer["test"]["null"]) == asked[1]
    assert answer["notes"][0].startswith(f"{asked[1]} of 99 permutations fit the budget")
    with pytest.raises(ValueError, match="99 permutations take about 3 min 18 s"):  # 15 cannot reach p = 0.05
        permutation_test(Cohort(run, steps=Steps(budget=30.0)), 99)
    with pytest.raises(ValueError, match="no time remained"):
        permutation_test(Cohort(run, steps=Steps(budget=1.0, started=time.monotonic() - 2.0)), 99)


def test_a_report_that_exceeds_its_budget_names_the_longest_steps(run):
    steps = Steps(budget=1.0, started=time.monotonic() - 5.0)
    collect(run, evaluation=False, steps=steps)
    longest = max(steps.seconds, key=steps.seconds.get)
    (note,) = steps.overrun()
    assert note.title == "Time budget exceeded"
    assert f"instead of 1 s; longest steps: {longest}" in note.text
    assert not Steps(budget=100.0).overrun()
    assert not Steps(budget=10.0, started=time.monotonic() - 11.0).overrun()  # by 10 %


def test_ordered_labels_are_scored_by_r2_and_tested():
    run = learned("age", target="ordered")
    results = collect(run, permutations=9)
    scores = results.evaluation
    row, *baselines = scores.rows
    assert row["value"] == pytest.approx(run.results.scores["r2"])
    assert row["low"] < row["value"] < row["high"]
    assert baselines[0]["method"] == "Pseudobulk, ridge regression"
    assert all(lead["lead_low"] < lead["lead"] < lead["lead_high"] for lead in baselines)
    assert all(lead["lead"] == pytest.approx(row["value"] - lead["value"]) for lead in baselines)
    assert scores.test["score"] == "log_likelihood"
    assert scores.test["p_values"]["held-out score"] == pytest.approx(
        (1 + sum(value >= scores.test["statistic"] for value in scores.test["null"])) / 10
    )
    assert scores.test["p"] <= 0.1  # half of the ages go with the programme
    page = make_page(results)
    assert next(iter(cards_of(page))) == "Held-out R²"
    assert {"Correlation", "In top 20", "q", "Cell type"} <= {field.name for field in page.genes.fields}


def test_labels_are_permuted_within_the_batches_of_learning(monkeypatch):
    run = learned(batch_key="batch", method="ensemble")
    asked = {}

    def recorded(method, D, y, **options):
        asked.update(options, y=y)
        raise ValueError("enough")

    monkeypatch.setattr(prediction, "PreparedTest", recorded)
    cohort = Cohort(run)
    with pytest.raises(ValueError, match="enough"):
        permutation_test(cohort, 19)
    assert asked["strata"] == run.samples.obs["batch"].loc[cohort.read.D.names].tolist()
    assert len(set(asked["strata"])) == 2


def test_ordered_labels_are_tested_as_numbers():
    run = learned("age", target="ordered")
    cohort = Cohort(run)
    numbers = dict(zip(run.results.samples, run.results.numbers, strict=True))
    assert cohort.target.tolist() == [numbers[name] for name in cohort.read.D.names]
    assert cohort.design["strata"] is None


def test_baselines_are_those_a_user_would_try(run, monkeypatch):
    seen = {}
    original = prediction.compare

    def recorded(methods, D, *arguments, **options):
        seen.update(dict.fromkeys(methods, int(D.sizes.max())))
        return original(methods, D, *arguments, **options)

    monkeypatch.setattr(prediction, "compare", recorded)
    monkeypatch.setattr(prediction, "TRANSPORT_CELLS", 7)
    scores = prediction.Evaluation(**held_out_scores(Cohort(run, "cell_type")))
    titles = gm.baselines.titles(annotation="cell_type")
    assert seen.pop(titles[prediction.TRANSPORT]) == 7
    assert set(seen) == set(titles.values()) - {titles[prediction.TRANSPORT]}
    assert min(seen.values()) > 7
    assert [row["method"] for row in scores.rows] == ["groundmetric", *titles.values()]
    assert {row["status"] for row in scores.rows} == {"ok"}
    assert scores.predictions["names"] == run.results.samples
    assert scores.test is None


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (0.01, 0.2, 0.3, "groundmetric is better"),
        (-0.1, 0.2, 0.01, "no significant difference"),
        (-0.2, -0.01, 0.3, "no significant difference"),
        (-0.2, -0.01, 0.01, "groundmetric is worse"),
    ],
)
def test_better_means_better_than_the_best_baseline_by_an_interval_over_patients(low, high, p, verdict):
    lead = {"lead": (low + high) / 2, "lead_low": low, "lead_high": high, "p": p}
    weak = {"method": "weak", "value": 0.2, "lead": 0.6, "lead_low": 0.4, "lead_high": 0.8, "p": 0.001}
    rows = [{"method": "groundmetric", "value": 0.8}, weak, {"method": "strong", "value": 0.7, **lead}]
    sentence = prediction.Evaluation("balanced_accuracy", 0.5, rows, "", None, []).verdict
    assert sentence.startswith(f"Best baseline 0.70 (strong): {verdict} (")
