"""Data sets of the CELLxGENE portal: downloaded (by pooch) whole or not at all, cached in a folder."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from .._internal.files import remove_leftovers, replacing
from .._internal.validation import need

if TYPE_CHECKING:
    from anndata import AnnData

PORTAL = "https://cellxgene.cziscience.com/datasets"
FILES = "https://datasets.cellxgene.cziscience.com"
API = "https://api.cellxgene.cziscience.com/curation/v1"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HEAD = 128  # bytes that hold the superblock of an HDF5 file
_PIECE = 1 << 20  # bytes read at a time
_PAUSE = 1.0  # seconds before the second attempt
_BUSY = (429, 500, 502, 503, 504)  # answers that another attempt may change
# Without compression on the way, the length that the server gives is that of the file.
_HEADERS = {"User-Agent": "groundmetric", "Accept-Encoding": "identity"}
Result = TypeVar("Result")


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
    folder: str | os.PathLike[str] | None = None,
    url: str = FILES,
    api: str = API,
    backed: bool = False,
    timeout: float = 30.0,
    progress: bool = True,
) -> AnnData:
    """Data set of the CELLxGENE portal, downloaded once and then read from `folder`.

    Parameters
    ----------
    dataset_id : str
        Identifier of a data set (of which the version that is the latest at the first call is downloaded) or of a
        version; or a name of `PAPER_DATASETS`: "breast", "kidney" or "myocardial_infarction", whose columns of samples
        and labels are in `PAPER_DATASETS` too.
    folder : str, path or None, default=None
        Folder of the downloaded files; None: groundmetric/cellxgene in the user's cache folder ($XDG_CACHE_HOME, or
        ~/.cache). A file that was downloaded by hand is found there as <identifier>.h5ad.
    url : str
        Address of the portal's files.
    api : str
        Address of the portal's list of versions.
    backed : bool, default=False
        Whether to leave `X` on disk, and read of it only what is used.
    timeout : float, default=30.0
        Seconds without an answer of the server after which an attempt fails; there are two.
    progress : bool, default=True
        Whether to show a progress bar where there is a terminal.

    Returns
    -------
    AnnData
        The data set, in memory or backed.

    Raises
    ------
    ConnectionError
        The file cannot be downloaded; the message says why, and how to get it by hand.
    ValueError
        The portal has no data set of this identifier, or it is not an identifier.

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
    import anndata

    path = cellxgene_file(dataset_id, folder=folder, url=url, api=api, timeout=timeout, progress=progress)
    return anndata.read_h5ad(path, backed="r" if backed else None)


def cellxgene_file(
    dataset_id: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    url: str = FILES,
    api: str = API,
    timeout: float = 30.0,
    progress: bool = True,
) -> Path:
    """Path of the .h5ad file of a CELLxGENE data set, which is downloaded if it is not in `folder` yet.

    Parameters
    ----------
    dataset_id : str
        Identifier of a data set or of a version, or a name of `PAPER_DATASETS`, as in `cellxgene`.
    folder : str, path or None, default=None
        Folder of the downloaded files; None: groundmetric/cellxgene in the user's cache folder.
    url : str
        Address of the portal's files.
    api : str
        Address of the portal's list of versions.
    timeout : float, default=30.0
        Seconds without an answer of the server after which an attempt fails; there are two.
    progress : bool, default=True
        Whether to show a progress bar where there is a terminal.

    Returns
    -------
    Path
        The file, in `folder`.

    Raises
    ------
    ConnectionError
        The file cannot be downloaded; the message says why, and how to get it by hand.
    ValueError
        The portal has no data set of this identifier, or it is not an identifier.

    Examples
    --------
    A file that is in the folder is not downloaded:

    >>> import tempfile
    >>> from pathlib import Path
    >>> import groundmetric as gm
    >>> identifier = gm.datasets.PAPER_DATASETS["kidney"].dataset_id
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / f"{identifier}.h5ad").touch()
    ...     gm.datasets.cellxgene_file("kidney", folder=folder).name
    '1c360b0b-eb2f-45a3-aba9-056026b39fa5.h5ad'
    """
    identifier = _identifier(dataset_id)
    path = (_cache_folder() if folder is None else Path(folder)) / f"{identifier}.h5ad"
    if path.exists():
        return path
    need("pooch", "cellxgene")
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
    from requests import RequestException

    try:
        fetch(address, path, **options)
    except (RequestException, ValueError) as error:
        if _status(error) in (403, 404):  # a store of files says either
            return False
        raise _failure(address, path, error) from error
    return True


def fetch(address: str, path: Path, *, timeout: float, progress: bool = True, size: int | None = None) -> None:
    """Download an HDF5 file to `path`, which comes into being when all of it is there; try twice.

    How long it should be is known from `size` (what the portal lists), from the server, and from the end of the file
    that HDF5 notes at its beginning.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    _twice(lambda: _fetch_once(address, path, timeout, progress, size))


def _fetch_once(address: str, path: Path, timeout: float, progress: bool, size: int | None) -> None:
    import pooch

    _check_address(address)
    answers, bar = _Answers(), progress and sys.stderr.isatty()
    options: dict[str, Any] = {"timeout": timeout, "headers": _HEADERS, "hooks": answers.hooks}
    download = pooch.HTTPDownloader(progressbar=bar, chunk_size=_PIECE, **options)
    with replacing(path) as file:
        content = _HDF5Content(file)
        download(address, content, None)
        content.check_whole(answers.length, size)


def _twice(attempt: Callable[[], Result]) -> Result:
    """What `attempt` returns; one that fails for a reason that may pass gets a second chance."""
    from requests import ConnectionError, HTTPError, Timeout
    from requests.exceptions import ChunkedEncodingError

    try:
        return attempt()
    except (HTTPError, ConnectionError, Timeout, ChunkedEncodingError, IncompleteError) as error:
        if isinstance(error, HTTPError) and _status(error) not in _BUSY:
            raise
    time.sleep(_PAUSE)
    return attempt()


def _status(error: Exception) -> int | None:
    """The code of the server's answer, where there was one."""
    return getattr(getattr(error, "response", None), "status_code", None)


class IncompleteError(ValueError):
    """A transfer that ended before the file did."""


class _HDF5Content:
    """A file that takes the content of an HDF5 file only, and knows whether it has all of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.head, self.size = file, b"", 0

    def write(self, piece: bytes) -> None:
        self.head += piece[: max(0, _HEAD - self.size)]
        if not self.head.startswith(_HDF5[: len(self.head)]):
            raise ValueError(f"what came begins with {self.head[:12]!r}: it is no HDF5 file")
        self.file.write(piece)
        self.size += len(piece)

    def flush(self) -> None:
        """After every piece, pooch asks for it; `replacing` does it at the end."""

    def check_whole(self, length: int | None, listed: int | None) -> None:
        """Raise unless it is as long as the server, the portal's list and the file itself say, where they do."""
        noted = _noted_end(self.head)
        wanted = [expected for expected in (listed, length) if expected is not None]
        short = self.size == 0 or self.size < (noted or 0) or any(self.size != expected for expected in wanted)
        if short:
            expected = listed or max(length or 0, noted or 0)
            raise IncompleteError(f"the transfer ended after {self.size:,} of {expected:,} bytes")
        if not wanted and noted is None:
            raise ValueError(f"{self.size:,} bytes came, but neither the server nor the file says whether this is all")


def _noted_end(head: bytes) -> int | None:
    """How long an HDF5 file is by its own account (the end-of-file address of its superblock), if that can be read."""
    version = head[8] if len(head) > 96 else 255
    width, addresses = {0: (head[13:14], 24), 1: (head[13:14], 28), 2: (head[9:10], 12), 3: (head[9:10], 12)}.get(
        version, (b"\0", 0)
    )
    if width[0] not in (2, 4, 8):
        return None
    return int.from_bytes(head[addresses + 2 * width[0] : addresses + 3 * width[0]], "little")


class _Answers:
    """The answers of a server on the way to a file: none may lead from https to http. `length` is that of the last."""

    def __init__(self) -> None:
        self.length: int | None = None

    @property
    def hooks(self) -> dict[str, Callable[..., None]]:
        return {"response": self.see}

    def see(self, response: Any, **options: Any) -> None:
        length = response.headers.get("Content-Length", "")
        self.length = int(length) if length.isdecimal() else None
        if response.is_redirect:
            target = urljoin(response.url, response.headers["Location"])
            before, after = urlsplit(response.url).scheme.lower(), urlsplit(target).scheme.lower()
            if after not in ("https", before):
                response.close()
                raise ValueError(f"it leads to {target}, and {before} may not lead to {after}")
        if not response.ok:
            response.close()  # it holds the connection; its code and reason stay


def _check_address(address: str) -> None:
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"address {address!r} is not of the web: it should start with https://")


def _latest_version(address: str, path: Path, timeout: float) -> tuple[str, int | None] | None:
    """Where the latest version's file is and how long, by the portal's list of versions; None if it has no such set."""
    from requests import RequestException

    try:
        versions = _twice(lambda: _read_json(address, timeout))
        # The list is from new to old; the portal has also sent it inside an object.
        latest = (versions["datasets"] if isinstance(versions, dict) else versions)[0]
        asset = next(asset for asset in latest["assets"] if asset["filetype"].upper() == "H5AD")
        size = asset.get("filesize")
        return asset["url"], int(size) if isinstance(size, int | float) and size > 0 else None
    except (KeyError, IndexError, TypeError, AttributeError, StopIteration) as error:
        raise _failure(address, path, ValueError("its answer names no .h5ad file")) from error
    except (RequestException, ValueError) as error:
        if _status(error) == 404:
            return None
        raise _failure(address, path, error) from error


def _read_json(address: str, timeout: float) -> Any:
    import requests

    _check_address(address)
    answer = requests.get(address, timeout=timeout, headers=_HEADERS, hooks=_Answers().hooks)
    answer.raise_for_status()
    return answer.json()


def _failure(address: str, path: Path, error: Exception) -> ConnectionError:
    return ConnectionError(
        f"could not fetch {address}: {str(error) or type(error).__name__}. Where there is internet, download the "
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


def _cache_folder() -> Path:
    """The user's folder for what can be fetched again; a relative $XDG_CACHE_HOME is to be ignored."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "groundmetric" / "cellxgene"
