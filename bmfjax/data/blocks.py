"""Parts of a long axis: slices that fit in memory together, and evenly spaced positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: Numbers that are formed at once.
BLOCK = 4_000_000


def blocks(
    number: int, width: int, *, multiple: int = 1, most: int | None = None
) -> Iterator[slice]:
    """Yield slices of `number` items of which each takes `width` numbers; an empty one of none.

    A slice has a multiple of `multiple` items where a block has room for them, and at most `most`.

    >>> list(blocks(5, 2_000_000))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, BLOCK // max(width, 1))
    step = step - step % multiple or step
    step = step if most is None else min(step, most)
    return (slice(i, min(i + step, number)) for i in range(0, max(number, 1), step))


def spaced(number: int, most: int, *, down: bool = False) -> np.ndarray:
    """Return at most `most` evenly spaced positions below `number`, both ends among them.

    Fractions go to the nearest whole number, or `down`.

    >>> spaced(3, 4), spaced(10, 4)
    (array([0, 1, 2]), array([0, 3, 6, 9]))
    """
    if number <= most:
        return np.arange(number)
    places = np.linspace(0, number - 1, most)
    return (places if down else places.round()).astype(int)
