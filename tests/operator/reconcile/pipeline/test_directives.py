"""What the ranks of a pipeline are told, from the registration of the first to a plan that all run."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pipelines import simulated_ranks
from support.pipelines.registrations import CLOCKS
from support.pipelines.simulated_ranks import (
    NEW_STATE,
    SimulatedOperator,
    SimulatedRank,
    exchange,
    measurements_of,
    ranks_of,
    run_until_planned,
)
from wattloop.pipeline.plan_messages import FREE, PLAN, PROFILE, InstructionMeasurement
from wattloop_operator.reconcile.pipeline import reports
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan, PipelineKey, PlanChoice
from wattloop_operator.reconcile.pipeline.rank_directives import decided, directive_for


def register(operator: SimulatedOperator, ranks: list[SimulatedRank]) -> None:
    for rank in ranks:
        rank.receive(operator.register(rank))


def started(ranks: list[SimulatedRank]) -> SimulatedOperator:
    """An operator with which these ranks have registered."""
    operator = SimulatedOperator()
    register(operator, ranks)
    return operator


def later_recurrence(operator: SimulatedOperator) -> tuple[SimulatedOperator, list[SimulatedRank]]:
    """The operator in the next recurrence, with the stored profile and frontier, and the ranks that have registered."""
    state = operator.state
    key = PipelineKey(NEW_STATE.key.job_uid, NEW_STATE.key.recurrence + 1, 0)
    later = SimulatedOperator(replace(NEW_STATE, key=key, profile=state.profile, frontier=state.frontier))
    ranks = ranks_of(2, run=1)
    register(later, ranks)
    return later, ranks


def planned(**shape: int) -> tuple[SimulatedOperator, list[SimulatedRank]]:
    """A pipeline that runs its plan."""
    ranks = ranks_of(shape.get("data_parallel", 1) * 2, **shape)
    operator = started(ranks)
    run_until_planned(operator, ranks)
    assert operator.state.directive.mode == PLAN
    return operator, ranks


def test_ranks_run_free_until_all_have_registered() -> None:
    answer = SimulatedOperator().register(ranks_of(2)[0])
    assert (answer.mode, answer.reason) == (FREE, "of 2 ranks, rank 1 has not registered")


def test_ranks_measure_the_clocks_from_the_highest_down_and_then_run_a_plan() -> None:
    ranks = ranks_of(2)
    operator = started(ranks)
    exchange(operator, ranks)
    exchange(operator, ranks)
    assert operator.state.directive.mode == PROFILE
    assert operator.state.directive.clocks_megahertz == CLOCKS[::-1]
    run_until_planned(operator, ranks)
    for rank in ranks:
        assert rank.running.mode == PLAN
        assert len(rank.running.clocks_megahertz) == len(rank.registration.instructions)
        assert set(rank.running.clocks_megahertz) <= set(CLOCKS)
    highest = operator.state.frontier.highest_clocks
    chosen = operator.state.frontier.points[operator.state.directive.point or 0]
    assert chosen.time_seconds <= highest.time_seconds * 1.001
    assert chosen.energy_joules < 0.98 * highest.energy_joules


def test_all_ranks_begin_a_plan_at_the_same_iteration() -> None:
    _, ranks = planned(data_parallel=2)
    number = ranks[0].running.number
    assert len({rank.started[number] for rank in ranks}) == 1


def test_data_and_tensor_ranks_of_a_pipeline_rank_share_its_plan() -> None:
    _, ranks = planned(data_parallel=2)
    assert ranks[0].running.clocks_megahertz == ranks[2].running.clocks_megahertz
    assert ranks[1].running.clocks_megahertz == ranks[3].running.clocks_megahertz


def test_a_later_recurrence_runs_the_plan_without_measuring_again() -> None:
    operator, _ = planned()
    later, ranks = later_recurrence(operator)
    exchange(later, ranks)
    assert later.state.directive.mode == PLAN


def test_a_recurrence_after_one_that_was_killed_measures_only_the_remaining_clocks() -> None:
    ranks = ranks_of(2)
    operator = started(ranks)
    while operator.state.directive.first_iteration is None:
        exchange(operator, ranks)
    for rank in ranks:
        rank.measured = CLOCKS[:1:-1]
        operator.receive(rank, replace(rank.report(), profiled=False))
    ranks = ranks_of(2, run=1)
    register(operator, ranks)
    exchange(operator, ranks)
    assert operator.state.directive.mode == PROFILE
    assert operator.state.directive.clocks_megahertz == CLOCKS[1::-1]
    run_until_planned(operator, ranks)
    assert operator.state.directive.mode == PLAN


def test_a_restarted_rank_gets_the_plan_again_only_with_all_others() -> None:
    operator, ranks = planned()
    number = operator.state.directive.number
    (again, _) = ranks_of(2, run=1)
    answer = operator.register(again)
    assert (answer.number, answer.mode, answer.first_iteration) == (number + 1, PLAN, None)
    ranks = [again, ranks[1]]
    run_until_planned(operator, ranks)
    assert {rank.running.number for rank in ranks} == {number + 1}


def test_the_message_of_a_replaced_process_changes_nothing() -> None:
    operator, ranks = planned()
    operator.register(ranks_of(2, run=1)[0])
    before = operator.state
    assert not operator.receive(ranks[0], ranks[0].report()).known
    assert operator.state == before


def test_a_dead_rank_is_named_within_its_timeout_and_the_others_run_free() -> None:
    operator, ranks = planned()
    for _ in range(6):
        exchange(operator, ranks[:1])
    assert operator.state.directive.mode == PLAN
    exchange(operator, ranks[:1])
    exchange(operator, ranks[:1])
    assert ranks[0].directive.mode == FREE
    assert ranks[0].directive.reason == "rank 1 has sent no report for 30 s"
    run_until_planned(operator, ranks)
    assert operator.state.directive.mode == PLAN


def test_a_rank_that_runs_other_instructions_runs_free_and_its_peers_keep_the_plan() -> None:
    operator, ranks = planned(data_parallel=2)
    ranks[3].mismatch = "instruction 2 is backward:1:0, expected forward:1:1"
    exchange(operator, ranks)
    assert ranks[3].directive.mode == FREE
    assert ranks[3].directive.reason == ranks[3].mismatch
    assert {rank.directive.mode for rank in ranks[:3]} == {PLAN}


def test_a_mismatch_without_a_peer_frees_the_job() -> None:
    operator, ranks = planned()
    ranks[1].mismatch = "instruction 2 is backward:1:0, expected forward:1:1"
    exchange(operator, ranks)
    exchange(operator, ranks)
    assert ranks[0].directive.mode == FREE
    assert "rank 1 runs other instructions than registered" in ranks[0].directive.reason


def test_a_rank_that_cannot_hold_its_clocks_runs_free_for_a_while_and_then_gets_the_plan_again() -> None:
    operator, ranks = planned(data_parallel=2)
    answer = operator.receive(ranks[2], replace(ranks[2].report(), refusal="the agent does not answer"))
    assert (answer.mode, answer.number) == (FREE, ranks[2].running.number)
    for _ in range(11):
        exchange(operator, ranks)
    assert ranks[2].directive.mode == FREE
    exchange(operator, ranks)
    exchange(operator, ranks)
    assert (ranks[2].directive.mode, ranks[2].directive.number) == (PLAN, answer.number)


def test_ranks_stop_measuring_while_one_of_them_cannot_hold_clocks() -> None:
    ranks = ranks_of(2)
    operator = started(ranks)
    while operator.state.directive.mode != PROFILE:
        exchange(operator, ranks)
    operator.receive(ranks[1], replace(ranks[1].report(), refusal="the agent does not answer"))
    assert operator.state.directive.mode == FREE
    assert operator.state.directive.reason == "rank 1 could not hold clocks lately, and all measure together"
    run_until_planned(operator, ranks)
    assert operator.state.directive.mode == PLAN


@pytest.mark.parametrize("process", ["", "f" * 32], ids=["the same process", "a new process"])
def test_no_rank_measures_a_clock_that_another_one_may_no_longer_hold(process: str) -> None:
    ranks = ranks_of(2)
    operator = started(ranks)
    ranks[0].train(1)
    assert operator.receive(ranks[0], ranks[0].report()).mode == PROFILE
    registration = replace(ranks[1].registration, clocks_megahertz=CLOCKS[:2])
    ranks[1] = SimulatedRank(replace(registration, process=process or registration.process))
    register(operator, ranks[1:])
    assert operator.state.directive.mode == PROFILE
    assert operator.state.directive.clocks_megahertz == CLOCKS[1::-1]
    run_until_planned(operator, ranks)
    assert ranks[0].measured == CLOCKS[1::-1]


def test_a_job_that_is_switched_off_runs_free() -> None:
    operator, ranks = planned()
    off = decided(replace(operator.state, job_plan=JobPlan(enabled=False)), operator.now)
    assert directive_for(off, 0, ranks[0].registration.process, operator.now).mode == FREE


def test_a_profile_without_energy_ends_in_free_clocks_and_says_so() -> None:
    ranks = ranks_of(2)
    operator = started(ranks)
    for _ in range(24):
        for rank in ranks:
            rank.train(5)
            report = rank.report()
            bare = tuple(replace(each, energy_joules=None) for each in report.measurements)
            rank.receive(operator.receive(rank, replace(report, measurements=bare)))
        operator.plan()
        operator.pass_time(5.0)
    assert operator.state.directive.mode == FREE
    assert (
        "there is no plan: the profile: found no energy of stage 0, backward, at 4 clocks"
        in operator.state.directive.reason
    )


def test_a_deadline_changes_the_plan_of_a_running_job() -> None:
    operator, ranks = planned()
    frontier = operator.state.frontier
    middle = frontier.points[len(frontier.points) // 2]
    operator.state = replace(operator.state, job_plan=JobPlan(choice=PlanChoice("Deadline", middle.time_seconds)))
    number = operator.state.directive.number
    exchange(operator, ranks)
    run_until_planned(operator, ranks)
    assert operator.state.directive.number == number + 1
    assert frontier.points[operator.state.directive.point or 0].time_seconds <= middle.time_seconds


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["register", "report", "repeat", "lose", "delay", "train", "restart", "wait", "plan"]),
    ),
    max_size=120,
)


@settings(max_examples=settings().max_examples // 4)
@given(MESSAGES)
def test_any_order_repetition_loss_and_delay_of_messages_leads_to_the_same_plan(
    messages: list[tuple[int, str]],
) -> None:
    ranks = ranks_of(4, data_parallel=2)
    operator = SimulatedOperator()
    delayed = []
    for step, (number, action) in enumerate(messages):
        rank = ranks[number]
        if action == "register":
            rank.receive(operator.register(rank))
        elif action in ("report", "repeat", "lose"):
            report = rank.report()
            answer = operator.receive(rank, report)
            if action == "repeat":
                answer = operator.receive(rank, report)
            if action != "lose":
                rank.receive(answer)
        elif action == "delay":
            delayed.append((rank, rank.report()))
        elif action == "restart":
            ranks[number] = ranks_of(4, run=step + 1, data_parallel=2)[number]
        elif action == "wait":
            operator.pass_time(20.0)
        elif action == "plan":
            operator.plan()
        else:
            rank.train(4)
    for late, report in reversed(delayed):
        operator.receive(late, report)
    run_until_planned(operator, ranks, rounds=80)
    clean_operator, clean = planned(data_parallel=2)
    assert [rank.running.clocks_megahertz for rank in ranks] == [rank.running.clocks_megahertz for rank in clean]
    assert operator.state.frontier.points == clean_operator.state.frontier.points


@pytest.mark.parametrize("ranks", [1_000])
def test_the_ranks_of_a_large_job_report_less_often(ranks: int) -> None:
    answer = SimulatedOperator().register(ranks_of(ranks, data_parallel=ranks // 2)[0])
    assert answer.report_seconds == 20.0


def test_measurements_beyond_the_bound_of_a_profile_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_PROFILE_MEASUREMENTS", 3)
    ranks = ranks_of(2)
    operator = started(ranks)
    for _ in range(20):
        exchange(operator, ranks)
    assert sum(len(each.measurements) for each in operator.state.profile.processes.values()) <= 3


def test_a_rank_keeps_the_measurements_of_a_bounded_number_of_processes() -> None:
    operator = SimulatedOperator()
    for run in range(12):
        ranks = ranks_of(2, run=run)
        for rank in ranks:
            rank.receive(operator.register(rank))
        while operator.state.directive.mode != PROFILE:
            exchange(operator, ranks)
        for rank in ranks:
            rank.measured = CLOCKS[-1:]
            operator.receive(rank, replace(rank.report(), profiled=False))
    assert len(operator.state.profile.processes) == 16


def test_a_blocking_power_that_was_not_known_is_measured_by_the_next_recurrence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = ranks_of(2)
    operator = started(ranks)
    with monkeypatch.context() as unknown:
        unknown.setattr(simulated_ranks, "BLOCKING_WATTS", None)
        for _ in range(24):
            exchange(operator, ranks)
    assert "found no power of a waiting rank" in operator.state.directive.reason
    later, ranks = later_recurrence(operator)
    run_until_planned(later, ranks)
    assert later.state.directive.mode == PLAN


def test_instructions_whose_energy_was_uncertain_at_every_clock_are_measured_by_the_next_recurrence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_energy(*args: Any) -> tuple[InstructionMeasurement, ...]:
        return tuple(replace(each, energy_joules=None, energy_error_joules=None) for each in measurements_of(*args))

    ranks = ranks_of(2)
    operator = started(ranks)
    with monkeypatch.context() as uncertain:
        uncertain.setattr(simulated_ranks, "measurements_of", without_energy)
        for _ in range(24):
            exchange(operator, ranks)
    # Not again and again in one recurrence.
    assert operator.state.directive.mode == FREE
    assert operator.state.directive.reason.startswith("there is no plan: ")
    later, ranks = later_recurrence(operator)
    run_until_planned(later, ranks)
    assert later.state.directive.mode == PLAN
