"""Where cells come from: an AnnData in memory, backed or lazy, or the path of an .h5ad file (or a .zarr folder)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd

from .chunks import is_dask
from .obs import listed


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
            raise TypeError(f"cells are a {type(cells).__name__}: expected an AnnData or the path of an .h5ad file")

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

    def representation(self, use_rep: str) -> np.ndarray:
        """Coordinates of all cells, an entry of obsm."""
        found = self._named("obsm", use_rep, "use_rep")
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
            raise ValueError(f"{argument} is {name!r}, but {part} has no such entry: {listed(name, entries)}")
        return entries[name] if self.adata is not None else self._stored(f"{part}/{name}")

    def _stored(self, place: str) -> Any:
        """A matrix in the file, not read yet; anything else is read."""
        if place not in self._file:
            return None
        entry = self._file[place]
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
