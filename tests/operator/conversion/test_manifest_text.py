"""A written manifest is read back as it was, also by a parser of YAML 1.1."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.conversion.conversion import manifest_text

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])) | st.text("ab \n\t:#-{}[]&*!|>'\"%@`,?0")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(value=st.dictionaries(TEXTS, VALUES, max_size=3))
def test_every_value_is_read_back(value: dict[str, Any]) -> None:
    text = manifest_text({"value": value}, [], {})
    (document,) = read_documents("f", text)
    assert document.value == {"value": value}
    assert yaml.safe_load(text) == {"value": value}


@pytest.mark.parametrize(
    "word", ["on", "y", "No", "null", "~", "1e3", "0x1", "012", "1:30", "2026-01-01", "=", "<<", ".5", ""]
)
def test_a_string_that_looks_like_another_type_stays_a_string(word: str) -> None:
    text = manifest_text({"a": word, word: "b"}, [], {})
    (document,) = read_documents("f", text)
    assert document.value == {"a": word, word: "b"}


def test_a_script_keeps_its_lines() -> None:
    assert (
        manifest_text({"args": ["set -e\npython train.py\n"]}, [], {})
        == "args:\n  - |\n    set -e\n    python train.py\n"
    )


def test_comments_are_above_their_fields_and_above_the_manifest() -> None:
    text = manifest_text({"a": {"b": [{"c": 1}]}}, ["One.", "Two\n."], {("a", "b"): "Here."})
    assert text == "# One.\n# Two\\n.\na:\n  # Here.\n  b:\n    - c: 1\n"
