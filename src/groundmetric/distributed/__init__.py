"""Work on other machines: a Dask cluster, or whatever joblib has been told to use."""

from .workers import Cluster, workers

__all__ = ["Cluster", "workers"]
