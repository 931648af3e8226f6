"""The time without progress after which an event loop counts as hung."""

from wattloop_agent.monitor.loop_watchdog import LoopWatchdog


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_loop_without_progress_counts_as_hung() -> None:
    clock = Clock()
    watchdog = LoopWatchdog(10.0, 1.0, clock)
    for _ in range(100):
        clock.seconds += 1
        watchdog.report_progress()
        assert not watchdog.is_hung()
    # The last move came before the last call.
    for _ in range(9):
        clock.seconds += 1
        assert not watchdog.is_hung()
    clock.seconds += 2
    assert watchdog.is_hung()


def test_a_suspended_process_does_not_count_as_hung() -> None:
    clock = Clock()
    watchdog = LoopWatchdog(10.0, 1.0, clock)
    clock.seconds += 3600
    assert not watchdog.is_hung()
    watchdog.report_progress()
    clock.seconds += 3600
    assert not watchdog.is_hung()
