"""Patients whose hazard follows a programme in a few of their cells: which genes, and who dies first, is known."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import RandomState
from .._internal.validation import check_number
from ..distributions import Distributions

# Exponents between which the rate of censoring is searched.
_EXTREME = 20.0


def make_survival(
    n_patients: int = 60,
    n_cells: int = 60,
    n_genes: int = 100,
    *,
    n_planted: int = 5,
    share: float = 0.2,
    effect: float = 2.0,
    donor_effect: float = 0.3,
    hazard_ratio: float = 4.0,
    censored: float = 0.4,
    random_state: RandomState = None,
) -> tuple[Distributions, np.ndarray]:
    """Patients with right-censored survival times, whose hazard a programme of genes in some cells raises.

    Every patient has an activity, standard normal. In a share of the cells, the planted genes (the first) rise with it;
    all genes differ between donors besides, in all cells. Survival times are exponential, their hazard the hazard ratio
    to the power of the activity; so are the times when patients are last seen, at a rate that leaves the wanted share
    censored.

    Parameters
    ----------
    n_patients : int, default=60
        Number of patients.
    n_cells : int, default=60
        Cells of each.
    n_genes : int, default=100
        Number of genes; their values are normal, of standard deviation 1 within a patient.
    n_planted : int, default=5
        Genes of the programme.
    share : float, default=0.2
        Share of the cells that have the programme.
    effect : float, default=2.0
        Shift of the planted genes in these cells for an activity of 1.
    donor_effect : float, default=0.3
        Standard deviation between donors of the mean of every gene.
    hazard_ratio : float, default=4.0
        Factor of the hazard for an activity of 1; with 1, the programme means nothing.
    censored : float, default=0.4
        Expected share of patients whose event is not observed; 0 for none.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D : Distributions
        Patients; `D.annotations["programme"]` marks the cells that have the programme.
    y : structured array of shape (n_patients,)
        Fields "event" and "time", as scikit-survival has them.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_survival(random_state=0)
    >>> D, y.dtype.names
    (Distributions(60 distributions, 3600 points, 100 features), ('event', 'time'))
    """
    for name, count in (("n_patients", n_patients), ("n_cells", n_cells), ("n_genes", n_genes)):
        check_number(name, count, low=1, whole=True)
    if not 0.0 <= censored < 1.0:
        raise ValueError(f"censored is {censored!r}: expected a share of at least 0 and below 1")
    random = check_random_state(random_state)
    activity = random.normal(size=n_patients)
    points = random.normal(size=(n_patients, n_cells, n_genes))
    points += donor_effect * random.normal(size=(n_patients, 1, n_genes))
    has_programme = np.arange(n_cells) < round(share * n_cells)
    points[:, has_programme, :n_planted] += effect * activity[:, None, None]
    names = [f"patient {k}" for k in range(n_patients)]
    planted = [f"planted {k}" for k in range(n_planted)]
    D = Distributions(
        points.reshape(-1, n_genes),
        np.repeat(names, n_cells),
        features=planted + [f"gene {k}" for k in range(n_planted, n_genes)],
        annotations={"programme": np.tile(has_programme, n_patients)},
    )
    return D, _times(hazard_ratio**activity, censored, random)


def _times(hazard: np.ndarray, censored: float, random: np.random.RandomState) -> np.ndarray:
    died = random.exponential(size=hazard.size) / hazard
    seen = random.exponential(size=hazard.size)
    seen = seen / _rate(hazard, censored) if censored > 0 else np.full(hazard.size, np.inf)
    y = np.empty(hazard.size, dtype=[("event", bool), ("time", np.float64)])
    y["event"], y["time"] = died <= seen, np.minimum(died, seen)
    return y


def _rate(hazard: np.ndarray, censored: float) -> float:
    """Rate of censoring that comes before this share of the events: c / (c + hazard) on average, by bisection."""
    low, high = -_EXTREME, _EXTREME
    for _ in range(60):
        middle = (low + high) / 2.0
        rate = np.exp(middle)
        low, high = (middle, high) if np.mean(rate / (rate + hazard)) < censored else (low, middle)
    return float(np.exp(low))
