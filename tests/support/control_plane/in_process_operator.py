"""The operator without watches and threads: a test says when it looks, what time it is, and at which call it dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.backend import ClusterBackend
from wattloop_operator.cluster.informer.object_cache import ObjectCache, identity, watched_kinds
from wattloop_operator.cluster.transport import Request, Transport
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.domain.names import JOB_LABEL, JobKey
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.learning.decision import sample_decision
from wattloop_operator.store import Store
from wattloop_operator.workloads.injection import ClusterAddresses


class KilledError(BaseException):
    """The operator was killed: what it had in memory is gone."""


class Executioner:
    """A transport that kills the operator once, before or after one of its calls.

    Args:
        transport: Carries the requests.
        at: Number of the fatal call, from 1; 0: none is.
        after: Whether the server still carries it out, and only the answer is lost.
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
        answer = self._transport(request)
        if fatal:
            raise KilledError(self.calls[-1])
        return answer


class TestClock:
    """Real time plus what a test lets pass."""

    __test__ = False

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += timedelta(seconds=seconds)


class InProcessOperator:
    """One operator, with the lives that it needs.

    Args:
        transport: Carries requests, with the operator's own rights.
        store: Its database.
        report_url: Where trainings report.
        clock: The time.
        seeing: Carries the requests that stand in for the watches; the same transport unless given.
        agent_patience_seconds: How long an attempt that has ended waits for the agents' last word; 0: none report.
    """

    def __init__(
        self,
        transport: Transport,
        store: Store,
        report_url: str,
        clock: TestClock,
        seeing: Transport | None = None,
        agent_patience_seconds: int = 0,
    ) -> None:
        self.transport = transport
        self._seeing = ClusterApi(seeing or transport)
        self.store = store
        self.clock = clock
        self.lives = 0
        self._report_url = report_url
        self._agent_patience_seconds = agent_patience_seconds
        self.backend = self._born()

    def poll(self, key: JobKey) -> datetime | None:
        """Settle a job as it is now; an operator that is killed is started again, until one gets through."""
        while True:
            try:
                self.see(key)
                return reconcile(self.backend, key, self.clock)
            except KilledError:
                self.backend = self._restarted()

    def see(self, key: JobKey) -> None:
        """Take in what the watches would have told by now."""
        for kind in watched_kinds(self.cache):
            if kind.resource == RECURRING_TRAINING_JOBS:
                kind.put(self._seeing.get(kind.resource, key.namespace, key.name))
                continue
            bodies, _ = self._seeing.list(kind.resource, namespace=key.namespace, labels=f"{JOB_LABEL}={key.name}")
            there = {identity(body)[0] for body in bodies}
            for body in bodies:
                kind.put(body)
            for held in [] if kind.outlives_deletion else kind.object_store.all():
                if held.key not in there:
                    kind.object_store.remove(held.key, held.uid)

    def restart(self, store: Store | None = None) -> None:
        """Start anew, on another database if one is given."""
        self.store = store or self.store
        self.backend = self._restarted()

    def _restarted(self) -> ClusterBackend:
        while True:
            try:
                return self._born()
            except KilledError:
                continue

    def _born(self) -> ClusterBackend:
        self.lives += 1
        self.api = ClusterApi(self.transport)
        self.cache = ObjectCache()
        addresses = ClusterAddresses(report_url=self._report_url)
        monotonic: Callable[[], float] = time.monotonic
        return ClusterBackend(
            api=self.api,
            cache=self.cache,
            workloads=WorkloadAccess(self.api, self.cache, lambda: addresses),
            store=self.store,
            sample_decision=sample_decision,
            clock=self.clock,
            monotonic=monotonic,
            reporter=f"test-{self.lives}",
            agent_patience_seconds=self._agent_patience_seconds,
        )
