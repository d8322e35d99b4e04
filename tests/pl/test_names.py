"""Figures match labels and masks by name."""

import numpy as np
import pandas as pd
import pytest

import groundmetric as gm

NAMES = [f"s{i}" for i in range(8)]
ORDER = [4, 0, 5, 1, 6, 2, 7, 3]
Y = pd.Series(list("aaaabbbb"), index=NAMES)
X = np.r_[0:4, 50:54] / 10
DISTANCES = pd.DataFrame(np.abs(X[:, None] - X), index=NAMES, columns=NAMES)
FORMS = {
    "in order": Y,
    "reordered": Y.iloc[ORDER],
    "dict": Y.iloc[ORDER].to_dict(),
    "array": Y.to_numpy(),
}


@pytest.fixture(autouse=True)
def no_windows():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def marks(ax):
    return {c.get_gid(): np.sort(c.get_offsets()[:, 0]).round(6).tolist() for c in ax.collections if c.get_gid()}


DRAWS = (gm.pl.heatmap, gm.pl.clustermap)


@pytest.fixture(scope="module")
def expected():
    """Marks and images of arrays without names."""
    plain = DISTANCES.to_numpy(), Y.to_numpy()
    return marks(gm.pl.embedding(*plain)), [draw(*plain, names=False).images[0].get_array() for draw in DRAWS]


@pytest.mark.parametrize(("y", "shuffled"), [*zip(FORMS.values(), [False, True] * 2, strict=True)], ids=FORMS)
def test_embedding_and_heatmap(y, shuffled, expected):
    distances = DISTANCES[[NAMES[i] for i in ORDER]] if shuffled else DISTANCES
    assert marks(gm.pl.embedding(distances, y)) == expected[0]
    for draw, image in zip(DRAWS, expected[1], strict=True):
        for labels in (y, {"condition": y, "again": Y.iloc[ORDER]}):
            np.testing.assert_array_equal(draw(distances, labels, names=False).images[0].get_array(), image)


def test_names_of_rows_are_shown_and_masks_go_by_name():
    ax = gm.pl.clustermap(DISTANCES, Y.iloc[ORDER], show=False)
    assert sorted(label.get_text() for label in ax.get_yticklabels()) == NAMES
    train = pd.Series(Y == "a").iloc[ORDER]
    filled = gm.pl.embedding(DISTANCES, Y, train=train, show=False)
    assert marks(filled) == marks(gm.pl.embedding(DISTANCES, Y, train=np.arange(8) < 4, show=False))


def test_other_names_are_an_error():
    renamed = pd.Series(Y.to_numpy(), index=[f"t{i}" for i in range(8)])
    for draw in (gm.pl.embedding, gm.pl.heatmap, gm.pl.clustermap):
        with pytest.raises(ValueError, match="names other than"):
            draw(DISTANCES, renamed)
    with pytest.raises(ValueError, match="rows and columns of different names"):
        gm.pl.heatmap(DISTANCES.rename(columns={"s0": "t0"}), Y)
    with pytest.raises(ValueError, match="names other than"):
        gm.pl.confusion(Y, renamed)
    with pytest.raises(ValueError, match="mapping by name"):
        gm.pl.confusion(Y.to_numpy(), Y.to_dict())
    with pytest.raises(ValueError, match="mapping by name"):
        gm.pl.confusion(Y.to_dict(), Y.to_numpy())


@pytest.mark.parametrize("predicted", FORMS.values(), ids=FORMS)
def test_confusion(predicted):
    assert [text.get_text() for text in gm.pl.confusion(Y, predicted, show=False).texts] == ["4", "0", "0", "4"]
    if not isinstance(predicted, np.ndarray):
        counts = [text.get_text() for text in gm.pl.confusion(Y.to_dict(), predicted, show=False).texts]
        assert counts == ["4", "0", "0", "4"]
