"""Output folders are written completely or not created, and files of users are never lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from groundmetric._internal import files as safe_folders
from groundmetric._internal.cache import Cache
from groundmetric.cli.options import FINDINGS, aligned, new_folder


def findings(text="new", files=()):
    return json.dumps({"groundmetric": "0", "command": "learn", "text": text, "files": [FINDINGS, *files]})


def write(path, text="new", **options):
    with new_folder(path, **{"replace": False, **options}) as folder:
        (folder / FINDINGS).write_text(findings(text))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def text(folder):
    return json.loads((folder / FINDINGS).read_text())["text"]


def test_a_folder_appears_when_all_is_done(tmp_path):
    path = tmp_path / "deep" / "run"
    with new_folder(path, replace=False) as folder:
        (folder / FINDINGS).write_text(findings())
        assert not path.exists()
    assert text(path) == "new"
    assert names(tmp_path / "deep") == ["run"]
    assert path.stat().st_mode == (tmp_path / "deep").stat().st_mode  # as the umask says


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("exists", [False, True])
def test_nothing_is_left_of_what_failed(tmp_path, error, exists):
    if exists:
        (tmp_path / "run").mkdir()
    with pytest.raises(error), new_folder(tmp_path / "run", replace=False) as folder:  # noqa: PT012
        (folder / "half").write_text("half")
        raise error
    assert names(tmp_path) == ["run"] * exists
    assert not exists or names(tmp_path / "run") == []


def test_an_earlier_run_is_replaced_only_if_asked_for_and_kept_if_the_new_one_fails(tmp_path):
    write(tmp_path / "run", "old")
    with pytest.raises(ValueError, match="exists: give another folder, or give replace=True"):
        write(tmp_path / "run")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "run", replace=True):
        1 / 0  # noqa: B018
    assert text(tmp_path / "run") == "old"
    write(tmp_path / "run", replace=True)
    assert text(tmp_path / "run") == "new"
    assert names(tmp_path / "run") == [FINDINGS]
    assert names(tmp_path) == ["run"]


def test_replace_replaces_what_the_run_wrote_and_its_report_but_nothing_else(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("cells.h5ad", "notes.txt", "mine.html"):
        (run / name).write_text("old")
    (run / "report.html").write_text("<!doctype html>\n<footer>Made by groundmetric 0. This page</footer>")
    Cache(run / "report.cache").put_json("axes", {})
    (tmp_path / "precious").write_text("mine")
    (run / FINDINGS).write_text(findings("old", ["cells.h5ad", "../precious", "absent.csv"]))
    write(run, replace=True)
    assert names(run) == ["mine.html", "notes.txt", FINDINGS]
    assert text(run) == "new"
    assert (tmp_path / "precious").read_text() == "mine"
    (run / "report.html").write_text("<p>my own</p>")
    (run / "report.cache").write_text("mine")
    write(run, replace=True)
    assert names(run) == ["mine.html", "notes.txt", "report.cache", "report.html", FINDINGS]


def test_other_folders_are_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FINDINGS).write_text('{"a": "run.json of another program"}')
    (tmp_path / "file").write_text("mine")
    for replace in (False, True):
        for name in ("thesis", "other"):
            with pytest.raises(ValueError, match="earlier run: give another folder"):
                write(tmp_path / name, replace=replace)
        with pytest.raises(ValueError, match="is a file: give a folder"):
            write(tmp_path / "file", replace=replace)
    assert names(tmp_path) == ["file", "other", "thesis"]


@pytest.mark.parametrize("input_name", ["run", "run/cells.h5ad", "link"])
def test_the_input_is_not_written_to(tmp_path, input_name):
    write(tmp_path / "run")
    (tmp_path / "run" / "cells.h5ad").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "run" / "cells.h5ad")
    with pytest.raises(ValueError, match="which is read: give another folder"):
        write(tmp_path / "run", replace=True, inputs=[tmp_path / input_name])
    with pytest.raises(ValueError, match="which is read: give another folder"):
        write(tmp_path, inputs=[tmp_path / input_name])


def test_a_folder_that_exists_stays_the_same_folder(tmp_path, monkeypatch):
    """It may be mounted or be the working directory of a process, and its permissions are kept."""
    (tmp_path / "run").mkdir(mode=0o750)
    before = (tmp_path / "run").stat()
    monkeypatch.chdir(tmp_path / "run")
    write(".")
    write(".", "newer", replace=True)
    assert text(tmp_path / "run") == "newer"
    assert ((tmp_path / "run").stat().st_ino, (tmp_path / "run").stat().st_mode) == (before.st_ino, before.st_mode)
    assert names(tmp_path / "run") == [FINDINGS]


def test_a_link_to_a_folder_is_followed(tmp_path):
    (tmp_path / "large disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large disk")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    for link, target in (("link", "large disk"), ("dangling", "new")):
        write(tmp_path / link)
        assert names(tmp_path / target) == [FINDINGS]
        assert (tmp_path / link).is_symlink()


def test_a_run_of_another_process_is_not_overwritten_and_no_file_is_lost(tmp_path):
    with (  # noqa: PT012
        pytest.raises(OSError, match=r"exists.* Its files are in "),
        new_folder(tmp_path / "run", replace=False) as f,
    ):
        (f / FINDINGS).write_text(findings("slow"))
        write(tmp_path / "run", "quick")
    assert text(tmp_path / "run") == "quick"
    (backup,) = tmp_path.glob("run.kept-*")
    assert text(backup) == "slow"
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("exists", [False, True])
def test_a_rename_that_fails_loses_nothing(tmp_path, monkeypatch, exists):
    if exists:
        write(tmp_path / "run", "old")

    def busy(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    with pytest.raises(OSError, match=r"busy.* Its files are in"):  # noqa: PT012, SIM117
        with monkeypatch.context() as patch, new_folder(tmp_path / "run", replace=True) as folder:
            (folder / FINDINGS).write_text(findings())
            patch.setattr(safe_folders.os, "replace", busy)
    (backup,) = tmp_path.glob("run/run.kept-*" if exists else "run.kept-*")
    assert text(backup) == "new"
    assert not exists or text(tmp_path / "run") == "old"


def test_a_rename_that_fails_half_way_leaves_the_old_run(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    (run / "b.csv").write_text("old")
    (run / FINDINGS).write_text(findings("old", ["b.csv"]))
    (run / "mine.csv").write_text("mine")
    with pytest.raises(OSError, match=r"mine\.csv.* exists and was not written by an earlier run"):  # noqa: PT012, SIM117
        with new_folder(run, replace=True) as folder:
            for name in ("a.csv", "mine.csv", FINDINGS):
                (folder / name).write_text(findings())
    assert (text(run), (run / "b.csv").read_text(), (run / "mine.csv").read_text()) == ("old", "old", "mine")
    assert not (run / "a.csv").exists()
    (backup,) = run.glob("run.kept-*")
    assert names(backup) == ["a.csv", "mine.csv", FINDINGS]


def test_on_a_full_disk_what_was_written_before_is_kept(tmp_path):
    with pytest.raises(OSError, match=r"No space.* Its files are in"):  # noqa: PT012, SIM117
        with new_folder(tmp_path / "run", replace=False) as folder:
            (folder / "metric.gm").write_text("hours of work")
            raise OSError(errno.ENOSPC, "No space left on device")
    (backup,) = tmp_path.glob("run.kept-*")
    assert names(backup) == ["metric.gm"]
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "other", replace=False):
        raise FileNotFoundError
    assert names(tmp_path) == [backup.name]


def test_threads_with_one_output_lose_nothing(tmp_path):
    failed = []

    def run(k):
        try:
            write(tmp_path / "run", str(k), inputs=[])
        except (OSError, ValueError) as error:
            failed.append(str(error))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Within `run` if another thread created it between the check and the work of this thread.
    backup = list(tmp_path.rglob("run.kept-*"))
    refused = [line for line in failed if "give another folder" in line and "kept" not in line]  # before the work
    assert len(backup) + len(refused) == len(failed) == 7
    assert len({text(folder) for folder in [tmp_path / "run", *backup]}) == 1 + len(backup)


OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MOUNTED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_output import write, text, names
from pathlib import Path
run = Path(sys.argv[1])
assert os.path.ismount(run)
write(run)
write(run, "newer", replace=True)
assert text(run) == "newer" and names(run) == ["run.json"], names(run)
"""


def test_a_mounted_folder_is_written_into(tmp_path):
    """As Docker gives it: it can neither be renamed nor removed."""
    (tmp_path / "run").mkdir()
    mount = 'mount -t tmpfs -o size=1m none "$0"'
    if (
        not shutil.which("unshare")
        or subprocess.run([*OWN_MOUNTS, mount, str(tmp_path / "run")], check=False).returncode
    ):
        pytest.skip("this system lets no ordinary user mount a disk")
    command = [*OWN_MOUNTS, f'{mount} && exec "$1" -c "$2" "$0" "$3"', str(tmp_path / "run"), sys.executable, MOUNTED]
    done = subprocess.run([*command, os.path.dirname(__file__)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tables_are_aligned():
    assert aligned([["a", "long head"], ["longer", "b"]]).splitlines() == ["a       long head", "longer  b"]
