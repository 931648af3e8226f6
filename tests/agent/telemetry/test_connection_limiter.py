"""Limits on the connections to the metrics port, in virtual time."""

from dataclasses import dataclass
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.telemetry.bounded_server import (
    CONNECTION_LIMIT,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    REQUEST_SECONDS,
    RESPONSE_SECONDS,
    TIMEOUT,
    ConnectionLimiter,
)


@dataclass(eq=False)
class FakeConnection:
    """A connection that records whether the server ended it."""

    ended: bool = False

    def shutdown(self, how: int, /) -> None:
        self.ended = True


def admitted(limiter: ConnectionLimiter, address: str, connections: int) -> list[FakeConnection]:
    """Open a number of connections of an address; all must be admitted."""
    connections_made = [FakeConnection() for _ in range(connections)]
    assert all(limiter.admit(each, address, 0.0) for each in connections_made)
    return connections_made


def test_an_address_at_its_limit_is_rejected() -> None:
    limiter = ConnectionLimiter()
    own = admitted(limiter, "10.0.0.1", MAX_CONNECTIONS_PER_ADDRESS)
    assert not limiter.admit(FakeConnection(), "10.0.0.1", 0.0)
    assert limiter.dropped == {CONNECTION_LIMIT: 1}
    admitted(limiter, "10.0.0.2", 1)
    limiter.release(own[0])
    assert limiter.admit(FakeConnection(), "10.0.0.1", 0.0)


def test_at_the_total_limit_a_new_connection_replaces_the_oldest_of_the_busiest_address() -> None:
    limiter = ConnectionLimiter()
    few = admitted(limiter, "10.0.0.1", MAX_CONNECTIONS % MAX_CONNECTIONS_PER_ADDRESS or 1)
    hostile: list[FakeConnection] = []
    for number in count():
        if limiter.active == MAX_CONNECTIONS:
            break
        left = MAX_CONNECTIONS - limiter.active
        hostile += admitted(limiter, f"10.0.1.{number}", min(left, MAX_CONNECTIONS_PER_ADDRESS))
    assert limiter.admit(FakeConnection(), "10.0.2.1", 0.0)
    assert [each.ended for each in hostile] == [True] + [False] * (len(hostile) - 1), "the oldest of the first"
    assert not any(each.ended for each in few)
    assert limiter.active == MAX_CONNECTIONS


def test_request_and_response_each_have_a_deadline() -> None:
    limiter = ConnectionLimiter()
    slow, quick = admitted(limiter, "10.0.0.1", 2)
    limiter.request_received(quick, 1.0)
    limiter.end_overdue(REQUEST_SECONDS - 0.1)
    assert not slow.ended
    limiter.end_overdue(REQUEST_SECONDS)
    assert (slow.ended, quick.ended) == (True, False)
    limiter.end_overdue(RESPONSE_SECONDS + 1.0)
    assert quick.ended
    assert (limiter.active, limiter.dropped) == (0, {TIMEOUT: 2})
    limiter.request_received(slow, 100.0)
    assert limiter.active == 0, "an ended connection is not admitted again"


def test_connections_whose_threads_have_not_returned_are_bounded() -> None:
    limiter = ConnectionLimiter()
    accepted = [number for number in range(1000) if limiter.admit(FakeConnection(), f"10.0.{number}", 0.0)]
    assert len(accepted) == 2 * MAX_CONNECTIONS


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["connect", "close", "timeout"])), max_size=300))
def test_the_limits_hold_for_any_sequence_of_connections(steps: list[tuple[int, str]]) -> None:
    limiter = ConnectionLimiter()
    connections: dict[FakeConnection, int] = {}
    now = 0.0
    for address, what in steps:
        now += 1.0
        if what == "connect":
            connection = FakeConnection()
            if limiter.admit(connection, str(address), now):
                connections[connection] = address
        elif what == "timeout":
            limiter.end_overdue(now)
        else:
            first = next((each for each, owner in connections.items() if owner == address), None)
            if first is not None:
                limiter.release(first)
                del connections[first]
        serving = [owner for each, owner in connections.items() if not each.ended]
        assert limiter.active == len(serving) <= MAX_CONNECTIONS
        assert all(serving.count(each) <= MAX_CONNECTIONS_PER_ADDRESS for each in serving)
