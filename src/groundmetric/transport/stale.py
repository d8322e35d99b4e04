"""Compiled kernels that are older than the source they were made from are thrown away.

numba's cache looks only at the file that a kernel stands in, not at those of the kernels that it calls: after a change
to one of those (an update of a checkout, an edit) it would go on running the old code and give old answers.
"""

from __future__ import annotations

from pathlib import Path


def drop_stale_kernels(folder: Path) -> None:
    """Delete the indices of numba's cache in `folder` that are older than any source file there."""
    newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for index in (folder / "__pycache__").glob("*.nbi"):
        try:
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)
        except OSError:  # another process was first, or the folder is not ours to write to, as it is after an install
            continue
