"""Cells of an AnnData (in memory, backed or lazy), an .h5ad file or a .zarr folder, read in pieces.

A piece has whole rows of a matrix stored by rows (CSR, dense), whole columns of a matrix stored by columns (CSC), or a
block of a Dask array: every value is read once, in the order of the file.
"""

from __future__ import annotations

import difflib
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from scipy import sparse

from .._internal.validation import ParameterError, refuse_mask

# Approximate number of values in a piece (32 MB), counting skipped rows in between.
_PIECE = 4_000_000
# A range of rows of a file is read completely if at least one in this many rows is requested: indexed access is slower.
_SPARSENESS = 10
# Up to this number, features are a panel of markers or measurements, which may differ in units; genes are more.
PANEL = 100
# Non-negative values of more features with at least this share of zeros are counts of genes or their logarithms.
MIN_ZEROS = 0.05


class Source:
    """Cells, their annotations, and their matrices, which are read on demand."""

    def __init__(self, cells: Any) -> None:
        self._file: Any = None
        self.adata: Any = None
        if isinstance(cells, str | os.PathLike):
            # Not through anndata's backed mode, which would load all layers.
            path = Path(cells)
            if path.is_dir():
                if path.suffix != ".zarr":
                    raise ValueError(f"{str(path)!r} is a folder: expected an .h5ad file")
                import zarr

                self._file = zarr.open_group(path, mode="r")
            else:
                with path.open("rb"):  # raises an error that names the file if it is missing or not readable
                    pass
                if not h5py.is_hdf5(path):
                    raise ValueError(f"{str(path)!r} is not an .h5ad file: it is not in the HDF5 format")
                self._file = h5py.File(path, "r")
            if missing := [part for part in ("obs", "var") if part not in self._file]:
                self.close()
                raise ValueError(f"{str(cells)!r} is not an .h5ad file: it lacks {missing[0]!r}")
            self.obs, self.var = (ad.io.read_elem(self._file[part]) for part in ("obs", "var"))
        elif isinstance(cells, ad.AnnData):
            self.adata = cells
            # `anndata.experimental.read_lazy` does not load obs and var.
            frames = (cells.obs, cells.var)
            self.obs, self.var = (x if isinstance(x, pd.DataFrame) else x.to_memory() for x in frames)
        else:
            has_modalities = isinstance(getattr(cells, "mod", None), Mapping)
            hint = "; give one modality, mdata['rna'], or use Modalities.from_mudata" if has_modalities else ""
            raise TypeError(f"cells are a {type(cells).__name__}: expected an AnnData or a path{hint}")

    @property
    def on_disk(self) -> bool:
        """Whether the cells are in a file or lazy, rather than an AnnData in memory that results are added to."""
        return self.adata is None or self.adata.isbacked or not isinstance(self.adata.obs, pd.DataFrame)

    @property
    def genes(self) -> pd.Index:
        return self.var.index

    def _entries(self, part: str) -> Mapping[str, Any]:
        return self._file.get(part, {}) if self.adata is None else getattr(self.adata, part)

    def matrix(self, layer: str | None = None) -> Any:
        """Return X (layer None or "X") or a layer."""
        if layer is None or (layer == "X" and not self.has_matrix(layer)):
            X = self._stored("X") if self.adata is None else self.adata.X
            if X is None:
                raise ValueError("X is empty: give the layer that holds the values (layer=…)")
            return X
        return self._entry("layers", layer, "layer")

    def has_matrix(self, layer: str | None = None) -> bool:
        """Return whether X or a layer exists; result files have cells without values."""
        if layer is None:
            return (self._file.get("X") if self.adata is None else self.adata.X) is not None
        return layer in self._entries("layers")

    def has_representation(self, use_rep: str) -> bool:
        return use_rep in self._entries("obsm")

    def representation(self, use_rep: str, argument: str = "use_rep") -> np.ndarray:
        """Return an entry of obsm; `argument` is the name of the parameter in errors."""
        values = self._entry("obsm", use_rep, argument)
        values = values.to_numpy() if isinstance(values, pd.DataFrame) else values
        if values.ndim != 2:
            raise ValueError(f"obsm[{use_rep!r}] has shape {values.shape}: expected (n_cells, n_dimensions)")
        return values

    def uns_entry(self, name: str) -> Any:
        """Return an entry of uns; an empty dict if it does not exist."""
        if self.adata is not None:
            return _computed(self.adata.uns.get(name, {}))
        return ad.io.read_elem(self._file["uns"][name]) if name in self._entries("uns") else {}

    def _entry(self, part: str, name: str, argument: str) -> Any:
        entries = self._entries(part)
        if name not in entries:
            hint = "; layer='X' reads adata.X" if part == "layers" else ""
            raise ParameterError(argument, name, f", but {part} has no such entry: {list_names(name, entries)}{hint}")
        return self._stored(f"{part}/{name}") if self.adata is None else entries[name]

    def _stored(self, path: str) -> Any:
        """Return a matrix of the file without reading it, or None; other elements are read."""
        if path not in self._file:
            return None
        element = self._file[path]
        encoding = str(element.attrs.get("encoding-type", ""))
        if encoding in ("csr_matrix", "csc_matrix"):
            return ad.io.sparse_dataset(element)
        return element if encoding == "array" else ad.io.read_elem(element)

    def close(self) -> None:
        if hasattr(self._file, "close"):
            self._file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_anndata(adata: Any) -> None:
    """Raise unless results can be added to `adata`."""
    if not isinstance(adata, ad.AnnData):
        remedy = "anndata.read_h5ad(path) reads a file, and with backed='r' only the values that are needed"
        raise TypeError(f"adata is a {type(adata).__name__}: expected an AnnData; {remedy}")


def _computed(entry: Any) -> Any:
    """Return an entry of uns with the arrays of a lazy AnnData loaded."""
    if isinstance(entry, Mapping):
        return {name: _computed(value) for name, value in entry.items()}
    return entry.compute() if is_dask(entry) else entry


def list_names(name: Any, names: Iterable[Any]) -> str:
    """Return the existing names as text, the most similar to `name` first.

    >>> list_names("paitent", ["disease", "patient"])
    "there are 'patient', 'disease'"
    """
    matcher = difflib.SequenceMatcher
    ordered = sorted(names, key=lambda x: matcher(None, str(name).lower(), str(x).lower()).ratio(), reverse=True)
    return f"there are {', '.join(map(repr, ordered))}" if ordered else "it is empty"


class Piece(NamedTuple):
    """Values of a part of the requested rows and columns; `rows` and `columns` are slices of the request."""

    rows: slice
    columns: slice
    values: Any  # CSR matrix, CSC matrix or array, float32 or float64


def pieces(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None, size: int = _PIECE) -> Iterator[Piece]:
    """Yield the values of ascending rows and columns (None: all) in pieces of at most about `size` values."""
    columns = np.arange(matrix.shape[1]) if columns is None else columns
    if is_dask(matrix):
        yield from _blocks(matrix, rows, columns)
    elif layout(matrix) == "csc":
        for low, high in _bounds(matrix, columns, size):
            values = _subset(_take(matrix, columns[low:high], axis=1), rows, axis=0)
            yield Piece(slice(0, rows.size), slice(low, high), _as_float(values))
    else:
        for low, high in _bounds(matrix, rows, size):
            values = _subset(_take(matrix, rows[low:high], axis=0), columns, axis=1)
            yield Piece(slice(low, high), slice(0, columns.size), _as_float(values))


def read(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None, size: int = _PIECE) -> Any:
    """Return ascending rows and columns (None: all) as a CSR matrix or an array, read in pieces of about `size`."""
    shape = rows.size, matrix.shape[1] if columns is None else columns.size
    result: np.ndarray | None = None
    strips: dict[int, list[Any]] = {}  # sparse pieces by their first row
    for piece in pieces(matrix, rows, columns, size):
        if sparse.issparse(piece.values):
            strips.setdefault(piece.rows.start, []).append(piece.values)
        else:
            result = np.empty(shape, piece.values.dtype) if result is None else result
            result[piece.rows, piece.columns] = piece.values
    if not strips:
        return np.empty(shape, np.float32) if result is None else result
    # Concatenation takes twice the memory of the result, as the sorting of points by sample does afterwards.
    joined = [blocks[0] if len(blocks) == 1 else sparse.hstack(blocks, format="csr") for blocks in strips.values()]
    return sparse.vstack(joined, format="csr")


def project(matrix: Any, rows: np.ndarray, columns: np.ndarray | None, components: np.ndarray) -> np.ndarray:
    """Return the rows times the transposed components (n_components, n_columns), piece by piece."""
    z = np.zeros((rows.size, components.shape[0]))
    for piece in pieces(matrix, rows, columns):
        z[piece.rows] += piece.values @ components[:, piece.columns].T
    return z


def layout(matrix: Any) -> str:
    """Return "csr", "csc" or "dense"."""
    return getattr(matrix, "format", "dense")


def is_dask(matrix: Any) -> bool:
    """Return whether a matrix follows the protocol of Dask, without importing Dask."""
    return hasattr(matrix, "__dask_graph__")


def _blocks(matrix: Any, rows: np.ndarray, columns: np.ndarray) -> Iterator[Piece]:
    """Yield the blocks of a Dask array, one at a time; blocks without requested values are not computed."""
    for i, (top, in_rows) in enumerate(_chunks(rows, matrix.chunks[0])):
        for j, (start, in_columns) in enumerate(_chunks(columns, matrix.chunks[1])):
            if in_rows.stop > in_rows.start and in_columns.stop > in_columns.start:
                block = _subset(matrix.blocks[i, j].compute(), rows[in_rows] - top, axis=0)
                yield Piece(in_rows, in_columns, _as_float(_subset(block, columns[in_columns] - start, axis=1)))


def _chunks(index: np.ndarray, sizes: tuple[int, ...]) -> list[tuple[int, slice]]:
    """Return the start of each chunk and the slice of the ascending index that falls into it."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(index, starts).tolist()
    return [(int(start), slice(*cut)) for start, cut in zip(starts, itertools.pairwise(cuts), strict=False)]


def _take(matrix: Any, index: np.ndarray, axis: int) -> Any:
    """Return ascending rows (or columns); dense selections of a file are read as one range."""
    low, high = int(index[0]), int(index[-1]) + 1
    in_memory = isinstance(matrix, np.ndarray) or sparse.issparse(matrix)
    if high - low > index.size and (in_memory or index.size * _SPARSENESS < high - low):
        return matrix[index] if axis == 0 else matrix[:, index]
    return _subset(matrix[low:high] if axis == 0 else matrix[:, low:high], index - low, axis)


def _subset(values: Any, index: np.ndarray, axis: int) -> Any:
    """Return rows (or columns) of values in memory, without a copy if all are requested."""
    if index.size == values.shape[axis]:
        return values
    return values[index] if axis == 0 else values[:, index]


def _bounds(matrix: Any, index: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Return bounds of pieces of the index; the range of rows (or columns) of a piece has about `size` values."""
    if not index.size:
        return []
    if layout(matrix) == "dense":
        ends = (index + 1) * matrix.shape[1]
    else:
        indptr = matrix.indptr if sparse.issparse(matrix) else matrix.group["indptr"][:]
        ends = indptr[index + 1].astype(np.int64) + index + 1  # + index: empty rows take memory, too
    cuts = [0, *(np.flatnonzero(np.diff((ends - 1) // size)) + 1).tolist(), index.size]
    return list(itertools.pairwise(cuts))


def _as_float(values: Any) -> Any:
    """Return float32 and float64 unchanged, integers and half precision as float32."""
    refuse_mask(values, "the matrix")
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype.kind not in "iubf":
        raise ValueError(f"the matrix holds {values.dtype}, expected numbers: convert it with astype('float32')")
    return values.astype(np.float32)


@dataclass(frozen=True)
class Moments:
    """Mean and variance of every feature, and properties by which the kind of values is recognised."""

    mean: np.ndarray
    variance: np.ndarray
    looks_raw: bool  # whether all values are whole numbers and at least one is not 0
    negative: float  # share of the values below 0; NaN if unknown
    zeros: float  # share of the values equal to 0; NaN if unknown

    @property
    def root_mean_square(self) -> np.ndarray:
        return np.sqrt(np.square(self.mean) + self.variance)

    @property
    def offset(self) -> float:
        """Median over features of |mean| in standard deviations; NaN if all features are constant."""
        varying = self.variance > 0
        if not varying.any():
            return np.nan
        return float(np.median(np.abs(self.mean[varying]) / np.sqrt(self.variance[varying])))


def moments(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None) -> Moments:
    """Return mean and variance of every column (or the given columns) over the rows, in one pass.

    Pieces are pooled by their means and squared deviations, which loses no digits if a mean is large (Chan et al.).
    """
    n_columns = matrix.shape[1] if columns is None else columns.size
    count, mean, squares = np.zeros(n_columns), np.zeros(n_columns), np.zeros(n_columns)
    are_whole, any_nonzero, n_negative, n_nonzero = True, False, 0, 0
    for piece in pieces(matrix, rows, columns):
        at, values = piece.columns, piece.values
        stored, n = (values.data if sparse.issparse(values) else values), values.shape[0]
        with np.errstate(invalid="ignore", over="ignore"):  # callers report values that are not finite
            if sparse.issparse(values):
                coo, width = values.tocoo(), values.shape[1]
                column, data = coo.col, coo.data.astype(np.float64)
                piece_mean = np.bincount(column, data, width) / n
                n_zeros = n - np.bincount(column, minlength=width)
                piece_squares = np.bincount(column, (data - piece_mean[column]) ** 2, width) + n_zeros * piece_mean**2
            else:
                piece_mean = values.mean(axis=0, dtype=np.float64)
                piece_squares = np.square(values - piece_mean).sum(axis=0)
            total = count[at] + n
            step = piece_mean - mean[at]
            squares[at] += piece_squares + step**2 * count[at] * n / total
            mean[at] += step * n / total
            count[at] = total
        are_whole = are_whole and bool(np.all(stored == np.rint(stored)))
        any_nonzero = any_nonzero or bool(np.any(piece_mean != 0))
        n_negative += int(np.count_nonzero(stored < 0))
        n_nonzero += int(np.count_nonzero(stored))
    size = max(1, rows.size * n_columns)
    variance = squares / max(1, rows.size)
    return Moments(mean, variance, are_whole and any_nonzero, n_negative / size, 1.0 - n_nonzero / size)


def warn_of_counts(raw: bool, layer: str | None, stacklevel: int) -> None:
    """Warn about raw counts, in which sequencing depth dominates the differences between cells."""
    if raw:
        where, name = ("adata.X", "log1p") if layer in (None, "X") else (f"adata.layers[{layer!r}]", f"{layer}_log1p")
        warnings.warn(
            f"{where} holds whole numbers, which look like raw counts; compute logarithms and use layer={name!r}:\n"
            f'    adata.layers["{name}"] = {where}.copy()\n'
            f'    sc.pp.normalize_total(adata, target_sum=1e4, layer="{name}")\n'
            f'    sc.pp.log1p(adata, layer="{name}")',
            UserWarning,
            stacklevel=stacklevel,
        )
