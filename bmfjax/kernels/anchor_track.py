"""The anchor of control variates, set from the chain's own draws while it warms up.

The anchor is the start, then the mean of the draws since the last time it was set. It is
set after `num_anchor` draws and after a half, a quarter, ... of them, and stays from there
on. Each mean is thus over the later half of the draws so far: a start far away is soon
forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.gradient_estimator import Anchor, anchor_at
from bmfjax.kernels.gradient_sampler import FACTORS
from bmfjax.kernels.matrix_data import MatrixData


class AnchorTrack(NamedTuple):
    """An anchor and the mean from which the next one is made.

    Attributes
    ----------
    anchor : Anchor
    usage, basis : (rank, m) float
        Mean of the draws since the anchor was set.
    since : () int
        Number of these draws.
    draws : () int
        Number of all draws, up to the last that can set the anchor.
    """

    anchor: Anchor
    usage: jax.Array
    basis: jax.Array
    since: jax.Array
    draws: jax.Array


def start_track(factors, data: MatrixData) -> AnchorTrack:
    """Make the start the anchor.

    Parameters
    ----------
    factors : dict
        `usage` (rank, rows) and `basis` (rank, columns).
    data : MatrixData

    Returns
    -------
    AnchorTrack

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> factors = {"usage": jnp.ones((1, 2)), "basis": jnp.ones((1, 3))}
    >>> int(start_track(factors, matrix_data(jnp.ones((2, 3)))).draws)
    0
    """
    none = jnp.zeros((), jnp.int32)
    anchor = anchor_at(factors["usage"], factors["basis"], data)
    return AnchorTrack(anchor, factors["usage"], factors["basis"], none, none)


def follow(track: AnchorTrack, factors, data: MatrixData, num_anchor: int) -> AnchorTrack:
    """Take a draw into the mean, and make that the anchor if it is time.

    Parameters
    ----------
    track : AnchorTrack
    factors : dict
        The draw, as for `start_track`.
    data : MatrixData
    num_anchor : int
        Number of draws after which the anchor stays.

    Returns
    -------
    AnchorTrack

    Examples
    --------
    The anchor is set after 1, 2 and 4 draws, the last time to the mean of two:

    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> data = matrix_data(jnp.ones((2, 2)))
    >>> factors = {"usage": jnp.zeros((1, 2)), "basis": jnp.zeros((1, 2))}
    >>> track, anchors = start_track(factors, data), []
    >>> for x in (0.1, 0.2, 0.3, 0.5, 0.9):
    ...     track = follow(track, {f: jnp.full((1, 2), x) for f in factors}, data, 4)
    ...     anchors.append(round(float(track.anchor.usage[0, 0]), 3))
    >>> anchors
    [0.1, 0.2, 0.2, 0.4, 0.4]
    """
    times = jnp.array(sorted({max(num_anchor >> j, 1) for j in range(num_anchor.bit_length())}))
    draws = jnp.minimum(track.draws + 1, num_anchor + 1)
    since = track.since + 1
    mean = {f: getattr(track, f) + (factors[f] - getattr(track, f)) / since for f in FACTORS}
    due = jnp.any(draws == times)

    def recentre(_, carry):
        return anchor_at(mean["usage"], mean["basis"], data), jnp.zeros_like(since)

    # A loop of no or one pass: under vmap a conditional would compute both branches always.
    anchor, since = lax.fori_loop(0, due.astype(jnp.int32), recentre, (track.anchor, since))
    return AnchorTrack(anchor, mean["usage"], mean["basis"], since, draws)
