"""Every figure shows its input."""

import numpy as np
import pytest
from matplotlib.colors import same_color, to_rgba
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric import pl
from groundmetric.interpret.axes import classical_scaling, metric_scaling, order_by_class, stress_of
from groundmetric.pl.style import COLOURS

from .shown import BROAD, DISTANCES, FLAT, HISTORY, LINE, POSITIONS, D, y


def test_points_are_points_of_the_data_in_their_class_colour(ax):
    marks = pl.points(D, y, ax=ax, n=20).collections[0]
    shown = np.asarray(marks.get_offsets())
    assert len(shown) == 20
    rows = cdist(shown, D.points).argmin(axis=1)
    assert_allclose(D.points[rows], shown)
    labels = np.repeat(y, D.sizes)[rows]
    assert all(
        same_color(to_rgba(COLOURS[c]), (*colour[:3], 1))
        for c, colour in zip(labels, marks.get_facecolor(), strict=True)
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["class 0", "class 1", "class 2"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("signal", "noise 1")


def test_points_of_sparse_data_and_other_features(ax):
    thin = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(D.names, D.sizes))
    with pytest.raises(ValueError, match="features holds 'absent': there are 2 features"):
        pl.points(D, y, ax=ax, features=("signal", "absent"))
    assert pl.points(D, y, features=("noise 1", "signal")).get_xlabel() == "noise 1"
    marks = pl.points(thin, y, ax=ax, features=(1, 0), n=10_000).collections[0]
    assert len(marks.get_offsets()) == len(D.points)
    assert_allclose(np.sort(np.asarray(marks.get_offsets())[:, 0]), np.sort(D.points[:, 1]))
    assert ax.get_xlabel() == "feature 1"


def test_projection_keeps_the_distances_of_the_learned_space(ax):
    marks = pl.projection(BROAD, D, y, ax=ax, n=10_000).collections[0]
    drawn, learned = np.asarray(marks.get_offsets()), BROAD.project(D)
    assert_allclose(np.sort(cdist(drawn, drawn), axis=None), np.sort(cdist(learned, learned), axis=None), atol=1e-9)


def test_projection_on_a_line_counts_every_point(ax):
    pl.projection(LINE, D, y, ax=ax)
    outlines = [patch.get_path().vertices for patch in ax.patches if not patch.get_fill()]
    counted = sum(np.sum(v[1:-1:2, 1]) for v in outlines)
    assert len(outlines) == 3
    assert counted == len(D.points)
    assert "100% of variance" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("metric", "variances", "width", "height", "angle"),
    [
        (FLAT, None, 2.0, 1.0, 0.0),
        (FLAT, (1.0, 16.0), 2.0, 1.0, 90.0),
        (LINE, None, 2.0, 0.0, 0.0),
        (gm.GroundMetric([[1.0, 1.0]]), None, 2.0, 0.0, 45.0),
        (gm.GroundMetric.euclidean(2), None, 2.0, 2.0, None),
    ],
)
def test_ellipse_has_the_axes_of_the_matrix(ax, metric, variances, width, height, angle):
    drawn = pl.ellipse({"it": metric}, ax=ax, variances=variances).patches[-1]
    assert drawn.get_label() == "it"
    assert_allclose((drawn.width, drawn.height), (width, height), atol=1e-7)
    assert angle is None or drawn.angle % 180 == pytest.approx(angle)


def test_ellipse_needs_two_features(ax):
    with pytest.raises(ValueError, match="'wide' has 3 features"):
        pl.ellipse({"wide": gm.GroundMetric.euclidean(3)}, ax=ax)


def test_heatmap_shows_the_distances_in_the_order_of_its_names(ax):
    pl.heatmap(DISTANCES, y, ax=ax, names=np.arange(len(D)))
    order = np.array([int(text.get_text()) for text in ax.get_yticklabels()])
    assert_array_equal(ax.images[0].get_array(), DISTANCES[np.ix_(order, order)])
    assert_array_equal(order, order_by_class(DISTANCES, y))
    assert_array_equal(y[order], np.sort(y))
    off_diagonal = DISTANCES[~np.eye(len(D), dtype=bool)]
    assert ax.images[0].get_clim() == (off_diagonal.min(), off_diagonal.max())


def test_heatmap_marks_each_class_along_its_rows(ax):
    unequal = np.array([2, 2, 2, 2, 2, 0, 0, 0, 1, 1, 1, 1])
    strips = [patch for patch in pl.heatmap(DISTANCES, unequal, ax=ax).patches if patch.get_x() != int(patch.get_x())]
    strips = [strip for strip in strips if strip.get_width() < 0.5]  # those along the left side
    assert [(strip.get_y(), strip.get_height()) for strip in strips] == [(-0.5, 3.0), (2.5, 4.0), (6.5, 5.0)]
    assert [same_color(strip.get_facecolor(), COLOURS[c]) for c, strip in enumerate(strips)] == [True] * 3


def test_clustered_heatmap_follows_the_tree_whatever_the_classes(ax):
    line = np.array([0.0, 9.0, 1.0, 8.0, 0.5])
    distances = np.abs(np.subtract.outer(line, line))
    pl.heatmap(distances, ["a", "a", "b", "b", "c"], ax=ax, names=range(5), order="clusters")
    order = [int(text.get_text()) for text in ax.get_yticklabels()]
    assert order in ([0, 4, 2, 3, 1], [1, 3, 2, 4, 0])
    assert_array_equal(ax.images[0].get_array(), distances[np.ix_(order, order)])
    (branches,) = ax.child_axes[0].collections
    assert sorted(max(up) for up in (branch[:, 1] for branch in branches.get_segments())) == [0.5, 0.75, 1.0, 8.0]


def test_heatmap_of_two_labellings_gives_no_colour_two_meanings(ax):
    sides = np.where(POSITIONS[:, 0] > 0, "right", "left")
    legend = pl.heatmap(DISTANCES, {"class": y, "side": sides}, ax=ax).get_legend()
    entries = {text.get_text(): handle for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)}
    assert {"class:", "side:", "class 0", "class 1", "class 2", "left", "right"} <= set(entries)
    classes = ["class 0", "class 1", "class 2", "left", "right"]
    assert len({entries[name].get_facecolor() for name in classes}) == 5


def test_heatmap_leaves_out_names_that_have_no_room():
    positions = np.random.RandomState(0).normal(size=(100, 2))
    ax = pl.heatmap(cdist(positions, positions), np.repeat([0, 1], 50), names=range(100))
    assert ax.get_yticklabels() == []
    assert ax.get_ylabel() == "100 distributions"


def test_heatmap_knows_two_orders(ax):
    with pytest.raises(ValueError, match="order is 'size': expected 'classes' or 'clusters'"):
        pl.heatmap(DISTANCES, y, ax=ax, order="size")


def test_arrange_puts_near_ones_side_by_side_and_classes_in_one_direction():
    line = np.array([3.0, 0.0, 2.0, 1.0, 0.1, 2.1, 3.1, 1.1])
    order = order_by_class(np.abs(np.subtract.outer(line, line)), np.repeat(["a", "b"], 4))
    steps = np.sign(np.diff(line[order].reshape(2, 4), axis=1))
    assert len(np.unique(steps)) == 1


@pytest.mark.parametrize("scaling", [classical_scaling, metric_scaling])
def test_scaling_recovers_positions_in_the_plane(scaling):
    positions = scaling(DISTANCES)
    assert_allclose(cdist(positions, positions), DISTANCES, atol=1e-4)
    assert stress_of(positions, DISTANCES) < 1e-4
    assert_allclose(scaling(np.zeros((3, 3))), np.zeros((3, 2)))
    assert scaling(np.zeros((1, 1))).shape == (1, 2)
    assert_allclose(np.abs(np.diff(scaling(np.array([[0.0, 2.0], [2.0, 0.0]])), axis=0)), [[2.0, 0.0]], atol=1e-4)


def test_metric_scaling_does_not_exaggerate_the_contrast_of_classes():
    """Distributions in 30 dimensions with a small shift: classical scaling shows the shift and hides the spread."""
    random = np.random.default_rng(0).normal(size=(20, 30))
    random[10:, 0] += 6.0
    distances = cdist(random, random)
    same = np.equal.outer(np.arange(20) < 10, np.arange(20) < 10)
    off_diagonal = ~np.eye(20, dtype=bool)

    def contrast(matrix):
        return matrix[~same].mean() / matrix[same & off_diagonal].mean()

    classical, metric = (cdist(z, z) for z in (classical_scaling(distances), metric_scaling(distances)))
    assert stress_of(metric_scaling(distances), distances) < stress_of(classical_scaling(distances), distances)
    assert abs(contrast(metric) - contrast(distances)) < abs(contrast(classical) - contrast(distances))
    assert metric[off_diagonal].min() > classical[off_diagonal].min()


def test_embedding_shows_the_stress_of_its_positions(ax):
    pl.embedding(DISTANCES**3, y, ax=ax)
    stress = stress_of(metric_scaling(DISTANCES**3), DISTANCES**3)
    assert [text.get_text() for text in ax.texts] == [f"stress {stress:.2f}"]
    assert stress > 0.05
    assert pl.embedding(POSITIONS, y).texts[:] == []


@pytest.mark.parametrize("train", [np.arange(5), np.arange(len(D)) < 5, list(range(5))])
def test_embedding_marks_training_as_filled(ax, train):
    pl.embedding(DISTANCES, y, ax=ax, train=train)
    drawn = np.vstack([marks.get_offsets() for marks in ax.collections])
    assert_allclose(drawn[np.lexsort(drawn.T)], (e := metric_scaling(DISTANCES))[np.lexsort(e.T)])
    filled = sum(len(marks.get_offsets()) for marks in ax.collections if len(marks.get_facecolor()))
    assert filled == 5
    entries = {text.get_text() for text in ax.get_legend().get_texts()}
    assert entries - {""} == {"class 0", "class 1", "class 2", "training", "test"}


def test_importance_has_a_bar_per_top_feature(ax):
    metric = gm.GroundMetric(np.sqrt([[0.1, 0.6, 0.3]]), ["low", "high", "$mid$"])
    pl.importance(metric, ax=ax, n=2)
    assert_allclose([bar.get_width() for bar in ax.patches], [60.0, 30.0])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["high", "$mid$"]
    assert "the other 1: 10.00%" in [text.get_text() for text in ax.texts]
    ax.figure.canvas.draw()


def test_importance_takes_a_mapping_and_many_bars_make_a_higher_figure():
    ax = pl.importance({f"gene {k}": share for k, share in enumerate(np.linspace(0, 0.02, 100))}, n=60)
    assert len(ax.patches) == 60
    assert ax.get_yticklabels()[0].get_text() == "gene 99"
    assert ax.figure.get_size_inches()[1] > 5


def test_history_draws_the_share_of_active_triplets(ax):
    (active,) = pl.history(HISTORY, ax=ax).lines
    assert_allclose(active.get_xdata(), [1, 2, 3])
    assert_allclose(active.get_ydata(), [90.0, 50.0, 20.0])
    assert ax.get_ylabel() == "active triplets, within the margin (%)"
    assert len(ax.texts) == 0


def test_history_draws_the_held_out_loss_and_marks_the_best_epoch(ax):
    held_out, training, best = pl.history({**HISTORY, "validation_loss": np.array([0.5, 0.3, 0.4])}, ax=ax).lines
    assert_allclose(held_out.get_ydata(), [0.5, 0.3, 0.4])
    assert_allclose(training.get_ydata(), HISTORY["loss"])
    assert_allclose((best.get_xdata(), best.get_ydata()), [[2], [0.3]])


def test_history_says_that_no_triplet_is_active(ax):
    pl.history({name: values[:1] * 0 for name, values in HISTORY.items()}, ax=ax)
    ax.figure.canvas.draw()
    assert "no triplet is within the margin" in ax.texts[0].get_text()
    assert ax.get_ylim()[1] >= 10


def test_history_of_an_ensemble_draws_each_view_against_chance():
    ensemble = gm.GroundMetricEnsemble(2, kinds=["univariate"], random_state=0).fit(D, y)
    ax = pl.history(ensemble)
    names = [text.get_text() for text in ax.get_yticklabels()]
    marks = [line for line in ax.lines if str(line.get_gid()).startswith("score")]
    drawn = {name: line.get_xdata()[0] for name, line in zip(names, marks, strict=True)}
    assert drawn == {"all views": ensemble.score_, **ensemble.fitted_.view_scores}
    assert set(names[1:]) == set(ensemble.weights_)
    assert_allclose(ax.lines[0].get_xdata(), np.log(1 / 3))  # guessing among three classes
    assert ax.get_xlabel() == "held-out log-probability per sample"


@pytest.mark.parametrize("record", [{"loss": [1.0]}, {"active": []}])
def test_a_history_without_epochs_is_an_error(record):
    with pytest.raises(ValueError, match="no epochs"):
        pl.history(record)


def test_confusion_counts_what_is_predicted_as_what(ax):
    true, predicted = ["b", "a", "b", "b"], ["b", "a", "a", "c"]
    pl.confusion(true, predicted, ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "c"]
    assert [int(text.get_text()) for text in ax.texts] == [1, 0, 0, 1, 1, 1, 0, 0, 0]
    assert_allclose(ax.images[0].get_array()[1], 100 / 3)
    assert "balanced accuracy 0.67" in ax.get_xlabel()  # of a and b: none is of class c
    for labels, message in (((true, None), "predicted is missing"), ((true, predicted[1:]), "4 true and 3 predicted")):
        with pytest.raises(ValueError, match=message):
            pl.confusion(*labels)
    with pytest.raises(ValueError, match="labels are numbers with fractions, not classes"):
        pl.confusion([0.5, 1.0], [0.25, 1.0])


def test_confusion_of_an_ensemble_is_of_its_held_out_predictions():
    classifier = gm.TransportClassifier(gm.GroundMetricEnsemble(2, kinds=["anova"]), random_state=0).fit(D, y)
    held_out = classifier.ensemble_.held_out_.argmax(axis=1)
    expected = [int(np.sum((y == a) & (held_out == b))) for a in range(3) for b in range(3)]
    for predictor in (classifier, classifier.ensemble_):
        assert [int(text.get_text()) for text in pl.confusion(y, predictor).texts] == expected


def test_clustermap_is_the_clustered_heatmap_with_names():
    first = pl.clustermap(DISTANCES, y, names=D.names)
    second = pl.heatmap(DISTANCES, y, names=D.names, order="clusters")
    assert_array_equal(first.images[0].get_array(), second.images[0].get_array())
    labels = [[text.get_text() for text in ax.get_yticklabels()] for ax in (first, second)]
    assert labels[0] == labels[1]
    assert first.images[0].get_clim() == pl.heatmap(DISTANCES, y).images[0].get_clim()


def test_a_matrix_and_its_names_must_fit():
    with pytest.raises(ValueError, match=r"distances have shape \(12, 3\): expected a square matrix"):
        pl.clustermap(np.zeros((12, 3)), y)
    with pytest.raises(ValueError, match="names has 2 entries for 12 distributions"):
        pl.heatmap(DISTANCES, y, names=["a", "b"])


def test_ellipse_of_two_of_many_features_is_that_of_their_block(ax):
    metric = gm.GroundMetric([[1.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 2.0]], ["a", "b", "c"])
    for features in (("a", "c"), (0, 2)):
        drawn = pl.ellipse(metric, features=features).patches[-1]
        assert_allclose((drawn.width, drawn.height, drawn.angle), (2.0, 1.0, 90.0))
    assert pl.ellipse(metric, ax=ax, features=("a", "c")).get_xlabel() == "a (relative weight)"
    with pytest.raises(ValueError, match=r"has 3 features: an ellipse needs two; name them, .*\('b', 'c'\)"):
        pl.ellipse(metric)
    with pytest.raises(ValueError, match=r"features holds 'd': there are 3 features, e\.g\. \['a', 'b', 'c'\]"):
        pl.ellipse(metric, features=("a", "d"))
    with pytest.raises(ValueError, match="features is 'ab': expected two of them"):
        pl.ellipse(metric, features="ab")


def test_a_learner_is_as_good_as_its_metric_and_its_history():
    learner = gm.GroundMetricLearner(max_epochs=2, random_state=0).fit(D, y)
    for draw, part in ((pl.history, learner.history_), (pl.importance, learner.metric_), (pl.ellipse, learner.metric_)):
        first, second = draw(learner), draw(part)
        assert len(first.lines) == len(second.lines)
        for patches in zip(first.patches, second.patches, strict=True):
            assert_array_equal(patches[0].get_path().vertices, patches[1].get_path().vertices)
    with pytest.raises(TypeError, match="expected a GroundMetric, a fitted learner or AnnData, not int"):
        pl.importance(3)


def test_embedding_takes_places_as_they_are(ax):
    pl.embedding(POSITIONS, y, ax=ax)
    drawn = np.vstack([marks.get_offsets() for marks in ax.collections])
    assert_allclose(drawn[np.lexsort(drawn.T)], POSITIONS[np.lexsort(POSITIONS.T)])
    with pytest.raises(ValueError, match=r"distances have shape \(12, 3\): expected a square matrix, or positions"):
        pl.embedding(np.zeros((12, 3)), y, ax=ax)


def boxes_of(ax, texts):
    ax.figure.draw_without_rendering()
    return [text.get_window_extent() for text in texts]


def test_names_of_a_flow_do_not_reach_the_colour_bar():
    kinds = np.array(["FCGR3A+ Monocytes", "CD14+ Monocytes", "plasmacytoid dendritic"])[np.arange(len(D.points)) % 3]
    drawn = pl.flow(gm.interpret.flow(D, D.names[0], D.names[1], FLAT, kinds))
    bar = next(axes for axes in drawn.figure.axes if axes is not drawn)
    drawn.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in drawn.texts]
    assert max(box.x1 for box in boxes) < bar.get_window_extent().x0
    assert min(box.x0 for box in boxes) > -1.0
