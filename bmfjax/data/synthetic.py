"""Synthetic binary matrices whose true factors are known.

Two protocols: disjoint tiles with random additions under unequal flip rates, as in the thesis by
Gonsior (2019), and products of independent Bernoulli factors under one flip rate, as in Rukat,
Holmes, Titsias and Yau (2017). The random numbers are NumPy's, so that a seed gives one matrix on
every device.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import (
    count_ones,
    lock_words,
    pack_on_host,
    product_on_host,
    product_words,
    zero_words,
)
from bmfjax.data.blocks import blocks
from bmfjax.data.checks import one_of, seed_number, whole
from bmfjax.data.errors import InputError
from bmfjax.data.table import locked
from bmfjax.errors import checking_call

# Table 3.1 of the thesis: the probabilities (p+, p-) that a zero and a one are flipped.
THESIS_NOISE = {"clean": (0.01, 0.05), "noisy": (0.05, 0.15)}

# Index and pattern bits a factor: as algorithm 3.3 prints them, or as tables 4.1 and 4.2 imply.
THESIS_TILES = {
    "printed": {},
    "8x8": {"index_size": 6, "pattern_size": 2},
}


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A generated matrix with the truth behind it.

    Attributes
    ----------
    data : BinaryMatrix (rows, columns)
        The matrix with noise; no entry is missing. It is made some rows at a time.
    usage : bool array (rows, rank), read-only
    basis : bool array (columns, rank), read-only
    """

    data: BinaryMatrix
    usage: np.ndarray
    basis: np.ndarray

    @functools.cached_property
    def clean(self) -> np.ndarray:
        """The matrix without noise, the Boolean product: bool (rows, columns), read-only."""
        return locked(product_on_host(self.usage, self.basis))

    @functools.cached_property
    def num_clean_ones(self) -> int:
        """Ones of the matrix without noise, which is not formed."""
        words = pack_on_host(self.basis.T)
        parts = blocks(len(self.usage), words.shape[1])
        return sum(int(count_ones(product_words(self.usage[p].T, words)).sum()) for p in parts)


@checking_call
def generate_tiles(
    rows=512,
    columns=512,
    rank=30,
    *,
    pattern_fraction=0.1,
    index_size=None,
    pattern_size=None,
    noise=(0.01, 0.05),
    seed=0,
):
    """Generate a matrix of `rank` tiles by algorithm 3.3 of the thesis of Gonsior (2019).

    Each factor owns a block of ``ceil(rows / 100)`` rows and one of ``ceil(columns / 100)``
    columns, which identify it. Among the remaining ``rows - rank * ceil(rows / 100)`` rows it gets
    the share `pattern_fraction` at random, rounded down, and likewise of the columns. A zero of
    the Boolean product is then flipped with probability p+ and a one with probability p-.

    The defaults give tiles of 39 x 39 in 512 x 512 (6 index and 33 pattern bits), which is 15.8 %
    of ones. Step 4 of the algorithm as printed exchanges the two block sizes in the count of random
    bits, ``floor((n - l r) q)`` for the factor of n lines; here each factor is counted by its own
    block size. For a square matrix the two are the same.

    Parameters
    ----------
    rows, columns, rank : int
    pattern_fraction : float
        q: the share of the remaining rows (columns) in each factor.
    index_size : int, optional
        Rows and columns of each index block, in place of the hundredth.
    pattern_size : int, optional
        Random rows and columns of each factor, in place of the fraction.
    noise : (float, float)
        p+ and p-: the probabilities that a zero becomes a one and a one a zero.
    seed : int

    Returns
    -------
    Synthetic

    Raises
    ------
    InputError
        If the index blocks or the pattern do not fit, a probability is outside [0, 1], or both a
        fraction and a size of the pattern are given.

    Examples
    --------
    >>> tiles = generate_tiles(noise=(0.0, 0.0))
    >>> tiles.usage.sum(axis=0).tolist() == [39] * 30
    True
    >>> small = generate_tiles(20, 30, 2, index_size=3, pattern_size=0, noise=(0.0, 0.0))
    >>> small.data.num_ones
    18
    """
    _check_size(rows, columns, rank)
    _check_probability("pattern_fraction", pattern_fraction)
    flip_zero, flip_one = _check_noise(noise)
    if pattern_size is not None and pattern_fraction != 0.1:
        raise InputError("pattern_fraction and pattern_size are both given; give one of them")
    rng = np.random.default_rng(seed_number(seed))
    usage = _tile_factor("rows", rows, rank, pattern_fraction, index_size, pattern_size, rng)
    basis = _tile_factor("columns", columns, rank, pattern_fraction, index_size, pattern_size, rng)
    name = f"tiles {rows}x{columns} rank {rank}"
    return _synthetic(usage, basis, (flip_zero, flip_one), rng, name)


def thesis_matrix(kind, tiles="printed", seed=0):
    """Generate a matrix as the thesis of Gonsior (2019) uses it: 512 x 512, rank 30 (table 3.1).

    The thesis prints algorithm 3.3, but the errors in its tables 4.1 and 4.2 are multiples of 8 and
    the zero solution has about 1919 of them: its tiles were 8 x 8, not the 39 x 39 which the
    algorithm gives. Both are here.

    Parameters
    ----------
    kind : {"clean", "noisy"}
        Flip rates p+ and p- of 1 and 5 %, or of 5 and 15 %.
    tiles : {"printed", "8x8"}
        Tiles as the algorithm prints them (about 41,450 ones before noise, 15.8 %), or as the
        tables imply them (1920 ones, 0.73 %).
    seed : int

    Returns
    -------
    Synthetic

    Raises
    ------
    InputError
        If `kind` or `tiles` is not one of the above.

    Examples
    --------
    >>> thesis_matrix("noisy", tiles="8x8").basis.sum(axis=0).tolist() == [8] * 30
    True
    """
    one_of("kind", kind, THESIS_NOISE)
    one_of("tiles", tiles, THESIS_TILES)
    return generate_tiles(noise=THESIS_NOISE[kind], seed=seed, **THESIS_TILES[tiles])


@checking_call
def generate_product(rows, columns, rank, *, density=0.5, flip=0.0, seed=0):
    """Generate the Boolean product of independent Bernoulli factors, with flipped bits.

    The factors have ones with probability ``sqrt(1 - (1 - density)^(1 / rank))``, so that an entry
    of the product is a one with probability `density`. Each bit is then flipped with probability
    `flip`. The protocol of Rukat, Holmes, Titsias and Yau (2017), section 4.1.

    Parameters
    ----------
    rows, columns, rank : int
    density : float
        Expected share of ones in the product before the flips.
    flip : float
        Probability that a bit is flipped.
    seed : int

    Returns
    -------
    Synthetic

    Raises
    ------
    InputError
        If a size is below 1 or a probability outside [0, 1].

    Examples
    --------
    >>> truth = generate_product(50, 40, 3, density=0.3, seed=1)
    >>> bool((truth.clean == truth.data.dense(bool)).all()), truth.basis.shape
    (True, (40, 3))
    """
    _check_size(rows, columns, rank)
    _check_probability("density", density)
    _check_probability("flip", flip)
    rng = np.random.default_rng(seed_number(seed))
    p = math.sqrt(1 - (1 - density) ** (1 / rank))
    usage = rng.random((rows, rank)) < p
    basis = rng.random((columns, rank)) < p
    name = f"product {rows}x{columns} rank {rank}"
    return _synthetic(usage, basis, (flip, flip), rng, name)


def _tile_factor(side, size, rank, fraction, index_size, pattern_size, rng):
    """Return a bool factor (size, rank): the stacked index blocks over the random pattern."""
    block = math.ceil(size / 100) if index_size is None else index_size
    whole("index_size", block, 0)
    rest = size - block * rank
    if rest < 0:
        raise InputError(
            f"{rank} index blocks of {block} {side} need {block * rank} {side} and there are "
            f"{size}; lower rank or index_size, or raise {side}"
        )
    if pattern_size is None:
        # The fraction as it is written: 100 * 0.29 is a little below 29 in floating point.
        pattern_size = math.floor(rest * Fraction(str(float(fraction))))
    whole("pattern_size", pattern_size, 0)
    if pattern_size > rest:
        raise InputError(
            f"pattern_size is {pattern_size} and the index blocks leave {rest} {side}; "
            f"lower pattern_size, rank or index_size, or raise {side}"
        )
    factor = np.zeros((size, rank), dtype=bool)
    for k in range(rank):
        factor[k * block : (k + 1) * block, k] = True
        factor[block * rank + rng.choice(rest, pattern_size, replace=False), k] = True
    return factor


def _synthetic(usage, basis, flips, rng, name):
    """Flip zeros and ones of the product with the two probabilities, some rows at a time."""
    usage, basis = locked(usage), locked(basis)
    shape = len(usage), len(basis)
    made = zero_words(*shape)
    for some in blocks(*shape):
        clean = product_on_host(usage[some], basis)
        noisy = clean ^ (rng.random(clean.shape) < np.where(clean, flips[1], flips[0]))
        made[some] = pack_on_host(noisy)
    data = BinaryMatrix.from_packed(lock_words(made), shape[1], name=name)
    return Synthetic(data, usage, basis)


def _check_size(rows, columns, rank):
    for name, value in (("rows", rows), ("columns", columns), ("rank", rank)):
        whole(name, value)


def _check_probability(name, value):
    if isinstance(value, str) or not np.isscalar(value):
        raise TypeError(f"{name} is a {type(value).__name__}; give a probability")
    if not 0 <= value <= 1:
        raise InputError(f"{name} is {value}; give a probability, from 0 to 1")


def _check_noise(noise):
    if isinstance(noise, str) or not np.iterable(noise) or len(noise) != 2:
        raise InputError(f"noise is {noise!r}; give the two probabilities (p+, p-)")
    for name, value in zip(("p+", "p-"), noise, strict=True):
        _check_probability(f"{name} of noise", value)
    return noise
