"""The example of examples/pipeline in `wattloop run`: its profile on simulated GPUs, a plan, and its runs.

The plan is a file that the training's pipeline reads. Everything else is real: the ranks of torchrun, their
pipelines, the node agent and the reporting API of the local mode.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import nvml_simulator
from support.free_ports import free_port
from support.local_runs.local_runs import LocalJob
from wattloop_planner.frequency import (
    OneForwardOneBackward,
    Option,
    Problem,
    Profile,
    Realised,
    evaluate,
    pipeline_problem,
    plan_frequencies,
    plan_pipeline,
    schedule_graph,
)

STAGES, MICROBATCHES = 4, 16
EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline"
KINDS = ("forward", "backward")

# Attempts are numbered from 0. In those of PLANNED, the example's pipeline has the plan of a file.
SCRIPT = """
import functools, json, os, signal, socket, struct
import torch.distributed.pipelining.schedules as schedules
import train
from wattloop.integrations.torch_pipelining import attach

PLANNED, KILLED, RANK, STEP = json.loads(os.environ["TEST"])
name = os.environ["WATTLOOP_RECURRENCE"]
own = "begun-" + os.environ["RANK"]
attempt = os.path.getsize(own) if os.path.exists(own) else 0
with open(own, "a") as begun:
    begun.write("x")
if attempt in PLANNED:
    train.attach = functools.partial(attach, plan="plan.py")
train.STEPS_PER_EPOCH = int(os.environ["STEPS"])

def agent():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WATTLOOP_AGENT_SOCKET"])
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]

class Schedule(train.Schedule1F1B):
    steps = 0

    def _step_microbatches(self, *args, **named):
        self.steps += 1
        if KILLED and int(os.environ["RANK"]) == RANK and self.steps == STEP and attempt == PLANNED[0]:
            os.kill(agent() if KILLED == "agent" else os.getpid(), signal.SIGKILL)
        return super()._step_microbatches(*args, **named)

train.Schedule1F1B = Schedule
train.main()
"""


@dataclass(frozen=True)
class PlannedPipeline:
    """A plan of the example.

    Attributes:
        clocks: The clock of each instruction, by stage.
        planned: Time and energy of an iteration under it.
        free: The same at maximum clocks.
        problem: The pipeline.
    """

    clocks: list[list[int]]
    planned: Realised
    free: Realised
    problem: Problem


def example_module(name: str) -> ModuleType:
    """A module of the example."""
    spec = importlib.util.spec_from_file_location(f"example_pipeline_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def planned_pipeline(model_name: str = "A100") -> PlannedPipeline:
    """The fastest plan of the example on simulated GPUs, from their power curve."""
    gpt, load = example_module("gpt"), example_module("simulated_gpu")
    model = nvml_simulator.model_named(model_name)
    options: dict[tuple[int, str], tuple[Option, ...]] = {}
    for stage, kind in itertools.product(range(STAGES), KINDS):
        work = load.teraflop(gpt.stage(stage, STAGES), kind)
        found = []
        for clock in model.graphics_clocks_megahertz:
            watts, speed = nvml_simulator.busy_power_and_throughput(model, clock, load.INTENSITY)
            found.append(Option(clock, work / speed, watts * work / speed))
        options[stage, kind] = tuple(found)
    graph = schedule_graph(OneForwardOneBackward(STAGES, MICROBATCHES))
    problem = pipeline_problem(graph, Profile("simulated", options), model.waiting_watts)
    fastest = plan_pipeline(problem).plans[-1]
    clocks = [[int(clock) for clock in row] for row in plan_frequencies(problem, fastest)]
    highest = max(model.graphics_clocks_megahertz)
    return PlannedPipeline(
        clocks, evaluate(problem, clocks), evaluate(problem, [[highest] * len(row) for row in clocks]), problem
    )


def write_job(
    local_job: LocalJob,
    clocks: list[list[int]],
    *,
    planned: list[int],
    steps: int,
    killed: str = "",
    rank: int = 2,
    step: int = 3,
) -> None:
    """Write the example's files, a plan and a manifest of one epoch for each attempt.

    Args:
        local_job: The folder.
        clocks: The plan.
        planned: Numbers of the attempts with the plan.
        steps: Iterations of an attempt.
        killed: ``rank`` or ``agent``: kill it in the first attempt with the plan.
        rank: The rank that kills itself or the agent.
        step: The training step in which that happens, from 1.
    """
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(STAGES), "--master-port", str(free_port())]
    test = json.dumps([planned, killed, rank, step])
    container = {
        "name": "train",
        "image": "none",
        "command": [sys.executable, *launcher, "train_planned.py"],
        "env": [{"name": "TEST", "value": test}, {"name": "STEPS", "value": str(steps)}],
    }
    local_job.job(
        SCRIPT,
        template={"job": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        objective={"target": {"metric": "loss", "direction": "Minimize", "threshold": "9"}, "maxEpochs": 1},
        batchSize={"default": 64, "candidates": [64]},
        power={"limit": {"mode": "None"}},
    )
    shutil.move(local_job.folder / "train.py", local_job.folder / "train_planned.py")
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, local_job.folder)
    (local_job.folder / "plan.py").write_text(repr(clocks))
