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

from bmfjax.kernels.numerics.control import run_if
from bmfjax.kernels.relaxed.data import FACTORS, MatrixData
from bmfjax.kernels.sgmcmc.gradients import Anchor, anchor_at


class AnchorTrack(NamedTuple):
    """An anchor and the mean from which the next one is made."""

    anchor: Anchor
    usage: jax.Array  # (rank, rows): mean of the draws since the anchor was set
    basis: jax.Array  # (rank, columns)
    since: jax.Array  # () int: number of these draws
    draws: jax.Array  # () int: number of all draws, up to the last that can set the anchor


def start_track(factors, data: MatrixData) -> AnchorTrack:
    """Make the start the anchor."""
    none = jnp.zeros((), jnp.int32)
    anchor = anchor_at(factors["usage"], factors["basis"], data)
    return AnchorTrack(anchor, factors["usage"], factors["basis"], none, none)


def follow(track: AnchorTrack, factors, data: MatrixData, num_anchor: int) -> AnchorTrack:
    """Take a draw into the mean, and make the mean the anchor if it is time."""
    times = jnp.array(sorted({max(num_anchor >> j, 1) for j in range(num_anchor.bit_length())}))
    draws = jnp.minimum(track.draws + 1, num_anchor + 1)
    since = track.since + 1
    mean = {f: getattr(track, f) + (factors[f] - getattr(track, f)) / since for f in FACTORS}
    due = jnp.any(draws == times)

    def recentre(_, mean):
        return anchor_at(mean["usage"], mean["basis"], data), jnp.zeros_like(since)

    anchor, since = run_if(due, recentre, (track.anchor, since), (mean,))
    return AnchorTrack(anchor, mean["usage"], mean["basis"], since, draws)
