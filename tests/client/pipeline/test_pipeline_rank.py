"""A pipeline on simulated GPUs with a real agent, and without one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.agent_fixture import until
from support.agents.simulated_node import SimulatedNode, simulated_node
from wattloop.errors import InputError, UsageError
from wattloop.pipeline import Instruction, Pipeline, RankPlan

STEPS = [Instruction(kind, 0, microbatch) for kind in ("forward", "backward") for microbatch in range(2)]
CLOCKS = [1410, 1200, 1200, 900]


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node(2) as simulated:
        yield simulated


def locked(node: SimulatedNode) -> list[int | None]:
    """The clock that each GPU is locked at."""
    pairs = [gpu.locked_graphics_clocks_megahertz for gpu in node.gpus.describe().gpus]
    return [None if pair is None else pair[0] for pair in pairs]


def wait_for(node: SimulatedNode, *clocks: int | None) -> None:
    until(lambda: locked(node) == list(clocks), f"the clocks are {clocks}")


def iterate(pipeline: Pipeline, node: SimulatedNode | None = None) -> None:
    """One iteration; with a node, check that each GPU is locked at its clock in each instruction."""
    with pipeline.iteration():
        expected = pipeline.clocks_megahertz or [None] * len(STEPS)
        for instruction, clock in zip(STEPS, expected, strict=True):
            with pipeline.instruction(instruction.kind, microbatch=instruction.microbatch):
                if node is not None:
                    wait_for(node, clock, clock)


def test_every_instruction_runs_at_its_clock_from_the_second_iteration_on(node: SimulatedNode) -> None:
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    with Pipeline(stage=0, stages=1, microbatches=2, plan=CLOCKS, environment=environment) as pipeline:
        for number in range(3):
            iterate(pipeline, node)
            assert pipeline.iterations == number + 1
            assert pipeline.clocks_megahertz == tuple(CLOCKS)
    assert locked(node) == [None, None]


def test_a_rank_uses_its_own_gpu_alone(node: SimulatedNode) -> None:
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    with (
        Pipeline(
            stage=0, stages=1, microbatches=2, plan=CLOCKS, instructions=STEPS, gpus=[1], environment=environment
        ) as pipeline,
        pipeline.iteration(),
    ):
        with pipeline.instruction("forward", microbatch=0):
            wait_for(node, None, 1410)
        with pipeline.instruction("forward", microbatch=1):
            wait_for(node, None, 1200)
    assert locked(node) == [None, None]


def test_a_mismatch_frees_the_clocks_at_once(node: SimulatedNode) -> None:
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    with Pipeline(
        stage=0, stages=1, microbatches=2, plan=CLOCKS, instructions=STEPS, environment=environment
    ) as pipeline:
        with pipeline.iteration():
            with pipeline.instruction("forward", microbatch=0):
                wait_for(node, 1410, 1410)
            with pipeline.instruction("backward", microbatch=0):
                wait_for(node, None, None)
        assert pipeline.mismatch == "position 1: found backward:0:0, expected forward:0:1"


def test_a_clock_that_the_gpus_do_not_have_leaves_them_free(
    node: SimulatedNode, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    with Pipeline(
        stage=0, stages=1, microbatches=2, plan=[1980] * 4, instructions=STEPS, environment=environment
    ) as pipeline:
        iterate(pipeline, node)
        assert pipeline.refusal == (
            "found 1980 MHz, which NVIDIA A100-SXM4-80GB does not support: it has 81 clocks from 210 to 1410 MHz, the "
            "nearest is 1410"
        )
    assert [record.getMessage() for record in caplog.records] == [
        f"the clocks of this rank's instructions are free: {pipeline.refusal}"
    ]


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({}, "the plan is for NVIDIA A40, this rank has NVIDIA A100-SXM4-80GB"),
        ({"gpu_product": "NVIDIA A40"}, "the plan is for NVIDIA A40, this rank has NVIDIA A100-SXM4-80GB"),
    ],
)
def test_a_plan_file_for_another_gpu_is_refused_with_both_sides(
    node: SimulatedNode, tmp_path: Path, given: dict[str, str], refusal: str
) -> None:
    path = tmp_path / "freqs_pipeline_00000.py"
    path.write_text("[[1410, 1410]]\n# Plan 0: time 1.0 s\n# GPU product: NVIDIA A40\n")
    options = {"plan": RankPlan(path, **given), "instructions": ["forward:0:0", "backward:0:0"]}
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    with (
        Pipeline(stage=0, stages=1, microbatches=1, environment=environment, **options) as pipeline,  # type: ignore[arg-type]
        pipeline.iteration(),
    ):
        assert pipeline.refusal == refusal
        wait_for(node, None, None)
    with pytest.raises(UsageError, match=r"gpu_product: found NVIDIA H200, expected NVIDIA A40, as .* says"):
        Pipeline(stage=0, stages=1, microbatches=1, plan=RankPlan(path, "NVIDIA H200"), environment={})


@pytest.mark.parametrize(
    ("environment", "warnings"),
    [
        ({}, ["no agent: WATTLOOP_AGENT_SOCKET names no socket", "no frequency plan: neither plan= nor an operator"]),
        ({"WATTLOOP_AGENT_SOCKET": "/nowhere/agent.sock"}, ["no agent answers", "no frequency plan"]),
        (
            {"WATTLOOP_PIPELINE_DUMPS": "/nowhere/runs"},
            # A run with dumps is one to compare with, so free clocks need no warning.
            ["no agent: ", "no dumps in /nowhere/runs: this process has no GPU that the node's agent reads"],
        ),
    ],
)
def test_without_an_agent_the_training_goes_on_with_one_warning_each(
    environment: dict[str, str], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Pipeline(stage=0, stages=1, microbatches=2, environment=environment) as pipeline:
        for _ in range(3):
            iterate(pipeline)
    assert pipeline.iterations == 3
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(warnings)
    assert all(expected in message for expected, message in zip(warnings, messages, strict=True))


def test_a_plan_file_gives_each_rank_its_row(node: SimulatedNode, tmp_path: Path) -> None:
    path = tmp_path / "freqs_pipeline_00000.py"
    path.write_text("[\n[1410, 1410],\n[('forward', 1200), ('backward', 900)],\n]\n# Plan 0: time 1.0 s\n")
    instructions = [Instruction(kind, 1, 0) for kind in ("forward", "backward")]
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    with (
        Pipeline(
            stage=1, stages=2, microbatches=1, plan=path, instructions=instructions, environment=environment
        ) as pipeline,
        pipeline.iteration(),
    ):
        for kind, clock in (("forward", 1200), ("backward", 900)):
            with pipeline.instruction(kind, microbatch=0):
                wait_for(node, clock, clock)


def test_the_script_reads_the_knobs_of_its_plan_in_each_instruction(node: SimulatedNode, tmp_path: Path) -> None:
    path = tmp_path / "freqs_pipeline_00000.py"
    path.write_text("[[('forward', 1410, {'sm': '16'}), ('backward', 900, {'sm': '20'})]]")
    instructions = ["forward:0:0", "backward:0:0"]
    environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket)}
    found = []
    with (
        Pipeline(
            stage=0, stages=1, microbatches=1, plan=path, instructions=instructions, environment=environment
        ) as pipeline,
        pipeline.iteration(),
    ):
        for kind in ("forward", "backward"):
            with pipeline.instruction(kind, microbatch=0):
                found.append(dict(pipeline.knobs))
    assert found == [{"sm": "16"}, {"sm": "20"}]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[[1410]]", "found a plan for 1 pipeline ranks, expected one for 2, as this job has"),
        ("[[1410], []]", "1 to 16384 clocks in MHz"),
        ("[[1410], [True]]", "a clock in MHz, a pair"),
        ("[[1410], [('forward', 1410, {'sm': 16})]]", "found {'sm': 16}, expected a dict of knobs, with a text for"),
        ("[[1410], [('forward', 1410, 'sm')]]", "found 'sm', expected a dict of knobs"),
        ("[[1410], [('forward', 1410, {}, 1)]]", "a clock in MHz, a pair"),
        ("[[1410], [900, ('backward', 900, {'sm': '8'})]]", "found sm, expected the knobs of the first one: none"),
        ("[[1410], [0]]", "found 0 MHz, expected 1 to 30000 MHz"),
        ("__import__('os')", "expected lists of numbers, of pairs of a text and a number"),
        ("[[1410", "line 1, column 7: found the end of the file, expected lists of numbers"),
        ("7", "found a int"),
    ],
)
def test_a_wrong_plan_file_is_refused_when_the_pipeline_is_made(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "plan.py"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        Pipeline(stage=1, stages=2, microbatches=1, plan=path, environment={})
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stage": 4, "stages": 4}, "stage: found 4, expected a whole number from 0 to 3"),
        ({"stage": (0, 1, 2), "stages": 4}, "expected the same number of stages"),
        ({"stage": 0.5, "stages": 1}, "stage: found 0.5, expected a whole number from 0 to"),
        ({"stage": "0", "stages": 1}, "stage: found '0', expected a whole number from 0 to"),
        ({"stage": (0, "1"), "stages": 4}, "stage: found '1', expected a whole number from 0 to 3"),
        ({"stage": 0, "stages": 4, "data_rank": 2, "data_parallel": 2}, "data_rank: found 2"),
        ({"stage": 0, "stages": 1, "microbatches": 0}, "microbatches: found 0"),
        ({"stage": 0, "stages": 1, "instructions": ["forward"]}, "expected kind:stage:microbatch"),
        ({"stage": 0, "stages": 2, "instructions": ["forward:1:0"]}, "expected a stage of"),
        ({"stage": 0, "stages": 1, "instructions": ["forward:0:0"] * 2}, "found one twice"),
        ({"stage": 0, "stages": 1, "schedule": ""}, "schedule: found ''"),
        ({"stage": 0, "stages": 1, "schedule": "1F1B\n"}, "schedule: found"),
        ({"stage": 0, "stages": 1, "model": "m" * 129}, "model: found .*, expected a string of at most 128"),
        ({"stage": 0, "stages": 1, "rank": 1}, "rank: found 1, expected a whole number from 0 to 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pipeline(**{"microbatches": 2, "environment": {}, **arguments})  # type: ignore[arg-type]


def test_a_rank_with_several_stages_names_the_stage_of_each_instruction() -> None:
    pipeline = Pipeline(stage=(0, 2), stages=4, microbatches=1, environment={})
    with pipeline.iteration():
        with pytest.raises(UsageError, match="expected one of"):
            pipeline.instruction("forward", microbatch=0)
        with pipeline.instruction("forward", microbatch=0, stage=2):
            pass
    assert [each.text for each in pipeline.instructions] == ["forward:2:0"]
    pipeline.close()
