"""The time that is left, and what of it is kept for what follows the draws."""

import math
import types

import pytest

from bmfjax import clock as clocks
from bmfjax.clock import Clock


@pytest.fixture
def now(monkeypatch):
    """Set what clocks show: seconds, and CPU seconds of this process."""
    shown = types.SimpleNamespace(wall=0.0, cpu=0.0)
    time = types.SimpleNamespace(monotonic=lambda: shown.wall, process_time=lambda: shown.cpu)
    monkeypatch.setattr(clocks, "time", time)
    return shown


def test_the_share_of_the_machine_is_that_of_now(now):
    clock = Clock()
    now.wall, now.cpu = 9.0, 3.0  # reading libraries from a slow disk
    assert clock.slowness == 3.0
    for _ in range(10):
        now.wall, now.cpu = now.wall + 2.0, now.cpu + 2.0
        found = clock.slowness
    assert found == 1.0
    now.wall += 60.0
    assert clock.slowness == clocks.MOST_SLOWNESS


def test_less_is_kept_for_starts_than_for_draws(now):
    clock = Clock()
    assert clock.left() == clock.left(drawn=False) == math.inf and clock.kept(9.0) == 0.0
    assert not clock.is_up() and clock.ended is None
    clock.limit, clock.aside, clock.aside_of_starts = 40.0, 5.0, 2.0
    now.wall, now.cpu = 30.0, 15.0
    assert clock.kept(1.0) == 12.0 and clock.kept(drawn=False) == 6.0
    assert clock.left(1.0) == -2.0 and clock.left(drawn=False) == 4.0
    assert not clock.is_up(drawn=False) and clock.ended is None
    assert clock.is_up(1.0) and clock.ended == (30.0, 12.0)
    assert clock.kept(100.0) == 20.0  # half is for draws
