"""Where work goes: to threads here, or where ``joblib.parallel_config`` says."""

from __future__ import annotations

import sys

from joblib.parallel import get_active_backend

from .._internal.executor import Threads
from .dask import DaskPlace
from .joblib import JoblibPlace
from .protocol import Place


class Cluster(Threads):
    """Threads with a place elsewhere: what is large goes there, what is small is done here by one thread."""

    def __init__(self, place: Place) -> None:
        super().__init__(1)
        self.place: Place = place

    def close(self) -> None:
        self.place.close()
        super().close()


def workers(n_jobs: int | None = None) -> Threads:
    """Threads of this machine, or a cluster.

    A cluster is used inside ``joblib.parallel_config(backend="dask")`` (or "ray", or another backend of processes),
    unless `n_jobs` is 1. Threads are not: everything here runs in threads anyway.

    >>> import joblib
    >>> with joblib.parallel_config(backend="loky", n_jobs=2), workers() as elsewhere:
    ...     elsewhere.place.slots()
    {'': 2}
    """
    backend, configured = get_active_backend(prefer="threads")
    if n_jobs == 1 or getattr(backend, "uses_threads", False) or _inside_worker():
        return Threads(n_jobs)
    client = getattr(backend, "client", None)
    if client is not None and hasattr(client, "nthreads"):
        return Cluster(DaskPlace(client))
    return Cluster(JoblibPlace(configured if n_jobs is None else n_jobs))


def _inside_worker() -> bool:
    """Work that is already on a worker stays there: if it waited for others, they might wait for it."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
