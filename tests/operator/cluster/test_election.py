"""The election: its requests, and who leads while and after the API server is away."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient
from kubernetes.aio.leaderelection import leaderelection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock as OfficialLeaseLock
from pydantic import ValidationError

from wattloop_operator.cluster.api_transport import Request, StatusError, UnavailableError
from wattloop_operator.cluster.election import REPEATED_LOG_SECONDS, Election, ElectionTimes, LeaseLock, LostLeadError

Stand = Callable[..., Election]


OWN, OTHER = "operator-0", "operator-1"


class ApiServer:
    """A transport whose server answers only at some times, and has one Lease.

    Attributes:
        now: The time of its machine, and of those of the operators.
        requests: The methods of the requests that it has answered.
    """

    def __init__(self, answers: Callable[[float], bool]) -> None:
        self.now = 0.0
        self.requests: list[str] = []
        self._answers = answers
        self._lease: dict[str, Any] = {}

    def __call__(self, request: Request) -> dict[str, Any]:
        if not self._answers(self.now):
            raise UnavailableError("the API server https://api.example does not answer")
        self.requests.append(request.method)
        if request.method == "GET":
            if not self._lease:
                raise StatusError(request, 404, "NotFound", "leases not found")
            return dict(self._lease)
        body = dict(request.body or {})
        if body["metadata"].get("resourceVersion") != self._lease.get("metadata", {}).get("resourceVersion"):
            raise StatusError(request, 409, "Conflict", "the object has been modified")
        self._lease = body | {"metadata": body["metadata"] | {"resourceVersion": f"at {self.now}"}}
        return dict(self._lease)

    @property
    def holder(self) -> str:
        """Who holds the Lease."""
        return str(self._lease["spec"]["holderIdentity"])


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """A candidate of an identity, by the time of the server; the library's own clock has the same."""

    def candidate(server: ApiServer, identity: str = OWN) -> Election:
        async def ignore() -> None:
            """No work."""

        monkeypatch.setattr(leaderelection, "time", SimpleNamespace(time=lambda: server.now))
        lock = LeaseLock(server, "wattloop", "wattloop-system", identity, request_seconds=5.0, clock=lambda: server.now)
        return Election(lock, ElectionTimes(15), ignore)

    return candidate


def run(server: ApiServer, until: float, *candidates: Election) -> list[list[bool]]:
    """Let the candidates try every other second until a time, in this order; returns who held the Lease at each."""

    async def tries() -> list[list[bool]]:
        held = []
        while server.now < until:
            held.append([await each.try_acquire_or_renew() for each in candidates])
            server.now += 2.0
        return held

    return asyncio.run(tries())


def test_a_candidate_says_once_a_minute_that_the_api_server_is_away(
    caplog: pytest.LogCaptureFixture, stand: Stand
) -> None:
    caplog.set_level(logging.INFO)
    server = ApiServer(lambda _: False)
    run(server, 3 * REPEATED_LOG_SECONDS, stand(server))
    lines = [record.getMessage() for record in caplog.records]
    line = (
        "the Lease wattloop-system/wattloop was not read: the API server https://api.example does not answer; "
        "tried again until the API server answers"
    )
    assert lines == [line] * 3


def test_a_leader_sends_one_request_a_renewal_and_so_43_200_a_day(stand: Stand) -> None:
    server = ApiServer(lambda _: True)
    leader, follower = stand(server), stand(server, OTHER)
    assert run(server, 60.0, leader) == [[True]] * 30
    assert server.requests == ["GET", "POST", *["PUT"] * 29]
    server.requests.clear()
    assert run(server, 120.0, follower) == [[False]] * 8 + [[True]] * 22, "15 s after it has seen the last renewal"
    assert server.requests == [*["GET"] * 9, *["PUT"] * 22]


def test_a_leader_whose_renewal_another_one_prevented_reads_the_lease_and_ends(stand: Stand) -> None:
    server = ApiServer(lambda _: True)
    leader = stand(server)
    run(server, 10.0, leader)
    run(server, 40.0, stand(server, OTHER))
    assert server.holder == OTHER
    assert run(server, server.now + 2.0, leader) == [[False]]
    with pytest.raises(LostLeadError, match="was not renewed for 34 s, and operator-1 has acquired it"):
        run(server, server.now + 2.0, leader)


@pytest.mark.parametrize("first", [OWN, OTHER])
def test_the_leader_remains_the_leader_whoever_is_first_after_an_outage_and_a_dead_one_does_not(
    first: str, stand: Stand
) -> None:
    server = ApiServer(lambda now: not 20.0 <= now < 55.0)
    leader, follower = stand(server), stand(server, OTHER)
    run(server, 10.0, leader)
    candidates = [leader, follower] if first == OWN else [follower, leader]
    held = run(server, 70.0, *candidates)
    assert server.holder == OWN
    assert held[-1][candidates.index(leader)]
    run(server, 90.0, follower)
    assert server.holder == OTHER


def test_the_lock_of_the_official_client_still_cannot_create_a_lease() -> None:
    # When it can, docs/decisions/operator.md says what else `LeaseLock` is for.
    async def create() -> None:
        async with ApiClient() as client:
            record = LeaderElectionRecord("operator-0", "15", "2026-03-01 10:00:00.0", "2026-03-01 10:00:00.0")
            await OfficialLeaseLock("wattloop", "wattloop-system", "operator-0", client).create("a", "b", record)

    with pytest.raises(ValidationError, match="create_namespaced_lease\npretty"):
        asyncio.run(create())
