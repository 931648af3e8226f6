"""What is wired to what, once: the parts of a running operator from its settings."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kubernetes.client import ApiClient
from prometheus_client import make_asgi_app

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer, ClusterNodeAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.backend import ClusterBackend
from wattloop_operator.cluster.connection import ClusterAddress, credentials, is_readable
from wattloop_operator.cluster.gpu_power_policies import NodePolicies, write_policy_statuses
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import ObjectCache, watched_kinds
from wattloop_operator.cluster.node_pods import ClusterNodePods
from wattloop_operator.cluster.progress_store import ClusterProgressStore
from wattloop_operator.cluster.transport import HttpTransport, Transport, fenced
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.controller.work_queue import WorkQueue
from wattloop_operator.domain.names import JobKey
from wattloop_operator.driver import reconcile
from wattloop_operator.http.certificates import AuthorityFile, ServingCertificate
from wattloop_operator.http.server import HttpService
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reconcile.learning.decision import sample_decision
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.limits import ReportLimits
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.progress_thread import ProgressThread
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.settings import Settings
from wattloop_operator.store import Store
from wattloop_operator.telemetry.certificate_metrics import CertificateCollector
from wattloop_operator.telemetry.health import WatchHeartbeat, create_health_app, watches_check
from wattloop_operator.telemetry.metrics import Metrics, StateCollector
from wattloop_operator.workloads.injection import ClusterAddresses

if TYPE_CHECKING:
    from wattloop_operator.cluster.election import ElectionTimes
    from wattloop_operator.controller.controller import Controller

Clock = Callable[[], datetime]
# A status is an object in etcd, and each write of it is a revision that all watchers receive.
PROGRESS_INTERVAL_SECONDS = 1.0


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


@dataclass
class Factory:
    """Makes the parts.

    Attributes:
        settings: The operator's settings.
        store: The open store.
        client: The official client, logged in.
        transport: Carries requests to the API server; a test puts its own before it.
        clock: The time that schedules follow.
        absent_namespaces: Namespaces of the settings that could not be read at the start.

    Raises:
        OperationError: The reporting API's certificate cannot be served.
        UsageError: There are no certificates in the file of the authority's.
    """

    settings: Settings
    store: Store
    client: ApiClient
    transport: Transport
    clock: Clock = utc_now
    absent_namespaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.transport = self.metrics.counted(self.transport)
        self.identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self.cache = ObjectCache()
        self.kinds = watched_kinds(self.cache)
        self.heartbeat = WatchHeartbeat(kind.resource.kind for kind in self.kinds)
        self._led: ClusterBackend | None = None
        self._work_queue: WorkQueue | None = None
        settings = self.settings
        self._authority = AuthorityFile(settings.report_certificate_authority)
        self._certificate: ServingCertificate | None = None
        if settings.report_certificate is not None and settings.report_key is not None:
            self._certificate = ServingCertificate(settings.report_certificate, settings.report_key)
            host = urlsplit(settings.report_url).hostname or settings.report_bind.host
            judged = CertificateCollector(self._certificate, self._authority.text, host)
            judged.is_trusted()  # said in the log before anybody reports
            self.metrics.registry.register(judged)

    def report_service(self) -> HttpService:
        """The reporting API; every replica serves it, whether it leads or not."""
        api = ClusterApi(self.transport, self.settings.namespaces)
        limits = ReportLimits(time.monotonic)
        reviews = TokenReviews(api, time.monotonic, limits.count_review)
        service = ReportService(
            ClusterProgressStore(api),
            ClusterAuthorizer(api, reviews, time.monotonic),
            self._review,
            limits=limits,
            write_interval_seconds=PROGRESS_INTERVAL_SECONDS,
        )
        app = self.metrics.counting_reports(create_app(service, self._node_service(api, reviews)))
        return HttpService(
            "reporting API",
            app,
            self.settings.report_bind,
            certificate=self._certificate,
            refused=self.metrics.refused,
            beside=ProgressThread(service.writes),
        )

    def _node_service(self, api: ClusterApi, reviews: TokenReviews) -> NodeService:
        """The agents' side of the reporting API."""
        authorizer = ClusterNodeAuthorizer(reviews, time.monotonic, self.settings.agent_service_account)
        pods = ClusterNodePods(api, time.monotonic, self.cache)
        policies = NodePolicies(api, time.monotonic)
        return NodeService(
            authorizer, pods, self.store.pod_energies, self.clock, bounds=policies.bounds_for_node, pods_ended=self._ask
        )

    def _agent_patience_seconds(self) -> int:
        return self.settings.agent_patience_seconds if self.settings.agent_service_account else 0

    def _ask(self, key: JobKey) -> None:
        """Have a job looked at; a replica that does not lead leaves it to the one that does, which looks by itself."""
        if self._work_queue is not None:
            self._work_queue.ask(key)

    def _review(self, recurrence: TrainingRecurrence, progress: Progress) -> Progress:
        """The policy's second thought; a replica that does not lead has no state to think from and leaves it."""
        backend = self._led
        key = JobKey(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
        return progress if backend is None else review_cost_limit(lambda: backend.snapshot(key), recurrence, progress)

    def addresses(self, report_url: str) -> ClusterAddresses:
        """What training pods are told that are started now.

        Args:
            report_url: Where the reporting API serves, if the settings name no other address.
        """
        settings = self.settings
        return ClusterAddresses(settings.report_url or report_url, self._authority.text(), settings.agent_socket_folder)

    def controller(self, addresses: Callable[[], ClusterAddresses], may_write: Callable[[], bool]) -> Controller:
        """What an operator does while it leads.

        Args:
            addresses: What training pods are told that are started now.
            may_write: Whether it still leads.
        """
        # An operator that waits for the lead does without kopf.
        from wattloop_operator.controller.controller import Controller  # noqa: PLC0415
        from wattloop_operator.controller.kopf_handlers import registry_of, settings_of  # noqa: PLC0415

        api = ClusterApi(fenced(self.transport, may_write), self.settings.namespaces)
        backend = ClusterBackend(
            api=api,
            cache=self.cache,
            workloads=WorkloadAccess(api, self.cache, addresses),
            store=self.store,
            sample_decision=sample_decision,
            clock=self.clock,
            monotonic=time.monotonic,
            reporter=self.identity,
            agent_patience_seconds=self._agent_patience_seconds(),
        )
        self._led = backend

        def settled(key: JobKey) -> datetime | None:
            following = reconcile(backend, key, self.clock)
            soon = backend.look_again_seconds(key)
            latest = None if soon is None else self.clock() + timedelta(seconds=soon)
            return min((moment for moment in (following, latest) if moment is not None), default=None)

        work_queue = WorkQueue(
            settled,
            workers=self.settings.workers,
            clock=lambda: self.clock().timestamp(),
            settled=lambda _, seconds: self.metrics.settled(seconds),
            failed=lambda _: self.metrics.failed(),
        )
        self._work_queue = work_queue

        def job_deleted(key: JobKey, uid: str) -> None:
            backend.forget(key, uid)
            work_queue.forget(key)

        dispatcher = EventDispatcher(
            self.kinds,
            ask=work_queue.ask,
            job_deleted=job_deleted,
            heartbeat=self.heartbeat.beat,
            all_listed=work_queue.start,
        )
        return Controller(
            registry=registry_of(dispatcher, lambda: credentials(self.client)),
            settings=settings_of(self.kinds),
            work_queue=work_queue,
            dispatcher=dispatcher,
            api=api,
            heartbeat=self.heartbeat.beat,
            missed=self.metrics.missed,
            resync_seconds=self.settings.resync_seconds,
            write_policy_statuses=lambda: write_policy_statuses(api, self.clock),
            namespaces=self.settings.namespaces,
            returned=self._returned_namespace,
        )

    def _returned_namespace(self) -> str:
        """A namespace that could not be read at the start and can be now; empty: none."""
        return next((name for name in self.absent_namespaces if is_readable(self.transport, name)), "")

    def health_service(self, controller: Callable[[], Controller | None], reports: HttpService) -> HttpService | None:
        """Liveness and readiness; None where the settings turn them off."""
        if self.settings.health_bind is None:
            return None
        watches = watches_check(self.heartbeat.ages_seconds, 2.0 * self.settings.resync_seconds + 60.0)

        def at_work() -> str:
            now = controller()
            return "" if now is None else now.trouble() or watches()

        def reporting() -> str:
            return "" if reports.alive else "the reporting API does not serve"

        live = {"work": at_work}
        return HttpService(
            "health",
            create_health_app(live, live | {"reporting": reporting}),
            self.settings.health_bind,
            refused=self.metrics.refused,
        )

    def metrics_service(
        self, controller: Callable[[], Controller | None], leads: Callable[[], bool]
    ) -> HttpService | None:
        """Prometheus metrics; None where the settings turn them off."""
        if self.settings.metrics_bind is None:
            return None

        def waiting() -> int:
            now = controller()
            return 0 if now is None else now.waiting

        self.metrics.registry.register(
            StateCollector(
                jobs=lambda: [held.value for held in self.cache.jobs.all()],
                waiting=waiting,
                watch_ages_seconds=lambda: self.heartbeat.ages_seconds() if controller() is not None else {},
                leads=leads,
            )
        )
        return HttpService(
            "metrics", make_asgi_app(self.metrics.registry), self.settings.metrics_bind, refused=self.metrics.refused
        )

    def election_times(self) -> ElectionTimes:
        """How the lead is held: acted on for two thirds of the lease, looked at every eighth of it."""
        from wattloop_operator.cluster.election import ElectionTimes  # noqa: PLC0415

        lease = self.settings.leader_lease_seconds
        return ElectionTimes(lease, lease * 2 // 3, max(lease // 8, 1))


def connect(settings: Settings) -> tuple[ApiClient, Transport]:
    """The client and the transport of a cluster.

    Raises:
        OperationError: There is no usable configuration.
        UsageError: The kubeconfig does not exist.
    """
    address = ClusterAddress(settings.kubeconfig, settings.context)
    # The workers' requests, those of reports under way, and the comparison's.
    client = address.client(connections=settings.workers + 40)
    return client, HttpTransport(client)
