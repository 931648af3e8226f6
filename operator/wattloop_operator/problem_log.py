"""Logs problems when they change, and not each time that they are met."""

from __future__ import annotations

import logging
from collections.abc import Container


class ProblemLog:
    """Remembers the latest problem of each subject. Thread-safe.

    Args:
        logger: Where new problems are logged.
        level: Their level.

    Example:
        >>> problems = ProblemLog(logging.getLogger("example"))
        >>> problems.met("GPUNodes are not shown", "no answer")
        >>> problems.ended("GPUNodes are not shown")
    """

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._latest: dict[str, str] = {}

    def met(self, subject: str, problem: str) -> None:
        """Log a problem, unless it is the latest one of its subject."""
        if self._latest.get(subject) != problem:
            self._latest[subject] = problem
            self._logger.log(self._level, "%s: %s", subject, problem)

    def ended(self, subject: str) -> None:
        """A problem that comes back is logged again."""
        self._latest.pop(subject, None)

    def all_ended_but(self, subjects: Container[str]) -> None:
        """All problems have ended, except those of these subjects."""
        for subject in list(self._latest):
            if subject not in subjects:
                self.ended(subject)
