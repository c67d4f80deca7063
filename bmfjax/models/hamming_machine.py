r"""The Hamming machine, as a NumPyro model: a row is pulled to the codes of its factors."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import whole
from bmfjax.models.binary_data import binary_data, sample_data
from bmfjax.models.bits import sample_bits
from bmfjax.specs.priors import nonnegative_or_number


def hamming_machine(
    data=None,
    observed=None,
    *,
    rank,
    usage=None,
    basis=None,
    dispersion=None,
    shape=None,
):
    r"""Product of the distributions around a row's factors that fall with Hamming distance.

    .. math::

       p(d_i \mid z_i, u) \propto \prod_k e^{-\lambda z_{ik} h(d_i, u_{\cdot k})}, \qquad
       P(d_{ij} = 1) = \sigma\Big(\lambda \sum_k z_{ik} (2 u_{jk} - 1)\Big),

    with the Hamming distance :math:`h`: a variant of the OrMachine, from the talk on
    Rukat, Holmes, Titsias, Yau (2017), "Bayesian Boolean Matrix Factorisation", ICML.
    A factor in use favours a one or a zero; in rows that use none both are equally likely.

    For simulation, densities and NumPyro's utilities; its discrete sites are beyond NUTS
    and SVI.

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    usage, basis : optional
        Prior of the bits, as for `bmfjax.models.ormachine`.
    dispersion : float or numpyro.distributions.Distribution, optional
        :math:`\lambda > 0`: a number fixes it, a scalar distribution on [0, inf) is its
        prior. Default: Exponential(1), which falls as fast as the density of the
        OrMachine's dispersion does under a flip rate uniform on [0, 1/2].
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a prior or dispersion that is none of these, a rank below 1, an observed
        entry other than 0 and 1, or neither data nor shape.

    Notes
    -----
    Sites: `dispersion` () where it is learned; `usage_density` and `basis_density`
    (rank,) where learned; `usage` (rows, rank) and `basis` (columns, rank), int, 0 or 1;
    `data` (rows, columns). Plates: `rows`, `columns`.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(hamming_machine, rank=2, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["dispersion"].shape, draws["data"].shape
    ((5,), (5, 4, 3))
    """
    whole("rank", rank)
    shape, values, seen = binary_data(data, observed, shape, "hamming_machine")
    rows, columns = shape
    strength = resolve_dispersion(dispersion)
    if isinstance(strength, dist.Distribution):
        strength = numpyro.sample("dispersion", strength)
    usage = sample_bits("usage", "usage_density", ("rows", "factor"), (rows, rank), usage)
    basis = sample_bits("basis", "basis_density", ("columns", "factor"), (columns, rank), basis)
    dtype = jnp.result_type(float)

    def logits(i, j):
        return strength * (usage[i].astype(dtype) @ (2 * basis[j] - 1).astype(dtype).T)

    sample_data(logits, shape, values, seen)


def resolve_dispersion(dispersion):
    """Check the dispersion and return a positive number, or the prior of a learned one."""
    if dispersion is None:
        return dist.Exponential(1.0)
    return nonnegative_or_number("dispersion", dispersion)
