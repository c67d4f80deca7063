"""What an HDF5 file holds, looked at before it is read: nothing that lies in other files.

h5py follows links to other files and reads data sets that are parts of others, so that a file of a
stranger could show what only its reader may see.
"""

from __future__ import annotations

import math

from bmfjax.data.errors import InputError
from bmfjax.data.memory import require_memory


def check_hdf5(file) -> None:
    """Refuse an open file that points to others, or has a chunk which does not fit into memory."""
    import h5py

    own = (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT)  # a soft link is a path in the same file

    def wrong_link(name, link):
        if link.type not in own:
            return name.decode(errors="replace"), "a link to another file"

    def wrong_item(name, item):
        if not isinstance(item, h5py.Dataset):
            return None
        made = item.id.get_create_plist()
        if made.get_external_count():
            return name, "stored in another file"
        if made.get_layout() == h5py.h5d.VIRTUAL:
            return name, "made of parts of other data sets"
        size = math.prod(item.chunks or ()) * item.dtype.itemsize
        what = f"a chunk of {name!r}, as the file declares it,"
        require_memory(size, what, "have it written in smaller chunks")

    # An answer ends a visit. An exception would be lost among links.
    wrong = file.id.links.visit(wrong_link, info=True) or file.visititems(wrong_item)
    if wrong:
        name, what = wrong
        raise InputError(f"its {name!r} is {what}; give a file that holds all of it")


def chunk_counts(dataset) -> tuple[int, int]:
    """Return how many chunks of a data set were never written, and how many it has.

    One that is not in chunks counts as one.
    """
    if not dataset.size:
        return 0, 0
    if dataset.chunks is None:
        return int(dataset.id.get_storage_size() == 0), 1
    sides = zip(dataset.shape, dataset.chunks, strict=True)
    number = math.prod(-(-size // length) for size, length in sides)
    return number - dataset.id.get_num_chunks(), number
