"""Relevance of kinds of points: known answers, simulated cohorts, groups and draws."""

import io

import numpy as np
import pandas as pd
import pytest

import groundmetric as gm
from groundmetric import Distributions, GroundMetric
from groundmetric.ensemble.members import DIAGONAL
from groundmetric.interpret import annotation_relevance, flows


def test_shares_sum_to_one_and_the_right_type_is_first_and_sure(case):
    result = annotation_relevance(case.learner, case.D, case.y, "cell_type", n_draws=200)
    np.testing.assert_allclose(result.share.sum(), 1.0)
    first = int(result.share.argmax())
    assert result.values[first] == case.acts_in
    assert result.first[first] > 0.95
    low, high = result.interval
    assert np.all(low <= high)
    assert low[first] > np.delete(high, first).max()
    assert result.table()["value"][0] == case.acts_in


def test_every_interval_contains_its_share(case):
    for n_draws in (1, 2, 200):
        result = annotation_relevance(case.learner, case.D, case.y, "cell_type", n_draws=n_draws)
        low, high = result.interval
        assert np.all((low <= result.share) & (result.share <= high))


def test_kinds_of_equal_mass_are_compared_each_with_their_own(modes):
    """Then the plans are those between the points of a kind: distances of parts are known without these plans."""
    D, y, metric = modes
    result = annotation_relevance(metric, D, y, "mode", max_partners=len(D), n_draws=2)
    second = y[:, None] != y
    same_class = ~second & ~np.eye(len(D), dtype=bool)
    kinds, owner = D.annotations["mode"], np.repeat(D.names, D.sizes)
    parts = [Distributions(D.points[kinds == kind], owner[kinds == kind]) for kind in result.values]
    item = [gm.pairwise_distances(part, metric=metric) for part in parts]
    unit = np.mean([distances[second].mean() for distances in item])
    farther = [distances[second].mean() - distances[same_class].mean() for distances in item]
    np.testing.assert_allclose(result.relevance, np.array(farther) / unit, rtol=1e-9)
    np.testing.assert_allclose(result.share, np.array(farther) / np.sum(farther), rtol=1e-9)
    assert abs(result.composition) < 1e-12


def simulated(seed, **options):
    pytest.importorskip("anndata")
    cells = gm.datasets.make_cohort(8, 60, 300, random_state=seed, **options)
    kinds = {"cell_type": cells.obs["cell_type"].astype(str).to_numpy()}
    D = Distributions(np.asarray(cells.X.toarray(), float), cells.obs["sample"].to_numpy(), annotations=kinds)
    return D, cells.obs.groupby("sample", observed=True)["condition"].first().loc[D.names].to_numpy(), cells


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_type_carries_all_and_the_others_nothing(seed):
    D, y, cells = simulated(seed)
    ensemble = gm.GroundMetricEnsemble(random_state=0).fit(D, y)
    truth = GroundMetric(np.eye(D.shape[1])[cells.var["programme"].to_numpy()])
    for metric in (ensemble, truth):  # that of the programme alone does not tell the other types apart
        result = annotation_relevance(metric, D, y, "cell_type", n_draws=300)
        planted = np.array([value == cells.uns["truth"]["programme_type"] for value in result.values])
        assert result.share[planted][0] > 0.9
        low, high = result.interval
        assert low[planted][0] > 0.8
        assert np.all(low[~planted] <= 0.0)
        assert np.all(high[~planted] >= 0.0)
        assert np.all(np.abs(result.share[~planted]) < 0.05)


def test_of_an_ensemble_pairs_are_compared_by_members_trained_on_neither(monkeypatch):
    D, y, _ = simulated(0)
    ensemble = gm.GroundMetricEnsemble(4, kinds=["univariate", "anova"], random_state=0).fit(D, y)
    components = [member.metric(ensemble.fitted_.geometries[""]).components for member in ensemble.members_]
    asked = []
    original = flows.for_each_pair

    def spy(D, pairs, metric, *more, **options):
        used = [np.array_equal(metric.components, item) for item in components]
        asked.append((ensemble.members_[used.index(True)], pairs))
        return original(D, pairs, metric, *more, **options)

    monkeypatch.setattr(flows, "for_each_pair", spy)
    result = annotation_relevance(ensemble, D, y, "cell_type", n_draws=20, max_partners=3)
    assert result.out_of_bag
    monkeypatch.undo()
    assert not annotation_relevance(ensemble.metric_, D, y, "cell_type", n_draws=2).out_of_bag
    assert asked
    for member, pairs in asked:
        assert not np.any(member.trained_on[pairs])
    counts = np.unique(np.concatenate([pairs for _, pairs in asked]), axis=0, return_counts=True)[1]
    assert counts.max() == flows.MOST_BAGS


def test_labels_that_say_little_give_no_share_to_types_without_effect():
    """Of a metric learned from the same samples, the types without effect are farther in other classes, too."""
    covered, uncovered = [], []
    for seed in range(3):
        D, y, cells = simulated(seed + 3, programme_strength=0.7)
        ensemble = gm.GroundMetricEnsemble(2, kinds=DIAGONAL, random_state=0).fit(D, y)
        for metric, retained in ((ensemble.metric_, covered), (ensemble, uncovered)):
            result = annotation_relevance(metric, D, y, "cell_type", n_draws=100, max_partners=5)
            planted = np.array([value == cells.uns["truth"]["programme_type"] for value in result.values])
            retained.append(result.relevance[~planted] @ result.mass[~planted])
            if retained is uncovered:
                low, high = result.interval[:, ~planted]
                assert np.all((low <= 0.0) & (high >= 0.0))
    assert np.mean(uncovered) < 0.5 * np.mean(covered)


def test_numbers_of_cells_are_told_apart_from_changes_of_cells():
    D, y, _ = simulated(0, programme_strength=0.0, batch_strength=0.0, composition_strength=3.0)
    metric = GroundMetric.euclidean(D.shape[1])
    composed = annotation_relevance(metric, D, y, "cell_type", n_draws=100)
    assert composed.composition > 0.8
    D, y, _ = simulated(0, batch_strength=0.0)
    changed = annotation_relevance(metric, D, y, "cell_type", n_draws=100)
    assert changed.composition < 0.4


def test_what_is_named_by_points_is_not_taken_for_being_in_the_order_of_the_distributions():
    points, owner = np.arange(12.0)[:, None], np.tile(list("abcd"), 3)
    D = Distributions(points, owner)
    kinds = pd.Series(np.arange(12) % 3, [f"cell {k}" for k in range(12)])
    metric, y = GroundMetric.euclidean(1), ["u", "u", "v", "v"]
    with pytest.raises(ValueError, match=r"annotation is named by points, .* annotation\.to_numpy\(\)\[D\.order\]"):
        annotation_relevance(metric, D, y, kinds, n_draws=2)
    assert len(annotation_relevance(metric, D, y, kinds.to_numpy()[D.order], n_draws=2).values) == 3


def test_groups_are_drawn_together(case):
    groups = np.arange(len(case.D)) // 6  # one group per class: nothing varies
    result = annotation_relevance(case.learner, case.D, case.y, "cell_type", groups=groups, n_draws=20)
    np.testing.assert_allclose(result.draws, np.tile(result.share, (20, 1)))
    left_result = annotation_relevance(
        case.learner, case.D, case.y, "cell_type", groups=["a"] * len(case.D), n_draws=20
    )
    assert np.isnan(left_result.interval).all()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_progress_bar_counts_the_plans_of_all_members(monkeypatch, modes):
    D, y, metric = modes
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    annotation_relevance(metric, D, y, "mode", max_partners=2, n_draws=2)
    assert terminal.getvalue() == ""
    annotation_relevance(metric, D, y, "mode", max_partners=2, n_draws=2, verbose=1)
    gm.interpret.canonical_axes(metric, D, y, verbose=1)
    assert terminal.getvalue().count("transport plans:   0%") == 2
