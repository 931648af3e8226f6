"""A pipeline of real ranks under a frequency plan: the clock of each instruction, its time and its energy.

The example of examples/pipeline runs in `wattloop run` on simulated GPUs with the virtual clock, which
record the clock, the times and the energy of each of their works. So nothing depends on the machine's load.
"""

import signal

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.local_runs.local_runs import LocalJob
from support.torch_pipelines.planned_example import (
    MICROBATCHES,
    STAGES,
    PlannedPipeline,
    planned_pipeline,
    write_job,
    write_served_job,
)
from wattloop_planner.frequency import evaluate

pytestmark = pytest.mark.integrations

INSTRUCTIONS = 2 * MICROBATCHES
STEPS = 5
COUNTER_STEP_SECONDS = 0.1

Works = tuple[nvml_simulator.WorkRecord, ...]


@pytest.fixture(scope="module")
def plan() -> PlannedPipeline:
    """The fastest plan."""
    return planned_pipeline()


def works_of_stages(local_job: LocalJob) -> list[Works]:
    """The works of each stage's GPU, in order: one for each instruction."""
    with nvml_simulator.Machine(local_job.output / "simulated-gpus") as machine:
        return [machine.work_records(stage) for stage in range(STAGES)]


def locked_clocks(local_job: LocalJob) -> list[tuple[int, int] | None]:
    gpus = nvml_simulator.describe(local_job.output / "simulated-gpus").gpus
    return [gpu.locked_graphics_clocks_megahertz for gpu in gpus]


def realised(stages: list[Works]) -> tuple[float, float]:
    """Mean time and energy of an iteration: from the second one's begin to the last one's, on each GPU."""
    last = len(stages[0]) - INSTRUCTIONS
    count = last // INSTRUCTIONS - 1
    spans = [(works[INSTRUCTIONS], works[last]) for works in stages]
    seconds = max(end.begin_seconds - begin.begin_seconds for begin, end in spans)
    microjoules = sum(end.begin_microjoules - begin.begin_microjoules for begin, end in spans)
    return seconds / count, microjoules / 1e6 / count


def test_each_instruction_runs_at_its_planned_clock_and_time_and_energy_are_the_planned_ones(
    local_job: LocalJob, plan: PlannedPipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(local_job, plan.clocks, planned=[1], steps=STEPS)
    assert local_job.run("--recurrences", "2", "--simulated-gpus", str(STAGES)) == 0
    works = works_of_stages(local_job)
    assert [len(each) for each in works] == [2 * STEPS * INSTRUCTIONS] * STAGES
    free, planned = (
        [each[begin : begin + STEPS * INSTRUCTIONS] for each in works] for begin in (0, STEPS * INSTRUCTIONS)
    )
    # The clocks of every GPU, instruction by instruction.
    assert {record.graphics_clock_megahertz for each in free for record in each} == {1410}
    assert [[record.graphics_clock_megahertz for record in each] for each in planned] == [
        row * STEPS for row in plan.clocks
    ]
    assert locked_clocks(local_job) == [None] * STAGES
    # Time and energy of an iteration, as the planner has them.
    free_seconds, free_joules = realised(free)
    seconds, joules = realised(planned)
    assert free_seconds == pytest.approx(plan.free.time_seconds, rel=1e-6)
    assert free_joules == pytest.approx(plan.free.energy_joules, rel=1e-6)
    assert seconds == pytest.approx(plan.planned.time_seconds, rel=1e-6)
    assert joules == pytest.approx(plan.planned.energy_joules, rel=1e-6)
    # The saving at no slowdown: planned, as the GPUs integrate it, and as the run reports it.
    assert seconds / free_seconds - 1 <= 0.001
    saving = 1 - joules / free_joules
    assert saving == pytest.approx(1 - plan.planned.energy_joules / plan.free.energy_joules, abs=1e-6)
    first, second = (float(row["energy_joules"]) for row in local_job.rows())
    used = [
        sum(each[-1].end_microjoules - each[0].begin_microjoules for each in stages) / 1e6 for stages in (free, planned)
    ]
    # Each counter is up to a step behind, at the begin and at the end.
    behind_joules = (
        STAGES
        * COUNTER_STEP_SECONDS
        * nvml_simulator.busy_power_and_throughput(nvml_simulator.model_named("A100"), 1410, 1.0)[0]
    )
    assert 1 - second / first == pytest.approx(1 - used[1] / used[0], abs=2 * behind_joules / used[1])
    with capsys.disabled():
        print(
            f"\nplan: {plan.planned.time_seconds:.4f} s, {plan.planned.energy_joules:.1f} J; "
            f"maximum clocks: {plan.free.time_seconds:.4f} s, {plan.free.energy_joules:.1f} J; "
            f"realised: {seconds:.6f} s, {joules:.3f} J; saving {100 * saving:.2f} %, reported "
            f"{100 * (1 - second / first):.2f} %"
        )


def test_a_plan_of_the_plan_service_begins_on_all_ranks_at_the_same_iteration_and_costs_no_time(
    local_job: LocalJob, plan: PlannedPipeline
) -> None:
    write_served_job(local_job, plan)
    assert local_job.run("--recurrences", "1", "--simulated-gpus", str(STAGES)) == 0
    assert [row["outcome"] for row in local_job.rows()] == ["reached"]
    works = works_of_stages(local_job)
    iterations = len(works[0]) // INSTRUCTIONS
    by_iteration = [
        [
            [record.graphics_clock_megahertz for record in each[number * INSTRUCTIONS : (number + 1) * INSTRUCTIONS]]
            for each in works
        ]
        for number in range(iterations)
    ]
    first = next(number for number, rows in enumerate(by_iteration) if rows != [[1410] * INSTRUCTIONS] * STAGES)
    rows = by_iteration[-1]
    assert by_iteration[first:] == [rows] * (iterations - first)
    assert iterations - first >= 4
    assert locked_clocks(local_job) == [None] * STAGES
    seconds, joules = realised([each[first * INSTRUCTIONS :] for each in works])
    planned = evaluate(plan.problem, rows)
    assert seconds == pytest.approx(planned.time_seconds, rel=1e-6)
    assert joules == pytest.approx(planned.energy_joules, rel=1e-6)
    assert seconds / plan.free.time_seconds - 1 <= 0.001
    # As good as a plan that is computed from the same profile without the operator.
    assert 1 - joules / plan.free.energy_joules >= 0.98 * (1 - plan.planned.energy_joules / plan.free.energy_joules)


# The usual set has these kills in tests/operator/attacks/test_pipeline_kills.py and
# tests/agent/attacks/test_killed_pipeline.py, and one of a rank in a process group in test_ranks.py.
@pytest.mark.exhaustive
@pytest.mark.parametrize("killed", ["rank", "agent"])
def test_after_a_kill_clocks_are_free_and_no_instruction_had_the_clock_of_another(
    local_job: LocalJob, plan: PlannedPipeline, killed: str
) -> None:
    write_job(local_job, plan.clocks, planned=[0, 1], steps=STEPS, killed=killed)
    assert local_job.run("--recurrences", "1", "--simulated-gpus", str(STAGES)) == 0
    outcomes = [row["outcome"] for row in local_job.rows()]
    # The ranks outlive the agent: its successor holds their clocks.
    assert outcomes == (["crashed", "reached"] if killed == "rank" else ["reached"])
    assert locked_clocks(local_job) == [None] * STAGES
    works = works_of_stages(local_job)
    for row, each in zip(plan.clocks, works, strict=True):
        clocks = [record.graphics_clock_megahertz for record in each]
        complete = STEPS * INSTRUCTIONS
        interrupted = len(clocks) - complete
        assert (interrupted > 0) == (killed == "rank")
        # The attempt that was killed, and then a whole one from the first instruction on.
        assert clocks[:interrupted] == (row * STEPS)[:interrupted]
        assert clocks[interrupted:] == row * STEPS


@pytest.mark.exhaustive
def test_after_a_kill_of_the_operator_clocks_are_free_and_the_next_run_has_the_whole_plan(
    local_job: LocalJob, plan: PlannedPipeline
) -> None:
    write_job(local_job, plan.clocks, planned=[0, 1], steps=STEPS, killed="run")
    options = ("--recurrences", "1", "--simulated-gpus", str(STAGES))
    run = local_job.start(*options)
    state = local_job.output / "simulated-gpus"
    until(
        lambda: run.wait_for_end(0) or (state.exists() and len(works_of_stages(local_job)[3]) > INSTRUCTIONS),
        "work",
        seconds=300,
    )
    run.signal(signal.SIGKILL)
    assert run.ended() == -signal.SIGKILL
    # The watchdog ends the ranks and the agent, which restores the clocks of those that have ended.
    until(lambda: locked_clocks(local_job) == [None] * STAGES, "free clocks")
    assert local_job.run(*options) == 0
    assert local_job.rows()[-1]["outcome"] == "reached"
    for row, works in zip(plan.clocks, works_of_stages(local_job), strict=True):
        assert [record.graphics_clock_megahertz for record in works] == row * STEPS
    assert locked_clocks(local_job) == [None] * STAGES
