"""The cache returns written values or none, also after damage, and never changes files of other programs."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import textwrap
import warnings

import pytest

from groundmetric._internal import cache as caching
from groundmetric._internal.cache import Cache, CacheWarning, cache_files, is_cache, remove_cache
from groundmetric._internal.files import Damaged, Foreign


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some" / "folder" / "cache"


def test_entries_are_read_by_any_cache_of_the_file(path):
    first, second = Cache(path), Cache(path)
    assert first.get([b"a"]) == {}
    assert len(first) == 0
    first.put({b"a": b"1"})
    second.put({b"b": b"", b"": b"3"})
    first.put({b"a": b"4"})
    assert Cache(path).get([b"a", b"b", b"", b"c", b"a"]) == {b"a": b"4", b"b": b"", b"": b"3"}
    assert len(first) == 3
    assert os.listdir(path.parent) == ["cache"]


def test_nothing_is_made_before_the_first_entry(path):
    cache = Cache(path)
    cache.get([b"a"])
    cache.put({})
    assert not path.parent.exists()


def test_many_keys_at_once(path):
    entries = {str(i).encode(): bytes([i % 256]) * i for i in range(1201)}
    Cache(path).put(entries)
    assert Cache(path).get(entries) == entries


def test_plain_data_by_name(path):
    cache = Cache(path)
    assert cache.get_json("x") is None
    cache.put_json("x", {"a": [1.5, None, "é"]})
    assert cache.get_json("x") == {"a": [1.5, None, "é"]}


def test_a_damaged_value_is_left_out_and_can_be_written_again(path):
    cache = Cache(path)
    cache.put({b"one": b"first value", b"other": b"second value"})
    path.write_bytes(path.read_bytes().replace(b"first value", b"fIrst value"))
    with pytest.warns(CacheWarning, match="held 1 damaged entry"):
        assert cache.get([b"one", b"other"]) == {b"other": b"second value"}
    cache.put({b"one": b"first value"})
    assert cache.get([b"one"]) == {b"one": b"first value"}


def test_a_value_under_the_key_of_another_is_left_out(path):
    cache = Cache(path)
    cache.put({b"key 1": b"first value", b"key 2": b"second value"})
    content = path.read_bytes()
    path.write_bytes(content.replace(b"key 1", b"key 0"))
    with pytest.warns(CacheWarning):
        assert cache.get([b"key 0"]) == {}


@pytest.mark.parametrize("size", [1, 15, 16, 50, 99, 4096])
def test_a_file_that_is_cut_short_is_an_error_that_names_it(path, size):
    Cache(path).put({b"a": b"1"})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(Damaged):
        Cache(path).get([b"a"])


@pytest.mark.parametrize("size", [100, 512, 5000, 8000])
def test_a_file_that_is_cut_short_within_a_page_gives_no_wrong_value(path, size):
    entries = {bytes([i]): bytes(100) for i in range(20)}
    Cache(path).put(entries)
    path.write_bytes(path.read_bytes()[:size])
    result = {}
    with contextlib.suppress(Damaged), warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        result = Cache(path).get(entries)
    assert result.items() < entries.items()


def test_an_empty_file_and_one_without_a_table_hold_nothing(path):
    """Such files are left by processes that were killed at their first entry."""
    path.parent.mkdir(parents=True)
    path.touch()
    assert Cache(path).get([b"a"]) == {}
    with sqlite3.connect(path, isolation_level=None) as database:
        database.execute(f"PRAGMA application_id = {caching._APPLICATION}")
    database.close()
    assert Cache(path).get([b"a"]) == {}
    Cache(path).put({b"a": b"1"})
    assert Cache(path).get([b"a"]) == {b"a": b"1"}


def _database(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE entries (mine)")
    database.close()
    return path.read_bytes()


@pytest.mark.parametrize("foreign", [b"a letter to my mother", None])
def test_a_file_of_somebody_else_is_refused_and_left_alone(tmp_path, foreign):
    path = tmp_path / "mine"
    if foreign is None:
        foreign = _database(path)
    path.write_bytes(foreign)
    with pytest.raises(Foreign):
        Cache(path)
    with pytest.raises(Foreign):
        remove_cache(path)
    assert not is_cache(path)
    assert path.read_bytes() == foreign
    assert os.listdir(tmp_path) == ["mine"]


def test_what_somebody_puts_there_meanwhile_is_left_alone(tmp_path):
    cache, mine = Cache(tmp_path / "c"), b"a file of mine, with more than a hundred bytes in it\n" * 3
    (tmp_path / "c").write_bytes(mine)
    with pytest.warns(CacheWarning):
        cache.put({b"a": b"1"})
    assert (tmp_path / "c").read_bytes() == mine


def test_what_is_no_ordinary_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="resume is the folder"):
        Cache(tmp_path, "resume")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Foreign):
        Cache(tmp_path / "pipe")


def test_a_cache_that_cannot_be_written_warns_once(path, monkeypatch):
    cache = Cache(path)
    cache.put({b"a": b"1"})
    monkeypatch.setattr(caching, "_TIMEOUT", 0.0)
    with sqlite3.connect(path, isolation_level=None) as busy:
        busy.execute("BEGIN IMMEDIATE")
        with pytest.warns(CacheWarning):
            cache.put({b"b": b"2"})
        cache.put({b"b": b"2"})
        assert cache.get([b"a", b"b"]) == {b"a": b"1"}
        busy.execute("ROLLBACK")
    busy.close()
    assert Cache(path).get([b"a", b"b"]) == {b"a": b"1"}


def test_a_process_killed_within_a_write_leaves_the_entries_before_it(path):
    """The journal that it leaves takes the file back."""
    script = textwrap.dedent("""
        import os, signal, sqlite3, sys
        database = sqlite3.connect(sys.argv[1], isolation_level=None)
        database.execute("PRAGMA cache_size = 1")  # writes changed pages to the file early
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE entries SET value = zeroblob(3000)")
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    entries = {str(i).encode(): bytes(100) for i in range(300)}
    Cache(path).put(entries)
    before = path.read_bytes()
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert path.read_bytes() != before
    assert sorted(os.listdir(path.parent)) == sorted(cache_files(path))
    assert Cache(path).get(entries) == entries


def test_two_processes_lose_nothing(path):
    script = textwrap.dedent("""
        import sys
        from groundmetric._internal.cache import Cache
        cache = Cache(sys.argv[1])
        for i in range(50):
            cache.put({f"{sys.argv[2]} {i}".encode(): b"x" * i})
    """)
    children = [subprocess.Popen([sys.executable, "-W", "error", "-c", script, str(path), name]) for name in "ab"]
    assert [child.wait() for child in children] == [0, 0]
    keys = [f"{name} {i}".encode() for name in "ab" for i in range(50)]
    assert {key: len(value) for key, value in Cache(path).get(keys).items()} == dict(
        zip(keys, [*range(50)] * 2, strict=True)
    )


def test_a_cache_is_removed_with_its_journal_and_when_damaged(path):
    Cache(path).put({b"a": b"1"})
    assert is_cache(path)
    path.with_name("cache-journal").touch()
    remove_cache(path)
    assert os.listdir(path.parent) == []
    remove_cache(path)
    path.write_bytes(b"SQLite for")
    remove_cache(path)
    assert not path.exists()
