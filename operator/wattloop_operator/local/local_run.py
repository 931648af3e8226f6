"""Sets up a local run, runs the job, and writes the results.

A run consists of an output folder, store, GPUs, agent, reporting API and backend.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from wattloop import interruption, threads
from wattloop.errors import OperationError
from wattloop.files.atomic_write import open_atomic
from wattloop.gpus.agent_process import running_agent
from wattloop.gpus.process_gpus import CUDA_VARIABLE, GPUS_VARIABLE
from wattloop.run import held_gpus
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import ANNOTATION as TARIFF
from wattloop_operator.domain.tariff import Tariffs
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import Backend, reconcile
from wattloop_operator.history.energy_origin import ANNOTATION, EnergyOrigin
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of, write_csv
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.local.display import EndedSince, each_warning_once
from wattloop_operator.local.job_file import NAMESPACE, local_job, without_power_limits
from wattloop_operator.local.local_backend import LocalBackend
from wattloop_operator.local.local_gpus import Simulation, given_gpus, running_load, simulate_gpus
from wattloop_operator.local.output_folder import OutputFolder, lock_job
from wattloop_operator.local.processor_agent import LocalProcessorMeter, running_processor_agent
from wattloop_operator.local.report_server import LocalTokens, local_progress, report_address
from wattloop_operator.local.run_clock import now
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.plots import write_plots
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reconcile.job.job_conditions import READY, transfer_problem
from wattloop_operator.reconcile.job.start import ALL_STARTED, MISTAKE
from wattloop_operator.reconcile.pipeline.job_plan import job_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey
from wattloop_operator.reconcile.pipeline.saving import pipeline_summary
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.plan_worker import planned_in_process
from wattloop_operator.reporting.report_limits import LOCAL_RATES, ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.pipeline_store import Pipelines
from wattloop_operator.store.store import Store, open_store
from wattloop_operator.workloads.injection import RunAddresses
from wattloop_operator.workloads.workload_manifest import devices_of

# A change of the clock, the end of a suspend, or that of a thread is noticed within this time.
MAX_SLEEP_SECONDS = 5.0
# Reasons for Ready to be False although everything that was to start has started.
DONE_REASONS = frozenset({ALL_STARTED, *Result})
# Reasons with which a job waits for its user to correct a mistake.
MISTAKES = {
    Result.START_FAILED.value: "the training fails at its start",
    Result.SCRIPT_ERROR.value: "the training's script has an error",
    Result.MISSING_METRIC.value: "the training reports nothing",
}


@dataclass(eq=False)
class Runner:
    """Runs one job until all its recurrences are done.

    Attributes:
        wake_event: Set when a process has ended, a report has arrived, or the program is asked to
            end.
        show: Called with the state at the start and after each change.
        clock: Returns the time, with a time zone.
    """

    backend: Backend
    key: JobKey
    wake_event: threading.Event
    show: Callable[[Snapshot], None]
    clock: Callable[[], datetime] = now

    def run(self) -> Snapshot:
        """Run until nothing is active and nothing more will start.

        Raises:
            OperationError: The database failed, or no further recurrence can start.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        self._show_snapshot()
        while True:
            self.wake_event.clear()
            wake_at = reconcile(self.backend, self.key, self.clock)
            snapshot = self._show_snapshot()
            status = snapshot.job.status
            if not status.active and (wake_at is None or _mistake(snapshot)):
                self._check_done(snapshot)
                return snapshot
            interruption.raise_if_requested()
            while not self.wake_event.wait(self._sleep_seconds(wake_at)):
                if problem := threads.problem():
                    raise OperationError(f"{problem}; the same command continues the run")
                if wake_at is not None and wake_at <= self.clock():
                    break

    def _show_snapshot(self) -> Snapshot:
        snapshot = self.backend.snapshot(self.key)
        if snapshot is None:
            raise OperationError(f"{self.key} no longer exists in the database")
        self.show(snapshot)
        return snapshot

    def _sleep_seconds(self, wake_at: datetime | None) -> float:
        if wake_at is None:
            return MAX_SLEEP_SECONDS
        return min(max((wake_at - self.clock()).total_seconds(), 0.0), MAX_SLEEP_SECONDS)

    @staticmethod
    def _check_done(snapshot: Snapshot) -> None:
        mistake = _mistake(snapshot)
        if mistake:
            text = f"{mistake} (see above); fix it, then run the same command again"
            raise OperationError(f"{snapshot.job.metadata.name}: {text}")
        ready = _ready(snapshot)
        if ready is not None and ready.status is not ConditionStatus.TRUE and ready.reason not in DONE_REASONS:
            raise OperationError(f"{snapshot.job.metadata.name}: {ready.reason}: {ready.message}")


def _ready(snapshot: Snapshot) -> Condition | None:
    return next((each for each in snapshot.job.status.conditions if each.type == READY), None)


def _mistake(snapshot: Snapshot) -> str:
    """The mistake after which the job waits, empty for none: on this machine its user corrects it meanwhile."""
    ready = _ready(snapshot)
    if ready is None or ready.status is not ConditionStatus.FALSE or not ready.message.startswith(MISTAKE):
        return ""
    return MISTAKES.get(ready.reason, "")


@dataclass(frozen=True)
class StartedRun:
    """What a run uses while it lasts.

    Attributes:
        folder: The locked output folder.
        backend: This machine.
        wake_event: Set when something has happened, and when the program is asked to end.
        pipelines: The pipelines of the attempts.
    """

    folder: OutputFolder
    backend: LocalBackend
    key: JobKey
    wake_event: threading.Event
    pipelines: Pipelines

    def history(self) -> JobHistory:
        """The history of the job.

        Raises:
            OperationError: It no longer exists, or the database failed.
        """
        snapshot = self.backend.snapshot(self.key)
        if snapshot is None:
            raise OperationError(f"{self.key} no longer exists in the database; there are no results to write")
        return JobHistory.of_snapshot(snapshot)

    @contextlib.contextmanager
    def ending(self, write_results: Callable[[StartedRun], object]) -> Iterator[None]:
        """End the trainings and write the results after a block, however it ends."""
        with contextlib.ExitStack() as stack:
            # The results are written while interrupted trainings save what they have: what follows the grace
            # period must be short, and no attempt gets its outcome in it.
            stack.callback(self.backend.end_all)
            stack.callback(write_results, self)
            stack.callback(self.backend.interrupt_all)
            yield


@dataclass(frozen=True)
class LocalRun:
    """A run of one job on this machine.

    Attributes:
        job: The job in it.
        output: The output folder.
        database: URL of the store; None for a SQLite file in the output folder.
        recurrences: Run this many, one after another, instead of the schedule; None to follow the
            schedule.
        simulation: The GPUs to simulate; None for this machine's own.
        processors: The processors to measure, on a machine without a GPU; None: GPUs are measured.
        seed: Seed of every random draw.
        tariffs: The tariffs, which are remembered with the folder; None: the remembered ones.
        command: What the output folder is for; a folder of another command is refused.
        draws_plots: Whether the results have plots.
        print_line: Prints a line on the pipeline of an ended attempt, or on a job that nothing is learned from.
        show_reading: Called with the first evaluation that is read from each training's output, and its line.
    """

    source: Path
    job: RecurringTrainingJob
    output: Path
    database: str | None = None
    recurrences: int | None = None
    simulation: Simulation | None = None
    processors: LocalProcessorMeter | None = None
    seed: int = 0
    tariffs: Tariffs | None = None
    command: str = "run"
    draws_plots: bool = True
    print_line: Callable[[str], None] = lambda _: None
    show_reading: Callable[[str], None] = lambda _: None

    def owner(self) -> dict[str, object]:
        """The settings that an output folder belongs to.

        A change of one of them would mix two histories.
        """
        simulation = self.simulation
        return {
            "command": self.command,
            "job": self.job.metadata.name,
            "seed": self.seed,
            "gpus": self._gpus(),
            "load": None if simulation is None or simulation.load is None else str(simulation.load),
        }

    def carry_out(self, show: Callable[[Snapshot], None]) -> Snapshot:
        """Run until all recurrences are done. The progress is kept however the run ends.

        Args:
            show: Called with the state after each change.

        Raises:
            UsageError: The output folder belongs to another job.
            OperationError: An operation failed. The same run, started again, resumes from there.
            wattloop.interruption.Interrupted: The program was asked to end. The same run, started
                again, resumes from there.
        """
        with self.started() as started:
            ended_since = EndedSince()
            snapshot = started.backend.read(started.key)
            if snapshot is not None and (problem := transfer_problem(snapshot)):
                # The URL of a database may contain a password.
                self.print_line(f"{problem}; both jobs must have run with the same --database")

            def show_all(snapshot: Snapshot) -> None:
                show(snapshot)
                for spec in (each.spec for each in ended_since(snapshot)):
                    key = PipelineKey(snapshot.job.metadata.uid, spec.index, spec.attempt)
                    state = started.pipelines.read_without_measurements(key)
                    if state is not None:
                        self.print_line(f"run {spec.index}, try {spec.attempt}: {pipeline_summary(state)}")

            with started.ending(self._write_results):
                return Runner(started.backend, started.key, started.wake_event, show_all).run()

    @contextlib.contextmanager
    def started(self) -> Iterator[StartedRun]:
        """Lock the output folder and start what trainings need; both until the block ends.

        A request to end the program only wakes the run meanwhile.

        Raises:
            UsageError: The output folder belongs to another job or command.
            OperationError: Something could not be started.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        with interruption.deferred(), contextlib.ExitStack() as stack:
            folder = stack.enter_context(OutputFolder.locked(self.output, self.owner()))
            if advice := folder.readers_advice():
                self.print_line(advice)
            stack.enter_context(each_warning_once(held_gpus.logger))
            store = stack.enter_context(open_store(self.database or folder.database))
            interruption.raise_if_requested()
            annotations = {ANNOTATION: self._energy_origin().value}
            if self.tariffs is not None:
                namespace = self.job.metadata.namespace or NAMESPACE
                annotations[TARIFF] = self.tariffs.of(namespace).to_annotation()
            source = self.job if self.processors is None else without_power_limits(self.job)
            job = local_job(source, self.seed, self.recurrences, now(), annotations)
            if self.database is not None:
                lock_job(store.objects, job, folder.path)
            wake_event = threading.Event()
            backend = self._backend(stack, folder, store, wake_event)
            backend.ensure_job(job)
            key = JobKey(job.metadata.namespace, job.metadata.name)
            with interruption.wake_on_request(wake_event.set):
                yield StartedRun(folder, backend, key, wake_event, store.pipelines)

    def _gpus(self) -> str:
        if self.processors is not None:
            return "none"
        simulation = self.simulation
        return "this machine's" if simulation is None else f"{simulation.count} simulated {simulation.model}"

    def _energy_origin(self) -> EnergyOrigin:
        if self.processors is not None:
            return EnergyOrigin.PROCESSOR if self.processors.is_readable else EnergyOrigin.UNKNOWN
        if self.simulation is None:
            return EnergyOrigin.GPU
        return EnergyOrigin.SIMULATED if self.simulation.load is None else EnergyOrigin.SIMULATED_LOAD

    def _backend(
        self, stack: contextlib.ExitStack, folder: OutputFolder, store: Store, wake_event: threading.Event
    ) -> LocalBackend:
        environment: dict[str, str] = {}
        follow: Callable[[int], None] | None = None
        if self.simulation is not None:
            environment = simulate_gpus(self.simulation, folder.gpus_state)
            if self.simulation.load is not None:
                follow = stack.enter_context(running_load(self.simulation.load, folder.gpus_state))
        # Its folder has the sockets, whose paths would be too long in most output folders.
        watchdog = stack.enter_context(Watchdog())
        socket = watchdog.folder / "agent.sock"
        if self.processors is not None:
            stack.enter_context(running_processor_agent(socket, self.processors))
        else:
            stack.enter_context(
                running_agent(
                    socket,
                    folder.agent_state,
                    environment={**os.environ, **environment},
                    log=folder.agent_log,
                    on_start=watchdog.await_agent,
                )
            )
        tokens = LocalTokens(watchdog.folder)

        def review(recurrence: TrainingAttempt, progress: Progress) -> Progress:
            key = JobKey(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
            return review_cost_limit(lambda: backend.read(key), recurrence, progress)

        limits = ReportLimits(time.monotonic, LOCAL_RATES)
        recurrences = local_progress(store, wake_event.set)
        service = ReportService(recurrences, tokens, review, limits=limits, utc_now=now)
        commits = PipelineCommits(store.pipelines, now)
        # The manifest's job: the stored one differs in its identity and its starts alone.
        pipelines = PipelineService(
            recurrences, tokens, commits, limits, plan_of=lambda recurrence: job_plan(self.job, recurrence, None)
        )
        planner = PipelinePlanner(store.pipelines, planned_in_process, pipelines.read_state, now)
        address = report_address(self.job.spec.reporting.source, watchdog.folder)
        app = create_app(service, pipelines=pipelines)
        server = stack.enter_context(HttpService("reporting API", app, address, background=[commits, planner]))
        gpus = self._given_gpus(socket, environment)
        backend = LocalBackend(
            store,
            source=self.source.absolute(),
            logs=folder.logs,
            addresses=RunAddresses(report_url=server.url, agent_socket=str(socket), models=str(folder.models)),
            tokens=tokens,
            gpu_environment=environment,
            devices=len(gpus),
            watchdog=watchdog,
            wake=wake_event.set,
            observe=service.observe,
            on_start=follow,
            show_reading=self.show_reading,
            recurrences_option="" if self.recurrences in (None, self.job.spec.max_recurrences) else "--recurrences",
        )
        return backend

    def _given_gpus(self, socket: Path, environment: dict[str, str]) -> tuple[str, ...]:
        """The GPUs of the trainings, whose environment names them."""
        # CUDA_VISIBLE_DEVICES numbers this machine's own GPUs alone.
        if self.simulation is not None or self.processors is not None:
            gpus = given_gpus(socket, {})
            environment[GPUS_VARIABLE] = ",".join(gpus)
            return gpus
        requested = devices_of(self.job)
        gpus = given_gpus(socket, os.environ)
        if 0 < requested < len(gpus) and CUDA_VARIABLE not in os.environ:
            gpus = gpus[:requested]
            environment[CUDA_VARIABLE] = ",".join(gpus)
        if requested not in (0, len(gpus)):
            self.print_line(f"the manifest requests {requested} GPUs, but the trainings have {len(gpus)}")
        return gpus

    def _write_results(self, started: StartedRun) -> None:
        history = started.history()
        with open_atomic(started.folder.recurrences, is_private=True) as stream:
            write_csv(stream, rows_of(history))
        if history.records and self.draws_plots:
            write_plots(started.folder.path, history)
