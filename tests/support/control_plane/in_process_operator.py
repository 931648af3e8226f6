"""The operator without watches and threads: a test chooses its time, its reconciliations and the fatal request."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import Request, Transport
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.cluster_backend import ClusterBackend
from wattloop_operator.cluster.informer.object_cache import ObjectCache, identity
from wattloop_operator.cluster.informer.watched_kinds import watched_kinds
from wattloop_operator.cluster.reported_objects import ReportedObjects
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.domain.names import JOB_LABEL, JobKey
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.learning.decision import sample_decision
from wattloop_operator.reporting.progress_writer import StoredProgress
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store
from wattloop_operator.workloads.injection import ClusterAddresses


class KilledError(BaseException):
    """The operator was killed and lost its memory."""


class KillingTransport:
    """A transport that kills the operator once, before or after one of its requests.

    Args:
        at: Number of the fatal request, from 1; 0: none.
        after: Whether the server still handles it, and only the response is lost.
    """

    def __init__(self, transport: Transport, at: int = 0, *, after: bool = False) -> None:
        self._transport = transport
        self._at = at
        self._after = after
        self.calls: list[str] = []

    def __call__(self, request: Request) -> dict[str, Any]:
        self.calls.append(f"{request.method} {request.path}")
        fatal = len(self.calls) == self._at
        if fatal and not self._after:
            raise KilledError(self.calls[-1])
        try:
            return self._transport(request)
        finally:
            # An error is a response, too.
            if fatal:
                raise KilledError(self.calls[-1])


class TestClock:
    """Real time plus an offset that the test advances."""

    __test__ = False

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        """Monotonic seconds: to advance the clock is no step of it."""
        return time.monotonic() + self._ahead.total_seconds()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._ahead += timedelta(seconds=seconds)


class InProcessOperator:
    """One operator, restarted as often as it is killed.

    Args:
        transport: Carries requests, with the operator's own rights.
        watch_transport: Carries the requests that replace the watches; default: the same transport.
        agent_report_timeout_seconds: How long an ended attempt waits for the agents' final report; 0:
            agents do not report.
    """

    def __init__(
        self,
        transport: Transport,
        store: Store,
        report_url: str,
        clock: TestClock,
        watch_transport: Transport | None = None,
        agent_report_timeout_seconds: int = 0,
    ) -> None:
        self.transport = transport
        self._watch_api = ClusterApi(watch_transport or transport)
        self.store = store
        self.clock = clock
        self.starts = 0
        self._report_url = report_url
        self._agent_report_timeout_seconds = agent_report_timeout_seconds
        self.backend = self._start()

    def reconcile(self, key: JobKey) -> datetime | None:
        """Reconcile a job; a killed operator is restarted until one succeeds."""
        while True:
            try:
                self.sync_cache(key)
                return reconcile(self.backend, key, self.clock)
            except KilledError:
                self.backend = self._restarted()

    def sync_cache(self, key: JobKey) -> None:
        """Store what the watches would have reported by now."""
        for kind in watched_kinds(self.cache):
            if kind.by_people:
                if kind.resource == RECURRING_TRAINING_JOBS:
                    kind.put(self._watch_api.get(kind.resource, key.namespace, key.name))
                continue
            bodies, _ = self._watch_api.list(kind.resource, namespace=key.namespace, labels=f"{JOB_LABEL}={key.name}")
            listed = {identity(body)[0] for body in bodies}
            for body in bodies:
                kind.put(body)
            for cached in [] if kind.outlives_deletion else kind.object_store.all():
                if cached.key not in listed:
                    kind.object_store.remove(cached.key, cached.uid)

    def restart(self, store: Store | None = None) -> None:
        """Restart, optionally with another store."""
        self.store = store or self.store
        self.backend = self._restarted()

    def _restarted(self) -> ClusterBackend:
        while True:
            try:
                return self._start()
            except KilledError:
                continue

    def _start(self) -> ClusterBackend:
        self.starts += 1
        self.api = ClusterApi(self.transport)
        self.cache = ObjectCache()
        addresses = ClusterAddresses(report_url=self._report_url)
        authorizer = ClusterAuthorizer(self.api, TokenReviews(self.api, time.monotonic), time.monotonic)
        reports = ReportService(
            StoredProgress(ReportedObjects(self.api).recurrence, self.store.attempt_progress, self.clock), authorizer
        )
        return ClusterBackend(
            api=self.api,
            cache=self.cache,
            workloads=WorkloadAccess(self.api, self.cache, lambda: addresses, self.clock.monotonic),
            store=self.store,
            sample_decision=sample_decision,
            clock=self.clock,
            monotonic=self.clock.monotonic,
            reporter=f"test-{self.starts}",
            receive=reports.receive_undelivered,
            agent_report_timeout_seconds=self._agent_report_timeout_seconds,
        )
