"""Independent tasks on other processes or machines: a Dask cluster, or the backend that joblib is configured for."""

from .tasks import ClusterWarning, OtherVersionError, configured_backend, run, solve_pairs

__all__ = ["ClusterWarning", "OtherVersionError", "configured_backend", "run", "solve_pairs"]


def __dir__() -> list[str]:
    return sorted(__all__)
