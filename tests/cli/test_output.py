"""Folders are written whole or not at all, and nothing is lost."""

import pytest

from groundmetric.cli.output import FINDINGS, aligned, new_folder


def write(path, text="new", **options):
    with new_folder(path, **{"force": False, **options}) as folder:
        (folder / FINDINGS).write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_all_is_done(tmp_path):
    path = tmp_path / "deep" / "run"
    with new_folder(path, force=False) as folder:
        (folder / FINDINGS).write_text("new")
        assert not path.exists()
    assert (path / FINDINGS).read_text() == "new"
    assert names(tmp_path / "deep") == ["run"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_what_failed(tmp_path, error):
    with pytest.raises(error), new_folder(tmp_path / "run", force=False) as folder:  # noqa: PT012
        (folder / "half").write_text("half")
        raise error
    assert names(tmp_path) == []


def test_an_earlier_run_is_replaced_by_force_only_and_kept_if_the_new_one_fails(tmp_path):
    write(tmp_path / "run", "old")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists: give another folder, or --force"):
        write(tmp_path / "run")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "run", force=True):
        1 / 0  # noqa: B018
    assert (tmp_path / "run" / FINDINGS).read_text() == "old"
    write(tmp_path / "run", force=True)
    assert (tmp_path / "run" / FINDINGS).read_text() == "new"
    assert names(tmp_path / "run") == [FINDINGS]
    assert names(tmp_path) == ["run"]


def test_what_is_no_run_is_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for force in (False, True):
        with pytest.raises(ValueError, match="is no earlier run: give another folder"):
            write(tmp_path / "thesis", force=force)
        with pytest.raises(ValueError, match="is a file: give a folder"):
            write(tmp_path / "file", force=force)
    assert names(tmp_path) == ["file", "thesis"]


def test_an_empty_folder_is_as_good_as_none(tmp_path):
    (tmp_path / "run").mkdir()
    write(tmp_path / "run")
    assert (tmp_path / "run" / FINDINGS).read_text() == "new"


def test_somebody_who_writes_there_meanwhile_is_not_overwritten(tmp_path):
    with pytest.raises(ValueError, match="exists"), new_folder(tmp_path / "run", force=False) as folder:  # noqa: PT012
        (folder / FINDINGS).write_text("slow")
        write(tmp_path / "run", "quick")
    assert (tmp_path / "run" / FINDINGS).read_text() == "quick"
    assert names(tmp_path) == ["run"]


def test_tables_are_aligned():
    assert aligned([["a", "long head"], ["longer", "b"]]).splitlines() == ["a       long head", "longer  b"]
