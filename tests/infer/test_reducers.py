"""Streaming reducers against NumPy on all draws in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bmfjax.infer import histogram, moments, product_mean


def fed(reducer, draws):
    """The reducer's value after all draws, taken inside one compiled loop."""
    first = jax.tree.map(lambda v: jnp.zeros(v.shape[1:], v.dtype), draws)

    @jax.jit
    def run(draws):
        update = lambda carry, draw: (reducer.update(carry, draw), None)  # noqa: E731
        return jax.lax.scan(update, reducer.init(first), draws)[0]

    return reducer.value(jax.device_get(run(draws)))


# ---- moments -----------------------------------------------------------------------------------


def test_moments_of_many_draws_far_from_zero():
    """A float32 sum of squares, or of values, has no digit left of such a spread."""
    r = np.random.default_rng(0)
    offset = np.array([1e4, -1e4, 0.0, 1e-3])
    draws = (offset + np.array([1e-1, 1e-2, 1.0, 1e-6]) * r.normal(size=(100_000, 4))).astype("f4")
    found = fed(moments("x"), {"x": draws})["x"]
    wide = draws.astype(float)
    assert (np.abs(found["mean"] - wide.mean(0)) < 1e-7 * wide.std(0)).all()
    np.testing.assert_allclose(found["variance"], wide.var(0, ddof=1), rtol=1e-6)
    assert found["mean"].dtype == found["variance"].dtype == np.float64


def test_moments_where_a_plain_sum_and_a_kahan_sum_lose_everything():
    x = np.array([0.0, 1.0, 1e9, 1.0, -1e9] * 10, np.float32)
    assert fed(moments("x"), {"x": x})["x"]["mean"] == 2 / 5


READY = moments("x")
FEED = jax.jit(
    lambda draws: jax.lax.scan(
        lambda carry, x: (READY.update(carry, {"x": x}), None),
        READY.init({"x": draws[0]}),
        draws,
    )[0]
)


@given(draws=arrays(np.float32, (40, 2), elements=st.floats(-1e3, 1e3, width=32)))
@example(draws=np.full((40, 2), 7.25, np.float32))
@settings(max_examples=50)
def test_moments_of_anything(draws):
    found = READY.value(jax.device_get(FEED(draws)))["x"]
    wide = draws.astype(float)
    spread = np.abs(wide - wide[0]).max() + 1e-30
    np.testing.assert_allclose(found["mean"], wide.mean(0), rtol=1e-6, atol=1e-6 * spread)
    np.testing.assert_allclose(
        found["variance"], wide.var(0, ddof=1), rtol=1e-5, atol=1e-6 * spread**2
    )


def test_moments_of_few_draws_and_of_several_names():
    draws = {"x": np.ones((1, 2), np.float32), "y": np.full((1, 3, 2), 4.0, np.float32)}
    found = fed(moments("x", "y"), draws)
    assert set(found) == {"x", "y"}
    np.testing.assert_array_equal(found["y"]["mean"], np.full((3, 2), 4.0))
    assert np.isnan(found["y"]["variance"]).all()


# ---- histogram ---------------------------------------------------------------------------------


@given(
    sixteenths=arrays(np.int32, (60, 3), elements=st.integers(-8, 40)),
    bins=st.sampled_from([1, 4, 16]),
)
@settings(max_examples=30)
def test_histogram_is_numpys_with_the_outside_in_the_outer_bins(sixteenths, bins):
    """On a dyadic grid, where the edges are hit and every float is exact."""
    draws = (sixteenths / 16).astype(np.float32)
    reducer = histogram("x", bins=bins, low=0.0, high=2.0)
    carry = reducer.init({"x": draws[0]})
    for x in draws[:5]:
        carry = reducer.update(carry, {"x": x})
    found = reducer.value(carry)["x"]
    for element, counts in enumerate(found):
        inside = np.clip(draws[:5, element], 0.0, 2.0)
        np.testing.assert_array_equal(counts, np.histogram(inside, bins, (0.0, 2.0))[0])


def test_histogram_of_a_matrix_has_fifty_bins_on_the_unit_interval():
    draws = np.random.default_rng(0).random((3000, 2, 3)).astype(np.float32)
    counts = fed(histogram("x"), {"x": draws})["x"]
    assert counts.shape == (2, 3, 50) and counts.dtype == np.uint32
    for i, j in np.ndindex(2, 3):
        expected = np.histogram(draws[:, i, j], 50, (0.0, 1.0))[0]
        # A value within one rounding of an edge may fall on either side.
        assert np.abs(counts[i, j].astype(int) - expected).sum() <= 2
        assert counts[i, j].sum() == 3000


# ---- product mean ------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_product_mean_is_that_of_all_reconstructions(threshold):
    r = np.random.default_rng(0)
    usage = r.random((500, 4, 2)).astype(np.float32)
    basis = r.random((500, 3, 2)).astype(np.float32)
    found = fed(product_mean(threshold=threshold), {"usage": usage, "basis": basis})["product"]
    products = np.einsum("sik,sjk->sij", usage.astype(float), basis.astype(float))
    expected = products.mean(0) if threshold is None else (products >= threshold).mean(0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float64


def test_an_entry_at_the_threshold_counts():
    draws = {"usage": np.full((2, 1, 1), 0.5, "f4"), "basis": np.ones((2, 1, 1), "f4")}
    assert fed(product_mean(threshold=0.5), draws)["product"] == 1.0


def test_product_mean_of_no_draw_is_nan_and_does_not_warn():
    reducer = product_mean()
    carry = reducer.init({"usage": jnp.zeros((2, 1)), "basis": jnp.zeros((3, 1))})
    assert np.isnan(reducer.value(jax.device_get(carry))["product"]).all()
