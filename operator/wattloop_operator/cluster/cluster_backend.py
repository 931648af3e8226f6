"""The back end of a Kubernetes cluster: snapshots from the cache, actions as requests."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta

from wattloop.errors import OperationError
from wattloop_operator.api.field_types import SECONDS_OF_YEAR
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.cluster.api import (
    EVENTS,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    AlreadyExistsError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
    status_to_apply,
)
from wattloop_operator.cluster.events import EventSubject, event_body, events_of
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.object_store import CachedObject, RefusedObject
from wattloop_operator.cluster.informer.stored_parts import Body
from wattloop_operator.cluster.job_histories import JobHistories
from wattloop_operator.cluster.start_checks import REASON, RECHECK_SECONDS, DryRun, TrainingRuntimes
from wattloop_operator.cluster.undelivered_reader import Receive, UndeliveredReportsReader
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.domain.job_identity import HISTORY_ANNOTATION, history_uid, is_shown, owner_of
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import PolicyCache, Snapshot, SteadyClock
from wattloop_operator.domain.tariff import NO_TARIFFS, Tariffs
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reconcile.actions import (
    RECURRENCE_DELETED,
    Action,
    AdoptRecurrence,
    AnnotateHistory,
    CreateRecurrence,
    DeleteRecurrence,
    EmitEvent,
    EndWorkload,
    MergeUndelivered,
    RecordLateUsage,
    RecordObservation,
    RecordProfile,
    StartWorkload,
    WriteJobStatus,
    WriteRecurrenceStatus,
)
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.store import PodEnergy, Store
from wattloop_operator.store.store_cache import StoreCache
from wattloop_operator.workloads.injection import TemplateError
from wattloop_operator.workloads.workload_manifest import devices_of

logger = logging.getLogger(__name__)

# The API server sets the rest.
SENT_METADATA = frozenset({"name", "namespace", "labels", "ownerReferences"})
# Agents may report usage this long after an attempt's outcome: a node may come back the next day.
LATE_REPORT_PERIOD = timedelta(days=2)
UNREAD_RECURRENCE = "RecurrenceUnreadable"
# Interval of reads of a workload whose kind is not watched.
UNWATCHED_POLL_SECONDS = 10.0


@dataclass(eq=False)
class ClusterBackend:
    """Implements `wattloop_operator.driver.Backend` on an API server and a store.

    Attributes:
        cache: The cache of its objects; the response to each write is stored there, too.
        sample_decision: Returns a decision to validate the workload's template with; None if
            nothing can start.
        clock: The time, with a time zone.
        monotonic: Monotonic seconds.
        reporter: Name of this process, for Events.
        agent_report_timeout_seconds: How long an ended attempt waits for the agents' final report; 0:
            agents do not report.
        reads_output: Whether the logs of pods are read.
        tariffs: Price and carbon intensity of electricity by namespace.
        database_answering_seconds: How long the database has answered; while it does not, no report is received.
        receive: Merges reports that pods have left.
    """

    _: KW_ONLY
    api: ClusterApi
    cache: ObjectCache
    workloads: WorkloadAccess
    store: Store
    sample_decision: Callable[[Snapshot, datetime], TrainingRecurrence | None]
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    reporter: str
    receive: Receive
    agent_report_timeout_seconds: int = 0
    reads_output: bool = False
    tariffs: Tariffs = NO_TARIFFS
    database_answering_seconds: Callable[[], float] = lambda: SECONDS_OF_YEAR

    def __post_init__(self) -> None:
        self._store_cache = StoreCache(self.store)
        self._histories = JobHistories(self.cache, self._store_cache)
        self._policies = PolicyCache()
        # By the uid of a job: its generation, and its GPUs, for which its template is parsed and checked.
        self._devices: dict[str, tuple[int | None, int]] = {}
        self._runtimes = TrainingRuntimes(self.api, self.monotonic)
        self._dry_run = DryRun(self.workloads.dry_run_create, self.monotonic)
        self._steady_clock = SteadyClock(self.clock, self.monotonic)
        self._undelivered = UndeliveredReportsReader(self.api, self.receive)

    def snapshot(self, key: JobKey) -> Snapshot | None:
        """The state of one job; None if it does not exist, or if not all is known of which its next actions follow."""
        refused = self._refused(key)
        cached = self.cache.jobs.get((key.namespace, key.name))
        if cached is None or (refused is not None and not refused.readable) or self._has_unread_recurrence(cached):
            return None
        if cached.value.metadata.deletion_timestamp is not None:
            return Snapshot(cached.value)
        of_name = [each.value for each in self.cache.recurrences.of_group(cached.key)]
        history = self._histories.of(cached.value, of_name)
        job, uid = history.job, history_uid(history.job)
        if history.problem:
            self.announce(job, EmitEvent(True, "HistoryRefused", history.problem))
        own = [each for each in of_name if each.spec.job_ref.uid == uid]
        stored = self._store_cache.of_job(uid)
        recurrences = self._attempts(job, [each for each in own if is_shown(job, each)], stored.records)
        source = job.spec.batch_size.learn_from
        source_job = None if source is None else self.cache.jobs.get((key.namespace, source))
        states = ((each.metadata.name, self.workloads.state(job, each)) for each in recurrences)
        workloads = self._undelivered.unread(cached.uid, {name: state for name, state in states if state is not None})
        self.workloads.keep(cached.key, {each.uid for each in workloads.values()})
        runtime = self._runtimes.known(job)
        generation, devices = self._devices.get(job.metadata.uid, (None, 0))
        if generation is None or generation != job.metadata.generation:
            devices = devices_of(job)
            self._devices[job.metadata.uid] = (job.metadata.generation, devices)
        snapshot = Snapshot(
            job=job,
            recurrences=recurrences,
            workloads=workloads,
            unstated_starts=frozenset(each.metadata.name for each in recurrences if self.cache.is_start_unstated(each)),
            records=stored.records,
            profiles=stored.profiles,
            late_usages=stored.late_usages,
            source_records=() if source is None else self._store_cache.source_records(key.namespace, source),
            source_job=None if source_job is None else source_job.value,
            pod_energies=self._pod_energies(uid, recurrences),
            devices=devices,
            runtime_digest=runtime.digest,
            agent_report_timeout_seconds=self.agent_report_timeout_seconds,
            observed_since=max(
                self._steady_clock.since(), self.clock() - timedelta(seconds=self.database_answering_seconds())
            ),
            reads_output=self.reads_output,
            tariff=self.tariffs.of(key.namespace),
            deleted_recurrences=tuple(
                TrainingAttempt.of(each, None) for each in self.cache.deleted_recurrences.of_job(uid)
            ),
            restored_recurrences=tuple(TrainingAttempt.of(each, None) for each in own if not is_shown(job, each)),
            unannotated=history.unannotated,
            policies=self._policies,
        )
        full = self.cache.crowded(key.namespace) if refused is None else refused.problem
        refusal = full or runtime.problem
        if not refusal:
            refusal = self._dry_run.refusal(job, lambda: self.sample_decision(snapshot, self.clock()))
        return replace(snapshot, refusal=refusal)

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        """Carry out one action, and emit its Events."""
        try:
            self._do(snapshot, action)
        except RejectedError as error:
            metadata = getattr(action, "recurrence", snapshot.job).metadata
            subject = f"{type(action).__name__} {metadata.full_name}"
            raise OperationError(f"{subject}: the API server rejects it: {error}") from error
        for event in events_of(snapshot, action):
            self.announce(snapshot.job, event)
            about = None if event.recurrence is None else event.recurrence.metadata
            # As the API server has it, with its uid.
            cached = None if about is None else self.cache.recurrences.get((about.namespace, about.name))
            if cached is not None:
                self.announce(cached.value, event)

    def requeue_after_seconds(self, key: JobKey) -> float | None:
        """Delay until the next reconciliation without an event; None: no limit.

        A workload needs one that is refused, is not watched, waits for quota or lacks pods; a runtime without which
        nothing starts; and a namespace without room.
        """
        cached = self.cache.jobs.get((key.namespace, key.name))
        name = (key.namespace, key.name)
        if self.cache.jobs.refused(name) is not None or self.cache.recurrences.refused_of_group(name):
            return RECHECK_SECONDS
        if cached is None:
            return None
        job = cached.value
        blocked = self._dry_run.is_refused(job) or self.cache.crowded(key.namespace) or self._runtimes.has_problem(job)
        polls = (
            RECHECK_SECONDS if blocked else None,
            UNWATCHED_POLL_SECONDS if not job.spec.template.is_job and job.status.active else None,
            self.workloads.poll_seconds(cached.key),
        )
        return min((each for each in polls if each is not None), default=None)

    def forget(self, key: JobKey, uid: str) -> None:
        """Drop all data of a deleted job."""
        logger.info("%s was deleted", key)
        of_history = self._histories.forget(uid)
        self._store_cache.invalidate(of_history)
        self._devices.pop(uid, None)
        self._dry_run.forget(uid)
        self._undelivered.forget(uid)
        self.workloads.keep((key.namespace, key.name), ())
        self.store.pod_energies.delete_job(of_history)
        self.store.pipelines.delete_job(of_history)
        self.store.attempt_progress.delete_job(of_history)

    def _do(self, snapshot: Snapshot, action: Action) -> None:
        match action:
            case RecordObservation() | RecordLateUsage() | RecordProfile():
                self._store_cache.record(action)
            case CreateRecurrence(recurrence, inputs):
                self._check_runtime(snapshot, recurrence)
                self._create(recurrence, inputs)
            case StartWorkload(recurrence):
                self._start(snapshot, recurrence)
            case EndWorkload(recurrence, gracefully):
                state = snapshot.workloads.get(recurrence.metadata.name)
                if state is not None and state.owned:
                    self.workloads.delete(recurrence, state, gracefully=gracefully)
            case MergeUndelivered(recurrence, reports):
                self._undelivered.read(recurrence, reports)
            case WriteRecurrenceStatus(recurrence, status):
                self._write_recurrence_status(recurrence, status)
            case DeleteRecurrence(recurrence):
                self._delete(recurrence)
            case AnnotateHistory():
                self._annotate(snapshot.job)
            case AdoptRecurrence(recurrence, status):
                self._adopt(snapshot.job, recurrence, status)
            case WriteJobStatus(status):
                with self._reading_again(snapshot.job):
                    body = status_to_apply(snapshot.job, status.to_wire())
                    self.cache.put_job(self.api.apply_status(RECURRING_TRAINING_JOBS, body))
            case EmitEvent() if action.reason == RECURRENCE_DELETED:
                self._before_deletion_event(snapshot, action.recurrence)

    def _attempts(
        self, job: RecurringTrainingJob, own: Sequence[TrainingRecurrence], records: Sequence[ObservationRecord]
    ) -> tuple[TrainingAttempt, ...]:
        """The job's attempts; with the rows of those of which not all that follows from them is written yet."""
        recorded = {record.order for record in records}
        active, ended_since = set(job.status.active), self.clock() - LATE_REPORT_PERIOD

        def needs_row(each: TrainingRecurrence) -> bool:
            if each.status.result is None or each.order not in recorded or each.metadata.name in active:
                return True
            return self.agent_report_timeout_seconds > 0 and job_observations.ended_at(each) >= ended_since

        read = {each.metadata.name: each for each in self.store.attempt_progress.attempts(filter(needs_row, own))}
        return tuple(read.get(each.metadata.name) or TrainingAttempt.of(each, None) for each in own)

    def _pod_energies(self, uid: str, recurrences: Sequence[TrainingRecurrence]) -> dict[str, tuple[PodEnergy, ...]]:
        """The agents' reports about recurrences that run or have ended recently."""
        ended_since = self.clock() - LATE_REPORT_PERIOD
        wanted = [
            each for each in recurrences if each.status.result is None or job_observations.ended_at(each) >= ended_since
        ]
        if not self.agent_report_timeout_seconds or not wanted:
            return {}
        reported = self.store.pod_energies.of_job(uid, min(each.spec.index for each in wanted))
        return {each.metadata.name: reported.get(each.order, ()) for each in wanted}

    def _create(self, recurrence: TrainingRecurrence, inputs: StoredDecision | None) -> None:
        if inputs is not None:
            self.store.decisions.record(inputs)
        metadata = recurrence.metadata
        body = recurrence.to_wire()
        del body["status"]
        body["metadata"] = {name: value for name, value in body["metadata"].items() if name in SENT_METADATA}
        try:
            self.cache.put_recurrence(self.api.create(TRAINING_RECURRENCES, body))
        except AlreadyExistsError:
            found = self.api.find(TRAINING_RECURRENCES, metadata.namespace, metadata.name)
            if found is None or found["spec"]["jobRef"]["uid"] != recurrence.spec.job_ref.uid:
                raise OperationError(
                    f"{metadata.full_name}: a TrainingRecurrence of another job of this "
                    "name exists; it is deleted with that job, or delete it yourself"
                ) from None
            self.cache.put_recurrence(found)

    def _check_runtime(self, snapshot: Snapshot, recurrence: TrainingRecurrence) -> None:
        """Require that the runtime is as in the snapshot: one is often applied together with a run request."""
        runtime = self._runtimes.current(snapshot.job)
        if runtime.problem or runtime.digest != snapshot.runtime_digest:
            raise StaleSnapshotError(f"{recurrence.metadata.full_name}: its training runtime has changed")

    def _start(self, snapshot: Snapshot, recurrence: TrainingRecurrence) -> None:
        self._check_runtime(snapshot, recurrence)
        try:
            self.workloads.start(snapshot.job, recurrence)
        except (RejectedError, TemplateError) as error:
            self._dry_run.refuse(snapshot.job, str(error))
            raise StaleSnapshotError(f"the workload of {recurrence.metadata.name} is refused: {error}") from error

    def _write_recurrence_status(self, recurrence: TrainingAttempt, status: TrainingRecurrenceStatus) -> None:
        metadata = recurrence.metadata
        if status.result is not None and recurrence.status.result is None and recurrence.outcome is None:
            self.store.attempt_progress.decide(recurrence, status, self.clock())
        # The writer of FrequencyPlans writes what it knows of the plan.
        written = status.model_copy(update={"frequency_plan": None}).to_wire()
        with self._reading_again(recurrence):
            body = status_to_apply(recurrence, written, resource_version=metadata.resource_version)
            self.cache.put_recurrence(self.api.apply_status(TRAINING_RECURRENCES, body))

    def _annotate(self, job: RecurringTrainingJob) -> None:
        """Write the annotation with the job's history. Without it the job runs, and only a backup of it is less."""
        metadata = job.metadata
        annotations = {HISTORY_ANNOTATION: metadata.annotations[HISTORY_ANNOTATION]}
        with self._reading_again(job):
            try:
                changes = {"annotations": annotations}
                self.cache.put_job(self.api.patch_metadata(RECURRING_TRAINING_JOBS, metadata, changes))
            except RejectedError as error:
                self._histories.not_written(metadata.uid)
                logger.warning(
                    "%s: the annotation %s is refused, so a backup of the job does not have it: %s",
                    metadata.full_name, HISTORY_ANNOTATION, error,
                )  # fmt: skip

    def _adopt(
        self, job: RecurringTrainingJob, recurrence: TrainingAttempt, status: TrainingRecurrenceStatus | None
    ) -> None:
        """Write the status of a restored recurrence first: one without a result that the job controls would start."""
        owners = [owner_of(job).to_wire()]
        with self._reading_again(recurrence):
            if status is not None:
                self.api.apply_status(TRAINING_RECURRENCES, status_to_apply(recurrence, status.to_wire()))
            self.cache.put_recurrence(
                self.api.patch_metadata(TRAINING_RECURRENCES, recurrence.metadata, {"ownerReferences": owners})
            )

    @contextlib.contextmanager
    def _reading_again(self, written: RecurringTrainingJob | TrainingRecurrence) -> Iterator[None]:
        """Read an object into the cache, which has an older one, if it cannot be written for that."""
        try:
            yield
        except (ConflictError, NotFoundError) as error:
            self._read(written)
            raise StaleSnapshotError(f"{written.metadata.full_name}: {error}") from error

    def _delete(self, recurrence: TrainingRecurrence) -> None:
        metadata, spec = recurrence.metadata, recurrence.spec
        self.api.delete(TRAINING_RECURRENCES, metadata.namespace, metadata.name, metadata.uid)
        self.store.pod_energies.delete_attempt(spec.job_ref.uid, spec.index, spec.attempt)
        self.store.pipelines.delete_attempt(spec.job_ref.uid, spec.index, spec.attempt)
        self.store.attempt_progress.delete(recurrence)
        self.cache.recurrences.remove((metadata.namespace, metadata.name), metadata.uid, before_event=True)
        # The action has an Event of its own. The watch may have reported the deletion before this line.
        self.cache.deleted_recurrences.discard(metadata.uid)

    def _before_deletion_event(self, snapshot: Snapshot, recurrence: TrainingRecurrence | None) -> None:
        """Make sure that the job is kept: the watch of its recurrences may report sooner that all is deleted."""
        job = snapshot.job
        metadata, current = job.metadata, self._read(job)
        found = {} if current is None else current["metadata"]
        if found.get("uid") != metadata.uid or found.get("deletionTimestamp"):
            raise StaleSnapshotError(f"{metadata.full_name} is deleted")
        if recurrence is not None:
            self.store.attempt_progress.delete(recurrence)
            self.cache.deleted_recurrences.discard(recurrence.metadata.uid)
        else:
            # Of attempts that were deleted while they were active, the names are known, and not the objects.
            existing = {each.metadata.name for each in snapshot.recurrences}
            self.store.attempt_progress.delete_named(history_uid(job), set(job.status.active) - existing)

    def _read(self, known: RecurringTrainingJob | TrainingRecurrence) -> Body | None:
        """Read an object into the cache; None if it does not exist."""
        cache, metadata = self.cache, known.metadata
        key = (metadata.namespace, metadata.name)
        is_job = isinstance(known, RecurringTrainingJob)
        current = self.api.find(RECURRING_TRAINING_JOBS if is_job else TRAINING_RECURRENCES, *key)
        if current is None:
            (cache.jobs if is_job else cache.recurrences).remove(key, metadata.uid, before_event=True)
        else:
            (cache.put_job if is_job else cache.put_recurrence)(current)
        return current

    def _refused(self, key: JobKey) -> RefusedObject | None:
        """The refused newest version of a job, after an Event that says why; None if there is none."""
        name = (key.namespace, key.name)
        refused = self.cache.jobs.refused(name)
        if refused is not None and self.cache.has_room_for(name, refused):
            self.cache.jobs.forget_refused(name)
            body = self.api.find(RECURRING_TRAINING_JOBS, *name)
            if body is not None:
                self.cache.put_job(body)
            refused = self.cache.jobs.refused(name)
        if refused is not None:
            metadata = ObjectMeta(name=key.name, namespace=key.namespace, uid=refused.uid)
            job = EventSubject(RECURRING_TRAINING_JOBS.api_version, RECURRING_TRAINING_JOBS.kind, metadata)
            self.announce(job, EmitEvent(True, REASON, refused.problem))
        return refused

    def _has_unread_recurrence(self, job: CachedObject[RecurringTrainingJob]) -> bool:
        """Whether a recurrence of a job cannot be read, after an Event that says so: it may run, or have its result."""
        refused = self.cache.recurrences.refused_of_group(job.key)
        for (namespace, name), each in refused.items():
            text = f"TrainingRecurrence {namespace}/{name}: {each.problem}; until then nothing is done for this job"
            self.announce(job.value, EmitEvent(True, UNREAD_RECURRENCE, text))
        return bool(refused)

    def announce(self, about: RecurringTrainingJob | TrainingRecurrence | EventSubject, event: EmitEvent) -> None:
        """Create an Event about an object; a failure is only logged, because nothing depends on Events."""
        try:
            self.api.create(EVENTS, event_body(about, event, self.reporter, self.clock()))
        except AlreadyExistsError:
            return
        except (OperationError, RejectedError, NotFoundError) as error:
            logger.warning("%s: an Event was not created (%s): %s", about.metadata.full_name, event.reason, error)
