"""Reads the output of the trainings that do not use the client: one log for each running attempt.

The leader looks at the cached objects once a second. An attempt's log is followed while its container
runs. Once the pod has ended, the rest is read, and the attempt's progress is finished; the outcome
waits for that. Nothing is stored here: a new leader reads a log from its beginning, and reports what follows the
position in the progress.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from wattloop.errors import OperationError
from wattloop.threads import TaskThread
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.auth.authorizers import running_pod
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.pod_logs import ContainerLog, LogFollower, OpenLog
from wattloop_operator.domain.bounded_output import BoundedOutputReader
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_output import OutputReader, PatternError
from wattloop_operator.reconcile.actions import EmitEvent
from wattloop_operator.reconcile.attempt.report_effect import OutputReport
from wattloop_operator.reporting.interfaces import (
    Observe,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)
from wattloop_operator.workloads.container_status import termination_message
from wattloop_operator.workloads.kinds import kind_of_template
from wattloop_operator.workloads.pod_state import (
    condition_of,
    container_process,
    first_pods,
    has_ended,
    has_failed,
    started_containers,
)

logger = logging.getLogger(__name__)

# Each is a thread here, and a connection of the API server to a kubelet.
MAX_FOLLOWED = 256
SLOW_PATTERN, METRIC_NOT_READ = "SlowPattern", "MetricNotRead"
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0

Pod = Mapping[str, Any]
Key = tuple[str, str]
StartThread = Callable[[Callable[[], None], str], Callable[[], bool]]
"""Runs a function in a thread of a name; returns a function that tells whether it still runs."""


def start_thread(run: Callable[[], None], name: str) -> Callable[[], bool]:
    """See `StartThread`. The process does not wait for the thread."""
    thread = TaskThread(run, name)
    thread.start()
    return thread.is_alive


@dataclass
class _Collected:
    """The output of one attempt.

    Attributes:
        follower: The last reader of its log; None before the first.
        runs: Whether the reader runs.
        stopping: Set to end the reader.
        retry_at: When a failed reader is followed by another one.
        failures: Number of failed readers in sequence.
        is_delayed: Whether the last reader failed and the delay is over.
        is_announced: Whether an Event says that the log is not read to its end.
        is_unread_announced: Whether an Event says that the lines with the metric's name do not count.
    """

    follower: LogFollower | None = None
    runs: Callable[[], bool] = lambda: False
    stopping: threading.Event = field(default_factory=threading.Event)
    retry_at: float = 0.0
    failures: int = 0
    is_delayed: bool = False
    is_announced: bool = False
    is_unread_announced: bool = False


@dataclass(eq=False)
class OutputCollector:
    """Reads the logs and the termination messages of all attempts of these sources.

    Attributes:
        open_log: Opens a log; None: logs are not read, only termination messages.
        progress_of: Reads what is stored of an attempt's progress.
        announce: Creates an Event about an attempt.
        monotonic: Monotonic seconds.
        start: Starts a reader.
    """

    cache: ObjectCache
    api: ClusterApi
    open_log: OpenLog | None
    observe: Observe
    progress_of: Callable[[TrainingRecurrence], Progress]
    _: KW_ONLY
    announce: Callable[[TrainingRecurrence, EmitEvent], None] = lambda _, __: None
    monotonic: Callable[[], float] = time.monotonic
    start: StartThread = start_thread

    def __post_init__(self) -> None:
        # By the uids of their recurrences: nothing more follows.
        self._finished: set[str] = set()
        self._collected: dict[Key, _Collected] = {}

    def collect(self) -> None:
        """Read what has ended, and start and restart readers, as the attempts and their pods are now."""
        logs: dict[Key, TrainingRecurrence] = {}
        statuses = ((each, each.value.status) for each in self.cache.recurrences.all())
        running = [each for each, status in statuses if status.result is None and status.workload_ref is not None]
        self._finished.intersection_update([each.uid for each in running])
        for cached in running:
            source = cached.value.spec.reporting.source
            if cached.uid in self._finished:
                continue
            if source is ReportingSource.TERMINATION_MESSAGE:
                # It needs no reader, so however many attempts are open, none waits for another.
                self._try(cached.key, partial(self._read_message, cached.key, cached.value))
            elif source is ReportingSource.LOGS:
                logs[cached.key] = cached.value
        for key in self._collected.keys() - logs.keys():
            self._collected.pop(key).stopping.set()
        for key, recurrence in logs.items():
            if key not in self._collected and len(self._collected) >= MAX_FOLLOWED:
                logger.warning("%s/%s: its log waits: %d others are read", *key, MAX_FOLLOWED)
            elif self.open_log is not None:
                collected = self._collected.setdefault(key, _Collected())
                if not self._try(key, partial(self._advance, key, recurrence, collected, self.open_log)):
                    self._delay(collected)

    def _try(self, key: Key, read: Callable[[], None]) -> bool:
        """Read an output; False if that failed, which the log says."""
        try:
            read()
        except (OperationError, RejectedError, TooManyRequestsError, ProgressTooLargeError, PatternError) as error:
            logger.warning("%s/%s: its output is not read now: %s", *key, error)
            return False
        except UnknownRecurrenceError:
            logger.debug("%s/%s was deleted", *key)
        except Exception:  # the output of other attempts is read
            logger.exception("%s/%s: unexpected failure while its output was read", *key)
            return False
        return True

    def stop(self) -> None:
        """End all readers."""
        for collected in self._collected.values():
            collected.stopping.set()

    def _read_message(self, key: Key, recurrence: TrainingRecurrence) -> None:
        """Report the last evaluation in the termination message of a training that has ended."""
        pod = self._pod(key, recurrence)
        if pod is None or not has_ended(pod) or not self._workload_has_ended(key) or not self._is_owned(key, pod):
            return
        spec = recurrence.spec
        reader = OutputReader(spec.reporting, spec.target, max_epochs=spec.max_epochs)
        container = self._container(recurrence, pod)
        process = container_process(pod, container)
        lines = termination_message(pod, container).encode().splitlines()
        read = [reader.read(line) for line in lines]
        evaluations = [found for found in (*read, reader.at_end()) if found is not None]
        target = recurrence.spec.target
        for evaluation in evaluations[-1:]:
            reaches = target.consecutive_evaluations == 1 and target.run_target.reached_by(evaluation.metric)
            # One report saves a read and a write. Of a training that misses the target, an end in the same report would
            # hide that it diverged or cost too much.
            last = OutputReport(1, evaluation.metric, evaluation.epoch, finished=reaches, process=process)
            self.observe(*key, last)
            if reaches:
                self._finished.add(recurrence.metadata.uid)
                return
        self.observe(*key, OutputReport(2, finished=True, process=process))
        self._finished.add(recurrence.metadata.uid)

    def _advance(self, key: Key, recurrence: TrainingRecurrence, collected: _Collected, open_log: OpenLog) -> None:
        self._announce_unread_lines(recurrence, collected)
        if collected.runs() or self.monotonic() < collected.retry_at:
            return
        pod, before = self._pod(key, recurrence), collected.follower
        if before is not None and (pod is None or before.log.pod == pod["metadata"]["name"]):
            is_read = before.missing or before.given_up or (before.complete and not before.follows)
            if pod is None or (has_ended(pod) and is_read):
                self._finish(key, recurrence, before)
                return
            if before.given_up:
                if not collected.is_announced:
                    logger.warning("%s/%s: %s", *key, before.given_up)
                    self.announce(recurrence, EmitEvent(True, SLOW_PATTERN, before.given_up))
                    collected.is_announced = True
                return
            if not before.complete and not collected.is_delayed:
                if before.refusal:
                    logger.error("%s/%s: the operator may not read the log: %s", *key, before.refusal)
                self._delay(collected)
                return
        if pod is not None:
            self._follow(key, recurrence, collected, pod, open_log)

    def _announce_unread_lines(self, recurrence: TrainingRecurrence, collected: _Collected) -> None:
        if collected.follower is None or collected.is_unread_announced:
            return
        reading, gap = collected.follower.reader.reading, collected.follower.gap
        if not (reading.unread or reading.doubt or gap):
            return
        # Another operator may have counted an evaluation that this one has not come to.
        summary = recurrence.status.progress
        has_metric = summary is not None and summary.metric is not None
        has_metric = has_metric or self.progress_of(recurrence).metric is not None
        notice = ("" if has_metric else reading.unread) or reading.doubt or gap
        if notice:
            self.announce(recurrence, EmitEvent(True, METRIC_NOT_READ, notice))
            collected.is_unread_announced = True

    def _follow(
        self, key: Key, recurrence: TrainingRecurrence, collected: _Collected, pod: Pod, open_log: OpenLog
    ) -> None:
        container = self._container(recurrence, pod)
        if container not in started_containers(pod):
            return
        name = str(pod["metadata"]["name"])
        before = collected.follower
        collected.failures = 0 if before is not None and before.complete else collected.failures
        if (before is None or before.log.pod != name) and not self._is_owned(key, pod):
            return
        log = ContainerLog(key[0], name, container, container_process(pod, container))
        same, progress = before if before is not None and before.log == log else None, self.progress_of(recurrence)
        follower = LogFollower(
            recurrence,
            log,
            self._reader(recurrence, progress, log, before) if same is None else same.reader,
            position=max(_position_of(progress, log), 0 if same is None else same.position),
            read_until=0 if same is None else same.read_until,
            follows=not has_ended(pod),
            succeeded=has_ended(pod) and not has_failed(pod),
            open_log=open_log,
            observe=self.observe,
            monotonic=self.monotonic,
            wait=collected.stopping.wait,
        )
        collected.follower, collected.is_delayed = follower, False
        collected.runs = self.start(follower.run, f"log-{key[1]}")

    def _reader(
        self, recurrence: TrainingRecurrence, progress: Progress, log: ContainerLog, before: LogFollower | None
    ) -> BoundedOutputReader:
        spec = recurrence.spec
        return BoundedOutputReader(
            spec.reporting,
            spec.target,
            self.monotonic,
            max_epochs=spec.max_epochs,
            # The first value of a pod that replaces another one may again precede its training.
            has_counted=before is None and progress.metric is not None,
            # The kubelet may have rotated the line away that showed it.
            counts_from_0=any(each.counts_from_0 for each in progress.processes if each.id == log.process)
            or (before is not None and before.reader.reading.counts_from_0),
        )

    def _finish(self, key: Key, recurrence: TrainingRecurrence, follower: LogFollower) -> None:
        """Report that nothing more follows, once the workload has ended: its pod is not replaced then."""
        if not self._workload_has_ended(key):
            return
        progress = self.progress_of(recurrence)
        if not progress.finished:
            position = max(follower.position, _position_of(progress, follower.log)) + 1
            self.observe(*key, OutputReport(position, finished=True, process=follower.log.process))
        self._finished.add(recurrence.metadata.uid)

    def _pod(self, key: Key, recurrence: TrainingRecurrence) -> Pod | None:
        """The newest pod of rank 0 that has started its training container."""
        pods = [cached.value for cached in self.cache.pods.of_group(key)]
        first = first_pods(pods, lambda pod: bool(self._container(recurrence, pod)))
        started = [pod for pod in first if self._container(recurrence, pod) in started_containers(pod)]
        # A pod that has ended may change once more after its successor was created.
        return max(started, key=lambda pod: (not has_ended(pod), int(pod["metadata"]["resourceVersion"])), default=None)

    def _container(self, recurrence: TrainingRecurrence, pod: Pod) -> str:
        present = [str(each.get("name")) for each in (pod.get("status") or {}).get("containerStatuses") or ()]
        job = self.cache.jobs.get((recurrence.metadata.namespace, recurrence.spec.job_ref.name))
        if job is None:
            return ""
        spec = job.value.spec
        chosen = kind_of_template(spec.template).training_containers(spec.template, spec.training_containers)
        return next((name for name in chosen if name in present), "")

    def _is_owned(self, key: Key, pod: Pod) -> bool:
        """Whether the pod runs the recurrence, by the check of reports: its log decides on the attempt."""
        return running_pod(self.api, key, str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])) is not None

    def _workload_has_ended(self, key: Key) -> bool:
        workload = self.cache.workloads.get(key)
        if workload is None:
            # Deleted, or of another kind, whose state only the backend reads.
            return True
        conditions = (condition_of(workload.value, kind) for kind in ("Complete", "Failed"))
        return any(each is not None and each.get("status") == "True" for each in conditions)

    def _delay(self, collected: _Collected) -> None:
        seconds = min(MIN_RETRY_SECONDS * 2.0**collected.failures, MAX_RETRY_SECONDS)
        collected.failures = min(collected.failures + 1, 10)
        collected.is_delayed = True
        collected.retry_at = self.monotonic() + seconds


def _position_of(progress: Progress, log: ContainerLog) -> int:
    """Up to where a log has been read; 0 if nothing of it has counted."""
    return max((each.sequence for each in progress.processes if each.id == log.process), default=0)
