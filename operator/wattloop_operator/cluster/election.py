"""Leader election among several operators: the official client's election over `LeaseLock`.

The official client's own lock for Leases is not used. As of version 37.0.2 it cannot create a Lease (it
sends `pretty` as a boolean; kubernetes-client/python#2694), writes local times as UTC, ends the
election when the API server is unreachable, and never releases the Lease
(tomplus/kubernetes_asyncio#411). `LeaseLock` also records its last renewal on the
monotonic clock. Writes are fenced by it, so that an operator that was suspended does not act after
it has lost the lead.
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
from wattloop_operator.cluster.api_transport import Request, StatusError, Transport

logger = logging.getLogger(__name__)
# The library logs an error at each try while the API server is away. `LeaseLock` says it once a minute.
logging.getLogger(LeaderElection.__module__).setLevel(logging.CRITICAL)

FORBIDDEN, NOT_FOUND = 403, 404
# A candidate reads the Lease every two seconds, and waits five for the answer; readiness fails within 10 s of the API
# server's end.
MAX_SILENT_SECONDS = 8.0
# A Lease that cannot be read or written is logged so often, not at each try.
REPEATED_LOG_SECONDS = 60.0


@dataclass(frozen=True)
class ElectionTimes:
    """Times of the election: those of client-go, in proportion to the lease.

    Attributes:
        lease_seconds: Time after a renewal until another operator takes over.

    Example:
        >>> times = ElectionTimes(15)
        >>> times.renew_within_seconds, times.retry_seconds, times.request_seconds
        (10, 2, 5.0)
    """

    lease_seconds: int

    @property
    def renew_within_seconds(self) -> int:
        """Time after a renewal until the leader acts no more; its requests are answered before another one acts."""
        return self.lease_seconds * 2 // 3

    @property
    def retry_seconds(self) -> int:
        """Pause between two reads or renewals of the Lease; a longer lease is renewed as often, for readiness."""
        return 2 if self.lease_seconds >= 15 else 1

    @property
    def request_seconds(self) -> float:
        """Timeout of a request, so that two fit into `renew_within_seconds`."""
        return min(5.0, self.renew_within_seconds / 2)


class LostLeadError(OperationError):
    """Another operator may lead: this process ends, and its successor waits for the lead."""


class LeaseLock(BaseLock):
    """A lock whose holder leads, kept in a Lease.

    Args:
        identity: Name of this operator process.
        request_seconds: Timeout of a request.
        clock: Monotonic seconds.

    Attributes:
        renewed_at: Start of the last successful renewal on the monotonic clock; None if there is
            none.
        answered_at: Time of the API server's last answer, on the same clock.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        namespace: str,
        identity: str,
        *,
        request_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, namespace, identity)
        self._transport = transport
        self._request_seconds = request_seconds
        self._clock = clock
        self._logged_at: float | None = None
        self._lease: dict[str, Any] = {}
        self._is_own_write = False
        self.renewed_at: float | None = None
        self.answered_at = self._clock()

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        """The record of the election; (False, error) if it does not exist or cannot be read.

        A leader reads nothing: it has the answer to its last renewal, and the next one fails if that is outdated.

        Raises:
            LostLeadError: Another operator has held the Lease since this one did.
        """
        try:
            if not self._is_own_write:
                self._lease = await self._call("GET", LEASES.path(namespace, name))
        except StatusError as error:
            self._check_allowed(error)
            if error.status != NOT_FOUND:
                self._log_failure("read", error)
            body = json.dumps({"code": error.status})
            return False, ApiException(status=error.status, reason=str(error), body=body)
        except OperationError as error:
            self._log_failure("read", error)
            return False, ApiException(status=0, reason=str(error))
        spec = self._lease.get("spec") or {}
        self._check_kept(str(spec.get("holderIdentity") or ""))
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            str(spec["leaseDurationSeconds"]) if spec.get("leaseDurationSeconds") else None,
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the Lease; returns whether this operator holds it."""
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": self._spec(election_record, {}),
        }
        return await self._renew("POST", LEASES.path(namespace), lease)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Acquire or renew the Lease if it is unchanged; returns whether this operator holds it."""
        lease = self._lease | {"spec": self._spec(updated_record, self._lease.get("spec") or {})}
        return await self._renew("PUT", LEASES.path(namespace, name), lease)

    async def release(self) -> None:
        """Release the Lease, so that the next operator does not wait until it expires."""
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
            logger.warning("the Lease %s/%s was not released: %s", self.namespace, self.name, error)

    def _spec(self, record: LeaderElectionRecord, before: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_own = before.get("holderIdentity") == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(float(str(record.lease_duration))),
            "acquireTime": before["acquireTime"] if is_own and before.get("acquireTime") else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if is_own or not before else 1),
        }

    async def _renew(self, method: str, path: str, lease: dict[str, Any]) -> bool:
        started = self._clock()
        self._is_own_write = False
        try:
            self._lease = await self._call(method, path, lease)
        except StatusError as error:
            self._check_allowed(error)
            # Another operator was faster.
            logger.debug("the Lease %s/%s was not acquired: %s", self.namespace, self.name, error)
            return False
        except OperationError as error:
            self._log_failure("renewed", error)
            return False
        self.renewed_at = started
        self._is_own_write = True
        return True

    def silent_seconds(self) -> float:
        """Time since the API server's last answer. Thread-safe."""
        return self._clock() - self.answered_at

    def _log_failure(self, action: str, error: Exception) -> None:
        """Log at most once a minute, with what is tried next."""
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= REPEATED_LOG_SECONDS:
            self._logged_at = now
            logger.warning(
                "the Lease %s/%s was not %s: %s; tried again until the API server answers",
                self.namespace,
                self.name,
                action,
                error,
            )

    def _check_kept(self, holder: str) -> None:
        """Raise an error if another operator has held the Lease since this one did."""
        if self.renewed_at is not None and holder != self.identity:
            age = self._clock() - self.renewed_at
            raise LostLeadError(
                f"the Lease {self.namespace}/{self.name} was not renewed for {age:.0f} s, and "
                f"{holder or 'another operator'} has acquired it; another operator may lead now"
            )

    def _check_allowed(self, error: StatusError) -> None:
        """Raise an error if waiting cannot help: no such namespace, or no right to Leases.

        An operator that has read the Lease waits: an API server that starts refuses requests before it knows its roles.
        """
        if self._lease:
            return
        if error.status == FORBIDDEN or (error.status == NOT_FOUND and "namespaces" in error.message):
            raise OperationError(
                f"the Lease {self.namespace}/{self.name} cannot be used ({error.message}); set "
                "--leader-election-namespace to a namespace where this operator may get, create and update "
                "Leases, as the chart's role allows"
            ) from error

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = Request(method, path, body=body, timeout_seconds=self._request_seconds)
        try:
            answer = await asyncio.to_thread(self._transport, request)
        except StatusError:
            self.answered_at = self._clock()
            raise
        self.answered_at = self._clock()
        return answer


class Election(LeaderElection):
    """The official election, in which a leader remains the leader while the API server is away.

    Nobody can acquire the Lease then. The operator does not act until it has renewed the Lease, and
    the lock raises LostLeadError if another operator has held it meanwhile. A candidate gives the holder
    the time of a lease after an outage, since nobody could renew the Lease during it.
    """

    def __init__(self, lock: LeaseLock, times: ElectionTimes, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._lock = lock
        super().__init__(
            Config(
                lock,
                lease_duration=times.lease_seconds,
                renew_deadline=times.renew_within_seconds,
                retry_period=times.retry_seconds,
                onstarted_leading=work,
                onstopped_leading=_ignore,
            )
        )

    async def try_acquire_or_renew(self) -> bool:
        """Try once; returns whether this operator holds the Lease now."""
        if self._lock.silent_seconds() > MAX_SILENT_SECONDS:
            self.observed_record = None
        return await super().try_acquire_or_renew()

    async def renew_loop(self) -> None:
        """Renew the Lease until another operator has it."""
        while True:
            await self.try_acquire_or_renew()
            await asyncio.sleep(self.election_config.retry_period)


class Leadership:
    """This operator's leadership."""

    def __init__(self, lock: LeaseLock, times: ElectionTimes) -> None:
        self._lock = lock
        self._times = times

    def holds(self) -> bool:
        """Whether this operator may act as the leader now. Thread-safe."""
        renewed_at = self._lock.renewed_at
        return renewed_at is not None and time.monotonic() - renewed_at < self._times.renew_within_seconds

    def silence(self) -> str:
        """Why a candidate cannot serve reports: the API server, which reviews tokens, is silent; empty: it answers.

        Thread-safe.
        """
        seconds = self._lock.silent_seconds()
        return f"the API server has not answered for {seconds:.0f} s" if seconds > MAX_SILENT_SECONDS else ""

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lead and then work; returns when the work has ended.

        Raises:
            LostLeadError: Another operator has the lead.
        """
        ended = asyncio.Event()
        # The official election starts the work as a separate task, and does not cancel it when it
        # is cancelled.
        tasks: list[asyncio.Task[Any]] = []

        async def working() -> None:
            task = asyncio.current_task()
            tasks.extend([] if task is None else [task])
            try:
                await work()
            finally:
                ended.set()

        election = Election(self._lock, self._times, working)
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
        """Let another operator lead."""
        await self._lock.release()


async def _ignore() -> None:
    """Do nothing: `lead` returns at the end of the lead."""
