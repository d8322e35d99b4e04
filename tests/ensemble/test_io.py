"""Files of predictors: the same predictions bit for bit, and a clear error for every damaged or forged content."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from groundmetric import (
    GroundMetricEnsemble,
    TransportClassifier,
    TransportRegressor,
    TransportSurvival,
)
from groundmetric._internal.files import Damaged
from groundmetric.ensemble import Predictor
from groundmetric.estimators.predictor import VERSION, load_predictor, unpack_predictor

from ..estimators.cohorts import cohort

D, y = cohort(16, points=5, n_features=5)
NEW, _ = cohort(4, seed=7, points=8, n_features=5)
VALUES = y + 0.1 * np.arange(16.0)
TIMES = np.array(
    list(zip(np.arange(16) % 4 > 0, 1.0 + np.arange(16), strict=True)), dtype=[("event", bool), ("time", float)]
)
ENSEMBLE = GroundMetricEnsemble(4, max_epochs=2, random_state=0)


@pytest.fixture(scope="module")
def models():
    """One predictor of each kind; do not write to them."""
    return {
        "classes": TransportClassifier(ENSEMBLE).fit(D, np.array(["ill", "well"])[y]),
        "numbers": TransportRegressor(ENSEMBLE).fit(D, 1e200 * VALUES),
        "times": TransportSurvival(ENSEMBLE).fit(D, TIMES),
    }


@pytest.mark.parametrize("kind", ["classes", "numbers", "times"])
def test_a_loaded_predictor_gives_the_same_bits(models, kind, tmp_path):
    model = models[kind]
    model.save(tmp_path / "model.gmp")
    for loaded in (type(model).load(tmp_path / "model.gmp"), load_predictor(tmp_path / "model.gmp")):
        assert type(loaded) is type(model)
        first, second = model.predict_all(NEW), loaded.predict_all(NEW)
        for name in ("values", "typicality", "far", "small"):
            assert_array_equal(getattr(first, name), getattr(second, name))
        assert_array_equal(model.predict(NEW), loaded.predict(NEW))
        assert_array_equal(loaded.metric_.components, model.metric_.components)
        assert loaded.get_params()["ensemble__n_members"] == 4


def test_a_loaded_predictor_can_be_saved_again(models, tmp_path):
    models["classes"].save(tmp_path / "one.gmp")
    TransportClassifier.load(tmp_path / "one.gmp").save(tmp_path / "two.gmp")
    assert_array_equal(
        TransportClassifier.load(tmp_path / "two.gmp").predict_proba(NEW), models["classes"].predict_proba(NEW)
    )


def test_many_features_and_masses_are_stored(tmp_path):
    cells, codes = cohort(16, points=8, n_features=60)
    weighted = type(cells)(cells.points, np.repeat(cells.names, 8), weights=np.tile(np.arange(1.0, 9.0), 16))
    model = TransportClassifier(GroundMetricEnsemble(4, kinds=["anova"], max_points=4), random_state=0)
    model.fit(weighted, codes).save(tmp_path / "model.gmp")
    assert_array_equal(
        TransportClassifier.load(tmp_path / "model.gmp").predict_proba(weighted[:3]), model.predict_proba(weighted[:3])
    )


@pytest.mark.parametrize("position", [0, 10, 40, 200, -1])
def test_a_changed_byte_is_an_error(models, tmp_path, position):
    path = tmp_path / "model.gmp"
    models["classes"].save(path)
    content = bytearray(path.read_bytes())
    content[position] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.gmp"):
        load_predictor(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_an_error(models, tmp_path, share):
    path = tmp_path / "model.gmp"
    models["classes"].save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"model\.gmp"):
        load_predictor(path)


@pytest.mark.parametrize(("version", "match"), [(VERSION + 1, "update"), (1, "create it again")])
def test_other_versions_are_named(models, tmp_path, monkeypatch, version, match):
    path = tmp_path / "model.gmp"
    with monkeypatch.context() as patch:
        patch.setattr("groundmetric.estimators.predictor.VERSION", version)
        models["classes"].save(path)
    with pytest.raises(ValueError, match=match):
        load_predictor(path)


def forged(model, change):
    description, arrays = copy.deepcopy(model.pack())
    change(description, arrays)
    return description, arrays


def replaced(name, edit):
    def change(description, arrays):
        values = arrays[name].copy()
        arrays[name] = edit(values)

    return change


def with_first(value):
    def edit(values):
        values.flat[0] = value
        return values

    return edit


FLOATS = [
    "weights", "metric", "model0.columns", "model0.axes", "model0.coefficients", "model0.mixture", "scaling0.centre",
    "scaling0.scale", "scaling0.clusters", "view0.points", "view0.weights", "view0.nearest", "view1.mean",
    "view1.scale", "view1.x", "view5.weights", "view7.weights", "view8.weights", "modality0.points",
    "modality0.weights", "modality0.quantiles",
]  # fmt: skip


def assert_damaged(model, change):
    """Check that the reader of arrays raises `Damaged`, and the reader of estimators a ValueError with the file."""
    description, arrays = forged(model, change)
    with pytest.raises(ValueError, match="somewhere"):
        unpack_predictor(description, arrays, "somewhere")


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_an_error(models, name, value):
    assert_damaged(models["classes"], replaced(name, with_first(value)))


@pytest.mark.parametrize("name", FLOATS)
def test_wrong_shapes_are_an_error(models, name):
    if name != "metric":  # which may have any number of components
        assert_damaged(models["classes"], replaced(name, lambda values: values[:-1]))
    assert_damaged(models["classes"], replaced(name, lambda values: values[None]))


@pytest.mark.parametrize("name", FLOATS)
def test_wrong_types_are_an_error(models, name):
    assert_damaged(models["classes"], replaced(name, lambda values: values.astype(str)))
    assert_damaged(models["classes"], replaced(name, lambda values: values.astype(complex)))


@pytest.mark.parametrize("kind", ["classes", "numbers", "times"])
def test_every_missing_array_is_an_error(models, kind):
    """Remove each array; those of the metric's variances and of the principal axes are optional."""
    for name in set(models[kind].pack()[1]) - {"variances", "scaling0.axes"}:
        description, arrays = forged(models[kind], lambda description, arrays, name=name: arrays.pop(name))
        with pytest.raises(ValueError, match="somewhere"):
            unpack_predictor(description, arrays, "somewhere")


@pytest.mark.parametrize(
    "name",
    ["weights", "model0.mixture", "scaling0.scale", "view1.scale", "view0.weights", "modality0.weights"],
)  # fmt: skip
def test_negative_weights_and_scales_are_an_error(models, name):
    assert_damaged(models["classes"], replaced(name, with_first(-0.5)))


@pytest.mark.parametrize("name", ["weights", "model0.mixture", "view0.weights"])
def test_weights_that_do_not_sum_to_one_are_an_error(models, name):
    assert_damaged(models["classes"], replaced(name, lambda values: 2.0 * values))


@pytest.mark.parametrize("name", ["view5.weights", "view7.weights"])
def test_negative_weights_of_members_are_an_error(models, name):
    assert_damaged(models["classes"], replaced(name, with_first(-0.5)))


@pytest.mark.parametrize("value", [-1, 5, 10**9])
def test_columns_outside_the_features_are_an_error(models, value):
    for name in ("modality0.used", "view5.columns"):
        assert_damaged(models["classes"], replaced(name, with_first(value)))


def test_features_that_are_not_in_the_file_are_an_error(models):
    assert_damaged(models["classes"], replaced("modality0.used", lambda values: values[::-1]))
    assert_damaged(models["classes"], replaced("modality0.used", lambda values: np.zeros_like(values)))


def test_samples_that_no_member_leaves_out_are_an_error(models):
    def change(description, arrays):
        for name in [name for name in arrays if "trained_on" in name]:
            arrays[name] = np.ones_like(arrays[name])

    assert_damaged(models["classes"], change)


def test_masks_of_another_number_of_members_are_an_error(models):
    assert_damaged(models["classes"], replaced("view5.trained_on", lambda values: values[:-1]))
    assert_damaged(models["classes"], replaced("view5.trained_on", lambda values: values.astype(int)))


@pytest.mark.parametrize(
    "bounds", [np.zeros(17, int), np.arange(17)[::-1] * 5, np.arange(17) * 6, np.arange(16), np.arange(17) * 5.0]
)
def test_bounds_that_do_not_divide_the_points_are_an_error(models, bounds):
    assert_damaged(models["classes"], replaced("view0.bounds", lambda values: bounds))


def test_rows_of_points_are_unique_and_not_negative(models):
    assert_damaged(models["classes"], replaced("view0.order", with_first(-1)))
    assert_damaged(models["classes"], replaced("view0.order", np.zeros_like))
    assert_damaged(models["classes"], replaced("view0.order", lambda values: values.astype(float)))


SETTINGS = [
    (("modalities", 0, "n_points"), [0, -3, None, "many"]),
    (("modalities", 0, "n_marginal_points"), [0, None]),
    (("modalities", 0, "width"), [0.0, -1.0, float("nan"), float("inf"), None]),
    (("views", 0, "unit"), [0.0, -1.0, float("nan"), float("inf"), None, "far"]),
    (("views", 5, "units", 0), [0.0, -1.0, float("nan"), None]),
    (("views", 0, "scale"), [0.0, -1.0, float("nan"), None]),
    (("views", 0, "overall"), [float("nan"), float("inf"), None]),
    (("views", 0, "view"), ["other", None, "means", "transport"]),
    (("views", 1, "view"), ["moments", "euclidean"]),
    (("views", 0, "modality"), ["other", None]),
    (("views", 5, "left_out"), [[], None, [[0]]]),
    (("views", 5, "units"), [[], None, [1.0]]),
    (("views", 5, "n_columns"), [[], None, [1], [0.5]]),
    (("views", 5, "n_columns", 0), [-1, 0, 10**9, None, 1.5, "1"]),
    (("target", "kind"), ["Other", None, "Numbers", "Survival"]),
    (("target", "n_classes"), [0, 1, 3, None, -2]),
    (("names",), [[], ["a"] * 15, None]),
    (("modalities",), [[], None]),
    (("views",), [[], None]),
]


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, value) for path, values in SETTINGS for value in values],
    ids=lambda part: "-".join(map(str, part)) if isinstance(part, tuple) else str(part),
)
def test_forged_settings_are_an_error(models, path, value):
    def change(description, arrays):
        part = description["predictor"]
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value

    assert_damaged(models["classes"], change)


@pytest.mark.parametrize("unit", [0.0, -1.0, float("nan"), float("inf"), None])
def test_forged_units_of_numbers_are_an_error(models, unit):
    for kind in ("numbers", "times"):
        assert_damaged(models[kind], lambda description, arrays: description["predictor"]["target"].update(unit=unit))


@pytest.mark.parametrize(
    ("name", "value"), [("time", -1.0), ("time", np.nan), ("held_out_risk", np.inf), ("held_out_risk", np.nan)]
)
def test_forged_survival_times_are_an_error(models, name, value):
    assert_damaged(models["times"], replaced(name, with_first(value)))
    assert_damaged(models["times"], replaced(name, lambda values: values[1:]))


def test_survival_without_an_event_is_an_error(models):
    assert_damaged(models["times"], replaced("event", np.zeros_like))


def test_estimators_of_another_target_are_an_error(models):
    assert_damaged(models["classes"], lambda description, arrays: description.update(estimator="TransportRegressor"))
    assert_damaged(models["numbers"], lambda description, arrays: description.update(estimator="TransportClassifier"))
    assert_damaged(models["numbers"], lambda description, arrays: description.update(estimator="TransportSurvival"))
    assert_damaged(models["classes"], lambda description, arrays: description.update(estimator="Path"))


def test_the_reader_of_arrays_raises_damaged(models):
    description, arrays = forged(models["classes"], replaced("weights", with_first(np.nan)))
    with pytest.raises(Damaged):
        Predictor.unpack(description["predictor"], arrays, 5)


def test_another_kind_is_named(models, tmp_path):
    models["numbers"].save(tmp_path / "model.gmp")
    with pytest.raises(ValueError, match=r"holds a TransportRegressor: read it with TransportRegressor\.load"):
        TransportClassifier.load(tmp_path / "model.gmp")
