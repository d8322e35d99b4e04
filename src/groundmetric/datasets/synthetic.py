"""Synthetic distributions in which the informative features are known: the first ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import RandomState
from .._internal.validation import ParameterError, check_number
from ..distributions import Distributions

# Of `make_modes`: factor of the informative feature, and centres of the modes that all distributions share.
_SIGNAL_SCALE, _SHARED_SIGNAL, _SHARED_NOISE = 1.25, (0.0, 40.0), (0.0, 50.0)


def make_modes(
    n_noise: int = 1,
    noise_scale: float = 1000.0,
    *,
    class_means: Sequence[float] = (5.0, 10.0, 15.0),
    offsets: Sequence[float] = (1.5, 4.5, 7.5, 10.5, 13.5, 16.5, 19.5, 22.5, 25.5, 28.5),
    points_per_mode: int = 100,
    spread: float = 1.5,
    random_state: RandomState = None,
) -> tuple[Distributions, np.ndarray]:
    """Simulate three-modal distributions of several classes that differ in one mode, along one feature.

    Feature 0 is informative: in the centre mode it is normal around 10 + the class mean. The other features are noise:
    in the centre mode they are uniform within 2.5 of 10 + the distribution's offset, and every class has the same
    offsets. The two other modes are the same for all distributions: around 0, and around 40 along the informative and
    50 along the noise features. Features are scaled afterwards, the informative one by 1.25.

    Parameters
    ----------
    n_noise : int, default=1
        Number of noise features.
    noise_scale : float, default=1000.0
        Factor by which the noise features are multiplied.
    class_means : sequence of float, default=(5.0, 10.0, 15.0)
        Class mean of the informative feature, one per class.
    offsets : sequence of float, default=(1.5, 4.5, ..., 28.5)
        Offset of the noise features, one per distribution of a class.
    points_per_mode : int, default=100
        Points in each of the three modes.
    spread : float, default=1.5
        Standard deviation of the normal parts.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D : Distributions
        Distributions; `D.annotations["mode"]` is "centre", "low" or "high" for each point.
    y : array of shape (n_distributions,)
        Class of each distribution: 0, 1, 2, …

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(random_state=0)
    >>> D, sorted(set(y.tolist()))
    (Distributions(30 distributions, 9000 points, 2 features), [0, 1, 2])
    """
    random = check_random_state(random_state)

    def draw(class_mean: float, offset: float) -> np.ndarray:
        centres = (10.0 + class_mean, *_SHARED_SIGNAL)
        signal = np.concatenate([random.normal(centre, spread, points_per_mode) for centre in centres])
        size = (points_per_mode, n_noise)
        noise = [random.uniform(7.5 + offset, 12.5 + offset, size)]
        noise += [random.normal(centre, spread, size) for centre in _SHARED_NOISE]
        return np.column_stack([signal * _SIGNAL_SCALE, np.vstack(noise) * noise_scale])

    parts = [draw(mean, offset) for mean in class_means for offset in offsets]
    names = [f"class {c}, offset {offset:g}" for c in range(len(class_means)) for offset in offsets]
    modes = np.tile(np.repeat(["centre", "low", "high"], points_per_mode), len(parts))
    features = ["signal"] + [f"noise {k}" for k in range(1, n_noise + 1)]
    groups = np.repeat(names, 3 * points_per_mode)
    D = Distributions(np.vstack(parts), groups, features=features, annotations={"mode": modes})
    return D, np.repeat(np.arange(len(class_means)), len(offsets))


def make_rings(
    n_per_class: int = 40,
    *,
    n_features: int = 4,
    radii: Sequence[float] = (1.0, 1.12),
    points: int = 10,
    width: float = 0.5,
    noise: float = 0.02,
    random_state: RandomState = None,
) -> tuple[Distributions, np.ndarray]:
    """Simulate classes that differ in radius only.

    Every distribution is a cluster around a random direction on the sphere of its class. A linear metric stays near
    chance, because the classes overlap along every direction. A nonlinear one (a feature map, a network) can separate
    them.

    Parameters
    ----------
    n_per_class : int, default=40
        Distributions per class.
    n_features : int, default=4
        Number of dimensions.
    radii : sequence of float, default=(1.0, 1.12)
        Radius of the sphere, one per class.
    points : int, default=10
        Points of each distribution.
    width : float, default=0.5
        Width of the clusters: standard deviation, in every dimension, of the normal noise that is added to the unit
        vector of a cluster before its points are projected onto the sphere.
    noise : float, default=0.02
        Standard deviation of the radius of the points, as a share of it.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D : Distributions
        Distributions, class after class.
    y : array of shape (n_distributions,)
        Class of each distribution: 0, 1, …

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_rings(random_state=0)
    >>> D, y.size
    (Distributions(80 distributions, 800 points, 4 features), 80)
    """
    random = check_random_state(random_state)
    n = n_per_class * len(radii)
    y = np.repeat(np.arange(len(radii)), n_per_class)
    directions = random.normal(size=(n, 1, n_features))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    clumps = directions + width * random.normal(size=(n, points, n_features))
    clumps /= np.linalg.norm(clumps, axis=2, keepdims=True)
    clumps *= np.asarray(radii)[y][:, None, None] * (1.0 + noise * random.normal(size=(n, points, 1)))
    names = [f"class {c}, {k}" for c in range(len(radii)) for k in range(n_per_class)]
    return Distributions(clumps.reshape(-1, n_features), np.repeat(names, points)), y


def synth_2d(random_state: RandomState = None) -> tuple[Distributions, np.ndarray]:
    """Return the paper's Synth 2D: one noise feature, scaled by a thousand.

    It is `make_modes` with its default parameters.

    Parameters
    ----------
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D : Distributions
        30 distributions of 300 points each, with the features "signal" and "noise 1".
    y : array of shape (30,)
        Class of each distribution: 0, 1 or 2.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> D.shape, D.features
    ((30, 2), ['signal', 'noise 1'])
    """
    return make_modes(1, 1000.0, random_state=random_state)


def synth_200d(random_state: RandomState = None) -> tuple[Distributions, np.ndarray]:
    """Return the paper's Synth 200D: 199 noise features on the scale of the informative one.

    It is `make_modes` with ``n_noise=199`` and ``noise_scale=1.0``.

    Parameters
    ----------
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D : Distributions
        30 distributions of 300 points each, with the features "signal" and "noise 1" to "noise 199".
    y : array of shape (30,)
        Class of each distribution: 0, 1 or 2.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_200d(random_state=0)
    >>> D.shape
    (30, 200)
    """
    return make_modes(199, 1.0, random_state=random_state)


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
    """Simulate patients with right-censored survival times, whose hazard depends on a programme of genes.

    Every patient has an activity, standard normal. In a share of the cells, the planted genes (the first) rise with it.
    All genes also differ between donors, in all cells. Survival times are exponential, with a hazard of the hazard
    ratio to the power of the activity. Censoring times are exponential, with the rate that gives the expected share of
    censored patients.

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
        Factor of the hazard for an activity of 1; with 1, the hazard does not depend on the programme.
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
        raise ParameterError("censored", censored, ": expected a share of at least 0 and below 1")
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
    hazard = hazard_ratio**activity
    died = random.exponential(size=n_patients) / hazard
    last_seen = random.exponential(size=n_patients)
    last_seen = last_seen / _censoring_rate(hazard, censored) if censored > 0 else np.full(n_patients, np.inf)
    y = np.empty(n_patients, dtype=[("event", bool), ("time", np.float64)])
    y["event"], y["time"] = died <= last_seen, np.minimum(died, last_seen)
    return D, y


def _censoring_rate(hazard: np.ndarray, censored: float) -> float:
    """Return the rate c of censoring at which this share of events is censored: mean of c / (c + hazard)."""
    low, high = -20.0, 20.0  # logarithms of the rate, for bisection
    for _ in range(60):
        middle = (low + high) / 2.0
        rate = np.exp(middle)
        low, high = (middle, high) if np.mean(rate / (rate + hazard)) < censored else (low, middle)
    return float(np.exp(low))
