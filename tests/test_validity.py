"""Fast rows of the validity table: error rates that a correct implementation exceeds with probability below 1e-3.

The defects that the limits guard against are far beyond them: a held-out accuracy of 0.89 with unequal numbers of
cells, 100 % rejections of an irrelevant batch. `make validity` measures all rows; `ensemble/test_fit.py` tests that
predictions do not depend on labels of their own fold.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import groundmetric as gm

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def rows():
    """The module with the simulations of the ensemble."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import validity_ensemble

        yield validity_ensemble
    finally:
        sys.path.remove(str(BENCHMARKS))


pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fewer_permutations")]


def standard_error(row):
    """Standard error of a mean, from its 95 % confidence limits; about a fourth of their distance."""
    return (row.high - row.low) / 4.0


@pytest.mark.parametrize(
    "name",
    [
        "5 v 40 cells",
        "4 v 1 samples per patient, 6 + 6",
        "2 batches, confounded 0.8",
        "three classes, 5 + 5 + 5",
        "numbers, 10 v 100 cells by number",
    ],
)
def test_held_out_predictions_of_noise_are_at_chance(rows, name):
    for row in rows.held_out(1, 8, [name]):
        # Student's t with 7 degrees of freedom exceeds 5 standard errors (4.2 as computed here) with probability 8e-4.
        assert row.measured <= row.nominal + 4.2 * standard_error(row), row


@pytest.mark.parametrize(
    "name", ["5 v 40 cells", "4 v 1 samples per patient, 12 v 4", "2 batches, confounded 0.8", "8 pairs"]
)
def test_p_values_of_association_are_uniform(rows, name):
    design, p = {**rows.NULL, **rows.UNBALANCED}[name], []
    for r in range(20):
        case, _ = design.draw(np.random.default_rng([2, r]), n_features=20, cells=6)
        p.append(
            gm.evaluation.permutation_test(
                gm.GroundMetricEnsemble(), case.D, case.y, n_permutations=19, statistic="association", random_state=r,
                **design.arguments(case),
            ).p
        )  # fmt: skip
    # Of 20 cohorts, 6 or more have p <= 0.05 with probability 3.3e-4, and 15 or more p <= 0.35 with probability 3.1e-4.
    assert np.sum(np.array(p) <= 0.0501) < 6
    assert np.sum(np.array(p) <= 0.3501) < 15


def test_permutation_test_of_cell_numbers_keeps_its_level(rows):
    """Check the combined p-value, and those of the held-out score and of the map, from refits."""
    design, p = rows.NULL["5 v 40 cells"], []
    for r in range(8):
        case, _ = design.draw(np.random.default_rng([3, r]), n_features=20)
        ensemble = gm.GroundMetricEnsemble(1, kinds=("univariate",))
        test = gm.evaluation.permutation_test(ensemble, case.D, case.y, n_permutations=3, random_state=r)
        p.append([test.p, test.p_values["held-out score"], test.p_values["map separation"]])
    # With 3 permutations p is 0.25 with probability 0.25; 7 or more of 8 have it with probability 4e-4.
    assert np.all(np.sum(np.array(p) <= 0.2501, axis=0) < 7)


def test_an_irrelevant_batch_with_an_exception_is_rarely_significant():
    rejected = 0
    for r in range(30):
        random = np.random.default_rng([4, r])
        patients = np.repeat(np.arange(12), 4)
        x = random.normal(size=(12, 10))[patients] + 0.3 * random.normal(size=(48, 10))
        batch = (random.permutation(12) % 2)[patients]
        batch[0] = 1 - batch[0]
        result = gm.interpret.batch_effects(
            np.linalg.norm(x[:, None] - x, axis=2), patients % 2, {"batch": batch}, groups=patients, n_permutations=99,
            random_state=r,
        )  # fmt: skip
        rejected += bool(result.p[0] <= 0.05)
    assert rejected < 7  # 7 or more with probability 6e-4 at a rate of 5 %
