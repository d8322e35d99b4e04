"""Data sets of the CELLxGENE portal, kept in a folder once they have been fetched."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError

from ..extras import need
from .download import FAILURES, fetch, open_address, twice

if TYPE_CHECKING:
    from anndata import AnnData

PORTAL = "https://cellxgene.cziscience.com/datasets"
FILES = "https://datasets.cellxgene.cziscience.com"
API = "https://api.cellxgene.cziscience.com/curation/v1"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class PaperDataset(NamedTuple):
    """A data set of the paper: its id, and the columns of `obs` with the sample and the label of each cell."""

    dataset_id: str
    sample_key: str
    label_key: str


# The columns are those of the authors' experiments (their public code).
PAPER_DATASETS = {
    "breast": PaperDataset("b8b5be07-061b-4390-af0a-f9ced877a068", "donor_id", "reported_diseases"),
    "kidney": PaperDataset("1c360b0b-eb2f-45a3-aba9-056026b39fa5", "donor_id", "disease"),
    "myocardial_infarction": PaperDataset("c1f6034b-7973-45e1-85e7-16933d0550bc", "sample", "patient_group"),
}


def cellxgene(
    dataset_id: str,
    *,
    folder: str | os.PathLike | None = None,
    url: str = FILES,
    api: str = API,
    backed: bool = False,
    timeout: float = 30.0,
    progress: bool = True,
) -> AnnData:
    """A data set of the CELLxGENE portal, fetched once and then read from `folder`.

    Parameters
    ----------
    dataset_id : the id of a data set (its latest version) or of a version, or a name of `PAPER_DATASETS`: "breast",
        "kidney" or "myocardial_infarction", whose columns of samples and labels are in `PAPER_DATASETS` too
    folder : where files are kept; None is groundmetric/cellxgene in the user's cache folder ($XDG_CACHE_HOME, or
        ~/.cache). A file that was downloaded by hand is found there as <dataset_id>.h5ad
    url, api : addresses of the portal's files and of its list of versions
    backed : leave `X` on disk, and read of it what is used
    timeout : seconds without a sign of the server after which it is given up
    progress : show a bar where there is a terminal

    Raises
    ------
    ConnectionError where the file cannot be fetched, with what failed and how to get it by hand; ValueError for an id
    that the portal does not have.
    """
    need("anndata", "cellxgene")
    import anndata

    path = cellxgene_file(dataset_id, folder=folder, url=url, api=api, timeout=timeout, progress=progress)
    return anndata.read_h5ad(path, backed="r" if backed else None)


def cellxgene_file(
    dataset_id: str,
    *,
    folder: str | os.PathLike | None = None,
    url: str = FILES,
    api: str = API,
    timeout: float = 30.0,
    progress: bool = True,
) -> Path:
    """The .h5ad file of a CELLxGENE data set, fetched if it is not in `folder` yet. Parameters as in `cellxgene`."""
    identifier = _identifier(dataset_id)
    path = (_cache() if folder is None else Path(folder)) / f"{identifier}.h5ad"
    if path.exists():
        return path
    options: dict[str, Any] = {"timeout": timeout, "progress": progress}
    if _fetch_if_there(f"{url.rstrip('/')}/{identifier}.h5ad", path, **options):
        return path
    # Files go by the ids of versions: this may be the id of a data set, which has several.
    latest = _latest_version(f"{api.rstrip('/')}/datasets/{identifier}/versions", path, timeout)
    if latest is None or not _fetch_if_there(latest[0], path, size=latest[1], **options):
        raise ValueError(
            f"CELLxGENE has no data set {dataset_id!r}: look for its id on {PORTAL}, or download the .h5ad file there "
            f"and save it as {path}"
        )
    return path


def _fetch_if_there(address: str, path: Path, **options: Any) -> bool:
    """Fetch a file; False if the server has none at this address."""
    try:
        fetch(address, path, **options)
    except FAILURES as error:
        if isinstance(error, HTTPError) and error.code in (403, 404):  # what a store of files says for either
            return False
        raise _failure(address, path, error) from error
    return True


def _latest_version(address: str, path: Path, timeout: float) -> tuple[str, int | None] | None:
    """Where the latest version's file is and how long, by the portal's list of versions; None if it has no such set."""
    try:
        versions = twice(lambda: _read_json(address, timeout))
        # The list is from new to old; the portal has also sent it inside an object.
        latest = (versions["datasets"] if isinstance(versions, dict) else versions)[0]
        asset = next(asset for asset in latest["assets"] if asset["filetype"].upper() == "H5AD")
        size = asset.get("filesize")
        return asset["url"], int(size) if isinstance(size, int | float) and size > 0 else None
    except (KeyError, IndexError, TypeError, AttributeError, StopIteration) as error:
        raise _failure(address, path, ValueError("its answer names no .h5ad file")) from error
    except FAILURES as error:
        if isinstance(error, HTTPError) and error.code == 404:
            return None
        raise _failure(address, path, error) from error


def _read_json(address: str, timeout: float) -> Any:
    with open_address(address, timeout) as answer:
        return json.load(answer)


def _failure(address: str, path: Path, error: Exception) -> ConnectionError:
    # What went wrong is inside of a URLError; an HTTPError, which is one too, says it best itself.
    reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
    return ConnectionError(
        f"could not fetch {address}: {str(reason) or type(reason).__name__}. Where there is internet, download the "
        f".h5ad file from there or from {PORTAL}, and save it as {path}"
    )


def _identifier(dataset_id: str) -> str:
    identifier = PAPER_DATASETS[dataset_id].dataset_id if dataset_id in PAPER_DATASETS else dataset_id
    identifier = identifier.strip().lower().removesuffix(".h5ad")
    if not _ID.fullmatch(identifier):
        raise ValueError(
            f"dataset_id is {dataset_id!r}: expected an id such as {PAPER_DATASETS['breast'].dataset_id}, or one of "
            f"{sorted(PAPER_DATASETS)}"
        )
    return identifier


def _cache() -> Path:
    """The user's folder for what can be fetched again; a relative $XDG_CACHE_HOME is to be ignored."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "groundmetric" / "cellxgene"
