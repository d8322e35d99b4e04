"""A matrix of cells × genes, in memory or in a file: pieces of it, one after another.

A piece holds some of the wanted rows and some of the wanted columns. Matrices stored by rows (CSR, dense) come in
pieces of whole rows, those stored by columns (CSC) in pieces of whole columns, so that every value is read once and
in the order in which it lies in the file. Sums over rows or columns are taken piece by piece.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

# Values in a piece, about: large enough to be quick, small beside the memory of any machine.
_PIECE = 4_000_000


class Piece(NamedTuple):
    """Values of some of the wanted rows and columns: `rows` and `columns` are slices of what was asked for."""

    rows: slice
    columns: slice
    values: Any  # CSR matrix, CSC matrix or array, float32 or float64


def pieces(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None, size: int = _PIECE) -> Iterator[Piece]:
    """The values of these rows and columns (None: all), both ascending, in pieces of about `size` values."""
    columns = np.arange(matrix.shape[1]) if columns is None else columns
    if layout(matrix) == "csc":
        index, other, along = columns, rows, "columns"
    else:
        index, other, along = rows, columns, "rows"
    whole = other.size == matrix.shape[0 if along == "columns" else 1]
    for low, high in _cuts(matrix, index, size):
        values = matrix[:, index[low:high]] if along == "columns" else matrix[index[low:high]]
        if not whole:
            values = values[other] if along == "columns" else values[:, other]
        part, all_of_it = slice(low, high), slice(0, other.size)
        yield Piece(*((all_of_it, part) if along == "columns" else (part, all_of_it)), _as_float(values))


def read(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None) -> Any:
    """These rows and columns (None: all), both ascending, as a CSR matrix or an array."""
    parts = list(pieces(matrix, rows, columns))
    if not parts:
        return np.empty((rows.size, matrix.shape[1] if columns is None else columns.size), np.float32)
    if layout(matrix) == "csc":
        return sparse.hstack([part.values for part in parts], format="csr")
    values = [part.values for part in parts]
    return sparse.vstack(values, format="csr") if sparse.issparse(values[0]) else np.concatenate(values)


def project(matrix: Any, rows: np.ndarray, columns: np.ndarray | None, components: np.ndarray) -> np.ndarray:
    """The rows in the space of the components (n_components, n_columns), piece by piece."""
    z = np.zeros((rows.size, components.shape[0]))
    for piece in pieces(matrix, rows, columns):
        z[piece.rows] += piece.values @ components[:, piece.columns].T
    return z


def layout(matrix: Any) -> str:
    """ "csr", "csc" or "dense"."""
    return getattr(matrix, "format", "dense")


def _cuts(matrix: Any, index: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Where to cut the wanted rows (or columns) so that pieces have about `size` values."""
    if layout(matrix) == "dense":
        values = np.full(index.size, matrix.shape[1])
    else:
        starts = _starts(matrix)
        values = (starts[index + 1] - starts[index]) + 1
    ends = np.cumsum(values)
    bounds = [0, *(np.flatnonzero(np.diff((ends - 1) // size)) + 1).tolist(), index.size]
    return [(low, high) for low, high in itertools.pairwise(bounds) if high > low]


def _starts(matrix: Any) -> np.ndarray:
    """Where each row (or column) of a sparse matrix starts among its values."""
    return matrix.indptr if sparse.issparse(matrix) else matrix.group["indptr"][:]


def _as_float(values: Any) -> Any:
    """float32 and float64 as they are, whole numbers and half precision as float32."""
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype.kind not in "iubf":
        raise ValueError(f"the matrix holds values of type {values.dtype}: expected numbers")
    return values.astype(np.float32)
