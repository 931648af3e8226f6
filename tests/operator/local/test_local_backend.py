"""The local mode's backend, with real processes, behaves as every backend must."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.agents.agent_fixture import until
from support.backends.backend_contract import BackendContract, BackendHarness
from support.backends.model_backend import KEY, job
from support.backends.sample_reports import report
from support.pipelines.simulated_ranks import SimulatedOperator, exchange, ranks_of, run_until_planned
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.local.local_backend import LocalBackend
from wattloop_operator.local.local_run import StartedRun
from wattloop_operator.local.output_folder import OutputFolder
from wattloop_operator.local.report_server import LocalTokens, local_progress
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.learning.job_observations import record_of
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store, open_store
from wattloop_operator.workloads.injection import RunAddresses


def processes_of(name: str) -> int:
    """Number of child processes that run this recurrence."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    variable = f"WATTLOOP_RECURRENCE={name}".encode()
    return sum(variable in Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children)


def local_backend(store: Store, folder: Path, watchdog: Watchdog) -> LocalBackend:
    return LocalBackend(
        store,
        source=folder / "job.yaml",
        logs=folder,
        addresses=RunAddresses(),
        tokens=LocalTokens(folder),
        gpu_environment={},
        devices=1,
        watchdog=watchdog,
        wake=threading.Event().set,
        observe=ReportService(local_progress(store, lambda: None), LocalTokens(folder)).observe,
    )


def job_of(*command: str) -> RecurringTrainingJob:
    container = {"name": "train", "image": "none", "command": list(command)}
    return job(template={"spec": {"template": {"spec": {"containers": [container]}}}})


def script_at_signal(folder: Path, at_signal: str) -> None:
    script = f"trap '{at_signal}' INT TERM; touch begun; while :; do sleep 0.02; done"
    (folder / "train.sh").write_text(script)


def test_a_snapshot_contains_the_job_that_this_one_learns_from(tmp_path: Path) -> None:
    learns = job(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "source"})
    source = job()
    source = source.model_copy(update={"metadata": source.metadata.model_copy(update={"name": "source"})})
    with open_store(tmp_path / "wattloop.db") as store, Watchdog() as watchdog:
        backend = local_backend(store, tmp_path, watchdog)
        backend.ensure_job(learns)
        snapshot = backend.snapshot(KEY)
        assert snapshot.source_job is None
        backend.ensure_job(source)
        snapshot = backend.snapshot(KEY)
        assert snapshot.source_job.metadata.name == "source"


@dataclass(frozen=True)
class Interruption:
    """How a run ends, and what its training does.

    Attributes:
        number: The signal by which the run was asked to end; None if it ends by an error.
        at_signal: What the training's script does at a signal.
        saves: Whether the training saves what it has.
        runs: Whether it still runs when the results are written.
        command: The command that runs the script.
    """

    number: int | None
    at_signal: str
    saves: bool
    runs: bool = False
    command: str = "exec sh train.sh"


SAVES = "echo saved > saved; exit 0"
# The shell around it dies at once; make and sh -c do so, too.
SAVES_LATER, WRAPPED = f"sleep 0.2; {SAVES}", "sh train.sh; true"
INTERRUPTIONS = {
    "saves": Interruption(signal.SIGINT, SAVES, saves=True),
    "ignores": Interruption(signal.SIGTERM, "", saves=False, runs=True),
    "wrapped": Interruption(signal.SIGTERM, SAVES_LATER, saves=True, command=WRAPPED),
    "error": Interruption(None, SAVES, saves=False),
}


@pytest.mark.parametrize("case", INTERRUPTIONS.values(), ids=INTERRUPTIONS)
def test_a_training_may_save_what_it_has_at_an_interruption_which_disrupts_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Interruption
) -> None:
    for name in ("GRACE_SECONDS", "SERVICE_GRACE_SECONDS", "NOTICE_SECONDS"):
        monkeypatch.setattr(f"wattloop_operator.local.local_backend.{name}", 0.0 if case.runs else 20.0)
    monkeypatch.setattr("wattloop.interruption.requesting_signal", lambda: case.number)
    script_at_signal(tmp_path, case.at_signal)
    running: list[int] = []
    with open_store(tmp_path / "wattloop.db") as store, Watchdog() as watchdog:
        backend = local_backend(store, tmp_path, watchdog)
        backend.ensure_job(job_of("sh", "-c", case.command))
        harness = BackendHarness(backend, KEY, lambda _: None, processes_of)
        recurrence = harness.create()
        started = StartedRun(OutputFolder(tmp_path), backend, KEY, threading.Event(), store.pipelines)
        with started.ending(lambda _: running.append(processes_of(recurrence.metadata.name))):
            harness.do(actions.StartWorkload(recurrence))
            until((tmp_path / "begun").exists, "the training has begun")
        snapshot = backend.read(KEY)
    assert [each.failure for each in snapshot.workloads.values()] == [Failure.DISRUPTED]
    assert all(each.ended_at for each in snapshot.workloads.values()), "its end is stored"
    assert (tmp_path / "saved").exists() == case.saves
    assert running == [case.runs]


def test_a_wrapped_training_may_save_what_it_has_when_its_attempt_is_ended_gracefully(tmp_path: Path) -> None:
    script_at_signal(tmp_path, SAVES_LATER)
    with open_store(tmp_path / "wattloop.db") as store, Watchdog() as watchdog:
        backend = local_backend(store, tmp_path, watchdog)
        backend.ensure_job(job_of("sh", "-c", WRAPPED))
        harness = BackendHarness(backend, KEY, lambda _: None, processes_of)
        recurrence = harness.create()
        try:
            harness.do(actions.StartWorkload(recurrence))
            until((tmp_path / "begun").exists, "the training has begun")
            harness.do(actions.EndWorkload(recurrence, gracefully=True))
            until(lambda: harness.snapshot.workloads[recurrence.metadata.name].phase.ended, "it has ended")
        finally:
            backend.end_all()
    assert (tmp_path / "saved").exists()


def test_the_record_of_an_attempt_has_what_its_pipeline_planned_and_realised(tmp_path: Path) -> None:
    with open_store(tmp_path / "wattloop.db") as store, Watchdog() as watchdog:
        backend = local_backend(store, tmp_path, watchdog)
        backend.ensure_job(job(power={"mode": "None"}))
        harness = BackendHarness(backend, KEY, lambda _: None, processes_of)
        created = harness.create()
        spec = created.spec
        key = PipelineKey(spec.job_ref.uid, spec.index, spec.attempt)
        operator, ranks = SimulatedOperator(PipelineState(key, KEY.namespace, created.metadata.name)), ranks_of(2)
        run_until_planned(operator, ranks)
        exchange(operator, ranks)
        assert harness.recurrence(created.metadata.name).status.frequency_plan is None
        for _ in range(2):  # The profile first, then its frontier.
            store.pipelines.change(operator.state, None, lambda _: operator.state, lambda state: state, operator.now)
        running = harness.recurrence(created.metadata.name)
        status = running.status.model_copy(update={"result": Result.REACHED})
        harness.do(actions.WriteRecurrenceStatus(running, status))
        harness.do(actions.RecordObservation(record_of(harness.recurrence(created.metadata.name))))
        (record,) = store.observations.of_job(spec.job_ref.uid)
    result = record.pipeline
    assert result.mode == "Plan"
    assert result.realised_joules == 200.0
    assert result.planned_joules > 0


class TestLocalBackend(BackendContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[BackendHarness]:
        with open_store(tmp_path / "wattloop.db") as store, Watchdog() as watchdog:
            backend = local_backend(store, tmp_path, watchdog)
            backend.ensure_job(job_of("sleep", "60"))
            service = ReportService(local_progress(store, lambda: None), LocalTokens(tmp_path))

            def write_progress(name: str, epoch: int) -> None:
                service.receive(KEY.namespace, name, report(epoch=epoch, sequence=epoch, metric=0.5))

            try:
                yield BackendHarness(backend, KEY, write_progress, processes_of)
            finally:
                backend.end_all()
