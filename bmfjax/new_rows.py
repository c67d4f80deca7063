"""The usage of rows that a fit has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from bmfjax import posterior
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.infer.new_rows import usage_of_new_rows
from bmfjax.pmf_cells import LINKS
from bmfjax.pmf_new import given_new
from bmfjax.variational import LogisticPrior, usage_given_basis
from bmfjax.variational.logistic_posterior import Gaussian

if TYPE_CHECKING:
    from bmfjax.result import Fit

#: Entries of the new rows that the logistic model looks at in one go.
BLOCK = 4_000_000


def usage_of(fit: Fit, new_rows) -> np.ndarray:
    """The usage of `Fit.transform`."""
    if fit.model in LINKS:
        return given_new(fit, new_rows).usage
    kind = RealMatrix if fit.model == "nmf" else BinaryMatrix
    new = new_rows if isinstance(new_rows, BinaryMatrix | RealMatrix) else kind(new_rows)
    check_columns(fit.data, new)
    if fit.model == "logistic":
        return _logistic(fit, new)
    if fit.is_boolean:
        return usage_of_new_rows(new, fit.basis_draws.words, fit.other_draws)
    draws = fit.basis_draws.reshape(-1, *fit.basis_draws.shape[2:])
    upper = np.inf if fit.model == "nmf" else 1.0
    return posterior.best_usage(new.dense(), draws, upper=upper)


def check_columns(fitted, new) -> None:
    of_ratings = isinstance(new, Ratings)
    hint = ", by column_names=fit.data.column_names" if of_ratings else ""
    if new.num_columns != fitted.num_columns:
        raise InputError(
            f"the new rows have {new.num_columns} columns and the fitted matrix "
            f"{fitted.num_columns}; give the same columns in the same order{hint}"
        )
    ours, theirs = fitted.column_names, new.column_names
    if fitted.has_column_names and new.has_column_names and ours != theirs:
        at = [a == b for a, b in zip(ours, theirs, strict=True)].index(False)
        raise InputError(
            f"column {at + 1} (counted from 1) of the new rows is {theirs[at]!r}, and of the "
            f"fitted matrix {ours[at]!r}; give the same columns in the same order{hint}"
        )


def _logistic(fit: Fit, new: BinaryMatrix) -> np.ndarray:
    """Means of the variational posterior of the new rows, averaged over the starts."""
    prior = LogisticPrior(fit.rank, **fit.settings["priors"])
    at = fit.approximation
    step = max(1, BLOCK // new.num_columns)
    solve = jax.jit(usage_given_basis, static_argnames="prior")
    ones, missing = new.ones(), new.missing()
    usage = np.zeros((new.num_rows, fit.rank))
    for start in range(fit.num_chains):
        basis, bias = (
            Gaussian(jnp.asarray(at[f"{n}_mean"][start]), jnp.asarray(at[f"{n}_variance"][start]))
            for n in ("basis", "bias")
        )
        for i in range(0, new.num_rows, step):
            values, hidden = (m[i : i + step].toarray().astype(bool) for m in (ones, missing))
            found = solve(basis, bias, prior, values, ~hidden)
            usage[i : i + step] += np.asarray(found.mean)[:, : fit.rank]
    return usage / fit.num_chains
