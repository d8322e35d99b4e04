"""The training loop: same seed, same bits; units do not matter; nothing learned is lost."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from groundmetric import Distributions, GroundMetricLearner, TransportKNeighborsClassifier, pairwise_distances
from groundmetric._internal.parallel import Threads
from groundmetric.datasets import make_modes, synth_2d
from groundmetric.learning import EarlyStopping, Nearest
from groundmetric.learning import objective as objective_module
from groundmetric.learning import training as training_module
from groundmetric.learning.objective import Adam, Objective, nearest_agreement
from groundmetric.learning.training import Training
from groundmetric.transport import Exact
from groundmetric.transport.problem import Masses

HELD_OUT = {"stopping": EarlyStopping(validation_fraction=0.2)}
SMALL = {"points_per_mode": 8, "offsets": (1.5, 7.5, 13.5, 19.5, 25.5)}
D, y = make_modes(4, 3.0, random_state=0, **SMALL)


def learner(**options):
    return GroundMetricLearner(**{"n_components": 2, "max_epochs": 8, "batch_size": 30, "random_state": 0, **options})


def relative_distances(cohort, metric):
    distances = pairwise_distances(cohort, metric=metric)
    return distances / distances.mean()


def test_adam_follows_its_known_sequence(monkeypatch):
    monkeypatch.setattr(objective_module, "_DECAY", (0.5, 0.75))
    monkeypatch.setattr(objective_module, "_EPSILON", 0.0)
    adam = Adam(0.1)
    W = adam.step(np.array([1.0, 1.0]), np.array([4.0, -0.01]))
    assert_allclose(W, [0.9, 1.1])
    # Means 0.5·(0.5·4) + 0.5·2 over 1 - 0.5², squares 0.75·(0.25·16) + 0.25·4 over 1 - 0.75²: (8/3) / sqrt(64/7).
    W = adam.step(W, np.array([2.0, 0.0]))
    assert_allclose(W[0], 0.9 - 0.1 * (8 / 3) / np.sqrt(64 / 7))
    assert_allclose(W[1], 1.1 + 0.1 * (0.0025 / 0.75) / np.sqrt(0.75 * 0.25e-4 / 0.4375))


def test_adam_takes_the_papers_first_step_whatever_the_gradients_scale():
    gradient = np.array([1e-3, -1e3, 1.0])
    assert_allclose(Adam(0.01).step(np.zeros(3), gradient), [-0.01, 0.01, -0.01], rtol=1e-4)
    assert_array_equal(Adam(0.01).step(np.ones(3), np.zeros(3)), 1.0)


@pytest.mark.parametrize("neighbors", ["random", "nearest"])
def test_the_same_seed_gives_the_same_bits(neighbors):
    first, repeated, second = (learner(neighbors=neighbors, random_state=seed).fit(D, y) for seed in (3, 3, 4))
    assert_array_equal(first.components_, repeated.components_)
    assert_array_equal(first.history_["loss"], repeated.history_["loss"])
    assert np.any(first.components_ != second.components_)


@pytest.mark.parametrize("options", [{}, {"neighbors": "nearest"}, {"n_components": 1}, HELD_OUT])
@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_equal_serial_bit_for_bit(options, n_jobs):
    serial, threaded = (learner(n_jobs=jobs, **options).fit(D, y) for jobs in (1, n_jobs))
    assert_array_equal(serial.components_, threaded.components_)
    for name in ("loss", "active", "solved", "saved", "pivots"):
        assert_array_equal(serial.history_[name], threaded.history_[name])


@pytest.mark.parametrize("memory", [0, 0.05])
def test_without_room_for_bases_the_same_is_learned(memory):
    assert_array_equal(learner(solver=Exact(memory=memory)).fit(D, y).components_, learner().fit(D, y).components_)


@pytest.mark.parametrize("init", ["discriminant", "random"])
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_units_do_not_matter(init, shift):
    units = np.array([1.0, 1e6, 1e-6, 1.0, 1e3])
    second = Distributions(D.points * units + shift * units, np.repeat(D.names, D.sizes))
    first, rescaled = learner(init=init).fit(D, y), learner(init=init).fit(second, y)
    assert_allclose(rescaled.metric_.importance(), first.metric_.importance(), atol=1e-6)
    distances, rescaled_distances = relative_distances(D, first.metric_), relative_distances(second, rescaled.metric_)
    assert_allclose(rescaled_distances, distances, rtol=1e-6, atol=1e-6)


def test_unsorted_groups_give_what_sorted_ones_give():
    shuffle = np.random.default_rng(0).permutation(D.points.shape[0])
    shuffled = Distributions(D.points[shuffle], np.repeat(D.names, D.sizes)[shuffle])
    shuffled = shuffled[[shuffled.names.index(name) for name in D.names]]
    assert_allclose(learner().fit(shuffled, y).components_, learner().fit(D, y).components_, rtol=1e-6, atol=1e-9)


def spy_on_evaluations(monkeypatch, see):
    evaluate = Objective.evaluate

    def spy(self, W, batch, *, gradient=True):
        see(self.triplets, W, batch, gradient)
        return evaluate(self, W, batch, gradient=gradient)

    monkeypatch.setattr(Objective, "evaluate", spy)


def test_a_held_out_part_is_watched_and_its_best_metric_is_kept(monkeypatch):
    watched = []
    spy_on_evaluations(monkeypatch, lambda triplets, W, batch, gradient: None if gradient else watched.append(W))
    options = {"stopping": EarlyStopping(0.0, 4, validation_fraction=0.3), "learning_rate": 0.3, "init": "random"}
    learned = learner(max_epochs=40, random_state=1, **options).fit(D, y)
    losses = learned.history_["validation_loss"]
    best = int(np.argmin(losses))
    assert learned.loss_ == losses[best]
    assert_allclose(learned.components_, watched[best] / D.points.std(axis=0), rtol=1e-9)
    assert learned.converged_
    assert len(losses) == best + 1 + 4


def test_without_a_held_out_part_there_is_no_held_out_loss():
    assert np.isnan(learner().fit(D, y).history_["validation_loss"]).all()


@pytest.mark.parametrize("neighbors", ["random", "nearest"])
def test_held_out_distributions_are_not_learned_from(monkeypatch, neighbors):
    learned_from, anchors = set(), set()

    def see(triplets, W, batch, gradient):
        if gradient:
            learned_from.update(np.concatenate([triplets.i[batch], triplets.j[batch], triplets.k[batch]]).tolist())
        else:
            anchors.update(triplets.j[batch].tolist())

    spy_on_evaluations(monkeypatch, see)
    learner(**HELD_OUT, n_neighbors=4, neighbors=neighbors).fit(D, y)
    assert np.bincount(y[sorted(learned_from)]).tolist() == [4, 4, 4]
    assert anchors == set(range(15)) - learned_from


def test_the_nearest_neighbours_teach_synth_2d():
    X, labels = synth_2d(random_state=0)
    learned = GroundMetricLearner(neighbors="nearest", max_epochs=10, random_state=0).fit(X[::2], labels[::2])
    classifier = TransportKNeighborsClassifier(metric=learned.metric_).fit(X[::2], labels[::2])
    assert learned.metric_.importance()[0] > 0.9
    assert classifier.score(X[1::2], labels[1::2]) == 1.0


def interrupt_after(monkeypatch, calls, method="evaluate"):
    """Ctrl-C in the middle of a call of the objective."""
    original, countdown = getattr(Objective, method), iter(range(calls))

    def interrupted(self, *arguments, **options):
        if next(countdown, None) is None:
            raise KeyboardInterrupt
        return original(self, *arguments, **options)

    monkeypatch.setattr(Objective, method, interrupted)


def fit_or_fail(**options):
    """A Ctrl-C that comes out of fit would end the whole test session."""
    try:
        return learner(**options).fit(D, y)
    except KeyboardInterrupt:
        pytest.fail("the interruption was raised by fit, and the learned metric is lost")


@pytest.mark.parametrize("options", [{}, HELD_OUT])
@pytest.mark.parametrize("calls", [0, 1, 23])
def test_an_interrupted_run_returns_what_was_learned(monkeypatch, calls, options):
    interrupt_after(monkeypatch, calls)
    with pytest.warns(ConvergenceWarning, match=r"interrupted after \d+ of 8 epochs"):
        learned = fit_or_fail(**options)
    assert np.isfinite(learned.components_).all()
    assert learned.n_iter_ == len(learned.history_["loss"]) <= 8
    assert not learned.converged_
    assert learned.transform(D).shape == (D.points.shape[0], 2)


def test_a_given_start_is_where_learning_starts():
    W = np.random.default_rng(0).normal(size=(2, 5))
    stays = learner(init=W, learning_rate=1e-12, max_epochs=1).fit(D, y)
    assert_allclose(stays.components_, W, rtol=1e-6)
    moves = learner(init=W).fit(D, y)
    assert np.abs(moves.components_ - W).max() > 1e-3


class Shrink:
    def value(self, W):
        return float(np.sum(W**4))

    def gradient(self, W):
        return 4 * W**3


@pytest.mark.parametrize("penalty", ["l2", "l2_squared", "l1", "group", "nuclear", Shrink(), None])
def test_every_penalty_trains_and_its_strength_counts(penalty):
    weak, strong = (
        learner(penalty=penalty, strength=strength, stopping=EarlyStopping(tol=0.0)).fit(D, y)
        for strength in (0.0, 0.5)
    )
    assert np.isfinite(strong.components_).all()
    assert (strong.history_["penalty"] > 0).all() == (penalty is not None)
    size = [np.linalg.norm(learned.components_) for learned in (strong, weak)]
    assert size[0] < size[1] if penalty is not None else size[0] == size[1]


@pytest.mark.parametrize("penalty", ["l1", "group"])
def test_a_penalty_that_leaves_nothing_says_so(penalty):
    with pytest.warns(ConvergenceWarning, match="set the whole metric to 0"):
        learned = learner(penalty=penalty, strength=5.0).fit(D, y)
    assert_array_equal(learned.components_, 0.0)


def test_an_early_stop_says_that_the_loss_stopped_falling():
    patient, hasty = (
        learner(max_epochs=n, stopping=EarlyStopping(*s)).fit(D, y) for n, s in ((8, (0.0,)), (60, (0.5, 2)))
    )
    assert (patient.n_iter_, patient.converged_) == (8, False)
    assert hasty.n_iter_ < 60
    assert hasty.converged_


def test_learning_stops_when_all_triplets_hold_and_nothing_shrinks_the_metric():
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [100.0, 0.0], [101.0, 0.0]], 2, axis=0)
    done = learner(penalty=None, margin=0.1).fit(points, [0] * 4 + [1] * 4)
    assert (done.n_iter_, done.converged_) == (1, True)
    assert done.history_["active"].tolist() == [0.0]


@pytest.mark.parametrize("options", [{}, HELD_OUT, {"neighbors": Nearest(refresh=2)}])
def test_history_has_an_entry_per_epoch(options):
    learned = learner(**options).fit(D, y)
    assert {len(values) for values in learned.history_.values()} == {learned.n_iter_}
    assert {"loss", "active", "solved", "saved", "pivots", "validation_loss"} <= set(learned.history_)
    assert np.all((learned.history_["active"] >= 0) & (learned.history_["active"] <= 1))


def test_learning_lowers_the_loss():
    loss = learner(max_epochs=20).fit(D, y).history_["loss"]
    assert loss[-1] < 0.5 * loss[0]


def test_late_steps_settle(monkeypatch):
    path = []
    spy_on_evaluations(monkeypatch, lambda triplets, W, batch, gradient: path.append(W))
    learner(max_epochs=20, stopping=EarlyStopping(tol=0.0)).fit(D, y)
    steps = np.abs(np.diff(path, axis=0)).max(axis=(1, 2))
    assert steps[-5:].max() < 0.1 * steps[:5].min()


def restarts(monkeypatch, agreements, **options):
    """Learn with these agreements; return the learner and the `refresh` of each run."""
    shares, runs, begin = iter(agreements), [], Training._begin

    def spy(self, refresh):
        runs.append(refresh)
        begin(self, refresh)

    monkeypatch.setattr(training_module, "nearest_agreement", lambda *arguments, **named: next(shares))
    monkeypatch.setattr(Training, "_begin", spy)
    return learner(**options).fit(D, y), runs


def test_a_metric_that_does_not_separate_the_classes_is_learned_again_with_nearest_neighbours(monkeypatch):
    learned, runs = restarts(monkeypatch, [0.4, 1.0])
    assert runs == [None, 5]
    assert learned.n_iter_ == 8
    assert learned.metric_.importance().sum() == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{"neighbors": "random"}, {"neighbors": "nearest"}, {"target": "ordered"}])
def test_only_classes_with_automatic_neighbours_are_learned_again(monkeypatch, options):
    assert len(restarts(monkeypatch, [], **options)[1]) == 1


def test_a_separating_metric_is_that_of_random_neighbours(monkeypatch):
    learned, runs = restarts(monkeypatch, [0.6])
    assert runs == [None]
    assert_array_equal(learned.components_, learner(neighbors="random").fit(D, y).components_)


def test_satisfied_triplets_without_separation_give_a_warning(monkeypatch):
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [100.0, 0.0], [101.0, 0.0]], 2, axis=0)
    monkeypatch.setattr(training_module, "nearest_agreement", lambda *arguments, **named: 0.25)
    with pytest.warns(ConvergenceWarning, match="only 25% of the training distributions are nearest to one of"):
        learner(penalty=None, margin=0.1).fit(points, [0] * 4 + [1] * 4)


def test_the_agreement_is_the_leave_one_out_accuracy_of_the_nearest_neighbour():
    codes = np.array([0, 0, 1, 1, 1, 2])  # the single distribution of class 2 is not an anchor
    z = np.array([[0.0], [1.0], [1.5], [5.0], [6.0], [0.2]])
    cohort = Distributions(z, np.arange(6))
    assert nearest_agreement(Masses.of(cohort), z, codes, Threads(1)) == pytest.approx(2 / 5)


def test_groups_are_not_divided_by_the_held_out_distributions(monkeypatch):
    anchors, groups = set(), np.arange(15) // 2
    spy_on_evaluations(
        monkeypatch, lambda t, W, batch, gradient: None if gradient else anchors.update(t.j[batch].tolist())
    )
    learner(**HELD_OUT).fit(D, y, groups=groups)
    held_out = np.isin(np.arange(15), sorted(anchors))
    assert 0 < held_out.sum() < 15
    assert all(np.unique(held_out[groups == group]).size == 1 for group in groups)
    assert np.all(np.bincount(y[~held_out]) >= 2)
