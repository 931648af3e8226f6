"""What a turn finds out about a job's next start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Readiness:
    """Whether further recurrences start, and when.

    Attributes:
        ready: Whether further recurrences start.
        reason: Why or why not, in one CamelCase word.
        message: The same in a sentence, with the way out.
        following: When the next one starts, where that is known.
        missed: Starts found missed in this turn.
        last_missed: The latest of them.
        last_run_request: The run request acted on last.
    """

    ready: bool
    reason: str
    message: str
    following: datetime | None = None
    missed: int = 0
    last_missed: datetime | None = None
    last_run_request: str | None = None
