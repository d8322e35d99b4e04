"""Distances kept pair by pair: only missing ones are computed, and no accident gives a wrong one."""

import errno
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric import distances
from groundmetric.transport import kept as kept_distances
from groundmetric.transport.kept import KeptDistances


def cohort(n, seed=0, k=2):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(n), 8)
    return gm.Distributions(rng.normal(size=(owner.size, k)), owner)


@pytest.fixture
def computed(monkeypatch):
    """How many pairs were computed."""
    counts = []
    inner = distances._solve_all

    def counted(*arguments):
        counts.append(arguments[3].size)
        return inner(*arguments)

    monkeypatch.setattr(distances, "_solve_all", counted)
    return counts


def test_the_second_time_nothing_is_computed_and_all_bits_are_the_same(tmp_path, computed):
    D = cohort(12)
    for metric in ("euclidean", gm.GroundMetric([[1.0, 2.0]]), "cityblock"):
        plain = gm.pairwise_distances(D, metric=metric)
        first, again = (gm.pairwise_distances(D, metric=metric, keep=tmp_path / "d") for _ in range(2))
        assert_array_equal(first, plain)
        assert_array_equal(again, plain)
        assert computed[-2:] == [66, 0]


def test_new_distributions_cost_only_their_rows(tmp_path, computed):
    D = cohort(110)
    gm.pairwise_distances(D[:100], keep=tmp_path / "d")
    grown = gm.pairwise_distances(D, keep=tmp_path / "d")
    assert computed == [4950, 10 * 100 + 45]
    assert_allclose(grown, gm.pairwise_distances(D), rtol=1e-13)


def test_order_and_side_do_not_matter(tmp_path, computed):
    D = cohort(9)
    whole = gm.pairwise_distances(D, keep=tmp_path / "d")
    assert_array_equal(gm.pairwise_distances(D[::-1], keep=tmp_path / "d"), whole[::-1, ::-1])
    assert_array_equal(gm.pairwise_distances(D[5:], D[:5], keep=tmp_path / "d"), whole[5:, :5])
    assert computed == [36, 0, 0]


def test_changed_data_masses_or_metric_are_computed_anew(tmp_path, computed):
    D = cohort(4)
    moved = gm.Distributions(np.where(np.arange(32)[:, None] == 3, 9.0, D.points), np.repeat(np.arange(4), 8))
    weights = np.where(np.arange(32) == 3, 2.0, 1.0)
    heavier = gm.Distributions(D.points, np.repeat(np.arange(4), 8), weights=weights)
    gm.pairwise_distances(D, keep=tmp_path / "d")
    for other in (moved, heavier):
        assert_allclose(gm.pairwise_distances(other, keep=tmp_path / "d"), gm.pairwise_distances(other), rtol=1e-13)
        assert computed[-2:] == [3, 6]  # of the first distribution only; then without `keep`
    gm.pairwise_distances(D, metric=gm.GroundMetric(2.0 * np.eye(2)), keep=tmp_path / "d")
    assert computed[-1] == 6


def test_values_at_the_pivot_limit_are_not_kept(tmp_path, computed):
    D = cohort(3)
    for _ in range(2):
        with pytest.warns(UserWarning, match="pivot limit"):
            gm.pairwise_distances(D, max_pivots=1, keep=tmp_path / "d")
    assert computed == [3, 3]


def test_sparse_points_are_recognised(tmp_path, computed):
    from scipy import sparse

    D = cohort(4)
    D = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(np.arange(4), 8))
    first, again = (gm.pairwise_distances(D, keep=tmp_path / "d") for _ in range(2))
    assert_array_equal(first, again)
    assert computed == [6, 0]


@pytest.mark.parametrize("cut", [1, 17, 31, 32, 40, 6 * 32])
def test_a_torn_tail_is_dropped_with_a_message(tmp_path, cut):
    D, path = cohort(4), tmp_path / "d"
    whole = gm.pairwise_distances(D, keep=path)
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    if cut % 32:
        with pytest.warns(RuntimeWarning, match="half written"):
            assert_array_equal(gm.pairwise_distances(D, keep=path), whole)
    else:
        assert_array_equal(gm.pairwise_distances(D, keep=path), whole)
    assert len(KeptDistances(path)) == 6


@pytest.mark.parametrize("size", [1, 16, 31])
def test_a_torn_header_is_written_again(tmp_path, size):
    D, path = cohort(3), tmp_path / "d"
    whole = gm.pairwise_distances(D, keep=path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.warns(RuntimeWarning, match="half"):
        assert_array_equal(gm.pairwise_distances(D, keep=path), whole)
    assert len(KeptDistances(path)) == 3


def test_any_flipped_bit_costs_one_distance_and_changes_none(tmp_path):
    D, path = cohort(4), tmp_path / "d"
    whole = gm.pairwise_distances(D, keep=path)
    content = path.read_bytes()
    for place in range(32, 64):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        if 32 + 24 <= place < 32 + 28:  # nothing is written there
            assert len(KeptDistances(path)) == 6
            continue
        with pytest.warns(RuntimeWarning, match="1 damaged"):
            kept = KeptDistances(path)
        assert len(kept) == 5
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert_array_equal(gm.pairwise_distances(D, keep=path), whole)


def test_another_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("a letter to my mother")
    with pytest.raises(ValueError, match="no file of kept distances"):
        gm.pairwise_distances(cohort(3), keep=path)
    assert path.read_text() == "a letter to my mother"
    with pytest.raises(ValueError, match="folder"):
        gm.pairwise_distances(cohort(3), keep=tmp_path)


def test_only_exact_distances_are_kept(tmp_path):
    with pytest.raises(ValueError, match="only exact"):
        gm.pairwise_distances(cohort(3), solver="sliced", keep=tmp_path / "d")


def test_a_full_disk_is_told_and_ends_nothing(tmp_path, monkeypatch):
    D, path = cohort(6), tmp_path / "d"
    gm.pairwise_distances(D[:4], keep=path)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept_distances.os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        found = gm.pairwise_distances(D, keep=path)
    assert_allclose(found, gm.pairwise_distances(D), rtol=1e-13)
    monkeypatch.undo()
    assert len(KeptDistances(path)) == 6


def test_two_stores_on_one_file_lose_nothing(tmp_path):
    one, other = KeptDistances(tmp_path / "d"), KeptDistances(tmp_path / "d")
    one.put([b"a" * 16], np.array([1.0]))
    other.put([b"b" * 16], np.array([2.0]))
    one.put([b"\0" * 16], np.array([3.0]))
    kept = KeptDistances(tmp_path / "d")
    assert_array_equal(kept.get([b"a" * 16, b"b" * 16, b"\0" * 16, b"c" * 16]), [1.0, 2.0, 3.0, np.nan])


def test_killed_at_any_moment_it_goes_on_to_the_same_bits(tmp_path):
    """kill -9 while distances are computed and written, a few times over."""
    script = textwrap.dedent("""
        import sys
        import numpy as np
        import groundmetric as gm
        from groundmetric import parallel
        parallel._MOST_PAIRS = 5
        rng = np.random.default_rng(0)
        D = gm.Distributions(rng.normal(size=(4000, 2)), np.repeat(np.arange(40), 100))
        gm.pairwise_distances(D, keep=sys.argv[1])
    """)
    path, random = tmp_path / "d", np.random.default_rng(0)
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", script, str(path)])
        before = path.stat().st_size if path.exists() else 0
        while child.poll() is None and not (path.exists() and path.stat().st_size > before):
            time.sleep(0.002)
        time.sleep(random.uniform(0.0, 0.03))
        child.kill()
        child.wait()
    assert 0 < (path.stat().st_size - 32) // 32 < 780
    rng = np.random.default_rng(0)
    D = gm.Distributions(rng.normal(size=(4000, 2)), np.repeat(np.arange(40), 100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_distances.warnings, "warn", lambda *args, **options: None)
        assert_array_equal(gm.pairwise_distances(D, keep=path), gm.pairwise_distances(D))


def test_what_somebody_puts_there_meanwhile_is_left_alone(tmp_path):
    kept = KeptDistances(tmp_path / "d")
    mine = b"a file of mine, with more than a record in it\n"
    (tmp_path / "d").write_bytes(mine)
    with pytest.warns(RuntimeWarning, match="can no longer be kept.*does not begin as one"):
        kept.put([b"0" * 16], np.array([1.0]))
    assert (tmp_path / "d").read_bytes() == mine


def test_a_crafted_value_that_is_no_distance_is_left_out(tmp_path):
    kept = KeptDistances(tmp_path / "d")
    kept.put([b"0" * 16, b"1" * 16, b"2" * 16], np.array([1.0, -1.0, np.inf]))
    with pytest.warns(RuntimeWarning, match="held 2 damaged distances"):
        assert len(KeptDistances(tmp_path / "d")) == 1
