"""One thing wrong in a manifest: where, what was found, what would be right."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]
MAX_SHOWN_CHARACTERS = 80
MAX_PATH_CHARACTERS = 400


@dataclass(frozen=True)
class Problem:
    """One thing wrong.

    Attributes:
        source: The file.
        path: The field, as spec.batchSize.candidates[2]; empty where the file as a whole is wrong.
        found: What stands there.
        expected: What would be right.
        line: 1-based line, where there is one.
        column: 1-based column, where there is one.
    """

    source: str
    path: str
    found: str
    expected: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """The form of compilers and linters, which editors can jump to."""
        place = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        path = f"{self.path}: " if self.path else ""
        return printable(f"{self.source}{place}: {path}found {self.found}, expected {self.expected}")


def shown_path(path: Path) -> str:
    """A path as Kubernetes writes it.

    Example:
        >>> shown_path(("spec", "batchSize", "candidates", 2))
        'spec.batchSize.candidates[2]'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{shortened(step)}" for step in path)
    return shortened("".join(steps).removeprefix("."), MAX_PATH_CHARACTERS)


def printable(text: str) -> str:
    r"""A text on one line that changes nothing of a terminal: what cannot be printed is escaped.

    Example:
        >>> print(printable("a\n\x1b[31mb"))
        a\n\x1b[31mb
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str, most: int = MAX_SHOWN_CHARACTERS) -> str:
    """A text as it is, or its beginning where it has more characters than a message can show.

    Example:
        >>> shortened("12345", 4)
        '1234…'
    """
    return text if len(text) <= most else f"{text[:most]}…"
