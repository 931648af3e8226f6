"""The rate limit of log lines about callers, per caller and in total."""

import io
import logging
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.agent_logs import WINDOW_SECONDS, LogRateLimit, RateLimitedHandler

# By line: the time since the line before, and the owner.
LINES = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.3, 1.0, 5.0]), st.sampled_from("abcdef")), max_size=200)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@given(LINES, st.integers(1, 4), st.integers(1, 8))
def test_no_second_exceeds_the_limit_and_every_suppressed_line_is_counted(
    lines: list[tuple[float, str]], per_caller: int, total: int
) -> None:
    clock = Clock()
    limit = LogRateLimit(clock, per_caller, total)
    logged: list[tuple[float, str]] = []
    suppressed = 0
    for pause, caller in lines:
        clock.seconds += pause
        summary = limit.summary()
        suppressed += 0 if summary is None else summary.lines
        if limit.admits(caller):
            logged.append((clock.seconds, caller))
    clock.seconds += WINDOW_SECONDS
    last = limit.summary()
    suppressed += 0 if last is None else last.lines
    assert len(logged) + suppressed == len(lines)
    assert limit.suppressed == suppressed
    # Windows begin with the first line after the one before has ended, so any second touches two of them at most.
    for began, _ in logged:
        within = [caller for seconds, caller in logged if began <= seconds < began + WINDOW_SECONDS]
        assert len(within) <= 2 * total
        assert max(Counter(within).values()) <= 2 * per_caller


@given(st.lists(st.text(min_size=1, max_size=3), max_size=300), st.integers(1, 5))
def test_the_memory_of_the_limit_is_bounded_by_what_was_logged(callers: list[str], total: int) -> None:
    limit = LogRateLimit(Clock(), per_caller=2, total=total)
    for caller in callers:
        limit.admits(caller)
    assert len(limit._logged) <= total
    assert len(limit._suppressed_by_caller) <= total


def test_a_summary_has_the_number_of_suppressed_lines_and_their_top_caller() -> None:
    clock, stream = Clock(), io.StringIO()
    handler = RateLimitedHandler(stream, LogRateLimit(clock, per_caller=1, total=2))
    handler.setFormatter(logging.Formatter("%(message)s"))

    def log(message: str, **fields: str) -> None:
        handler.handle(logging.makeLogRecord({"msg": message, "levelno": logging.INFO, **fields}))

    for number in range(3):
        log(f"a{number}", owner="pod:a")
    log("b", owner="pod:b")
    log("c", owner="pod:c")
    log("about no caller")
    clock.seconds = WINDOW_SECONDS
    log("a again", owner="pod:a")
    shown = stream.getvalue().splitlines()
    assert shown == ["a0", "b", "about no caller", "log lines about callers suppressed", "a again"]


def test_a_summary_has_its_fields_in_any_format() -> None:
    clock, records = Clock(), list[logging.LogRecord]()

    class Collecting(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            records.append(record)
            return ""

    handler = RateLimitedHandler(io.StringIO(), LogRateLimit(clock, per_caller=1))
    handler.setFormatter(Collecting())
    for _ in range(4):
        handler.handle(logging.makeLogRecord({"msg": "refused", "owner": "pod:a"}))
    clock.seconds = WINDOW_SECONDS
    handler.handle(logging.makeLogRecord({"msg": "on"}))
    summary = vars(records[1])
    assert (summary["lines"], summary["top_caller"], summary["levelname"]) == (3, "pod:a", "WARNING")
