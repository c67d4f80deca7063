"""What the own ends of independent searches say of the factors of a fit."""

import numpy as np

from bmfjax.infer.search_ends import SearchEnds
from bmfjax.posterior.searches import count_searches

ROWS, COLUMNS, CHAINS = 40, 12, 4
RNG = np.random.default_rng(0)
USAGE = RNG.random((ROWS, 3)) < 0.4
BASIS = np.where(RNG.random((COLUMNS, 3)) < 0.5, RNG.normal(0.0, 2.0, (COLUMNS, 3)), 0.0)
OTHER = RNG.random((ROWS, 3)) < 0.4, RNG.normal(0.0, 2.0, (COLUMNS, 3))


def found(origin, ends, draws=None, **more):
    """Say how many searches found each feature; chains have all of them, or these `draws`."""
    usage, basis = (np.stack(part) for part in zip(*ends, strict=True))
    draws = [(USAGE, BASIS)] * len(origin) if draws is None else draws
    means = [np.stack(part).astype(float) for part in zip(*draws, strict=True)]
    return count_searches(SearchEnds(np.array(origin), usage, basis), means, **more).found.tolist()


def with_features(*kept):
    """Return an end that has these features of the truth, and others in place of the rest."""
    at = np.isin(range(3), kept)
    return np.where(at, USAGE, OTHER[0]), np.where(at, BASIS, OTHER[1])


WHOLE = with_features(0, 1, 2)


def test_a_search_counts_that_ended_with_the_feature_in_any_order_and_on_either_side():
    turned = ~USAGE[:, ::-1], -BASIS[:, ::-1]
    ends = [WHOLE, turned, with_features(1), with_features(2)]
    assert found([0, 0, 0, 0], ends) == [2, 3, 3]


def test_a_feature_is_no_partner_of_two():
    twice = USAGE[:, [0, 0, 2]], BASIS[:, [0, 0, 2]]
    same = [(USAGE[:, [0, 0, 1]], BASIS[:, [0, 0, 1]])] * 2
    counts = found([-1, -1], [WHOLE, twice], same)
    assert sorted(counts[:2]) == [1, 2] and counts[2] == 1


def test_an_end_is_a_single_draw():
    """Its likeness is that of draws: the correlation of rows times the cosine of weights."""
    far = USAGE.copy()
    far[:8] = ~far[:8]
    for end, counts in (((far, BASIS), [2, 2, 2]), ((~USAGE, BASIS), [1, 1, 1])):
        assert found([0, 0], [WHOLE, end]) == counts


def test_a_chain_at_its_own_end_counts_by_its_draws_as_well():
    lost, ends = with_features(0, 1), [WHOLE, with_features(0)]
    assert found([0, 1], ends) == [2, 2, 2]
    # Of three, two thirds: the mean of two is compared with.
    assert found([0, 1, 2], [WHOLE] * 2 + [lost], [WHOLE] * 2 + [lost]) == [3, 3, 2]


def test_a_chain_counts_that_finds_what_was_not_there_where_it_began():
    some = with_features(0, 1)
    assert found([0] * 4, [some, *[with_features(0)] * 3]) == [4, 1, 4]
    # Where it may have been, the draws say nothing of it.
    half = USAGE.copy()
    half[:, 2] ^= RNG.random(ROWS) < 0.25
    assert found([0] * 4, [(half, BASIS), *[with_features(0)] * 3])[2] == 1
    assert found([-1] * 4, [some, *[with_features(0)] * 3]) == [4, 1, 0]


def test_an_end_may_have_more_factors_than_the_fit_or_fewer():
    """As chains that find their number do: a fit shows those that enough of its draws use."""
    more = [np.concatenate(pair, 1) for pair in zip(OTHER, WHOLE, strict=True)]
    padded = [np.concatenate([f, np.zeros_like(f)], 1) for f in with_features(1, 2)]
    assert found([-1, -1], [more, padded]) == [1, 2, 2]
    less = [f[:, [2]] for f in WHOLE]
    assert found([-1, -1], [less, less]) == [0, 0, 2]


def test_some_of_the_chains_speak_of_their_own_searches():
    ends = [with_features(0), WHOLE, with_features(0), with_features(1)]
    assert found([0, 1, 0, 1], ends, [WHOLE] * 2, chains=[2, 3]) == [3, 3, 2]
    origin = np.array([0, 1, 0, 1])
    usage, basis = (np.stack(part) for part in zip(*ends, strict=True))
    first = SearchEnds(origin, usage, basis).of_chains([1, 2])
    means = [np.stack([f] * 2).astype(float) for f in WHOLE]
    assert count_searches(first, means).found.tolist() == [3, 3, 2]


def test_boolean_factors_are_as_alike_as_those_of_chains_that_agree():
    bits, kept = BASIS != 0, np.array([0, 1, 2])
    draws = [(USAGE, bits)] * 4
    worse = USAGE.copy()
    worse[np.flatnonzero(USAGE[:, 0])[::2], 0] = False  # a cosine of 0.7
    ends = [(USAGE[:, kept[::-1]], bits[:, ::-1]), (worse, bits), (~USAGE, ~bits), (USAGE, bits)]
    assert found([-1] * 4, ends, draws, boolean=True) == [2, 3, 3]
