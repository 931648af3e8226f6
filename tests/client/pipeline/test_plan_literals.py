"""The literals of a plan file are read as Python writes them, in bounded memory."""

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import InputError
from wattloop.pipeline import rank_plan_file
from wattloop.pipeline.rank_plan_file import parse_literal

TEXTS = st.text("abc XYZ_-0", max_size=5)
NUMBERS = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    NUMBERS | TEXTS | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_is_read_as_python_writes_it(value: object) -> None:
    found = parse_literal(f"# a plan\n{value!r}  # of\n# comments\n", "plan")
    assert found == json.loads(json.dumps(value))


@given(st.text("[](){},:1'a \n#-.", max_size=12))
def test_any_other_text_raises_no_other_error(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_literal(text, "plan")


def test_two_megabytes_of_numbers_take_little_memory() -> None:
    text = "[" + "1," * 1_000_000 + "]"
    tracemalloc.start()
    try:
        assert parse_literal(text, "plan") == [1] * 1_000_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_plan_file, "MAX_TOKENS", 100)
    monkeypatch.setattr(rank_plan_file, "MAX_JSON_BYTES", 1_000)
    assert parse_literal("[" + "1," * 99 + "]", "plan") == [1] * 99
    for text in ("[" + "1," * 200 + "]", "[" + "()," * 101 + "]"):
        with pytest.raises(InputError, match="too many values"):
            parse_literal(text, "plan")
