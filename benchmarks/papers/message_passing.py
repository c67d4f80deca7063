"""Boolean completion by message passing: the peer that Ravanbakhsh et al. (2016) propose.

Max-sum messages in log odds between the bits of both factor matrices and the observed entries:
every entry asks each of its factors whether both bits should be one. A bit is one where the sum of
its messages is above 0. `boolean_peers.py` runs it beside our own models.

Messages for which the entries give no reason shrink by ``1 - DAMPING`` in every iteration, to about
1e-45, and their signs still tell the bits. So they are held in 64 bits: in 32 they would be zeros.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.ops import segment_sum

DAMPING, ITERATIONS = 0.4, 200
#: Entries are filled up to a multiple of these, so that matrices of one kind share a program.
BLOCK = 4096


def _positive(a):
    return jnp.maximum(a, 0.0)


def _largest_of_others(a):
    """Of each factor the largest value among the other factors: (entries, rank)."""
    two, _ = lax.top_k(a, 2)
    first = jnp.argmax(a, axis=1, keepdims=True) == jnp.arange(a.shape[1])
    return jnp.where(first, two[:, 1:], two[:, :1])


@functools.partial(jax.jit, static_argnames=("shape", "rank"))
def _messages(key, rows, columns, support, shape, rank):
    """Log odds of the bits of both factor matrices after all iterations."""
    size = (len(rows), rank)
    start = {n: random.logistic(k, size) for n, k in zip("uv", random.split(key), strict=True)}

    def beliefs(to_usage, to_basis):
        # The prior of every bit is one half: it adds nothing.
        usage = segment_sum(to_usage, rows, shape[0], indices_are_sorted=True)
        return usage, segment_sum(to_basis, columns, shape[1])

    def body(_, carry):
        from_usage, from_basis, to_pair = carry
        to_usage = _positive(to_pair + from_basis) - _positive(from_basis)
        to_basis = _positive(to_pair + from_usage) - _positive(from_usage)
        usage, basis = beliefs(to_usage, to_basis)
        mix = lambda old, new: (1 - DAMPING) * old + DAMPING * new  # noqa: E731
        from_usage = mix(from_usage, usage[rows] - to_usage)
        from_basis = mix(from_basis, basis[columns] - to_basis)
        pair = jnp.minimum(from_usage + from_basis, jnp.minimum(from_usage, from_basis))
        positive = _positive(pair)
        rest = positive.sum(1, keepdims=True) - positive + support[:, None]
        return from_usage, from_basis, jnp.minimum(_positive(-_largest_of_others(pair)), rest)

    first = (start["u"], start["v"], jnp.zeros(size))
    from_usage, from_basis, to_pair = lax.fori_loop(0, ITERATIONS, body, first)
    return beliefs(
        _positive(to_pair + from_basis) - _positive(from_basis),
        _positive(to_pair + from_usage) - _positive(from_usage),
    )


def message_passing(rows, columns, values, shape, rank: int, flips: float, seed: int = 0):
    """Find Boolean factors (lines, rank) of the observed entries, of which `flips` is a share.

    The first messages, drawn from `seed`, break the symmetry of the factors.
    """
    order = np.argsort(rows, kind="stable")
    support = np.where(values[order] > 0, 1.0, -1.0) * np.log((1 - flips) / flips)
    # Lines beyond the last take no part in the sums.
    more = (0, -len(rows) % BLOCK)
    rows = np.pad(rows[order], more, constant_values=shape[0])
    columns = np.pad(columns[order], more, constant_values=shape[1])
    with jax.enable_x64(True):
        found = _messages(random.key(seed), rows, columns, np.pad(support, more), shape, rank)
        return tuple(np.asarray(one) > 0 for one in found)
