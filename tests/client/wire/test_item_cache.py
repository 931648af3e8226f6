"""Long lists are checked once, by the same rules as each of their entries, in bounded memory."""

import re
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from wattloop.pipeline.instruction import INSTRUCTION
from wattloop.wire.item_cache import cached_by_items
from wattloop.wire.message_fields import Integer, MessageError, Pattern, ValueType

INSTRUCTIONS = Pattern(INSTRUCTION, 64, "an instruction")
NUMBERS = Integer(maximum=100, minimum=1)
TEXTS = st.sampled_from(
    ["forward:0:0", "backward:1:12", "forward:0:0\nforward:0:1", "forward:0:0\n", "", "x", "f:0:01"]
)
ANYTHING = st.lists(TEXTS | st.sampled_from([0, 1, 100, 101, 1.0, True, None, [], float("nan")]), max_size=5)


def parsed(kind: ValueType, values: list[object]) -> list[object] | None:
    with suppress(MessageError):
        return [kind.parse("", value) for value in values]
    return None


@given(ANYTHING)
def test_values_that_are_valid_at_once_are_valid_one_by_one_and_unchanged(values: list[object]) -> None:
    for kind in (INSTRUCTIONS, NUMBERS):
        if kind.are_valid(values):
            each = parsed(kind, values)
            assert each == values
            assert list(map(type, each or ())) == list(map(type, values))


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_list_of_strings_is_valid_at_once_if_each_of_them_is(values: list[str]) -> None:
    assert INSTRUCTIONS.are_valid(values) == (parsed(INSTRUCTIONS, list(values)) is not None)


def test_patterns_do_not_share_what_they_know() -> None:
    values = ["forward:0:0"]
    assert INSTRUCTIONS.are_valid(values)
    assert not Pattern(re.compile("[0-9]+"), 9, "digits").are_valid(values)


@given(st.integers(1, 30), st.lists(st.integers(0, 12), max_size=60))
def test_the_items_of_all_entries_are_bounded_and_every_result_is_right(max_items: int, lengths: list[int]) -> None:
    calls: list[int] = []

    @cached_by_items(max_items)
    def length(items: tuple[str, ...]) -> int:
        calls.append(len(items))
        return len(items)

    for number in lengths:
        assert length(("x",) * number) == number
    # What is still known costs no call, and takes at most the bound.
    calls.clear()
    known = 0
    for number in dict.fromkeys(reversed(lengths)):
        before = len(calls)
        length(("x",) * number)
        if len(calls) > before:
            break
        known += number + 1
    assert known <= max_items
