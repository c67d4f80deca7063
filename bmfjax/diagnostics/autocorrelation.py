"""Integrated autocorrelation time."""

from __future__ import annotations

import numpy as np

from bmfjax.data.errors import InputError

#: Lags are summed up to this many autocorrelation times (Sokal 1997).
WINDOW = 5.0


def integrated_time(draws) -> np.ndarray:
    r"""Draws that are worth one independent draw: :math:`1 + 2 \sum_t \rho_t`.

    Autocorrelations are averaged over the chains, each about its own mean, and summed up to the
    first lag of at least five times the sum so far (Sokal 1997, "Monte Carlo methods in
    statistical mechanics", section 3).

    Parameters
    ----------
    draws : (chain, draw, ...) float

    Returns
    -------
    (...) float64
        Of chains that never move NaN.

    Raises
    ------
    InputError
        For fewer than four draws.

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(abs(integrated_time(independent) - 1) < 0.1)
    True
    """
    draws = np.asarray(draws, float)
    if draws.ndim < 2 or draws.shape[1] < 4:
        raise InputError(f"draws are {draws.shape}; give (chain, draw, ...), four draws at least")
    shape, number = draws.shape[2:], draws.shape[1]
    flat = draws.reshape(*draws.shape[:2], -1)
    power = np.abs(np.fft.rfft(flat - flat.mean(1, keepdims=True), 2 * number, axis=1)) ** 2
    covariance = np.fft.irfft(power, axis=1)[:, :number].mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = 2.0 * np.cumsum(covariance / covariance[0], axis=0) - 1.0
    enough = np.arange(number)[:, None] >= WINDOW * times
    last = np.where(enough.any(0), enough.argmax(0), number - 1)
    return times[last, np.arange(times.shape[1])].reshape(shape)
