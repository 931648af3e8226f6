"""YAML is read as Kubernetes reads it, and hostile YAML is rejected."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.api.checks.documents import MAX_FILE_BYTES, DocumentError, Position, read_documents

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(codec="utf-8", categories="LN")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcdef", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def values(text: str) -> list[Any]:
    return [document.value for document in read_documents("f.yaml", text)]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", True),
        ("On", True),
        ("n", False),
        ("'yes'", "yes"),
        ("true", True),
        ("~", None),
        ("", None),
        ("0100", 64),
        ("0o17", 15),
        ("-0x1F", -31),
        ("0b101", 5),
        ("1_000", 1000),
        ("09", 9),
        ("+7", 7),
        ("1.5", 1.5),
        ("2026-03-01", "2026-03-01"),
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
        ("!!str 12", "12"),
        ("12:30", "12:30"),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("3\t# a tab", 3),
        ("\ttwo\twords \t\n  more", "two\twords more"),
        ("two \n---", "two"),
        ("# a comment\n  text\n\n", "text"),
    ],
)
def test_a_scalar_is_read_as_kubectl_reads_it(written: str, value: object) -> None:
    (document,) = values(f"key: {written}\n")
    assert document == {"key": value}
    assert type(document["key"]) is type(value)


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), JSON_VALUES, min_size=1, max_size=3))
def test_json_is_yaml(value: dict[str, Any]) -> None:
    assert values(json.dumps(value, ensure_ascii=False)) == [value]


def test_positions_of_keys_and_values_are_recorded() -> None:
    (document,) = read_documents("f.yaml", "a: 1\nb:\n  - c: x\n    d: [1, 2]\n")
    assert document.keys["b", 0, "d"] == Position(4, 5)
    assert document.values["b", 0, "d", 1] == Position(4, 12)
    problem = document.problem(("b", 0, "missing", "deeper"), "nothing", "something")
    assert (problem.line, problem.column, problem.path) == (3, 5, "b[0].missing.deeper")


def test_own_keys_take_precedence_over_merged_ones_and_earlier_merges_over_later_ones() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  z: 3\n  <<: [*a, *b]\n"
    assert values(text)[0]["c"] == {"x": 1, "y": 1, "z": 3}


def test_empty_documents_are_skipped() -> None:
    assert values("---\n---\na: 1\n---\n# only a comment\n...\n") == [{"a": 1}]


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)


MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: [1\n", "expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", "a tab"),
        ("a: *nowhere\n", "undefined alias"),
        ("a: 1\na: 2\n", "a second a (the first is on line 1)"),
        ("? [1, 2]\n: x\n", "a key that is not a string"),
        ("a: .inf\n", ".inf"),
        ("a: .NaN\n", ".NaN"),
        ("a: !!binary aGVsbG8=\n", "the tag tag:yaml.org,2002:binary"),
        ("a: !custom 1\n", "the tag !custom"),
        ("a: &a\n  b: *a\n", "an alias that contains itself"),
        (BOMB, "more than 100000 values, with those that aliases and merge keys (<<) repeat"),
        (MERGE_BOMB, "more than 100000 values, with those that aliases and merge keys (<<) repeat"),
        ("a: &a\n  <<: *a\n", "a merge key (<<) that contains itself"),
        ("a: &a\n  <<: [*a, *a]\n", "a merge key (<<) that contains itself"),
        ("[" * 400 + "]" * 400, "nested too deeply"),
        ("- " * 400, "nested too deeply"),
        ("? " * 400, "nested too deeply"),
        pytest.param("[" * 95 + "[]," * 300_000, "too many values", marks=pytest.mark.exhaustive),
        ("a: " + "9" * 5000, "a number of 5000 characters"),
        ("a: -0x" + "f" * 5000, "a number of 5003 characters"),
        ("a: 1" + "0" * 5000 + ".0", "a number of 5003 characters"),
        ("a: 0b" + "1" * 390 + "\nb: 1e400", "1e400"),
        ("a: 0x" + "f" * 300, "0xfff"),
        ("a: -_", "'-_'"),
        ("a: 0b_", "'0b_'"),
        ("a: !!int hello", "'hello'"),
        ("a: !!float hello", "'hello'"),
        ("a: !" + "x" * 5000 + " 1", "the tag !xxx"),
        ("x" * 500 + ": 1\n" + "x" * 500 + ": 1\n", "a second xxx"),
        ("[" * 800, "nested too deeply"),
        ("a: '" + "x" * MAX_FILE_BYTES + "'\n", f"more than {MAX_FILE_BYTES} bytes"),
        ("a: \x00\n", "special characters"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_a_text_that_is_not_a_manifest_is_rejected_with_its_position(text: str, found: str) -> None:
    with pytest.raises(DocumentError) as raised:
        values(text)
    assert found in raised.value.problem.found
    assert raised.value.problem.expected
    assert len(str(raised.value.problem)) < 1000


def test_a_text_of_too_many_tokens_is_rejected_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattloop_operator.api.checks.documents.MAX_TOKENS", 1_000)
    with pytest.raises(DocumentError) as raised:
        values("a: [" + "[]," * 1_000)
    assert "too many values" in raised.value.problem.found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "spec:\n  - name: x\n   image: y\n",
            "f.yaml:3:4: found a line that is indented wrongly, expected column 3, where line 2 begins, or",
        ),
        ("a:\n  b: 1\n    c: 2\n", "f.yaml:3:6: found a line that does not fit the line before, expected the same ind"),
        ("a: b: c\n", "f.yaml:1:5: found a second colon in a line, expected quotes around a value"),
        ("a:\n\tb: 1\n", "f.yaml:2:1: found a tab, expected spaces"),
        ("a: |\t\n  b\n", "f.yaml:1:5: found a tab, expected spaces"),
        ("a: 'it's'\n", "f.yaml:1:8: found text behind a value that has ended, expected quotes around the whole value"),
        ("c: [python, train.py] --epochs 3\n", "found text behind a value that has ended, expected quotes"),
        ("a: [1]]\n", "f.yaml:1:7: found text that is not YAML (expected <block end>, but found ']')"),
        ("a: @x\n", "expected quotes around a value that begins with this character"),
    ],
)
def test_a_mistake_of_indentation_or_quotes_is_named_as_one(text: str, said: str) -> None:
    with pytest.raises(DocumentError) as raised:
        values(text)
    assert said in str(raised.value)


def test_an_anchor_that_is_defined_twice_is_accepted_without_a_warning() -> None:
    assert values("- &a x\n- *a\n- &a z\n- *a\n") == [["x", "x", "z", "z"]]
