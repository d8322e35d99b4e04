"""Options of learning as objects (neighbours, stopping, checkpoints, forms), all checked, and as text in files."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal.validation import ParameterError, check_number, real_array
from ..supervision.labels import Classes, Distances, Ordered
from ..transport.solvers.exact import Exact
from .penalties import Penalty, resolve_penalty

if TYPE_CHECKING:
    from .._internal.types import Transformer


@dataclass(frozen=True)
class Nearest:
    """Neighbours that are nearest under the present metric (hard mining), chosen anew every few epochs.

    Parameters
    ----------
    refresh : int, default=5
        Epochs between two choices.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.GroundMetricLearner(neighbors=gm.learning.Nearest(refresh=2)).neighbors
    Nearest(refresh=2)
    """

    refresh: int = 5

    def __post_init__(self) -> None:
        check_number("refresh", self.refresh, low=1, whole=True)


@dataclass(frozen=True)
class EarlyStopping:
    """Rule by which learning stops before the last epoch.

    Parameters
    ----------
    tol : float, default=0.001
        Learning stops when the loss with penalty has varied by less than `tol` times the margin over `patience` epochs,
        or the best held-out loss has not fallen by more than that. With 0, the first never happens; the held-out loss
        must still fall.
    patience : int, default=10
        Number of epochs over which the loss is compared.
    validation_fraction : float, default=0.0
        Share of the distributions of each class that is held out to detect overfitting, at least two of each class
        remaining: learning stops when their loss no longer falls, and the W of the lowest held-out loss is the result.
        With 0, the training loss decides.

    Examples
    --------
    >>> EarlyStopping(patience=5)
    EarlyStopping(tol=0.001, patience=5, validation_fraction=0.0)
    """

    tol: float = 1e-3
    patience: int = 10
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        check_number("tol", self.tol, low=0.0)
        check_number("patience", self.patience, low=1, whole=True)
        check_number("validation_fraction", self.validation_fraction, low=0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(f"validation_fraction is {self.validation_fraction}: expected a share below 1")


@dataclass(frozen=True)
class Checkpoint:
    """File for the state of learning, from which the same fit continues after an accident or Ctrl-C, with equal result.

    Parameters
    ----------
    path : path-like
        File of the last state; the state before it is in ``<path>.before``. A file that is no checkpoint is refused.
    every : float, default=60.0
        Seconds between two states at least.

    Examples
    --------
    >>> Checkpoint("learning.state", every=10.0).every
    10.0
    """

    path: str | os.PathLike[str]
    every: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"path of the checkpoint is {self.path!r}: expected the name of a file")
        check_number("every", self.every, low=0.0)


@dataclass(frozen=True)
class Mapped:
    """Metric that is linear or diagonal in mapped features, and so non-linear in the features themselves.

    Parameters
    ----------
    transformer : scikit-learn transformer
        Feature map; a copy is fitted to the points and applied to them first, e.g. SplineTransformer or Nystroem.
    form : {"linear", "diagonal"}, default="linear"
        Form of the metric that is learned on the mapped features.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> Mapped(StandardScaler(), "diagonal").form
    'diagonal'
    """

    transformer: Transformer | None
    form: str = "linear"


def resolve_neighbors(neighbors: Any) -> Nearest | None:
    """None stands for neighbours drawn at random."""
    if isinstance(neighbors, Nearest):
        return neighbors
    if isinstance(neighbors, str) and neighbors in ("random", "nearest"):
        return Nearest() if neighbors == "nearest" else None
    raise ValueError(f"neighbors is {neighbors!r}: expected 'random', 'nearest' or Nearest(refresh=…)")


def resolve_form(form: Any) -> Mapped:
    """What is learned, and the transformer before it (None where there is none)."""
    mapped = form if isinstance(form, Mapped) else Mapped(None, form)
    if mapped.form not in ("linear", "diagonal"):
        raise ValueError(f"form is {mapped.form!r}: expected 'linear', 'diagonal' or Mapped(transformer)")
    return mapped


def resolve_stopping(stopping: Any) -> EarlyStopping:
    if stopping is None:
        return EarlyStopping()
    if not isinstance(stopping, EarlyStopping):
        raise TypeError(f"stopping is {stopping!r}: expected EarlyStopping(tol=…, patience=…, validation_fraction=…)")
    return stopping


_EXACT = Exact()


def resolve_solver(solver: Any) -> Exact:
    """The gradient needs an exact plan, so there is no other solver to learn with."""
    if solver is None or (isinstance(solver, str) and solver == "exact"):
        return _EXACT
    if not isinstance(solver, Exact):
        raise TypeError(f"solver is {solver!r}: learning is exact, expected transport.Exact(max_pivots=…, memory=…)")
    if solver.max_pivots is not None:
        check_number("max_pivots", solver.max_pivots, low=1, whole=True)
    return solver


def resolve_checkpoint(checkpoint: Any) -> Checkpoint | None:
    """A bare path is shorthand."""
    return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)


@dataclass(frozen=True)
class Settings:
    """Everything that decides what is learned; see GroundMetricLearner for what each means."""

    n_components: int
    margin: float
    penalty: Penalty | None
    strength: float
    n_neighbors: int
    refresh: int | None  # epochs between two choices of the nearest neighbours; None: neighbours at random
    init: Any
    learning_rate: float
    max_epochs: int
    batch_size: int
    tol: float
    patience: int
    memory: float
    max_pivots: int | None
    nuisance: float = 0.0


def check_settings(learner: Any, n_features: int) -> Settings:
    """What a GroundMetricLearner is to do with so many features."""
    form = resolve_form(learner.form).form
    if form == "diagonal" and learner.n_components is not None:
        raise ValueError("a diagonal metric has a component per feature: leave n_components out")
    k = min(5, n_features) if learner.n_components is None else learner.n_components
    check_number("n_components", k, low=1, whole=True)
    if k > n_features:
        raise ParameterError("n_components", k, f", but there are only {n_features} features: give at most that many")
    for name in ("n_neighbors", "max_epochs", "batch_size"):
        check_number(name, getattr(learner, name), low=1, whole=True)
    for name in ("margin", "learning_rate"):
        check_number(name, getattr(learner, name), low=0.0, above=True)
    for name in ("strength", "nuisance"):
        check_number(name, getattr(learner, name), low=0.0)
    nearest, stopping = resolve_neighbors(learner.neighbors), resolve_stopping(learner.stopping)
    solver = resolve_solver(learner.solver)
    return Settings(
        n_components=int(k),
        margin=float(learner.margin),
        penalty=resolve_penalty(learner.penalty),
        strength=float(learner.strength),
        n_neighbors=int(learner.n_neighbors),
        refresh=None if nearest is None else int(nearest.refresh),
        init=_check_init(learner.init, (n_features,) if form == "diagonal" else (k, n_features)),
        learning_rate=float(learner.learning_rate),
        max_epochs=int(learner.max_epochs),
        batch_size=int(learner.batch_size),
        tol=float(stopping.tol),
        patience=int(stopping.patience),
        memory=float(solver.memory) * 1e6,
        max_pivots=solver.max_pivots,
        nuisance=float(learner.nuisance),
    )


def _check_init(init: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(init, str):
        if init not in ("discriminant", "random"):
            raise ValueError(f"init is {init!r}: expected 'discriminant', 'random' or an array")
        return init
    start = np.array(real_array(init, "init"), dtype=np.float64)
    if start.shape != shape or not np.isfinite(start).all():
        raise ValueError(f"init has shape {start.shape}: expected finite numbers of shape {shape}")
    return np.atleast_2d(start)


_BY_NAME = {kind.__name__: kind for kind in (Nearest, EarlyStopping, Exact, Classes, Ordered, Distances)}
# Parameters that were numbers of the learner itself, in files of earlier versions: the object that has them now.
_FORMER = {"tol": "stopping", "patience": "stopping", "validation_fraction": "stopping",
           "memory": "solver", "max_pivots": "solver"}  # fmt: skip


def read_parameters(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a learner from a file, where objects are text (their `repr`); also as earlier versions wrote them.

    >>> read_parameters({"margin": 1.0, "stopping": "EarlyStopping(tol=0.0)", "memory": 10.0})["solver"]
    Exact(max_pivots=None, memory=10.0)
    """
    known = {name: read_object(value) for name, value in stored.items()}
    former = {name: known.pop(name) for name in _FORMER if name in known}
    for parameter, kind in (("stopping", EarlyStopping), ("solver", Exact)):
        fields = {name: value for name, value in former.items() if _FORMER[name] == parameter}
        if fields:
            known[parameter] = kind(**fields)
    if "metric" in known:
        known["form"] = known.pop("metric")
    refresh = known.pop("refresh", None)
    if refresh is not None and known.get("neighbors") == "nearest":
        known["neighbors"] = Nearest(refresh)
    gap = known.pop("gap", None)
    if gap is not None:
        known["target"] = Ordered(gap)
    known.pop("n_restarts", None)
    return known


def read_object(value: Any) -> Any:
    """An object from its text; anything else passes through."""
    if not isinstance(value, str) or not value.endswith(")"):
        return value
    try:
        call = ast.parse(value, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _BY_NAME:
            return value
        fields = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        return value
    return _BY_NAME[call.func.id](**fields)  # type: ignore[arg-type]
