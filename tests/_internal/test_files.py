"""Atomic writes of files, which never replace files of other programs."""

import csv
import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

import groundmetric as gm
from groundmetric._internal import files as safe_files
from groundmetric._internal.files import Damaged, Foreign, refuse_foreign, replacing, write_whole
from groundmetric._internal.tables import write_csv


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_threads_that_save_to_one_path_do_not_disturb_each_other(tmp_path):
    metrics, failed = [gm.GroundMetric(np.full((5, 200), k + 1.0)) for k in range(8)], []

    def save(metric):
        for _ in range(50):
            try:
                metric.save(tmp_path / "metric.gm")
                gm.GroundMetric.load(tmp_path / "metric.gm")
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=save, args=(metric,)) for metric in metrics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert names(tmp_path) == ["metric.gm"]


def test_an_array_is_read_again_if_python_parsed_in_another_thread(tmp_path, monkeypatch):
    gm.GroundMetric(np.eye(2)).save(tmp_path / "metric.gm")
    read, calls = np.lib.format.read_array, []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) % 2:
            raise SystemError("AST constructor recursion depth mismatch")
        return read(*args, **kwargs)

    monkeypatch.setattr(np.lib.format, "read_array", interrupted)
    assert np.array_equal(gm.GroundMetric.load(tmp_path / "metric.gm").components, np.eye(2))


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    """Also if an attacker knows the temporary name."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".file.{'a' * 16}.part").symlink_to(tmp_path / "victim")
    monkeypatch.setattr(safe_files.secrets, "token_hex", lambda size: "a" * 16)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "file", [b"new"])
    assert (tmp_path / "victim").read_text() == "mine"


def test_names_cannot_be_guessed(tmp_path):
    assert len({safe_files.temporary_name(tmp_path / "file") for _ in range(100)}) == 100


def test_a_link_at_the_destination_is_replaced_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", [b"new"])
    assert (tmp_path / "target").read_text() == "mine"
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "new"


def test_a_folder_a_pipe_and_a_missing_folder_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Foreign):
        write_whole(tmp_path / "pipe", [b""])
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, [b""])
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "absent" / "file", [b""])
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_as_the_umask_says(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "file", [b""])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("name", ["ü" * 120, "x" * 250])
def test_a_long_name_leaves_room_for_that_of_the_half(tmp_path, name):
    write_whole(tmp_path / name, [b"new"])
    assert names(tmp_path) == [name]


def test_what_fails_half_way_leaves_the_old_file(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file") as file:  # noqa: PT012
        file.write(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_temporary_files_of_killed_processes_are_removed_after_a_day(tmp_path):
    old, new, second = (tmp_path / f".{name}.part" for name in (f"file.{'a' * 16}", f"file.{'b' * 16}", "mine"))
    for path in (old, new, second):
        path.touch()
    os.utime(old, (0, 0))
    os.utime(second, (0, 0))
    safe_files.remove_leftovers(tmp_path / "file")
    assert names(tmp_path) == sorted([new.name, second.name])


BEGINNING = b'{"format": "groundmetric thing", "version": '
PRECIOUS = [b"a,b\n1,2\n", b"x", b"hi\n", b'{"format": "other thing", "version": 1}', b"\x89HDF\r\n\x1a\n" + bytes(90)]


@pytest.mark.parametrize("content", PRECIOUS)
def test_what_somebody_else_wrote_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Foreign):
        refuse_foreign(tmp_path / "file", BEGINNING, "thing")
    with pytest.raises(Foreign):
        gm.GroundMetric.euclidean(2).save(tmp_path / "file")
    with pytest.raises(Foreign):
        write_csv(tmp_path / "file", ["one", "two"], [])
    assert (tmp_path / "file").read_bytes() == content
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("content", [b"", BEGINNING[:9], bytes(100), BEGINNING.replace(b"t", b"T", 1) + b"1}"])
def test_a_damaged_one_of_ours_may_be_replaced(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    refuse_foreign(tmp_path / "file", BEGINNING, "thing")


def test_an_older_metric_is_replaced(tmp_path):
    gm.GroundMetric.euclidean(2).save(tmp_path / "metric.gm")
    gm.GroundMetric.euclidean(3).save(tmp_path / "metric.gm")
    assert gm.GroundMetric.load(tmp_path / "metric.gm").n_features == 3


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1", "=a,b"]


def test_no_text_of_a_table_is_a_formula_and_numbers_stay_numbers(tmp_path):
    numbers = [-1.5, -3, np.float64(-0.1), np.float32(-0.1), np.int64(-7), 1e-300]
    write_csv(
        tmp_path / "t.csv", ["=name", "value"], [*([text, 0] for text in FORMULAS), *(["-1.5", x] for x in numbers)]
    )
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["'=name", "value"]
    assert [row[0] for row in rows] == [f"'{text}" for text in FORMULAS] + ["-1.5"] * len(numbers)
    assert [row[1] for row in rows[len(FORMULAS) :]] == ["-1.5", "-3", "-0.1", "-0.1", "-7", "1e-300"]


def test_missing_numbers_and_marks_in_a_table(tmp_path):
    write_csv(tmp_path / "t.csv", ["a", "b"], [[None, float("nan")], ['say "x"', "two\r\nlines"], ["gene, 1", True]])
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file))[1:] == [["", ""], ['say "x"', "two\r\nlines"], ["gene, 1", "True"]]


@pytest.mark.parametrize("module", ["groundmetric"])
def test_the_package_runs_as_a_module(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"groundmetric {gm.__version__}\n"), done.stderr


def test_an_archive_that_fails_without_a_message_is_named_with_the_kind_of_failure(tmp_path, monkeypatch):
    def fail(content):
        raise EOFError

    safe_files.write_arrays(tmp_path / "some.gm", "kind", 1, {}, {"values": np.zeros(2)})
    monkeypatch.setattr(safe_files, "_array", fail)
    with pytest.raises(Damaged, match=r"some\.gm' is damaged or not a kind: EOFError"):
        safe_files.read_arrays(tmp_path / "some.gm", "kind", 1)
