"""What an ensemble predicts with: the kernel models of its views, and those training values that they compare with.

A fitted ensemble holds every draw of the training points with all features, which takes as much room as the data. Of
these, distances of new distributions need only the features that the members of a draw use, and the projected points
of the Euclidean metric. That much is small enough for a file, which is without pickle: nothing in it is believed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from .._internal.arrays import check_content, read_header, unpack, write_arrays
from .._internal.files import Damaged
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ._kernel import KernelModel, similarities, votes
from .ensemble import EUCLIDEAN, VOTES, GroundMetricEnsemble

MEANS = "means"
_FORMAT, _VERSION = "groundmetric.Predictor", 1


@dataclass(frozen=True)
class Draw:
    """Points of the training distributions as some members have drawn them, with the features that these use.

    Attributes
    ----------
    seed : int
        Seed of the draw; points of new distributions are drawn by it, too.
    columns : array of shape (n_used,)
        The features.
    points : Distributions
        The training distributions.
    members : list of (str, array of shape (n_components, n_used))
        Kind and components of the members.
    inside : array of bool of shape (n_distributions,) or None
        Distributions that they were learned from; None where an older version wrote the file.
    """

    seed: int
    columns: np.ndarray
    points: Distributions
    members: list[tuple[str, np.ndarray]]
    inside: np.ndarray | None

    @classmethod
    def of(cls, ensemble: GroundMetricEnsemble, draw: int, kinds: set[str]) -> Draw:
        own = [[m for m in ensemble.members_ if m.kind == kind][draw] for kind in ensemble.kinds if kind in kinds]
        members = [(member.kind, member.metric.components) for member in own]
        columns = np.flatnonzero(np.any([np.any(components, axis=0) for _, components in members], axis=0))
        geometry = ensemble._geometry
        D = geometry.draws[draw]
        kept = D.points[:, columns]
        points = D.with_points(sparse.csr_matrix(kept) if sparse.issparse(geometry.D.points) else kept)
        seed, members = int(geometry.seeds[draw]), [(kind, components[:, columns]) for kind, components in members]
        return cls(seed, columns, points, members, own[0].inside)

    def distances(self, few: Distributions) -> list[tuple[str, np.ndarray]]:
        """From new distributions, of which points are drawn, to the training ones, by each member."""
        seen = few.with_points(few.points[:, self.columns])
        return [
            (kind, pairwise_distances(seen, self.points, metric=GroundMetric(components)))
            for kind, components in self.members
        ]


@dataclass(frozen=True)
class PooledView:
    """One way to compare distributions, and its share in predictions; see `ensemble.View`."""

    name: str
    unit: float
    weight: float
    strength: float
    kernel: np.ndarray | None  # of the training distributions; votes have none


@dataclass(frozen=True)
class Pool:
    """Views of an ensemble that have a share in predictions, and the training values that they compare with.

    Attributes
    ----------
    kinds : list of str
        Kinds of members; the last one votes.
    codes : array of shape (n_distributions,)
        Classes of the training distributions as numbers; or values, in units of their spread.
    n_classes : int
        Number of classes; 0 of values.
    strata : array of shape (n_distributions,) or None
        Strata of the training distributions as numbers, in each of which classes count the same.
    mean, spread : float
        Of values: what `codes` are in units of.
    max_points : int
        Points of each distribution that are drawn at most.
    views : list of PooledView
        Those with a share.
    draws : list of Draw
        With the members of the kinds that have a share.
    euclidean : GroundMetric
        Metric that no label has a part in.
    seed : int
        Seed of the draw of points for it.
    known : Distributions
        Training points, projected by it.
    nearest : array of shape (n_distributions,)
        Its distance from each training distribution to the nearest other one.
    scale, centre, width : array of shape (n_features,)
        By which means are standardised.
    means : array of shape (n_distributions, n_features)
        Standardised means of the training distributions.
    """

    kinds: list[str]
    codes: np.ndarray
    n_classes: int
    strata: np.ndarray | None
    mean: float
    spread: float
    max_points: int
    views: list[PooledView]
    draws: list[Draw]
    euclidean: GroundMetric
    seed: int
    known: Distributions
    nearest: np.ndarray
    scale: np.ndarray
    centre: np.ndarray
    width: np.ndarray
    means: np.ndarray

    @classmethod
    def of(cls, ensemble: GroundMetricEnsemble) -> Pool:
        """What a fitted ensemble predicts with."""
        geometry, n_classes = ensemble._geometry, ensemble.classes_.size
        views = [
            PooledView(view.name, view.unit, view.weight, view.reading.strength,
                       None if view.name == VOTES else view.kernel)
            for view in ensemble._views if view.weight > 0
        ]  # fmt: skip
        used = {ensemble.kinds[-1] if view.name == VOTES else view.name for view in views} & set(ensemble.kinds)
        others = geometry.euclidean_distances + np.diag(np.full(ensemble._codes.size, np.inf))
        first = geometry.draws[0]
        return cls(
            kinds=list(ensemble.kinds),
            codes=ensemble._codes,
            n_classes=n_classes,
            strata=ensemble._strata,
            mean=0.0 if n_classes else ensemble._mean,
            spread=1.0 if n_classes else ensemble._spread,
            max_points=int(geometry.max_points),
            views=views,
            draws=[Draw.of(ensemble, draw, used) for draw in range(len(geometry.draws))] if used else [],
            euclidean=geometry.euclidean,
            seed=int(geometry.seeds[0]),
            known=first.with_points(geometry.euclidean.project(first)),
            nearest=others.min(axis=1),
            scale=geometry.scale,
            centre=geometry.centre,
            width=geometry.spread,
            means=geometry.own_means,
        )

    @cached_property
    def models(self) -> list[KernelModel | None]:
        return [
            None
            if view.kernel is None
            else KernelModel(view.kernel, self.codes, view.strength, self.n_classes, self.strata)
            for view in self.views
        ]

    def predict(self, D: Distributions, euclidean: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, or values in units of their spread; `euclidean` are such distances of D."""
        distances = {EUCLIDEAN: euclidean, **self._learned_distances(D)}
        found = []
        for view, model in zip(self.views, self.models, strict=True):
            if model is None:
                predicted = votes(distances[self.kinds[-1]], self.codes, self.n_classes)
            elif view.name == MEANS:
                means = (D.means() / self.scale - self.centre) / self.width
                predicted = model.predict(means @ self.means.T)
            else:
                predicted = model.predict(similarities(distances[view.name], view.unit))
            found.append(view.weight * predicted)
        return np.sum(found, axis=0)

    def euclidean_distances(self, D: Distributions) -> np.ndarray:
        """Distances to the training distributions that no label has a part in."""
        few = self.few(D, self.seed)
        z = few.with_points(self.euclidean.project(few))
        return pairwise_distances(z, self.known, metric=GroundMetric.euclidean(self.known.shape[1]))

    def _learned_distances(self, D: Distributions) -> dict[str, np.ndarray]:
        """Distances by each kind of members, averaged over these, each by its own draw."""
        found: dict[str, Any] = {}
        for draw in self.draws:
            for kind, distances in draw.distances(self.few(D, draw.seed)):
                found[kind] = found.get(kind, 0.0) + distances
        return {kind: total / len(self.draws) for kind, total in found.items()}

    def few(self, D: Distributions, seed: int) -> Distributions:
        """Points of distributions as the members of a draw have drawn those of training."""
        few = D.sizes.max() <= self.max_points
        return D if few else D.subsample(self.max_points, random_state=seed)

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As JSON and arrays of numbers."""
        arrays = {
            "codes": self.codes, "nearest": self.nearest, "scale": self.scale, "centre": self.centre,
            "width": self.width, "means": self.means, "euclidean": self.euclidean.components,
            **_pack_distributions(self.known, "known"),
        }  # fmt: skip
        if self.strata is not None:
            arrays["strata"] = self.strata
        for k, view in enumerate(self.views):
            if view.kernel is not None:
                arrays[f"kernel{k}"] = view.kernel
        for d, draw in enumerate(self.draws):
            arrays |= {f"draw{d}.columns": draw.columns, **_pack_distributions(draw.points, f"draw{d}")}
            arrays |= {f"draw{d}.member{m}": components for m, (_, components) in enumerate(draw.members)}
            arrays |= {} if draw.inside is None else {f"draw{d}.inside": draw.inside}
        description = {
            "kinds": self.kinds, "n_classes": self.n_classes, "mean": self.mean, "spread": self.spread,
            "max_points": self.max_points, "seed": self.seed,
            "views": [{"name": v.name, "unit": v.unit, "weight": v.weight, "strength": v.strength} for v in self.views],
            "draws": [{"seed": draw.seed, "members": [kind for kind, _ in draw.members]} for draw in self.draws],
        }  # fmt: skip
        return description, arrays

    @classmethod
    def unpack(cls, description: dict[str, Any], arrays: dict[str, np.ndarray], n_features: int) -> Pool:
        """What `pack` gave; `Damaged` where something does not go together."""
        has = _Reader(arrays)
        codes = arrays["codes"]
        n, n_classes = codes.size, int(description["n_classes"])
        if codes.ndim != 1 or (n_classes and (codes.dtype.kind not in "iu" or codes.min() < 0)) or n_classes < 0:
            raise Damaged("codes are no classes or values")
        if n_classes and codes.max() >= n_classes:
            raise Damaged(f"a code is {codes.max()}, and there are {n_classes} classes")
        strata = arrays.get("strata")
        if strata is not None and (strata.shape != (n,) or strata.dtype.kind not in "iu"):
            raise Damaged(f"strata are none of {n} distributions")
        views = [
            PooledView(
                str(view["name"]), float(view["unit"]), float(view["weight"]), float(view["strength"]),
                None if view["name"] == VOTES else has.numbers(f"kernel{k}", n, n),
            )
            for k, view in enumerate(description["views"])
        ]  # fmt: skip
        draws = [_unpack_draw(has, f"draw{d}", draw, n, n_features) for d, draw in enumerate(description["draws"])]
        euclidean = GroundMetric(has.numbers("euclidean", None, n_features))
        pool = cls(
            kinds=[str(kind) for kind in description["kinds"]],
            codes=codes,
            n_classes=n_classes,
            strata=strata,
            mean=float(description["mean"]),
            spread=float(description["spread"]),
            max_points=int(description["max_points"]),
            views=views,
            draws=draws,
            euclidean=euclidean,
            seed=int(description["seed"]),
            known=has.distributions("known", n, euclidean.n_components),
            nearest=has.numbers("nearest", n),
            scale=has.numbers("scale", n_features),
            centre=has.numbers("centre", n_features),
            width=has.numbers("width", n_features),
            means=has.numbers("means", n, n_features),
        )
        pool._check_kinds()
        return pool

    def _check_kinds(self) -> None:
        """Raise unless every view finds the members that it reads."""
        known = [{kind for kind, _ in draw.members} for draw in self.draws]
        for view in self.views:
            kind = self.kinds[-1] if view.name == VOTES else view.name
            if kind not in (MEANS, EUCLIDEAN) and not (known and all(kind in kinds for kinds in known)):
                raise Damaged(f"the view {view.name!r} has no members")


def _unpack_draw(has: _Reader, name: str, description: dict[str, Any], n: int, n_features: int) -> Draw:
    columns = has.arrays[f"{name}.columns"]
    if columns.ndim != 1 or columns.dtype.kind not in "iu" or not np.all((columns >= 0) & (columns < n_features)):
        raise Damaged(f"the columns of {name} are none of {n_features} features")
    members = [
        (str(kind), has.numbers(f"{name}.member{m}", None, columns.size))
        for m, kind in enumerate(description["members"])
    ]
    inside = has.arrays.get(f"{name}.inside")
    if inside is not None and (inside.shape != (n,) or inside.dtype != bool):
        raise Damaged(f"{name} does not say which of {n} distributions it was learned from")
    return Draw(int(description["seed"]), columns, has.distributions(name, n, columns.size), members, inside)


def _pack_distributions(D: Distributions, name: str) -> dict[str, np.ndarray]:
    found = {f"{name}.bounds": D.bounds, f"{name}.weights": D.weights, f"{name}.uniform": D.uniform}
    if not sparse.issparse(D.points):
        return found | {f"{name}.points": D.points}
    return found | {f"{name}.{part}": getattr(D.points, part) for part in ("data", "indices", "indptr")}


class _Reader:
    """Arrays of a file, of which each is checked before it is used."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def numbers(self, name: str, *shape: int | None) -> np.ndarray:
        """Finite numbers of this shape; None where any length will do."""
        values = self.arrays[name]
        fits = values.ndim == len(shape) and all(
            want in (None, got) for got, want in zip(values.shape, shape, strict=True)
        )
        if not fits or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise Damaged(f"{name} has {values.dtype} of shape {values.shape}: expected finite numbers of {shape}")
        return values

    def distributions(self, name: str, n: int, n_features: int) -> Distributions:
        bounds, uniform = self.arrays[f"{name}.bounds"], self.arrays[f"{name}.uniform"]
        if bounds.shape != (n + 1,) or bounds.dtype.kind not in "iu" or bounds[0] != 0 or np.any(np.diff(bounds) < 1):
            raise Damaged(f"the bounds of {name} are none of {n} distributions")
        n_points = int(bounds[-1])
        if uniform.shape != (n,) or uniform.dtype != bool:
            raise Damaged(f"{name} does not say which of {n} distributions have equal masses")
        if f"{name}.points" in self.arrays:
            points: Any = self.numbers(f"{name}.points", n_points, n_features)
        else:
            points = self._sparse(name, (n_points, n_features))
        found = Distributions(points, np.repeat(np.arange(n), np.diff(bounds)))
        found.weights, found.uniform = self.numbers(f"{name}.weights", n_points), uniform
        return found

    def _sparse(self, name: str, shape: tuple[int, int]) -> sparse.csr_matrix:
        data = self.numbers(f"{name}.data", None)
        indices, indptr = self.arrays[f"{name}.indices"], self.arrays[f"{name}.indptr"]
        if indices.dtype.kind != "i" or indptr.dtype.kind != "i":
            raise Damaged(f"the indices of {name} are no whole numbers")
        try:
            found = sparse.csr_matrix((data, indices, indptr), shape)
            found.check_format(full_check=True)
        except ValueError as error:
            raise Damaged(f"{name} is no sparse matrix: {error}") from error
        return found


def write_file(path: str | os.PathLike[str], description: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write the file whole or not at all, over an older one of a predictor but over nothing else."""
    write_arrays(path, _FORMAT, _VERSION, description, arrays, compress=True)


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write_file` made; say clearly what is wrong with any other."""
    try:
        version, checksum, content = read_header(path, _FORMAT)
    except Damaged:
        raise unreadable(path, "it does not begin as one") from None
    if version > _VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} has format version {version}, this groundmetric reads up to {_VERSION}: update "
            "groundmetric"
        )
    if not check_content(content, checksum, _FORMAT, version):
        raise unreadable(path, "its content does not match its checksum")
    return unpack(content, repr(os.fspath(path)))


def unreadable(where: str | os.PathLike[str], what: Any) -> ValueError:
    kinds = "TransportClassifier, TransportRegressor or TransportSurvival"
    return ValueError(f"{os.fspath(where)!r} is damaged or no saved {kinds}: {what}")
