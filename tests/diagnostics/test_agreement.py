"""Agreement is the smallest cosine of whole tiles over pairs of chains."""

import numpy as np
import pytest

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.align import agreement, share_agreeing


def test_it_is_the_cosine_of_the_outer_products():
    rng = np.random.default_rng(0)
    usage, basis = rng.random((3, 7, 4)), rng.random((3, 5, 4))
    tiles = np.einsum("cik,cjk->ckij", usage, basis).reshape(3, 4, -1)
    unit = tiles / np.linalg.norm(tiles, axis=2, keepdims=True)
    cosines = np.einsum("ckx,dkx->kcd", unit, unit)
    np.testing.assert_allclose(agreement(usage, basis), cosines.min(axis=(1, 2)))


def test_scale_does_not_matter():
    rng = np.random.default_rng(1)
    usage, basis = rng.random((1, 7, 4)), rng.random((1, 5, 4))
    scaled = np.concatenate([usage, 0.1 * usage]), np.concatenate([basis, 3 * basis])
    np.testing.assert_allclose(agreement(*scaled), 1)


def test_empty_tiles():
    usage = np.array([[[1.0, 1, 0]], [[1, 0, 0]]])
    basis = np.array([[[0.0, 1, 1]], [[0, 1, 1]]])
    # Factor 0: both empty by the basis; 1: empty in one chain; 2: both empty by the usage.
    np.testing.assert_array_equal(agreement(usage, basis), [1, 0, 1])


def test_one_chain_has_nothing_to_compare():
    found = agreement(np.ones((1, 3, 2)), np.ones((1, 4, 2)))
    assert np.isnan(found).all()
    assert np.isnan(share_agreeing(found))


def test_share():
    assert share_agreeing([0.9, 0.8, 0.79, 0.0]) == 0.5
    assert share_agreeing([0.9, 0.8], threshold=0.85) == 0.5


def test_shapes_must_belong_together():
    with pytest.raises(InputError, match="same chains"):
        agreement(np.ones((2, 3, 2)), np.ones((1, 3, 2)))
