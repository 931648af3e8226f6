"""What was found and what would be right, in words."""

from __future__ import annotations

from typing import Any

from wattloop_operator.api.checks.problem import MAX_PATH_CHARACTERS, MAX_SHOWN_CHARACTERS, shortened
from wattloop_operator.api.checks.suggestions import closest
from wattloop_operator.api.quantities import DECIMAL_PATTERN

Schema = dict[str, Any]
TYPE_WORDS = {
    "object": "an object, if only {}",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
DECIMAL_PATTERNS = (DECIMAL_PATTERN, DECIMAL_PATTERN.replace("-?", ""))
COUNTED = {
    "minItems": ("a list", " entries"),
    "maxItems": ("a list", " entries"),
    "maxProperties": ("an object", " fields"),
    "minLength": ("a text", " characters"),
    "maxLength": ("a text", " characters"),
}


def shown(value: Any) -> str:
    """A value in a message: short, and as it would stand in JSON.

    Example:
        >>> shown("abc"), shown({"a": 1, "b": 2}), shown(None)
        ("'abc'", 'an object with a, b', 'nothing (null)')
    """
    if isinstance(value, dict):
        return shortened(f"an object with {', '.join(value) or 'no fields'}", MAX_PATH_CHARACTERS)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f"'{value[:60]}…' ({len(value)} characters)" if len(value) > MAX_SHOWN_CHARACTERS else f"'{value}'"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "nothing (null)" if value is None else str(value)[:60]


def found_words(value: Any, keyword: str) -> str:
    """What was found where this keyword of a schema refuses a value."""
    if keyword in ("minItems", "maxItems", "maxProperties"):
        return f"{len(value)} of them"
    if keyword == "type" and isinstance(value, str):
        return f"the text {shown(value)}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"the number {shown(value)}" if keyword == "type" and is_number else shown(value)


def expected_words(value: Any, schema: Schema, keyword: str) -> str:
    """What would be right where this keyword refuses a value; the description where the keyword says too little."""
    if schema.get("pattern") in DECIMAL_PATTERNS:
        return _decimal(value, schema["pattern"])
    if "enum" in schema:
        return _choice(str(value), schema["enum"])
    if keyword in COUNTED:
        what, unit = COUNTED[keyword]
        suffix = keyword.removeprefix("min").removeprefix("max")
        return _range(what, schema.get(f"min{suffix}"), schema.get(f"max{suffix}"), unit)
    if keyword == "pattern":
        return f"a text that matches {schema['pattern']} ({first_sentence(schema.get('description', ''))})"
    if keyword == "format":
        return "a time such as 2026-03-01T12:00:00Z"
    return _range(TYPE_WORDS[schema["type"]], schema.get("minimum"), schema.get("maximum"), "")


def missing_words(name: str, schema: Schema) -> str:
    """What would be right where a field is missing."""
    return f"{name}: {first_sentence(schema.get('description', '')) or TYPE_WORDS[schema['type']]}"


def first_sentence(text: str) -> str:
    """The first sentence of a description, without its full stop."""
    return text.partition(". ")[0].removesuffix(".")


def _decimal(value: Any, pattern: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    least = "" if pattern == DECIMAL_PATTERN else "of at least 0 "
    return f'a decimal number {least}in quotes, such as "{shown(value) if is_number else 0.76}"'


def _choice(found: str, choices: list[str]) -> str:
    close = closest(found, choices)
    return f"one of {', '.join(choices)}" + (f" (did you mean {close}?)" if close else "")


def _range(what: str, least: int | None, most: int | None, unit: str) -> str:
    if least is not None and most is not None:
        return f"{what} from {least} to {most}{unit}"
    if least is not None:
        return f"{what} of at least {least}{unit}"
    return what if most is None else f"{what} of at most {most}{unit}"
