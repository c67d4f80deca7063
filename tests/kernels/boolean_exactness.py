"""Problems of the Boolean models, for the tests of `exactness`: simulated by the NumPyro models.

The position of a sampler holds packed words where the model has matrices of bits.
"""

import functools

import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.boolean.words import PackedData, pack_last_axis, packed_data, unpack_last_axis
from tests.kernels.exactness import Problem

BITS = ("usage", "basis")


def boolean_problem(model, density, observed, pack=packed_data) -> Problem:
    """Problem of a NumPyro model, with its options, as a sampler on what `pack` makes sees it."""
    shape = observed.shape
    template = pack(BinaryMatrix(np.where(observed, 0.0, np.nan)))

    def draw_joint(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=shape)
        sites = {n: s["value"] for n, s in trace.items() if s["type"] == "sample"}
        values = sites.pop("data")
        return as_position(sites), values.astype(jnp.result_type(float))

    def simulate(key, position):
        fixed = handlers.substitute(model, data=as_sites(position, shape))
        trace = handlers.trace(handlers.seed(fixed, key)).get_trace(shape=shape)
        return trace["data"]["value"].astype(jnp.result_type(float))

    data = functools.partial(with_values, template, jnp.asarray(observed))
    return Problem(draw_joint, data, density, simulate)


def as_position(sites):
    """A sampler's position from the sites of the model."""
    packed = {n: pack_last_axis(sites[n].T.astype(bool)) for n in BITS if n in sites}
    return {n: jnp.asarray(v) for n, v in sites.items()} | packed


def as_sites(position, shape):
    """The inverse of `as_position`."""
    bits = {
        n: unpack_last_axis(position[n], size).T.astype(int)
        for n, size in zip(BITS, shape, strict=True)
        if n in position
    }
    return dict(position) | bits


def with_values(template, observed, values):
    """The data of traced values; all lines must be in one block."""
    if not isinstance(template, PackedData):
        return template._replace(packed=with_values(template.packed, observed, values))

    def packed(lines, bits):
        return lines._replace(ones=pack_last_axis(bits).reshape(lines.ones.shape))

    ones = (values == 1) & observed
    count = jnp.sum(ones).astype(template.num_ones.dtype)
    total = jnp.sum(observed).astype(template.num_ones.dtype)
    return template._replace(
        by_row=packed(template.by_row, ones),
        by_column=packed(template.by_column, ones.T),
        num_ones=count,
        num_zeros=total - count,
    )


def every(lines, rank=2):
    """All bits (state, lines, rank)."""
    numbers = np.arange(2 ** (lines * rank))[:, None]
    return ((numbers >> np.arange(lines * rank)) & 1).reshape(-1, lines, rank)
