"""Random minibatches of the cases of a plate: rows or columns of a matrix."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random


def minibatches(
    key: jax.Array, size: int, batch: int, num_batches: int, *, replace: bool = True
) -> Callable[[jax.Array], jax.Array]:
    """Independent uniform minibatches, as a function of the step.

    Batches of different steps are independent also without replacement: going
    through a reshuffled data set would make the gradient noise of a pass sum to
    zero, and the spread of iterate averages with it.

    Parameters
    ----------
    key : jax.Array
        A typed key.
    size, batch, num_batches : int
        Number of cases, cases in a minibatch (at most `size` without
        replacement), number of minibatches.
    replace : bool
        Draw cases with replacement.

    Returns
    -------
    callable
        ``at(step)`` gives the ``(batch,)`` int32 indices of that minibatch for
        ``0 <= step < num_batches``; `step` may be traced.

    Examples
    --------
    >>> at = minibatches(random.key(0), size=10, batch=4, num_batches=3)
    >>> at(0).shape, bool((at(0) < 10).all())
    ((4,), True)
    """
    if replace:
        # One draw for all steps: a small draw costs as much as a tenth of a gradient.
        table = random.randint(key, (num_batches, batch), 0, size)
        return lambda step: table[step]
    return lambda step: random.permutation(random.fold_in(key, step), jnp.arange(size))[:batch]
