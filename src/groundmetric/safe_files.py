"""Files that survive accidents: a line of JSON with a checksum, then the content; put into place in one step."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np


class Damaged(ValueError):
    """A file whose content is not what was written."""


def write_arrays(
    path: Path,
    kind: str,
    version: int,
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    keep: Path | None = None,
) -> None:
    """Write arrays and what JSON can say beside them; `path` holds the old content or all of the new, never a part.

    The old content may be kept under another name.
    """
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    payload = io.BytesIO()
    np.savez(payload, description=text, **arrays)  # type: ignore[arg-type]
    content = payload.getbuffer()
    header = {"format": kind, "version": version, "sha256": _checksum(kind, version, content)}
    write_whole(path, [json.dumps(header).encode() + b"\n", content], keep=keep)


def read_arrays(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_arrays` wrote: the description and the arrays."""
    head, _, content = path.read_bytes().partition(b"\n")
    name = repr(os.fspath(path))
    try:
        header = json.loads(head)
        if header["format"] != kind:
            raise ValueError
        found, checksum = int(header["version"]), header["sha256"]
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{name} is damaged or no {kind}: it does not begin as one") from None
    if _checksum(kind, found, content) != checksum:
        raise Damaged(f"{name} is damaged: its content does not match its checksum")
    if found != version:
        raise ValueError(f"{name} has format version {found}, this groundmetric reads {version}: use another path")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        values = {key: arrays[key] for key in arrays.files}
    return json.loads(bytes(values.pop("description"))), values


def _checksum(kind: str, version: int, content: bytes | memoryview) -> str:
    """Of the header too: a flipped bit in the version must not look like another version."""
    state = hashlib.sha256(f"{kind} {version}\n".encode())
    state.update(content)
    return state.hexdigest()


def write_whole(path: Path, parts: list, *, keep: Path | None = None) -> None:
    """Write the parts beside `path`, to the disk, then rename; the old file may be kept under another name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove halves that killed processes left beside `path`."""
    for leftover in path.parent.glob(f".{path.name}.*.part"):
        owner = leftover.name.split(".")[-2]
        if not (owner.isdecimal() and _is_alive(int(owner))):
            leftover.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """After a power cut, the new name is there too. Not every system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
