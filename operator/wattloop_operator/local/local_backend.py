"""The backend of the local mode: objects in the store's database, workloads as processes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from wattloop import interruption
from wattloop.commands.main import users_environment
from wattloop.errors import InputError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Failure, PolicyCache, Snapshot, SteadyClock, WorkloadPhase, WorkloadState
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.local.command import command_of, missing_module_text
from wattloop_operator.local.final_energy import FinalEnergy
from wattloop_operator.local.job_file import without_secrets
from wattloop_operator.local.output_folder import require_space
from wattloop_operator.local.output_follower import OutputFollower
from wattloop_operator.local.processes import GRACE_SECONDS, ProcessStartError, TrainingProcess, last_output
from wattloop_operator.local.report_server import RECURRENCE, LocalTokens
from wattloop_operator.local.run_clock import now
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan
from wattloop_operator.reporting.interfaces import Observe
from wattloop_operator.store.objects import ObjectConflictError, ObjectExistsError, ObjectMissingError
from wattloop_operator.store.store import Store
from wattloop_operator.store.store_cache import StoreCache
from wattloop_operator.workloads.container_status import MAX_OUTPUT_CHARACTERS, killed_ranks_in
from wattloop_operator.workloads.injection import RunAddresses, run_variables

logger = logging.getLogger(__name__)

JOB = "RecurringTrainingJob"
WORKLOAD = "Workload"
# Of the output of a failed process: a traceback behind that of its launcher.
MAX_STORED_CHARACTERS = 8 * 1024
# A training that ends within this time after a signal needs no notice.
NOTICE_SECONDS = 1.0
# After SIGTERM and SIGHUP: `docker stop` kills the run after 10 s, and releasing the GPUs takes some of them.
SERVICE_GRACE_SECONDS = 6.0
DISRUPTING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(eq=False)
class LocalBackend:
    """Runs one job on this machine.

    Attributes:
        source: The manifest; processes run in its folder.
        logs: Folder for the processes' outputs.
        addresses: Addresses of the reporting API and the agent, for training processes.
        tokens: Creates the token of each attempt.
        gpu_environment: Environment variables with which training processes find the GPUs.
        devices: GPUs that share the batch.
        watchdog: Ends processes that outlive this program.
        wake: Called, from any thread, when a process has ended.
        observe: Merges what is seen of a training from outside.
        on_start: Called with the id of each training process that was started; None: nothing is done.
        show_reading: See `OutputFollower`; called for each training.
        recurrences_option: See `Snapshot`.
    """

    store: Store
    _: KW_ONLY
    source: Path
    logs: Path
    addresses: RunAddresses
    tokens: LocalTokens
    gpu_environment: dict[str, str]
    devices: int
    watchdog: Watchdog
    wake: Callable[[], None]
    observe: Observe
    on_start: Callable[[int], None] | None = None
    show_reading: Callable[[str], None] = lambda _: None
    recurrences_option: str = ""

    def __post_init__(self) -> None:
        # As the manifest has them: the stored ones lack their secret variables.
        self._given_jobs: dict[str, RecurringTrainingJob] = {}
        self._final_energy = FinalEnergy(self.addresses.agent_socket, self.observe)
        self._store_cache = StoreCache(self.store)
        self._policies = PolicyCache()
        self._steady_clock = SteadyClock(now, time.monotonic)
        # Processes by namespace and name of their recurrence, until their end is stored.
        self._processes: dict[tuple[str, str], TrainingProcess] = {}
        # Of attempts that do not use the client.
        self._followers: dict[tuple[str, str], OutputFollower] = {}

    def snapshot(self, key: JobKey) -> Snapshot | None:
        """See `Backend`."""
        self._store_ended()
        return self.read(key)

    def read(self, key: JobKey) -> Snapshot | None:
        """The state of one job, without storing ended processes. Safe for any thread."""
        stored = self.store.objects.get(JOB, key.namespace, key.name)
        if stored is None:
            return None
        job = stored.read_as(RecurringTrainingJob)
        listed = (each.read_as(TrainingRecurrence) for each in self.store.objects.list(RECURRENCE, key.namespace))
        own = [each for each in listed if each.spec.job_ref.uid == job.metadata.uid]
        learn_from = job.spec.batch_size.learn_from
        source = self.store.objects.get(JOB, key.namespace, learn_from) if learn_from else None
        outcomes = self._store_cache.of_job(job.metadata.uid)
        return Snapshot(
            job=job,
            recurrences=tuple(self._with_plan(each) for each in self.store.attempt_progress.attempts(own)),
            workloads={
                each.name: self._workload(each.namespace, each.name, each.body)
                for each in self.store.objects.list(WORKLOAD, key.namespace)
            },
            records=outcomes.records,
            profiles=outcomes.profiles,
            late_usages=outcomes.late_usages,
            source_records=self._store_cache.source_records(key.namespace, learn_from) if learn_from else (),
            source_job=None if source is None else source.read_as(RecurringTrainingJob),
            devices=self.devices,
            observed_since=self._steady_clock.since(),
            measures_limits_by_output=True,
            reads_files=True,
            recurrences_option=self.recurrences_option,
            tariff=Tariff.of_local_job(job),
            policies=self._policies,
        )

    def carry_out(self, snapshot: Snapshot, action: actions.Action) -> None:
        """See `Backend`."""
        match action:
            case actions.RecordObservation() | actions.RecordLateUsage() | actions.RecordProfile():
                self._store_cache.record(action)
            case actions.CreateRecurrence(recurrence, inputs):
                if inputs is not None:
                    self.store.decisions.record(inputs)
                # An API server would assign uid and creation time.
                update = {"uid": recurrence.metadata.name, "creation_timestamp": now()}
                metadata = recurrence.metadata.model_copy(update=update)
                body = recurrence.model_copy(update={"metadata": metadata}).to_wire()
                # It may exist already.
                with contextlib.suppress(ObjectExistsError):
                    self.store.objects.create(RECURRENCE, metadata.namespace, metadata.name, body)
            case actions.StartWorkload(recurrence):
                self._start(snapshot.job, recurrence)
            case actions.EndWorkload(recurrence, gracefully):
                process = self._processes.get((recurrence.metadata.namespace, recurrence.metadata.name))
                if process is not None:
                    (process.terminate if gracefully else process.end)()
            case actions.WriteRecurrenceStatus(recurrence, status):
                self._write_recurrence_status(recurrence, status)
            case actions.DeleteRecurrence(recurrence):
                self._delete(recurrence)
            case actions.WriteJobStatus(status):
                self._write_job(snapshot.job.model_copy(update={"status": status}))
            case actions.EmitEvent(warning, reason, message):
                logger.log(logging.WARNING if warning else logging.INFO, "%s: %s", reason, message)

    def ensure_job(self, job: RecurringTrainingJob) -> None:
        """Create or update the stored job, without its secret variables.

        Its status is kept, and annotations that are not given again; a changed spec is a new generation.
        """
        self._given_jobs[job.metadata.uid] = job
        job, metadata = without_secrets(job), job.metadata
        stored = self.store.objects.get(JOB, metadata.namespace, metadata.name)
        if stored is None:
            self.store.objects.create(JOB, metadata.namespace, metadata.name, job.to_wire())
            return
        before = stored.read_as(RecurringTrainingJob)
        annotations = {**before.metadata.annotations, **metadata.annotations}
        if before.spec != job.spec or before.metadata.annotations != annotations:
            generation = (before.metadata.generation or 0) + (1 if before.spec != job.spec else 0)
            update = {"generation": generation, "annotations": annotations}
            self._write_job(
                before.model_copy(update={"spec": job.spec, "metadata": before.metadata.model_copy(update=update)})
            )

    def interrupt_all(self) -> None:
        """Pass the signal by which the run was asked to end on to every process; without one, kill them at once."""
        running = [process for process in self._processes.values() if process.exit_code is None]
        number = interruption.requesting_signal()
        if number is None:
            for process in running:
                process.end()
            return
        is_by_person = number == signal.SIGINT
        grace_seconds = GRACE_SECONDS if is_by_person else SERVICE_GRACE_SECONDS
        began_at = time.monotonic()
        for process in running:
            # A terminal that closes takes SIGHUP to its own processes; a training knows SIGTERM from its cluster.
            process.interrupt(signal.SIGINT if is_by_person else signal.SIGTERM, grace_seconds)
        for process in running:
            process.wait_until(began_at + NOTICE_SECONDS)
        if any(process.exit_code is None for process in running):
            text = "the training has %.0f s to end after the signal; a second signal ends it at once"
            logger.warning(text, grace_seconds)

    def end_all(self) -> None:
        """End every process that still runs, and store how each ended.

        Interrupted ones have the rest of their grace period. Their attempts count as disrupted, whatever the processes
        do at the signal, unless they report until then that they reached the target.

        Raises:
            OperationError: See `_store_ended`. Every process has ended all the same.
        """
        for process in self._processes.values():
            process.wait_until(process.grace_end)
            if process.exit_code is None:
                process.end()
        try:
            self._store_ended()
        finally:
            for follower in self._followers.values():
                follower.finish(succeeded=False)

    def _write_recurrence_status(self, recurrence: TrainingAttempt, status: TrainingRecurrenceStatus) -> None:
        process = self._processes.get((recurrence.metadata.namespace, recurrence.metadata.name))
        if status.result is not None and process is not None and process.exit_code is None:
            # New energy makes the snapshot stale, and the outcome is computed again with it.
            self._final_energy.report_before_outcome(recurrence)
        if status.result is not None and recurrence.status.result is None and recurrence.outcome is None:
            self.store.attempt_progress.decide(recurrence, status, now())
        metadata, version = recurrence.metadata, int(recurrence.metadata.resource_version or 0)
        body = recurrence.model_copy(update={"status": status}).to_wire()
        try:
            self.store.objects.replace(RECURRENCE, metadata.namespace, metadata.name, body, expected_version=version)
        except (ObjectConflictError, ObjectMissingError) as error:
            raise StaleSnapshotError(str(error)) from error

    def _start(self, job: RecurringTrainingJob, recurrence: TrainingAttempt) -> None:
        namespace, name = recurrence.metadata.namespace, recurrence.metadata.name
        addresses = RunAddresses(models=self.addresses.models)
        if recurrence.spec.reporting.sends_reports:
            addresses = replace(self.addresses, token_file=str(self.tokens.create_file(namespace, name)))
        if not recurrence.spec.reporting.uses_client:
            addresses = replace(addresses, agent_socket="")
        injected = run_variables(job, recurrence, addresses, self.devices)
        command = command_of(self._given_jobs.get(job.metadata.uid, job), injected, str(self.source))
        environment = {**users_environment(), **self.gpu_environment, **injected, **command.environment}
        # The script uses the same Python, with the same packages, as this program.
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
        # Stored before it starts. If this program is killed in between, the attempt counts as
        # disrupted.
        try:
            self.store.objects.create(WORKLOAD, namespace, name, {})
        except ObjectExistsError:
            return
        log = self.logs / f"{name}.log"
        if not recurrence.spec.reporting.uses_client:
            follower = OutputFollower(
                recurrence,
                job.spec.power,
                output=log,
                folder=self.source.parent,
                agent_socket=self.addresses.agent_socket,
                variables=environment,
                observe=self.observe,
                show_reading=self.show_reading,
            )
            self._followers[namespace, name] = follower
            follower.begin()
        try:
            self._processes[namespace, name] = TrainingProcess(
                command.arguments,
                environment=environment,
                folder=self.source.parent,
                log=log,
                watchdog=self.watchdog,
                on_end=self.wake,
            )
        except ProcessStartError as error:
            self._finish_following(namespace, name, succeeded=False)
            self.store.objects.delete(WORKLOAD, namespace, name)
            self.store.objects.create(WORKLOAD, namespace, name, _ended_body(Failure.NOT_STARTED, str(error)))
            return
        if self.on_start is not None:
            self.on_start(self._processes[namespace, name].pid)

    def _store_ended(self) -> None:
        """Store how processes ended, so that a later run resumes from there."""
        for (namespace, name), process in list(self._processes.items()):
            if process.exit_code is None:
                continue
            if process.exit_code:
                require_space(self.logs)
            # The last lines and the last energy come before the outcome.
            self._finish_following(namespace, name, succeeded=process.exit_code == 0 and not process.ended_by_run)
            stored = self.store.objects.get(RECURRENCE, namespace, name)
            if stored is not None:
                (recurrence,) = self.store.attempt_progress.attempts([stored.read_as(TrainingRecurrence)])
                if process.exit_code or not recurrence.progress.finished:
                    self._final_energy.report(recurrence)
            stored = self.store.objects.get(WORKLOAD, namespace, name)
            if stored is not None:
                body = _process_body(process, self.logs / f"{name}.log")
                version = stored.resource_version
                self.store.objects.replace(WORKLOAD, namespace, name, body, expected_version=version)
            del self._processes[namespace, name]

    def _with_plan(self, recurrence: TrainingAttempt) -> TrainingAttempt:
        """The recurrence with what its pipeline does; it is stored with the outcome."""
        spec, status = recurrence.spec, recurrence.status
        if status.result is not None:
            return recurrence
        state = self.store.pipelines.read_without_measurements(PipelineKey(spec.job_ref.uid, spec.index, spec.attempt))
        if state is None or not state.ranks:
            return recurrence
        status = status.model_copy(update={"frequency_plan": applied_plan(state, "")})
        return recurrence.model_copy(update={"status": status})

    def _finish_following(self, namespace: str, name: str, *, succeeded: bool) -> None:
        follower = self._followers.pop((namespace, name), None)
        if follower is not None:
            follower.finish(succeeded=succeeded)

    def _workload(self, namespace: str, name: str, body: dict[str, Any]) -> WorkloadState:
        process, state = self._processes.get((namespace, name)), WorkloadState(name, "v1", "Process")
        if body:
            try:
                return _ended_workload(state, body)
            except (KeyError, TypeError, ValueError) as error:
                subject = f"{WORKLOAD} {namespace}/{name}"
                raise InputError(subject, f"a body without a valid {error}", "how a process ended") from error
        if process is None:
            text = "wattloop run ended while it was running"
            return replace(state, phase=WorkloadPhase.FAILED, failure=Failure.DISRUPTED, message=text)
        return replace(
            state,
            phase=WorkloadPhase.RUNNING,
            started_at=process.started_at,
            all_running_since=process.started_at,
            terminating=process.terminating,
        )

    def _delete(self, recurrence: TrainingAttempt) -> None:
        namespace, name = recurrence.metadata.namespace, recurrence.metadata.name
        self.store.attempt_progress.delete(recurrence)
        for kind in (WORKLOAD, RECURRENCE):
            with contextlib.suppress(ObjectMissingError):
                self.store.objects.delete(kind, namespace, name)

    def _write_job(self, job: RecurringTrainingJob) -> None:
        key = (job.metadata.namespace, job.metadata.name)
        stored = self.store.objects.get(JOB, *key)
        if stored is None:
            raise StaleSnapshotError(f"{job.metadata.full_name} no longer exists")
        self.store.objects.replace(JOB, *key, job.to_wire(), expected_version=stored.resource_version)


def _ended_workload(state: WorkloadState, body: dict[str, Any]) -> WorkloadState:
    return replace(
        state,
        phase=WorkloadPhase(body["phase"]),
        started_at=datetime.fromisoformat(body["startedAt"]),
        ended_at=datetime.fromisoformat(body["endedAt"]),
        failure=Failure(body["failure"]) if body["failure"] else None,
        message=str(body["message"]),
        exit_code=None if body.get("exitCode") is None else int(body["exitCode"]),
        output=str(body.get("output", "")),
        log=str(body.get("log", "")),
        killed_ranks=tuple(map(int, body.get("killedRanks", ()))),
    )


def _process_body(process: TrainingProcess, log: Path) -> dict[str, Any]:
    code, output = process.exit_code, last_output(log, MAX_OUTPUT_CHARACTERS)
    printed = {"output": output[-MAX_STORED_CHARACTERS:], "log": str(log)}
    if code == 0 and not process.interrupted:
        return _ended_body(None, "", process) | printed
    if process.ended_by_run or (code is not None and -code in DISRUPTING_SIGNALS):
        return _ended_body(Failure.DISRUPTED, "its process was ended from outside", process)
    how = f"exit code {code}" if code is None or code > 0 else f"killed by signal {signal.Signals(-code).name}"
    how = "; ".join(filter(None, (how, missing_module_text(printed["output"], process.python))))
    killed_ranks = list(killed_ranks_in(output))
    return _ended_body(Failure.CRASHED, how, process) | printed | {"exitCode": code, "killedRanks": killed_ranks}


def _ended_body(failure: Failure | None, message: str, process: TrainingProcess | None = None) -> dict[str, Any]:
    seen = now()
    started = seen if process is None else process.started_at
    ended = seen if process is None else process.ended_at or seen
    return {
        "phase": (WorkloadPhase.SUCCEEDED if failure is None else WorkloadPhase.FAILED).value,
        "startedAt": started.isoformat(),
        "endedAt": ended.isoformat(),
        "failure": None if failure is None else failure.value,
        "message": message,
    }
