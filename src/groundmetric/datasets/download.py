"""Fetching a file over HTTP, whole or not at all."""

from __future__ import annotations

import os
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, TypeVar

from tqdm import tqdm

Result = TypeVar("Result")
# What another attempt may cure. An answer that the server meant (404 and the like) is none of it.
_PASSING = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, HTTPException)
# All that `fetch` raises for the network's sake: an HTTPError has the server's answer, a ValueError says what came.
FAILURES = (*_PASSING, ValueError)
_BUSY = (429, 500, 502, 503, 504)
_HDF5 = b"\x89HDF\r\n\x1a\n"
_PIECE = 1 << 20  # bytes read at a time
_PAUSE = 1.0  # seconds before the second attempt


def fetch(address: str, path: Path, *, timeout: float, progress: bool = True) -> None:
    """Download an HDF5 file to `path`, which comes into being when all of it is there.

    Tries twice. What can go wrong is in `FAILURES`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    twice(lambda: _fetch_once(address, path, timeout, progress))


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
    """The server's answer. Only http and https: urllib would open files of this machine as well."""
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"address {address!r} is not of the web: it should start with https://")
    request = urllib.request.Request(address, headers={"User-Agent": "groundmetric"})
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection; its code and its text stay
        raise


def _fetch_once(address: str, path: Path, timeout: float, progress: bool) -> None:
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open_address(address, timeout) as answer, open(beside, "xb") as file:
            _copy(answer, file, path.name, progress)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _copy(answer: Any, file: IO[bytes], name: str, progress: bool) -> None:
    """Copy an answer into a file, with a bar where there is a terminal, and see that it is all and the right kind."""
    length = answer.headers.get("Content-Length", "")
    expected = int(length) if length.isdecimal() else None
    found = 0
    look: dict[str, Any] = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with tqdm(total=expected, desc=name, disable=None if progress else True, **look) as bar:
        while piece := answer.read(_PIECE):
            if found == 0 and not piece.startswith(_HDF5):
                raise ValueError(f"what came begins with {piece[:12]!r}: it is no HDF5 file")
            file.write(piece)
            found += len(piece)
            bar.update(len(piece))
    if found == 0 or expected not in (None, found):
        raise ConnectionError(f"the transfer ended after {found:,} of {length or 'an unknown number of'} bytes")
