"""Builds the parts of a running operator from its settings and connects them."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from kubernetes.client import ApiClient
from prometheus_client import make_asgi_app

from wattloop import threads
from wattloop_operator.cluster.api import FREQUENCY_PLANS, GPU_POWER_POLICIES, ClusterApi
from wattloop_operator.cluster.api_server import ClusterAddress, credentials, is_readable
from wattloop_operator.cluster.api_transport import HttpTransport, Transport, fenced, retrying
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer, ClusterNodeAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.cluster_backend import ClusterBackend
from wattloop_operator.cluster.frequency_plans import FrequencyPlanWriter
from wattloop_operator.cluster.gpu_nodes import GpuNodeWriter
from wattloop_operator.cluster.gpu_power_policies import NodePolicies, write_policy_statuses
from wattloop_operator.cluster.informer.informer import Informer
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, WatchedKind, watched_kinds
from wattloop_operator.cluster.output_collector import OutputCollector
from wattloop_operator.cluster.pod_logs import ClusterLogs
from wattloop_operator.cluster.reported_objects import ClusterNodePods, JobSettings, ReportedObjects
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.controller.controller import Controller, LeaderState, RepeatedTask
from wattloop_operator.controller.work_queue import WorkQueue
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.tariff import NO_TARIFFS, read_tariffs
from wattloop_operator.driver import reconcile
from wattloop_operator.http.certificates import AuthorityFile, ServingCertificate
from wattloop_operator.http.http_service import PROBE_CONCURRENCY, HttpService
from wattloop_operator.memory_shares import container_bytes, objects_bytes
from wattloop_operator.operator_settings import OperatorSettings
from wattloop_operator.reconcile.learning.decision import sample_decision
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.nodes import LimitOrders, NodeService
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.plan_worker import planned_in_process
from wattloop_operator.reporting.progress_writer import ProgressWriterThread, StoredProgress
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store
from wattloop_operator.telemetry.health import DatabaseCheck, WatchHeartbeat, create_health_app, watches_check
from wattloop_operator.telemetry.operator_metrics import CertificateCollector, Metrics, StateCollector
from wattloop_operator.workloads.injection import ClusterAddresses

Clock = Callable[[], datetime]
# Each write is a transaction of the database.
PROGRESS_INTERVAL_SECONDS = 1.0
# The leader learns so late that a training is to end, whichever replica received the report.
ENDED_ATTEMPTS_SECONDS = 1.0
CLEANUP_SECONDS = 3600.0
OUTPUT_SECONDS = 1.0
# What no event tells: the pipelines in the store, and the labels of nodes.
PLAN_STATUS_SECONDS = 10.0
POLICY_STATUS_SECONDS = 15.0
LEASE_NOT_RENEWED = "the Lease of this operator has not been renewed; it writes nothing until then"
# Connections to the API server beside the workers': those of running reports and of the resync.
FURTHER_CONNECTIONS = 40


def utc_now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


@dataclass
class Factory:
    """Builds the parts of an operator.

    Attributes:
        settings: The operator's settings.
        store: The open store.
        client: The official client, logged in.
        transport: Carries requests to the API server.
        clock: The clock of schedules.
        absent_namespaces: Namespaces of the settings that were not readable at the start.
        leader: The leading controller, for request threads.

    Raises:
        OperationError: The reporting API's certificate cannot be served.
        UsageError: The authority's file contains no certificates, or the tariff's no tariff.
        InputError: The tariff's file cannot be read.
    """

    settings: OperatorSettings
    store: Store
    client: ApiClient
    transport: Transport
    clock: Clock = utc_now
    absent_namespaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.transport = self.metrics.count_requests(self.transport)
        self.identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self.cache = ObjectCache(objects_bytes(container_bytes()))
        self.kinds = watched_kinds(self.cache)
        self.heartbeat = WatchHeartbeat(kind.resource.kind for kind in self.kinds)
        self.leader = LeaderState()
        self.database = DatabaseCheck(self.store.check, self.store.name)
        settings = self.settings
        self._tariffs = NO_TARIFFS if settings.tariff is None else read_tariffs(settings.tariff)
        self._authority = AuthorityFile(settings.report_certificate_authority)
        self._certificate: ServingCertificate | None = None
        self._reports: ReportService | None = None
        if settings.report_certificate is not None and settings.report_key is not None:
            self._certificate = ServingCertificate(settings.report_certificate, settings.report_key)
            host = urlsplit(settings.report_url).hostname or settings.report_bind.host
            collector = CertificateCollector(self._certificate, self._authority.text, host)
            collector.check_trust()  # logs a problem before the first report
            self.metrics.registry.register(collector)

    def report_service(self) -> HttpService:
        """The reporting API, which every replica serves."""
        api = ClusterApi(self.transport, self.settings.namespaces)
        limits = ReportLimits(time.monotonic)
        reviews = TokenReviews(api, time.monotonic, limits.count_review)
        authorizer = ClusterAuthorizer(api, reviews, time.monotonic)
        progress = StoredProgress(ReportedObjects(api).recurrence, self.store.attempt_progress, self.clock)
        service = self._reports = ReportService(
            progress,
            authorizer,
            self.leader.review,
            limits=limits,
            utc_now=self.clock,
            energies=self.store.pod_energies.of_attempt if self.settings.agent_service_account else None,
            write_interval_seconds=PROGRESS_INTERVAL_SECONDS,
        )
        commits = PipelineCommits(self.store.pipelines, self.clock)
        jobs = JobSettings(api, time.monotonic)
        pipelines = PipelineService(progress, authorizer, commits, limits, plan_of=jobs.plan_of)
        planner = PipelinePlanner(
            self.store.pipelines,
            self.metrics.time_planner(planned_in_process),
            pipelines.read_state,
            self.clock,
            leads=lambda: self.leader.controller is not None,
        )
        gpu_nodes = GpuNodeWriter(api, self.clock, time.monotonic)
        nodes = self._node_service(api, reviews, service, jobs, gpu_nodes)
        app = self.metrics.count_reports(create_app(service, nodes, pipelines))
        return HttpService(
            "reporting API",
            app,
            self.settings.report_bind,
            certificate=self._certificate,
            on_rejected=self.metrics.request_rejected,
            background=(ProgressWriterThread(service.writer), commits, planner, gpu_nodes.thread()),
        )

    def _node_service(
        self,
        api: ClusterApi,
        reviews: TokenReviews,
        reports: ReportService,
        jobs: JobSettings,
        gpu_nodes: GpuNodeWriter,
    ) -> NodeService:
        authorizer = ClusterNodeAuthorizer(reviews, time.monotonic, self.settings.agent_service_account)
        pods = ClusterNodePods(api, time.monotonic, self.cache)
        policies = NodePolicies(api, time.monotonic)
        sockets = bool(self.settings.agent_socket_folder)
        return NodeService(
            authorizer.authorize,
            pods.attempts_of,
            self.store.pod_energies,
            self.clock,
            bounds=policies.bounds_for_node,
            pods_ended=self.leader.enqueue,
            order_limit=LimitOrders(reports, jobs.power_of, time.monotonic, sockets=sockets).order,
            gpus_reported=gpu_nodes.receive,
        )

    def addresses(self, report_url: str) -> ClusterAddresses:
        """The addresses that training pods started now get.

        Args:
            report_url: URL of the reporting API, unless the settings have another one.
        """
        settings = self.settings
        return ClusterAddresses(settings.report_url or report_url, self._authority.text(), settings.agent_socket_folder)

    def controller(self, addresses: Callable[[], ClusterAddresses], may_write: Callable[[], bool]) -> Controller:
        """The controller of an operator that leads; it is recorded in `leader`.

        Args:
            addresses: Returns the addresses that training pods started now get.
            may_write: Whether the operator still leads.
        """
        # An operator that does not lead saves the import of kopf.
        from wattloop_operator.controller.kopf_operator import KopfOperator  # noqa: PLC0415

        settings = self.settings
        api = ClusterApi(retrying(fenced(self.transport, may_write)), settings.namespaces)
        reads_output = settings.read_pod_logs == "yes"
        backend = ClusterBackend(
            api=api,
            cache=self.cache,
            workloads=WorkloadAccess(api, self.cache, addresses, time.monotonic),
            store=self.store,
            sample_decision=sample_decision,
            clock=self.clock,
            monotonic=time.monotonic,
            reporter=self.identity,
            receive=self._report_receiver().receive_undelivered,
            agent_report_timeout_seconds=settings.agent_report_timeout_seconds if settings.agent_service_account else 0,
            reads_output=reads_output,
            tariffs=self._tariffs,
            database_answering_seconds=self.database.answering_seconds,
        )
        work_queue = self._work_queue(backend)

        def job_deleted(key: JobKey, uid: str) -> None:
            backend.forget(key, uid)
            work_queue.forget(key)

        plans, policies = self._repeated_tasks(api, lambda: dispatcher.synced)

        def enqueue(kind: WatchedKind, key: JobKey) -> None:
            if kind.resource == FREQUENCY_PLANS:
                plans.wake()
            elif kind.resource == GPU_POWER_POLICIES:
                policies.wake()
            else:
                work_queue.add(key)

        dispatcher = EventDispatcher(
            self.kinds,
            enqueue=enqueue,
            job_deleted=job_deleted,
            heartbeat=self.heartbeat.beat,
            all_listed=work_queue.start,
            namespaces=settings.namespaces,
        )
        open_watch = HttpTransport(self.client).watch
        of_people, of_operator = [
            [
                Informer(api, open_watch, kind, dispatcher, namespace=namespace)
                for kind in self.kinds
                if kind.by_people is by_people
                for namespace in kind.lists(settings.namespaces)
            ]
            for by_people in (True, False)
        ]
        controller = Controller(
            kopf_operator=KopfOperator(
                of_people,
                dispatcher,
                api,
                login=lambda: credentials(self.client),
                namespaces=settings.namespaces,
            ),
            informers=of_operator,
            work_queue=work_queue,
            dispatcher=dispatcher,
            api=api,
            heartbeat=self.heartbeat,
            metrics=self.metrics,
            resync_seconds=settings.resync_seconds,
            namespaces=settings.namespaces,
            tasks=(
                plans,
                policies,
                self._output_task(api, backend, lambda: dispatcher.synced, reads_logs=reads_output),
                *self._progress_watchers(work_queue),
            ),
            returned_namespace=self._returned_namespace,
            lease_problem=lambda: "" if may_write() else LEASE_NOT_RENEWED,
        )
        self.leader.lead(controller, backend)
        return controller

    def _repeated_tasks(self, api: ClusterApi, synced: Callable[[], bool]) -> tuple[RepeatedTask, RepeatedTask]:
        """The writers of what FrequencyPlans and GPUPowerPolicies say, from a complete cache."""
        plans = FrequencyPlanWriter(api, self.cache, self.store.pipelines, self.clock)

        def write_plans() -> None:
            if synced():
                plans.write()

        def write_policies() -> None:
            if synced():
                write_policy_statuses(api, self.cache, self.clock)

        return (
            RepeatedTask("frequency-plans", "FrequencyPlans", write_plans, PLAN_STATUS_SECONDS),
            RepeatedTask("policy-statuses", "GPUPowerPolicy statuses", write_policies, POLICY_STATUS_SECONDS),
        )

    def _progress_watchers(self, work_queue: WorkQueue) -> tuple[RepeatedTask, RepeatedTask]:
        """What looks for attempts that are to end, or have said that they are done, and for old progress.

        No event tells of progress: each replica receives reports, and writes them to the store.
        """
        rows, known = self.store.attempt_progress, frozenset[tuple[str, str, int]]()

        def reconcile_ending() -> None:
            nonlocal known
            ending = rows.ending()
            for namespace, name, _ in ending - known:
                cached = self.cache.recurrences.get((namespace, name))
                if cached is not None:
                    work_queue.add(JobKey(namespace, cached.value.spec.job_ref.name))
            known = ending

        return (
            RepeatedTask("endings", "attempts that end", reconcile_ending, ENDED_ATTEMPTS_SECONDS),
            RepeatedTask("old-progress", "rows of progress", lambda: rows.delete_old(self.clock()), CLEANUP_SECONDS),
        )

    def _output_task(
        self, api: ClusterApi, backend: ClusterBackend, synced: Callable[[], bool], *, reads_logs: bool
    ) -> RepeatedTask:
        open_log = ClusterLogs(HttpTransport(self.client)).open if reads_logs else None
        rows = self.store.attempt_progress
        collector = OutputCollector(
            self.cache,
            api,
            open_log,
            self._report_receiver().observe,
            lambda recurrence: rows.attempts([recurrence])[0].progress,
            announce=backend.announce,
        )

        def collect() -> None:
            if synced():
                collector.collect()

        return RepeatedTask("training-output", "logs of trainings", collect, OUTPUT_SECONDS, collector.stop)

    def _report_receiver(self) -> ReportService:
        if self._reports is None:
            raise AssertionError("the reporting API is built before the controller")
        return self._reports

    def _work_queue(self, backend: ClusterBackend) -> WorkQueue:
        def reconcile_job(key: JobKey) -> datetime | None:
            wake_at = reconcile(backend, key, self.clock, lambda: work_queue.depth > 0)
            requeue_after = backend.requeue_after_seconds(key)
            requeue_at = None if requeue_after is None else self.clock() + timedelta(seconds=requeue_after)
            return min((moment for moment in (wake_at, requeue_at) if moment is not None), default=None)

        work_queue = WorkQueue(
            reconcile_job,
            workers=self.settings.workers,
            clock=lambda: self.clock().timestamp(),
            reconciled=lambda _, seconds: self.metrics.reconciled(seconds),
            failed=lambda _: self.metrics.reconcile_failed(),
        )
        return work_queue

    def _returned_namespace(self) -> str:
        """A namespace that was not readable at the start and is now; empty: none."""
        return next((name for name in self.absent_namespaces if is_readable(self.transport, name)), "")

    def health_service(self, reports: HttpService) -> HttpService | None:
        """Liveness and readiness; None if the settings turn them off."""
        if self.settings.health_bind is None:
            return None
        watches = watches_check(self.heartbeat.ages_seconds, 2.0 * self.settings.resync_seconds + 60.0)

        def work() -> str:
            if self.leader.controller is None:
                return ""
            # While the API server is away, watches can not give a sign of life, and a restart does not help.
            return self.leader.problem() or ("" if self.leader.connection_problem() else watches())

        def reporting() -> str:
            return "" if reports.alive else "the reporting API does not serve"

        live = {"threads": threads.problem, "work": work}
        ready = live | {
            "reporting": reporting,
            "API server": self.leader.connection_problem,
            "database": self.database.problem,
        }
        return HttpService(
            "health",
            create_health_app(live, ready),
            self.settings.health_bind,
            on_rejected=self.metrics.request_rejected,
            max_concurrency=PROBE_CONCURRENCY,
        )

    def metrics_service(self, is_leader: Callable[[], bool]) -> HttpService | None:
        """Prometheus metrics; None if the settings turn them off."""
        if self.settings.metrics_bind is None:
            return None
        self.metrics.registry.register(
            StateCollector(
                jobs=lambda: [cached.value for cached in self.cache.jobs.all()],
                queue_depth=lambda: self.leader.queue_depth,
                watch_ages_seconds=lambda: {} if self.leader.controller is None else self.heartbeat.ages_seconds(),
                is_leader=is_leader,
                is_database_up=lambda: not self.database.problem(),
            )
        )
        return HttpService(
            "metrics",
            make_asgi_app(self.metrics.registry),
            self.settings.metrics_bind,
            on_rejected=self.metrics.request_rejected,
            max_concurrency=PROBE_CONCURRENCY,
        )


def connect(settings: OperatorSettings) -> tuple[ApiClient, Transport]:
    """The client and the transport of a cluster.

    Raises:
        OperationError: There is no usable configuration.
        UsageError: The kubeconfig does not exist.
    """
    address = ClusterAddress(settings.kubeconfig, settings.context)
    client = address.client(connections=settings.workers + FURTHER_CONNECTIONS)
    return client, HttpTransport(client)
