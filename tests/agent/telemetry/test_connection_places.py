"""Which connections to the metrics' port are served, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.telemetry.connection_places import (
    ANSWER_SECONDS,
    CROWDED,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_OF_AN_ADDRESS,
    REQUEST_SECONDS,
    SLOW,
    ConnectionPlaces,
)


@dataclass(eq=False)
class Connected:
    """A connection, and whether the server ended it."""

    ended: bool = False

    def shutdown(self, how: int, /) -> None:
        self.ended = True


def taken(places: ConnectionPlaces, address: str, connections: int) -> list[Connected]:
    """So many connections of an address that each got a place."""
    made = [Connected() for _ in range(connections)]
    assert all(places.take(each, address, 0.0) for each in made)
    return made


def test_an_address_has_its_share_and_no_more() -> None:
    places = ConnectionPlaces()
    mine = taken(places, "10.0.0.1", MAX_CONNECTIONS_OF_AN_ADDRESS)
    assert not places.take(Connected(), "10.0.0.1", 0.0)
    assert places.cut == {CROWDED: 1}
    taken(places, "10.0.0.2", 1)
    places.leave(mine[0])
    assert places.take(Connected(), "10.0.0.1", 0.0)


def test_who_comes_where_all_places_are_taken_gets_one_of_the_address_with_most() -> None:
    places = ConnectionPlaces()
    few = taken(places, "10.0.0.1", MAX_CONNECTIONS % MAX_CONNECTIONS_OF_AN_ADDRESS or 1)
    hostile: list[Connected] = []
    for number in count():
        if places.taken == MAX_CONNECTIONS:
            break
        left = MAX_CONNECTIONS - places.taken
        hostile += taken(places, f"10.0.1.{number}", min(left, MAX_CONNECTIONS_OF_AN_ADDRESS))
    assert places.take(Connected(), "10.0.2.1", 0.0)
    assert [each.ended for each in hostile] == [True] + [False] * (len(hostile) - 1), "the oldest of the first"
    assert not any(each.ended for each in few)
    assert places.taken == MAX_CONNECTIONS


def test_a_request_and_its_answer_have_a_time_each() -> None:
    places = ConnectionPlaces()
    slow, quick = taken(places, "10.0.0.1", 2)
    places.answering(quick, 1.0)
    places.end_overdue(REQUEST_SECONDS - 0.1)
    assert not slow.ended
    places.end_overdue(REQUEST_SECONDS)
    assert (slow.ended, quick.ended) == (True, False)
    places.end_overdue(ANSWER_SECONDS + 1.0)
    assert quick.ended
    assert (places.taken, places.cut) == (0, {SLOW: 2})
    places.answering(slow, 100.0)
    assert places.taken == 0, "one that was ended comes not back"


def test_connections_that_do_not_notice_their_end_are_bounded() -> None:
    places = ConnectionPlaces()
    accepted = [number for number in range(1000) if places.take(Connected(), f"10.0.{number}", 0.0)]
    assert len(accepted) == 2 * MAX_CONNECTIONS


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["come", "leave", "late"])), max_size=300))
def test_whatever_comes_and_goes_the_bounds_hold(steps: list[tuple[int, str]]) -> None:
    places = ConnectionPlaces()
    connections: dict[Connected, int] = {}
    now = 0.0
    for address, what in steps:
        now += 1.0
        if what == "come":
            connection = Connected()
            if places.take(connection, str(address), now):
                connections[connection] = address
        elif what == "late":
            places.end_overdue(now)
        else:
            first = next((each for each, owner in connections.items() if owner == address), None)
            if first is not None:
                places.leave(first)
                del connections[first]
        serving = [owner for each, owner in connections.items() if not each.ended]
        assert places.taken == len(serving) <= MAX_CONNECTIONS
        assert all(serving.count(each) <= MAX_CONNECTIONS_OF_AN_ADDRESS for each in serving)
