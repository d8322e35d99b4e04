"""Fetching a file over HTTP, whole or not at all."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, TypeVar

from tqdm import tqdm

from ..safe_files import remove_leftovers, replacing

Result = TypeVar("Result")
# What another attempt may cure. An answer that the server meant (404 and the like) is none of it.
_PASSING = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, HTTPException)
# All that `fetch` raises for the network's sake: an HTTPError has the server's answer, a ValueError says what came.
FAILURES = (*_PASSING, ValueError)
_BUSY = (429, 500, 502, 503, 504)
_HDF5 = b"\x89HDF\r\n\x1a\n"
_PIECE = 1 << 20  # bytes read at a time
_PAUSE = 1.0  # seconds before the second attempt


def fetch(address: str, path: Path, *, timeout: float, progress: bool = True, size: int | None = None) -> None:
    """Download an HDF5 file to `path`, which comes into being when all of it is there.

    That it is all is known by the `size` that somebody else told, by what the server says, and by the end of the file
    that HDF5 itself notes at its beginning. Tries twice. What can go wrong is in `FAILURES`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    twice(lambda: _fetch_once(address, path, timeout, progress, size))


def twice(attempt: Callable[[], Result]) -> Result:
    """What `attempt` returns; one that fails for a reason that may pass gets a second chance."""
    try:
        return attempt()
    except _PASSING as error:
        if isinstance(error, urllib.error.HTTPError) and error.code not in _BUSY:
            raise
    time.sleep(_PAUSE)
    return attempt()


def open_address(address: str, timeout: float) -> Any:
    """The server's answer. Only http and https: urllib would open files of this machine as well, and follow to ftp."""
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"address {address!r} is not of the web: it should start with https://")
    request = urllib.request.Request(address, headers={"User-Agent": "groundmetric"})
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection; its code and its text stay
        raise


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow to https, or to http from there: never from what nobody can change on the way to what anybody can."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = (urllib.parse.urlsplit(some).scheme.lower() for some in (req.full_url, newurl))
        if after not in ("https", before):
            fp.close()
            raise ValueError(f"it leads to {newurl}, and {before} may not lead to {after}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch_once(address: str, path: Path, timeout: float, progress: bool, size: int | None) -> None:
    with open_address(address, timeout) as answer, replacing(path) as file:
        _copy(answer, file, path.name, progress, size)


def _copy(answer: Any, file: IO[bytes], name: str, progress: bool, size: int | None) -> None:
    """Copy an answer into a file, with a bar where there is a terminal, and see that it is all and the right kind."""
    length = answer.headers.get("Content-Length", "")
    expected = int(length) if length.isdecimal() else size
    found, end = 0, None
    look: dict[str, Any] = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with tqdm(total=expected, desc=name, disable=None if progress else True, **look) as bar:
        while piece := answer.read(_PIECE):
            if found == 0 and not piece.startswith(_HDF5):
                raise ValueError(f"what came begins with {piece[:12]!r}: it is no HDF5 file")
            end = _noted_end(piece) if found == 0 else end
            file.write(piece)
            found += len(piece)
            bar.update(len(piece))
    told = max(expected or 0, end or 0)
    if found == 0 or expected not in (None, found) or found < told or size not in (None, found):
        wanted = f"{size or told:,}" if size or told or length else "an unknown number of"
        raise ConnectionError(f"the transfer ended after {found:,} of {wanted} bytes")
    if not told:
        raise ConnectionError(f"{found:,} bytes came, but neither the server nor the file says whether this is all")


def _noted_end(head: bytes) -> int | None:
    """How long an HDF5 file is by its own account (the end-of-file address of its superblock), if that can be read."""
    version = head[8] if len(head) > 96 else 255
    width, addresses = {0: (head[13:14], 24), 1: (head[13:14], 28), 2: (head[9:10], 12), 3: (head[9:10], 12)}.get(
        version, (b"\0", 0)
    )
    if width[0] not in (2, 4, 8):
        return None
    return int.from_bytes(head[addresses + 2 * width[0] : addresses + 3 * width[0]], "little")
