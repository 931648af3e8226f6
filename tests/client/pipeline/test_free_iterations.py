"""Which iterations under a plan run at free clocks: the same on all ranks, a few per cent, spread over the training."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.pipeline.directives import AllowedClocks, ClockChoice, DirectiveState
from wattloop.pipeline.free_iterations import FreeIterations
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_scope import InstructionSequence
from wattloop.pipeline.plan_messages import PLAN, Directive
from wattloop.wire.message_fields import MessageError


@st.composite
def schedules(draw: st.DrawFn) -> FreeIterations:
    block = draw(st.integers(2, 12))
    return FreeIterations(
        block,
        draw(st.integers(0, 6)),
        draw(st.integers(block + 4, 5 * block + 4)),
        draw(st.integers(block + 4, 40 * block)),
    )


@given(schedules())
def test_each_cycle_has_one_block_in_its_middle_and_its_measured_iterations_surround_it(free: FreeIterations) -> None:
    cycles = free.early_cycles + 3
    last = free.early_cycles * free.early_cycle + 3 * free.cycle
    parts = [free.part(number) for number in range(last)]
    assert [cycle for cycle, _ in groupby(each.cycle for each in parts)] == list(range(cycles))
    for cycle in range(cycles):
        own = [each for each in parts if each.cycle == cycle]
        runs = [(is_free, len(list(run))) for is_free, run in groupby(each.is_free for each in own)]
        assert [is_free for is_free, _ in runs] == [False, True, False]
        before, block, after = (count for _, count in runs)
        assert block == free.block
        assert abs(before - after) <= 1
        measured = [each.is_free for each in own if each.is_measured]
        assert (measured.count(False), measured.count(True)) == free.measured(cycle)
        assert [each.is_measured for each in own if each.is_free] == [False] + [True] * (block - 1)
        ends = [place for place, each in enumerate(own) if each.ends_block]
        assert ends == [before, before + block - 1]


def choice(state: DirectiveState) -> ClockChoice:
    """The clocks of a rank that may hold all that a directive gives."""
    chosen = ClockChoice(state, InstructionSequence((Instruction.of("forward:0:0"),)), lambda *_: None)
    chosen.allowed = AllowedClocks("NVIDIA A40", (1200,), (1200,))
    return chosen


@given(schedules(), st.integers(0, 50), st.integers(0, 60))
def test_ranks_that_learn_of_a_plan_at_different_iterations_agree_on_its_free_iterations(
    free: FreeIterations, first: int, late: int
) -> None:
    plan = Directive(number=1, mode=PLAN, first_iteration=first, clocks_megahertz=(1200,), free=free)
    punctual, tardy = DirectiveState(), DirectiveState()
    punctual.receive(plan)
    one, other = choice(punctual), choice(tardy)
    for iteration in range(first + 200):
        if iteration == first + late:
            tardy.receive(plan)
        # Each iteration is asked for twice: at the end of the one before, and at its begin.
        clocks = [each.clocks_of(iteration, "").megahertz for each in (one, other, one, other)]
        assert clocks[:2] == clocks[2:]
        if iteration >= first + late:
            assert clocks[0] == clocks[1] == (() if free.part(iteration - first).is_free else (1200,))


def test_a_plan_that_is_refused_has_no_free_iterations_and_its_refusal_lasts() -> None:
    state = DirectiveState()
    free = FreeIterations(2, 0, 6, 6)
    state.receive(Directive(number=1, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,), free=free))
    chosen = choice(state)
    chosen.clocks_of(0, "")
    assert {chosen.clocks_of(iteration, "no lease").refusal for iteration in range(1, 20)} == {"no lease"}


@pytest.mark.parametrize("values", [(1, 0, 8, 8), (3, 0, 6, 40), (3, 2, 40, 6)])
def test_a_schedule_without_measured_iterations_of_both_kinds_is_refused(values: tuple[int, int, int, int]) -> None:
    block, early_cycles, early_cycle, cycle = values
    fields = {"block": block, "early_cycles": early_cycles, "early_cycle": early_cycle, "cycle": cycle}
    with pytest.raises(MessageError, match="expected at least 2, and cycles that are longer by 4 or more"):
        FreeIterations.from_json(fields)


def test_a_client_of_an_earlier_version_ignores_them_and_an_operator_of_an_earlier_version_announces_none() -> None:
    assert Directive.from_json({"known": True, "number": 2, "mode": PLAN}).free is None
    with_more = {"block": 3, "early_cycles": 1, "early_cycle": 8, "cycle": 50, "later": 1}
    assert Directive.from_json({"mode": PLAN, "free": with_more}).free == FreeIterations(3, 1, 8, 50)
