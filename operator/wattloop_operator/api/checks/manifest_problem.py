"""A problem in a manifest: its position, what was found and what was expected, and a hint at what was meant."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.field_types import DECIMAL_PATTERN, NON_NEGATIVE_DECIMAL_PATTERN

Path = tuple[str | int, ...]
Schema = dict[str, Any]
MAX_SHOWN_CHARACTERS = 80
MAX_PATH_CHARACTERS = 400
TYPE_NAMES = {
    "object": "an object, if only {}",
    "array": "a list",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
}
MAX_PLACES = 2
COUNTED = {
    "minItems": ("a list", " entries"),
    "maxItems": ("a list", " entries"),
    "maxProperties": ("an object", " fields"),
    "minLength": ("a string", " characters"),
    "maxLength": ("a string", " characters"),
}


@dataclass(frozen=True)
class ManifestProblem:
    """A problem in a manifest.

    Attributes:
        source: Name of the file.
        path: Field, such as spec.batchSize.candidates[2]; empty if the problem concerns the whole file.
        found: What the file contains.
        expected: What the API server accepts.
        line: 1-based line, if known.
        column: 1-based column, if known.
    """

    source: str
    path: str
    found: str
    expected: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Format the problem as compilers and linters do, so that editors can jump to its position."""
        position = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        path = f"{self.path}: " if self.path else ""
        text = f"{self.source}{position}: {path}found {self.found}, expected {self.expected}"
        return printable(text, len(text))


def format_path(path: Path) -> str:
    """Format a path as Kubernetes does.

    Example:
        >>> format_path(("spec", "batchSize", "candidates", 2))
        'spec.batchSize.candidates[2]'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{shortened(step)}" for step in path)
    return shortened("".join(steps).removeprefix("."), MAX_PATH_CHARACTERS)


def shortened(text: str, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    """Truncate a text for a message.

    Example:
        >>> shortened("12345", 4)
        '1234…'
    """
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"


def format_value(value: Any) -> str:
    """Format a value for a message: short, and similar to JSON.

    Example:
        >>> format_value("abc"), format_value({"a": 1, "b": 2}), format_value(None)
        ("'abc'", 'an object with a, b', 'null')
    """
    if isinstance(value, dict):
        return shortened(f"an object with {', '.join(value) or 'no fields'}", MAX_PATH_CHARACTERS)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f"'{value[:60]}…' ({len(value)} characters)" if len(value) > MAX_SHOWN_CHARACTERS else f"'{value}'"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)[:60]


def found_text(value: Any, keyword: str) -> str:
    """Describe a value that a keyword of its schema rejects."""
    if keyword in ("minItems", "maxItems", "maxProperties"):
        return f"{len(value)} of them"
    if keyword == "type" and isinstance(value, str):
        return f"the string {format_value(value)}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"the number {format_value(value)}" if keyword == "type" and is_number else format_value(value)


def expected_text(value: Any, schema: Schema, keyword: str) -> str:
    """Describe the values that a schema accepts, given the value and the keyword that rejects it."""
    if schema.get("pattern") in (DECIMAL_PATTERN, NON_NEGATIVE_DECIMAL_PATTERN):
        bound = "" if schema["pattern"] == DECIMAL_PATTERN else " of at least 0"
        return f"a number{bound} such as 0.76, without an exponent"
    if "enum" in schema:
        return _choice(str(value), schema["enum"])
    if keyword in COUNTED:
        counted, unit = COUNTED[keyword]
        suffix = keyword.removeprefix("min").removeprefix("max")
        return _range(counted, schema.get(f"min{suffix}"), schema.get(f"max{suffix}"), unit)
    if keyword == "pattern":
        return f"a string that matches {schema['pattern']} ({first_sentence(schema.get('description', ''))})"
    if keyword == "format":
        return "a time such as 2026-03-01T12:00:00Z"
    what = TYPE_NAMES.get(schema.get("type", ""), f"a number or a string of 1 to {schema.get('maxLength')} characters")
    return _range(what, schema.get("minimum"), schema.get("maximum"), "")


def missing_field_text(name: str, schema: Schema) -> str:
    """Describe a required field that is missing."""
    return f"{name}: {first_sentence(schema.get('description', '')) or TYPE_NAMES[schema['type']]}"


def unknown_field_text(name: str, siblings: Mapping[str, Any], path: Path, schema: Schema, root: Schema) -> str:
    """Suggest a replacement for an unknown field.

    Args:
        name: Name of the unknown field.
        siblings: The fields of its object, itself included.
        path: Path of the object that has the field.
        schema: Schema of that object.
        root: Schema of the whole document, in which the field may belong elsewhere.
    """
    known = sorted(schema["properties"])
    # A field of the status is no input.
    elsewhere = {
        other: found for other, found in _fields_of(root, name, ()) if other[0] != "status" or path[:1] == ("status",)
    }
    chosen = _field_with_choice(name, siblings, schema, elsewhere.values())
    if chosen is not None:
        return f"{chosen}, which can be {siblings[name]} (did you mean it?)"
    below = [other for other in elsewhere if path and other[: len(path)] == path]
    union = _union_text(schema)
    if union and not below:
        close = closest(name, known)
        return union + (f" (did you mean {close}?)" if close else "")
    if elsewhere:
        nearest = sorted(elsewhere, key=lambda other: (-_common_steps(other, path), len(other)))
        # Of several fields below the object, each may be meant.
        places = [other for other in nearest if other in below][:MAX_PLACES] or nearest[:1]
        return f"it at {' or '.join(map(format_path, places))} (is it misplaced?)"
    close = closest(name, known)
    if close:
        return f"{close} (did you mean it?)"
    return f"one of {', '.join(known)}" if known else "no fields here"


def _field_with_choice(
    name: str, siblings: Mapping[str, Any], schema: Schema, of_same_name: Iterable[Schema]
) -> str | None:
    """The absent field of an object that has the value of an unknown one among its choices.

    None if the value is also one of a field of the unknown one's name elsewhere.
    """
    value = siblings[name]
    if not isinstance(value, str) or any(_accepts(field, value) for field in of_same_name):
        return None
    fields = schema["properties"].items()
    return next((key for key, field in fields if key not in siblings and value in field.get("enum", ())), None)


def _accepts(schema: Schema, value: str) -> bool:
    return value in schema["enum"] if "enum" in schema else schema.get("type") == "string"


def _union_text(schema: Schema) -> str:
    """What an object that has exactly one of some fields states about them; empty for other objects."""
    messages: list[str] = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    return next((message for message in messages if message.startswith("exactly one of ")), "")


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is similar to a name, or None.

    Example:
        >>> closest("maximise", ["Maximize", "Minimize"])
        'Maximize'
    """
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, without its full stop."""
    return text.partition(". ")[0].removesuffix(".")


def _fields_of(schema: Schema, name: str, path: Path) -> Iterator[tuple[Path, Schema]]:
    properties: Schema = schema.get("properties", {})
    if name in properties:
        yield (*path, name), properties[name]
    for key, part in properties.items():
        yield from _fields_of(part, name, (*path, key))


def _common_steps(one: Path, other: Path) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _choice(value: str, choices: list[str]) -> str:
    close = closest(value, choices)
    return f"one of {', '.join(choices)}" + (f" (did you mean {close}?)" if close else "")


def _range(what: str, minimum: int | None, maximum: int | None, unit: str) -> str:
    if minimum is not None and maximum is not None:
        return f"{what} from {minimum} to {maximum}{unit}"
    if minimum is not None:
        return f"{what} of at least {minimum}{unit}"
    return what if maximum is None else f"{what} of at most {maximum}{unit}"
