r"""The one-hot machine, as a NumPyro model: every row is a noisy copy of one binary code."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.models.binary_data import binary_data, sample_data
from bmfjax.models.bits import sample_bits
from bmfjax.models.flip_rate import flip_logits, resolve_flip_rate, sample_flip_rate
from bmfjax.specs.priors import shares


def one_hot_machine(
    data=None,
    observed=None,
    *,
    rank,
    weights=None,
    basis=None,
    flip_rate=None,
    num_rates=1,
    shape=None,
):
    r"""Mixture of binary codes, whose entries are flipped at random.

    .. math::

       s_i \sim \mathrm{Categorical}(w), \quad w \sim \mathrm{Dirichlet}(1, \ldots, 1), \qquad
       P(d_{ij} = u_{j s_i}) = \sigma(\lambda),

    the OrMachine where every row uses exactly one factor, so that the factors cluster
    the rows; from the talk on Rukat, Holmes, Titsias, Yau (2017), "Bayesian Boolean
    Matrix Factorisation", ICML. The flip rate is :math:`\sigma(-\lambda)`.

    For simulation, densities and NumPyro's utilities; its discrete sites are beyond NUTS
    and SVI.

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of codes.
    weights : optional
        None: learned weights, with a flat Dirichlet prior. A
        `numpyro.distributions.Dirichlet` over `rank` codes: that prior. An array (rank,)
        or (rows, rank) of probabilities that sum to one: those of all rows, or of each;
        with zeros and a one the row's code is fixed.
    basis : optional
        Prior of the bits of the codes, as for `bmfjax.models.ormachine`.
    flip_rate, num_rates : optional
        As for `bmfjax.models.ormachine`.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a prior or a flip rate that is none of these, a rank below 1, an observed
        entry other than 0 and 1, or neither data nor shape.

    Notes
    -----
    Sites: `flip_rate` () or (2,) where it is learned; `weights` (rank,) where they are
    learned; `cluster` (rows,), int from 0 to rank - 1; `basis_density` (rank,) where
    learned; `basis` (columns, rank), int, 0 or 1; `data` (rows, columns). Plates:
    `rows`, `columns`.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(one_hot_machine, rank=2, flip_rate=0.1, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["cluster"].shape, draws["weights"].shape, draws["data"].shape
    ((5, 4), (5, 2), (5, 4, 3))
    """
    whole("rank", rank)
    shape, values, seen = binary_data(data, observed, shape, "one_hot_machine")
    rows, columns = shape
    rate = sample_flip_rate("flip_rate", resolve_flip_rate(flip_rate, num_rates))
    weights = resolve_cluster_prior(weights, (rows, rank))
    if isinstance(weights, dist.Distribution):
        weights = numpyro.sample("weights", weights, infer={"event_dims": ["factor"]})
    # Log odds take a weight of zero for what it is.
    log_weights = jnp.log(jnp.asarray(weights, jnp.result_type(float)))
    # Unvalidated: NumPyro takes log odds of minus infinity for a mistake.
    logits = jnp.broadcast_to(log_weights, (rows, rank))
    codes = dist.Categorical(logits=logits, validate_args=False).to_event(1)
    cluster = jnp.asarray(numpyro.sample("cluster", codes, infer={"event_dims": ["rows"]}))
    basis = sample_bits("basis", "basis_density", ("columns", "factor"), (columns, rank), basis)
    logits = lambda i, j: flip_logits(rate, basis[j].T[cluster[i]] == 1)  # noqa: E731
    sample_data(logits, shape, values, seen)


def resolve_cluster_prior(prior, shape):
    """Check the prior of the codes' weights and return it, or the fixed weights.

    None stands for a flat Dirichlet distribution. Weights are (rank,) or, with `shape` (rows,
    rank), one set for each row.
    """
    rows, rank = shape
    if prior is None:
        return dist.Dirichlet(jnp.ones(rank))
    prior = shares("the prior of cluster", prior)
    is_learned = isinstance(prior, dist.Distribution)
    found = prior.shape() if is_learned else np.shape(prior)
    if found != (rank,) and (is_learned or found != (rows, rank)):
        raise InputError(
            f"the prior of cluster has shape {found}; give a Dirichlet over the {rank} codes, or "
            f"probabilities of shape {(rank,)} or {(rows, rank)}"
        )
    return prior if is_learned else np.asarray(prior, float)
