"""The first compilation is announced, once; kernels that come from the cache are silent."""

import os
import subprocess
import sys

# Two kernels of this package, after one of somebody else.
CODE = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import numba
from groundmetric.transport.masses import equal_masses
numba.njit(lambda x: x + 1)(1)
logging.info("now")
assert equal_masses(4, 6) == (3, 2)
assert equal_masses(4, True) == (1, 4)
"""


def said(cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", CODE]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment).stderr


def test_only_the_first_compilation_of_ours_is_announced(tmp_path):
    first, *rest = said(tmp_path).splitlines()
    assert first == "now"
    assert len(rest) == 1
    assert "compiling" in rest[0]
    assert said(tmp_path).splitlines() == ["now"]
