"""What all readers of files share: one sentence for a broken file, and the threshold."""

import math
from contextlib import contextmanager

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.declared import check_archive
from bmfjax.data.errors import InputError


@contextmanager
def reading(path):
    """Turn whatever another library raises on a broken file into one `InputError` with its path."""
    try:
        yield
    except InputError as err:
        raise InputError(f"{path}: {err}") from err
    except Warning:
        raise  # not the fault of the file
    except MemoryError as err:
        raise InputError(
            f"{path} needs more memory than there is; give a smaller one, or use a machine with "
            "more memory"
        ) from err
    except Exception as err:
        # Broad with intent: on a file cut short, zipfile, zlib, h5py, pyarrow and scipy raise
        # errors of a dozen classes.
        said = " ".join(str(err).split())[:200] or type(err).__name__
        raise InputError(
            f"{path} cannot be read as {path.suffix} ({said}); check that the file is whole and "
            "that its ending is right"
        ) from err


@contextmanager
def opened_npz(path):
    """Open an .npz archive; it and the file are closed also where the archive is broken."""
    with open(path, "rb") as stream:
        # Of another file NumPy would say that it is a pickle and how to load it unsafely.
        if stream.read(2) != b"PK":
            raise InputError(
                "the file is no .npz archive; check that it is whole and what wrote it"
            )
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            check_archive(arrays.zip)
            yield arrays


def check_threshold(binarize):
    """Return `binarize` as a finite float, or None."""
    if binarize is None:
        return None
    if isinstance(binarize, bool | np.bool_ | str) or not np.isscalar(binarize):
        raise TypeError(f"binarize is a {type(binarize).__name__}; give a number or None")
    if not math.isfinite(binarize):
        raise InputError(f"binarize is {binarize}; give a finite number")
    return float(binarize)


def threshold(values, binarize):
    """Return 1 where an entry of `values` exceeds the threshold, else 0; missing stays missing.

    Parameters
    ----------
    values : array, sparse matrix or DataFrame of numbers
    binarize : float or None
        None leaves `values` as they are.

    Examples
    --------
    >>> threshold(np.array([[3.0, 0.5, np.nan]]), 1.0)
    array([[ 1.,  0., nan]])
    """
    if binarize is None:
        return values
    if isinstance(values, pd.DataFrame):
        text = [name for name, kind in values.dtypes.items() if not _is_number(kind)]
        if text:
            raise InputError(f"column {text[0]!r} is not numeric; binarize= needs numbers")
        array = threshold(values.to_numpy(dtype=float, na_value=np.nan), binarize)
        return pd.DataFrame(array, values.index, values.columns)
    if sp.issparse(values):
        if binarize < 0:
            raise InputError(
                f"binarize is {binarize:g} and the file is sparse: every entry that is not stored "
                "would become a one; give a threshold from 0 upwards"
            )
        csr = sp.csr_array(values)
        csr.sum_duplicates()
        csr.data = threshold(csr.data, binarize)
        return csr
    values = np.asarray(values)
    if not _is_number(values.dtype):
        raise InputError(f"the values have dtype {values.dtype}; binarize= needs real numbers")
    ones = (values > binarize).astype(float)
    return np.where(np.isnan(values), np.nan, ones) if values.dtype.kind == "f" else ones


def _is_number(kind):
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind)
