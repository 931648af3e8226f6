"""The example of examples/pipeline in `wattloop run`: its profile on simulated GPUs, a plan, and its runs.

The plan is a file that the training's pipeline reads. Everything else is real: the ranks, their pipelines, the
node agent and the reporting API of the local mode. PyTorch's elastic agent, of which torchrun is the command,
forks the ranks here, which saves four imports of PyTorch for each attempt.
"""

import importlib.util
import itertools
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import nvml_simulator
from support.forking_launcher import forking_launcher
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
REPETITIONS, RELATIVE_ERROR = 20, 1e-4

_IMPORTED = (
    "torch._dynamo",
    "torch.distributed.pipelining",
    "nvml_simulator",
    "wattloop.integrations.torch_pipelining",
)

# As soon as the plan service has a rank measure, the rank gives what the power curve of its GPU says, without running
# an instruction at another clock. It trains until it has run the plan for ITERATIONS; before, it leaves the processor
# to the operator, which computes the plan.
SERVED_SCRIPT = """
import json, os, time
import torch, torch.distributed as dist
import train
from wattloop.integrations.torch_pipelining import attach
from dataclasses import replace
from wattloop.pipeline.plan_messages import PLAN, InstructionMeasurement

ITERATIONS, MAX_ITERATIONS, BLOCKING_WATTS = 4, 2000, json.loads(os.environ["TEST"])
planned = 0

class Measured:
    def __init__(self, rank):
        with open("measured.json") as stream:
            rows = [InstructionMeasurement(*row) for row in json.load(stream)]
        self._measurements = tuple(row for row in rows if row.stage == rank)

        self._asked = False

    def profiling_clock(self, directive, iteration):
        self._asked = True

    def iteration_done(self, record):
        global planned
        planned += record.directive.mode == PLAN

    def measured(self, report):
        if not self._asked:
            return report
        return replace(report, blocking_watts=BLOCKING_WATTS, measurements=self._measurements, profiled=True)

    def close(self):
        pass

def attached(schedule, run=None, **options):
    pipeline = attach(schedule, run=run, **options)
    pipeline.observe(Measured(dist.get_rank()))
    return pipeline

def until_planned(_steps):
    for step in range(MAX_ITERATIONS):
        least = torch.tensor(planned)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        if least >= ITERATIONS:
            return
        if not least:
            time.sleep(0.2)
        yield step

train.attach, train.range = attached, until_planned
train.main()
"""

# Attempts are numbered from 0. In those of PLANNED, the example's pipeline has the plan of a file.
SCRIPT = """
import functools, json, os, signal, socket, struct, time
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
            if KILLED == "run":
                time.sleep(600)
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
        profile: Time and energy of its instructions at each clock.
    """

    clocks: list[list[int]]
    planned: Realised
    free: Realised
    problem: Problem
    profile: Profile


def example_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_pipeline_{name}", EXAMPLE / f"{name}.py")
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
    profile = Profile("simulated", options)
    problem = pipeline_problem(graph, profile, model.waiting_watts)
    fastest = plan_pipeline(problem).plans[-1]
    clocks = [[int(clock) for clock in row] for row in plan_frequencies(problem, fastest)]
    highest = max(model.graphics_clocks_megahertz)
    free = evaluate(problem, [[highest] * len(row) for row in clocks])
    return PlannedPipeline(clocks, evaluate(problem, clocks), free, problem, profile)


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
        planned: Numbers of the attempts with the plan.
        killed: ``rank`` or ``agent``: kill it in the first attempt with the plan; ``run``: the rank waits there for
            the test to kill the run.
        rank: The rank that kills itself or the agent, or waits.
        step: The training step in which that happens, from 1.
    """
    test = json.dumps([planned, killed, rank, step])
    _write_job(local_job, SCRIPT, {"TEST": test, "STEPS": str(steps)})
    (local_job.folder / "plan.py").write_text(repr(clocks))


def write_served_job(local_job: LocalJob, plan: PlannedPipeline) -> None:
    """Write the example's files, and a manifest whose ranks get their plan from the plan service.

    Args:
        plan: Its profile is what the ranks have measured.
    """
    rows = []
    for (stage, kind), options in plan.profile.options.items():
        for each in options:
            time, energy = ((mean, mean * RELATIVE_ERROR) for mean in (each.time_seconds, each.energy_joules))
            rows.append((kind, stage, each.frequency_megahertz, REPETITIONS, *time, *energy))
    watts = nvml_simulator.model_named("A100").waiting_watts
    _write_job(local_job, SERVED_SCRIPT, {"TEST": json.dumps(watts)})
    (local_job.folder / "measured.json").write_text(json.dumps(rows))


def _write_job(local_job: LocalJob, script: str, variables: Mapping[str, str]) -> None:
    container = {
        "name": "train",
        "image": "none",
        "command": [sys.executable, "launch.py"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    local_job.job(
        script,
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        objective={"target": {"metric": "loss", "direction": "Minimize", "threshold": "1000000"}, "maxEpochs": 1},
        batchSize={"default": 64, "candidates": [64]},
        power={"mode": "None"},
    )
    shutil.move(local_job.folder / "train.py", local_job.folder / "train_planned.py")
    (local_job.folder / "launch.py").write_text(forking_launcher("train_planned.py", STAGES, _IMPORTED))
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, local_job.folder)
