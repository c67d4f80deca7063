"""Draws made of uniform numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from scipy import stats

from bmfjax.kernels.numerics import uniforms


@pytest.mark.parametrize(
    ("made", "law"), [("normals", "norm"), ("logistics", "logistic"), ("gumbels", "gumbel_r")]
)
def test_draws_are_quantiles_and_finite_at_zero(made, law):
    u = np.array([0.0, 0.001, 0.2, 0.5, 0.7, 0.999], np.float32)
    found = np.asarray(getattr(uniforms, made)(jnp.asarray(u)))
    np.testing.assert_allclose(found[1:], getattr(stats, law).ppf(u[1:]), rtol=1e-4, atol=1e-6)
    assert np.isfinite(found[0]) and found[0] < found[1]


def test_whole_numbers_are_below_their_bound_and_all_are_as_probable():
    u = np.append(np.arange(0, 1, 1 / 64, np.float32), np.float32(1 - 2**-24))
    found = np.asarray(uniforms.integers(jnp.asarray(u), 7))
    assert found.max() == 6
    assert set(np.bincount(found[:-1])) == {9, 10}


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_numbers_of_all_calls_are_uniform_and_independent(kind, dtype, x64):
    key = random.key(1, impl=kind)
    draw = jax.jit(lambda call: uniforms.draw_uniforms(key, dtype, (2001,), call=call)[0])
    found = np.stack([draw(call) for call in range(4)])
    assert found.dtype == dtype and found.min() >= 0.0 and found.max() < 1.0
    # All bits that the type holds are random.
    digits = 24 if dtype == jnp.float32 else 53
    last = np.ldexp(found[found >= 0.5], digits) % 2
    assert 0.45 < last.mean() < 0.55
    assert stats.kstest(found.ravel(), "uniform").pvalue > 1e-3
    for one, other in ((found[0], found[1]), (found[0, 1:], found[0, :-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.0 / len(one) ** 0.5
    assert len(np.unique(found)) > 0.99 * found.size


def test_arrays_of_one_call_share_no_number():
    one, *others = uniforms.draw_uniforms(random.key(0), jnp.float32, (), (2, 3), (4,))
    assert [x.shape for x in others] == [(2, 3), (4,)]
    numbers = np.concatenate([np.ravel(x) for x in (one, *others)])
    assert len(set(numbers.tolist())) == 11 and ((numbers >= 0) & (numbers < 1)).all()


def test_calls_of_many_words_share_none_though_their_counters_have_32_bits(monkeypatch):
    monkeypatch.setattr(uniforms, "MANY_WORDS", 2**10)
    number, key = 2**10, random.key(1)
    calls = (0, 1, 2**32 // number)  # the counter of the last is that of the first again
    words = np.concatenate([uniforms.draw_words(key, number, call) for call in calls])
    # Of so many random words of 32 bits hardly two are the same.
    assert len(set(words.tolist())) > len(words) - 5
