"""Folders of results: they appear whole, replace nothing but earlier results, and are not lost at the last step."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from .safe_files import KEPT, claim, half_name, locked, open_folder, remove_leftovers

# The names of what an earlier run wrote into a folder; None where there was none.
Earlier = Callable[[Path], Sequence[str] | None]


@contextlib.contextmanager
def new_folder(
    output: str | os.PathLike,
    *,
    earlier: Earlier,
    last: str,
    replace: bool,
    inputs: Iterable[str | os.PathLike] = (),
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


def check_inputs(folder: Path, output: str | os.PathLike, inputs: Iterable[str | os.PathLike]) -> None:
    for some in inputs:
        if Path(os.path.realpath(some)).is_relative_to(folder) and os.path.lexists(some):
            raise ValueError(
                f"output {os.fspath(output)!r} is where {os.fspath(some)!r} is, which is read: give another folder"
            )


def check_free(
    folder: Path, output: str | os.PathLike, earlier: Earlier, replace: bool, beside: Sequence[str] = ()
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
        raise ValueError(f"output {name} exists: give another folder, or --force to replace it")


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
