"""Cells from AnnData or from an .h5ad file: which sample each is from, and only the values that are asked for."""

from .._internal.validation import need

need("anndata")  # before any module of this package asks for it, or for what it brings, in vain
