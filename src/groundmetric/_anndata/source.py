"""Cells from an AnnData in memory, backed or lazy, or from an .h5ad file (or a .zarr folder): only what is asked for.

`Source` opens the cells. A matrix of cells × genes, in memory, in a file or in blocks of Dask, is read in pieces of
wanted rows and columns. Matrices stored by rows (CSR, dense) come in pieces of whole rows, those stored by columns
(CSC) in pieces of whole columns, those of Dask in its blocks, so that every value is read once and in the order in
which it lies in the file. Sums over rows or columns are taken piece by piece.
"""

from __future__ import annotations

import difflib
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from scipy import sparse

from .._internal.validation import ParameterError, refuse_mask

# Values in a piece, about, those between wanted rows included: large enough to be quick, small beside any memory.
_PIECE = 4_000_000
# In a file, a stretch is read whole if at least one of so many rows of it is wanted: picking them is slower than that.
_PICKED = 10
# An array that is filled strip by strip has room for this many times what the strips so far let expect.
_ROOM = 1.05

# Features that are a panel (markers, measurements), in which a single one in other units counts; genes are more.
PANEL = 100
# Share of zeros from which non-negative values of many features are taken for counts of genes, or logarithms of these.
_SOME_ZEROS = 0.05


class Source:
    """Cells, their annotations and their matrices, of which nothing is read before it is asked for.

    >>> with Source("cells.h5ad") as source:  # doctest: +SKIP
    ...     source.obs, source.matrix(layer="log")
    """

    def __init__(self, cells: Any) -> None:
        self._file: Any = None
        if isinstance(cells, str | os.PathLike):
            self._open(Path(cells))
        elif isinstance(cells, ad.AnnData):
            self.adata: Any = cells
            self.obs, self.var = _in_memory(cells.obs), _in_memory(cells.var)
        else:
            one = "; give one modality, mdata['rna'], or all to Modalities.from_mudata" if hasattr(cells, "mod") else ""
            raise TypeError(
                f"cells are a {type(cells).__name__}: expected an AnnData or the path of an .h5ad file{one}"
            )

    def _open(self, path: Path) -> None:
        """Open a file without its matrices: anndata's backed mode would load all layers."""
        self._file = _open_store(path)
        try:
            for part in ("obs", "var"):
                if part not in self._file:
                    raise ValueError(f"{str(path)!r} is no .h5ad file: it has no {part!r}")
            self.obs, self.var = (ad.io.read_elem(self._file[part]) for part in ("obs", "var"))
            self.adata = None
        except BaseException:
            self.close()
            raise

    @property
    def on_disk(self) -> bool:
        """Are cells read from a file, rather than held in memory (their values at least by Dask) and written to?"""
        return self.adata is None or self.adata.isbacked or not isinstance(self.adata.obs, pd.DataFrame)

    @property
    def genes(self) -> pd.Index:
        return self.var.index

    def matrix(self, layer: str | None = None) -> Any:
        """X (also by that name) or a layer."""
        if layer is None or (layer == "X" and not self.has_matrix(layer)):
            X = self._stored("X") if self.adata is None else self.adata.X
            if X is None:
                raise ValueError("X is empty: give the layer that holds the values (layer=…)")
            return X
        return self._named("layers", layer, "layer")

    def has_matrix(self, layer: str | None = None) -> bool:
        """Files of results hold cells without values."""
        if layer is None:
            return (self._file.get("X") if self.adata is None else self.adata.X) is not None
        return layer in (self._file.get("layers", {}) if self.adata is None else self.adata.layers)

    def has_representation(self, use_rep: str) -> bool:
        """Whether obsm has this entry."""
        return use_rep in (self._file.get("obsm", {}) if self.adata is None else self.adata.obsm)

    def representation(self, use_rep: str, argument: str = "use_rep") -> np.ndarray:
        """Coordinates of all cells, an entry of obsm; `argument` is what an error calls it."""
        found = self._named("obsm", use_rep, argument)
        if isinstance(found, pd.DataFrame):
            found = found.to_numpy()
        if found.ndim != 2:
            raise ValueError(f"obsm[{use_rep!r}] has shape {found.shape}: expected (n_cells, n_dimensions)")
        return found

    def uns_entry(self, name: str) -> Any:
        """An entry of uns, or nothing."""
        if self.adata is not None:
            return _computed(self.adata.uns.get(name, {}))
        return ad.io.read_elem(self._file["uns"][name]) if name in self._file.get("uns", {}) else {}

    def _named(self, part: str, name: str, argument: str) -> Any:
        """An entry of layers or obsm."""
        if self.adata is not None:
            entries: Mapping[str, Any] = getattr(self.adata, part)
        else:
            entries = self._file.get(part, {})
        if name not in entries:
            raise ParameterError(argument, name, f", but {part} has no such entry: {listed(name, entries)}")
        return entries[name] if self.adata is not None else self._stored(f"{part}/{name}")

    def _stored(self, path: str) -> Any:
        """A matrix in the file, not read yet; anything else is read."""
        if path not in self._file:
            return None
        entry = self._file[path]
        kind = str(entry.attrs.get("encoding-type", ""))
        if kind in ("csr_matrix", "csc_matrix"):
            return ad.io.sparse_dataset(entry)
        return entry if kind == "array" else ad.io.read_elem(entry)

    def close(self) -> None:
        if hasattr(self._file, "close"):
            self._file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _in_memory(frame: Any) -> pd.DataFrame:
    """The columns of obs or var; an AnnData of `anndata.experimental.read_lazy` has not read them yet."""
    return frame if isinstance(frame, pd.DataFrame) else frame.to_memory()


def _computed(entry: Any) -> Any:
    """An entry of uns with its arrays, which a lazy AnnData has not read yet."""
    if isinstance(entry, Mapping):
        return {name: _computed(value) for name, value in entry.items()}
    return entry.compute() if is_dask(entry) else entry


def _open_store(path: Path) -> Any:
    """The groups and arrays of an .h5ad file, or of a .zarr folder, for reading."""
    if path.is_dir():
        if path.suffix != ".zarr":
            raise ValueError(f"{str(path)!r} is a folder: expected an .h5ad file")
        import zarr

        return zarr.open_group(path, mode="r")
    with path.open("rb"):  # a missing or forbidden file says so itself
        pass
    if not h5py.is_hdf5(path):
        raise ValueError(f"{str(path)!r} is no .h5ad file: it is not in the HDF5 format")
    return h5py.File(path, "r")


def listed(name: Any, names: Iterable[Any]) -> str:
    """What there is, nearest to the name first.

    >>> listed("paitent", ["disease", "patient"])
    "there are 'patient', 'disease'"
    """

    def nearness(other: Any) -> float:
        return difflib.SequenceMatcher(None, str(name).lower(), str(other).lower()).ratio()

    ordered = sorted(names, key=nearness, reverse=True)
    return f"there are {', '.join(map(repr, ordered))}" if ordered else "there are none"


class Piece(NamedTuple):
    """Values of some of the wanted rows and columns: `rows` and `columns` are slices of what was asked for."""

    rows: slice
    columns: slice
    values: Any  # CSR matrix, CSC matrix or array, float32 or float64


def pieces(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None, size: int = _PIECE) -> Iterator[Piece]:
    """The values of these rows and columns (None: all), both ascending, in pieces of about `size` values at most."""
    columns = np.arange(matrix.shape[1]) if columns is None else columns
    if is_dask(matrix):
        yield from _blocks(matrix, rows, columns)
    elif layout(matrix) == "csc":
        for low, high in _cuts(matrix, columns, size):
            values = _some(_take(matrix, columns[low:high], axis=1), rows, axis=0)
            yield Piece(slice(0, rows.size), slice(low, high), _as_float(values))
    else:
        for low, high in _cuts(matrix, rows, size):
            values = _some(_take(matrix, rows[low:high], axis=0), columns, axis=1)
            yield Piece(slice(low, high), slice(0, columns.size), _as_float(values))


def read(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None, size: int = _PIECE) -> Any:
    """These rows and columns (None: all), both ascending, as a CSR matrix or an array; in pieces of about `size`."""
    n_columns = matrix.shape[1] if columns is None else columns.size
    found = pieces(matrix, rows, columns, size)
    first = next(found, None)
    if first is None:
        return np.empty((rows.size, n_columns), np.float32)
    if first.values.shape == (rows.size, n_columns):  # a single one is not copied
        return first.values.tocsr() if sparse.issparse(first.values) else first.values
    found = itertools.chain([first], found)
    if sparse.issparse(first.values):
        return _joined(found, (rows.size, n_columns))
    return _filled(found, (rows.size, n_columns), first.values.dtype)


def _filled(found: Iterator[Piece], shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Dense pieces in one array."""
    whole = np.empty(shape, dtype)
    for piece in found:
        whole[piece.rows, piece.columns] = piece.values
    return whole


def _joined(found: Iterator[Piece], shape: tuple[int, int]) -> sparse.csr_matrix:
    """Sparse pieces as one matrix. Each strip of rows is added and forgotten, so that there are never two copies."""
    data, indices, ends = _Growing(), _Growing(), [np.zeros(1, np.int64)]
    for _, strip in itertools.groupby(found, key=lambda piece: piece.rows.start):
        pieces = list(strip)
        parts = [piece.values for piece in pieces]
        part = (parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr")).tocsr()
        share = pieces[0].rows.stop / shape[0]
        data.add(part.data, share)
        indices.add(part.indices, share)
        ends.append(ends[-1][-1] + part.indptr[1:].astype(np.int64))
    indptr = np.concatenate(ends)
    few = indptr[-1] <= np.iinfo(np.int32).max
    return sparse.csr_matrix((data.whole(), indices.whole(), indptr.astype(np.int32) if few else indptr), shape)


class _Growing:
    """An array that is filled from the front. From the share that has come, it knows about how much room it needs."""

    def __init__(self) -> None:
        self._values, self._size = np.empty(0), 0

    def add(self, part: np.ndarray, share: float) -> None:
        """Append a part, with which this share of the rows has come."""
        end = self._size + part.size
        if end > self._values.size or not self._size:  # room that is never written to takes no memory
            larger = np.empty(end if share == 1.0 else int(_ROOM * end / share), part.dtype)
            larger[: self._size] = self._values[: self._size]
            self._values = larger
        self._values[self._size : end] = part
        self._size = end

    def whole(self) -> np.ndarray:
        return self._values[: self._size]


def project(matrix: Any, rows: np.ndarray, columns: np.ndarray | None, components: np.ndarray) -> np.ndarray:
    """The rows in the space of the components (n_components, n_columns), piece by piece."""
    z = np.zeros((rows.size, components.shape[0]))
    for piece in pieces(matrix, rows, columns):
        z[piece.rows] += piece.values @ components[:, piece.columns].T
    return z


def layout(matrix: Any) -> str:
    """ "csr", "csc" or "dense"."""
    return getattr(matrix, "format", "dense")


def is_dask(matrix: Any) -> bool:
    """A Dask array is known by what it promises, so that Dask need not be there."""
    return hasattr(matrix, "__dask_graph__")


def _blocks(matrix: Any, rows: np.ndarray, columns: np.ndarray) -> Iterator[Piece]:
    """Pieces as Dask has cut the matrix; one block is computed at a time, those without a wanted value never."""
    for i, (top, here) in enumerate(_parts(rows, matrix.chunks[0])):
        for j, (left, there) in enumerate(_parts(columns, matrix.chunks[1])):
            if here.stop > here.start and there.stop > there.start:
                block = matrix.blocks[i, j].compute()
                values = _some(_some(block, rows[here] - top, axis=0), columns[there] - left, axis=1)
                yield Piece(here, there, _as_float(values))


def _parts(index: np.ndarray, sizes: tuple[int, ...]) -> list[tuple[int, slice]]:
    """Where each block begins, and which of the ascending indices fall into it."""
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(index, bounds)
    return [
        (int(start), slice(int(a), int(b))) for start, (a, b) in zip(bounds, itertools.pairwise(cuts), strict=False)
    ]


def _take(matrix: Any, index: np.ndarray, axis: int) -> Any:
    """These rows (or columns), ascending; from a file in one stretch where enough of it is wanted."""
    low, high = int(index[0]), int(index[-1]) + 1
    if high - low == index.size:
        return matrix[low:high] if axis == 0 else matrix[:, low:high]
    in_memory = isinstance(matrix, np.ndarray) or sparse.issparse(matrix)
    if in_memory or index.size * _PICKED < high - low:
        return matrix[index] if axis == 0 else matrix[:, index]
    return _some(matrix[low:high] if axis == 0 else matrix[:, low:high], index - low, axis)


def _some(values: Any, index: np.ndarray, axis: int) -> Any:
    """These rows (or columns) of values in memory, which are not copied where it is all of them."""
    if index.size == values.shape[axis]:
        return values
    return values[index] if axis == 0 else values[:, index]


def _cuts(matrix: Any, index: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Where to cut the wanted rows (or columns) so that the stretch of a piece has about `size` values at most."""
    if not index.size:
        return []
    if layout(matrix) == "dense":
        ends = (index + 1) * matrix.shape[1]
    else:
        ends = _starts(matrix)[index + 1].astype(np.int64) + index + 1  # empty ones count as well
    bounds = [0, *(np.flatnonzero(np.diff((ends - 1) // size)) + 1).tolist(), index.size]
    return list(itertools.pairwise(bounds))


def _starts(matrix: Any) -> np.ndarray:
    """Where each row (or column) of a sparse matrix starts among its values."""
    return matrix.indptr if sparse.issparse(matrix) else matrix.group["indptr"][:]


def _as_float(values: Any) -> Any:
    """float32 and float64 as they are, whole numbers and half precision as float32."""
    refuse_mask(values, "the matrix")
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype.kind not in "iubf":
        raise ValueError(f"the matrix holds values of type {values.dtype}: expected numbers")
    return values.astype(np.float32)


@dataclass(frozen=True)
class Moments:
    """Mean and variance of every feature over some cells, and what kind of values they are.

    Attributes
    ----------
    mean, variance : arrays of shape (n_features,)
        Of each feature.
    looks_raw : bool
        Whether all values that were seen are whole numbers, and some are not 0.
    negative, zeros : float
        Share of the values that are below 0, and that are 0; NaN where it is not known.
    """

    mean: np.ndarray
    variance: np.ndarray
    looks_raw: bool
    negative: float
    zeros: float

    @property
    def looks_like_genes(self) -> bool:
        """Many features, none below 0, some zeros: counts of genes, or their logarithms."""
        return self.mean.size > PANEL and self.negative == 0.0 and self.zeros >= _SOME_ZEROS

    @property
    def root_mean_square(self) -> np.ndarray:
        return np.sqrt(np.square(self.mean) + self.variance)

    @property
    def offset(self) -> float:
        """Mean of the typical feature, in its standard deviations; NaN where none varies."""
        varying = self.variance > 0
        if not varying.any():
            return np.nan
        return float(np.median(np.abs(self.mean[varying]) / np.sqrt(self.variance[varying])))


def moments(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None) -> Moments:
    """Mean and variance of every column (or of some) over these rows, in one pass.

    Pieces are pooled by their deviations from their own means, so that no digits are lost where a mean is large.
    """
    n_columns = matrix.shape[1] if columns is None else columns.size
    count, mean, squares = np.zeros(n_columns), np.zeros(n_columns), np.zeros(n_columns)
    whole, anything, negative, other = True, False, 0, 0
    for piece in pieces(matrix, rows, columns):
        at = piece.columns
        with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite are named by whoever asked
            n, m, s = piece.values.shape[0], *_deviations(piece.values)
            total = count[at] + n
            step = m - mean[at]
            squares[at] += s + step**2 * count[at] * n / total
            mean[at] += step * n / total
            count[at] = total
        stored = _stored(piece.values)
        whole = whole and looks_raw(stored)
        anything = anything or bool(np.any(m != 0))
        negative += int(np.count_nonzero(stored < 0))
        other += int(np.count_nonzero(stored))
    size = max(1, rows.size * n_columns)
    return Moments(mean, squares / max(1, rows.size), whole and anything, negative / size, 1.0 - other / size)


def _stored(values: Any) -> np.ndarray:
    return values.data if sparse.issparse(values) else values


def _deviations(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every column and the sum of squared deviations from it."""
    n, n_columns = values.shape
    if not sparse.issparse(values):
        mean = values.mean(axis=0, dtype=np.float64)
        return mean, np.square(values - mean).sum(axis=0)
    coo = values.tocoo()
    column, data = coo.col, coo.data.astype(np.float64)
    mean = np.bincount(column, data, n_columns) / n
    zeros = n - np.bincount(column, minlength=n_columns)
    return mean, np.bincount(column, (data - mean[column]) ** 2, n_columns) + zeros * mean**2


def looks_raw(values: Any) -> bool:
    """Are all values whole numbers?"""
    stored = _stored(values)
    return bool(np.all(stored == np.rint(stored)))


def warn_of_counts(raw: bool, layer: str | None, stacklevel: int) -> None:
    """Raw counts are dominated by how deep each cell was sequenced."""
    if raw:
        where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
        more = "" if layer is None else f", layer={layer!r}"
        warnings.warn(
            f"{where} holds whole numbers, which look like raw counts; run these two lines first:\n"
            f"    sc.pp.normalize_total(adata, target_sum=1e4{more})\n"
            f"    sc.pp.log1p(adata{more})",
            UserWarning,
            stacklevel=stacklevel,
        )
