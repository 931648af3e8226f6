"""How often requests that a server refuses are said; test_bounded_connections.py has the server's own words."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from wattloop_operator.http.rejected_requests import CROWDED, LINE_EVERY_SECONDS, MALFORMED, REASONS, RefusedRequests
from wattloop_operator.telemetry.metrics import Metrics

WORDS = {reason: words for words, reason in REASONS.items()}


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_a_minute_says_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    metrics, clock = Metrics(), Time()
    refused = RefusedRequests("reporting API", metrics.refused, clock=clock)
    for _ in range(1001):
        refused.logger.warning(WORDS[MALFORMED])
    refused.logger.warning(WORDS[CROWDED])
    clock.now = LINE_EVERY_SECONDS
    refused.logger.warning(WORDS[MALFORMED])
    assert [record.getMessage() for record in caplog.records] == [
        "reporting API: Invalid HTTP request received. (requests since this was said last: 1)",
        "reporting API: Exceeded concurrency limit. (requests since this was said last: 1)",
        "reporting API: Invalid HTTP request received. (requests since this was said last: 1001)",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    text = generate_latest(metrics.registry).decode()
    assert 'wattloop_operator_http_requests_rejected_total{reason="malformed"} 1002.0' in text
    assert 'wattloop_operator_http_requests_rejected_total{reason="crowded"} 1.0' in text


@given(st.lists(st.floats(0, 30), max_size=200))
def test_whatever_comes_every_request_is_counted_and_lines_are_a_minute_apart(pauses: list[float]) -> None:
    clock = Time()
    counted: list[str] = []
    said: list[float] = []
    refused = RefusedRequests("reporting API", counted.append, clock=clock)
    for pause in pauses:
        clock.now += pause
        record = refused.logger.makeRecord("uvicorn.error", 30, "", 0, WORDS[CROWDED], (), None)
        if refused.filter(record):
            said.append(clock.now)
    assert counted == [CROWDED] * len(pauses)
    assert bool(said) == bool(pauses)
    assert all(later >= before + LINE_EVERY_SECONDS for before, later in itertools.pairwise(said))
