"""SIGKILL of any process of a run.

GPU limits are restored, no process is left, and the next run resumes.
"""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.processes import children_of, program_of
from support.local_runs.local_runs import HANGING, TRAINING, LocalJob, RunProcess, descendants_of, kill, wait_for_end

pytestmark = pytest.mark.processes

DEFAULT_WATTS = 400.0
FIXED_LIMIT = {"power": {"mode": "Fixed", "watts": 250}}


@pytest.fixture
def hanging(local_job: LocalJob) -> Iterator[RunProcess]:
    """A run whose training hangs while a power limit is set."""
    local_job.job(HANGING, **FIXED_LIMIT)
    run = local_job.start("--recurrences", "1")
    try:
        yield run
    finally:
        if run.code is None:
            kill(run.pid)
            run.ended()


def child_with(pid: int, text: str) -> int:
    (found,) = [child for child in children_of(pid) if text in program_of(child)]
    return found


def assert_next_run_resumes(local_job: LocalJob) -> None:
    """Run again, with a training that ends.

    The disrupted attempt is retried, and nothing else runs twice.
    """
    local_job.job(TRAINING, **FIXED_LIMIT)
    assert local_job.run("--recurrences", "2") == 0
    assert local_job.outcomes() == [("0", "0", "disrupted"), ("0", "1", "reached"), ("1", "0", "reached")]
    assert local_job.limits() == [DEFAULT_WATTS]


def test_a_killed_run_leaves_nothing_and_the_next_run_resumes(local_job: LocalJob, hanging: RunProcess) -> None:
    local_job.wait_for_training(hanging)
    processes = descendants_of(hanging.pid)
    assert len(processes) >= 5  # two of the agent, the watchdog, the training and its child
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
    assert local_job.limits() == [DEFAULT_WATTS]
    assert not private.exists()
    assert_next_run_resumes(local_job)


def test_an_interrupted_run_writes_its_results_and_the_next_run_resumes(
    local_job: LocalJob, hanging: RunProcess
) -> None:
    local_job.wait_for_training(hanging)
    processes = descendants_of(hanging.pid)
    hanging.signal(signal.SIGINT)
    assert hanging.ended() == 130
    message = hanging.stderr.read_text()
    continues = f"wattloop run: interrupted; the same command continues the run in {local_job.output}; what has ended: "
    assert message.startswith(continues)
    assert message.endswith(f"wattloop history {local_job.output}\n")
    assert message.count("\n") == 1
    wait_for_end(list(processes))
    assert local_job.limits() == [DEFAULT_WATTS]
    assert local_job.rows() == []
    assert_next_run_resumes(local_job)


def test_a_run_survives_the_kill_of_its_agent_watchdog_and_training(local_job: LocalJob, hanging: RunProcess) -> None:
    training, child = local_job.wait_for_training(hanging)
    for text in ("wattloop_agent", "watchdog.py"):
        pid = child_with(hanging.pid, text)
        kill(pid)
    # The training continues without agent and watchdog.
    os.kill(training, 0)
    kill(training)
    # Its child is ended with it. Its batch size is excluded, and another one is tried.
    wait_for_end([child])
    again, _ = local_job.wait_for_training(hanging)
    assert again != training
    processes = descendants_of(hanging.pid)
    # SIGTERM has the same effect as Ctrl-C.
    hanging.signal(signal.SIGTERM)
    assert hanging.ended() == 130
    wait_for_end(list(processes))
    (first,) = local_job.rows()
    assert (first["attempt"], first["batch_size"], first["outcome"]) == ("0", "32", "crashed")
    assert "Crashed: batch size 32: killed by signal SIGKILL; see /" in hanging.stderr.read_text()
    assert local_job.limits() == [DEFAULT_WATTS]


@pytest.mark.exhaustive
def test_limits_are_restored_if_the_power_controller_is_killed_and_the_run_interrupted(
    local_job: LocalJob, hanging: RunProcess
) -> None:
    local_job.wait_for_training(hanging)
    kill(child_with(child_with(hanging.pid, "wattloop_agent"), "power_controller"))
    hanging.signal(signal.SIGHUP)
    assert hanging.ended() == 130
    assert local_job.limits() == [DEFAULT_WATTS]
