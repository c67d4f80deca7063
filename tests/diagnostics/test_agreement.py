"""Agreement is the smallest cosine of the tile of some chains and that of all others."""

import numpy as np
import pytest

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.align import agreement, agreements, share_agreeing


def test_it_is_the_cosine_of_the_outer_products():
    rng = np.random.default_rng(0)
    means = [rng.random((3, 7, 4)), rng.random((3, 5, 4))]
    found = []
    for c in range(3):
        one = np.einsum("ik,jk->kij", *(m[c] for m in means)).reshape(4, -1)
        others = (np.delete(m, c, 0).mean(0) for m in means)
        other = np.einsum("ik,jk->kij", *others).reshape(4, -1)
        norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        found.append((one * other).sum(1) / norms)
    np.testing.assert_allclose(agreement(*means), np.min(found, 0))


def test_chains_with_noise_of_their_own_agree_and_one_that_lacks_a_factor_does_not():
    rng = np.random.default_rng(2)
    truth = np.repeat([1.0, 0.0], 400)[:, None]
    usage, basis = truth + 0.374 * rng.normal(size=(4, 800, 1)), np.ones((4, 6, 1))
    assert agreement(usage, basis) >= 0.8 > agreement(usage[:2], basis[:2])
    lost = np.concatenate([usage[:3], usage[3:, ::-1]])
    assert agreement(lost, basis) < 0.3


def test_two_chains_of_four_are_as_far_from_the_others_as_they_are():
    usage, basis = np.zeros((4, 10, 1)), np.ones((4, 6, 1))
    usage[:2, :5] = usage[2:, 2:7] = 1.0  # three of five rows in common
    np.testing.assert_allclose(agreement(usage, basis), 0.6)
    many = np.repeat(usage, 3, 0), np.repeat(basis, 3, 0)
    assert agreement(*many) > 0.8  # of more than eight chains each is compared, and no group


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


def test_two_thirds_of_the_chains_are_those_most_alike_of_each_factor():
    """Of three chains two, of four three, of six four, whatever the others have."""
    rng = np.random.default_rng(4)
    for chains, kept in ((3, [1, 2]), (4, [0, 2, 3]), (6, [1, 2, 3, 5])):
        usage, basis = rng.random((2, chains, 8, 2))
        usage[kept, :, 0], basis[kept, :, 0] = usage[2, :, 0], basis[2, :, 0]
        of_all, most = agreements(usage, basis)
        np.testing.assert_array_equal(of_all, agreement(usage, basis))
        assert most[0] == pytest.approx(1.0) and of_all[0] < 0.95 and most[1] >= of_all[1]
    half = np.eye(8)[[2, 2, 5, 5], :, None]  # two of four are no two thirds
    assert agreements(half, half)[1, 0] < 0.5


def test_noise_of_small_groups_does_not_hide_a_factor_that_most_chains_have():
    """A chain, and the mean of two others, have noise each; the mean of all three has less."""
    rng = np.random.default_rng(1)
    tile = np.ones((4, 300, 1)), np.ones((4, 300, 1))
    noisy = [part + 0.42 * rng.normal(size=part.shape) for part in tile]
    noisy[0][0, :150] = 0.0  # a chain of its own
    of_all, most = agreements(*noisy)
    without = agreement(*(part[1:] for part in noisy))
    assert of_all[0] < without[0] < 0.8 < most[0]


def test_of_few_chains_nothing_is_left_out():
    rng = np.random.default_rng(4)
    pair = rng.random((2, 2, 8, 2))
    np.testing.assert_array_equal(*agreements(*pair))
    assert np.isnan(agreements(*pair[:, :1])).all()
