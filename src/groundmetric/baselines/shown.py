"""The baselines that `groundmetric evaluate` and the report show."""

from __future__ import annotations

from typing import Any

from .models import SummaryModel, TransportKernel
from .summaries import Summary
from .transport import Euclidean

_MODELS = {"classes": "logistic regression", "ordered": "ridge regression", "survival": "Cox regression"}


def standard(target: str = "classes", *, annotation: str | None = None, random_state: int = 0) -> dict[str, Any]:
    """Return the baselines that a learned metric is compared with, each with its standard practice.

    Everything is fitted inside the training set: types, feature selection and penalties.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation : str or None, default=None
        Annotation of the points that holds their types, e.g. "cell_type"; None: clusters.
    random_state : int, default=0
        Seed of draws of points, clusters and random features.

    Returns
    -------
    dict of str to estimator
        Regression on means ("pseudobulk"), means and standard deviations ("moments"), means of types ("type-means"),
        proportions of types ("composition") and mean embeddings ("embedding"); a kernel model on Euclidean transport
        ("transport-kernel"). For classes also distances for nearest neighbours: between means ("pseudobulk-5-nn") and
        by Euclidean transport ("transport-5-nn").

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.baselines.standard("survival")["pseudobulk"]
    SummaryModel(target='survival')
    """
    typed: dict[str, Any] = {"annotation": annotation, "target": target, "random_state": random_state}
    plain: dict[str, Any] = {"target": target, "random_state": random_state}
    methods: dict[str, Any] = {
        "pseudobulk": SummaryModel("mean", **plain),
        "moments": SummaryModel("moments", **plain),
        "type-means": SummaryModel("type_means", **typed),
        "composition": SummaryModel("composition", **typed),
        "embedding": SummaryModel("embedding", **plain),
        "transport-kernel": TransportKernel(**plain),
    }
    if target == "classes":
        methods |= {"pseudobulk-5-nn": Summary("mean"), "transport-5-nn": Euclidean(standardise=True)}
    return methods


def titles(target: str = "classes", *, annotation: str | None = None) -> dict[str, str]:
    """Return the names of the standard baselines in tables.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation : str or None, default=None
        As in `standard`.

    Returns
    -------
    dict of str to str
        Key of `standard` to the name.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.baselines.titles("ordered")["pseudobulk"]
    'Pseudobulk, ridge regression'
    """
    model, types = _MODELS[target], "Cluster" if annotation is None else "Cell-type"
    kernel = "kernel logistic regression" if target == "classes" else "kernel ridge regression"
    return {
        "pseudobulk": f"Pseudobulk, {model}",
        "moments": f"Means and SDs, {model}",
        "type-means": f"{types} pseudobulk, {model}",
        "composition": f"{types} composition (CLR), {model}",
        "embedding": f"Mean embedding, {model}",
        "transport-kernel": f"Euclidean OT, {kernel}",
        "pseudobulk-5-nn": "Pseudobulk, 5-NN",
        "transport-5-nn": "Euclidean OT, 5-NN",
    }
