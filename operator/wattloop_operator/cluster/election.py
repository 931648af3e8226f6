"""Which of several operators acts: the official client's election, over a Lease of our own making.

The official lock for Leases is not used: as of version 37 it cannot create a Lease (it sends `pretty` as a truth
value), writes local times as UTC, ends the election when the API server is away for a moment, and never gives the Lease
back. `LeaseLock` does these four. It also knows when it last renewed, on the monotonic clock: writes are fenced by it,
so that an operator that was frozen for a while does not act on a lead that it has lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio.client import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import LEASES
from wattloop_operator.cluster.transport import Request, StatusError, Transport

logger = logging.getLogger(__name__)

ANSWER_WITHIN_SECONDS = 3.0
FORBIDDEN, NOT_FOUND = 403, 404


@dataclass(frozen=True)
class ElectionTimes:
    """How a lead is held.

    Attributes:
        lease_seconds: How long others wait after a renewal before they take over.
        renew_within_seconds: How long the leader acts without a renewal; well below `lease_seconds`, so that what it
            has sent is answered before another one acts.
        retry_seconds: How often the Lease is looked at and renewed.
    """

    lease_seconds: int = 15
    renew_within_seconds: int = 10
    retry_seconds: int = 2


class LeaseLock(BaseLock):
    """The Lease that is held by whoever leads.

    Args:
        transport: Carries requests to the API server.
        name: Name of the Lease.
        namespace: Its namespace.
        identity: Who this operator is.

    Attributes:
        renewed_at: When the last successful renewal was begun, on the monotonic clock; None: never.
    """

    def __init__(self, transport: Transport, name: str, namespace: str, identity: str) -> None:
        super().__init__(name, namespace, identity)
        self._transport = transport
        self._lease: dict[str, Any] = {}
        self.renewed_at: float | None = None

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        """The record of the election; (False, error) where there is none or it cannot be read."""
        try:
            self._lease = await self._call("GET", LEASES.path(namespace, name))
        except StatusError as error:
            self._check_allowed(error)
            body = json.dumps({"code": error.status})
            return False, ApiException(status=error.status, reason=str(error), body=body)
        except OperationError as error:
            return False, ApiException(status=0, reason=str(error))
        spec = self._lease.get("spec") or {}
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            str(spec["leaseDurationSeconds"]) if spec.get("leaseDurationSeconds") else None,
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Make the Lease; returns whether it is held now."""
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": self._spec(election_record, {}),
        }
        return await self._renewed("POST", LEASES.path(namespace), lease)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Take or renew the Lease, as it was when it was read; returns whether it is held now."""
        lease = self._lease | {"spec": self._spec(updated_record, self._lease.get("spec") or {})}
        return await self._renewed("PUT", LEASES.path(namespace, name), lease)

    async def release(self) -> None:
        """Give the Lease back, so that the next operator need not wait for it to run out."""
        if self.renewed_at is None:
            return
        self.renewed_at = None
        held, record = await self.get(self.name, self.namespace)
        if not held or not isinstance(record, LeaderElectionRecord) or record.holder_identity != self.identity:
            return
        lease = self._lease | {"spec": (self._lease.get("spec") or {}) | {"holderIdentity": ""}}
        try:
            await self._call("PUT", LEASES.path(self.namespace, self.name), lease)
        except (StatusError, OperationError) as error:
            logger.warning("the Lease %s/%s was not given back: %s", self.namespace, self.name, error)

    def _spec(self, record: LeaderElectionRecord, before: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = before.get("holderIdentity") == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(float(str(record.lease_duration))),
            "acquireTime": before["acquireTime"] if ours and before.get("acquireTime") else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if ours or not before else 1),
        }

    async def _renewed(self, method: str, path: str, lease: dict[str, Any]) -> bool:
        begun = time.monotonic()
        try:
            self._lease = await self._call(method, path, lease)
        except StatusError as error:
            self._check_allowed(error)
            # Another one was faster: that is how an election is lost.
            logger.debug("the Lease %s/%s was not taken: %s", self.namespace, self.name, error)
            return False
        except OperationError as error:
            logger.warning("the Lease %s/%s was not renewed: %s", self.namespace, self.name, error)
            return False
        self.renewed_at = begun
        return True

    def _check_allowed(self, error: StatusError) -> None:
        """End with words where waiting is of no use: there is no such namespace, or no right to Leases in it."""
        if error.status == FORBIDDEN or (error.status == NOT_FOUND and "namespaces" in error.message):
            raise OperationError(
                f"the Lease {self.namespace}/{self.name} cannot be used ({error.message}); --leader-election-namespace "
                "names a namespace where this operator may get, create and update Leases, as the chart's role lets it"
            ) from error

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = Request(method, path, body=body, timeout_seconds=ANSWER_WITHIN_SECONDS)
        return await asyncio.to_thread(self._transport, request)


class Leadership:
    """This operator's place in the election.

    Args:
        lock: The Lease.
        times: How the lead is held.
    """

    def __init__(self, lock: LeaseLock, times: ElectionTimes) -> None:
        self._lock = lock
        self._times = times

    def holds(self) -> bool:
        """Whether this operator leads now, as far as it may rely on it. Safe to call from any thread."""
        renewed_at = self._lock.renewed_at
        return renewed_at is not None and time.monotonic() - renewed_at < self._times.renew_within_seconds

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lead, then do the work as long as it is held; returns when the lead or the work has ended."""
        ended = asyncio.Event()
        # The official election starts the work as a task of its own, and forgets it when it is cancelled itself.
        tasks: list[asyncio.Task[Any]] = []

        async def working() -> None:
            task = asyncio.current_task()
            tasks.extend([] if task is None else [task])
            try:
                await work()
            finally:
                ended.set()

        times = self._times
        election = LeaderElection(
            Config(
                self._lock,
                lease_duration=times.lease_seconds,
                renew_deadline=times.renew_within_seconds,
                retry_period=times.retry_seconds,
                onstarted_leading=working,
                onstopped_leading=_nothing,
            )
        )
        tasks += [asyncio.create_task(election.run()), asyncio.create_task(ended.wait())]
        try:
            await asyncio.wait(list(tasks), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [each for each in outcomes if isinstance(each, Exception)]
        if failures:
            raise failures[0]

    async def release(self) -> None:
        """Let another one lead."""
        await self._lock.release()


async def _nothing() -> None:
    """The end of the lead is noticed where `lead` returns."""
