"""Baselines of power limits, measured in a training on simulated GPUs with a real agent."""

import json
import logging
import math
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.agents.simulated_node import SimulatedNode, simulated_node
from support.pipelines.two_stages import MICROBATCHES, STAGES, Stages
from wattloop.errors import InputError, OperationError, UsageError
from wattloop.gpus.agent import AgentConnection, GpuDescription, PowerLimits
from wattloop.pipeline import Pipeline
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.pipeline_place import pipeline_place
from wattloop.pipeline.plan_messages import Directive
from wattloop.pipeline.plan_source import PlannedRank
from wattloop.wire.environment import RunEnvironment
from wattloop_research.frequency.files.recorded_run_file import read_runs
from wattloop_research.training import LimitBaseline
from wattloop_research.training.baseline import global_limits, stage_limits

NAMES = {"framework": "torch", "partition": "uniform", "microbatch_size": 2}
GLOBAL = "torch+gpt+uniform+dp1+pp2+tp1+mbs2+nmb4+ZeusGlobalPowerLimit"
PER_STAGE = "torch+gpt+uniform+dp1+pp2+tp1+mbs2+nmb4+ZeusLocalPowerState"
# The simulated A100 draws about 300 W in these instructions.
LIMITS = [400, 250, 175]


def limits_of(dumps: Path) -> dict[int, list[int]]:
    """The limit of each rank in each run."""
    found = {}
    for path in sorted(dumps.glob("*.sched.json")):
        entries = json.loads(path.read_text())
        assert all(each["unit"] == "W" and len(set(each["power_states"])) == 1 for each in entries)
        found[int(path.name.split(".")[0])] = [each["power_states"][0] for each in entries]
    return found


def in_force(node: SimulatedNode) -> list[float]:
    return [gpu.power_limit_watts for gpu in node.gpus.describe().gpus]


def test_one_limit_for_all_and_then_one_a_stage_are_measured_in_one_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dumps = tmp_path / "runs"

    def plan() -> LimitBaseline:
        return LimitBaseline("zeus-per-stage", LIMITS, iterations=3, then="end", **NAMES)

    options: dict[str, Any] = {"dumps": dumps, "model": "gpt"}
    with simulated_node(STAGES, clock="wall") as node, caplog.at_level(logging.INFO, "wattloop"):
        before = in_force(node)
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        stages = Stages(node.gpus, environment, plan, **options)
        stages.train(1_000)
        assert stages.iterations < 1_000
        assert in_force(node) == before
        assert limits_of(dumps / GLOBAL) == {0: [400, 400], 1: [400, 400], 2: [250, 250], 3: [175, 175]}
        of_stages = limits_of(dumps / PER_STAGE)
        # The first stage is the heaviest; the other has less to do, and takes a lower limit.
        assert [limits[0] for limits in of_stages.values()] == [400, *LIMITS]
        assert of_stages[1][1] < 400
        assert all(low <= high for high, low in of_stages.values())
        everyone, per_stage = read_runs(dumps / GLOBAL), read_runs(dumps / PER_STAGE)
        assert [len(run.ranks) for run in (*everyone, *per_stage)] == [STAGES] * 8
        # Less power takes longer.
        assert everyone[3].ranks[0].iteration_seconds.mean() > 1.05 * everyone[1].ranks[0].iteration_seconds.mean()
        assert everyone[3].ranks[0].iteration_joules.mean() < everyone[1].ranks[0].iteration_joules.mean()
        assert any("250, 250 W" in text or "250 W on all ranks" in text for text in caplog.messages)
        assert any("runs left, about" in text for text in caplog.messages)

        # Another training with the same folders runs what a rank lacks.
        lost = dumps / PER_STAGE / "2.prof.json"
        lost.write_text(json.dumps(json.loads(lost.read_text())[:1]))
        kept = (dumps / PER_STAGE / "3.prof.json").read_bytes()
        again = Stages(node.gpus, environment, plan, **options)
        again.train(1_000)
        # Iteration 0, the run that warms up, and run 2.
        assert again.iterations == 1 + 2 * 4
        assert (dumps / PER_STAGE / "3.prof.json").read_bytes() == kept
        assert len(json.loads(lost.read_text())) == STAGES
        with pytest.raises(UsageError, match="has runs of other power limits, or of another number of iterations"):
            opened(node, plan=LimitBaseline("zeus-per-stage", [400, 300], iterations=3, **NAMES), **options)


def opened(node: SimulatedNode, **options: Any) -> None:
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    Pipeline(stage=0, stages=STAGES, microbatches=MICROBATCHES, gpus=[0], environment=environment, **options).open()


TRAINING = """
import sys
import threading
from nvml_simulator import Machine
from wattloop.pipeline import Pipeline
from wattloop_research.training import LimitBaseline

machine, plan = Machine(sys.argv[1]), LimitBaseline("zeus-per-stage", [400, 200], iterations=15, then="end")
with Pipeline(stage=0, stages=1, microbatches=4, plan=plan, dumps=sys.argv[2]) as pipeline:
    while True:
        with pipeline.iteration():
            for kind, work in (("forward", 4.0), ("backward", 8.0)):
                for microbatch in range(4):
                    with pipeline.instruction(kind, microbatch=microbatch):
                        machine.occupy(0, work, 0.6)
        if "waits" in sys.argv and machine.describe().gpus[0].power_limit_watts == 200:
            # The test kills it now, however late it looks.
            threading.Event().wait()
"""


@pytest.mark.processes
def test_a_training_that_is_killed_leaves_no_limit_and_goes_on_at_the_next_run(tmp_path: Path) -> None:
    everyone, per_stage = tmp_path / "ZeusGlobalPowerLimit", tmp_path / "ZeusLocalPowerState"
    with simulated_node(1, clock="wall") as node:
        environment = {**os.environ, "WATTLOOP_AGENT_SOCKET": str(node.socket), "CUDA_VISIBLE_DEVICES": "0"}
        environment |= nvml_simulator.environment(node.state)
        command = [sys.executable, "-c", TRAINING, str(node.state), str(tmp_path)]
        with subprocess.Popen([*command, "waits"], env=environment) as process:
            until((everyone / "1.prof.json").exists, "the first run is dumped", 120.0)
            until(lambda: in_force(node) == [200], "the lower limit is held", 120.0)
            process.kill()
        until(lambda: in_force(node) == [400], "the agent restores the limit")
        assert not (everyone / "2.prof.json").exists()
        before = (everyone / "1.prof.json").read_bytes()
        assert subprocess.run(command, env=environment, check=False, timeout=120).returncode == 0
        assert in_force(node) == [400]
    assert (everyone / "1.prof.json").read_bytes() == before
    assert limits_of(everyone) == limits_of(per_stage) == {0: [400], 1: [400], 2: [200]}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "zeus"}, "baseline: found 'zeus', expected one of zeus-global, zeus-per-stage"),
        ({"limits": 0}, "limits: found 0, expected a step in watts, or 1 to 100 different limits"),
        ({"limits": [300, 300]}, "expected a step in watts, or 1 to 100 different limits, in whole watts"),
        ({"then": "best"}, "then: found 'best', expected one of free, end"),
        ({"iterations": 0}, "iterations: found 0, expected a whole number from 1"),
    ],
)
def test_arguments_of_no_baseline_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        LimitBaseline(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"dumps": None, "plan": LimitBaseline()},
            "dumps: missing; a folder of plans or a baseline is run to be measured",
        ),
        (
            {"environment": {"WATTLOOP_PIPELINE_PLANS": "plans", "WATTLOOP_PIPELINE_BASELINE": "zeus-global"}},
            "found together with WATTLOOP_PIPELINE_BASELINE, expected one of them: a power limit changes the clocks",
        ),
        (
            {"environment": {"WATTLOOP_PIPELINE_BASELINE": "zeus-global"}, "plan": [900, 900]},
            "found together with WATTLOOP_PIPELINE_BASELINE, expected one of them: a power limit changes the clocks",
        ),
        (
            {"environment": {"WATTLOOP_POWER_LIMIT_WATTS": "300"}, "plan": LimitBaseline()},
            "found in a job that sets power limits itself",
        ),
    ],
)
def test_what_contradicts_a_baseline_is_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"dumps": tmp_path / "runs", "environment": {}} | options
    with pytest.raises(UsageError, match=text):
        Pipeline(stage=0, stages=STAGES, microbatches=MICROBATCHES, **given)


def test_a_baseline_is_of_one_pipeline(tmp_path: Path) -> None:
    given: dict[str, Any] = {"environment": {}, "plan": LimitBaseline(), "dumps": tmp_path / "runs"}
    Pipeline(stage=0, stages=STAGES, microbatches=MICROBATCHES, **given)
    with pytest.raises(UsageError, match="found a LimitBaseline of another Pipeline, expected one of its own"):
        Pipeline(stage=0, stages=STAGES, microbatches=MICROBATCHES, **given)


def test_without_an_agent_or_outside_of_the_gpus_range_a_baseline_is_refused(tmp_path: Path) -> None:
    dumps = tmp_path / "runs"
    pipeline = Pipeline(
        stage=0, stages=STAGES, microbatches=MICROBATCHES, environment={}, plan=LimitBaseline(), dumps=dumps
    )
    with pytest.raises(OperationError, match="no agent offers a GPU to this process; start wattloop agent"):
        pipeline.open()
    with simulated_node(1, clock="wall") as node:
        with pytest.raises(UsageError, match="found 500 W, expected 100 to 400 W, as NVIDIA A100-SXM4-80GB and the"):
            opened(node, plan=LimitBaseline(limits=[500, 300]), dumps=dumps)
        (tmp_path / "file").write_text("")
        with pytest.raises(OperationError, match="cannot make the folder"):
            opened(node, plan=LimitBaseline(), dumps=tmp_path / "file")
        assert in_force(node) == [400]


def test_the_baseline_of_a_job_is_that_of_its_environment(tmp_path: Path) -> None:
    variables = {
        "WATTLOOP_PIPELINE_BASELINE": "zeus-global",
        "WATTLOOP_PIPELINE_BASELINE_LIMITS": "300,200",
        "WATTLOOP_PIPELINE_DUMPS": str(tmp_path),
        "WATTLOOP_PIPELINE_PLAN_ITERATIONS": "2",
        "WATTLOOP_PIPELINE_PLANS_THEN": "end",
    }
    with simulated_node(STAGES, clock="wall") as node:
        stages = Stages(node.gpus, {**variables, "WATTLOOP_AGENT_SOCKET": str(node.socket)})
        stages.train(1_000)
    assert stages.iterations == 1 + 3 * 3
    assert limits_of(tmp_path / "ZeusGlobalPowerLimit") == {0: [300, 300], 1: [300, 300], 2: [200, 200]}
    for name, value, text in (
        (
            "WATTLOOP_PIPELINE_BASELINE_LIMITS",
            "high",
            "found 'high', expected limits in whole watts, separated by commas",
        ),
        ("WATTLOOP_PIPELINE_BASELINE", "zeus", "baseline: found 'zeus', expected one of"),
    ):
        with pytest.raises((InputError, UsageError), match=text):
            Pipeline(stage=0, stages=1, microbatches=1, environment=variables | {name: value})


def test_dumps_of_a_rank_without_forwards_balance_no_stages(tmp_path: Path) -> None:
    entry = {"rank": 0, "iter_time": [1.0], "iter_energy": [1.0], "time_breakdown": {}, "energy_breakdown": {}}
    (tmp_path / "1.prof.json").write_text(json.dumps([entry | {"iterations": [1]}]))
    with pytest.raises(InputError, match="found no forward of rank 0"):
        stage_limits([(300,)], tmp_path, (0,))
    (tmp_path / "1.sched.json").write_text('[{"rank": 0, "instructions": ["forward"]}]')
    with pytest.raises(InputError, match="expected instructions kind:stage:microbatch of each rank"):
        stage_limits([(300,)], tmp_path, (0,))


def test_without_the_runs_of_all_ranks_no_limits_of_stages_are_chosen_and_the_training_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattloop_research.training.baseline.DUMP_SECONDS", 4.0)
    everyone = tmp_path / "ZeusGlobalPowerLimit"
    with simulated_node(STAGES, clock="wall") as node:
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        stages = Stages(
            node.gpus,
            environment,
            lambda: LimitBaseline("zeus-per-stage", [400, 300], iterations=2, then="end"),
            dumps=tmp_path,
        )

        def lose_the_first_run() -> bool:
            (everyone / "1.prof.json").unlink(missing_ok=True)
            return stages.iterations == 1_000

        stages.train_until(lose_the_first_run)
        assert stages.iterations < 1_000
        assert in_force(node) == [400, 400]
    lacking = "the dumps lack the runs 1; a training with the same folders repeats them"
    reason = f"the baseline with one power limit a stage is not measured: {lacking}"
    assert [text for text in caplog.messages if "per stage" in text or "a stage is" in text] == [reason] * STAGES
    assert not (tmp_path / "ZeusLocalPowerState").exists()


def test_a_rank_that_cannot_read_the_dumps_begins_with_the_stages_once_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    everyone = tmp_path / "ZeusGlobalPowerLimit"
    with simulated_node(1) as node:
        with AgentConnection(node.socket) as agent:
            gpus = agent.gpus()
        environment = RunEnvironment.read({"WATTLOOP_AGENT_SOCKET": str(node.socket)})
        place = pipeline_place(stage=1, stages=STAGES)
        baseline = LimitBaseline("zeus-per-stage", [300], iterations=1, then="end")
        baseline.prepare(PlannedRank(place, MICROBATCHES, "1F1B", "", tmp_path, environment, DirectiveState()))
        baseline.begin(gpus)
        record = {
            "iter_time": [1.0],
            "iter_energy": [1.0],
            "time_breakdown": {"forward": [[0.5]]},
            "energy_breakdown": {},
        }
        entries = [{"rank": rank, **record, "iterations": [1]} for rank in range(STAGES)]
        (everyone / "1.prof.json").write_text(json.dumps(entries))
        (everyone / "stages.json").write_text('{"first_iteration": 20, "missing": []}')
        baseline.add(IterationRecord(10, Directive(), (), (), 0.0, 1.0, array("d")))
        instructions = everyone / "1.sched.json"

        def collect() -> int | None:
            baseline.collect(math.inf, lambda _begin, _end: None, tuple)
            return baseline.end_iteration

        for found in ("{}", "[]"):
            instructions.write_text(found)
            # The others go on, and would wait for a rank that ends.
            assert [collect(), collect()] == [None, None]
        assert [str(instructions) in caplog.messages[0], len(caplog.messages)] == [True, 2]
        given = [{"rank": rank, "instructions": [f"forward:{rank}:0"]} for rank in range(STAGES)]
        instructions.write_text(json.dumps(given))
        # Two runs of two iterations.
        assert collect() == 24
        baseline.release()


@pytest.mark.parametrize(
    ("allowed", "limits", "text"),
    [
        (None, 25, "this process may hold no power limit on NVIDIA A40: the device or a policy forbids it"),
        ((250.5, 251.5), 25, None),
        ((250.25, 250.75), 25, "limits: found 0 limits, expected 250.25 to 250.75 W"),
        ((100.0, 300.0), 1, "limits: found 201 limits, expected 100 to 300 W"),
    ],
)
def test_the_limits_are_within_the_range_that_device_and_policies_allow(
    allowed: tuple[float, float] | None, limits: int, text: str | None
) -> None:
    gpu = GpuDescription("GPU-1", "NVIDIA A40", 0, PowerLimits(300, 300, 100, 300, 300, allowed))
    if text is None:
        assert global_limits(limits, [gpu]) == [251]
        return
    with pytest.raises(UsageError, match=text):
        global_limits(limits, [gpu])
