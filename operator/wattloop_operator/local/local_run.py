"""One local run put together: folder, store, GPUs, agent, reporting API, engine, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wattloop import interruption
from wattloop.agent_process import running_agent
from wattloop.errors import OperationError
from wattloop.files.atomic_write import open_atomic
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of, write_csv
from wattloop_operator.local.backend import LocalBackend
from wattloop_operator.local.gpus import Simulation, gpu_count, simulated
from wattloop_operator.local.job_file import made_local
from wattloop_operator.local.output_folder import OutputFolder, lock_job
from wattloop_operator.local.recurrence_store import LocalProgressStore
from wattloop_operator.local.report_server import LocalTokens, running_report_server
from wattloop_operator.local.runner import Runner
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.plots import write_plots
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reporting.limits import LOCAL_RATES, ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.store import Store, open_store
from wattloop_operator.workloads.injection import RunAddresses


@dataclass(frozen=True)
class LocalRun:
    """What is to be run, and where.

    Attributes:
        source: The manifest.
        job: The job in it.
        output: The output folder.
        database: URL of the store; None: a SQLite file in the output folder.
        recurrences: Run this many, one after another, in place of the schedule; None: by the schedule.
        simulation: The GPUs to simulate; None: this machine's own.
        seed: Changes every random draw.
    """

    source: Path
    job: RecurringTrainingJob
    output: Path
    database: str | None = None
    recurrences: int | None = None
    simulation: Simulation | None = None
    seed: int = 0

    def owner(self) -> dict[str, object]:
        """What an output folder belongs to: another value of one of these would mix two histories."""
        simulation = self.simulation
        return {
            "job": self.job.metadata.name,
            "seed": self.seed,
            "gpus": "this machine's" if simulation is None else f"{simulation.count} simulated {simulation.model}",
        }

    def carry_out(self, show: Callable[[Snapshot], None]) -> Snapshot:
        """Run until all recurrences are done; what has been done is kept, however this ends.

        Args:
            show: Called with the state after each change.

        Raises:
            UsageError: The output folder is another job's.
            OperationError: Something could not be done; the same run again goes on from there.
            wattloop.interruption.Interrupted: The program was asked to end; the same run again goes on from there.
        """
        with interruption.deferred(), contextlib.ExitStack() as stack:
            folder = stack.enter_context(OutputFolder.held(self.output, self.owner()))
            store = stack.enter_context(open_store(self.database or folder.database))
            interruption.raise_if_requested()
            job = made_local(self.job, self.seed, self.recurrences, datetime.now(UTC))
            if self.database is not None:
                lock_job(store.objects, job, folder.path)
            happened = threading.Event()
            backend = self._backend(stack, folder, store, happened)
            backend.ensure_job(job)
            key = JobKey(job.metadata.namespace, job.metadata.name)
            # In this order at the end: processes, results, then what both need.
            stack.callback(self._leave_results, backend, key, folder)
            stack.callback(backend.end_all)
            with interruption.wake_on_request(happened.set):
                return Runner(backend, key, happened, show).run()

    def _backend(
        self, stack: contextlib.ExitStack, folder: OutputFolder, store: Store, happened: threading.Event
    ) -> LocalBackend:
        environment: dict[str, str] = {}
        if self.simulation is not None:
            environment = simulated(self.simulation, folder.gpus_state)
        # Its folder is in the system's folder for temporary files: a socket's path has at most 107 characters.
        watchdog = stack.enter_context(Watchdog())
        socket = watchdog.folder / "agent.sock"
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

        def review(recurrence: TrainingRecurrence, progress: Progress) -> Progress:
            key = JobKey(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
            return review_cost_limit(lambda: backend.look(key), recurrence, progress)

        limits = ReportLimits(time.monotonic, LOCAL_RATES)
        service = ReportService(LocalProgressStore(store.objects, happened.set), tokens, review, limits=limits)
        url = stack.enter_context(running_report_server(service))
        backend = LocalBackend(
            store,
            source=self.source.absolute(),
            logs=folder.logs,
            addresses=RunAddresses(report_url=url, agent_socket=str(socket)),
            tokens=tokens,
            gpu_environment=environment,
            devices=gpu_count(socket) if self.simulation is None else self.simulation.count,
            watchdog=watchdog,
            wake=happened.set,
        )
        return backend

    def _leave_results(self, backend: LocalBackend, key: JobKey, folder: OutputFolder) -> None:
        """Write the table and the pictures, also of a run that was interrupted."""
        snapshot = backend.snapshot(key)
        if snapshot is None:
            raise OperationError(f"{key} is gone from the database; there are no results to write")
        history = JobHistory.of_snapshot(snapshot)
        with open_atomic(folder.recurrences) as stream:
            write_csv(stream, rows_of(history))
        if history.records:
            write_plots(folder.path, history)
