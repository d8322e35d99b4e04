"""A user's program with types: run as a test, and checked by ``mypy --strict`` in `make lint`.

mypy reads the installed package by its py.typed, without the settings of pyproject.toml. Where a public
name lost its type, `assert_type` fails.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import assert_type

import numpy as np

import groundmetric as gm


def test_learning_and_predicting(tmp_path: Path) -> None:
    D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    assert_type(D, gm.Distributions)
    assert_type(D.names, list[Hashable])
    learner = gm.GroundMetricLearner(2, max_epochs=1, penalty="l1", random_state=0).fit(D[::2], y[::2])
    assert_type(learner, gm.GroundMetricLearner)
    metric = learner.metric_
    assert_type(metric, gm.GroundMetric)
    assert_type(metric.importance(), np.ndarray)
    classifier = gm.TransportKNeighborsClassifier(3, metric=metric).fit(D[::2], y[::2])
    assert_type(classifier.score(D[1::2], y[1::2]), float)
    assert_type(gm.pairwise_distances(D, metric=metric, n_jobs=-1), np.ndarray)
    metric.save(tmp_path / "disease.gm")
    assert gm.GroundMetric.load(tmp_path / "disease.gm").n_features == D.shape[1]


def test_points_with_names_and_labels_of_all_kinds() -> None:
    points, samples = np.random.default_rng(0).normal(size=(60, 3)), np.repeat(["ann", "bob", "eve", "joe", "kim"], 12)
    sets = gm.Distributions(points, samples, features=["height", "weight", "age"])
    for labels in (
        ["ill", "ill", None, "well", "well"],
        dict.fromkeys(sets.names[:2], "ill") | dict.fromkeys(sets.names[2:], "well"),
    ):
        gm.GroundMetricLearner(1, max_epochs=1, random_state=0).fit(sets, labels)
    assert_type(gm.Distributions.from_arrays([points[:9], points[9:]]), gm.Distributions)


def test_an_ensemble_and_a_comparison() -> None:
    D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    ensemble = gm.GroundMetricEnsemble(n_members=1, random_state=0)
    predictor = gm.TransportClassifier(ensemble).fit(D, y, groups=D.names)
    assert_type(predictor, gm.TransportClassifier)
    assert_type(predictor.predict_proba(D), np.ndarray)
    result = gm.evaluation.compare(
        {"Euclid": gm.baselines.Euclidean(), "pseudobulk": gm.baselines.Summary()},
        D,
        y,
        cv=gm.evaluation.folds(y, n_splits=2, random_state=0),
        points=False,
    )
    assert_type(result, gm.evaluation.Comparison)
    assert "Euclid" in result.to_markdown()


def test_one_transport_problem() -> None:
    cost = np.random.default_rng(0).random((6, 6))
    plan = gm.transport.solve(cost)
    assert_type(plan, gm.transport.Plan)
    assert_type(plan.value, float)
    repeated = gm.transport.solve((cost + 0.01).tolist(), start=plan.basis)
    assert repeated.status is gm.transport.Status.OPTIMAL


def test_cells_and_figures() -> None:
    adata = gm.datasets.make_cohort(n_samples_per_condition=3, cells_per_sample=20, n_genes=150, random_state=0)
    gm.pp.subsample(adata, "sample", 15)
    subset = gm.pp.subsample(adata, "sample", 10, copy=True)
    gm.tl.learn(subset, "sample", "condition", method="ggml", max_epochs=1, n_components=2)
    samples = gm.tl.samples(subset)
    assert_type(gm.get.metric(subset), gm.GroundMetric)
    gm.pl.importance(subset).set_title("genes")
    gm.pl.heatmap(samples).set_title("samples")
