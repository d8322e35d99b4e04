"""Enrichment agrees with scipy's tests, set by set, and says what is wrong with names and files."""

import gzip

import numpy as np
import pytest
from scipy import stats

from groundmetric.interpret import (
    benjamini_hochberg,
    canonical_axes,
    enrich_axes,
    over_representation,
    rank_enrichment,
    read_gmt,
)

BACKGROUND = [f"g{k}" for k in range(200)]
SETS = {f"set {k}": BACKGROUND[7 * k : 7 * k + 10 + k] for k in range(12)}


def test_over_representation_is_fishers_exact_test():
    chosen = BACKGROUND[10:40]
    found = over_representation(chosen, BACKGROUND, SETS)
    assert np.all(np.diff(found.p) >= 0)
    for name, size, overlap, p, fold in zip(found.sets, found.size, found.overlap, found.p, found.effect, strict=True):
        both = len(set(SETS[name]) & set(chosen))
        table = [[both, size - both], [30 - both, 200 - size - 30 + both]]
        assert len(overlap) == both
        np.testing.assert_allclose(p, stats.fisher_exact(table, alternative="greater").pvalue)
        np.testing.assert_allclose(fold, both / (size * 30 / 200))


def test_members_outside_of_the_background_do_not_count():
    wide = {name: [*members, "elsewhere 1", "elsewhere 2"] for name, members in SETS.items()}
    one, other = (over_representation(BACKGROUND[:9], BACKGROUND, sets) for sets in (SETS, wide))
    np.testing.assert_array_equal(one.p, other.p)
    np.testing.assert_array_equal(one.size, other.size)


@pytest.mark.parametrize("ties", [False, True])
def test_rank_enrichment_is_the_test_of_mann_and_whitney(ties):
    scores = np.random.RandomState(0).normal(size=200)
    scores = np.round(scores) if ties else scores
    found = rank_enrichment(scores, SETS, features=BACKGROUND)
    for name, p, effect in zip(found.sets, found.p, found.effect, strict=True):
        inside = np.isin(BACKGROUND, SETS[name])
        test = stats.mannwhitneyu(scores[inside], scores[~inside], alternative="greater", method="asymptotic")
        np.testing.assert_allclose(p, test.pvalue, rtol=1e-9)
        np.testing.assert_allclose(effect, test.statistic / (inside.sum() * (~inside).sum()))


def test_scores_may_have_names_of_their_own():
    scores = {name: float(k) for k, name in enumerate(BACKGROUND)}
    found = rank_enrichment(scores, SETS)
    assert found.sets[0] == "set 11"
    np.testing.assert_array_equal(found.p, rank_enrichment(list(scores.values()), SETS, features=BACKGROUND).p)
    with pytest.raises(ValueError, match="scores have no names"):
        rank_enrichment([1.0, 2.0], SETS)
    with pytest.raises(ValueError, match="'g3' is not a number"):
        rank_enrichment(np.where(np.arange(200) == 3, np.nan, 1.0), SETS, features=BACKGROUND)


def test_members_that_go_together_are_not_counted_as_independent():
    """Scores of a set that rise and fall together: rank sums alone call it often, permutations only by chance."""
    random, called = np.random.RandomState(0), np.zeros(2)
    sets = {"one": BACKGROUND[:40]}
    for _ in range(100):
        table = random.normal(size=(40, 200))
        table[:, :40] += random.normal(size=(40, 1))
        options = {"features": BACKGROUND}
        called += [
            rank_enrichment(table[0], sets, **options).p[0] <= 0.05,
            rank_enrichment(table[0], sets, null=table[1:], **options).p[0] <= 0.05,
        ]
    assert called[0] > 25
    assert called[1] <= 12  # 5 expected; more than 12 have probability 0.001
    with pytest.raises(ValueError, match="null has 5 features, scores have 200"):
        rank_enrichment(table[0], sets, null=np.zeros((3, 5)), **options)


def test_adjusted_p_values_are_those_of_scipy():
    p = np.random.RandomState(0).uniform(size=50) ** 3
    np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))


def test_every_axis_is_enriched_for_what_loads_on_it(modes):
    D, y, metric = modes
    axes = canonical_axes(metric, D, y)
    sets = {"signal": ["signal"], "noise": ["noise 1", "noise 2"]}
    found = enrich_axes(axes, sets, n_top=1, min_size=1)
    assert list(found) == ["all", "axis 1", "axis 2"]
    assert found["all"].sets[0] == found["axis 1"].sets[0] == "signal"
    assert found["axis 1"].table()["features"][0] == "signal"
    ranked = enrich_axes(axes, sets, n_top=None, min_size=1)
    assert ranked["axis 1"].sets[0] == "signal"


@pytest.mark.parametrize("name", ["sets.gmt", "sets.gmt.gz"])
def test_gmt_files(tmp_path, name):
    text = "HALLMARK_ONE\thttp://x\tISG15\tMX1\tISG15\t\r\n\nGOBP_TWO\t\tCD4\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert read_gmt(path) == {"HALLMARK_ONE": ["ISG15", "MX1"], "GOBP_TWO": ["CD4"]}
    assert list(read_gmt(path, prefix="GOBP_")) == ["GOBP_TWO"]
    with pytest.raises(ValueError, match="begins with 'KEGG_'"):
        read_gmt(path, prefix="KEGG_")


def test_broken_gmt_files(tmp_path):
    path = tmp_path / "sets.gmt"
    path.write_text("A\tx\tB\nA\tx\tC\n")
    with pytest.raises(ValueError, match="line 2: there is a set 'A' before"):
        read_gmt(path)
    path.write_text("A B C\n")
    with pytest.raises(ValueError, match="line 1: expected a name, a description and members"):
        read_gmt(path)


def test_names_that_do_not_fit():
    with pytest.raises(ValueError, match=r"2 features are not in the background, .*'x1'"):
        over_representation(["g1", "x1", "x2"], BACKGROUND, SETS)
    with pytest.raises(ValueError, match="the same kind of names"):
        over_representation(["ENSG1"], ["ENSG1", "ENSG2"], SETS)
    with pytest.raises(ValueError, match="'g1' more than once"):
        over_representation(["g1"], ["g1", "g1"], SETS)
    with pytest.raises(ValueError, match="no features are given"):
        over_representation([], BACKGROUND, SETS)
