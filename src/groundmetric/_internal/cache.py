"""Cache of results in one SQLite file: kept distances, finished fits of an evaluation, answers of a report.

An entry is a key and a value, both bytes, with a checksum of its own. A file is opened for every call and closed after
it, so that processes and threads may share it, children may be forked at any time, and nothing stays locked.

- **Two processes** write in turn: SQLite locks the file, and a process waits up to a minute for its turn.
- **kill -9, or a power cut**, loses the entries of one call at most. A rollback journal (``<path>-journal``) takes the
  file back to the last complete call when it is next opened. There is no write-ahead log: it needs memory that
  processes share, which network file systems do not have.
- **Network file systems** are safe as far as their locks are. Where they have none (some NFS), one process at a time.
- **A file of somebody else** is recognised by its first 100 bytes, before SQLite opens it, and left as it is.
- **A damaged entry** is left out with a `CacheWarning`, to be computed anew. A file whose structure is damaged is an
  error that names it: `Damaged`.
- **A full disk** loses the new entries, with a `CacheWarning`, but neither the old ones nor the computation.
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

_APPLICATION = 0x676D6331  # "gmc1", in the header of every SQLite file that a cache wrote
_MAGIC, _HEADER = b"SQLite format 3\0", 100
_OLD = b"groundmetric distances format 1"  # before there was a release
_JOURNAL = "-journal"
_PATIENCE = 60.0  # seconds to wait for another process
_AT_ONCE = 500  # keys in a query; SQLite takes 999 in any version
# What is wrong with the disk or the moment, not with the content of the file.
_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


class CacheWarning(RuntimeWarning):
    """Entries of a cache were damaged, or could not be written; results are right all the same."""


class Cache:
    """Entries in a file, by key.

    Parameters
    ----------
    path : str or os.PathLike[str]
        File; made when the first entry is written.
    parameter : str
        What the path is called in errors.
    """

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
        """Values of those keys that have an entry."""
        keys, found, damaged = list(dict.fromkeys(keys)), {}, 0
        with self._reading() as database:
            if database is None:
                return {}
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                query = f"SELECT key, value, checksum FROM entries WHERE key IN ({', '.join('?' * len(some))})"
                for key, value, checksum in database.execute(query, some):
                    if isinstance(value, bytes) and checksum == _checksum(key, value):
                        found[key] = value
                    else:
                        damaged += 1
        if damaged:
            self.warn_damaged(damaged)
        return found

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Write all of these entries or, where the disk is full or the like, none; on the disk when this returns."""
        if not entries or not self._can_write:
            return
        rows = [(key, value, _checksum(key, value)) for key, value in entries.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._check_owner()  # somebody may have written there meanwhile
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
            warnings.warn(
                f"results can no longer be kept in {str(self.path)!r} ({error}): they are computed all the same, and "
                "what was kept before is intact",
                CacheWarning,
                stacklevel=4,
            )

    def get_json(self, key: str) -> Any:
        """Plain data under a name; None where there is none."""
        content = self.get([key.encode()]).get(key.encode())
        return None if content is None else json.loads(content)

    def put_json(self, key: str, value: Any) -> None:
        """Write plain data under a name."""
        self.put({key.encode(): json.dumps(value).encode()})

    def warn_damaged(self, number: int) -> None:
        """Warn that entries were found that are not what was written."""
        warnings.warn(
            f"{str(self.path)!r} held {number} damaged {'entry' if number == 1 else 'entries'}: left out, and computed "
            "anew where needed",
            CacheWarning,
            stacklevel=4,
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection, or None where nothing was ever written."""
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
        """A connection for one call; what SQLite raises becomes `Damaged` or an OSError that names the file."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)) as database:
                database.text_factory = bytes  # a damaged type must not be decoded
                for setting in ("synchronous = FULL", "cell_size_check = ON", "trusted_schema = OFF"):
                    database.execute(f"PRAGMA {setting}")
                yield database
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _PASSING:
                raise OSError(f"{str(self.path)!r}: {error}") from error
            raise self._damaged(error) from error

    def _check_owner(self) -> None:
        """Raise unless there is no file, an empty one, or one that a cache wrote."""
        check_ordinary(self.path)
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            head = file.read(_HEADER)
        if head.startswith(_OLD):
            raise Foreign(
                f"{str(self.path)!r} is of an older format, which is no longer read: delete it, or use another"
            )
        if not head or (len(head) == _HEADER and head.startswith(_MAGIC) and head[68:72] == _owner()):
            return
        if (len(head) < _HEADER and _MAGIC[: len(head)] == head[: len(_MAGIC)]) or not any(head):
            raise self._damaged("it does not begin as it should")
        raise Foreign(f"{str(self.path)!r} was not written by groundmetric as a cache of results: use another path")

    def _damaged(self, error: Any) -> Damaged:
        reason = str(error) or type(error).__name__
        return Damaged(f"{str(self.path)!r} is damaged ({reason}): delete it, and what it held is computed anew")


def remove_cache(path: str | os.PathLike[str]) -> None:
    """Remove a cache with its journal; a file of somebody else is refused, and none at all is fine."""
    with contextlib.suppress(Damaged):
        Cache(path)
    for suffix in (_JOURNAL, ""):
        Path(f"{os.fspath(path)}{suffix}").unlink(missing_ok=True)


def cache_files(path: Path) -> list[str]:
    """Names that a cache at this path may have in its folder."""
    return [path.name, f"{path.name}{_JOURNAL}"]


def is_cache(path: Path) -> bool:
    """Whether a cache of groundmetric is at this path."""
    try:
        return path.is_file() and Cache(path).path.stat().st_size > 0
    except (ValueError, OSError):
        return False


def digest(*parts: Any) -> bytes:
    """16 bytes that stand for arrays, bytes and text in this order.

    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(3.0))
    (True, False)
    """
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


def _owner() -> bytes:
    return _APPLICATION.to_bytes(4, "big")


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(key + value, digest_size=8, salt=len(key).to_bytes(8, "big")).digest()
