"""Files and folders that are written whole or not at all, under names that nobody can guess.

Everything that groundmetric writes goes through `write_whole` (content that is at hand), `replacing` (content that
comes piece by piece) or a folder of `safe_folders`. The rules are the same for all:

- The file beside has a name that nobody can guess, is made by this process or not at all, and is never a link. As long
  as it is written it is locked, so that halves of processes that were killed can be told from those that are in use.
- Permissions are those of any new file (the umask). A symbolic link at the destination is replaced by the file and
  never followed: what it points to stays as it is.
- What is there and is not of the same kind is refused (`refuse_foreign`). A metric, a checkpoint or a table of
  ours is replaced by a newer one; so is any figure, as plotting programs do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

try:
    import fcntl
except ImportError:  # not on Windows; there nothing is locked, and leftovers stay
    fcntl = None  # type: ignore[assignment]

_HALF = re.compile(r"\.[0-9a-f]{16}\.part")  # how the names of files that are being written end
KEPT = "kept"  # a file that marks a hidden folder with results that could not be put anywhere else
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Foreign(ValueError):
    """A file that somebody else wrote is where one of ours should go."""


class Damaged(ValueError):
    """A file whose content is not what was written."""


def write_whole(path: str | os.PathLike[str], parts: Iterable[Any], *, keep: Path | None = None) -> None:
    """Write a file of these parts; `path` holds the old content or all of the new, never a part.

    The old content may be kept under another name.
    """
    with replacing(path, keep=keep) as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` if all goes well; otherwise nothing is left of it."""
    path = Path(path)
    check_ordinary(path)
    temporary, handle = _new_file(path)
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(temporary.unlink, missing_ok=True)
        if fcntl is not None:  # another handle, by which it stays locked until it has its name
            at_the_end.callback(os.close, os.dup(handle))
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            _put(path, keep)
        _put(temporary, path)
        _sync_folder(path.parent)


def check_ordinary(path: Path) -> None:
    """Nothing but a file, or a link, is replaced: not a folder, and not a device."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, give the name of a file", str(path))
    if path.exists() and not path.is_file() and not path.is_symlink():
        raise Foreign(f"{str(path)!r} is no ordinary file: give another path")


def _new_file(path: Path) -> tuple[Path, int]:
    """A new file beside `path`, open and locked."""
    while True:
        temporary = half_name(path)
        try:
            handle = os.open(temporary, _NEW, 0o666)
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(path.parent)) from None
        if claim(handle, temporary):
            return temporary, handle
        os.close(handle)  # somebody who cleans up took it for a leftover in the moment before it was locked


def _put(source: Path, path: Path) -> None:
    """Rename; into a file that is mounted by itself, which nothing can be renamed to, copy."""
    try:
        os.replace(source, path)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        with open(source, "rb") as content, open(path, "r+b" if path.exists() else "xb") as file:
            shutil.copyfileobj(content, file)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


def half_name(path: Path) -> Path:
    """A name beside `path` for what is being written, which nobody can guess."""
    return path.with_name(f"{_stem(path)}.{secrets.token_hex(8)}.part")


def _stem(path: Path) -> str:
    """Hidden, and short enough for any file system."""
    return "." + path.name.encode()[:180].decode(errors="ignore")


def claim(handle: int, path: Path) -> bool:
    """Lock a new file or folder as long as this process has it open; False if somebody who cleans up was quicker.

    Where the system cannot lock, all that it means is that leftovers stay.
    """
    return _lock(handle) is not False and path.exists()


def remove_leftovers(path: Path, within: Path | None = None) -> None:
    """Remove what killed processes left half written beside `path` (or in another folder), and nothing else."""
    folder = path.parent if within is None else within
    with contextlib.suppress(OSError):
        for found in list(os.scandir(folder)):
            if found.name.startswith(_stem(path)) and _HALF.fullmatch(found.name[len(_stem(path)) :]):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(Path(found.path), found.is_dir(follow_symlinks=False))


def _remove_if_abandoned(path: Path, is_folder: bool) -> None:
    """A lock ends with the process that took it, however it ended."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        if _lock(handle) and not (path / KEPT).exists():
            shutil.rmtree(path) if is_folder else path.unlink()
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """True: it is ours; False: somebody else's; None: it cannot be known here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time changes what is in a folder, where the system can lock it."""
    handle = open_folder(folder)
    try:
        if handle is not None and fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def open_folder(folder: Path) -> int | None:
    """A handle to lock a folder by, or to sync it; None where there is none (Windows, no such folder)."""
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return None


def _sync_folder(folder: Path) -> None:
    """After a power cut, the new name is there too. Not every system can."""
    handle = open_folder(folder)
    if handle is not None:
        with contextlib.suppress(OSError):
            os.fsync(handle)
        os.close(handle)


def refuse_foreign(path: str | os.PathLike[str], beginning: bytes, kind: str) -> None:
    """Raise `Foreign` if there is a file that does not begin as those of this kind do.

    A damaged one of ours passes: one that is empty or cut short, full of zeros, or with a few bytes changed.
    """
    path = Path(path)
    check_ordinary(path)
    if not path.exists():
        return
    with open(path, "rb") as file:
        found = file.read(len(beginning))
    differing = sum(one != other for one, other in zip(found, beginning, strict=False))
    if differing > min(2, len(found) // 8) and any(found):
        raise Foreign(f"{str(path)!r} exists and is no {kind}: it would be lost; give another path, or move it away")


# The names of what an earlier run wrote into a folder; None where there was none.
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
    """A folder to write to, whose content is put into place when all is done; otherwise nothing is left of it.

    A folder that exists stays the folder that it is (it may be mounted, a link, or where somebody stands), and files
    get into it one by one. That this can be done is found out before the work: work goes on inside of it. Should the
    last step fail nonetheless, the results are kept beside, and the error says where.

    Parameters
    ----------
    output : folder; a link to one is followed
    earlier : tells what an earlier run wrote into a folder: with `replace`, this and nothing else gives way
    last : the file that is put into place after all others, by which a finished run is known
    inputs : files and folders that are read, and must not be in the folder
    beside : names of what may be in the folder before: the state of a run that was interrupted
    """
    folder = Path(os.path.realpath(output))
    check_inputs(folder, output, inputs)
    place = folder if folder.is_dir() else folder.parent
    check_free(folder, output, earlier, replace, beside)
    place.mkdir(parents=True, exist_ok=True)
    with _work_folder(folder, place) as work:
        new = work / "new"
        new.mkdir()
        try:
            yield new
        except OSError as error:  # a full disk: what was written before may have taken long
            if any(new.iterdir()):
                _keep(new, folder, work, f"{error}. What had been written by then")
            raise
        try:
            with locked(folder):
                check_free(folder, output, earlier, replace, beside)  # somebody may have written there meanwhile
                _deliver(new, work, folder, (earlier(folder) or ()) if folder.exists() else (), last)
        except BaseException as error:
            _keep(
                new, folder, work, f"output {os.fspath(output)!r} could not be put into place: {error}. What was found"
            )
            raise


def check_inputs(folder: Path, output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    for some in inputs:
        if Path(os.path.realpath(some)).is_relative_to(folder) and os.path.lexists(some):
            raise ValueError(
                f"output {os.fspath(output)!r} is where {os.fspath(some)!r} is, which is read: give another folder"
            )


def check_free(
    folder: Path, output: str | os.PathLike[str], earlier: Earlier, replace: bool, beside: Sequence[str] = ()
) -> None:
    """Raise unless the folder can take results: because there is none, or nothing in it, or an earlier run may go."""
    name = repr(os.fspath(output))
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"output {name} is a file: give a folder")
    if not set(_content(folder)) - set(beside):
        return
    if earlier(folder) is None:
        raise ValueError(f"output {name} exists and is no earlier run: give another folder")
    if not replace:
        raise ValueError(f"output {name} exists: give another folder, or --replace to replace it")


def _content(folder: Path) -> list[str]:
    """What is in a folder, without what is being written there."""
    prefix = half_name(folder).name[:-21]
    return [name for name in os.listdir(folder) if not (name.startswith(prefix) and name.endswith(".part"))]


@contextlib.contextmanager
def _work_folder(folder: Path, place: Path) -> Iterator[Path]:
    """A hidden folder on the same disk: inside of the folder where there is one, beside it otherwise."""
    for some in {folder.parent, place}:
        remove_leftovers(folder, within=some)
    while True:
        work = place / half_name(folder).name
        work.mkdir(mode=0o700)
        handle = open_folder(work)
        if handle is None or claim(handle, work):
            break
        os.close(handle)
    try:
        yield work
    finally:
        if not (work / KEPT).exists():
            shutil.rmtree(work, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _deliver(new: Path, work: Path, folder: Path, old: Sequence[str], last: str) -> None:
    """Put all that is in `new` into the folder, in the place of what is old; where that fails, nothing has changed."""
    if not folder.exists():
        os.rename(new, folder)  # which fails where somebody was quicker
        return
    (work / "old").mkdir()
    away = [(folder / name, work / "old" / name) for name in old if os.path.lexists(folder / name)]
    names = sorted(os.listdir(new), key=lambda name: (name == last, name))
    moves = [*away, *((new / name, folder / name) for name in names)]
    done: list[tuple[Path, Path]] = []
    try:
        for source, place in moves:
            if os.path.lexists(place):
                raise FileExistsError(f"{str(place)!r} exists and was not written by an earlier run")
            os.rename(source, place)
            done.append((source, place))
    except BaseException:
        for source, place in reversed(done):
            os.rename(place, source)
        raise


def _keep(new: Path, folder: Path, work: Path, what: str) -> NoReturn:
    """Keep results under another name, and say so."""
    (work / KEPT).touch()  # should all that follows fail, they stay where they are
    kept = work.with_name(f"{folder.name}.kept-{work.name[-21:-5]}")
    try:
        os.rename(new, kept)
    except OSError:
        shutil.copytree(new, kept)
    (work / KEPT).unlink()
    raise OSError(f"{what} is in {str(kept)!r}")
