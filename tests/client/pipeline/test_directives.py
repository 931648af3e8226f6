"""Directives: in force at the same iteration on all ranks, and refused where clocks may not be held."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.pipeline.directives import (
    AllowedClocks,
    ClockChoice,
    DirectiveState,
    IterationClocks,
    LocalDirective,
    iteration_clocks,
)
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_scope import InstructionSequence
from wattloop.pipeline.knobs import KnobChoices, Knobs
from wattloop.pipeline.plan_messages import Directive
from wattloop.pipeline.rank_plan_file import plan_row

A40 = AllowedClocks("NVIDIA A40", (900, 915, 930, 945), (915, 930))
TWO = (Instruction("forward", 0, 0), Instruction("backward", 0, 0))


def plan(number: int, first: int | None, *clocks: int) -> Directive:
    return Directive(number=number, mode="Plan", first_iteration=first, clocks_megahertz=clocks)


def profile(clock: int) -> Directive:
    return Directive(number=1, mode="Profile", first_iteration=0, clocks_megahertz=(clock,))


def test_a_directive_waits_for_its_first_iteration_while_the_one_before_stays_in_force() -> None:
    state = DirectiveState()
    state.receive(plan(1, 4, 930))
    state.receive(plan(2, None, 915))
    assert [state.in_force(iteration).number for iteration in (3, 4, 5)] == [0, 1, 1]
    assert state.acknowledged == 2
    state.receive(plan(2, 7, 915))
    assert [state.in_force(iteration).number for iteration in (6, 7)] == [1, 2]


def test_a_directive_that_is_replaced_before_it_begins_still_begins_at_its_iteration() -> None:
    # Other ranks may not know of the next one yet, and begin with this one.
    state = DirectiveState()
    state.receive(plan(1, 4, 930))
    state.receive(plan(2, 6, 915))
    assert [state.in_force(iteration).number for iteration in range(3, 8)] == [0, 1, 1, 2, 2]


def test_a_directive_learned_late_begins_at_the_next_iteration() -> None:
    state = DirectiveState()
    state.receive(plan(1, 4, 930))
    assert state.in_force(9).number == 1


def test_a_directive_in_force_stays_until_the_same_number_begins_later() -> None:
    state = DirectiveState()
    state.receive(plan(0, 2, 900))
    assert [state.in_force(iteration).clocks_megahertz for iteration in (1, 2)] == [(), (900,)]
    state.receive(plan(1, 3, 930))
    assert state.in_force(3).clocks_megahertz == (930,)
    state.receive(plan(1, 6, 915))
    assert [state.in_force(iteration).clocks_megahertz for iteration in (4, 5, 6)] == [(930,), (930,), (915,)]


@given(st.permutations([plan(1, None, 930), plan(1, 3, 930), plan(2, None, 915), plan(2, 5, 915), plan(3, 8, 900)]))
def test_the_order_of_answers_does_not_matter(order: list[Directive]) -> None:
    state = DirectiveState()
    for each in order:
        state.receive(each)
    assert state.acknowledged == 3
    assert state.in_force(20) == plan(3, 8, 900)


HAS = "it has 4 clocks from 900 to 945 MHz, the nearest is 945"


@pytest.mark.parametrize(
    ("directive", "instructions", "clocks", "refusal"),
    [
        (Directive(), 2, (), ""),
        (plan(1, 0, 915, 930), 2, (915, 930), ""),
        (plan(1, 0, 915, 930), 0, (), ""),
        (plan(1, 0, 915), 2, (), "the plan has 1 clocks, this rank 2 instructions"),
        (plan(1, 0, 915, 1410), 2, (), f"found 1410 MHz, which NVIDIA A40 does not support: {HAS}"),
        (
            plan(1, 0, 900, 945),
            2,
            (),
            "found 900, 945 MHz, which the policies of this node do not allow on NVIDIA A40: from 915 to 930 MHz",
        ),
        (profile(930), 2, (930, 930), ""),
        (profile(980), 2, (), f"found 980 MHz, which NVIDIA A40 does not support: {HAS}"),
    ],
)
def test_clocks_of_an_iteration(directive: Directive, instructions: int, clocks: tuple[int, ...], refusal: str) -> None:
    found = iteration_clocks(directive, 5, instructions, A40, lambda given, _: given.clocks_megahertz[0])
    assert found == IterationClocks(directive, clocks, refusal)


@pytest.mark.parametrize(("clocks", "given"), [((915, 930), [{"sm": "16"}, {"sm": "20"}]), ((915, 1410), [])])
def test_an_iteration_has_the_knobs_of_its_plan_unless_it_is_refused(
    clocks: tuple[int, int], given: list[Knobs]
) -> None:
    directive = replace(plan(1, 0, *clocks), knobs=KnobChoices(("sm",), (("20",), ("16",)), (1, 0)))
    assert list(iteration_clocks(directive, 5, 2, A40, lambda *_: None).knobs) == given


def choice() -> tuple[ClockChoice, DirectiveState]:
    state = DirectiveState()
    chosen = ClockChoice(state, InstructionSequence(TWO), lambda *_: None)
    chosen.allowed = A40
    return chosen, state


def test_a_clock_that_the_agent_refuses_ends_its_directive_but_not_the_next_one() -> None:
    chosen, state = choice()
    state.receive(plan(1, 0, 915, 930))
    assert chosen.clocks_of(0, "").megahertz == (915, 930)
    assert chosen.clocks_of(1, "not today").refusal == "not today"
    assert chosen.clocks_of(2, "").refusal == "not today"
    state.receive(plan(2, 3, 930, 915))
    assert chosen.clocks_of(3, "").megahertz == (930, 915)


@pytest.mark.parametrize(
    ("row", "product", "refusal"),
    [
        ([915, ("backward", 930)], "NVIDIA A40", ""),
        ([915, 930], "NVIDIA H200", "the plan is for NVIDIA H200, this rank has NVIDIA A40"),
        ([("backward", 915), 930], "", "position 0: the plan has backward, this rank runs forward"),
        ([915], "", "the plan has 1 clocks, this rank 2 instructions"),
    ],
)
def test_a_given_plan_is_refused_if_it_is_for_another_gpu_or_other_instructions(
    row: list[object], product: str, refusal: str
) -> None:
    chosen, state = choice()
    state.receive(LocalDirective.of_plan(1, 0, plan_row(row, "plan"), product))
    found = chosen.clocks_of(0, "")
    assert (found.refusal, found.megahertz) == (refusal, () if refusal else (915, 930))
