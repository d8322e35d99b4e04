"""GroundMetric: distances, importance, and files."""

import hashlib
import io
import json
import os
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.preprocessing import StandardScaler

from groundmetric import Distributions, GroundMetric
from groundmetric._internal.files import Damaged, VersionError, write_arrays
from groundmetric.metrics import DiagonalMetric, MappedMetric

W = np.array([[2.0, 0.0, -1.0], [0.5, 3.0, 1.0]])
NAMES = ["größe", "重さ", "µ 'quoted' \"x\""]
VARIANCES = np.array([4.0, 0.25, 9.0])
X = np.random.default_rng(0).normal(size=(7, 3))
LEARNED = GroundMetric(W, NAMES, variances=VARIANCES)
EUCLID = GroundMetric.euclidean(3)


def equal(first, second):
    """The same metric in every respect that a file keeps."""
    if type(first) is not type(second) or first.features != second.features:
        return False
    if hasattr(first, "weight"):
        return first.weight == second.weight and equal(first.first, second.first) and equal(first.second, second.second)
    if (first.variances is None) != (second.variances is None):
        return False
    same_variances = first.variances is None or np.array_equal(first.variances, second.variances)
    return same_variances and np.array_equal(first.components, second.components)


METRICS = {
    "linear": GroundMetric(W),
    "named": LEARNED,
    "euclidean": EUCLID,
    "euclidean named": GroundMetric.euclidean(3, NAMES),
    "blend": LEARNED.blend(EUCLID, 0.3),
    "blend of blends": LEARNED.blend(EUCLID, 0.1).blend(GroundMetric(-W, NAMES), 0.7),
}
each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@pytest.mark.parametrize(
    "wrap",
    [np.asarray, np.asfortranarray, np.ndarray.tolist, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix,
     lambda x: pd.DataFrame(x, columns=NAMES), lambda x: Distributions(x, range(7)),
     lambda x: Distributions(sparse.csr_matrix(x), range(7), features=NAMES)],
)  # fmt: skip
def test_projection_is_the_product_with_the_components(wrap):
    assert_allclose(LEARNED.project(wrap(X)), X @ W.T, rtol=1e-14)


@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, bool])
def test_points_of_other_types_are_projected_in_float64(wrap, dtype):
    rows = (10 * X).astype(dtype)
    z = LEARNED.project(wrap(rows))
    assert z.dtype == np.float64
    assert_allclose(z, rows.astype(np.float64) @ W.T, rtol=1e-14, atol=1e-14)


def test_more_points_than_a_block_are_projected_alike():
    large = np.random.default_rng(1).normal(size=(20000, 3)).astype(np.float32)
    assert_allclose(LEARNED.project(large), large.astype(np.float64) @ W.T, rtol=1e-12, atol=1e-12)


def test_distances_are_mahalanobis_distances():
    inner = W.T @ W
    assert_allclose(LEARNED.matrix(), inner)
    by_hand = [[np.sqrt((x - y) @ inner @ (x - y)) for y in X[:3]] for x in X]
    assert_allclose(LEARNED.distances(X, X[:3]), by_hand, atol=1e-12)
    assert_allclose(LEARNED.distances(X), cdist(X @ W.T, X @ W.T), atol=1e-14)


def test_importance_sums_to_one_and_counts_the_spread_of_the_data():
    share = (W**2).sum(axis=0) * VARIANCES
    assert_allclose(LEARNED.importance(), share / share.sum())
    assert LEARNED.importance().sum() == pytest.approx(1.0)
    assert_allclose(GroundMetric(W).importance(), (W**2).sum(axis=0) / (W**2).sum())


@pytest.mark.parametrize("scale", [1e-160, 1e-100, 1e150])
@pytest.mark.parametrize("kind", [lambda w, **options: GroundMetric(np.diag(w), **options), DiagonalMetric])
def test_importance_of_features_of_any_size(scale, kind):
    """Weights of 10¹⁶⁰ and variances of 10⁻³²⁰ are squared and multiplied without leaving the range of numbers."""
    weights, spreads = np.array([2.0, 1.0, 0.0]), np.array([1.0, 3.0, 5.0])
    scales = np.array([scale, 1.0, scale])
    metric = kind(weights / scales, variances=(spreads * scales) ** 2)
    assert_allclose(metric.importance(), [4 / 13, 9 / 13, 0.0], rtol=1e-3)


@pytest.mark.parametrize("c", [1e-6, 1e6, -3.0])
def test_importance_does_not_depend_on_units(c):
    units = np.array([1.0, c, 1.0])
    rescaled = GroundMetric(W / units, variances=VARIANCES * units**2)
    assert_allclose(rescaled.importance(), LEARNED.importance(), rtol=1e-12)


def test_a_metric_that_is_zero_finds_all_features_equally_important():
    assert_allclose(GroundMetric(np.zeros((2, 4))).importance(), 0.25)


def test_the_euclidean_metric_equals_the_identity_without_storing_it():
    identity, huge = GroundMetric(np.eye(3)), GroundMetric.euclidean(10**6)
    assert_array_equal(EUCLID.project(X), X)
    assert_array_equal(EUCLID.matrix(), identity.matrix())
    assert_array_equal(EUCLID.importance(), identity.importance())
    assert_allclose(EUCLID.distances(X), identity.distances(X), atol=1e-14)
    assert (huge.n_features, huge.n_components, huge.importance().size) == (10**6, 10**6, 10**6)
    assert huge.distances(sparse.csr_matrix(([3.0], ([0], [5])), (2, 10**6))).tolist() == [[0.0, 3.0], [3.0, 0.0]]


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_a_blend_of_distances_is_their_weighted_average(weight):
    by_hand = (1 - weight) * cdist(X @ W.T, X[:4] @ W.T) + weight * cdist(X, X[:4])
    assert_allclose(LEARNED.blend(EUCLID, weight).distances(X, X[:4]), by_hand, atol=1e-13)


def test_distances_in_a_blend_are_those_of_the_two_parts_of_its_projection():
    z = LEARNED.blend(EUCLID, 0.3).project(X)
    assert_allclose(LEARNED.blend(EUCLID, 0.3).distances(X), cdist(z[:, :2], z[:, :2]) + cdist(z[:, 2:], z[:, 2:]))


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("cost", ["euclidean", "manhattan", "squared"])
def test_distances_between_projected_points_of_a_blend_are_its_distances(weight, cost):
    first, second = GroundMetric(W, cost=cost), GroundMetric(-2.0 * W[:1])
    for metric in (first.blend(second, weight), first.blend(second, weight).blend(EUCLID, 0.4)):
        z = metric.project(X)
        assert_allclose(metric.projected_distances(z, z[:4]), metric.distances(X, X[:4]), rtol=1e-12, atol=1e-12)


def test_a_map_before_a_blend_of_distances_is_refused():
    with pytest.raises(ValueError, match=r"inner is BlendedMetric.*blend two mapped metrics"):
        MappedMetric(StandardScaler().fit(X), LEARNED.blend(EUCLID), X.shape[1])


def test_an_average_of_distances_has_no_components():
    with pytest.raises(TypeError, match="no components"):
        LEARNED.blend(EUCLID).matrix()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 1.5}, "weight is 1.5"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"other": GroundMetric.euclidean(4)}, "4 features, this one 3"),
    ],
)
def test_a_blend_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        LEARNED.blend(**{"other": EUCLID, "weight": 0.5, **change})


@each_metric
def test_a_saved_metric_comes_back_the_same(metric, tmp_path):
    path = tmp_path / "ü metric.anything"
    metric.save(path)
    loaded = GroundMetric.load(str(path))
    assert equal(loaded, metric)
    assert_array_equal(loaded.distances(X), metric.distances(X))
    assert os.listdir(tmp_path) == [path.name]


def saved(metric, path):
    metric.save(path)
    return path.read_bytes()


def test_a_file_of_a_newer_version_asks_for_an_update(tmp_path):
    path = tmp_path / "metric"
    write_arrays(path, "groundmetric.GroundMetric", 99, {}, {})
    with pytest.raises(VersionError):
        GroundMetric.load(path)


@each_metric
def test_a_truncated_file_is_called_damaged(metric, tmp_path):
    path = tmp_path / "metric"
    complete = saved(metric, path)
    for length in [*range(0, len(complete), 17), len(complete) - 1]:
        path.write_bytes(complete[:length])
        with pytest.raises(Damaged):
            GroundMetric.load(path)


def what_goes_wrong(path, metric):
    """Nothing, where the file gives the same metric or a ValueError that names it."""
    try:
        return [] if equal(GroundMetric.load(path), metric) else ["another metric"]
    except ValueError as error:
        return [] if path.name in str(error) else [f"not named: {error}"]
    except Exception as error:
        return [repr(error)]


LARGE = {"large": GroundMetric(np.random.default_rng(0).normal(size=(5, 300)), variances=np.ones(300))}


@pytest.mark.parametrize("metric", (METRICS | LARGE).values(), ids=(METRICS | LARGE).keys())
def test_a_flipped_byte_never_gives_another_metric(metric, tmp_path):
    path = tmp_path / "metric"
    complete = saved(metric, path)
    step = max(1, len(complete) // 300)
    wrong = {}
    for position in [*range(150), *range(150, len(complete), step)]:
        flip = (0x01, 0xFF)[position % 2]
        path.write_bytes(complete[:position] + bytes([complete[position] ^ flip]) + complete[position + 1 :])
        for problem in what_goes_wrong(path, metric):
            wrong.setdefault(problem, []).append((position, flip))
    assert not wrong


def test_another_npz_file_is_no_metric_and_a_missing_file_is_not_found(tmp_path):
    np.savez(tmp_path / "other.npz", components=W)
    with pytest.raises(Damaged):
        GroundMetric.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        GroundMetric.load(tmp_path / "missing")


def fail_half_way(*arguments, **options):
    for file in arguments:
        if isinstance(file, Path) and file.name.startswith("."):
            file.touch()
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", [(np, "savez_compressed"), (os, "fsync"), (os, "replace")], ids=str)
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(step, tmp_path, monkeypatch):
    path = tmp_path / "metric"
    LEARNED.save(path)
    with monkeypatch.context() as patch:
        patch.setattr(*step, fail_half_way)
        with pytest.raises(KeyboardInterrupt):
            EUCLID.save(path)
    assert os.listdir(tmp_path) == ["metric"]
    assert equal(GroundMetric.load(path), LEARNED)


def test_a_saved_file_may_be_read_by_whoever_may_read_other_new_files(tmp_path):
    LEARNED.save(tmp_path / "metric")
    (tmp_path / "other").touch()
    assert (tmp_path / "metric").stat().st_mode == (tmp_path / "other").stat().st_mode


def crafted(path, description, version=3, **arrays):
    """A file with a right checksum and anything inside."""
    write_arrays(path, "groundmetric.GroundMetric", version, description, arrays, compress=True)
    return path


def test_a_small_file_that_would_become_a_large_one_is_refused_before_it_is_unpacked(tmp_path):
    components = ("components.npy", as_npy(np.zeros((250, 100_000))))
    path = sealed(tmp_path / "bomb.gm", archive(LINEAR, components))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"bomb\.gm.*would become 200,000,\d+ bytes of"):
        GroundMetric.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_large_metric_of_zeros_can_be_read_back(tmp_path):
    GroundMetric(np.zeros((100, 100_000))).save(tmp_path / "zeros.gm")
    assert GroundMetric.load(tmp_path / "zeros.gm").components.shape == (100, 100_000)


def sealed(path, content):
    """A file of this archive, with a right checksum."""
    kind, version = "groundmetric.GroundMetric", 3
    checksum = hashlib.sha256(f"{kind} {version}\n".encode() + content).hexdigest()
    path.write_bytes(json.dumps({"format": kind, "version": version, "sha256": checksum}).encode() + b"\n" + content)
    return path


def archive(*entries):
    content = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore", UserWarning)  # a name twice
        for name, part in entries:
            file.writestr(name, part)
    return content.getvalue()


def as_npy(array, **change):
    """An array in numpy's format, with a header that may lie."""
    head = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | change
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue() + array.tobytes()


def as_text(description):
    return as_npy(np.frombuffer(json.dumps(description).encode(), np.uint8))


LINEAR = ("description.npy", as_text({"kind": "linear"}))
ARCHIVES = {
    "no archive": b"PK nonsense",
    "empty": archive(),
    "no description": archive(("components.npy", as_npy(W))),
    "no arrays": archive(LINEAR),
    "too large a shape": archive(LINEAR, ("components.npy", as_npy(W, shape=(10**6, 10**6)))),
    "a negative shape": archive(LINEAR, ("components.npy", as_npy(W, shape=(-1, -6)))),
    "objects": archive(LINEAR, ("components.npy", as_npy(W, descr="|O"))),
    "no header": archive(LINEAR, ("components.npy", b"\x93NUMPY\x01\x00")),
    "no numpy": archive(LINEAR, ("components.npy", b"hello")),
    "twice": archive(LINEAR, LINEAR, ("components.npy", as_npy(W))),
    "deep": archive(("description.npy", as_npy(np.frombuffer(b"[" * 100_000, np.uint8)))),
    "a list": archive(("description.npy", as_text([1]))),
    "no text": archive(("description.npy", as_npy(np.frombuffer(b"\xff\xfe", np.uint8)))),
}


@pytest.mark.parametrize("content", ARCHIVES.values(), ids=ARCHIVES.keys())
def test_a_crafted_archive_is_a_value_error_that_names_the_file(content, tmp_path):
    with pytest.raises(ValueError, match=r"crafted\.gm"):
        GroundMetric.load(sealed(tmp_path / "crafted.gm", content))


EUCLIDEAN = {"kind": "euclidean", "n_features": 3}


@pytest.mark.parametrize(
    "description",
    [
        {}, {"kind": None}, {"kind": ["linear"]}, {"kind": "linear"}, {"kind": "diagonal"}, {"kind": "euclidean"},
        *({"kind": "euclidean", "n_features": n} for n in (0, -1, 2.5, "3", True, None, [3], 1e400)),
        EUCLIDEAN | {"features": ["a"]}, EUCLIDEAN | {"features": "abc"}, EUCLIDEAN | {"features": [1, 2, 3]},
        EUCLIDEAN | {"features": {"a": 1}},
        *({"kind": "blend", "weight": w, "parts": [EUCLIDEAN] * 2} for w in (-0.1, 1.1, "1", None, float("nan"), True)),
        *({"kind": "blend", "weight": 0.5, "parts": p} for p in ([], [EUCLIDEAN], [EUCLIDEAN] * 3, {}, [1, 2], "ab")),
        {"kind": "blend", "weight": 0.5, "parts": [EUCLIDEAN, EUCLIDEAN | {"n_features": 4}]},
        {"kind": "mapped", "map": "M", "inner": EUCLIDEAN, "features": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_crafted_description_is_a_value_error_that_names_the_file(description, tmp_path):
    with pytest.raises(ValueError, match=r"crafted\.gm"):
        GroundMetric.load(crafted(tmp_path / "crafted.gm", description))


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("linear", {"components": np.array([[np.nan, 1.0]])}),
        ("linear", {"components": np.ones(3)}),
        ("linear", {"components": np.array([["a", "b"]])}),
        ("linear", {"components": W, "variances": np.ones(2)}),
        ("linear", {"components": W, "variances": np.full(W.shape[1], -1.0)}),
        ("linear", {"components": W, "variances": np.full(W.shape[1], np.inf)}),
        ("diagonal", {"weights": np.array([-1.0, 2.0])}),
        ("diagonal", {"weights": np.array([[1.0]])}),
    ],
)
def test_crafted_numbers_out_of_range_are_a_value_error_that_names_the_file(kind, arrays, tmp_path):
    with pytest.raises(ValueError, match=r"crafted\.gm"):
        GroundMetric.load(crafted(tmp_path / "crafted.gm", {"kind": kind}, **arrays))


@pytest.mark.parametrize("header", [b"[]", b"{}", b"1", b'{"version": 1e999}', b"[" * 100_000, b"\xff"])
def test_a_crafted_header_is_a_value_error(header, tmp_path):
    (tmp_path / "crafted.gm").write_bytes(header + b"\nx")
    with pytest.raises(Damaged):
        GroundMetric.load(tmp_path / "crafted.gm")


def test_the_version_is_part_of_the_checksum_and_files_of_before_are_read(tmp_path):
    path = tmp_path / "metric"
    head, _, content = saved(LEARNED, path).partition(b"\n")
    header = json.loads(head)
    assert header["version"] == 3
    path.write_bytes(json.dumps(header | {"version": 2}).encode() + b"\n" + content)
    with pytest.raises(Damaged):
        GroundMetric.load(path)
    old = {"version": 2, "sha256": hashlib.sha256(content).hexdigest()}
    path.write_bytes(json.dumps(header | old).encode() + b"\n" + content)
    assert equal(GroundMetric.load(path), LEARNED)
