"""Formats of Kubernetes' names and quantities, and what a check has found."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path, format_value

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
PORT_NAME = re.compile(r"(?!.*--)(?=.*[a-z])[a-z0-9]([-a-z0-9]*[a-z0-9])?")
VARIABLE_NAME = re.compile(r"[ -<>-~]+")
CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?[0-9]{1,3}))", re.ASCII
)
# What people write for a unit of bytes.
OTHER_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtTpP])(i?)(?:[bB](?:ytes?)?)?", re.ASCII)
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
EXPECTED_LABEL = "at most 63 lower-case letters, digits and -, which begin and end with a letter or a digit"
EXPECTED_SUBDOMAIN = (
    "at most 253 lower-case letters, digits, - and ., of which each part begins and ends with a letter or a digit"
)
EXPECTED_QUALIFIED = (
    "at most 63 letters, digits, -, _ and ., which begin and end with a letter or a digit, behind an optional domain "
    "and a slash (team.example/owner)"
)
EXPECTED_LABEL_VALUE = "at most 63 letters, digits, -, _ and ., which begin and end with a letter or a digit"
EXPECTED_LOCAL_PATH = "a relative path without .."
NO_PARENT = "a path without .."
EXPECTED_KEY = "letters, digits, -, _ and ."
MAX_ID = 2**31 - 1
EXPECTED_ID = f"a number from 0 to {MAX_ID}"
MAX_ANNOTATION_BYTES = 256 * 1024


@dataclass(frozen=True)
class Finding:
    """What the API server would refuse.

    Attributes:
        path: The keys to it.
        found: What was found, as text.
        expected: What would be accepted, as text.
    """

    path: Path
    found: str
    expected: str

    @property
    def is_about_field(self) -> bool:
        """Whether a field is missing or unknown, so that its key says where, not its value."""
        return self.found.startswith(("no ", "an unknown field"))


def wrong(path: Path, value: Any, expected: str) -> Finding:
    """A finding about a value."""
    return Finding(path, format_value(value), expected)


# What `parts` names, whether a value is accepted, and what is expected.
ValueRule = tuple[str, Callable[[Any], object], str]


def parts(path: Path, value: Mapping[str, Any], pattern: str) -> Iterator[tuple[Path, Any]]:
    """What a pattern names in an object, with the keys to each; without what is absent, and a field with an empty text.

    Example:
        >>> list(parts(("spec",), {"env": [{"name": "A"}, {"name": ""}]}, "env[].name"))
        [(('spec', 'env', 0, 'name'), 'A')]
    """
    step, _, rest = pattern.partition(".")
    name = step.removesuffix("[]")
    found = value.get(name)
    places: list[tuple[Path, Any]] = [((*path, name), found)]
    if step.endswith("[]"):
        places = [((*path, name, index), each) for index, each in enumerate(found or ())]
    for place, each in places:
        if rest and each is not None:
            yield from parts(place, each, rest)
        elif not rest and each is not None and (each != "" or step.endswith("[]")):
            yield place, each


def wrong_values(path: Path, value: Mapping[str, Any], *rules: ValueRule) -> Iterator[Finding]:
    """The values in an object that a rule does not accept."""
    for pattern, accepts, expected in rules:
        for place, each in parts(path, value, pattern):
            if not accepts(each):
                yield wrong(place, each, expected)


def without(path: Path, value: Mapping[str, Any], pattern: str, name: str) -> Iterator[Finding]:
    """The objects in an object that lack a field."""
    for place, each in parts(path, value, pattern):
        if not each.get(name):
            yield Finding(place, f"no {name}", name)


def without_one_of(
    path: Path, value: Mapping[str, Any], pattern: str, names: Sequence[str], none: str = "no source"
) -> Iterator[Finding]:
    """The objects in an object that have none or several of some fields."""
    for place, each in parts(path, value, pattern):
        given = [name for name in names if each.get(name) is not None]
        if len(given) != 1:
            yield Finding(place, " and ".join(given) or none, f"one of {', '.join(names)}")


def between(low: int, high: int) -> Callable[[int], bool]:
    """Whether a number is in a range, for a `ValueRule`."""
    return lambda number: low <= number <= high


def is_not_negative(number: int) -> bool:
    """Whether a number is at least 0."""
    return number >= 0


def has_no_parent(path: str) -> bool:
    """Whether a path has no part ``..``."""
    return ".." not in path.split("/")


def is_label(text: str) -> bool:
    """Whether a text is a label of the DNS."""
    return len(text) <= 63 and LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether a text is a subdomain of the DNS."""
    return len(text) <= 253 and SUBDOMAIN.fullmatch(text) is not None


def is_qualified(text: str) -> bool:
    """Whether a text is a name that may have a domain before it, such as the key of a label.

    Example:
        >>> is_qualified("team.example/owner"), is_qualified("/owner"), is_qualified("a b")
        (True, False, False)
    """
    domain, slash, name = text.rpartition("/")
    return len(name) <= 63 and NAME_PART.fullmatch(name) is not None and (not slash or is_subdomain(domain))


def is_label_value(text: str) -> bool:
    """Whether a text may be the value of a label."""
    return not text or (len(text) <= 63 and NAME_PART.fullmatch(text) is not None)


def is_local_path(text: str) -> bool:
    """Whether a text is a path inside a volume."""
    return not text.startswith("/") and ".." not in text.split("/")


def wrong_labels(path: Path, labels: Mapping[str, str]) -> Iterator[Finding]:
    """The labels that no object may have."""
    for key, value in labels.items():
        if not is_qualified(key):
            yield Finding((*path, key), f"the key {format_value(key)}", EXPECTED_QUALIFIED)
        elif not is_label_value(value or ""):
            yield wrong((*path, key), value, EXPECTED_LABEL_VALUE)


def wrong_annotations(path: Path, annotations: Mapping[str, str]) -> Iterator[Finding]:
    """The annotations that no object may have."""
    for key in annotations:
        if not is_qualified(key.lower()):
            yield Finding((*path, key), f"the key {format_value(key)}", EXPECTED_QUALIFIED)
    size = sum(len(f"{key}{value or ''}".encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        yield Finding(path, f"{size} bytes", f"at most {MAX_ANNOTATION_BYTES} bytes of annotations")


def repeated(path: Path, values: list[Any], key: str) -> Iterator[Finding]:
    """The objects of a list that have the name of one before them."""
    seen = set()
    for index, each in enumerate(values):
        name = each.get(key)
        if name and name in seen:
            yield Finding((*path, index, key), f"{format_value(name)} a second time", f"each {key} once")
        seen.add(name)


def quantity(value: object) -> Fraction | None:
    """The number of a quantity; None if it is none.

    Example:
        >>> quantity("1.5Gi"), quantity("500m"), quantity("16GB"), quantity(2)
        (Fraction(1610612736, 1), Fraction(1, 2), None, Fraction(2, 1))
    """
    match = QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        return None
    number, unit = Fraction(match[1].removesuffix(".")), match[2] or ""
    if unit in BINARY:
        return number * Fraction(2 ** BINARY[unit])
    power = int(match[3]) if match[3] else DECIMAL[unit]
    return number * Fraction(10**power) if power >= 0 else number / Fraction(10**-power)


def expected_quantity(value: object) -> str:
    """What would be right in place of a text that is no quantity.

    Example:
        >>> expected_quantity("16GB")
        'a quantity, such as 16Gi (did you mean 16Gi or 16G?)'
    """
    match = OTHER_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return "a quantity, such as 500m or 16Gi"
    number, unit = match[1], match[2].upper()
    decimal = f"{number}{'k' if unit == 'K' else unit}"
    meant = f"{number}{unit}i" if match[3] else f"{number}{unit}i or {decimal}"
    return f"a quantity, such as 16Gi (did you mean {meant}?)"
