"""Synthetic distributions in which the informative features are known: the first ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import RandomState
from .._internal.validation import ParameterError, check_number
from ..distributions import Distributions

# `make_modes`: means of the classes, standard deviation of the normal parts, and factor of the informative feature.
_CLASS_MEANS, _SPREAD, _SIGNAL_SCALE = (5.0, 10.0, 15.0), 1.5, 1.25
# `make_rings`: radii of the classes, width of the clusters, and deviation of the radius as a share of it.
_RADII, _WIDTH, _NOISE, _RING_FEATURES = (1.0, 1.12), 0.5, 0.02, 4


def make_modes(
    n_noise: int = 1,
    noise_scale: float = 1000.0,
    *,
    offsets: Sequence[float] = (1.5, 4.5, 7.5, 10.5, 13.5, 16.5, 19.5, 22.5, 25.5, 28.5),
    points_per_mode: int = 100,
    random_state: RandomState = None,
) -> tuple[Distributions, np.ndarray]:
    """Simulate three-modal distributions of three classes that differ in one mode, along one feature.

    Feature 0 is informative: in the centre mode it is normal around 15, 20 or 25, depending on the class. The other
    features are noise: in the centre mode they are uniform within 2.5 of 10 + the distribution's offset, and every
    class has the same offsets. The two other modes are the same for all distributions: around 0, and around 40 along
    the informative and 50 along the noise features. Standard deviations are 1.5. The informative feature is multiplied
    by 1.25 afterwards.

    Parameters
    ----------
    n_noise : int, default=1
        Number of noise features.
    noise_scale : float, default=1000.0
        Factor by which the noise features are multiplied.
    offsets : sequence of float, default=(1.5, 4.5, ..., 28.5)
        Offset of the noise features, one per distribution of a class.
    points_per_mode : int, default=100
        Points in each of the three modes.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D, y : Distributions and array of shape (n_distributions,)
        Distributions with the annotation "mode" of the points ("centre", "low" or "high"), and classes 0, 1 and 2.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(random_state=0)
    >>> D, sorted(set(y.tolist()))
    (Distributions(30 distributions, 9000 points, 2 features), [0, 1, 2])
    """
    random, parts, names = check_random_state(random_state), [], []
    size = (points_per_mode, n_noise)
    for label, class_mean in enumerate(_CLASS_MEANS):
        for offset in offsets:
            centres = (10.0 + class_mean, 0.0, 40.0)
            signal = np.concatenate([random.normal(centre, _SPREAD, points_per_mode) for centre in centres])
            noise = [random.uniform(7.5 + offset, 12.5 + offset, size)]
            noise += [random.normal(centre, _SPREAD, size) for centre in (0.0, 50.0)]
            parts.append(np.column_stack([signal * _SIGNAL_SCALE, np.vstack(noise) * noise_scale]))
            names.append(f"class {label}, offset {offset:g}")
    modes = np.tile(np.repeat(["centre", "low", "high"], points_per_mode), len(parts))
    features = ["signal"] + [f"noise {k}" for k in range(1, n_noise + 1)]
    samples = np.repeat(names, 3 * points_per_mode)
    D = Distributions(np.vstack(parts), samples, features=features, annotations={"mode": modes})
    return D, np.repeat(np.arange(len(_CLASS_MEANS)), len(offsets))


def make_rings(
    n_per_class: int = 40, *, points: int = 10, random_state: RandomState = None
) -> tuple[Distributions, np.ndarray]:
    """Simulate two classes in four dimensions that differ in radius only: 1.0 and 1.12.

    Every distribution is a cluster around a random direction on the sphere of its class. A linear metric stays near
    chance, because the classes overlap along every direction. A nonlinear one (a feature map, a network) can separate
    them.

    Parameters
    ----------
    n_per_class : int, default=40
        Distributions per class.
    points : int, default=10
        Points of each distribution.
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D, y : Distributions and array of shape (n_distributions,)
        Distributions, class after class, and their classes 0 and 1.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_rings(random_state=0)
    >>> D, y.size
    (Distributions(80 distributions, 800 points, 4 features), 80)
    """
    random, y = check_random_state(random_state), np.repeat(np.arange(len(_RADII)), n_per_class)
    directions = random.normal(size=(y.size, 1, _RING_FEATURES))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    clusters = directions + _WIDTH * random.normal(size=(y.size, points, _RING_FEATURES))
    clusters /= np.linalg.norm(clusters, axis=2, keepdims=True)
    clusters *= np.asarray(_RADII)[y][:, None, None] * (1.0 + _NOISE * random.normal(size=(y.size, points, 1)))
    names = [f"class {label}, {k % n_per_class}" for k, label in enumerate(y)]
    return Distributions(clusters.reshape(-1, _RING_FEATURES), np.repeat(names, points)), y


def synth_2d(random_state: RandomState = None) -> tuple[Distributions, np.ndarray]:
    """Return the paper's Synth 2D: `make_modes` with one noise feature, scaled by a thousand.

    Parameters
    ----------
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D, y : Distributions and array of shape (30,)
        30 distributions of 300 points, with the features "signal" and "noise 1", and their classes 0, 1 and 2.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> D.shape, D.features
    ((30, 2), ['signal', 'noise 1'])
    """
    return make_modes(1, 1000.0, random_state=random_state)


def synth_200d(random_state: RandomState = None) -> tuple[Distributions, np.ndarray]:
    """Return the paper's Synth 200D: `make_modes` with 199 noise features on the scale of the informative one.

    Parameters
    ----------
    random_state : int, RandomState or None, default=None
        Seed, or random generator.

    Returns
    -------
    D, y : Distributions and array of shape (30,)
        30 distributions of 300 points, with the features "signal", "noise 1" to "noise 199", and their classes.

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
    Survival times are exponential, with a hazard of the hazard ratio to the power of the activity. Censoring times are
    exponential, with the rate that gives the expected share of censored patients.

    Parameters
    ----------
    n_patients, n_cells : int, default=60
        Number of patients, and of cells of each.
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
    D, y : Distributions and structured array of shape (n_patients,)
        Patients with the annotation "programme" of the cells, and fields "event" and "time" as in scikit-survival.

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
    D = Distributions(
        points.reshape(-1, n_genes),
        np.repeat([f"patient {k}" for k in range(n_patients)], n_cells),
        features=[f"planted {k}" if k < n_planted else f"gene {k}" for k in range(n_genes)],
        annotations={"programme": np.tile(has_programme, n_patients)},
    )
    hazard = hazard_ratio**activity
    died = random.exponential(size=n_patients) / hazard
    last_seen = random.exponential(size=n_patients)
    # An event is censored with probability c / (c + hazard) at rate c: bisection of log c.
    low, high = -20.0, 20.0
    for _ in range(60):
        rate = np.exp((low + high) / 2.0)
        is_low = np.mean(rate / (rate + hazard)) < censored
        low, high = ((low + high) / 2.0, high) if is_low else (low, (low + high) / 2.0)
    last_seen = last_seen / np.exp(low) if censored > 0 else np.full(n_patients, np.inf)
    y = np.empty(n_patients, dtype=[("event", bool), ("time", np.float64)])
    y["event"], y["time"] = died <= last_seen, np.minimum(died, last_seen)
    return D, y
