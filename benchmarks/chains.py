"""What benchmarks of kernels run: one chain in one program, and what it is on average."""

import jax
import jax.numpy as jnp
from jax import lax, random


def mean_after(algorithm, kept, warmup: int, samples: int, thin: int = 1):
    """``run(key, data, *given)``: mean of ``kept(position, *given)`` over the draws of one chain.

    Of the sweeps after the warm-up every `thin`-th is a draw.
    """

    def run(key, data, *given):
        key_init, key = random.split(key)
        state = algorithm.init(key_init, None, data)

        def sweep(i, carry):
            state, total = carry
            state, _ = algorithm.step(random.fold_in(key, i), state, data)

            def with_draw(total):
                return jax.tree.map(jnp.add, total, kept(state.position, *given))

            is_draw = (i >= warmup) & ((i - warmup) % thin == thin - 1)
            return state, lax.cond(is_draw, with_draw, lambda total: total, total)

        shapes = jax.eval_shape(lambda state: kept(state.position, *given), state)
        none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
        _, total = lax.fori_loop(0, warmup + samples, sweep, (state, none))
        return jax.tree.map(lambda t: t / (samples // thin), total)

    return run
