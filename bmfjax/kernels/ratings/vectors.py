"""The vectors of one side of the matrix, drawn block by block given the other side's."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.budget import Budget
from bmfjax.kernels.numerics.linalg import back_substitute, cholesky
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.ratings.density import (
    FACTORS,
    OTHER,
    PMFDensity,
    explained_by_attributes,
    latent,
    noise_precision,
)
from bmfjax.kernels.ratings.entries import MAX_WIDTH, LineBlocks, flat_values

#: The linear systems of all lines are made at once where they, and what is made of them on the way,
#: take at most so many times the budget: half of a device's memory.
SYSTEMS, COPIES = 5, 4


@full_precision
def draw_side(key, side, position, data, density: PMFDensity, inverse_temperature=1.0) -> dict:
    """Draw the vectors of all rows, or all columns, given the rest: factors and effects by name."""
    lists = data.by_row if side == "row" else data.by_column
    mean, precision = _prior(side, position, density)
    weight = inverse_temperature * noise_precision(position, density)
    shift = (precision @ mean)[:, None]
    held = data.num_known(side)
    width = density.width - held
    if width == 0:
        return {}
    key_latent, key_draw = random.split(key)
    targets = _targets(key_latent, side, position, lists, density, data.budget)

    def drawn_given(gram, key, known, own_shift):
        """Draw the vectors of a block from (width, width + 1, lines): sums of f f^T and f z."""
        system = weight * gram + jnp.concatenate([precision[..., None], shift[:, None]], axis=1)
        if own_shift is not None:
            system = system.at[:, -1].add(own_shift.T)
        if held:
            system = _given_first(system, known)
        upper = cholesky(system)
        noise = random.normal(key, (width, system.shape[-1]), system.dtype)
        return back_substitute(upper[:, :width], upper[:, width] + noise).T

    number = lists.kind.shape[0]
    keys = random.split(key_draw, number)
    known = _by_block(data.known, lists) if held else None
    of_attributes = None
    if side in density.attributes:
        means = _attribute_means(side, position, density, data)
        of_attributes = _by_block(means @ precision, lists)
    own = _own_blocks(data.along, number)
    blocks = jax.tree.map(lambda part: part[own], (keys, known, of_attributes))
    if data.along.axis is None and _bytes_of_systems(lists, density) <= SYSTEMS * data.budget.bytes:
        grams = _grams(side, position, lists, targets, density, data.budget)
        size = 16 * density.width * (density.width + 1) * lists.line[0].shape[1]
        drawn = data.budget.map(lambda at: drawn_given(at[0], *at[1]), (grams, blocks), size)
    else:
        branches = _gram_branches(side, position, lists, targets, density)

        def block(_, at):
            (kind, first, number), rest = at
            return None, drawn_given(lax.switch(kind, branches, first, number), *rest)

        places = tuple(part[own] for part in (lists.kind, lists.first, lists.number))
        _, drawn = lax.scan(block, None, (places, blocks))
    vectors = _of_all_devices(drawn, data.along, number).reshape(-1, width)[lists.place]
    if held:
        vectors = jnp.concatenate([data.known, vectors], axis=1)
    found = {FACTORS[side]: vectors[:, : density.rank]} if density.rank else {}
    return found | ({f"{side}_effect": vectors[:, density.rank]} if density.effects else {})


def _bytes_of_systems(lists: LineBlocks, density) -> int:
    """Return the bytes of the linear systems of all lines of a side, and of copies on the way."""
    lines = lists.kind.shape[0] * lists.line[0].shape[1]
    kind = jnp.result_type(float)
    return COPIES * kind.itemsize * lines * density.width * (density.width + 1)


def _own_blocks(along, number: int) -> jax.Array | slice:
    """Return the numbers of the blocks of this device, so many apart that all have long ones.

    Where the devices do not divide the blocks the last one fills up.
    """
    if along.axis is None:
        return slice(None)
    part, parts = along.part()
    return jnp.minimum(part + parts * jnp.arange(-(-number // parts)), number - 1)


def _of_all_devices(drawn, along, number: int):
    """Put what every device has drawn, (its blocks, ...), in the order of all blocks."""
    if along.axis is None:
        return drawn
    parts = along.part()[1]
    joined = along.gather(drawn).reshape(parts, -1, *drawn.shape[1:])
    return jnp.swapaxes(joined, 0, 1).reshape(-1, *drawn.shape[1:])[:number]


@full_precision
def _given_first(system, known):
    r"""Return the linear systems of the other coordinates, given the first: (width, + 1, lines).

    `system` is :math:`(A, h)` of :math:`N(A^{-1} h, A^{-1})`, and `known` (lines, number) holds
    :math:`a`. With A and h in blocks, the others given these have :math:`A_{ww}` and
    :math:`h_w - A_{wa} a`.
    """
    held = known.shape[1]
    rest = system[held:, held:]
    return rest.at[:, -1].add(-jnp.einsum("wal,la->wl", system[held:, :held], known))


def _attribute_means(side, position, density, data):
    """Return what attributes add to the prior means of a side's vectors, (lines, width)."""
    parts = [
        explained_by_attributes(name, side, position, density, data)
        for name in density.vectors(side)
    ]
    return jnp.concatenate([p.reshape(p.shape[0], -1) for p in parts], axis=1)


def _by_block(known, lists: LineBlocks):
    """Return numbers of every line, as the blocks have the lines: (block, lines, number)."""
    blocks = lists.kind.shape[0]
    lines = lists.line[0].shape[1]
    filled = jnp.zeros((blocks * lines, known.shape[1]), known.dtype)
    return filled.at[lists.place].set(known).reshape(blocks, lines, -1)


@full_precision
def entry_fits(side, position, lists: LineBlocks, density: PMFDensity, budget: Budget):
    """Return the fits of all entries, listed by a side, in the order of `flat_values`: (entry,)."""
    regressors, offsets = _regressors(side, position, density)
    own = _with_padding(_vectors(side, position, density))

    def table(at):
        line, other = at
        products = jnp.einsum("lci,li->lc", regressors[other], own[line])
        return offsets[other] + products

    parts = [
        budget.map(table, (line, other), _bytes_of_table(other, density)).ravel()
        for line, other in zip(lists.line, lists.other, strict=True)
    ]
    return jnp.concatenate(parts)


def _bytes_of_table(other, density) -> int:
    """Return the bytes of what is made of a table: what multiplies every entry, twice."""
    return 8 * math.prod(other.shape[1:]) * (density.width + 1)


def _targets(key, side, position, lists, density, budget):
    """Return what the fits are to explain, table by table: values, or draws of the latent ones."""
    if density.link == "identity":
        return lists.value
    # All entries in one call, which takes long to compile, and not table by table.
    fits = entry_fits(side, position, lists, density, budget)
    values, _ = flat_values(lists)
    drawn = latent(key, density.link, values, fits, position.get("cutpoints"))
    ends = list(itertools.accumulate(v.size for v in lists.value))
    parts = jnp.split(drawn, ends[:-1])
    return tuple(part.reshape(v.shape) for part, v in zip(parts, lists.value, strict=True))


@full_precision
def _of_tables(regressors, offsets, other, value):
    """Return sums of f f^T and, as the last column, of f z over tables (..., lines, entries)."""
    f = regressors[other]
    target = jnp.concatenate([f, (value - offsets[other])[..., None]], axis=-1)
    return jnp.einsum("...ci,...cj->...ij", f, target)


def _grams(side, position, lists: LineBlocks, targets, density, budget: Budget):
    """Return what `_gram_branches` gives of all blocks: (blocks, width, width + 1, lines).

    Tables are made side by side, and those of one block are then added in their order.
    """
    own = _regressors(side, position, density)
    blocks, lines = lists.kind.shape[0], lists.line[0].shape[1]
    total = jnp.zeros((blocks, lines, density.width, density.width + 1), own[0].dtype)
    for k, (other, target) in enumerate(zip(lists.other, targets, strict=True)):
        if not len(other):  # of a layout for several data sets
            continue
        size = _bytes_of_table(other, density)
        of_tables = budget.map(lambda at: _of_tables(*own, *at), (other, target), size)

        def add(t, total, of_tables=of_tables, k=k):
            there = (lists.kind == k) & (t < lists.number)
            chosen = of_tables[jnp.where(there, lists.first + t, 0)]
            return total + jnp.where(there[:, None, None, None], chosen, 0.0)

        several = other.shape[-1] == MAX_WIDTH
        total = lax.fori_loop(0, jnp.max(lists.number), add, total) if several else add(0, total)
    return jnp.transpose(total, (0, 2, 3, 1))


def _gram_branches(side, position, lists, targets, density):
    """Return ``gram(first table, number of tables)`` of every width, (width, width + 1, lines)."""
    regressors, offsets = _regressors(side, position, density)

    @full_precision
    def of_table(k, index):
        other, value = (
            lax.dynamic_index_in_dim(part[k], index, keepdims=False)
            for part in (lists.other, targets)
        )
        return _of_tables(regressors, offsets, other, value)

    def of_block(k):
        def one(first, number):
            return jnp.transpose(of_table(k, first), (1, 2, 0))

        def several(first, number):
            def add(i, total):
                return total + of_table(k, first + i)

            lines = lists.line[k].shape[1]
            start = jnp.zeros((lines, density.width, density.width + 1), regressors.dtype)
            return jnp.transpose(lax.fori_loop(0, number, add, start), (1, 2, 0))

        return several if lists.other[k].shape[-1] == MAX_WIDTH else one

    return [of_block(k) for k in range(len(lists.other))]


def _prior(side, position, density):
    """Return the mean and precision matrix of a vector: of the factors, then of the effect."""
    rank, width = density.rank, density.width
    some = next(iter(position.values()))
    mean, precision = jnp.zeros(width, some.dtype), jnp.zeros((width, width), some.dtype)
    if rank:
        factors = FACTORS[side]
        own = position[f"{factors}_precision"]
        if density.relevance:
            own = jnp.diag(own)
        else:
            mean = mean.at[:rank].set(position[f"{factors}_mean"])
        precision = precision.at[:rank, :rank].set(own)
    if density.effects:
        precision = precision.at[rank, rank].set(position[f"{side}_precision"])
    return mean, precision


def _vectors(side, position, density):
    """Return factors and effect of every line, (lines, width)."""
    parts = [position[FACTORS[side]]] if density.rank else []
    parts += [position[f"{side}_effect"][:, None]] if density.effects else []
    return jnp.concatenate(parts, axis=1)


def _regressors(side, position, density):
    """Return what multiplies a line's vector, and what is added; the last are zeros for padding."""
    other = _vectors(OTHER[side], position, density)
    offset = jnp.zeros(other.shape[0], other.dtype) + position.get("intercept", 0.0)
    if density.effects:
        offset = offset + other[:, -1]
        other = other.at[:, -1].set(1.0)
    return _with_padding(other), _with_padding(offset)


def _with_padding(x):
    return jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
