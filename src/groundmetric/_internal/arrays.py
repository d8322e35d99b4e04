"""Arrays with what JSON can say beside them, as a file: a line of JSON with a checksum, then numpy's .npz format."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .files import Damaged, refuse_foreign, write_whole

# What a file may become when it is unpacked: numbers of zeros may shrink a hundredfold, a trap shrinks by a thousand.
_ROOM, _RATIO = 64 << 20, 100
_HEAD = 1 << 10  # bytes before the numbers of an array, at most


def beginning_of(kind: str) -> bytes:
    """How files of `write_arrays` begin."""
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
    """Write arrays and what JSON can say beside them, over an older file of this kind only."""
    refuse_foreign(path, beginning_of(kind), kind)
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    content = _archive(np.savez_compressed if compress else np.savez, text, arrays)
    size = sum(array.nbytes + _HEAD for array in (text, *arrays.values()))
    if size > _most(content):
        content = _archive(np.savez, text, arrays)  # mostly zeros: nobody would read it back for a trap
    header = {"format": kind, "version": version, "sha256": _checksum(kind, version, content)}
    write_whole(path, [json.dumps(header).encode() + b"\n", content], keep=keep)


def _archive(save: Callable[..., None], text: np.ndarray, arrays: dict[str, np.ndarray]) -> memoryview:
    payload = io.BytesIO()
    save(payload, description=text, **arrays)
    return payload.getbuffer()


def _most(content: bytes | memoryview) -> int:
    """Bytes that an archive may become."""
    return _ROOM + _RATIO * len(content)


def read_header(path: str | os.PathLike[str], kind: str) -> tuple[int, str, bytes]:
    """The version, the checksum and the content, none of them checked."""
    head, _, content = Path(path).read_bytes().partition(b"\n")
    try:
        header = json.loads(head)
        if header["format"] != kind or isinstance(header["version"], bool):
            raise ValueError
        return int(header["version"]), str(header["sha256"]), content
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Damaged(f"{os.fspath(path)!r} is damaged or no {kind}: it does not begin as one") from None


def read_arrays(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_arrays` wrote: the description and the arrays."""
    found, checksum, content = read_header(path, kind)
    name = repr(os.fspath(path))
    if _checksum(kind, found, content) != checksum:
        raise Damaged(f"{name} is damaged: its content does not match its checksum")
    if found != version:
        raise ValueError(f"{name} has format version {found}, this groundmetric reads {version}: use another path")
    return unpack(content, name)


def check_content(content: bytes, checksum: str, kind: str, version: int) -> bool:
    return _checksum(kind, version, content) == checksum


def _checksum(kind: str, version: int, content: bytes | memoryview) -> str:
    """Of the header too: a flipped bit in the version must not look like another version."""
    state = hashlib.sha256(f"{kind} {version}\n".encode())
    state.update(content)
    return state.hexdigest()


def unpack(content: bytes, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of an .npz archive; `Damaged` for whatever is wrong with it.

    A checksum does not show that nobody meant harm: sizes are checked before anything is unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            size, most = sum(entry.file_size for entry in entries), _most(content)
            if size > most:
                raise Damaged(f"{name} would become {size:,} bytes of {len(content):,}: more than {most:,} are refused")
            arrays = {entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries}
        if len(arrays) != len(entries):
            raise ValueError("an array is there twice")
        description = json.loads(bytes(arrays.pop("description")))
        if not isinstance(description, dict):
            raise ValueError("its description is no object")
    except Damaged:
        raise
    except Exception as error:  # an archive can be wrong in more ways than can be listed
        raise Damaged(f"{name} is damaged: {str(error) or type(error).__name__}") from error
    return description, arrays


def _array(content: bytes) -> np.ndarray:
    """An array in numpy's format: of numbers, and as large as it says."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, in_columns, dtype = read(file)
    if dtype.kind not in "biufSU":
        raise ValueError(f"an array of {dtype} is none of numbers")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array says that its shape is {shape}, but has {len(content) - file.tell()} bytes")
    values = np.frombuffer(content, dtype, offset=file.tell()) if math.prod(shape) else np.empty(0, dtype)
    return values.reshape(shape, order="F" if in_columns else "C").copy(order="K")
