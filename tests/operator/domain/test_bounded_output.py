"""A training's output is searched in bounded processor time."""

import pytest

from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.domain.bounded_output import (
    PROCESSOR_RESERVE_SECONDS,
    PROCESSOR_SHARE,
    BoundedOutputReader,
    SlowPatternError,
)

TARGET = Target.model_validate({"metric": "accuracy", "threshold": "0.9"})
PATTERN = r"accuracy (?P<metric>\S+)"


class Processor:
    """A clock and a processor time. Each line takes a number of seconds of the processor."""

    def __init__(self, seconds: float, pattern: str | None = None) -> None:
        self.now = self._used = 0.0
        self._seconds = seconds
        reporting = Reporting.model_validate({"source": "Logs", "pattern": pattern})
        self.reader = BoundedOutputReader(reporting, TARGET, lambda: self.now, self._processor_time)
        self._is_end = False

    def _processor_time(self) -> float:
        self._used += self._seconds if self._is_end else 0.0
        self._is_end = not self._is_end
        return self._used

    def read(self, lines: int) -> None:
        for _ in range(lines):
            self.now += self.reader.wait_seconds
            self.reader.read(b"accuracy 0.5")


def test_the_processor_time_of_a_slow_pattern_is_bounded_and_its_lines_are_read_no_further() -> None:
    processor = Processor(0.08, PATTERN)
    with pytest.raises(SlowPatternError, match=r"takes 80 ms of processor time for a line of 12 bytes"):
        processor.read(100)
    assert processor._used <= 1.1


def test_lines_that_are_not_slow_are_all_read_at_a_share_of_a_processor() -> None:
    processor = Processor(0.004, PATTERN)
    processor.read(10_000)
    assert processor.now == pytest.approx((40 - PROCESSOR_RESERVE_SECONDS) / PROCESSOR_SHARE, rel=0.01)


def test_a_pause_of_the_process_now_and_then_ends_no_reading() -> None:
    pauses = Processor(0.3, PATTERN)
    for _ in range(100):
        pauses.now += 10
        pauses.read(1)


def test_wattloops_own_pattern_is_never_given_up() -> None:
    Processor(0.08).read(1_000)
