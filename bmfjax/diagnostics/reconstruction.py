"""The Boolean product of two factor matrices, and where it is wrong."""

import numpy as np

from bmfjax.data.bits import product_on_host
from bmfjax.data.errors import InputError

BLOCK_ENTRIES = 2**20  # entries of the product made at a time: 4 MiB


def boolean_product(usage, basis):
    """Return the Boolean product of two Boolean factor matrices.

    Parameters
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool

    Returns
    -------
    array, (rows, columns), bool
        True where a row and a column share a factor.

    Examples
    --------
    >>> boolean_product(np.array([[True], [False]]), np.array([[True], [True]]))
    array([[ True,  True],
           [False, False]])
    """
    return product_on_host(np.asarray(usage, bool), np.asarray(basis, bool))


def boolean_errors(usage, basis, reference, observed=None):
    """Count the entries where the Boolean product of factors differs from a reference.

    Parameters
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool
    reference : array, (rows, columns)
        0/1 or bool; what it holds at unobserved entries does not matter.
    observed : array, (rows, columns), bool, optional
        Entries that count; all by default.

    Returns
    -------
    int

    Raises
    ------
    InputError
        Factors that are not Boolean, shapes that do not belong together, or an observed entry of
        the reference that is neither 0 nor 1.

    Examples
    --------
    >>> boolean_errors(np.eye(2, dtype=bool), np.eye(2, dtype=bool), [[1, 1], [0, 1]])
    1
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    check_boolean(usage, basis)
    ones, counted = check_reference(usage, basis, reference, observed)
    return count_wrong_entries(usage, basis, ones, counted)


def count_wrong_entries(usage, basis, ones, counted):
    """Count wrong entries in blocks of rows, so that no whole product is ever held."""
    step = max(1, BLOCK_ENTRIES // max(1, len(basis)))
    errors = 0
    for start in range(0, len(usage), step):
        rows = slice(start, start + step)
        wrong = product_on_host(usage[rows], basis) != ones[rows]
        if counted is not None:
            wrong &= counted[rows]
        errors += np.count_nonzero(wrong)
    return int(errors)


def check_reference(usage, basis, reference, observed):
    """Return the ones of a 0/1 reference, and the mask of the entries that count or None."""
    check_factors(usage, basis)
    reference = np.asarray(reference)
    shape = (len(usage), len(basis))
    if reference.shape != shape:
        raise InputError(
            f"the factors make a matrix of shape {shape} and the reference has "
            f"{reference.shape}; give the matrix that was factorised"
        )
    if observed is not None:
        observed = np.asarray(observed, bool)
        if observed.shape != shape:
            raise InputError(
                f"observed has shape {observed.shape}; give one flag an entry, {shape}"
            )
    ones = reference == 1
    known = ones | (reference == 0)
    if not (known if observed is None else known | ~observed).all():
        raise InputError("an observed entry is neither 0 nor 1; mark it as not observed or mend it")
    return ones, observed


def check_boolean(usage, basis):
    """Refuse factors that are not bool."""
    if usage.dtype != bool or basis.dtype != bool:
        raise InputError("the factors are not Boolean; threshold them first")


def check_factors(usage, basis):
    """Refuse a pair of factor matrices that has no product."""
    if usage.ndim != 2 or basis.ndim != 2 or usage.shape[1] != basis.shape[1]:
        raise InputError(
            f"usage has shape {usage.shape} and basis {basis.shape}; "
            "give (rows, rank) and (columns, rank)"
        )
    if not (np.isfinite(usage).all() and np.isfinite(basis).all()):
        raise InputError("the factors hold nan or inf; look for the chain that diverged")
