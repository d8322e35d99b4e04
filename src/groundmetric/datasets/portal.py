"""Data sets of the CELLxGENE portal, downloaded once and cached in a folder."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._internal.validation import ParameterError, need

if TYPE_CHECKING:
    from anndata import AnnData

PORTAL = "https://cellxgene.cziscience.com/datasets"
FILES = "https://datasets.cellxgene.cziscience.com"
API = "https://api.cellxgene.cziscience.com/curation/v1"
_TIMEOUT = 30.0  # seconds without an answer of the server after which an attempt fails
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


def cellxgene(dataset_id: str, *, folder: str | os.PathLike[str] | None = None) -> AnnData:
    """Read a data set of the CELLxGENE portal, which is downloaded at the first call.

    If the download fails, a ConnectionError says why, and how to get the file by hand.

    Parameters
    ----------
    dataset_id : str
        Identifier of a data set (its latest version is downloaded) or of a version; or a name of
        `PAPER_DATASETS`: "breast", "kidney" or "myocardial_infarction".
    folder : str, path or None, default=None
        Folder of the downloaded files, which may contain <identifier>.h5ad already; None: groundmetric/cellxgene in the
        user's cache folder.

    Returns
    -------
    AnnData
        The data set.

    Examples
    --------
    A file that is in the folder is not downloaded:

    >>> import tempfile
    >>> from pathlib import Path
    >>> import groundmetric as gm
    >>> identifier = gm.datasets.PAPER_DATASETS["breast"].dataset_id
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     gm.datasets.make_cohort(2, 50, 200, random_state=0).write_h5ad(Path(folder) / f"{identifier}.h5ad")
    ...     gm.datasets.cellxgene("breast", folder=folder).n_vars
    200
    """
    need("anndata", "cellxgene")
    need("pooch", "cellxgene")
    import anndata
    import pooch

    identifier = PAPER_DATASETS[dataset_id].dataset_id if dataset_id in PAPER_DATASETS else dataset_id
    identifier = identifier.strip().lower().removesuffix(".h5ad")
    if not _ID.fullmatch(identifier):
        expected = f"an id such as {PAPER_DATASETS['breast'].dataset_id}, or one of {sorted(PAPER_DATASETS)}"
        raise ParameterError("dataset_id", dataset_id, f": expected {expected}")
    path = (pooch.os_cache("groundmetric") / "cellxgene" if folder is None else Path(folder)) / f"{identifier}.h5ad"
    if not path.exists():
        import requests

        try:
            answer = requests.get(f"{API}/datasets/{identifier}/versions", timeout=_TIMEOUT)
            if answer.status_code == 404:  # the identifier of a version
                address = f"{FILES}/{identifier}.h5ad"
            else:
                answer.raise_for_status()
                assets = answer.json()[0]["assets"]  # the first version is the latest
                address = next(asset["url"] for asset in assets if asset["filetype"].upper() == "H5AD")
            url = {path.name: address}
            cache = pooch.create(path.parent, FILES, registry={path.name: None}, urls=url, retry_if_failed=1)
            cache.fetch(path.name, downloader=_download)
        except (requests.RequestException, ValueError, LookupError, StopIteration) as error:
            raise ConnectionError(
                f"could not download data set {dataset_id!r} of CELLxGENE: {error!r}. Look for its "
                f"id on {PORTAL}, or download the .h5ad file there and save it as {path}"
            ) from error
    return anndata.read_h5ad(path)


def _download(url: str, path: str, pooch_: Any) -> None:
    """Download for pooch; raise if the file is not a complete HDF5 file, which pooch then discards."""
    import h5py
    import pooch

    pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_TIMEOUT)(url, path, pooch_)
    try:
        h5py.File(path, "r").close()  # the header contains the length of the file
    except OSError as error:
        raise ValueError(f"{url} is not a complete HDF5 file: {error}") from error
