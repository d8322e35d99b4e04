"""Enrichment agrees with scipy's tests, and errors name wrong names and files."""

import gzip

import numpy as np
import pytest
from scipy import stats

from groundmetric.interpret import over_representation, read_gmt

BACKGROUND = [f"g{k}" for k in range(200)]
SETS = {f"set {k}": BACKGROUND[7 * k : 7 * k + 10 + k] for k in range(12)}


def test_over_representation_is_fishers_exact_test():
    chosen = BACKGROUND[10:40]
    result = over_representation(chosen, BACKGROUND, SETS)
    assert np.all(np.diff(result.p) >= 0)
    for name, size, overlap, p, fold in zip(
        result.sets, result.size, result.overlap, result.p, result.effect, strict=True
    ):
        pair = len(set(SETS[name]) & set(chosen))
        table = [[pair, size - pair], [30 - pair, 200 - size - 30 + pair]]
        assert len(overlap) == pair
        np.testing.assert_allclose(p, stats.fisher_exact(table, alternative="greater").pvalue)
        np.testing.assert_allclose(fold, pair / (size * 30 / 200))


def test_members_outside_of_the_background_do_not_count():
    wide = {name: [*members, "elsewhere 1", "elsewhere 2"] for name, members in SETS.items()}
    first, second = (over_representation(BACKGROUND[:9], BACKGROUND, sets) for sets in (SETS, wide))
    np.testing.assert_array_equal(first.p, second.p)
    np.testing.assert_array_equal(first.size, second.size)


@pytest.mark.parametrize("name", ["sets.gmt", "sets.gmt.gz"])
def test_gmt_files(tmp_path, name):
    text = "HALLMARK_ONE\thttp://x\tISG15\tMX1\tISG15\t\r\n\nGOBP_TWO\t\tCD4\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert read_gmt(path) == {"HALLMARK_ONE": ["ISG15", "MX1"], "GOBP_TWO": ["CD4"]}


def test_broken_gmt_files(tmp_path):
    path = tmp_path / "sets.gmt"
    path.write_text("A\tx\tB\nA\tx\tC\n")
    with pytest.raises(ValueError, match="line 2"):
        read_gmt(path)
    path.write_text("A B C\n")
    with pytest.raises(ValueError, match="line 1"):
        read_gmt(path)


def test_names_that_do_not_fit():
    with pytest.raises(ValueError, match=r"2 features are not in the background, .*'x1'"):
        over_representation(["g1", "x1", "x2"], BACKGROUND, SETS)
    with pytest.raises(ValueError, match="the same names"):
        over_representation(["ENSG1"], ["ENSG1", "ENSG2"], SETS)
    with pytest.raises(ValueError, match="more than once"):
        over_representation(["g1"], ["g1", "g1"], SETS)
    with pytest.raises(ValueError, match="no features are given"):
        over_representation([], BACKGROUND, SETS)
