"""Receives the reports of training processes: authorize, merge, answer whether to stop."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from cachetools import LRUCache

from wattloop.errors import OperationError
from wattloop.wire.node_energy import PodLimitState
from wattloop.wire.training_messages import Answer, Report
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import (
    REVIEWED_FIELDS,
    answer_to,
    evaluated_epoch,
    is_review_due,
    with_stop_request,
    with_verdict,
)
from wattloop_operator.reconcile.attempt.ordered_limit import (
    needs_agents,
    with_agent_readings,
    with_limit_measured,
    with_pod_limit,
)
from wattloop_operator.reconcile.attempt.progress_deadline import with_heartbeat
from wattloop_operator.reconcile.attempt.report_effect import (
    OutputReport,
    is_of_unknown_process,
    max_gpus,
    progress_after,
    progress_after_output,
)
from wattloop_operator.reconcile.energy.gpu_node_status import with_recent_power
from wattloop_operator.reporting.interfaces import (
    AttemptEnergies,
    Authorizer,
    BearerToken,
    ProgressStore,
    Review,
    TooManyRequestsError,
    UnknownRecurrenceError,
    WrongSourceError,
)
from wattloop_operator.reporting.progress_writer import ProgressWriter
from wattloop_operator.reporting.report_limits import MAX_RECURRENCES, Rate, ReportLimits, SharedLimit, TokenBuckets
from wattloop_operator.reporting.trainer_status import TrainerStatus, output_report_of
from wattloop_operator.reporting.verdict_waits import MAX_WAIT_SECONDS, VerdictWaits

MAX_LOGGED_RECURRENCES = 1_000

logger = logging.getLogger(__name__)
# Two at once: the cost of an epoch and its evaluation may be reported one after the other.
RECURRENCE_RATE = Rate(per_second=1.0, burst=2.0)
TOTAL_RATE = Rate(per_second=20.0, burst=100.0)

Key = tuple[str, str, str]


@dataclass
class ReceivedReport:
    """A report with what was known when it was received; merged again after a conflict, it has the same effect.

    Attributes:
        report: The report of the training, or of an agent about a power limit.
        at: When it was received.
        pod_uid: UID of the pod that sent it; empty if no pod did.
        energies: The agents' reports about its attempt; None if they were not read.
        superseded: Whether its process was started again since.
    """

    report: Report | OutputReport | PodLimitState
    at: datetime
    pod_uid: str = ""
    energies: tuple[PodEnergy, ...] | None = None
    superseded: bool = False


class ReportService:
    """The training processes' part of the reporting API, independent of HTTP.

    What reads or merges raises UnknownRecurrenceError, TooManyRequestsError if too many reports wait to be written,
    ProgressTooLargeError, and OperationError if it failed for now and may be repeated.

    Args:
        review: Reviews the cost limit of an attempt; None: the decision's limit holds.
        energies: Reads what node agents have reported about attempts whose processes report no GPUs; None: no
            agents report.
        utc_now: The time at which a report arrives, with a time zone.
        write_interval_seconds: Minimum time between two writes of one recurrence's progress.
        max_wait_seconds: How long the answer to a rank waits for a verdict at most.
    """

    def __init__(
        self,
        progress_store: ProgressStore,
        authorizer: Authorizer,
        review: Review | None = None,
        *,
        limits: ReportLimits | None = None,
        energies: AttemptEnergies | None = None,
        clock: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        write_interval_seconds: float = 0.0,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._progress_store = progress_store
        self._energies = energies
        self._authorizer = authorizer
        self._utc_now = utc_now
        self._review = None if review is None else CostReviews(review, clock)
        # One line per hour and recurrence.
        self._log_limit: TokenBuckets[str] = TokenBuckets(Rate(1 / 3600, 1.0), clock, MAX_LOGGED_RECURRENCES)
        self.limits = limits or ReportLimits(clock)
        self.waits = VerdictWaits(max_wait_seconds)
        self.writer = ProgressWriter(
            progress_store, self._merged, self._judged, clock, write_interval_seconds, on_verdict=self.waits.notify
        )

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """See `Authorizer`; TooManyRequestsError also if there were too many reports for the recurrence."""
        pod_uid = self._authorizer.authorize(token, namespace, name, address)
        self.limits.count_report(namespace, name)
        return pod_uid

    def receive(self, namespace: str, name: str, report: Report, pod_uid: str = "") -> Answer:
        """Merge a report of an authorized caller."""
        received = ReceivedReport(report, self._utc_now(), pod_uid)
        return answer_to(self.writer.merge(namespace, name, received), report)

    def observe(self, namespace: str, name: str, seen: OutputReport) -> None:
        """Merge what was seen of a training that does not use the client."""
        self.writer.merge(namespace, name, ReceivedReport(seen, self._utc_now()))

    def receive_undelivered(
        self, namespace: str, name: str, reports: Sequence[Report], pod_uid: str, *, superseded: bool
    ) -> None:
        """Merge reports that a pod of the recurrence has left, and write them before this returns.

        `superseded`: whether their processes were started again since.
        """
        now = self._utc_now()
        # What the agents have measured by now is not what they had measured at these reports.
        received = [ReceivedReport(each, now, pod_uid, energies=(), superseded=superseded) for each in reports]
        self.writer.merge_at_once(namespace, name, received)

    def present_answer(self, namespace: str, name: str, report: Report) -> Answer:
        """The answer to a report that was received before, with a verdict that may have been made since."""
        return answer_to(self.writer.current(namespace, name), report)

    def receive_status(self, namespace: str, name: str, status: TrainerStatus, pod_uid: str = "") -> None:
        """Merge a status of an authorized callback for Kubeflow Trainer, of the pod with this UID."""
        spec = self.recurrence(namespace, name).spec
        if spec.reporting.source is not ReportingSource.KUBEFLOW_TRAINER:
            raise WrongSourceError(
                f"{namespace}/{name} has the reporting source {spec.reporting.source}, expected KubeflowTrainer"
            )
        self.observe(namespace, name, output_report_of(status, spec.target, pod_uid))

    def receive_limit(self, namespace: str, name: str, state: PodLimitState | None) -> TrainingAttempt:
        """Merge what an agent did about the power limit of a pod; returns the recurrence as it is now.

        `state`: the agent's report; None: it has nothing to report.
        """
        if state is None:
            return self.recurrence(namespace, name)
        return self.writer.merge(namespace, name, ReceivedReport(state, self._utc_now()))

    def recurrence(self, namespace: str, name: str) -> TrainingAttempt:
        """The recurrence of an authorized caller, with its decision."""
        recurrence = self._progress_store.read(namespace, name)
        if recurrence is None:
            raise UnknownRecurrenceError(f"TrainingRecurrence {namespace}/{name} does not exist")
        return recurrence

    def _merged(self, recurrence: TrainingAttempt, received: ReceivedReport) -> Progress:
        report, before = received.report, recurrence.progress
        if recurrence.status.result is not None:
            return before
        if isinstance(report, PodLimitState):
            return with_pod_limit(before, report, received.at)
        if isinstance(report, OutputReport):
            progress = progress_after_output(recurrence, report)
            progress = with_recent_power(before, progress, report.gpus.energies, received.at)
            progress = self._with_agent_readings(recurrence, progress, received)
            # A reading of the GPUs alone shows nothing of the training.
            return with_heartbeat(recurrence, progress, 0, received.at) if report.position else progress
        if received.superseded and is_of_unknown_process(before, report):
            # Those that followed it have reported, and it would be taken to follow them.
            return before
        progress = progress_after(recurrence, report)
        stored = {gpu.uuid for gpu in progress.gpus}
        dropped = [gpu.uuid for gpu in report.gpus if gpu.uuid not in stored]
        if dropped and self._log_limit.take(_name(recurrence)):
            logger.warning(
                "%s: dropped GPU %s and possibly others: the pod template requests %d GPUs, and at most %d are stored",
                _name(recurrence),
                dropped[0],
                recurrence.status.devices,
                max_gpus(recurrence),
            )
        progress = with_recent_power(before, progress, report.gpus, received.at)
        progress = self._with_agent_readings(recurrence, progress, received)
        return with_heartbeat(
            recurrence, progress, report.rank, received.at, report.verdict_epoch, pod_uid=received.pod_uid
        )

    def _with_agent_readings(
        self, recurrence: TrainingAttempt, progress: Progress, received: ReceivedReport
    ) -> Progress:
        before = recurrence.progress
        if self._energies is not None and received.energies is None and needs_agents(before, progress):
            received.energies = self._read_energies(self._energies, recurrence)
        energies = received.energies or ()
        progress = with_agent_readings(recurrence, progress, energies, received.at)
        pods = {energy.pod_uid for energy in energies if not energy.ended}
        return with_limit_measured(before, progress, pods, received.at)

    def _read_energies(self, energies: AttemptEnergies, recurrence: TrainingAttempt) -> tuple[PodEnergy, ...]:
        spec = recurrence.spec
        try:
            return energies(spec.job_ref.uid, spec.index, spec.attempt)
        except OperationError as error:
            # The report must be stored; the next epoch gets a mark.
            if self._log_limit.take(_name(recurrence)):
                logger.warning("%s: the energy of an epoch is not known: %s", _name(recurrence), error)
            return ()

    def _judged(self, recurrence: TrainingAttempt, received: Sequence[ReceivedReport]) -> Progress:
        progress = recurrence.progress
        if recurrence.status.result is not None:
            return progress
        if all(isinstance(each.report, OutputReport) and each.report.is_followed for each in received):
            return progress
        reports = [each.report for each in received if isinstance(each.report, Report)]
        return with_verdict(with_stop_request(recurrence, self._with_review(recurrence, progress)), reports)

    def _with_review(self, recurrence: TrainingAttempt, progress: Progress) -> Progress:
        if self._review is None:
            return progress
        try:
            return self._review(recurrence, progress)
        except OperationError as error:
            # A later report is reviewed again; this one must be stored.
            logger.warning("%s: the early stop cannot be decided now: %s", _name(recurrence), error)
        except Exception:  # a failure of the policy must not end the reports of the training
            logger.exception("%s: unexpected failure of the policy's review", _name(recurrence))
        return progress


def _name(recurrence: TrainingAttempt) -> str:
    return recurrence.metadata.full_name


class CostReviews:
    """Has the policy review attempts, at a bounded rate for each and for all together. Thread-safe.

    A review that is due and not allowed now is made with a later report. The result of the latest
    review is kept until it is written, because progress is merged again after a conflict.
    """

    def __init__(self, review: Review, clock: Callable[[], float]) -> None:
        self._review = review
        self._lock = threading.Lock()
        self._limit = SharedLimit(clock, RECURRENCE_RATE, TOTAL_RATE, "all reviews together")
        self._latest: LRUCache[Key, tuple[Decimal, dict[str, object]]] = LRUCache(MAX_RECURRENCES)

    def __call__(self, recurrence: TrainingAttempt, progress: Progress) -> Progress:
        """The progress with the limit of a review; unchanged if none is due, or none is allowed now.

        Raises:
            OperationError: The state of the job cannot be read now.
        """
        if not is_review_due(recurrence, progress):
            return progress
        metadata = recurrence.metadata
        key = (metadata.namespace, metadata.name, metadata.uid)
        with self._lock:
            latest = self._latest.get(key)
            if (
                latest is not None
                and latest[0] == evaluated_epoch(progress)
                and any(value is not None and getattr(progress, name) != value for name, value in latest[1].items())
            ):
                return progress.model_copy(update=latest[1])
            try:
                self._limit.count(metadata.namespace, f"{metadata.name}/{metadata.uid}")
            except TooManyRequestsError:
                return progress
        reviewed = self._review(recurrence, progress)
        if reviewed is not progress:
            with self._lock:
                # Only the fields of the review: the rest of a progress is large.
                fields = {name: getattr(reviewed, name) for name in REVIEWED_FIELDS}
                self._latest[key] = evaluated_epoch(reviewed), fields
        return reviewed
