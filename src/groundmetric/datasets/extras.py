"""What comes with `pip install 'groundmetric[single-cell]'`, loaded when it is needed."""

from __future__ import annotations

from types import ModuleType


def load_anndata(purpose: str) -> ModuleType:
    """The package anndata, or an error that says how to get it."""
    try:
        import anndata
    except ModuleNotFoundError as error:
        if error.name != "anndata":
            raise
        message = f"anndata is needed for {purpose}: pip install 'groundmetric[single-cell]'"
        raise ModuleNotFoundError(message, name="anndata") from error
    return anndata
