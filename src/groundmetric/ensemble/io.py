"""Files of predictors: arrays and JSON, without pickle. Every array of a file is checked before it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._internal.files import Damaged, check_content, read_header, unpack, write_arrays
from ..distributions import Distributions
from .fit import Predictor
from .geometry import Description, Scaling
from .members import Member
from .stacking import KernelModel, Stack
from .targets import Classes, Numbers, Survival, Target
from .views import LINEAR, MARGINAL, EuclideanView, LinearView, MarginalView, MemberView, TransportView, View

FORMAT, VERSION = "groundmetric.Predictor", 2
_SCALING = ("centre", "scale")
_MODEL = ("columns", "axes", "coefficients", "mixture")


class StoredDescription(Description):
    """Training distributions of a file: standardised points and quantile functions of the features that members use.

    Attributes
    ----------
    used : array of int
        These features, in ascending order.
    """

    def __init__(self, scaling: Scaling, used: np.ndarray, points: Distributions, quantiles: np.ndarray) -> None:
        super().__init__(scaling, points, points, points.sizes)
        self.used, self.used_quantiles = used, quantiles

    @classmethod
    def of(cls, description: Description, used: np.ndarray) -> StoredDescription:
        return cls(description.scaling, used, description.columns(used), description.quantiles_of(used))

    def columns(self, columns: np.ndarray) -> Distributions:
        return self.few.with_points(self.few.points[:, np.searchsorted(self.used, columns)])

    def quantiles_of(self, columns: np.ndarray) -> np.ndarray:
        return self.used_quantiles[:, :, np.searchsorted(self.used, columns)]


def pack_predictor(predictor: Predictor) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a predictor as JSON and arrays."""
    arrays: dict[str, np.ndarray] = {"weights": predictor.stack.weights}
    modalities = []
    for k, (name, scaling) in enumerate(predictor.scalings.items()):
        prefix = f"scaling{k}"
        arrays |= {f"{prefix}.{part}": getattr(scaling, part) for part in _SCALING}
        if scaling.axes is not None:
            arrays[f"{prefix}.axes"] = scaling.axes
        arrays |= _pack_members(predictor, name, f"modality{k}")
        modalities.append(
            {"name": name, "seed": scaling.seed, "n_points": scaling.n_points,
             "n_marginal_points": scaling.n_marginal_points, "width": scaling.width}
        )  # fmt: skip
    views = []
    for k, ((name, view), model) in enumerate(zip(predictor.views, predictor.stack.models, strict=True)):
        arrays |= {f"model{k}.{part}": getattr(model, part) for part in _MODEL}
        entry: dict[str, Any] = {"modality": name, "overall": model.overall, "scale": model.scale}
        views.append(entry | _pack_view(view, f"view{k}", arrays))
    target: dict[str, Any] = {"kind": type(predictor.target).__name__}
    if isinstance(predictor.target, Classes):
        target["n_classes"] = predictor.target.n_classes
    elif isinstance(predictor.target, Numbers):
        target["unit"] = predictor.target.unit
    return {"names": predictor.names, "modalities": modalities, "views": views, "target": target}, arrays


def _pack_members(predictor: Predictor, modality: str, prefix: str) -> dict[str, np.ndarray]:
    """Return the training points and quantile functions that the member views of a modality read."""
    views = [view for name, view in predictor.views if name == modality and isinstance(view, MemberView)]
    if not views:
        return {}
    used = np.unique(np.concatenate([member.columns for view in views for member in view.members]))
    stored = StoredDescription.of(views[0].description, used)
    points = {f"{prefix}.{name}": values for name, values in _pack_distributions(stored.few).items()}
    return {f"{prefix}.used": used, f"{prefix}.quantiles": stored.used_quantiles, **points}


def _pack_view(view: View, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if isinstance(view, EuclideanView):
        arrays |= {f"{prefix}.{name}": values for name, values in _pack_distributions(view.points).items()}
        arrays[f"{prefix}.nearest"] = view.nearest
        return {"view": "euclidean", "unit": view.unit}
    if isinstance(view, LinearView):
        arrays |= {f"{prefix}.mean": view.mean, f"{prefix}.scale": view.scale, f"{prefix}.x": view.x}
        return {"view": view.name}
    assert isinstance(view, MemberView)
    for m, member in enumerate(view.members):
        arrays |= {
            f"{prefix}.columns{m}": member.columns,
            f"{prefix}.weights{m}": member.weights,
            f"{prefix}.trained_on{m}": member.trained_on,
        }
    return {
        "view": MARGINAL if isinstance(view, MarginalView) else "transport",
        "kind": view.members[0].kind,
        "units": [float(unit) for unit in view.units],
        "left_out": [[int(fold) for fold in member.left_out] for member in view.members],
    }


def _pack_distributions(D: Distributions) -> dict[str, np.ndarray]:
    # The rows of the input that the points come from: a report looks up the cell types of the drawn cells by them.
    return {
        "bounds": D.bounds, "weights": D.weights, "uniform": D.uniform, "points": np.asarray(D.points),
        "order": D.order,
    }  # fmt: skip


def unpack_predictor(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_features: int) -> Predictor:
    """Return the predictor that `pack_predictor` was given; raise `Damaged` where something does not fit."""
    read = Reader(arrays)
    names = [str(name) for name in description["names"]]
    scalings = {}
    stored: dict[str, StoredDescription | None] = {}
    for k, entry in enumerate(description["modalities"]):
        name = str(entry["name"])
        scalings[name] = _unpack_scaling(read, entry, f"scaling{k}", None if entry["name"] else n_features)
        stored[name] = _unpack_stored(read, scalings[name], f"modality{k}", len(names))
    if not scalings:
        raise Damaged("there is no modality")
    target = _unpack_target(description["target"])
    views: list[tuple[str, View]] = []
    models = []
    for k, entry in enumerate(description["views"]):
        name = str(entry["modality"])
        views.append((name, _unpack_view(read, entry, f"view{k}", scalings[name], stored[name], len(names))))
        models.append(_unpack_model(read, entry, f"model{k}", len(names), target))
    weights = read.numbers("weights", len(views))
    if not views or np.any(weights < 0) or not np.isclose(weights.sum(), 1.0):
        raise Damaged("stacking weights are not positive numbers of sum 1")
    if {name for name, view in views if isinstance(view, EuclideanView)} != set(scalings):
        raise Damaged("a modality has no Euclidean view")
    return Predictor(names, scalings, views, Stack(models, weights), target)


def _unpack_scaling(read: Reader, entry: Mapping[str, Any], prefix: str, n_features: int | None) -> Scaling:
    centre = read.numbers(f"{prefix}.centre", n_features)
    scale = read.arrays[f"{prefix}.scale"]
    if scale.shape != centre.shape or scale.dtype.kind != "f" or not np.all(scale > 0):
        raise Damaged("scales of features are not positive")
    axes = read.numbers(f"{prefix}.axes", None, centre.size) if f"{prefix}.axes" in read.arrays else None
    counts = [int(entry[name]) for name in ("n_points", "n_marginal_points")]
    width = float(entry["width"])
    if min(counts) < 1 or not (np.isfinite(width) and width > 0):
        raise Damaged("numbers of points or the width are not positive")
    return Scaling(int(entry["seed"]), counts[0], counts[1], centre, scale, axes, width)


def _unpack_stored(read: Reader, scaling: Scaling, prefix: str, n: int) -> StoredDescription | None:
    if f"{prefix}.used" not in read.arrays:
        return None
    used = read.indices(f"{prefix}.used", scaling.scale.size)
    if np.any(np.diff(used) <= 0):
        raise Damaged("features of members are not in ascending order")
    quantiles = read.numbers(f"{prefix}.quantiles", n, None, used.size)
    return StoredDescription(scaling, used, read.distributions(prefix, n, used.size), quantiles)


def _unpack_target(entry: Mapping[str, Any]) -> Target:
    kind, nothing = entry["kind"], np.empty(0)
    if kind == "Classes":
        n_classes = int(entry["n_classes"])
        if n_classes < 2:
            raise Damaged(f"there are {n_classes} classes")
        return Classes(nothing.astype(np.intp), n_classes)
    unit = float(entry["unit"])
    if kind not in ("Numbers", "Survival") or not (np.isfinite(unit) and unit > 0):
        raise Damaged(f"the target is {kind!r} with unit {unit}")
    return (Numbers if kind == "Numbers" else Survival)(nothing, unit=unit)


def _unpack_model(read: Reader, entry: Mapping[str, Any], prefix: str, n: int, target: Target) -> KernelModel:
    axes, mixture = read.numbers(f"{prefix}.axes", n, None), read.numbers(f"{prefix}.mixture", None)
    width = axes.shape[1] + 1
    shape = (target.n_classes, width) if isinstance(target, Classes) else (width,)
    coefficients = read.numbers(f"{prefix}.coefficients", mixture.size, *shape)
    overall, scale = float(entry["overall"]), float(entry["scale"])
    if np.any(mixture < 0) or not np.isclose(mixture.sum(), 1.0):
        raise Damaged("weights of penalties are not positive numbers of sum 1")
    if not (np.isfinite(overall) and np.isfinite(scale) and scale > 0):
        raise Damaged("the scale of a kernel is not positive")
    return KernelModel(read.numbers(f"{prefix}.columns", n), overall, scale, axes, coefficients, mixture)


def _unpack_view(
    read: Reader, entry: Mapping[str, Any], prefix: str, scaling: Scaling, stored: StoredDescription | None, n: int
) -> View:
    kind = entry["view"]
    if kind == "euclidean":
        n_components = scaling.scale.size if scaling.axes is None else len(scaling.axes)
        unit = _positive(entry["unit"])
        return EuclideanView(read.distributions(prefix, n, n_components), unit, read.numbers(f"{prefix}.nearest", n))
    if kind in LINEAR:
        mean = read.numbers(f"{prefix}.mean", None)
        scale = read.arrays[f"{prefix}.scale"]
        if scale.shape != mean.shape or scale.dtype.kind != "f" or not np.all(scale > 0):
            raise Damaged("scales of a view are not positive")
        n_columns = {"means": 1, "moments": 2}.get(kind, 0) * scaling.scale.size or mean.size
        if mean.size != n_columns:
            raise Damaged(f"the view {kind!r} has {mean.size} columns")
        return LinearView(kind, mean, scale, read.numbers(f"{prefix}.x", n, mean.size))
    if kind not in (MARGINAL, "transport") or stored is None:
        raise Damaged(f"the view {kind!r} has no members")
    members = []
    for m, left_out in enumerate(entry["left_out"]):
        columns = read.indices(f"{prefix}.columns{m}", scaling.scale.size)
        if not np.isin(columns, stored.used).all():
            raise Damaged("a member uses features that are not in the file")
        trained_on = read.arrays[f"{prefix}.trained_on{m}"]
        if trained_on.shape != (n,) or trained_on.dtype != bool:
            raise Damaged("training distributions of a member are missing")
        weights = read.numbers(f"{prefix}.weights{m}", columns.size)
        if not np.all(weights > 0):
            raise Damaged("weights of a member are not positive")
        members.append(Member(str(entry["kind"]), tuple(map(int, left_out)), trained_on, columns, weights))
    units = [_positive(unit) for unit in entry["units"]]
    if not members or len(units) != len(members) or np.all([member.trained_on for member in members], axis=0).any():
        raise Damaged("a training distribution is left out by no member")
    make = MarginalView if kind == MARGINAL else TransportView
    return make(MARGINAL if kind == MARGINAL else str(entry["kind"]), members, units, stored)


def _positive(value: Any) -> float:
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise Damaged(f"a unit of distances is {number}")
    return number


class Reader:
    """Arrays of a file, checked before they are used."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays

    def numbers(self, name: str, *shape: int | None) -> np.ndarray:
        """Return finite numbers of this shape; None stands for any length."""
        values = self.arrays[name]
        fits = values.ndim == len(shape) and all(
            wanted in (None, length) for length, wanted in zip(values.shape, shape, strict=True)
        )
        if not fits or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise Damaged(f"{name} has {values.dtype} of shape {values.shape}: expected finite numbers of {shape}")
        return values

    def indices(self, name: str, limit: int) -> np.ndarray:
        """Return whole numbers from 0 to below the limit."""
        values = self.arrays[name]
        if values.ndim != 1 or values.dtype.kind not in "iu" or not np.all((values >= 0) & (values < limit)):
            raise Damaged(f"{name} are not indices below {limit}")
        return values.astype(np.intp)

    def distributions(self, prefix: str, n: int, n_features: int) -> Distributions:
        """Return distributions with this number of features."""
        bounds, uniform = self.arrays[f"{prefix}.bounds"], self.arrays[f"{prefix}.uniform"]
        if bounds.shape != (n + 1,) or bounds.dtype.kind not in "iu" or bounds[0] != 0 or np.any(np.diff(bounds) < 1):
            raise Damaged(f"{prefix}.bounds do not divide points into {n} distributions")
        n_points = int(bounds[-1])
        if uniform.shape != (n,) or uniform.dtype != bool:
            raise Damaged(f"{prefix}.uniform has shape {uniform.shape}, expected ({n},)")
        points = self.numbers(f"{prefix}.points", n_points, n_features)
        weights = self.numbers(f"{prefix}.weights", n_points)
        sums = np.add.reduceat(weights, bounds[:-1])
        if np.any(weights < 0) or not np.allclose(sums, 1.0):
            raise Damaged(f"{prefix}.weights are not masses of sum 1")
        D = Distributions(points, np.repeat(np.arange(n), np.diff(bounds)))
        order = self.arrays[f"{prefix}.order"]
        if order.shape != (n_points,) or order.dtype.kind not in "iu" or np.any(order < 0):
            raise Damaged(f"{prefix}.order has shape {order.shape}, expected ({n_points},) row numbers")
        if np.unique(order).size < n_points:
            raise Damaged(f"{prefix}.order names a row twice")
        D.weights, D.uniform, D.order = weights, uniform, order.astype(np.intp)
        return D


def write_file(path: str | os.PathLike[str], description: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a predictor by an atomic write, which replaces an older predictor but no other kind of file."""
    write_arrays(path, FORMAT, VERSION, description, arrays, compress=True)


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write_file` made."""
    try:
        version, checksum, content = read_header(path, FORMAT)
    except Damaged:
        raise unreadable(path, "it does not begin as one") from None
    if version > VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} has format version {version}, this groundmetric reads version {VERSION}: update "
            "groundmetric"
        )
    if version < VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} was written by groundmetric 0.2 or older, whose ensembles cannot be read: fit again"
        )
    if not check_content(content, checksum, FORMAT, version):
        raise unreadable(path, "its content does not match its checksum")
    return unpack(content, repr(os.fspath(path)))


def unreadable(where: str | os.PathLike[str], reason: Any) -> ValueError:
    """Return the error for a file that is not a valid predictor."""
    kinds = "TransportClassifier, TransportRegressor or TransportSurvival"
    return ValueError(f"{os.fspath(where)!r} is damaged or not a saved {kinds}: {reason}")
