"""Iterations of a rank: stamps, the clocks that are sent and when, mismatches, and wrong uses."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import UsageError
from wattloop.pipeline.directives import IterationClocks
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_scope import InstructionScope, InstructionSequence
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.iteration_runner import IterationRunner
from wattloop.pipeline.knobs import Knobs
from wattloop.pipeline.plan_messages import Directive

PLAN = Directive(number=3, mode="Plan", first_iteration=0)


@dataclass
class Rank:
    """A runner in virtual time, with a journal of what it does."""

    instructions: Sequence[Instruction] = ()
    clocks: tuple[int, ...] = ()
    knobs: tuple[Knobs, ...] = ()
    seconds: float = 0.0
    refusal: str = ""
    is_holding: bool = True
    interruptions: int = 0
    journal: list[tuple[float, str]] = field(default_factory=list)
    records: list[IterationRecord] = field(default_factory=list)
    knobs_seen: list[str | None] = field(default_factory=list)

    waits_at_end: bool = False

    def __post_init__(self) -> None:
        self.sequence = InstructionSequence(self.instructions)
        self.runner = IterationRunner(
            self.sequence,
            self,
            clocks_of=lambda _: IterationClocks(PLAN, self.clocks, knobs=self.knobs, waits_at_end=self.waits_at_end),
            done=self.records.append,
            synchronization=lambda: lambda: self.journal.append((self.seconds, "synchronized")),
            now=lambda: self.seconds,
        )

    def request(self, megahertz: int) -> bytes:
        return f"{megahertz} MHz".encode()

    def send(self, request: bytes) -> None:
        self.journal.append((self.seconds, request.decode()))

    def free(self) -> None:
        self.journal.append((self.seconds, "free"))

    def run(self, *texts: str, seconds: float = 1.0, waiting: float = 0.5) -> None:
        """An iteration of these instructions, each of which takes a time and then waits."""
        self.runner.begin_iteration()
        for text in texts:
            instruction = Instruction.of(text)
            with named(self.runner, instruction.kind, instruction.stage, instruction.microbatch):
                self.knobs_seen.append(self.runner.knobs.get("sm"))
                self.seconds += seconds
            self.seconds += waiting
        self.runner.end_iteration(completed=True)

    @property
    def sent(self) -> list[tuple[float, str]]:
        return [each for each in self.journal if each[1] != "synchronized"]


def named(runner: IterationRunner, kind: str, stage: int, microbatch: int) -> InstructionScope:
    """An instruction, as `Pipeline.instruction` names it."""
    scope = runner.instructions
    if not scope.is_ready:
        raise scope.wrong_use()
    scope.key = (kind, stage, microbatch)
    return scope


def instructions(*texts: str) -> tuple[Instruction, ...]:
    return tuple(Instruction.of(text) for text in texts)


STEPS = ("forward:0:0", "forward:0:1", "backward:0:0", "backward:0:1")


def test_a_clock_that_differs_is_sent_when_the_instruction_before_ends_and_the_first_at_the_end_of_the_iteration() -> (
    None
):
    rank = Rank(instructions(*STEPS), (1000, 1000, 900, 800))
    rank.run(*STEPS)
    assert rank.sent == [(0.0, "1000 MHz"), (2.5, "900 MHz"), (4.0, "800 MHz"), (6.0, "1000 MHz")]


def test_each_instruction_has_its_knobs_until_one_differs_from_the_sequence() -> None:
    values = ("16", "20", "16", "8")
    rank = Rank(instructions(*STEPS), (1000, 1000, 900, 800), tuple({"sm": value} for value in values))
    assert not rank.runner.knobs
    rank.run(*STEPS)
    assert rank.knobs_seen == list(values)
    assert not rank.runner.knobs
    rank.knobs_seen.clear()
    rank.run(STEPS[0], STEPS[2], STEPS[1], STEPS[3])
    assert rank.knobs_seen == ["16", None, None, None]


def test_the_first_iteration_is_recorded_at_free_clocks_and_gives_the_sequence() -> None:
    rank = Rank()
    rank.run(*STEPS)
    assert [each.text for each in rank.sequence.instructions] == list(STEPS)
    (record,) = rank.records
    assert list(record.stamps) == [0.0, 1.0, 1.5, 2.5, 3.0, 4.0, 4.5, 5.5]
    assert (record.begin_seconds, record.end_seconds, record.clocks_megahertz) == (0.0, 6.0, ())
    assert {what for _, what in rank.journal} == {"free"}


def test_the_record_of_an_iteration_names_its_clocks_and_its_directive() -> None:
    rank = Rank(instructions(*STEPS), (1000, 1000, 900, 800))
    rank.run(*STEPS)
    rank.run(*STEPS)
    assert [(each.number, each.directive, each.clocks_megahertz) for each in rank.records] == [
        (0, PLAN, (1000, 1000, 900, 800)),
        (1, PLAN, (1000, 1000, 900, 800)),
    ]
    assert list(rank.records[1].stamps)[:2] == [6.0, 7.0]


def test_work_is_waited_for_at_both_ends_of_an_instruction_with_a_clock_and_never_at_free_clocks() -> None:
    rank = Rank(instructions("forward:0:0"), (1000,))
    rank.run("forward:0:0")
    assert [seconds for seconds, what in rank.journal if what == "synchronized"] == [0.0, 1.0]
    free = Rank(instructions("forward:0:0"))
    free.run("forward:0:0")
    assert "synchronized" not in {what for _, what in free.journal}


@pytest.mark.parametrize(
    ("found", "mismatch"),
    [
        (("forward:0:1",), "position 0: found forward:0:1, expected forward:0:0"),
        (("forward:0:0", "backward:0:0"), "position 1: found backward:0:0, expected forward:0:1"),
        (STEPS[:3], "position 3: found the end, expected backward:0:1"),
        ((*STEPS, "forward:0:2"), "position 4: found forward:0:2, expected the end"),
        ((), "position 0: found the end, expected forward:0:0"),
    ],
)
def test_a_mismatch_is_named_and_frees_the_clocks_until_an_iteration_matches(
    found: tuple[str, ...], mismatch: str, caplog: pytest.LogCaptureFixture
) -> None:
    rank = Rank(instructions(*STEPS), (1000, 1000, 900, 800))
    rank.run(*found)
    assert rank.sequence.mismatch == mismatch
    assert rank.journal[-1][1] == "free"
    assert [record.getMessage() for record in caplog.records] == [
        f"the instructions of iteration 0 are not those of the sequence, so clocks are free: {mismatch}"
    ]
    assert rank.records == []
    assert rank.runner.iterations == 1
    rank.journal.clear()
    rank.run(*STEPS)
    assert rank.sequence.mismatch == ""
    assert {what for _, what in rank.sent[:-1]} == {"free"}
    assert rank.sent[-1][1] == "1000 MHz"
    assert [each.clocks_megahertz for each in rank.records] == [()]


@given(st.lists(st.sampled_from(STEPS), max_size=6))
def test_an_iteration_of_any_instructions_is_counted_and_is_recorded_only_if_it_matches(texts: list[str]) -> None:
    rank = Rank(instructions(*STEPS), (1000, 1000, 900, 800))
    rank.run(*texts)
    assert rank.runner.iterations == 1
    assert bool(rank.records) == (tuple(texts) == STEPS)
    assert bool(rank.sequence.mismatch) != bool(rank.records)


def test_a_first_iteration_that_repeats_an_instruction_gives_no_sequence() -> None:
    rank = Rank()
    rank.run("forward:0:0", "forward:0:0")
    assert rank.sequence.instructions == ()
    assert rank.sequence.mismatch == "found forward:0:0 twice in one iteration, expected each instruction once"
    rank.run(*STEPS)
    assert [each.text for each in rank.sequence.instructions] == list(STEPS)


def test_an_iteration_that_ends_by_an_exception_does_not_count() -> None:
    rank = Rank(instructions(*STEPS), (1000, 1000, 900, 800))
    rank.runner.begin_iteration()
    with pytest.raises(ZeroDivisionError), named(rank.runner, "forward", 0, 0):
        raise ZeroDivisionError
    rank.runner.end_iteration(completed=False)
    assert (rank.runner.iterations, rank.sequence.mismatch) == (0, "")
    rank.run(*STEPS)
    assert [each.number for each in rank.records] == [0]


def test_an_exception_that_the_script_catches_in_an_iteration_leaves_it_complete() -> None:
    rank = Rank(instructions(*STEPS[:2]), (1000, 900))
    rank.runner.begin_iteration()
    for microbatch in range(2):
        with contextlib.suppress(ZeroDivisionError), named(rank.runner, "forward", 0, microbatch):
            rank.seconds += 1.0
            raise ZeroDivisionError
    rank.runner.end_iteration(completed=True)
    assert [list(record.stamps) for record in rank.records] == [[0.0, 1.0, 1.0, 2.0]]
    assert rank.sent == [(0.0, "1000 MHz"), (1.0, "900 MHz"), (2.0, "1000 MHz")]


def nested_iteration(runner: IterationRunner) -> None:
    runner.begin_iteration()
    runner.begin_iteration()


def nested_instruction(runner: IterationRunner) -> None:
    runner.begin_iteration()
    for microbatch in range(2):
        named(runner, "forward", 0, microbatch).__enter__()


def instruction_begun_twice(runner: IterationRunner) -> None:
    runner.begin_iteration()
    with named(runner, "forward", 0, 0):
        pass
    runner.instructions.__enter__()


def instruction_after_the_iteration(runner: IterationRunner) -> None:
    runner.begin_iteration()
    late = named(runner, "forward", 0, 0)
    late.__enter__()
    runner.end_iteration(completed=True)
    late.__exit__(None, None, None)
    named(runner, "forward", 0, 1).__enter__()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (nested_iteration, "an iteration begins inside another one"),
        (lambda runner: named(runner, "forward", 0, 0), "outside of pipeline.iteration"),
        (instruction_after_the_iteration, "outside of pipeline.iteration"),
        (nested_instruction, "an instruction begins inside another one"),
        (instruction_begun_twice, "an instruction begins a second time"),
    ],
)
def test_a_wrong_use_is_named(use: Callable[[IterationRunner], None], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        use(Rank().runner)


def test_the_end_of_a_block_at_free_clocks_waits_for_the_queued_work_and_nothing_else_does() -> None:
    rank = Rank(instructions("forward:0:0"))
    rank.run("forward:0:0")
    assert "synchronized" not in [text for _, text in rank.journal]
    rank.waits_at_end = True
    # The clocks of an iteration are chosen at the end of the one before, and again at its begin.
    rank.run("forward:0:0")
    assert [text for _, text in rank.journal].count("synchronized") == 1
    assert rank.journal[-2] == (3.0, "synchronized")


def test_an_iteration_that_failed_does_not_wait_for_the_queued_work() -> None:
    rank = Rank(instructions("forward:0:0"), waits_at_end=True)
    rank.runner.begin_iteration()
    rank.runner.end_iteration(completed=False)
    assert "synchronized" not in [text for _, text in rank.journal]
