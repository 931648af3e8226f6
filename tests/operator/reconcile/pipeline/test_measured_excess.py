"""The measured saving and slowdown of a plan: within its stated interval, despite noise and drift."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.simulated_ranks import SimulatedOperator, exchange, ranks_of, run_cycles, run_until_planned
from support.test_sets.parameters import exhaustive_after
from wattloop.pipeline.free_iterations import MAX_GROUPS, ComparedCycles, FreeIterations, joined
from wattloop_operator.api.power_fields import AppliedFrequencyPlan
from wattloop_operator.reconcile.pipeline.measured_excess import Comparison, Excess, compared, excess, free_iterations
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan
from wattloop_operator.reconcile.pipeline.saving import pipeline_summary
from wattloop_operator.reconcile.pipeline.withdrawal import with_withdrawn_plan

TRUE_SAVING, SEEDS = 6.0, 200


def measured_saving(seed: int, *, cycles: int, noise: float, drift: float, schedule: FreeIterations) -> Excess:
    """The saving from iterations with noise of their own, noise that lasts, and a drift over the whole training."""
    randomness = random.Random(seed)
    lasting, number = 0.0, 0
    found: list[ComparedCycles] = []
    last = schedule.early_cycles * schedule.early_cycle + max(cycles - schedule.early_cycles, 0) * schedule.cycle
    sums: dict[bool, list[float]] = {False: [], True: []}
    for number in range(last):
        part = schedule.part(number)
        if part.cycle >= cycles:
            break
        lasting = 0.95 * lasting + randomness.gauss(0, noise / 4)
        joules = 100 * (1 + drift * number / last + lasting + randomness.gauss(0, noise))
        if part.is_measured:
            sums[part.is_free].append(joules if part.is_free else joules * (1 - TRUE_SAVING / 100))
        if schedule.part(number + 1).cycle != part.cycle:
            plan, free = (math.fsum(sums[side]) / len(sums[side]) for side in (False, True))
            found.append(ComparedCycles(part.cycle, 1, 1, 1.0, 1.0, plan, free))
            sums = {False: [], True: []}
    width = 1
    while len(found) > MAX_GROUPS * width:
        width *= 2
    groups = joined(found, width).values()
    return excess([each.plan_joules or 0.0 for each in groups], [each.free_joules or 0.0 for each in groups])


@pytest.mark.parametrize("cycles", exhaustive_after([8, 4, 20]))
@pytest.mark.parametrize(("noise", "drift"), exhaustive_after([(0.02, 0.2), (0.02, 0.0), (0.05, -0.3)]))
def test_the_interval_of_95_percent_covers_the_true_saving_with_noise_and_drift(
    cycles: int, noise: float, drift: float
) -> None:
    schedule = FreeIterations(block=4, early_cycles=8, early_cycle=16, cycle=60)
    found = [measured_saving(seed, cycles=cycles, noise=noise, drift=drift, schedule=schedule) for seed in range(SEEDS)]
    covered = sum(abs(-each.percent - TRUE_SAVING) <= 1.96 * each.error_percent for each in found)
    assert 0.905 <= covered / SEEDS <= 0.995
    mean = math.fsum(-each.percent for each in found) / SEEDS
    spread = math.sqrt(math.fsum((each.percent + mean) ** 2 for each in found) / SEEDS)
    assert mean == pytest.approx(TRUE_SAVING, abs=4 * spread / math.sqrt(SEEDS))


def test_without_enough_groups_nothing_is_known() -> None:
    group = ComparedCycles(0, 1, 1, 1.0, 1.0, 90.0, 100.0)
    assert Comparison((group,) * 3).energy is None
    assert Comparison((group,) * 3).time is None
    assert Comparison((group,) * 4).energy == Excess(pytest.approx(-10.0), pytest.approx(0.0, abs=1e-9))


def test_groups_without_an_energy_give_a_slowdown_and_no_saving() -> None:
    found = Comparison((ComparedCycles(0, 1, 1, 1.2, 1.0, None, 100.0),) * 4)
    assert found.energy is None
    assert found.time.percent == pytest.approx(20.0)
    assert found.free_joules == 100.0


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.4, 3.0, 60.0])
def test_a_few_of_100_iterations_run_at_free_clocks_and_a_quarter_of_the_first_ones(seconds: float) -> None:
    free = free_iterations(seconds)
    assert free.check("") is None
    assert free.block / free.cycle == pytest.approx(0.03, rel=0.02)
    assert free.block / free.early_cycle == pytest.approx(0.25, rel=0.02)
    assert (free.block - 1) * seconds >= min(2.0, 1_000 * seconds)


def test_the_comparison_has_the_energy_of_all_ranks_and_the_time_of_the_slowest() -> None:
    operator, ranks = SimulatedOperator(), ranks_of(4, data_parallel=2)
    run_until_planned(operator, ranks)
    ranks[1].free_seconds, ranks[2].free_joules = 1.1, 130.0
    run_cycles(operator, ranks, 6)
    found = compared(operator.state)
    assert found.cycles >= 6
    # Two pipelines of two ranks.
    assert found.free_joules == pytest.approx((3 * 110 + 130) / 2, rel=0.01)
    assert found.free_seconds == pytest.approx(1.1, rel=0.01)
    assert found.energy.percent == pytest.approx(100 * (400 / 460 - 1), abs=1.5)


def test_ranks_whose_groups_have_different_widths_are_joined_cycle_by_cycle() -> None:
    operator, ranks = SimulatedOperator(), ranks_of(2)
    run_until_planned(operator, ranks)
    run_cycles(operator, ranks, 8)
    state = operator.state
    first = state.ranks[0]
    wide = replace(first.report, compared=tuple(joined(first.report.compared, 2).values()))
    mixed = replace(state, ranks={**state.ranks, 0: replace(first, report=wide)})
    one, other = compared(state), compared(mixed)
    assert len(other.groups) == -(-len(one.groups) // 2)
    assert other.free_joules == pytest.approx(one.free_joules)


@pytest.mark.parametrize("rank", [0, 1])
def test_nothing_is_compared_while_a_rank_has_a_client_of_an_earlier_version(rank: int) -> None:
    operator, ranks = SimulatedOperator(), ranks_of(2)
    ranks[rank].compares = False
    run_until_planned(operator, ranks)
    run_cycles(operator, ranks, 8)
    assert operator.state.directive.mode == "Plan"
    assert compared(operator.state) is None


EXTREMES = st.sampled_from([5e-324, 1e-9, 1.0, 1e14])
GROUPS = st.builds(
    ComparedCycles,
    group=st.integers(0, 5) | st.just(10**9),
    width=st.sampled_from([1, 2, 3, 10**9]),
    cycles=st.sampled_from([1, 7, 10**9]),
    plan_seconds=EXTREMES,
    free_seconds=EXTREMES,
    plan_joules=st.none() | st.just(0.0) | EXTREMES,
    free_joules=st.none() | st.just(0.0) | EXTREMES,
)


@pytest.fixture(scope="module")
def planned() -> PipelineState:
    operator, ranks = SimulatedOperator(), ranks_of(2)
    run_until_planned(operator, ranks)
    exchange(operator, ranks)
    return operator.state


@given(st.lists(st.lists(GROUPS, max_size=MAX_GROUPS).map(tuple), min_size=2, max_size=2))
def test_whatever_ranks_state_of_a_comparison_the_status_is_valid(
    planned: PipelineState, stated: list[tuple[ComparedCycles, ...]]
) -> None:
    ranks = {
        number: replace(rank, report=None if rank.report is None else replace(rank.report, compared=groups))
        for (number, rank), groups in zip(planned.ranks.items(), stated, strict=True)
    }
    state = with_withdrawn_plan(replace(planned, ranks=ranks))
    applied = AppliedFrequencyPlan.model_validate(applied_plan(state, "gpt-1").to_wire())
    assert (applied.saving_percent is None) == (applied.saving_error_percent is None)
    assert ("of the energy saved" in pipeline_summary(state)) == (applied.saving_percent is not None)
