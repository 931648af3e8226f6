"""A user's FrequencyPlan: it runs without profiling if it fits the ranks, and is refused with both sides if not."""

import base64
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.pipelines.knob_pipelines import KNOBS, knob_problem
from support.pipelines.registrations import CLOCKS, instructions_of
from support.pipelines.simulated_ranks import NEW_STATE, SimulatedOperator, exchange, ranks_of, run_until_planned
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.frequency_plan import FrequencyPlan, decode_archive
from wattloop_operator.api.meta import OwnerReference
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.pipeline.job_plan import job_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import GivenPlan, JobPlan
from wattloop_operator.reconcile.pipeline.plan_object import plan_object
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan
from wattloop_planner.frequency.files.archive import archive_of, write_archive
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_research.frequency.baselines import max_frequency

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests" / "valid"
JOB = OwnerReference(api_version="wattloop.dev/v1alpha1", kind="RecurringTrainingJob", name="gpt", uid="0c3b2d9e")
INSTRUCTIONS = [[text.split(":")[0] for text in instructions_of(stage)] for stage in (0, 1)]


def manifest(name: str) -> dict[str, Any]:
    path = MANIFESTS / f"{name}.yaml"
    value: dict[str, Any] = next(read_documents(str(path), path.read_text(encoding="utf-8"))).value
    return value


def plan_of(power: dict[str, Any], plan: FrequencyPlan | None = None, **spec: Any) -> JobPlan:
    """How a job with these fields plans its pipelines."""
    document = manifest("minimal")
    document["spec"] |= {"power": power, **spec}
    document["metadata"]["namespace"] = "team"
    recurrence = TrainingAttempt.from_wire(manifest("training-recurrence"))
    return job_plan(RecurringTrainingJob.from_wire(document), recurrence, plan)


def given_plan(plan: FrequencyPlan | None) -> GivenPlan:
    return plan_of({"mode": "None", "frequencyPlan": {"name": "mine"}}, plan).given


def run(given: GivenPlan, **shape: int) -> SimulatedOperator:
    """Ranks that register under a given plan."""
    operator = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=given)))
    run_until_planned(operator, ranks_of(2, **shape), rounds=8)
    return operator


def made_by_operator(**shape: int) -> FrequencyPlan:
    operator = SimulatedOperator()
    run_until_planned(operator, ranks_of(2, **shape))
    return plan_object(operator.state, JOB)


def with_knobs(folder: Path) -> FrequencyPlan:
    problem = knob_problem(folder, microbatches=2, clocks=CLOCKS)
    archive = archive_of(problem, plan_pipeline(problem), max_frequency(problem), schedule="1F1B")
    data = base64.b64encode(write_archive(archive)).decode("ascii")
    return FrequencyPlan.from_wire({"spec": {"archive": data}})


def listed(rows: list[list[tuple[str, int]]], **spec: Any) -> FrequencyPlan:
    stages = [{"operations": [{"instruction": name, "megahertz": clock} for name, clock in row]} for row in rows]
    return FrequencyPlan.from_wire({"spec": {"stages": stages, **spec}})


@pytest.mark.parametrize(
    ("power", "spec", "expected"),
    [
        ({}, {}, (False, "Fastest")),
        ({"mode": "None"}, {}, (True, "Fastest")),
        ({"mode": "None"}, {"mode": "Advise"}, (False, "Fastest")),
        ({"mode": "None", "frequencyPlan": {"choice": "Cost"}}, {}, (True, "Cost")),
    ],
)
def test_a_job_says_whether_and_how_its_pipelines_are_planned(
    power: dict[str, Any], spec: dict[str, Any], expected: tuple[bool, str]
) -> None:
    found = plan_of(power, **spec)
    assert (found.enabled, found.choice.mode) == expected
    assert found.given is None


def test_a_deadline_is_the_longest_time_of_an_iteration() -> None:
    power = {"mode": "None", "frequencyPlan": {"choice": "Deadline", "deadlineSeconds": 3.2}}
    assert plan_of(power).choice.deadline_seconds == float(Decimal("3.2"))


def test_the_operators_plan_of_another_job_runs_without_a_profile() -> None:
    state = run(given_plan(made_by_operator())).state
    assert (state.directive.mode, state.directive.number) == ("Plan", 1)
    assert len(state.frontier.points) > 1
    assert not state.profile.processes


def test_a_listed_plan_runs_as_it_is_written() -> None:
    clocks = [[CLOCKS[place % 3] for place, _ in enumerate(row)] for row in INSTRUCTIONS]
    rows = [list(zip(names, chosen, strict=True)) for names, chosen in zip(INSTRUCTIONS, clocks, strict=True)]
    state = run(given_plan(listed(rows, gpuProduct="NVIDIA A40"))).state
    assert state.directive.mode == "Plan"
    assert state.frontier.points[0].clocks_megahertz == tuple(map(tuple, clocks))


def test_each_rank_gets_the_knobs_of_a_plan_with_its_clocks(tmp_path: Path) -> None:
    given = given_plan(with_knobs(tmp_path))
    operator, ranks = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=given))), ranks_of(2)
    run_until_planned(operator, ranks, rounds=8)
    archive = decode_archive(given.spec.archive or "")
    point = operator.state.directive.point
    for stage, rank in enumerate(ranks):
        expected = archive.thinned(len(operator.state.frontier.points)).stage_settings(point, stage)
        assert rank.directive.clocks_megahertz == tuple(setting.frequency_megahertz for setting in expected)
        found = [tuple(knobs.values()) for knobs in rank.directive.knobs.by_instruction()]
        assert found == [setting.knobs for setting in expected]
        assert rank.directive.knobs.names == KNOBS


def listed_with_knobs(*knobs: dict[str, str]) -> FrequencyPlan:
    """A plan at 900 MHz whose first operations have these knobs, and the others those of the last one."""
    stages = [
        {
            "operations": [
                {"instruction": name, "megahertz": 900, "knobs": knobs[min(4 * stage + place, len(knobs) - 1)]}
                for place, name in enumerate(row)
            ]
        }
        for stage, row in enumerate(INSTRUCTIONS)
    ]
    return FrequencyPlan.from_wire({"spec": {"stages": stages}})


def test_each_rank_gets_the_knobs_of_a_listed_plan() -> None:
    plan = listed_with_knobs({"sm": "16", "launch": "early"}, {"launch": "late", "sm": "16"})
    # As the API server returns it.
    operator, ranks = (
        SimulatedOperator(
            replace(NEW_STATE, job_plan=JobPlan(given=given_plan(FrequencyPlan.from_wire(plan.to_wire()))))
        ),
        ranks_of(2),
    )
    run_until_planned(operator, ranks, rounds=8)
    found = [
        [dict(knobs) for knobs in rank.directive.knobs.by_instruction()]
        for rank in ranks
        if rank.directive.knobs is not None
    ]
    early, late = {"launch": "early", "sm": "16"}, {"launch": "late", "sm": "16"}
    assert found == [[early, late, late, late], [late] * 4]


MISSING = "FrequencyPlan team/mine does not exist; create it, or leave power.frequencyPlan.name out"
OTHER_CLOCKS = (
    "found clocks of 910 MHz, expected clocks that the GPUs of all ranks (NVIDIA A40) have and the policies of their "
    "nodes allow: 900 to 1410 MHz, 4 clocks"
)
ROWS = [[(name, 900) for name in row] for row in INSTRUCTIONS]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, f"there is no plan: {MISSING}"),
        (listed(ROWS, gpuProduct="NVIDIA V100"), "found a plan for NVIDIA V100, expected one for NVIDIA A40, which"),
        (listed(ROWS[:1]), "found a plan of 1 stages, expected one of 2, as the ranks registered"),
        (
            listed([ROWS[0][:-1], ROWS[1]]),
            "stage 0 differs: instruction 3 is missing, and it is backward there, expected the instructions that",
        ),
        (listed([[(name, 910) for name, _ in ROWS[0]], ROWS[1]]), OTHER_CLOCKS),
        (
            listed_with_knobs({"sm": "16"}, {"sm": "16", "launch": "late"}),
            "found operation 1 of stage 0 with the knobs launch, sm, expected those of the plan's first operation: sm",
        ),
        (
            listed_with_knobs({}, {"sm": "16"}),
            "found operation 1 of stage 0 with the knobs sm, expected those of the plan's first operation: none",
        ),
        (listed_with_knobs({"s" * 65: "16"}), "FrequencyPlan mine: knobs.names[0]: found 'sss"),
    ],
)
def test_a_plan_that_does_not_fit_the_ranks_is_refused_with_both_sides(
    plan: FrequencyPlan | None, problem: str
) -> None:
    state = run(given_plan(plan)).state
    assert state.directive.mode == "Free"
    assert problem in state.directive.reason


def test_a_plan_for_another_number_of_microbatches_is_refused_with_the_instruction_that_differs() -> None:
    state = run(given_plan(made_by_operator()), microbatches=4).state
    assert state.directive.mode == "Free"
    assert "a plan whose stage 0 differs: instruction" in state.directive.reason


def test_a_missing_plan_runs_as_soon_as_it_appears() -> None:
    operator, ranks = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=given_plan(None)))), ranks_of(2)
    run_until_planned(operator, ranks, rounds=8)
    applied = applied_plan(operator.state, "")
    assert (applied.mode, applied.problem) == ("Free", MISSING)
    operator.state = replace(operator.state, job_plan=JobPlan(given=given_plan(listed(ROWS))))
    run_until_planned(operator, ranks, rounds=8)
    applied = applied_plan(operator.state, "mine")
    assert (applied.mode, applied.problem) == ("Plan", "")
    assert all(set(rank.directive.clocks_megahertz) == {900} for rank in ranks)


def test_a_changed_plan_replaces_the_one_that_runs() -> None:
    first = given_plan(listed(ROWS))
    operator, ranks = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=first))), ranks_of(2)
    run_until_planned(operator, ranks)
    number = operator.state.directive.number
    second = given_plan(listed([[(name, 1100) for name, _ in row] for row in ROWS]))
    operator.state = replace(operator.state, job_plan=JobPlan(given=second))
    for _ in range(3):
        run_until_planned(operator, ranks)
    assert operator.state.directive.number > number
    assert set(operator.state.frontier.points[0].clocks_megahertz[0]) == {1100}


def test_a_plan_that_changes_as_a_rank_finishes_frees_the_others() -> None:
    own = JobPlan(given=given_plan(made_by_operator()))
    operator, ranks = SimulatedOperator(replace(NEW_STATE, job_plan=own)), ranks_of(2)
    run_until_planned(operator, ranks)
    assert operator.state.directive.point
    operator.receive(ranks[0], replace(ranks[0].report(), finished=True))
    operator.state = replace(operator.state, job_plan=JobPlan(given=given_plan(listed(ROWS))))
    for _ in range(3):
        exchange(operator, ranks[1:])
    assert ranks[1].running.mode == "Free"


def test_a_given_plan_has_no_more_clocks_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = made_by_operator()
    monkeypatch.setattr("wattloop_operator.reconcile.pipeline.pipeline_state.MAX_PLANNED_CLOCKS", 8 * 5)
    frontier = run(given_plan(plan)).state.frontier
    assert [sum(map(len, point.clocks_megahertz)) for point in frontier.points] == [8] * 5
