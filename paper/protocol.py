"""Protocol of the paper's experiments as we run them: data, splits, methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from groundmetric import datasets
from groundmetric.distributions import Distributions
from groundmetric.estimators import GroundMetricLearner
from groundmetric.evaluation import shuffled
from groundmetric.learning.splits import Split

from . import baselines
from .search import GridSearch

# Two forms of our method: with the grid of the paper searched inside each training part, and with default parameters.
SEARCH, DEFAULTS = "GGML", "GGML, default settings"
# Baselines that learn, and the suffix of their names if M is applied as in the paper's scripts.
LEARNED, SCRIPTS = ("LMNN", "LFDA", "NCA", "ITML"), ", scripts' map"
GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
SEARCH_EPOCHS = 15
# Neighbours that vote in the paper, with equal votes.
K, K_POINTS = 5, 100
# Baselines whose time grows with the square of the points, and how many points they are given at most.
QUADRATIC, FIT_POINTS = ("LMNN", "NCA"), 1000
# Points of either half that vote or are voted on, at most: of 4,500.
MAX_POINTS = 3000


@dataclass(frozen=True)
class Plan:
    """Everything that a section needs to know.

    Attributes
    ----------
    cache : file where finished work is kept
    n_jobs : processes
    quick : a rehearsal in a minute or two: few points, splits, settings and epochs
    """

    cache: Path
    n_jobs: int | None = None
    quick: bool = False
    seed: int = 0
    verbose: int = 0
    log: Callable[[str], None] = print

    @property
    def n_splits(self) -> int:
        return 2 if self.quick else 10

    @property
    def grid(self) -> tuple[float, ...]:
        return (1.0, 10.0) if self.quick else GRID

    @property
    def max_epochs(self) -> int:
        return 5 if self.quick else 50


def synthetic(name: str, seed: int, quick: bool) -> tuple[Distributions, np.ndarray]:
    """One of the paper's two synthetic sets; in a quick run, a tenth of its points."""
    if not quick:
        return {"Synth 2D": datasets.synth_2d, "Synth 200D": datasets.synth_200d}[name](random_state=seed)
    noise = {"Synth 2D": (1, 1000.0), "Synth 200D": (199, 1.0)}[name]
    return datasets.make_modes(*noise, points_per_mode=10, random_state=seed)


def halves(y: np.ndarray, n_splits: int, seed: int) -> list[Split]:
    """Half to learn from and half to test, with equal shares of the classes."""
    return shuffled(y, n_splits=n_splits, test_size=0.5, random_state=seed)


def learner(plan: Plan) -> GroundMetricLearner:
    return GroundMetricLearner(max_epochs=plan.max_epochs, random_state=plan.seed)


def search(plan: Plan) -> GridSearch:
    """The grid of the paper, searched in the training part alone."""
    fewer = learner(plan).set_params(max_epochs=min(plan.max_epochs, SEARCH_EPOCHS))  # 76 fits per training part
    return GridSearch(fewer, plan.grid, plan.grid, n_neighbors=K, random_state=plan.seed)


def methods_of_the_paper(plan: Plan) -> dict[str, Any]:
    """Ours and the paper's baselines; those that learn twice, as published and with the linear map of its scripts."""
    methods: dict[str, Any] = {
        SEARCH: search(plan),
        DEFAULTS: learner(plan),
        "Euclidean": baselines.by_name("euclidean"),
        "Manhattan": baselines.by_name("manhattan"),
        "Cosine": baselines.by_name("cosine"),
    }
    for name in LEARNED:
        options = {"random_state": plan.seed} | ({"max_points": FIT_POINTS} if name in QUADRATIC else {})
        methods[name] = baselines.by_name(name.lower(), **options)
        methods[name + SCRIPTS] = baselines.as_in_scripts(name.lower(), **options)
    return methods


def name_in_paper(method: str) -> str:
    """
    >>> name_in_paper("LMNN, scripts' map"), name_in_paper("GGML, default settings")
    ('LMNN', 'GGML')
    """
    return method.removesuffix(SCRIPTS) if method != DEFAULTS else SEARCH


def more_methods(plan: Plan) -> dict[str, Any]:
    """Common methods that are not in the paper."""
    return {
        "PCA": baselines.by_name("pca", random_state=plan.seed),
        "LDA": baselines.by_name("lda", random_state=plan.seed),
        "Pseudobulk": baselines.by_name("pseudobulk"),
        "Pseudobulk, logistic": baselines.by_name("logistic"),
        "Composition": baselines.by_name("composition", random_state=plan.seed),
    }
