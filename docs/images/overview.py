"""Draw docs/images/overview.png, the figure of the README and of the home page: `make picture`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import groundmetric as gm

PICTURE = Path(__file__).resolve().parent / "overview.png"


def draw() -> plt.Figure:
    """Draw a simulated cohort under the Euclidean and a learned metric, with the genes of the learned metric.

    The metric is learned from half of the patients of each condition and batch; the others are drawn as hollow markers.
    """
    cells = gm.datasets.make_cohort(12, 100, 300, random_state=1)
    D = gm.Distributions(cells.X.toarray(), cells.obs["sample"].to_numpy(), features=list(cells.var_names)).equalize()
    labels = cells.obs.groupby("sample", observed=True)["condition"].first().astype(str).loc[list(D.names)].to_numpy()
    train = np.arange(len(D)) // 2 % 2 == 0  # batches alternate
    metric = gm.GroundMetricEnsemble(random_state=0).fit(D[train], labels[train]).metric_

    figure, (before, after, genes) = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    gm.pl.embedding(gm.pairwise_distances(D), y=labels, ax=before, train=train)
    before.set_title("patients, Euclidean metric", pad=34)
    gm.pl.embedding(gm.pairwise_distances(D, metric=metric), y=labels, ax=after, train=train)
    after.set_title("patients, learned metric", pad=34)
    gm.pl.importance(metric, ax=genes)
    genes.set_title("genes of the learned metric")
    return figure


if __name__ == "__main__":
    draw().savefig(PICTURE, dpi=90)
    print(PICTURE, f"{PICTURE.stat().st_size // 1024} kB")
