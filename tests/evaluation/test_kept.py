"""What was answered is not asked again."""

import pytest

from groundmetric.evaluation._kept import finish

ASKED = []


def square(x):
    ASKED.append(x)
    if x < 0:
        raise KeyboardInterrupt
    return {"square": x * x}


def ask(folder, *numbers):
    ASKED.clear()
    tasks = {str(x): (square, (x,)) for x in numbers}
    return finish(tasks, folder, n_jobs=1, title="squares", verbose=0)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, 1, 2, -1, 3)
    assert ask(tmp_path, 1, 2, 3) == {"1": {"square": 1}, "2": {"square": 4}, "3": {"square": 9}}
    assert ASKED == [3]


def test_answers_come_in_the_order_of_the_tasks(tmp_path):
    ask(tmp_path, 3)
    assert list(ask(tmp_path, 1, 3, 2)) == ["1", "3", "2"]


def test_a_damaged_file_counts_as_no_answer(tmp_path):
    ask(tmp_path, 1)
    (file,) = tmp_path.iterdir()
    file.write_text('{"squa')
    assert ask(tmp_path, 1) == {"1": {"square": 1}}
    assert ASKED == [1]
