r"""Normal variables folded into an interval by reflection at its ends.

With :math:`y \sim N(\mu, s^2)`, :math:`l` the lower end and :math:`w` the width, folding
makes every y of the form :math:`l + 2kw \pm (x - l)` into x, so that the density of x is
the sum of the normal density over these images.
"""

from __future__ import annotations

import jax.numpy as jnp


def fold(x, low, high):
    """Reflect numbers into an interval, however far outside they are.

    Parameters
    ----------
    x : (...) float
    low, high : float
        `high` may be infinite.

    Returns
    -------
    (...) float

    Examples
    --------
    >>> fold(jnp.array([-0.25, 1.25, 2.5]), 0.0, 1.0).tolist()
    [0.25, 0.75, 0.5]
    >>> fold(jnp.array([-3.0, 3.0]), 0.0, jnp.inf).tolist()
    [3.0, 3.0]
    """
    if high == float("inf"):
        return low + jnp.abs(x - low)
    width = high - low
    y = jnp.mod((x - low) / width, 2.0)
    return low + width * (1.0 - jnp.abs(1.0 - y))


def folded_log_density(x, mean, variance, low, high):
    r"""Log density of a folded normal variable, up to :math:`-\tfrac12\log(2\pi s^2)`.

    With the mean in the interval no image of x is nearer to it than x: relative to x
    the images add at most five, and cannot overflow.

    Parameters
    ----------
    x, mean : (...) float
        In [low, high].
    variance : (...) float
        At most a ninth of the squared width.
    low, high : float
        `high` may be infinite.

    Returns
    -------
    (...) float

    Examples
    --------
    >>> zero = jnp.zeros(())
    >>> round(float(folded_log_density(zero, zero, 1.0, 0.0, jnp.inf)), 4)  # log 2
    0.6931
    """
    a, b = x - low, mean - low
    # (a - b)^2 minus the squared distance of the image from b, all of them at most 0.
    images = [-4.0 * a * b]
    if high < float("inf"):
        w = high - low
        images += [
            -4.0 * (w - a) * (w - b),
            -4.0 * (w + a) * (w + b),
            -4.0 * w * (w + a - b),
            -4.0 * w * (w - a + b),
        ]
    half = 0.5 / variance
    return jnp.log1p(sum(jnp.exp(i * half) for i in images)) - half * (a - b) ** 2
