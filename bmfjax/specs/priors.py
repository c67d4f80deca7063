"""Checks of priors that need no data, for fields of models and arguments of NumPyro models alike.

Each returns what it was given, or refuses it in one sentence. What has one number for every row or
column is checked in its shape where the data are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bmfjax.errors import InputError, kind_of

#: Keeps the dispersion finite. The published bound, a dispersion of 1,000, is no float32 rate.
LEAST_RATE = 1e-30
#: Shape and rate of the prior of a factor's precision, where the number of factors is found. A
#: column that has its means is a two-thousandth as large as one that explains all of the values.
RELEVANCE = (0.5, 0.0005)
#: Names of priors of factors in [0, 1].
NAMED = ("uniform", "normal", "laplace", "beta", "ard")


def is_distribution(value: Any, kind: str = "Distribution") -> bool:
    """Tell whether something is a distribution of NumPyro, of a class of this name."""
    return any(
        base.__name__ == kind and base.__module__.startswith("numpyro")
        for base in type(value).__mro__
    )


def is_positive(value: Any) -> bool:
    """Tell whether something is one finite number above zero; True and False are none."""
    numbers = as_numbers(value)
    return numbers.dtype.kind in "fiu" and not numbers.shape and bool(0 < numbers < np.inf)


def positive_number(name: str, value: Any) -> float:
    """Return one finite number above zero."""
    if not is_positive(value):
        raise InputError(f"{name} is {value!r}; give a positive number")
    return float(value)


def as_numbers(value: Any) -> np.ndarray:
    """Return a number or numbers as an array, whose kind tells where they are none."""
    try:
        return np.asarray(None if isinstance(value, str) else value)
    except ValueError:  # lists of unequal lengths
        return np.asarray(None)


def support_interval(support: Any) -> tuple[float, float] | None:
    """Return (low, high) of an interval with constant ends, `high` perhaps infinite, else None."""
    ends = support_box(support)
    low = getattr(support, "lower_bound", None)
    if ends is not None or low is None or np.ndim(low) or hasattr(support, "upper_bound"):
        return ends
    return (float(low), float("inf")) if not getattr(support, "is_discrete", False) else None


def support_box(support: Any) -> tuple[float, float] | None:
    """Return (low, high) of a bounded interval with constant ends, else None."""
    support = getattr(support, "base_constraint", support)  # of an independent event
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if low is None or high is None or not (np.ndim(low) == np.ndim(high) == 0):
        return None
    return (float(low), float(high)) if getattr(support, "is_discrete", False) is False else None


def bits_prior(name: str, value: Any) -> Any:
    """Return the prior of bits: a Beta of their density, that density, or all probabilities."""
    if is_distribution(value):
        return beta(name, value)
    values = as_numbers(value)
    if values.dtype.kind not in "fiub" or (values.dtype.kind == "b" and not values.shape):
        raise InputError(
            f"{name} is {value!r}; give a density in (0, 1), a numpyro.distributions.Beta or an "
            "array of probabilities"
        )
    if not values.shape and not 0.0 < values < 1.0:
        raise InputError(
            f"{name} is {values}; give a density between 0 and 1, both excluded, or fix single "
            "bits by an array of probabilities"
        )
    if values.ndim not in (0, 2):
        raise InputError(
            f"{name} has shape {values.shape}; give a probability for each row or column and factor"
        )
    outside = np.argwhere(~((values >= 0.0) & (values <= 1.0)))
    if len(outside):
        i, k = outside[0].tolist()
        raise InputError(f"{name} at [{i}, {k}] is {values[i, k]}; give values in [0, 1]")
    return value


def beta(name: str, value: Any) -> Any:
    """Return the Beta prior of densities."""
    if not is_distribution(value, "Beta") or value.batch_shape:
        raise InputError(
            f"{name} is {type(value).__name__} of shape {value.batch_shape}; give a scalar "
            "numpyro.distributions.Beta, the prior of the factors' densities"
        )
    # In NumPy, because a comparison in JAX would be traced where the model is.
    if not (np.asarray(value.concentration1) > 0 and np.asarray(value.concentration0) > 0):
        raise InputError(
            f"{name} is Beta({value.concentration1}, {value.concentration0}); give positive "
            "concentrations"
        )
    return value


def flip_prior(name: str, value: Any, num_rates: int = 2) -> Any:
    """Return the prior of flip rates: a Beta, or one or two rates."""
    shapes = ((), (2,)) if num_rates == 2 else ((),)
    if is_distribution(value):
        if not is_distribution(value, "Beta") or value.batch_shape not in shapes:
            raise InputError(
                f"{name} is {type(value).__name__} of shape {value.batch_shape}; give a "
                f"numpyro.distributions.Beta, scalar{' or of shape (2,)' * (num_rates == 2)}: it "
                "is truncated to [0, 1/2]"
            )
        return value
    rates = as_numbers(value)
    if rates.dtype.kind not in "fiu" or rates.shape not in shapes:
        raise InputError(
            f"{name} is {value!r}; give a number in (0, 1/2], a pair of them with num_rates=2, or "
            "a numpyro.distributions.Beta"
        )
    if not ((rates >= LEAST_RATE) & (rates <= 0.5)).all():
        raise InputError(
            f"{name} is {rates.tolist()}; a flip rate is in (0, 1/2], and at least {LEAST_RATE}"
        )
    return value


def gamma(name: str, value: Any) -> Any:
    """Return a scalar Gamma prior."""
    if not is_distribution(value, "Gamma") or value.batch_shape:
        shape = f" of shape {value.batch_shape}" if is_distribution(value) else ""
        raise InputError(
            f"{name} is {kind_of(value)}{shape}; give a scalar numpyro.distributions.Gamma"
        )
    return value


def gamma_or_number(name: str, value: Any) -> Any:
    """Return the Gamma prior of a noise precision, or the precision."""
    if is_distribution(value):
        return gamma(name, value)
    if not is_positive(value):
        raise InputError(
            f"{name} is {value!r}; give a positive number, or a scalar "
            "numpyro.distributions.Gamma as its prior"
        )
    return float(value)


def nonnegative_or_number(name: str, value: Any) -> Any:
    """Return a prior on [0, inf), or a positive number."""
    if is_distribution(value):
        ends = support_interval(value.support) if not value.shape() else None
        if ends is None or ends[0] < 0.0:
            raise InputError(
                f"the prior of {name} is {type(value).__name__} of shape {value.shape()}; give a "
                "scalar distribution on [0, inf), HalfNormal or Exponential for instance"
            )
        return value
    if not is_positive(value):
        raise InputError(
            f"{name} is {value!r}; give a positive number or a distribution on [0, inf)"
        )
    return float(value)


def factor_prior(name: str, value: Any, upper: float = 1.0) -> Any:
    """Return the prior of entries of a factor on [0, upper]: a name, or a scalar distribution."""
    if isinstance(value, str):
        if value not in NAMED:
            raise InputError(
                f"{name} is {value!r}; choose from {', '.join(NAMED)}, or give a NumPyro "
                "distribution on [0, 1]"
            )
        return value
    if not is_distribution(value):
        raise InputError(f"{name} is {kind_of(value)}; give a name or a NumPyro distribution")
    if value.batch_shape or value.event_shape:
        raise InputError(f"{name} has shape {value.shape()}; give a scalar distribution")
    low, high = support_interval(value.support) or (None, None)
    if low is None or low < 0.0 or high > upper:
        where = "[0, 1]" if upper == 1.0 else "[0, inf)"
        raise InputError(f"{name} has support {value.support}; give a distribution on {where}")
    return value


def shares(name: str, value: Any) -> Any:
    """Return the prior of shares that sum to one: a Dirichlet, or the shares."""
    if is_distribution(value):
        if not is_distribution(value, "Dirichlet") or value.batch_shape:
            raise InputError(
                f"{name} is {type(value).__name__} of shape {value.shape()}; give a "
                "numpyro.distributions.Dirichlet over the factors"
            )
        return value
    weights = as_numbers(value)
    if weights.dtype.kind not in "fiub" or weights.ndim not in (1, 2):
        raise InputError(
            f"{name} is {value!r}; give a numpyro.distributions.Dirichlet, or an array of "
            "probabilities, one for each factor, or one for each row and factor"
        )
    if not ((weights >= 0).all() and np.allclose(weights.sum(-1), 1.0, atol=1e-5)):
        raise InputError(
            f"{name} has weights that are negative or do not sum to one; divide them by their sum"
        )
    return value


def memberships(name: str, value: Any) -> np.ndarray:
    """Return known memberships: 0, 1 or, where they are not known, NaN."""
    values = as_numbers(value)
    known = values.dtype.kind in "fiub" and values.ndim == 2
    if not known or not (np.isnan(values) | np.isin(values, (0, 1))).all():
        raise InputError(f"{name} is {value!r}; give 0, 1 or NaN for each row and factor")
    return values
