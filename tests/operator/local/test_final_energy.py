"""A training counts with the energy that it used after its last report, however it ends."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nvml_simulator.state_files import Clock
from support.agents.agent_fixture import until
from support.agents.simulated_node import SimulatedNode, simulated_node
from support.backends.model_backend import KEY, job
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.gpu_readings import GpuIntervals
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import reconcile
from wattloop_operator.local.final_energy import energy_now
from wattloop_operator.local.local_backend import LocalBackend
from wattloop_operator.local.report_server import LocalTokens, local_progress
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.store import open_store
from wattloop_operator.workloads.injection import RunAddresses

DEADLINE_SECONDS = 3600
INTERVAL_SECONDS = 7200
OBJECTIVE = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50}
# 50 times the doubt about one reading: a counter's step of 100 ms.
WORK = 312.0 * 10
DOUBT_JOULES = 0.1 * 400
# Waits until the test lets it end, in the way that the test chooses.
SCRIPT = 'until [ -e "$0" ]; do sleep 0.05; done; . "$0"'


@dataclass
class LocalTraining:
    """An attempt whose process does nothing, with a clock that the test controls."""

    folder: Path
    backend: LocalBackend
    service: ReportService
    node: SimulatedNode
    later: timedelta = timedelta()

    def reconcile(self) -> None:
        reconcile(self.backend, KEY, lambda: datetime.now(UTC) + self.later)

    @property
    def snapshot(self) -> Snapshot:
        snapshot = self.backend.read(KEY)
        assert snapshot is not None
        return snapshot

    @property
    def attempt(self) -> TrainingAttempt:
        """The first attempt as it is stored."""
        return min(self.snapshot.recurrences, key=lambda each: each.order)

    @property
    def used_joules(self) -> float:
        """What its GPU has used in all."""
        return self.node.gpus.describe().gpus[0].energy_microjoules / 1e6

    def report(self) -> None:
        """Report the GPU for the first time, and nothing after it."""
        if not self.attempt.spec.reporting.uses_client:
            # Its follower does so in a thread.
            until(lambda: bool(self.attempt.progress.gpus), "the follower reported the GPU")
            return
        with AgentConnection(str(self.node.socket)) as agent:
            (now,) = agent.energy()
        energy, seconds = now.cumulative_millijoules, now.clock_seconds
        gpu = GpuEnergy(now.uuid, energy, energy, seconds, seconds, counter=now.counter)
        self.service.receive(KEY.namespace, self.attempt.metadata.name, Report("p", 1, 1.0, gpus=(gpu,)))

    def work(self) -> None:
        self.node.gpus.occupy(0, work=WORK, intensity=0.8)

    def let_end(self, command: str) -> None:
        """Let the process end by this command of the shell."""
        part = self.folder / "end.part"
        part.write_text(command)
        part.rename(self.folder / "end")
        until(self._has_ended, "the process has ended")

    def _has_ended(self) -> bool:
        self.backend.snapshot(KEY)
        return self.snapshot.workloads[self.attempt.metadata.name].phase.ended


@contextmanager
def local_training(folder: Path, clock: Clock = "virtual", **spec: Any) -> Iterator[LocalTraining]:
    """A training that has started, on a node with one GPU."""
    container = {"name": "train", "image": "none", "command": ["sh", "-c", SCRIPT, str(folder / "end")]}
    template = {"spec": {"template": {"spec": {"containers": [container]}}}}
    made = job(template=template, **spec)
    metadata = made.metadata.model_copy(update={"creation_timestamp": datetime.now(UTC) - timedelta(hours=1)})
    with simulated_node(1, clock) as node, open_store(folder / "wattloop.db") as store, Watchdog() as watchdog:
        tokens = LocalTokens(watchdog.folder)
        service = ReportService(local_progress(store, lambda: None), tokens)
        backend = LocalBackend(
            store,
            source=folder / "job.yaml",
            logs=folder,
            addresses=RunAddresses(agent_socket=str(node.socket)),
            tokens=tokens,
            gpu_environment={},
            devices=1,
            watchdog=watchdog,
            wake=threading.Event().set,
            observe=service.observe,
        )
        backend.ensure_job(made.model_copy(update={"metadata": metadata}))
        training = LocalTraining(folder, backend, service, node)
        try:
            training.reconcile()
            yield training
        finally:
            backend.end_all()


def wait(seconds: float) -> Callable[[LocalTraining], None]:
    def end(training: LocalTraining) -> None:
        training.later = timedelta(seconds=seconds)

    return end


def interrupt(training: LocalTraining) -> None:
    """As a run that is asked to end."""
    training.backend.end_all()
    training.backend.snapshot(KEY)


End = tuple[Result, dict[str, Any], Callable[[LocalTraining], None]]
DEADLINE: End = (Result.DEADLINE_EXCEEDED, {"activeDeadlineSeconds": DEADLINE_SECONDS}, wait(DEADLINE_SECONDS + 60))
KILLED: End = (Result.CRASHED, {}, lambda training: training.let_end("kill -KILL $$"))
INTERRUPTED: End = (Result.DISRUPTED, {}, interrupt)
FURTHER_ENDS: list[End] = [
    (Result.HUNG, {"progressDeadlineSeconds": DEADLINE_SECONDS}, wait(DEADLINE_SECONDS)),
    (Result.CANCELLED, {"concurrencyPolicy": "Replace"}, wait(INTERVAL_SECONDS)),
    (Result.DISRUPTED, {}, lambda training: training.let_end("kill -TERM $$")),
    (Result.CRASHED, {}, lambda training: training.let_end("exit 3")),
    (Result.MISSING_METRIC, {}, lambda training: training.let_end("exit 0")),
]


# First, ended by the operator, by itself, and together with the run.
@pytest.mark.parametrize(
    ("source", "result", "spec", "end"),
    exhaustive_after(
        [
            ("Push", *DEADLINE),
            ("Push", *KILLED),
            ("Logs", *INTERRUPTED),
            ("Push", *INTERRUPTED),
            ("Logs", *DEADLINE),
            *(("Push", *each) for each in FURTHER_ENDS),
        ],
        usual=3,
    ),
)
def test_the_energy_after_the_last_report_counts_however_the_training_ends(
    tmp_path: Path, source: str, result: Result, spec: dict[str, Any], end: Callable[[LocalTraining], None]
) -> None:
    with local_training(tmp_path, reporting={"source": source}, **spec) as training:
        before = training.used_joules
        training.report()
        training.work()
        used = training.used_joules - before
        end(training)
        training.reconcile()
        status = training.attempt.status
        assert status.result is result
        assert float(status.usage.gpu_energy_joules) == pytest.approx(used, abs=2 * DOUBT_JOULES)
        assert used > 20 * DOUBT_JOULES


def test_an_attempt_that_goes_on_using_energy_gets_its_outcome(tmp_path: Path) -> None:
    # On the wall clock, each reading of the running training differs from the one before.
    with local_training(tmp_path, clock="wall", activeDeadlineSeconds=DEADLINE_SECONDS) as training:
        training.report()
        wait(DEADLINE_SECONDS + 60)(training)
        training.reconcile()
        assert training.attempt.status.result is Result.DEADLINE_EXCEEDED


def test_after_a_reload_of_the_driver_what_came_after_the_last_report_is_not_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with local_training(tmp_path) as training:
        training.report()
        progress, socket = training.attempt.progress, str(training.node.socket)
        assert [each.uuid for each in energy_now(socket, progress)] == [each.uuid for each in progress.gpus]
        training.node.gpus.restart_driver()
        assert energy_now(socket, progress) == ()
        until(lambda: energy_now(socket, progress) == () and "began again" in caplog.text, "the driver runs again")


def test_without_an_agent_or_gpus_no_energy_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattloop_operator.local.final_energy.AGENT_START_SECONDS", 0.0)
    gpu = GpuIntervals(
        uuid="GPU-00", start_energy_millijoules=1, energy_millijoules=2, start_time_seconds="0", time_seconds="1"
    )
    for socket, progress in (
        ("", Progress(gpus=(gpu,))),
        (str(tmp_path / "agent.sock"), Progress(gpus=(gpu,))),
        (str(tmp_path / "agent.sock"), Progress()),
    ):
        assert energy_now(socket, progress) == ()
