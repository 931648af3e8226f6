"""The runner is struck, as the operator of a cluster may be: {kill -9, SIGTERM, SIGSTOP} at every moment of a hold.

Whatever the cell, within ten seconds every GPU is as found, or held for a training that lives; no lease is left; and
the energy that the table shows in the end is what the GPUs used.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvml_simulator import Machine
from support.agents.agent_fixture import until
from support.agents.gated_training import TRAINING
from support.local_runs.local_runs import BEGIN_SECONDS, LocalJob, RunProcess, descendants_of, kill, wait_for_end

pytestmark = pytest.mark.processes

FOUND = [400.0, 400.0]
HELD = [250.0, 250.0]
OPTIONS = ("--recurrences", "1", "--simulated-gpus", "2")
STRUCK = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "hang": signal.SIGSTOP}
ENDED = {"kill": -signal.SIGKILL, "terminate": 130}
SET = "nvmlDeviceSetPowerManagementLimit"
DEADLINE_SECONDS = 60.0
COUNTER_STEP_SECONDS = 0.1


class Cell:
    """A run whose training waits at its first gate."""

    def __init__(self, local_job: LocalJob) -> None:
        self.local_job = local_job
        local_job.job(TRAINING, crashBudget=1, power={"limit": {"mode": "Fixed", "watts": 250}})
        self.run: RunProcess = local_job.start(*OPTIONS)
        self.reached("hold", BEGIN_SECONDS)
        self.gpus = Machine(local_job.output / "simulated-gpus")
        self.processes = descendants_of(self.run.pid)

    def authorizer(self, name: str, state: str) -> Path:
        return self.local_job.folder / f"{name}.{state}"

    def open(self, *names: str) -> None:
        for name in names:
            self.authorizer(name, "open").touch()

    def reached(self, name: str, seconds: float = DEADLINE_SECONDS) -> None:
        until(self.authorizer(name, "reached").exists, f"the training is at the gate {name}", seconds)

    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]

    def strike(self, when: str, number: int) -> None:
        """Bring it to that moment, and strike the runner."""
        if when in {"after a hold", "during a restore"}:
            self.open("hold")
            self.reached("release")
            assert self.limits() == HELD
        if when in {"during a hold", "during a restore"}:
            calls = self.gpus.describe().calls.get(SET, 0)
            ticket = self.gpus.inject_fault(SET, delay_seconds=60, first_call=2, count=1)
            self.open("hold", *(["release"] if when == "during a restore" else []))
            until(lambda: self.gpus.describe().calls.get(SET, 0) >= calls + 2, "the second GPU is being set")
            self.run.signal(number)
            self.gpus.clear_fault(ticket)
        else:
            self.run.signal(number)

    def no_lease_is_left(self) -> bool:
        (leases,) = self.local_job.output.glob("**/leases.json")
        found: list[object] = json.loads(leases.read_text())["leases"]
        return found == []

    def assert_no_energy_is_lost(self, *machines: Machine) -> None:
        """What the table says is what the GPUs have used: those of the run that was struck, those of the next run."""
        rows = self.local_job.rows()
        assert rows[-1]["outcome"] == "reached"
        used = sum(gpu.energy_microjoules / 1e6 for machine in machines for gpu in machine.describe().gpus)
        unseen = 2 * COUNTER_STEP_SECONDS * sum(HELD)
        assert sum(float(row["energy_joules"]) for row in rows) == pytest.approx(used, abs=unseen)
        assert used > 50 * unseen


@pytest.fixture
def cell(local_job: LocalJob) -> Iterator[Cell]:
    made = Cell(local_job)
    try:
        yield made
    finally:
        made.gpus.clear_faults()
        made.gpus.close()
        if made.run.code is None:
            kill(made.run.pid)
            made.run.ended()


MOMENTS = ["before a hold", "during a hold", "after a hold", "during a restore"]


@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_when_the_runner_ends_every_gpu_is_as_found_and_the_next_run_goes_on(cell: Cell, how: str, when: str) -> None:
    cell.strike(when, STRUCK[how])
    until(lambda: cell.run.wait_for_end(0.0), "the runner is gone")
    assert cell.run.code == ENDED[how]
    until(lambda: cell.limits() == FOUND, "every GPU as found")
    wait_for_end(list(cell.processes))
    assert when == "before a hold" or cell.no_lease_is_left()
    cell.open("hold", "release")
    assert cell.local_job.run(*OPTIONS) == 0
    with Machine(cell.local_job.output / "simulated-gpus") as gpus_of_next_run:
        cell.assert_no_energy_is_lost(cell.gpus, gpus_of_next_run)
    assert cell.local_job.limits() == FOUND


@pytest.mark.parametrize("when", MOMENTS)
def test_while_the_runner_hangs_a_gpu_is_held_for_a_training_that_lives_alone(cell: Cell, when: str) -> None:
    cell.strike(when, STRUCK["hang"])
    cell.open("hold")
    if when == "during a restore":
        until(lambda: cell.limits() == FOUND, "given back, though the runner hangs")
    else:
        until(lambda: cell.limits() == HELD, "held for the training, though the runner hangs")
    cell.open("release")
    cell.run.signal(signal.SIGCONT)
    assert cell.run.ended() == 0
    wait_for_end(list(cell.processes))
    assert cell.no_lease_is_left()
    cell.assert_no_energy_is_lost(cell.gpus)
    assert cell.local_job.limits() == FOUND
