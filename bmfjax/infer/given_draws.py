"""Draws for new rows or columns, given every kept draw of everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.precision import full_precision


def given_every_draw(
    sweep: Callable[..., Mapping],
    start: Mapping,
    known: Mapping,
    data: Any,
    *,
    sweeps: int,
    settle: int,
    seed: int,
    keep: Callable[[Mapping], Mapping] = dict,
) -> dict[str, np.ndarray]:
    """Draw sites of new lines given every draw of the rest: {site: (chain, draw, ...)}.

    `known` are the draws of the rest (chain, draw, ...). ``sweep(key, drawn, known, data)`` is a
    step of a chain that leaves the conditional given one of them invariant; `drawn` are sites such
    as those of `start`. Each draw sweeps so often from where the draw before ended, and the first
    is visited `settle` times before. `keep` returns what is kept of the sites.
    """
    check_fork()

    @jax.jit
    @full_precision
    def chain(key, known, data):
        def draw(drawn, at):
            key, known = at
            drawn, _ = lax.scan(
                lambda drawn, key: (sweep(key, drawn, known, data), None),
                drawn,
                random.split(key, sweeps),
            )
            return drawn, keep(drawn)

        known = {n: jnp.concatenate([jnp.repeat(v[:1], settle, 0), v]) for n, v in known.items()}
        keys = random.split(key, len(next(iter(known.values()))))
        return lax.scan(draw, dict(start), (keys, known))[1]

    found = []
    for c, key in enumerate(random.split(random.key(seed), len(next(iter(known.values()))))):
        drawn = jax.device_get(chain(key, {n: v[c] for n, v in known.items()}, data))
        found.append({n: v[settle:] for n, v in drawn.items()})
    return {n: np.stack([f[n] for f in found]) for n in found[0]}
