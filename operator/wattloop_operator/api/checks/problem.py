"""One thing wrong in a manifest: where, what was found, what would be right."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]


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
        return f"{self.source}{place}: {path}found {self.found}, expected {self.expected}"


def shown_path(path: Path) -> str:
    """A path as Kubernetes writes it.

    Example:
        >>> shown_path(("spec", "batchSize", "candidates", 2))
        'spec.batchSize.candidates[2]'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
