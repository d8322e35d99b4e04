"""Views: ways to turn distributions into a kernel, with the same kind of kernel for new distributions.

A view has a `name`, `kernel(fold)` between training distributions, `kernel_to(description)` from new ones (rows), and
`distances` between training distributions for maps, in units of their median. `kernel(fold)` is the kernel for
predicting that cross-validation fold: it uses no label of the fold. Views without labels have one kernel for all folds.

`pack` adds the arrays of a view to those of a file and returns the description that JSON holds, `unpack` validates and
restores them. A view from a file has what `kernel_to` needs, without `distances` and `kernel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from .._internal.files import Damaged
from ..distributions import Distributions
from ..transport import pairwise
from .geometry import ArrayReader, Description, Geometry, Scaling, StoredDescription, pack_distributions
from .members import Member

EUCLIDEAN = "euclidean"
# Views of features of single distributions, by attribute of `Description`.
LINEAR = ("means", "moments", "embedding")
MARGINAL = "marginal"


def median_distance(distances: np.ndarray) -> float:
    """Return the median off-diagonal distance; 1 if it is 0."""
    off_diagonal = distances[~np.eye(len(distances), dtype=bool)]
    return (float(np.median(off_diagonal)) or 1.0) if off_diagonal.size else 1.0


def replace_diagonal(kernel: np.ndarray) -> np.ndarray:
    """Return the kernel with the largest other entry of each row on the diagonal.

    A kernel of distances has 1 there, although an independent sample of the same distribution would not be at distance
    0. A model would use these entries to explain training labels and be timid about new samples.
    """
    replaced = kernel.copy()
    np.fill_diagonal(replaced, 0.0)
    np.fill_diagonal(replaced, replaced.max(axis=1))
    return replaced


@dataclass(frozen=True)
class EuclideanView:
    """exp(-distance / median) of Euclidean transport between standardised points.

    Attributes
    ----------
    points : Distributions
        Training points, standardised and projected to the principal axes.
    unit : float
        Median distance between training distributions.
    nearest : array of shape (n_distributions,)
        Distance from each training distribution to the nearest other one, in units of the median.
    """

    points: Distributions
    unit: float
    nearest: np.ndarray
    distances: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    name: str = EUCLIDEAN

    @classmethod
    def fit(cls, geometry: Geometry) -> EuclideanView:
        unit = median_distance(geometry.euclidean_distances)
        distances = geometry.euclidean_distances / unit
        nearest = (distances + np.diag(np.full(len(distances), np.inf))).min(axis=1)
        return cls(geometry.description.euclidean, unit, nearest, distances)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return replace_diagonal(np.exp(-self.distances))

    def distances_to(self, description: Description) -> np.ndarray:
        """Return distances from new distributions (rows) to the training distributions, in units of the median."""
        return pairwise(description.euclidean, self.points).distances / self.unit

    def kernel_to(self, description: Description) -> np.ndarray:
        return np.exp(-self.distances_to(description))

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        pack_distributions(self.points, prefix, arrays)
        arrays[f"{prefix}.nearest"] = self.nearest
        return {"view": EUCLIDEAN, "unit": self.unit}

    @classmethod
    def unpack(
        cls, read: ArrayReader, entry: Mapping[str, Any], prefix: str, scaling: Scaling, n: int
    ) -> EuclideanView:
        n_components = scaling.scale.size if scaling.axes is None else len(scaling.axes)
        points = read.distributions(prefix, n, n_components)
        return cls(points, _positive(entry["unit"]), read.numbers(f"{prefix}.nearest", n))


@dataclass(frozen=True)
class LinearView:
    """Inner products of features of distributions, each standardised over the training distributions.

    Attributes
    ----------
    name : str
        Attribute of `Description` with the features.
    mean, scale : array of shape (n_columns,)
        By which features are standardised.
    x : array of shape (n_distributions, n_columns)
        Standardised features of the training distributions.
    """

    name: str
    mean: np.ndarray
    scale: np.ndarray
    x: np.ndarray

    @classmethod
    def fit(cls, geometry: Geometry, name: str) -> LinearView:
        x = getattr(geometry.description, name)
        mean, deviation = x.mean(axis=0), x.std(axis=0)
        varies = deviation > 1e-9 * max(float(np.abs(x).max(initial=0.0)), 1e-300)
        scale = np.where(varies, deviation, np.inf) * np.sqrt(x.shape[1])
        return cls(name, mean, scale, (x - mean) / scale)

    @property
    def distances(self) -> np.ndarray:
        distances = cdist(self.x, self.x)
        return distances / median_distance(distances)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return self.x @ self.x.T

    def kernel_to(self, description: Description) -> np.ndarray:
        return (getattr(description, self.name) - self.mean) / self.scale @ self.x.T

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        arrays |= {f"{prefix}.{part}": getattr(self, part) for part in ("mean", "scale", "x")}
        return {"view": self.name}

    @classmethod
    def unpack(cls, read: ArrayReader, name: str, prefix: str, scaling: Scaling, n: int) -> LinearView:
        mean = read.numbers(f"{prefix}.mean", {"means": 1, "moments": 2}.get(name, 0) * scaling.scale.size or None)
        return cls(name, mean, read.scales(f"{prefix}.scale", mean.size), read.numbers(f"{prefix}.x", n, mean.size))


@dataclass(frozen=True)
class MemberView:
    """Kernels of learned metrics, averaged over the members that were trained on none of the samples involved.

    The entry of training samples i and j averages members that leave out their folds F(i) and F(j) and, for predicting
    fold f, also f. The entry of a new sample and j averages members that leave out F(j): training and prediction see
    the same kind of distance. Subclasses define the distances under a member.

    Attributes
    ----------
    name : str
        Name of the view.
    members : list of Member
        Members of one kind.
    units : list of float
        Median distance under each member between distributions that it was not trained on.
    description : Description
        The training distributions; at least the features that members use.
    blocks : list of array of shape (n_distributions, n_distributions)
        Distances under each member in these units; entries of distributions that it was trained on are ignored.
    """

    name: str
    members: list[Member]
    units: list[float]
    description: Description
    blocks: list[np.ndarray] = field(default_factory=list, repr=False)

    @classmethod
    def fit(cls, name: str, geometry: Geometry, members: Sequence[Member]) -> MemberView:
        view = cls(name, list(members), [], geometry.description)
        for member in view.members:
            out = np.flatnonzero(~member.trained_on)
            block = np.zeros((member.trained_on.size, member.trained_on.size))
            block[np.ix_(out, out)] = within = view.member_distances(member, geometry.description, out, out)
            view.units.append(median_distance(within))
            view.blocks.append(block / view.units[-1])
        return view

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        """Return distances from distributions `rows` of a description to the training distributions `columns`."""
        raise NotImplementedError

    @property
    def distances(self) -> np.ndarray:
        distances = self._average(self.blocks, None)
        np.fill_diagonal(distances, 0.0)
        return distances

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return replace_diagonal(self._average([np.exp(-block) for block in self.blocks], fold))

    def _average(self, blocks: Sequence[np.ndarray], fold: int | None) -> np.ndarray:
        total, count = np.zeros_like(blocks[0]), np.zeros_like(blocks[0])
        for member, block in zip(self.members, blocks, strict=True):
            if fold is None or fold in member.left_out:
                pairs = np.ix_(~member.trained_on, ~member.trained_on)
                total[pairs] += block[pairs]
                count[pairs] += 1.0
        return total / np.maximum(count, 1.0)

    def kernel_to(self, description: Description) -> np.ndarray:
        total = np.zeros((len(description), self.members[0].trained_on.size))
        count = np.zeros(total.shape[1])
        for member, unit in zip(self.members, self.units, strict=True):
            out = np.flatnonzero(~member.trained_on)
            distances = self.member_distances(member, description, np.arange(len(description)), out)
            total[:, out] += np.exp(-distances / unit)
            count[out] += 1.0
        return total / count

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        for m, member in enumerate(self.members):
            arrays |= {f"{prefix}.{part}{m}": getattr(member, part) for part in ("columns", "weights", "trained_on")}
        return {
            "view": MARGINAL if self.name == MARGINAL else "transport",
            "kind": self.members[0].kind,
            "units": [float(unit) for unit in self.units],
            "left_out": [[int(fold) for fold in member.left_out] for member in self.members],
        }

    @classmethod
    def unpack(
        cls, read: ArrayReader, entry: Mapping[str, Any], prefix: str, stored: StoredDescription | None, n: int
    ) -> MemberView:
        if entry["view"] not in (MARGINAL, "transport") or stored is None:
            raise Damaged(f"the view {entry['view']!r} has no members")
        kind, members = str(entry["kind"]), []
        for m, left_out in enumerate(entry["left_out"]):
            columns = read.indices(f"{prefix}.columns{m}", stored.scaling.scale.size)
            if not np.isin(columns, stored.used).all():
                raise Damaged("a member uses features that are not in the file")
            weights, trained_on = (
                read.numbers(f"{prefix}.weights{m}", columns.size),
                read.mask(f"{prefix}.trained_on{m}", n),
            )
            if not np.all(weights > 0):
                raise Damaged("weights of a member are not positive")
            members.append(Member(kind, tuple(map(int, left_out)), trained_on, columns, weights))
        units = [_positive(unit) for unit in entry["units"]]
        if not members or len(units) != len(members) or np.all([m.trained_on for m in members], axis=0).any():
            raise Damaged("a training distribution is left out by no member")
        if entry["view"] == MARGINAL:
            return MarginalView(MARGINAL, members, units, stored)
        return TransportView(kind, members, units, stored)


@dataclass(frozen=True)
class TransportView(MemberView):
    """exp(-distance / median) of transport under the learned metrics of one kind."""

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        training = _weighted(self.description, member, columns)
        if description is self.description and rows is columns:
            return pairwise(training).distances
        return pairwise(_weighted(description, member, rows), training).distances


@dataclass(frozen=True)
class MarginalView(MemberView):
    """exp(-distance / median) of the weighted sum of 1-D transport distances of single features."""

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        # The sum of weighted 1-D distances is the Manhattan distance between weighted quantile functions.
        new, training = (
            (part.quantiles_of(member.columns)[chosen] * member.weights).reshape(chosen.size, -1)
            for part, chosen in ((description, rows), (self.description, columns))
        )
        return cdist(new, training, "cityblock")


def _weighted(description: Description, member: Member, rows: np.ndarray) -> Distributions:
    D = description.columns(member.columns)[rows]
    return D.with_points(D.points * member.weights)


View = EuclideanView | LinearView | MemberView


def unpack_view(
    read: ArrayReader, entry: Mapping[str, Any], prefix: str, scaling: Scaling, stored: StoredDescription | None, n: int
) -> View:
    """Return the view of n training distributions that `pack` was given; raise `Damaged` where something is wrong."""
    if entry["view"] == EUCLIDEAN:
        return EuclideanView.unpack(read, entry, prefix, scaling, n)
    if entry["view"] in LINEAR:
        return LinearView.unpack(read, entry["view"], prefix, scaling, n)
    return MemberView.unpack(read, entry, prefix, stored, n)


def _positive(value: Any) -> float:
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise Damaged(f"a unit of distances is {number}")
    return number
