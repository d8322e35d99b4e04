"""Settings of all tests and doctests: one BLAS thread per process, long files first, and modules that can be imported.

Matrices of the tests are small. OpenBLAS would divide them among the threads of all cores, and the threads of several
pytest-xdist workers would wait for each other: some tests would take 20 times the processor time.
"""

import importlib.util
import os

for _library in ("OPENBLAS", "MKL"):  # before numpy is imported; workers and subprocesses inherit it
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

_NEEDS = {"neural.py": "torch", "integrations/patpy.py": "patpy", "integrations/pertpy.py": "pertpy"}
collect_ignore_glob = [
    f"src/groundmetric/{where}" for where, name in _NEEDS.items() if not importlib.util.find_spec(name)
]

# Files that take 10 s or more, the longest first: a worker that started one of them last would be waited for.
_LONG = (
    "docs/test_site.py", "docs/test_cells.py", "test_validity.py", "docs/test_points.py", "distributed/test_tasks.py",
    "tl/test_samples.py", "tl/test_learn.py", "evaluation/test_permutation.py", "estimators/test_predictor.py",
    "report/test_report.py", "report/test_prediction.py", "estimators/test_survival.py", "ensemble/test_fit.py",
    "paper/test_search.py", "evaluation/test_intervals.py", "estimators/test_ensemble.py", "_anndata/test_source.py",
    "interpret/test_significance.py", "test_paths.py", "tl/test_dask.py", "estimators/test_multimodal.py",
    "estimators/test_learner.py", "cli/test_evaluate.py", "learning/test_checkpoints.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Sort long files first; pytest-xdist keeps this order with `--no-loadscope-reorder`."""
    ranks = {f"tests/{name}": rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))
