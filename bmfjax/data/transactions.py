"""Transactions as text: FIMI .dat files, one transaction a line."""

import numpy as np
import scipy.sparse as sp

from bmfjax.data.declared import NAME
from bmfjax.data.errors import InputError
from bmfjax.data.matrix import BinaryMatrix
from bmfjax.data.memory import require_memory

#: Bytes for each item in a file: as text, its number, its place, and the entries of the matrix.
ITEM = 150


def read_transactions(path):
    """Read a FIMI file: the items of a transaction, non-negative integers, on each line.

    The columns are the items that occur, in ascending order and named by their number; a blank
    line is a transaction without items. The matrix is kept sparse.
    """
    size = path.stat().st_size
    remedy = "give fewer transactions, or use a machine with more memory"
    require_memory(4 * size, f"reading transactions from {size:,} bytes", remedy)
    text = path.read_bytes()
    number = _num_items(text)
    require_memory(ITEM * number, f"reading {number:,} items of transactions", remedy)
    lines = text.splitlines()
    counts = np.array([len(line.split()) for line in lines], dtype=np.int64)
    tokens = b" ".join(lines).split()
    if not tokens:
        raise InputError("the file holds no item; give one transaction a line")
    if not all(map(bytes.isdigit, tokens)) or max(map(len, tokens)) > 18:
        wrong = next(i for i, token in enumerate(tokens) if not token.isdigit() or len(token) > 18)
        line = int(np.searchsorted(np.cumsum(counts), wrong, side="right")) + 1
        shown = tokens[wrong][:40].decode(errors="replace")
        raise InputError(
            f"item {shown!r} on line {line} is not a non-negative integer of up to 18 digits; "
            "number the items"
        )
    items, columns = np.unique(np.array(tokens).astype(np.int64), return_inverse=True)
    rows = np.repeat(np.arange(len(lines)), counts)
    # Of bool, so that an item given twice in a line is still a one.
    ones = sp.coo_array(
        (np.ones(len(tokens), dtype=bool), (rows, columns)), shape=(len(lines), len(items))
    )
    require_memory(2 * NAME * len(items), f"naming {len(items):,} different items", remedy)
    return BinaryMatrix(ones, column_names=items.tolist(), name=path.stem)


def _num_items(text):
    """Count the runs of bytes that are no blank, as `bytes.split` finds them."""
    marked = text.translate(bytes(byte not in b" \t\n\r\x0b\f" for byte in range(256)))
    return marked.count(b"\0\1") + marked.startswith(b"\1")
