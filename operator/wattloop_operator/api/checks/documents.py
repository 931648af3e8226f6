"""YAML as Kubernetes reads it, with the place of every key and value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from wattloop_operator.api.checks.bounded_scanner import MAX_DEPTH, BoundedScanner, TooComplexError
from wattloop_operator.api.checks.problem import Path, Problem, shortened, shown_path

MAX_FILE_BYTES = 1024 * 1024
# Aliases can make a short file mean a huge one; a manifest has a few hundred values.
MAX_VALUES = 100_000
# A float has 309 digits before the point at most; Python refuses to read or print far longer whole numbers.
MAX_NUMBER_CHARACTERS = 400
TAG = "tag:yaml.org,2002:"
# kubectl still reads these words of YAML 1.1 as truth values where they are not quoted.
TRUE_WORDS = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
FALSE_WORDS = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})


@dataclass(frozen=True)
class Place:
    """1-based line and column."""

    line: int
    column: int


@dataclass
class Document:
    """One document of a file.

    Attributes:
        source: The file's name.
        value: What it says, as JSON types.
        keys: Where the key of each path stands.
        values: Where the value of each path stands.
    """

    source: str
    value: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)

    def problem(self, path: Path, found: str, expected: str, *, at_key: bool = False) -> Problem:
        """A problem at this path, or at its nearest ancestor that stands in the file."""
        places = self.keys if at_key else self.values
        ancestors = (path[:length] for length in range(len(path), -1, -1))
        place = next((places[ancestor] for ancestor in ancestors if ancestor in places), Place(1, 1))
        return Problem(self.source, shown_path(path), found, expected, place.line, place.column)


class DocumentError(Exception):
    """A file that is no YAML, or none that Kubernetes takes; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_documents(source: str, text: str) -> Iterator[Document]:
    """Read the documents of a file; empty ones are passed over.

    Args:
        source: The file's name, for problems.
        text: What it holds.

    Raises:
        DocumentError: The text is too large, no YAML, uses a key twice or a tag, or is nested too deeply.
    """
    if len(text.encode()) > MAX_FILE_BYTES:
        raise DocumentError(
            Problem(source, "", f"more than {MAX_FILE_BYTES} bytes", f"a manifest of at most {MAX_FILE_BYTES}")
        )
    try:
        yaml = YAML(typ="rt")
        yaml.Scanner = BoundedScanner
        # Kubernetes takes an anchor that is defined again; a warning each would be a hundred thousand lines.
        yaml.composer.warn_double_anchors = False
        for node in yaml.compose_all(text):
            if node is not None:
                document = Document(source)
                document.value = _Reader(document).value(node, ())
                if document.value is not None:
                    yield document
    except TooComplexError as error:
        raise DocumentError(Problem(source, "", str(error), "a plain manifest", error.line, error.column)) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        found = f"text that is not YAML ({error.problem or error.context})"
        raise DocumentError(Problem(source, "", found, "YAML", line, column)) from error
    except YAMLError as error:
        found = f"text that is not YAML ({str(error).strip().partition(chr(10))[0]})"
        raise DocumentError(Problem(source, "", found, "YAML")) from error
    except RecursionError as error:
        raise DocumentError(Problem(source, "", "values nested too deeply", "a plain manifest")) from error


class _Reader:
    """Turns the nodes of one document into values and notes where they stand."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def value(self, node: Node, path: Path) -> Any:
        self.count += 1
        self.document.values.setdefault(path, _place(node))
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:
            raise self._error(node, path, "an alias that contains itself, or too many values", "a plain manifest")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        raise self._error(node, path, "a node that is no scalar, list or mapping", "a plain manifest")

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{TAG}merge":
                parts = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                for part in reversed(parts):
                    merged |= self._mapping(part, path) if isinstance(part, MappingNode) else {}
                continue
            if not isinstance(key_node, ScalarNode):
                raise self._error(key_node, path, "a key that is no text", "a text")
            key = str(key_node.value)
            if key in own:
                first = self.document.keys[*path, key].line
                raise self._error(
                    key_node, (*path, key), f"a second {shortened(key)} (the first is on line {first})", "each key once"
                )
            self.document.keys[*path, key] = _place(key_node)
            own[key] = self.value(value_node, (*path, key))
        return merged | own

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text, kind = str(node.value), str(node.tag).removeprefix(TAG)
        if kind == "str" and not node.style and text in TRUE_WORDS | FALSE_WORDS:
            return text in TRUE_WORDS
        match kind:
            case "str" | "timestamp":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() in {"true", "yes", "on", "y"}
            case "int" | "float":
                return self._number(node, path, text, kind)
        raise self._error(node, path, f"the tag {shortened(str(node.tag))}", "a value without a tag")

    def _number(self, node: ScalarNode, path: Path, text: str, kind: str) -> int | float:
        if len(text) > MAX_NUMBER_CHARACTERS:
            found, expected = f"a number of {len(text)} characters", f"at most {MAX_NUMBER_CHARACTERS}"
            raise self._error(node, path, found, expected)
        try:
            number = _whole_number(text) if kind == "int" else _decimal_number(text)
        except ValueError as error:
            what = "a whole number" if kind == "int" else "a number"
            raise self._error(node, path, repr(shortened(text)), what) from error
        # Compared, not converted: a whole number may be beyond all floats.
        if abs(number) <= sys.float_info.max:
            return number
        raise self._error(node, path, shortened(text), "a finite number that a 64-bit float can hold")

    def _error(self, node: Node, path: Path, found: str, expected: str) -> DocumentError:
        place = _place(node)
        return DocumentError(Problem(self.document.source, shown_path(path), found, expected, place.line, place.column))


def _place(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _whole_number(text: str) -> int:
    """A whole number as YAML 1.1 writes it: 0x hexadecimal, 0o or 0 octal, 0b binary, else decimal."""
    digits = text.replace("_", "").lower()
    sign, bare = (-1, digits[1:]) if digits.startswith("-") else (1, digits.removeprefix("+"))
    if len(bare) > 1 and bare[0] == "0" and bare[1] not in "xob":
        return sign * int(bare, 8 if set(bare) <= set("01234567") else 10)
    return sign * int(bare, 0)


def _decimal_number(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
