"""SIGKILL, SIGTERM or SIGSTOP of the runner at every stage of a power limit's lease.

In every case, within ten seconds every GPU has its initial limit, or the one set for a training
that still runs. No lease is left, and the energy in the table equals what the GPUs used.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvml_simulator import Machine
from support.agents.agent_fixture import until
from support.agents.gated_training import TRAINING
from support.local_runs.local_runs import BEGIN_SECONDS, LocalJob, RunProcess, descendants_of, kill, wait_for_end
from support.test_sets.parameters import exhaustive_after

pytestmark = pytest.mark.processes

INITIAL_LIMITS = [400.0, 400.0]
SET_LIMITS = [250.0, 250.0]
OPTIONS = ("--recurrences", "1", "--simulated-gpus", "2")
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "hang": signal.SIGSTOP}
EXIT_CODES = {"kill": -signal.SIGKILL, "terminate": 130}
SET = "nvmlDeviceSetPowerManagementLimit"
DEADLINE_SECONDS = 60.0
COUNTER_STEP_SECONDS = 0.1


class GatedRun:
    """A run whose training waits at its first gate."""

    def __init__(self, local_job: LocalJob) -> None:
        self.local_job = local_job
        local_job.job(TRAINING, power={"mode": "Fixed", "watts": 250})
        self.run: RunProcess = local_job.start(*OPTIONS)
        self.reached("hold", BEGIN_SECONDS)
        self.gpus = Machine(local_job.output / "simulated-gpus")
        self.processes = descendants_of(self.run.pid)

    def gate_file(self, name: str, state: str) -> Path:
        return self.local_job.folder / f"{name}.{state}"

    def open(self, *names: str) -> None:
        for name in names:
            self.gate_file(name, "open").touch()

    def reached(self, name: str, seconds: float = DEADLINE_SECONDS) -> None:
        until(self.gate_file(name, "reached").exists, f"the training is at the gate {name}", seconds)

    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]

    def signal_at(self, when: str, number: int) -> None:
        """Bring the training to that stage, and send the signal to the runner."""
        if when in {"after limits are set", "while limits are restored"}:
            self.open("hold")
            self.reached("release")
            assert self.limits() == SET_LIMITS
        if when in {"while limits are set", "while limits are restored"}:
            calls = self.gpus.describe().calls.get(SET, 0)
            ticket = self.gpus.inject_fault(SET, delay_seconds=60, first_call=2, count=1)
            self.open("hold", *(["release"] if when == "while limits are restored" else []))
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
        """The energy in the table equals what the GPUs of both runs have used."""
        rows = self.local_job.rows()
        assert rows[-1]["outcome"] == "reached"
        used = sum(gpu.energy_microjoules / 1e6 for machine in machines for gpu in machine.describe().gpus)
        unmeasured = 2 * COUNTER_STEP_SECONDS * sum(SET_LIMITS)
        assert sum(float(row["energy_joules"] or 0) for row in rows) == pytest.approx(used, abs=unmeasured)
        assert used > 50 * unmeasured


@pytest.fixture
def gated_run(local_job: LocalJob) -> Iterator[GatedRun]:
    made = GatedRun(local_job)
    try:
        yield made
    finally:
        made.gpus.clear_faults()
        made.gpus.close()
        if made.run.code is None:
            kill(made.run.pid)
            made.run.ended()


STAGES = ["before the lease", "while limits are set", "after limits are set", "while limits are restored"]
# test_kills.py has a kill after the limits are set, and other signals.
USUAL_CELLS = {("kill", "while limits are set"), ("kill", "while limits are restored")}


@pytest.mark.parametrize(
    ("how", "when"),
    exhaustive_after(
        sorted(
            ((how, when) for how in ("kill", "terminate") for when in STAGES), key=lambda cell: cell not in USUAL_CELLS
        ),
        usual=len(USUAL_CELLS),
    ),
)
def test_when_the_runner_ends_limits_are_restored_and_the_next_run_resumes(
    gated_run: GatedRun, how: str, when: str
) -> None:
    gated_run.signal_at(when, SIGNALS[how])
    until(lambda: gated_run.run.wait_for_end(0.0), "the runner has ended")
    assert gated_run.run.code == EXIT_CODES[how]
    until(lambda: gated_run.limits() == INITIAL_LIMITS, "every GPU has its initial limit")
    wait_for_end(list(gated_run.processes))
    assert when == "before the lease" or gated_run.no_lease_is_left()
    gated_run.open("hold", "release")
    assert gated_run.local_job.run(*OPTIONS) == 0
    with Machine(gated_run.local_job.output / "simulated-gpus") as gpus_of_next_run:
        gated_run.assert_no_energy_is_lost(gated_run.gpus, gpus_of_next_run)
    assert gated_run.local_job.limits() == INITIAL_LIMITS


@pytest.mark.parametrize(
    "when", exhaustive_after(["after limits are set", *(stage for stage in STAGES if stage != "after limits are set")])
)
def test_while_the_runner_hangs_limits_are_set_only_for_a_running_training(gated_run: GatedRun, when: str) -> None:
    gated_run.signal_at(when, SIGNALS["hang"])
    gated_run.open("hold")
    if when == "while limits are restored":
        until(lambda: gated_run.limits() == INITIAL_LIMITS, "limits are restored although the runner hangs")
    else:
        until(lambda: gated_run.limits() == SET_LIMITS, "limits are set for the training although the runner hangs")
    gated_run.open("release")
    gated_run.run.signal(signal.SIGCONT)
    assert gated_run.run.ended() == 0
    wait_for_end(list(gated_run.processes))
    assert gated_run.no_lease_is_left()
    gated_run.assert_no_energy_is_lost(gated_run.gpus)
    assert gated_run.local_job.limits() == INITIAL_LIMITS
