r"""The OrMachine, Bayesian Boolean matrix factorisation, as a NumPyro model."""

from __future__ import annotations

import jax.numpy as jnp

from bmfjax.data.checks import whole
from bmfjax.models.binary_data import binary_data, sample_data
from bmfjax.models.bits import resolve_known_bits, sample_bits
from bmfjax.models.flip_rate import flip_logits, resolve_flip_rate, sample_flip_rate
from bmfjax.specs.boolean import NUM_RATES


def ormachine(
    data=None,
    observed=None,
    *,
    rank,
    usage=None,
    basis=None,
    presence_prior=None,
    flip_rate=None,
    num_rates=NUM_RATES,
    anchors=None,
    shape=None,
):
    r"""Boolean product of binary factors, whose entries are flipped at random.

    .. math::

       c_{ij} = \bigvee_k z_{ik} \wedge u_{jk}, \qquad
       P(d_{ij} = 1 \mid c_{ij} = 0) = f_0, \quad P(d_{ij} = 0 \mid c_{ij} = 1) = f_1,

    with :math:`f_0 = f_1` unless two rates are asked for. The one rate is
    :math:`\sigma(-\lambda)` for the dispersion :math:`\lambda \ge 0` of Rukat, Holmes,
    Titsias, Yau (2017), "Bayesian Boolean Matrix Factorisation", ICML.

    For simulation, densities and NumPyro's utilities. The factors are discrete, so that
    NUTS and SVI cannot sample the model; its Gibbs sampler, `OrMachineGibbs`, does.

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    usage, basis : optional
        Prior of the bits of one factor matrix. None: every factor has a density of
        its own, with prior Beta(1, 1). A `numpyro.distributions.Beta`: that prior of the
        densities. A float in (0, 1): the density of all factors. An array (rows, rank)
        or (columns, rank): the probability of every single bit; 0 and 1 fix the bit.
    presence_prior : numpyro.distributions.Beta or (float, float), optional
        Where the number of factors is unknown: prior of the share of the factors that are there,
        each independently of the others. One that is not there has a usage density of zero. With
        Beta(1, 1) all numbers of factors from 0 to `rank` are equally probable beforehand. Default:
        all are there.
    flip_rate : optional
        None: learned, with prior Beta(1, 1) truncated to [0, 1/2]. A
        `numpyro.distributions.Beta`: that prior, truncated so. A float in (0, 1/2], or
        with two rates a pair of them: fixed.
    num_rates : {1, 2}
        Two, the default: zeros and ones of the Boolean product have flip rates of their own. One:
        as in the paper.
    anchors : (columns, number) array, optional
        The basis of the first factors, 0 and 1, which is known; NaN is not, and has the prior of
        the other bits. The known bits say nothing of the density of their factor.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a prior or a flip rate that is none of these, a rank below 1, an observed
        entry other than 0 and 1, or neither data nor shape.

    Notes
    -----
    Sites: `flip_rate` () or (2,), that is :math:`(f_0, f_1)`, where it is learned;
    `usage_presence` () with `presence_prior`;
    `usage_density` and `basis_density` (rank,) where learned; `usage` (rows, rank) and
    `basis` (columns, rank), int, 0 or 1; `data` (rows, columns). Plates: `rows`,
    `columns`.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(ormachine, rank=2, flip_rate=0.1, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["usage"].shape, draws["usage_density"].shape, draws["data"].shape
    ((5, 4, 2), (5, 2), (5, 4, 3))
    """
    whole("rank", rank)
    shape, values, seen = binary_data(data, observed, shape, "ormachine")
    rows, columns = shape
    rate = sample_flip_rate("flip_rate", resolve_flip_rate(flip_rate, num_rates))
    usage = sample_bits(
        "usage", "usage_density", ("rows", "factor"), (rows, rank), usage, presence_prior
    )
    basis = sample_bits(
        "basis", "basis_density", ("columns", "factor"), (columns, rank), basis,
        known=resolve_known_bits(anchors, basis, (columns, rank)),
    )  # fmt: skip
    logits = lambda i, j: flip_logits(rate, covered(usage[i], basis[j]))  # noqa: E731
    sample_data(logits, shape, values, seen)


def covered(usage, basis):
    """Return the Boolean product (rows, columns) of two factor matrices (lines, rank)."""
    dtype = jnp.result_type(float)  # the product of floats is the fast one, and exact here
    return usage.astype(dtype) @ basis.astype(dtype).T > 0.5
