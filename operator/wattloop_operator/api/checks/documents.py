"""Reads YAML as Kubernetes does, with the position of every key and value and with bounded work."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scanner import Scanner

from wattloop_operator.api.checks.manifest_problem import ManifestProblem, Path, format_path, shortened

MAX_FILE_BYTES = 1024 * 1024
# A manifest has about 20 levels and a few thousand tokens.
MAX_DEPTH = 100
MAX_TOKENS = 300_000
# Aliases can expand a short file to a huge one; a manifest has a few hundred values.
MAX_VALUES = 100_000
# A float has at most 309 digits before the point; Python refuses to convert much longer integers.
MAX_NUMBER_CHARACTERS = 400
TAG_PREFIX = "tag:yaml.org,2002:"
# What ends a list in brackets or an object in braces, in a message of the library.
FLOW_END = re.compile(r"found '[\]},]'")
# A value of a template, which is no YAML before a tool has filled it in, and one that only Helm has, also in quotes.
TEMPLATE_VALUE = re.compile(r"^(?:[^#'\"\n]*[\s:,\[])?(\{\{[^\n}]{0,200}(?:\}\})?|\{%[^\n]{0,200})", re.MULTILINE)
HELM_VALUE = re.compile(r"(\{\{[^{}\n]{0,200}(?:\.Values|\.Release|\.Chart|\binclude |\btoYaml )[^{}\n]{0,200}\}\})")
# An alias of YAML has a name; a schedule has none.
ALIAS_OF_SCHEDULE = re.compile(r"undefined alias '[/,-]")
LINE_BREAKS = "\r\n\x85\u2028\u2029"
# kubectl reads these unquoted scalars of YAML 1.1 as booleans.
TRUE_SCALARS = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
FALSE_SCALARS = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})


@dataclass(frozen=True)
class Position:
    """1-based line and column."""

    line: int
    column: int


@dataclass
class Document:
    """One document of a file, or one object of a list in it.

    Attributes:
        source: Name of the file.
        value: Content of the document as JSON types.
        keys: Position of the key at each path of the file's document.
        values: Position of the value at each path of it.
        place: Path of the value in the file's document.
    """

    source: str
    value: Any = None
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    place: Path = ()

    def objects(self) -> Iterator["Document"]:
        """Itself, or the objects of a list, as `kubectl get -o yaml` prints several."""
        items = _listed(self.value)
        if items is None:
            yield self
            return
        for index, item in enumerate(items):
            yield from replace(self, value=item, place=(*self.place, "items", index)).objects()

    def problem(self, path: Path, found: str, expected: str, *, at_key: bool = False) -> ManifestProblem:
        """Return a problem at the position of this path, or of its nearest ancestor in the file."""
        position = self.position(path, at_key=at_key)
        place = format_path((*self.place, *path))
        return ManifestProblem(self.source, place, found, expected, position.line, position.column)

    def position(self, path: Path, *, at_key: bool = False) -> Position:
        """Return the position of this path, or of its nearest ancestor in the file."""
        positions, path = self.keys if at_key else self.values, (*self.place, *path)
        ancestors = (path[:length] for length in range(len(path), -1, -1))
        return next((positions[ancestor] for ancestor in ancestors if ancestor in positions), Position(1, 1))


def _listed(value: Any) -> list[Any] | None:
    if not isinstance(value, dict) or not isinstance(items := value.get("items"), list):
        return None
    kind = str(value.get("kind"))
    # Other kinds may have such a name and such a field, too.
    has_objects = kind.endswith("List") and all(isinstance(each, dict) and "kind" in each for each in items)
    return items if kind == "List" or has_objects else None


class DocumentError(Exception):
    """The file is not YAML, or not YAML that Kubernetes accepts.

    Attributes:
        problem: The problem.
    """

    def __init__(self, problem: ManifestProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class TooComplexError(Exception):
    """The text is nested too deeply or has too many tokens.

    Attributes:
        line: 1-based line at which the bound is exceeded.
        column: 1-based column.
    """

    def __init__(self, found: str, line: int, column: int) -> None:
        super().__init__(found)
        self.line = line
        self.column = column


class BoundedScanner(Scanner):
    """A scanner that rejects a text beyond `MAX_DEPTH` or `MAX_TOKENS`, and accepts the tabs that Kubernetes accepts.

    The time of the library's scanner grows with the square of the nesting.
    """

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self._tokens = 0

    def fetch_more_tokens(self) -> Any:
        """Scan the next token.

        Raises:
            TooComplexError: The text exceeds a bound.
        """
        self._tokens += 1
        if len(self.flow_context) + len(self.indents) > MAX_DEPTH:
            raise self._error("values nested too deeply")
        if self._tokens > MAX_TOKENS:
            raise self._error("too many values")
        return super().fetch_more_tokens()

    def scan_to_next_token(self) -> Any:
        """Skip what separates tokens: outside of brackets, a tab does so only where no key can begin."""
        if not self.allow_simple_key:
            self.reader.forward(len(self._blanks()))
        return super().scan_to_next_token()

    def scan_plain_spaces(self, indent: Any, start_mark: Any) -> Any:
        """Read what separates two words of a value: in one line, a tab may do so."""
        blanks = self._blanks()
        self.reader.forward(len(blanks))
        goes_on = blanks and self.reader.peek() not in LINE_BREAKS
        return [blanks] if goes_on else super().scan_plain_spaces(indent, start_mark)

    def _blanks(self) -> str:
        length = 0
        while self.reader.peek(length) in " \t":
            length += 1
        return str(self.reader.prefix(length))

    def _error(self, found: str) -> TooComplexError:
        return TooComplexError(found, self.reader.line + 1, self.reader.column + 1)


def read_documents(source: str, text: str) -> Iterator[Document]:
    """Read the documents of a file and skip empty ones.

    Raises:
        DocumentError: The text is too large, is not YAML, has a duplicate key or a tag, or is nested too deeply.
    """
    try:
        yield from _documents(source, text)
    except DocumentError as error:
        template = _template_problem(source, text, TEMPLATE_VALUE)
        raise (error if template is None else DocumentError(template)) from error


def check_no_template(source: str, text: str) -> None:
    """Check that a text is not a template of Helm, whose values in quotes are YAML.

    Raises:
        DocumentError: It is one.
    """
    problem = _template_problem(source, text, HELM_VALUE)
    if problem is not None:
        raise DocumentError(problem)


def _template_problem(source: str, text: str, value: re.Pattern[str]) -> ManifestProblem | None:
    """A problem about the first value of a template outside of comments; None if there is none."""
    for match in value.finditer(text[:MAX_FILE_BYTES]):
        begin = text.rfind("\n", 0, match.start(1)) + 1
        if not text[begin : match.start(1)].lstrip().startswith("#"):
            found = f"{shortened(match[1])}, a value of a template"
            expected = "the manifest that Helm or another tool makes of it (helm template CHART prints it; - reads it)"
            line, column = text.count("\n", 0, begin) + 1, match.start(1) - begin + 1
            return ManifestProblem(source, "", found, expected, line, column)
    return None


def _documents(source: str, text: str) -> Iterator[Document]:
    if len(text.encode()) > MAX_FILE_BYTES:
        raise DocumentError(
            ManifestProblem(source, "", f"more than {MAX_FILE_BYTES} bytes", f"a manifest of at most {MAX_FILE_BYTES}")
        )
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Scanner = BoundedScanner
        # Kubernetes accepts an anchor that is defined twice; a warning for each could be 100,000 lines.
        yaml.composer.warn_double_anchors = False
        for node in yaml.compose_all(text):
            if node is not None:
                document = Document(source)
                document.value = _Reader(document).value(node, ())
                if document.value is not None:
                    yield document
    except TooComplexError as error:
        raise DocumentError(
            ManifestProblem(source, "", str(error), "a plain manifest", error.line, error.column)
        ) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        before = "" if mark is None else text[: mark.index].rpartition("\n")[2]
        raise DocumentError(
            ManifestProblem(source, "", *(_unquoted_star(error) or _not_yaml(error, before)), line, column)
        ) from error
    except YAMLError as error:
        found = f"text that is not YAML ({str(error).strip().partition(chr(10))[0]})"
        raise DocumentError(ManifestProblem(source, "", found, "YAML")) from error
    except RecursionError as error:
        raise DocumentError(ManifestProblem(source, "", "values nested too deeply", "a plain manifest")) from error


def _behind_a_block(begin: StreamMark, before: str) -> tuple[str, str]:
    if before.strip(" -"):
        return "text behind a value that has ended", "quotes around the whole value, or one value a line"
    place = f"column {begin.column + 1}, where line {begin.line + 1} begins"
    return "a line that is indented wrongly", f"{place}, or the column of another line that it belongs to"


def _unquoted_star(error: MarkedYAMLError) -> tuple[str, str] | None:
    """What was found and is expected where a value begins with a star, as that of a schedule does; else None."""
    is_alias = "scanning an alias" in (error.context or "") or ALIAS_OF_SCHEDULE.search(error.problem or "")
    found = "a value that begins with *, which YAML reads as an alias"
    return (found, "quotes around the whole value, such as '*/5 * * * *'") if is_alias else None


def _not_yaml(error: MarkedYAMLError, before: str) -> tuple[str, str]:
    """What was found at the mark of an error, and what is expected, in the words of a person who indents lines."""
    problem, begin = error.problem or error.context or "", error.context_mark
    if "'\\t'" in problem:
        return "a tab", "spaces: YAML allows no tab at this place"
    if problem.startswith("found character"):
        return f"text that is not YAML ({problem})", "quotes around a value that begins with this character"
    if problem.startswith("expected <block end>") and begin is not None and not FLOW_END.search(problem):
        return _behind_a_block(begin, before)
    if problem.startswith("mapping values are not allowed"):
        if ":" in before:
            return "a second colon in a line", "quotes around a value that has a colon and a space"
        return "a line that does not fit the line before", "the same indentation, and a space after each key's colon"
    return f"text that is not YAML ({problem})", "YAML"


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def value(self, node: Node, path: Path) -> Any:
        self._count(node, path)
        self.document.values.setdefault(path, _position(node))
        if len(path) > MAX_DEPTH:
            raise self._error(node, path, "an alias that contains itself", "a plain manifest")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        raise self._error(node, path, "a node that is not a scalar, list or mapping", "a plain manifest")

    def _count(self, node: Node, path: Path) -> None:
        """Count a value, wherever an alias or a merge key repeats it: each of a few can contain many of the next."""
        self.count += 1
        if self.count > MAX_VALUES:
            found = f"more than {MAX_VALUES} values, with those that aliases and merge keys (<<) repeat"
            raise self._error(node, path, found, "a plain manifest")

    def _mapping(self, node: MappingNode, path: Path, merges: int = 0) -> dict[str, Any]:
        if merges > MAX_DEPTH:
            raise self._error(node, path, "a merge key (<<) that contains itself", "a plain manifest")
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{TAG_PREFIX}merge":
                parts = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                for part in reversed(parts):
                    self._count(part, path)
                    merged |= self._mapping(part, path, merges + 1) if isinstance(part, MappingNode) else {}
                continue
            if not isinstance(key_node, ScalarNode):
                raise self._error(key_node, path, "a key that is not a string", "a string")
            key = str(key_node.value)
            if key in own:
                first = self.document.keys[*path, key].line
                raise self._error(
                    key_node, (*path, key), f"a second {shortened(key)} (the first is on line {first})", "each key once"
                )
            self.document.keys[*path, key] = _position(key_node)
            own[key] = self.value(value_node, (*path, key))
        return merged | own

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text, kind = str(node.value), str(node.tag).removeprefix(TAG_PREFIX)
        if kind == "str" and not node.style and text in TRUE_SCALARS | FALSE_SCALARS:
            return text in TRUE_SCALARS
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
            number = _integer(text) if kind == "int" else _float(text)
        except ValueError as error:
            expected = "an integer" if kind == "int" else "a number"
            raise self._error(node, path, repr(shortened(text)), expected) from error
        # Compared, not converted: an integer may be larger than every float.
        if abs(number) <= sys.float_info.max:
            # Kubernetes reads an integer of more than 64 bits as a float.
            return number if -(2**63) <= number < 2**63 else float(number)
        raise self._error(node, path, shortened(text), "a finite number that a 64-bit float can represent")

    def _error(self, node: Node, path: Path, found: str, expected: str) -> DocumentError:
        position = _position(node)
        return DocumentError(
            ManifestProblem(self.document.source, format_path(path), found, expected, position.line, position.column)
        )


def _position(node: Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _integer(text: str) -> int:
    """Parse an integer of YAML 1.1: 0x hexadecimal, 0o or 0 octal, 0b binary, else decimal."""
    digits = text.replace("_", "").lower()
    sign, bare = (-1, digits[1:]) if digits.startswith("-") else (1, digits.removeprefix("+"))
    if len(bare) > 1 and bare[0] == "0" and bare[1] not in "xob":
        return sign * int(bare, 8 if set(bare) <= set("01234567") else 10)
    return sign * int(bare, 0)


def _float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
