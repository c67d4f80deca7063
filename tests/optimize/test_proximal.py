"""Proximal operators minimise their definition, by brute force over a fine grid."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.elbmf import elastic_penalty, prox_elastic
from bmfjax.optimize import binary_penalty, prox_binary

# Drawn from a grid, evenly: of floats hypothesis prefers the ends.
numbers = st.sampled_from(np.linspace(-2.0, 3.0, 1001).tolist())
strengths = st.sampled_from(np.linspace(0.0, 1.5, 301).tolist())
GRID = np.linspace(-1.0, 4.0, 20_001, dtype=np.float32)


def definition(z, x, penalty):
    return 0.5 * (np.asarray(z, float) - x) ** 2 + penalty


@settings(max_examples=150)
@given(x=numbers, strength=strengths)
def test_the_binary_operator_minimises_its_definition(x, strength):
    def value(z):
        return definition(z, x, strength * np.asarray(binary_penalty(z), float))

    with np.errstate(invalid="ignore"):  # zero times infinity, where nothing is penalised
        best = np.nanmin(np.where((GRID >= 0) & (GRID <= 1), value(GRID), np.inf))
        found = np.asarray(prox_binary(np.float32(x), np.float32(strength)))
        assert 0 <= found <= 1
        assert value(found[None])[0] <= best + 1e-5


@settings(max_examples=150)
@given(x=numbers, l1=strengths, l2=strengths)
def test_the_elastic_operator_minimises_its_definition(x, l1, l2):
    def value(z):
        return definition(z, x, np.asarray(elastic_penalty(z, l1, l2), float))

    found = np.asarray(prox_elastic(np.float32(x), np.float32(l1), np.float32(l2)))
    assert found >= 0
    assert value(found[None])[0] <= value(GRID).min() + 1e-5


def test_a_large_second_rate_rounds():
    x = np.array([0.0, 0.2, 0.49, 0.51, 0.9, 1.3], np.float32)
    np.testing.assert_allclose(prox_elastic(x, 0.0, 1e12), x > 0.5, atol=1e-6)


def test_the_elastic_operator_as_published_steps_over_one():
    x, l1, l2 = 0.95, 0.2, 0.5
    published = (x - l1 * np.sign(x - 1.0) + l2) / (1.0 + l2)
    exact = float(prox_elastic(np.float32(x), l1, l2))
    values = [
        definition(z, x, float(elastic_penalty(np.float32(z), l1, l2))) for z in (published, exact)
    ]
    assert published > 1.0 == exact and values[1] < values[0]
    assert abs(published - exact) <= l1
