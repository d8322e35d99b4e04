"""Modalities: several measurements of the same distributions, such as RNA and protein of patients' cells."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag

from ._internal.types import FilePath, GenesLike
from ._internal.validation import ParameterError, check_number
from .distributions import Distributions
from .metrics.base import Cost, GroundMetric

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

# Annotation of points with the name of their cell, in every modality.
CELL = "cell"


class Modalities:
    """The same distributions (samples) in several modalities, each with its own features and points.

    If modalities are measured on the same cells, the annotation "cell" of the points names the cells.

    Parameters
    ----------
    parts : dict of str to Distributions
        Distributions of each modality. All have the same names; the order of the first modality is used.

    Attributes
    ----------
    parts : dict of str to Distributions
        The modalities, their distributions in the same order.
    names : list
        Names of the distributions.

    Examples
    --------
    >>> import groundmetric as gm
    >>> rna = gm.Distributions([[0.0, 1.0], [5.0, 5.0], [2.0, 3.0]], samples=["ann", "bob", "ann"])
    >>> protein = gm.Distributions([[7.0], [8.0]], samples=["bob", "ann"])
    >>> both = gm.Modalities({"rna": rna, "protein": protein})
    >>> both, both["protein"].names
    (Modalities(2 distributions, rna: 2 features, protein: 1 features), ['ann', 'bob'])
    """

    def __init__(self, parts: Mapping[str, Distributions]) -> None:
        if not isinstance(parts, Mapping) or not parts:
            raise TypeError(f"parts are {parts!r}: expected Distributions by the name of their modality")
        for modality, D in parts.items():
            if not isinstance(D, Distributions):
                raise TypeError(f"modality {modality!r} is a {type(D).__name__}: expected Distributions")
        first, names = next(iter(parts.items()))
        self.names: list[Hashable] = names.names
        self.parts = {str(modality): _in_order(D, self.names, modality, first) for modality, D in parts.items()}

    @classmethod
    def from_mudata(
        cls,
        mdata: MuData | FilePath | Mapping[str, AnnData],
        sample_key: str,
        *,
        modalities: Sequence[str] | None = None,
        layer: Mapping[str, str] | None = None,
        use_rep: Mapping[str, str] | None = None,
        genes: Mapping[str, GenesLike] | None = None,
        n_cells: int | None = 1000,
        random_state: int = 0,
    ) -> Modalities:
        """Read the cells of a MuData; their names become the annotation "cell".

        Values should be normalised and on a scale that suits each modality. Every sample needs cells in every modality.

        Parameters
        ----------
        mdata : MuData, path of an .h5mu file, or dict of str to AnnData
            Modalities. Only a path needs the package mudata.
        sample_key : str
            Column with the sample (patient) of each cell, in `obs` of the modality or else in `mdata.obs`.
        modalities : sequence of str or None, default=None
            Modalities to read; None: all.
        layer : dict of str to str or None, default=None
            Layer to read, by modality; X for modalities without an entry.
        use_rep : dict of str to str or None, default=None
            Entry of `obsm` to read instead of features, by modality.
        genes : dict of str to rules or None, default=None
            Features to read, by modality, as in `tl.learn` ("variance", "all", a number, a list, a column of `var`).
            None: the default of `tl.learn`.
        n_cells : int or None, default=1000
            Largest number of cells per sample, the same cells in all modalities that have them. None: all.
        random_state : int, default=0
            Seed of the draw.
        """
        from ._anndata.cohort import read_modalities

        return cls(
            read_modalities(
                mdata, sample_key, modalities=modalities, layer=layer, use_rep=use_rep, genes=genes, n_cells=n_cells,
                random_state=random_state,
            )
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, int]:
        """(number of distributions, number of features of all modalities); scikit-learn slices modalities by it."""
        return len(self), sum(D.shape[1] for D in self.parts.values())

    def __getitem__(self, key: Any) -> Any:
        """Return the Distributions of a modality by its name, or the distributions at given positions."""
        if isinstance(key, str):
            if key not in self.parts:
                raise KeyError(f"unknown modality {key!r}: expected one of {list(self.parts)}")
            return self.parts[key]
        return Modalities({modality: D[key] for modality, D in self.parts.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __repr__(self) -> str:
        features = ", ".join(f"{modality}: {D.shape[1]} features" for modality, D in self.parts.items())
        return f"Modalities({len(self)} distributions, {features})"

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        """Raise, as Distributions do."""
        raise TypeError("Modalities cannot be converted to an array: use one modality, X['rna'], or X.joint()")

    @property
    def matched(self) -> bool:
        """Whether all modalities are measured on the same cells."""
        parts = list(self.parts.values())
        if any(CELL not in D.annotations for D in parts):
            return False
        cells = [[set(D.annotations[CELL][low:high]) for low, high in pairwise(D.bounds)] for D in parts]
        return all(sets == cells[0] for sets in cells)

    def joint(self) -> Distributions:
        """Return distributions with the features of all modalities ("rna:CD8A", "protein:CD8").

        They have the cells that all modalities have, in the order of the first modality. Transport between them depends
        on combinations of features across modalities.
        """
        parts = list(self.parts.values())
        for modality, D in self.parts.items():
            if CELL not in D.annotations:
                raise ValueError(
                    f"the points of modality {modality!r} have no annotation {CELL!r}: to join modalities, give the "
                    f"names of their cells, Distributions(…, annotations={{{CELL!r}: names}})"
                )
        # Rows of the shared cells in each modality, in the order of the first modality.
        rows: list[list[int]] = [[] for _ in parts]
        for d, name in enumerate(self.names):
            row_of_cell = []
            for modality, D in self.parts.items():
                low, high = D.bounds[d], D.bounds[d + 1]
                row_of_cell.append(dict(zip(D.annotations[CELL][low:high].tolist(), range(low, high), strict=True)))
                if len(row_of_cell[-1]) < high - low:
                    problem = f"has cells of the same name in sample {name!r}: make them unique"
                    raise ValueError(f"modality {modality!r} {problem}")
            shared = [cell for cell in row_of_cell[0] if all(cell in cells for cells in row_of_cell[1:])]
            if not shared:
                raise ValueError(
                    f"sample {name!r} has no cell that is in all of {list(self.parts)}: modalities measured on "
                    "different cells have no joint metric; compare them separately"
                )
            for modality_rows, cells in zip(rows, row_of_cell, strict=True):
                modality_rows.extend(cells[cell] for cell in shared)
        blocks = [D.points[selected] for D, selected in zip(parts, rows, strict=True)]
        if all(map(sparse.issparse, blocks)):
            points = sparse.hstack(blocks, format="csr")
        else:
            points = np.hstack([block.toarray() if sparse.issparse(block) else block for block in blocks])
        first = parts[0]
        owners = np.repeat(np.arange(len(self)), first.sizes)[rows[0]]
        weights = None if first.uniform.all() else first.weights[rows[0]]
        joint = Distributions(points, owners, weights=weights, features=self._joint_features())
        joint.names, joint._numberings = list(self.names), None
        joint.annotations = {CELL: first.annotations[CELL][rows[0]]}
        return joint

    def joint_metric(self, metrics: Mapping[str, GroundMetric | str], weights: Mapping[str, float]) -> GroundMetric:
        """Return a metric for the points of `joint` whose squared distance is a weighted sum over modalities.

        Distances of a modality are divided by the spread of its points under its metric.

        Parameters
        ----------
        metrics : dict of str to GroundMetric or "euclidean"
            Metric of each modality.
        weights : dict of str to float
            Weight of each modality, at least 0; they are divided by their sum.
        """
        if set(weights) != set(self.parts):
            raise ParameterError("weights", dict(weights), f": expected a weight for each of {list(self.parts)}")
        for modality, weight in weights.items():
            check_number(f"weight of {modality!r}", weight, low=0.0)
        total = float(sum(weights.values()))
        if total == 0.0:
            raise ParameterError("weights", dict(weights), ": expected one above 0")
        blocks = []
        for modality, D in self.parts.items():
            metric = metrics.get(modality)
            if metric is None:
                problem = f", which lacks {modality!r}: give one for each modality"
                raise ParameterError("metrics", list(metrics), problem)
            metric = GroundMetric.euclidean(D.shape[1]) if isinstance(metric, str) and metric == "euclidean" else metric
            if not isinstance(metric, GroundMetric) or metric.cost is not Cost.EUCLIDEAN:
                problem = f" for {modality!r}: expected a GroundMetric of Euclidean cost, or 'euclidean'"
                raise ParameterError("metrics", metric, problem)
            metric.check_fit(D)
            spread = float(np.sqrt(metric.project(D).var(axis=0).sum())) or 1.0
            blocks.append(np.sqrt(weights[modality] / total) / spread * metric.components)
        stacked = block_diag(*blocks)
        variances = np.concatenate([D.moments(weighted=False)[1] for D in self.parts.values()])
        return GroundMetric(stacked[np.any(stacked, axis=1)], self._joint_features(), variances=variances)

    def _joint_features(self) -> list[str]:
        return [
            f"{modality}:{feature}"
            for modality, D in self.parts.items()
            for feature in (D.features if D.features is not None else range(D.shape[1]))
        ]


def _in_order(D: Distributions, names: list[Hashable], modality: str, first: str) -> Distributions:
    """Return the distributions in the order of the first modality; raise unless both have the same names."""
    position = {name: k for k, name in enumerate(D.names)}
    missing = [name for name in names if name not in position]
    unknown = [name for name in D.names if name not in set(names)]
    if missing or unknown:
        name, has, lacks = (missing[0], first, modality) if missing else (unknown[0], modality, first)
        raise ValueError(
            f"sample {name!r} is in modality {has!r}, but not in {lacks!r} ({len(names)} and {len(D.names)} samples); "
            "every sample needs all modalities: drop it, or give only modalities that have it"
        )
    return D if D.names == names else D[[position[name] for name in names]]
