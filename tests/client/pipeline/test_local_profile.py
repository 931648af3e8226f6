"""From a script's pipeline to a profile, to a plan, to a run under the plan, on simulated GPUs with a real agent."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.agents.simulated_node import simulated_node
from support.pipelines.plan_server import running_plan_server
from support.pipelines.two_stages import MICROBATCHES, STAGES, Stages
from wattloop.commands.main import main
from wattloop.errors import UsageError
from wattloop.pipeline import ClockProfile, Pipeline
from wattloop.pipeline.free_iterations import FreeIterations
from wattloop.pipeline.plan_messages import Directive, RankReport

CLOCKS = (1410, 1110, 810)


# On a busy machine it measures more than once.
@pytest.mark.timeout(400)
def test_a_script_gets_from_a_pipeline_to_a_plan_and_runs_under_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, plans, runs = tmp_path / "profile.csv", tmp_path / "plans", tmp_path / "runs"
    with simulated_node(STAGES, clock="wall") as node:
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        # 1. Profile, during training steps.
        rows: list[dict[str, str]] = []
        # On a busy machine an energy or the power of a waiting rank may be too uncertain, and is empty. Each
        # instruction needs an energy, a plan needs such a power, and a later run measures again.
        while len({(row["stage"], row["instruction"]) for row in rows if row["energy"]}) < STAGES * 2 or not any(
            row["blocking_power"] for row in rows
        ):
            Stages(node.gpus, environment, lambda: ClockProfile(profile, CLOCKS, 10)).train(1 + 12 * len(CLOCKS))
            with profile.open(newline="") as stream:
                rows = list(csv.DictReader(stream))
        assert len(rows) == STAGES * 2 * len(CLOCKS)
        assert all(int(row["repetitions"]) > 0 for row in rows)

        # 2. Plan.
        command = ["plan", "--profile", str(profile), "--stages", "2", "--microbatches", str(MICROBATCHES)]
        assert main([*command, "--plans", "5", "--output", str(plans)]) == 0
        plan = max(plans.glob("freqs_pipeline_*.py"))
        assert "# GPU product: NVIDIA A100-SXM4-80GB\n" in plan.read_text()

        # 3. Run at free clocks and under the plan.
        Stages(node.gpus, environment, dumps=runs).train(12)
        Stages(node.gpus, environment, lambda: plan, dumps=runs).train(12)
        assert [gpu.locked_graphics_clocks_megahertz for gpu in node.gpus.describe().gpus] == [None] * STAGES
    number = int(plan.stem[-5:]) + 1
    clocks = json.loads((runs / f"{number}.sched.json").read_text())
    assert [len(each["power_states"]) for each in clocks] == [2 * MICROBATCHES] * STAGES

    # 4. Compare.
    capsys.readouterr()
    assert main(["pipeline", "analyze", str(runs), "--format", "json"]) == 0
    free, planned = json.loads(capsys.readouterr().out)
    assert (free["run"], planned["run"]) == (0, number)
    # How much the plan saves, tests/integrations/test_pipeline_plan.py shows in virtual time.
    assert min(free["energy_joules"], planned["energy_joules"]) > 0


def test_the_operators_profile_is_measured_and_reported_until_the_ranks_are_through() -> None:
    with simulated_node(STAGES, clock="wall") as node, running_plan_server() as server:
        server.ranks = STAGES
        server.give(
            Directive(mode="Profile", clocks_megahertz=CLOCKS[:2], warm_up_iterations=2, iterations_per_clock=6)
        )

        def newest() -> list[RankReport]:
            with server.lock:
                return list({report.process: report for report in server.reports}.values())

        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket), "WATTLOOP_REPORT_URL": server.url}
        stages = Stages(node.gpus, environment)
        stages.train_until(lambda: len(newest()) == STAGES and all(report.profiled for report in newest()))
    assert all(report.finished for report in newest())
    # A report repeats no measurements that have not changed.
    measured = {report.process: report.measurements for report in server.reports if report.measurements}
    assert len(measured) == STAGES
    for measurements in measured.values():
        # How accurate they are depends on this machine's load; test_meter.py has virtual time.
        assert {each.megahertz for each in measurements} == set(CLOCKS[:2])


def test_the_ranks_compare_a_plan_with_free_clocks() -> None:
    """Two stages at 1410 MHz without the plan, and at 810 MHz with it, which is much slower."""
    free = FreeIterations(block=4, early_cycles=0, early_cycle=8, cycle=8)
    with simulated_node(STAGES, clock="wall") as node, running_plan_server() as server:
        server.ranks = STAGES
        server.give(Directive(mode="Plan", clocks_megahertz=(810,) * (2 * MICROBATCHES), free=free))

        def newest() -> list[RankReport]:
            with server.lock:
                return list({report.process: report for report in server.reports}.values())

        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket), "WATTLOOP_REPORT_URL": server.url}
        Stages(node.gpus, environment).train_until(
            lambda: len(newest()) == STAGES and all(len(report.compared) >= 2 for report in newest())
        )
    for report in newest():
        assert all(each.plan_joules and each.free_joules for each in report.compared)
        # How much energy it saves, and by which intervals, the next test shows with more cycles.
        assert sum(each.plan_seconds for each in report.compared) > sum(each.free_seconds for each in report.compared)


PROFILING = """
import sys
from nvml_simulator import Machine
from wattloop.pipeline import Pipeline, ClockProfile

machine, plan = Machine(sys.argv[1]), ClockProfile(sys.argv[2], range(210, 1411, 15))
with Pipeline(stage=0, stages=1, microbatches=2, plan=plan) as pipeline:
    while True:
        with pipeline.iteration():
            for kind, work in (("forward", 4.0), ("backward", 8.0)):
                for microbatch in range(2):
                    with pipeline.instruction(kind, microbatch=microbatch):
                        machine.occupy(0, work, 0.6)
"""


@pytest.mark.processes
def test_a_process_that_is_killed_while_it_profiles_leaves_free_clocks_and_the_clocks_that_it_measured(
    tmp_path: Path,
) -> None:
    profile = tmp_path / "profile.csv"
    with simulated_node(1, clock="wall") as node:
        environment = {**os.environ, "WATTLOOP_AGENT_SOCKET": str(node.socket), "CUDA_VISIBLE_DEVICES": "0"}
        command = [sys.executable, "-c", PROFILING, str(node.state), str(profile)]
        with subprocess.Popen(command, env={**environment, **nvml_simulator.environment(node.state)}) as process:
            until(profile.exists, "a clock is measured", 120.0)
            assert node.gpus.describe().gpus[0].locked_graphics_clocks_megahertz is not None
            process.kill()
        until(
            lambda: node.gpus.describe().gpus[0].locked_graphics_clocks_megahertz is None, "the agent frees the clocks"
        )
    with profile.open(newline="") as stream:
        assert {"1410"} <= {row["frequency"] for row in csv.DictReader(stream)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clocks": 1}, "clocks: found 1, expected a whole number from 2 to 512"),
        ({"clocks": (1410, 1410)}, "clocks: found 2, expected 1 to 512 different clocks"),
        ({"iterations": 0}, "iterations: found 0"),
    ],
)
def test_a_profile_with_contradictory_arguments_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        ClockProfile("profile.csv", **options)


def test_without_an_agent_nothing_is_profiled_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "profile.csv"
    with Pipeline(stage=0, stages=1, microbatches=1, environment={}, plan=ClockProfile(path)) as pipeline:
        for _ in range(3):
            with pipeline.iteration(), pipeline.instruction("forward", microbatch=0):
                pass
    assert pipeline.iterations == 3
    assert not path.exists()
    assert "no profile: this process may hold no clock of its GPUs; it needs the node's agent" in caplog.messages
