"""The log of rejected requests; test_connections.py has the rejections themselves."""

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from wattloop_operator.http.connection_limits import LOG_INTERVAL_SECONDS, MALFORMED, OVERLOADED, RejectedRequests
from wattloop_operator.telemetry.operator_metrics import Metrics


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_line_per_minute_and_reason_has_the_number_of_requests(caplog: pytest.LogCaptureFixture) -> None:
    metrics, clock = Metrics(), ManualClock()
    rejected = RejectedRequests("reporting API", metrics.request_rejected, clock=clock)
    for _ in range(1001):
        rejected.count(MALFORMED)
    rejected.count(OVERLOADED)
    clock.now = LOG_INTERVAL_SECONDS
    rejected.count(MALFORMED)
    assert [record.getMessage() for record in caplog.records] == [
        "reporting API: rejected: invalid HTTP request (1 since the last such line)",
        "reporting API: rejected: too many connections or requests (1 since the last such line)",
        "reporting API: rejected: invalid HTTP request (1001 since the last such line)",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    text = generate_latest(metrics.registry).decode()
    assert 'wattloop_operator_http_requests_rejected_total{reason="malformed"} 1002.0' in text
    assert 'wattloop_operator_http_requests_rejected_total{reason="overloaded"} 1.0' in text


@given(st.lists(st.floats(0, 30), max_size=200))
def test_every_request_is_counted_and_lines_are_a_minute_apart(pauses: list[float]) -> None:
    clock = ManualClock()
    counted: list[str] = []
    logged: list[float] = []
    rejected = RejectedRequests("reporting API", counted.append, clock=clock)
    handler = logging.Handler()
    handler.emit = lambda _: logged.append(clock.now)  # type: ignore[method-assign]
    log = logging.getLogger("wattloop_operator.http.connection_limits")
    log.addHandler(handler)
    try:
        for pause in pauses:
            clock.now += pause
            rejected.count(OVERLOADED)
    finally:
        log.removeHandler(handler)
    assert counted == [OVERLOADED] * len(pauses)
    assert bool(logged) == bool(pauses)
    assert all(later >= before + LOG_INTERVAL_SECONDS for before, later in itertools.pairwise(logged))
