"""Public names, and libraries that `import groundmetric` does not load."""

import subprocess
import sys

import pytest

import groundmetric as gm

HEAVY = ["sklearn", "scipy", "matplotlib", "torch", "pandas", "joblib"]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout


def test_importing_the_package_loads_nothing_heavy():
    loaded = run("import sys, groundmetric; print(*sorted({name.split('.')[0] for name in sys.modules}))").split()
    assert "groundmetric" in loaded
    assert not set(HEAVY) & set(loaded)


def test_the_learner_loads_without_any_plotting():
    loaded = run("import sys, groundmetric as gm; gm.GroundMetricLearner; print(*sys.modules)").split()
    assert "groundmetric.estimators" in loaded
    assert not {"matplotlib", "torch"} & set(loaded)


@pytest.mark.parametrize("name", gm.__all__)
def test_every_public_name_resolves(name):
    assert getattr(gm, name) is not None


def test_public_names_are_listed_once_and_by_dir():
    assert len(set(gm.__all__)) == len(gm.__all__)
    assert set(gm.__all__) <= set(dir(gm))


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match=r"'groundmetric' has no attribute 'nonsense'"):
        gm.nonsense  # noqa: B018


def test_the_version_is_a_string_of_numbers():
    assert all(part.isdigit() for part in gm.__version__.split(".")[:2])


def test_one_solve_loads_neither_scipy_nor_scikit_learn():
    loaded = run("import sys, groundmetric as gm; gm.transport.solve([[1.0]]); print(*sys.modules)").split()
    assert "groundmetric.transport._core" in loaded
    assert not {"scipy", "sklearn", "joblib"} & set(loaded)
