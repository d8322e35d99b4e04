"""Counterfactual changes: planted programme, no effect, patients with several samples, invalid input."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric._internal.validation import ParameterError

EFFECT = 1.5


def cohort(seed, n_per_class=9, effect=EFFECT, n_features=20, cells_per_type=12):
    """Cells of three types; features 0 to 2 rise by the effect in type t1 of class 1."""
    random = np.random.default_rng(seed)
    points, names, kinds, y = [], [], [], np.tile([0, 1], n_per_class)
    for i, label in enumerate(y):
        mean = 0.3 * random.normal(size=n_features)
        for kind in range(3):
            x = random.normal(size=(cells_per_type, n_features)) + mean
            x[:, 10 + kind] += 4.0
            if kind == 1:
                x[:, :3] += effect * label
            points.append(x)
            names += [f"s{i:02d}"] * cells_per_type
            kinds += [f"t{kind}"] * cells_per_type
    return gm.Distributions(np.vstack(points), names, annotations={"type": np.array(kinds)}), y


def fitted(D, y, **groups):
    return gm.GroundMetricEnsemble(4, kinds=("univariate", "anova"), random_state=0).fit(D, y, **groups)


def test_planted_programme_is_first():
    D, y = cohort(0)
    result = gm.interpret.counterfactual(fitted(D, y), D, y, "s00", annotation="type")
    table = result.table()
    assert table["kind"].head(3).tolist() == ["t1"] * 3
    assert set(table["feature"].head(3)) == {"feature 0", "feature 1", "feature 2"}
    assert np.all(table["p"].head(3) <= 0.05)
    assert np.all(table["p"].iloc[3:] > 0.05)
    assert np.all((table["low"].head(3) <= EFFECT) & (table["high"].head(3) >= EFFECT))
    assert result.values[result.share.argmax()] == "t1"
    back = gm.interpret.counterfactual(fitted(D, y), D, y, "s01", annotation="type").table()
    assert np.all(back["change"].head(3) < 0)


def test_nothing_is_significant_without_effect():
    smallest = []
    for seed in range(6):
        D, y = cohort(seed, effect=0.0)
        smallest.append(np.nanmin(gm.interpret.counterfactual(fitted(D, y), D, y, "s00", annotation="type").p))
    assert np.sum(np.array(smallest) <= 0.05) <= 2  # more than two of six at 5 %: probability .002


def test_each_patient_is_compared_once():
    D, y = cohort(1, n_per_class=10)
    patients = np.array([f"p{i // 4}" for i in range(20)])  # samples of a patient have both classes
    result = gm.interpret.counterfactual(fitted(D, y, groups=patients), D, y, "s00", groups=patients, n_neighbors=10)
    owners = [patients[D.names.index(name)] for name in result.neighbors]
    assert len(set(owners)) == len(owners)
    assert patients[0] not in owners


def test_invalid_input():
    D, y = cohort(2)
    ensemble = fitted(D, y)
    for parameter, options in (("name", {"name": "x"}), ("other", {"name": "s00", "other": 0})):
        with pytest.raises(ParameterError) as error:
            gm.interpret.counterfactual(ensemble, D, y, **options)
        assert error.value.parameter == parameter
    with pytest.raises(ValueError, match="fitted to other distributions"):
        gm.interpret.counterfactual(ensemble, D[1:], y[1:], "s01")
