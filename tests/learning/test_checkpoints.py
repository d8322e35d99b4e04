"""A resumed run equals an unbroken one, and no accident gives a wrong result."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import groundmetric as gm
from groundmetric._internal import files as array_files
from groundmetric._internal import files as safe_files
from groundmetric.learning import Checkpoint, EarlyStopping, Nearest
from groundmetric.learning import checkpoint as checkpoint_files
from groundmetric.learning import training as training_module
from groundmetric.learning.checkpoint import Checkpoints, belonging
from groundmetric.learning.labels import OrderedTarget, Supervision
from groundmetric.learning.training import Training

OPTIONS = {
    "plain": {},
    "lasso, validation": {
        "penalty": "l1",
        "batch_size": 20,
        "stopping": EarlyStopping(validation_fraction=0.3, patience=2),
    },
    "nearest": {"neighbors": Nearest(refresh=2)},
    "diagonal": {"form": "diagonal"},
    "little memory": {"solver": gm.transport.Exact(memory=0.004)},
    "one component": {"n_components": 1},
    "restart": {},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(12), 10), np.arange(12) % 3
    return gm.Distributions(rng.normal(size=(120, 4)) + 0.5 * np.eye(4)[y][owner], owner), y


class Stopped(Exception):
    """A simulated power cut."""


def learner(path=None, every=0.0, **options):
    options = {"max_epochs": 4, "batch_size": 40, "n_neighbors": 2, "random_state": 0, **options}
    return gm.GroundMetricLearner(checkpoint=None if path is None else Checkpoint(path, every=every), **options)


def stop_after(monkeypatch, n_writes):
    """Simulate a power cut after `n_writes` checkpoints."""
    inner, count = Checkpoints.write, [0]

    def write(self, state):
        inner(self, state)
        count[0] += 1
        if count[0] == n_writes:
            raise Stopped

    monkeypatch.setattr(Checkpoints, "write", write)
    return count


def stopped_run(path, data, n_writes, **options):
    """Learning that ends with a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, n_writes)
        with pytest.raises(Stopped):
            learner(path, **options).fit(*data)


def assert_same(single, second):
    assert_array_equal(single.components_, second.components_)
    assert single.n_iter_ == second.n_iter_
    assert single.converged_ == second.converged_
    assert single.loss_ == second.loss_
    assert list(single.history_) == list(second.history_)
    for name, values in single.history_.items():
        if not name.startswith("seconds"):
            assert_array_equal(values, second.history_[name])
            assert values.dtype == second.history_[name].dtype


@pytest.mark.parametrize("name", OPTIONS)
def test_stopped_anywhere_it_goes_on_to_the_same_result(tmp_path, monkeypatch, data, name):
    if name == "restart":  # learn again with nearest neighbours in any case
        monkeypatch.setattr(training_module, "MIN_AGREEMENT", 2.0)
    unbroken = learner(**OPTIONS[name]).fit(*data)
    with pytest.MonkeyPatch.context() as patch:
        count = stop_after(patch, -1)
        assert_same(learner(tmp_path / "whole", **OPTIONS[name]).fit(*data), unbroken)
    assert count[0] > unbroken.n_iter_  # within epochs, too
    for n_writes in range(1, count[0] + 1, 2 if name == "plain" else 5):
        path = tmp_path / str(n_writes)
        stopped_run(path, data, n_writes, **OPTIONS[name])
        assert_same(learner(path, **OPTIONS[name]).fit(*data), unbroken)


def test_a_finished_run_is_not_done_again(tmp_path, monkeypatch, data):
    first = learner(tmp_path / "c").fit(*data)
    count = stop_after(monkeypatch, -1)
    assert_same(learner(tmp_path / "c").fit(*data), first)
    assert count == [0]


def test_without_a_seed_a_stopped_run_goes_on_as_it_began(tmp_path, monkeypatch, data):
    options = {"random_state": None, "stopping": EarlyStopping(validation_fraction=0.3)}
    stopped_run(tmp_path / "c", data, 3, **options)
    content = (tmp_path / "c").read_bytes()
    single = learner(tmp_path / "c", **options).fit(*data)
    (tmp_path / "c").write_bytes(content)
    assert_same(learner(tmp_path / "c", **options).fit(*data), single)


def other_data(D, y):
    return gm.Distributions(np.where(np.arange(120)[:, None] == 7, 0.0, D.points), np.repeat(np.arange(12), 10)), y


@pytest.mark.parametrize(
    ("cause", "change"),
    [
        ("data", lambda D, y: (learner, *other_data(D, y))),
        ("labels", lambda D, y: (learner, D, y[::-1])),
        ("parameters", lambda D, y: (lambda path: learner(path, strength=0.2), D, y)),
        ("parameters", lambda D, y: (lambda path: learner(path, random_state=1), D, y)),
        ("parameters", lambda D, y: (lambda path: learner(path, cost="manhattan"), D, y)),
        ("labels and parameters", lambda D, y: (lambda path: learner(path, class_weight="balanced"), D, y)),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path, data, cause, change):
    learner(tmp_path / "c").fit(*data)
    content = (tmp_path / "c").read_bytes()
    make, D, y = change(*data)
    with pytest.raises(ValueError, match=f"checkpoint of other {cause}"):
        make(tmp_path / "c").fit(D, y)
    assert (tmp_path / "c").read_bytes() == content


def test_jobs_and_time_may_change(tmp_path, data):
    stopped_run(tmp_path / "c", data, 3)
    repeated = clone(learner(tmp_path / "c", every=3.0, n_jobs=2)).fit(*data)
    assert_same(repeated, learner().fit(*data))


def damage(path, how, random):
    content = path.read_bytes()
    position = int(random.integers(len(content)))
    if how == "cut":
        path.write_bytes(content[:position])
    elif how == "flipped":
        path.write_bytes(
            content[:position] + bytes([content[position] ^ (1 << int(random.integers(8)))]) + content[position + 1 :]
        )
    else:
        path.write_bytes(b"")


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, data, how):
    unbroken, random = learner().fit(*data), np.random.default_rng(0)
    for repeat in range(3):
        path = tmp_path / f"c{repeat}"
        stopped_run(path, data, 4)
        damage(path, how, random)
        with pytest.warns(RuntimeWarning, match="damaged.*checkpoint before it"):
            assert_same(learner(path).fit(*data), unbroken)


def test_a_flipped_bit_of_any_byte_of_the_header_is_seen(tmp_path):
    path = tmp_path / "c"
    checkpoints = Checkpoints(path, 0.0, {"data": "these"})
    for _ in range(2):
        checkpoints.write({"number": 1, "array": np.arange(3)})
    content = path.read_bytes()
    for position in range(content.index(b"\n") + 1):
        for bit in (0, 5):  # bit 5 changes the case of a letter
            path.write_bytes(content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :])
            with pytest.warns(RuntimeWarning, match="damaged"):
                assert checkpoints.load()["number"] == 1


def test_if_both_are_damaged_learning_starts_anew_and_says_so(tmp_path, data):
    path, random = tmp_path / "c", np.random.default_rng(0)
    unbroken = learner(path).fit(*data)
    for subset in (path, tmp_path / "c.before"):
        damage(subset, "flipped", random)
    with pytest.warns(RuntimeWarning, match="starts anew"):
        assert_same(learner(path).fit(*data), unbroken)


def test_killed_between_the_two_renames_the_one_before_is_there(tmp_path, data):
    stopped_run(tmp_path / "c", data, 4)
    os.replace(tmp_path / "c", tmp_path / "c.before")
    assert_same(learner(tmp_path / "c").fit(*data), learner().fit(*data))


def test_a_full_disk_is_told_once_and_learning_goes_on(tmp_path, data, monkeypatch):
    unbroken, path = learner().fit(*data), tmp_path / "c"
    stopped_run(path, data, 4)
    content = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patch.setattr(safe_files.os, "fsync", full)
        assert_same(learner(path).fit(*data), unbroken)
    assert ["No space left" in str(warning.message) for warning in warned] == [True]
    assert path.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["c", "c.before"]
    assert_same(learner(path).fit(*data), unbroken)


def test_halves_that_killed_processes_left_are_removed(tmp_path, data):
    leftover = tmp_path / ".c.0123456789abcdef.part"
    leftover.write_text("half a checkpo")
    os.utime(leftover, (0, 0))  # older than a day: no process is writing it
    learner(tmp_path / "c").fit(*data)
    assert not leftover.exists()


def test_a_newer_format_and_a_folder_are_refused(tmp_path, data):
    path = tmp_path / "c"
    array_files.write_arrays(path, "groundmetric checkpoint", 99, {}, {})
    with pytest.raises(ValueError, match="version 99"):
        learner(path).fit(*data)
    with pytest.raises(ValueError, match="folder"):
        learner(tmp_path).fit(*data)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_checkpoint_of_an_older_version_is_refused_with_what_to_do_and_stays(tmp_path, data, version):
    path = tmp_path / "c"
    stopped_run(path, data, 3)
    description, arrays = array_files.read_arrays(path, checkpoint_files._KIND, checkpoint_files._VERSION)
    array_files.write_arrays(path, checkpoint_files._KIND, version, description, arrays)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=rf"c' has format version {version}.*reads 6.*delete it to start anew"):
        learner(path).fit(*data)
    assert path.read_bytes() == content


def test_digests_of_labels_do_not_depend_on_what_was_computed_from_them(data):
    D, _ = data
    fresh, used = (Supervision.of(OrderedTarget.of(np.arange(12.0))) for _ in range(2))
    assert used.targets[0].levels.size == 12  # which the target remembers
    assert belonging(D, fresh, []) == belonging(D, used, [])
    assert belonging(D, fresh, [])["labels"] != belonging(D, Supervision.of(np.arange(12) % 3), [])["labels"]


PRECIOUS = [b"a,b\n1,2\n", b"\x89HDF\r\n\x1a\n" + bytes(90), b'{"format": "groundmetric.GroundMetric", "version": 3}']


@pytest.mark.parametrize("content", PRECIOUS)
@pytest.mark.parametrize("name", ["c", "c.before"])
def test_what_is_no_checkpoint_is_not_replaced(tmp_path, data, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}' exists and is not a groundmetric checkpoint: it would be lost"):
        learner(tmp_path / "c").fit(*data)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == content


def test_what_somebody_puts_there_meanwhile_is_not_replaced_and_learning_goes_on(tmp_path, data):
    inner = Checkpoints.write

    def write(self, state):
        self.path.write_text("mine")
        inner(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "write", write)
        with pytest.warns(RuntimeWarning, match=r"no checkpoint could be written.*it would be lost.*learning goes on"):
            assert_same(learner(tmp_path / "c").fit(*data), learner().fit(*data))
    assert (tmp_path / "c").read_text() == "mine"
    assert os.listdir(tmp_path) == ["c"]


def interrupted(path, data, *, times=1, **options):
    """Learn with `times` signals during the third step, while no checkpoint is due."""
    inner, count, before = Training.step, [0], signal.getsignal(signal.SIGINT)

    def step(self):
        count[0] += 1
        if count[0] == 3:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return inner(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "step", step)
        with pytest.warns(UserWarning, match="interrupted"):
            result = learner(path, every=60.0, **options).fit(*data)
    assert signal.getsignal(signal.SIGINT) is before
    return result


def test_an_interruption_waits_for_the_end_of_the_step_and_the_state_is_written(tmp_path, data):
    interrupted(tmp_path / "c", data)
    assert (tmp_path / "c").exists()
    assert_same(learner(tmp_path / "c").fit(*data), learner().fit(*data))


def test_a_second_interruption_acts_at_once(tmp_path, data):
    interrupted(tmp_path / "c", data, times=2)
    assert not (tmp_path / "c").exists()


def test_interrupted_by_the_user_the_last_checkpoint_stays_good(tmp_path, data, monkeypatch):
    inner, count = Checkpoints.write, [0]

    def write(self, state):
        inner(self, state)
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "write", write)
        with pytest.warns(UserWarning, match="interrupted"):
            learner(tmp_path / "c").fit(*data)
    assert_same(learner(tmp_path / "c").fit(*data), learner().fit(*data))


def test_killed_at_random_moments_it_ends_with_the_same_result(tmp_path, data):
    """End the process without cleanup while steps are made and checkpoints written; a timer of the process does so."""
    script = textwrap.dedent("""
        import signal
        import sys
        import numpy as np
        import groundmetric as gm
        from groundmetric.learning.checkpoint import Checkpoints
        seconds, write = float(sys.argv[2]), Checkpoints.write
        def write_and_start_timer(self, state):
            global seconds
            write(self, state)
            if seconds:
                signal.setitimer(signal.ITIMER_REAL, seconds)  # the kernel ends the process
                seconds = 0.0
        Checkpoints.write = write_and_start_timer
        rng = np.random.default_rng(0)
        owner, y = np.repeat(np.arange(12), 10), np.arange(12) % 3
        D = gm.Distributions(rng.normal(size=(120, 4)) + 0.5 * np.eye(4)[y][owner], owner)
        gm.GroundMetricLearner(max_epochs=300, stopping=gm.learning.EarlyStopping(tol=0.0),
                               batch_size=40, n_neighbors=2, random_state=0,
                               checkpoint=gm.learning.Checkpoint(sys.argv[1], every=0.0)).fit(D, y)
    """)
    path, random = tmp_path / "c", np.random.default_rng(0)
    for _ in range(2):
        arguments = [str(path), str(random.uniform(1e-3, 0.15))]
        child = subprocess.run([sys.executable, "-c", script, *arguments], check=False)
        assert child.returncode == -signal.SIGALRM
    options = {"max_epochs": 300, "stopping": EarlyStopping(tol=0.0)}
    resumed = learner(path, every=60.0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert_same(resumed.fit(*data), learner(**options).fit(*data))
