"""Atomic writes of files and folders, and arrays as checked files.

A file is written to a hidden temporary file beside its destination and renamed when it is complete, so that a path
holds the old content or all of the new. A symbolic link at the destination is replaced, not followed. A file of another
kind is never replaced (`refuse_foreign`).
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Seconds after which an unmodified temporary file belongs to a process that was killed.
_ABANDONED = 24 * 3600.0
# Largest size of an unpacked archive: a fixed part, and a multiple of the packed size. Zeros shrink a hundredfold; an
# archive made to exhaust the memory shrinks a thousandfold.
_FIXED_SIZE, _RATIO = 64 << 20, 100
_NPY_HEADER = 1 << 10  # largest header of an array in numpy's format


class Foreign(ValueError):
    """A file at the destination was written by another program."""


class Damaged(ValueError):
    """The content of a file is not what was written."""


def write_whole(path: str | os.PathLike[str], parts: Iterable[Any], *, keep: Path | None = None) -> None:
    """Write a file atomically; the previous content may be kept under the name `keep`."""
    with replacing(path, keep=keep) as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` at the end; after an error nothing is left of it."""
    path = Path(path)
    check_ordinary(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(path.parent))
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
    """Return a random hidden name beside `path`, short enough for any file system."""
    return path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.part")


def _prefix(path: Path) -> str:
    return f".{path.name.encode()[:180].decode(errors='ignore')}."


def remove_leftovers(path: Path) -> None:
    """Remove temporary files and folders of `path` that killed processes left beside it or in it a day ago or more."""
    for folder in (path.parent, path):
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(folder)):
                named = entry.name.startswith(_prefix(path)) and entry.name.endswith(".part")
                if named and time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    shutil.rmtree(entry.path, ignore_errors=True) if is_folder else os.unlink(entry.path)


def check_ordinary(path: Path) -> None:
    """Raise if `path` is a folder, a device or a pipe."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, give the name of a file", str(path))
    if path.exists() and not path.is_file():
        raise Foreign(f"{str(path)!r} is not an ordinary file: give another path")


def refuse_foreign(path: str | os.PathLike[str], beginning: bytes, kind: str) -> None:
    """Raise `Foreign` if a file exists that does not begin as files of this kind do.

    A damaged file of this kind passes: empty, cut short, full of zeros, or with up to two changed bytes.
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


# Returns the names of the files that an earlier run wrote into a folder; None if there was no earlier run.
Earlier = Callable[[Path], Sequence[str] | None]


@contextlib.contextmanager
def new_folder(
    output: str | os.PathLike[str],
    *,
    earlier: Earlier,
    last: str,
    replace: bool,
    inputs: Iterable[str | os.PathLike[str]] = (),
    beside: Sequence[str] = (),
) -> Iterator[Path]:
    """Create a folder for results that are moved to `output` at the end; after an error nothing is left of it.

    A folder that exists stays (it may be mounted, or the current folder of a shell), and files are moved into it. If
    they cannot be moved, or the disk is full, the results stay in the temporary folder, which the error names.

    Parameters
    ----------
    output : path-like
        The folder; a link to a folder is followed.
    earlier : callable
        Returns the files of an earlier run, which are replaced with ``replace=True``.
    last : str
        Name of the file that is moved last and marks a finished run.
    replace : bool
        Whether an earlier run may be replaced.
    inputs : iterable of path-like
        Files and folders that are read; they must not be in the folder.
    beside : sequence of str
        Names that may be in the folder before: the state of an interrupted run.
    """
    folder = Path(os.path.realpath(output))
    for path in inputs:
        if Path(os.path.realpath(path)).is_relative_to(folder) and os.path.lexists(path):
            raise ValueError(
                f"output {os.fspath(output)!r} is where {os.fspath(path)!r} is, which is read: give another folder"
            )
    check_free(folder, output, earlier, replace, beside)
    remove_leftovers(folder)
    # Inside an existing folder, so that moving stays on one file system even if the folder is mounted.
    work = folder / temporary_name(folder).name if folder.is_dir() else temporary_name(folder)
    work.mkdir(parents=True)
    complete = False
    try:
        yield work
        complete = True
        check_free(folder, output, earlier, replace, beside)  # another process may have written there meanwhile
        _move_into(work, folder, (earlier(folder) or ()) if folder.exists() else (), last)
    except Exception as error:
        # Complete results are never lost; of a full disk, the files that were written before are kept.
        if (complete or isinstance(error, OSError)) and any(work.iterdir()):
            kept = work.with_name(f"{folder.name}.kept-{work.name[-21:-5]}")
            os.rename(work, kept)
            raise OSError(f"output {os.fspath(output)!r}: {error}. Its files are in {str(kept)!r}") from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_free(
    folder: Path, output: str | os.PathLike[str], earlier: Earlier, replace: bool, beside: Sequence[str] = ()
) -> None:
    """Raise unless the folder is absent, empty but for `beside`, or an earlier run that may be replaced."""
    if not folder.exists():
        return
    from .validation import ParameterError  # imports numpy, which `groundmetric --help` does not need

    name = os.fspath(output)
    if not folder.is_dir():
        raise ParameterError("output", name, ", which is a file: give a folder")
    temporary = _prefix(folder)
    if not {entry for entry in os.listdir(folder) if not entry.startswith(temporary)} - set(beside):
        return
    if earlier(folder) is None:
        raise ParameterError("output", name, ", which exists and is no earlier run: give another folder")
    if not replace:
        raise ParameterError("output", name, ", which exists: give another folder", {"replace": True})


def _move_into(new: Path, folder: Path, old: Sequence[str], last: str) -> None:
    """Move the content of `new` into the folder in place of the files `old`, the file `last` at the end."""
    if not folder.exists():
        os.replace(new, folder)  # fails if another process was faster
        return
    names = sorted(os.listdir(new), key=lambda name: (name == last, name))
    foreign = [name for name in names if name not in old and os.path.lexists(folder / name)]
    if foreign:
        raise FileExistsError(f"{str(folder / foreign[0])!r} exists and was not written by an earlier run")
    for name in [*(name for name in old if name not in names), *names]:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        if name in names:
            os.replace(new / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


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

    def packed(save: Callable[..., None]) -> memoryview:
        payload = io.BytesIO()
        save(payload, **arrays)
        return payload.getbuffer()

    content = packed(np.savez_compressed if compress else np.savez)
    if sum(array.nbytes + _NPY_HEADER for array in arrays.values()) > _largest_size(content):
        content = packed(np.savez)  # mostly zeros, which `unpack` would refuse
    header = {"format": kind, "version": version, "sha256": _checksum(kind, version, content)}
    write_whole(path, [json.dumps(header).encode() + b"\n", content], keep=keep)


def read_header(path: str | os.PathLike[str], kind: str) -> tuple[int, str, bytes]:
    """Return the version, the checksum and the content of a file of `write_arrays`, none of them checked."""
    head, _, content = Path(path).read_bytes().partition(b"\n")
    try:
        header = json.loads(head)
        if header["format"] != kind or isinstance(header["version"], bool):
            raise ValueError
        return int(header["version"]), str(header["sha256"]), content
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Damaged(f"{os.fspath(path)!r} is damaged or not a {kind}: it does not begin as one") from None


def read_arrays(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays that `write_arrays` wrote."""
    file_version, checksum, content = read_header(path, kind)
    name = repr(os.fspath(path))
    if not check_content(content, checksum, kind, file_version):
        raise Damaged(f"{name} is damaged: its content does not match its checksum")
    if file_version != version:
        raise ValueError(
            f"{name} has format version {file_version}, this groundmetric reads {version}: use another path"
        )
    return unpack(content, name)


def check_content(content: bytes, checksum: str, kind: str, version: int) -> bool:
    """Return whether the content of a file has the checksum of its header."""
    return _checksum(kind, version, content) == checksum


def _checksum(kind: str, version: int, content: bytes | memoryview) -> str:
    """Return the checksum of header and content: a flipped bit in the version must not look like another version."""
    state = hashlib.sha256(f"{kind} {version}\n".encode())
    state.update(content)
    return state.hexdigest()


def _largest_size(content: bytes | memoryview) -> int:
    """Return the largest accepted size of an unpacked archive in bytes."""
    return _FIXED_SIZE + _RATIO * len(content)


def unpack(content: bytes, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of an .npz archive; raise `Damaged` if it cannot be read.

    Sizes are checked before unpacking: a file with a valid checksum may still be made to exhaust the memory.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            size, most = sum(entry.file_size for entry in entries), _largest_size(content)
            if size > most:
                raise ValueError(f"it would become {size:,} bytes of {len(content):,}, and at most {most:,} are read")
            arrays = {entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries}
        if len(arrays) != len(entries):
            raise ValueError("it has two arrays of the same name")
        description = json.loads(bytes(arrays.pop("description")))
        if not isinstance(description, dict):
            raise ValueError("its description is not an object")
    except Exception as error:  # archives can be damaged in more ways than can be listed
        raise Damaged(f"{name} is damaged: {str(error) or type(error).__name__}") from error
    return description, arrays


def _array(content: bytes) -> np.ndarray:
    import numpy as np

    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    if array.dtype.kind not in "biufSU":
        raise ValueError(f"it has an array of {array.dtype}, which is not supported")
    return array
