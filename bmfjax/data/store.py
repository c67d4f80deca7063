"""What a binary matrix is made of: its ones and its missing entries, dense or sparse.

Both stores answer the same questions, so that `BinaryMatrix` need not ask which one it holds. The
dense one keeps a byte an entry. The sparse one keeps the positions of the ones and, of the missing
and the observed entries, those that are fewer: a table in which nearly everything is missing costs
no more than one in which nearly nothing is.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bmfjax.data.packed import PackedMatrix, pack_csr, pack_on_host

# Entries that the sparse store unfolds at a time when it turns a mask inside out.
_BLOCK = 1 << 22


class DenseStore(NamedTuple):
    """Ones as uint8 (rows, columns), 0 where missing; missing as bool of that shape, or None."""

    ones: np.ndarray
    missing: np.ndarray | None

    @property
    def shape(self):
        return self.ones.shape

    def num_ones(self):
        return int(np.count_nonzero(self.ones))

    def num_missing(self):
        return 0 if self.missing is None else int(np.count_nonzero(self.missing))

    def missing_counts(self, axis):
        """Missing entries of each column (axis 0) or row (axis 1), int64."""
        if self.missing is None:
            return np.zeros(self.shape[1 - axis], dtype=np.int64)
        return np.count_nonzero(self.missing, axis=axis).astype(np.int64)

    def ones_array(self):
        return self.ones

    def missing_array(self):
        return self.missing

    def ones_csr(self):
        return canonical(self.ones != 0)

    def missing_csr(self):
        return (
            sp.csr_array(self.shape, dtype=bool)
            if self.missing is None
            else canonical(self.missing)
        )

    def smaller_mask(self):
        """Return ("missing" or "observed", CSR): of the two sets the smaller; missing if equal."""
        if self.missing is None:
            return "missing", None
        if 2 * self.num_missing() <= self.ones.size:
            return "missing", canonical(self.missing)
        return "observed", canonical(~self.missing)

    def packed(self):
        observed = None if self.missing is None else pack_on_host(~self.missing)
        return PackedMatrix(pack_on_host(self.ones), observed)

    def transpose(self):
        missing = None if self.missing is None else np.ascontiguousarray(self.missing.T)
        return DenseStore(np.ascontiguousarray(self.ones.T), missing)


class SparseStore(NamedTuple):
    """Ones as a bool CSR; the smaller of the missing and the observed set as another, or None."""

    ones: sp.csr_array
    marks: str
    mask: sp.csr_array | None

    @property
    def shape(self):
        return self.ones.shape

    def num_ones(self):
        return int(self.ones.nnz)

    def num_missing(self):
        if self.mask is None:
            return 0
        return _size(self.shape) - self.mask.nnz if self.marks == "observed" else int(self.mask.nnz)

    def missing_counts(self, axis):
        """Missing entries of each column (axis 0) or row (axis 1), int64."""
        if self.mask is None:
            return np.zeros(self.shape[1 - axis], dtype=np.int64)
        if axis == 1:
            marked = np.diff(self.mask.indptr).astype(np.int64)
        else:
            marked = np.bincount(self.mask.indices, minlength=self.shape[1]).astype(np.int64)
        return self.shape[axis] - marked if self.marks == "observed" else marked

    def ones_array(self):
        return self.ones.toarray().view(np.uint8)

    def missing_array(self):
        if self.mask is None:
            return None
        return ~self.mask.toarray() if self.marks == "observed" else self.mask.toarray()

    def ones_csr(self):
        return self.ones

    def missing_csr(self):
        if self.mask is None:
            return sp.csr_array(self.shape, dtype=bool)
        return complement(self.mask) if self.marks == "observed" else self.mask

    def smaller_mask(self):
        """Return ("missing" or "observed", CSR): of the two sets the smaller; missing if equal."""
        return self.marks, self.mask

    def packed(self):
        if self.mask is None:
            return PackedMatrix(pack_csr(self.ones), None)
        marked = pack_csr(self.mask)
        if self.marks == "missing":
            # Turned inside a full row of ones, so that the bits beyond the last stay zero.
            marked ^= pack_on_host(np.ones((1, self.shape[1]), dtype=bool))
        return PackedMatrix(pack_csr(self.ones), marked)

    def transpose(self):
        mask = None if self.mask is None else canonical(self.mask.T)
        return SparseStore(canonical(self.ones.T), self.marks, mask)


def sparse_store(ones, missing=None, observed=None):
    """Make a `SparseStore` from the ones and either the missing or the observed entries (CSR).

    An entry that is missing is no one, whatever `ones` says.
    """
    if missing is None and observed is None:
        return SparseStore(ones, "missing", None)
    size = _size(ones.shape)
    if observed is not None:
        ones = canonical(ones.multiply(observed))
        if observed.nnz == size:
            return SparseStore(ones, "missing", None)
        if 2 * observed.nnz < size:
            return SparseStore(ones, "observed", observed)
        return SparseStore(ones, "missing", complement(observed))
    ones = canonical(ones > missing)
    if missing.nnz == 0:
        return SparseStore(ones, "missing", None)
    if 2 * missing.nnz <= size:
        return SparseStore(ones, "missing", missing)
    return SparseStore(ones, "observed", complement(missing))


def canonical(values):
    """Return the entries that are not zero as a bool CSR: sorted, each once, no array shared."""
    csr = sp.csr_array(values, copy=True)
    csr.data = csr.data != 0
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr


def complement(marked):
    """Return the entries that `marked` (a bool CSR) does not mark, made some rows at a time."""
    num_rows, num_columns = marked.shape
    step = max(1, _BLOCK // num_columns)
    blocks = [
        sp.csr_array(~marked[start : start + step].toarray()) for start in range(0, num_rows, step)
    ]
    return canonical(sp.vstack(blocks, format="csr"))


def fingerprint(store):
    """Return the sha256 of shape, ones and missing pattern: one for a dense and a sparse store."""
    digest = hashlib.sha256(b"bmfjax binary matrix, format 1\n")
    digest.update(np.array(store.shape, dtype="<i8").tobytes())
    marks, mask = store.smaller_mask()
    digest.update(marks.encode())
    for part in (store.ones_csr(), mask):
        # A mark before each part, so that no two different pairs of parts give the same bytes.
        digest.update(b"none" if part is None else b"part")
        if part is not None:
            digest.update(np.ascontiguousarray(part.indptr, dtype="<i8"))
            digest.update(np.ascontiguousarray(part.indices, dtype="<i8"))
    return digest.hexdigest()


def _size(shape):
    # Python integers: 200,000 x 100,000 does not fit in 32 bits.
    return int(shape[0]) * int(shape[1])
