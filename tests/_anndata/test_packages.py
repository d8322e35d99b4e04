"""Without the single-cell packages, errors name the command that installs them."""

import subprocess
import sys

import pytest

from groundmetric._internal.validation import need

BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Block(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("anndata", "pandas", "scanpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import groundmetric as gm
for name in ("tl", "pp"):
    try:
        getattr(gm, name)
    except ModuleNotFoundError as error:
        print(error)
from groundmetric import cli
sys.exit(cli.main(["learn", "cells.h5ad", "--sample", "s", "--label", "l", "-o", "never"]))
"""


def test_a_package_that_is_missing_is_named_with_the_remedy():
    need("numpy")
    with pytest.raises(
        ModuleNotFoundError, match=r'nonsense is needed for this: pip install "groundmetric\[single-cell\]"'
    ):
        need("nonsense")


def test_the_modules_and_the_command_say_what_to_install(tmp_path):
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == ['anndata is needed for this: pip install "groundmetric[single-cell]"'] * 2
    assert done.stderr.splitlines()[-1].endswith("anndata is needed for this: pip install 'groundmetric[single-cell]'")
    assert list(tmp_path.iterdir()) == []
