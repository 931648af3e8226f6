"""SIGKILL of the agent, of a rank and of `wattloop run` during a profile: free clocks, no clock measured twice."""

import sys
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.local_runs.local_runs import LocalJob, descendants_of, kill, wait_for_end

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(600)]

# A rank that measures a clock in one iteration. It writes the clocks of each profile to a file, and pauses the profile
# at some of them, once the operator has what was measured, until the file `paused` is deleted.
SCRIPT = """
import os, socket, struct, time
import wattloop
from wattloop.pipeline import Pipeline
from dataclasses import replace
from wattloop.pipeline.plan_messages import PLAN, PROFILE, InstructionMeasurement

PAUSES = [(4, 8), (2,), ()]
attempt = len(open("profiles").readlines()) if os.path.exists("profiles") else 0

def agent():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WATTLOOP_AGENT_SOCKET"])
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]

class Measured:
    def __init__(self):
        self.clocks, self.known, self.pauses, self.planned = (), (), list(PAUSES[attempt]), 0
        self.reports, self.paused = 0, False

    def profiling_clock(self, directive, iteration):
        if not self.clocks:
            self.clocks = directive.clocks_megahertz
            with open("profiles", "a") as profiles:
                profiles.write(" ".join(map(str, self.clocks)) + "\\n")
        return (*self.clocks, None)[len(self.known)]

    def iteration_done(self, record):
        self.planned += record.directive.mode == PLAN
        if record.directive.mode != PROFILE or not record.clocks_megahertz:
            return
        if not self.pauses or len(self.known) < self.pauses[0]:
            self.known = (*self.known, record.clocks_megahertz[0])
        elif self.paused and not os.path.exists("paused"):
            self.pauses.pop(0)
            self.reports, self.paused = 0, False
        elif self.reports > 1 and not self.paused:
            # The report before the last one has been answered.
            with open("paused.part", "w") as paused:
                paused.write(f"{agent()} {os.getpid()}")
            os.replace("paused.part", "paused")
            self.paused = True

    def measured(self, report):
        self.reports += bool(self.pauses) and len(self.known) == self.pauses[0]
        rows = [
            InstructionMeasurement(kind, 0, clock, 20, 100 / clock, 1e-4, 1e-9 * clock**3 + 20, 1e-3)
            for kind in ("forward", "backward") for clock in self.known
        ]
        return replace(report, measurements=tuple(rows), profiled=0 < len(self.clocks) == len(self.known))

    def close(self):
        pass

with wattloop.Run(batch_size=64, max_epochs=1) as run:
    with Pipeline(stage=0, stages=1, microbatches=1, run=run) as pipeline:
        measured = Measured()
        pipeline.observe(measured)
        for epoch in run.epochs():
            while measured.planned < 3:
                with pipeline.iteration():
                    for kind in ("forward", "backward"):
                        with pipeline.instruction(kind, microbatch=0):
                            time.sleep(0.1)
            run.report(metric=1.0)
"""
PAUSE_SECONDS = 120.0


def locked(local_job: LocalJob) -> tuple[int, int] | None:
    (gpu,) = nvml_simulator.describe(local_job.output / "simulated-gpus").gpus
    return gpu.locked_graphics_clocks_megahertz


def paused(local_job: LocalJob) -> tuple[int, int]:
    """Wait until the rank pauses its profile; returns the pids of agent and rank."""
    path = local_job.folder / "paused"
    until(path.exists, "the profile is paused", PAUSE_SECONDS)
    agent, rank = map(int, path.read_text().split())
    return agent, rank


def profiles(folder: Path) -> list[list[int]]:
    return [[int(clock) for clock in line.split()] for line in (folder / "profiles").read_text().splitlines()]


def test_a_profile_goes_on_where_a_kill_of_agent_rank_or_run_has_interrupted_it(local_job: LocalJob) -> None:
    container = {"name": "train", "image": "none", "command": [sys.executable, "train.py"]}
    local_job.job(
        SCRIPT,
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        objective={"target": {"metric": "accuracy", "threshold": "0.5"}, "maxEpochs": 1},
        batchSize={"default": 64, "candidates": [64]},
        power={"mode": "None"},
    )
    resume = local_job.folder / "paused"
    run = local_job.start("--recurrences", "1")
    # The agent: its successor frees the clocks, and then holds those of the rank again.
    agent, rank = paused(local_job)
    kill(agent)
    until(lambda: locked(local_job) is not None, "the next agent holds a clock")
    resume.unlink()
    # The rank: it is retried, and measures what is left.
    _, same = paused(local_job)
    assert same == rank
    kill(rank)
    until(lambda: locked(local_job) is None, "free clocks after the kill of a rank")
    resume.unlink()
    # The run: nothing is left of it, and the same command continues.
    paused(local_job)
    processes = list(descendants_of(run.pid))
    kill(run.pid)
    run.ended()
    wait_for_end(processes)
    assert locked(local_job) is None
    resume.unlink()
    assert local_job.run("--recurrences", "1") == 0
    assert [row["outcome"] for row in local_job.rows()] == ["crashed", "disrupted", "reached"]
    assert [row["clocks"] for row in local_job.rows()] == ["profile", "profile", "plan"]
    assert locked(local_job) is None
    first, second, third = profiles(local_job.folder)
    assert (second, third) == (first[8:], first[10:])
