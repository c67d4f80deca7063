"""Intervals at which draws are kept."""

from bmfjax.infer.intervals import interval_after, intervals, regular_interval


def test_intervals_grow_by_prime_factors_with_the_number_of_draws():
    assert intervals(12) == [1, 3, 6, 12]
    assert intervals(1) == [1]
    assert [interval_after(drawn, 12, 100) for drawn in (100, 101, 1000, 5000)] == [1, 3, 12, 12]


def test_a_regular_interval_has_no_prime_factor_but_two_and_three():
    assert [regular_interval(n) for n in (1, 5, 12, 13)] == [1, 6, 12, 16]
