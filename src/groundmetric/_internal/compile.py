"""Compiled kernels: where they are cached, when they are stale, and a notice while they are compiled."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import config, event
from numba.core.caching import Cache, CacheImpl
from numba.core.runtime import nrt
from numba.misc.appdirs import AppDirs

_MESSAGE = "groundmetric: compiling its kernels, once after an installation (5 to 10 seconds)"
_PACKAGE = Path(os.path.abspath(__file__)).parents[1]  # as numba sees it, links and all
_log = logging.getLogger("groundmetric")


class Notice(event.Listener):
    """Says so when the first kernel of this package is compiled; one that is found in numba's cache is not.

    It is logged as information, and shown where somebody is waiting: on a terminal or in a notebook. While numba
    compiles, no garbage is collected: it makes many objects that stay, and looking through them takes a seventh of the
    time. numba's lock lets one thread compile at a time.
    """

    def __init__(self) -> None:
        self.given = False
        self._depth = 0

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1
        self._give(event)

    def _give(self, event: event.Event) -> None:
        kernel = event.data["dispatcher"].py_func
        if self.given or not kernel.__module__.startswith("groundmetric."):
            return
        self.given = True
        _log.info(_MESSAGE)
        if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
            print(_MESSAGE, file=sys.stderr)

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0 and self._collects:
            gc.enable()


class KernelLocator:
    """Tells numba where a kernel of this package is kept, and which sources it was made from.

    numba asks its locators one after the other; this one answers for the files of this package only.
    """

    def __init__(self, kernel: Callable[..., Any], file: str, folder: str) -> None:
        self._line, self._file, self._folder = kernel.__code__.co_firstlineno, file, folder

    @classmethod
    def from_function(cls, kernel: Callable[..., Any], file: str) -> KernelLocator | None:
        if not Path(os.path.abspath(file)).is_relative_to(_PACKAGE) or not os.path.exists(file):
            return None
        return cls(kernel, file, folder_for(os.path.dirname(os.path.abspath(file)), config.CACHE_DIR))  # type: ignore[attr-defined]

    def ensure_cache_path(self) -> None:
        os.makedirs(self._folder, exist_ok=True)

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        """Changes with any source that a kernel may call: its own file, and all kernels of transport."""
        return hashlib.sha256(Path(self._file).read_bytes() + _transport_stamp()).hexdigest()

    def get_disambiguator(self) -> str:
        return str(self._line)


@functools.cache
def _transport_stamp() -> bytes:
    state = hashlib.sha256()
    for source in sorted((_PACKAGE / "transport").rglob("*.py")):
        content = source.read_bytes()
        if b"import numba" in content or b"compiled import" in content:  # the others hold no kernel
            state.update(hashlib.sha256(content).digest())
    return state.digest()


@functools.cache
def folder_for(sources: str, chosen: str) -> str:
    """The first folder for kernels of the folder `sources` that can be written to. `chosen`: NUMBA_CACHE_DIR or ""."""
    for folder in _lasting_folders(sources, chosen):
        if _is_writable(folder):
            return folder
    return os.path.join(_temporary_folder(), _own_name(sources))


def _lasting_folders(sources: str, chosen: str) -> Iterator[str]:
    """Where numba itself would look, in its order."""
    if chosen:
        yield os.path.join(chosen, _own_name(sources))
    yield os.path.join(sources, "__pycache__")
    home = AppDirs(appname="numba", appauthor=False).user_cache_dir
    if os.path.isabs(home):  # a user without a home has a "~" that stays as it is, in whatever folder this is
        yield os.path.join(home, _own_name(sources))


def _own_name(sources: str) -> str:
    """One folder for each installation; numba's name for it, so that kernels are found where they were."""
    return f"{os.path.basename(sources)}_{hashlib.sha1(sources.encode()).hexdigest()}"


def _is_writable(folder: str) -> bool:
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@functools.cache
def _temporary_folder() -> str:
    """The folder of last resort. It is logged rather than warned of: under ``-W error`` a warning would end all."""
    folder = _private_folder()
    _log.warning(
        "groundmetric: neither %s nor the home folder can be written to, so compiled kernels are kept in %s. They are "
        "compiled again (5 to 10 seconds) when that is emptied: set NUMBA_CACHE_DIR to a folder that lasts",
        _PACKAGE,
        folder,
    )
    return folder


def _private_folder() -> str:
    """A folder that is this user's alone: kernels are code, and whoever can write them can run anything as this user.

    It has the same name in every process, so that kernels are compiled once; where somebody else has taken that name,
    a new one that cannot be guessed, which goes with the process.
    """
    for base in _temporary_places():
        shared = os.path.join(base, f"groundmetric-kernels-{_user()}")
        with contextlib.suppress(OSError):  # it exists, or cannot: what is there now is looked at
            os.mkdir(shared, 0o700)
        if _is_ours_alone(shared) and _is_writable(shared):
            return shared
        try:
            own = tempfile.mkdtemp(prefix="groundmetric-kernels-", dir=base)
        except OSError:
            continue
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        return own
    raise RuntimeError(
        f"compiled kernels can be kept nowhere: {_PACKAGE}, the home folder and {', '.join(_temporary_places())} "
        "cannot be written to; set NUMBA_CACHE_DIR or TMPDIR to a folder that can"
    )


def _temporary_places() -> list[str]:
    try:
        usual = [tempfile.gettempdir()]
    except OSError:  # no place at all
        usual = []
    return [*usual, "/dev/shm"]  # which is there in containers whose disk is read-only


def _is_ours_alone(folder: str) -> bool:
    """A real folder, no link to one, of this user, that nobody else may enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    if not hasattr(os, "getuid"):  # on Windows the temporary folder is the user's own
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _user() -> Any:
    return os.getuid() if hasattr(os, "getuid") else "user"


# Releases of numba whose inside is known. In others, kernels are compiled and loaded in numba's own way: slower.
KNOWN_INSIDE = (0, 61) <= numba.version_info[:2] <= (0, 68)
_load: Any = Cache.load_overload


def load_kernel(cache: Any, signature: Any, context: Any) -> Any:
    """A kernel from numba's cache.

    numba would first import all that it can compile, which takes most of the time of a first call. Our kernels need
    its memory management only: they call no linear algebra and no random numbers. Where one is not in the cache, the
    compiler imports the rest.
    """
    if not isinstance(cache._impl.locator, KernelLocator):
        return _load(cache, signature, context)
    nrt.rtsys.initialize(context)
    return cache._load_overload(signature, context)


def prepare_compilation() -> None:
    """Place our kernels, load them, and listen to numba, from now on; before any kernel is defined."""
    if KNOWN_INSIDE:
        Cache.load_overload = load_kernel  # type: ignore[method-assign]
    CacheImpl._locator_classes = [KernelLocator, *CacheImpl._locator_classes]  # type: ignore[list-item]
    event.register("numba:compile", Notice())
