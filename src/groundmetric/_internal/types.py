"""Types of what users give, as public signatures name them; what is given is checked when it is read.

Only type checkers look inside: nothing heavy is imported for these when a program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from anndata import AnnData
    from numpy.typing import ArrayLike
    from scipy import sparse

    from ..distributions import Distributions
    from ..metrics.base import GroundMetric
    from ..modalities import Modalities

# A row per point: an array, a data frame, or a sparse matrix.
PointsLike: TypeAlias = "ArrayLike | sparse.spmatrix | sparse.sparray"
# Distributions, or what becomes such: an array for each, or a row for each.
DistributionsLike: TypeAlias = "Distributions | PointsLike | Sequence[PointsLike]"
# A label, group or name for each distribution or point, in order or by name; None where it is not known.
LabelsLike: TypeAlias = "ArrayLike | Sequence[Hashable | None] | Mapping[Any, Any]"
# The different labels, in the order of columns.
ClassesLike: TypeAlias = "Sequence[Hashable] | np.ndarray"
# Labels of several kinds by their titles, as a dict or a data frame.
ColumnsLike: TypeAlias = "Mapping[str, LabelsLike] | Table"
# Modalities, or what becomes such.
ModalitiesLike: TypeAlias = "Modalities | Mapping[str, Distributions]"
# A rule by which genes are selected, how many, their names, or a mask.
GenesLike: TypeAlias = "str | int | Sequence[str] | Sequence[bool] | np.ndarray"
RandomState: TypeAlias = "int | np.integer | np.random.RandomState | None"
FilePath: TypeAlias = "str | os.PathLike[str]"
# Cells, or the file that holds them.
CellsLike: TypeAlias = "AnnData | FilePath"
# A ground metric, or a fitted learner that has one.
MetricLike: TypeAlias = "GroundMetric | Learned"
# Number of folds, pairs of training and test indices, or a splitter of scikit-learn.
SplitsLike: TypeAlias = "int | Iterable[tuple[ArrayLike, ArrayLike]] | Splitter | None"
# Splits as functions of the labels, too: for labels that are permuted.
SplitsOfLabels: TypeAlias = "SplitsLike | Callable[[np.ndarray], Iterable[tuple[ArrayLike, ArrayLike]]]"


class Table(Protocol):
    """Named columns: a data frame."""

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, name: Any, /) -> Any: ...


class Learned(Protocol):
    """A fitted learner, with the metric that it found."""

    @property
    def metric_(self) -> GroundMetric: ...


class Splitter(Protocol):
    """A splitter in the manner of scikit-learn."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Any]: ...


class Estimator(Protocol):
    """An estimator in the manner of scikit-learn."""

    def fit(self, X: Any, y: Any, /) -> Any: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


class Method(Protocol):
    """A fitted method that has distances between distributions."""

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray: ...


class Baseline(Estimator, Method, Protocol):
    """A method that can be compared with others."""

    def set_params(self, **params: Any) -> Any: ...


class PointMethod(Protocol):
    """A fitted method that has distances between points."""

    def point_distances(self, x: Any, y: Any = None) -> np.ndarray: ...


class Transformer(Protocol):
    """A transformer of scikit-learn, from points to points."""

    def fit(self, X: Any, y: Any = None) -> Any: ...
    def transform(self, X: Any) -> Any: ...
