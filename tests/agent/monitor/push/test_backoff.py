"""Waits grow with failures up to a bound, and never are the same for all agents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.monitor.push.pusher import MAX_WAIT_SECONDS, wait_seconds

INTERVALS = st.floats(0.1, 600)
CHANCES = st.floats(0, 1)


@given(INTERVALS, CHANCES)
def test_where_all_is_well_the_interval_is_kept(interval: float, chance: float) -> None:
    assert 0.9 * interval <= wait_seconds(interval, 0, chance) <= 1.1 * interval * (1 + 1e-9)


@given(INTERVALS, st.integers(1, 10_000), CHANCES)
def test_after_failures_it_waits_longer_but_not_for_ever(interval: float, failures: int, chance: float) -> None:
    maximum = max(MAX_WAIT_SECONDS, interval)
    waited = wait_seconds(interval, failures, chance)
    assert min(interval, maximum / 2) <= waited <= maximum
    assert wait_seconds(interval, failures + 1, chance) >= waited
