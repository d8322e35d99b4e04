"""What ordered labels and strata are worth, each against the learner without them on the same splits."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sklearn.model_selection import StratifiedKFold

import groundmetric as gm

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
STAGES = (">60", "30-60", "<30")
# Neighbours that predict the stage of a patient: about the root of the number of patients.
NEIGHBOURS = 25


def run() -> list[dict]:
    known = [ordered(), paired()] if DATA.exists() else []
    return [*known, *confounded()]


def ordered(seeds: int = 3, folds: int = 5, points: int = 30, max_epochs: int = 10) -> dict:
    """Rank correlation of the predicted stage with the true one; both predict the expected rank in the same way."""
    D, label, _ = read("pilot_igan_glomeruli_634patients", "sample", points)
    stage = np.array([STAGES.index(name) for name in label])
    found: dict[str, list[float]] = {"classes": [], "ordered": []}
    for seed in range(seeds):
        for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(stage, stage):
            for target, scores in found.items():
                learner = gm.GroundMetricLearner(target=target, max_epochs=max_epochs, random_state=seed)
                regressor = gm.TransportKNeighborsRegressor(NEIGHBOURS, metric=learner).fit(D[train], stage[train])
                scores.append(spearmanr(regressor.predict(D[test]), stage[test]).statistic)
    measure = f"Spearman, {folds} folds × {seeds} seeds"
    return row("igan, eGFR stages", measure, ("classes", found["classes"]), ("ordered", found["ordered"]))


def paired(seeds: int = 3, points: int = 200) -> dict:
    """Leave one sample out, nearest neighbour; the patient's other arm stays in the training set."""
    D, arm, patient = read("zhao_gbm_panobinostat_10samples", "patient", points)
    euclidean = [_left_out(D, arm, "euclidean")]
    across = [_left_out(D, arm, gm.GroundMetricLearner(random_state=seed), patient) for seed in range(seeds)]
    measure = f"1-NN accuracy, leave one out, {seeds} seeds"
    return row("zhao, 5 patients × 2 arms", measure, ("Euclidean", euclidean), ("strata=patient", across))


def confounded(seeds: int = 5, n: int = 20, share: float = 0.8) -> list[dict]:
    """A simulated cohort whose condition goes with the batch in training, and not in the test set."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(seeds):
        adata = gm.datasets.make_cohort(
            60, 100, 100, n_markers=10, batch_strength=0.5, programme_strength=1.4, random_state=seed
        )
        D, label, batch = _samples(adata, "condition", "batch")
        train, test = _confounded_split(label, batch, n, share, np.random.default_rng(seed))
        rare = (label[test] == np.unique(label)[0]) != (batch[test] == np.unique(batch)[0])
        for name, strata in (("no strata", None), ("strata=batch", batch[train])):
            classifier = gm.TransportKNeighborsClassifier(5, metric=gm.GroundMetricLearner(random_state=seed))
            right = classifier.fit(D[train], label[train], strata=strata).predict(D[test]) == label[test]
            found.setdefault((name, "all"), []).append(right.mean())
            found.setdefault((name, "in the other condition's batch"), []).append(right[rare].mean())
    return [
        row(
            f"simulated, {share:.0%} confounded",
            f"5-NN accuracy without confounding ({whom}), {seeds} seeds",
            *((name, found[name, whom]) for name in ("no strata", "strata=batch")),
        )
        for whom in ("all", "in the other condition's batch")
    ]


def row(data: str, measure: str, one: tuple[str, list[float]], other: tuple[str, list[float]]) -> dict:
    """Both means with their spread, and the mean of the differences with its standard error."""
    before, after = np.array(one[1]), np.array(other[1])
    gain = after - before  # a single value stands for every split
    error = gain.std(ddof=1) / np.sqrt(gain.size) if gain.size > 1 else 0.0
    return {
        "data": data,
        "measure": measure,
        "without": f"{one[0]}: {before.mean():.3f} (sd {before.std():.3f}, worst {before.min():.3f})",
        "with": f"{other[0]}: {after.mean():.3f} (sd {after.std():.3f}, worst {after.min():.3f})",
        "difference ± standard error": f"{gain.mean():+.3f} ± {error:.3f}",
    }


def read(name: str, second: str, points: int) -> tuple[gm.Distributions, np.ndarray, np.ndarray]:
    """Distributions of at most so many points, and what obs says of each: the label, and another column."""
    import anndata

    D, label, other = _samples(anndata.read_h5ad(DATA / f"{name}.h5ad"), "label", second)
    return D.subsample(points, random_state=0), label, other


def _samples(adata, *columns: str) -> tuple:
    values = adata.X.toarray() if hasattr(adata.X, "toarray") else np.asarray(adata.X)
    D = gm.Distributions(values, adata.obs["sample"].astype(str).to_numpy())
    first = adata.obs.drop_duplicates("sample")
    first = first.set_index(first["sample"].astype(str)).loc[D.names]
    return D, *(first[column].astype(str).to_numpy() for column in columns)


def _left_out(D: gm.Distributions, y: np.ndarray, metric, strata: np.ndarray | None = None) -> float:
    right = []
    for place in range(len(D)):
        train = np.delete(np.arange(len(D)), place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the patient's other arm has no partner: that is the task
            classifier = gm.TransportKNeighborsClassifier(1, metric=metric)
            classifier.fit(D[train], y[train], strata=None if strata is None else strata[train])
        right.append(classifier.predict(D[[place]])[0] == y[place])
    return float(np.mean(right))


def _confounded_split(label, batch, n: int, share: float, random: np.random.Generator, n_test: int = 12) -> tuple:
    """n of each label to learn from: that share of them in a batch of the label's own, the rest in both evenly."""
    few = max(1, round(n * (1.0 - share) / 2))
    train, test = [], []
    for place, one in enumerate(np.unique(label)):
        for number, other in enumerate(np.unique(batch)):
            members = random.permutation(np.flatnonzero((label == one) & (batch == other)))
            train.append(members[: n - few if place == number else few])
            test.append(members[-n_test:])
    return np.concatenate(train), np.concatenate(test)


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
