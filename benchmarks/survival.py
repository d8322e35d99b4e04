"""Survival of simulated patients: concordance on fresh ones, and planted genes found; the table of docs/survival.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import RidgeCV

import groundmetric as gm
from groundmetric.learning import survival_percentiles

N_TRAINING = N_NEW = 60
N_PLANTED = 5

Risk = Callable[[gm.Distributions, np.ndarray, gm.Distributions], tuple[np.ndarray, np.ndarray | None]]


def euclid(D: gm.Distributions, y: np.ndarray, new: gm.Distributions) -> tuple[np.ndarray, None]:
    """Mean percentile of the five nearest on standardised genes."""
    _, variance = D.moments()
    metric = gm.GroundMetric(np.diag(1.0 / np.sqrt(variance)))
    return -gm.TransportKNeighborsRegressor(5, metric=metric).fit(D, survival_percentiles(y)).predict(new), None


def pseudobulk(D: gm.Distributions, y: np.ndarray, new: gm.Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression of percentiles on the means of genes."""
    means = D.means()
    centre, spread = means.mean(axis=0), means.std(axis=0)
    model = RidgeCV(np.logspace(-1, 5, 25)).fit((means - centre) / spread, survival_percentiles(y))
    return -model.predict((new.means() - centre) / spread), np.abs(model.coef_)


def single(D: gm.Distributions, y: np.ndarray, new: gm.Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Five nearest under one metric, learned from triplets of certain order."""
    learner = gm.GroundMetricLearner(target="survival", form="diagonal", max_epochs=15, random_state=0).fit(D, y)
    nearest = gm.TransportKNeighborsRegressor(5, metric=learner.metric_).fit(D, survival_percentiles(y))
    return -nearest.predict(new), learner.metric_.importance()


def ensemble(D: gm.Distributions, y: np.ndarray, new: gm.Distributions) -> tuple[np.ndarray, np.ndarray]:
    """TransportSurvival."""
    model = gm.TransportSurvival(random_state=0).fit(D, y)
    return model.predict(new), model.metric_.importance()


METHODS: dict[str, Risk] = {
    "Euclid, standardised": euclid,
    "pseudobulk, ridge": pseudobulk,
    "learned, single": single,
    "ensemble": ensemble,
}


def weight_of_planted(D: gm.Distributions, y: np.ndarray) -> float:
    """Share of the importance that a single metric gives to the two planted genes, as on the page."""
    learner = gm.GroundMetricLearner(target="survival", form="diagonal", strength=0.02, max_epochs=15, random_state=0)
    return float(learner.fit(D, y).metric_.importance()[:2].sum())


def print_weights(n_draws: int = 12) -> None:
    """Learn from comparable triplets, from deaths only, and with censored times treated as deaths."""
    results = []
    for draw in range(n_draws):
        D, y = gm.datasets.make_survival(
            60, 12, 20, n_planted=2, share=0.4, donor_effect=0.5, censored=0.6, random_state=draw
        )
        died, all_dead = y["event"], y.copy()
        all_dead["event"] = True
        results.append([weight_of_planted(D, y), weight_of_planted(D[died], y[died]), weight_of_planted(D, all_dead)])
    print(f"weight of planted genes, means of {n_draws} draws:", np.round(np.mean(results, axis=0), 2).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    n_draws = parser.parse_args().draws
    scores, planted = np.empty((n_draws, len(METHODS))), np.full((n_draws, len(METHODS)), np.nan)
    for draw in range(n_draws):
        D, y = gm.datasets.make_survival(
            N_TRAINING + N_NEW, 30, 100, n_planted=N_PLANTED, share=0.3, donor_effect=0.5, random_state=draw
        )
        for column, method in enumerate(METHODS.values()):
            risk, weight = method(D[:N_TRAINING], y[:N_TRAINING], D[N_TRAINING:])
            scores[draw, column] = gm.evaluation.concordance_index(y[N_TRAINING:], risk)
            if weight is not None:
                planted[draw, column] = np.sum(np.argsort(-weight)[:N_PLANTED] < N_PLANTED)
    print("| | C on fresh patients, by draw | mean | planted among the top 5 |\n| --- | --- | --- | --- |")
    for column, name in enumerate(METHODS):
        text = ", ".join(f"{score:.2f}" for score in scores[:, column])
        print(f"| {name} | {text} | {scores[:, column].mean():.3f} | {planted[:, column].mean():.1f} |")


if __name__ == "__main__":
    main()
    print_weights()
