"""Arguments are returned as they are, or refused in one sentence."""

import numpy as np
import pytest

from bmfjax.data import InputError
from bmfjax.data.checks import numeric, one_of, positive, whole
from bmfjax.data.memory import size_text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: whole("rank", 0), "rank is 0; give a whole number of at least 1"),
        (lambda: whole("rank", True), "rank is True; give a whole number"),
        (lambda: whole("bins", 9, 2, 4), "bins is 9; give a whole number from 2 to 4"),
        (lambda: positive("scale", -1.0, "deviation"), "scale is -1.0; give a positive deviation"),
        (lambda: positive("scale", np.inf), "scale is inf; give a positive number"),
        (
            lambda: one_of("kind", "median", ("mean", "sd")),
            "kind is 'median'; choose from mean, sd",
        ),
        (lambda: numeric("init", [[1.0]], (2, 1)), r"init has shape \(1, 1\); it must be \(2, 1\)"),
        (lambda: numeric("init", "x", (2,)), "init is not numeric; give an array of numbers"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_what_fits_is_returned():
    assert whole("rank", np.int64(3)) == 3 and positive("scale", np.float32(0.5)) == 0.5
    assert one_of("kind", "sd", ("mean", "sd")) == "sd"
    assert numeric("init", [1, 2], (2,)).dtype == np.float32


def test_sizes_are_said_as_a_person_reads_them():
    sizes = [size_text(size) for size in (6.5 * 2**30, 300 * 2**20, 12)]
    assert sizes == ["6.5 GiB", "300 MiB", "1 MiB"]
