"""The operator's Prometheus metrics: base units, and only jobs that exist as label values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattloop.errors import OperationError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.cluster.transport import Request, StatusError, Transport

Application = Callable[[Any, Any, Any], Awaitable[None]]
JOB_LABELS = ("namespace", "job")


class Metrics:
    """What is counted as it happens.

    Attributes:
        registry: Where everything is registered.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._settles = Histogram(
            "wattloop_operator_reconcile_duration_seconds",
            "Time to bring one job up to date.",
            buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )
        self._failures = Counter(
            "wattloop_operator_reconcile_failures_total", "Looks at a job that failed.", registry=self.registry
        )
        self._requests = Counter(
            "wattloop_operator_api_requests_total",
            "Requests to the Kubernetes API server.",
            ["method", "resource", "outcome"],
            registry=self.registry,
        )
        self._missed = Counter(
            "wattloop_operator_watch_missed_changes_total",
            "Jobs of which a watch has missed a change.",
            ["kind"],
            registry=self.registry,
        )
        self._reports = Counter(
            "wattloop_operator_reports_total",
            "Reports of training processes by the HTTP status of their answer.",
            ["status"],
            registry=self.registry,
        )
        self._node_reports = Counter(
            "wattloop_operator_node_reports_total",
            "Reports of nodes' agents by the HTTP status of their answer.",
            ["status"],
            registry=self.registry,
        )

        self._refused = Counter(
            "wattloop_operator_http_requests_rejected_total",
            "HTTP requests refused unread: malformed, or crowded (beyond the bound of connections).",
            ["reason"],
            registry=self.registry,
        )

    def settled(self, seconds: float) -> None:
        """Count a look at a job."""
        self._settles.observe(seconds)

    def failed(self) -> None:
        """Count a look that failed."""
        self._failures.inc()

    def missed(self, kind: str, jobs: int) -> None:
        """Count what a watch has missed."""
        self._missed.labels(kind).inc(jobs)

    def refused(self, reason: str) -> None:
        """Count an HTTP request that was refused unread."""
        self._refused.labels(reason).inc()

    def counting_reports(self, app: Application) -> Application:
        """The reporting API with every answer counted."""

        async def counting(scope: Any, receive: Any, send: Any) -> None:
            reports = self._node_reports if scope.get("path", "").startswith("/v1/nodes/") else self._reports

            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    reports.labels(str(message["status"])).inc()
                await send(message)

            await app(scope, receive, sent)

        return counting

    def counted(self, transport: Transport) -> Transport:
        """The transport with every request counted."""

        def call(request: Request) -> dict[str, Any]:
            outcome = "ok"
            try:
                return transport(request)
            except StatusError as error:
                outcome = str(error.status)
                raise
            except OperationError:
                outcome = "unreachable"
                raise
            finally:
                self._requests.labels(request.method, _resource(request.path), outcome).inc()

        return call


class StateCollector(Collector):
    """What is read when it is asked for: the jobs' own figures, the queue, the watches, the lead.

    Args:
        jobs: The jobs there are.
        waiting: How many of them wait for a worker.
        watch_ages_seconds: Seconds since each watch's last sign of life.
        leads: Whether this operator acts.
    """

    def __init__(
        self,
        *,
        jobs: Callable[[], Iterable[RecurringTrainingJob]],
        waiting: Callable[[], int],
        watch_ages_seconds: Callable[[], Mapping[str, float]],
        leads: Callable[[], bool],
    ) -> None:
        self._jobs = jobs
        self._waiting = waiting
        self._watch_ages_seconds = watch_ages_seconds
        self._leads = leads

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        yield GaugeMetricFamily(
            "wattloop_operator_is_leader", "Whether this operator leads.", value=float(self._leads())
        )
        yield GaugeMetricFamily(
            "wattloop_operator_work_queue_depth", "Jobs that wait for a worker.", value=float(self._waiting())
        )
        ages = GaugeMetricFamily(
            "wattloop_operator_watch_age_seconds", "Time since the last sign of life of a watch.", labels=["kind"]
        )
        for kind, age in self._watch_ages_seconds().items():
            ages.add_metric([kind], age)
        yield ages
        yield from _of_jobs(self._jobs())


def _of_jobs(jobs: Iterable[RecurringTrainingJob]) -> Iterator[Metric]:
    active = GaugeMetricFamily("wattloop_job_active_recurrences", "Recurrences going on.", labels=JOB_LABELS)
    best = GaugeMetricFamily("wattloop_job_best_batch_size", "Batch size believed cheapest.", labels=JOB_LABELS)
    ended = CounterMetricFamily("wattloop_job_recurrences", "Recurrences that ended.", labels=(*JOB_LABELS, "reached"))
    energy = CounterMetricFamily("wattloop_job_gpu_energy_joules", "Energy of the GPUs.", labels=JOB_LABELS)
    cost = CounterMetricFamily("wattloop_job_cost_joules", "Cost of all recurrences.", labels=JOB_LABELS)
    saved = GaugeMetricFamily(
        "wattloop_job_saved_cost_joules", "Cost saved against the default configuration.", labels=JOB_LABELS
    )
    for job in jobs:
        names, status = [job.metadata.namespace, job.metadata.name], job.status
        active.add_metric(names, status.counts.active)
        ended.add_metric([*names, "true"], status.counts.reached)
        ended.add_metric([*names, "false"], status.counts.failed)
        if status.best_batch_size is not None:
            best.add_metric(names, status.best_batch_size)
        if status.totals is not None:
            energy.add_metric(names, float(status.totals.gpu_energy_joules))
            cost.add_metric(names, float(status.totals.cost_joules))
        if status.savings is not None:
            saved.add_metric(names, float(status.savings.cost_joules))
    yield from (active, best, ended, energy, cost, saved)


def _resource(path: str) -> str:
    """The kind in an address: /apis/batch/v1/namespaces/team/jobs/x is of jobs."""
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else "discovery"
