"""Scripts of strangers through `wattloop run`: each reaches, learns what is cheaper, and is shown nothing false.

The scripts are written as their authors would, not from the code. Their accelerator is a simulated GPU, whose time
passes only by what they do, so that the costs are the same on every machine.
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import pytest

import nvml_simulator
from support.local_runs.local_runs import LocalJob
from support.strangers.definitions import (
    LEARNERS,
    MAX_RATIO,
    NOISY_METRIC,
    RECURRENCES,
    compared_cost,
    default_recurrences,
)
from support.strangers.on_laptop import local_job
from support.strangers.stranger import Stranger
from support.test_sets.parameters import exhaustive_after

# Trainings in processes of their own.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

# Starts of processes fall into no work of a GPU.
UNATTRIBUTED_SHARE = 0.02


class Ended(NamedTuple):
    """A run that has ended.

    Attributes:
        local: Its folder.
        stdout: What it printed.
        stderr: Its messages.
    """

    local: LocalJob
    stdout: str
    stderr: str


def ended(
    stranger: Stranger, folder: Path, capsys: pytest.CaptureFixture[str], recurrences: int = RECURRENCES, **spec: object
) -> Ended:
    local = local_job(stranger, folder, **spec)
    local.run("--recurrences", str(recurrences), "--simulated-gpus", str(stranger.gpus))
    printed = capsys.readouterr()
    return Ended(local, printed.out, printed.err)


def recurrence_costs(local: LocalJob) -> list[float]:
    """Cost of each recurrence, with all of its attempts."""
    by_recurrence = itertools.groupby(local.rows(), key=lambda row: row["recurrence"])
    return [sum(float(row["cost_joules"] or 0) for row in rows) for _, rows in by_recurrence]


def gpu_joules(local: LocalJob) -> float:
    """What the simulated GPUs used, by their own counters."""
    described = nvml_simulator.describe(local.output / "simulated-gpus")
    return sum(gpu.energy_microjoules for gpu in described.gpus) / 1e6


# The one whose seeds differ most is first.
IN_ORDER = sorted(LEARNERS, key=lambda stranger: stranger is not NOISY_METRIC)


@pytest.mark.parametrize("stranger", exhaustive_after(IN_ORDER), ids=lambda stranger: stranger.name)
def test_a_stranger_s_script_reaches_each_time_and_costs_at_most_the_default_once_learned(
    stranger: Stranger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ended(stranger, tmp_path / "learned", capsys)
    reached = {row["recurrence"] for row in run.local.rows() if row["outcome"] == "reached"}
    assert reached == {str(index) for index in range(RECURRENCES)}, run.stdout
    measured = sum(float(row["energy_joules"]) for row in run.local.rows())
    assert measured == pytest.approx(gpu_joules(run.local), rel=UNATTRIBUTED_SHARE)
    default = ended(stranger, tmp_path / "default", capsys, default_recurrences(stranger), mode="Fixed")
    learned, usual = (compared_cost(recurrence_costs(each.local)) for each in (run, default))
    assert learned <= MAX_RATIO * usual, run.stdout
