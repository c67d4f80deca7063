"""Bring a start near a mode, where constant steps scaled by the curvature are stable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax, random

from bmfjax.data.minibatch import minibatches
from bmfjax.kernels.iasg import Block


def adam_approach(
    blocks: Sequence[Block],
    bounds: Mapping[str, tuple[float, float]],
    num_steps: int,
    learning_rate: float = 0.1,
) -> Callable[[jax.Array, dict, Any], dict]:
    """Adam on the blocks' minibatch gradients, with a step that decays to zero.

    A Newton step far from the mode of, say, a log scale can leave for infinity;
    Adam's steps are bounded by the learning rate.

    Parameters
    ----------
    blocks, bounds
        As for `bmfjax.kernels.iasg.iasg`.
    num_steps : int
    learning_rate : float
        First step, in the coordinates in which sites move; halves a cosine.

    Returns
    -------
    callable
        ``approach(key, position, data) -> position``.

    Examples
    --------
    >>> block = Block(("x",), {"cases": (4, 4)}, lambda p, i, d, b: {"x": 3.0 - p["x"]})
    >>> approach = adam_approach([block], {}, 300)
    >>> position = approach(random.key(0), {"x": jnp.zeros(())}, None)
    >>> bool(abs(position["x"] - 3.0) < 0.05)
    True
    """
    # A short memory of squares: with 0.999 the gradients of a far start, a million times those
    # near the mode, would hold the steps near zero for the whole approach. With b1 = b2 no step
    # is longer than the learning rate.
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps)
    optimizer = optax.adam(schedule, b1=0.9, b2=0.9)
    moving = [s for block in blocks for s in block.sites]

    def approach(key, position, data):
        def body(t, carry):
            moved, moments = carry
            gradient = {}
            for b, block in enumerate(blocks):
                key_block = random.fold_in(random.fold_in(key, t), b)
                indices = {
                    plate: minibatches(random.fold_in(key_block, p), size, batch, 1)(0)
                    for p, (plate, (size, batch)) in enumerate(sorted(block.plates.items()))
                }
                gradient |= block.gradient(position | moved, indices, data, 1.0)
            descent = jax.tree.map(jnp.negative, gradient)
            updates, moments = optimizer.update(descent, moments, moved)
            moved = optax.apply_updates(moved, updates)
            return {
                s: jnp.clip(v, *bounds[s]) if s in bounds else v for s, v in moved.items()
            }, moments

        start = {s: position[s] for s in moving}
        moved, _ = lax.fori_loop(0, num_steps, body, (start, optimizer.init(start)))
        return position | moved

    return approach
