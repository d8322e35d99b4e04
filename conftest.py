"""Settings of all tests and doctests: one BLAS thread per process, and collection only of modules that can be imported.

Matrices of the tests are small. OpenBLAS would divide them among the threads of all cores, and the threads of several
pytest-xdist workers would wait for each other: some tests take 20 times the processor time.
"""

import importlib.util
import os

for _library in ("OPENBLAS", "MKL"):  # before numpy is imported; workers and subprocesses inherit it
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

_NEEDS = {"neural/*": "torch", "integrations/patpy.py": "patpy", "integrations/pertpy.py": "pertpy"}
collect_ignore_glob = [
    f"src/groundmetric/{where}" for where, name in _NEEDS.items() if not importlib.util.find_spec(name)
]
