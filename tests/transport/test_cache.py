"""Distances kept pair by pair: only missing ones are computed, and no accident gives a wrong one."""

import signal
import struct
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric._internal.cache import CacheWarning
from groundmetric._internal.files import Damaged, Foreign
from groundmetric.transport import cohort as cohort_module
from groundmetric.transport.cohort import DistanceCache


def cohort(n, seed=0, k=2):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(n), 8)
    return gm.Distributions(rng.normal(size=(owner.size, k)), owner)


@pytest.fixture
def computed(monkeypatch):
    """Numbers of computed pairs, one for each call."""
    counts = []
    inner = cohort_module.solve_all

    def counted(*arguments):
        counts.append(arguments[3].size)
        return inner(*arguments)

    monkeypatch.setattr(cohort_module, "solve_all", counted)
    return counts


def test_the_second_time_nothing_is_computed_and_all_bits_are_the_same(tmp_path, computed):
    D = cohort(12)
    for metric in ("euclidean", gm.GroundMetric([[1.0, 2.0]]), "cityblock"):
        plain = gm.pairwise_distances(D, metric=metric)
        first, second = (gm.pairwise_distances(D, metric=metric, keep=tmp_path / "d") for _ in range(2))
        assert_array_equal(first, plain)
        assert_array_equal(second, plain)
        assert computed[-2:] == [66, 0]


def test_new_distributions_cost_only_their_rows(tmp_path, computed):
    D = cohort(110)
    gm.pairwise_distances(D[:100], keep=tmp_path / "d")
    grown = gm.pairwise_distances(D, keep=tmp_path / "d")
    assert computed == [4950, 10 * 100 + 45]
    assert_allclose(grown, gm.pairwise_distances(D), rtol=1e-13)


def test_order_and_side_do_not_matter(tmp_path, computed):
    D = cohort(9)
    distances = gm.pairwise_distances(D, keep=tmp_path / "d")
    assert_array_equal(gm.pairwise_distances(D[::-1], keep=tmp_path / "d"), distances[::-1, ::-1])
    assert_array_equal(gm.pairwise_distances(D[5:], D[:5], keep=tmp_path / "d"), distances[5:, :5])
    assert computed == [36, 0, 0]


def test_changed_data_masses_or_metric_are_computed_anew(tmp_path, computed):
    D = cohort(4)
    moved = gm.Distributions(np.where(np.arange(32)[:, None] == 3, 9.0, D.points), np.repeat(np.arange(4), 8))
    weights = np.where(np.arange(32) == 3, 2.0, 1.0)
    heavier = gm.Distributions(D.points, np.repeat(np.arange(4), 8), weights=weights)
    gm.pairwise_distances(D, keep=tmp_path / "d")
    for changed in (moved, heavier):
        assert_allclose(gm.pairwise_distances(changed, keep=tmp_path / "d"), gm.pairwise_distances(changed), rtol=1e-13)
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
    first, second = (gm.pairwise_distances(D, keep=tmp_path / "d") for _ in range(2))
    assert_array_equal(first, second)
    assert computed == [6, 0]


def test_any_flipped_bit_is_a_distance_to_compute_or_an_error_that_names_the_file(tmp_path):
    D, path = cohort(4), tmp_path / "d"
    expected = gm.pairwise_distances(D, keep=path)
    content, warned, refused = path.read_bytes(), 0, 0
    used = np.flatnonzero(np.frombuffer(content, np.uint8))
    for position in used[::3]:
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                distances = gm.pairwise_distances(D, keep=path)
            except (Damaged, Foreign) as error:
                refused += str(path) in str(error)
            else:
                assert_array_equal(distances, expected)
        assert all(issubclass(warning.category, CacheWarning) for warning in caught)
        warned += bool(caught)
    assert warned > 10
    assert refused > 0


def test_a_damaged_distance_is_computed_anew_once(tmp_path, computed):
    D, path = cohort(4), tmp_path / "d"
    expected = gm.pairwise_distances(D, keep=path)
    content = path.read_bytes()
    position = content.index(struct.pack("<d", expected[0, 1]))
    path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
    with pytest.warns(CacheWarning, match="1 damaged entry"):
        assert_array_equal(gm.pairwise_distances(D, keep=path), expected)
    assert_array_equal(gm.pairwise_distances(D, keep=path), expected)
    assert computed == [6, 1, 0]


def test_only_exact_distances_are_kept(tmp_path):
    with pytest.raises(ValueError, match="only exact"):
        gm.pairwise_distances(cohort(3), solver="coarse", keep=tmp_path / "d")


def test_two_stores_on_one_file_lose_nothing(tmp_path):
    first, second = DistanceCache(tmp_path / "d"), DistanceCache(tmp_path / "d")
    first.put([b"a" * 16], np.array([1.0]))
    second.put([b"b" * 16], np.array([2.0]))
    first.put([b"\0" * 16], np.array([3.0]))
    reopened = DistanceCache(tmp_path / "d")
    assert_array_equal(reopened.get([b"a" * 16, b"b" * 16, b"\0" * 16, b"c" * 16]), [1.0, 2.0, 3.0, np.nan])


def test_killed_at_any_moment_it_goes_on_to_the_same_bits(tmp_path):
    """End the process without cleanup, twice, while distances are computed and written.

    A timer of the process itself does so: it cannot finish before another process has noticed that it started.
    """
    script = textwrap.dedent("""
        import signal
        import sys
        import numpy as np
        import groundmetric as gm
        from groundmetric.transport import cohort
        from groundmetric.transport.cohort import DistanceCache
        cohort._MOST_PAIRS = 5
        n_writes, seconds, put = int(sys.argv[2]), float(sys.argv[3]), DistanceCache.put
        def put_and_start_timer(self, keys, values):
            global n_writes
            put(self, keys, values)
            n_writes -= 1
            if n_writes == 0:
                signal.setitimer(signal.ITIMER_REAL, seconds)  # the kernel ends the process
        DistanceCache.put = put_and_start_timer
        rng = np.random.default_rng(0)
        D = gm.Distributions(rng.normal(size=(4000, 2)), np.repeat(np.arange(40), 100))
        gm.pairwise_distances(D, keep=sys.argv[1])
    """)
    path, random, n_stored = tmp_path / "d", np.random.default_rng(0), 0
    for _ in range(2):
        arguments = [str(path), str(random.integers(1, 10)), str(random.uniform(1e-4, 0.03))]
        child = subprocess.run([sys.executable, "-c", script, *arguments], check=False)
        assert child.returncode == -signal.SIGALRM
        before, n_stored = n_stored, len(DistanceCache(path))
        assert before < n_stored < 780
    rng = np.random.default_rng(0)
    D = gm.Distributions(rng.normal(size=(4000, 2)), np.repeat(np.arange(40), 100))
    assert_array_equal(gm.pairwise_distances(D, keep=path), gm.pairwise_distances(D))
    assert [file.name for file in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
def test_a_crafted_value_that_is_no_distance_is_left_out(tmp_path, value):
    cache = DistanceCache(tmp_path / "d")
    cache.put([b"0" * 16, b"1" * 16], np.array([1.0, value]))
    with pytest.warns(CacheWarning, match="held 1 damaged entry"):
        assert_array_equal(cache.get([b"0" * 16, b"1" * 16]), [1.0, np.nan])


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep is the folder"):
        gm.pairwise_distances(cohort(3), keep=tmp_path)
