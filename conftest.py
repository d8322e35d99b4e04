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

# Files that take 8 s or more, the longest first: a worker that started one of them last would be waited for.
_LONG = (
    "docs/test_cells.py", "docs/test_points.py", "estimators/test_predictor.py", "docs/test_site.py",
    "distributed/test_tasks.py", "tl/test_learn.py", "ensemble/test_fit.py", "evaluation/test_permutation.py",
    "tl/test_samples.py", "test_validity.py", "laws/test_readers.py", "learning/test_checkpoints.py",
    "report/test_report.py", "estimators/test_multimodal.py", "estimators/test_ensemble.py",
    "evaluation/test_intervals.py", "report/test_prediction.py", "test_paths.py", "cli/test_evaluate.py",
    "cli/test_real_data.py", "estimators/test_learner.py", "interpret/test_relevance.py", "interpret/test_patients.py",
    "paper/test_search.py", "_anndata/test_source.py", "tl/test_dask.py", "cli/test_learn_predict.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Sort long files first; pytest-xdist keeps this order with `--no-loadscope-reorder`."""
    ranks = {f"tests/{name}": rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))
