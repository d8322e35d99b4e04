"""Simulated survival times have the hazard, the censoring and the genes that they say."""

import numpy as np
import pytest

from groundmetric.datasets import make_survival


def test_planted_genes_follow_the_hazard_in_the_cells_of_the_programme_only():
    D, y = make_survival(400, 20, 8, n_planted=2, share=0.5, censored=0.0, random_state=0)
    points, has = D.points.reshape(400, 20, 8), D.annotations["programme"].reshape(400, 20)[0]
    rank = np.argsort(np.argsort(y["time"]))
    with_programme = [abs(np.corrcoef(points[:, has, g].mean(axis=1), rank)[0, 1]) for g in range(8)]
    without = [abs(np.corrcoef(points[:, ~has, g].mean(axis=1), rank)[0, 1]) for g in range(8)]
    assert min(with_programme[:2]) > 0.5
    assert max(with_programme[2:]) < 0.2
    assert max(without) < 0.2
    assert has.sum() == 10


@pytest.mark.parametrize("censored", [0.0, 0.3, 0.7])
def test_so_many_are_censored(censored):
    _, y = make_survival(3000, 1, 1, n_planted=1, censored=censored, random_state=0)
    assert abs(np.mean(~y["event"]) - censored) < 0.04


def test_the_hazard_ratio_is_that_of_the_times():
    # Of exponential times, deaths per time at risk are the hazard: that of activity above 0 over that below.
    D, y = make_survival(20000, 1, 1, n_planted=1, share=1.0, effect=50.0, hazard_ratio=3.0, random_state=0)
    active = D.points[:, 0] > 0
    a = D.points[:, 0] / 50.0
    bins = [np.abs(a - centre) < 0.1 for centre in (-0.5, 0.5)]
    low, high = (y["event"][some].sum() / y["time"][some].sum() for some in bins)
    assert active.mean() == pytest.approx(0.5, abs=0.05)
    assert high / low == pytest.approx(3.0, rel=0.2)


def test_the_same_seed_gives_the_same_patients_and_bad_shares_are_refused():
    (one, y), (other, z) = (make_survival(5, 3, 6, random_state=3) for _ in range(2))
    assert np.array_equal(one.points, other.points)
    assert np.array_equal(y, z)
    with pytest.raises(ValueError, match=r"censored is 1\.0"):
        make_survival(censored=1.0)
    with pytest.raises(ValueError, match="n_patients is 0"):
        make_survival(0)
