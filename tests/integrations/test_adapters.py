"""Adapters are imported when they are used, and say what to install where their package is missing."""

import importlib
import importlib.util
import subprocess
import sys

import pytest

import groundmetric as gm


def test_they_are_not_loaded_with_the_package_nor_with_each_other():
    code = "import sys, groundmetric as gm; gm.integrations; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded = done.stdout.split()
    assert "groundmetric.integrations" in loaded
    assert not {"patpy", "pertpy", "pandas"} & set(loaded)


@pytest.mark.parametrize("name", ["patpy", "pertpy"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, name):
    original = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted, *remainder: None if wanted == name else original(wanted, *remainder)
    )
    monkeypatch.delitem(sys.modules, f"groundmetric.integrations.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf'{name} is needed .*pip install "groundmetric\[{name}\]"'):
        importlib.import_module(f"groundmetric.integrations.{name}")


def test_their_names_are_known():
    assert dir(gm.integrations) == ["patpy", "pertpy"]
    assert "integrations" in dir(gm)
    with pytest.raises(AttributeError, match=r"'groundmetric\.integrations' has no attribute 'moscot'"):
        gm.integrations.moscot  # noqa: B018
