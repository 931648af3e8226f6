"""The operator's Prometheus metrics, in base units; only existing jobs are label values.

Of the reporting API's certificate they say its expiry, and whether pods would accept it.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattloop.errors import OperationError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import SavingName
from wattloop_operator.cluster.api_transport import NoResultError, Request, StatusError, Transport
from wattloop_operator.http.certificates import ServingCertificate, verification_error
from wattloop_operator.http.http_connection import Application
from wattloop_operator.problem_log import ProblemLog
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reporting.pipeline_planner import Plan

JOB_LABELS = ("namespace", "job")
# Metric, meaning and size of the unit of each entry of `status.savings` that a metric has.
ESTIMATES = {
    SavingName.ENERGY: ("saved_energy_joules", "Energy saved against the default; learning included.", 1),
    SavingName.TIME: ("saved_time_seconds", "Time saved against the default; learning included.", 1),
    SavingName.COST: (
        "saved_cost_ratio",
        "Part of the default's cost, energy and time by their weights, that was saved; learning included.",
        100,
    ),
    SavingName.LEARNING_ENERGY: (
        "learning_energy_joules",
        "Energy that trials and the measurement of power limits used more than the default.",
        1,
    ),
    SavingName.LEARNING_TIME: (
        "learning_time_seconds",
        "Time that trials and the measurement of power limits took longer than the default.",
        1,
    ),
}
# Prefix of the metric, and of its meaning, of each number of such an entry.
BOUNDS = {
    "value": ("", ""),
    "low": ("low_", "Lower end of the interval of 90 %: "),
    "high": ("high_", "Upper end of the interval of 90 %: "),
}


class Metrics:
    """Counters and histograms of events.

    Attributes:
        registry: The registry of all the operator's metrics.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"wattloop_operator_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
            return Histogram(f"wattloop_operator_{name}", text, labels, buckets=buckets, registry=self.registry)

        buckets = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
        text = "Duration of one reconciliation of a job."
        self._reconciles = histogram("reconcile_duration_seconds", text, (), buckets)
        self._failures = counter("reconcile_failures_total", "Reconciliations of a job that failed.")
        text = "Requests to the Kubernetes API server."
        self._requests = counter("api_requests_total", text, "method", "resource", "outcome")
        self._missed_changes = counter("watch_missed_changes_total", "Jobs with a change that a watch missed.", "kind")
        text = "Reports of training processes, by the HTTP status of the response."
        self._reports = counter("reports_total", text, "status")
        text = "Reports of node agents, by the HTTP status of the response."
        self._node_reports = counter("node_reports_total", text, "status")
        text = "Registrations and reports of ranks of a pipeline, by the HTTP status of the response."
        self._pipeline_messages = counter("pipeline_messages_total", text, "status")
        text = "Duration of the planning of a pipeline, by whether plans were found."
        buckets = [0.5, 1, 2, 5, 10, 30, 60, 120, 300]
        self._plans = histogram("pipeline_plan_duration_seconds", text, ("planned",), buckets)
        text = "HTTP requests rejected before parsing: malformed, or overloaded (too many connections or requests)."
        self._rejected = counter("http_requests_rejected_total", text, "reason")

    def reconciled(self, seconds: float) -> None:
        """Record the duration of a reconciliation."""
        self._reconciles.observe(seconds)

    def reconcile_failed(self) -> None:
        """Count a reconciliation that failed."""
        self._failures.inc()

    def changes_missed(self, kind: str, jobs: int) -> None:
        """Count the jobs with a change that a watch missed."""
        self._missed_changes.labels(kind).inc(jobs)

    def request_rejected(self, reason: str) -> None:
        """Count an HTTP request that the application did not receive."""
        self._rejected.labels(reason).inc()

    def count_reports(self, app: Application) -> Application:
        """The reporting API as an ASGI application that counts its responses."""

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            # /v1/namespaces/NAMESPACE/recurrences/NAME/pipeline/…
            path = scope.get("path", "")
            reports = self._pipeline_messages if path.split("/")[6:7] == ["pipeline"] else self._reports
            reports = self._node_reports if path.startswith("/v1/nodes/") else reports

            async def send_counted(message: Any) -> None:
                if message["type"] == "http.response.start":
                    reports.labels(str(message["status"])).inc()
                await send(message)

            await app(scope, receive, send_counted)

        return counted

    def time_planner(self, plan: Plan) -> Plan:
        """The planner of pipelines as one whose durations and failures are recorded."""

        def timed(request: PlanningRequest, now: datetime) -> PipelineFrontier:
            started = time.monotonic()
            frontier = plan(request, now)
            self._plans.labels("false" if frontier.problem else "true").observe(time.monotonic() - started)
            return frontier

        return timed

    def count_requests(self, transport: Transport) -> Transport:
        """The transport as one that counts its requests."""

        def call(request: Request) -> dict[str, Any]:
            outcome = "ok"
            try:
                return transport(request)
            except StatusError as error:
                outcome = str(error.status)
                raise
            except OperationError as error:
                status = error.status if isinstance(error, NoResultError) else None
                outcome = str(status or "unreachable")
                raise
            finally:
                self._requests.labels(request.method, _resource(request.path), outcome).inc()

        return call


@dataclass(eq=False)
class StateCollector(Collector):
    """Metrics computed at each scrape: figures of the jobs, the work queue, the watches and leadership.

    Attributes:
        queue_depth: Number of jobs that wait for a worker.
        watch_ages_seconds: Seconds since each watch's last sign of life.
        is_leader: Whether this operator leads.
        is_database_up: Whether the database answers.
    """

    _: KW_ONLY
    jobs: Callable[[], Iterable[RecurringTrainingJob]]
    queue_depth: Callable[[], int]
    watch_ages_seconds: Callable[[], Mapping[str, float]]
    is_leader: Callable[[], bool]
    is_database_up: Callable[[], bool]

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        yield GaugeMetricFamily(
            "wattloop_operator_is_leader", "Whether this operator leads.", value=float(self.is_leader())
        )
        yield GaugeMetricFamily(
            "wattloop_operator_database_up",
            "Whether the database answers this operator.",
            value=float(self.is_database_up()),
        )
        yield GaugeMetricFamily(
            "wattloop_operator_work_queue_depth", "Jobs that wait for a worker.", value=float(self.queue_depth())
        )
        ages = GaugeMetricFamily(
            "wattloop_operator_watch_age_seconds", "Time since the last sign of life of a watch.", labels=["kind"]
        )
        for kind, age in self.watch_ages_seconds().items():
            ages.add_metric([kind], age)
        yield ages
        yield from _of_jobs(self.jobs())


def _of_jobs(jobs: Iterable[RecurringTrainingJob]) -> Iterator[Metric]:
    active = GaugeMetricFamily("wattloop_job_active_recurrences", "Recurrences that run.", labels=JOB_LABELS)
    best = GaugeMetricFamily(
        "wattloop_job_best_batch_size", "Batch size with the lowest expected cost.", labels=JOB_LABELS
    )
    ended = CounterMetricFamily("wattloop_job_recurrences", "Recurrences that ended.", labels=(*JOB_LABELS, "reached"))
    energy = CounterMetricFamily(
        "wattloop_job_gpu_energy_joules", "Energy of the GPUs of all recurrences.", labels=JOB_LABELS
    )
    time = CounterMetricFamily("wattloop_job_time_seconds", "Time of all recurrences.", labels=JOB_LABELS)
    lost = GaugeMetricFamily(
        "wattloop_job_lost_recurrences",
        "Recurrences whose observation the database no longer has, as after its loss.",
        labels=JOB_LABELS,
    )
    estimates = {
        (name, bound): GaugeMetricFamily(f"wattloop_job_{prefix}{metric}", f"{means}{text}", labels=JOB_LABELS)
        for name, (metric, text, _) in ESTIMATES.items()
        for bound, (prefix, means) in BOUNDS.items()
    }
    for job in jobs:
        names, status = [job.metadata.namespace, job.metadata.name], job.status
        active.add_metric(names, len(status.active))
        ended.add_metric([*names, "true"], status.totals.reached)
        ended.add_metric([*names, "false"], status.totals.failed)
        lost.add_metric(names, status.totals.lost)
        if status.best is not None:
            best.add_metric(names, status.best.batch_size)
        for family, total in ((energy, status.totals.gpu_energy_joules), (time, status.totals.duration_seconds)):
            if total is not None:
                family.add_metric(names, float(total))
        for saving in status.savings:
            for bound in BOUNDS if saving.name in ESTIMATES else ():
                value = getattr(saving, bound)
                if value is not None:
                    size = ESTIMATES[saving.name][2]
                    estimates[saving.name, bound].add_metric(names, float(value) / size)
    yield from (active, best, ended, lost, energy, time, *estimates.values())


def _resource(path: str) -> str:
    """The plural of the kind in a path: `jobs` in /apis/batch/v1/namespaces/team/jobs/x."""
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else "discovery"


logger = logging.getLogger(__name__)


class CertificateCollector(Collector):
    """Computes the metrics at each scrape.

    Args:
        trusted: The certificates that pods started now get, PEM; empty: they use those of their
            images.
        host: The host of the URL that they get.
    """

    def __init__(self, certificate: ServingCertificate, trusted: Callable[[], str], host: str) -> None:
        self._certificate = certificate
        self._trusted = trusted
        self._host = host
        self._problems = ProblemLog(logger)

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        yield GaugeMetricFamily(
            "wattloop_operator_report_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate that the reporting API serves now.",
            value=self._certificate.expires_at.timestamp(),
        )
        is_trusted = self.check_trust()
        if is_trusted is not None:
            yield GaugeMetricFamily(
                "wattloop_operator_report_certificate_trusted",
                "Whether pods started now would accept the certificate, by the certificates that they get.",
                value=float(is_trusted),
            )

    def check_trust(self) -> bool | None:
        """Whether pods started now would accept the certificate; None if their images decide. Logs each new reason."""
        trusted = self._trusted()
        if not trusted:
            return None
        try:
            reason = verification_error(self._certificate.context, trusted, self._host)
        except ssl.SSLError as error:
            reason = str(error)
        subject = f"pods would refuse the reporting API's certificate at {self._host}"
        if reason:
            self._problems.met(
                subject, f"{reason}; it must be issued for this host by an authority in --report-certificate-authority"
            )
        else:
            self._problems.ended(subject)
        return not reason
