"""Random minibatches of the cases of a plate: rows or columns of a matrix."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random


def minibatches(
    key: jax.Array, size: int, batch: int, num_batches: int, *, replace: bool = True
) -> Callable[[jax.Array], jax.Array]:
    """Return the function from a step to the indices (batch,) int32 of its uniform minibatch.

    Batches of different steps are independent also without replacement. Going through a
    reshuffled data set would make the gradient noise of a pass sum to zero, and the spread of
    iterate averages with it.
    """
    if replace:
        # One draw for all steps: a small draw costs as much as a tenth of a gradient.
        table = random.randint(key, (num_batches, batch), 0, size)
        return lambda step: table[step]
    return lambda step: random.permutation(random.fold_in(key, step), jnp.arange(size))[:batch]
