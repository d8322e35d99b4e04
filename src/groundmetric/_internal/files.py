"""Atomic writes of files, and files of arrays with checksums.

A path holds either the old or the new content. A symbolic link at the destination is replaced, not followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Seconds after which an unmodified temporary file belongs to a process that was killed.
_ABANDONED = 24 * 3600.0
# Largest accepted size of an unpacked archive: a fixed size plus a multiple of the packed size. Arrays of zeros shrink
# by a factor of 100; an archive made to exhaust the memory by a factor of 1,000.
_FIXED_SIZE, _RATIO = 64 << 20, 100
_NPY_HEADER = 1 << 10  # largest header of an array in numpy's format
# Attempts to read a header. numpy parses it as Python, and Python 3.11 counts the depth of parsed text over all
# threads: if another thread parses at the same time, it may raise a SystemError (CPython issue 106905).
_ATTEMPTS = 20


class Foreign(ValueError):
    """A file at the destination was written by another program."""


class Damaged(ValueError):
    """A file is cut short, changed, or not of the expected kind."""


class VersionError(ValueError):
    """A file has a format version that this version of the package does not read."""


def write_whole(path: str | os.PathLike[str], parts: Iterable[Any], *, keep: Path | None = None) -> None:
    """Write a file atomically; an existing file is renamed to `keep` if given."""
    with replacing(path, keep=keep) as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` at the end and is removed after an error."""
    path = Path(path)
    check_ordinary(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:  # "x" fails at a link that another user planted
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """Return a random hidden name in the folder of `path`, short enough for any file system."""
    return path.with_name(f"{temporary_prefix(path)}{secrets.token_hex(8)}.part")


def temporary_prefix(path: Path) -> str:
    return f".{path.name.encode()[:180].decode(errors='ignore')}."


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of `path`, in its folder or inside it, that killed processes left a day ago or earlier."""
    for folder in (path.parent, path):
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(folder)):
                is_temporary = entry.name.startswith(temporary_prefix(path)) and entry.name.endswith(".part")
                if is_temporary and time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    shutil.rmtree(entry.path, ignore_errors=True) if is_folder else os.unlink(entry.path)


def check_ordinary(path: Path) -> None:
    """Raise if `path` is a folder, a device or a pipe."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, give the name of a file", str(path))
    if path.exists() and not path.is_file():
        raise Foreign(f"{str(path)!r} is not an ordinary file: give another path")


def refuse_foreign(path: str | os.PathLike[str], beginning: bytes, kind: str) -> None:
    """Raise `Foreign` if a file of another kind exists; files of this kind start with the bytes `beginning`.

    A damaged file of this kind is accepted: empty, cut short, full of zeros, or with up to two changed bytes.
    """
    path = Path(path)
    check_ordinary(path)
    if not path.exists():
        return
    with open(path, "rb") as file:
        content = file.read(len(beginning))
    n_different = sum(a != b for a, b in zip(content, beginning, strict=False))
    if n_different > min(2, len(content) // 8) and any(content):
        raise Foreign(f"{str(path)!r} exists and is not a {kind}: it would be lost; give another path, or move it")


def beginning_of(kind: str) -> bytes:
    """Return the first bytes of files that `write_arrays` writes."""
    return f'{{"format": "{kind}", "version": '.encode()


def write_arrays(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    keep: Path | None = None,
    compress: bool = False,
) -> None:
    """Write arrays and a JSON description: a line of JSON with a checksum, then numpy's .npz format."""
    import numpy as np

    refuse_foreign(path, beginning_of(kind), kind)
    arrays = {"description": np.frombuffer(json.dumps(description).encode(), np.uint8), **arrays}
    formats: list[Callable[..., None]] = [np.savez_compressed, np.savez] if compress else [np.savez]
    for save in formats:
        payload = io.BytesIO()
        save(payload, **arrays)
        content = payload.getbuffer()
        # Arrays of zeros may shrink so much that `read_arrays` would refuse them: these are not compressed.
        if sum(array.nbytes + _NPY_HEADER for array in arrays.values()) <= _FIXED_SIZE + _RATIO * len(content):
            break
    header = {"format": kind, "version": version, "sha256": _checksum(kind, version, content)}
    write_whole(path, [json.dumps(header).encode() + b"\n", content], keep=keep)


def read_arrays(
    path: str | os.PathLike[str], kind: str, version: int, *, oldest: int | None = None, title: str = ""
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays that `write_arrays` wrote.

    Versions from `oldest` to `version` are accepted. `title` is the name of the kind in errors.
    """
    name, title = repr(os.fspath(path)), title or kind

    def damaged(reason: object) -> Damaged:
        return Damaged(f"{name} is damaged or not a {title}: {reason}")

    head, _, content = Path(path).read_bytes().partition(b"\n")
    try:
        header = json.loads(head)
        if header["format"] != kind or isinstance(header["version"], bool):
            raise ValueError
        file_version, checksum = int(header["version"]), str(header["sha256"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise damaged("it has another header") from None
    # Files of earlier versions may have a checksum of the content alone.
    is_old = file_version < version and hashlib.sha256(content).hexdigest() == checksum
    if not is_old and _checksum(kind, file_version, content) != checksum:
        raise damaged("its content does not match its checksum")
    if not (version if oldest is None else oldest) <= file_version <= version:
        remedy = "update groundmetric" if file_version > version else "create it again"
        raise VersionError(f"{name} has format version {file_version}, this groundmetric reads {version}: {remedy}")
    try:
        return _unpack(content)
    except Exception as error:  # archives can be damaged in more ways than can be listed
        raise damaged(str(error) or type(error).__name__) from error


def _checksum(kind: str, version: int, content: bytes | memoryview) -> str:
    """Return the checksum of header and content: a flipped bit in the version must not look like another version."""
    state = hashlib.sha256(f"{kind} {version}\n".encode())
    state.update(content)
    return state.hexdigest()


def _unpack(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of an .npz archive.

    Sizes are checked before unpacking: a file with a valid checksum may still be made to exhaust the memory.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        size, most = sum(entry.file_size for entry in entries), _FIXED_SIZE + _RATIO * len(content)
        if size > most:
            raise ValueError(f"it would become {size:,} bytes of {len(content):,}, and at most {most:,} are read")
        arrays = {entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries}
    if len(arrays) != len(entries):
        raise ValueError("it has two arrays of the same name")
    description = json.loads(bytes(arrays.pop("description")))
    if not isinstance(description, dict):
        raise ValueError("its description is not an object")
    return description, arrays


def _array(content: bytes) -> np.ndarray:
    import numpy as np

    for attempt in range(_ATTEMPTS):
        try:
            array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
            break
        except SystemError:
            if attempt + 1 == _ATTEMPTS:
                raise
    if array.dtype.kind not in "biufSU":
        raise ValueError(f"it has an array of {array.dtype}, which is not supported")
    return array
