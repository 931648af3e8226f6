"""Who may have how many connections and subscriptions, and whose connection is closed when places are short.

A connection first is among those whose owner's GPUs are not known yet, and then among those of owners with GPUs or of
owners without. Each of the three has a bound, so that none of them takes the places of the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wattloop_agent.request_error import Reason, RequestError

MAX_CONNECTIONS_OF_A_GPU_OWNER = 32
MAX_CONNECTIONS_WITHOUT_GPUS = 4
# Parts of all places: of the owners without GPUs together, and of connections whose owner is not known yet.
PART_WITHOUT_GPUS = 1 / 4
PART_UNIDENTIFIED = 1 / 8
MAX_SUBSCRIPTIONS = 64
MAX_SUBSCRIPTIONS_OF_AN_OWNER = 8


@dataclass(eq=False)
class Place:
    """One connection's place.

    Attributes:
        owner: Whose it is.
        close: Closes the connection, which has lost its place, and tells it why.
        has_gpus: Whether the owner has GPUs; None: that is not known yet.
        idle_seconds: Since when it waits for a request, a half one counts as none; None: it does not.
        is_subscribed: Whether it has a subscription.
    """

    owner: str
    close: Callable[[str], None]
    has_gpus: bool | None = None
    idle_seconds: float | None = None
    is_subscribed: bool = False


class Places:
    """The places of all connections.

    Args:
        limit: How many connections there may be.

    Attributes:
        closed: How many connections were closed to make room for others.
    """

    def __init__(self, limit: int) -> None:
        self._max_unidentified = max(4, math.floor(limit * PART_UNIDENTIFIED))
        self._max_identified = limit - self._max_unidentified
        self._max_without_gpus = max(MAX_CONNECTIONS_WITHOUT_GPUS, math.floor(limit * PART_WITHOUT_GPUS))
        # In the order in which they came.
        self._places: dict[Place, None] = {}
        self.closed = 0

    def __len__(self) -> int:
        return len(self._places)

    def take(self, owner: str, close: Callable[[str], None]) -> Place:
        """A place for a new connection.

        Raises:
            RequestError: `Reason.TOO_MANY`.
        """
        own = [place for place in self._places if place.owner == owner]
        known = next((place.has_gpus for place in own if place.has_gpus is not None), None)
        self._refuse_too_many(owner, own, has_gpus=known is not False)
        waiting = [place for place in self._places if place.has_gpus is None]
        if len(waiting) >= self._max_unidentified:
            more_than = sum(each.owner == owner for each in waiting)
            self._close_one_of_the_greediest(waiting, more_than, "connections whose owner is not known yet")
        place = Place(owner, close)
        self._places[place] = None
        return place

    def identify(self, place: Place, has_gpus: bool) -> None:
        """It is known now whether the owner of a place has GPUs.

        Raises:
            RequestError: `Reason.TOO_MANY`: there is no place for it.
        """
        identified = [each for each in self._places if each.has_gpus is not None and each is not place]
        own = [each for each in identified if each.owner == place.owner]
        self._refuse_too_many(place.owner, own, has_gpus=has_gpus)
        if not has_gpus:
            without = [each for each in identified if not each.has_gpus]
            if len(without) >= self._max_without_gpus and not self._close_longest_idle(without):
                told = f"{self._max_without_gpus} connections of owners without GPUs are open; try again"
                raise RequestError(Reason.TOO_MANY, told)
        if len(identified) >= self._max_identified and not self._close_longest_idle(identified):
            if own or not has_gpus:
                raise RequestError(Reason.TOO_MANY, f"{self._max_identified} connections are open; try again")
            self._close_one_of_the_greediest(identified, 1, "connections")
        place.has_gpus = has_gpus

    def leave(self, place: Place) -> None:
        """The connection has ended."""
        self._places.pop(place, None)

    def subscribe(self, place: Place) -> None:
        """A connection becomes a subscription.

        Raises:
            RequestError: `Reason.TOO_MANY`.
        """
        subscriptions = [each for each in self._places if each.is_subscribed]
        of_owner = sum(each.owner == place.owner for each in subscriptions)
        if of_owner >= MAX_SUBSCRIPTIONS_OF_AN_OWNER:
            raise RequestError(Reason.TOO_MANY, f"{place.owner} has {of_owner} subscriptions; end some")
        # The first of each owner finds room where others have many.
        if len(subscriptions) >= (MAX_SUBSCRIPTIONS // 2 if of_owner else MAX_SUBSCRIPTIONS):
            raise RequestError(Reason.TOO_MANY, f"{len(subscriptions)} subscriptions are open; try again")
        place.is_subscribed = True

    def close_longest_idle(self) -> bool:
        """Make room: close the connection that can be spared best; returns whether there was one."""
        return self._close_longest_idle(self._places)

    def _close_longest_idle(self, places: Iterable[Place]) -> bool:
        owned = Counter(each.owner for each in self._places)

        def spared(place: Place) -> tuple[bool, bool, float]:
            # Those of owners without GPUs first, an owner's only one last.
            return bool(place.has_gpus), owned[place.owner] == 1, place.idle_seconds or 0.0

        longest = min((each for each in places if each.idle_seconds is not None), key=spared, default=None)
        if longest is None:
            return False
        self._close(longest, "it was idle, and others need its place")
        return True

    def _close_one_of_the_greediest(self, places: Iterable[Place], more_than: int, what: str) -> None:
        """Close the oldest connection of the owner that has most of them, and more than so many."""
        by_owner = Counter(each.owner for each in places)
        greediest, count = by_owner.most_common(1)[0]
        if count <= more_than:
            raise RequestError(Reason.TOO_MANY, f"{by_owner.total()} {what} are open; try again")
        self._close(next(each for each in places if each.owner == greediest), f"{greediest} has {count} {what} open")

    def _close(self, place: Place, why: str) -> None:
        self._places.pop(place, None)
        self.closed += 1
        place.close(why)

    @staticmethod
    def _refuse_too_many(owner: str, own: Iterable[Place], has_gpus: bool) -> None:
        most = MAX_CONNECTIONS_OF_A_GPU_OWNER if has_gpus else MAX_CONNECTIONS_WITHOUT_GPUS
        if sum(1 for _ in own) >= most:
            raise RequestError(Reason.TOO_MANY, f"{owner} has {most} connections open; close some")
