r"""The multi-layer OrMachine, as a NumPyro model."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.models.binary_data import binary_data, sample_data
from bmfjax.models.bits import sample_bits
from bmfjax.models.flip_rate import flip_logits, resolve_flip_rate, sample_flip_rate
from bmfjax.models.ormachine import covered


def deep_ormachine(
    data=None,
    observed=None,
    *,
    ranks=(4, 2),
    usage=None,
    basis=None,
    flip_rate=None,
    num_rates=1,
    shape=None,
):
    r"""Stack OrMachines: the usage of a layer is the data of the next.

    With :math:`z^{(0)} = d` and layers :math:`l = 1, \ldots, L`,

    .. math::

       c^{(l)}_{ij} = \bigvee_k z^{(l)}_{ik} \wedge u^{(l)}_{jk}, \qquad
       P\big(z^{(l-1)}_{ij} \ne c^{(l)}_{ij}\big) = f^{(l)},

    and independent bits :math:`z^{(L)}` on top; Rukat, Holmes, Titsias, Yau (2017),
    "Bayesian Boolean Matrix Factorisation", ICML. Higher layers say which factors of the
    layer below occur together.

    For simulation, densities and NumPyro's utilities; its discrete sites are beyond NUTS
    and SVI.

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    ranks : sequence of int
        Number of factors of every layer, from the data upwards.
    usage : optional
        Prior of the bits of the top layer's usage, as for `bmfjax.models.ormachine`.
    basis : optional
        Prior of the bits of every layer's basis, as for `bmfjax.models.ormachine`; a
        mapping from layers (1, 2, ...) to priors gives them their own, and None to the
        layers that it lacks.
    flip_rate : optional
        As for `bmfjax.models.ormachine`, of every layer, or such a mapping.
    num_rates : {1, 2}
        Flip rates a layer.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a prior or a flip rate that is none of these, a layer that there is not,
        ranks below 1 or none at all, an observed entry other than 0 and 1, or neither
        data nor shape.

    Notes
    -----
    Sites, for layer l with `ranks[l - 1]` factors: `usage_l` (rows, rank) and `basis_l`
    (rank of the layer below, rank), where the data are below layer 1, int, 0 or 1;
    `flip_rate_l` () or (2,) and `basis_density_l` (rank,) where learned;
    `usage_density` (rank,) of the top layer, where learned; `data` (rows, columns).
    Plates: `rows`, `columns`. With one layer this is `bmfjax.models.ormachine` by other
    names.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(
    ...     deep_ormachine, ranks=(3, 2), basis=0.5, flip_rate=0.1, shape=(5, 4)
    ... )
    >>> draws = jax.jit(Predictive(model, num_samples=6))(jax.random.key(0))
    >>> draws["usage_1"].shape, draws["basis_2"].shape, draws["data"].shape
    ((6, 5, 3), (6, 3, 2), (6, 5, 4))
    """
    if not len(ranks):
        raise InputError("ranks is empty; give the number of factors of every layer")
    for layer, rank in enumerate(ranks, 1):
        whole(f"the rank of layer {layer}", rank)
    shape, values, seen = binary_data(data, observed, shape, "deep_ormachine")
    rows, columns = shape
    sizes, top = (columns, *ranks), len(ranks)
    basis_priors = of_layers(basis, "basis", top)
    flip_rates = of_layers(flip_rate, "flip_rate", top)

    usage = sample_bits(
        f"usage_{top}",
        "usage_density",
        ("rows", f"factor_{top}"),
        (rows, ranks[-1]),
        usage,
    )
    for layer in range(top, 0, -1):
        resolved = resolve_flip_rate(flip_rates[layer], num_rates)
        rate = sample_flip_rate(f"flip_rate_{layer}", resolved)
        below = f"factor_{layer - 1}" if layer > 1 else "columns"
        basis = sample_bits(
            f"basis_{layer}",
            f"basis_density_{layer}",
            (below, f"factor_{layer}"),
            (sizes[layer - 1], sizes[layer]),
            basis_priors[layer],
        )
        if layer > 1:
            usage = _next_usage(layer - 1, usage, basis, rate)
    logits = lambda i, j: flip_logits(rate, covered(usage[i], basis[j]))  # noqa: E731
    sample_data(logits, shape, values, seen)


def _next_usage(layer, usage, basis, rate):
    bits = dist.Bernoulli(logits=flip_logits(rate, covered(usage, basis)))
    infer = {"event_dims": ["rows", f"factor_{layer}"]}
    return jnp.asarray(numpyro.sample(f"usage_{layer}", bits.to_event(2), infer=infer))


def of_layers(option, name, top):
    """Return the option of every layer, from one for all or a mapping of layers, from 1."""
    layers = range(1, top + 1)
    if not isinstance(option, Mapping):
        return dict.fromkeys(layers, option)
    unknown = [layer for layer in option if layer not in layers]
    if unknown:
        raise InputError(f"{name} names layer {unknown[0]!r}; the layers are 1 to {top}")
    return {layer: option.get(layer) for layer in layers}
