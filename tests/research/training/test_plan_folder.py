"""All plans of a folder in one training, on simulated GPUs with a real agent."""

import contextlib
import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.agents.simulated_node import simulated_node
from support.pipelines.two_stages import MICROBATCHES, STAGES, Stages
from wattloop.errors import InputError, OperationError, UsageError
from wattloop.pipeline import Pipeline
from wattloop_research.frequency.files.recorded_run_file import read_runs
from wattloop_research.training import PlanFolder

pytestmark = pytest.mark.long

# Not in the order of their names: the index counts.
PLANS = {"freqs_pipeline_00010.py": 1110, "freqs_pipeline_9.py": 1200, "freqs_pipeline_00002.py": 1305}
IN_ORDER = [1305, 1200, 1110]
NAMES = {"framework": "torch", "partition": "uniform", "microbatch_size": 2}
FOLDER = "torch+gpt+uniform+dp1+pp2+tp1+mbs2+nmb4+PointSolution"


def plan_folder(folder: Path, product: str = "", stages: int = STAGES) -> Path:
    folder.mkdir()
    for name, clock in PLANS.items():
        rows = [[clock] * (2 * MICROBATCHES)] * stages
        (folder / name).write_text(f"{rows}\n" + (f"# GPU product: {product}\n" if product else ""))
    (folder / "iteration_time_energy.csv").write_text("plan,time,energy\n")
    return folder


def clocks_of(dumps: Path) -> dict[int, set[int]]:
    """The clocks of all ranks in each run."""
    return {
        int(path.name.split(".")[0]): {clock for each in json.loads(path.read_text()) for clock in each["power_states"]}
        for path in dumps.glob("*.sched.json")
    }


def test_all_plans_of_a_folder_run_in_order_with_a_dump_each_and_then_the_training_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plans, dumps = plan_folder(tmp_path / "plans", "NVIDIA A100-SXM4-80GB"), tmp_path / "runs"

    def plan(iterations: int = 3) -> PlanFolder:
        return PlanFolder(plans, iterations=iterations, then="end", **NAMES)

    options: dict[str, Any] = {"dumps": dumps, "model": "gpt"}
    with simulated_node(STAGES, clock="wall") as node, caplog.at_level(logging.INFO, "wattloop"):
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        stages = Stages(node.gpus, environment, plan, **options)
        stages.train(1_000)
        # After the first iteration, two runs that warm up and three plans, each with one that is not measured.
        assert stages.iterations == 1 + 5 * 4
        assert [gpu.locked_graphics_clocks_megahertz for gpu in node.gpus.describe().gpus] == [None] * STAGES
        runs = read_runs(dumps / FOLDER)
        assert [run.number for run in runs] == [0, 1, 2, 3, 4]
        # On a busy machine an iteration may not have its clocks.
        assert all(1 <= run.iterations <= 3 for run in runs)
        assert clocks_of(dumps / FOLDER) == dict(enumerate({clock} for clock in [1410, 1410, *IN_ORDER]))
        assert any(
            "plan 2 of 3: freqs_pipeline_9.py" in text and "runs left, about" in text for text in caplog.messages
        )

        # Another training with the same folders has nothing to do; a plan that a rank lacks runs again.
        again = Stages(node.gpus, environment, plan, **options)
        again.train(1_000)
        assert again.iterations == 0
        lost = dumps / FOLDER / "3.prof.json"
        entries = json.loads(lost.read_text())
        lost.write_text(json.dumps(entries[:1]))
        before = (dumps / FOLDER / "2.prof.json").read_bytes()
        resumed = Stages(node.gpus, environment, plan, **options)
        resumed.train(1_000)
        assert resumed.iterations == 1 + 3 * 4
    assert (dumps / FOLDER / "2.prof.json").read_bytes() == before
    assert [len(run.ranks) for run in read_runs(dumps / FOLDER)] == [STAGES] * 5
    with pytest.raises(UsageError, match="has runs of other plans, or of another number of iterations"):
        started({"plan": plan(4), **options})


def started(options: dict[str, Any]) -> None:
    with simulated_node(1, clock="wall") as node:
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        Pipeline(stage=0, stages=STAGES, microbatches=MICROBATCHES, gpus=[0], environment=environment, **options).open()


def test_the_best_plan_runs_after_the_last_one_on_all_ranks(tmp_path: Path) -> None:
    plans, dumps = plan_folder(tmp_path / "plans"), tmp_path / "runs"
    with simulated_node(STAGES, clock="wall") as node:
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}

        def plan() -> PlanFolder:
            return PlanFolder(plans, iterations=3, then="best")

        stages = Stages(node.gpus, environment, plan, dumps=dumps)
        stages.train_until(
            lambda: stages.iterations > 26 and all(stages.clocks) and stages.clocks[0] == stages.clocks[1]
        )
        best = json.loads((dumps / "best.json").read_text())
        (clock,) = set(stages.clocks[0])
        assert clocks_of(dumps)[best["run"]] == {clock}
        assert best["first_iteration"] > 25
        # When it is started again, it runs from the first iteration on.
        restarted = Stages(node.gpus, environment, plan, dumps=dumps)
        restarted.train(2)
        assert restarted.clocks == [(clock,) * (2 * MICROBATCHES)] * STAGES


def test_a_plan_of_another_gpu_is_neither_run_nor_dumped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans, dumps = plan_folder(tmp_path / "plans", "NVIDIA A40"), tmp_path / "runs"
    with simulated_node(STAGES, clock="wall") as node:
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        stages = Stages(node.gpus, environment, lambda: PlanFolder(plans, iterations=1, then="end"), dumps=dumps)
        stages.train(1_000)
    assert stages.iterations == 1 + 5 * 2
    assert not list(dumps.glob("*.prof.json"))
    assert any("the plan is for NVIDIA A40, this rank has NVIDIA A100-SXM4-80GB" in text for text in caplog.messages)


def test_without_an_agent_no_plan_runs_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plans = plan_folder(tmp_path / "plans", stages=1)
    plan = PlanFolder(plans, then="end")
    with Pipeline(stage=0, stages=1, microbatches=1, environment={}, plan=plan, dumps=tmp_path / "runs") as pipeline:
        for _ in range(3):
            with pipeline.iteration(), pipeline.instruction("forward", microbatch=0):
                pass
    assert pipeline.iterations == 3
    assert f"the plans in {plans} do not run: this process may hold no clock of its GPUs" in caplog.messages


# With a fourth argument, it makes that file in the midst of the second plan, and waits to be killed.
SERIES = """
import pathlib, sys, time
from nvml_simulator import Machine
from wattloop.pipeline import Pipeline
from wattloop_research.training import PlanFolder

machine, plan = Machine(sys.argv[1]), PlanFolder(sys.argv[2], iterations=6, then="end")
with Pipeline(stage=0, stages=1, microbatches=4, plan=plan, dumps=sys.argv[3]) as pipeline:
    while True:
        # The first iteration, and three runs of 7: two that warm up, and the first plan.
        is_killed = len(sys.argv) > 4 and pipeline.iterations == 1 + 3 * 7 + 3
        with pipeline.iteration():
            for kind, work in (("forward", 4.0), ("backward", 8.0)):
                for microbatch in range(4):
                    with pipeline.instruction(kind, microbatch=microbatch):
                        machine.occupy(0, work, 0.6)
                        if is_killed and (kind, microbatch) == ("backward", 1):
                            pathlib.Path(sys.argv[4]).touch()
                            time.sleep(600)
"""


def rest_of(terminal: int) -> str:
    """What was written to a terminal whose other end is closed; the kernel hands it over in parts."""
    read = b""
    # At the end, a read fails.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            read += part
    return read.decode()


@pytest.mark.processes
def test_a_training_that_is_killed_goes_on_at_the_next_plan(tmp_path: Path) -> None:
    plans, dumps = plan_folder(tmp_path / "plans", stages=1), tmp_path / "runs"
    first, second, held = dumps / "2.prof.json", dumps / "3.prof.json", tmp_path / "held"
    with simulated_node(1, clock="wall") as node:
        environment = {**os.environ, "WATTLOOP_AGENT_SOCKET": str(node.socket), "CUDA_VISIBLE_DEVICES": "0"}
        command = [sys.executable, "-c", SERIES, str(node.state), str(plans), str(dumps)]
        environment |= nvml_simulator.environment(node.state)
        with subprocess.Popen([*command, str(held)], env=environment) as process:
            # A thread beside the training writes the dump.
            until(lambda: held.exists() and first.exists(), "the second plan runs, the first one is dumped", 120.0)
            process.kill()
        assert not second.exists()
        before = first.read_bytes()
        terminal, end = pty.openpty()
        assert subprocess.run(command, env=environment, check=False, timeout=120, stderr=end).returncode == 0
        # The script shows no log, so the terminal has the progress.
        os.close(end)
        shown = rest_of(terminal).splitlines()
        os.close(terminal)
    assert first.read_bytes() == before
    assert [run.number for run in read_runs(dumps)] == [0, 1, 2, 3, 4]
    assert clocks_of(dumps)[4] == {1110}
    assert any("run 4 is complete, plan 3 of 3: freqs_pipeline_00010.py" in line for line in shown)
    assert any("1 runs left, about" in line for line in shown)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"iterations": 0}, "iterations: found 0, expected a whole number from 1"),
        ({"then": "stop"}, "then: found 'stop', expected one of free, best, end"),
        ({"dumps": None}, "dumps: missing; a folder of plans or a baseline is run to be measured"),
        ({"partition": "uniform", "model": ""}, "model, microbatch_size: missing, to name the folder"),
        ({**NAMES, "model": "a+b"}, "expected texts without"),
        ({**NAMES, "partition": "a/b"}, "expected texts without"),
        (
            {**NAMES, "partition": "custom:0,4,9,14"},
            "partition: found custom:0,4,9,14, expected the first layer of each of",
        ),
        ({**NAMES, "partition": "custom:1,4,9"}, "rising whole numbers from 0, such as custom:0,8,16"),
        ({**NAMES, "partition": "custom:0,9,4"}, "rising whole numbers from 0, such as custom:0,8,16"),
        ({**NAMES, "partition": "custom:0,,4"}, "rising whole numbers from 0, such as custom:0,8,16"),
        ({"gpu_product": "NVIDIA H200"}, "gpu_product: found NVIDIA H200, expected NVIDIA A40"),
    ],
)
def test_options_that_contradict_a_folder_of_plans_are_refused(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    plans = plan_folder(tmp_path / "plans", "NVIDIA A40")
    of_pipeline = {"model": "gpt", "dumps": tmp_path / "runs"}
    of_pipeline |= {name: options.pop(name) for name in [*of_pipeline] if name in options}
    with pytest.raises(UsageError, match=text):
        Pipeline(
            stage=0,
            stages=STAGES,
            microbatches=MICROBATCHES,
            environment={},
            plan=PlanFolder(plans, **options),
            **of_pipeline,
        )


def test_the_folder_of_a_job_is_that_of_its_environment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans = plan_folder(tmp_path / "plans", stages=1)
    variables = {
        "WATTLOOP_PIPELINE_PLANS": str(plans),
        "WATTLOOP_PIPELINE_DUMPS": str(tmp_path / "runs"),
        "WATTLOOP_PIPELINE_PLAN_ITERATIONS": "3",
        "WATTLOOP_PIPELINE_PLANS_THEN": "end",
    }
    with Pipeline(stage=0, stages=1, microbatches=1, environment=variables):
        pass
    assert f"the plans in {plans} do not run: this process may hold no clock of its GPUs" in caplog.messages
    for name, value, text in (
        ("WATTLOOP_PIPELINE_PLAN_ITERATIONS", "many", "found 'many', expected 1 to 1000000 iterations"),
        ("WATTLOOP_PIPELINE_PLANS_THEN", "stop", "then: found 'stop', expected one of free, best, end"),
        ("WATTLOOP_PIPELINE_PLANS", str(tmp_path / "none"), "cannot read: No such file or directory"),
    ):
        with pytest.raises((InputError, UsageError, OperationError), match=text):
            Pipeline(stage=0, stages=1, microbatches=1, environment=variables | {name: value})


def test_a_folder_without_plans_or_with_plans_of_several_gpus_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"stage": 0, "stages": STAGES, "microbatches": MICROBATCHES, "environment": {}}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found no plan, expected 1 to 10000 plan files"):
        Pipeline(plan=tmp_path / "empty", dumps=tmp_path / "runs", **options)
    plans = plan_folder(tmp_path / "plans", "NVIDIA A40")
    rows = [[900] * (2 * MICROBATCHES)] * STAGES
    (plans / "freqs_pipeline_00011.py").write_text(f"{rows}\n# GPU product: NVIDIA H200\n")
    with pytest.raises(InputError, match=r"for NVIDIA A40 and freqs_pipeline_00011\.py for NVIDIA H200"):
        Pipeline(plan=plans, dumps=tmp_path / "runs", **options)
    other = plan_folder(tmp_path / "other", stages=3)
    with pytest.raises(InputError, match="found a plan for 3 pipeline ranks, expected one for 2"):
        Pipeline(plan=other, dumps=tmp_path / "runs", **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError, match="cannot make the folder"):
        started({"plan": plan_folder(tmp_path / "third"), "dumps": tmp_path / "file" / "runs"})


def test_a_choice_of_another_form_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans, dumps = plan_folder(tmp_path / "plans"), tmp_path / "runs"
    with simulated_node(STAGES, clock="wall") as node:
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
        Stages(node.gpus, environment, lambda: PlanFolder(plans, iterations=1, then="end"), dumps=dumps).train(1_000)
        (dumps / "best.json").write_text('{"run": 1, "first_iteration": 3}')
        stages = Stages(node.gpus, environment, lambda: PlanFolder(plans, iterations=1, then="best"), dumps=dumps)
        with pytest.raises(AssertionError):
            stages.train(2)
    assert all("expected a run from 2 on" in str(error) for error in stages.errors if isinstance(error, InputError))
    assert any(isinstance(error, InputError) for error in stages.errors)
