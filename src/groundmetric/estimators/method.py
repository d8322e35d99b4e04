"""What every method that ends in a ground metric can do, whether it is ours or a baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..distances import pairwise_distances


class GroundMetricMethod:
    """Distances between distributions and between points, by the `metric_` that `fit` has found."""

    metric_: Any

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        """Exact Wasserstein distances between the distributions of A and of B (or among those of A)."""
        check_is_fitted(self, "metric_")
        return pairwise_distances(A, B, self.metric_, n_jobs=n_jobs)

    def point_distances(self, x: Any, y: Any = None) -> np.ndarray:
        """Distances between points: all of `x` against all of `y` (or against themselves)."""
        check_is_fitted(self, "metric_")
        return self.metric_.distances(x, y)
