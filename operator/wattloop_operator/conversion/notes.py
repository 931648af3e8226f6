"""What a conversion could not carry over: a field of the source, and why."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_operator.api.checks.manifest_problem import Path, format_path


@dataclass(frozen=True)
class Note:
    """A difference between the source and the result.

    Attributes:
        path: Field of the source; empty if the note concerns all of it.
        text: What is different, and what to do.
    """

    path: Path
    text: str

    def __str__(self) -> str:
        """Format the note on one line."""
        return f"{format_path(self.path)}: {self.text}" if self.path else self.text
