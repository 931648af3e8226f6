"""The FrequencyPlan of a pipeline and its status, from simulated ranks that profile, plan and run."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from support.pipelines.simulated_ranks import (
    SimulatedOperator,
    SimulatedRank,
    exchange,
    ranks_of,
    run_cycles,
    run_until_planned,
)
from wattloop_operator.api.frequency_plan import FrequencyPlan, FrequencyPlanStatus, decode_archive
from wattloop_operator.api.meta import Condition, ConditionStatus, ObjectMeta, OwnerReference
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.reconcile.pipeline.liveness import silence_timeout
from wattloop_operator.reconcile.pipeline.measured_excess import compared
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, Straggler
from wattloop_operator.reconcile.pipeline.plan_object import plan_object
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan, plan_status, rounded, with_iterations
from wattloop_operator.reconcile.pipeline.saving import measured

JOB = OwnerReference(api_version="wattloop.dev/v1alpha1", kind="RecurringTrainingJob", name="gpt", uid="0c3b2d9e")


def running(ranks: int = 4, data_parallel: int = 2) -> tuple[SimulatedOperator, list[SimulatedRank]]:
    """A pipeline whose ranks run a plan."""
    operator, found = SimulatedOperator(), ranks_of(ranks, data_parallel=data_parallel)
    run_until_planned(operator, found)
    exchange(operator, found)
    return operator, found


def status_of(operator: SimulatedOperator, plan: FrequencyPlan, *, ended: bool = False) -> FrequencyPlanStatus:
    return plan_status(operator.state, plan, ended=ended, now=operator.now)


def made(operator: SimulatedOperator) -> FrequencyPlan:
    return plan_object(operator.state, JOB)


def conditions(status: FrequencyPlanStatus) -> dict[str, Condition]:
    return {each.type: each for each in status.conditions}


def test_the_object_has_the_frontier_exactly_and_a_name_by_its_content() -> None:
    operator, _ = running()
    plan, frontier = made(operator), operator.state.frontier
    assert plan.spec.archive is not None
    archive = decode_archive(plan.spec.archive)
    assert archive.gpu_product == plan.spec.gpu_product == "NVIDIA A40"
    for number, point in enumerate(frontier.points):
        realised = archive.realised[number]
        assert (realised.time_seconds, realised.energy_joules) == (point.time_seconds, point.energy_joules)
        assert tuple(archive.stage_clocks(number, stage) for stage in (0, 1)) == point.clocks_megahertz
    assert archive.instructions[0] == operator.state.ranks[0].registration.instructions
    assert plan.metadata.name.startswith("gpt-")
    assert made(operator).metadata == plan.metadata
    other = plan_object(replace(operator.state, frontier=replace(frontier, points=frontier.points[1:])), JOB)
    assert other.metadata.name != plan.metadata.name


def test_there_is_no_object_before_there_is_a_frontier() -> None:
    operator, ranks = SimulatedOperator(), ranks_of(2)
    for rank in ranks:
        operator.register(rank)
    assert plan_object(operator.state, JOB) is None
    assert plan_object(replace(operator.state, frontier=PipelineFrontier("x", problem="none")), JOB) is None
    applied = applied_plan(operator.state, "")
    assert (applied.name, applied.mode, applied.saving_percent) == ("", "Free", None)


def test_the_status_of_a_running_plan_states_what_was_planned_and_what_was_realised() -> None:
    operator, ranks = running()
    status = status_of(operator, made(operator))
    # Two pipelines of two ranks, each with 100 J.
    assert status.realised_joules == Decimal(200)
    assert status.realised_seconds == Decimal(1)
    found = {kind: (each.status, each.reason) for kind, each in conditions(status).items()}
    assert found == {
        "Planned": (ConditionStatus.TRUE, "Planned"),
        "InForce": (ConditionStatus.TRUE, "Running"),
        "RankDead": (ConditionStatus.FALSE, "AllReport"),
        "Mismatch": (ConditionStatus.FALSE, "AsRegistered"),
    }
    applied = applied_plan(operator.state, "gpt-1")
    assert applied.mode == "Plan"
    # The plan has run too briefly to be compared with free clocks.
    assert (status.saving_percent, applied.saving_percent) == (None, None)
    result = with_iterations(PipelineResult.of_status(applied), operator.state)
    assert (result.mode, result.plan, result.saving_percent) == ("Plan", "gpt-1", None)
    assert result.planned_saving_percent == float(status.planned_saving_percent)
    assert result.planned_seconds == float(status.planned_seconds or 0)
    assert result.planned_joules == float(status.planned_joules or 0)
    assert (result.realised_seconds, result.realised_joules) == (1.0, 200.0)
    assert len(ranks) == 4


def test_an_unchanged_pipeline_has_an_unchanged_status() -> None:
    operator, _ = running()
    plan = made(operator)
    status = status_of(operator, plan)
    operator.pass_time(3)
    assert status_of(operator, plan.model_copy(update={"status": status})) == status


def test_a_dead_rank_is_named_once_its_time_out_has_passed() -> None:
    operator, ranks = running()
    plan = made(operator)
    timeout = silence_timeout(4).total_seconds()
    while (operator.now - operator.state.ranks[3].heard_at).total_seconds() <= timeout:
        assert conditions(status_of(operator, plan))["RankDead"].status is ConditionStatus.FALSE
        exchange(operator, ranks[:3])
    found = conditions(status_of(operator, plan))
    assert found["RankDead"].status is ConditionStatus.TRUE
    assert found["RankDead"].message == "rank 3 sent no report for 30 s"
    assert (found["InForce"].status, found["InForce"].reason) == (ConditionStatus.FALSE, "RankDead")


def test_a_rank_with_other_instructions_is_named() -> None:
    operator, ranks = running()
    ranks[3].mismatch = "instruction 2 is forward:1:1, and backward:1:0 was registered"
    exchange(operator, ranks)
    found = conditions(status_of(operator, made(operator)))
    assert found["Mismatch"].message == f"rank 3: {ranks[3].mismatch}"
    assert found["InForce"].reason == "Mismatch"


def compared_pipeline() -> SimulatedOperator:
    """A pipeline whose plan has been compared with free clocks."""
    operator, ranks = running()
    run_cycles(operator, ranks, 6)
    return operator


def test_the_status_states_the_measured_saving_with_its_error_beside_the_planned_one() -> None:
    operator = compared_pipeline()
    status, applied, found = (
        status_of(operator, made(operator)),
        applied_plan(operator.state, "gpt-1"),
        compared(operator.state),
    )
    # Two pipelines of two ranks: 200 J under the plan, and 220 J at free clocks.
    assert float(status.saving_percent or 0) == pytest.approx(100 * (1 - 200 / 220), abs=1.0)
    assert status.saving_percent == rounded(-found.energy.percent)
    assert status.saving_error_percent == rounded(found.energy.error_percent, 2)
    assert status.planned_saving_percent != status.saving_percent
    assert applied.saving_percent == rounded(-found.energy.percent, 3)
    assert applied.slowdown_percent is not None


def test_beside_a_straggler_nothing_is_compared() -> None:
    state = replace(compared_pipeline().state, straggler=Straggler(2.0, 2.0, "throttled", announced=True))
    assert compared(state) is None
    assert applied_plan(state, "gpt-1").saving_percent is None


def test_a_withdrawn_plan_is_not_in_force_and_says_why() -> None:
    operator, ranks = running()
    for rank in ranks:
        rank.free_seconds = 0.7
    run_cycles(operator, ranks, 10)
    found = conditions(status_of(operator, made(operator)))["InForce"]
    assert (found.status, found.reason) == (ConditionStatus.FALSE, "Withdrawn")
    assert found.message.startswith("the plan is withdrawn, because it costs more than it saves")
    applied = applied_plan(operator.state, "gpt-1")
    assert applied.reason == applied.problem == found.message
    assert len(found.message) < 512


def test_the_measured_saving_of_a_withdrawn_plan_stays_in_the_statuses_of_the_attempt_that_measured_it() -> None:
    """Both had none: they are those of a plan that runs, and a withdrawn one does not."""
    operator, ranks = running()
    plan = made(operator)
    # The last status before the withdrawal, when nothing was known.
    plan = plan.model_copy(update={"status": status_of(operator, plan)})
    for rank in ranks:
        rank.free_seconds = 0.7
    run_cycles(operator, ranks, 10)
    (withdrawn,) = (operator.state.frontier or PipelineFrontier("")).withdrawn
    assert withdrawn.time.percent == pytest.approx(100 * (1 / 0.7 - 1), abs=3.0)
    status, applied = status_of(operator, plan), applied_plan(operator.state, "gpt-1")
    assert status.slowdown_percent == rounded(withdrawn.time.percent)
    assert status.slowdown_error_percent == rounded(withdrawn.time.error_percent, 2)
    assert status.saving_percent == rounded(-withdrawn.energy.percent)
    assert (applied.mode, applied.slowdown_percent) == ("Free", rounded(withdrawn.time.percent, 3))
    assert with_iterations(PipelineResult.of_status(applied), operator.state).planned_seconds is None
    assert applied.saving_error_percent == rounded(withdrawn.energy.error_percent, 2)
    # A later attempt did not measure it.
    later = applied_plan(replace(operator.state, name="gpt-4-0"), "gpt-1")
    assert later.saving_percent is None
    assert later.problem == applied.problem


def test_what_was_realised_and_compared_stays_after_the_end() -> None:
    operator = compared_pipeline()
    plan = made(operator)
    status = status_of(operator, plan)
    ended = status_of(operator, plan.model_copy(update={"status": status}), ended=True)
    kept = (
        "planned_seconds",
        "planned_joules",
        "reason",
        "realised_seconds",
        "realised_joules",
        "saving_percent",
        "slowdown_percent",
        "saving_error_percent",
        "slowdown_error_percent",
        "planned_saving_percent",
        "planned_slowdown_percent",
    )
    assert [getattr(ended, field) for field in kept] == [getattr(status, field) for field in kept]
    assert None not in (status.saving_error_percent, status.slowdown_error_percent)
    assert conditions(ended)["InForce"].reason == "Ended"


def test_nothing_is_realised_until_every_rank_has_reported_the_plan() -> None:
    operator, ranks = running()
    assert measured(operator.state) is not None
    state = operator.state
    late = state.ranks[2]
    assert late.report is not None
    report = replace(late.report, applied_directive=state.directive.number - 1)
    partial = replace(state, ranks={**state.ranks, 2: replace(late, report=report)})
    assert measured(partial) is None
    assert len(ranks) == 4


def test_a_status_of_a_thousand_ranks_stays_small() -> None:
    operator, ranks = running(8, data_parallel=4)
    frontier = operator.state.frontier
    many = replace(frontier, points=frontier.points * 40)
    registered = {number: replace(operator.state.ranks[number % 8]) for number in range(1_000)}
    silent = operator.now + timedelta(days=1)
    state = replace(operator.state, frontier=many, ranks=registered)
    plan = made(operator).model_copy(update={"metadata": ObjectMeta(name="gpt-1", generation=1)})
    assert len(json.dumps(plan_status(state, plan, ended=False, now=silent).to_wire())) < 16 * 1024
    assert len(ranks) == 8
