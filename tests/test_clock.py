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


def test_what_is_kept_follows_the_share_of_the_machine_now(now):
    clock = Clock()
    clock.limit, clock.on_cpu = 1000.0, True
    now.wall, now.cpu = 9.0, 3.0  # reading libraries from a slow disk
    assert clock.slowness == clock.slowness_now == clock.kept(1.0) == 3.0
    for _ in range(10):
        now.wall, now.cpu = now.wall + 2.0, now.cpu + 2.0
        found = clock.slowness_now, clock.slowness, clock.kept(1.0)
    assert found == (1.0, 29.0 / 23.0, 1.0)
    now.wall += 60.0
    assert clock.slowness_now == clock.kept(1.0) == clocks.MOST_SLOWNESS
    # For good nobody gives up because of the last seconds alone.
    assert clock.slowness == 89.0 / 23.0
    assert clock.kept(drawn=False) == clocks.STARTS_SECONDS * clock.slowness


def test_to_wait_for_a_device_is_no_other_work(now):
    clock = Clock()
    clock.limit = 1000.0
    for _ in range(10):
        now.wall, now.cpu = now.wall + 2.0, now.cpu + 2.0
        assert clock.slowness_now == 1.0
    now.wall += 20.0
    assert clock.slowness_now == clock.slowness == clock.kept(1.0) == 2.0


def test_less_is_kept_for_starts_than_for_draws(now):
    clock = Clock()
    assert clock.left() == clock.left(drawn=False) == math.inf and clock.kept(9.0) == 0.0
    clock.limit, clock.aside, clock.aside_of_starts = 40.0, 5.0, 2.0
    now.wall, now.cpu = 30.0, 15.0
    assert clock.kept(1.0) == 12.0 and clock.kept(drawn=False) == 6.0
    assert clock.left(1.0) == -2.0 and clock.left(drawn=False) == 4.0
    assert clock.ended is None  # to ask notes nothing
    clock.note_end(1.0)
    assert clock.ended == (30.0, 12.0)
    assert clock.kept(100.0) == 20.0  # half is for draws
