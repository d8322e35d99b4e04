"""Matrices are read in pieces, from memory or files, with the same values; errors name invalid sources."""

import tracemalloc

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

import groundmetric as gm
from groundmetric._anndata.source import Source, moments, pieces, project, read
from groundmetric._internal.validation import ParameterError

RANDOM = np.random.default_rng(0)
DENSE = np.where(RANDOM.random((70, 23)) < 0.3, RANDOM.integers(1, 9, (70, 23)), 0)
ROWS = np.array([0, 1, 2, 9, 10, 31, 68, 69])
COLUMNS = np.array([1, 2, 3, 11, 22])
KINDS = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "csr_array": sparse.csr_array}
TYPES = ["float32", "float64", "uint8", "int64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("matrices")


@pytest.fixture(params=["memory", "backed", "h5ad", "h5ad layer", "zarr layer"])
def open_matrix(request, folder, write_zarr):
    """A way from `DENSE`, in any format and type, to a place where it can be read from; files are written once."""
    opened = []

    def store(matrix):
        if request.param == "memory":
            return matrix
        layered = "layer" in request.param
        suffix = "zarr" if "zarr" in request.param else "h5ad"
        path = folder / f"{type(matrix).__name__}-{matrix.dtype}-{layered}.{suffix}"
        if not path.exists():
            adata = ad.AnnData(layers={"values": matrix}, shape=matrix.shape) if layered else ad.AnnData(matrix)
            (write_zarr if suffix == "zarr" else ad.AnnData.write_h5ad)(adata, path)
        opened.append(Source(ad.read_h5ad(path, backed="r") if request.param == "backed" else path))
        return opened[-1].matrix("values" if layered else None)

    yield store
    for source in opened:
        if source.adata is not None:
            source.adata.file.close()
        source.close()


def as_array(values):
    return values.toarray() if sparse.issparse(values) else np.asarray(values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_read_gives_the_wanted_rows_and_columns(kind, dtype, open_matrix):
    matrix = open_matrix(KINDS[kind](DENSE.astype(dtype)))
    result = read(matrix, ROWS, COLUMNS)
    np.testing.assert_array_equal(as_array(result), DENSE[np.ix_(ROWS, COLUMNS)])
    assert result.dtype == ("float64" if dtype == "float64" else "float32")
    assert sparse.issparse(result) == (kind != "dense")
    np.testing.assert_array_equal(as_array(read(matrix, ROWS)), DENSE[ROWS])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 40])
def test_read_does_not_depend_on_the_size_of_pieces(kind, size, open_matrix):
    matrix = open_matrix(KINDS[kind](DENSE.astype(np.float32)))
    result = read(matrix, ROWS, COLUMNS, size)
    np.testing.assert_array_equal(as_array(result), DENSE[np.ix_(ROWS, COLUMNS)])
    assert result.dtype == np.float32
    assert sparse.issparse(result) == (kind != "dense")


@pytest.mark.parametrize("first", [0, 1, 30])
@pytest.mark.parametrize("last", [0, 1, 30])
def test_read_of_rows_that_are_filled_unevenly(first, last):
    filled = np.zeros((60, 30), dtype=np.float32)
    filled[:20, :first] = filled[40:, :last] = 2.0
    result = read(sparse.csr_matrix(filled), np.arange(60), np.arange(29), 40)
    np.testing.assert_array_equal(result.toarray(), filled[:, :29])
    assert result.dtype == np.float32


@pytest.mark.parametrize(("kind", "copies"), [("dense", 1.35), ("csr", 2.35)])
def test_memory_of_reading(kind, copies):
    filled = sparse.random(8000, 100, 0.3, "csr", np.float32, random_state=0)
    matrix = filled.toarray() if kind == "dense" else filled
    tracemalloc.start()
    result = read(matrix, np.arange(8000), np.arange(90), 10_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < copies * (result.nbytes if kind == "dense" else result.data.nbytes + result.indices.nbytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 40])
def test_pieces_of_any_size_cover_everything_once(kind, size, open_matrix):
    matrix = open_matrix(KINDS[kind](DENSE.astype(np.float32)))
    seen = np.zeros((ROWS.size, COLUMNS.size), int)
    for piece in pieces(matrix, ROWS, COLUMNS, size):
        np.testing.assert_array_equal(as_array(piece.values), DENSE[np.ix_(ROWS[piece.rows], COLUMNS[piece.columns])])
        seen[piece.rows, piece.columns] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_projection_is_a_product(kind, open_matrix):
    W = RANDOM.normal(size=(3, COLUMNS.size))
    result = project(open_matrix(KINDS[kind](DENSE.astype(np.float32))), ROWS, COLUMNS, W)
    np.testing.assert_allclose(result, DENSE[np.ix_(ROWS, COLUMNS)] @ W.T, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 333, 10**6])
def test_moments_are_those_of_the_rows(kind, size, open_matrix, monkeypatch):
    monkeypatch.setattr("groundmetric._anndata.source.pieces.__defaults__", (None, size))
    result = moments(open_matrix(KINDS[kind](DENSE.astype(np.float32))), ROWS)
    np.testing.assert_allclose(result.mean, DENSE[ROWS].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(result.variance, DENSE[ROWS].var(axis=0), rtol=1e-12)
    assert result.looks_raw


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_no_digits_are_lost_where_the_mean_is_large(kind, monkeypatch):
    monkeypatch.setattr("groundmetric._anndata.source.pieces.__defaults__", (None, 100))
    values = RANDOM.normal(1e8, 1.0, (300, 4))
    result = moments(KINDS[kind](values), np.arange(300))
    np.testing.assert_allclose(result.variance, values.var(axis=0), rtol=1e-6)
    assert not result.looks_raw


class Spy:
    """A dense matrix in a file that remembers which rows were asked for."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.asked = values, values.shape, values.dtype, []

    def __getitem__(self, index):
        self.asked += [index.tolist() if isinstance(index, np.ndarray) else index]
        return self.values[index]


def test_few_rows_are_picked_in_order_and_many_are_read_in_one_stretch():
    spy = Spy(DENSE.astype(np.float32))
    for rows, asked in (([3, 68], [3, 68]), ([3, 5, 6, 9], slice(3, 10)), ([4, 5, 6], slice(4, 7))):
        spy.asked.clear()
        np.testing.assert_array_equal(read(spy, np.array(rows), COLUMNS), DENSE[np.ix_(rows, COLUMNS)])
        assert spy.asked == [asked]


def test_no_stretch_of_a_file_is_longer_than_a_piece():
    spy = Spy(DENSE.astype(np.float32))
    np.testing.assert_array_equal(read(spy, ROWS, size=10 * DENSE.shape[1]), DENSE[ROWS])
    assert spy.asked == [slice(0, 10), slice(10, 11), slice(31, 32), slice(68, 70)]


BLOCKS = {"whole": (70, 23), "rows": (9, 23), "columns": (70, 4), "both": ((1, 30, 39), (20, 3))}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", BLOCKS.values(), ids=BLOCKS)
def test_blocks_of_dask_are_read_and_summed_like_the_whole(kind, chunks):
    da = pytest.importorskip("dask.array")
    matrix = da.from_array(DENSE.astype(np.float32), chunks).map_blocks(KINDS[kind])
    np.testing.assert_array_equal(as_array(read(matrix, ROWS, COLUMNS)), DENSE[np.ix_(ROWS, COLUMNS)])
    result = moments(matrix, ROWS)
    np.testing.assert_allclose(result.mean, DENSE[ROWS].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(result.variance, DENSE[ROWS].var(axis=0), rtol=1e-12)
    W = RANDOM.normal(size=(3, COLUMNS.size))
    np.testing.assert_allclose(project(matrix, ROWS, COLUMNS, W), DENSE[np.ix_(ROWS, COLUMNS)] @ W.T, rtol=1e-12)


def test_blocks_of_dask_without_a_wanted_row_are_never_computed():
    da = pytest.importorskip("dask.array")
    computed = []

    def look(block, block_info=None):
        computed.append(block_info[0]["chunk-location"])
        return block

    matrix = da.from_array(DENSE, (10, 23)).map_blocks(look, dtype=DENSE.dtype, meta=DENSE[:0])
    read(matrix, ROWS)
    assert sorted(computed) == [(0, 0), (1, 0), (3, 0), (6, 0)]


def test_nothing_asked_for_is_nothing():
    assert read(DENSE, np.array([], int), COLUMNS).shape == (0, COLUMNS.size)


def test_text_is_no_matrix():
    with pytest.raises(ValueError, match="expected numbers"):
        read(np.array([["a"], ["b"]]), np.array([0, 1]))


def test_backed_mode_would_load_layers_but_a_path_does_not(tmp_path):
    ad.AnnData(layers={"values": sparse.csr_matrix(DENSE)}, shape=DENSE.shape).write_h5ad(tmp_path / "cells.h5ad")
    with Source(tmp_path / "cells.h5ad") as source:
        assert not sparse.issparse(source.matrix("values"))  # still in the file
        assert source.on_disk


def test_masked_values_are_refused():
    with pytest.raises(ValueError, match="the matrix has 1 of 6 entries masked"):
        read(np.ma.array(np.ones((2, 3)), mask=np.eye(2, 3) * [1, 0, 0]), np.arange(2))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"no such format", "not in the HDF5 format"), (None, "No such file"), ("h5", "it lacks 'obs'")],
)
def test_invalid_files_are_refused(tmp_path, content, message):
    path = tmp_path / "cells.h5ad"
    if content == "h5":
        import h5py

        h5py.File(path, "w").close()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, OSError), match=message):
        Source(path)


def test_invalid_sources_are_refused(tmp_path):
    with pytest.raises(TypeError, match="cells are a ndarray"):
        Source(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="is a folder"):
        Source(tmp_path)


def test_wrong_layers_and_representations_are_named(cohort, tmp_path):
    cohort.obsm["X_pca"] = np.zeros((cohort.n_obs, 2))
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    for store in (cohort, tmp_path / "cells.h5ad"):
        with pytest.raises(ParameterError) as caught:
            gm.tl.learn(store, "sample", "condition", layer="count")
        assert (caught.value.parameter, caught.value.value) == ("layer", "count")
        with pytest.raises(ParameterError) as caught:
            gm.tl.learn(store, "sample", "condition", use_rep="pca")
        assert (caught.value.parameter, caught.value.value) == ("use_rep", "pca")


def test_an_empty_filledasks_for_a_layer(cohort):
    bare = ad.AnnData(obs=cohort.obs, var=cohort.var, layers={"counts": cohort.layers["counts"]})
    with pytest.raises(ValueError, match="X is empty: give the layer"):
        gm.tl.learn(bare, "sample", "condition")
