"""A problem in a manifest: its position, what was found, and what was expected."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]
MAX_SHOWN_CHARACTERS = 80
MAX_PATH_CHARACTERS = 400


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
        return printable(f"{self.source}{position}: {path}found {self.found}, expected {self.expected}")


def format_path(path: Path) -> str:
    """Format a path as Kubernetes does.

    Example:
        >>> format_path(("spec", "batchSize", "candidates", 2))
        'spec.batchSize.candidates[2]'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{shortened(step)}" for step in path)
    return shortened("".join(steps).removeprefix("."), MAX_PATH_CHARACTERS)


def printable(text: str) -> str:
    r"""Escape the characters that are not printable, so that a text has one line and no terminal control sequences.

    Example:
        >>> print(printable("a\n\x1b[31mb"))
        a\n\x1b[31mb
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    """Truncate a text for a message.

    Example:
        >>> shortened("12345", 4)
        '1234…'
    """
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"
