"""Cached tasks: an interrupted run continues where it stopped."""

import pytest

from groundmetric._internal.cache import CacheWarning
from paper.tasks import run_cached

ASKED = []


def square(x):
    ASKED.append(x)
    if x < 0:
        raise KeyboardInterrupt
    return {"square": x * x} if x else None


def ask(path, *numbers):
    ASKED.clear()
    tasks = {str(x): (square, (x,)) for x in numbers}
    return run_cached(tasks, path, n_jobs=1, title="squares", verbose=0)


def test_interrupted_tasks_go_on_where_they_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "kept", 1, 0, -1, 3)
    assert ask(tmp_path / "kept", 1, 0, 3) == {"1": {"square": 1}, "0": None, "3": {"square": 9}}
    assert ASKED == [3]


def test_answers_come_in_the_order_of_the_tasks(tmp_path):
    ask(tmp_path / "kept", 3)
    assert list(ask(tmp_path / "kept", 1, 3, 2)) == ["1", "3", "2"]


def test_a_damaged_answer_is_asked_again(tmp_path):
    ask(tmp_path / "kept", 1)
    content = (tmp_path / "kept").read_bytes()
    (tmp_path / "kept").write_bytes(content.replace(b'"square"', b'"sQuare"'))
    with pytest.warns(CacheWarning):
        assert ask(tmp_path / "kept", 1) == {"1": {"square": 1}}
    assert ASKED == [1]
