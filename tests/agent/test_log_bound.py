"""What callers can have logged is bounded, a caller and in all, and what is left out is counted."""

from __future__ import annotations

import io
import logging
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.log_bound import WINDOW_SECONDS, BoundedHandler, LogBound

# By line: the time since the line before, and the owner.
LINES = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.3, 1.0, 5.0]), st.sampled_from("abcdef")), max_size=200)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@given(LINES, st.integers(1, 4), st.integers(1, 8))
def test_in_no_second_more_is_logged_than_allowed_and_nothing_is_lost_uncounted(
    lines: list[tuple[float, str]], of_a_caller: int, in_all: int
) -> None:
    clock = Clock()
    bound = LogBound(clock, of_a_caller, in_all)
    logged: list[tuple[float, str]] = []
    told = 0
    for pause, caller in lines:
        clock.seconds += pause
        summary = bound.summary()
        told += 0 if summary is None else summary.lines
        if bound.admits(caller):
            logged.append((clock.seconds, caller))
    clock.seconds += WINDOW_SECONDS
    last = bound.summary()
    told += 0 if last is None else last.lines
    assert len(logged) + told == len(lines)
    assert bound.suppressed == told
    # Windows begin with the first line after the one before has ended, so any second touches two of them at most.
    for began, _ in logged:
        within = [caller for seconds, caller in logged if began <= seconds < began + WINDOW_SECONDS]
        assert len(within) <= 2 * in_all
        assert max(Counter(within).values()) <= 2 * of_a_caller


@given(st.lists(st.text(min_size=1, max_size=3), max_size=300), st.integers(1, 5))
def test_what_is_remembered_is_as_small_as_what_is_logged(callers: list[str], in_all: int) -> None:
    bound = LogBound(Clock(), of_a_caller=2, in_all=in_all)
    for caller in callers:
        bound.admits(caller)
    assert len(bound._logged) <= in_all
    assert len(bound._suppressed_of) <= in_all


def test_a_summary_says_how_many_lines_were_left_out_and_whose_most_were() -> None:
    clock, stream = Clock(), io.StringIO()
    handler = BoundedHandler(stream, LogBound(clock, of_a_caller=1, in_all=2))
    handler.setFormatter(logging.Formatter("%(message)s"))

    def log(message: str, **words: str) -> None:
        handler.handle(logging.makeLogRecord({"msg": message, "levelno": logging.INFO, **words}))

    for number in range(3):
        log(f"a{number}", owner="pod:a")
    log("b", owner="pod:b")
    log("c", owner="pod:c")
    log("about no caller")
    clock.seconds = WINDOW_SECONDS
    log("a again", owner="pod:a")
    shown = stream.getvalue().splitlines()
    assert shown == ["a0", "b", "about no caller", "log lines about callers suppressed", "a again"]


def test_a_summary_has_its_figures_for_any_format() -> None:
    clock, records = Clock(), list[logging.LogRecord]()

    class Kept(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            records.append(record)
            return ""

    handler = BoundedHandler(io.StringIO(), LogBound(clock, of_a_caller=1))
    handler.setFormatter(Kept())
    for _ in range(4):
        handler.handle(logging.makeLogRecord({"msg": "refused", "owner": "pod:a"}))
    clock.seconds = WINDOW_SECONDS
    handler.handle(logging.makeLogRecord({"msg": "on"}))
    summary = vars(records[1])
    assert (summary["lines"], summary["most_by"], summary["levelname"]) == (3, "pod:a", "WARNING")
