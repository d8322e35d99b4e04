"""Compiled kernels are announced once, kept where that is possible, and never run when their sources have changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.caching import NullCache

import groundmetric
from groundmetric._internal import compile as compiling
from groundmetric.transport._kernels.compiled import inner, kernel, pointer

# Two kernels of this package, after one of somebody else.
CODE = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import numba
import numpy as np
from groundmetric.transport._kernels.forest import tree_flows
numba.njit(lambda x: x + 1)(1)
logging.info("now")
parent = np.array([2, 0, -1], np.int32)
assert tree_flows(parent, np.array([1.0, 1.0, 0.0])).tolist() == [0.0, 1.0, 0.0]
assert tree_flows(parent, np.array([1, 1, 0])).tolist() == [0, 1, 0]
"""
# A kernel alone: is what numba compiles with imported?
ALONE = """
import sys
import numpy as np
from groundmetric.transport._kernels.forest import tree_flows
assert tree_flows(np.array([2, 0, -1], np.int32), np.array([1, 1, 0])).tolist() == [0, 1, 0]
print("numba.np.arraymath" in sys.modules)
"""
# Root may write anywhere, unless it lays that power down.
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []


def run(code, before=(), **environment):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environment}
    command = [*before, sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment, cwd="/")


def test_only_the_first_compilation_of_ours_is_announced(tmp_path):
    first, *rest = run(CODE, NUMBA_CACHE_DIR=str(tmp_path)).stderr.splitlines()
    assert first == "now"
    assert len(rest) == 1
    assert "compiling" in rest[0]
    assert run(CODE, NUMBA_CACHE_DIR=str(tmp_path)).stderr.splitlines() == ["now"]
    assert run(ALONE, NUMBA_CACHE_DIR=str(tmp_path)).stdout == "False\n"


@pytest.fixture
def installed(tmp_path):
    """A copy of the package, in tmp_path / "site"."""
    source, nothing_compiled = Path(groundmetric.__file__).parent, shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, tmp_path / "site" / "groundmetric", ignore=nothing_compiled)
    return tmp_path


@pytest.fixture
def read_only(installed):
    """The copy where nothing can be written to, for a user without a home; a folder for temporary files beside it."""
    if POWERLESS and shutil.which(POWERLESS[0]) is None:
        pytest.skip("root can write everywhere here")
    folders = [path for path in (installed / "site").rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    (installed / "temporary").mkdir()
    names = {"PYTHONPATH": "site", "TMPDIR": "temporary"}
    yield {"HOME": "/proc/none", **{name: str(installed / folder) for name, folder in names.items()}}
    for folder in folders:
        folder.chmod(0o755)


def test_where_no_folder_can_be_written_to_kernels_are_kept_in_a_private_temporary_one(read_only):
    said = run(CODE, POWERLESS, **read_only).stderr.splitlines()
    assert ["kernels are kept in" in line for line in said] == [True, False, False]  # once, and it is the first
    assert "NUMBA_CACHE_DIR" in said[0]
    (kept,) = Path(read_only["TMPDIR"]).iterdir()
    assert (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (os.getuid(), 0o700)
    assert not any("compiling" in line for line in run(CODE, POWERLESS, **read_only).stderr.splitlines())


@pytest.mark.parametrize("trap", ["a folder of somebody else", "a link", "a folder that others can write to"])
def test_a_temporary_folder_that_others_can_write_to_is_not_used(read_only, trap):
    temporary = Path(read_only["TMPDIR"])
    taken = temporary / f"groundmetric-kernels-{os.getuid()}"
    if trap == "a link":
        (temporary / "target").mkdir(mode=0o700)
        taken.symlink_to(temporary / "target")
    else:
        taken.mkdir()
        taken.chmod(0o777)
    if trap == "a folder of somebody else":
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(taken, 54321, 54321)
    run(CODE, POWERLESS, **read_only)
    assert not list(taken.iterdir())
    assert {path.name for path in temporary.iterdir()} <= {taken.name, "target"}  # its own is gone with the process


def test_where_nothing_at_all_can_be_written_to_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(compiling, "_temporary_places", lambda: ["/proc/none"])
    with pytest.raises(RuntimeError, match="set NUMBA_CACHE_DIR or TMPDIR"):
        compiling._private_folder()


@pytest.mark.parametrize("chosen", [True, False], ids=["NUMBA_CACHE_DIR", "beside the source"])
def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(installed, chosen):
    transport = installed / "site" / "groundmetric" / "transport"
    inner = transport / "inner.py"
    (transport / "outer.py").write_text(
        "import numba\nfrom .inner import inner\n\n\n@numba.njit(cache=True)\ndef outer():\n    return inner()\n"
    )
    environment = {"PYTHONPATH": str(installed / "site")}
    if chosen:
        environment["NUMBA_CACHE_DIR"] = str(installed / "cache")

    def outcome(number):
        inner.write_text(f"import numba\n\n\n@numba.njit(cache=True)\ndef inner():\n    return {number}\n")
        os.utime(inner, (1e9, 1e9))  # as an archive may leave it: the date says nothing
        return run("from groundmetric.transport.outer import outer; print(outer())", **environment).stdout.strip()

    assert [outcome(1), outcome(22)] == ["1", "22"]


@inner
def entry(numbers, place):
    return numbers[place]


@kernel
def three_entries(numbers, places):
    values = pointer(numbers)
    return entry(values, 0) + 10 * entry(values, places[0]) + 100 * entry(values, numbers.size - 1)


three_entries._cache = NullCache()  # so that every run of the tests compiles it


def test_what_a_kernel_calls_is_compiled_once_for_whole_numbers_of_all_kinds():
    assert three_entries(np.array([1, 2, 3]), np.array([1], np.int32)) == 321
    assert [str(kind) for kind in entry.signatures[0]] == ["int64*", "int64"]
    assert len(entry.signatures) == 1


def test_machine_code_is_made_of_kernels_only():
    three_entries(np.array([1, 2, 3]), np.array([1], np.int32))
    (part,), (whole,) = entry.overloads.values(), three_entries.overloads.values()
    assert not part.library.get_pointer_to_function(part.fndesc.llvm_func_name)
    assert whole.library.get_pointer_to_function(whole.fndesc.llvm_func_name)


def test_a_release_of_numba_that_is_not_known_compiles_in_its_own_way(tmp_path):
    other = "import numba\nnumba.version_info = numba.version_info._replace(minor=999)\n"
    again = "from groundmetric._internal import compile\nassert not compile.KNOWN_INSIDE\n"
    for _ in range(2):  # compiled, then loaded
        assert run(other + again + ALONE, NUMBA_CACHE_DIR=str(tmp_path)).stdout == "True\n"
