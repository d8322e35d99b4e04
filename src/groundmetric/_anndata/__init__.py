"""Cells of an AnnData or an .h5ad file: samples, labels, values, and stored results."""

from .._internal.validation import need

need("anndata")  # an error with advice, before modules of this package import anndata
