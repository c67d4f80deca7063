"""Every matrix product of a sampler keeps all digits, on devices that would round as well."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import bmfjax
from bmfjax.data import BinaryMatrix
from bmfjax.families import FAMILIES, ask
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.moves.rebirth import rebirth
from bmfjax.kernels.boolean.moves.split_merge import split_merge
from bmfjax.kernels.boolean.words import packed_data
from bmfjax.kernels.nonnegative.line_moves import move_lines
from bmfjax.kernels.numerics.normal_wishart import moments
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.data import cross_product, matrix_data, residual_sum_of_squares
from tests.test_cells import data_of

SAMPLERS = [(model, sampler) for model, family in FAMILIES.items() for sampler in family.samplers]


def rounded_products(jaxpr):
    """The float products of a traced program, those of its parts too, that may lose digits."""
    found = []
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("dot_general", "conv_general_dilated"):
            kinds = [v.aval.dtype for v in equation.invars[:2]]
            precision = equation.params["precision"]
            full = precision is not None and set(np.atleast_1d(precision)) == {
                lax.Precision.HIGHEST
            }
            if all(jnp.issubdtype(kind, jnp.floating) for kind in kinds) and not full:
                found.append(str(equation)[:200])
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                part = getattr(part, "jaxpr", part)
                if hasattr(part, "eqns"):
                    found += rounded_products(part)
    return found


def products_of(f, *given):
    return rounded_products(jax.make_jaxpr(f)(*given).jaxpr)


def test_a_product_that_may_lose_digits_is_found_wherever_it_stands():
    a = jnp.eye(2)

    def looped(f):
        return lambda a: lax.fori_loop(0, 2, lambda i, x: lax.cond(i > 0, f, jnp.sin, x), a)

    assert len(products_of(looped(jax.jit(lambda x: x @ x)), a)) == 1
    assert len(products_of(lambda x: jnp.dot(x, x, precision="high"), a)) == 1
    assert products_of(full_precision(looped(jax.jit(lambda x: x @ x))), a) == []
    assert products_of(lambda n: n @ n, jnp.eye(2, dtype=jnp.int32)) == []


@pytest.mark.filterwarnings("ignore:a draw of IASG averages")
@pytest.mark.parametrize(("model", "sampler"), SAMPLERS)
def test_the_products_of_a_sampler_are_full(model, sampler):
    request = ask(
        data_of(model), 2, sampler, model=bmfjax.DeepOrMachine(layers=[1])
        if model == "deep-ormachine" else model,
        num_chains=2, num_warmup=2, num_samples=8, seed=0,
    )  # fmt: skip
    chains = request.chains()
    algorithm, data = chains.algorithm, chains.data
    key = random.key(0)

    def begin(key, data):
        return algorithm.init(key, None, data)

    def step(key, state, data):
        state, info = algorithm.step(key, state, data)
        return state, algorithm.observe(state, info)

    assert products_of(begin, key, data) == []
    assert products_of(step, key, jax.eval_shape(begin, key, data), data) == []


def test_kernels_that_are_called_by_themselves_are_full():
    values = jnp.ones((4, 3))
    data, usage, basis = matrix_data(values), jnp.ones((4, 2)), jnp.ones((3, 2))
    rate = jnp.ones(2)
    for f in (
        lambda u: move_lines(random.key(0), "usage", u, basis, data, rate, 1.0),
        lambda u: cross_product(data, "basis", u),
        lambda u: residual_sum_of_squares(u, basis, data),
        moments,
    ):
        assert products_of(f, usage) == []


@pytest.mark.parametrize("move", [rebirth, split_merge])
def test_the_products_of_moves_of_boolean_factors_are_full(move):
    """Differences of log densities are of hundreds, and decide what is accepted."""
    ones = jnp.zeros((12, 12)).at[:6, :6].set(1)
    density = BooleanDensity((12, 12), rank=2, flip_rate=FlipRatePrior(value=0.1))
    words, shares = jnp.zeros((2, 1), jnp.uint32), jnp.full(2, 0.5)
    position = {"usage": words, "basis": words, "flip_rate": jnp.float32(0.1)}
    position |= {"usage_density": shares, "basis_density": shares}
    given = random.key(0), position, packed_data(BinaryMatrix(ones))
    assert products_of(move(density, num_patterns=2), *given) == []
