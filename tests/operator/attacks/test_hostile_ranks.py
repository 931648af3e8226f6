"""Whatever a rank registers and reports, its pipeline gets valid directives, and the operator spends little on it."""

import tracemalloc
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import NEW_STATE, START, measurements_of
from wattloop.pipeline.plan_messages import (
    MAX_INSTRUCTION_SECONDS,
    MAX_ITERATIONS,
    Directive,
    InstructionMeasurement,
    RankReport,
    StragglerNotice,
)
from wattloop_operator.reconcile.pipeline.frontier_planning import plan_frontier
from wattloop_operator.reconcile.pipeline.profile import planning_request
from wattloop_operator.reconcile.pipeline.rank_directives import decided, directive_for, needs_plan
from wattloop_operator.reconcile.pipeline.registrations import Registrar, RegistrationConflictError, missing_instruction
from wattloop_operator.reconcile.pipeline.reports import with_report
from wattloop_operator.reconcile.pipeline.straggling import with_notice

SECONDS = st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 1.0, MAX_INSTRUCTION_SECONDS])
COUNTS = st.sampled_from([0, 1, 2, 1_000, MAX_ITERATIONS])
REPORTS = st.builds(
    RankReport,
    process=st.just(""),
    sequence=st.just(1),
    directive=st.sampled_from([0, 1, 2, 2**63 - 1]),
    iterations=COUNTS,
    applied_directive=st.sampled_from([0, 1, 2**63 - 1]),
    measured_iterations=COUNTS,
    iteration_seconds=st.none() | SECONDS,
    iteration_joules=st.none() | st.sampled_from([0.0, 5e-324, 1e12]),
    blocking_watts=st.none() | st.sampled_from([0.0, 60.0, 1e4]),
    profiled=st.booleans(),
    finished=st.booleans(),
)
SIZES = st.sampled_from([0.0, 5e-324, 1.0, 1e6])


@given(st.lists(st.tuples(st.integers(0, 1), REPORTS, SIZES, SIZES, st.none() | SECONDS), max_size=12))
def test_extreme_numbers_lead_to_valid_directives(
    messages: list[tuple[int, RankReport, float, float, float | None]],
) -> None:
    registrar = Registrar(NEW_STATE, START)
    registrations = [rank_registration(rank) for rank in range(2)]
    for registration in registrations:
        registrar.merge(registration)
    state, now = registrar.state, START
    for sequence, (rank, drawn, seconds, joules, straggler) in enumerate(messages, 1):
        now += timedelta(seconds=1)
        process = registrations[rank].process
        measured = tuple(
            InstructionMeasurement(each.kind, each.stage, each.megahertz, 9, seconds, seconds, joules, joules)
            for each in measurements_of(registrations[rank], registrations[rank].clocks_megahertz)
        )
        report = replace(drawn, process=process, sequence=sequence, measurements=measured)
        state = decided(with_report(state, rank, report, now), now)
        if straggler is None or straggler > 0:
            state = decided(with_notice(state, StragglerNotice(straggler), now), now)
        directive = directive_for(state, rank, process, now)
        assert Directive.from_json(directive.to_json()) == directive
    if needs_plan(state, now):
        frontier = plan_frontier(planning_request(state))
        state = decided(replace(state, frontier=frontier), now)
        directive = directive_for(state, 0, registrations[0].process, now)
        assert Directive.from_json(directive.to_json()) == directive


def test_a_stated_million_of_microbatches_takes_no_memory() -> None:
    instructions = tuple(f"forward:0:{number}" for number in range(100))
    missing_instruction(instructions, 100)
    tracemalloc.start()
    try:
        assert missing_instruction(instructions, 999_999) == "forward:0:100"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_silent_ranks_that_agree_with_another_start_stay() -> None:
    registrar = Registrar(NEW_STATE, START)
    for rank in range(4):
        registrar.merge(rank_registration(rank, data_parallel=2))
    later = Registrar(registrar.state, START + timedelta(seconds=31))
    # This is rank 3 at the place of rank 1, which gives way; the others agree with it.
    later.merge(replace(rank_registration(1, data_parallel=2), rank=3, process="e" * 32))
    assert set(later.state.ranks) == {0, 2, 3}


def test_a_living_rank_keeps_its_place_whatever_silent_ranks_register() -> None:
    registrar = Registrar(NEW_STATE, START)
    for rank in range(3):
        registrar.merge(rank_registration(rank, data_parallel=2))
    later = START + timedelta(seconds=31)
    alive = with_report(registrar.state, 2, RankReport(rank_registration(2).process, 1, 0, 9), later)
    again = Registrar(alive, later)
    with pytest.raises(RegistrationConflictError, match="and rank 2 2"):
        again.merge(rank_registration(0, process="e" * 32))
    assert 2 in again.state.ranks
