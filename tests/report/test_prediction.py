"""Held-out scores, baselines and the permutation test of a report."""

import dataclasses
import time

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.report import run as prediction
from groundmetric.report.page import make_page
from groundmetric.report.results import collect
from groundmetric.report.run import BudgetError, Cohort, Run, Steps, evaluate, permutation_test

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


def test_the_page_shows_the_held_out_score_of_learning_and_the_test(run):
    results = collect(run, permutations=9)
    scores = results.evaluation
    assert scores.learned["value"] == run.results.scores["balanced_accuracy"]
    assert len(scores.test["null"]) == 9
    page = make_page(results)
    score, p, *_ = page.cards
    assert score.value == f"{run.results.scores['balanced_accuracy']:.2f}"
    assert score.lines[1] == f"guessing 0.50, best baseline {scores.best_baseline['value']:.2f}"
    assert p.value == f"{scores.test['p']:.2g}"
    assert p.lines == ["9 permutations of the labels", "smallest attainable: 0.1"]
    assert f"p = {scores.test['p']:.2g}, 9 permutations" in page.summary["Prediction"]


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
    answer = permutation_test(Cohort(run, None), 99, Steps(budget=100.0))
    assert asked[0] == prediction.TRIAL
    assert 40 <= asked[1] <= 50  # at 2 s each
    assert len(answer["test"]["null"]) == asked[1]
    assert answer["notes"][0].startswith(f"{asked[1]} of 99 permutations fit the budget")
    with pytest.raises(BudgetError, match="99 permutations take about 3 min 18 s"):  # 15 cannot reach p = 0.05
        permutation_test(Cohort(run, None), 99, Steps(budget=30.0))
    with pytest.raises(BudgetError, match="no time remained"):
        permutation_test(Cohort(run, None), 99, Steps(budget=1.0, started=time.monotonic() - 2.0))


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
    assert page.cards[0].title == "Held-out R²"
    assert {"Correlation", "In top 20", "q", "Cell type"} <= {field.name for field in page.genes.fields}


def test_labels_are_permuted_within_the_batches_of_learning(monkeypatch):
    run = learned(batch_key="batch", method="ensemble")
    asked = {}

    def recorded(method, D, y, **options):
        asked.update(options, y=y)
        raise ValueError("enough")

    monkeypatch.setattr(prediction, "PreparedTest", recorded)
    cohort = Cohort(run, None)
    with pytest.raises(ValueError, match="enough"):
        permutation_test(cohort, 19, Steps())
    assert asked["strata"] == run.samples.obs["batch"].loc[cohort.read.D.names].tolist()
    assert len(set(asked["strata"])) == 2


def test_ordered_labels_are_tested_as_numbers():
    run = learned("age", target="ordered")
    cohort = Cohort(run, None)
    numbers = dict(zip(run.results.samples, run.results.numbers, strict=True))
    assert cohort.numbers.tolist() == [numbers[name] for name in cohort.read.D.names]
    assert cohort.strata is None


def test_baselines_are_those_a_user_would_try(run, monkeypatch):
    seen = {}
    original = prediction.compare

    def recorded(methods, D, *arguments, **options):
        seen.update(dict.fromkeys(methods, int(D.sizes.max())))
        return original(methods, D, *arguments, **options)

    monkeypatch.setattr(prediction, "compare", recorded)
    monkeypatch.setattr(prediction, "TRANSPORT_CELLS", 7)
    scores = evaluate(Cohort(run, None), Steps())
    titles = gm.baselines.titles(annotation="cell_type")
    assert seen.pop(titles[prediction.TRANSPORT]) == 7
    assert set(seen) == set(titles.values()) - {titles[prediction.TRANSPORT]}
    assert min(seen.values()) > 7
    assert [row["method"] for row in scores.rows] == ["groundmetric", *titles.values()]
    assert {row["status"] for row in scores.rows} == {"ok"}
    assert scores.predictions.names == run.results.samples
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
    sentence = prediction.Evaluation("balanced_accuracy", 0.5, rows, "", None, None, []).verdict
    assert sentence.startswith(f"Best baseline 0.70 (strong): {verdict} (")


def test_with_other_groups_the_ensemble_is_learned_again(run, capsys):
    cells = run.cells.copy()
    cells.obs["donor"] = ("D" + (cells.obs["sample"].cat.codes % 5).astype(str)).to_numpy()
    regrouped = dataclasses.replace(run, cells=cells, source=cells, samples=gm.tl.samples(cells))
    results = collect(regrouped, group_key="donor", permutations=0, steps=Steps(verbose=1))
    assert "learning again with undivided groups of donor" in capsys.readouterr().err
    assert "all samples of one donor in the same fold" in results.evaluation.protocol
    collect(run, permutations=0, steps=Steps(verbose=1))
    assert "learning again" not in capsys.readouterr().err
