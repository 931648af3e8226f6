"""Which of the waiting unanswered requests is executed, and how fast an owner may send them."""

import json
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.monitor.caller_connection import (
    MAX_REPLACED,
    CallerConnection,
    ChangeRates,
    PartialRequests,
    newest_request,
)

FIRST = {"verb": "hold_clocks", "unanswered": True, "gpus": ["GPU-1"], "megahertz": 900}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, CallerConnection]]:
    caller, accepted = socket.socketpair()
    connection = CallerConnection(accepted, PartialRequests())
    with caller:
        yield caller, connection
    connection.close()


def line(**fields: object) -> bytes:
    return json.dumps({**FIRST, **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    "other",
    [
        line(verb="release"),
        line(unanswered=False),
        line(gpus=["GPU-2"]),
        line(domain="memory"),
        line(for_seconds=5),
        b"[]\n",
        b"{\n",
        line(padding=" " * 5000),
    ],
)
def test_the_newest_request_before_another_one_is_taken(
    pair: tuple[socket.socket, CallerConnection], other: bytes
) -> None:
    caller, connection = pair
    caller.sendall(line(megahertz=1005) + line(megahertz=1200) + other + line(megahertz=1410))
    assert newest_request(connection, FIRST)["megahertz"] == 1200
    assert connection.available_line() == other


def test_a_bounded_number_is_replaced_at_once(pair: tuple[socket.socket, CallerConnection]) -> None:
    caller, connection = pair
    caller.sendall(b"".join(line(megahertz=number) for number in range(100)))
    assert newest_request(connection, FIRST)["megahertz"] == MAX_REPLACED - 1
    assert newest_request(connection, FIRST)["megahertz"] == 2 * MAX_REPLACED - 1


@pytest.mark.parametrize("waiting", [b"", b'{"verb": "hold_cl'])
def test_a_request_that_has_not_arrived_wholly_is_not_waited_for(
    pair: tuple[socket.socket, CallerConnection], waiting: bytes
) -> None:
    caller, connection = pair
    caller.sendall(waiting)
    assert newest_request(connection, FIRST) is FIRST


def test_a_connection_that_has_ended_keeps_the_last_request(pair: tuple[socket.socket, CallerConnection]) -> None:
    caller, connection = pair
    caller.sendall(line(megahertz=1005))
    caller.close()
    assert newest_request(connection, FIRST)["megahertz"] == 1005


@given(
    pauses=st.lists(st.floats(0, 0.05), min_size=1, max_size=200),
    per_second=st.floats(10, 1000),
    burst=st.integers(1, 50),
)
def test_no_window_has_more_changes_than_the_burst_and_its_rate(
    pauses: list[float], per_second: float, burst: int
) -> None:
    seconds = 0.0
    rates = ChangeRates(per_second, burst, lambda: seconds)
    executed = []
    for pause in pauses:
        seconds += pause
        seconds += rates.delay_seconds("pod:a")
        executed.append(seconds)
        assert rates.delay_seconds(f"pod:{len(executed)}") == 0, "owners do not share a rate"
    for first, begin in enumerate(executed):
        for last in range(first, len(executed)):
            assert last - first <= burst + (executed[last] - begin) * per_second + 1e-3


def test_owners_that_are_gone_are_forgotten() -> None:
    seconds = 0.0
    rates = ChangeRates(clock=lambda: seconds)
    for number in range(5000):
        seconds += 0.01
        rates.delay_seconds(f"pod:{number}")
    assert len(rates) <= 1024
