"""One chain of a matrix factorisation with predictions of held-out cells, compiled once."""

import functools

import jax
import jax.numpy as jnp
from jax import lax, random

from benchmarks.calibration.cell_moments import cell_moments, expected_value, noisy_parts
from bmfjax.kernels.ratings.gibbs import PMFDensity, pmf_gibbs


@functools.partial(jax.jit, static_argnames=("density", "stars", "warmup", "samples", "noisy"))
def predict(
    key, data, rows, columns, *, density: PMFDensity, warmup, samples, stars=None, noisy=False
):
    """Moments of the expected values of some cells over a chain, and its trace of the log joint.

    Data of one layout share the compiled program, which `bmfjax.infer.ChainRun` would make anew
    for each. With `noisy` the moments are those of `cell_moments.noisy_parts`.
    """
    algorithm = pmf_gibbs(density)
    of = (noisy_parts if noisy else expected_value)(density.link, stars)
    reducer = cell_moments(rows, columns, of)
    key_init, key_run = random.split(key)
    state = algorithm.init(key_init, None, data)

    def body(carry, at):
        state, held = carry
        number, key = at
        state, info = algorithm.step(key, state, data)
        held = lax.cond(
            number >= warmup, lambda: reducer.update(held, state.position), lambda: held
        )
        return (state, held), info.log_joint

    steps = jnp.arange(warmup + samples), random.split(key_run, warmup + samples)
    (_, held), trace = lax.scan(body, (state, reducer.init(state.position)), steps)
    return held, trace
