"""A training that is killed or hangs counts with the energy that it used after its last report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.agents.simulated_node import simulated_node
from support.backends.model_backend import job
from wattloop.messages import GpuEnergy, Report
from wattloop_operator.api.reporting import Reporting, ReportingSource
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.final_energy import FinalEnergy
from wattloop_operator.reconcile.attempt.output_report import OutputReport
from wattloop_operator.reconcile.attempt.progress import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEADLINE_SECONDS = 60


class Observed:
    """What was merged into the progress."""

    def __init__(self) -> None:
        self.reports: list[OutputReport] = []

    def __call__(self, namespace: str, name: str, seen: OutputReport) -> None:
        self.reports.append(seen)


def reported(*uuids: str) -> TrainingRecurrence:
    """An attempt whose processes reported these GPUs last at NOW."""
    spec = job(objective={**job().to_wire()["spec"]["objective"], "progressDeadlineSeconds": DEADLINE_SECONDS})
    recurrence = decide(Snapshot(spec), Attempt(0, 0, "slot", NOW))
    sent = Report(sequence=1, epoch=1.0, gpus=tuple(GpuEnergy(uuid, 1, 2, 0.0, 1.0) for uuid in uuids))
    progress = progress_after(recurrence, sent).model_copy(update={"last_report_time": NOW})
    return recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"progress": progress})})


def test_the_gpus_that_an_attempt_reported_are_read_at_its_end() -> None:
    observed = Observed()
    with simulated_node(3) as node:
        before, second, _ = node.gpus.describe().gpus
        final, recurrence = FinalEnergy(str(node.socket), observed), reported(before.uuid, second.uuid)
        final.report(recurrence)
        for index in (0, 1, 2):
            node.gpus.occupy(index, work=312.0 * 10, intensity=0.8)
        final.report(recurrence)
        used = (node.gpus.describe().gpus[0].energy_microjoules - before.energy_microjoules) / 1e3
    readings = [{gpu.uuid: gpu for gpu in seen.gpus.energies} for seen in observed.reports]
    assert [set(each) for each in readings] == [{before.uuid, second.uuid}] * 2
    first, last = (each[before.uuid] for each in readings)
    # Each reading may be a step of 100 ms late.
    assert last.energy_millijoules - first.energy_millijoules == pytest.approx(used, abs=50_000)
    # The start is that of the attempt.
    assert last.start_energy_millijoules == 1


def test_without_an_agent_or_gpus_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattloop_operator.local.final_energy.AGENT_START_SECONDS", 0.0)
    observed = Observed()
    for socket, recurrence in (
        ("", reported("GPU-00")),
        (str(tmp_path / "agent.sock"), reported("GPU-00")),
        (str(tmp_path / "agent.sock"), reported()),
    ):
        FinalEnergy(socket, observed).report(recurrence)
    assert observed.reports == []


def test_a_silent_attempt_is_read_once_when_its_deadline_has_passed() -> None:
    observed = Observed()
    with simulated_node(1) as node:
        recurrence = reported(node.gpus.describe().gpus[0].uuid)
        final = FinalEnergy(str(node.socket), observed)
        for seconds, count in ((DEADLINE_SECONDS - 1, 0), (DEADLINE_SECONDS, 1), (DEADLINE_SECONDS + 1, 1)):
            final.report_if_silent(recurrence, NOW + timedelta(seconds=seconds))
            assert len(observed.reports) == count


def test_a_training_without_the_client_is_read_by_its_follower_alone() -> None:
    observed = Observed()
    with simulated_node(1) as node:
        recurrence = reported(node.gpus.describe().gpus[0].uuid)
        logs = recurrence.spec.model_copy(update={"reporting": Reporting(source=ReportingSource.LOGS)})
        FinalEnergy(str(node.socket), observed).report(recurrence.model_copy(update={"spec": logs}))
    assert observed.reports == []
