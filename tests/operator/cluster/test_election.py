"""The election's lock while the API server is away."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock as OfficialLeaseLock
from pydantic import ValidationError

from wattloop_operator.cluster.api_transport import Request, UnavailableError
from wattloop_operator.cluster.election import REPEATED_LOG_SECONDS, LeaseLock


class ApiServer:
    """A transport whose server answers only from a time on, and has no Lease yet."""

    def __init__(self, answers_at: float = float("inf")) -> None:
        self.now = 0.0
        self._answers_at = answers_at
        self._lease: dict[str, Any] = {}

    def __call__(self, request: Request) -> dict[str, Any]:
        if self.now < self._answers_at:
            raise UnavailableError("the API server https://api.example does not answer")
        self._lease = request.body or self._lease
        return dict(self._lease)


def tries(server: ApiServer, seconds: int) -> LeaseLock:
    """A candidate that tries to lead each second."""
    lock = LeaseLock(server, "wattloop", "wattloop-system", "operator-0", lambda: server.now)

    async def ignore() -> None:
        """No work."""

    election = LeaderElection(Config(lock, 15, 10, 2, onstarted_leading=ignore, onstopped_leading=ignore))

    async def candidate() -> None:
        for second in range(seconds):
            server.now = float(second)
            await election.try_acquire_or_renew()

    asyncio.run(candidate())
    return lock


def test_a_candidate_says_once_a_minute_that_the_api_server_is_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tries(ApiServer(), seconds=int(3 * REPEATED_LOG_SECONDS))
    lines = [record.getMessage() for record in caplog.records]
    line = (
        "the Lease wattloop-system/wattloop was not read: the API server https://api.example does not answer; "
        "tried again until the API server answers"
    )
    assert lines == [line] * 3


def test_a_candidate_leads_when_the_api_server_answers_again() -> None:
    assert tries(ApiServer(answers_at=30.0), seconds=40).renewed_at is not None


def test_the_lock_of_the_official_client_still_cannot_create_a_lease() -> None:
    # When it can, docs/decisions/operator.md says what else `LeaseLock` is for.
    async def create() -> None:
        async with ApiClient() as client:
            record = LeaderElectionRecord("operator-0", "15", "2026-03-01 10:00:00.0", "2026-03-01 10:00:00.0")
            await OfficialLeaseLock("wattloop", "wattloop-system", "operator-0", client).create("a", "b", record)

    with pytest.raises(ValidationError, match="create_namespaced_lease\npretty"):
        asyncio.run(create())
