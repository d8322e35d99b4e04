"""Points times few components: what BLAS gives, for any shape and kind of points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from groundmetric.transport.pairs import project


@given(
    st.integers(0, 9),
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from([np.float64, np.float32, np.int64]),
    st.integers(0, 10**6),
)
def test_products_are_those_of_blas(n, n_features, n_components, kind, seed):
    rng = np.random.default_rng(seed)
    points = (10 * rng.normal(size=(n, n_features))).astype(kind)
    components = rng.normal(size=(n_components, n_features))
    z = project(points, components)
    assert z.dtype == np.float64
    assert z.flags.c_contiguous
    assert_allclose(z, points.astype(float) @ components.T, rtol=1e-12, atol=1e-11)


def read_only(points):
    points.flags.writeable = False
    return points


@pytest.mark.parametrize("change", [read_only, np.asfortranarray, lambda points: points[:, ::2], lambda x: x[::2]])
def test_points_may_lie_anyhow(change):
    rng = np.random.default_rng(0)
    points = change(rng.normal(size=(20, 16)))
    components = np.asfortranarray(rng.normal(size=(5, points.shape[1])))
    before = points.copy()
    assert_allclose(project(points, components), points @ components.T, rtol=1e-12)
    np.testing.assert_array_equal(points, before)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_row(odd):
    points = np.ones((4, 9))
    points[2, 8] = odd
    z = project(points, np.ones((5, 9)))
    assert not np.isfinite(z[2]).any()
    assert np.all(z[[0, 1, 3]] == 9.0)
