"""Cache of results in one SQLite file: distances, fits of an evaluation, results of a report.

Processes and threads can share the file, which is opened and closed in every call. SQLite's rollback journal undoes
the incomplete write of a killed process; a write-ahead log would not work on network file systems. After a damaged
entry or with a full disk, a `CacheWarning` is given, and results are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files import Damaged, Foreign, check_ordinary

_APPLICATION = 0x676D6331  # "gmc1", in the header of every file of a cache
_MAGIC, _HEADER = b"SQLite format 3\0", 100
_JOURNAL = "-journal"
_TIMEOUT = 60.0  # seconds to wait for another process


class CacheWarning(RuntimeWarning):
    """Entries of a cache were damaged or could not be written; results are correct nevertheless."""


class Cache:
    """Entries by key in the file `path`, which is created with the first entry; `parameter` names it in errors."""

    def __init__(self, path: str | os.PathLike[str], parameter: str = "path") -> None:
        self.path = Path(path).absolute()
        if self.path.is_dir():
            raise ValueError(f"{parameter} is the folder {os.fspath(path)!r}: expected the name of a file")
        self._can_write = True
        self._check_owner()

    def __len__(self) -> int:
        with self._reading() as database:
            return 0 if database is None else database.execute("SELECT count(*) FROM entries").fetchone()[0]

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values of the keys that have an entry."""
        values, n_damaged = {}, 0
        with self._reading() as database:
            for key in dict.fromkeys(keys):
                if database is None:
                    break
                entry = database.execute("SELECT value, checksum FROM entries WHERE key = ?", (key,)).fetchone()
                if entry is not None and isinstance(entry[0], bytes) and entry[1] == _checksum(key, entry[0]):
                    values[key] = entry[0]
                else:
                    n_damaged += entry is not None
        if n_damaged:
            self.warn_damaged(n_damaged)
        return values

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Write all entries or, if the disk is full or the file is locked, none."""
        if not entries or not self._can_write:
            return
        rows = [(key, value, _checksum(key, value)) for key, value in entries.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._check_owner()  # another program may have written there meanwhile
            with self._connection() as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(f"PRAGMA application_id = {_APPLICATION}")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB, checksum BLOB) WITHOUT ROWID"
                )
                database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
                database.execute("COMMIT")
        except (OSError, Foreign, Damaged) as error:
            self._can_write = False
            _warn(f"results can no longer be written to {str(self.path)!r} ({error}); earlier entries are intact")

    def get_json(self, key: str) -> Any:
        """Return plain data by name; None without an entry."""
        content = self.get([key.encode()]).get(key.encode())
        return None if content is None else json.loads(content)

    def put_json(self, key: str, value: Any) -> None:
        """Write plain data under a name."""
        self.put({key.encode(): json.dumps(value).encode()})

    def warn_damaged(self, number: int) -> None:
        """Warn of entries with a wrong checksum or type."""
        entries = "entry" if number == 1 else "entries"
        _warn(f"{str(self.path)!r} held {number} damaged {entries}: ignored, and computed again if needed")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open a connection; None if no entry was ever written."""
        self._check_owner()
        if not self.path.exists():
            yield None
            return
        with self._connection() as database:
            # A process that was killed at its first entry leaves a file without a table.
            exists = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone()
            yield database if exists else None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open a connection; errors of SQLite become `Damaged` or an OSError that names the file."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=_TIMEOUT, isolation_level=None)) as database:
                database.text_factory = bytes  # text in a damaged entry may not be decodable
                for setting in ("synchronous = FULL", "cell_size_check = ON", "trusted_schema = OFF"):
                    database.execute(f"PRAGMA {setting}")
                yield database
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            # Other operational errors are failures of the disk or of a lock rather than of the content.
            is_content = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR
            if isinstance(error, sqlite3.OperationalError) and not is_content:
                raise OSError(f"{str(self.path)!r}: {error}") from error
            raise self._damaged(str(error) or type(error).__name__) from error

    def _check_owner(self) -> None:
        """Raise unless the file is absent, empty, or one that a cache wrote."""
        check_ordinary(self.path)
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            head = file.read(_HEADER)
        is_ours = len(head) == _HEADER and head.startswith(_MAGIC) and head[68:72] == _APPLICATION.to_bytes(4, "big")
        if not head or is_ours:
            return
        if (len(head) < _HEADER and _MAGIC[: len(head)] == head[: len(_MAGIC)]) or not any(head):
            raise self._damaged("its header is incomplete")
        raise Foreign(f"{str(self.path)!r} was not written by groundmetric as a cache of results: use another path")

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(f"{str(self.path)!r} is damaged ({reason}): delete it, and its results are computed again")


def remove_cache(path: str | os.PathLike[str]) -> None:
    """Remove a cache and its journal if they exist; raise if the file is that of another program."""
    with contextlib.suppress(Damaged):
        Cache(path)
    for suffix in (_JOURNAL, ""):
        Path(f"{os.fspath(path)}{suffix}").unlink(missing_ok=True)


def cache_files(path: Path) -> list[str]:
    """Return the names of the files that a cache at this path may have."""
    return [path.name, f"{path.name}{_JOURNAL}"]


def is_cache(path: Path) -> bool:
    """Return whether the file at this path is a cache with entries."""
    try:
        return path.is_file() and Cache(path).path.stat().st_size > 0
    except (ValueError, OSError):
        return False


def digest(*parts: Any) -> bytes:
    """Return a 16-byte digest of arrays, bytes and text in this order."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype.str}{part.shape}".encode())
            state.update(np.ascontiguousarray(part).data)
        else:
            content = part if isinstance(part, bytes) else str(part).encode()
            state.update(f"{len(content)}:".encode())
            state.update(content)
    return state.digest()


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=5)


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(key + value, digest_size=8, salt=len(key).to_bytes(8, "big")).digest()
