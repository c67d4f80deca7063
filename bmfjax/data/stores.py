"""What a binary matrix is made of: its ones and its missing entries, packed or sparse.

All stores answer the same questions, so that `BinaryMatrix` need not ask which one it holds. The
packed one keeps a bit an entry. The sparse one keeps the positions of the ones and, of the missing
and the observed entries, those that are fewer: a table in which nearly everything is missing costs
no more than one in which nearly nothing is.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bmfjax.data.bits import (
    WORD,
    PackedMatrix,
    bits_at,
    count_ones,
    full_line,
    pack_csr,
    pack_on_host,
    set_bits,
    transpose_words,
    unpack_on_host,
    zero_words,
)

# Entries that the sparse store unfolds at a time when it turns a mask inside out.
_BLOCK = 1 << 22
#: Entries above which a matrix is large.
LARGE = 1 << 26


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

    def missing_counts(self, axis):
        """Count the missing entries of each column (axis 0) or row (axis 1), int64."""
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

    def at(self, i, j):
        """Return whether cells (cell,) are ones, and whether they are missing: two bool arrays."""
        return self._ones_and_missing(lambda csr: _at(csr, i, j))

    def part(self, rows, columns):
        """Return ones and missing entries of some rows and columns, positions: two bool arrays."""
        return self._ones_and_missing(lambda csr: csr[rows][:, columns].toarray())

    def _ones_and_missing(self, entries):
        """Return ones and missing entries, of which ``entries(csr)`` returns some as bools."""
        ones = entries(self.ones)
        if self.mask is None:
            return ones, np.zeros(ones.shape, bool)
        marked = entries(self.mask)
        return ones, ~marked if self.marks == "observed" else marked

    def rows(self, some):
        """Return the store of some rows, a slice; the mask may be the larger one."""
        mask = None if self.mask is None else self.mask[some]
        return SparseStore(self.ones[some], self.marks, mask)

    def of_rows(self, change):
        """Return the store of which each CSR is changed by a function, row by row."""
        mask = {} if self.mask is None else {self.marks: canonical(change(self.mask))}
        return sparse_store(canonical(change(self.ones)), **mask)

    def chosen(self, rows):
        """Return the store of chosen rows (row,) int."""
        return self.of_rows(lambda csr: csr[rows])

    def repeated(self, times):
        """Return the store of the rows several times, one below the other."""
        return self.of_rows(lambda csr: sp.vstack([csr] * times, format="csr"))

    def without(self, i, j):
        """Return the store in which cells (cell,) are missing too."""
        hidden = canonical(sp.csr_array((np.ones(len(i), bool), (i, j)), shape=self.shape))
        if self.marks == "observed":
            return sparse_store(self.ones, observed=canonical(self.mask > hidden))
        missing = hidden if self.mask is None else canonical(self.mask + hidden)
        return sparse_store(self.ones, missing=missing)

    def packed(self, transposed=False, room=zero_words):
        """Return ones and observed entries as words, which `room(lines, entries)` makes."""
        lines = self.shape[::-1] if transposed else self.shape
        ones = pack_csr(self.ones, transposed, room(*lines))
        if self.mask is None:
            return PackedMatrix(ones, None)
        marked = pack_csr(self.mask, transposed, room(*lines))
        if self.marks == "missing":
            # Inside a full line of ones, so that the bits beyond the last stay zero.
            marked ^= full_line(lines[1])
        return PackedMatrix(ones, marked)

    def tile_sums(self, usage, basis):
        """Count the ones and the missing entries of the tiles of factors, each (rank,) int64."""
        marked = _tile_sums(self.mask, usage, basis)
        if self.marks == "observed":
            marked = usage.sum(0, dtype=np.int64) * basis.sum(0, dtype=np.int64) - marked
        return _tile_sums(self.ones, usage, basis), marked

    def transpose(self):
        mask = None if self.mask is None else canonical(self.mask.T)
        return SparseStore(canonical(self.ones.T), self.marks, mask)


class PackedStore(NamedTuple):
    """Ones, zero where missing, and observed entries or None, as words by row: see `bits`."""

    ones: np.ndarray  # (rows, ceil(columns / 32)) uint32
    observed: np.ndarray | None
    num_columns: int

    @property
    def shape(self):
        return len(self.ones), self.num_columns

    def num_ones(self):
        return int(count_ones(self.ones).sum())

    def missing_counts(self, axis):
        """Count the missing entries of each column (axis 0) or row (axis 1), int64."""
        if self.observed is None:
            return np.zeros(self.shape[1 - axis], dtype=np.int64)
        if axis == 1:
            return self.num_columns - count_ones(self.observed)
        return len(self.ones) - count_ones(transpose_words(self.observed, self.num_columns))

    def ones_array(self):
        return unpack_on_host(self.ones, self.num_columns).view(np.uint8)

    def missing_array(self):
        if self.observed is None:
            return None
        return ~unpack_on_host(self.observed, self.num_columns)

    def ones_csr(self):
        return self._csr(self.ones, False)

    def missing_csr(self):
        if self.observed is None:
            return sp.csr_array(self.shape, dtype=bool)
        return self._csr(self.observed, True)

    def observed_csr(self):
        return self._csr(self.observed, False)

    def _csr(self, words, others):
        """Return the entries whose bits are set, or the others, made some rows at a time."""
        step = max(1, _BLOCK // self.num_columns)
        parts = (
            unpack_on_host(words[start : start + step], self.num_columns) ^ others
            for start in range(0, len(words), step)
        )
        return canonical(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))

    def at(self, i, j):
        """Return whether cells are ones, and whether they are missing: two bool arrays."""
        ones = bits_at(self.ones, i, j)
        if self.observed is None:
            return ones, np.zeros(ones.shape, bool)
        return ones, ~bits_at(self.observed, i, j)

    def part(self, rows, columns):
        """Return ones and missing entries of some rows and columns, positions: two bool arrays."""
        return self.at(rows[:, None], columns[None])

    def rows(self, some):
        """Return the store of some rows, a slice."""
        observed = None if self.observed is None else self.observed[some]
        return PackedStore(self.ones[some], observed, self.num_columns)

    def packed(self, transposed=False, room=zero_words):
        """Return ones and observed entries as words, which `room(lines, entries)` makes."""

        def filled(words):
            if not transposed and room is zero_words:
                return words
            made = room(*(self.shape[::-1] if transposed else self.shape))
            if transposed:
                return transpose_words(words, self.num_columns, made)
            made[:] = words
            return made

        return PackedMatrix(
            filled(self.ones), None if self.observed is None else filled(self.observed)
        )

    def without(self, i, j):
        """Return the store in which cells (cell,) are missing too."""
        order = np.lexsort((j, i))
        hidden = np.zeros_like(self.ones)
        set_bits(hidden, i[order], j[order])
        seen = full_line(self.num_columns) if self.observed is None else self.observed
        return PackedStore(self.ones & ~hidden, seen & ~hidden, self.num_columns)

    def chosen(self, rows):
        """Return the store of chosen rows (row,) int."""
        return packed_store(*self.rows(rows))

    def repeated(self, times):
        """Return the store of the rows several times, one below the other."""
        both = (None if words is None else np.tile(words, (times, 1)) for words in self[:2])
        return PackedStore(*both, self.num_columns)

    def tile_sums(self, usage, basis):
        """Count the ones and the missing entries of the tiles of factors, each (rank,) int64."""
        ones, observed = (
            None if words is None else _tile_bits(words, usage, basis)
            for words in (self.ones, self.observed)
        )
        sizes = usage.sum(0, dtype=np.int64) * basis.sum(0, dtype=np.int64)
        return ones, np.zeros_like(sizes) if observed is None else sizes - observed

    def transpose(self):
        turned = self.packed(transposed=True)
        return PackedStore(turned.ones, turned.observed, len(self.ones))


class Share(NamedTuple):
    """The rows of a matrix that a process reads, of those that share it.

    Rows lie in groups of 32. One process tells the others about each group.
    """

    first: int  # the first row, a multiple of 32, and the one after the last
    last: int
    answers: np.ndarray  # (groups,) bool: of which this process tells
    gather: Callable[[np.ndarray], np.ndarray]  # the arrays of all processes: (process, ...)


def read_rows(share_of, shape) -> tuple[Share | None, slice]:
    """Return the share of this process in a matrix, if any, and the rows that it reads."""
    share = None if share_of is None else share_of(shape)
    return share, slice(0, shape[0]) if share is None else slice(share.first, share.last)


class SharedStore(NamedTuple):
    """The rows of this process, of a matrix whose others lie with other processes.

    All processes ask the same questions in the same order. Each has its own `rows` alone.
    """

    own: PackedStore
    share: Share
    num_rows: int
    whole: Callable[[], Any] | None = None  # reads the matrix with all rows

    @property
    def shape(self):
        return self.num_rows, self.own.num_columns

    def _answers(self, rows):
        """Tell for which rows, by position, this process answers."""
        return self.share.answers[np.asarray(rows) // WORD]

    def _of_all(self, count):
        """Return a number of every row, int64, where ``count(own rows)`` counts them here."""
        found = np.zeros(self.num_rows, np.int64)
        here = slice(self.share.first, self.share.last)
        found[here] = np.where(self._answers(np.arange(self.num_rows)[here]), count(self.own), 0)
        return self.share.gather(found).sum(0)

    def num_ones(self):
        return int(self._of_all(lambda own: count_ones(own.ones)).sum())

    def missing_counts(self, axis):
        """Count the missing entries of each column (axis 0) or row (axis 1), int64."""
        if axis == 1:
            return self._of_all(lambda own: own.missing_counts(1))
        here = self._answers(np.arange(self.share.first, self.share.last))
        found = np.zeros(self.own.num_columns, np.int64)
        if self.own.observed is not None and here.any():
            found = PackedStore(*(w[here] for w in self.own[:2]), found.size).missing_counts(0)
        return self.share.gather(found).sum(0)

    def at(self, i, j):
        """Return whether cells are ones, and whether they are missing: two bool arrays."""
        i, j = np.broadcast_arrays(i, j)
        here = self._answers(i)
        found = np.zeros((2, *i.shape), bool)
        found[:, here] = self.own.at(i[here] - self.share.first, j[here])
        octets = self.share.gather(np.packbits(found))
        every = np.bitwise_or.reduce(octets, axis=0)
        return tuple(np.unpackbits(every, count=found.size).astype(bool).reshape(found.shape))

    def part(self, rows, columns):
        """Return ones and missing entries of some rows and columns, positions: two bool arrays."""
        return self.at(rows[:, None], columns[None])

    def rows(self, some):
        """Return the store of some rows of this process, a slice."""
        return self.own.rows(slice(some.start - self.share.first, some.stop - self.share.first))

    def digests(self, marks):
        """Return the digests of all groups of rows; see `_digests`."""
        found = np.zeros((len(self.share.answers), 32), np.uint8)
        first = self.share.first // WORD
        made = _digests(self.own, marks)
        own = np.arange(first, first + len(made))
        here = self.share.answers[own]
        found[own[here]] = made[here]
        return np.bitwise_or.reduce(self.share.gather(found), axis=0)


def _tile_bits(words, usage, basis):
    """Count the set bits in each tile, some rows at a time: (rank,) int64."""
    total = np.zeros(usage.shape[1], np.int64)
    step = max(1, _BLOCK // words.shape[1])
    for k, one in enumerate(pack_on_host(basis.T)):
        rows = np.flatnonzero(usage[:, k])
        for start in range(0, len(rows), step):
            total[k] += count_ones(words[rows[start : start + step]] & one).sum()
    return total


def _at(matrix, i, j):
    """Return entries (cell,) bool of a sparse matrix."""
    found = matrix[i, j]
    # SciPy returns an array or a sparse one, depending on its version.
    return np.asarray(found.toarray() if sp.issparse(found) else found).ravel().astype(bool)


def _tile_sums(marked, usage, basis):
    """Count the entries of a CSR in each tile, some rows at a time: (rank,) int64."""
    total = np.zeros(usage.shape[1])
    if marked is None:
        return total.astype(np.int64)
    step = max(1, _BLOCK * len(usage) // max(marked.nnz, 1))
    columns = basis.astype(np.float32)
    for start in range(0, len(usage), step):
        rows = slice(start, start + step)
        counts = marked[rows].astype(np.float32) @ columns  # exact up to 2^24 columns
        total += np.sum(counts, axis=0, where=usage[rows], dtype=float)
    return total.astype(np.int64)


def packed_store(ones, observed, num_columns):
    """Make a `PackedStore`, with observed entries only if not all are observed."""
    if observed is not None and (observed == full_line(num_columns)).all():
        observed = None
    return PackedStore(ones, observed, num_columns)


def dense_store(ones, missing=None):
    """Make a `PackedStore` of the ones and the missing entries, bool arrays (rows, columns)."""
    if missing is None or not missing.any():
        return PackedStore(pack_on_host(ones), None, ones.shape[1])
    return PackedStore(pack_on_host(ones & ~missing), pack_on_host(~missing), ones.shape[1])


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


def num_missing(store) -> int:
    """Count the missing entries of any store."""
    return int(store.missing_counts(1).sum())


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
    """Return the sha256 of shape, ones and missing pattern: one for every kind of store.

    In large matrices groups of 32 rows are hashed, so that processes that share the rows can do so
    together: their words, unless so few entries are marked (ones, and missing or observed ones,
    whichever are fewer) that a word has less than one of them.
    """
    if _size(store.shape) > LARGE:
        return _fingerprint_of_groups(store)
    digest = hashlib.sha256(b"bmfjax binary matrix, format 1\n")
    digest.update(np.array(store.shape, dtype="<i8").tobytes())
    marks, mask = _smaller_mask(store)
    digest.update(marks.encode())
    for part in (store.ones_csr(), mask):
        # A mark before each part, so that no two different pairs of parts give the same bytes.
        digest.update(b"none" if part is None else b"part")
        if part is not None:
            digest.update(np.ascontiguousarray(part.indptr, dtype="<i8"))
            digest.update(np.ascontiguousarray(part.indices, dtype="<i8"))
    return digest.hexdigest()


def _smaller_mask(store):
    """Return ("missing" or "observed", CSR): of the two sets the smaller; missing if equal."""
    if isinstance(store, SparseStore):
        return store.marks, store.mask
    missing = num_missing(store)
    if not missing:
        return "missing", None
    if 2 * missing <= _size(store.shape):
        return "missing", store.missing_csr()
    return "observed", store.observed_csr()


def _fingerprint_of_groups(store):
    size, missing = _size(store.shape), num_missing(store)
    marked = store.num_ones() + min(missing, size - missing)
    marks = "missing" if 2 * missing <= size else "observed"
    if marked * WORD > size:
        marks = "words and missing" if missing else "words"
    digest = hashlib.sha256(b"bmfjax binary matrix, format 3\n")
    digest.update(np.array(store.shape, dtype="<i8").tobytes())
    digest.update(marks.encode())
    shared = isinstance(store, SharedStore)
    digest.update(np.ascontiguousarray(store.digests(marks) if shared else _digests(store, marks)))
    return digest.hexdigest()


def _digests(store, marks):
    """Return the sha256 of every 32 rows, (groups, 32) uint8: of words, or of positions."""
    rows, columns = store.shape
    of = _words_of if marks.startswith("words") else _positions_of
    step = max(1, _BLOCK // columns) // WORD * WORD or WORD
    if of is _positions_of and isinstance(store, SparseStore):
        step *= WORD  # they are there already
    found = []
    for start in range(0, rows, step):
        block = store.rows(slice(start, min(start + step, rows)))
        write = of(block, marks)
        for first in range(0, block.shape[0], WORD):
            digest = hashlib.sha256()
            write(digest, slice(first, min(first + WORD, block.shape[0])))
            found.append(np.frombuffer(digest.digest(), np.uint8))
    return np.reshape(found, (-1, 32)).astype(np.uint8)


def _words_of(block, marks):
    """Return ``write(digest, rows)``, which writes the words of some rows."""
    packed = block.packed()
    parts = [packed.ones]
    if marks != "words":
        full = np.broadcast_to(full_line(block.shape[1]), packed.ones.shape)
        parts.append(full if packed.observed is None else packed.observed)

    def write(digest, rows):
        for words in parts:
            digest.update(np.ascontiguousarray(words[rows], dtype="<u4"))

    return write


def _positions_of(block, marks):
    """Return ``write(digest, rows)``, which writes where ones, and the marked entries, are."""
    if isinstance(block, SparseStore) and block.mask is not None:
        mask = block.mask  # of the kind that is told already
    else:
        mask = block.missing_csr() if marks == "missing" else complement(block.missing_csr())
    parts = block.ones_csr(), mask

    def write(digest, rows):
        for part in parts:
            ends = part.indptr[rows.start : rows.stop + 1]
            digest.update(np.ascontiguousarray(ends - ends[0], dtype="<i8"))
            digest.update(np.ascontiguousarray(part.indices[ends[0] : ends[-1]], dtype="<i8"))

    return write


def _size(shape):
    # Python integers: 200,000 x 100,000 does not fit in 32 bits.
    return int(shape[0]) * int(shape[1])
