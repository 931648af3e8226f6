"""kill -9 of any process of a run: no GPU stays at a changed limit, no process is left, and the next run goes on."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.local_runs.local_runs import (
    HANGING,
    TRAINING,
    LocalJob,
    RunProcess,
    children_of,
    descendants_of,
    kill,
    program_of,
    wait_for_end,
)

pytestmark = pytest.mark.processes

FOUND_WATTS = 400.0
HELD = {"power": {"limit": {"mode": "Fixed", "watts": 250}}}


@pytest.fixture
def hanging(local_job: LocalJob) -> Iterator[RunProcess]:
    """A run whose training hangs, holding a power limit."""
    local_job.job(HANGING, crashBudget=1, **HELD)
    run = local_job.start("--recurrences", "1")
    try:
        yield run
    finally:
        if run.code is None:
            kill(run.pid)
            run.ended()


def child_named(pid: int, word: str) -> int:
    (found,) = [child for child in children_of(pid) if word in program_of(child)]
    return found


def goes_on(local_job: LocalJob) -> None:
    """The same run once more, with a training that works: what was disrupted is tried again, the rest is run once."""
    local_job.job(TRAINING, crashBudget=1, **HELD)
    assert local_job.run("--recurrences", "2") == 0
    assert local_job.outcomes() == [("0", "0", "disrupted"), ("0", "1", "reached"), ("1", "0", "reached")]
    assert local_job.limits() == [FOUND_WATTS]


def test_a_run_that_is_killed_leaves_nothing_and_goes_on_when_started_again(
    local_job: LocalJob, hanging: RunProcess
) -> None:
    local_job.begun(hanging)
    processes = descendants_of(hanging.pid)
    assert len(processes) >= 5  # the agent's two, the guardian, the training and its child
    assert local_job.limits() == [250.0]
    (private,) = {
        Path(path)
        for program in processes.values()
        for path in re.findall(rf"{tempfile.gettempdir()}/wattloop-[^/ ]+", program)
    }
    assert (private / "agent.sock").exists()
    kill(hanging.pid)
    assert hanging.ended() == -signal.SIGKILL
    wait_for_end(list(processes))
    assert local_job.limits() == [FOUND_WATTS]
    assert not private.exists()
    goes_on(local_job)


def test_a_run_that_is_interrupted_leaves_its_results_and_goes_on_when_started_again(
    local_job: LocalJob, hanging: RunProcess
) -> None:
    local_job.begun(hanging)
    processes = descendants_of(hanging.pid)
    hanging.signal(signal.SIGINT)
    assert hanging.ended() == 130
    words = hanging.told.read_text()
    assert words == f"wattloop run: interrupted; the same command continues the run in {local_job.output}\n"
    wait_for_end(list(processes))
    assert local_job.limits() == [FOUND_WATTS]
    assert local_job.rows() == []
    goes_on(local_job)


def test_the_agent_the_guardian_and_the_training_are_killed_and_the_run_goes_on(
    local_job: LocalJob, hanging: RunProcess
) -> None:
    training, child = local_job.begun(hanging)
    for word in ("wattloop_agent", "watchdog.py"):
        pid = child_named(hanging.pid, word)
        kill(pid)
    # Without agent and guardian the training goes on.
    os.kill(training, 0)
    kill(training)
    # What it started is ended with it; its batch size is out, and another one is tried.
    wait_for_end([child])
    again, _ = local_job.begun(hanging)
    assert again != training
    processes = descendants_of(hanging.pid)
    # SIGTERM is taken as Ctrl-C is.
    hanging.signal(signal.SIGTERM)
    assert hanging.ended() == 130
    wait_for_end(list(processes))
    (first,) = local_job.rows()
    assert (first["attempt"], first["batch_size"], first["outcome"]) == ("0", "32", "crashed")
    assert "Crashed: batch size 32: killed by signal SIGKILL; see logs/" in hanging.told.read_text()
    assert local_job.limits() == [FOUND_WATTS]


def test_the_power_controller_is_killed_and_the_run_interrupted_at_once(
    local_job: LocalJob, hanging: RunProcess
) -> None:
    local_job.begun(hanging)
    kill(child_named(child_named(hanging.pid, "wattloop_agent"), "power_controller"))
    hanging.signal(signal.SIGHUP)
    assert hanging.ended() == 130
    assert local_job.limits() == [FOUND_WATTS]
