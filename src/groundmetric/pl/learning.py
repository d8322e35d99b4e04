"""How learning went, and what it predicts for samples that were left out: history and confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from sklearn.metrics import confusion_matrix

from .._internal.types import LabelsLike, Learned
from .._internal.validation import NameIndex, align_by_name, carries_names
from . import style as legends
from ._read import as_samples, entry, is_anndata, learned_label
from .style import INK, Save, axes, colour, figure_docs, finish, row_size, short

if TYPE_CHECKING:
    from anndata import AnnData

_ROW = 0.2  # inches for a view or a label


@figure_docs
def history(
    record: Learned | Mapping[str, Any] | AnnData,
    ax: Axes | None = None,
    *,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """How learning went: the views of an ensemble on held-out samples, or a single learner epoch by epoch.

    Of an ensemble: the held-out score of each view (kind of member, Euclidean distances, means, votes) and of all
    together, against guessing (dashed). Of a single learner: the loss of held-out triplets, where some were held out
    (`stopping`), with the loss of the training triplets and a mark at the epoch that was kept; else the share of the
    triplets that are within the margin, which alone contribute to the gradient.

    Parameters
    ----------
    record : learner, ensemble, mapping or AnnData
        Fitted learner or its `history_`; fitted ensemble, or a predictor with one; or AnnData after `tl.learn`.
    {ax}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.history({"active": [0.9, 0.5]})
    >>> ax.lines[0].get_ydata().tolist()
    [90.0, 50.0]
    """
    found = _views(record, key)
    if found is not None:
        drawn = _draw_views(found, ax)
    else:
        epochs = _epochs(record, key)
        held_out = np.asarray(epochs.get("validation_loss", np.nan), dtype=float)
        drawn = _draw_losses(epochs, held_out, ax) if np.isfinite(held_out).any() else _draw_active(epochs, ax)
    return finish(drawn, "history", save, show)


class ViewScores(NamedTuple):
    """Held-out scores of the views of an ensemble, of all views together, and of guessing."""

    scores: dict[str, float]
    overall: float
    chance: float
    of_classes: bool

    @property
    def unit(self) -> str:
        return "log-probability" if self.of_classes else "log-likelihood"


def _views(record: Any, key: str) -> ViewScores | None:
    """Return held-out scores of an ensemble; None for a single learner."""
    if not is_anndata(record):
        ensemble = getattr(record, "ensemble_", record)
        if not hasattr(ensemble, "chance_"):
            return None
        scores = ensemble.fitted_.view_scores
        return ViewScores(scores, ensemble.score_, ensemble.chance_, bool(ensemble.classes_.size))
    found = entry(record, "uns", key)
    if "ensemble" not in found:
        return None
    kept = found["ensemble"]
    if "views" not in kept:
        raise ValueError(f"uns[{key!r}] was written by an older version, without scores of the views: learn again")
    scores = {str(name): float(score) for name, score in kept["views"].items()}
    return ViewScores(scores, float(kept["score"]), float(kept["chance"]), "classes" in kept)


def _epochs(record: Any, key: str) -> Mapping[str, Any]:
    """The history of a single learner: at least one epoch."""
    what = f"uns[{key!r}]" if is_anndata(record) else type(record).__name__
    if is_anndata(record):
        found = record.uns[key].get("history")
        if found is None:
            raise ValueError(f"{what} has no history of epochs: give the AnnData that tl.learn was run on")
    else:
        found = getattr(record, "history_", record)
    if not isinstance(found, Mapping):
        raise TypeError(f"{what} has no history: give a fitted learner, its history_, or AnnData after tl.learn")
    if "active" not in found:
        raise ValueError(
            f"the history of {what} has no 'active', the share of triplets that pull: it has {list(found)}"
        )
    if not len(found["active"]):
        raise ValueError(f"the history of {what} has no epoch: learning was interrupted before the first was done")
    return found


def _draw_views(found: ViewScores, ax: Axes | None) -> Axes:
    rows = {"all views": found.overall, **dict(sorted(found.scores.items(), key=lambda item: -item[1]))}
    places = np.arange(len(rows))
    with axes(ax, 0.5 + _ROW * len(rows)) as ax:
        chance = ax.axvline(found.chance, color=INK, lw=0.6, ls="--", label="guessing")
        for row, value in zip(places, rows.values(), strict=True):
            shade = colour(0) if row == 0 else INK
            ax.plot([found.chance, value], [row, row], color=shade, lw=0.8, alpha=0.5)
            ax.plot(value, row, "o", color=shade, ms=4.5, gid=f"score-{row}")
        ax.set_yticks(places, [short(name, 28) for name in rows])
        ax.tick_params("y", length=0)
        ax.set(xlabel=f"held-out {found.unit} per sample", ylim=(len(rows) - 0.5, -0.5))
        ax.margins(x=0.08)
        legends.above(ax, [chance], length=2.4)
    return ax


def _draw_losses(epochs: Mapping[str, Any], held_out: np.ndarray, ax: Axes | None) -> Axes:
    at, best = np.arange(1, held_out.size + 1), int(np.nanargmin(held_out))
    with axes(ax) as ax:
        drawn = ax.plot(at, held_out, color=colour(0), label="held out")
        drawn += ax.plot(at, np.asarray(epochs["loss"]), color=colour(1), ls="--", label="training")
        drawn += ax.plot(best + 1, held_out[best], "o", color=colour(0), ms=4, label="kept", clip_on=False)
        _dress_epochs(ax, at.size, "loss per triplet")
        legends.above(ax, drawn, length=2.4)
    return ax


def _draw_active(epochs: Mapping[str, Any], ax: Axes | None) -> Axes:
    active = np.asarray(epochs["active"], dtype=float)
    with axes(ax) as ax:
        ax.plot(np.arange(1, active.size + 1), 100 * active, color=colour(0))
        _dress_epochs(ax, active.size, "triplets within the margin (%)")
        if active[-1] == 0.0:
            words = "nothing is left to learn:\nno triplet is within the margin"
            ax.text(0.98, 0.96, words, transform=ax.transAxes, ha="right", va="top", fontsize=7)
            ax.set_ylim(0, max(ax.get_ylim()[1], 10.0))  # a line at 0 has no scale of its own
    return ax


def _dress_epochs(ax: Axes, n_epochs: int, name: str) -> None:
    ax.set(xlabel="epoch", ylabel=name, xlim=(1, max(n_epochs, 2)), ylim=(0, None))
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))


@figure_docs
def confusion(
    source: AnnData | LabelsLike,
    predicted: LabelsLike | Learned | None = None,
    ax: Axes | None = None,
    *,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Confusion matrix: how many samples of each label are predicted as each, while they are left out.

    Parameters
    ----------
    source : AnnData or array-like of shape (n,)
        AnnData after `tl.learn` by an ensemble, or its `tl.samples`, with the predictions that were made for each
        sample while it was left out; or true labels.
    predicted : array-like of shape (n,), ensemble or None, default=None
        Predicted labels, for true ones, matched by name where both carry names (a Series, a dict); or a fitted ensemble
        or what predicts by one, of which the held-out predictions are taken: then `source` has the labels that it was
        fitted to, in the order of the distributions.
    {ax}
    {key}
    {save}

    Returns
    -------
    matplotlib axes
        What was drawn on. Rows are true labels, shades are shares of a row, numbers are samples.

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.confusion(["ill", "ill", "well"], ["ill", "well", "well"])
    >>> [text.get_text() for text in ax.texts]
    ['1', '1', '0', '1']
    """
    true, guessed = _predictions(source, predicted, key)
    counts, names = _count(true, guessed)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    places = np.arange(len(names))
    with axes(ax, 0.9 + _ROW * len(names), legend_above=False) as ax:
        image = ax.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100, interpolation="none")
        letters = float(np.clip(0.5 * row_size(ax, len(names)), 3.0, 8.0))
        for row, col in np.ndindex(counts.shape):
            shade = "white" if shares[row, col] > 0.55 else INK
            ax.text(col, row, str(counts[row, col]), ha="center", va="center", fontsize=letters, color=shade)
        texts = [short(name, 18) for name in names]
        ax.set_yticks(places, texts, parse_math=False)
        slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(places, texts, parse_math=False, **(slanted if max(map(len, texts)) > 30 / len(names) else {}))
        right = np.mean([shares[c, c] for c in places if counts[c].any()])
        held_out = "predicted while left out" if is_anndata(source) or _ensemble(predicted) else "predicted"
        ax.set(xlabel=f"{held_out} (balanced accuracy {right:.2f})", ylabel="label")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        bar = ax.figure.colorbar(image, ax=ax, label="share of the row (%)", pad=0.03, shrink=0.9)
        bar.outline.set_visible(False)
    return finish(ax, "confusion", save, show)


def _predictions(source: Any, predicted: Any, key: str) -> tuple[Any, Any]:
    """True and predicted labels."""
    if not is_anndata(source):
        if predicted is None:
            raise ValueError("predicted is missing: give the predicted labels, or the ensemble that predicts them")
        return _matched(source, _held_out(predicted))
    samples = as_samples(source, key)
    column = f"{key}_held_out"
    if column not in samples.obs:
        raise ValueError(
            f"adata.obs has no {column!r}: only an ensemble predicts samples while they are left out; learn with one "
            "(tl.learn, learner='ensemble'), or give true and predicted labels"
        )
    label = learned_label(samples, key)
    if label is None:
        raise ValueError(f"adata does not say which label was learned (uns[{key!r}]): give true and predicted labels")
    known = samples.obs[[label, column]].dropna()
    return known[label], known[column]


def _ensemble(predicted: Any) -> Any:
    """The fitted ensemble that predicts; None of labels."""
    found = getattr(predicted, "ensemble_", predicted)
    return found if hasattr(found, "held_out_") else None


def _held_out(predicted: Any) -> Any:
    """Classes that an ensemble predicts for its training distributions; labels as they are."""
    found = _ensemble(predicted)
    if found is None:
        return predicted
    if not found.classes_.size:
        raise ValueError("the ensemble predicts numbers, not classes: a confusion matrix needs classes")
    return found.classes_[found.held_out_.argmax(axis=1)]


def _matched(true: Any, predicted: Any) -> tuple[Any, Any]:
    """Return true and predicted labels in the order of the true ones, by name where both carry names."""
    predicted = align_by_name(predicted, NameIndex.of(true, items="true labels"), "predicted")
    if isinstance(true, Mapping):
        if not isinstance(predicted, list) and not carries_names(predicted):
            raise ValueError("true labels are a mapping by name, but predicted labels have no names: give both by name")
        true = list(true.values())
    return true, predicted


def _count(true: Any, predicted: Any) -> tuple[np.ndarray, list[str]]:
    """Number of items by true and predicted label, in the order of categories, or sorted."""
    if len(true) != len(predicted) or not len(true):
        raise ValueError(f"{len(true)} true and {len(predicted)} predicted labels: one of each is needed per sample")
    order = list(getattr(getattr(true, "cat", None), "categories", []))
    one, other = np.asarray(true), np.asarray(predicted)
    if "f" in (one.dtype.kind, other.dtype.kind) and not all(np.all(np.mod(v, 1) == 0) for v in (one, other)):
        raise ValueError("labels are numbers with fractions, not classes: a confusion matrix needs classes")
    true, predicted = [str(label) for label in one], [str(label) for label in other]
    present = {*true, *predicted}
    names = [str(value) for value in (order or np.unique(one).tolist()) if str(value) in present]
    names += sorted(present.difference(names))
    return confusion_matrix(true, predicted, labels=names), names
