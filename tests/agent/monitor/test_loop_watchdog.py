"""How long an event loop may not move until it is taken to hang."""

from __future__ import annotations

from wattloop_agent.monitor.loop_watchdog import LoopWatchdog


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_loop_that_moves_does_not_hang_and_one_that_stays_still_does() -> None:
    clock = Clock()
    watchdog = LoopWatchdog(10.0, 1.0, clock)
    for _ in range(100):
        clock.seconds += 1
        watchdog.moved()
        assert not watchdog.hangs()
    # The last move came before the last call.
    for _ in range(9):
        clock.seconds += 1
        assert not watchdog.hangs()
    clock.seconds += 2
    assert watchdog.hangs()


def test_a_process_that_was_stopped_as_a_whole_does_not_hang() -> None:
    clock = Clock()
    watchdog = LoopWatchdog(10.0, 1.0, clock)
    clock.seconds += 3600
    assert not watchdog.hangs()
    watchdog.moved()
    clock.seconds += 3600
    assert not watchdog.hangs()
