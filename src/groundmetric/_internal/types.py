"""Types of user input in public signatures. Libraries are imported for type checkers only."""

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
# Distributions, or input that is converted: an array per distribution, or a row per distribution.
DistributionsLike: TypeAlias = "Distributions | PointsLike | Sequence[PointsLike]"
# A label, group or name for each distribution or point, in order or by name; None if unknown.
LabelsLike: TypeAlias = "ArrayLike | Sequence[Hashable | None] | Mapping[Any, Any]"
# The different labels, in the order of columns.
ClassesLike: TypeAlias = "Sequence[Hashable] | np.ndarray"
# Labels of several kinds by their titles, as a dict or a data frame.
ColumnsLike: TypeAlias = "Mapping[str, LabelsLike] | Table"
# Modalities, or Distributions by the name of their modality.
ModalitiesLike: TypeAlias = "Modalities | Mapping[str, Distributions]"
# Selection of genes: the name of a rule, a number, names, or a mask.
GenesLike: TypeAlias = "str | int | Sequence[str] | Sequence[bool] | np.ndarray"
RandomState: TypeAlias = "int | np.integer | np.random.RandomState | None"
FilePath: TypeAlias = "str | os.PathLike[str]"
# Cells, or the path of a file of cells.
CellsLike: TypeAlias = "AnnData | FilePath"
# A ground metric, or a fitted learner with the attribute `metric_`.
MetricLike: TypeAlias = "GroundMetric | Learned"
# Number of folds, pairs of training and test indices, or a splitter of scikit-learn.
SplitsLike: TypeAlias = "int | Iterable[tuple[ArrayLike, ArrayLike]] | Splitter | None"
# Also functions of the labels, for permuted labels.
SplitsOfLabels: TypeAlias = "SplitsLike | Callable[[np.ndarray], Iterable[tuple[ArrayLike, ArrayLike]]]"


class Table(Protocol):
    """Named columns: a data frame."""

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, name: Any, /) -> Any: ...


class Learned(Protocol):
    """A fitted learner with its metric."""

    @property
    def metric_(self) -> GroundMetric: ...


class Splitter(Protocol):
    """A splitter as in scikit-learn."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Any]: ...


# An estimator and a transformer of points: scikit-learn has no types for them.
Estimator: TypeAlias = "Any"
Transformer: TypeAlias = "Any"
